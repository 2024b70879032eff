"""The third way: which chunks a function beside the data is to cut, chosen on the whole query at once.

What a chunk costs by requests depends on what is sent for all others, so chunks are not judged one by one. With a
few, every set of them is tried. With many, they are put in order by what calling for them would spare, in several ways,
and one scan over "call for the first m" finds the best number for each order; the best few are then planned in full,
and with not too many chunks, so are those that differ from the best by one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from math import inf, isinf
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from hyperslab.errors import InternalError
from hyperslab.plan.cost import Calls, CostModel, FunctionModel
from hyperslab.plan.grouping import CALL_HEAD_BYTES, MOST_CHUNKS, Call, Grouped, Inside, Offers, groupings
from hyperslab.plan.optimise import optimise
from hyperslab.plan.ranges import Ints, Needs, Ranges

__all__ = ["Choice", "Query", "choose_calls", "worth_calling"]

# So few chunks are called for in every combination, if their ranges are not too many.
_FEW_OFFERS = 4
_FEW_ROWS = 128
# Up to so many, one more and one less are tried as long as that helps.
_SOME_OFFERS = 24
# As long as there are not too many ranges to be planned again for each kind of chunk.
_SOME_ROWS = 1 << 15
_ROUNDS = 3
# Of up to so many kinds of chunks one is tried in place of another.
_FEW_KINDS = 3
# Beyond so many, fewer widths of gaps are tried: milliseconds count.
_MANY_OFFERS = 1 << 10
# Of what a plan costs without calls, so much they must spare, if anything.
_WORTH = 0.04

Rank = tuple[float, float]


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """What was chosen: the calls, the requests for all other ranges; `units` and `objects` are those called for.

    `grouped` are the offers in their calls, None without any; `calls` are made of them when they are asked for.
    `chosen` says of each offer whether it is; `rank` is what the plan is compared with others by, `nbytes` what all of
    it brings.
    """

    grouped: Grouped | None
    requests: Ranges
    units: Ints
    objects: frozenset[int]
    chosen: npt.NDArray[np.bool_]
    rank: Rank
    nbytes: int = 0

    @property
    def calls(self) -> tuple[Call, ...]:
        return () if self.grouped is None else self.grouped.calls()


def choose_calls(query: "Query", *, all_of_them: bool = False, spare: float = 0.0, alike: float = 1.0) -> Choice:
    """Choose what to call for, and the requests for the rest.

    With `all_of_them` everything offered is called for. Calls have to spare more than `spare` (a cost), and a share of
    the whole: what is predicted to be about as good either way is not worth another machine. Where they cannot, they
    are not looked for. Of those that cost at most `alike` times as much as the best, the one is taken that brings the
    fewest bytes, if that spares twice the share that it costs more: the less a plan asks of the line, the less depends
    on how that is just then.
    """
    none = np.zeros(len(query.offers), np.bool_)
    if all_of_them or not len(query.offers):
        return query.settle(~none)
    without = query.settle(none)
    if not worth_calling(without.rank[0], query.least(), spare):
        return without
    best = _search(query, without)
    if not worth_calling(without.rank[0], best.rank[0], spare):
        return without
    near = [each for each in query.tried if each.grouped is not None and each.rank[0] <= alike * best.rank[0]]
    near = [each for each in near if worth_calling(without.rank[0], each.rank[0], spare)]
    return min(near, key=lambda each: each.nbytes * each.rank[0] ** 2) if alike > 1.0 else best


def worth_calling(without: float, called: float, spare: float) -> bool:
    """Whether a plan with calls costs so much less than one without that it is taken; see `choose_calls`."""
    return without - called > (spare + _WORTH * without if spare else 0.0)


def _search(query: "Query", best: Choice) -> Choice:
    """Return the best that is found, or the one given."""
    offers, rows = query.offers, len(query.needs)
    if len(offers) <= _FEW_OFFERS and rows <= _FEW_ROWS:
        kinds, seen = _kinds(query), set()
        for chosen, group_of in _every_set(len(offers)):
            # Of sets that differ only in which of some alike chunks they have, one is tried.
            members = zip(group_of.tolist(), kinds[chosen].tolist(), strict=True)
            groups = groupby(sorted(members), key=itemgetter(0))
            alike = tuple(sorted([tuple([kind for _, kind in group]) for _, group in groups]))
            if alike not in seen:
                seen.add(alike)
                best = _cheaper(best, query.settle_as(chosen, group_of))
        return best
    for chosen in _scan(query):
        best = _cheaper(best, query.settle(chosen))
    return _climb(query, best) if len(offers) <= _SOME_OFFERS and query.kinds * rows <= _SOME_ROWS else best


@dataclass(slots=True, eq=False)
class Query:
    """All that is to be decided at once; what was planned for a set of offers is kept: some are asked for again.

    `whole_bytes` are the objects that are to be fetched whole. `requests` are the best for all ranges without any call,
    where they are known.
    """

    needs: Needs
    whole_bytes: Mapping[int, int]
    offers: Offers
    model: CostModel
    requests: Ranges | None = None
    # All that was planned in full.
    tried: list[Choice] = field(init=False, default_factory=list)
    _settled: dict[bytes, Choice] = field(init=False, default_factory=dict)

    @property
    def function(self) -> FunctionModel:
        if self.model.function is None:
            raise InternalError("calls are to be chosen without a function")
        return self.model.function

    @property
    def kinds(self) -> int:
        """How many offers there are that are not alike."""
        columns = (self.offers.reply_bytes, self.offers.read_bytes, self.offers.decoded_bytes)
        return len(set(zip(*[column.tolist() for column in columns], strict=True)))

    def least(self) -> float:
        """Return what no plan with calls costs less than."""
        offers = self.offers
        nbytes = self.needs.plain_bytes() + self._least_encoded_bytes()
        shrunk = float((offers.expected_bytes / offers.reply_bytes).min())
        least = int(offers.read_bytes.min()), int(offers.decoded_bytes.min())
        return self.model.least_with_call(int(nbytes * shrunk), *least)

    def _least_encoded_bytes(self) -> int:
        """Return the fewest bytes that encoded chunks bring: each whole, or by a call the cells that are wanted."""
        needs, offers = self.needs, self.offers
        encoded = np.flatnonzero(np.broadcast_to(np.asarray(needs.align) == 0, needs.starts.shape))
        if not len(encoded):
            return 0
        units, sizes = needs.units[encoded], (needs.stops - needs.starts)[encoded]
        replies = np.zeros(len(needs.chunks.objects), np.int64)
        offered = offers.units >= 0
        replies[offers.units[offered]] = offers.reply_bytes[offered]
        # One that several reads want counts once, with the least that one of them brings.
        places = np.stack([needs.chunks.objects[units], needs.starts[encoded]])
        order = np.lexsort((np.minimum(replies[units], sizes), *places))
        first = np.append(True, (np.diff(places[:, order]) != 0).any(axis=0))
        return int(np.minimum(replies[units], sizes)[order][first].sum())

    def settle(self, chosen: npt.NDArray[np.bool_]) -> Choice:
        """Plan in full: group the chosen offers into calls, and find the requests for everything else."""
        key = chosen.tobytes()
        if key not in self._settled:
            self._settled[key] = self.settle_as(chosen, None)
        return self._settled[key]

    def settle_as(self, chosen: npt.NDArray[np.bool_], group_of: Ints | None) -> Choice:
        """Plan in full: give the chosen offers to calls as `group_of` says, or as is best."""
        units = self.offers.units[chosen]
        objects = frozenset(self.offers.objects[chosen][units < 0].tolist())
        units = units[units >= 0]
        wholes = [nbytes for number, nbytes in self.whole_bytes.items() if number not in objects]
        decided = len(wholes), sum(wholes), max(wholes, default=0)
        if not chosen.any():
            requests = self._requests(units, decided, None) if self.requests is None else self.requests
            return Choice(None, requests, units, objects, chosen, self.model.rank(*_with(decided, requests)))
        ways = self._ways(chosen, group_of)
        if not ways:
            # More than a call may hold.
            return Choice(None, Ranges.nothing(), units, objects, chosen, (inf, inf))
        rank, grouped = self._cheapest(ways, decided, Ranges.nothing())
        requests = self._requests(units, decided, grouped.figures)
        if len(requests):
            # Grouped once more, now that it is known what goes on beside them.
            rank, grouped = self._cheapest(ways, decided, requests)
        nbytes = decided[1] + requests.nbytes + int(grouped.figures.reply_bytes)
        self.tried.append(Choice(grouped, requests, units, objects, chosen, rank, nbytes))
        return self.tried[-1]

    def _requests(self, called: Ints, decided: tuple[int, int, int], calls: Calls | None) -> Ranges:
        """Return the best requests for the ranges of all chunks but those called for."""
        rest = self.needs.without(called) if len(called) else self.needs
        if not len(rest):
            return Ranges.nothing()
        count, nbytes, largest = decided
        return optimise(rest, self.model, others=count, other_bytes=nbytes, other_largest=largest, calls=calls)

    def _cheapest(
        self, ways: Sequence[Grouped], decided: tuple[int, int, int], requests: Ranges
    ) -> tuple[Rank, Grouped]:
        """Return the best way to group calls, and its rank, given what is sent beside them."""
        sent = _with(decided, requests)
        return min([(self.model.rank(*sent, way.figures), way) for way in ways], key=itemgetter(0))

    def _ways(self, chosen: npt.NDArray[np.bool_], group_of: Ints | None) -> list[Grouped]:
        """Return ways to give the chosen offers to calls: as `group_of` says, or several."""
        offers = self.offers.only(chosen)
        inside = Inside(offers, self.model.inside_gap_bytes())
        ways = list(groupings(offers, self.function, inside)) if group_of is None else [group_of]
        return Grouped.each(offers, ways, inside, self.function)


def _with(decided: tuple[int, int, int], requests: Ranges) -> tuple[int, int, int]:
    """Return the number of all that is sent, its bytes, and those of the largest."""
    count, nbytes, largest = decided
    return count + len(requests), nbytes + requests.nbytes, max(largest, requests.largest)


@lru_cache(maxsize=_FEW_OFFERS + 1)
def _partitions(count: int) -> list[tuple[int, ...]]:
    """Return every way to put `count` things into groups, as the group of each.

    >>> _partitions(2)
    [(0, 0), (0, 1)]
    """
    found: list[tuple[int, ...]] = [()]
    for _ in range(count):
        found = [(*before, group) for before in found for group in range(max(before, default=-1) + 2)]
    return found


def _kinds(query: "Query") -> Ints:
    """Number the offers so that those have one number that cost the same in every way: their ranges are alike, too."""
    offers, needs = query.offers, query.needs
    numbers: dict[tuple[Any, ...], int] = {}
    found = []
    for at, unit in enumerate(offers.units.tolist()):
        rows = np.flatnonzero(needs.units == unit)
        starts, stops = needs.starts[rows], needs.stops[rows]
        first = int(starts[0]) if len(rows) else 0
        # Two chunks of one object may share a request, so that the object counts; and a whole object its size.
        alone = unit < 0 or np.count_nonzero(needs.objects == offers.objects[at]) == len(rows)
        whole = query.whole_bytes.get(int(offers.objects[at])) if unit < 0 else None
        kind = (
            (starts - first).tobytes(), (stops - first).tobytes(), int(offers.reply_bytes[at]),
            int(offers.read_bytes[at]), int(offers.listed[at]), int(offers.decoded_bytes[at]), whole,
            None if alone else at,
        )  # fmt: skip
        found.append(numbers.setdefault(kind, len(numbers)))
    return np.array(found, np.int64)


def _every_set(count: int) -> Iterator[tuple[npt.NDArray[np.bool_], Ints]]:
    """Give every set of some offers, and every way to share calls."""
    for which in range(1, 1 << count):
        chosen = (which >> np.arange(count) & 1).astype(np.bool_)
        yield from [(chosen, np.array(partition)) for partition in _partitions(which.bit_count())]


def _cheaper(one: Choice, other: Choice) -> Choice:
    return other if other.rank < one.rank else one


def _climb(query: Query, best: Choice) -> Choice:
    """Try sets that differ from the best one by one offer, or have one for another of them, while that helps."""
    for _ in range(_ROUNDS):
        before = best
        for chosen in _near(query, before.chosen):
            best = _cheaper(best, query.settle(chosen))
        if best is before:
            break
    return best


def _near(query: Query, chosen: npt.NDArray[np.bool_]) -> Iterator[npt.NDArray[np.bool_]]:
    """Give the sets that differ from one by one offer, or by a swap of two; of alike offers only the first."""
    offers = query.offers
    alike = np.stack([offers.expected_bytes, offers.read_bytes, offers.decoded_bytes]).T.tolist()
    firsts: dict[tuple[tuple[int, ...], bool], int] = {}
    for at, (kind, is_chosen) in enumerate(zip(alike, chosen.tolist(), strict=True)):
        firsts.setdefault((tuple(kind), is_chosen), at)
    flips = [[at] for at in firsts.values()]
    if len({kind for kind, _ in firsts}) <= _FEW_KINDS:
        flips += [
            [taken, left]
            for (kind, is_chosen), taken in firsts.items()
            for (other, is_other_chosen), left in firsts.items()
            if is_chosen and not is_other_chosen and kind != other
        ]
    for flip in flips:
        other = chosen.copy()
        other[flip] = ~other[flip]
        yield other


# Scanning many offers


def _scan(query: Query) -> Iterator[npt.NDArray[np.bool_]]:
    """Give the best number of chunks to call for, in each of several orders; and all of them."""
    model, offers = query.model, query.offers
    found: dict[bytes, tuple[Rank, npt.NDArray[np.bool_]]] = {}
    rows = _Rows.of(query)
    gaps = {0.0, model.gap_bytes()} | (set() if len(offers) > _MANY_OFFERS else {model.widest_gap_bytes()})
    # Of those that leave as many open, one will do.
    for gap_bytes in {rows.open_gaps(gap_bytes): gap_bytes for gap_bytes in gaps}.values():
        count, nbytes = rows.by_requests(gap_bytes)
        orders = _orders(query, count[rows.offered], nbytes[rows.offered])
        # Alike chunks have one order, whatever they are put in order by.
        for order in {order.tobytes(): order for order in orders}.values():
            rank, m = _best_prefix(query, rows, count, nbytes, order)
            chosen = np.zeros(len(offers), np.bool_)
            chosen[order[:m]] = True
            if m:
                found.setdefault(chosen.tobytes(), (rank, chosen))
    everything = np.ones(len(offers), np.bool_)
    best = sorted([each for key, each in found.items() if key != everything.tobytes()], key=lambda each: each[0])
    yield from [everything, *[chosen for _, chosen in best[:1]]]


def _orders(query: Query, count: Ints, nbytes: Ints) -> Iterator[Ints]:
    """Give orders of the offers: those first for which a call spares most, by different measures."""
    model, offers, function = query.model, query.offers, query.function
    spared = nbytes - offers.expected_bytes
    yield np.argsort(-spared / np.maximum(offers.read_bytes, 1), kind="stable")
    phi = 1.0 if isinf(model.phi) else model.phi
    time = 0.0 if isinf(model.phi) else 1.0
    profile, prices = model.profile, model.prices
    request = time * (profile.latency_s / profile.concurrency + profile.request_s) + phi * prices.request_usd
    byte = time / max(profile.bandwidth) + phi * prices.byte_usd
    second = time / function.profile.busy_at_once + phi * function.second_usd
    work = second * function.profile.seconds(offers.read_bytes, 1, 0, 1, offers.decoded_bytes)
    yield np.argsort(-(request * (count - 1) + byte * spared - work), kind="stable")
    yield np.argsort(-(request * count + byte * spared) / np.maximum(offers.read_bytes, 1), kind="stable")


def _best_prefix(query: Query, rows: "_Rows", count: Ints, nbytes: Ints, order: Ints) -> tuple[Rank, int]:
    """Return how many of the offers, in that order, are best called for, and the rank of it, roughly."""
    offers, function, model = query.offers, query.function, query.model
    numbers, sizes = count[rows.offered][order], nbytes[rows.offered][order]
    requests = int(count.sum()) - _sums(numbers)
    direct = int(nbytes.sum()) - _sums(sizes)
    read, reply = _sums(offers.read_bytes[order]), _sums(offers.reply_bytes[order])
    expected, decoded = _sums(offers.expected_bytes[order]), _sums(offers.decoded_bytes[order])
    most_read, most_decoded = _most(offers.read_bytes[order]), _most(offers.decoded_bytes[order])
    m = np.arange(len(order) + 1)
    together = np.ceil(m * rows.gets_each).astype(np.int64)
    least = np.maximum(-(-reply // function.reply_bytes), -(-read // function.read_bytes))
    least = np.minimum(np.maximum(least, -(-m // MOST_CHUNKS)), m)
    wide = np.minimum(np.maximum(function.profile.at_once, least), m)
    # Of the chunks that are not called for.
    largest = np.maximum(_most(rows.whole_sizes[order][::-1])[::-1], rows.whole_beside)
    tried: list[tuple[Rank, int]] = []
    for calls in (least, wide):
        each = np.maximum(calls, 1)
        answers = expected + calls * CALL_HEAD_BYTES
        gets = np.maximum(together, calls)
        columns = (
            calls, read, np.maximum(most_read, read // each), answers, answers // each, gets, -(-gets // each),
            m, -(-m // each), decoded, np.maximum(most_decoded, decoded // each),
        )  # fmt: skip
        at = model.best(requests, direct, largest, Calls(*columns))
        one = Calls(*[int(column[at]) for column in columns]) if at else None
        tried.append((model.rank(int(requests[at]), int(direct[at]), int(largest[at]), one), at))
    return min(tried)


def _sums(values: Ints) -> Ints:
    """Return the sum of none, the first, the first two, … of them."""
    sums = np.zeros(len(values) + 1, np.int64)
    values.cumsum(out=sums[1:])
    return sums


def _most(values: Ints) -> Ints:
    """Return the largest of none, the first, the first two, … of them."""
    most = np.zeros(len(values) + 1, np.int64)
    np.maximum.accumulate(values, out=most[1:])
    return most


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """The needed ranges of each chunk, chunk by chunk: what it takes by requests.

    The chunks are the units of the needs, then the whole objects; `offered` leads from offers to them. `whole_sizes`
    has the bytes of offered chunks that cannot be cut, `whole_beside` the largest of the others. `gets_each` are the
    GETs that the function sends for a chunk, if all are called for: near ones are read together.
    """

    spans: Ints
    gaps: Ints
    owners: Ints
    offered: Ints
    whole_sizes: Ints
    whole_beside: int
    gets_each: float

    @classmethod
    def of(cls, query: Query) -> "_Rows":
        needs, offers = query.needs, query.offers
        firsts, lasts, rows = needs.reaches()
        units = len(firsts)
        objects = {number: units + at for at, number in enumerate(query.whole_bytes)}
        wholes = np.array(list(query.whole_bytes.values()), np.int64)
        owners = needs.units[rows]
        same = owners[1:] == owners[:-1]
        gaps = needs.starts[rows][1:] - needs.stops[rows][:-1]
        offered = offers.units.copy()
        wholly = np.flatnonzero(offered < 0)
        offered[wholly] = [objects[number] for number in offers.objects[wholly].tolist()]
        uncut = np.zeros(units + len(wholes), np.int64)
        uncut[units:] = wholes
        encoded = needs.units[np.broadcast_to(np.asarray(needs.align) == 0, needs.starts.shape)]
        uncut[encoded] = (lasts - firsts)[encoded]
        beside = np.delete(uncut, offered)
        return cls(
            np.concatenate([lasts - firsts, wholes]), np.maximum(gaps[same], 0), owners[1:][same], offered,
            uncut[offered], int(beside.max(initial=0)), Inside(offers, query.model.inside_gap_bytes()).gets_each(),
        )  # fmt: skip

    def open_gaps(self, gap_bytes: float) -> int:
        """Return how many gaps stay open if those up to so many bytes are closed."""
        return int(np.count_nonzero(self.gaps > gap_bytes))

    def by_requests(self, gap_bytes: float) -> tuple[Ints, Ints]:
        """Return for each chunk how many requests it takes if gaps up to so many bytes are closed, and their bytes."""
        is_open = self.gaps > gap_bytes
        owners = self.owners[is_open]
        used = (self.spans > 0).astype(np.int64)
        count = used + np.bincount(owners, minlength=len(self.spans))
        skipped = np.bincount(owners, self.gaps[is_open], len(self.spans)).astype(np.int64)
        return count, self.spans - skipped
