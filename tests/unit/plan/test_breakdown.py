"""What a plan does with each chunk, counted in two ways."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.arrays import copy_to_memory

import hyperslab as hs
from hyperslab.layout import ChunkKeys, Layout
from hyperslab.plan import pieces_of
from hyperslab.plan.breakdown import Way, count_objects, shares_of, ways_of
from hyperslab.plan.pieces import cells_of
from hyperslab.selection import parse, parse_points


def layout_of(shape, chunks, order):
    stored = np.dtype("i4")
    return Layout(shape, stored, chunks, ChunkKeys("", "/", "c"), np.zeros((), "i4"), stored, order)


@st.composite
def reads(draw):
    ndim = draw(st.integers(1, 3))
    shape = tuple(draw(st.lists(st.integers(1, 12), min_size=ndim, max_size=ndim)))
    chunks = tuple(draw(st.integers(1, n)) for n in shape)
    order = tuple(draw(st.permutations(range(ndim))))
    key = []
    for n in shape:
        if draw(st.booleans()):
            key.append(slice(draw(st.integers(0, n)), draw(st.integers(0, n)), draw(st.integers(1, 3))))
        else:
            key.append(sorted(draw(st.sets(st.integers(0, n - 1)))))
    return layout_of(shape, chunks, order), tuple(key)


@given(reads())
def test_runs_are_counted_without_listing_them(read):
    layout, key = read
    pieces = pieces_of(layout, parse(key, layout.shape))
    owners, starts, stops = pieces.runs()
    assert pieces.run_count >= len(starts)
    if all(isinstance(item, slice) for item in key):
        assert pieces.run_count == len(starts)
    sizes = np.bincount(owners, stops - starts, minlength=len(pieces)) if len(pieces) else np.zeros(0)
    assert (cells_of(pieces) * 4).tolist() == sizes.tolist()


@given(reads(), st.data())
def test_objects_are_counted(read, data):
    layout, key = read
    box = pieces_of(layout, parse(key, layout.shape))
    assert count_objects(box) == len(set(box.chunks()))
    count = data.draw(st.integers(1, 6))
    coords = [data.draw(st.lists(st.integers(0, n - 1), min_size=count, max_size=count)) for n in layout.shape]
    points = pieces_of(layout, parse_points(tuple(coords), layout.shape))
    assert count_objects(points) == len(set(points.chunks()))
    assert cells_of(points).sum() == points.run_count == count


@pytest.fixture
def array(tmp_path):
    import zarr

    cells = np.arange(6000, dtype="i4").reshape(60, 100)
    for name, more in (
        ("plain", {"chunks": (20, 50), "compressors": None, "filters": None}),
        ("shards", {"chunks": (10, 10), "shards": (20, 50), "compressors": None}),
        ("zstd", {"chunks": (20, 50)}),
    ):
        zarr.create_array(tmp_path / f"{name}.zarr", data=cells, **more)
        copy_to_memory(tmp_path / f"{name}.zarr", "breakdown")
    with hs.Session(profile="s3") as session:
        yield lambda name: hs.open(f"memory://breakdown/{name}.zarr", session=session)


@pytest.mark.parametrize("name", ["plain", "shards", "zstd"])
@pytest.mark.parametrize("method", [None, "get", "merge", "fetch", "paper"])
def test_shares_add_up_to_what_is_fetched(array, name, method):
    opened = array(name)
    for key in (np.s_[5:33, 30:70], np.s_[:, 3], np.s_[::7, ::9]):
        plan = opened.explain(key, method=method).plan
        shares = shares_of(plan)
        assert ((shares > 0) & (shares <= 1)).all()
        if not plan.wholes:
            fetched = float((shares * opened.source.layout.chunk_nbytes).sum())
            if plan.lookups:
                # What a shard's index will say is not known: the estimate is a bound.
                assert fetched <= plan.estimate.fetched_bytes
            else:
                assert fetched == pytest.approx(plan.estimate.fetched_bytes)


@pytest.mark.parametrize("method", [None, "get", "merge", "fetch", "paper"])
def test_shares_of_shards_are_exact_once_their_indexes_are_known(array, method):
    opened = array("shards")
    opened.read(method="fetch")
    for key in (np.s_[5:33, 30:70], np.s_[:, 3], np.s_[::7, ::9]):
        plan = opened.explain(key, method=method).plan
        assert not plan.lookups
        assert not plan.wholes
        fetched = float((shares_of(plan) * opened.source.layout.chunk_nbytes).sum())
        assert fetched == pytest.approx(plan.estimate.fetched_bytes)


def test_ways(array):
    shards = array("shards")
    shards[:10, :10]
    assert set(ways_of(array("plain").explain[:].plan)) == {Way.RANGE}
    assert set(ways_of(array("zstd").explain[:].plan)) == {Way.GET}
    assert set(ways_of(array("shards").explain(np.s_[:], method="fetch").plan)) == {Way.LOOKUP}
    assert set(ways_of(array("plain").explain[:0].plan)) == set()
