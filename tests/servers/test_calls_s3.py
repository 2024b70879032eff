"""Calls of a real function beside a real S3 server: the ledger agrees with both wires, to the request and the byte.

Between the reader and either of them is a proxy that counts. The function has a way of its own to the store, so what
it reads there is not among the reader's requests.
"""

import itertools
import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from support.function import FunctionServer
from support.hostile import encode, fast, sent
from support.profiles import times
from support.s3proxy import Rule, S3Proxy
from support.seaweed import Seaweed, options_for

import hyperslab as hs
from hyperslab.execute.calling import FunctionWarning
from hyperslab.plan import FunctionProfile

DATA = np.random.default_rng(4).integers(0, 1 << 30, (96, 80)).astype("i4")
CHUNKS = (16, 20)
FREE = FunctionProfile(1e-4, 1e-9, at_once=4, chunk_s=1e-4)
SLOW = FunctionProfile(1e-3, 1e-7, at_once=2, chunk_s=1e-3)
# All by calls; some chunks by calls and some by requests.
PROFILES = {
    "calls": hs.Profile("calls", 1e-3, (1,), (1e5,), 8, 1e-3, function=FREE),
    "mixed": hs.Profile("mixed", 1e-3, (1, 8), (1e6, 4e6), 8, 1e-4, function=SLOW),
}
_numbers = itertools.count()


@pytest.fixture
def counted(function):
    """The function, behind a proxy that counts and misbehaves: `log`, `rules`, `function`."""
    with S3Proxy(function.host) as proxy:
        proxy.function = hs.Function(f"{proxy.endpoint}/", key=function.key)
        yield proxy


def store(s3, layout="plain", data=DATA):
    name = f"calls/{next(_numbers)}"
    for key, value in encode(data, CHUNKS, layout).items():
        s3.put(f"{name}/{key}", value)
    return name


def opened(s3, s3_proxy, name, session):
    array = hs.open(s3.url(name), storage_options=options_for(s3_proxy.endpoint), session=session)
    s3_proxy.log.clear()
    return array


def session_of(counted, profile="calls", **settings):
    return fast(
        **{"timeout_s": 30.0, "function": counted.function, "profile": PROFILES[profile], "prices": "aws", **settings}
    )


def spent(session, before):
    """What was sent since `before`, as the session counts it."""
    after = session.metrics.snapshot().to_dict()
    return SimpleNamespace(**{name: value - getattr(before, name) for name, value in after.items()})


def wires(s3_proxy, counted):
    """Requests to the store, calls, and the bytes of their bodies, as the proxies saw them."""
    requests, nbytes = sent(s3_proxy)
    posts = [each for each in counted.log if each.method == "POST"]
    return requests, nbytes, len(posts), sum([each.body_bytes for each in posts])


def assert_wires_agree(session, before, s3_proxy, counted):
    requests, nbytes, calls, call_bytes = wires(s3_proxy, counted)
    ledger = spent(session, before)
    assert ledger.requests + ledger.lookups == requests
    assert (ledger.calls, ledger.call_bytes) == (calls, call_bytes)
    assert ledger.bytes == nbytes + call_bytes
    return ledger


def boxes(count, seed):
    rng = np.random.default_rng(seed)
    yield np.s_[:, :]
    for _ in range(count):
        (a, b), (c, d) = np.sort(rng.integers(0, 97, (2, 2)))
        yield (slice(a, b + 20, int(rng.integers(1, 30))), slice(c % 80, d + 20, int(rng.integers(1, 30))))


@pytest.mark.parametrize("layout", ["plain", "zstd", "crc", "shards-start", "shards-zstd"])
@pytest.mark.parametrize(("profile", "method"), [("calls", "call"), ("calls", None), ("mixed", None)])
def test_both_wires_agree_with_the_ledger(s3, s3_proxy, counted, layout, profile, method):
    with session_of(counted, profile) as session:
        array = opened(s3, s3_proxy, store(s3, layout), session)
        before = session.metrics.snapshot()
        for box in boxes(times(3), seed=len(layout)):
            assert np.array_equal(array.read(box, method=method), DATA[box])
        ledger = assert_wires_agree(session, before, s3_proxy, counted)
        assert ledger.calls > 0 or profile == "mixed"
        assert ledger.function_gets >= ledger.calls
        assert not ledger.retries


def test_calls_and_requests_in_one_plan(s3, s3_proxy, counted):
    """A chunk of which nearly all is wanted is fetched, those of which a few cells are wanted are called for."""
    big = np.arange(1 << 20, dtype="f4").reshape(1024, 1024)
    name = f"calls/{next(_numbers)}"
    for key, value in encode(big, (256, 256)).items():
        s3.put(f"{name}/{key}", value)
    with session_of(counted, "mixed") as session:
        array = opened(s3, s3_proxy, name, session)
        pairs = [(array, np.s_[0:256, 0:256]), (array, np.s_[256::3, 256::3])]
        before = session.metrics.snapshot()
        found = hs.read_many(pairs)
        for (_, box), cells in zip(pairs, found, strict=True):
            assert np.array_equal(cells, big[box])
        ledger = assert_wires_agree(session, before, s3_proxy, counted)
        assert ledger.calls > 0
        assert ledger.requests > 0


@pytest.mark.parametrize("layout", ["plain", "zstd", "shards-zstd"])
@pytest.mark.parametrize("action", ["status", "truncate"])
def test_both_wires_agree_when_a_call_fails(s3, s3_proxy, counted, layout, action):
    with session_of(counted) as session:
        array = opened(s3, s3_proxy, store(s3, layout), session)
        before = session.metrics.snapshot()
        counted.rules.append(Rule(action, method="POST", status=503, times=1, after_bytes=40))
        assert np.array_equal(array.read(np.s_[::7, ::9], method="call"), DATA[::7, ::9])
        ledger = assert_wires_agree(session, before, s3_proxy, counted)
        assert ledger.requests > 0


