"""Chains of moves: units are moved although that costs something, as long as it may pay in the end; else they go back.

Where packs are large, no single move spares anything soon: a query's part of a pack is many units, and only when the
last of them has followed is a touch spared. A chain starts at a query that touches several packs, and goes on with the
move that looks best by a rounded table, which draws the rest of a query after what has moved. What counts is the true
table: a chain is taken back to where it had spared most.
"""

import numpy as np

from hyperslab.tune.placement.climb import heap_pop, heap_push
from hyperslab.tune.placement.compiled import compiled
from hyperslab.tune.placement.graph import Graph
from hyperslab.tune.placement.problem import Floats, Ints
from hyperslab.tune.placement.state import State, add, count_in, remove

__all__ = ["chain"]

# A chain ends after so many moves that spared nothing, and in any case after as many as there is room for.
_PATIENCE, _LONGEST_CHAIN = 24, 4096
# Units that a chain may go on with, at a time.
_WAITING = 1 << 14
# What moves in a query of more units than this does not make its other units look better.
_LONGEST_QUERY = 400


def chain(graph: Graph, state: State, guide: Floats, table: Floats, most: int, seed: int = 0) -> float:
    """Move units along chains, from each query that touches several packs; return what that spared by `table`."""
    seeds = _seeds(graph, state)
    seeds = np.random.default_rng(seed).permutation(seeds)
    return _chains(graph, state, guide, table, most, seeds, _PATIENCE)


@compiled
def _seeds(graph: Graph, state: State) -> Ints:
    """Return units to start from: of each pack that a query touches, but for the one with most of it, the first."""
    chosen, taken = np.zeros(len(graph.weight), np.bool_), np.full(len(state.load), -1, np.int64)
    for query in range(len(graph.times)):
        used, first = state.used[query], graph.indptr[query]
        if used < 2:
            continue
        largest = first
        for slot in range(first, first + used):
            if state.slot_count[slot] > state.slot_count[largest]:
                largest = slot
        taken[state.slot_pack[largest]] = query
        for at in range(first, graph.indptr[query + 1]):
            pack = state.pack_of[graph.units[at]]
            if pack >= 0 and taken[pack] != query:
                taken[pack] = query
                chosen[graph.units[at]] = True
    return np.flatnonzero(chosen)


@compiled
def _chains(graph: Graph, state: State, guide: Floats, table: Floats, most: int, seeds: Ints, patience: int) -> float:
    packs, many = len(state.load), len(graph.weight)
    spared, seen, near = np.zeros(packs), np.full(packs, -1, np.int64), np.empty(packs, np.int64)
    notes, moved_in = (spared, seen, near), np.full(many, -1, np.int64)
    worths, waiting = np.empty(_WAITING), np.empty(_WAITING, np.int64)
    units, sources = np.empty(_LONGEST_CHAIN, np.int64), np.empty(_LONGEST_CHAIN, np.int64)
    total, looked = 0.0, 0
    for number in range(len(seeds)):
        size, moves, kept, gain, best = heap_push(worths, waiting, 0, 0.0, seeds[number]), 0, 0, 0.0, 0.0
        while size > 0 and moves - kept < patience and moves < _LONGEST_CHAIN:
            worth, unit = worths[0], waiting[0]
            size = heap_pop(worths, waiting, size)
            looked += 1
            to, now = _where(graph, state, guide, most, unit, notes, looked)
            if moved_in[unit] == number or to < 0:
                continue
            if now < worth and moves > 0:
                # It looked better when it was put there.
                size = heap_push(worths, waiting, size, now, unit)
                continue
            gain += _gain(graph, state, table, unit, to)
            units[moves], sources[moves], moved_in[unit] = unit, state.pack_of[unit], number
            remove(graph, state, unit)
            add(graph, state, unit, to)
            moves += 1
            if gain > best + 1e-9 * table[1]:
                best, kept = gain, moves
            for at in range(graph.unit_indptr[unit], graph.unit_indptr[unit + 1]):
                query = graph.queries[at]
                first, last = graph.indptr[query], graph.indptr[query + 1]
                for other in graph.units[first : last if last - first <= _LONGEST_QUERY else first]:
                    if moved_in[other] != number and state.pack_of[other] >= 0 and size < _WAITING:
                        looked += 1
                        to, now = _where(graph, state, guide, most, other, notes, looked)
                        if to >= 0:
                            size = heap_push(worths, waiting, size, now, other)
        while moves > kept:
            moves -= 1
            remove(graph, state, units[moves])
            add(graph, state, units[moves], sources[moves])
        total += best
    return total


@compiled
def _where(
    graph: Graph,
    state: State,
    table: Floats,
    most: int,
    unit: int,
    notes: tuple[Floats, Ints, Ints],
    mark: int,
) -> tuple[int, float]:
    """Return the pack with room that it is best to move a unit to (-1 for none), and what that spares, or costs.

    `notes` are room for what is found of each pack; those of `mark` are new.
    """
    spared, seen, near = notes
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
            if seen[pack] != mark:
                seen[pack], spared[pack], near[found] = mark, 0.0, pack
                found += 1
            spared[pack] += times * (table[count] + table[there] - table[there + count])
    best, worth = -1, -np.inf
    for at in range(found):
        pack = near[at]
        if gain + spared[pack] > worth and state.load[pack] + graph.weight[unit] <= most:
            best, worth = pack, gain + spared[pack]
    return best, worth


@compiled
def _gain(graph: Graph, state: State, table: Floats, unit: int, to: int) -> float:
    """Return what it spares to move a unit to a pack."""
    own, gain = state.pack_of[unit], 0.0
    for at in range(graph.unit_indptr[unit], graph.unit_indptr[unit + 1]):
        query, count = graph.queries[at], graph.unit_counts[at]
        here, there = count_in(graph, state, query, own), count_in(graph, state, query, to)
        gain += graph.times[query] * (table[here] - table[here - count] + table[there] - table[there + count])
    return gain
