"""A placement while it is searched: which packs each query touches, with how many arrays, kept as units move.

A query's packs stand in its own slots, as many as it has units, those in use first: they are few, so that they are
looked through one by one.
"""

from typing import NamedTuple

import numpy as np

from hyperslab.tune.placement.compiled import compiled
from hyperslab.tune.placement.graph import Graph, Narrow
from hyperslab.tune.placement.problem import Ints

__all__ = ["State", "add", "count_in", "make_state", "remove"]


class State(NamedTuple):
    """Each unit's pack (or -1), each pack's load, and each query's slots: pack, arrays of it, slots in use, keys."""

    pack_of: Ints
    load: Ints
    slot_pack: Narrow
    slot_count: Narrow
    used: Narrow
    keyed: Narrow


def make_state(graph: Graph, pack_of: Ints, packs: int) -> State:
    """Return the state of a placement of units."""
    pins, queries = len(graph.units), len(graph.times)
    state = State(
        np.full(len(pack_of), -1, np.int64),
        np.zeros(packs, np.int64),
        np.empty(pins, np.int32),
        np.empty(pins, np.int32),
        np.zeros(queries, np.int32),
        np.zeros(queries, np.int32),
    )
    _fill(graph, state, pack_of)
    return state


@compiled
def _fill(graph: Graph, state: State, pack_of: Ints) -> None:
    for unit in range(len(pack_of)):
        for at in range(graph.unit_indptr[unit], graph.unit_indptr[unit + 1]):
            state.keyed[graph.queries[at]] += graph.unit_counts[at]
    for unit in range(len(pack_of)):
        if pack_of[unit] >= 0:
            add(graph, state, unit, pack_of[unit])


@compiled
def _slot(graph: Graph, state: State, query: int, pack: int) -> int:
    """Return where the query has the pack, -1 if it does not touch it."""
    first = graph.indptr[query]
    for slot in range(first, first + state.used[query]):
        if state.slot_pack[slot] == pack:
            return slot
    return -1


@compiled
def count_in(graph: Graph, state: State, query: int, pack: int) -> int:
    """Return how many arrays of a pack the query reads."""
    slot = _slot(graph, state, query, pack)
    return 0 if slot < 0 else state.slot_count[slot]


@compiled
def remove(graph: Graph, state: State, unit: int) -> None:
    """Take a unit out of its pack, to the key/value tier."""
    pack = state.pack_of[unit]
    state.pack_of[unit] = -1
    state.load[pack] -= graph.weight[unit]
    for at in range(graph.unit_indptr[unit], graph.unit_indptr[unit + 1]):
        query, count = graph.queries[at], graph.unit_counts[at]
        slot = _slot(graph, state, query, pack)
        state.keyed[query] += count
        state.slot_count[slot] -= count
        if state.slot_count[slot] == 0:
            last = graph.indptr[query] + state.used[query] - 1
            state.slot_pack[slot], state.slot_count[slot] = state.slot_pack[last], state.slot_count[last]
            state.used[query] -= 1


@compiled
def add(graph: Graph, state: State, unit: int, pack: int) -> None:
    """Put a unit of the key/value tier into a pack."""
    state.pack_of[unit] = pack
    state.load[pack] += graph.weight[unit]
    for at in range(graph.unit_indptr[unit], graph.unit_indptr[unit + 1]):
        query, count = graph.queries[at], graph.unit_counts[at]
        slot = _slot(graph, state, query, pack)
        state.keyed[query] -= count
        if slot < 0:
            slot = graph.indptr[query] + state.used[query]
            state.slot_pack[slot], state.slot_count[slot] = pack, 0
            state.used[query] += 1
        state.slot_count[slot] += count
