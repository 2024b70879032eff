"""Which requests to send: the cheapest grouping of the needed ranges, over all objects at once.

For a given number of requests the fewest bytes are had by closing the smallest gaps between needed ranges. So one
sort of all gaps and one scan over "close the k smallest" finds the best grouping for any cost that depends on
requests and bytes. What is then too large for one connection is cut. The scan does not see the largest request:
where that one sets the pace, other groupings are tried.
"""

from dataclasses import dataclass
from itertools import pairwise
from math import isinf

import numpy as np
import numpy.typing as npt

from hyperslab.plan.cost import Calls, CostModel
from hyperslab.plan.ranges import Ints, Needs, Ranges, reach_of

__all__ = ["MAX_REQUEST_BYTES", "fetch", "get", "leaves_no_choice", "merge", "optimise"]

# No request is larger where it can be cut: it bounds what is held in memory and what a retry repeats.
MAX_REQUEST_BYTES = 64 << 20
# Cutting finer than this gains less than it costs in any real client.
_MIN_CUT_BYTES = 1 << 18
# A limit on the parts of a group that are considered, whatever the profile.
_MOST_PARTS = 256
# With so few gaps in each object, and in all, every grouping is tried; with more, a plan that is proven to be so near
# to the best will do; with so many ranges the scan's own plan.
_FEW_GAPS = 10
_FEW_GAPS_IN_ALL = 32
_FEW_RANGES = 64
# Groupings of several objects are combined as long as there are not more than this many that none beats.
_MOST_COMBINED = 1 << 16
_MANY_RANGES = 1 << 16
_NEAR = 1.02
# Fewer requests are as good up to so many times the cost, and bytes: each can meet a connection that was idle.
_ALIKE = 1.01
_ROUNDS = 4
# Seconds that it takes to look for other groupings, about: where none can spare as much, none is looked for. Likewise
# to scan, and to send a request more, where one for each object fetches nothing that is not needed.
_SEARCH_S = 0.003
_SCAN_S = 0.001
# Stands for the gap between ranges of different objects.
_FAR = 2**62


def get(needs: Needs) -> Ranges:
    """One request for each chunk, whole."""
    used = np.flatnonzero(np.bincount(needs.units))
    chunks = needs.chunks
    order = np.lexsort((chunks.starts[used], chunks.objects[used]))
    used = used[order]
    objects, starts, stops = chunks.objects[used], chunks.starts[used], chunks.stops[used]
    # Two reads of one chunk name it twice.
    first = np.ones(len(used), np.bool_)
    first[1:] = (np.diff(objects) != 0) | (np.diff(starts) != 0)
    return Ranges(objects[first], starts[first], stops[first])


def merge(needs: Needs) -> Ranges:
    """One request for each chunk, from its first needed byte to its last."""
    objects, starts = needs.objects, needs.chunks.starts[needs.units]
    first = np.ones(len(starts), np.bool_)
    first[1:] = (np.diff(objects) != 0) | (np.diff(starts) != 0)
    heads = np.flatnonzero(first)
    if not len(heads):
        return Ranges(heads, heads, heads)
    return Ranges(objects[heads], needs.starts[heads], np.maximum.reduceat(needs.stops, heads))


def fetch(needs: Needs) -> Ranges:
    """One request for each range, exactly the needed bytes."""
    return needs.merged()


