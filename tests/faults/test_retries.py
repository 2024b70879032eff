"""Failures that pass are got over, others are not repeated; every request and byte is counted as the server saw it."""

import time
from itertools import pairwise

import numpy as np
import pytest
from support.faulty import Fault, FaultyStore
from support.hostile import FILL, array_at, encode, fast, options_for, put, sent
from support.profiles import times
from support.s3proxy import Rule

import hyperslab as hs
from hyperslab.errors import AccessError, IntegrityError, StoreError
from hyperslab.execute import retry
from hyperslab.execute.retry import backoff_s
from hyperslab.store import locate, memory

DATA = np.arange(1024, dtype="i4").reshape(32, 32)
CHUNKS = (8, 8)
PASSING = {
    "500": Rule("status", status=500, code="InternalError"),
    "503": Rule("status", status=503, code="SlowDown"),
    "429": Rule("status", status=429, code="TooManyRequests"),
    "dropped reply": Rule("drop"),
    "cut body": Rule("truncate", after_bytes=5),
    "no HTTP": Rule("garbage"),
}
layouts = pytest.mark.parametrize("layout", ["plain", "zstd", "shards", "shards-zstd"])


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(retry, "_FIRST_S", 0.002)


def assert_metered(proxy, session, before):
    """The session's figures since `before` are what the server saw."""
    after = session.metrics.snapshot()
    requests, nbytes = sent(proxy)
    assert after.requests + after.lookups - before.requests - before.lookups == requests
    whole = sum(entry.body_bytes for entry in proxy.gets() if entry.status in (200, 206))
    assert after.bytes - before.bytes == whole == nbytes
    prices = hs.Prices.named("aws")
    wanted = requests * prices.request_usd + nbytes * prices.byte_usd
    assert after.usd - before.usd == pytest.approx(wanted, rel=1e-9)


@layouts
@pytest.mark.parametrize("fault", [name for name in PASSING if name != "cut body"])
@pytest.mark.parametrize("failures", [1, 3])
def test_a_failure_that_passes(fake_s3, layout, fault, failures):
    put(fake_s3, "a", DATA, CHUNKS, layout)
    with fast() as session:
        array = array_at(fake_s3, "a", session)
        before = session.metrics.snapshot()
        rule = PASSING[fault]
        fake_s3.rules.append(Rule(rule.action, times=failures, status=rule.status, code=rule.code))
        assert np.array_equal(array[3:29, 5:31], DATA[3:29, 5:31])
        assert session.metrics.retries == failures
        assert_metered(fake_s3, session, before)


@layouts
def test_a_body_that_was_cut(fake_s3, layout):
    put(fake_s3, "a", DATA, CHUNKS, layout)
    with fast() as session:
        array = array_at(fake_s3, "a", session)
        before = session.metrics.snapshot()
        fake_s3.rules.append(Rule("truncate", times=2, after_bytes=5))
        assert np.array_equal(array[...], DATA)
        requests, nbytes = sent(fake_s3)
        after = session.metrics.snapshot()
        assert after.requests + after.lookups - before.requests - before.lookups == requests
        assert after.bytes - before.bytes == nbytes - 2 * 5  # what came of a body that broke off cannot be known
        assert session.metrics.retries == 2


@pytest.mark.parametrize("seed", range(times(6)))
def test_any_mixture_of_failures(fake_s3, seed):
    rng = np.random.default_rng(seed)
    put(fake_s3, "a", DATA, CHUNKS, str(rng.choice(["plain", "zstd", "shards", "shards-zstd"])))
    with fast(retries=30, concurrency=int(rng.integers(1, 9))) as session:
        array = array_at(fake_s3, "a", session)
        before = session.metrics.snapshot()
        for rule in PASSING.values():
            if rule.action != "truncate":
                skip, count = (int(n) for n in rng.integers(0, 5, 2))
                fake_s3.rules.append(Rule(rule.action, status=rule.status, code=rule.code, skip=skip, times=count))
        for _ in range(4):
            (a, b), (c, d) = np.sort(rng.integers(0, 33, (2, 2)))
            assert np.array_equal(array[a:b, c:d], DATA[a:b, c:d])
        assert_metered(fake_s3, session, before)


@layouts
@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (403, "AccessDenied", AccessError),
        (400, "InvalidRequest", StoreError),
        (405, "MethodNotAllowed", StoreError),
        (501, "NotImplemented", StoreError),
        (416, "InvalidRange", IntegrityError),
    ],
)
def test_a_refusal_is_not_repeated(fake_s3, layout, status, code, kind):
    put(fake_s3, "a", DATA, CHUNKS, layout)
    with fast(concurrency=1) as session:
        array = array_at(fake_s3, "a", session)
        before = session.metrics.snapshot()
        fake_s3.rules.append(Rule("status", status=status, code=code))
        with pytest.raises(kind):
            array[...]
        assert len(fake_s3.log) == 1
        assert session.metrics.retries == 0
        assert_metered(fake_s3, session, before)


@layouts
def test_a_missing_chunk_is_asked_for_once(fake_s3, layout):
    put(fake_s3, "a", DATA, CHUNKS, layout)
    del fake_s3.fake.objects["bucket/a/c/0/0"]
    with fast(concurrency=1) as session:
        array = array_at(fake_s3, "a", session)
        before = session.metrics.snapshot()
        assert (array[:8, :8] == FILL).all()
        assert [entry.status for entry in fake_s3.log] == [404]
        assert_metered(fake_s3, session, before)


