"""How an array is cut up to be written anew: pure arithmetic on two grids.

Parts of whole objects of the new layout are read, encoded and written one after the other; where their borders run
through chunks of the old one, those are read once for each part. Cuts are made along each axis alone, so the number of
reads is a product over the axes, and each factor has a closed form: the best cut is found exactly among the lengths
that are tried, without going through the parts.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import gcd, prod

from hyperslab.selection import Box

__all__ = ["Cut", "best_cut", "cells_before", "parts_meeting", "parts_of", "visits_of"]

Shape = tuple[int, ...]

# Along an axis all counts up to this many are tried, and all that cut it into up to this many parts.
_TRIES = 64
# Of so many partial cuts the search goes on; where there are more, evenly chosen ones.
_FRONT = 512


@dataclass(frozen=True, slots=True)
class Cut:
    """A box cut into parts of one shape, shorter only at its end.

    `visits` is how many pairs there are of a part and a cell of the other grid that meet; `least` how many there would
    be if no border of a part ran through a cell.
    """

    shape: Shape
    visits: int
    least: int

    @property
    def cells(self) -> int:
        """Cells of one part."""
        return prod(self.shape)

    @property
    def amplification(self) -> float:
        """How often a cell of the other grid is visited, on average.

        >>> best_cut(Box((0, 0), (8, 8)), unit=(8, 1), other=(1, 8), most_cells=16).amplification
        4.0
        """
        return self.visits / max(1, self.least)


def best_cut(
    box: Box, *, unit: Shape, other: Shape, most_cells: int, origin: Shape | None = None, roomy_cells: int = 0
) -> Cut:
    """Return the cut of a box, which begins at a border of `unit`, that visits the fewest cells of the grid `other`.

    Parts are whole units of up to `most_cells` cells, at least one unit. The other grid begins at `origin` (default:
    at 0). Where larger parts do no harm, they are made up to `roomy_cells` large.

    >>> best_cut(Box((0, 0), (8, 8)), unit=(8, 1), other=(1, 4), most_cells=32)
    Cut(shape=(8, 4), visits=16, least=16)
    """
    starts = box.start if origin is None else tuple([a - b for a, b in zip(box.start, origin, strict=True)])
    lengths = box.shape
    tried = [_choices(start, n, u, o) for start, n, u, o in zip(starts, lengths, unit, other, strict=True)]
    least_rest = [prod([choices[0][0] for choices in tried[axis + 1 :]]) for axis in range(len(tried))]
    front: list[tuple[int, int, Shape]] = [(1, 1, ())]
    for choices, rest in zip(tried, least_rest, strict=True):
        longer = [(cells * n, visits * v, (*shape, n)) for cells, visits, shape in front for n, v in choices]
        fitting = [each for each in longer if each[0] * rest <= most_cells]
        front = _undominated(fitting or [min(longer)])
    visits, _, shape = min((visits, cells, shape) for cells, visits, shape in front)
    least = prod([visits_of(start, n, max(1, n), o) for start, n, o in zip(starts, lengths, other, strict=True)])
    shape = _roomier(starts, lengths, shape, unit, other, min(roomy_cells, most_cells))
    return Cut(shape, visits, least)


def visits_of(start: int, length: int, part: int, other: int) -> int:
    """Return how many pairs of parts and cells of the other grid meet along an axis.

    Each border between parts that is none of the other grid's adds one to the cells that there are.

    >>> visits_of(0, 12, 4, 3), visits_of(0, 12, 6, 3), visits_of(2, 4, 2, 3)
    (6, 4, 3)
    """
    if not length:
        return 0
    cells = -(-(start + length) // other) - start // other
    borders = -(-length // part) - 1
    return cells + borders - _common(start, part, other, borders)


def _common(start: int, part: int, other: int, borders: int) -> int:
    """Return how many of `start + part`, `start + 2 part`, … are multiples of `other`, of the first so many."""
    shared = gcd(part, other)
    if start % shared:
        return 0
    step = other // shared
    first = -(start // shared) * pow(part // shared, -1, step) % step if step > 1 else 0
    first = first or step
    return (borders - first) // step + 1 if borders >= first else 0


def _choices(start: int, length: int, unit: int, other: int) -> list[tuple[int, int]]:
    """Return lengths of parts along an axis, each with its visits; a longer one only if it has fewer."""
    count = max(1, -(-length // unit))
    counts = {1 << power for power in range(count.bit_length())}
    counts.update(range(1, min(count, _TRIES) + 1))
    counts.update([-(-count // n) for n in range(1, min(count, _TRIES) + 1)])
    aligned = other // gcd(unit, other)
    counts.update([n // aligned * aligned for n in counts if n > aligned])
    found: list[tuple[int, int]] = []
    for n in sorted(counts):
        part = max(1, min(n * unit, length))
        visits = visits_of(start, length, part, other)
        if not found or visits < found[-1][1]:
            found.append((part, visits))
    return found


def _undominated(found: list[tuple[int, int, Shape]]) -> list[tuple[int, int, Shape]]:
    """Keep those that no other one beats in size and visits at once."""
    kept: list[tuple[int, int, Shape]] = []
    for each in sorted(found):
        if not kept or each[1] < kept[-1][1]:
            kept.append(each)
    if len(kept) > _FRONT:
        kept = [kept[n * (len(kept) - 1) // (_FRONT - 1)] for n in range(_FRONT)]
    return kept


def _roomier(starts: Shape, lengths: Shape, shape: Shape, unit: Shape, other: Shape, most_cells: int) -> Shape:
    """Return parts that are longer along some axes, with no more visits."""
    sizes = list(shape)
    for axis in range(len(sizes)):
        while sizes[axis] < lengths[axis]:
            longer = min(2 * sizes[axis], lengths[axis])
            at, length, over = starts[axis], lengths[axis], other[axis]
            more = visits_of(at, length, longer, over) > visits_of(at, length, sizes[axis], over)
            whole = longer == lengths[axis] or longer % unit[axis] == 0
            if more or not whole or prod(sizes) // sizes[axis] * longer > most_cells:
                break
            sizes[axis] = longer
    return tuple(sizes)


def parts_of(box: Box, shape: Shape) -> Iterator[Box]:
    """Yield the parts of a box, row by row.

    >>> [part.start for part in parts_of(Box((0, 2), (2, 6)), (2, 3))]
    [(0, 2), (0, 5)]
    """
    axes = zip(box.start, box.stop, shape, strict=True)
    for start in product(*[range(low, high, size) for low, high, size in axes]):
        yield _part(start, shape, box)


def parts_meeting(wanted: Box, box: Box, shape: Shape) -> Iterator[Box]:
    """Yield the parts of a box that share cells with `wanted`, which lies inside of it.

    >>> [part.start for part in parts_meeting(Box((3,), (5,)), Box((0,), (9,)), (2,))]
    [(2,), (4,)]
    """
    sides = zip(wanted.start, wanted.stop, box.start, shape, strict=True)
    ranges = [range(base + (low - base) // size * size, high, size) for low, high, base, size in sides]
    for start in product(*ranges):
        yield _part(start, shape, box)


def _part(start: Shape, shape: Shape, box: Box) -> Box:
    ends = zip(start, shape, box.stop, strict=True)
    return Box(start, tuple([min(low + size, stop) for low, size, stop in ends]))


def cells_before(part: Box, whole: Box) -> int:
    """Return how many cells come before a part, where all parts of a box are laid one after the other, row by row.

    >>> whole = Box((0, 0), (4, 10))
    >>> [cells_before(part, whole) for part in parts_of(whole, (3, 6))]
    [0, 18, 30, 36]
    """
    before, left = 0, whole.size
    rows = 1
    for low, high, first, length in zip(part.start, part.stop, whole.start, whole.shape, strict=True):
        left //= length
        before += rows * (low - first) * left
        rows *= high - low
    return before
