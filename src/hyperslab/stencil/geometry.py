"""Which cells of the input an output cell is made of: index arithmetic, without the cells."""

from dataclasses import dataclass

from hyperslab.selection import Box
from hyperslab.stencil.reach import Reach

__all__ = ["Geometry"]

Shape = tuple[int, ...]


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
