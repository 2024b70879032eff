"""Which requests to send: the cheapest grouping of the needed ranges, over all objects at once.

For a given number of requests the fewest bytes are had by closing the smallest gaps between needed ranges. So one
sort of all gaps and one scan over "close the k smallest" finds the best grouping for any cost that depends on
requests and bytes. What is then too large for one connection is cut.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hyperslab.plan.cost import CostModel
from hyperslab.plan.ranges import Ints, Needs, Ranges

__all__ = ["MAX_REQUEST_BYTES", "fetch", "get", "merge", "optimise"]

# No request is larger where it can be cut: it bounds what is held in memory and what a retry repeats.
MAX_REQUEST_BYTES = 64 << 20
# Cutting finer than this gains less than it costs in any real client.
_MIN_CUT_BYTES = 1 << 19
# Up to this many gaps every grouping is tried: the scan does not see which request is the largest.
_FEW_GAPS = 10


def get(needs: Needs) -> Ranges:
    """One request for each chunk, whole."""
    used = np.unique(needs.units)
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


def optimise(needs: Needs, model: CostModel, *, others: int = 0, other_bytes: int = 0) -> Ranges:
    """Choose the cheapest requests for `needs` under `model`.

    `others` and `other_bytes` are requests of the same read that are decided already.

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
    ranges = needs.merged()
    if not len(ranges):
        return ranges
    gaps = _Gaps.between(ranges)
    if len(gaps.sizes) <= _FEW_GAPS:
        tries = [
            _cut_well(_best_of_all(ranges, gaps, model, others, other_bytes), model, others, other_bytes)
        ]
    else:
        requests = len(ranges) + others - np.arange(len(gaps.sizes) + 1)
        best = model.best(requests, gaps.closed_bytes + (ranges.nbytes + other_bytes))
        tries = [_cut_well(_close(ranges, gaps, best), model, others, other_bytes)]
        if _largest_binds(*tries[0], model, others, other_bytes):
            # The largest request sets the pace: open more gaps, with their cuts.
            fewer = {0, best // 4, best // 2}
            tries += [_cut_well(_close(ranges, gaps, k), model, others, other_bytes) for k in fewer]
    grouped, limit = min(tries, key=lambda t: _full_cost(t[0], t[1], model, others, other_bytes))
    return _cut(grouped, ranges, limit)


@dataclass(frozen=True, slots=True, eq=False)
class _Gaps:
    """The gaps between neighbouring ranges of one object, and the order in which they are closed.

    `places[i]` is the range before gap i. Gaps are closed smallest first; of equal ones, those stay open that are
    spread evenly, so that the groups are of like size. `ranks` counts the equal gaps before each, `equals` them all.
    """

    sizes: Ints
    places: Ints
    ascending: Ints
    ranks: Ints
    equals: Ints
    closed_bytes: Ints

    @classmethod
    def between(cls, ranges: Ranges) -> "_Gaps":
        places = np.flatnonzero(ranges.objects[1:] == ranges.objects[:-1])
        sizes = ranges.starts[places + 1] - ranges.stops[places]
        order = sizes.argsort(kind="stable")
        ascending = sizes[order]
        heads = np.searchsorted(ascending, ascending, side="left")
        ranks = np.empty_like(order)
        ranks[order] = np.arange(len(order)) - heads
        equals = np.empty_like(order)
        equals[order] = np.searchsorted(ascending, ascending, side="right") - heads
        closed_bytes = np.zeros(len(order) + 1, np.int64)
        np.cumsum(ascending, out=closed_bytes[1:])
        return cls(sizes, places, ascending, ranks, equals, closed_bytes)

    def closed(self, count: int) -> npt.NDArray[np.bool_]:
        """Say which gaps are closed when `count` are."""
        if not count:
            return np.zeros(len(self.sizes), np.bool_)
        limit = self.ascending[count - 1]
        left = int(np.searchsorted(self.ascending, limit, side="right")) - count
        spread = (left + 1) * self.ranks // (self.equals + 1) < (left + 1) * (self.ranks + 1) // (
            self.equals + 1
        )
        closed: npt.NDArray[np.bool_] = (self.sizes < limit) | ((self.sizes == limit) & ~spread)
        return closed


def _close(ranges: Ranges, gaps: _Gaps, count: int) -> Ranges:
    """Group the ranges with that many gaps closed."""
    first = np.ones(len(ranges), np.bool_)
    first[gaps.places + 1] = ~gaps.closed(count)
    return _group(ranges, first)


def _group(ranges: Ranges, first: npt.NDArray[np.bool_]) -> Ranges:
    """Join the ranges from each that is `first` to the next such."""
    heads = np.flatnonzero(first)
    tails = np.append(heads[1:], len(ranges)) - 1
    align = ranges.align
    if not isinstance(align, int):
        align = np.minimum.reduceat(align, heads)
    return Ranges(ranges.objects[heads], ranges.starts[heads], ranges.stops[tails], align)


