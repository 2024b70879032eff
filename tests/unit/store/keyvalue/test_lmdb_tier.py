"""The tier in a folder: what all tiers do, and what can happen to a file."""

import os
import subprocess
import sys
import threading

import pytest
from support.forking import in_child
from support.keyvalue import TierConformance, some_items

from hyperslab.errors import ForkError, InvalidInputError, StoreError
from hyperslab.store.keyvalue import open_tier as open_any
from hyperslab.store.keyvalue.lmdb_tier import LmdbTier

lmdb = pytest.importorskip("lmdb")


class TestLmdbTier(TierConformance):
    @pytest.fixture
    def open_tier(self, tmp_path):
        return lambda capacity_bytes: LmdbTier(tmp_path / "tier", capacity_bytes=capacity_bytes)


@pytest.fixture
def tier(tmp_path):
    return LmdbTier(tmp_path / "tier", capacity_bytes=4 << 20)


def test_the_file_is_never_larger_than_the_capacity(tier, tmp_path):
    tier.put_many(some_items(2000, 5000))
    assert os.path.getsize(tmp_path / "tier" / "data.mdb") <= 4 << 20
    for n in range(10):  # also when values come and go
        tier.delete_many(list(tier.keys())[::2])
        tier.put_many(some_items(500, 1000 * (n + 1), b"%d-" % n))
    assert os.path.getsize(tmp_path / "tier" / "data.mdb") <= 4 << 20
    assert tier.used_bytes() <= 4 << 20


def test_a_smaller_capacity_than_what_is_there(tier, tmp_path):
    stored = tier.put_many(some_items(300, 8000))
    size = os.path.getsize(tmp_path / "tier" / "data.mdb")
    tier.close()
    small = LmdbTier(tmp_path / "tier", capacity_bytes=1 << 20)
    assert None not in small.get_many(stored)
    assert small.put_many(some_items(300, 8000, b"more")) == []
    assert os.path.getsize(tmp_path / "tier" / "data.mdb") == size
    small.delete_many(stored[:250])
    assert small.used_bytes() < 1 << 20
    assert small.put_many({b"more": b"1"}) == [b"more"]


def test_two_tiers_of_one_folder_share_it(tier, tmp_path):
    tier.put_many({b"a": b"1"})
    os.symlink(tmp_path / "tier", tmp_path / "link")
    other = LmdbTier(tmp_path / "link", capacity_bytes=4 << 20)
    assert other.get_many([b"a"]) == [b"1"]
    tier.close()
    assert other.get_many([b"a"]) == [b"1"]
    with pytest.raises(StoreError, match="close that tier first"):
        LmdbTier(tmp_path / "tier", capacity_bytes=8 << 20).used_bytes()
    other.close()
    assert LmdbTier(tmp_path / "tier", capacity_bytes=8 << 20).get_many([b"a"]) == [b"1"]


def test_a_fork_while_another_thread_reads(tier):
    items = some_items(200, 5000)
    tier.put_many(items)
    ended, failures = threading.Event(), []

    def read():
        while not ended.is_set():
            if tier.get_many(list(items)) != list(items.values()):
                failures.append("wrong bytes")

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            assert in_child(lambda: tier.get_many(list(items)) == list(items.values()))
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert failures == []


def test_values_are_replaced_in_a_full_tier(tier):
    stored = tier.put_many(some_items(2000, 5000))
    for nbytes in (5000, 3000, 5000):
        fresh = {key: os.urandom(nbytes) for key in stored}
        assert tier.put_many(fresh) == stored
        assert tier.get_many(stored) == list(fresh.values())


def test_a_fork_inside_of_a_use_is_refused_in_the_child_alone(tier, monkeypatch):
    monkeypatch.setattr("hyperslab.store.keyvalue.lmdb_files._FORK_WAIT_S", 0.1)
    tier.put_many({b"a": b"1"})
    with tier._file.use(), pytest.raises(ForkError, match="while this process was forked"):
        in_child(lambda: tier.get_many([b"a"]))
    assert tier.get_many([b"a"]) == [b"1"]
    assert in_child(lambda: tier.get_many([b"a"])) == [b"1"]


