"""The exact optimum against all there is, and the bounds it rests on."""

from itertools import product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.profiles import times

from hyperslab.errors import InvalidInputError
from hyperslab.tune import exact, tree
from hyperslab.tune.exact import qs_exact
from hyperslab.tune.greedy import Greedy, qs_greedy
from hyperslab.tune.tangents import Box, Tangent, Terms


def all_points(ndim, log2_cells, limits=None):
    tops = [log2_cells if limits is None else min(log2_cells, (limits[i] - 1).bit_length()) for i in range(ndim)]
    return np.array([y for y in product(*(range(top + 1) for top in tops)) if sum(y) <= log2_cells])


def all_costs(adjusted, weights, log2_cells, limits=None):
    """The costs of all there are, one by one."""
    adjusted, shares = np.asarray(adjusted, float), np.asarray(weights, float) / np.sum(weights)
    points = all_points(adjusted.shape[1], log2_cells, limits)
    terms = np.ones((len(points), len(adjusted)))
    for axis in range(adjusted.shape[1]):
        terms *= 1 + adjusted[:, axis] / 2.0 ** points[:, axis, None]
    return terms @ shares


def check(adjusted, weights, log2_cells, limits=None):
    found = qs_exact(adjusted, weights, log2_cells, limits)
    greedy = qs_greedy(adjusted, weights, log2_cells, limits)
    assert found.proven
    assert found.cost <= greedy.cost
    assert found.cost == pytest.approx(all_costs(adjusted, weights, log2_cells, limits).min(), rel=1e-10)
    assert sum(found.exponents) <= log2_cells
    shares = np.asarray(weights) / np.sum(weights)
    terms = 1 + np.asarray(adjusted, float) / np.exp2(found.exponents)
    assert found.cost == pytest.approx(shares @ terms.prod(axis=1), rel=1e-12)
    if limits is not None:
        assert all(y <= (n - 1).bit_length() for y, n in zip(found.exponents, limits, strict=True))


COUNTEREXAMPLE = [(10, 8, 12), (12, 2, 456)], (0.647, 0.353), 9


def test_greedy_is_not_always_best():
    """Theorem C.2 of the paper says that it is."""
    greedy, best = qs_greedy(*COUNTEREXAMPLE), qs_exact(*COUNTEREXAMPLE)
    assert (greedy.exponents, round(greedy.cost, 2)) == ((3, 1, 5), 36.92)
    assert (best.exponents, round(best.cost, 2)) == ((2, 1, 6), 36.39)
    assert all_costs(*COUNTEREXAMPLE).min() == pytest.approx(best.cost)


lengths = st.one_of(st.just(0), st.integers(0, 12), st.integers(0, 3000), st.floats(0, 50))


@st.composite
def workloads(draw):
    ndim = draw(st.integers(2, 4))
    shapes = draw(st.lists(st.tuples(*[lengths] * ndim), min_size=1, max_size=8))
    weights = draw(st.lists(st.floats(1e-3, 1), min_size=len(shapes), max_size=len(shapes)))
    limits = draw(st.none() | st.tuples(*[st.integers(1, 300)] * ndim))
    return shapes, weights, draw(st.integers(0, 12)), limits


@given(workloads())
@example((*COUNTEREXAMPLE, None))
@example(([(0, 0)], [1.0], 5, None))
@example(([(7, 7, 7)] * 3, [1.0, 2.0, 3.0], 7, (1, 1, 1)))
def test_nothing_is_better(workload):
    check(*workload)


