"""What is kept of a read until it is recorded: bounded in memory, whatever was read."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hyperslab.layout import Layout
from hyperslab.selection import Picks, Points, Selection, Span

__all__ = ["MOST_INDICES", "MOST_LISTED", "Described", "Listed", "Thinned", "light_layout", "light_selection", "listed"]

# Longer lists of indices are thinned: where a read went is seen from every k-th cell as well.
MOST_INDICES = 65_536
# The most cells of all lists of one read.
MOST_LISTED = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Thinned:
    """An axis' cells by their indices: every `every`-th of those that were read."""

    cells: npt.NDArray[np.int64]
    every: int


@dataclass(frozen=True, slots=True, eq=False)
class Listed:
    """A selection some of whose axes are lists; or points, whose axes all are, equally long."""

    axes: tuple[Span | Thinned, ...]
    points: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Described:
    """What is recorded of a layout, under the same names: without the table of a file's chunks, or references."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunks: tuple[int, ...]
    stored: np.dtype[Any]
    object_shape: tuple[int, ...]
    index: object = None


def light_layout(layout: Layout) -> Layout | Described:
    """Return what is recorded of a layout."""
    if layout.table is None and layout.references is None:
        return layout
    return Described(layout.shape, layout.dtype, layout.chunks, layout.stored, layout.object_shape)


def light_selection(selection: Selection | Points) -> Selection | Listed:
    """Return the selection with copies of its lists, thinned where they are long."""
    if isinstance(selection, Selection) and Picks not in map(type, selection.axes):
        return selection
    return listed(selection)


def listed(selection: Selection | Points | Listed) -> Listed:
    """Return a selection that has lists, with copies of them, thinned where they are long."""
    if isinstance(selection, Listed):
        return selection
    if isinstance(selection, Points):
        most = min(MOST_INDICES, MOST_LISTED // max(1, len(selection.coords)))
        return Listed(tuple([_thinned(cells, most) for cells in selection.coords]), points=True)
    lists = sum([isinstance(axis, Picks) for axis in selection.axes])
    most = min(MOST_INDICES, MOST_LISTED // max(1, lists))
    return Listed(tuple([_thinned(axis.cells, most) if isinstance(axis, Picks) else axis for axis in selection.axes]))


def _thinned(cells: npt.NDArray[np.int64], most: int) -> Thinned:
    every = max(1, -(-len(cells) // most))
    # Copied: the array may be the user's own, and large.
    return Thinned(cells[::every].copy(), every)
