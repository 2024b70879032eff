"""How an array is split to be gone through in bounded memory: pure arithmetic, after section 3.3 of ArrayUDF.

The output is cut into parts of whole stored objects. Parts that lie below each other, along the first axis, form a
column; a column is gone through from its top, and the rows that the next part needs again are carried over. So only
what reaches over the sides of a column is read twice, and nothing if the column is as wide as the array.

There are two ways to cut (Figure 3 of the paper): `layout-aware` makes parts as long as can be along the fastest axes,
which files hold side by side; `general` makes them as cubic as can be, which gives the least halo, and suits chunks
that reach far along the first axis. Which one is taken is decided by what reading is predicted to take: seconds for
each byte and for each request (α and β of the paper's equation 10), as the profile of the store has them. What counts
are bytes as they are read: chunks that cannot be read in part are counted whole, as often as they are read.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import ceil, lcm, prod
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from hyperslab.errors import InvalidInputError
from hyperslab.plan.phrases import say_bytes
from hyperslab.selection import Box
from hyperslab.stencil.geometry import Geometry

__all__ = [
    "Input",
    "Problem",
    "Reading",
    "Split",
    "Strategy",
    "blocks_of",
    "choose_split",
    "columns_of",
    "predict_reading",
]

Shape = tuple[int, ...]
Strategy = Literal["layout-aware", "general", "given"]
Segments = npt.NDArray[np.int64]

# Where it does no harm, parts and blocks of input are about this large: enough for all threads, and little to wait for.
_ROOMY_BYTES = 32 << 20
# Blocks of input that are smaller cost more to ask for than to read: parts are not made so large that only such remain,
# as far as there is memory: a block need not take more than this share of it.
_LEAST_BLOCK_BYTES = 4 << 20
_LEAST_BLOCK_SHARE = 1 / 16


class Times(Protocol):
    """Predicts what reading takes."""

    def seconds(self, requests: int, nbytes: int) -> float: ...

    def decode_seconds(self, chunks: int, nbytes: int) -> float: ...


@dataclass(frozen=True, slots=True)
class Input:
    """An array that is read: the cells that are read together, the size of one, whether they have to be decoded."""

    unit: Shape
    itemsize: int
    encoded: bool = False


@dataclass(frozen=True, slots=True)
class Problem:
    """What is to be split: the output cells of `domain`, stored in objects of `objects` cells, of `out_bytes` each."""

    geometry: Geometry
    domain: Box
    inputs: tuple[Input, ...]
    objects: Shape
    out_bytes: int

    @property
    def in_bytes(self) -> int:
        """Bytes of one cell, over all inputs."""
        return sum([each.itemsize for each in self.inputs])

    @property
    def unit_rows(self) -> int:
        """Rows of all inputs that are read together, no more than there are."""
        rows = lcm(*[each.unit[0] for each in self.inputs])
        most = max([each.unit[0] for each in self.inputs])
        length = self.geometry.padded(self.domain).shape[0]
        return max(1, min(rows if rows <= 4 * most else most, length))


@dataclass(frozen=True, slots=True)
class Reading:
    """What is read in all, by how many requests, what of it more than once, and how long that is predicted to take."""

    nbytes: int
    requests: int
    twice_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Split:
    """Parts of the output, and blocks of `rows` of input, of each `depth` at a time; `buffer_bytes` is what they take.

    `halo_cells` are the cells that all parts need beside their own.
    """

    strategy: Strategy
    part: Shape
    rows: int
    depth: int
    buffer_bytes: int
    halo_cells: int
    reading: Reading


def choose_split(problem: Problem, room_bytes: int, times: Times, given: Shape | None = None) -> tuple[Split, ...]:
    """Return the splits that fit, that one first which reads fastest; `given` is the user's shape of parts.

    Raises InvalidInputError if not even a single object of the output fits into `room_bytes`.
    """
    fitting = _Fitting(problem, room_bytes)
    if given is not None:
        part = _whole(tuple(given), problem)
        if fitting(part) is None:
            raise _too_little(fitting, part, "the chunks given")
        return (_split("given", part, fitting, times),)
    least = _whole((1,) * len(problem.objects), problem)
    level = fitting(least)
    if level is None:
        raise _too_little(fitting, least, "one stored object")

    def fits(part: Shape) -> bool:
        found = fitting(part)
        return found is not None and found.level >= level.level

    shapes: dict[Strategy, Shape] = {
        "layout-aware": _layout_aware(problem, fits),
        "general": _general(problem, fits),
    }
    splits = [_split(name, shape, fitting, times) for name, shape in shapes.items()]
    return tuple(sorted(splits, key=lambda split: split.reading.seconds))


@dataclass(frozen=True, slots=True)
class _Rows:
    """How many rows of input are read at a time; the higher the `level`, the better that goes."""

    level: int
    rows: int
    depth: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class _Fitting:
    """Says with which blocks of input a shape of parts fits into memory; None if it does not."""

    problem: Problem
    room_bytes: int

    def __call__(self, part: Shape) -> _Rows | None:
        found = [rows for depth in (2, 1) if (rows := self._with(part, depth)) is not None]
        return max(found, key=lambda each: each.level, default=None)

    def _with(self, part: Shape, depth: int) -> _Rows | None:
        problem, geometry = self.problem, self.problem.geometry
        wanted, edge = problem.unit_rows, geometry.carried
        row_bytes = max(1, prod(geometry.padded_shape(part)[1:]) * problem.in_bytes)
        out_bytes = depth * prod(part) * problem.out_bytes
        # A block takes up the rows carried over, and those beyond the array's ends; carried rows are kept once more.
        most = (self.room_bytes - out_bytes - edge * row_bytes) // (depth * row_bytes) - 2 * edge
        if most < 1:
            return None
        length = geometry.padded(problem.domain).shape[0]
        roomy = max(wanted, _ROOMY_BYTES // row_bytes // wanted * wanted)
        rows = max(1, min(most // wanted * wanted if most >= wanted else most, roomy, length))
        nbytes = out_bytes + edge * row_bytes + depth * (rows + 2 * edge) * row_bytes
        least = min(_LEAST_BLOCK_BYTES, int(self.room_bytes * _LEAST_BLOCK_SHARE))
        enough = rows == length or rows * row_bytes >= least
        return _Rows(4 * (rows >= wanted) + 2 * (depth == 2) + enough, rows, depth, nbytes)

    def least_bytes(self, part: Shape) -> int:
        """Return what a part takes at least: one row of input after the other, one part at a time."""
        geometry, edge = self.problem.geometry, self.problem.geometry.carried
        row_bytes = max(1, prod(geometry.padded_shape(part)[1:]) * self.problem.in_bytes)
        return prod(part) * self.problem.out_bytes + (3 * edge + 1) * row_bytes


def _too_little(fitting: _Fitting, part: Shape, what: str) -> InvalidInputError:
    return InvalidInputError(
        f"for {what}, {'×'.join(map(str, part))} output cells, and the input with its halo "
        f"{say_bytes(fitting.least_bytes(part))} are needed at least, but memory_bytes leaves "
        f"{say_bytes(max(0, fitting.room_bytes))} for them; allow more, or choose smaller chunks or shards"
    )


def _whole(shape: Shape, problem: Problem) -> Shape:
    """Return a shape of whole objects, no longer than the domain."""
    sides = zip(shape, problem.objects, problem.domain.shape, strict=True)
    return tuple([max(1, min(max(1, -(-n // unit)) * unit, length)) for n, unit, length in sides])


def _layout_aware(problem: Problem, fits: Callable[[Shape], bool]) -> Shape:
    """As long as can be along the last axis, then the one before; along the first as much as is handy."""
    part = _whole((1,) * len(problem.objects), problem)
    for axis in reversed(range(len(part))):
        counts = -(-problem.domain.shape[axis] // problem.objects[axis])

        longer = partial(_longer, part, axis, problem)

        def fine(count: int, axis: int = axis, longer: Callable[[int], Shape] = longer) -> bool:
            shape = longer(count)
            return fits(shape) and (axis > 0 or count == 1 or prod(shape) * problem.out_bytes <= _ROOMY_BYTES)

        part = _even(longer(_last(counts, fine)), problem, axis)
    return part


def _longer(part: Shape, axis: int, problem: Problem, count: int) -> Shape:
    """Return a part that is so many objects long along an axis."""
    return _whole((*part[:axis], count * problem.objects[axis], *part[axis + 1 :]), problem)


def _general(problem: Problem, fits: Callable[[Shape], bool]) -> Shape:
    """As cubic as whole objects allow."""

    def cube(side: int) -> Shape:
        sides = zip(problem.objects, problem.domain.shape, strict=True)
        return _whole(tuple([n if side >= n else max(1, side // unit) * unit for unit, n in sides]), problem)

    longest = max(problem.domain.shape, default=1)
    part = cube(_last(max(1, longest), lambda side: fits(cube(side))))
    for axis in range(len(part)):
        part = _even(part, problem, axis)
    return part


def _even(part: Shape, problem: Problem, axis: int) -> Shape:
    """Make parts equally long along an axis, without making more of them."""
    length, unit = problem.domain.shape[axis], problem.objects[axis]
    count = max(1, -(-length // part[axis]))
    even = ceil(ceil(length / count) / unit) * unit
    return (*part[:axis], max(1, min(even, part[axis])), *part[axis + 1 :])


def _last(most: int, fine: Callable[[int], bool]) -> int:
    """Return the largest number up to `most` that is fine, if all below it are; 1 if none is."""
    low, high = 1, most
    while low < high:
        middle = (low + high + 1) // 2
        if fine(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _split(strategy: Strategy, part: Shape, fitting: _Fitting, times: Times) -> Split:
    found = fitting(part)
    assert found is not None
    problem, geometry = fitting.problem, fitting.problem.geometry
    sides = zip(problem.domain.shape, part, geometry.reach.before, geometry.reach.after, strict=True)
    counts = [(length, -(-length // max(1, n)) - 1, before + after) for length, n, before, after in sides]
    lengths = geometry.padded(problem.domain).shape
    halo = sum([
        borders * width * prod([n for other, n in enumerate(lengths) if other != axis])
        for axis, (_, borders, width) in enumerate(counts)
    ])  # fmt: skip
    reading = predict_reading(problem, part, found.rows, times)
    return Split(strategy, part, found.rows, found.depth, found.nbytes, halo, reading)


def predict_reading(problem: Problem, part: Shape, rows: int, times: Times) -> Reading:
    """Return what is read if the output is cut into parts, and columns of input into blocks of rows."""
    geometry, domain = problem.geometry, problem.domain
    padded = geometry.padded(domain)
    segments = [_segments(blocks_of(padded.start[0], padded.stop[0], geometry.shape[0], rows))]
    for axis in range(1, len(part)):
        starts = np.arange(domain.start[axis], domain.stop[axis], part[axis], dtype=np.int64)
        stops = np.minimum(starts + part[axis], domain.stop[axis])
        first, stride = geometry.first[axis], geometry.stride[axis]
        low, high = geometry.reach.before[axis], geometry.reach.after[axis]
        segments.append(np.stack([first + starts * stride - low, first + (stops - 1) * stride + high + 1]))
    nbytes = requests = decoded = chunks = least = 0
    for each in problem.inputs:
        axes = [_covered(*axis) for axis in zip(segments, geometry.shape, each.unit, strict=True)]
        cells, units = prod([found[0] for found in axes]), prod([found[1] for found in axes])
        # Cells that need not be decoded are read run by run, however long.
        along = max(range(len(axes)), key=lambda axis: (each.unit[axis], axis))
        runs = units if each.encoded else units // max(1, axes[along][1]) * segments[along].shape[1]
        nbytes, requests = nbytes + cells * each.itemsize, requests + runs
        once = [_covered(np.array([[a], [b]]), n, u)[0] for a, b, n, u in _sides(padded, geometry, each)]
        least += prod(once) * each.itemsize
        if each.encoded:
            decoded, chunks = decoded + cells * each.itemsize, chunks + units
    seconds = times.seconds(requests, nbytes) + times.decode_seconds(chunks, decoded)
    return Reading(nbytes, requests, nbytes - least, float(seconds))


def _sides(padded: Box, geometry: Geometry, each: Input) -> Iterator[tuple[int, int, int, int]]:
    return zip(padded.start, padded.stop, geometry.shape, each.unit, strict=True)


def _segments(pairs: list[tuple[int, int]]) -> Segments:
    return np.array(pairs, np.int64).reshape(-1, 2).T


def _covered(segments: Segments, length: int, unit: int) -> tuple[int, int]:
    """Return how many cells, and units, are read for segments of an axis; units are read whole.

    >>> _covered(np.array([[-1, 3], [4, 9]]), 8, 2)
    (10, 5)
    """
    if not segments.size or not length:
        return 0, 0
    low = np.clip(segments[0], 0, length - 1) // unit
    high = -(-np.clip(segments[1], low * unit + 1, length) // unit)
    cells = np.minimum(high * unit, length) - low * unit
    return int(cells.sum()), int((high - low).sum())


def blocks_of(low: int, high: int, length: int, rows: int) -> list[tuple[int, int]]:
    """Cut rows of input into blocks that begin at multiples of `rows`.

    Those beyond the ends of an axis of this length are part of the first block, or the last, which they are made from.

    >>> blocks_of(-1, 11, 10, 4)
    [(-1, 4), (4, 8), (8, 11)]
    """
    if high <= low:
        return []
    first = max(low, 0) // rows + 1
    cuts = [at * rows for at in range(first, -(-min(high, length) // rows))]
    return list(zip([low, *cuts], [*cuts, high], strict=True))


def columns_of(domain: Box, part: Shape) -> Iterator[list[Box]]:
    """Yield the parts of a domain column by column, from the top of each.

    >>> [[part.start for part in column] for column in columns_of(Box((0, 0), (4, 4)), (2, 3))]
    [[(0, 0), (2, 0)], [(0, 3), (2, 3)]]
    """
    axes = list(zip(domain.start, domain.stop, part, strict=True))
    for sides in product(*[range(low, high, max(1, n)) for low, high, n in axes[1:]]):
        starts = [(row, *sides) for row in range(axes[0][0], axes[0][1], max(1, axes[0][2]))]
        yield [Box(at, _stop(at, part, domain)) for at in starts]


def _stop(start: Shape, part: Shape, domain: Box) -> Shape:
    return tuple([min(low + n, stop) for low, n, stop in zip(start, part, domain.stop, strict=True)])
