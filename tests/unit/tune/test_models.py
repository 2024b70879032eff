"""The models of the paper on optimal chunking: every table it prints, and the closed forms against all there is."""

from fractions import Fraction
from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperslab.errors import InvalidInputError
from hyperslab.tune.greedy import qs_greedy
from hyperslab.tune.models import (
    expected_chunks,
    iar_cost,
    iar_powers,
    iar_real,
    mean_adjusted,
    qs_cost,
    ss_cost,
)
from hyperslab.tune.shares import iar_shapes, qs_shapes, range_shares
from hyperslab.tune.touched import chunks_touched

# Table 2: what the four queries ask for, as (start, stop) along two axes.
TABLE_2 = [((1, 3), (2, 5)), ((4, 7), (6, 10)), ((5, 9), (3, 6)), ((6, 8), (4, 7))]
SHAPES = [tuple(stop - start for start, stop in query) for query in TABLE_2]
# Table 6, a row for each shape; these are adjusted already.
TABLE_6 = [(100, 17, 23, 35, 40), (75, 14, 12, 60, 30), (80, 10, 14, 45, 21), (165, 26, 9, 70, 34)]
PROBABILITIES = (0.4, 0.2, 0.3, 0.1)
TABLE_8 = (22.7, 54.79, 146.04, 71.5)


@pytest.mark.parametrize(
    ("chunks", "ss", "exact", "error"), [((8, 64, 8), 75, 179.2449, 139), ((8, 16, 32), 80, 129.95, 62)]
)
def test_table_1(chunks, ss, exact, error):
    shapes = [(40, 60, 120)]
    assert ss_cost(shapes, None, chunks) == ss
    assert qs_cost(shapes, None, chunks) == pytest.approx(exact, rel=1e-6)
    assert expected_chunks(shapes, chunks) == pytest.approx([exact], rel=1e-6)
    assert round(100 * (qs_cost(shapes, None, chunks) / ss - 1)) == error


def test_table_1_decides_otherwise_by_the_older_model():
    """The text says "over 38% cost saving"; it is 37.9% more for the shape that the older model takes."""
    shapes, first, second = [(40, 60, 120)], (8, 64, 8), (8, 16, 32)
    assert ss_cost(shapes, None, first) < ss_cost(shapes, None, second)
    assert qs_cost(shapes, None, first) / qs_cost(shapes, None, second) == pytest.approx(1.379, abs=1e-3)


def test_table_2():
    assert SHAPES == [(2, 3), (3, 4), (4, 3), (2, 3)]


def test_table_3():
    assert range_shares(SHAPES) == [{2: 1 / 2, 3: 1 / 4, 4: 1 / 4}, {3: 3 / 4, 4: 1 / 4}]


def test_table_4():
    sixteenths = {(2, 3): 6, (2, 4): 2, (3, 3): 3, (3, 4): 1, (4, 3): 3, (4, 4): 1}
    assert dict(iar_shapes(SHAPES)) == {shape: n / 16 for shape, n in sixteenths.items()}
    assert qs_shapes(SHAPES) == {(2, 3): 1 / 2, (3, 4): 1 / 4, (4, 3): 1 / 4}


def test_shares_follow_the_weights():
    assert qs_shapes([(2, 3), (1, 1), (2, 3)], (2, 3, 3)) == {(1, 1): 3 / 8, (2, 3): 5 / 8}
    assert range_shares([(2, 3), (1, 3)], (1, 3)) == [{1: 3 / 4, 2: 1 / 4}, {3: 1.0}]


def test_shapes_of_independent_ranges_are_made_one_by_one():
    """Of 20 axes with 3 ranges each there are 3.5 billion."""
    shapes = iar_shapes([[1] * 20, [2] * 20, [3] * 20])
    assert next(shapes) == ((1,) * 20, pytest.approx(3.0**-20))


def test_table_5():
    adjusted = (5.7, 9.4, 12.5, 24.9, 30.2)
    chunks = iar_real(adjusted, 8192)
    assert chunks == pytest.approx([2.501088, 4.124602, 5.484843, 10.92581, 13.25138], rel=1e-6)
    logs = np.log2(chunks)
    assert logs == pytest.approx([1.322556, 2.044255, 2.45545, 3.449668, 3.728071], rel=1e-6)
    assert logs.sum() == pytest.approx(13)
    assert logs % 1 == pytest.approx([0.322556, 0.044255, 0.45545, 0.449668, 0.728071], rel=2e-5)
    assert (logs % 1).sum() == pytest.approx(2)
    assert iar_powers(adjusted, 13) == (1, 2, 3, 3, 4)
    assert [2**y for y in iar_powers(adjusted, 13)] == [2, 4, 8, 8, 16]


