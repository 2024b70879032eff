"""Our plan: packs and key/value tier searched together, from several starts; the best is kept.

Each start clusters units (matching), packs them and moves them about (moves), with a table that says how much it
matters that a query touches a pack for a few arrays: all, where there are no keys; less, the more such arrays can still
become keys. Then comes the climb into the tier; the best few are polished, at last array by array.

Without keys there is time for more. Placements are crossed: what two of them keep in one pack stays together while the
better one is searched again, so that where they differ is searched most. Where packs hold many units, they are moved in
chains, too.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from hyperslab.errors import InvalidInputError
from hyperslab.tune.placement.bound import lower_bound
from hyperslab.tune.placement.chains import chain
from hyperslab.tune.placement.climb import climb
from hyperslab.tune.placement.graph import Graph, atoms, contract, make_graph
from hyperslab.tune.placement.matching import Taste, cluster
from hyperslab.tune.placement.metis import graph_of_arrays
from hyperslab.tune.placement.moves import flat, improve, return_keys, rounded, slanted
from hyperslab.tune.placement.packing import best_fit, fill_up
from hyperslab.tune.placement.problem import KEYED, Floats, Ints, Placement, Problem, enough_packs
from hyperslab.tune.placement.state import State, make_state

__all__ = ["plan"]

# What the same queries read is cut into parts of a pack, so that packs can be filled and units still be moved: so many.
_GRAINS = (8, 1)
_TASTES = (Taste(0.5, 0.15), Taste(1.0, 0.15))
# Where there are no keys to be tried as well, there is time for more.
_MORE_TASTES = (*_TASTES, Taste(0.75, 0.3), Taste(0.25, 0.3))
# What a key is taken to cost when packs are made, room in the tier included: shares of the price of a pack.
_SLANTS = (0.5, 0.3)
# Clusters that weigh such a part of a pack at most are moved as one, before what they are made of is.
_PARTS = (64, 16, 4)
# Starts that are polished, one fewer where there are many pins, and rounds of that at most.
_POLISHED, _ROUNDS = 3, 4
_MANY_PINS = 1_500_000
# A round that spares less than this share is the last.
_WORTH = 1e-4
# Placements are crossed so many times, fewer where all of that would be of many pins.
_CROSSED = 14
# Units are moved in chains where packs hold so many of them.
_CHAINED = 60


def plan(problem: Problem, *, order: Ints | None = None, seed: int = 0) -> Placement:
    """Return a cheap placement within all limits, and beside it what none can cost less than.

    Arrays that no query reads are packed by themselves, in `order` (all arrays, by default as they are numbered).

    >>> from hyperslab.plan import AccessPrices
    >>> from hyperslab.tune.placement.problem import Queries
    >>> log = Queries.of([[0, 1, 2, 3], [4, 5, 6, 7]] + 5 * [[3, 4]], 8)
    >>> found = plan(Problem.of(log, 3, AccessPrices(10, 1), keys=2))
    >>> np.flatnonzero(found.pack_of == KEYED).tolist(), found.cost.seconds
    ([3, 4], 32.0)
    """
    read = np.flatnonzero(problem.queries.read_by() > 0)
    pack_of = np.full(problem.queries.arrays, KEYED, np.int64)
    if len(read):
        pack_of[read] = _plan_read(_only_read(problem, read), seed)
    _place_unread(problem, pack_of, read, order)
    return Placement.of(problem, pack_of, "plan", lower_bound(problem))


def _only_read(problem: Problem, read: Ints) -> Problem:
    """Return the problem of the arrays that are read; of the packs, as many as the others leave."""
    own = np.full(problem.queries.arrays, -1, np.int64)
    own[read] = np.arange(len(read))
    queries = replace(problem.queries, indices=own[problem.queries.indices], arrays=len(read))
    weights = problem.weights[read]
    light = np.minimum(problem.weights, problem.pack)
    others = -(-int(light.sum() - light[read].sum()) // problem.pack)
    least = -(-int(light[read].sum()) // problem.pack)
    packs = max(least, min(enough_packs(weights, problem.pack), problem.packs - others))
    return replace(problem, queries=queries, weights=weights, packs=packs)


def _place_unread(problem: Problem, pack_of: Ints, read: Ints, order: Ints | None) -> None:
    unread = np.ones(len(pack_of), np.bool_)
    unread[read] = False
    rest = np.flatnonzero(unread) if order is None else order[unread[order]]
    packed = pack_of[pack_of != KEYED]
    load = np.zeros(problem.packs, np.int64)
    np.add.at(load, packed, problem.weights[pack_of != KEYED])
    first = int(packed.max(initial=-1)) + 1
    pack_of[rest] = fill_up(problem.weights[rest], load, problem.pack, first)
    if (pack_of[rest] == KEYED).any():
        raise InvalidInputError(f"{problem.packs} packs of {problem.pack} do not hold all arrays; allow more of them")


@dataclass(frozen=True, slots=True, eq=False)
class _Search:
    """The problem with its units, and the tables for its queries."""

    problem: Problem
    graph: Graph
    unit_of: Ints
    true: Floats
    round: Floats
    seed: int

    @property
    def tight(self) -> bool:
        """Return whether packs are so few that what is moved as one may not find room: then only arrays are moved."""
        return self.problem.packs < enough_packs(self.problem.weights, self.problem.pack)

    @property
    def chained(self) -> bool:
        """Return whether packs hold so many units that it is worth while to move them in chains."""
        units, whole = len(self.graph.weight), int(self.graph.weight.sum())
        return not self.problem.keys and units * self.problem.pack >= _CHAINED * whole

    def seconds(self, state: State) -> float:
        """Return what a state costs."""
        prices, graph = self.problem.prices, self.graph
        touches, keys = graph.times @ state.used, graph.times @ state.keyed
        requests = graph.times @ (state.keyed > 0)
        return float(prices.seconds(touches, keys, requests))

    def room(self, state: State) -> int:
        """Return what the tier still holds."""
        return self.problem.keys - int(self.graph.weight[state.pack_of == KEYED].sum())

    def polish(self, state: State, rounds: int) -> State:
        """Move units between packs, from the tier and to it, in turn, while that spares anything."""
        problem, best, least = self.problem, state.pack_of.copy(), self.seconds(state)
        for _ in range(rounds):
            improve(self.graph, state, self.round, problem.pack, seed=self.seed)
            improve(self.graph, state, self.true, problem.pack, seed=self.seed)
            return_keys(self.graph, state, problem.prices, problem.pack)
            climb(self.graph, state, problem.prices, self.room(state))
            seconds = self.seconds(state)
            spared = least - seconds
            if spared > 0:
                best, least = state.pack_of.copy(), seconds
            if spared < _WORTH * least:
                break
        return make_state(self.graph, best, len(state.load))


def _plan_read(problem: Problem, seed: int) -> Ints:
    """Return the packs of arrays each of which is read by some query."""
    single = _search(problem, graph_of_arrays(problem.queries, problem.weights), None, seed)
    searches = [single]
    if not single.tight:
        grains = [max(1, problem.pack // parts) for parts in _GRAINS]
        all_units = [atoms(problem.queries, problem.weights, problem.pack, grain, seed) for grain in grains]
        # Two grains may come to the same.
        unlike = {int(unit_of.max()): unit_of for unit_of in all_units}
        searches = [_search(problem, _merge(single.graph, unit_of), unit_of, seed) for unit_of in unlike.values()]
        # Chains take time, and move small units as one by themselves.
        searches = searches[:1] if searches[0].chained else searches
    # With keys there are several tables to try: then each grain has a taste of its own, if there are two.
    tastes = [_TASTES[at : at + 1] if len(searches) > 1 else _TASTES for at in range(len(searches))]
    tastes = tastes if problem.keys else [_MORE_TASTES] * len(searches)
    tries = zip(searches, tastes, strict=True)
    starts = [start for search, its_tastes in tries for start in _starts(search, its_tastes)]
    starts.sort(key=lambda start: start.seconds)
    if not problem.keys and not single.tight:
        starts = _crossed([start for start in starts if start.search is starts[0].search])
    few = _POLISHED - (len(problem.queries.indices) > _MANY_PINS)
    polished = [_follow(start) for start in starts[:few]]
    states = [make_state(single.graph, pack_of, problem.packs) for pack_of in polished]
    return single.polish(min(states, key=single.seconds), 1).pack_of


@dataclass(frozen=True, slots=True, eq=False)
class _Start:
    """A placement in packs alone, the table and taste it was made by, and what it costs after a climb."""

    search: _Search
    table: Floats
    taste: Taste
    pack_of: Ints
    seconds: float


def _starts(search: _Search, tastes: Sequence[Taste]) -> Iterator[_Start]:
    """Yield placements by several tables and tastes."""
    most, prices = len(search.true) - 1, search.problem.prices
    tables = [search.true] + [slanted(prices.pack_s, most, prices.pack_s * slant) for slant in _SLANTS]
    for table, taste in product(tables if search.problem.keys else tables[:1], tastes):
        state = _descend(search, table, taste, None)
        pack_of = state.pack_of.copy()
        climb(search.graph, state, prices, search.room(state))
        yield _Start(search, table, taste, pack_of, search.seconds(state))


def _crossed(starts: list[_Start]) -> list[_Start]:
    """Return starts of one search, the best first, after two of them have been crossed again and again."""
    search, most = starts[0].search, len(starts)
    random = np.random.default_rng(search.seed)
    for _ in range(min(_CROSSED, _MANY_PINS // len(search.graph.units)) if most > 1 else 0):
        better, other = (starts[at] for at in sorted(random.choice(len(starts), 2, replace=False)))
        shared = np.unique(better.pack_of * search.problem.packs + other.pack_of, return_inverse=True)[1]
        state = _descend(search, better.table, better.taste, better.pack_of, shared)
        seconds = search.seconds(state)
        # Of equals, one is enough: crossed with each other they give nothing new.
        if all(seconds != start.seconds for start in starts):
            starts.append(replace(better, pack_of=state.pack_of, seconds=seconds))
            starts = sorted(starts, key=lambda start: start.seconds)[:most]
    return starts


def _follow(start: _Start) -> Ints:
    """Return the packs of arrays that come of a start: descended again within its packs, climbed and polished."""
    search = start.search
    state = _descend(search, start.table, start.taste, start.pack_of)
    climb(search.graph, state, search.problem.prices, search.room(state))
    return search.polish(state, _ROUNDS).pack_of[search.unit_of]


def _search(problem: Problem, graph: Graph, unit_of: Ints | None, seed: int) -> _Search:
    most, price = int(problem.queries.lengths.max()), problem.prices.pack_s
    units = np.arange(len(graph.weight)) if unit_of is None else unit_of
    return _Search(problem, graph, units, flat(price, most), rounded(price, most, 0.5), seed)


def _descend(
    search: _Search, table: Floats, taste: Taste, pack_of: Ints | None, within: Ints | None = None
) -> State:  # fmt: skip
    """Return a placement that was improved from large clusters to single units; if packs are given, from those.

    Then only units of the same pack are clustered, or those of the same number, where `within` has one for each.
    """
    problem, graph = search.problem, search.graph
    within = pack_of if within is None else within
    levels: list[tuple[Graph, Ints]] = []
    for parts in _PARTS:
        if problem.pack >= 2 * parts and not search.tight:
            label = cluster(graph, table, problem.pack // parts, taste, within)
            levels.append((graph, label))
            graph = _merge(graph, label)
            if pack_of is not None and within is not None:
                firsts = np.unique(label, return_index=True)[1]
                pack_of, within = pack_of[firsts], within[firsts]
    if pack_of is None:
        pack_of = _pack(problem, graph, cluster(graph, table, problem.pack, taste))
    while True:
        state = make_state(graph, pack_of, problem.packs)
        if table is search.true:
            improve(graph, state, search.round, problem.pack, seed=search.seed)
        improve(graph, state, table, problem.pack, seed=search.seed)
        if search.chained:
            chain(graph, state, search.round, table, problem.pack, seed=search.seed)
        if not levels:
            return state
        graph, label = levels.pop()
        pack_of = state.pack_of[label]


def _merge(graph: Graph, label: Ints) -> Graph:
    """Return the graph in which clusters are units."""
    many = int(label.max()) + 1
    lists = contract(graph.indptr, graph.units, graph.counts, label, many)
    return make_graph(*lists, graph.times, np.bincount(label, graph.weight, many).astype(np.int64))


def _pack(problem: Problem, graph: Graph, label: Ints) -> Ints:
    """Return packs of clusters; a cluster is a pack by itself while there are packs enough."""
    weight = np.bincount(label, graph.weight).astype(np.int64)
    if len(weight) <= problem.packs:
        return label
    pack_of = best_fit(weight, problem.pack, problem.packs)[label]
    left = np.flatnonzero(pack_of == KEYED)
    if len(left):
        load = np.zeros(problem.packs, np.int64)
        packed = pack_of != KEYED
        np.add.at(load, pack_of[packed], graph.weight[packed])
        left = left[np.argsort(label[left], kind="stable")]
        pack_of[left] = fill_up(graph.weight[left], load, problem.pack, problem.packs)
    if (pack_of == KEYED).any():
        raise InvalidInputError(f"{problem.packs} packs of {problem.pack} do not hold all arrays; allow more of them")
    return pack_of