@settings(max_examples=times(150))
@given(workloads(), st.integers(0, 2), st.integers(1, 3), st.integers(1, 30), st.integers(1, 5), st.integers(1, 40))
def test_the_best_is_found_from_the_second_best(workload, tangents, groups, ends, block, table):
    """As a rule the greedy's answer is best already, and a search that finds nothing would do.

    So it begins just above the best here, where a bound that is too high by a little is a mistake; with few groups, few
    ends and small tables, so that small workloads go every way that large ones do.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "_GROUPS", groups)
        patch.setattr(exact, "_ROOT_TANGENTS", tangents)
        patch.setattr(tree, "_MOST_ENDS", ends)
        patch.setattr(tree, "_BLOCK", block)
        patch.setattr(tree, "_TABLE", table)
        check_from_second_best(patch, *workload)


def check_from_second_best(patch, adjusted, weights, log2_cells, limits=None):
    costs = all_costs(adjusted, weights, log2_cells, limits)
    others = np.flatnonzero(costs > costs.min() * (1 + 1e-9))
    if len(others):
        second = others[costs[others].argmin()]
        point = all_points(len(adjusted[0]), log2_cells, limits)[second]
        patch.setattr(exact, "qs_greedy", lambda *_: Greedy(tuple(point.tolist()), costs[second], ()))
        patch.setattr(exact, "_exchange", lambda *_: None)
        assert qs_exact(adjusted, weights, log2_cells, limits).cost == pytest.approx(costs.min(), rel=1e-10)


def families(random, count, ndim):
    """Workloads of several kinds; in the last ones, what suits one shape does not suit another."""
    size = count, ndim
    yield random.integers(0, 1000, size)
    yield random.integers(0, 12, size)
    yield np.floor(np.exp(random.normal(1, 3, size)))
    yield np.floor(random.random(size) * 2.0 ** random.integers(0, 14, ndim))
    yield np.where(random.random(size) < 0.3, 255, 0)
    yield np.where(random.random(size).argsort(axis=1) == 0, random.integers(1, 4096, size), 0)
    yield np.where(random.random(size).argsort(axis=1) <= 1, random.integers(1, 4096, size), 0)


@pytest.mark.parametrize("family", range(7))
@pytest.mark.parametrize(("ndim", "log2_cells"), [(3, 16), (4, 13), (5, 9)])
def test_nothing_is_better_for_many_shapes(family, ndim, log2_cells):
    """More shapes than there are groups."""
    random = np.random.default_rng([family, ndim])
    adjusted = list(families(random, 300, ndim))[family]
    check(adjusted, random.random(300), log2_cells)
    check(adjusted, random.random(300), log2_cells, limits=random.integers(2, 100, ndim).tolist())


@pytest.mark.parametrize("tangents", [0, 2, 24])
@pytest.mark.parametrize("family", range(7))
def test_the_best_of_many_shapes_is_found_from_the_second_best(family, tangents, monkeypatch):
    random = np.random.default_rng([family, tangents])
    adjusted = list(families(random, 300, 5))[family]
    monkeypatch.setattr(exact, "_ROOT_TANGENTS", tangents)
    monkeypatch.setattr(tree, "_MOST_ENDS", 20)
    check_from_second_best(monkeypatch, adjusted, random.random(300), 9)


@pytest.mark.parametrize("family", range(7))
def test_ten_axes_are_proven(family):
    random = np.random.default_rng(family)
    adjusted = list(families(random, 1000, 10))[family]
    greedy, best = qs_greedy(adjusted, None, 20), qs_exact(adjusted, None, 20)
    assert best.proven
    assert best.cost <= greedy.cost
    # Bounded work, whatever the machine: all points would be 10**10 terms.
    assert best.terms < 10**9


def test_work_can_be_bounded():
    """What is found is then still no worse than the greedy's."""
    random = np.random.default_rng(5)
    adjusted = list(families(random, 1000, 10))[5]
    for most in (0, 10**6, 10**7):
        found = qs_exact(adjusted, None, 23, most_terms=most)
        assert not found.proven
        assert found.cost <= qs_greedy(adjusted, None, 23).cost


def test_what_needs_no_search_is_proven_with_any_bound():
    assert qs_exact([(10, 8, 12)], None, 9, most_terms=0).proven