def test_another_process_gives_it_more_room(tier, tmp_path):
    tier.put_many({b"a": b"1"})
    code = (
        "import sys; from hyperslab.store.keyvalue import open_tier\n"
        "t = open_tier(sys.argv[1], capacity_bytes=32 << 20)\n"
        "assert len(t.put_many({b'%d' % n: bytes(9000) for n in range(1500)})) == 1500\n"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path / "tier"], check=True)
    with pytest.raises(StoreError, match="more room by another process"):
        tier.get_many([b"a"])
    tier.close()
    assert LmdbTier(tmp_path / "tier", capacity_bytes=32 << 20).get_many([b"a"]) == [b"1"]


def test_readers_that_were_killed_do_not_keep_their_pages(tmp_path):
    code = (
        "import os, sys; from hyperslab.store.keyvalue import open_tier\n"
        "t = open_tier(sys.argv[1], capacity_bytes=4 << 20); t.used_bytes()\n"
        "reading = t._file.env.begin(); os.kill(os.getpid(), 9)\n"
    )
    first = LmdbTier(tmp_path / "tier", capacity_bytes=4 << 20)
    first.put_many(some_items(100, 8000))
    first.close()
    subprocess.run([sys.executable, "-c", code, tmp_path / "tier"], check=False)
    tier = LmdbTier(tmp_path / "tier", capacity_bytes=4 << 20)
    for n in range(20):
        assert len(tier.put_many(some_items(100, 8000, b"%d-" % n))) == 100
        tier.delete_many(some_items(100, 0, b"%d-" % n))


def test_a_file_that_was_cut_off(tier, tmp_path):
    tier.put_many(some_items(100, 8000))
    tier.close()
    os.truncate(tmp_path / "tier" / "data.mdb", 40_000)
    with pytest.raises(StoreError, match="cut off"):
        tier.get_many([b"k00099"])


@pytest.mark.parametrize("junk", [b"", b"junk" * 5000, bytes(20_000)])
def test_a_file_that_is_none(tmp_path, junk):
    (tmp_path / "data.mdb").write_bytes(junk)
    tier = LmdbTier(tmp_path, capacity_bytes=1 << 20)
    if not junk:  # new
        assert tier.put_many({b"a": b"1"}) == [b"a"]
        return
    with pytest.raises(StoreError, match="lmdb://"):
        tier.get_many([b"a"])


def test_no_folder_can_be_there(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError, match="lmdb://"):
        LmdbTier(tmp_path / "file" / "tier", capacity_bytes=1 << 20).get_many([b"a"])


def test_an_answer_that_is_too_large(tier):
    tier.put_many({b"a": bytes(100_000)})
    assert tier.get_many([b"a"], limit_bytes=100_000) == [bytes(100_000)]
    with pytest.raises(StoreError, match="100,000 bytes"):
        tier.get_many([b"a"], limit_bytes=99_999)


@pytest.mark.parametrize("capacity", [-1, 1.5, True, None, 4096])
def test_wrong_capacities(tmp_path, capacity):
    with pytest.raises(InvalidInputError, match="bytes"):
        LmdbTier(tmp_path, capacity_bytes=capacity)


def test_places_of_tiers(tmp_path):
    for place in (tmp_path, str(tmp_path), f"lmdb://{tmp_path}"):
        assert open_any(place, capacity_bytes=1 << 20).address == f"lmdb://{tmp_path}"
    for place in ("", "s3://bucket/tier", 3, "a\0b"):
        with pytest.raises(InvalidInputError, match="tier"):
            open_any(place, capacity_bytes=1 << 20)


def test_without_lmdb_it_says_what_to_install(tier, monkeypatch):
    monkeypatch.setitem(sys.modules, "lmdb", None)
    with pytest.raises(InvalidInputError, match=r"hyperslab\[collections\]"):
        tier.get_many([b"a"])


def test_nothing_is_imported_before_it_is_needed():
    code = "import sys, hyperslab.store.keyvalue; assert not {'lmdb', 'redis'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
