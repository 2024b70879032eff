"""The plans of the paper, by name, so that ours can be held against them.

range       arrays in a given order, packs filled one after another
object      the object-weighted graph cut by METIS
P1          the query-weighted graph cut by METIS: the paper's initial plan (5.3.1)
PO          P1, then hill climbing into the key/value tier and back (5.3.2)
C-P         consolidate, then place: P1, then whole packs into the tier
P-C         place, then consolidate: the arrays read most into the tier, the rest by METIS
"""

from collections.abc import Callable

import numpy as np

from hyperslab.errors import InvalidInputError
from hyperslab.tune.placement.climb import climb
from hyperslab.tune.placement.metis import cut, graph_of_arrays
from hyperslab.tune.placement.moves import return_keys
from hyperslab.tune.placement.packing import in_order
from hyperslab.tune.placement.problem import KEYED, Ints, Placement, Problem
from hyperslab.tune.placement.state import make_state

__all__ = ["BASELINES", "baseline", "hill_climb", "place_packs"]


def baseline(problem: Problem, name: str, *, order: Ints | None = None, seed: int = 0) -> Placement:
    """Return the paper's plan of that name; `order` is that of `range`, by default the arrays' own."""
    if name not in BASELINES:
        raise InvalidInputError(f"no baseline is called {name!r}; there are {', '.join(BASELINES)}")
    return Placement.of(problem, BASELINES[name](problem, order, seed), name)


def _range(problem: Problem, order: Ints | None, seed: int) -> Ints:
    order = np.arange(problem.queries.arrays) if order is None else order
    pack_of = np.empty(len(order), np.int64)
    pack_of[order] = in_order(problem.weights[order], problem.pack)
    return pack_of


def _object(problem: Problem, order: Ints | None, seed: int) -> Ints:
    return cut(problem, np.arange(problem.queries.arrays), by_query=False, seed=seed)


def _initial(problem: Problem, order: Ints | None, seed: int) -> Ints:
    return cut(problem, np.arange(problem.queries.arrays), by_query=True, seed=seed)


def _climbed(problem: Problem, order: Ints | None, seed: int) -> Ints:
    return hill_climb(problem, _initial(problem, order, seed))


def hill_climb(problem: Problem, pack_of: Ints) -> Ints:
    """Migrate arrays to the tier and back until none moves.

    The paper looks for ways back after each move there; here all moves there come first, then all ways back, and
    again, which ends in the same kind of plan much sooner.
    """
    graph = graph_of_arrays(problem.queries, problem.weights)
    state = make_state(graph, pack_of, int(pack_of.max(initial=0)) + 1)
    room = problem.keys - int(problem.weights[pack_of == KEYED].sum())
    while True:
        left, _ = climb(graph, state, problem.prices, room)
        moved = left < room
        if not return_keys(graph, state, problem.prices, problem.pack) and not moved:
            return state.pack_of
        room = problem.keys - int(problem.weights[state.pack_of == KEYED].sum())


def _consolidated(problem: Problem, order: Ints | None, seed: int) -> Ints:
    return place_packs(problem, _initial(problem, order, seed))


def place_packs(problem: Problem, pack_of: Ints) -> Ints:
    """Move whole packs to the tier, those first that spare most for their weight."""
    queries, packs = problem.queries, int(pack_of.max(initial=0)) + 1
    pairs = np.unique(queries.rows * packs + pack_of[queries.indices])
    touches = np.bincount(pairs % packs, queries.times[pairs // packs], minlength=packs)
    keys = np.bincount(pack_of, queries.read_by(), minlength=packs)
    load = np.bincount(pack_of, problem.weights, minlength=packs)
    spared = problem.prices.seconds(touches, 0.0, 0.0) - problem.prices.seconds(0.0, keys, touches)
    room, gone = problem.keys, np.zeros(packs, np.bool_)
    for pack in np.argsort(-spared / np.maximum(1, load), kind="stable"):
        if spared[pack] <= 0:
            break
        if load[pack] <= room:
            gone[pack], room = True, room - load[pack]
    return np.where(gone[pack_of], KEYED, pack_of)


def _placed(problem: Problem, order: Ints | None, seed: int) -> Ints:
    hottest = np.argsort(-problem.queries.read_by() / problem.weights, kind="stable")
    keyed = np.zeros(len(hottest), np.bool_)
    keyed[hottest] = np.cumsum(problem.weights[hottest]) <= problem.keys
    return cut(problem, np.flatnonzero(~keyed), by_query=True, seed=seed)


BASELINES: dict[str, Callable[[Problem, Ints | None, int], Ints]] = {
    "range": _range,
    "object": _object,
    "P1": _initial,
    "PO": _climbed,
    "C-P": _consolidated,
    "P-C": _placed,
}
