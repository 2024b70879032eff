"""Stored arrays as Dask's and back: the same cells, small graphs, aligned writes."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.hostile import array_at, fast, put, sent
from support.profiles import times

import hyperslab as hs
from hyperslab.dask import _finish
from hyperslab.errors import IntegrityError, InvalidInputError, StoreError

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

CELLS = np.arange(40 * 30, dtype="i4").reshape(40, 30)


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture
def array():
    return hs.save("memory://dask-tests/array", CELLS, chunks=(5, 5), shards=(10, 15), overwrite=True)


@pytest.fixture(scope="module")
def stored():
    return hs.save("memory://dask-tests/property", CELLS, chunks=(5, 5), overwrite=True)


@given(key=st.tuples(st.slices(40), st.slices(30)), chunks=st.tuples(st.integers(8, 40), st.integers(8, 30)))
@settings(max_examples=times(20))
def test_it_reads_what_numpy_has(stored, key, chunks):
    lazy = stored.to_dask(chunks=chunks)
    assert np.array_equal(lazy[key].compute(), CELLS[key])


def test_lists_and_masks_of_it(array):
    lazy = array.to_dask(chunks=(20, 10))
    assert np.array_equal(lazy[[3, 39, 3]][:, CELLS[0] % 2 == 0].compute(), CELLS[[3, 39, 3]][:, CELLS[0] % 2 == 0])


def test_blocks_are_made_of_whole_objects_where_dask_chooses(array):
    assert array.to_dask().chunks == ((40,), (30,))
    small = array.to_dask(chunks="1kiB")
    assert all(sum(axis) == n for axis, n in zip(small.chunks, array.shape, strict=True))
    assert small.npartitions > 1
    assert {n % 10 for n in small.chunks[0]} == {0}
    assert {n % 15 for n in small.chunks[1]} == {0}


def test_the_graph_does_not_grow_with_the_blocks(array):
    few, many = array.to_dask(chunks=(20, 30)), array.to_dask(chunks=(1, 1))
    assert many.npartitions == CELLS.size
    assert len(pickle.dumps(many.dask)) < len(pickle.dumps(few.dask)) + 1000
    assert np.array_equal(pickle.loads(pickle.dumps(few)).compute(), CELLS)


def test_making_it_reads_nothing_and_a_selection_only_its_bytes(fake_s3):
    put(fake_s3, "a", CELLS, (40, 30))
    with fast() as session:
        lazy = array_at(fake_s3, "a", session).to_dask(chunks=(20, 30))
        assert sent(fake_s3) == (0, 0)
        assert lazy[7, 3:5].compute().tolist() == [213, 214]
        assert sent(fake_s3) == (1, 8)


def test_what_has_no_axes_or_no_cells():
    for n, cells in enumerate([np.array(3.5), np.zeros((0, 4))]):
        made = hs.from_dask(da.from_array(cells), f"memory://dask-tests/small{n}", overwrite=True)
        assert np.array_equal(made[...], cells)
        assert np.array_equal(made.to_dask().compute(), cells)


@st.composite
def cuts(draw, n):
    places = sorted(draw(st.sets(st.integers(1, n - 1), max_size=3)))
    return tuple(np.diff([0, *places, n]).tolist())


@given(
    blocks=st.tuples(cuts(40), cuts(30)),
    form=st.sampled_from([{}, {"chunks": (4, 7)}, {"chunks": (3, 5), "shards": (9, 10)}, {"layout": "plain"}]),
)
@settings(max_examples=times(15))
def test_whatever_the_blocks_and_objects_all_is_written(blocks, form):
    made = hs.from_dask(da.from_array(CELLS, chunks=blocks), "memory://dask-tests/written", overwrite=True, **form)
    assert np.array_equal(made[...], CELLS)
    assert np.array_equal(hs.open("memory://dask-tests/written")[...], CELLS)
    assert made.source.layout.complete


def test_equal_blocks_become_objects():
    cells = np.zeros((600, 500))
    made = hs.from_dask(da.from_array(cells, chunks=(200, 300)), "memory://dask-tests/blocks", overwrite=True)
    assert made.shards == (200, 300)


def test_names_attributes_and_types_are_kept():
    lazy = da.from_array(CELLS.astype("f4"), chunks=(20, 30))
    hs.from_dask(lazy, "memory://dask-tests/named", dims=("y", "x"), attrs={"units": "m"}, overwrite=True)
    made = hs.open("memory://dask-tests/named")
    assert (made.dims, dict(made.attrs), made.dtype) == (("y", "x"), {"units": "m"}, np.float32)
    with pytest.raises(InvalidInputError, match="stored already"):
        hs.from_dask(lazy, "memory://dask-tests/named")


def test_nothing_is_written_before_it_is_computed(tmp_path):
    later = hs.from_dask(da.from_array(CELLS, chunks=(20, 30)), tmp_path / "a", compute=False)
    assert not (tmp_path / "a" / "c").exists()
    assert np.array_equal(later.compute()[...], CELLS)


def test_an_object_that_is_lost_is_noticed(tmp_path):
    hs.from_dask(da.from_array(CELLS, chunks=(20, 30)), tmp_path / "a", chunks=(10, 30), shards=False)
    (tmp_path / "a" / "c" / "2" / "0").unlink()
    with pytest.raises(IntegrityError):
        hs.open(tmp_path / "a")[...]


def test_other_processes_write_it(tmp_path):
    with dask.config.set(scheduler="processes", num_workers=1):
        made = hs.from_dask(da.from_array(CELLS, chunks=(20, 30)), tmp_path / "a", chunks=(5, 30), shards=(20, 30))
        assert np.array_equal(made.to_dask(chunks=(20, 30)).compute(), CELLS)


def test_blocks_that_were_written_elsewhere_are_noticed():
    made = hs.create("memory://dask-tests/elsewhere", (40, 30), "i4", chunks=(20, 30), overwrite=True)
    with pytest.raises(StoreError, match="reach the same store"):
        _finish(made.size, made)


def test_a_failing_block_fails_the_write(tmp_path):
    def fail(block):
        raise RuntimeError("no block")

    lazy = da.from_array(CELLS, chunks=(20, 30)).map_blocks(fail, dtype="i4", meta=np.empty((0, 0), "i4"))
    with pytest.raises(RuntimeError, match="no block"):
        hs.from_dask(lazy, tmp_path / "a")
    assert not hs.open(tmp_path / "a").source.layout.complete


def test_what_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(InvalidInputError, match="takes others"):
        hs.from_dask(CELLS, tmp_path / "a")
    lazy = da.from_array(CELLS, chunks=(20, 30))
    with pytest.raises(InvalidInputError, match="compute_chunk_sizes"):
        hs.from_dask(lazy[lazy[:, 0] > 5], tmp_path / "a")
