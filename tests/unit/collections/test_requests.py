"""What is asked of a remote store: few requests, together, and whole packs where that pays."""

import itertools
import os

import numpy as np
import pytest
from support.faulty import FaultyStore

import hyperslab as hs
from hyperslab.collections import collection, index, segment
from hyperslab.collections.collection import open_at
from hyperslab.store import locate

_numbers = itertools.count()


@pytest.fixture
def url():
    return f"memory://collections-requests-{os.getpid()}-{next(_numbers)}/c"


@pytest.fixture
def session():
    with hs.Session(profile="s3", learn=False) as made:
        yield made


def watched(url, session, mode="r", **options):
    store, path = locate(url)
    faulty = FaultyStore(store, **options)
    return open_at(url, faulty, path, session, mode), faulty


def filled(url, count=600, nbytes=1000, pack_bytes=1 << 20):
    c = collection(url, "w-")
    arrays = np.arange(count, dtype="u2")[:, None].repeat(nbytes // 2, axis=1)
    c.put_many(((f"n/{i:05d}", arrays[i]) for i in range(count)), pack_bytes=pack_bytes)
    return c


def kinds(store):
    return [asked.key.rpartition(".")[2] for asked in store.log]


def test_opening_takes_one_request(url, session):
    filled(url)
    c, store = watched(url, session)
    assert kinds(store) == ["json"]
    c.info()
    assert kinds(store) == ["json"]


def test_a_small_index_comes_whole_and_is_kept(url, session):
    filled(url, count=100)
    c, store = watched(url, session)
    store.log.clear()
    assert c["n/00007"][0] == 7
    assert kinds(store) == ["seg", "pack"]
    c["n/00008"]
    assert kinds(store) == ["seg", "pack", "pack"]
    other, store = watched(url, session)
    other["n/00009"]
    assert kinds(store)[:1] == ["json"]
    assert "seg" not in kinds(store)


def test_a_lookup_reads_a_range(url, session, monkeypatch):
    """Of a large segment its table, once, then the block; arrays that lie together come by one request."""
    monkeypatch.setattr(index, "_SMALL_BYTES", 0)
    filled(url, count=3000)
    c, store = watched(url, session)
    store.log.clear()
    found = c.read_many([f"n/{i:05d}" for i in range(1000, 1020)])
    assert [each[0] for each in found] == list(range(1000, 1020))
    assert kinds(store) == ["seg", "seg", "pack"]
    size = c.manifest.segments[0].nbytes
    assert sum(asked.span[1] - asked.span[0] for asked in store.log[:2]) < size // 5


def test_blocks_and_tables_are_asked_for_together(url, session, monkeypatch):
    monkeypatch.setattr(index, "_SMALL_BYTES", 0)
    monkeypatch.setattr(segment, "_BLOCK_ROWS", 8)
    c = filled(url, count=2000)
    for i in range(3):
        c[f"more/{i}"] = np.array(i)
    c, store = watched(url, session, latency_s=0.05)
    store.log.clear()
    c.entries(["n/00000", "n/00999", "n/01999", "more/0", "more/2"])
    assert store.most_in_flight >= 4
    # One round for the tables, one for the blocks.
    assert len([asked for asked in store.log if asked.key.endswith("seg")]) <= 4 + 8


def test_arrays_read_one_by_one_bring_the_whole_pack(url, session):
    c = filled(url, count=600, nbytes=20_000, pack_bytes=16 << 20)
    pack_nbytes = c.entry("n/00000").pack_nbytes
    c, store = watched(url, session)
    names = [f"n/{i:05d}" for i in range(600)]
    c.entry(names[0])
    store.log.clear()
    for i, name in enumerate(names):
        assert c[name][0] == i
    sizes = [asked.span[1] - asked.span[0] for asked in store.log]
    model = session.model(store)
    singles = sizes.count(20_000)
    assert 2 <= singles <= model.seconds(1, pack_nbytes, pack_nbytes) / model.seconds(1, 20_000, 20_000)
    # Then all of it, by as many requests as are quickest.
    assert sum(sizes[singles:]) == pack_nbytes
    assert len(sizes) - singles <= model.profile.concurrency
    store.log.clear()
    assert [each[0] for each in c.read_many(names)] == list(range(600))
    assert store.log == []
    assert session.cache.used_bytes >= pack_nbytes


def test_a_cache_that_is_too_small_brings_no_packs(url):
    filled(url, count=300)
    with hs.Session(profile="s3", cache_bytes=1 << 10) as session:
        c, store = watched(url, session)
        for i in range(100):
            assert c[f"n/{i:05d}"][0] == i
        assert len([asked for asked in store.log if asked.key.endswith("pack")]) == 100
        assert session.cache.used_bytes == 0


def test_many_packs_are_read_by_one_plan(url, session):
    filled(url, count=400, pack_bytes=20_000)
    c, store = watched(url, session, latency_s=0.02)
    reads = session.metrics.reads
    c.read_many([f"n/{i:05d}" for i in range(0, 400, 10)])
    assert session.metrics.reads == reads + 1
    assert store.most_in_flight > 4


def test_putting_takes_three_requests_and_one_look(url, session):
    filled(url, count=10)
    c, store = watched(url, session, "r+")
    store.log.clear()
    c["new"] = np.arange(3)
    assert [put.key.rpartition(".")[2] for put in store.puts] == ["pack", "seg", "json"]
    assert store.puts[-1].if_match is not None
    assert kinds(store) == ["json"]


def test_packs_are_stored_while_others_are_filled(url, session):
    c, store = watched(url, session, "w-", latency_s=0.1)
    c.put_many(((f"{i}", np.zeros(100, "u1")) for i in range(40)), pack_bytes=100)
    # Four packs, and the segment.
    assert 1 < store.most_in_flight <= 5
    assert len(c) == 40


def test_names_are_streamed(url, session, monkeypatch):
    monkeypatch.setattr(index, "_SMALL_BYTES", 0)
    monkeypatch.setattr(segment, "_BLOCK_ROWS", 16)
    filled(url, count=2000)
    c, store = watched(url, session)
    next(c.names())
    assert len(store.log) <= 3
    assert list(c.names("n/0199")) == [f"n/{i:05d}" for i in range(1990, 2000)]
    assert len(store.log) <= 7
