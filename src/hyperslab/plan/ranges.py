"""Byte ranges as arrays: what is needed of every object, sorted and merged where it touches."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from hyperslab.errors import InvalidInputError

__all__ = ["Ints", "Needs", "Ranges", "Units", "reach_of", "spans_in"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Ranges:
    """Ranges `starts[i] <= byte < stops[i]` of object `objects[i]`, sorted, none overlapping another.

    A range may be cut at every `align[i]` bytes from its start; 0 means that it must stay whole.
    """

    objects: Ints
    starts: Ints
    stops: Ints
    align: Ints | int = 0

    def __len__(self) -> int:
        return len(self.starts)

    @staticmethod
    def nothing() -> "Ranges":
        """No range at all."""
        none = np.zeros(0, np.int64)
        return Ranges(none, none, none)

    @property
    def one_each(self) -> bool:
        """Whether there is one range of each object, and no more."""
        return not (self.objects[1:] == self.objects[:-1]).any()

    @property
    def nbytes(self) -> int:
        return int((self.stops - self.starts).sum())

    @property
    def largest(self) -> int:
        """The bytes of the largest range."""
        return int((self.stops - self.starts).max(initial=0))


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """The chunks that hold the needed bytes: chunk i is `starts[i] <= byte < stops[i]` of object `objects[i]`."""

    objects: Ints
    starts: Ints
    stops: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Needs:
    """The bytes that a read needs, one row for each contiguous part of a chunk.

    Row i is the bytes `starts[i]` to `stops[i]` of chunk `units[i]`; they are for `owners[i]`, a number by
    which the reader finds what to do with them. Rows are sorted by object and start.
    """

    chunks: Units
    units: Ints
    owners: Ints
    starts: Ints
    stops: Ints
    align: Ints | int
    overlapping: bool = False

    @classmethod
    def sorted(
        cls,
        chunks: Units,
        units: Ints,
        owners: Ints,
        starts: Ints,
        stops: Ints,
        align: Ints | int,
        *,
        overlapping: bool,
    ) -> "Needs":
        """Sort the rows by object, then by start; those of one chunk must ascend already."""
        if len(chunks.objects) > 1 and not _is_sorted(chunks.objects[units], starts):
            order = np.lexsort((starts, chunks.objects[units]))
            units, owners, starts, stops = units[order], owners[order], starts[order], stops[order]
            align = align if isinstance(align, int) else align[order]
        return cls(chunks, units, owners, starts, stops, align, overlapping)

    @staticmethod
    def nothing() -> "Needs":
        """No need at all."""
        none = np.zeros(0, np.int64)
        return Needs(Units(none, none, none), none, none, none, none, 0)

    @staticmethod
    def joined(needs: Sequence["Needs"]) -> "Needs":
        """Put the needs of several reads together; their object numbers agree already, chunks are renumbered."""
        if len(needs) == 1:
            return needs[0]
        counts = np.cumsum([0, *(len(n.chunks.objects) for n in needs)])
        chunks = Units(
            np.concatenate([n.chunks.objects for n in needs]),
            np.concatenate([n.chunks.starts for n in needs]),
            np.concatenate([n.chunks.stops for n in needs]),
        )
        columns = (
            chunks,
            np.concatenate([n.units + base for n, base in zip(needs, counts, strict=False)]),
            np.concatenate([n.owners for n in needs]),
            np.concatenate([n.starts for n in needs]),
            np.concatenate([n.stops for n in needs]),
            _joined_align(needs),
        )
        if _are_apart(needs):
            return Needs(*columns, overlapping=any([n.overlapping for n in needs]))
        return Needs.sorted(*columns, overlapping=True)

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def objects(self) -> Ints:
        return self.chunks.objects[self.units]

    def whole(self, rows: Ints) -> npt.NDArray[np.bool_]:
        """Say which of the rows are encoded chunks, to be taken whole."""
        return np.broadcast_to(np.asarray(self.align) == 0, self.starts.shape)[rows]

    def plain_bytes(self) -> int:
        """Return how many bytes of plain chunks are needed, each counted once."""
        plain = np.broadcast_to(np.asarray(self.align) > 0, self.starts.shape)
        if not self.overlapping or not plain.any():
            return int((self.stops - self.starts)[plain].sum())
        objects, starts, stops = self.objects[plain], self.starts[plain], self.stops[plain]
        new = np.concatenate([[True], np.diff(objects) != 0])
        # In a line of all objects, one after another: how far the rows before each one reach.
        lengths = np.maximum.reduceat(stops, new.nonzero()[0]).astype(np.float64)
        at = np.repeat(np.cumsum(np.append(0.0, lengths[:-1])), np.diff(np.append(new.nonzero()[0], len(new))))
        ends = np.maximum.accumulate(at + stops)
        before = np.append(0.0, ends[:-1])
        return int(np.maximum(at + stops - np.maximum(at + starts, before), 0.0).sum())

    def reaches(self) -> tuple[Ints, Ints, Ints]:
        """Return each chunk's first needed byte and the one after its last (0, 0 if none), and the rows by chunk."""
        rows = np.arange(len(self)) if (np.diff(self.units) >= 0).all() else self.units.argsort(kind="stable")
        firsts = np.zeros(len(self.chunks.objects), np.int64)
        lasts = firsts.copy()
        if len(rows):
            units = self.units[rows]
            heads = np.flatnonzero(np.diff(units, prepend=-1))
            firsts[units[heads]] = self.starts[rows[heads]]
            lasts[units[heads]] = np.maximum.reduceat(self.stops[rows], heads)
        return firsts, lasts, rows

    def without(self, units: Ints) -> "Needs":
        """Leave out some chunks."""
        kept = np.ones(len(self.chunks.objects), np.bool_)
        kept[units] = False
        return self._keeping(kept[self.units])

    def only(self, units: Ints) -> "Needs":
        """Leave out all chunks but these."""
        kept = np.zeros(len(self.chunks.objects), np.bool_)
        kept[units] = True
        return self._keeping(kept[self.units])

    def _keeping(self, rows: npt.NDArray[np.bool_]) -> "Needs":
        align = self.align if isinstance(self.align, int) else self.align[rows]
        return Needs(
            self.chunks, self.units[rows], self.owners[rows], self.starts[rows], self.stops[rows], align,
            self.overlapping,
        )  # fmt: skip

    def rows_in(self, requests: Ranges) -> tuple[Ints, Ints]:
        """Return for each request the first row that it may hold and the row after the last.

        With overlapping rows there may be some between them that end before the request starts.
        """
        objects, stops = self.objects, self.stops
        if self.overlapping and len(stops):
            stops = _running_stops(objects, stops)
        return spans_in(Ranges(objects, self.starts, stops), requests)

    def merged(self, *, encoded_apart: bool = False) -> Ranges:
        """Merge rows of one object that overlap or touch; `encoded_apart` leaves encoded chunks that touch apart."""
        objects, starts, stops = self.objects, self.starts, self.stops
        if len(starts) < 2:
            return Ranges(objects, starts, stops, self.align)
        if self.overlapping:
            stops = _running_stops(objects, stops)
        first = np.empty(len(starts), np.bool_)
        first[0] = True
        np.greater(starts[1:], stops[:-1], out=first[1:])
        if len(self.chunks.objects) > 1:
            first[1:] |= objects[1:] != objects[:-1]
        if encoded_apart:
            _keep_apart(first, starts, stops, self.align)
        if first.all():
            return Ranges(objects, starts, stops, self.align)
        heads = first.nonzero()[0]
        tails = np.append(heads[1:], len(starts)) - 1
        align = self.align if isinstance(self.align, int) else _common_align(self.align, heads)
        return Ranges(objects[heads], starts[heads], stops[tails], align)


