"""The plans of the paper: its examples, and that each keeps the limits."""

import numpy as np
import pytest

from hyperslab.errors import InvalidInputError
from hyperslab.plan import AccessPrices
from hyperslab.tune.placement.baselines import BASELINES, baseline, hill_climb, place_packs
from hyperslab.tune.placement.metis import _edges, graph_of_arrays
from hyperslab.tune.placement.planner import plan
from hyperslab.tune.placement.problem import KEYED, Problem, Queries, cost_of, fits

pytest.importorskip("pymetis", reason="the paper's plans cut graphs by METIS")

FIGURE_6 = Queries.of([[0, 1, 2, 3], [4, 5, 6, 7]] + 5 * [[3, 4]], 8)
# Section 5.3.3: where packs are placed whole, and where arrays are placed before they are packed.
SEPARATE = Queries.of(3 * [[1]] + 3 * [[3]] + [[0, 1], [2, 3]], 4)
TOGETHER = Queries.of(3 * [[0, 1]] + 3 * [[2, 3]] + [[1], [3]], 4)
PAIRS = np.array([0, 0, 1, 1])


def accesses(problem, pack_of):
    found = cost_of(problem, np.asarray(pack_of))
    return found.touches, found.keys


def test_figure_6_is_found_by_the_climb_and_by_ours():
    problem = Problem.of(FIGURE_6, 4, AccessPrices(10, 1), keys=2)
    # The two parts of Figure 7b.
    climbed = hill_climb(problem, np.array([1, 1, 0, 0, 0, 0, 1, 1]))
    assert np.flatnonzero(climbed == KEYED).tolist() == [3, 4]
    assert accesses(problem, climbed)[1] == 12
    ours = plan(Problem.of(FIGURE_6, 3, AccessPrices(10, 1), keys=2))
    assert (ours.cost.touches, ours.cost.keys) == (2, 12)


def test_placing_whole_packs_takes_cold_arrays_along():
    problem = Problem.of(SEPARATE, 2, AccessPrices(10, 1), keys=2)
    whole = place_packs(problem, PAIRS)
    assert (whole == KEYED).sum() == 2
    assert accesses(problem, whole) == (4, 5)
    climbed = hill_climb(problem, PAIRS)
    assert np.flatnonzero(climbed == KEYED).tolist() == [1, 3]
    assert accesses(problem, climbed) == (2, 8)
    assert plan(problem).cost.seconds <= cost_of(problem, climbed).seconds


def test_placing_first_tears_apart_what_is_read_together():
    problem = Problem.of(TOGETHER, 2, AccessPrices(10, 1), keys=2)
    placed = baseline(problem, "P-C")
    assert np.flatnonzero(placed.pack_of == KEYED).tolist() == [1, 3]
    assert (placed.cost.touches, placed.cost.keys) == (6, 8)
    climbed = hill_climb(problem, PAIRS)
    assert accesses(problem, climbed) == (4, 7)
    assert plan(problem).cost.seconds <= cost_of(problem, climbed).seconds


@pytest.mark.parametrize("by_query", [True, False])
def test_edges_are_weighed_as_in_figure_7(by_query):
    graph = graph_of_arrays(FIGURE_6, np.ones(8, np.int64))
    lengths = FIGURE_6.lengths
    share = FIGURE_6.times * (2.0 / (lengths * (lengths - 1)) if by_query else 1.0)
    starts, ends, sums = _edges(graph, share)
    starting = np.repeat(np.arange(8), np.diff(starts))
    found = dict(zip(zip(starting.tolist(), ends.tolist(), strict=True), sums.tolist(), strict=True))
    single = 1 / 6 if by_query else 1
    wanted = {(a, b): single for half in (range(4), range(4, 8)) for a in half for b in half if a != b}
    wanted |= {(3, 4): 5, (4, 3): 5}
    assert found == pytest.approx(wanted)


@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize("weighed", [False, True])
def test_each_keeps_the_limits(name, weighed):
    random = np.random.default_rng(0)
    weights = random.integers(1, 30, 300) if weighed else None
    log = Queries.of([random.choice(280, 9, replace=False) for _ in range(150)], 300)
    problem = Problem.of(log, 40 if weighed else 7, AccessPrices(10, 1), keys=50, weights=weights)
    found = baseline(problem, name, order=random.permutation(300))
    assert fits(problem, found.pack_of)
    assert found.cost == cost_of(problem, found.pack_of)
    assert (found.pack_of == KEYED).any() == (name in ("PO", "C-P", "P-C"))


def test_range_follows_the_order():
    problem = Problem.of(Queries.of([[0]], 5), 2, AccessPrices(10, 1))
    assert baseline(problem, "range", order=np.array([4, 0, 3, 1, 2])).pack_of.tolist() == [0, 1, 2, 1, 0]


def test_unknown_name():
    with pytest.raises(InvalidInputError, match="P1"):
        baseline(Problem.of(Queries.of([[0]], 5), 2, AccessPrices(10, 1)), "P2")
