"""Records: what many reads were, one column for each thing that is known of them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from hyperslab.errors import FormatError

__all__ = ["COUNTS", "FIXED", "MOST_AXES", "SECONDS", "KnownArray", "Process", "Records", "joined"]

Ints = npt.NDArray[np.int64]
Column = npt.NDArray[Any]

MOST_AXES = 64
# Of each read: places in the tables of arrays, processes, methods and errors; which plan it was read by, and which of
# its selections it is; what it cost. A ledger is repeated for each of the selections that have it in common.
COUNTS = (
    "array", "process", "method", "error", "points", "read", "part",
    "needed_bytes", "fetched_bytes", "requests", "lookups", "calls", "cache_hits",
)  # fmt: skip
SECONDS = ("started_at", "seconds", "usd")
FIXED = COUNTS + SECONDS


@dataclass(frozen=True, slots=True)
class KnownArray:
    """What a log knows of an array: as it was when it was read."""

    url: str
    shape: tuple[int, ...]
    dtype: str
    itemsize: int
    chunks: tuple[int, ...]
    shards: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Process:
    """Who read. `run` tells two processes apart that had one number, one after the other."""

    host: str
    pid: int
    run: str


@dataclass(frozen=True, slots=True, eq=False)
class Records:
    """Reads in columns. `fixed` has one value for each read; the axes of all reads lie one after another.

    Axes of read i are those from `bounds[i]` to `bounds[i + 1]`: `count` cells from `start` on, `step` apart. Where
    `step` is below 0 they are listed, in `cells` from `start` on: all of them if it is -1, else every (-step)-th.
    The axes of points are all listed, equally long.
    """

    arrays: tuple[KnownArray, ...]
    processes: tuple[Process, ...]
    methods: tuple[str | None, ...]
    errors: tuple[str | None, ...]
    fixed: Mapping[str, Column]
    bounds: Ints
    start: Ints
    count: Ints
    step: Ints
    cells: Ints

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the columns take."""
        columns = (*self.fixed.values(), self.bounds, self.start, self.count, self.step, self.cells)
        return sum(column.nbytes for column in columns)

    def checked(self) -> "Records":
        """Return the records; raise FormatError if they contradict themselves."""
        fixed = self.fixed
        tables = {"array": self.arrays, "process": self.processes, "method": self.methods, "error": self.errors}
        good = all(_within(fixed[name], len(table)) for name, table in tables.items())
        good = good and all((fixed[name] >= 0).all() for name in COUNTS)
        good = good and all((np.isfinite(fixed[name]) & (fixed[name] >= 0)).all() for name in SECONDS)
        good = good and bool((self.start >= 0).all() and (self.count >= 0).all() and (self.step != 0).all())
        good = good and bool((self.count < 1 << 62).all() and (np.abs(self.step) < 1 << 62).all())
        if not good or not self._lists_fit():
            raise FormatError("the columns of a log contradict one another")
        axes = np.array([len(array.shape) for array in self.arrays], np.int64)
        if not np.array_equal(np.diff(self.bounds), axes[fixed["array"]]):
            raise FormatError("reads in a log have other axes than their arrays")
        return self

    def _lists_fit(self) -> bool:
        """Whether the lists lie one after another: cells that many axes share would take more memory than they do."""
        listed = self.step < 0
        count = self.count[listed]
        if (count > len(self.cells)).any():
            return False
        places = _bounds(count)
        good = int(places[-1]) == len(self.cells) and np.array_equal(self.start[listed], places[:-1])
        return good and bool((self.cells >= 0).all()) and self._points_fit()

    def _points_fit(self) -> bool:
        """Whether the axes of points are all listed, and equally long."""
        points = np.repeat(self.fixed["points"] != 0, np.diff(self.bounds))
        if not points.any():
            return True
        owners = np.repeat(np.arange(len(self)), np.diff(self.bounds))[points]
        first = self.count[self.bounds[owners]]
        return bool((self.step[points] < 0).all() and (self.count[points] == first).all())

    def take(self, chosen: npt.ArrayLike) -> "Records":
        """Return the reads of these places, in this order; the lists of the others are left out."""
        places = np.asarray(chosen)
        places = np.flatnonzero(places) if places.dtype == bool else places.astype(np.int64)
        lengths = np.diff(self.bounds)[places]
        bounds = _bounds(lengths)
        axes = _runs(self.bounds[:-1][places], lengths)
        start, count, step = self.start[axes], self.count[axes], self.step[axes]
        listed = step < 0
        cells = self.cells[_runs(start[listed], count[listed])]
        start[listed] = _bounds(count[listed])[:-1]
        fixed = {name: column[places] for name, column in self.fixed.items()}
        return replace(self, fixed=fixed, bounds=bounds, start=start, count=count, step=step, cells=cells)

    def once(self) -> Ints:
        """Return one place for each plan: by these, sums count what selections have in common once."""
        if not len(self):
            return np.empty(0, np.int64)
        keys = np.stack([self.fixed["process"], self.fixed["read"]])
        return np.sort(np.unique(keys, axis=1, return_index=True)[1])

    def in_order(self) -> "Records":
        """Return the reads by the time they began, those that are there twice once."""
        fixed = self.fixed
        # Not by its number: two logs of one process number the same read differently.
        names = ("process", "part", "array", "needed_bytes")
        times = [fixed[name].view(np.int64) for name in ("started_at", "seconds")]
        keys = np.stack([*times, *(fixed[name] for name in names)])
        places = np.unique(keys, axis=1, return_index=True)[1] if len(self) else np.empty(0, np.int64)
        # Two logs give the same whichever is named first.
        who = np.argsort(np.argsort([f"{p.host}\0{p.run}\0{p.pid}" for p in self.processes], kind="stable"))
        order = np.lexsort(
            [fixed["part"][places], fixed["read"][places], who[fixed["process"][places]], fixed["started_at"][places]]
        )
        return self.take(places[order])


