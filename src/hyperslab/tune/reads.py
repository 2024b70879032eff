"""Recorded reads as columns: how many units and objects of any length each of them touches, along each axis."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from hyperslab.errors import InvalidInputError
from hyperslab.selection import Points, Selection, Span

__all__ = ["Reach", "Reads", "reads_of"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
# A read along one axis: (start, count, step), or its cells as bytes.
_Row = tuple[int, int, int] | bytes

# Of n things chosen among m at random, the share that is different, against n / m; ascending in the share.
_TIMES = np.geomspace(1e-3, 1e3, 200)[::-1]
_SHARES = -np.expm1(-_TIMES) / _TIMES
# A read of many single cells is stood for by so many of them.
_MOST_POINTS = 32
# Cells that are evenly spaced, but not neighbours, are counted one by one up to so many; more of them about.
_MOST_LISTED = 4096
# Of more different reads, or of more cells that are listed for them, some stand for all: memory is bounded.
_MOST_READS = 16_384
_MOST_CELLS = 1 << 22


@dataclass(frozen=True, slots=True, eq=False)
class Reach:
    """What reads touch along one axis that is cut into units, so many of them to an object; an entry for each read.

    `units` and `objects` are how many; `span` is, summed over the objects, how many units lie from the first that is
    touched to the last, and `widest` the most of that in one object; `runs` is how many runs of neighbouring units
    there are if gaps of a few units are closed, and `run_units` all units in them.
    """

    units: Ints
    objects: Ints
    span: Ints
    widest: Ints
    runs: Ints
    run_units: Ints


@dataclass(frozen=True, slots=True, eq=False)
class _Axis:
    """What is read along one axis: spans, but for the reads in `listed`, whose cells are in `cells` one by one."""

    starts: Ints
    counts: Ints
    steps: Ints
    listed: Ints
    cells: Ints
    owners: Ints

    def reach(self, unit: int, per_object: int, gap: int) -> Reach:
        """Cut the axis into units of so many cells, objects of so many units; gaps up to so many units are closed."""
        found = self._of_spans(unit, per_object, gap)
        if len(self.listed):
            columns = self._of_lists(unit, per_object, gap)
            for column, listed in zip(found, columns, strict=True):
                column[self.listed] = listed
        return Reach(*found)

    def _of_spans(self, unit: int, per_object: int, gap: int) -> tuple[Ints, ...]:
        size = unit * per_object
        lasts = self.starts + (self.counts - 1) * self.steps
        low, high = self.starts // unit, lasts // unit
        first, last = low // per_object, high // per_object
        units = np.where(self.steps <= unit, high - low + 1, self.counts)
        objects = np.where(self.steps <= size, last - first + 1, self.counts)
        span = np.where(self.steps <= size, high - low + 1, self.counts)
        head = np.minimum(high, (first + 1) * per_object - 1) - low + 1
        tail = high - np.maximum(low, last * per_object) + 1
        widest = np.where(objects > 2, per_object, np.maximum(head, tail))
        apart = self.steps > (gap + 1) * unit
        return (
            units,
            objects,
            span,
            np.where(self.steps <= size, widest, 1),
            np.where(apart, units, objects),
            np.where(apart, units, span),
        )

    def _of_lists(self, unit: int, per_object: int, gap: int) -> tuple[Ints, ...]:
        places, owners = self.cells // unit, self.owners
        kept = np.ones(len(places), np.bool_)
        kept[1:] = (np.diff(places) != 0) | (np.diff(owners) != 0)
        places, owners = places[kept], owners[kept]
        objects = places // per_object
        new_object = np.ones(len(places), np.bool_)
        new_object[1:] = (np.diff(objects) != 0) | (np.diff(owners) != 0)
        new_run = new_object.copy()
        new_run[1:] |= np.diff(places) > gap + 1
        count = len(self.listed)
        spans, span_owners = _lengths(places, owners, new_object)
        runs, run_owners = _lengths(places, owners, new_run)
        widest = np.zeros(count, np.int64)
        np.maximum.at(widest, span_owners, spans)
        return (
            np.bincount(owners, minlength=count),
            np.bincount(span_owners, minlength=count),
            np.bincount(span_owners, spans, count).astype(np.int64),
            widest,
            np.bincount(run_owners, minlength=count),
            np.bincount(run_owners, runs, count).astype(np.int64),
        )


def _lengths(places: Ints, owners: Ints, first: npt.NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """Return how far it is from the first to the last place of each run, and whose it is."""
    heads = np.flatnonzero(first)
    tails = np.append(heads[1:], len(places)) - 1
    return places[tails] - places[heads] + 1, owners[heads]


@dataclass(frozen=True, slots=True, eq=False)
class Reads:
    """Reads of one array, each with its weight (how often it was made; the weights add up to 1).

    `total` is how many were made, by `sessions` that each make them one after the other.
    """

    shape: tuple[int, ...]
    weights: Floats
    axes: tuple[_Axis, ...]
    total: int
    sessions: float = 1
    _reach: Callable[[int, int, int, int], Reach] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        axes = self.axes

        # A search asks for the same cut of one axis again and again, with another axis cut otherwise.
        @lru_cache(maxsize=4096)
        def reach(axis: int, unit: int, per_object: int, gap: int) -> Reach:
            return axes[axis].reach(unit, per_object, gap)

        object.__setattr__(self, "_reach", reach)

    def __len__(self) -> int:
        return len(self.weights)

    @property
    def counts(self) -> Ints:
        """How many cells each read takes along each axis, (reads, axes)."""
        return np.stack([axis.counts for axis in self.axes], axis=1) if self.axes else np.ones((len(self), 0), np.int64)

    @property
    def starts(self) -> Ints:
        """The first cell of each read."""
        return (
            np.stack([axis.starts for axis in self.axes], axis=1) if self.axes else np.zeros((len(self), 0), np.int64)
        )

    @property
    def cells(self) -> Floats:
        """How many cells each read takes."""
        cells: Floats = np.prod(self.counts, axis=1, dtype=np.float64)
        return cells

    def reach(self, axis: int, unit: int, per_object: int, gap: int = 0) -> Reach:
        """Return what the reads touch along an axis; see `Reach`."""
        return self._reach(axis, unit, per_object, gap)

    def variety(self, sizes: tuple[int, ...]) -> float:
        """Return how many different objects of that shape are likely to be met, if reads go on as these do.

        Were all of so many objects equally likely, these reads would have met as many different ones as they did.
        """
        places = np.zeros(len(self), np.int64)
        most = 1.0
        for axis, size in zip(self.axes, sizes, strict=True):
            places = places * (int(axis.starts.max(initial=0)) // size + 1) + axis.starts // size
        for length, size in zip(self.shape, sizes, strict=True):
            most *= -(-length // size)
        different = len(np.unique(places))
        share = different / max(1, len(self))
        return min(most, len(self) / float(np.interp(share, _SHARES, _TIMES)))

    def mean(self, figures: npt.NDArray[np.generic]) -> float:
        """Return the mean of a figure over all reads, each as often as it was made."""
        return float(np.dot(self.weights, figures))

    def sample(self, most: int) -> "Reads":
        """Return about `most` of the reads, evenly spread over those that there are."""
        if len(self) <= most:
            return self
        return self._chosen(np.unique(np.linspace(0, len(self) - 1, most).astype(np.int64)))

    def only(self, wanted: npt.NDArray[np.bool_]) -> "Reads":
        """Return some of the reads."""
        return self._chosen(np.flatnonzero(wanted))

    def _chosen(self, chosen: Ints) -> "Reads":
        weights = self.weights[chosen]
        return replace(self, weights=weights / weights.sum(), axes=tuple([_chosen(axis, chosen) for axis in self.axes]))


def _chosen(axis: _Axis, chosen: Ints) -> _Axis:
    number = np.full(len(axis.starts), -1, np.int64)
    number[chosen] = np.arange(len(chosen))
    kept = number[axis.listed] >= 0
    listed = number[axis.listed[kept]]
    which = np.cumsum(kept) - 1
    cells = kept[axis.owners] if len(axis.owners) else np.zeros(0, np.bool_)
    return _Axis(
        axis.starts[chosen], axis.counts[chosen], axis.steps[chosen], listed,
        axis.cells[cells], which[axis.owners[cells]],
    )  # fmt: skip


def reads_of(shape: tuple[int, ...], selections: Sequence[Selection | Points], sessions: float = 1) -> Reads:
    """Gather selections of an array of that shape; those that take no cell are left out, equal ones counted once.

    They were made by so many sessions, each of which had to learn by itself where chunks lie.

    >>> from hyperslab.selection import parse
    >>> keys = [np.s_[0:10, 5], np.s_[0:10, 5], np.s_[3, ::4]]
    >>> reads = reads_of((20, 30), [parse(key, (20, 30)) for key in keys])
    >>> reads.counts.tolist(), reads.weights.round(3).tolist()
    ([[10, 1], [1, 8]], [0.667, 0.333])
    """
    rows: dict[tuple[_Row, ...], float] = {}
    for selection in selections:
        if len(selection.shape) != len(shape):
            raise InvalidInputError(f"a read of an array with {len(selection.shape)} axes; this one has {len(shape)}")
        if not selection.size:
            continue
        taken = _points_as_cells(selection) if isinstance(selection, Points) else [(_row(selection), 1.0)]
        for row, weight in taken:
            rows[row] = rows.get(row, 0.0) + weight
    total = sum(rows.values())
    chosen = _some(list(rows))
    weights = np.array([rows[row] for row in chosen], np.float64)
    axes = tuple([_axis([row[number] for row in chosen]) for number in range(len(shape))])
    return Reads(shape, weights / max(float(weights.sum()), 1e-300), axes, round(total), sessions)


def _some(rows: list[tuple[_Row, ...]]) -> list[tuple[_Row, ...]]:
    """Return all reads, or so many, evenly spread, as can be worked with."""
    if not rows:
        return rows
    cells = sum([_cells_of(part) for row in rows for part in row])
    most = min(len(rows), _MOST_READS, max(1, int(len(rows) * _MOST_CELLS / max(1, cells))))
    return [rows[at] for at in np.unique(np.linspace(0, len(rows) - 1, most).astype(np.int64)).tolist()]


def _cells_of(part: _Row) -> int:
    """Return how many cells of a read are listed along an axis; of those that are neighbours, none is."""
    if isinstance(part, bytes):
        return len(part) // 8
    return 0 if _is_span(part) else part[1]


def _is_span(part: tuple[int, int, int]) -> bool:
    return part[2] == 1 or part[1] > _MOST_LISTED


def _row(selection: Selection) -> tuple[_Row, ...]:
    return tuple(
        (axis.start, axis.count, axis.step) if isinstance(axis, Span) else axis.indices().astype(np.int64).tobytes()
        for axis in selection.axes
    )


def _points_as_cells(points: Points) -> list[tuple[tuple[_Row, ...], float]]:
    """Return some single cells that stand for a read of many: each a row, with its share of the weight."""
    chosen = np.unique(np.linspace(0, points.size - 1, min(points.size, _MOST_POINTS)).astype(np.int64)).tolist()
    columns = [coords.reshape(-1)[chosen].tolist() for coords in points.coords]
    return [(tuple((cell, 1, 1) for cell in cells), 1.0 / len(chosen)) for cells in zip(*columns, strict=True)]


def _axis(rows: Sequence[_Row]) -> _Axis:
    spans = np.zeros((len(rows), 3), np.int64)
    listed, cells = [], []
    for number, row in enumerate(rows):
        if isinstance(row, tuple) and _is_span(row):
            spans[number] = row
            continue
        found = Span(*row).indices() if isinstance(row, tuple) else np.frombuffer(row, np.int64)
        spans[number] = int(found[0]), len(found), 1
        listed.append(number)
        cells.append(found)
    owners = np.repeat(np.arange(len(cells)), [len(found) for found in cells])
    joined = np.concatenate(cells) if cells else np.zeros(0, np.int64)
    return _Axis(spans[:, 0], spans[:, 1], spans[:, 2], np.array(listed, np.int64), joined, owners)