def optimise(
    needs: Needs,
    model: CostModel,
    *,
    others: int = 0,
    other_bytes: int = 0,
    other_largest: int = 0,
    calls: Calls | None = None,
) -> Ranges:
    """Choose the cheapest requests for `needs` under `model`.

    `others`, `other_bytes` and `other_largest` are number, bytes and largest of the requests of the same read that
    are decided already; so are `calls`.

    >>> from hyperslab.plan.prices import Prices
    >>> from hyperslab.plan.profile import Profile
    >>> from hyperslab.plan.ranges import Units
    >>> one = np.zeros(1, np.int64)
    >>> starts = np.array([0, 1000, 90_000_000])
    >>> needs = Needs(Units(one, one, one + 10**9), one.repeat(3), one.repeat(3), starts, starts + 100, 1)
    >>> model = CostModel(Profile.named("s3"), Prices.named("aws"), phi=0.0)
    >>> optimise(needs, model).starts.tolist()
    [0, 90000000]
    """
    tariff = _Tariff(model, others, other_bytes, other_largest, calls)
    joined = needs.merged()
    if not len(joined) or (joined.one_each and tariff.leaves_no_choice(joined)):
        return joined
    has_encoded = not (isinstance(needs.align, int) and needs.align)
    ranges = needs.merged(encoded_apart=True) if has_encoded else joined
    gaps = _Gaps.between(ranges, model.profile.most_in_flight)
    best = tariff.best(gaps.requests, gaps.nbytes)
    # No plan costs less than this: it is that of the scan's best if the largest request did not matter.
    bound = tariff.rank(gaps.requests.item(best), gaps.nbytes.item(best))
    count = max(0, best - gaps.cuts)
    grouped = gaps.group(ranges, count)
    if (ties := gaps.ties(count)) > count and tariff.is_alike(even := gaps.group(ranges, ties), grouped):
        count, grouped = ties, even
    plan = _cut_well(grouped, ranges, tariff)
    few = len(ranges) <= _FEW_RANGES and gaps.few
    exact = few and plan is grouped
    if len(ranges) > _MANY_RANGES or tariff.is_near(plan, bound, 1.0 if exact else _NEAR):
        return plan
    if few and (best_of_all := _best_of_all(ranges, gaps, tariff)) is not None:
        plan = min(plan, _cut_well(best_of_all, ranges, tariff), key=tariff.price)
    elif ties > count:
        # Rows of several chunks: equal parts of each chunk make better groups than equal parts of all.
        even = _cut_well(gaps.group(ranges, ties), ranges, tariff, finest=2 * ranges.largest)
        plan = min(plan, even, key=tariff.price)
    if exact or tariff.is_near(plan, bound, _NEAR) or not tariff.is_worth_a_search(plan, bound):
        return plan
    return _descend(plan, count, ranges, gaps, tariff)


def leaves_no_choice(model: CostModel, requests: int, nbytes: int, largest: int, other_largest: int = 0) -> bool:
    """Say whether hardly any plan can be better than one request for each object that fetches what is needed alone.

    None has fewer requests, or bytes; but one may be quicker whose largest requests are cut. `other_largest` is the
    largest of requests that are decided already, and counted.
    """
    if largest >= min(2 * _MIN_CUT_BYTES, MAX_REQUEST_BYTES + 1):
        return False
    transfer_s = model.transfer_seconds(requests, nbytes, max(largest, other_largest))
    return isinf(model.phi) or transfer_s - nbytes / max(model.profile.bandwidth) <= _SCAN_S


@dataclass(frozen=True, slots=True)
class _Tariff:
    """What plans cost, together with the requests that are decided already."""

    model: CostModel
    others: int
    other_bytes: int
    other_largest: int
    calls: Calls | None = None

    def best(self, requests: Ints, nbytes: Ints, largest: Ints | int = 0) -> int:
        """Return the index of the cheapest of several plans."""
        if self.others:
            requests, nbytes = requests + self.others, nbytes + self.other_bytes
            largest = np.maximum(largest, self.other_largest)
        return self.model.best(requests, nbytes, largest, self.calls)

    def rank(self, requests: int, nbytes: int, largest: int = 0) -> tuple[float, float]:
        """Return what a plan is compared by."""
        largest = max(largest, self.other_largest)
        return self.model.rank(requests + self.others, nbytes + self.other_bytes, largest, self.calls)

    def price(self, plan: Ranges) -> tuple[float, float]:
        """Return what requests are compared by."""
        sizes = plan.stops - plan.starts
        return self.rank(len(sizes), int(sizes.sum()), int(sizes.max()))

    def leaves_no_choice(self, joined: Ranges) -> bool:
        """Say the same as the function of that name, of requests that are sent along with those decided already."""
        if self.calls is not None:
            return False
        count, nbytes = len(joined) + self.others, joined.nbytes + self.other_bytes
        return leaves_no_choice(self.model, count, nbytes, joined.largest, self.other_largest)

    def is_near(self, plan: Ranges, bound: tuple[float, float], slack: float) -> bool:
        """Say whether requests cost at most `slack` times the bound."""
        cost = self.price(plan)
        return cost[0] <= slack * bound[0] and cost[1] <= slack * bound[1]

    def is_alike(self, fewer: Ranges, plan: Ranges) -> bool:
        """Say whether fewer requests are as good, in bytes as in cost; not where only money counts."""
        if isinf(self.model.phi) or fewer.nbytes > _ALIKE * plan.nbytes:
            return False
        return self.price(fewer)[0] <= _ALIKE * self.price(plan)[0]

    def is_worth_a_search(self, plan: Ranges, bound: tuple[float, float]) -> bool:
        """Say whether a plan at the bound would spare more than it takes to find one; where only money counts, any."""
        return isinf(self.model.phi) or self.price(plan)[0] - bound[0] > _SEARCH_S


