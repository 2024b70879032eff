"""What is selected along one axis, always in ascending order, and how it falls on a row of chunks."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hyperslab.errors import SelectionError

__all__ = ["MOST_CHUNKS", "Axis", "AxisParts", "Picks", "Span", "project", "too_many_chunks"]

# Above this many chunks along an axis NumPy is faster than a loop.
_LOOP_LIMIT = 32
# A selection of more chunks than this would not fit in memory, nor its plan.
MOST_CHUNKS = 1 << 24


@dataclass(frozen=True, slots=True)
class Span:
    """`count` cells from `start` on, `step` apart (at least 1).

    >>> Span(3, 2, 5).indices().tolist()
    [3, 8]
    """

    start: int
    count: int
    step: int = 1

    def indices(self) -> npt.NDArray[np.int64]:
        return np.arange(self.start, self.start + self.count * self.step, self.step, dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Picks:
    """Cells by their indices, strictly increasing."""

    cells: npt.NDArray[np.int64]

    @property
    def count(self) -> int:
        return len(self.cells)

    def indices(self) -> npt.NDArray[np.int64]:
        return self.cells


Axis = Span | Picks


@dataclass(frozen=True, slots=True, eq=False)
class AxisParts:
    """An axis' selection cut at chunk borders: entry i of each list belongs to the i-th chunk touched.

    `chunks`: the chunk's place along the axis. `places`: where its cells begin in the result.
    `counts`: how many cells it gives. `lows`: the first of them, counted from the chunk's start;
    the others follow `step` apart, unless `picks` lists all cells of all chunks one by one.
    """

    chunks: list[int]
    places: list[int]
    counts: list[int]
    lows: list[int]
    step: int
    picks: npt.NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.chunks)

    def source(self, i: int) -> slice | npt.NDArray[np.int64]:
        """The cells within the i-th chunk."""
        if self.picks is not None:
            return self.picks[self.places[i] : self.places[i] + self.counts[i]]
        low = self.lows[i]
        return slice(low, low + (self.counts[i] - 1) * self.step + 1, self.step)

    def target(self, i: int) -> slice:
        """Where they go in the result."""
        place = self.places[i]
        return slice(place, place + self.counts[i])

    def divided(self, runs: int) -> "AxisParts":
        """Cut each chunk's cells once more, into so many runs that follow one another, or as many as it has cells.

        >>> parts = AxisParts([4], [0], [5], [2], 1).divided(2)
        >>> parts.chunks, parts.places, parts.counts, parts.lows
        ([4, 4], [0, 3], [3, 2], [2, 5])
        """
        chunks, places, counts, lows = list[int](), list[int](), list[int](), list[int]()
        for chunk, place, count, low in zip(self.chunks, self.places, self.counts, self.lows, strict=True):
            each = -(-count // min(runs, count))
            for first in range(0, count, each):
                chunks.append(chunk)
                places.append(place + first)
                counts.append(min(each, count - first))
                lows.append(low + first * self.step if self.picks is None else int(self.picks[place + first]))
        return AxisParts(chunks, places, counts, lows, self.step, self.picks)


def project(axis: Axis, chunk: int) -> AxisParts:
    """Cut an axis' selection at multiples of `chunk`.

    >>> parts = project(Span(3, 4, 2), 5)          # cells 3, 5, 7, 9
    >>> parts.chunks, parts.lows, parts.counts, parts.places
    ([0, 1], [3, 0], [1, 3], [0, 1])
    """
    if isinstance(axis, Picks):
        return _project_picks(axis.cells, chunk)
    if axis.count == 0:
        return AxisParts([], [], [], [], 1)
    start, step = axis.start, axis.step
    first, last = start // chunk, (start + (axis.count - 1) * step) // chunk
    if first == last:
        return AxisParts([first], [0], [axis.count], [start - first * chunk], step)
    if step == 1:
        return _project_row(axis, chunk, first, last)
    if last - first > _LOOP_LIMIT:
        return _project_long_span(axis, chunk, first, last)
    parts = AxisParts([], [], [], [], step)
    place = 0
    while place < axis.count:
        cell = start + place * step
        here = cell // chunk
        stop = min(axis.count, -(-((here + 1) * chunk - start) // step))
        parts.chunks.append(here)
        parts.places.append(place)
        parts.counts.append(stop - place)
        parts.lows.append(cell - here * chunk)
        place = stop
    return parts


def _project_row(axis: Span, chunk: int, first: int, last: int) -> AxisParts:
    """Cut neighbouring cells, of which all chunks but the first and the last are full."""
    if last - first >= MOST_CHUNKS:
        raise too_many_chunks()
    low, between = axis.start - first * chunk, last - first - 1
    places = [0, *range(chunk - low, axis.count, chunk)]
    counts = [chunk - low, *[chunk] * between, axis.count - places[-1]]
    return AxisParts(list(range(first, last + 1)), places, counts, [low, *[0] * (between + 1)], 1)


def too_many_chunks() -> SelectionError:
    """Return the error for a selection whose plan would not fit in memory."""
    return SelectionError(f"the selection touches more than {MOST_CHUNKS:,} chunks; read it in parts")


def _project_long_span(axis: Span, chunk: int, first: int, last: int) -> AxisParts:
    if min(axis.count, last - first + 1) > MOST_CHUNKS:
        raise too_many_chunks()
    if axis.step > chunk:
        # Some chunks are stepped over: each selected cell has a chunk of its own.
        cells = axis.indices()
        chunks = cells // chunk
        return AxisParts(
            chunks.tolist(),
            list(range(axis.count)),
            [1] * axis.count,
            (cells - chunks * chunk).tolist(),
            axis.step,
        )
    chunks = np.arange(first, last + 1, dtype=np.int64)
    places = np.maximum(-(-(chunks * chunk - axis.start) // axis.step), 0)
    counts = np.diff(places, append=axis.count)
    lows = axis.start + places * axis.step - chunks * chunk
    return AxisParts(chunks.tolist(), places.tolist(), counts.tolist(), lows.tolist(), axis.step)


def _project_picks(cells: npt.NDArray[np.int64], chunk: int) -> AxisParts:
    owners = cells // chunk
    places = np.flatnonzero(np.diff(owners, prepend=-1))
    chunks = owners[places]
    local = cells - owners * chunk
    counts = np.diff(places, append=len(cells))
    return AxisParts(chunks.tolist(), places.tolist(), counts.tolist(), local[places].tolist(), 1, local)