# The first rows are printed too high, by 0.79, 0.40, 0.20, 0.10 and 0.05, half as much with each step, as if a length
# had been rounded for the print; that is 2e-8 of the first row. Row 14 is cut, not rounded.
TABLE_7 = {
    0: ((0, 0, 0, 0, 0), 46_560_641.59),
    1: ((1, 0, 0, 0, 0), 23_503_316.20),
    2: ((2, 0, 0, 0, 0), 11_974_653.50),
    3: ((2, 0, 0, 1, 0), 6_122_765.65),
    4: ((2, 0, 0, 1, 1), 3_147_627.72),
    14: ((4, 2, 2, 3, 3), 6233.26),
    15: ((5, 2, 2, 3, 3), 3537.00),
    16: ((5, 2, 2, 4, 3), 2041.87),
}


def test_tables_6_and_7():
    """Algorithm 1 is printed with "while sum <= C'", which makes a step too many; the table stops at C'."""
    found = qs_greedy(TABLE_6, PROBABILITIES, 16)
    assert len(found.trace) == 17
    for step, (exponents, cost) in TABLE_7.items():
        assert found.trace[step] == (exponents, pytest.approx(cost, rel=1e-5))
    assert (found.exponents, found.cost) == found.trace[-1]
    assert qs_cost(np.add(TABLE_6, 1), PROBABILITIES, np.exp2(found.exponents)) == pytest.approx(found.cost)


@pytest.mark.parametrize(
    ("cells", "chunks", "best", "symmetric"),
    [
        (2048, (2, 8, 16, 8), 9755.44, 15862.39),
        (4096, (4, 8, 16, 8), 5272.677, 5763.278),
        (8192, (4, 8, 32, 8), 2896.653, 3846.639),
        (16384, (4, 8, 32, 16), 1594.07, 1961.929),
    ],
)
def test_table_8(cells, chunks, best, symmetric):
    """Symmetric chunks are as long as whole numbers allow: 6, 8, 9 and 11 cells, so that three of them are smaller."""
    assert tuple(2**y for y in iar_powers(TABLE_8, cells.bit_length() - 1)) == chunks
    assert iar_cost(TABLE_8, chunks) == pytest.approx(best, rel=1e-6)
    side = int(cells**0.25)
    assert iar_cost(TABLE_8, (side,) * 4) == pytest.approx(symmetric, rel=1e-6)
    assert iar_cost(TABLE_8, iar_real(TABLE_8, cells)) <= best


def test_independent_ranges_cost_the_mean_over_all_shapes_they_allow():
    """Lemma 5.2 from Lemma 5.1."""
    chunks = (2, 3)
    shapes, shares = zip(*iar_shapes(SHAPES), strict=True)
    assert iar_cost(mean_adjusted(SHAPES), chunks) == pytest.approx(qs_cost(shapes, shares, chunks))


@given(st.integers(1, 60), st.integers(1, 20))
def test_lemma_5_1_is_the_mean_over_all_offsets_in_a_chunk(length, chunk):
    counts = chunks_touched(np.arange(chunk)[:, None], np.full((chunk, 1), length), (chunk,))
    mean = Fraction(int(counts.sum()), chunk)
    assert mean == Fraction(length - 1, chunk) + 1
    assert expected_chunks([[length]], (chunk,)) == pytest.approx([float(mean)])


@pytest.mark.parametrize("ndim", [2, 3, 4, 5])
def test_predicted_chunks_are_within_2_percent_of_counted_ones(ndim):
    """Random boxes anywhere in an array much larger than they are (Figure 4)."""
    random = np.random.default_rng(ndim)
    for _ in range(5):
        chunks = random.integers(2, 33, ndim)
        shapes = random.integers(1, 101, (20_000, ndim))
        starts = random.integers(0, 1_000_000, shapes.shape)
        counted = chunks_touched(starts, shapes, chunks).mean()
        assert qs_cost(shapes, None, chunks) == pytest.approx(counted, rel=0.02)


