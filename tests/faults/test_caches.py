"""What is kept in memory and on disk: within its limit, never stale, never trusted when damaged."""

import io
import os
import threading

import h5py
import numpy as np
import pytest
from support.forking import in_child
from support.hostile import array_at, encode, fast, put, sent
from support.s3proxy import Rule

import hyperslab as hs
from hyperslab.errors import BudgetError, DeadlineError
from hyperslab.execute.cache import MemoryCache
from hyperslab.execute.disk import DiskCache
from hyperslab.layout import ChunkTable

DATA = np.random.default_rng(5).integers(0, 1 << 30, (64, 64)).astype("i4")
NEW = DATA + 1
CHUNKS = (8, 8)
layouts = pytest.mark.parametrize("layout", ["zstd", "crc", "shards-zstd"])


# In memory


@layouts
def test_a_cached_chunk_costs_nothing(fake_s3, layout):
    put(fake_s3, "a", DATA, CHUNKS, layout)
    with fast(cache_bytes=1 << 20) as session:
        array = array_at(fake_s3, "a", session)
        assert np.array_equal(array[:16], DATA[:16])
        fake_s3.log.clear()
        estimate = array.explain[4:12].plan.estimate
        assert (estimate.all_requests, estimate.all_bytes, estimate.seconds, estimate.usd) == (0, 0, 0.0, 0.0)
        before = session.metrics.snapshot()
        assert np.array_equal(array.read(np.s_[4:12], budget=hs.Budget(requests=0, bytes=0, usd=0)), DATA[4:12])
        assert not fake_s3.log
        assert session.metrics.cache_hits - before.cache_hits == 16
        assert session.metrics.requests == before.requests


@pytest.mark.parametrize("layout", ["shards", "shards-zstd"])
def test_a_cached_index_is_not_looked_up_again(fake_s3, layout):
    put(fake_s3, "a", DATA, CHUNKS, layout)
    with fast(cache_bytes=1 << 20) as session:
        array = array_at(fake_s3, "a", session)
        array.read(np.s_[0:4, 0:4], method="fetch")
        assert array.explain(np.s_[8:12, 8:12], method="fetch").plan.estimate.lookups == 0
        before = session.metrics.lookups
        assert np.array_equal(array.read(np.s_[8:12, 8:12], method="fetch"), DATA[8:12, 8:12])
        assert session.metrics.lookups == before


@pytest.mark.parametrize("cache", ["memory", "disk"])
def test_arrays_of_one_file_do_not_take_the_chunks_of_one_another(fake_s3, tmp_path, cache):
    whole = io.BytesIO()
    with h5py.File(whole, "w") as file:
        file.create_dataset("a", data=DATA, chunks=(16, 16), compression="gzip")
        file.create_dataset("b", data=DATA.astype("f8") / 3, chunks=(16, 8), compression="gzip")
    fake_s3.fake.objects["bucket/file.h5"] = whole.getvalue()
    folder = tmp_path if cache == "disk" else None
    with fast(cache_bytes=1 << 20 if cache == "memory" else 0, disk_cache=folder) as session:
        a, b = (array_at(fake_s3, f"file.h5/{name}", session) for name in "ab")
        for _ in range(2):
            # At first only one of them is at hand, then both are.
            assert np.array_equal(a[:], DATA)
            found = hs.read_many([(a, ...), (b, ...)])
            assert np.array_equal(found[0], DATA)
            assert np.array_equal(found[1], DATA.astype("f8") / 3)


@layouts
def test_the_limit_in_bytes_holds(fake_s3, layout):
    put(fake_s3, "a", DATA, CHUNKS, layout)
    with fast(cache_bytes=6000) as session:
        array = array_at(fake_s3, "a", session)
        for n in range(0, 56, 3):
            assert np.array_equal(array[n : n + 9], DATA[n : n + 9])
            assert session.cache.used_bytes <= 6000
            held = [value for value, _ in session.cache._entries.values()]
            assert sum(value.nbytes for value in held) <= 6000
            # Nothing holds on to a larger answer that it is a part of.
            assert all(
                _buffer_bytes(value) <= 2 * value.nbytes + 64 for value in held if not isinstance(value, ChunkTable)
            )
        assert len(session.cache) > 0


