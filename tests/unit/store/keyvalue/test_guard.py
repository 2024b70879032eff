"""The guard: the array's bytes or nothing, one warning for each kind of trouble, and a rest for a tier that fails."""

import gc
import os
import pickle
import socket
import threading
import time
import warnings
from itertools import pairwise

import numpy as np
import pytest
from support.forking import in_child

from hyperslab.errors import InvalidInputError
from hyperslab.layout.checksums import crc32c
from hyperslab.store.keyvalue import Guard, TierWarning, Wanted, open_tier
from hyperslab.store.keyvalue import guard as guards
from hyperslab.store.keyvalue.values import sealed

pytest.importorskip("lmdb")

DATA = {b"%03d" % n: os.urandom(100 + n) for n in range(40)}


def crc_of(data):
    return crc32c(np.frombuffer(data, np.uint8))


WANTED = [Wanted(key, crc_of(data), len(data)) for key, data in DATA.items()]


@pytest.fixture
def guard(tmp_path):
    guard = Guard(open_tier(tmp_path / "tier", capacity_bytes=4 << 20))
    guard.put_many({key: (data, crc_of(data)) for key, data in DATA.items()})
    return guard


def told(guard):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        guard.tell()
    assert all(issubclass(each.category, TierWarning) for each in caught)
    return [str(each.message) for each in caught]


def test_what_was_put_is_found(guard):
    assert [bytes(found) for found in guard.get_many(WANTED)] == list(DATA.values())
    assert guard.counts.hits == 40
    assert told(guard) == []
    assert guard.get_many([]) == []


def test_many_are_asked_for_in_parts_each_in_its_own_time(guard, monkeypatch):
    monkeypatch.setattr(guards, "_PART_KEYS", 7)
    asked, tier_get = [], guard.tier.get_many

    def slow(keys, **limits):
        asked.append((len(keys), limits["timeout_s"]))
        time.sleep(0.01)
        return tier_get(keys, **limits)

    monkeypatch.setattr(guard.tier, "get_many", slow)
    assert [bytes(found) for found in guard.get_many(WANTED)] == list(DATA.values())
    assert asked == [(7, None)] * 5 + [(5, None)]
    asked.clear()
    guard.get_many(WANTED, timeout_s=9)
    assert asked[0][1] <= 9
    assert all(later[1] <= each[1] - 0.01 for each, later in pairwise(asked))


def test_another_version_is_a_miss_that_nobody_is_told_of(guard):
    wanted = [each._replace(crc=each.crc ^ 1) for each in WANTED[:10]] + WANTED[10:]
    found = guard.get_many(wanted)
    assert found[:10] == [None] * 10
    assert [bytes(each) for each in found[10:]] == list(DATA.values())[10:]
    assert (guard.counts.stale, guard.counts.hits) == (10, 30)
    assert told(guard) == []


def test_wrong_bytes_are_told_once(guard):
    first, second, *_ = DATA
    guard.tier.put_many({first: sealed(bytes(100), WANTED[0].crc), second: b"poison"})
    for _ in range(3):
        found = guard.get_many(WANTED)
        assert found[:2] == [None, None]
        assert [bytes(each) for each in found[2:]] == list(DATA.values())[2:]
    assert guard.counts.wrong == 6
    (message,) = told(guard)
    assert "wrong bytes for 2 of 40 arrays" in message
    guard.get_many(WANTED)
    assert told(guard) == []


def test_what_is_not_there_is_told_once(guard):
    guard.tier.delete_many(list(DATA)[:5])
    for _ in range(3):
        assert guard.get_many(WANTED).count(None) == 5
    assert guard.counts.misses == 15
    (message,) = told(guard)
    assert "lacks 5 of 40 arrays" in message
    assert told(guard) == []


def test_a_key_that_cannot_be_is_the_callers_mistake(guard):
    for call in (
        lambda: guard.get_many([Wanted(b"", 0, 0)]),
        lambda: guard.put_many({b"": (b"", 0)}),
        lambda: guard.delete_many([b""]),
    ):
        with pytest.raises(InvalidInputError):
            call()


def test_where_warnings_are_errors_answers_are_there_before(guard):
    guard.tier.delete_many(list(DATA)[:1])
    assert bytes(guard.get_many(WANTED)[1]) == DATA[b"001"]
    with pytest.warns(TierWarning, match="Arrays are read from their packs"):
        guard.tell()


class Time:
    """A clock that stands still unless it is put forward."""

    def __init__(self):
        self.now_s = 1000.0

    def monotonic(self):
        return self.now_s


@pytest.fixture
def clock(monkeypatch):
    made = Time()
    monkeypatch.setattr(guards, "time", made)
    return made


@pytest.fixture
def dead(clock):
    """A guarded tier where no server is."""
    pytest.importorskip("redis")
    with socket.socket() as held:  # so that no other server is there either
        held.bind(("127.0.0.1", 0))
        tier = open_tier(f"redis://127.0.0.1:{held.getsockname()[1]}", capacity_bytes=1 << 20)
        yield Guard(tier, first_rest_s=0.25)


def test_a_dead_tier_is_left_alone_for_longer_each_time(dead, clock):
    attempts, started = [], clock.now_s
    while clock.now_s - started < 1.7:
        errors = dead.counts.errors
        assert dead.get_many(WANTED) == [None] * 40
        if dead.counts.errors > errors:
            attempts.append(clock.now_s - started)
        clock.now_s += 1 / 128
    # The next one is a second after these.
    assert attempts == [0.0, 0.25, 0.75]
    assert dead.is_resting()
    assert dead.counts.skipped > 0
    (message,) = told(dead)
    assert "fails: redis://127.0.0.1" in message


def test_puts_and_deletes_of_a_dead_tier(dead):
    assert dead.put_many({b"a": (b"1", 0)}) == []
    assert not dead.delete_many([b"a"])
    assert dead.counts.errors == 1


def test_failures_at_once_are_one(dead):
    gate = threading.Barrier(8)

    def read():
        gate.wait()
        dead.get_many(WANTED)

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert dead._rests == 1
    assert len(told(dead)) == 1


def test_copies_and_children(guard):
    copy = pickle.loads(pickle.dumps(guard))
    assert [bytes(each) for each in copy.get_many(WANTED)] == list(DATA.values())
    with guard._lock:  # as if another thread had it when the process forks
        assert in_child(lambda: [bytes(each) for each in guard.get_many(WANTED)]) == list(DATA.values())
    del copy
    gc.collect()