def _best_of_all(ranges: Ranges, gaps: _Gaps, model: CostModel, others: int, other_bytes: int) -> Ranges:
    """Try every set of closed gaps; exact also in the largest request."""
    count = len(gaps.sizes)
    closed = (np.arange(1 << count)[:, None] >> np.arange(count) & 1).astype(np.bool_)
    first = np.ones((1 << count, len(ranges)), np.bool_)
    first[:, gaps.places + 1] = ~closed
    heads = np.maximum.accumulate(np.where(first, np.arange(len(ranges)), 0), axis=1)
    largest = (ranges.stops - ranges.starts[heads]).max(axis=1)
    requests = len(ranges) + others - closed.sum(axis=1)
    nbytes = ranges.nbytes + other_bytes + closed @ gaps.sizes
    return _group(ranges, first[model.best(requests, nbytes, largest)])


def _cut_well(grouped: Ranges, model: CostModel, others: int, other_bytes: int) -> tuple[Ranges, int]:
    """Return the groups and the size at which cutting them costs least (0: none is cut)."""
    sizes = grouped.stops - grouped.starts
    cuttable = (
        sizes if isinstance(grouped.align, int) and grouped.align else sizes[np.asarray(grouped.align) > 0]
    )
    largest = int(cuttable.max()) if len(cuttable) else 0
    if largest < 2 * _MIN_CUT_BYTES:
        return grouped, 0
    fixed = int(sizes.max()) if len(cuttable) < len(sizes) else 0
    parts = np.arange(1, 2 * model.profile.concurrency + 1)
    limits = np.unique(np.minimum(-(-largest // parts), MAX_REQUEST_BYTES))
    limits = limits[limits >= min(_MIN_CUT_BYTES, MAX_REQUEST_BYTES)][::-1]
    big = cuttable[cuttable > limits[-1]]
    counts = np.array([int((-(-big // limit)).sum()) for limit in limits]) + len(sizes) - len(big)
    total = int(sizes.sum()) + other_bytes
    tops = np.maximum(limits, max(fixed, int(cuttable[cuttable <= limits[-1]].max(initial=0))))
    best = model.best(counts + others, np.full(len(counts), total), tops)
    return grouped, int(limits[best])


def _largest_binds(grouped: Ranges, limit: int, model: CostModel, others: int, other_bytes: int) -> bool:
    """Whether a smaller largest request would make the read noticeably cheaper."""
    count, total, largest = _shape(grouped, limit)
    count, total = count + others, total + other_bytes
    return bool(model.cost(count, total, largest) > model.cost(count, total) * 1.02)


def _full_cost(grouped: Ranges, limit: int, model: CostModel, others: int, other_bytes: int) -> float:
    count, total, largest = _shape(grouped, limit)
    return float(model.cost(count + others, total + other_bytes, largest))


def _shape(grouped: Ranges, limit: int) -> tuple[int, int, int]:
    """Return how many requests the groups become, their bytes, and the largest."""
    sizes = grouped.stops - grouped.starts
    if not limit:
        return len(sizes), int(sizes.sum()), int(sizes.max())
    parts = np.where(np.asarray(grouped.align) > 0, -(-sizes // limit), 1)
    return int(parts.sum()), int(sizes.sum()), int((-(-sizes // parts)).max())


def _cut(grouped: Ranges, ranges: Ranges, limit: int) -> Ranges:
    """Cut groups larger than `limit` into even parts; a cut that falls into a closed gap opens it again."""
    sizes = grouped.stops - grouped.starts
    if not limit or not (sizes > limit).any():
        return grouped
    parts = np.where(np.asarray(grouped.align) > 0, -(-sizes // limit), 1)
    owner = np.repeat(np.arange(len(sizes)), parts)
    place = np.arange(len(owner)) - np.repeat(np.cumsum(parts) - parts, parts)
    cuts = grouped.starts[owner] + sizes[owner] * place // parts[owner]
    lows, highs = _snap(grouped.objects[owner], cuts, ranges)
    inner = place > 0
    starts = np.where(inner, highs, grouped.starts[owner])
    stops = np.append(np.where(inner, lows, 0)[1:], 0)
    stops = np.where(np.append(inner[1:], False), stops, grouped.stops[owner])
    keep = stops > starts
    return Ranges(
        grouped.objects[owner][keep],
        starts[keep],
        stops[keep],
        grouped.align if isinstance(grouped.align, int) else grouped.align[owner][keep],
    )


def _snap(objects: Ints, cuts: Ints, ranges: Ranges) -> tuple[Ints, Ints]:
    """Move each cut to a border of cells; return where the bytes before it end and those after it begin."""
    reach = int(max(ranges.stops.max(), cuts.max())) + 1
    names, dense = np.unique(ranges.objects, return_inverse=True)
    at = (
        np.searchsorted(
            dense * reach + ranges.starts, np.searchsorted(names, objects) * reach + cuts, side="right"
        )
        - 1
    )
    align = np.broadcast_to(np.asarray(ranges.align), len(ranges))[at]
    starts, stops = ranges.starts[at], ranges.stops[at]
    within = starts + (cuts - starts) // np.maximum(align, 1) * np.maximum(align, 1)
    in_gap = cuts >= stops
    following = ranges.starts[np.minimum(at + 1, len(ranges) - 1)]
    return np.where(in_gap, stops, within), np.where(in_gap, following, within)
