"""Advised layouts against automatic chunks; run by `python -m bench.layouts`."""
