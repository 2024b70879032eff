"""What no placement can cost less than: each query by itself, with the best that its arrays and the tier could give.

A query that reads n arrays of a pack's limit m touches n / m packs, rounded up, unless some are keys. Room for keys is
shared: it gets a price for each unit of weight, of which each reader of an array pays its part; what all of it is worth
is taken off. That is below the least cost for any price of room (weak duality); the best of several prices is returned.

Without keys there is more to say: what queries connect, directly or through others, and what fills k packs, is torn at
least k - 1 times, as each touch beyond a query's first holds together no more than one pack more.
"""

import numpy as np

from hyperslab.tune.placement.compiled import compiled
from hyperslab.tune.placement.problem import Floats, Ints, Problem

__all__ = ["lower_bound"]

# Prices of room that are tried, and over how many powers of ten.
_TRIED, _DECADES = 17, 4


def lower_bound(problem: Problem) -> float:
    """Return seconds that the queries cost at least, with any placement.

    >>> from hyperslab.plan import AccessPrices
    >>> from hyperslab.tune.placement.problem import Queries
    >>> lower_bound(Problem.of(Queries.of([[0, 1, 2], [2, 3]], 4), 2, AccessPrices(10, 1)))
    30.0
    """
    queries, prices = problem.queries, problem.prices
    if not len(queries):
        return 0.0
    read = queries.read_by()
    packed = np.minimum(problem.weights, problem.pack)
    if problem.keys == 0:
        return prices.pack_s * _torn(problem, packed)
    dearest = prices.pack_s * float((read / problem.weights).max())
    rooms = np.concatenate([[0.0], dearest * 10.0 ** np.linspace(-_DECADES, 0, _TRIED)])
    values = [
        _relaxed(queries.indptr, queries.indices, queries.times, read, problem.weights, packed, problem.pack,
                 prices.pack_s, prices.key_s, prices.request_s, room) - room * problem.keys
        for room in rooms.tolist()
    ]  # fmt: skip
    return float(max(0.0, *values))


def _torn(problem: Problem, packed: Ints) -> float:
    """Return how many touches there are at least without keys, group by group of what queries connect."""
    queries = problem.queries
    group_of = _groups(queries.indptr, queries.indices, queries.arrays)
    groups = group_of[queries.indices[queries.indptr[:-1]]]
    loads = np.add.reduceat(packed[queries.indices], queries.indptr[:-1])
    each = np.bincount(groups, queries.times * -(-loads // problem.pack), queries.arrays)
    whole = np.bincount(group_of, packed, queries.arrays)
    rarest = np.full(queries.arrays, np.inf)
    np.minimum.at(rarest, groups, queries.times)
    read = np.isfinite(rarest)
    cuts = rarest[read] * (np.ceil(whole[read] / problem.pack) - 1)
    return float(np.maximum(each[read], np.bincount(groups, queries.times, queries.arrays)[read] + cuts).sum())


@compiled
def _groups(indptr: Ints, indices: Ints, arrays: int) -> Ints:
    """Return for each array one that stands for all that queries connect it with."""
    root = np.arange(arrays)
    for query in range(len(indptr) - 1):
        first = indices[indptr[query]]
        for at in range(indptr[query], indptr[query + 1]):
            one, other = first, indices[at]
            while root[one] != one:
                root[one] = root[root[one]]
                one = root[one]
            while root[other] != other:
                root[other] = root[root[other]]
                other = root[other]
            root[max(one, other)] = min(one, other)
    for array in range(arrays):
        root[array] = root[root[array]]
    return root


@compiled
def _relaxed(
    indptr: Ints,
    indices: Ints,
    times: Floats,
    read: Floats,
    weights: Ints,
    packed: Ints,
    pack: int,
    pack_s: float,
    key_s: float,
    request_s: float,
    room: float,
) -> float:
    """Return what the queries cost at least when each unit of weight in the tier costs `room`."""
    total = 0.0
    for query in range(len(times)):
        arrays = indices[indptr[query] : indptr[query + 1]]
        load = packed[arrays].sum()
        touches = (load + pack - 1) // pack
        least = pack_s * touches
        each = key_s + room * weights[arrays] / read[arrays]
        order = np.argsort(each / packed[arrays])
        # With one pack fewer, so much weight must be keys; those are taken first that cost least for it.
        gone, paid, at = 0.0, 0.0, 0
        for fewer in range(1, touches + 1):
            need = load - (touches - fewer) * pack
            while at < len(order) and gone + packed[arrays[order[at]]] <= need:
                gone += packed[arrays[order[at]]]
                paid += each[order[at]]
                at += 1
            rest = (need - gone) / packed[arrays[order[at]]] * each[order[at]] if at < len(order) else 0.0
            least = min(least, pack_s * (touches - fewer) + paid + rest + request_s)
        total += times[query] * least
    return total
