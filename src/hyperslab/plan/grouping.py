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
# What is summed up over the offers of a call; calls are priced by the first few.
_SUMS = ("read", "expected", "gets", "chunks", "decoded", "reply", "listed")
_PRICED = 5
# A call ends early, and answers while others go on, if it has at most this share of the largest one's bytes to read.
_EARLY = 0.75


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
    rows = [(each.read_bytes, each.expected_bytes, each.gets, len(each.owners), each.decoded_bytes) for each in calls]
    columns = list(zip(*rows, strict=True))
    early = [(read, reply) for read, reply, *_ in rows if read <= _EARLY * max(columns[0])]
    figures = [f(column) for column in columns for f in (sum, max)]
    figures += [max([read for read, _ in early], default=0), sum([reply for _, reply in early])]
    return Calls(len(calls), *figures)


@dataclass(frozen=True, slots=True, eq=False)
class Grouped:
    """Offers that were put into calls: the call of each, what the calls are priced by, and the sums over their offers.

    `sums` has a row for each of `_SUMS`, with one figure for each call.
    """

    owners: Ints
    group_of: Ints
    sums: Ints
    figures: Calls

    @staticmethod
    def each(offers: Offers, ways: Sequence[Ints], inside: "Inside", limits: FunctionModel) -> list["Grouped"]:
        """Put offers into calls in each of several ways, but for those with a call larger than one may be.

        All at once: with few offers, as there mostly are, each step takes as long for one way as for all of them. A
        call that has one chunk is as large as it is.
        """
        groups = np.array(ways)
        sums = _sums(offers, groups, inside)
        totals, largest = sums.sum(axis=2).T.tolist(), sums.max(axis=2).T.tolist()
        counts = (groups.max(axis=1) + 1).tolist()
        early = _early(sums) if max(counts) > 1 else [(0, 0)] * len(ways)
        found = []
        for at, (total, most, count) in enumerate(zip(totals, largest, counts, strict=True)):
            if count == len(offers) or _fits(most, limits):
                priced = [figure for pair in zip(total[:_PRICED], most[:_PRICED], strict=True) for figure in pair]
                priced += early[at]
                found.append(Grouped(offers.owners, groups[at], sums[:, at, :count], Calls(count, *priced)))
        return found

    def calls(self) -> tuple[Call, ...]:
        """Return the calls."""
        read, expected, gets, chunks, decoded, reply, _ = self.sums
        members = np.split(self.owners[self.group_of.argsort(kind="stable")], chunks.cumsum()[:-1])
        columns = [column.tolist() for column in (reply, read, gets, expected, decoded)]
        return tuple([Call(tuple(each.tolist()), *row) for each, *row in zip(members, *columns, strict=True)])


def _fits(most: Sequence[int], limits: FunctionModel) -> bool:
    """Whether the largest call is not larger than one may be; for its figures see `_SUMS`."""
    read, _, _, chunks, _, reply, listed = most
    fits = read <= limits.read_bytes and reply <= limits.reply_bytes
    return fits and chunks <= MOST_CHUNKS and listed <= MOST_LISTED_IN_CALL


def _sums(offers: Offers, groups: Ints, inside: "Inside") -> Ints:
    """Return the figures of `_SUMS` for each way (a row of `groups`) and each call of it, 0 where it has no more."""
    count, most = len(groups), int(groups.max()) + 1
    calls = groups + most * np.arange(count)[:, None]
    sums = np.empty((len(_SUMS), count * most), np.int64)
    read, expected, gets, chunks, decoded, reply, listed = sums
    chunks[:] = np.bincount(calls.ravel(), minlength=count * most)
    gets[:], read[:] = inside.of(calls, chunks)
    columns = (offers.expected_bytes, offers.decoded_bytes, offers.reply_bytes, offers.listed)
    for row, column in zip((expected, decoded, reply, listed), columns, strict=True):
        row[:] = np.bincount(calls.ravel(), np.concatenate([column] * count), count * most)
    heads = CALL_HEAD_BYTES * (chunks > 0)
    expected += heads
    reply += heads
    return sums.reshape(len(_SUMS), count, most)


def _early(sums: Ints) -> list[tuple[int, int]]:
    """Return for each way the most that a call reads which ends early, and what all such calls answer."""
    read, expected = sums[0], sums[1]
    is_early = read <= _EARLY * read.max(axis=1, keepdims=True)
    most, answered = (read * is_early).max(axis=1), (expected * is_early).sum(axis=1)
    return list(zip(most.tolist(), answered.tolist(), strict=True))


