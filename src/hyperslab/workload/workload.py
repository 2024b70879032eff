"""Workloads: the reads of one log or of several, to be looked at, cut in two, and tuned for."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from hyperslab.errors import FormatError, InvalidInputError, NotFoundError
from hyperslab.selection import Axis, Picks, Points, Selection, Span, parse
from hyperslab.workload.columns import decode
from hyperslab.workload.frames import Skipped, payloads
from hyperslab.workload.packing import Ints
from hyperslab.workload.place import clean_url
from hyperslab.workload.records import KnownArray, Records, joined
from hyperslab.workload.written import records_of

if TYPE_CHECKING:
    from hyperslab.workload.summary import Summary

__all__ = ["Workload"]

# Columns of more bytes than this are refused: a log of so many reads is tuned for in parts.
_MOST_BYTES = 4 << 30
_BLOCKS = 50
_SHOWN = 20


class _Array(Protocol):
    """An opened array, as far as a workload needs to know it."""

    @property
    def url(self) -> str: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    @property
    def chunks(self) -> tuple[int, ...]: ...

    @property
    def shards(self) -> tuple[int, ...] | None: ...


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """What was read: `load` it from logs, or make it `from_keys`.

    `of` gives the reads of one array. `skipped_frames` and `skipped_bytes` are of damaged parts of the logs.
    """

    records: Records
    skipped_frames: int = 0
    skipped_bytes: int = 0

    @classmethod
    def load(cls, *paths: str | os.PathLike[str]) -> "Workload":
        """Read logs, or Parquet files made of them; a read that is in two of them counts once.

        What is torn or damaged in a log is skipped, and counted.
        """
        if not paths:
            raise InvalidInputError("give the paths of one log or more")
        parts, skipped = list[Records](), Skipped()
        nbytes = 0
        for path in paths:
            for part in _read(os.fspath(path), skipped):
                parts.append(part)
                nbytes += part.nbytes
                if nbytes > _MOST_BYTES:
                    raise InvalidInputError(f"{os.fspath(path)!r} holds too many reads at once; load fewer logs")
        return cls(joined(parts).in_order(), skipped.frames, skipped.bytes)

    @classmethod
    def from_keys(cls, array: _Array, keys: Iterable[Any]) -> "Workload":
        """Make a workload of NumPy keys of an array, without a recording.

        >>> import hyperslab as hs
        >>> a = hs.create("memory://doc/keys", (30, 40), "i4", chunks=(10, 10))
        >>> Workload.from_keys(a, [np.s_[0], np.s_[:, 5]]).boxes()[1].tolist()
        [[1, 40], [30, 1]]
        """
        names = array.dtype.names
        chosen = [key if isinstance(key, (Selection, Points)) else parse(key, array.shape, names) for key in keys]
        return cls(records_of(_known(array), chosen))

    def __len__(self) -> int:
        return len(self.records)

    def __repr__(self) -> str:
        return f"<hyperslab.Workload of {len(self):,} reads of {len(self.arrays):,} arrays>"

    @property
    def arrays(self) -> Mapping[str, KnownArray]:
        """What is known of each array, by its url; of one that changed, as it was when it was read last."""
        places = self.records.fixed["array"]
        found: dict[str, KnownArray] = {}
        # Reads are in the order of their times.
        last = {int(place): at for at, place in enumerate(places.tolist())} if len(places) else {}
        for place in sorted(last, key=last.__getitem__):
            array = self.records.arrays[place]
            found.pop(array.url, None)
            found[array.url] = array
        return dict(sorted(found.items()))

    def of(self, array: str | os.PathLike[str] | _Array) -> "Workload":
        """Return the reads of one array, named by its url or opened.

        If its url is not in the log, but exactly one array of the same shape is, that one was moved.
        """
        is_url = isinstance(array, (str, os.PathLike))
        url = clean_url(os.fspath(array) if isinstance(array, (str, os.PathLike)) else array.url)
        arrays = self.arrays
        if url not in arrays:
            same = [] if is_url else [known.url for known in arrays.values() if known.shape == array.shape]  # type: ignore[union-attr]
            if len(same) != 1:
                raise NotFoundError(f"no read of {url!r} was recorded; there are reads of {_listed(list(arrays))}")
            url = same[0]
        return self.only(url)

    def only(self, url: str) -> "Workload":
        """Return the reads of the array that `arrays` has under this very url."""
        mine = np.array([known.url == url for known in self.records.arrays], bool)
        return replace(self, records=self.records.take(mine[self.records.fixed["array"]]))

    @property
    def array(self) -> KnownArray:
        """The array, where the reads are of one."""
        arrays = self.arrays
        if len(arrays) != 1:
            raise InvalidInputError(
                f"the reads are of {len(arrays):,} arrays; choose one by `of`: {_listed(list(arrays))}"
            )
        return next(iter(arrays.values()))

    def selections(self) -> list[Selection | Points]:
        """Return what was read of the one array, cut to its shape.

        A selection is of the cells that were read: all axes, ascending. Long lists may be thinned: see `thinned`.
        """
        records, shape = self.records, self.array.shape
        points, bounds = records.fixed["points"].tolist(), records.bounds.tolist()
        return [
            _points(records, first, shape) if is_points else _selection(records, first, shape)
            for is_points, first in zip(points, bounds[:-1], strict=True)
        ]

    def boxes(self) -> tuple[Ints, Ints]:
        """Return the smallest box around each read of the one array, cut to its shape: starts and counts, (n, axes)."""
        records, shape = self.records, self.array.shape
        axes = len(shape)
        start, count, step = (
            column.reshape(len(records), axes) for column in (records.start, records.count, records.step)
        )
        sizes = np.array(shape, np.int64).reshape(1, axes)
        low, high = _ends(records, start, count, step, sizes)
        empty = (high <= low).any(axis=1, keepdims=True) if axes else np.zeros((len(records), 1), bool)
        return np.where(empty, 0, low), np.where(empty, 0, high - low)

    @property
    def thinned(self) -> npt.NDArray[np.bool_]:
        """Which reads have a list of which only every k-th cell was recorded."""
        found = np.zeros(len(self), bool)
        owners = np.repeat(np.arange(len(self)), np.diff(self.records.bounds))
        found[owners[self.records.step < -1]] = True
        return found

    def split(self, share: float = 0.8) -> tuple["Workload", "Workload"]:
        """Return two workloads, to tune by and to test with; always the same ones.

        The reads are cut by time into 50 blocks, and whole blocks held out, scattered by a hash of their number. Reads
        that follow one another are alike: chosen one by one, what is held out would be known already. The last part
        alone may be another phase of the work.
        """
        if not 0 < share < 1:
            raise InvalidInputError(f"a share lies between 0 and 1, not {share!r}")
        if len(self) < 2:
            raise InvalidInputError(f"{len(self)} reads cannot be split; record more")
        blocks = min(_BLOCKS, len(self))
        held = np.zeros(blocks, bool)
        held[np.argsort(_scattered(blocks))[: min(blocks - 1, max(1, round(blocks * (1 - share))))]] = True
        chosen = held[np.arange(len(self)) * blocks // len(self)]
        return replace(self, records=self.records.take(~chosen)), replace(self, records=self.records.take(chosen))

    def summary(self) -> "Summary":
        """Return what was read and what it cost, array by array; it prints as a report."""
        from hyperslab.workload.summary import summarise

        return summarise(self)

    def plot(self, figure: Any = None) -> Any:
        """Draw the reads of one array: where they are, and their commonest shapes; return the figure."""
        from hyperslab.workload.picture import draw

        return draw(self.only(self.array.url), figure)

    def to_parquet(self, path: str | os.PathLike[str]) -> None:
        """Write the reads as a Parquet file, one row each; needs pyarrow. `load` gives the same again."""
        from hyperslab.workload.parquet import write_parquet

        write_parquet(os.fspath(path), self.records, Skipped(self.skipped_frames, self.skipped_bytes))


def _read(path: str, skipped: Skipped) -> Iterable[Records]:
    if path.lower().endswith((".parquet", ".pq")):
        from hyperslab.workload.parquet import read_parquet

        yield read_parquet(path, skipped)
        return
    try:
        for payload in payloads(path, skipped):
            try:
                yield decode(payload)
            except FormatError:
                skipped.frames += 1
                skipped.bytes += len(payload)
    except FileNotFoundError:
        raise NotFoundError(f"there is no log {path!r}") from None
    except OSError as error:
        raise InvalidInputError(f"{path!r} cannot be read: {error.strerror}") from None


def _known(array: _Array) -> KnownArray:
    dtype = array.dtype.str if array.dtype.names is None else str(array.dtype)
    return KnownArray(
        clean_url(array.url), tuple(array.shape), dtype, array.dtype.itemsize, tuple(array.chunks),
        None if array.shards is None else tuple(array.shards),
    )  # fmt: skip


def _listed(urls: list[str]) -> str:
    shown = ", ".join(map(repr, urls[:_SHOWN])) or "no array"
    return shown if len(urls) <= _SHOWN else f"{shown} and {len(urls) - _SHOWN:,} more"


def _selection(records: Records, first: int, shape: tuple[int, ...]) -> Selection:
    axes = tuple([_axis(records, first + axis, size) for axis, size in enumerate(shape)])
    return Selection(shape, axes, tuple(range(len(shape))))


def _axis(records: Records, at: int, size: int) -> Axis:
    start, count, step = int(records.start[at]), int(records.count[at]), int(records.step[at])
    if step < 0:
        cells = records.cells[start : start + count]
        # Increasing as it was recorded; who else wrote the log may not have cared.
        cells = np.unique(cells[cells < size])
        return Picks(cells) if len(cells) else Span(0, 0)
    count = min(count, max(0, -(-(size - start) // step)))
    return Span(start if count else 0, count, step if count > 1 else 1)


def _points(records: Records, first: int, shape: tuple[int, ...]) -> Points:
    coords = []
    for at in range(first, first + len(shape)):
        start, count = int(records.start[at]), int(records.count[at])
        coords.append(records.cells[start : start + count])
    inside = np.ones(len(coords[0]) if coords else 1, bool)
    for cells, size in zip(coords, shape, strict=True):
        inside &= cells < size
    return Points(shape, tuple([cells[inside] for cells in coords]), (int(inside.sum()),))


def _ends(records: Records, start: Ints, count: Ints, step: Ints, sizes: Ints) -> tuple[Ints, Ints]:
    """Return the first cell of each axis of each read, and the one after the last; cut to the sizes."""
    listed = step < 0
    steps = np.where(listed, 1, step)
    fits = np.maximum(0, -(-(sizes - start) // steps))
    cut = np.minimum(count, fits)
    low = start.copy()
    high = np.where(cut > 0, start + (np.maximum(cut, 1) - 1) * steps + 1, start)
    for row, axis in zip(*np.nonzero(listed), strict=True):
        first = int(start[row, axis])
        cells = records.cells[first : first + int(count[row, axis])]
        cells = cells[cells < sizes[0, axis]]
        low[row, axis], high[row, axis] = (int(cells.min()), int(cells.max()) + 1) if len(cells) else (0, 0)
    return low, high


def _scattered(count: int) -> npt.NDArray[np.uint64]:
    """Return a hash of each number, the same on every machine."""
    numbers = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    numbers ^= numbers >> np.uint64(29)
    return (numbers * np.uint64(0xBF58476D1CE4E5B9)) >> np.uint64(11)
