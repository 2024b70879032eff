"""Measurements of Hyperslab: each claim a ratio to a named peer, or a count, within one run."""