class Inside:
    """What calls read beside the data: chunks of one object that lie near each other by one request."""

    def __init__(self, offers: Offers, gap_bytes: int) -> None:
        self._offers, self._gap_bytes = offers, gap_bytes
        # By place, so that neighbours in an object are neighbours here.
        self.order = np.lexsort((offers.starts, offers.objects))
        self._heads = self._apart(self.order, offers.objects[self.order]).nonzero()[0]

    def gets_each(self) -> float:
        """Return how many requests there are for a chunk, if one call has all of them."""
        if len(self._heads) == len(self._offers):
            return 1.0
        return int(_gets(self._joined(self.order, self._heads)).sum()) / len(self._offers)

    def of(self, group_of: Ints, chunks: Ints) -> tuple[Ints, Ints]:
        """Return for each call its requests and the bytes of them all.

        `group_of` has the call of each offer; or, in rows, that of each offer in several ways, each with calls of its
        own. `chunks` are the offers of each call.
        """
        calls, groups = len(chunks), group_of.take(self.order, axis=-1).ravel()
        order = np.concatenate([self.order] * (len(groups) // len(self.order)))
        if len(self._heads) == len(self._offers):
            return chunks, np.bincount(groups, self._offers.read_bytes[order], calls).astype(np.int64)
        by_group = groups.argsort(kind="stable")
        order, groups = order[by_group], groups[by_group]
        objects = self._offers.objects[order]
        heads = self._apart(order, groups * (int(objects.max()) + 1) + objects).nonzero()[0]
        nbytes, owners = self._joined(order, heads), groups[heads]
        gets = np.bincount(owners, _gets(nbytes), calls)
        return gets.astype(np.int64), np.bincount(owners, nbytes, calls).astype(np.int64)

    def _apart(self, order: Ints, places: Ints) -> npt.NDArray[np.bool_]:
        """Say of each chunk, in that order, whether it is too far from all before it in the same place."""
        starts, stops = self._offers.starts[order], self._offers.stops[order]
        another = np.ones(len(order), np.bool_)
        np.not_equal(places[1:], places[:-1], out=another[1:])
        # As far as any one before it in its place reaches: places are moved apart, so that one scan goes over all.
        numbers = another.cumsum()
        step = min(int(stops.max(initial=0)) + 1, (1 << 62) // (len(order) + 1))
        moved = numbers * step
        reach = np.maximum.accumulate(np.minimum(stops, step) + moved) - moved
        another[1:] |= starts[1:] - reach[:-1] > self._gap_bytes
        return another

    def _joined(self, order: Ints, heads: Ints) -> Ints:
        """Return the bytes that are read together from each of the heads on."""
        return np.maximum.reduceat(self._offers.stops[order], heads) - self._offers.starts[order[heads]]


def _gets(nbytes: Ints) -> Ints:
    """Return how many requests read so many bytes: what is too long to be read at once is read in parts."""
    return -(-nbytes // JOINED_BYTES)


def groupings(offers: Offers, function: FunctionModel, inside: "Inside") -> Iterator[Ints]:
    """Give ways to spread chunks over calls: for each chunk the number of its call."""
    count = len(offers)
    reads, replies, listed = offers.read_bytes, offers.reply_bytes, offers.listed
    least = max(1, ceil(replies.sum() / function.reply_bytes), ceil(reads.sum() / function.read_bytes))
    least = max(least, ceil(count / MOST_CHUNKS), ceil(listed.sum() / MOST_LISTED_IN_CALL))
    # More than run at once wait for each other, which spares nothing.
    most = min(count, max(least, function.profile.at_once))
    numbers = [least << power for power in range(most.bit_length()) if least << power < most]
    if most == least > 1:
        # Shares are never quite even: where limits ask for so many calls, it may take a few more to keep them.
        numbers, most = [*numbers, most], min(count, most + -(-most // 4))
    work = function.profile.seconds(reads, inside.gets_each(), 0, 1, offers.decoded_bytes).astype(np.float64)
    even = float(work.max()) <= _EVEN * float(work.min())
    by_work, by_place = (-work).argsort(kind="stable"), inside.order
    for number in (*numbers, most):
        in_a_row = np.empty(count, np.int64)
        in_a_row[by_place] = _in_a_row(work[by_place], number)
        yield in_a_row
        if count > MOST_CHUNKS and np.bincount(in_a_row).max() > MOST_CHUNKS:
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
    middle = work.cumsum() - work / 2
    group_of = (middle * (number / max(float(work.sum()), 1e-300))).astype(np.int64)
    group_of = np.minimum(group_of, number - 1)
    # One that has far more work than the others may leave its neighbours without any.
    numbers = (np.bincount(group_of) > 0).cumsum() - 1
    return numbers[group_of]


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
