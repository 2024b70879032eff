"""Rows of needed bytes: sorted, merged, joined and found again, against sets of bytes."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.brute import needs_of, rows_of
from support.profiles import times

from hyperslab.errors import InvalidInputError
from hyperslab.plan import Needs, Ranges, Units
from hyperslab.plan.optimise import fetch, get, merge
from hyperslab.plan.ranges import spans_in


def bytes_of(rows):
    return {(obj, place) for obj, start, stop in rows for place in range(start, stop)}


def row_list(objects=4, reach=60):
    row = st.tuples(st.integers(0, objects - 1), st.integers(0, reach), st.integers(1, 12))
    return st.lists(row.map(lambda r: (r[0], r[1], r[1] + r[2])), min_size=1, max_size=30)


def overlapping(rows, align=1):
    """Needs of rows in any order, each a read of its own."""
    return Needs.joined([needs_of([row], align) for row in rows])


@settings(max_examples=times(120), deadline=None)
@given(row_list(), st.booleans())
def test_merged_ranges_hold_the_same_bytes_once_and_do_not_touch(rows, scattered):
    needs = overlapping(rows) if scattered or len(rows) == 1 else Needs.joined([needs_of([r]) for r in sorted(rows)])
    merged = rows_of(needs.merged())
    assert bytes_of(merged) == bytes_of(rows)
    assert merged == sorted(merged)
    for a, b in pairwise(merged):
        assert a[0] < b[0] or a[2] < b[1]


@settings(max_examples=times(120), deadline=None)
@given(row_list(objects=2))
def test_encoded_rows_are_merged_only_where_they_overlap(rows):
    apart = rows_of(overlapping(rows, align=0).merged(encoded_apart=True))
    assert bytes_of(apart) == bytes_of(rows)
    for row in rows:
        # No row lies in two ranges.
        assert sum(a[0] == row[0] and a[1] <= row[1] and row[2] <= a[2] for a in apart) == 1
    for a, b in pairwise(apart):
        assert a[0] < b[0] or a[2] <= b[1]


def test_plain_and_encoded_rows_that_touch_stay_apart():
    rows = [(0, 0, 4), (0, 4, 8), (0, 8, 12), (0, 12, 16)]
    needs = needs_of(rows, align=[2, 2, 0, 2])
    assert rows_of(needs.merged(encoded_apart=True)) == [(0, 0, 8), (0, 8, 12), (0, 12, 16)]
    assert rows_of(needs.merged()) == [(0, 0, 16)]


def test_what_is_merged_of_unlike_rows_stays_whole():
    merged = Needs.joined([needs_of([(0, 0, 8)], 4), needs_of([(0, 4, 12)], 2), needs_of([(1, 0, 4)], 2)]).merged()
    assert np.broadcast_to(merged.align, 2).tolist() == [0, 2]


@settings(max_examples=times(80), deadline=None)
@given(row_list(), st.randoms(use_true_random=False))
def test_sorted_rows_keep_what_belongs_to_them(rows, random):
    # One chunk for each object, its rows ascending, in any order of chunks.
    rows = sorted(set(rows))
    names = sorted({obj for obj, _, _ in rows})
    random.shuffle(names)
    ordered = [row for name in names for row in rows if row[0] == name]
    units = np.array([names.index(obj) for obj, _, _ in ordered])
    starts, stops = np.array([r[1] for r in ordered]), np.array([r[2] for r in ordered])
    objects = np.array(names)
    chunks = Units(objects, objects * 0, objects * 0 + 100)
    needs = Needs.sorted(chunks, units, units + 50, starts, stops, starts + 1, overlapping=True)
    found = list(zip(needs.objects.tolist(), needs.starts.tolist(), needs.stops.tolist(), strict=True))
    assert [row[:2] for row in found] == [row[:2] for row in rows]
    assert sorted(found) == rows
    assert (needs.owners == needs.units + 50).all()
    assert (needs.align == needs.starts + 1).all()


@settings(max_examples=times(120), deadline=None)
@given(row_list(objects=3), row_list(objects=3), st.booleans())
def test_rows_in_a_request(rows, asked, alike):
    """Every row that shares a byte with a request is between its first and last; without overlaps no other is."""
    requests = overlapping(rows if alike else asked).merged()
    needs = overlapping(rows)
    simple = needs_of(sorted(rows_of(needs.merged())))
    for each in (needs, simple):
        firsts, lasts = each.rows_in(requests)
        mine = rows_of(Ranges(each.objects, each.starts, each.stops))
        for (obj, start, stop), first, last in zip(rows_of(requests), firsts.tolist(), lasts.tolist(), strict=True):
            touched = [i for i, row in enumerate(mine) if row[0] == obj and row[1] < stop and row[2] > start]
            between = list(range(first, last))
            assert set(touched) <= set(between)
            if each is simple:
                assert touched == between
            else:
                assert touched == [i for i in between if mine[i][2] > start]


def test_more_bytes_than_can_be_numbered_are_refused():
    far = Ranges(np.array([0, 2**20]), np.array([0, 0]), np.array([5, 2**50]))
    with pytest.raises(InvalidInputError, match="too much for one read"):
        spans_in(far, far)
    needs = Needs.joined([needs_of([(obj, 0, 2**61)]) for obj in reversed(range(8))])
    with pytest.raises(InvalidInputError, match="too much for one read"):
        needs.merged()
    with pytest.raises(InvalidInputError, match="too much for one read"):
        Needs.joined([needs_of([(obj, 0, 2**61)]) for obj in range(8)]).rows_in(far)


def two_chunks(*parts):
    """Needs of parts (chunk, start, stop, owner) of chunks 0-100 and 100-200 of one object, and 0-100 of another."""
    chunks = Units(np.array([0, 0, 1]), np.array([0, 100, 0]), np.array([100, 200, 100]))
    units, starts, stops, owners = (np.array(column) for column in zip(*parts, strict=True))
    return Needs.sorted(chunks, units, owners, starts, stops, 1, overlapping=False)


def test_get_merge_and_fetch():
    needs = two_chunks((0, 10, 20, 0), (0, 30, 40, 0), (1, 100, 105, 1), (1, 150, 160, 1), (2, 7, 9, 2))
    assert rows_of(get(needs)) == [(0, 0, 100), (0, 100, 200), (1, 0, 100)]
    assert rows_of(merge(needs)) == [(0, 10, 40), (0, 100, 160), (1, 7, 9)]
    assert rows_of(fetch(needs)) == [(0, 10, 20), (0, 30, 40), (0, 100, 105), (0, 150, 160), (1, 7, 9)]


def test_ranges_that_touch_over_a_border_of_chunks_are_fetched_together():
    needs = two_chunks((0, 90, 100, 0), (1, 100, 120, 1))
    assert rows_of(fetch(needs)) == [(0, 90, 120)]
    assert rows_of(merge(needs)) == [(0, 90, 100), (0, 100, 120)]
    assert rows_of(get(needs)) == [(0, 0, 100), (0, 100, 200)]


def test_two_reads_of_one_chunk_ask_for_it_once():
    reads = [[(0, 10, 20, 0)], [(0, 15, 40, 5), (2, 1, 2, 6)], [(0, 10, 12, 7)]]
    needs = Needs.joined([two_chunks(*parts) for parts in reads])
    assert needs.overlapping
    assert rows_of(get(needs)) == [(0, 0, 100), (1, 0, 100)]
    assert rows_of(merge(needs)) == [(0, 10, 40), (1, 1, 2)]
    assert rows_of(fetch(needs)) == [(0, 10, 40), (1, 1, 2)]
    assert sorted(needs.owners.tolist()) == [0, 5, 6, 7]


def test_a_short_row_after_a_long_one_does_not_end_it():
    needs = Needs.joined([two_chunks((0, 10, 90, 0)), two_chunks((0, 20, 30, 1))])
    assert rows_of(merge(needs)) == rows_of(fetch(needs)) == [(0, 10, 90)]
    firsts, lasts = needs.rows_in(needs.merged())
    assert (firsts.tolist(), lasts.tolist()) == ([0], [2])


def test_nothing_needed_is_no_request():
    nothing = Needs.nothing()
    for method in (get, merge, fetch):
        assert len(method(nothing)) == 0
    assert nothing.merged().nbytes == nothing.merged().largest == 0


def test_one_of_one_need_is_itself():
    needs = two_chunks((0, 10, 20, 0))
    assert Needs.joined([needs]) is needs


def test_needs_of_other_objects_are_joined_as_they_are():
    """What is apart overlaps only where it did before; an object that two reads share may be wanted twice over."""
    apart = [needs_of([(0, 0, 4), (0, 8, 12)]), needs_of([(1, 0, 4)]), needs_of([(3, 2, 5)])]
    joined = Needs.joined(apart)
    assert not joined.overlapping
    assert rows_of(joined.merged()) == [(0, 0, 4), (0, 8, 12), (1, 0, 4), (3, 2, 5)]
    for together in ([*apart, needs_of([(3, 4, 9)])], apart[::-1]):
        assert Needs.joined(together).overlapping
        assert rows_of(Needs.joined(together).merged())[:3] == rows_of(joined.merged())[:3]


def test_which_rows_are_encoded():
    needs = needs_of([(0, 0, 4), (0, 8, 12), (0, 20, 30)], align=[2, 0, 2])
    assert needs.whole(np.array([0, 1, 2])).tolist() == [False, True, False]
    assert needs_of([(0, 0, 4)], align=0).whole(np.array([0])).tolist() == [True]
