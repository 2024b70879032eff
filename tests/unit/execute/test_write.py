"""Objects put and deleted through a session: counted, retried, several at a time within bounds."""

import itertools
import threading
import time

import numpy as np
import pytest
from support.faulty import Fault, FaultyStore, slow_down

import hyperslab as hs
from hyperslab.errors import BudgetError, ConflictError, IntegrityError, InvalidInputError, StoreError
from hyperslab.execute import retry
from hyperslab.execute.write import StoreWriter, versioned
from hyperslab.store import LocalStore, Reply


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(retry, "_FIRST_S", 0.0)


@pytest.fixture
def session():
    with hs.Session(prices="aws", retries=3) as made:
        yield made


@pytest.fixture(params=["local", "remote"])
def store(request, tmp_path):
    """A local store is used without the loop, any other on it."""
    local = LocalStore(tmp_path)
    return local if request.param == "local" else FaultyStore(local)


def test_what_is_put_is_there(session, store):
    writer = StoreWriter(session, store)
    etag = writer.put("a/b", b"hello")
    found = writer.get("a/b")
    assert (bytes(found.data), found.etag) == (b"hello", etag)
    assert bytes(writer.get("a/b", (1, 3)).data) == b"el"
    writer.put("a/c", np.arange(3, dtype="u1"))
    assert writer.keys("a") == [("a/b", 5), ("a/c", 3)]
    writer.delete("a/b")
    writer.delete("a/b")
    assert writer.get("a/b") is None
    metrics = session.metrics
    assert (metrics.puts, metrics.put_bytes, metrics.deletes) == (2, 8, 2)
    assert (metrics.requests, metrics.lookups, metrics.bytes) == (3, 1, 7)
    assert metrics.usd == pytest.approx(2 * 0.005 / 1000 + 4 * 0.0004 / 1000 + 7 * 0.09e-9)


def test_conditions(session, store):
    writer = StoreWriter(session, store)
    first = writer.put("k", b"1", if_absent=True)
    with pytest.raises(ConflictError, match="k"):
        writer.put("k", b"2", if_absent=True)
    second = writer.put("k", b"2", if_match=first)
    with pytest.raises(ConflictError, match="k"):
        writer.put("k", b"3", if_match=first)
    assert writer.put("k", b"3", if_match=second) != second
    assert session.metrics.puts == 5


def test_transient_failures_are_tried_again_and_others_are_not(session, tmp_path):
    store = FaultyStore(LocalStore(tmp_path))
    writer = StoreWriter(session, store)
    store.fail(3, on="put")
    writer.put("k", b"1")
    assert (session.metrics.puts, session.metrics.retries) == (4, 3)
    store.faults = [Fault(on="put", times=None, error=StoreError("never"))]
    with pytest.raises(StoreError, match="never"):
        writer.put("k", b"1")
    assert session.metrics.puts == 5
    store.faults = []
    store.fail(None, on="put")
    with pytest.raises(StoreError, match="503"):
        writer.delete("k")
    assert session.metrics.deletes == 4


@pytest.mark.parametrize("same", [True, False])
def test_conflict_after_a_lost_answer(session, tmp_path, same):
    inner = LocalStore(tmp_path)
    store = FaultyStore(inner)
    writer = StoreWriter(session, store)
    store.faults.append(Fault(on="put", error=slow_down, after=True))
    if not same:
        store.faults.append(Fault(on="put", run=lambda: inner.put("k", b"another, longer")))
        with pytest.raises(ConflictError):
            writer.put("k", b"1", if_absent=True)
        return
    assert writer.put("k", b"1", if_absent=True) == inner.head("k")[1]
    assert len(store.puts) == 2


def test_versions_are_needed_to_change_a_part():
    assert versioned(Reply(memoryview(b""), '"1"', 0), "k") == '"1"'
    with pytest.raises(InvalidInputError, match="ETag"):
        versioned(Reply(memoryview(b""), None, 0), "k")


def test_each_keeps_to_the_memory(session, store):
    writer = StoreWriter(session, store)
    running, most, lock, met = [0], [0], threading.Lock(), threading.Event()

    def work(item: int) -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
            if running[0] == 2:
                met.set()
        assert met.wait(60)  # the first for the second, however late its thread starts
        time.sleep(0.005)
        with lock:
            running[0] -= 1

    writer.each(range(30), work, held_bytes=session.memory_bytes // 2)
    assert most[0] == 2
    most[0] = 0
    writer.each(range(5), work, held_bytes=10 * session.memory_bytes)
    assert most[0] == 1
    writer.each(iter([]), work, held_bytes=1)


def test_first_error_stops_all(session, store):
    writer = StoreWriter(session, store)
    done, before = [], set(threading.enumerate())

    def work(item: int) -> None:
        if item == 5:
            raise IntegrityError("five")
        time.sleep(0.002)
        done.append(item)

    with pytest.raises(IntegrityError, match="five"):
        writer.each(itertools.count(), work, held_bytes=1)  # without end, unless they stop
    names = [thread.name for thread in set(threading.enumerate()) - before]
    assert not [name for name in names if name.startswith("hyperslab-write")]
    done.clear()
    writer.each(range(6, 20), work, held_bytes=1)
    assert sorted(done) == list(range(6, 20))


def test_error_of_the_items_themselves(session, store):
    def items():
        yield 1
        yield 2
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        StoreWriter(session, store).each(items(), lambda item: None, held_bytes=1)


def test_an_interrupt_while_lanes_are_started_ends_them_all(session, store, monkeypatch):
    """A pool that is interrupted at starting a thread does not know that one, though it runs."""
    writer, begun, done, start = StoreWriter(session, store), threading.Event(), [], threading.Thread.start

    def interrupted(thread):
        start(thread)
        if thread.name.startswith("hyperslab-write"):
            assert begun.wait(60)
            raise KeyboardInterrupt

    def work(item):
        begun.set()
        time.sleep(0.01)
        done.append(item)

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        writer.each(itertools.count(), work, held_bytes=1)
    assert not writer.stopping
    before = len(done)
    time.sleep(0.05)
    assert len(done) == before


def test_a_budget_holds_for_writes(store):
    with hs.Session(prices="aws", budget=hs.Budget(requests=3)) as session:
        writer = StoreWriter(session, store)
        for n in range(3):
            writer.put(f"k{n}", b"x")
        with pytest.raises(BudgetError, match="stopped at its budget"):
            writer.put("k3", b"x")
        assert session.metrics.puts == 3
    assert [key for key, _ in store.keys("")] == ["k0", "k1", "k2"]
    with hs.Session(prices="aws", budget=hs.Budget(usd=0.005 / 1000)) as session:
        StoreWriter(session, store).put("k3", b"x")
        with pytest.raises(BudgetError, match="usd"):
            StoreWriter(session, store).put("k4", b"x")