def joined(parts: Sequence[Records]) -> Records:
    """Put records one after another, with one table of arrays, processes, methods and errors."""
    tables: dict[str, dict[Any, int]] = {"array": {}, "process": {}, "method": {}, "error": {}}
    columns: dict[str, list[Column]] = {name: [] for name in FIXED}
    starts: list[Ints] = []
    cells = 0
    for part in parts:
        own = {"array": part.arrays, "process": part.processes, "method": part.methods, "error": part.errors}
        for name, column in part.fixed.items():
            if name in tables:
                table = tables[name]
                places = [table.setdefault(value, len(table)) for value in own[name]]
                column = np.array(places, np.int64)[column]
            columns[name].append(column)
        starts.append(np.where(part.step < 0, part.start + cells, part.start))
        cells += len(part.cells)
    lengths = _together(parts, lambda part: np.diff(part.bounds))
    return Records(
        tuple(tables["array"]), tuple(tables["process"]), tuple(tables["method"]), tuple(tables["error"]),
        {name: np.concatenate([np.empty(0, _kind(name)), *found]) for name, found in columns.items()},
        _bounds(lengths), np.concatenate([np.empty(0, np.int64), *starts]), _together(parts, lambda part: part.count),
        _together(parts, lambda part: part.step), _together(parts, lambda part: part.cells),
    )  # fmt: skip


def _together(parts: Iterable[Records], column: Callable[[Records], Ints]) -> Ints:
    return np.concatenate([np.empty(0, np.int64), *(column(part) for part in parts)])


def _kind(name: str) -> type:
    return np.float64 if name in SECONDS else np.int64


def _within(column: Column, count: int) -> bool:
    return not len(column) or bool(column.min() >= 0 and column.max() < count)


def _bounds(lengths: Ints) -> Ints:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


def _runs(starts: Ints, lengths: Ints) -> Ints:
    """Return the places of runs, one run after another.

    >>> _runs(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    places: Ints = np.arange(total, dtype=np.int64) + np.repeat(starts - (ends - lengths), lengths)
    return places
