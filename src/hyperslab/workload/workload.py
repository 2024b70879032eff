"""Workloads: the reads of one log or of several, to be looked at, cut in two, and tuned for."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from numbers import Real
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from hyperslab.errors import FormatError, InvalidInputError, NotFoundError
from hyperslab.selection import Axis, Picks, Points, Selection, Span, parse
from hyperslab.workload.columns import decode
from hyperslab.workload.frames import Skipped, begins_like_a_log, payloads
from hyperslab.workload.packing import Ints
from hyperslab.workload.parquet import is_parquet, read_parquet, write_parquet
from hyperslab.workload.place import clean_url
from hyperslab.workload.records import KnownArray, Records, joined
from hyperslab.workload.written import records_of

if TYPE_CHECKING:
    from hyperslab.workload.summary import Summary

__all__ = ["ShapedArray", "Workload"]

# Columns of more bytes than this are refused: a log of so many reads is tuned for in parts.
_MOST_BYTES = 4 << 30
_BLOCKS = 50
_SHOWN = 20


class ShapedArray(Protocol):
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
        for path in map(_checked, paths):
            for part in _read(path, skipped):
                parts.append(part)
                nbytes += part.nbytes
                if nbytes > _MOST_BYTES:
                    raise InvalidInputError(f"{path!r} holds too many reads at once; load fewer logs")
        return cls(joined(parts).in_order(), skipped.frames, skipped.bytes)

    @classmethod
    def from_keys(cls, array: ShapedArray, keys: Iterable[Any]) -> "Workload":
        """Make a workload of NumPy keys of an array, without a recording.

        >>> import hyperslab as hs
        >>> a = hs.create("memory://doc/keys", (30, 40), "i4", chunks=(10, 10))
        >>> Workload.from_keys(a, [np.s_[0], np.s_[:, 5]]).boxes()[1].tolist()
        [[1, 40], [30, 1]]
        """
        if not isinstance(keys, Iterable):
            raise InvalidInputError(f"keys are given as a list, such as [np.s_[0], np.s_[:, 5]]; got {keys!r}")
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
        last = self._last_reads()
        read = np.flatnonzero(last >= 0)
        known = [self.records.arrays[place] for place in read[np.argsort(last[read])].tolist()]
        return dict(sorted({array.url: array for array in known}.items()))

    def _last_reads(self) -> Ints:
        """Return which read was the last of each array that the records name, -1 where there is none."""
        last = np.full(len(self.records.arrays), -1, np.int64)
        # Reads are in the order of their times, and the last of those that go to one place stays there.
        last[self.records.fixed["array"]] = np.arange(len(self))
        return last

    def of(self, array: str | os.PathLike[str] | ShapedArray) -> "Workload":
        """Return the reads of one array, named by its url or opened.

        If its url is not in the log, but exactly one array of the same shape is, that one was moved.
        """
        if isinstance(array, (str, os.PathLike)):
            given, shape = os.fspath(array), None
        elif hasattr(array, "url") and hasattr(array, "shape"):
            given, shape = array.url, tuple(array.shape)
        else:
            raise InvalidInputError(f"an array is named by its url, or opened; got {type(array).__name__}")
        url, arrays = clean_url(given), self.arrays
        if url not in arrays:
            same = [known.url for known in arrays.values() if known.shape == shape]
            if len(same) != 1:
                raise NotFoundError(f"no read of {url!r} was recorded; there are reads of {_listed(list(arrays))}")
            url = same[0]
        return self.only(url, None if shape is None else len(shape))

    def only(self, url: str, axes: int | None = None) -> "Workload":
        """Return the reads of the array that `arrays` has under this very url.

        Where arrays of one url had different numbers of axes, one after the other, these are the reads of those with
        as many as `axes`, or as the last of them, if none had as many.
        """
        known = self.records.arrays
        counts = {len(each.shape) for each, last in zip(known, self._last_reads(), strict=True)
                  if each.url == url and last >= 0}  # fmt: skip
        if len(counts) > 1:
            axes = axes if axes in counts else len(self.arrays[url].shape)
            counts = {axes}
        mine = np.array([each.url == url and len(each.shape) in counts for each in known], bool)
        return replace(self, records=self.records.take(mine[self.records.fixed["array"]]))

    @property
    def array(self) -> KnownArray:
        """The array, where the reads are of one."""
        arrays = self.arrays
        if len(arrays) != 1:
            raise InvalidInputError(
                f"the reads are of {len(arrays):,} arrays; choose one by `of`: {_listed(list(arrays))}"
            )
        (array,) = arrays.values()
        if len(self.records.start) != len(self) * len(array.shape):
            raise InvalidInputError(f"{array.url!r} had other numbers of axes before; choose the last ones by `of`")
        return array

    def selections(self, shape: tuple[int, ...] | None = None) -> list[Selection | Points]:
        """Return what was read of the one array, cut to its shape, or to the one that it has now.

        A selection is of the cells that were read: all axes, ascending. Long lists may be thinned: see `thinned`.
        """
        records, known = self.records, self.array.shape
        shape = known if shape is None else shape
        if len(shape) != len(known):
            raise InvalidInputError(
                f"what was read had {len(known)} axes, and the array has {len(shape)} now; record its reads anew"
            )
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
        if not _is_share(share):
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

        urls = list(self.arrays)
        chosen = self.only(urls[0]) if len(urls) == 1 else self
        return draw(chosen, figure)

    def to_parquet(self, path: str | os.PathLike[str]) -> None:
        """Write the reads as a Parquet file, one row each; needs pyarrow. `load` gives the same again."""
        write_parquet(_checked(path), self.records, Skipped(self.skipped_frames, self.skipped_bytes))


def _checked(path: Any) -> str:
    given = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(given, str) or not given or "\0" in given:
        raise InvalidInputError(f"a log is named by its path, got {path!r}")
    return os.path.expanduser(given)


def _is_share(value: Any) -> bool:
    return isinstance(value, Real) and 0.0 < float(value) < 1.0


def _read(path: str, skipped: Skipped) -> Iterable[Records]:
    good = False
    try:
        if is_parquet(path):
            yield from read_parquet(path, skipped)
            return
        for payload in payloads(path, skipped):
            try:
                yield decode(payload)
                good = True
            except FormatError:
                skipped.frames += 1
                skipped.bytes += len(payload)
        if not good and not begins_like_a_log(path):
            raise FormatError(f"{path!r} is not a log of reads; give one that hs.record or HYPERSLAB_RECORD has made")
    except FileNotFoundError:
        raise NotFoundError(f"there is no log {path!r}") from None
    except OSError as error:
        raise InvalidInputError(f"{path!r} cannot be read: {error.strerror}; give the file of a log") from None


def _known(array: ShapedArray) -> KnownArray:
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