def _buffer_bytes(array):
    """The size of the memory that an array is part of."""
    owner = array
    while True:
        inner = owner.obj if isinstance(owner, memoryview) else getattr(owner, "base", None)
        if inner is None:
            return memoryview(owner).nbytes
        owner = inner


def test_a_part_of_a_long_answer_does_not_keep_it(fake_s3):
    """A checksummed chunk is a view of the bytes that came, which may be of a whole shard."""
    put(fake_s3, "a", DATA, CHUNKS, "shards-crc")
    with fast(cache_bytes=1 << 20) as session:
        array = array_at(fake_s3, "a", session)
        assert np.array_equal(array[...], DATA)
        held = [value for value, _ in session.cache._entries.values() if not isinstance(value, ChunkTable)]
        assert len(held) == 64
        assert all(_buffer_bytes(value) <= 2 * value.nbytes + 64 for value in held)


@layouts
def test_without_a_cache(fake_s3, layout):
    put(fake_s3, "a", DATA, CHUNKS, layout)
    with fast(cache_bytes=0) as session:
        array = array_at(fake_s3, "a", session)
        for _ in range(2):
            fake_s3.log.clear()
            assert np.array_equal(array[:16], DATA[:16])
            assert fake_s3.log
        assert len(session.cache) == session.cache.used_bytes == 0


def test_the_least_recently_used_goes_first():
    cache = MemoryCache(100)
    for name in "abcde":
        cache.put(name, name, 20)
    cache.get("a")
    cache.put("f", "f", 20)
    assert [cache.get(name) for name in "abcdef"] == ["a", None, "c", "d", "e", "f"]
    cache.put("a", "again", 25)
    assert cache.get("a") == "again"
    assert cache.used_bytes <= 100
    cache.put("huge", "x", 26)
    assert cache.get("huge") is None


def test_the_memory_cache_under_threads():
    cache = MemoryCache(1000)

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(3000):
            key, size = int(rng.integers(40)), int(rng.integers(1, 250))
            if rng.random() < 0.5:
                cache.put(key, size, size)
            cache.get(key)
            assert cache.used_bytes <= 1000 + 250

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cache.used_bytes == sum(size for _, size in cache._entries.values()) <= 1000


# On disk


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cache"


def kept(folder, **settings):
    """A session with nothing in memory, as another process would have it."""
    return fast(cache_bytes=0, disk_cache=folder, **settings)


@layouts
def test_a_second_session_fetches_no_data(fake_s3, folder, layout):
    put(fake_s3, "a", DATA, CHUNKS, layout)
    with kept(folder) as session:
        array = array_at(fake_s3, "a", session)
        assert np.array_equal(array[...], DATA)
        _, fetched = sent(fake_s3)
        fake_s3.log.clear()
        assert np.array_equal(array[...], DATA)
    with kept(folder) as session:
        array = array_at(fake_s3, "a", session)
        before = session.metrics.snapshot()
        assert np.array_equal(array[...], DATA)
        requests, nbytes = sent(fake_s3)
        assert nbytes < fetched / 10
        assert requests <= 64
        after = session.metrics.snapshot()
        assert after.cache_hits - before.cache_hits == 64
        assert (after.requests - before.requests, after.lookups - before.lookups) == (0, requests)
        assert after.bytes - before.bytes == nbytes
        fake_s3.log.clear()
        assert np.array_equal(array[...], DATA)
        assert not fake_s3.log