def _are_apart(needs: Sequence[Needs]) -> bool:
    """Whether each of some needs, which are sorted, is of objects that have higher numbers than those before."""
    some = [n for n in needs if len(n)]
    ends = [(n.chunks.objects.item(n.units.item(0)), n.chunks.objects.item(n.units.item(-1))) for n in some]
    return all([before[1] < after[0] for before, after in pairwise(ends)])


def _joined_align(needs: Sequence[Needs]) -> Ints | int:
    first = needs[0].align
    if isinstance(first, int) and all([isinstance(n.align, int) and n.align == first for n in needs]):
        return first
    return np.concatenate([np.broadcast_to(np.int64(n.align), n.starts.shape) for n in needs])


def spans_in(ranges: Ranges, requests: Ranges) -> tuple[Ints, Ints]:
    """Return for each request the first of the ranges that ends after it starts, and the first that starts after it.

    Starts and stops of the ranges must both ascend within an object.
    """
    reach = reach_of(ranges, requests)
    lines, sought = ranges.objects * reach, requests.objects * reach
    firsts = np.searchsorted(lines + ranges.stops, sought + requests.starts, side="right")
    lasts = np.searchsorted(lines + ranges.starts, sought + requests.stops)
    return firsts, lasts


def reach_of(*some: Ranges) -> int:
    """Return how far apart objects must be laid so that `object * reach + offset` numbers all bytes through."""
    reach = 1 + max([int(ranges.stops.max(initial=0)) for ranges in some])
    _check_line(1 + max([int(ranges.objects.max(initial=0)) for ranges in some]), reach)
    return reach


def _check_line(objects: int, reach: int) -> None:
    if objects * reach >= 2**63:
        raise InvalidInputError(
            f"{objects:,} objects of up to {reach:,} bytes are too much for one read; read fewer at once"
        )


def _is_sorted(objects: Ints, starts: Ints) -> bool:
    """Whether rows are sorted by object, then by start."""
    before, after = objects[:-1], objects[1:]
    return bool(((after > before) | ((after == before) & (starts[1:] >= starts[:-1]))).all())


def _keep_apart(first: npt.NDArray[np.bool_], starts: Ints, stops: Ints, align: Ints | int) -> None:
    """Mark encoded rows that begin where the one before ends, and plain ones that begin where an encoded one ends."""
    if isinstance(align, int):
        if not align:
            first[1:] |= starts[1:] == stops[:-1]
    else:
        first[1:] |= (starts[1:] == stops[:-1]) & ((align[1:] == 0) | (align[:-1] == 0))


def _running_stops(objects: Ints, stops: Ints) -> Ints:
    """Replace each stop by the largest so far in its object."""
    reach = int(stops.max()) + 1
    dense = np.cumsum(np.diff(objects, prepend=objects[:1]) != 0)
    _check_line(1 + int(dense[-1]), reach)
    lifted: Ints = stops + dense * reach
    highest: Ints = np.maximum.accumulate(lifted) - dense * reach
    return highest


def _common_align(align: Ints, heads: Ints) -> Ints:
    low, high = np.minimum.reduceat(align, heads), np.maximum.reduceat(align, heads)
    return np.where(low == high, low, 0)
