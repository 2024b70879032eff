"""An order of all arrays, fitted on what is known of them: packs are cells of their attributes, filled one by one.

Which cells suit (how many stamps long, how wide) is learned from the log; where they lie is not, so that such packs
serve queries that are like those of the log and not among them. Arrays that no query has read have their place, too.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import log2

import numpy as np
import numpy.typing as npt

from hyperslab.errors import InvalidInputError
from hyperslab.tune.placement.compiled import compiled
from hyperslab.tune.placement.packing import in_order
from hyperslab.tune.placement.problem import Floats, Ints, Problem

__all__ = ["Order", "fit_order"]

# The numbers of cells that are tried are powers of the root of 2; the search goes by such steps of them, in turn.
_STEPS = (6, 3, 1)
_MOST_CELLS = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """All arrays in the order of the cells that they lie in, and how many cells there are along each attribute.

    `by_rank` says that cells hold about as many arrays each; else they are equally wide. `touches` is how often packs
    that are filled in this order are touched by the queries that it was fitted on.
    """

    order: Ints
    cells: tuple[int, ...]
    by_rank: bool
    touches: float

    def packs(self, problem: Problem) -> Ints:
        """Return each array's pack when packs are filled in this order."""
        pack_of = np.empty(len(self.order), np.int64)
        pack_of[self.order] = in_order(problem.weights[self.order], problem.pack)
        return pack_of


def fit_order(problem: Problem, attributes: npt.ArrayLike | None) -> Order:
    """Return the order whose packs the queries touch least, of those by cells of the attributes (arrays, k).

    Without attributes, it is the order in which the arrays are numbered.
    """
    arrays = problem.queries.arrays
    known = np.arange(arrays, dtype=np.float64)[:, None] if attributes is None else np.asarray(attributes, np.float64)
    if known.ndim != 2 or len(known) != arrays or not np.isfinite(known).all():
        raise InvalidInputError(f"attributes must be finite numbers, a row for each of the {arrays} arrays")
    scales = {False: _by_value(known), True: _by_rank(known)}
    return min((_fit(problem, known, scale, by_rank) for by_rank, scale in scales.items()), key=lambda o: o.touches)


def _by_value(known: Floats) -> Floats:
    """Return attributes from 0 to below 1, by their values."""
    low, high = known.min(axis=0, initial=np.inf), known.max(axis=0, initial=-np.inf)
    return np.asarray((known - low) / np.where(high > low, high - low, 1.0) * (1 - 1e-9))


def _by_rank(known: Floats) -> Floats:
    """Return attributes from 0 to below 1, by their ranks; equal ones stay equal."""
    ranks = [np.searchsorted(np.sort(column), column) for column in known.T]
    return np.asarray(np.stack(ranks, axis=1) / max(1, len(known)))


def _fit(problem: Problem, known: Floats, scale: Floats, by_rank: bool) -> Order:
    """Search the numbers of cells: each step gives an attribute more or fewer of them, or one's to another."""
    # Within a cell, arrays stand by the first attribute.
    first = np.lexsort(known.T[::-1])
    scale = np.ascontiguousarray(scale[first])
    weights, tried = problem.weights[first], {}

    def touches(halves: tuple[int, ...]) -> float:
        if halves not in tried:
            tried[halves] = _touches(problem, first, _sorted(_cells(scale, halves)), weights)
        return tried[halves]

    total = max(0.0, 2 * log2(max(1.0, float(weights.sum()) / problem.pack)))
    axes = scale.shape[1]
    # Either all attributes are cut alike, or all but the first, by which the arrays of a cell stand anyway.
    starts = [tuple([round(total / axes)] * axes), (0, *[round(total / max(1, axes - 1))] * (axes - 1))]
    best = min(starts, key=touches)
    for step in _STEPS:
        while True:
            better = min(_near(best, step), key=touches)
            if touches(better) >= touches(best):
                break
            best = better
    order = first[_sorted(_cells(scale, best))]
    return Order(order, tuple(_count(half) for half in best), by_rank, touches(best))


def _near(halves: tuple[int, ...], step: int) -> Iterator[tuple[int, ...]]:
    """Yield numbers of cells (twice their logarithms) that are a step away."""
    axes = range(len(halves))
    changes = [{axis: sign} for axis in axes for sign in (1, -1)]
    changes += [{more: 1, less: -1} for more in axes for less in axes if more != less]
    for change in changes:
        near = tuple([max(0, half + step * change.get(axis, 0)) for axis, half in enumerate(halves)])
        if sum(near) <= 2 * log2(_MOST_CELLS):
            yield near


def _count(half: int) -> int:
    return round(2 ** (half / 2))


def _cells(scale: Floats, halves: tuple[int, ...]) -> Ints:
    """Return the number of the cell that each array lies in."""
    cell = np.zeros(len(scale), np.int64)
    for axis, half in enumerate(halves):
        cell = cell * _count(half) + (scale[:, axis] * _count(half)).astype(np.int64)
    return cell


def _touches(problem: Problem, first: Ints, order: Ints, weights: Ints) -> float:
    pack_of = np.empty(len(order), np.int64)
    pack_of[first[order]] = in_order(weights[order], problem.pack)
    queries = problem.queries
    return _count_touches(queries.indptr, queries.indices, queries.times, pack_of, int(pack_of.max(initial=0)) + 1)


@compiled
def _sorted(cell: Ints) -> Ints:
    """Return what sorts small whole numbers, as a stable argsort does, in one sweep."""
    starts = np.zeros(cell.max() + 2 if len(cell) else 1, np.int64)
    for number in cell:
        starts[number + 1] += 1
    starts = np.cumsum(starts)
    order = np.empty(len(cell), np.int64)
    for at in range(len(cell)):
        order[starts[cell[at]]] = at
        starts[cell[at]] += 1
    return order


@compiled
def _count_touches(indptr: Ints, indices: Ints, times: Floats, pack_of: Ints, packs: int) -> float:
    seen_by, touches = np.full(packs, -1, np.int64), 0.0
    for query in range(len(times)):
        for at in range(indptr[query], indptr[query + 1]):
            pack = pack_of[indices[at]]
            if seen_by[pack] != query:
                seen_by[pack] = query
                touches += times[query]
    return touches