@pytest.mark.parametrize("retries", [0, 1, 4])
def test_retries_are_bounded(fake_s3, retries):
    put(fake_s3, "a", DATA, CHUNKS)
    with fast(retries=retries, concurrency=1) as session:
        array = array_at(fake_s3, "a", session)
        before = session.metrics.snapshot()
        fake_s3.rules.append(Rule("status", status=503, code="SlowDown"))
        with pytest.raises(StoreError, match="try again later") as caught:
            array[0, 0]
        assert caught.value.transient
        assert len(fake_s3.log) == retries + 1
        assert session.metrics.retries == retries
        assert_metered(fake_s3, session, before)


def test_opening_is_retried_and_counted(fake_s3):
    put(fake_s3, "a", DATA, CHUNKS)
    with fast() as session:
        fake_s3.rules.append(Rule("status", status=503, code="SlowDown", times=2))
        hs.open("s3://bucket/a", storage_options=options_for(fake_s3), session=session)
        requests, nbytes = sent(fake_s3)
        assert (requests, nbytes) == (3, len(fake_s3.fake.objects["bucket/a/zarr.json"]))
        assert (session.metrics.lookups, session.metrics.retries, session.metrics.bytes) == (3, 2, nbytes)
        prices = hs.Prices.named("aws")
        assert session.metrics.usd == pytest.approx(3 * prices.request_usd + nbytes * prices.byte_usd)
        fake_s3.clear()
        fake_s3.rules.append(Rule("status", status=403, code="AccessDenied"))
        with pytest.raises(AccessError):
            hs.open("s3://bucket/a", storage_options=options_for(fake_s3), session=session)
        assert len(fake_s3.log) == 1


def test_pauses_grow_differ_and_are_bounded(monkeypatch):
    monkeypatch.undo()
    pauses = [[backoff_s(attempt) for _ in range(50)] for attempt in range(12)]
    means = [sum(each) / 50 for each in pauses]
    assert all(a < b for a, b in pairwise(means[:6]))
    assert all(len({round(pause, 9) for pause in each}) > 40 for each in pauses)
    assert max(map(max, pauses)) <= 7.5
    assert min(map(min, pauses)) >= 0.05
    assert backoff_s(10**6) <= 7.5


def test_failures_of_one_request_do_not_hold_up_others():
    """A request that waits before it is sent again takes no place in the queue."""
    name = "pausing"
    for key, value in encode(DATA, CHUNKS).items():
        memory(name).put(f"a/{key}", value)
    store = FaultyStore(locate(f"memory://{name}")[0])
    with fast(concurrency=1, retries=3) as session:
        opened = hs.open(f"memory://{name}/a", session=session)
        array = hs.Array(opened.source, store, session)
        store.faults.append(Fault("c/0/0", times=2, error=_slow_down))
        assert np.array_equal(array.read(method="get"), DATA)
        keys = [asked.key for asked in store.log]
        assert len(keys) == 16 + 2
        assert keys.index("a/c/0/0") < keys.index("a/c/0/1") or keys[-1] == "a/c/0/0"


def _slow_down():
    error = StoreError("503")
    error.transient = True
    return error


@pytest.mark.parametrize("layout", ["plain", "shards"])
@pytest.mark.parametrize("method", [None, "get", "merge", "fetch", "paper"])
@pytest.mark.parametrize("key", [np.s_[...], np.s_[3:5, 9:30], np.s_[::7, ::5], np.s_[[1, 30, 2], 4], (0, 0)])
def test_what_explain_says_is_sent(fake_s3, layout, method, key):
    put(fake_s3, "a", DATA, CHUNKS, layout)
    with fast(cache_bytes=1 << 20) as session:
        array = array_at(fake_s3, "a", session)
        if layout == "shards":
            array.read(np.s_[::16, ::16], method="fetch")  # the indexes are known then, and the plan exact
            fake_s3.log.clear()
        said = array.explain(key, method=method).plan.estimate
        assert not fake_s3.log
        assert said.exact
        before = session.metrics.snapshot()
        assert np.array_equal(array.read(key, method=method), DATA[key])
        assert (said.all_requests, said.all_bytes) == sent(fake_s3)
        assert_metered(fake_s3, session, before)
        spent = session.metrics.usd - before.usd
        assert said.usd == pytest.approx(spent, rel=1e-9)


@pytest.mark.parametrize("layout", ["zstd", "shards", "shards-zstd"])
@pytest.mark.parametrize("key", [np.s_[...], np.s_[3:5, 9:30], (0, 0)])
def test_what_explain_says_is_a_bound(fake_s3, layout, key):
    put(fake_s3, "a", DATA, CHUNKS, layout)
    with fast() as session:
        array = array_at(fake_s3, "a", session)
        said = array.explain[key].plan.estimate
        assert not said.exact
        assert np.array_equal(array[key], DATA[key])
        requests, nbytes = sent(fake_s3)
        assert requests == said.all_requests
        room = 16 * requests + (16 * 4 + 4) * requests  # zstd's frames, and the index of a shard that came whole
        assert nbytes <= said.all_bytes + room


def test_a_slow_retry_is_not_a_busy_one(fake_s3, monkeypatch):
    monkeypatch.setattr(retry, "_FIRST_S", 0.2)
    put(fake_s3, "a", DATA, CHUNKS)
    with fast() as session:
        array = array_at(fake_s3, "a", session)
        fake_s3.rules.append(Rule("status", status=503, code="SlowDown", times=2))
        started = time.monotonic()
        assert array[0, 0] == 0
        assert time.monotonic() - started >= 0.1 + 0.2
