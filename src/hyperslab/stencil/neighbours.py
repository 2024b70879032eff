"""What a function is called with when it is not compiled: a cell and its neighbours as Python objects.

`At` is one cell, its values NumPy scalars. `Blocks` of cells are row-major and reduce in that order, the same in every
way a function can run, so that sums agree to the bit.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import prod
from operator import index
from typing import Any

import numpy as np

from hyperslab.errors import InvalidInputError, StencilError
from hyperslab.stencil.reach import Reach

__all__ = ["At", "Block", "Neighbours", "mean_dtype", "ranges_of", "sum_dtype"]


class Neighbours:
    """The argument of a user's function: `s(1, 0)` is the neighbour one further along the first axis.

    A read beyond the reach is recorded in `escaped` and answered with the cell itself.
    """

    __slots__ = ("escaped", "reach")

    def __init__(self, reach: Reach, escaped: list[tuple[int, ...]]) -> None:
        self.reach, self.escaped = reach, escaped

    def __call__(self, *offset: int) -> Any:
        """Return the value at `offset` from the cell."""
        steps = tuple(index(step) for step in offset)
        self.check(steps)
        if not self.reach.holds(steps):
            self.escaped.append(steps)
            steps = (0,) * len(steps)
        return self.value(steps)

    def check(self, offset: tuple[int, ...]) -> None:
        """Refuse an offset of another number of axes than the array has."""
        if len(offset) != self.reach.ndim:
            raise InvalidInputError(f"the array has {self.reach.ndim} axes, but a neighbour is asked for as s{offset}")

    def value(self, offset: tuple[int, ...]) -> Any:
        """Return the value at an offset within the reach."""
        raise NotImplementedError

    def block(self, *ranges: tuple[int, int]) -> "Block":
        """Return the cells at the offsets start <= offset < stop of each axis."""
        bounds = ranges_of(ranges, self.reach.ndim)
        offsets = product(*(range(a, b) for a, b in bounds))
        return Block([self(*offset) for offset in offsets], tuple(b - a for a, b in bounds))


class At(Neighbours):
    """One cell of an array, at `position`; its neighbours are NumPy scalars."""

    __slots__ = ("array", "position")

    def __init__(self, array: np.ndarray, reach: Reach, escaped: list[tuple[int, ...]]) -> None:
        super().__init__(reach, escaped)
        self.array = array
        self.position: tuple[int, ...] = (0,) * array.ndim

    def value(self, offset: tuple[int, ...]) -> Any:
        return self.array[tuple(p + step for p, step in zip(self.position, offset, strict=True))]


class Block:
    """A box of neighbours: `block[i, j]` from its first cell on, all of them in order, and what NumPy makes of them.

    >>> block = Block([np.uint8(200), np.uint8(100)], (1, 2))
    >>> int(block.sum()), block.mean().dtype, int(block[0, 1])
    (300, dtype('float64'), 100)
    """

    __slots__ = ("cells", "shape")

    def __init__(self, cells: list[Any], shape: tuple[int, ...]) -> None:
        self.cells, self.shape = cells, shape

    @property
    def size(self) -> int:
        """How many cells the block holds."""
        return len(self.cells)

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        """Give the cells in row-major order."""
        return iter(self.cells)

    def __getitem__(self, key: Any) -> Any:
        places = key if isinstance(key, tuple) else (key,)
        if len(places) != len(self.shape):
            raise InvalidInputError(f"a block of {len(self.shape)} axes is indexed with {len(places)} numbers")
        flat = 0
        for place, count in zip(places, self.shape, strict=True):
            if not -count <= index(place) < count:
                raise StencilError(f"index {place} is outside a block of {count} cells")
            flat = flat * count + index(place) % count
        return self.cells[flat]

    def sum(self) -> Any:
        """Return the sum, of the type that NumPy sums such cells in."""
        return self._reduced(np.add, [cell.astype(sum_dtype(cell.dtype)) for cell in self.cells])

    def mean(self) -> Any:
        """Return the mean, of the type that NumPy gives the mean of such cells."""
        cells = [cell.astype(mean_dtype(cell.dtype)) for cell in self.cells]
        return self._reduced(np.add, cells) / len(cells)

    def min(self) -> Any:
        """Return the least cell; NaN if one is."""
        return self._reduced(np.minimum, self.cells)

    def max(self) -> Any:
        """Return the greatest cell; NaN if one is."""
        return self._reduced(np.maximum, self.cells)

    def _reduced(self, ufunc: Callable[[Any, Any], Any], cells: list[Any]) -> Any:
        result = cells[0]
        for cell in cells[1:]:
            result = ufunc(result, cell)
        return result


def ranges_of(ranges: Sequence[Any], ndim: int) -> tuple[tuple[int, int], ...]:
    """Return the ranges of a block, checked: one pair (start, stop) for each axis, none empty."""
    pairs = tuple((index(a), index(b)) for a, b in ranges)
    if len(pairs) != ndim or prod(max(0, b - a) for a, b in pairs) == 0:
        raise InvalidInputError(
            f"expected a block as {ndim} pairs (start, stop) of offsets with start < stop, got {ranges!r}"
        )
    return pairs


def sum_dtype(dtype: np.dtype) -> np.dtype:
    """Return the type in which NumPy sums cells: small integers are widened."""
    total: np.ndarray = np.zeros(1, dtype).sum(keepdims=True)
    return total.dtype


def mean_dtype(dtype: np.dtype) -> np.dtype:
    """Return the type of NumPy's mean: float64 for integers."""
    mean: np.ndarray = np.zeros(1, dtype).mean(keepdims=True)
    return mean.dtype
