"""Key/value tiers under faults: a server that is killed, emptied, filled with wrong bytes, or paused while it is read.

Whatever happens, a read has the array's bytes or falls back to the truth, and says so once for each kind of trouble.
"""

import os
import threading
import time
import warnings

import numpy as np
import pytest
from support.forking import in_child
from support.redis_server import RedisServer, find_redis

from hyperslab.layout.checksums import crc32c
from hyperslab.store.keyvalue import Guard, TierWarning, Wanted, open_tier
from hyperslab.store.keyvalue.values import sealed

pytest.importorskip("redis")

COUNT, NBYTES = 300, 8400
# What a read does without the tier.
TRUTH = {b"%04d" % n: os.urandom(NBYTES) for n in range(COUNT)}


def crc_of(data):
    return crc32c(np.frombuffer(data, np.uint8))


WANTED = [Wanted(key, crc_of(data), len(data)) for key, data in TRUTH.items()]


@pytest.fixture(scope="module")
def running():
    if find_redis() is None:
        pytest.skip("redis-server is not installed: Debian has it as redis-server")
    server = RedisServer()
    yield server
    server.stop()


@pytest.fixture
def server(running):
    yield running
    running.kill()
    running.start()


@pytest.fixture
def guard(server):
    # Long enough for a machine that has other things to do.
    guard = Guard(open_tier(server.url, capacity_bytes=64 << 20, timeout_s=30.0), first_rest_s=0.1)
    fill(guard)
    yield guard
    guard.close()


def fill(guard):
    stored = guard.put_many({key: (data, crc_of(data)) for key, data in TRUTH.items()})
    assert stored == list(TRUTH)


def read(guard, wanted):
    """Return the arrays' bytes as a collection does: from the tier, else from where they really are."""
    found = guard.get_many(wanted)
    return [bytes(TRUTH[each.key] if data is None else data) for each, data in zip(wanted, found, strict=True)]


class Readers:
    """Threads that read all the time, twenty arrays at once, and check what they get."""

    def __init__(self, guard, count=3):
        self.guard, self.ended, self.reads, self.failures = guard, threading.Event(), 0, []
        self.threads = [threading.Thread(target=self.run, args=(n,)) for n in range(count)]

    def run(self, seed):
        numbers = np.random.default_rng(seed)
        while not self.ended.is_set():
            wanted = [WANTED[n] for n in numbers.integers(0, COUNT, 20)]
            try:
                if read(self.guard, wanted) != [TRUTH[each.key] for each in wanted]:
                    self.failures.append("wrong bytes")
            except BaseException as error:  # noqa: BLE001
                self.failures.append(error)
            self.reads += 1

    def more(self, count=20):
        """Wait until so many more reads are done."""
        goal, deadline = self.reads + count, time.monotonic() + 60
        while self.reads < goal and time.monotonic() < deadline:
            time.sleep(0.01)
        assert self.reads >= goal, "reads do not go on"

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        self.more()
        return self

    def __exit__(self, *_):
        self.ended.set()
        for thread in self.threads:
            thread.join(60)
        assert self.failures == []


def told(guard):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        guard.tell()
    assert all(issubclass(each.category, TierWarning) for each in caught)
    return [str(each.message) for each in caught]


def until(condition):
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert condition()


def test_killed_during_reads(server, guard):
    with Readers(guard) as readers:
        assert guard.counts.misses == 0
        server.kill()
        readers.more(50)
        until(lambda: guard.counts.errors > 1)
    (message,) = told(guard)
    assert server.url in message
    assert "fails" in message
    assert told(guard) == []


def test_killed_and_started_again(server, guard):
    with Readers(guard) as readers:
        server.kill()
        readers.more()
        until(lambda: guard.counts.errors > 1)
        server.start()
        # It is found again by itself, empty.
        until(lambda: guard.counts.misses > 0)
        until(lambda: guard.put_many({key: (data, crc_of(data)) for key, data in TRUTH.items()}) == list(TRUTH))
        hits = guard.counts.hits
        until(lambda: guard.counts.hits > hits + 100)
    assert len(told(guard)) == 2  # that it failed, and that it lacks what was there


