"""Chunks that boxes touch, against a walk over all cells and all places."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperslab.errors import InvalidInputError
from hyperslab.tune.touched import chunks_touched, expected_touched


def walk(start, count, chunks):
    """Return how many chunks hold a cell of the box."""
    cells = product(*(range(a, a + n) for a, n in zip(start, count, strict=True)))
    return len({tuple(i // c for i, c in zip(cell, chunks, strict=True)) for cell in cells})


axis = st.tuples(st.integers(0, 30), st.integers(0, 7), st.integers(1, 9))


@given(st.lists(axis, min_size=1, max_size=3))
def test_touched_chunks_are_those_with_a_cell(axes):
    start, count, chunks = zip(*axes, strict=True)
    assert chunks_touched([start], [count], chunks).tolist() == [walk(start, count, chunks)]


def test_many_boxes_at_once():
    random = np.random.default_rng(0)
    starts, counts = random.integers(0, 20, (200, 2)), random.integers(0, 9, (200, 2))
    touched = chunks_touched(starts, counts, (3, 5))
    assert touched.tolist() == [walk(s, n, (3, 5)) for s, n in zip(starts.tolist(), counts.tolist(), strict=True)]


side = st.integers(1, 14).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, 20)))


@given(st.lists(side, min_size=1, max_size=2))
def test_expectation_is_the_mean_over_all_places(axes):
    shape, count, chunks = zip(*axes, strict=True)
    places = list(product(*(range(n - a + 1) for n, a in zip(shape, count, strict=True))))
    counted = [walk(place, count, chunks) for place in places]
    assert expected_touched(shape, [count], chunks) == pytest.approx([np.mean(counted)], rel=1e-12)


def test_expectation_in_an_axis_too_long_for_sums_of_floors():
    length = 2**62
    assert expected_touched((length,), [(3,), (length,)], (2,)) == pytest.approx([2, 2**61], rel=1e-15)


@pytest.mark.parametrize("ndim", [2, 3, 4, 5])
def test_expected_chunks_in_small_arrays_are_within_2_percent_of_counted_ones(ndim):
    """Boxes nearly as large as the array, where the formula for large arrays is far off."""
    random = np.random.default_rng(10 + ndim)
    for _ in range(5):
        shape = random.integers(20, 100, ndim)
        chunks = random.integers(2, 33, ndim)
        counts = random.integers(1, shape + 1, (20_000, ndim))
        starts = random.integers(0, shape - counts + 1)
        counted = chunks_touched(starts, counts, chunks).mean()
        assert expected_touched(shape, counts, chunks).mean() == pytest.approx(counted, rel=0.02)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: chunks_touched([(0, 0)], [(1,)], (1, 1)),
        lambda: chunks_touched([(-1, 0)], [(1, 1)], (1, 1)),
        lambda: chunks_touched([(0, 0)], [(1, 1)], (1, 0)),
        lambda: chunks_touched([0, 0], [1, 1], (1, 1)),
        lambda: expected_touched((4, 4), [(5, 1)], (2, 2)),
        lambda: expected_touched((4, 4), [(1,)], (2, 2)),
        lambda: expected_touched((4, 4), [(1, -1)], (2, 2)),
        lambda: expected_touched((4, 4), [(1, 1)], (2,)),
    ],
)
def test_wrong_input_is_refused(wrong):
    with pytest.raises(InvalidInputError):
        wrong()
