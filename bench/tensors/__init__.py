"""Tensor tables: generators, sizes, times."""