@dataclass(frozen=True, slots=True, eq=False)
class _Gaps:
    """The gaps between neighbouring ranges, and what comes of closing the smallest of them.

    `sizes[i]` is what lies between ranges i and i + 1; `ascending` are those that can be closed. With k of these
    closed, `requests[cuts + k]` requests fetch `nbytes[cuts + k]` bytes; before these entries are those of plans with
    all gaps open and ranges cut.
    """

    sizes: Ints
    ascending: Ints
    cuts: int
    requests: Ints
    nbytes: Ints

    @classmethod
    def between(cls, ranges: Ranges, in_flight: int) -> "_Gaps":
        needed = ranges.stops - ranges.starts
        cuts = max(0, in_flight - len(ranges)) if needed.max() >= 2 * _MIN_CUT_BYTES and np.any(ranges.align) else 0
        sizes = ranges.starts[1:] - ranges.stops[:-1]
        steps = np.zeros(cuts + len(ranges), np.int64)
        steps[0], steps[cuts + 1 :] = needed.sum(), sizes
        most = len(steps)
        if ranges.objects[0] != ranges.objects[-1]:
            apart = ranges.objects[1:] != ranges.objects[:-1]
            sizes[apart] = steps[cuts + 1 :][apart] = _FAR
            most -= int(np.count_nonzero(apart))
        steps[cuts + 1 :].sort()
        requests = np.arange(len(steps), len(steps) - most, -1)
        return cls(sizes, steps[cuts + 1 : most], cuts, requests, steps[:most].cumsum())

    @property
    def few(self) -> bool:
        """Whether every grouping can be tried."""
        closable = len(self.ascending)
        if closable <= _FEW_GAPS:
            return True
        if closable > _FEW_GAPS_IN_ALL:
            return False
        borders = np.flatnonzero(self.sizes >= _FAR)
        return bool(np.diff(borders, prepend=-1, append=len(self.sizes)).max() <= _FEW_GAPS + 1)

    def ties(self, count: int) -> int:
        """Return how many gaps are no larger than the largest of the `count` smallest."""
        return int(self.ascending.searchsorted(self.ascending[count - 1], side="right")) if count else 0

    def group(self, ranges: Ranges, count: int) -> Ranges:
        """Join ranges by closing the `count` smallest gaps; those of equal ones that stay open are evenly spread."""
        if not count:
            return ranges
        limit = self.ascending[count - 1]
        is_open = self.sizes > limit
        if left := self.ties(count) - count:
            equal = (self.sizes == limit).nonzero()[0]
            is_open[equal[np.arange(1, left + 1) * (len(equal) + 1) // (left + 1) - 1]] = True
        return _join(ranges, is_open)


def _join(ranges: Ranges, is_open: npt.NDArray[np.bool_]) -> Ranges:
    """Join the ranges over all gaps that are not open."""
    tails = is_open.nonzero()[0]
    heads = np.zeros(len(tails) + 1, np.int64)
    np.add(tails, 1, out=heads[1:])
    stops = np.empty(len(heads), np.int64)
    stops[:-1], stops[-1] = ranges.stops[tails], ranges.stops[-1]
    return Ranges(ranges.objects[heads], ranges.starts[heads], stops)


def _best_of_all(ranges: Ranges, gaps: _Gaps, tariff: _Tariff) -> Ranges | None:
    """Try every set of closed gaps, object by object; exact also in the largest request. None if they are too many."""
    heads = [0, *(np.flatnonzero(gaps.sizes >= _FAR) + 1).tolist(), len(ranges)]
    total, choices = _Groupings.nothing(), []
    for low, high in pairwise(heads):
        mine, opened = _groupings_of(ranges.starts[low:high], ranges.stops[low:high])
        if len(total.count) * len(mine.count) > _MOST_COMBINED:
            return None
        total, before, which = total.beside(mine)
        choices.append((low, opened, before, which))
    at = tariff.best(total.count, total.nbytes, total.largest)
    is_open = np.ones(len(ranges) - 1, np.bool_)
    for low, opened, before, which in reversed(choices):
        is_open[low : low + opened.shape[1]] = opened[which[at]]
        at = before[at]
    return _join(ranges, is_open)


@dataclass(frozen=True, slots=True, eq=False)
class _Groupings:
    """Ways to group ranges, in columns: requests, their bytes, the largest."""

    count: Ints
    nbytes: Ints
    largest: Ints

    @staticmethod
    def nothing() -> "_Groupings":
        zero = np.zeros(1, np.int64)
        return _Groupings(zero, zero, zero)

    def beside(self, other: "_Groupings") -> tuple["_Groupings", Ints, Ints]:
        """Combine the ways of two objects; return those that no other beats, and which of each they are."""
        count = np.add.outer(self.count, other.count).reshape(-1)
        nbytes = np.add.outer(self.nbytes, other.nbytes).reshape(-1)
        largest = np.maximum.outer(self.largest, other.largest).reshape(-1)
        kept = _unbeaten(count, nbytes, largest)
        before, which = np.divmod(kept, len(other.count))
        return _Groupings(count[kept], nbytes[kept], largest[kept]), before, which


def _groupings_of(starts: Ints, stops: Ints) -> tuple[_Groupings, npt.NDArray[np.bool_]]:
    """Return the ways to group the ranges of one object, but for those that others beat, and their open gaps."""
    gaps = starts[1:] - stops[:-1]
    count = len(gaps)
    opened = (np.arange(1 << count)[:, None] >> np.arange(count) & 1).astype(np.bool_)
    first = np.ones((1 << count, count + 1), np.bool_)
    first[:, 1:] = opened
    heads = np.maximum.accumulate(np.where(first, np.arange(count + 1), 0), axis=1)
    largest = (stops - starts[heads]).max(axis=1)
    nbytes = int((stops - starts).sum()) + ~opened @ gaps
    number = first.sum(axis=1)
    kept = _unbeaten(number, nbytes, largest)
    return _Groupings(number[kept], nbytes[kept], largest[kept]), opened[kept]


def _unbeaten(count: Ints, nbytes: Ints, largest: Ints) -> Ints:
    """Return which of several plans no other beats, among those of as many requests."""
    order = np.lexsort((largest, nbytes, count))
    kept: list[int] = []
    last, least = -1, 0
    for at, number, size in zip(order.tolist(), count[order].tolist(), largest[order].tolist(), strict=True):
        if number != last or size < least:
            kept.append(at)
            last, least = number, size
    return np.array(kept)


def _descend(plan: Ranges, count: int, ranges: Ranges, gaps: _Gaps, tariff: _Tariff) -> Ranges:
    """Try other limits to the size of requests and other numbers of closed gaps by turns, while that helps."""

    def attempt(count: int, limit: int) -> _Attempt:
        found = _cut(gaps.group(ranges, count), ranges, min(limit, MAX_REQUEST_BYTES))
        return tariff.price(found), count, limit, found

    best = tariff.price(plan), count, plan.largest, plan
    for _ in range(_ROUNDS):
        before = best[0]
        largest = max(best[2], gaps.group(ranges, best[1]).largest)
        limits = np.geomspace(max(ranges.largest, largest // 16), largest, 5).astype(np.int64).tolist()
        best = min([best, *(attempt(best[1], limit) for limit in limits)], key=_rank)
        counts = _around(best[1], len(gaps.ascending))
        best = min([best, *(attempt(count, best[2]) for count in counts)], key=_rank)
        if best[0] >= before:
            break
    return best[3]


# What it is compared by, the gaps closed, the limit to sizes, the requests.
_Attempt = tuple[tuple[float, float], int, int, Ranges]


def _rank(attempt: _Attempt) -> tuple[float, float]:
    return attempt[0]


def _around(count: int, most: int) -> list[int]:
    """Return numbers up to `most` that are ever further from `count`."""
    steps = [4**i for i in range(most.bit_length() // 2 + 1)]
    near = [count - step for step in steps] + [count + step for step in steps]
    return [0, *(k for k in near if 0 < k < most), most]


def _cut_well(grouped: Ranges, ranges: Ranges, tariff: _Tariff, *, finest: int | None = None) -> Ranges:
    """Cut the groups where that makes the plan cheaper, but not finer than `finest`, and those that are too large."""
    finest = _MIN_CUT_BYTES if finest is None else finest
    sizes = grouped.stops - grouped.starts
    largest = int(sizes.max())
    if largest < 2 * finest and largest <= MAX_REQUEST_BYTES:
        return grouped
    encoded = (ranges.stops - ranges.starts)[np.broadcast_to(np.asarray(ranges.align) == 0, len(ranges))]
    parts = np.arange(1, 2 * min(tariff.model.profile.most_in_flight, _MOST_PARTS) + 1)
    # Not by `np.unique`, which loads masked arrays at its first use: as long as a request takes.
    limits = np.array(sorted(set(np.minimum(-(-largest // parts), MAX_REQUEST_BYTES).tolist())))
    limits = limits[limits >= min(finest, MAX_REQUEST_BYTES, int(limits[-1]))][::-1]
    big = sizes[sizes > limits[-1]]
    counts = np.array([int((-(-big // limit)).sum()) for limit in limits]) + len(sizes) - len(big)
    totals = np.full(len(limits), sizes.sum())
    best = tariff.best(counts, totals, np.maximum(limits, encoded.max(initial=0)))
    return _cut(grouped, ranges, int(limits[best]))


def _cut(grouped: Ranges, ranges: Ranges, limit: int) -> Ranges:
    """Cut groups larger than `limit` at borders of cells or ranges; gaps where a cut falls are not fetched.

    All groups give their next part at once, so that the loop runs as often as the largest has parts.
    """
    large = (grouped.stops - grouped.starts > limit).nonzero()[0]
    if not len(large):
        return grouped
    small = np.delete(np.arange(len(grouped)), large)
    owners, starts, stops = [small], [grouped.starts[small]], [grouped.stops[small]]
    sizes = ranges.stops - ranges.starts
    units = np.where(np.asarray(ranges.align) > 0, ranges.align, sizes)
    reach = reach_of(ranges)
    line = ranges.objects * reach + ranges.starts
    # Each group's part begins at `low`, which is in range `at`.
    low, end = grouped.starts[large], grouped.stops[large]
    at = np.searchsorted(line, grouped.objects[large] * reach + low, side="right") - 1
    while len(large):
        goal = np.minimum(low + limit, end)
        there = np.searchsorted(line, ranges.objects[at] * reach + goal) - 1
        begin, unit = ranges.starts[there], units[there]
        whole_units = np.maximum((goal - begin) // unit, np.where(there == at, (low - begin) // unit + 1, 0))
        high = np.minimum(begin + whole_units * unit, ranges.stops[there])
        owners.append(large)
        starts.append(low)
        stops.append(np.where(high == begin, ranges.stops[there - 1], high))
        left = high < end
        over = (high == ranges.stops[there])[left]
        at = there[left] + over
        low = np.where(over, ranges.starts[np.minimum(at, len(ranges) - 1)], high[left])
        large, end = large[left], end[left]
    owner = np.concatenate(owners)
    order = owner.argsort(kind="stable")
    return Ranges(grouped.objects[owner[order]], np.concatenate(starts)[order], np.concatenate(stops)[order])
