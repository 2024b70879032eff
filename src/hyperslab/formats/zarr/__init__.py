"""Zarr, versions 2 and 3: metadata to layouts, and writing."""
