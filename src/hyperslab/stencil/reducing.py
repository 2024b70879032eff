"""Reductions: all output cells made into one value, a sum, a minimum, a histogram or what the user wants.

Partial results are of fixed blocks of the output, which depend on its shape alone, and are put together in the order of
the blocks. So the result is the same to the bit however the array is split, and whoever makes the parts.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from itertools import product
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from hyperslab.errors import InvalidInputError
from hyperslab.formats.zarr.sizes import choose_chunks
from hyperslab.selection import Box

__all__ = ["ReducingTarget", "Reduction", "block_shape", "parse_reduction"]

Cells = npt.NDArray[Any]
Shape = tuple[int, ...]
Partials = dict[Shape, Any]

_BLOCK_BYTES = 2 << 20


@dataclass(frozen=True, slots=True)
class Reduction:
    """`of` makes a value of a block of cells, `combine` one of two such values; it must be associative."""

    of: Callable[[Cells], Any]
    combine: Callable[[Any, Any], Any]
    # What no cells at all are reduced to; None if there is nothing that they could be.
    empty: Any = None

    def finish(self, partials: Mapping[Shape, Any]) -> Any:
        """Put the values of blocks together, in the order of the blocks."""
        if not partials:
            if self.empty is None:
                raise InvalidInputError("the output has no cells, and no cells cannot be reduced to one value")
            return self.empty
        return reduce(self.combine, [partials[at] for at in sorted(partials)])


def parse_reduction(given: Any) -> Reduction:
    """Return the reduction that a user names.

    >>> int(parse_reduction("max").of(np.array([3, 7, 5])))
    7
    >>> parse_reduction(("histogram", [0, 1, 2])).of(np.array([0.5, 1.5, 1.7]))
    array([1, 2])
    >>> parse_reduction((np.size, lambda a, b: a + b)).combine(2, 3)
    5
    """
    if isinstance(given, str) and given in _NAMED:
        return _NAMED[given]
    if isinstance(given, tuple) and len(given) == 2:
        if given[0] == "histogram":
            return _histogram(given[1])
        if callable(given[0]) and callable(given[1]):
            return Reduction(given[0], given[1])
    raise InvalidInputError(
        f"reduce is {', '.join(map(repr, _NAMED))}, ('histogram', edges) or a pair of functions (of, combine): "
        f"the value of an array of cells, and the value of two such values; not {given!r}"
    )


@dataclass(frozen=True, slots=True)
class _Histogram:
    edges: npt.NDArray[Any]

    def __call__(self, cells: Cells) -> npt.NDArray[np.int64]:
        return np.histogram(cells, self.edges)[0].astype(np.int64)


def _histogram(edges: Any) -> Reduction:
    found = np.asarray(edges)
    if found.ndim != 1 or len(found) < 2 or found.dtype.kind not in "iuf" or not (np.diff(found) > 0).all():
        raise InvalidInputError(f"a histogram needs edges, numbers that grow, at least two; not {edges!r}")
    return Reduction(_Histogram(found), np.add, np.zeros(len(found) - 1, np.int64))


def _least(one: Any, other: Any) -> Any:
    return np.minimum(one, other)


def _greatest(one: Any, other: Any) -> Any:
    return np.maximum(one, other)


_NAMED = {
    "sum": Reduction(np.sum, np.add, 0),
    "min": Reduction(np.min, _least),
    "max": Reduction(np.max, _greatest),
}


def block_shape(shape: Shape, itemsize: int) -> Shape:
    """Return the blocks whose values are put together: they depend on nothing else than this."""
    return choose_chunks(shape, max(1, itemsize), _BLOCK_BYTES)


@dataclass(slots=True, eq=False)
class ReducingTarget:
    """Takes the values of blocks, of parts that consist of whole ones."""

    reduction: Reduction
    block: Shape
    tell: Callable[[int], None]
    partials: Partials = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def wants(self, box: Box) -> bool:
        return True

    def items(self, box: Box, cells: Cells) -> Iterator[tuple[Shape, Cells]]:
        sides = zip(box.start, box.stop, self.block, strict=True)
        for at in product(*[range(low // n, -(-high // n)) for low, high, n in sides]):
            ends = list(zip(at, self.block, box.start, box.stop, strict=True))
            yield at, cells[tuple([slice(i * n - low, min(i * n + n, high) - low) for i, n, low, high in ends])]

    def work(self, item: tuple[Shape, Cells]) -> None:
        at, cells = item
        # The user's function may keep what it is given, whose memory is used again.
        value = self.reduction.of(cells.copy())
        with self._lock:
            self.partials[at] = value
        self.tell(prod(cells.shape) * cells.itemsize)
