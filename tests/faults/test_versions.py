"""Objects that change under a reader: the old numbers, the new ones, or an error; never a mixture."""

import os
import threading
import time

import numpy as np
import pytest
from support.faulty import Fault, FaultyStore
from support.hostile import FILL, array_at, bound_to, encode, fast, options_for, put
from support.profiles import times
from support.s3proxy import Rule

import hyperslab as hs
from hyperslab.errors import ChunkSizeError, ConflictError, IntegrityError
from hyperslab.store import LocalStore, locate, memory

OLD = np.arange(1024, dtype="i4").reshape(32, 32)
NEW = OLD + 5000
CHUNKS = (8, 8)
WEAK = Rule("headers", headers={"ETag": 'W/"weak"'})
NO_ETAG = Rule("headers", headers={"ETag": None})


def replace_with(proxy, data, layout="plain"):
    return lambda: put(proxy, "a", data, CHUNKS, layout)


def objects_agree(found, key=np.s_[...]):
    """Whether the cells of every object are all old or all new."""
    new = found == NEW[key]
    assert (new | (found == OLD[key])).all()
    return all(
        new[a : a + 8, b : b + 8].all() or not new[a : a + 8, b : b + 8].any()
        for a in range(0, 32, 8)
        for b in range(0, 32, 8)
    )


def test_an_object_replaced_between_two_ranges(fake_s3):
    put(fake_s3, "a", OLD, CHUNKS)
    with fast(concurrency=1) as session:
        array = array_at(fake_s3, "a", session)
        fake_s3.rules.append(Rule("run", skip=1, times=1, run=replace_with(fake_s3, NEW)))
        with pytest.raises(ConflictError, match=r"call refresh\(\) and read again"):
            array.read(np.s_[0:8:7, 0:3], method="fetch")  # two ranges of one object
        assert [entry.status for entry in fake_s3.gets()] == [206, 412]
        assert fake_s3.gets()[1].if_match is not None
        assert np.array_equal(array.refresh()[...], NEW)


def test_an_object_replaced_between_two_ranges_in_flight(fake_s3):
    put(fake_s3, "a", OLD, CHUNKS)
    with fast(concurrency=2) as session:
        array = array_at(fake_s3, "a", session)
        swap = Rule("run", skip=1, times=1, run=lambda: (time.sleep(0.2), replace_with(fake_s3, NEW)()))
        fake_s3.rules.append(swap)
        with pytest.raises(ConflictError, match="refresh"):
            array.read(np.s_[0:8:7, 0:3], method="fetch")
        assert [entry.status for entry in fake_s3.gets()] == [206, 206]
        assert not any(entry.if_match for entry in fake_s3.gets())


@pytest.mark.parametrize("layout", ["shards", "shards-zstd", "shards-start"])
def test_a_shard_replaced_between_lookup_and_data(fake_s3, layout):
    put(fake_s3, "a", OLD, CHUNKS, layout)
    with fast(concurrency=1) as session:
        array = array_at(fake_s3, "a", session)
        fake_s3.rules.append(Rule("run", skip=1, times=1, run=replace_with(fake_s3, NEW, layout)))
        with pytest.raises(ConflictError, match="refresh"):
            array.read(np.s_[0:4, 0:4], method="fetch")
        assert [entry.status for entry in fake_s3.gets()] == [206, 412]


@pytest.mark.parametrize("layout", ["shards", "shards-zstd"])
def test_a_shard_deleted_between_lookup_and_data(fake_s3, layout):
    put(fake_s3, "a", OLD, CHUNKS, layout)
    with fast(concurrency=1) as session:
        array = array_at(fake_s3, "a", session)
        gone = Rule("run", skip=1, times=1, run=lambda: fake_s3.fake.objects.pop("bucket/a/c/0/0"))
        fake_s3.rules.append(gone)
        with pytest.raises(ConflictError, match="vanished"):
            array.read(np.s_[0:4, 0:4], method="fetch")
        assert (array.refresh().read(np.s_[0:4, 0:4], method="fetch") == FILL).all()


@pytest.mark.parametrize("layout", ["shards", "shards-zstd"])
def test_a_shard_deleted_without_etags(fake_s3, layout):
    put(fake_s3, "a", OLD, CHUNKS, layout)
    with fast(concurrency=1) as session:
        array = array_at(fake_s3, "a", session)
        headers = {"ETag": None}
        gone = Rule("run", skip=1, times=1, headers=headers, run=lambda: fake_s3.fake.objects.pop("bucket/a/c/0/0"))
        fake_s3.rules += [gone, Rule("headers", headers=headers)]
        with pytest.raises(ConflictError, match="vanished"):
            array.read(np.s_[0:4, 0:4], method="fetch")


