"""Icechunk repositories, read as they are stored: versions of a Zarr hierarchy whose chunks are listed in manifests."""