def test_another_process_uses_the_disk(fake_s3, folder):
    put(fake_s3, "a", DATA, CHUNKS, "zstd")
    with kept(folder) as session:
        array = array_at(fake_s3, "a", session)

        def child():
            found = array[...]
            return found, session.metrics.requests

        found, requests = in_child(child)
        assert np.array_equal(found, DATA)
        assert requests == 64
        fake_s3.log.clear()
        assert np.array_equal(array[...], DATA)
        assert session.metrics.requests == 0
        assert sent(fake_s3) == (64, 64)  # a byte of each, to see that it is the same


@layouts
def test_a_changed_object_is_fetched_again(fake_s3, folder, layout):
    put(fake_s3, "a", DATA, CHUNKS, layout)
    with kept(folder) as session:
        assert np.array_equal(array_at(fake_s3, "a", session)[...], DATA)
    put(fake_s3, "a", NEW, CHUNKS, layout)
    for _ in range(2):
        with kept(folder) as session:
            assert np.array_equal(array_at(fake_s3, "a", session)[...], NEW)
    one = encode(DATA, CHUNKS, layout)["c/0/0"]
    fake_s3.fake.objects["bucket/a/c/0/0"] = one
    size = 16 if layout.startswith("shards") else 8
    mixed = NEW.copy()
    mixed[:size, :size] = DATA[:size, :size]
    with kept(folder) as session:
        assert np.array_equal(array_at(fake_s3, "a", session)[...], mixed)


def test_a_deleted_object_is_not_served(fake_s3, folder):
    put(fake_s3, "a", DATA, CHUNKS, "zstd")
    with kept(folder) as session:
        array_at(fake_s3, "a", session)[...]
    del fake_s3.fake.objects["bucket/a/c/0/0"]
    with kept(folder) as session:
        found = array_at(fake_s3, "a", session)[...]
        assert (found[:8, :8] == 77).all()
        assert np.array_equal(found[8:], DATA[8:])


def _truncate(path):
    os.truncate(path, os.path.getsize(path) // 2)


def _empty(path):
    os.truncate(path, 0)


def _flip(path):
    with open(path, "r+b") as file:
        file.seek(os.path.getsize(path) // 2)
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 0xFF]))


def _replace_by_directory(path):
    os.unlink(path)
    os.mkdir(path)


@layouts
@pytest.mark.parametrize("damage", [_truncate, _empty, _flip, os.unlink, _replace_by_directory])
def test_damaged_files_are_not_trusted(fake_s3, folder, layout, damage):
    put(fake_s3, "a", DATA, CHUNKS, layout)
    with kept(folder) as session:
        array = array_at(fake_s3, "a", session)
        array[...]
        paths = sorted(folder.iterdir())
        assert len(paths) > 64
        for path in paths[::2]:
            damage(path)
        assert np.array_equal(array[...], DATA)  # the same handle, that has seen the versions
        for path in sorted(folder.iterdir())[::3]:
            if path.is_file():
                damage(path)
    with kept(folder) as session:
        assert np.array_equal(array_at(fake_s3, "a", session)[...], DATA)


def test_a_folder_that_goes_away(fake_s3, folder):
    import shutil

    put(fake_s3, "a", DATA, CHUNKS, "zstd")
    with kept(folder) as session:
        array = array_at(fake_s3, "a", session)
        array[:8]
        shutil.rmtree(folder)
        assert np.array_equal(array[...], DATA)
        assert np.array_equal(array.refresh()[...], DATA)


@pytest.mark.parametrize("limit", [2000, 20_000])
def test_the_limit_of_the_folder_holds(fake_s3, folder, limit):
    put(fake_s3, "a", DATA, CHUNKS, "zstd")
    with kept(folder, disk_cache_bytes=limit, concurrency=1) as session:
        array = array_at(fake_s3, "a", session)
        for row in range(0, 64, 8):
            assert np.array_equal(array[row : row + 8], DATA[row : row + 8])
            assert sum(path.stat().st_size for path in folder.iterdir()) <= limit
        assert any(folder.iterdir())