@pytest.mark.parametrize("ndim", [1, 40, 64])
def test_any_number_of_axes(ndim):
    """The most that NumPy's arrays have is 64."""
    adjusted = np.zeros((3, ndim))
    adjusted[:, -1] = 5, 6, 7
    adjusted[0, 0] = 9
    found = qs_exact(adjusted, None, 6)
    assert found.proven
    assert sum(found.exponents) == 6
    assert found.cost <= qs_greedy(adjusted, None, 6).cost


def test_shapes_that_never_come_and_repeated_ones_change_nothing():
    shapes, weights = [(10, 8, 12), (12, 2, 456)], (0.647, 0.353)
    best = qs_exact(shapes, weights, 9)
    more = qs_exact([*shapes, (900, 0, 0), shapes[0]], (0.3, 0.353, 0, 0.347), 9)
    assert more.exponents == best.exponents
    assert more.cost == pytest.approx(best.cost)


@given(workloads(), st.integers(0, 2**32 - 1))
def test_tangents_and_groups_are_lower_bounds(workload, seed):
    adjusted, weights, log2_cells, _ = workload
    random = np.random.default_rng(seed)
    tops = np.full(len(adjusted[0]), min(log2_cells, 5))
    terms = Terms.of(np.array(adjusted, float), np.array(weights), tops)
    points = random.integers(0, tops + 1, (50, len(tops)))
    costs = terms.costs(points)
    # At a point, and at numbers that belong to none.
    for logs in (np.log(terms.products(points[:1])[0]), random.normal(0, 2, len(weights))):
        tangent = Tangent.at(terms, logs)
        bounds = tangent.base + tangent.along(points)
        assert (bounds <= np.log(costs) + 1e-9).all()
        for total in set(points.sum(axis=1).tolist()):
            box = Box(np.zeros_like(tops), tops, total)
            least = tangent.base + tangent.along(box.least(tangent.heights)[None])[0]
            assert (least <= bounds[points.sum(axis=1) == total] + 1e-9).all()
        grouped = terms.grouped(tangent, Box(np.zeros_like(tops), tops, int(tops.sum())), 2)
        assert len(grouped.shares) <= 2 or grouped is terms
        assert (grouped.costs(points) <= costs * (1 + 1e-9)).all()
    at = Tangent.at(terms, np.log(terms.products(points[:1])[0]))
    assert at.base + at.along(points[:1]) == pytest.approx(np.log(costs[:1]), abs=1e-9)


@given(workloads(), st.integers(0, 2**32 - 1))
def test_no_beginning_leads_below_its_bound(workload, seed):
    """A search would seldom show it: the point at which a bound is taken is offered, and often it is the best."""
    adjusted, weights, _, _ = workload
    random = np.random.default_rng(seed)
    ndim, total = len(adjusted[0]), int(random.integers(1, 8))
    tops = np.full(ndim, 4)
    terms = Terms.of(np.array(adjusted, float), np.array(weights), tops)
    box = Box(np.zeros_like(tops), tops, total)
    root = Tangent.at(terms, random.normal(0, 2, len(weights)))
    grown = tree.Tree(terms, box, root, tree.Best(terms, np.zeros_like(tops)))
    points = np.array([y for y in product(range(5), repeat=ndim) if sum(y) == total])
    costs = terms.costs(points[:, grown._back])
    for depth in range(1, ndim):
        for beginning in np.unique(points[:, :depth], axis=0):
            least = costs[(points[:, :depth] == beginning).all(axis=1)].min()
            tail = grown._tail(depth, total - int(beginning.sum()))
            assert tail is not None
            assert grown._bound(beginning[None], tail)[0] <= np.log(least) + 1e-9


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: qs_exact([(1, -1)], None, 4),
        lambda: qs_exact([(1, 1)], None, 63),
        lambda: qs_exact([(1, 1)], (1, 1), 4),
        lambda: qs_exact([(1, 1)], None, 4, limits=(1, 2, 3)),
    ],
)
def test_wrong_input_is_refused(wrong):
    with pytest.raises(InvalidInputError):
        wrong()