@pytest.mark.parametrize("layout", ["shards", "shards-zstd"])
def test_a_shard_replaced_between_reads(fake_s3, layout):
    """The index is cached, so the data is asked for under its ETag."""
    put(fake_s3, "a", OLD, CHUNKS, layout)
    with fast(cache_bytes=1 << 20) as session:
        array = array_at(fake_s3, "a", session)
        assert np.array_equal(array.read(np.s_[0:4, 0:4], method="fetch"), OLD[0:4, 0:4])
        replace_with(fake_s3, NEW, layout)()
        for _ in range(2):
            with pytest.raises(ConflictError, match="refresh"):
                array.read(np.s_[8:12, 8:12], method="fetch")
        assert np.array_equal(array.refresh()[...], NEW)


@pytest.mark.parametrize("forget", [False, True])
def test_a_cached_chunk_is_not_mixed_with_a_newer_index(fake_s3, forget):
    """The index fell out of the cache, a chunk did not: what is fetched now must be of the chunk's version."""
    put(fake_s3, "a", OLD, CHUNKS, "shards-zstd")
    with fast(cache_bytes=1 << 20) as session:
        array = array_at(fake_s3, "a", session)
        array.read(np.s_[0:8, 0:8], method="fetch")
        if forget:
            cache = session.cache
            for key in [key for key in cache._entries if key[3] == "index"]:
                cache.used_bytes -= cache._entries.pop(key)[1]
        replace_with(fake_s3, NEW, "shards-zstd")()
        for method in ("fetch", None):
            with pytest.raises(ConflictError, match="refresh"):
                array.read(np.s_[0:16, 0:16], method=method)
        fake_s3.fake.objects.pop("bucket/a/c/0/0")
        with pytest.raises(ConflictError, match=r"vanished|changed"):
            array.read(np.s_[0:16, 0:16], method="fetch")


def test_a_cached_chunk_is_served_until_refreshed(fake_s3):
    """A handle is a snapshot: what it has seen and kept, it goes on to show."""
    put(fake_s3, "a", OLD, CHUNKS, "zstd")
    with fast(cache_bytes=1 << 20) as session:
        array = array_at(fake_s3, "a", session)
        assert np.array_equal(array[:8], OLD[:8])
        replace_with(fake_s3, NEW, "zstd")()
        fake_s3.log.clear()
        assert np.array_equal(array[:8], OLD[:8])
        assert not fake_s3.log
        fresh = array.refresh()
        assert np.array_equal(fresh[:8], NEW[:8])
        assert np.array_equal(array[:8], OLD[:8])


def test_metadata_is_of_the_time_of_opening(fake_s3):
    put(fake_s3, "a", OLD, CHUNKS)
    with fast() as session:
        array = array_at(fake_s3, "a", session)
        put(fake_s3, "a", np.arange(6, dtype="f8"), (3,))
        assert array.shape == (32, 32)
        assert (array[...] == FILL).all()  # none of its chunks is there any more
        assert np.array_equal(array.refresh()[...], np.arange(6))


def test_an_object_that_appears_under_a_read(fake_s3):
    put(fake_s3, "a", OLD, CHUNKS)
    stored = fake_s3.fake.objects.pop("bucket/a/c/0/0")
    with fast(concurrency=2) as session:
        array = array_at(fake_s3, "a", session)
        appear = Rule(
            "run",
            skip=1,
            times=1,
            run=lambda: (time.sleep(0.2), fake_s3.fake.objects.update({"bucket/a/c/0/0": stored})),
        )
        fake_s3.rules.append(appear)
        with pytest.raises(ConflictError, match="refresh"):
            array.read(np.s_[0:8:7, 0:3], method="fetch")


@pytest.mark.parametrize("rule", [WEAK, NO_ETAG], ids=["weak", "none"])
def test_weak_etags_are_not_pinned(fake_s3, rule):
    put(fake_s3, "a", OLD, CHUNKS, "shards")
    with fast(concurrency=1, cache_bytes=1 << 20) as session:
        array = array_at(fake_s3, "a", session)
        fake_s3.rules.append(rule)
        for _ in range(2):
            fake_s3.log.clear()
            assert np.array_equal(array.read(np.s_[0:9, 0:9], method="fetch"), OLD[0:9, 0:9])
            assert not any(entry.if_match for entry in fake_s3.gets())
            assert len(fake_s3.gets()) > 1
        assert len(session.cache) == 0