def all_exponents(tops, most):
    """All points of exponents that sum up to at most `most`."""
    return np.array([y for y in product(*(range(top + 1) for top in tops)) if sum(y) <= most])


adjusted_lengths = st.one_of(st.just(0.0), st.floats(0.01, 5000), st.integers(1, 300).map(float))


@given(
    st.lists(st.tuples(adjusted_lengths, st.integers(1, 70)), min_size=1, max_size=4), st.integers(0, 12), st.booleans()
)
def test_powers_of_independent_ranges_are_the_best(axes, log2_cells, limited):
    adjusted, limits = zip(*axes, strict=True)
    tops = [min(log2_cells, (limit - 1).bit_length() if limited else log2_cells) for limit in limits]
    found = iar_powers(adjusted, log2_cells, limits if limited else None)
    assert sum(found) <= log2_cells
    assert all(0 <= y <= top for y, top in zip(found, tops, strict=True))
    best = (1 + np.array(adjusted) / 2.0 ** all_exponents(tops, log2_cells)).prod(axis=1).min()
    assert iar_cost(adjusted, np.exp2(found)) == pytest.approx(best, rel=1e-9)


@given(
    st.lists(st.tuples(adjusted_lengths, st.integers(1, 500)), min_size=1, max_size=5),
    st.floats(1, 1e6),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_real_lengths_are_the_best_and_use_all_cells(axes, cells, limited, random):
    adjusted, limits = zip(*axes, strict=True)
    tops = [(limit if limited else cells) if length else 1 for length, limit in axes]
    found = iar_real(adjusted, cells, limits if limited else None)
    assert (found >= 1).all()
    assert (found <= np.array(tops) * (1 + 1e-9)).all()
    assert found.prod() == pytest.approx(min(cells, prod(tops)), rel=1e-9)
    for _ in range(20):
        # Some other lengths with as many cells at most: none is better.
        sides = [random.uniform(0, np.log(top)) for top in tops]
        scale = min(1.0, np.log(cells) / sum(sides)) if sum(sides) > 1e-9 else 1.0
        assert iar_cost(adjusted, np.exp(np.array(sides) * scale)) >= iar_cost(adjusted, found) * (1 - 1e-9)


def test_real_lengths_at_their_limits():
    assert iar_real((0, 7, 7), 64).tolist() == pytest.approx([1, 8, 8])
    assert iar_real((0, 0), 64).tolist() == [1, 1]
    assert iar_real((7, 7, 7), 4096, limits=(4, 1000, 1000)) == pytest.approx([4, 32, 32])
    assert iar_real((7, 7), 4096, limits=(3, 5)).tolist() == pytest.approx([3, 5])
    # In proportion, the second axis would get a quarter of a cell.
    assert iar_real((64, 0.25), 16) == pytest.approx([16, 1])


def test_greedy_stops_where_nothing_is_gained():
    assert qs_greedy([(0, 7)], None, 5, limits=(100, 8)).exponents == (0, 3)
    assert qs_greedy([(0, 0)], None, 5).trace == (((0, 0), 1.0),)
    assert qs_greedy([(5, 5)], None, 0).exponents == (0, 0)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: expected_chunks([4, 4], (2, 2)),
        lambda: expected_chunks([[4, 0]], (2, 2)),
        lambda: expected_chunks([[4, 4]], (2, 0)),
        lambda: expected_chunks([[4, 4]], (2,)),
        lambda: qs_cost([[4, 4]], (1, 2), (2, 2)),
        lambda: qs_cost([[4, 4]], (-1,), (2, 2)),
        lambda: qs_cost([[4, 4]], (0,), (2, 2)),
        lambda: iar_real((1, -1), 64),
        lambda: iar_real((1, 1), 0.5),
        lambda: iar_real((1, np.nan), 64),
        lambda: iar_real((1, 1), 64, limits=(3,)),
        lambda: iar_powers((1, 1), -1),
        lambda: iar_powers((1, 1), 4, limits=(3,)),
        lambda: qs_greedy(np.zeros((0, 2)), None, 4),
        lambda: qs_greedy([[1e200, 1e200]], None, 4),
    ],
)
def test_wrong_input_is_refused(wrong):
    with pytest.raises(InvalidInputError):
        wrong()
