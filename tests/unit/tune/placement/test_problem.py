"""The model: the cost by its definition, the paper's Figure 6, and what fits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperslab.errors import InvalidInputError
from hyperslab.plan import AccessPrices
from hyperslab.tune.placement.problem import KEYED, Placement, Problem, Queries, cost_of, fits

FIGURE_6 = [[0, 1, 2, 3], [4, 5, 6, 7]] + 5 * [[3, 4]]


@st.composite
def placed(draw):
    """Queries over a few arrays, and any placement of these."""
    arrays = draw(st.integers(1, 7))
    queries = draw(st.lists(st.lists(st.integers(0, arrays - 1), max_size=9), max_size=8))
    return queries, np.array(draw(st.lists(st.integers(KEYED, 3), min_size=arrays, max_size=arrays)))


@given(placed(), st.integers(0, 3))
def test_cost_is_the_definition_s(case, request_s):
    queries, pack_of = case
    wanted = np.zeros((len(queries), len(pack_of)))
    for row, query in enumerate(queries):
        wanted[row, query] = 1
    stored = pack_of == np.arange(4)[:, None]
    touches = np.count_nonzero(stored @ wanted.T)
    keys = wanted @ (pack_of == KEYED)
    problem = Problem.of(Queries.of(queries, len(pack_of)), 9, AccessPrices(10, 2, request_s))
    found = cost_of(problem, pack_of)
    assert (found.touches, found.keys, found.requests) == (touches, keys.sum(), np.count_nonzero(keys))
    assert found.seconds == 10 * touches + 2 * keys.sum() + request_s * np.count_nonzero(keys)


def test_figure_6():
    problem = Problem.of(Queries.of(FIGURE_6, 8), 3, AccessPrices(10, 1), keys=2)
    found = cost_of(problem, np.array([0, 0, 0, KEYED, KEYED, 1, 1, 1]))
    assert (found.touches, found.keys) == (2, 12)
    assert fits(problem, np.array([0, 0, 0, KEYED, KEYED, 1, 1, 1]))


def test_equal_queries_are_one_that_ran_more_often():
    log = Queries.of([[3, 1], [], [1, 3, 3], [2]], 5)
    assert [log.indices[a:b].tolist() for a, b in zip(log.indptr, log.indptr[1:], strict=False)] == [[1, 3], [2]]
    assert log.times.tolist() == [2, 1]
    assert log.read_by().tolist() == [0, 2, 1, 2, 0]
    again = Queries.of_csr([0, 2, 2, 5, 6], [3, 1, 1, 3, 3, 2], 5)
    assert (again.indptr.tolist(), again.times.tolist()) == (log.indptr.tolist(), log.times.tolist())


def test_only_some_queries():
    log = Queries.of([[0, 1], [2], [3, 4, 5]], 6)
    for chosen in (np.array([2, 0]), np.array([True, False, True])):
        some = log.only(chosen)
        assert sorted(some.lengths.tolist()) == [2, 3]
        assert sorted(some.indices.tolist()) == [0, 1, 3, 4, 5]


def test_limits_are_strict():
    problem = Problem.of(Queries.of([[0, 1]], 4), 5, AccessPrices(1, 1), keys=3, weights=[3, 3, 2, 9], packs=3)
    assert fits(problem, np.array([0, 1, 1, 2]))
    assert fits(problem, np.array([KEYED, 0, 0, 1]))
    assert not fits(problem, np.array([0, 0, 1, 2])), "a pack too full"
    assert not fits(problem, np.array([KEYED, 0, KEYED, 1])), "the tier too full"
    assert not fits(problem, np.array([0, 1, 2, 2])), "beside an array that is a pack by itself"
    assert not fits(problem, np.array([0, 1, 2, 3])), "too many packs"


def test_packs_are_numbered_without_gaps():
    problem = Problem.of(Queries.of([[0, 1]], 4), 5, AccessPrices(1, 1), keys=3)
    assert Placement.of(problem, np.array([7, KEYED, 3, 7]), "test").pack_of.tolist() == [1, KEYED, 0, 1]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Queries.of([[0, 5]], 5),
        lambda: Queries.of([[-1]], 5),
        lambda: Queries.of_csr([0, 3], [1, 2], 5),
        lambda: Queries.of_csr([0, 2, 1, 2], [1, 2], 5),
        lambda: Problem.of(Queries.of([[0]], 2), 0, AccessPrices(1, 1)),
        lambda: Problem.of(Queries.of([[0]], 2), 1, AccessPrices(1, 1), keys=-1),
        lambda: Problem.of(Queries.of([[0]], 2), 1, AccessPrices(1, 1), weights=[1]),
        lambda: Problem.of(Queries.of([[0]], 2), 1, AccessPrices(1, 1), weights=[1, 0]),
        lambda: AccessPrices(0, 1),
        lambda: AccessPrices(1, float("nan")),
    ],
)
def test_what_cannot_be_is_refused(make):
    with pytest.raises(InvalidInputError):
        make()
