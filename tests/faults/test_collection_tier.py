"""A collection whose Redis is killed, emptied, filled with wrong bytes or paused while it is read: the same answers."""

import threading
import time
import warnings

import numpy as np
import pytest
from support.missing import not_installed
from support.plans import plan_of
from support.redis_server import RedisServer, find_redis

import hyperslab as hs
from hyperslab.collections import collection
from hyperslab.collections import tier as tier_of_collections
from hyperslab.store.keyvalue import TierWarning, open_tier

pytest.importorskip("redis")

ARRAYS = {f"n/{i:03d}": np.random.default_rng(i).random((21, 21), np.float32) for i in range(200)}
NAMES = list(ARRAYS)
KEYED = NAMES[::2]


@pytest.fixture(scope="module")
def running():
    if find_redis() is None:
        not_installed("redis-server is not installed: Debian has it as redis-server")
    server = RedisServer()
    yield server
    server.stop()


@pytest.fixture
def server(running):
    running.ask("FLUSHALL")
    yield running
    running.kill()
    running.start()


@pytest.fixture
def c(server, tmp_path, monkeypatch):
    # Long enough for a machine that has other things to do.
    monkeypatch.setattr(tier_of_collections, "_PUT_BACK_S", 30.0)
    tier = open_tier(server.url, capacity_bytes=64 << 20, timeout_s=30.0)
    with hs.Session() as session:
        made = collection(tmp_path / "c", "w-", tier=tier, session=session)
        made.put_many(ARRAYS)
        made.apply(plan_of(made, [NAMES[:80], NAMES[80:]], keyed=KEYED))
        made.tier.guard._first_rest_s = 0.1
        yield made
        tier.close()


class Readers:
    """Threads that read twenty arrays at once, all the time, and check what they get."""

    def __init__(self, c, count=3):
        self.c, self.ended, self.reads, self.failures = c, threading.Event(), 0, []
        self.threads = [threading.Thread(target=self.run, args=(n,)) for n in range(count)]

    def run(self, seed):
        numbers = np.random.default_rng(seed)
        while not self.ended.is_set():
            names = [NAMES[n] for n in numbers.integers(0, len(NAMES), 20)]
            try:
                found = self.c.read_many(names)
                wrong = [n for n, a in zip(names, found, strict=True) if not np.array_equal(a, ARRAYS[n])]
                self.failures += wrong
            except BaseException as error:  # noqa: BLE001
                self.failures.append(error)
            self.reads += 1

    def more(self, count=30):
        goal = self.reads + count
        until(lambda: self.reads >= goal)

    def __enter__(self):
        self.caught = warnings.catch_warnings(record=True)
        self.warned = self.caught.__enter__()
        warnings.simplefilter("always")
        for thread in self.threads:
            thread.start()
        self.more()
        return self

    def __exit__(self, *_):
        self.ended.set()
        for thread in self.threads:
            thread.join(60)
        self.caught.__exit__(None, None, None)
        assert self.failures == []
        assert all(each.category is TierWarning for each in self.warned)

    def told(self):
        return [str(each.message) for each in self.warned]


def until(condition):
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert condition()


def test_killed_during_reads_and_found_again(server, c):
    counts = c.tier.guard.counts
    with Readers(c) as readers:
        assert (counts.misses, counts.errors) == (0, 0)
        server.kill()
        readers.more(100)
        until(lambda: counts.errors > 1)
        assert len(readers.told()) == 1
        server.start()
        # Empty, it is filled again by those who read.
        until(lambda: len(list(c.tier.keys())) == len(KEYED))
        hits = counts.hits
        until(lambda: counts.hits > hits + 100)
    failed, missing = readers.told()
    assert "fails" in failed
    assert "was it emptied?" in missing


def test_emptied_during_reads(server, c):
    with Readers(c) as readers:
        server.ask("FLUSHALL")
        until(lambda: len(list(c.tier.keys())) == len(KEYED))
        readers.more()
    (message,) = readers.told()
    assert "was it emptied?" in message
    assert c.tier.guard.tier.used_bytes() == c.tier.guard.tier.recount()


@pytest.mark.parametrize("poison", [b"", b"poison", bytes(21 * 21 * 4 + 16)], ids=["empty", "short", "zeros"])
def test_filled_with_wrong_bytes_during_reads(server, c, poison):
    with Readers(c) as readers, server.client() as client:
        client.mset({b"hs:default:k:" + key: poison for key in c.tier.keys()})  # noqa: SIM118
        until(lambda: c.tier.guard.counts.wrong > 0)
        readers.more()
    (message,) = readers.told()
    assert "wrong bytes" in message


def test_paused_during_reads(server, c):
    c.tier.guard.tier._timeout_s = 0.5
    with Readers(c) as readers:
        pid = server.pause()
        try:
            started = time.monotonic()
            readers.more(200)
            assert time.monotonic() - started < 30
        finally:
            server.resume(pid)
        hits = c.tier.guard.counts.hits
        until(lambda: c.tier.guard.counts.hits > hits + 100)
    assert sum("fails" in message for message in readers.told()) == 1


def test_killed_while_a_plan_is_applied(server, c):
    server.kill()
    with pytest.warns(TierWarning, match="fails") as caught:
        c.apply(plan_of(c, [NAMES[::-1]], keyed=NAMES))
    assert len(caught) == 1
    assert all(entry.keyed for entry in c.entries(NAMES))
    assert all(np.array_equal(a, ARRAYS[n]) for n, a in zip(NAMES, c.read_many(NAMES), strict=True))
    server.start()
    until(lambda: not c.tier.guard.is_resting())
    c.apply(plan_of(c, [NAMES[::-1]], keyed=NAMES))
    assert len(list(c.tier.keys())) == len(NAMES)


def test_one_request_for_all_keys_of_a_read(server, c):
    c.read_many(KEYED[:2])
    server.ask("CONFIG", "RESETSTAT")
    c.read_many(NAMES)
    with server.client() as client:
        stats = client.info("commandstats")
    assert stats["cmdstat_mget"]["calls"] == 1
    assert "cmdstat_set" not in stats
