"""Reference sets: Zarr arrays whose chunks lie in other files, as kerchunk and VirtualiZarr describe them."""
