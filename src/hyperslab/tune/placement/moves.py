"""Local search: units move to the pack in which their queries pay least, as long as there is room.

What a query pays for n arrays of a pack is a table. The true one is flat: a touch is a touch. With a rounder one, which
rises with n ever less, a query's last arrays are drawn to where most of it is, before that spares a touch.
"""

import numpy as np
import numpy.typing as npt

from hyperslab.plan import AccessPrices
from hyperslab.tune.placement.compiled import compiled
from hyperslab.tune.placement.graph import Graph
from hyperslab.tune.placement.problem import Floats
from hyperslab.tune.placement.state import State, add, remove

__all__ = ["flat", "improve", "return_keys", "rounded", "slanted"]

# A pass in which fewer than this share of the units moved is the last.
_FEWEST = 0.0005
# Units that are shuffled together.
_BLOCK = 1024


def flat(price: float, most: int) -> Floats:
    """Return the true table: a query pays for a pack once, if it wants 1 to `most` arrays of it.

    >>> flat(3, 2).tolist()
    [0.0, 3.0, 3.0]
    """
    return price * np.minimum(np.arange(most + 1), 1.0)


def rounded(price: float, most: int, share: float) -> Floats:
    """Return a table whose steps shrink by `share`.

    >>> rounded(2, 3, 0.5).tolist()
    [0.0, 1.0, 1.5, 1.75]
    """
    return price * (1 - (1 - share) ** np.arange(most + 1.0))


def slanted(price: float, most: int, key_price: float) -> Floats:
    """Return a table in which a few arrays are cheap: they can still go to the key/value tier, at `key_price` each.

    >>> slanted(3, 4, 1.25).tolist()
    [0.0, 1.25, 2.5, 3.0, 3.0]
    """
    return np.minimum(price, key_price * np.arange(most + 1.0))


def improve(graph: Graph, state: State, table: Floats, most: int, *, passes: int = 8, seed: int = 0) -> int:
    """Move units between packs while that spares something; return how many moves were made."""
    random = np.random.default_rng(seed)
    units = np.flatnonzero((state.pack_of >= 0) & (np.diff(graph.unit_indptr) > 0))
    # Only a unit one of whose queries has changed since it was last looked at can have somewhere better to go.
    stale, moves = np.ones(len(graph.weight), np.bool_), 0
    for _ in range(passes):
        moved = _pass(graph, state, table, most, _shuffled(units, random), stale)
        moves += moved
        if moved < max(1.0, _FEWEST * len(units)):
            break
    return moves


def _shuffled(units: npt.NDArray[np.int64], random: np.random.Generator) -> npt.NDArray[np.int64]:
    """Return units in a random order, near ones still near each other: they share queries, and so memory."""
    blocks = -(-len(units) // _BLOCK)
    padded = np.full((blocks, _BLOCK), -1, np.int64)
    padded.ravel()[: len(units)] = units
    mixed = random.permuted(padded[random.permutation(blocks)], axis=1).ravel()
    return np.asarray(mixed[mixed >= 0])


@compiled
def _pass(
    graph: Graph, state: State, table: Floats, most: int, order: npt.NDArray[np.int64], stale: npt.NDArray[np.bool_]
) -> int:
    packs = len(state.load)
    spared, seen_by, near = np.zeros(packs), np.full(packs, -1, np.int64), np.empty(packs, np.int64)
    moves = 0
    for unit in order:
        if not stale[unit]:
            continue
        stale[unit] = False
        own, found, gain = state.pack_of[unit], 0, 0.0
        for at in range(graph.unit_indptr[unit], graph.unit_indptr[unit + 1]):
            query, count, times = graph.queries[at], graph.unit_counts[at], graph.times[graph.queries[at]]
            first = graph.indptr[query]
            gain -= times * table[count]
            for slot in range(first, first + state.used[query]):
                pack, there = state.slot_pack[slot], state.slot_count[slot]
                if pack == own:
                    gain += times * (table[there] - table[there - count])
                    continue
                if seen_by[pack] != unit:
                    seen_by[pack], spared[pack], near[found] = unit, 0.0, pack
                    found += 1
                spared[pack] += times * (table[count] + table[there] - table[there + count])
        best, most_gain = -1, 1e-9 * table[1]
        for at in range(found):
            pack = near[at]
            if gain + spared[pack] > most_gain and state.load[pack] + graph.weight[unit] <= most:
                best, most_gain = pack, gain + spared[pack]
        if best < 0:
            continue
        remove(graph, state, unit)
        add(graph, state, unit, best)
        moves += 1
        for at in range(graph.unit_indptr[unit], graph.unit_indptr[unit + 1]):
            query = graph.queries[at]
            for other_at in range(graph.indptr[query], graph.indptr[query + 1]):
                stale[graph.units[other_at]] = True
    return moves


def return_keys(graph: Graph, state: State, prices: AccessPrices, most: int) -> int:
    """Move units from the key/value tier to packs where that spares something; return how many."""
    return _return_keys(graph, state, prices.pack_s, prices.key_s, prices.request_s, most)


@compiled
def _return_keys(graph: Graph, state: State, pack_s: float, key_s: float, request_s: float, most: int) -> int:
    packs, moves = len(state.load), 0
    touched, seen_by, near = np.zeros(packs), np.full(packs, -1, np.int64), np.empty(packs + 1, np.int64)
    empty = 0
    for unit in range(len(state.pack_of)):
        if state.pack_of[unit] >= 0:
            continue
        while empty < packs and state.load[empty] > 0:
            empty += 1
        found, gain = 0, 0.0
        if empty < packs:
            seen_by[empty], touched[empty], near[0], found = unit, 0.0, empty, 1
        for at in range(graph.unit_indptr[unit], graph.unit_indptr[unit + 1]):
            query, count, times = graph.queries[at], graph.unit_counts[at], graph.times[graph.queries[at]]
            gain += times * (key_s * count - pack_s + (request_s if state.keyed[query] == count else 0.0))
            first = graph.indptr[query]
            for slot in range(first, first + state.used[query]):
                pack = state.slot_pack[slot]
                if seen_by[pack] != unit:
                    seen_by[pack], touched[pack], near[found] = unit, 0.0, pack
                    found += 1
                touched[pack] += times
        best, most_gain = -1, 1e-9 * pack_s
        for at in range(found):
            pack = near[at]
            fitting = state.load[pack] + graph.weight[unit] <= most or state.load[pack] == 0
            if fitting and gain + pack_s * touched[pack] > most_gain:
                best, most_gain = pack, gain + pack_s * touched[pack]
        if best >= 0:
            add(graph, state, unit, best)
            moves += 1
    return moves
