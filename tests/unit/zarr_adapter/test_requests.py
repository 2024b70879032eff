"""zarr-python through our store: the same cells, ranges joined by the plan, what was read is kept, seals hold."""

import asyncio
import pickle

import numpy as np
import pytest
import zarr
from support.hostile import fast, options_for, put, sent
from zarr.abc.store import RangeByteRequest, SuffixByteRequest
from zarr.core.buffer import default_buffer_prototype

import hyperslab as hs
from hyperslab.errors import BudgetError, ConflictError
from hyperslab.zarr import HyperslabStore

CELLS = np.arange(32 * 24, dtype="i4").reshape(32, 24)
PROTOTYPE = default_buffer_prototype()


def store_at(proxy, name, session, **options):
    return HyperslabStore(f"s3://bucket/{name}", storage_options=options_for(proxy), session=session, **options)


def parts(store, wanted):
    found = asyncio.run(store.get_partial_values(PROTOTYPE, wanted))
    return [None if each is None else each.to_bytes() for each in found]


@pytest.mark.parametrize("layout", ["plain", "zstd", "shards", "shards-zstd"])
def test_zarr_python_reads_what_numpy_has(fake_s3, layout):
    put(fake_s3, "a", CELLS, (8, 6), layout)
    with fast(cache_bytes=1 << 20) as session:
        opened = zarr.open_array(store_at(fake_s3, "a", session), mode="r")
        for key in np.s_[...], np.s_[3:20:5, 7], np.s_[-1, 2::9]:
            assert np.array_equal(opened[key], CELLS[key])


def test_zarr_python_writes_what_we_read(tmp_path):
    store = HyperslabStore(tmp_path / "a.zarr")
    group = zarr.create_group(store, attributes={"title": "both"})
    array = group.create_array("cells", shape=CELLS.shape, dtype=CELLS.dtype, chunks=(8, 6), shards=(16, 12))
    array[...] = CELLS
    array[3, 4] = -1
    opened = hs.open(tmp_path / "a.zarr")
    expected = CELLS.copy()
    expected[3, 4] = -1
    assert np.array_equal(opened["cells"][...], expected)
    assert dict(opened.attrs) == {"title": "both"}
    assert sorted(name for name, _ in zarr.open_group(store, mode="r").members()) == ["cells"]


def test_near_ranges_are_one_request_and_far_ones_two(fake_s3):
    data = np.random.default_rng(1).bytes(40_000_000)
    fake_s3.fake.objects["bucket/x/long"] = data
    with fast(profile="s3") as session:
        store = store_at(fake_s3, "x", session)
        spans = [(100, 200), (150, 1000), (2000, 2100), (39_000_000, 39_000_100)]
        found = parts(store, [("long", RangeByteRequest(*span)) for span in spans])
        assert found == [data[low:high] for low, high in spans]
        assert sorted(each.range for each in fake_s3.gets()) == ["bytes=100-2099", "bytes=39000000-39000099"]


def test_ranges_of_what_is_short_or_absent(fake_s3):
    fake_s3.fake.objects["bucket/x/short"] = b"abcdef"
    with fast() as session:
        store = store_at(fake_s3, "x", session)
        wanted = [
            ("short", RangeByteRequest(4, 90)),
            ("none", RangeByteRequest(0, 2)),
            ("short", SuffixByteRequest(90)),
        ]
        assert parts(store, wanted) == [b"ef", None, b"abcdef"]
        assert parts(store, [("short", RangeByteRequest(2, 2)), ("none", SuffixByteRequest(2))]) == [b"", None]
        assert store.get_sync("short", byte_range=RangeByteRequest(1, 3)).to_bytes() == b"bc"


def test_what_was_read_is_kept_where_nothing_is_written(fake_s3):
    put(fake_s3, "a", CELLS, (8, 6), "zstd")
    with fast(cache_bytes=1 << 20) as session:
        opened = zarr.open_array(store_at(fake_s3, "a", session), mode="r")
        assert np.array_equal(opened[...], CELLS)
        fake_s3.log.clear()
        assert np.array_equal(opened[...], CELLS)
        assert sent(fake_s3) == (0, 0)


def test_a_small_shard_comes_whole_once_its_index_was_read(fake_s3):
    put(fake_s3, "a", CELLS, (8, 6), "shards")
    with fast(cache_bytes=1 << 20, profile="s3") as session:
        opened = zarr.open_array(store_at(fake_s3, "a", session), mode="r")
        fake_s3.log.clear()
        assert np.array_equal(opened[:4, :12], CELLS[:4, :12])  # two chunks of one shard
        assert [each.range is None for each in fake_s3.gets()] == [False, True]


def test_what_changes_after_it_was_read_is_a_conflict(fake_s3):
    put(fake_s3, "a", CELLS, (32, 24))
    with fast() as session:  # nothing is kept, so that the store is asked again
        opened = zarr.open_array(store_at(fake_s3, "a", session), mode="r")
        assert opened[0, 0] == 0
        put(fake_s3, "a", CELLS + 1, (32, 24))
        with pytest.raises(ConflictError, match="open it again"):
            opened[0, 0]
        writable = zarr.open_array(store_at(fake_s3, "a", session), mode="r+")
        assert writable[0, 0] == 1
        put(fake_s3, "a", CELLS + 2, (32, 24))
        assert writable[0, 0] == 2


def test_the_sessions_budget_holds(fake_s3):
    put(fake_s3, "a", CELLS, (8, 6))
    with fast(budget=hs.Budget(requests=3)) as session:
        opened = zarr.open_array(store_at(fake_s3, "a", session), mode="r")
        with pytest.raises(BudgetError):
            opened[...]


def test_sealed_metadata_stay_sealed(tmp_path):
    hs.save(tmp_path / "a", CELLS, chunks=(8, 6), shards=(16, 12))
    opened = zarr.open_array(HyperslabStore(tmp_path / "a"), mode="r+")
    opened.attrs["units"] = "m"
    again = hs.open(tmp_path / "a")
    assert dict(again.attrs) == {"units": "m"}
    assert again.source.layout.complete
    assert np.array_equal(again[...], CELLS)


def test_it_pickles_and_compares(tmp_path):
    store = HyperslabStore(tmp_path / "a")
    zarr.create_array(store, data=CELLS, chunks=(8, 6))
    again = pickle.loads(pickle.dumps(store))
    assert again == store
    assert again != store.with_read_only(True)
    assert store != "a"
    assert np.array_equal(zarr.open_array(again, mode="r")[...], CELLS)


def test_two_loops_may_use_it_at_once(fake_s3):
    put(fake_s3, "a", CELLS, (8, 6), "shards-zstd")
    with fast() as session:
        store = store_at(fake_s3, "a", session, read_only=True)
        opened = zarr.open_array(store, mode="r")

        async def both():
            wanted = [("zarr.json", RangeByteRequest(n, n + 1)) for n in range(8)]
            return await asyncio.gather(
                asyncio.to_thread(lambda: opened[...]), store.get_partial_values(PROTOTYPE, wanted)
            )

        cells, bytes_ = asyncio.run(both())
        assert np.array_equal(cells, CELLS)
        assert b"".join(each.to_bytes() for each in bytes_) == fake_s3.fake.objects["bucket/a/zarr.json"][:8]
