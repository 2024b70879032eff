"""Changing an array's layout: every cell moved into other chunks, in bounded memory, without a value changed."""

from hyperslab.rechunk.cluster import move_on_cluster
from hyperslab.rechunk.inplace import rechunk_in_place
from hyperslab.rechunk.memory import DEFAULT_BYTES, parse_bytes
from hyperslab.rechunk.moving import move_cells
from hyperslab.rechunk.sweep import sweep_tree

__all__ = ["DEFAULT_BYTES", "move_cells", "move_on_cluster", "parse_bytes", "rechunk_in_place", "sweep_tree"]
