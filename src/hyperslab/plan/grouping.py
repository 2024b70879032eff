"""Chunks that a function could cut, put into calls: what each call answers, and reads beside the data."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from math import ceil

import numpy as np
import numpy.typing as npt

from hyperslab.layout.wire import JOINED_BYTES
from hyperslab.plan.cost import Calls, FunctionModel
from hyperslab.plan.ranges import Ints

__all__ = [
    "CALL_HEAD_BYTES", "CHUNK_HEAD_BYTES", "MOST_CHUNKS", "MOST_LISTED", "MOST_LISTED_IN_CALL", "Call", "Grouped",
    "Inside", "Offers", "figures_of", "groupings",
]  # fmt: skip

# One call covers at most so many chunks.
MOST_CHUNKS = 256
# A request says by its index which cell is wanted where they are not evenly spaced: of one chunk at most so many, and
# in one call, whose request must stay short.
MOST_LISTED = 1 << 16
MOST_LISTED_IN_CALL = 1 << 18
# What an answer holds beside its cells: for itself, and for each chunk. Names of versions are rarely longer.
CALL_HEAD_BYTES, CHUNK_HEAD_BYTES = 256, 96
# Up to so many chunks are given to calls one by one, the largest first; more, and those with about as much work as
# each other, stay in a row.
_FEW_TO_DEAL = 64
_EVEN = 1.05


@dataclass(frozen=True, slots=True)
class Call:
    """One call: the owners (see `Plan`) whose chunks it cuts, the bytes that it answers at most, those that it reads
    beside the data by `gets` requests, the bytes that its answer is expected to have, as it may come compressed, and
    those that its encoded chunks have when they are decoded.
    """

    owners: tuple[int, ...]
    reply_bytes: int
    read_bytes: int
    gets: int = 0
    expected_bytes: int = 0
    decoded_bytes: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Offers:
    """Chunks that a function could cut, in columns: the owner, its unit of the needs (-1: an object of `wholes`), the
    object's number, the bytes that the answer has for it, where those begin and end in the object that the function
    reads for it, the indices that it takes to say which cells are wanted, the bytes that its part of the answer is
    expected to have when that is compressed, and the bytes that the chunk has when it is decoded, 0 if it is plain.
    """

    owners: Ints
    units: Ints
    objects: Ints
    reply_bytes: Ints
    starts: Ints
    stops: Ints
    listed: Ints
    expected_bytes: Ints
    decoded_bytes: Ints

    @property
    def read_bytes(self) -> Ints:
        return self.stops - self.starts

    def only(self, chosen: npt.NDArray[np.bool_]) -> "Offers":
        """Return some of them."""
        return Offers(*[getattr(self, name)[chosen] for name in self.__slots__])

    def __len__(self) -> int:
        return len(self.owners)


def figures_of(calls: Sequence[Call]) -> Calls | None:
    """Return the figures by which calls are priced; None without calls."""
    if not calls:
        return None
    columns = zip(
        *[(each.read_bytes, each.expected_bytes, each.gets, len(each.owners), each.decoded_bytes) for each in calls],
        strict=True,
    )
    return Calls(len(calls), *[f(column) for column in columns for f in (sum, max)])


@dataclass(frozen=True, slots=True, eq=False)
class Grouped:
    """Offers that were put into calls: the call of each offer, and for each call the sums over its offers."""

    owners: Ints
    group_of: Ints
    chunks: Ints
    gets: Ints
    read: Ints
    reply: Ints
    expected: Ints
    listed: Ints
    decoded: Ints

    @classmethod
    def of(cls, offers: Offers, group_of: Ints, inside: "Inside") -> "Grouped":
        chunks, heads = np.bincount(group_of), CALL_HEAD_BYTES
        reply, expected, listed, decoded = [
            np.bincount(group_of, column, len(chunks)).astype(np.int64)
            for column in (offers.reply_bytes, offers.expected_bytes, offers.listed, offers.decoded_bytes)
        ]
        gets, read = inside.of(group_of, chunks)
        return cls(offers.owners, group_of, chunks, gets, read, reply + heads, expected + heads, listed, decoded)

    def fits(self, limits: FunctionModel) -> bool:
        """Whether no call is larger than one may be."""
        fits = self.read.max() <= limits.read_bytes and self.reply.max() <= limits.reply_bytes
        return bool(fits and self.chunks.max() <= MOST_CHUNKS and self.listed.max() <= MOST_LISTED_IN_CALL)

    def figures(self) -> Calls:
        """Return what the calls are priced by."""
        columns = [column.tolist() for column in (self.read, self.expected, self.gets, self.chunks, self.decoded)]
        return Calls(len(self.chunks), *[f(column) for column in columns for f in (sum, max)])

    def calls(self) -> tuple[Call, ...]:
        """Return the calls."""
        order = self.group_of.argsort(kind="stable")
        members = np.split(self.owners[order], np.cumsum(self.chunks)[:-1])
        columns = [column.tolist() for column in (self.reply, self.read, self.gets, self.expected, self.decoded)]
        return tuple([Call(tuple(each.tolist()), *row) for each, *row in zip(members, *columns, strict=True)])


class Inside:
    """What calls read beside the data: chunks of one object that lie near each other by one request."""

    def __init__(self, offers: Offers, gap_bytes: int) -> None:
        self._offers, self._gap_bytes = offers, gap_bytes
        # By place, so that neighbours in an object are neighbours here.
        self._order = np.lexsort((offers.starts, offers.objects))
        self._any = bool((~self._apart(self._order, offers.objects[self._order])[1:]).any())

    def gets_each(self) -> float:
        """Return how many requests there are for a chunk, if one call has all of them."""
        count = len(self._offers)
        gets, _ = self.of(np.zeros(count, np.int64), np.array([count]))
        return int(gets[0]) / max(count, 1)

    def of(self, group_of: Ints, chunks: Ints) -> tuple[Ints, Ints]:
        """Return for each call its requests and the bytes of them all."""
        calls = len(chunks)
        if not self._any:
            return chunks, np.bincount(group_of, self._offers.read_bytes, calls).astype(np.int64)
        order = self._order[group_of[self._order].argsort(kind="stable")]
        groups, objects = group_of[order], self._offers.objects[order]
        first = np.flatnonzero(self._apart(order, groups * (int(objects.max()) + 1) + objects))
        nbytes = np.maximum.reduceat(self._offers.stops[order], first) - self._offers.starts[order][first]
        # What is too long to be read at once is read in parts.
        gets = np.bincount(groups[first], -(-nbytes // JOINED_BYTES), calls)
        return gets.astype(np.int64), np.bincount(groups[first], nbytes, calls).astype(np.int64)

    def _apart(self, order: Ints, places: Ints) -> npt.NDArray[np.bool_]:
        """Say of each chunk, in that order, whether it is too far from all before it in the same place."""
        starts, stops = self._offers.starts[order], self._offers.stops[order]
        another = np.append(True, places[1:] != places[:-1])
        # As far as any one before it in its place reaches: places are moved apart, so that one scan goes over all.
        numbers = np.cumsum(another)
        step = min(int(stops.max(initial=0)) + 1, (1 << 62) // (len(order) + 1))
        reach = np.maximum.accumulate(np.minimum(stops, step) + numbers * step) - numbers * step
        another[1:] |= starts[1:] - reach[:-1] > self._gap_bytes
        return another


def groupings(offers: Offers, function: FunctionModel, gets_each: float = 1.0) -> Iterator[Ints]:
    """Give ways to spread chunks over calls: for each chunk the number of its call.

    `gets_each` is how many GETs of its own the function sends for a chunk: less than 1 where it reads several by one.
    """
    count = len(offers)
    if not count:
        return
    reads, replies, listed = offers.read_bytes, offers.reply_bytes, offers.listed
    least = max(1, ceil(replies.sum() / function.reply_bytes), ceil(reads.sum() / function.read_bytes))
    least = max(least, ceil(count / MOST_CHUNKS), ceil(listed.sum() / MOST_LISTED_IN_CALL))
    # More than run at once wait for each other, which spares nothing.
    most = min(count, max(least, function.profile.at_once))
    numbers = [least << power for power in range(most.bit_length()) if least << power < most]
    if most == least > 1:
        # Shares are never quite even: where limits ask for so many calls, it may take a few more to keep them.
        numbers, most = [*numbers, most], min(count, most + -(-most // 4))
    work = function.profile.seconds(reads, gets_each, 0, 1, offers.decoded_bytes).astype(np.float64)
    by_work, by_place = np.argsort(-work, kind="stable"), np.lexsort((offers.starts, offers.objects))
    even = float(work.max()) <= _EVEN * float(work.min())
    for number in (*numbers, most):
        in_a_row = np.empty(count, np.int64)
        in_a_row[by_place] = _in_a_row(work[by_place], number)
        yield in_a_row
        if np.bincount(in_a_row).max() > MOST_CHUNKS:
            # Those with little work are too many for one call: as many in each.
            as_many = np.empty(count, np.int64)
            as_many[by_place] = np.arange(count) * number // count
            yield as_many
        if not even and number > 1 and count <= _FEW_TO_DEAL:
            dealt = np.empty(count, np.int64)
            dealt[by_work] = _dealt(work[by_work], number)
            yield dealt


def _in_a_row(work: npt.NDArray[np.float64], number: int) -> Ints:
    """Spread chunks over calls so that neighbours stay together; return each one's call.

    >>> _in_a_row(np.array([1.0, 1.0, 2.0, 1.0, 1.0]), 3).tolist()
    [0, 0, 1, 2, 2]
    """
    middle = np.cumsum(work) - work / 2
    group_of = (middle * (number / max(float(work.sum()), 1e-300))).astype(np.int64)
    # One that has far more work than the others may leave its neighbours without any.
    return np.unique(np.minimum(group_of, number - 1), return_inverse=True)[1]


def _dealt(work: npt.NDArray[np.float64], number: int) -> Ints:
    """Spread chunks, those with the most work first, evenly over calls; return each one's call."""
    heap = [(0.0, group) for group in range(number)]
    heapify(heap)
    dealt = np.empty(len(work), np.int64)
    for at, more in enumerate(work.tolist()):
        load, group = heap[0]
        dealt[at] = group
        heapreplace(heap, (load + more, group))
    return dealt