def test_two_processes_hold_the_limit_nearly(folder):
    one, other = DiskCache(folder, 10_000), DiskCache(folder, 10_000)
    for number in range(200):
        (one if number % 2 else other).put("s3://b", f"k{number}", '"e"', 0, memoryview(bytes(300)))
        assert sum(path.stat().st_size for path in folder.iterdir()) <= 1.5 * 10_000


def test_the_disk_cache_keeps_what_is_used(folder):
    cache = DiskCache(folder, 10_000)
    cache.put("s", "used", '"e"', 0, memoryview(b"precious"))
    for number in range(100):
        assert cache.get("s", "used", '"e"', 0) == b"precious"
        os.utime(cache._path("s", "used", '"e"', "0"), (2e9 + number, 2e9 + number))
        cache.put("s", f"k{number}", '"e"', 0, memoryview(bytes(500)))
    assert cache.get("s", "used", '"e"', 0) == b"precious"
    assert cache.get("s", "k0", '"e"', 0) is None
    assert cache.get("s", "used", '"other"', 0) is None
    assert cache.get("elsewhere", "used", '"e"', 0) is None


def test_confirming_counts_against_budget_and_deadline(fake_s3, folder):
    put(fake_s3, "a", DATA, CHUNKS, "zstd")
    with kept(folder) as session:
        array_at(fake_s3, "a", session)[...]
    with kept(folder, concurrency=1) as session:
        array = array_at(fake_s3, "a", session)
        with pytest.raises(BudgetError):
            array.read(budget=hs.Budget(requests=3))
        assert len(fake_s3.log) <= 3
    with kept(folder, timeout_s=60) as session:
        array = array_at(fake_s3, "a", session)
        fake_s3.rules.append(Rule("stall"))
        with pytest.raises(DeadlineError):
            array.read(deadline=0.3)
    fake_s3.clear()
    with kept(folder) as session:
        array = array_at(fake_s3, "a", session)
        fake_s3.rules.append(Rule("status", status=503, code="SlowDown", times=2))
        assert np.array_equal(array.read(budget=hs.Budget(requests=66)), DATA)
        assert session.metrics.retries == 2


def test_chunks_on_disk_are_decoded_one_by_one(fake_s3, folder, monkeypatch):
    """A large read from the disk holds few chunks at a time, not all."""
    import psutil

    data = np.zeros((48, 1 << 20), "u1")
    put(fake_s3, "a", data, (1, 1 << 20), "zstd")
    with kept(folder) as session:
        array_at(fake_s3, "a", session)[...]
    with kept(folder) as session:
        array = array_at(fake_s3, "a", session)
        array[:1]
        process, most, going = psutil.Process(), 0, True
        out = np.ones_like(data)
        before = process.memory_info().rss

        def watch():
            nonlocal most
            while going:
                most = max(most, process.memory_info().rss)

        watcher = threading.Thread(target=watch)
        watcher.start()
        array.read(out=out)
        going = False
        watcher.join()
        assert not out.any()
        assert session.metrics.cache_hits == 1 + 48
        assert most - before < 24 << 20


def test_indexes_are_kept_where_chunks_are_not(fake_s3):
    put(fake_s3, "a", DATA, CHUNKS, "shards")
    with fast(cache_bytes=0, index_bytes=1 << 20) as session:
        array, spent = array_at(fake_s3, "a", session), []
        for _ in range(2):
            before = session.metrics.snapshot()
            assert np.array_equal(array.read(np.s_[3:5, 2:9], method="fetch"), DATA[3:5, 2:9])
            after = session.metrics.snapshot()
            spent.append((after.lookups - before.lookups, after.requests - before.requests))
    assert spent[0][0] > 0
    assert spent[1][0] == 0
    assert spent[1][1] == spent[0][1] > 0