def test_dollars_are_those_of_what_was_sent(s3, s3_proxy, counted):
    """Requests inside, calls, seconds, bytes: by the figures of the ledger, which are the wire's."""
    prices = hs.Prices.named("aws")
    function = hs.Function(counted.function.url, key=counted.function.key, provider="aws")
    with session_of(counted, function=function, prices=prices) as session:
        array = opened(s3, s3_proxy, store(s3, "zstd"), session)
        before = session.metrics.snapshot()
        array.read(np.s_[::7, ::9], method="call")
        ledger = assert_wires_agree(session, before, s3_proxy, counted)
        bill = (
            ledger.calls * prices.function.call_usd
            + ledger.function_s * prices.function.second_usd(function.memory_mb)
            + ledger.function_gets * prices.request_usd
            + ledger.function_bytes * prices.inside_byte_usd
            + ledger.call_bytes * prices.reply_byte_usd
            # The first answer of a function is held against the store: a byte of an object.
            + prices.request_usd
            + prices.byte_usd
        )
        assert (ledger.requests, ledger.lookups) == (0, 1)
        assert ledger.usd == pytest.approx(bill, rel=1e-9)
        assert ledger.function_gets == 6 * 4  # one for each chunk


@pytest.mark.parametrize("layout", ["shards-start", "shards-zstd"])
def test_near_chunks_of_a_shard_are_read_at_once(s3, s3_proxy, counted, layout):
    """As many requests inside, and bytes, as the plan says."""
    with session_of(counted, phi=float("inf"), cache_bytes=0, index_bytes=1 << 20) as session:
        array = opened(s3, s3_proxy, store(s3, layout), session)
        array.read(np.s_[:, :], method="get")  # from here on the indexes are known
        plan, before = array.explain(np.s_[1::16, 1::20], method="call").plan, session.metrics.snapshot()
        assert np.array_equal(array.read(np.s_[1::16, 1::20], method="call"), DATA[1::16, 1::20])
        ledger = spent(session, before)
        assert ledger.function_gets == plan.estimate.function_gets < len(plan.calls[0].owners)
        assert ledger.function_bytes == plan.estimate.function_bytes


@pytest.mark.parametrize("budget", [None, hs.Budget(bytes=1 << 20)], ids=["no budget", "a budget"])
def test_how_well_cells_are_compressed_is_learned_from_what_is_read(s3, s3_proxy, counted, budget):
    data = np.repeat(np.arange(96 * 40, dtype="i4").reshape(96, 40) // 500, 2, axis=1)
    function = replace(counted.function, compress=True)
    with session_of(counted, function=function, budget=budget) as session:
        array = opened(s3, s3_proxy, store(s3, "plain", data), session)
        first = array.explain(np.s_[:, :], method="call").plan
        assert np.array_equal(array[:, :], data)
        learned = array.explain(np.s_[:, :], method="call").plan
        # Memory is taken for what they are without; and a budget counts nothing that is not certain.
        assert [call.reply_bytes for call in learned.calls] == [call.reply_bytes for call in first.calls]
        if budget is None:
            assert 10 * learned.estimate.reply_bytes < first.estimate.reply_bytes
        else:
            assert learned.estimate.reply_bytes == first.estimate.reply_bytes


def test_a_function_that_goes_away(s3, s3_proxy, counted):
    with session_of(counted) as session:
        array = opened(s3, s3_proxy, store(s3), session)
        assert np.array_equal(array[::7, ::9], DATA[::7, ::9])
        calls = session.metrics.calls
        assert calls > 0
        counted.close_server()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for _ in range(4):
                assert np.array_equal(array[::7, ::9], DATA[::7, ::9])
        assert [each.category for each in said].count(FunctionWarning) == 1
        tried = session.metrics.calls
        assert np.array_equal(array[::7, ::9], DATA[::7, ::9])
        assert session.metrics.calls == tried


def test_what_a_function_may_not_read_is_fetched(s3, s3_proxy):
    """It was given one prefix; the array lies elsewhere."""
    other = FunctionServer(s3.url("elsewhere"), s3.storage_options)
    try:
        with fast(function=other.function, profile=PROFILES["calls"]) as session:
            array = opened(s3, s3_proxy, store(s3), session)
            with pytest.warns(FunctionWarning, match="answered 403"):
                assert np.array_equal(array[::7, ::9], DATA[::7, ::9])
            assert session.metrics.requests == len(s3_proxy.gets()) > 0
    finally:
        other.stop()


def test_a_function_beside_another_bucket_of_the_same_name_is_not_believed(s3):
    """The same names on another server: its cells would be wrong, and nothing in its answers says so."""
    cells = np.arange(64 * 64, dtype="<i4").reshape(64, 64)
    elsewhere = Seaweed(s3.bucket)
    try:
        for server, stored in ((s3, cells), (elsewhere, cells + 1)):
            options = server.storage_options
            hs.save(
                s3.url("twin.zarr"), stored, chunks=(32, 32), layout="plain", overwrite=True, storage_options=options
            )
        function = FunctionServer(s3.url(), elsewhere.storage_options)
        try:
            with hs.Session(function=function.function, cache_bytes=0) as session:
                array = hs.open(s3.url("twin.zarr"), storage_options=s3.storage_options, session=session)
                with pytest.warns(FunctionWarning, match="on another server"):
                    assert np.array_equal(array.read(np.s_[:, 3:9], method="call"), cells[:, 3:9])
                calls = session.metrics.calls
                assert np.array_equal(array[5], cells[5])
                assert session.metrics.calls == calls
        finally:
            function.stop()
    finally:
        elsewhere.stop()
