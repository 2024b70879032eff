"""Collections on a real S3 server with a real Redis beside it: recorded, advised, packed anew, while others write."""

import os
import signal
import time
import uuid
from contextlib import suppress

import numpy as np
import pytest
from support.forking import Child
from support.missing import not_installed
from support.plans import random_plan
from support.redis_server import RedisServer, find_redis

import hyperslab as hs

pytest.importorskip("numba")
pytest.importorskip("redis")

NAMES = [f"n/{i:03d}" for i in range(120)]
ARRAYS = {name: np.random.default_rng(at).random((21, 21), np.float32) for at, name in enumerate(NAMES)}
GROUPS = [NAMES[at::20] for at in range(20)]


@pytest.fixture(scope="module")
def redis():
    if find_redis() is None:
        not_installed("redis-server is not installed: Debian has it as redis-server")
    running = RedisServer()
    yield running
    running.stop()


@pytest.fixture
def url(s3):
    return s3.url(f"collections/{uuid.uuid4().hex}")


def opened(s3, url, session, mode="r", **options):
    return hs.collection(url, mode, storage_options=s3.storage_options, session=session, **options)


def check(c, arrays=ARRAYS):
    assert list(c) == sorted(arrays)
    found = c.read_many(list(arrays))
    assert all(np.array_equal(one, other) for one, other in zip(found, arrays.values(), strict=True))


def test_recorded_advised_and_applied(s3, url, redis, tmp_path):
    with hs.Session() as session:
        c = opened(s3, url, session, "w-", tier=redis.url, tier_bytes=8 << 20)
        c.put_many(ARRAYS, pack_bytes=10 * 1764)
        with hs.record(tmp_path / "log"):
            for group in 3 * GROUPS:
                c.read_many([*group, NAMES[0]])
        advice = c.advise(tmp_path / "log", key_bytes=20_000, pack_bytes=6 * 1764)
        found = advice.findings
        assert not advice.keep
        assert found.told.held_out < found.now.seconds / found.queries
        assert 0 < found.keyed_arrays <= 11
        assert 0 < found.keys.key_s < found.prices.pack_s
        changed = advice.apply()
        check(changed)
        assert changed.tier.guard.counts.hits == found.keyed_arrays
        assert changed.tier.guard.tier.used_bytes() <= 20_000
    with hs.Session() as session:
        check(opened(s3, url, session))


def _put_some(s3, url, rounds):
    with hs.Session() as session:
        c = opened(s3, url, session, "r+")
        for n in range(rounds):
            c[f"new/{n}"] = np.array(n)
            del c[NAMES[n]]
        c.compact()


def _apply_some(s3, url, seeds):
    with hs.Session() as session:
        for seed in seeds:
            c = opened(s3, url, session, "r+")
            c.apply(random_plan(c, np.random.default_rng(seed), 10))


def test_while_others_write_and_others_pack(s3, url):
    with hs.Session() as session:
        opened(s3, url, session, "w-").put_many(ARRAYS, pack_bytes=10 * 1764)
    children = [Child(lambda: _put_some(s3, url, 10))]
    children += [Child(lambda seeds=seeds: _apply_some(s3, url, seeds)) for seeds in (range(3), range(3, 6))]
    for child in children:
        child.result(120)
    left = {name: array for name, array in ARRAYS.items() if name not in NAMES[:10]}
    with hs.Session() as session:
        c = opened(s3, url, session, "r+")
        check(c, {**left, **{f"new/{n}": np.array(n) for n in range(10)}})
        c.sweep(grace_s=0)
        check(c, {**left, **{f"new/{n}": np.array(n) for n in range(10)}})


def test_killed_at_random_moments(s3, url):
    numbers = np.random.default_rng(5)
    with hs.Session() as session:
        opened(s3, url, session, "w-").put_many(ARRAYS, pack_bytes=10 * 1764)
    for seed in range(6):
        child = Child(lambda seed=seed: _apply_some(s3, url, [seed]))
        time.sleep(float(numbers.uniform(0.0, 0.4)))
        os.kill(child.pid, signal.SIGKILL)
        # A child that was killed has nothing to say; one that was faster has made the change.
        with suppress(EOFError):
            child.result(60)
        with hs.Session() as session:
            check(opened(s3, url, session))
    _apply_some(s3, url, [5])
    with hs.Session() as session:
        check(opened(s3, url, session))
