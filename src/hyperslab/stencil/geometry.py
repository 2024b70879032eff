"""Which cells of the input an output cell is made of: index arithmetic, without the cells."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hyperslab.errors import InvalidInputError
from hyperslab.selection import Box
from hyperslab.stencil.reach import Reach

__all__ = ["Geometry", "stride_of"]

Shape = tuple[int, ...]


def stride_of(given: Any, ndim: int) -> Shape:
    """Return the stride that a user wrote: a number for all axes, or one for each; 1 where there is none.

    >>> stride_of(2, 2), stride_of((1, 3), 2), stride_of(None, 1)
    ((2, 2), (1, 3), (1,))
    """
    steps = (1,) * ndim if given is None else (given,) * ndim if _is_count(given) else given
    if not isinstance(steps, Sequence) or len(steps) != ndim or not all([_is_count(n) and n > 0 for n in steps]):
        raise InvalidInputError(f"stride is a number from 1 on, or one for each of {ndim} axes, not {given!r}")
    return tuple([int(n) for n in steps])


def _is_count(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


@dataclass(frozen=True, slots=True)
class Geometry:
    """Output cell `p` is the function at input cell `first + p × stride`, which reaches as far as `reach` says.

    >>> grid = Geometry((9, 9), (3, 9), (0, 0), (3, 1), Reach((1, 0), (0, 2)))
    >>> grid.padded(Box((1, 0), (3, 4)))
    Box(start=(2, 0), stop=(7, 6))
    """

    shape: Shape
    out_shape: Shape
    first: Shape
    stride: Shape
    reach: Reach

    @property
    def carried(self) -> int:
        """Rows of input that are needed again below a border."""
        return self.reach.before[0] + self.reach.after[0]

    def padded(self, box: Box) -> Box:
        """Return the input that a box of output cells needs; it may stick out of the array."""
        if not box.size:
            return Box(box.start, box.start)
        ends = zip(box.start, self.first, self.stride, self.reach.before, strict=True)
        start = tuple([first + low * stride - before for low, first, stride, before in ends])
        ends = zip(box.stop, self.first, self.stride, self.reach.after, strict=True)
        return Box(start, tuple([first + (high - 1) * stride + after + 1 for high, first, stride, after in ends]))

    def padded_shape(self, shape: Shape) -> Shape:
        """Return the shape of the input that output cells in a box of this shape need."""
        sides = zip(shape, self.stride, self.reach.before, self.reach.after, strict=True)
        return tuple([max(0, (n - 1) * stride + before + after + 1) for n, stride, before, after in sides])

    def ready(self, row: int) -> int:
        """Return how many rows of output can be made of the input before `row`.

        >>> Geometry((9,), (3,), (0,), (3,), Reach((1,), (1,))).ready(5)
        2
        """
        return max(0, (row - 1 - self.reach.after[0] - self.first[0]) // self.stride[0] + 1)
