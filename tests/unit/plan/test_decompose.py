"""The byte ranges of a selection against its bytes, enumerated one by one."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.brute import cell_bytes
from support.profiles import times

from hyperslab.layout import ChunkKeys, Layout
from hyperslab.plan import pieces_of
from hyperslab.plan.decompose import decompose, stored_strides
from hyperslab.selection import parse, parse_points


def layout_of(shape, chunks, order=None, dtype="<i2"):
    dtype = np.dtype(dtype)
    order = tuple(range(len(shape))) if order is None else order
    return Layout(shape, dtype, chunks, ChunkKeys("", "/", "c"), np.zeros((), dtype), dtype, order)


@st.composite
def selected(draw):
    """Draw a layout, a key, and the cells that the key selects along each axis."""
    ndim = draw(st.integers(0, 4))
    shape = tuple(draw(st.lists(st.integers(0, 9), min_size=ndim, max_size=ndim)))
    chunks = tuple(draw(st.integers(1, max(1, n + 2))) for n in shape)
    layout = layout_of(
        shape, chunks, tuple(draw(st.permutations(range(ndim)))), draw(st.sampled_from(["i1", "<i4", "<f8", "S3"]))
    )
    key, cells = [], []
    for n in shape:
        whole = range(n)
        if n and draw(st.integers(0, 3)) == 0:
            picked = draw(st.lists(st.integers(0, n - 1), max_size=6))
            key.append(picked)
            cells.append(sorted(set(picked)))
        else:
            bounds = st.none() | st.integers(-n - 1, n + 1)
            part = slice(draw(bounds), draw(bounds), draw(st.none() | st.sampled_from([1, 1, 2, 3, 5, -1, -2])))
            key.append(part)
            cells.append(sorted(whole[part]))
    return layout, tuple(key), cells


@settings(max_examples=times(250), deadline=None)
@given(selected())
def test_runs_are_the_bytes_of_the_cells(case):
    layout, key, cells = case
    pieces = pieces_of(layout, parse(key, layout.shape))
    chunks = list(pieces.chunks())
    owners, starts, stops = (column.tolist() for column in pieces.runs())
    assert owners == sorted(owners)
    found = {}
    for owner, start, stop in zip(owners, starts, stops, strict=True):
        assert 0 <= start < stop <= layout.chunk_nbytes
        before = found.setdefault(chunks[owner], [])
        # Ascending, and none twice.
        assert not before or before[-1] < start
        before.extend(range(start, stop))
    assert {chunk: set(found[chunk]) for chunk in found} == cell_bytes(layout, cells)
    assert len(chunks) == len(pieces) == len(set(chunks))


@settings(max_examples=times(100), deadline=None)
@given(selected())
def test_runs_along_spans_are_as_long_as_they_can_be(case):
    layout, key, _ = case
    if any(isinstance(item, list) or item.step not in (None, 1, -1) for item in key):
        return
    owners, starts, stops = decompose(layout, pieces_of(layout, parse(key, layout.shape)).parts)
    assert not ((starts[1:] == stops[:-1]) & (owners[1:] == owners[:-1])).any()


@settings(max_examples=times(100), deadline=None)
@given(st.data(), selected())
def test_runs_of_points(data, case):
    layout, _, _ = case
    if 0 in layout.shape or not layout.shape:
        return
    count = data.draw(st.integers(0, 8))
    index = tuple(data.draw(st.lists(st.integers(-n, n - 1), min_size=count, max_size=count)) for n in layout.shape)
    pieces = pieces_of(layout, parse_points(index, layout.shape))
    chunks = list(pieces.chunks())
    wanted = {}
    for cell in zip(*index, strict=True):
        positive = [[c % n] for c, n in zip(cell, layout.shape, strict=True)]
        for chunk, nbytes in cell_bytes(layout, positive).items():
            wanted.setdefault(chunk, set()).update(nbytes)
    found = {}
    for owner, start, stop in zip(*(column.tolist() for column in pieces.runs()), strict=True):
        found.setdefault(chunks[owner], set()).update(range(start, stop))
    assert found == wanted
    assert pieces.cells == count


def test_points_of_a_grid_too_large_to_number():
    """More chunks than an int64 has numbers for: none may be taken for another."""
    layout = layout_of((2**40, 2**40), (1, 1), dtype="i1")
    rows, columns = [5, 2**39, 5, 0, 2**24], [7, 3, 7, 2**40 - 1, 0]
    pieces = pieces_of(layout, parse_points((rows, columns), layout.shape))
    assert list(pieces.chunks()) == sorted(set(zip(rows, columns, strict=True)))
    assert [pieces.target(i).tolist() for i in range(len(pieces))] == [[3], [0, 2], [4], [1]]


def runs(layout, key):
    return [tuple(row) for row in np.stack(pieces_of(layout, parse(key, layout.shape)).runs(), axis=1).tolist()]


def test_a_chunk_wanted_whole_is_one_run():
    layout = layout_of((8, 6), (4, 3))
    assert runs(layout, (slice(0, 4), slice(0, 3))) == [(0, 0, 24)]
    assert runs(layout, ...) == [(0, 0, 24), (1, 0, 24), (2, 0, 24), (3, 0, 24)]


def test_whole_rows_run_together():
    layout = layout_of((8, 6), (4, 3))
    # Rows 1 and 2 whole of both chunks beside each other.
    assert runs(layout, (slice(1, 3), slice(None))) == [(0, 6, 18), (1, 6, 18)]
    # One chunk's rows whole, of the other one a part.
    assert runs(layout, (slice(1, 3), slice(0, 5))) == [(0, 6, 18), (1, 6, 10), (1, 12, 16)]


def test_rows_of_a_chunk_at_the_edge_are_as_far_apart_as_in_others():
    layout = layout_of((4, 5), (4, 3))
    assert runs(layout, (slice(0, 2), slice(3, 5))) == [(0, 0, 4), (0, 6, 10)]


def test_columns_run_together_in_column_major_order():
    layout = layout_of((4, 6), (4, 3), order=(1, 0))
    assert stored_strides(layout) == [2, 8]
    assert runs(layout, (slice(None), slice(0, 2))) == [(0, 0, 16)]
    assert runs(layout, (0, slice(0, 2))) == [(0, 0, 2), (0, 8, 10)]


def test_an_array_without_axes_is_one_cell():
    assert runs(layout_of((), (), dtype="<f8"), ()) == [(0, 0, 8)]


def test_nothing_selected_is_no_run():
    layout = layout_of((4, 6), (4, 3))
    assert runs(layout, (slice(2, 2), slice(None))) == []
