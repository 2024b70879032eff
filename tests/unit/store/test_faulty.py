"""The faulty store itself: what other tests rely on."""

import asyncio
import time

import pytest
from support.conformance import async_get, sync_get
from support.faulty import Asked, Fault, FaultyStore

from hyperslab.errors import ConflictError, StoreError
from hyperslab.store import LocalStore, Store

both = pytest.mark.parametrize("get", [sync_get, async_get], ids=["get", "aget"])


@pytest.fixture
def store(tmp_path):
    (tmp_path / "a").write_bytes(b"0123456789")
    (tmp_path / "b").write_bytes(b"x")
    return FaultyStore(LocalStore(tmp_path))


@both
def test_logs_and_passes_on(store, get):
    assert isinstance(store, Store)
    assert bytes(get(store, "a", (1, 3)).data) == b"12"
    assert store.log == [Asked("a", (1, 3), None)]
    assert store.head("a")[0] == 10
    assert store.children("") == ["a", "b"]


@both
def test_fails_as_often_as_told(store, get):
    store.fail(2, key="a", skip=1)
    get(store, "a")
    for _ in range(2):
        with pytest.raises(StoreError) as caught:
            get(store, "a")
        assert caught.value.transient
        get(store, "b")
    get(store, "a")


@both
def test_truncates_edits_changes_and_stalls(store, get, tmp_path):
    store.faults = [Fault(truncate=3), Fault(edit=bytes.upper, key="b"), Fault(stall_s=90, skip=2)]
    assert bytes(get(store, "a").data) == b"0123456"
    assert bytes(get(store, "b").data) == b"X"
    etag = get(store, "a").etag
    get(store, "a")
    started = time.monotonic()
    with pytest.raises(StoreError, match="in time"):
        get(store, "a", timeout_s=0.05)
    assert time.monotonic() - started < 60
    store.faults = [Fault(run=lambda: (tmp_path / "a").write_bytes(b"new"))]
    with pytest.raises(ConflictError):
        get(store, "a", if_match=etag)


def test_counts_what_is_in_flight(store):
    store.latency_s = 0.05

    async def main():
        await asyncio.gather(*(store.aget("a") for _ in range(7)))

    asyncio.run(main())
    assert store.most_in_flight == 7
    assert store.in_flight == 0
