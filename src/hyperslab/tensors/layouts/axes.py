"""Tensors of any number of axes as tensors of one to eight: there are eight index columns.

Axes from the eighth on are counted as one, row-major; a tensor without axes gets one, of one cell.
"""

from math import prod

import numpy as np

from hyperslab.selection import Box
from hyperslab.tensors.layouts.encoded import MOST_INDEX_COLUMNS
from hyperslab.tensors.values import Coo, positions

__all__ = ["fold", "folded_box", "folded_shape", "unfold"]

_KEPT = MOST_INDEX_COLUMNS - 1


def folded_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape with at least one and at most eight axes.

    >>> folded_shape((2,) * 10), folded_shape(())
    ((2, 2, 2, 2, 2, 2, 2, 8), (1,))
    """
    if not shape:
        return (1,)
    return (*shape[:_KEPT], prod(shape[_KEPT:])) if len(shape) > MOST_INDEX_COLUMNS else shape


def fold(tensor: Coo) -> Coo:
    """Return a tensor with the axes that are counted as one folded together."""
    shape = folded_shape(tensor.shape)
    if shape == tensor.shape:
        return tensor
    last = positions(tensor.coords[_KEPT:], tensor.shape[_KEPT:])
    coords = np.concatenate([tensor.coords[:_KEPT], last[None]]) if tensor.shape else last[None]
    return Coo(shape, coords, tensor.values, tensor.fill)


def folded_box(shape: tuple[int, ...], box: Box) -> Box:
    """Return the smallest box of the folded tensor that holds all cells of a box with at least one.

    >>> folded_box((2,) * 9, Box((0,) * 9, (2,) * 7 + (1, 1)))
    Box(start=(0, 0, 0, 0, 0, 0, 0, 0), stop=(2, 2, 2, 2, 2, 2, 2, 1))
    """
    if folded_shape(shape) == shape:
        return box
    ends = np.array([box.start[_KEPT:], [stop - 1 for stop in box.stop[_KEPT:]]], np.int64).reshape(2, -1).T
    low, high = positions(ends, shape[_KEPT:]).tolist()
    return Box((*box.start[:_KEPT], low), (*box.stop[:_KEPT], high + 1))


def unfold(tensor: Coo, shape: tuple[int, ...], folded: Box, box: Box) -> Coo:
    """Return the cells of a box, given those of the folded box that holds it."""
    if folded is box:
        return tensor
    kept = min(_KEPT, len(shape))
    coords = np.empty((len(shape), tensor.nnz), np.int64)
    coords[:kept] = tensor.coords[:kept]
    if shape:
        coords[kept:] = np.unravel_index(tensor.coords[-1] + folded.start[-1], shape[kept:])
    cut = Box((*(0 for _ in range(kept)), *box.start[kept:]), (*box.shape[:kept], *box.stop[kept:]))
    wide = Coo((*box.shape[:kept], *shape[kept:]), coords, tensor.values, tensor.fill)
    return wide.cut(cut)
