"""Hyperslab and the systems a person would pick instead, in the same cloud, on the same data, by the same queries."""
