"""Orders fitted on attributes, and which plan is trusted."""

import numpy as np
import pytest

from hyperslab.errors import InvalidInputError
from hyperslab.plan import AccessPrices
from hyperslab.tune.placement.folds import WAYS, choose, choose_size, split
from hyperslab.tune.placement.orders import fit_order
from hyperslab.tune.placement.problem import KEYED, Problem, Queries, cost_of, fits

SIDE = 40
PLACES = np.stack(np.divmod(np.random.default_rng(0).permutation(SIDE * SIDE), SIDE), axis=1)


def squares(count, seed, side=4):
    """Queries for the arrays in squares at random places: hardly one comes twice."""
    corners = np.random.default_rng(seed).integers(0, SIDE - side, (count, 2))
    away = [PLACES - corner for corner in corners]
    return [np.flatnonzero(((each >= 0) & (each < side)).all(axis=1)) for each in away]


def scattered(kinds, count, seed):
    """The same few queries again and again, each for arrays that lie anywhere."""
    random = np.random.default_rng(seed)
    few = [random.choice(len(PLACES), 12, replace=False) for _ in range(kinds)]
    return [few[at] for at in random.integers(0, kinds, count)]


def problem_of(queries, **limits):
    return Problem.of(Queries.of(queries, len(PLACES)), 16, AccessPrices(10, 1), **limits)


def test_order_learns_the_shape_of_queries():
    rows = [np.flatnonzero(PLACES[:, 0] == row) for row in range(SIDE)]
    columns = [np.flatnonzero(PLACES[:, 1] == column) for column in range(SIDE)]
    for queries, axis in ((rows, 0), (columns, 1)):
        problem = problem_of(queries)
        order = fit_order(problem, PLACES)
        assert order.cells[axis] > order.cells[1 - axis]
        assert order.touches == cost_of(problem, order.packs(problem)).touches
        assert order.touches <= 1.3 * sum(-(-len(query) // 16) for query in queries)
        assert sorted(order.order.tolist()) == list(range(len(PLACES)))
        assert fits(problem, order.packs(problem))


def test_order_without_attributes_is_their_own():
    assert fit_order(problem_of([[0, 1]]), None).order.tolist() == list(range(len(PLACES)))


def test_new_queries_are_served_by_the_order():
    problem = problem_of(squares(300, 1))
    found = choose(problem, PLACES, folds=3)
    assert found.placement.by == "order"
    assert found.ways["log"].trained_s < found.ways["order"].trained_s, "the trap: the log's plan looks better"
    new = problem.reading(Queries.of(squares(300, 2), len(PLACES)))
    asked = cost_of(new, found.placement.pack_of).seconds / 300
    assert asked == pytest.approx(found.held_out_s, rel=0.15)


def test_queries_that_come_again_are_served_by_the_log():
    found = choose(problem_of(scattered(20, 300, 1)), PLACES, folds=3)
    assert found.placement.by == "log"
    assert found.held_out_s < 0.5 * found.ways["order"].held_out_s


@pytest.mark.parametrize("queries", [squares(100, 1), scattered(20, 100, 1)])
def test_keys_keep_their_limit(queries):
    problem = problem_of(queries, keys=30)
    found = choose(problem, PLACES, folds=2)
    assert fits(problem, found.placement.pack_of)
    assert 0 < (found.placement.pack_of == KEYED).sum() <= 30
    assert set(found.ways) == set(WAYS)


def test_unread_arrays_stand_in_the_fitted_order():
    problem = problem_of(scattered(3, 30, 1))
    found = choose(problem, PLACES, folds=2)
    assert found.placement.by == "log"
    unread = found.order.order[np.isin(found.order.order, problem.queries.indices, invert=True)]
    packs = found.placement.pack_of[unread]
    assert (np.diff(packs) >= 0).all()


def test_folds_hold_each_run_once():
    queries = Queries.of(5 * [[0]] + 3 * [[1, 2]] + [[3]], 4)
    parts = split(queries, 3, seed=1)
    runs = sum(held_out.times.sum() for _, held_out in parts)
    assert runs == 9
    for known, held_out in parts:
        assert known.times.sum() + held_out.times.sum() == 9
        assert known.read_by().tolist() == (queries.read_by() - held_out.read_by()).tolist()


def test_the_size_of_packs_is_chosen_by_held_out_queries():
    problem = problem_of(squares(200, 1))
    quick = choose_size(problem, {4: 1.0, 16: 1.0, 64: 1.0}, PLACES, folds=2)
    assert next(iter(quick)) == 64, "where all cost the same, the largest is best"
    priced = choose_size(problem, {4: 1.0, 16: 1.2, 64: 9.0}, PLACES, folds=2)
    assert next(iter(priced)) == 16
    costs = [each.held_out_s for each in priced.values()]
    assert costs == sorted(costs)


def test_choice_is_the_same_with_the_same_seed():
    problem = problem_of(squares(80, 1), keys=10)
    first, second = (choose(problem, PLACES, folds=2, seed=4) for _ in range(2))
    assert first.ways == second.ways
    assert (first.placement.pack_of == second.placement.pack_of).all()


@pytest.mark.parametrize("attributes", [np.zeros((3, 2)), np.zeros(len(PLACES)), np.full((len(PLACES), 1), np.nan)])
def test_attributes_must_be_numbers_for_each_array(attributes):
    with pytest.raises(InvalidInputError, match="attributes"):
        fit_order(problem_of([[0]]), attributes)


def test_too_few_queries_to_split():
    with pytest.raises(InvalidInputError, match="folds"):
        choose(problem_of([[0]]), PLACES)
