"""Arrays on a real S3 server: NumPy's numbers, what `explain` said, and a ledger that agrees with the wire."""

import asyncio
import itertools
import threading

import numpy as np
import pytest
from support.forking import in_child
from support.hostile import LAYOUTS, encode, fast, sent
from support.profiles import times
from support.s3proxy import Rule
from support.seaweed import options_for

import hyperslab as hs
from hyperslab.errors import AccessError, BudgetError, ConflictError, NotFoundError, StoreError

DATA = np.random.default_rng(9).integers(0, 1 << 30, (96, 80)).astype("i4")
CHUNKS = (16, 20)
_numbers = itertools.count()


def store(s3, data=DATA, layout="plain", name=None):
    name = name or f"reads/{next(_numbers)}"
    for key, value in encode(data, CHUNKS, layout).items():
        s3.put(f"{name}/{key}", value)
    return name


@pytest.fixture
def session():
    with fast() as made:
        yield made


def opened(s3, proxy, name, session):
    array = hs.open(s3.url(name), storage_options=options_for(proxy.endpoint), session=session)
    proxy.log.clear()
    return array


def some_boxes(count, seed):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        (a, b), (c, d) = np.sort(rng.integers(0, 97, (2, 2)))
        yield (slice(a, b, int(rng.integers(1, 4))), slice(c % 80, d, int(rng.integers(1, 6))))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("method", [None, "get", "merge", "fetch"])
def test_the_wire_agrees_with_the_ledger(s3, s3_proxy, layout, method):
    name = store(s3, layout=layout)
    with fast(cache_bytes=1 << 20) as session:
        array = opened(s3, s3_proxy, name, session)
        before = session.metrics.snapshot()
        for box in some_boxes(times(4), seed=len(layout)):
            said, seen = array.explain(box, method=method).plan.estimate, sent(s3_proxy)
            assert np.array_equal(array.read(box, method=method), DATA[box])
            requests, nbytes = (b - a for a, b in zip(seen, sent(s3_proxy), strict=True))
            if said.exact:
                assert (said.all_requests, said.all_bytes) == (requests, nbytes)
        after, (requests, nbytes) = session.metrics.snapshot(), sent(s3_proxy)
        assert after.requests + after.lookups - before.requests - before.lookups == requests
        assert after.bytes - before.bytes == nbytes
        prices = hs.Prices.named("aws")
        assert after.usd - before.usd == pytest.approx(requests * prices.request_usd + nbytes * prices.byte_usd)


def test_fetch_sends_exactly_the_bytes_needed(s3, s3_proxy, session):
    array = opened(s3, s3_proxy, store(s3), session)
    assert np.array_equal(array.read(np.s_[10:31, 15:36], method="fetch"), DATA[10:31, 15:36])
    assert sent(s3_proxy)[1] == 21 * 21 * 4


def test_missing_chunks_are_fill_values(s3, s3_proxy, session):
    name = store(s3)
    s3.delete(f"{name}/c/0/0")
    array = opened(s3, s3_proxy, name, session)
    found = array[...]
    assert (found[:16, :20] == 77).all()
    assert np.array_equal(found[16:], DATA[16:])


def test_groups_and_members(s3, session):
    name = f"reads/{next(_numbers)}"
    s3.put(f"{name}/zarr.json", b'{"zarr_format": 3, "node_type": "group", "attributes": {"who": "me"}}')
    store(s3, name=f"{name}/first")
    store(s3, name=f"{name}/deep/second", layout="zstd")
    s3.put(f"{name}/deep/zarr.json", b'{"zarr_format": 3, "node_type": "group", "attributes": {}}')
    group = hs.open(s3.url(name), storage_options=s3.storage_options, session=session)
    assert list(group) == ["deep", "first"]
    assert group.attrs == {"who": "me"}
    assert np.array_equal(group["deep/second"][5:9], DATA[5:9])
    with pytest.raises(NotFoundError):
        group["third"]


