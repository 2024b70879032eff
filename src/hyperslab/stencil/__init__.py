"""Stencils: a user's function of a cell and its neighbours, compiled and run over arrays.

`reach` says how far a function reads, `kernel` makes it ready to run (by numba, on slices, or by Python), `boundaries`
are what it sees beyond the edges of an array, `memory` runs it over arrays in memory.
"""

from hyperslab.stencil.boundaries import Boundaries, Piece, Side
from hyperslab.stencil.kernel import Kernel, Output, SlowStencilWarning, compile_kernel
from hyperslab.stencil.reach import Reach

__all__ = ["Boundaries", "Kernel", "Output", "Piece", "Reach", "Side", "SlowStencilWarning", "compile_kernel"]