def test_emptied_during_reads(server, guard):
    with Readers(guard) as readers:
        server.ask("FLUSHALL")
        readers.more(50)
        assert guard.counts.misses > 0
        fill(guard)
        hits = guard.counts.hits
        until(lambda: guard.counts.hits > hits + 100)
    (message,) = told(guard)
    assert "was it emptied?" in message
    assert guard.tier.used_bytes() == guard.tier.recount()


@pytest.mark.parametrize(
    "poison",
    [
        lambda key: b"",
        lambda key: b"poison",
        lambda key: os.urandom(NBYTES + 16),
        lambda key: sealed(TRUTH[key], crc_of(TRUTH[key]))[:-1],
        lambda key: sealed(bytes(NBYTES), crc_of(TRUTH[key])),
        lambda key: sealed(TRUTH[b"0000"] if key != b"0000" else TRUTH[b"0001"], crc_of(TRUTH[key])),
    ],
    ids=["empty", "short", "noise", "cut", "zeros", "another"],
)
def test_filled_with_wrong_bytes_during_reads(server, guard, poison):
    with Readers(guard) as readers, server.client() as client:
        client.mset({b"hs:default:k:" + key: poison(key) for key in TRUTH})
        readers.more(50)
        assert guard.counts.wrong > 0
    (message,) = told(guard)
    assert "wrong bytes" in message


def test_keys_of_other_kinds(server, guard):
    server.ask("FLUSHALL")
    with Readers(guard) as readers, server.client() as client:
        for key in TRUTH:
            client.rpush(b"hs:default:k:" + key, b"a", b"list")
        readers.more()
    assert guard.get_many(WANTED) == [None] * COUNT


def test_a_value_that_would_fill_the_memory(server, guard):
    key = b"hs:default:k:" + WANTED[0].key
    server.ask("SETRANGE", key, (200 << 20), "x")
    assert read(guard, WANTED[:20]) == [TRUTH[each.key] for each in WANTED[:20]]
    assert guard.counts.errors == 1
    assert "larger than" in told(guard)[0]


def test_old_values_are_no_answers(server, guard):
    """An array was written anew, and the tier still has what it was."""
    changed = [each._replace(crc=each.crc ^ 0xFF) for each in WANTED]
    assert guard.get_many(changed) == [None] * COUNT
    assert guard.counts.stale == COUNT
    assert told(guard) == []


def test_paused_during_reads(server, guard):
    guard.tier._timeout_s = 0.5
    with Readers(guard) as readers:
        pid = server.pause()
        try:
            started = time.monotonic()
            # Each thread waits once, then the tier is left alone.
            readers.more(200)
            assert time.monotonic() - started < 30
        finally:
            server.resume(pid)
        hits = guard.counts.hits
        until(lambda: guard.counts.hits > hits + 100)
    assert guard.counts.errors >= 1
    assert sum("fails" in message for message in told(guard)) == 1


def test_a_child_of_a_reader_goes_on_alone(server, guard):
    with Readers(guard) as readers:
        assert in_child(lambda: read(guard, WANTED[:50]), 60) == list(TRUTH.values())[:50]
        readers.more()
    server.kill()
    assert in_child(lambda: read(guard, WANTED[:50]), 60) == list(TRUTH.values())[:50]


def test_killed_while_it_is_filled(server, guard):
    server.ask("FLUSHALL")
    ended, stored = threading.Event(), []

    def keep_filling():
        while not ended.is_set():
            stored.append(len(guard.put_many({key: (data, crc_of(data)) for key, data in TRUTH.items()})))

    thread = threading.Thread(target=keep_filling)
    thread.start()
    try:
        until(lambda: stored)
        server.kill()
        until(lambda: 0 in stored)
        server.start()
        until(lambda: stored[-1] == COUNT)
    finally:
        ended.set()
        thread.join(60)
    assert guard.tier.used_bytes() == guard.tier.recount() > 0
    assert read(guard, WANTED) == list(TRUTH.values())