def test_an_object_that_changes(s3, s3_proxy):
    name = store(s3, layout="shards-zstd")
    with fast(concurrency=1, cache_bytes=1 << 20) as session:
        array = opened(s3, s3_proxy, name, session)
        s3_proxy.rules.append(
            Rule("run", skip=1, times=1, run=lambda: store(s3, DATA + 1, layout="shards-zstd", name=name))
        )
        with pytest.raises(ConflictError, match="refresh"):
            array.read(np.s_[0:4, 0:4], method="fetch")
        assert [entry.status for entry in s3_proxy.gets()] == [206, 412]
        array = array.refresh()
        assert np.array_equal(array[...], DATA + 1)
        store(s3, layout="shards-zstd", name=name)
        session.cache.__init__(1 << 20)  # the chunks are gone, the handle has seen them
        assert np.array_equal(array.refresh()[...], DATA)


def test_failures_that_pass(s3, s3_proxy):
    name = store(s3)
    with fast(retries=5) as session:
        array = opened(s3, s3_proxy, name, session)
        before = session.metrics.snapshot()
        s3_proxy.rules += [
            Rule("status", status=503, code="SlowDown", times=3),
            Rule("drop", skip=2, times=2),
        ]
        assert np.array_equal(array.read(method="get"), DATA)
        after, (requests, nbytes) = session.metrics.snapshot(), sent(s3_proxy)
        assert after.retries == 5
        assert after.requests - before.requests == requests == 24 + 5
        assert after.bytes - before.bytes == nbytes == DATA.nbytes


def test_who_may_not_read(s3, session):
    name = store(s3)
    with pytest.raises(AccessError, match="AWS_ACCESS_KEY_ID"):
        hs.open(s3.url(name), storage_options={**s3.storage_options, "secret_access_key": "wrong"}, session=session)
    with pytest.raises((NotFoundError, StoreError)):
        hs.open("s3://no-such-bucket/x", storage_options=s3.storage_options, session=session)


def test_budgets_on_a_real_server(s3, s3_proxy):
    with fast(budget=hs.Budget(requests=30)) as session:
        array = opened(s3, s3_proxy, store(s3), session)
        with pytest.raises(BudgetError):
            array.read(method="get", budget=hs.Budget(bytes=DATA.nbytes - 1))
        assert not s3_proxy.log
        assert np.array_equal(array.read(method="get"), DATA)
        with pytest.raises(BudgetError):
            array.read(method="get")
        assert sent(s3_proxy)[0] == 24


def test_threads_loops_and_a_fork_together(s3):
    name = store(s3, layout="shards-zstd")
    with fast(cache_bytes=1 << 16) as session:
        array = hs.open(s3.url(name), storage_options=s3.storage_options, session=session)
        errors = []

        def read(seed):
            try:
                for box in some_boxes(times(5), seed):
                    assert np.array_equal(array[box], DATA[box])
            except BaseException as error:  # noqa: BLE001
                errors.append(error)

        threads = [threading.Thread(target=read, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()

        async def many():
            boxes = list(some_boxes(20, seed=77))
            for box, found in zip(boxes, await asyncio.gather(*map(array.aread, boxes)), strict=True):
                assert np.array_equal(found, DATA[box])

        asyncio.run(many())
        assert np.array_equal(in_child(lambda: array[...]), DATA)
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        assert not errors


def test_the_disk_cache_on_a_real_server(s3, s3_proxy, tmp_path):
    name = store(s3, layout="zstd")
    for number in range(2):
        with fast(disk_cache=tmp_path) as session:
            array = opened(s3, s3_proxy, name, session)
            assert np.array_equal(array[...], DATA)
            assert session.metrics.requests == (24 if number == 0 else 0)
    store(s3, DATA + 1, layout="zstd", name=name)
    with fast(disk_cache=tmp_path) as session:
        assert np.array_equal(opened(s3, s3_proxy, name, session)[...], DATA + 1)
