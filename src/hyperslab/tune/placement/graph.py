"""Units instead of arrays: what the same queries read is moved as one, and queries see units.

A unit is an array, several that the same queries read (found by a hash of the readers), or later a cluster of them.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hyperslab.tune.placement.compiled import compiled
from hyperslab.tune.placement.problem import Floats, Ints, Queries

__all__ = ["Graph", "atoms", "contract", "make_graph"]

Narrow = npt.NDArray[np.int32]


class Graph(NamedTuple):
    """Queries and units, each with a list of the other; a named tuple, as compiled functions know it.

    `counts` and `unit_counts` are how many arrays of the unit the query reads. `weight` is what a unit takes of a pack.
    """

    indptr: Ints
    units: Narrow
    counts: Narrow
    unit_indptr: Ints
    queries: Narrow
    unit_counts: Narrow
    times: Floats
    weight: Ints


def make_graph(indptr: Ints, units: Narrow, counts: Narrow, times: Floats, weight: Ints) -> Graph:
    """Complete the lists of each query by those of each unit."""
    return Graph(indptr, units, counts, *_transpose(indptr, units, counts, len(weight)), times, weight)


@compiled
def _transpose(indptr: Ints, units: Narrow, counts: Narrow, many: int) -> tuple[Ints, Narrow, Narrow]:
    starts = np.zeros(many + 1, np.int64)
    for unit in units:
        starts[unit + 1] += 1
    starts = np.cumsum(starts)
    fill, queries, theirs = starts[:-1].copy(), np.empty(len(units), np.int32), np.empty(len(units), np.int32)
    for query in range(len(indptr) - 1):
        for at in range(indptr[query], indptr[query + 1]):
            to = fill[units[at]]
            queries[to], theirs[to] = query, counts[at]
            fill[units[at]] += 1
    return starts, queries, theirs


def atoms(queries: Queries, weights: Ints, pack: int, grain: int, seed: int = 0) -> Ints:
    """Return a unit for each array: arrays that the same queries read share one.

    As long as they fill whole packs, a unit is a pack; what is left of them is cut into units of `grain` at most, so
    that packs can be filled with several. Readers are compared by a hash of 64 bits: where two sets of readers were
    taken for one, the plan would be a little worse, its cost would still be told right.
    """
    random = np.random.default_rng(seed)
    marks = random.integers(1, 1 << 63, len(queries), dtype=np.uint64)
    hashes = _readers(queries.indptr, queries.indices, marks, queries.arrays)
    order = np.argsort(hashes, kind="stable")
    units = np.empty(queries.arrays, np.int64)
    units[order] = _cut(hashes[order], weights[order], pack, grain)
    # Numbered as their first arrays are: what is near in numbers is often read together, and then near in memory.
    numbers = np.empty(int(units.max(initial=-1)) + 1, np.int64)
    numbers[np.argsort(np.unique(units, return_index=True)[1])] = np.arange(len(numbers))
    return numbers[units]


@compiled
def _readers(indptr: Ints, indices: Ints, marks: npt.NDArray[np.uint64], arrays: int) -> npt.NDArray[np.uint64]:
    hashes = np.zeros(arrays, np.uint64)
    for query in range(len(indptr) - 1):
        for at in range(indptr[query], indptr[query + 1]):
            hashes[indices[at]] += marks[query]
    return hashes


@compiled
def _cut(hashes: npt.NDArray[np.uint64], weights: Ints, pack: int, grain: int) -> Ints:
    """Number runs of equal hashes: whole packs of them, then pieces."""
    units, unit, at = np.empty(len(hashes), np.int64), -1, 0
    while at < len(hashes):
        end = at + 1
        rest = weights[at]
        while end < len(hashes) and hashes[end] == hashes[at]:
            rest += weights[end]
            end += 1
        most, load = 0, 0
        while at < end:
            if load == 0 or load + weights[at] > most:
                unit, load = unit + 1, 0
                most = pack if rest >= pack else grain
            units[at] = unit
            load += weights[at]
            rest -= weights[at]
            at += 1
    return units


@compiled
def contract(
    indptr: Ints, units: npt.NDArray[np.integer], counts: Narrow, label: Ints, many: int
) -> tuple[Ints, Narrow, Narrow]:
    """Return the lists of queries when each unit becomes its label: those that become one are counted together."""
    cuts, kept, sums = np.zeros_like(indptr), np.empty(len(units), np.int32), np.zeros(len(units), np.int32)
    place = np.full(many, -1, np.int64)
    used = 0
    for query in range(len(indptr) - 1):
        first = used
        for at in range(indptr[query], indptr[query + 1]):
            unit = label[units[at]]
            if place[unit] < first:
                place[unit] = used
                kept[used] = unit
                used += 1
            sums[place[unit]] += counts[at]
        cuts[query + 1] = used
    return cuts, kept[:used].copy(), sums[:used].copy()
