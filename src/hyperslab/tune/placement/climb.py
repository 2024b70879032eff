"""The climb into the key/value tier: what spares most for its weight goes first, found by a heap.

What moves at once is all that a query reads of a pack (as in the paper's 5.3.2): then the query does not touch the pack
any more, and other queries may not, either. A move changes only what moves out of the same pack would spare, so that
only those are reckoned anew.
"""

import numpy as np

from hyperslab.plan import AccessPrices
from hyperslab.tune.placement.compiled import compiled
from hyperslab.tune.placement.graph import Graph, Narrow
from hyperslab.tune.placement.problem import Floats, Ints
from hyperslab.tune.placement.state import State, count_in, remove

__all__ = ["climb", "heap_pop", "heap_push", "set_gain"]


def climb(graph: Graph, state: State, prices: AccessPrices, room: int) -> tuple[int, float]:
    """Move sets of units to the tier while that spares something; return the room left and what the last set spared.

    The latter is for each unit of weight.
    """
    least = 0.0
    while True:
        before = room
        room, last = _climb(graph, state, prices.pack_s, prices.key_s, prices.request_s, room)
        least = last if room < before else least
        # A query's first key makes its further ones cheaper, which is not followed over all packs.
        if room == before or prices.request_s == 0:
            return room, least


@compiled
def _climb(graph: Graph, state: State, pack_s: float, key_s: float, request_s: float, room: int) -> tuple[int, float]:
    starts, query_of, pack_of = _pairs(graph, state)
    pairs, last = len(query_of), 0.0
    worth = np.zeros(pairs)
    heap_worth, heap_pair, size = np.empty(4 * pairs + 16), np.empty(4 * pairs + 16, np.int64), 0
    hit, seen = np.zeros(len(graph.times), np.int32), np.empty(len(graph.times), np.int32)
    for pair in range(pairs):
        gain, weight = set_gain(graph, state, query_of[pair], pack_of[pair], pack_s, key_s, request_s, hit, seen)
        if gain > 0.0:
            worth[pair] = gain / weight
            size = heap_push(heap_worth, heap_pair, size, worth[pair], pair)
    while size > 0 and room > 0:
        top, pair = heap_worth[0], heap_pair[0]
        size = heap_pop(heap_worth, heap_pair, size)
        if top != worth[pair]:
            continue
        query, pack = query_of[pair], pack_of[pair]
        gain, weight = set_gain(graph, state, query, pack, pack_s, key_s, request_s, hit, seen)
        worth[pair] = 0.0
        if gain <= 0.0 or weight > room:
            continue
        for at in range(graph.indptr[query], graph.indptr[query + 1]):
            if state.pack_of[graph.units[at]] == pack:
                remove(graph, state, graph.units[at])
        room, last = room - weight, top
        for other in range(starts[pack], starts[pack + 1]):
            gain, weight = set_gain(graph, state, query_of[other], pack, pack_s, key_s, request_s, hit, seen)
            now = gain / weight if gain > 0.0 else 0.0
            if now != worth[other]:
                worth[other] = now
                if now > 0.0:
                    if size == len(heap_pair):
                        size = _rebuild(heap_worth, heap_pair, worth)
                    else:
                        size = heap_push(heap_worth, heap_pair, size, now, other)
    return room, last


@compiled
def _pairs(graph: Graph, state: State) -> tuple[Ints, Narrow, Narrow]:
    """Return which query touches which pack, by packs: where each pack's pairs start, the queries and the packs."""
    starts = np.zeros(len(state.load) + 1, np.int64)
    for query in range(len(graph.times)):
        for slot in range(graph.indptr[query], graph.indptr[query] + state.used[query]):
            starts[state.slot_pack[slot] + 1] += 1
    starts = np.cumsum(starts)
    fill, query_of, pack_of = starts[:-1].copy(), np.empty(starts[-1], np.int32), np.empty(starts[-1], np.int32)
    for query in range(len(graph.times)):
        for slot in range(graph.indptr[query], graph.indptr[query] + state.used[query]):
            pack = state.slot_pack[slot]
            query_of[fill[pack]], pack_of[fill[pack]] = query, pack
            fill[pack] += 1
    return starts, query_of, pack_of


@compiled
def set_gain(
    graph: Graph,
    state: State,
    query: int,
    pack: int,
    pack_s: float,
    key_s: float,
    request_s: float,
    hit: Narrow,
    seen: Narrow,
) -> tuple[float, int]:
    """Return what it spares to move all that the query reads of the pack to the tier, and what that weighs.

    `hit` (all 0) and `seen` are room for notes on each query.
    """
    gain, weight, found = 0.0, 0, 0
    for at in range(graph.indptr[query], graph.indptr[query + 1]):
        unit = graph.units[at]
        if state.pack_of[unit] != pack:
            continue
        weight += graph.weight[unit]
        for reader_at in range(graph.unit_indptr[unit], graph.unit_indptr[unit + 1]):
            reader = graph.queries[reader_at]
            if hit[reader] == 0:
                seen[found] = reader
                found += 1
            hit[reader] += graph.unit_counts[reader_at]
    for at in range(found):
        reader = seen[at]
        spared = -key_s * hit[reader]
        if count_in(graph, state, reader, pack) == hit[reader]:
            spared += pack_s
        if state.keyed[reader] == 0:
            spared -= request_s
        gain += graph.times[reader] * spared
        hit[reader] = 0
    return gain, weight


@compiled
def heap_push(worths: Floats, pairs: Ints, size: int, worth: float, pair: int) -> int:
    at = size
    while at > 0:
        above = (at - 1) >> 1
        if worths[above] >= worth:
            break
        worths[at], pairs[at] = worths[above], pairs[above]
        at = above
    worths[at], pairs[at] = worth, pair
    return size + 1


@compiled
def heap_pop(worths: Floats, pairs: Ints, size: int) -> int:
    size -= 1
    worth, pair, at = worths[size], pairs[size], 0
    while True:
        below = 2 * at + 1
        if below >= size:
            break
        if below + 1 < size and worths[below + 1] > worths[below]:
            below += 1
        if worths[below] <= worth:
            break
        worths[at], pairs[at] = worths[below], pairs[below]
        at = below
    worths[at], pairs[at] = worth, pair
    return size


@compiled
def _rebuild(worths: Floats, pairs: Ints, worth: Floats) -> int:
    """Forget what is out of date: there is room again, as no pair stands in the heap twice."""
    size = 0
    for pair in range(len(worth)):
        if worth[pair] > 0.0:
            size = heap_push(worths, pairs, size, worth[pair], pair)
    return size
