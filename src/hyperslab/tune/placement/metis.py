"""Graphs of arrays that are read together, cut into packs by METIS: the paper's two ways to weigh their edges.

Object-weighted, an edge counts the queries that read both arrays (Schism). Query-weighted (5.3.1), each query gives 1
to all of its edges together, so that one that reads much does not drown the others.
"""

from typing import Any

import numpy as np

from hyperslab.errors import InvalidInputError
from hyperslab.tune.placement.compiled import compiled
from hyperslab.tune.placement.graph import Graph, Narrow, make_graph
from hyperslab.tune.placement.problem import Floats, Ints, Problem, Queries

__all__ = ["cut", "graph_of_arrays"]

# Packs that METIS is asked for, over what would just do: its parts are only about as heavy as each other.
_SLACK = 0.1
# Edges are whole numbers to METIS: the lightest is this, unless the heaviest would be more than the other.
_LIGHTEST, _HEAVIEST = 8, 1e5


def graph_of_arrays(queries: Queries, weights: Ints) -> Graph:
    """Return the graph in which each array is a unit."""
    units = queries.indices.astype(np.int32)
    return make_graph(queries.indptr, units, np.ones(len(units), np.int32), queries.times, weights)


def cut(problem: Problem, chosen: Ints, *, by_query: bool, seed: int = 0) -> Ints:
    """Return packs, numbered from 0, for the chosen arrays (-1 for the others); each within its limit.

    What METIS leaves too heavy is repaired: arrays move to a pack that has room and that their queries touch most.
    """
    pack_of = np.full(problem.queries.arrays, -1, np.int64)
    own = np.full(problem.queries.arrays, -1, np.int64)
    own[chosen] = np.arange(len(chosen))
    weights = problem.weights[chosen]
    keep = own[problem.queries.indices] >= 0
    rows, units = problem.queries.rows[keep], own[problem.queries.indices[keep]]
    indptr = np.searchsorted(rows, np.arange(len(problem.queries) + 1))
    graph = graph_of_arrays(Queries(indptr, units, problem.queries.times, len(chosen)), weights)
    parts = max(1, int(np.ceil((1 + _SLACK) * np.minimum(weights, problem.pack).sum() / problem.pack)))
    part_of = _parts(graph, parts, by_query, seed) if parts > 1 else np.zeros(len(chosen), np.int64)
    pack_of[chosen] = _repair(graph, part_of, problem.pack, parts + len(chosen))
    return pack_of


def _parts(graph: Graph, parts: int, by_query: bool, seed: int) -> Ints:
    try:
        import pymetis
    except ImportError as error:
        raise InvalidInputError("graphs are cut by pymetis: install the extra hyperslab[baselines]") from error
    lengths = np.diff(graph.indptr)
    share = graph.times * (2.0 / np.maximum(1, lengths * (lengths - 1)) if by_query else 1.0)
    starts, ends, sums = _edges(graph, share)
    if not len(ends):
        return np.arange(len(graph.weight)) % parts
    lightest, heaviest = float(sums.min()), float(sums.max())
    scale = min(_LIGHTEST / lightest, max(_HEAVIEST, _LIGHTEST) / heaviest)
    edges = np.maximum(1, np.round(sums * scale)).astype(np.int32)
    heavy = np.maximum(1, graph.weight // max(1, int(graph.weight.sum()) >> 30)).astype(np.int32)
    options = pymetis.Options(seed=seed, ufactor=int(1000 * _SLACK))
    adjacency: Any = pymetis.CSRAdjacency(starts.astype(np.int32), ends)
    found = pymetis.part_graph(
        parts, adjacency=adjacency, eweights=edges, vweights=heavy, options=options, recursive=False
    )
    return np.asarray(found[1], np.int64)


@compiled
def _edges(graph: Graph, share: Floats) -> tuple[Ints, Narrow, Floats]:
    """Return each array's neighbours and the weight of the edges to them: where each one's start, which, how heavy."""
    many = len(graph.weight)
    starts, seen_by = np.zeros(many + 1, np.int64), np.full(many, -1, np.int64)
    for unit in range(many):
        starts[unit + 1] = starts[unit]
        for at in range(graph.unit_indptr[unit], graph.unit_indptr[unit + 1]):
            query = graph.queries[at]
            for other_at in range(graph.indptr[query], graph.indptr[query + 1]):
                other = graph.units[other_at]
                if other != unit and seen_by[other] != unit:
                    seen_by[other] = unit
                    starts[unit + 1] += 1
    place, ends, sums = np.full(many, -1, np.int64), np.empty(starts[-1], np.int32), np.zeros(starts[-1])
    for unit in range(many):
        used = starts[unit]
        for at in range(graph.unit_indptr[unit], graph.unit_indptr[unit + 1]):
            query = graph.queries[at]
            for other_at in range(graph.indptr[query], graph.indptr[query + 1]):
                other = graph.units[other_at]
                if other == unit:
                    continue
                if place[other] < starts[unit]:
                    place[other], ends[used] = used, other
                    used += 1
                sums[place[other]] += share[query]
    return starts, ends, sums


@compiled
def _repair(graph: Graph, part_of: Ints, most: int, packs: int) -> Ints:
    load, pack_of = np.zeros(packs, np.int64), part_of.copy()
    for unit in range(len(pack_of)):
        load[pack_of[unit]] += graph.weight[unit]
    shared, with_room = np.zeros(packs, np.int64), 0
    for unit in range(len(pack_of)):
        own, weight = pack_of[unit], graph.weight[unit]
        if load[own] <= most or load[own] == weight:
            continue
        to = _most_shared(graph, pack_of, load, shared, unit, most)
        if to < 0:
            # What does not fit where the search stands may leave room behind for lighter ones; there are packs enough.
            while load[with_room] >= most:
                with_room += 1
            to = with_room
            while load[to] + weight > most and load[to] > 0:
                to += 1
        pack_of[unit] = to
        load[own] -= weight
        load[to] += weight
    return pack_of


@compiled
def _most_shared(graph: Graph, pack_of: Ints, load: Ints, shared: Ints, unit: int, most: int) -> int:
    """Return the pack with room that a unit's queries read most of, -1 if there is none; `shared` is all 0."""
    best = -1
    for clear in (False, True):
        for at in range(graph.unit_indptr[unit], graph.unit_indptr[unit + 1]):
            query = graph.queries[at]
            for other_at in range(graph.indptr[query], graph.indptr[query + 1]):
                pack = pack_of[graph.units[other_at]]
                if clear:
                    shared[pack] = 0
                elif pack != pack_of[unit] and load[pack] + graph.weight[unit] <= most:
                    shared[pack] += 1
                    if best < 0 or shared[pack] > shared[best]:
                        best = pack
    return best
