"""The store on a real S3 server, and on that server behind a proxy that misbehaves."""

import asyncio
import itertools
import multiprocessing

import pytest
from support.conformance import Place, ReadConformance, WriteConformance, async_get, sync_get
from support.s3proxy import Rule
from support.seaweed import options_for

from hyperslab.errors import AccessError, ConflictError, NotFoundError, StoreError
from hyperslab.store import locate

_numbers = itertools.count()


@pytest.fixture
def emptied(s3):
    client = s3.client()
    for key in [entry["path"] for page in client.list() for entry in page]:
        client.delete(key)
    return Place(locate(s3.url(), s3.storage_options)[0], client.put)


class TestReadS3(ReadConformance):
    @pytest.fixture
    def place(self, emptied):
        return emptied


class TestWriteS3(WriteConformance):
    @pytest.fixture
    def place(self, emptied):
        return emptied


@pytest.fixture
def proxied(s3, s3_proxy):
    """A store that goes through the proxy, with one object in it under a name of its own."""
    key = f"proxied/{next(_numbers)}"
    s3.put(key, bytes(range(256)) * 64)
    store, _ = locate(s3.url(), options_for(s3_proxy.endpoint))
    return store, key


both = pytest.mark.parametrize("get", [sync_get, async_get], ids=["get", "aget"])


def test_one_call_is_one_request(proxied, s3_proxy):
    store, key = proxied
    etag = store.get(key).etag
    store.get(key, (100, 200), if_match=etag)
    store.get(key, -16)
    store.head(key)
    store.children("proxied")
    seen = [(e.method, e.range, e.if_match, e.status, e.body_bytes) for e in s3_proxy.log]
    assert seen[:4] == [
        ("GET", None, None, 200, 16384),
        ("GET", "bytes=100-199", etag, 206, 100),
        ("GET", "bytes=-16", None, 206, 16),
        ("HEAD", None, None, 200, 0),
    ]
    assert len(seen) == 5


def test_one_write_is_one_request(proxied, s3_proxy):
    store, key = proxied
    etag = store.put(key, b"new")
    store.put(key, b"newer", if_match=etag)
    with pytest.raises(ConflictError, match=key):
        store.put(key, b"newest", if_match=etag)
    with pytest.raises(ConflictError, match=key):
        store.put(key, b"newest", if_absent=True)
    store.keys("proxied")
    store.delete(key)
    seen = [(e.method, e.if_match, e.status) for e in s3_proxy.log]
    assert seen == [
        ("PUT", None, 200),
        ("PUT", etag, 200),
        ("PUT", etag, 412),
        ("PUT", None, 412),
        ("GET", None, 200),
        ("POST", None, 200),
    ]


@both
def test_wrong_credentials(s3, get):
    s3.put("mine", b"x")
    for change in ({"secret_access_key": "wrong-secret"}, {"access_key_id": "nobody"}):
        store, _ = locate(s3.url(), {**s3.storage_options, **change})
        with pytest.raises(AccessError, match="AWS_ACCESS_KEY_ID") as caught:
            get(store, "mine")
        assert "wrong-secret" not in str(caught.value)
        assert caught.value.__cause__ is None
    store, _ = locate(s3.url(), {"endpoint": s3.endpoint, "anon": True})
    with pytest.raises(AccessError, match="anonymous=True"):
        get(store, "mine")


@both
def test_a_bucket_that_is_not_there(s3, get):
    store, _ = locate("s3://no-such-bucket/x", s3.storage_options)
    with pytest.raises(NotFoundError, match="no bucket s3://no-such-bucket"):
        get(store, "x")
    with pytest.raises(NotFoundError, match="no bucket s3://no-such-bucket"):
        store.children("")


@both
def test_the_object_changes_between_two_ranges(proxied, s3, s3_proxy, get):
    store, key = proxied
    first = get(store, key, (0, 10))
    s3_proxy.rules.append(Rule("run", run=lambda: s3.put(key, b"something else")))
    with pytest.raises(ConflictError):
        get(store, key, (0, 10), if_match=first.etag)


@both
def test_an_ignored_range_is_not_downloaded(s3, s3_proxy, get):
    s3.put("large", bytes(64 << 20))
    store, _ = locate(s3.url(), options_for(s3_proxy.endpoint))
    s3_proxy.rules.append(Rule("ignore_range"))
    with pytest.raises(StoreError, match="ignores byte ranges") as caught:
        get(store, "large", (0, 10))
    assert not caught.value.transient


@both
def test_a_dropped_reply_and_a_cut_body_are_transient(proxied, s3_proxy, get):
    store, key = proxied
    for rule in (Rule("drop", times=1), Rule("truncate", times=1, after_bytes=100)):
        s3_proxy.clear()
        s3_proxy.rules.append(rule)
        with pytest.raises(StoreError) as caught:
            get(store, key, (0, 1000))
        assert caught.value.transient
        assert len(s3_proxy.log) == 1
        assert len(get(store, key, (0, 1000)).data) == 1000


def test_the_proxy_keeps_up(proxied, s3_proxy):
    store, key = proxied

    async def many():
        await asyncio.gather(*(store.aget(key, (i, i + 10)) for i in range(500)))

    asyncio.run(asyncio.wait_for(many(), 60))
    assert len(s3_proxy.log) == 500
    assert sum(entry.body_bytes for entry in s3_proxy.log) == 5000


def _read_in_child(store, key, results):
    results.put(bytes(store.get(key, (0, 4)).data))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_other_processes(proxied, method):
    store, key = proxied
    assert bytes(store.get(key, (0, 4)).data) == bytes(range(4))
    context = multiprocessing.get_context(method)
    results = context.Queue()
    children = [context.Process(target=_read_in_child, args=(store, key, results)) for _ in range(2)]
    for child in children:
        child.start()
    try:
        assert [results.get(timeout=90) for _ in children] == [bytes(range(4))] * 2
    finally:
        for child in children:
            child.kill()
            child.join()
