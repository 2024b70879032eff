"""Algorithm 1 of ArrayMorph (PVLDB 2025): ranges refined chunk by chunk, kept to compare with ours."""

from collections import deque

import numpy as np

from hyperslab.plan.cost import CostModel
from hyperslab.plan.optimise import get
from hyperslab.plan.ranges import Ints, Needs, Ranges, spans_in

__all__ = ["paper", "refine"]


def paper(needs: Needs, model: CostModel) -> Ranges:
    """Refine the ranges of each chunk, then take the whole chunk instead where that is cheaper."""
    ranges = needs.merged()
    wholes = get(needs)
    firsts, lasts = spans_in(ranges, wholes)
    aligns = np.broadcast_to(np.asarray(ranges.align), len(ranges))
    chosen: list[tuple[int, int, int]] = []
    columns = (wholes.objects, wholes.starts, wholes.stops, firsts, lasts)
    for obj, low, high, first, last in zip(*[column.tolist() for column in columns], strict=True):
        starts = np.maximum(ranges.starts[first:last], low)
        stops = np.minimum(ranges.stops[first:last], high)
        refined = refine(starts, stops, model, align=int(aligns[first:last].min()))
        if _one(high - low, model) <= sum(_one(b - a, model) for a, b in refined):
            refined = [(low, high)]
        chosen += [(obj, a, b) for a, b in refined]
    objects, starts, stops = np.array(sorted(chosen), np.int64).reshape(-1, 3).T
    return Ranges(objects, starts, stops)


def refine(starts: Ints, stops: Ints, model: CostModel, *, align: int = 1) -> list[tuple[int, int]]:
    """Split the group of all ranges at its largest gap while that lowers the cost; return the requests.

    Of equal gaps the one nearest the middle is taken. A single range is tried in halves, cut at `align` bytes.

    >>> from hyperslab.plan.prices import Prices
    >>> from hyperslab.plan.profile import Profile
    >>> slow = CostModel(Profile("toy", 3.0, (1,), (1.0,), 1), Prices.named("free"))
    >>> refine(np.array([7, 13, 17, 20]), np.array([9, 16, 18, 22]), slow)
    [(7, 9), (13, 22)]
    """
    if not len(starts):
        return []
    pending = deque([(0, len(starts), int(starts[0]), int(stops[-1]))])
    assigned: list[tuple[int, int]] = []
    while pending:
        first, last, low, high = pending.popleft()
        halves = (
            _halve(first, last, low, high, align) if last - first == 1 else _open(first, last, low, high, starts, stops)
        )
        if halves and _one(high - low, model) > sum(_one(h[3] - h[2], model) for h in halves):
            pending.extend(halves)
        else:
            assigned.append((low, high))
    return sorted(assigned)


Group = tuple[int, int, int, int]


def _halve(first: int, last: int, low: int, high: int, align: int) -> tuple[Group, Group] | None:
    if not align or high - low < 2 * align:
        return None
    middle = low + (high - low) // 2 // align * align
    return (first, last, low, middle), (first, last, middle, high)


def _open(first: int, last: int, low: int, high: int, starts: Ints, stops: Ints) -> tuple[Group, Group]:
    gaps = starts[first + 1 : last] - stops[first : last - 1]
    widest = np.flatnonzero(gaps == gaps.max())
    at = first + 1 + int(widest[np.abs(widest + 1 - (last - first) / 2).argmin()])
    return (first, at, low, int(stops[at - 1])), (at, last, int(starts[at]), high)


def _one(nbytes: int, model: CostModel) -> float:
    """The cost of one request alone."""
    return float(model.cost(1, nbytes, nbytes))