def test_without_an_etag_another_size_is_seen(fake_s3):
    put(fake_s3, "a", OLD, CHUNKS, "shards-zstd")
    with fast(concurrency=1) as session:
        array = array_at(fake_s3, "a", session)
        other = np.random.default_rng(1).integers(0, 1 << 30, (32, 32)).astype("i4")
        headers = {"ETag": None}
        swap = Rule(
            "run", skip=1, times=1, headers=headers, run=lambda: put(fake_s3, "a", other, CHUNKS, "shards-zstd")
        )
        fake_s3.rules += [swap, Rule("headers", headers=headers)]
        with pytest.raises((ConflictError, IntegrityError)):
            array.read(np.s_[0:4, 0:4], method="fetch")


@pytest.mark.parametrize("layout", ["plain", "zstd", "shards", "shards-zstd"])
def test_a_writer_at_work(fake_s3, layout):
    """Objects are replaced one by one while others read: each object is old or new, or the read says so."""
    put(fake_s3, "a", OLD, CHUNKS, layout)
    old, new = encode(OLD, CHUNKS, layout), encode(NEW, CHUNKS, layout)
    going = True

    def write():
        rng = np.random.default_rng(0)
        keys = [key for key in old if key != "zarr.json"]
        while going:
            key = keys[rng.integers(len(keys))]
            fake_s3.fake.objects[f"bucket/a/{key}"] = (old if rng.random() < 0.5 else new)[key]
            time.sleep(0.0005)

    writer = threading.Thread(target=write)
    conflicts = 0
    with fast(cache_bytes=1 << 20) as session:
        array = array_at(fake_s3, "a", session)
        writer.start()
        try:
            for number in range(times(25)):
                try:
                    assert objects_agree(array.read(method=[None, "fetch", "merge"][number % 3]))
                except ConflictError:
                    conflicts += 1
                    array = array.refresh()
        finally:
            going = False
            writer.join()
        assert np.isin(array.refresh()[...], [OLD, NEW]).all()


# Local files


def store_files(folder, data, layout):
    for key, value in encode(data, CHUNKS, layout).items():
        path = folder / "a" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(path.name + ".new")
        fresh.write_bytes(value)
        fresh.replace(path)
    return folder / "a"


def aged(path):
    """Give files a time long ago: the clock of a file system may stand still for some milliseconds."""
    for each in [path, *path.rglob("*")]:
        os.utime(each, (1e9, 1e9))


@pytest.mark.parametrize("layout", ["plain", "zstd", "shards", "shards-zstd"])
def test_files_replaced_between_reads(tmp_path, layout):
    with fast(cache_bytes=1 << 20) as session:
        array = hs.open(store_files(tmp_path, OLD, layout), session=session)
        for data in (OLD, NEW, OLD, NEW):
            store_files(tmp_path, data, layout)
            assert np.array_equal(array[...], data)
            assert np.array_equal(array.read(method="fetch"), data)


@pytest.mark.parametrize("layout", ["plain", "zstd", "shards", "shards-zstd"])
@pytest.mark.parametrize("keep", [0, 10])
def test_files_truncated_between_reads(tmp_path, layout, keep):
    with fast(cache_bytes=1 << 20) as session:
        array = hs.open(store_files(tmp_path, OLD, layout), session=session)
        assert np.array_equal(array[...], OLD)
        os.truncate(tmp_path / "a" / "c" / "0" / "0", keep)
        with pytest.raises((ChunkSizeError, IntegrityError)):
            array[...]
        with pytest.raises((ChunkSizeError, IntegrityError)):
            array.read(method="fetch")
        assert np.array_equal(array[16:], OLD[16:])


@pytest.mark.parametrize("layout", ["zstd", "shards", "shards-zstd"])
def test_a_file_written_to_in_place_during_a_read(tmp_path, layout):
    """Between the lookup and the data, or two ranges: seen, as the file's time changes."""
    path = store_files(tmp_path, OLD, layout)
    aged(path)
    new = encode(NEW, CHUNKS, layout)
    with fast() as session:
        array = hs.open(path, session=session)
        read = LocalStore.get

        def get(self, key, *arguments, **options):
            reply = read(self, key, *arguments, **options)
            if key.startswith("c/"):
                with open(path / key, "r+b") as file:
                    file.write(new[key])
            return reply

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(LocalStore, "get", get)
            if layout == "zstd":  # one request for each object: it was read before it changed
                assert np.array_equal(array[...], OLD)
            else:
                with pytest.raises((ConflictError, IntegrityError)):
                    array.read(np.s_[0:4, 0:4], method="fetch")
        assert np.array_equal(array.refresh()[0:4, 0:4], NEW[0:4, 0:4])


