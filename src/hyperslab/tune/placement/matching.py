"""Clusters by rounds of matching: in each round every unit asks for the one that it would spare most touches with.

A pair spares what their common queries pay less when both are in one pack. What they do not have in common, and what
they weigh, counts against them: heavy clusters fill packs before the better partner comes.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hyperslab.tune.placement.compiled import compiled
from hyperslab.tune.placement.graph import Graph, contract, make_graph
from hyperslab.tune.placement.problem import Floats, Ints

__all__ = ["Taste", "cluster"]

_ROUNDS = 40
# A query of more units than this says little about which two belong together, and much time would go by.
_LONGEST = 400
# A round in which fewer than this share of the units found a partner is the last.
_FEWEST = 0.002


@dataclass(frozen=True, slots=True)
class Taste:
    """How much it counts against a pair that queries read only one of it, and that it is heavy: exponents."""

    apart: float = 0.5
    heavy: float = 0.15


def cluster(graph: Graph, table: Floats, most: int, taste: Taste, within: Ints | None = None) -> Ints:
    """Return a cluster for each unit; none weighs more than `most`, except a unit that does so alone.

    `table[n]` is what a query pays that wants n arrays of one pack. Where `within` is given, a number for each unit,
    only units with the same number come together.
    """
    label = np.arange(len(graph.weight))
    within = np.zeros(len(graph.weight), np.int64) if within is None else within
    for _ in range(_ROUNDS):
        wish, worth = _wishes(graph, table, most, within, taste.apart, taste.heavy, _LONGEST)
        mate = _pair(np.argsort(-worth, kind="stable"), wish, worth)
        found = int((mate >= 0).sum()) // 2
        if not found:
            break
        own = np.arange(len(mate))
        roots, merged = np.unique(np.where(mate >= 0, np.minimum(own, mate), own), return_inverse=True)
        label, within = merged[label], within[roots]
        weight = np.bincount(merged, graph.weight).astype(np.int64)
        lists = contract(graph.indptr, graph.units, graph.counts, merged, len(roots))
        graph = make_graph(*lists, graph.times, weight)
        if found < _FEWEST * len(mate):
            break
    return label


@compiled
def _wishes(
    graph: Graph, table: Floats, most: int, within: Ints, apart: float, heavy: float, longest: int
) -> tuple[npt.NDArray[np.int64], Floats]:
    """Return for each unit the one it would best be with, and how good that is; -1 where there is none."""
    many = len(graph.weight)
    wish, worth = np.full(many, -1, np.int64), np.zeros(many)
    read, spared, common = np.zeros(many), np.zeros(many), np.zeros(many)
    near, seen_by = np.empty(many, np.int64), np.full(many, -1, np.int64)
    for unit in range(many):
        for at in range(graph.unit_indptr[unit], graph.unit_indptr[unit + 1]):
            read[unit] += graph.times[graph.queries[at]]
    for unit in range(many):
        # Most are met again with the next query: those that cannot be wished for are marked, too.
        found, room, refused = 0, most - graph.weight[unit], -2 - unit
        for at in range(graph.unit_indptr[unit], graph.unit_indptr[unit + 1]):
            query, mine, times = graph.queries[at], graph.unit_counts[at], graph.times[graph.queries[at]]
            first, last = graph.indptr[query], graph.indptr[query + 1]
            if last - first > longest:
                continue
            for other_at in range(first, last):
                other, its = graph.units[other_at], graph.counts[other_at]
                if seen_by[other] == refused:
                    continue
                if seen_by[other] != unit:
                    if other == unit or within[other] != within[unit] or graph.weight[other] > room:
                        seen_by[other] = refused
                        continue
                    seen_by[other], spared[other], common[other] = unit, 0.0, 0.0
                    near[found] = other
                    found += 1
                common[other] += times
                spared[other] += times * (table[mine] + table[its] - table[mine + its])
        for at in range(found):
            other = near[at]
            weighs = float(graph.weight[unit]) * float(graph.weight[other])
            good = spared[other] / (read[unit] + read[other] - common[other]) ** apart / weighs**heavy
            if good > worth[unit] or (good == worth[unit] and good > 0.0 and other < wish[unit]):
                wish[unit], worth[unit] = other, good
    return wish, worth


@compiled
def _pair(order: npt.NDArray[np.int64], wish: npt.NDArray[np.int64], worth: Floats) -> npt.NDArray[np.int64]:
    """Return each unit's partner, -1 for none; the best wishes come first."""
    mate = np.full(len(wish), -1, np.int64)
    for unit in order:
        if worth[unit] <= 0.0:
            break
        other = wish[unit]
        if mate[unit] < 0 and mate[other] < 0:
            mate[unit], mate[other] = other, unit
    return mate
