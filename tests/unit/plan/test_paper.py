"""Algorithm 1 as the paper describes it."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.brute import needs_of, rows_of
from support.profiles import times

from hyperslab.layout import ChunkKeys, Layout
from hyperslab.plan import CostModel, Needs, Prices, Profile, Units, make_plan, pieces_of
from hyperslab.plan.paper import paper, refine
from hyperslab.selection import parse

FREE = Prices.named("free")


def toy(latency: float) -> CostModel:
    """One byte a second: a gap is worth opening where it has more bytes than a request takes seconds."""
    return CostModel(Profile("toy", latency, (1,), (1.0,), 1), FREE)


class Recorded:
    """A cost in place of the model's, that remembers what was asked."""

    def __init__(self, cost):
        self.of, self.asked = cost, []

    def cost(self, requests: int, nbytes: int, largest: int) -> float:
        assert requests == 1
        assert nbytes == largest
        self.asked.append(nbytes)
        return self.of(nbytes)


def figure_6():
    """Rows 1 to 2, columns 1 to 2; rows 2 to 3, columns 2 to 3; row 2, column 5: of a row-major array 6 wide."""
    one = np.dtype("i1")
    layout = Layout((4, 6), one, (4, 6), ChunkKeys("", "/", "c"), np.zeros((), one), one, (0, 1))
    keys = [(slice(1, 3), slice(1, 3)), (slice(2, 4), slice(2, 4)), (2, 5)]
    return [pieces_of(layout, parse(key, layout.shape)) for key in keys]


def test_decomposition_of_figure_6():
    plan = make_plan(figure_6(), toy(3.0), "fetch")
    assert rows_of(plan.requests) == [(0, 7, 9), (0, 13, 16), (0, 17, 18), (0, 20, 22)]


def test_refinement_of_figure_6():
    """The group of all is split into r1 and r2 → r4; then r1 is not halved, and r2 → r4 is not split."""
    assert rows_of(make_plan(figure_6(), toy(3.0), "paper").requests) == [(0, 7, 9), (0, 13, 22)]
    recorded = Recorded(lambda nbytes: 3 + nbytes)
    ranges = [(7, 9), (13, 16), (17, 18), (20, 22)]
    starts, stops = np.array(ranges).T
    assert refine(starts, stops, recorded) == [(7, 9), (13, 22)]
    # r1 → r4, its two groups; r1, its halves; r2 → r4, r2 → r3 and r4.
    assert recorded.asked == [15, 2, 9, 2, 1, 1, 9, 5, 2]


def test_refinement_goes_on_while_it_is_cheaper():
    starts, stops = np.array([7, 13, 17, 20]), np.array([9, 16, 18, 22])
    assert refine(starts, stops, toy(1.5)) == [(7, 9), (13, 18), (20, 22)]
    assert refine(starts, stops, toy(0.5)) == [(7, 9), (13, 16), (17, 18), (20, 22)]
    assert refine(starts, stops, toy(9.0)) == [(7, 22)]


def test_of_equal_gaps_the_one_of_the_most_even_split_is_opened():
    recorded = Recorded(lambda nbytes: nbytes if nbytes > 5 else 0)
    starts = np.arange(4) * 4
    refine(starts, starts + 1, recorded, align=0)
    assert recorded.asked[:3] == [13, 5, 5]
    recorded = Recorded(lambda nbytes: nbytes)
    starts = np.arange(7) * 4
    refine(starts, starts + 1, recorded)
    assert sorted(recorded.asked[1:3]) == [9, 13]


def test_a_single_range_is_halved_between_cells_while_that_is_cheaper():
    square = Recorded(lambda nbytes: nbytes**2)
    assert refine(np.array([10]), np.array([30]), square, align=4) == [(10, 14), (14, 18), (18, 22), (22, 26), (26, 30)]
    # An encoded range stays whole.
    assert refine(np.array([10]), np.array([30]), square, align=0) == [(10, 30)]


def test_no_ranges_are_no_requests():
    none = np.zeros(0, np.int64)
    assert refine(none, none, toy(1.0)) == []


def test_a_whole_chunk_is_taken_where_it_costs_no_more():
    chunks = Units(np.array([0, 1]), np.array([0, 0]), np.array([12, 1000]))
    starts = np.array([0, 10, 0, 998])
    needs = Needs.sorted(chunks, np.array([0, 0, 1, 1]), np.arange(4), starts, starts + 2, 1, overlapping=False)
    assert rows_of(paper(needs, toy(100.0))) == [(0, 0, 12), (1, 0, 2), (1, 998, 1000)]


@settings(max_examples=times(80), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5), st.integers(0, 19), st.integers(1, 20)), min_size=1),
    st.floats(0.0, 40.0),
)
def test_requests_hold_what_is_needed_chunk_by_chunk(wanted, latency):
    """Chunks of 20 bytes, six in an object; the paper plans each by itself."""
    rows = sorted({(obj, 20 * chunk + low, 20 * chunk + min(low + n, 20)) for obj, chunk, low, n in wanted})
    chunks = sorted({(obj, start // 20) for obj, start, _ in rows})
    objects, places = np.array(chunks).T
    units = np.array([chunks.index((obj, start // 20)) for obj, start, _ in rows])
    needs = Needs.sorted(
        Units(objects, places * 20, places * 20 + 20), units, units,
        np.array([row[1] for row in rows]), np.array([row[2] for row in rows]), 1, overlapping=True,
    )  # fmt: skip
    requests = rows_of(paper(needs, toy(latency)))
    assert requests == sorted(requests)
    assert all(start // 20 == (stop - 1) // 20 for _, start, stop in requests)
    fetched = [(obj, place) for obj, start, stop in requests for place in range(start, stop)]
    assert len(fetched) == len(set(fetched))
    assert {(obj, place) for obj, start, stop in rows for place in range(start, stop)} <= set(fetched)


def test_many_chunks_take_time_in_proportion():
    needed = [(obj, 0, 10) for obj in range(30_000)]
    assert len(paper(needs_of(needed), toy(1.0))) == 30_000