def test_a_long_run_of_a_file_that_is_written_to(tmp_path):
    """Blocks of one file that come from two versions are refused."""
    from hyperslab.execute import local

    old = np.zeros((4, 1 << 20), "u1")
    np.save(tmp_path / "a.npy", old)
    aged(tmp_path)
    with fast() as session:
        array = hs.open(tmp_path / "a.npy", session=session)
        place, count = local.place_bytes, 0

        def change(*arguments):
            nonlocal count
            count += 1
            if count == 2:
                np.save(tmp_path / "a.npy", old + 1)
            place(*arguments)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(local, "place_bytes", change)
            with pytest.raises(ConflictError, match="refresh"):
                array[...]
        assert (array.refresh()[...] == 1).all()


def test_a_mapped_file_that_is_written_to(tmp_path):
    """Many cells copied out of a mapping while the file is written to are refused."""
    from hyperslab.execute import local

    np.save(tmp_path / "a.npy", np.zeros((512, 512), "i4"))
    aged(tmp_path)
    with fast() as session:
        array = hs.open(tmp_path / "a.npy", session=session)
        place = local.place_chunk

        def change(*arguments):
            place(*arguments)
            with open(tmp_path / "a.npy", "r+b") as file:
                file.seek(1000)
                file.write(b"now")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(local, "place_chunk", change)
            with pytest.raises(ConflictError, match="refresh"):
                array[:, :200]


def test_files_replaced_under_readers(tmp_path):
    path = store_files(tmp_path, OLD, "plain")
    going = True

    def write():
        while going:
            store_files(tmp_path, NEW, "plain")
            store_files(tmp_path, OLD, "plain")

    writer = threading.Thread(target=write)
    with fast() as session:
        array = hs.open(path, session=session)
        writer.start()
        try:
            for _ in range(times(100)):
                try:
                    assert objects_agree(array[...])
                except ConflictError:
                    continue
        finally:
            going = False
            writer.join()


# In memory, at every point of a read


@pytest.mark.parametrize("layout", ["plain", "zstd", "shards", "shards-zstd"])
@pytest.mark.parametrize("method", [None, "fetch", "merge", "get"])
def test_a_change_at_every_step(layout, method):
    name = f"steps-{layout}"
    old, new = (encode(data, CHUNKS, layout) for data in (OLD, NEW))

    def store(objects):
        for key, value in objects.items():
            memory(name).put(f"a/{key}", value)

    store(old)
    with fast(concurrency=1) as session:
        opened = hs.open(f"memory://{name}/a", session=session)
        key = np.s_[2:14:5, 1:15:6]
        outcomes = set()
        for step in range(12):
            store(old)
            faulty = FaultyStore(locate(f"memory://{name}")[0])
            faulty.faults.append(Fault(skip=step, run=lambda: store(new)))
            array = bound_to(session, opened, faulty)
            try:
                found = array.read(key, method=method)
            except ConflictError:
                outcomes.add("conflict")
                continue
            assert ((found == NEW[key]) | (found == OLD[key])).all()
            # Which object each cell is of, and whether all of one agree.
            size = 16 if layout.startswith("shards") else 8
            rows, columns = np.indices((32, 32)) // size
            objects = (rows * 100 + columns)[key]
            for one in np.unique(objects):
                part = (found == NEW[key])[objects == one]
                assert part.all() or not part.any()
            outcomes.add("all old" if not (found == NEW[key]).any() else "some new")
        assert "all old" in outcomes


def test_options_of_one_bucket_with_two_logins_are_not_mixed(fake_s3):
    put(fake_s3, "a", OLD, CHUNKS)
    put(fake_s3, "b", NEW, CHUNKS)
    with fast() as session:
        a = array_at(fake_s3, "a", session)
        login = {"endpoint": fake_s3.endpoint, "access_key_id": "me", "secret_access_key": "mine"}
        b = hs.open("s3://bucket/b", storage_options=login, session=session)
        assert a.store is not b.store
        assert hs.open("s3://bucket/a", storage_options=options_for(fake_s3), session=session).store is a.store
        first, second = hs.read_many([(a, np.s_[:8]), (b, np.s_[:8])])
        assert np.array_equal(first, OLD[:8])
        assert np.array_equal(second, NEW[:8])
