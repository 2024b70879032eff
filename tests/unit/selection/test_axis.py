"""Selections cut at chunk borders, runs of cells cut into boxes."""

from itertools import product

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.arrays import tries

from hyperslab.errors import InvalidInputError
from hyperslab.selection import Box, Picks, Span, boxes_of_run, project

spans = st.builds(Span, st.integers(0, 300), st.integers(0, 120), st.integers(1, 9) | st.integers(1, 500))
picks = st.lists(st.integers(0, 400), max_size=40, unique=True).map(lambda cells: Picks(np.array(sorted(cells), "i8")))


@tries(800, soak=150_000)
@given(spans | picks, st.integers(1, 20) | st.integers(1, 500))
@example(Span(0, 100, 1), 1)
@example(Span(3, 100, 7), 2)
@example(Span(0, 0), 4)
@example(Picks(np.zeros(0, "i8")), 4)
def test_parts_are_the_cells_of_each_chunk(axis, chunk):
    cells = axis.indices()
    parts = project(axis, chunk)
    assert parts.chunks == sorted(set((cells // chunk).tolist()))
    assert len(parts) == len(parts.places) == len(parts.counts) == len(parts.lows)
    assert sum(parts.counts) == axis.count
    within = np.arange(chunk)
    place = 0
    for i, at in enumerate(parts.chunks):
        mine = cells[cells // chunk == at]
        assert (within[parts.source(i)] + at * chunk).tolist() == mine.tolist()
        assert parts.target(i) == slice(place, place + len(mine))
        assert parts.lows[i] == mine[0] - at * chunk
        place += len(mine)
    assert all(
        type(number) is int for column in (parts.chunks, parts.places, parts.counts, parts.lows) for number in column
    )


@st.composite
def runs(draw):
    counts = tuple(draw(st.lists(st.integers(1, 6), max_size=4)))
    size = int(np.prod(counts, dtype=int))
    first = draw(st.integers(0, size - 1))
    return counts, first, draw(st.integers(first, size - 1))


@tries(800, soak=150_000)
@given(runs())
@example(((), 0, 0))
def test_boxes_of_a_run_hold_its_cells_once(case):
    counts, first, last = case
    touched = np.zeros(counts, int)
    boxes = (
        boxes_of_run(np.unravel_index(first, counts), np.unravel_index(last, counts), counts)
        if counts
        else boxes_of_run((), (), ())
    )
    for box in boxes:
        assert all(0 <= some.start < some.stop <= n for some, n in zip(box, counts, strict=True))
        touched[box] += 1
    assert touched.reshape(-1).tolist() == [int(first <= cell <= last) for cell in range(touched.size)]
    assert len(boxes) <= max(1, 2 * len(counts) - 1)


def test_boxes_of_every_small_run():
    for counts in product(range(1, 4), repeat=3):
        size = int(np.prod(counts))
        for first in range(size):
            for last in range(first, size):
                touched = np.zeros(counts, int)
                for box in boxes_of_run(np.unravel_index(first, counts), np.unravel_index(last, counts), counts):
                    touched[box] += 1
                assert (touched.reshape(-1)[first : last + 1] == 1).all()
                assert touched.sum() == last + 1 - first


boxes = st.tuples(*[st.tuples(st.integers(0, 8), st.integers(0, 8)).map(sorted)] * 2).map(
    lambda sides: Box(tuple(a for a, _ in sides), tuple(b for _, b in sides))
)


@tries(300)
@given(boxes, boxes)
def test_boxes_intersect_as_sets_of_cells(one, other):
    cells = np.zeros((9, 9), int)
    cells[one.slices] += 1
    cells[other.slices] += 1
    both = one.intersect(other)
    assert both.size == (cells == 2).sum()
    assert (cells[both.slices] == 2).all()


@tries(200)
@given(boxes, st.integers(0, 4), st.integers(0, 4))
def test_boxes_grow_within_the_array(box, up, across):
    grown = box.grow((up, across), within=(9, 9))
    assert grown.intersect(box) == box or not box.size
    assert all(a >= 0 and b <= 9 for a, b in zip(grown.start, grown.stop, strict=True))
    assert grown.shape <= tuple(n + 2 * h for n, h in zip(box.shape, (up, across), strict=True))


def test_a_box_has_two_corners_of_equal_length():
    with pytest.raises(InvalidInputError, match="starts in 1 axes and stops in 2"):
        Box((1,), (2, 3))
