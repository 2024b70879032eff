"""Chains of moves: what they spare, what they keep, and where single moves are stuck."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hyperslab.plan import AccessPrices
from hyperslab.tune.placement.chains import chain
from hyperslab.tune.placement.metis import graph_of_arrays
from hyperslab.tune.placement.moves import flat, improve, rounded
from hyperslab.tune.placement.planner import plan
from hyperslab.tune.placement.problem import KEYED, Problem, Queries, cost_of, fits
from hyperslab.tune.placement.state import make_state

PRICES = AccessPrices(10, 1)


@st.composite
def placed(draw):
    """A problem of some arrays, and a placement of all but a few in packs of two to five."""
    arrays = draw(st.integers(2, 24))
    log = draw(st.lists(st.lists(st.integers(0, arrays - 1), min_size=1, max_size=8), min_size=1, max_size=12))
    problem = Problem.of(Queries.of(log, arrays), draw(st.integers(2, 5)), PRICES, keys=arrays, packs=arrays)
    numbers = np.array(draw(st.permutations(range(arrays)))) // problem.pack
    numbers[draw(st.lists(st.integers(0, arrays - 1), max_size=3))] = KEYED
    return problem, numbers


@settings(max_examples=60, deadline=None)
@given(placed(), st.integers(0, 3))
def test_chains_spare_what_they_say_and_keep_the_limits(given_placement, seed):
    problem, pack_of = given_placement
    graph, most = graph_of_arrays(problem.queries, problem.weights), problem.queries.arrays
    state = make_state(graph, pack_of, problem.packs)
    spared = chain(graph, state, rounded(10, most, 0.5), flat(10, most), problem.pack, seed)
    before, after = cost_of(problem, pack_of), cost_of(problem, state.pack_of)
    assert before.seconds - after.seconds == spared >= 0
    assert fits(problem, state.pack_of)
    assert ((state.pack_of == KEYED) == (pack_of == KEYED)).all()
    assert problem.queries.times @ state.used == after.touches


def test_a_chain_carries_a_whole_query_to_another_pack():
    """Half of a query lies in each of two packs: no single move spares a touch, or looks better than none."""
    log = [list(range(8)), [0, 1, 2, 3, 8, 9], [4, 5, 6, 7, 10, 11]]
    problem = Problem.of(Queries.of(log, 12), 10, PRICES)
    graph, table = graph_of_arrays(problem.queries, problem.weights), flat(10, 8)
    state = make_state(graph, np.array([0] * 4 + [1] * 4 + [0, 0, 1, 1]), 3)
    assert improve(graph, state, table, problem.pack) == 0
    assert chain(graph, state, rounded(10, 8, 0.5), table, problem.pack) == 0
    assert cost_of(problem, state.pack_of).touches == 4
    # Where one of the others is gone, its half can follow at no cost.
    problem = Problem.of(Queries.of(log[:2], 12), 10, PRICES)
    graph = graph_of_arrays(problem.queries, problem.weights)
    state = make_state(graph, np.array([0] * 4 + [1] * 4 + [0, 0, 1, 1]), 3)
    assert improve(graph, state, table, problem.pack) == 0
    assert chain(graph, state, rounded(10, 8, 0.5), table, problem.pack) == 10


def test_large_packs_are_planned_within_their_limits_and_near_what_is_known():
    """Clusters that hang together by a few queries are found, though packs hold hundreds of arrays."""
    random = np.random.default_rng(0)
    hidden = random.permutation(3_000).reshape(20, 150)
    log = [random.choice(cluster, 6, replace=False) for cluster in hidden for _ in range(300)]
    log += [np.concatenate([random.choice(hidden[at], 3), random.choice(hidden[at - 1], 3)]) for at in range(20)]
    problem = Problem.of(Queries.of(log, 3_000), 150, PRICES)
    found = plan(problem)
    known = np.empty(3_000, np.int64)
    known[hidden.ravel()] = np.repeat(np.arange(20), 150)
    assert fits(problem, found.pack_of)
    assert found.bound_s <= found.cost.seconds <= 1.002 * cost_of(problem, known).seconds
    assert found.cost == cost_of(problem, plan(problem).pack_of)
