"""Collections while things go wrong: failures, lost answers, kills, other writers. What was committed stays whole."""

import itertools
import multiprocessing
import os
import threading
import time

import numpy as np
import pytest
from support.faulty import Fault, FaultyStore, slow_down
from support.forking import in_child
from support.killing import killed
from support.plans import plan_of

import hyperslab as hs
from hyperslab.collections import collection, compaction, index, segment, writing
from hyperslab.collections.collection import open_at
from hyperslab.errors import ConflictError, HyperslabError, IntegrityError, StoreError
from hyperslab.execute import retry
from hyperslab.store import LocalStore, locate

OLD = {f"old/{i}": np.full(3, i, "i4") for i in range(7)}
NEW = {f"new/{i}": np.full(5, i, "i8") for i in range(7)}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Nothing is waited for; there are several blocks, segments and packs."""
    monkeypatch.setattr(retry, "_FIRST_S", 0.0)
    monkeypatch.setattr(segment, "_BLOCK_ROWS", 3)
    monkeypatch.setattr(writing, "_SEGMENT_ROWS", 5)
    monkeypatch.setattr(index, "_SMALL_BYTES", 0)


@pytest.fixture
def session():
    with hs.Session(retries=3) as made:
        yield made


def contents(path):
    """Return all that is stored, read anew; every array must be whole."""
    with hs.Session() as session:
        c = collection(path, session=session)
        names = list(c)
        assert len(c) == len(names)
        return {name: array.tobytes() for name, array in zip(names, c.read_many(names), strict=True)}


def as_bytes(arrays):
    return {name: array.tobytes() for name, array in arrays.items()}


def network(path, session, mode="r+"):
    """Return the collection at a path as over a network, and the store that fails as told."""
    store = FaultyStore(LocalStore(path))
    return open_at(str(path), store, "", session, mode), store


def kill_everywhere(work, check, least):
    """Kill the work at its first call to the file system, its second, and so on until it gets through."""
    at = 0
    while killed(work, at):
        check()
        at += 1
        assert at < 1000
    assert at >= least


def test_killed_during_put_many(tmp_path):
    states = [as_bytes(OLD), as_bytes({**OLD, **NEW})]

    def begin():
        collection(tmp_path, "w").put_many(OLD)

    def work():
        collection(tmp_path, "r+").put_many(NEW, pack_bytes=60)

    def check():
        # Killed after the last step it may be there; then it starts over.
        found = contents(tmp_path)
        assert found in states
        if found == states[1]:
            begin()

    begin()
    kill_everywhere(work, check, least=40)
    assert contents(tmp_path) == states[1]


def test_killed_during_deletion_and_compaction(tmp_path):
    c = collection(tmp_path, "w-")
    c.put_many(OLD)
    for name, array in NEW.items():
        c[name] = array
    del c["old/3"]
    expected = contents(tmp_path)
    assert len(expected) == 13

    def work():
        c = collection(tmp_path, "r+")
        if len(c.manifest.segments) == 1:
            c["again"] = np.zeros(1)
            del c["again"]
        c.compact()

    def check():
        found = contents(tmp_path)
        found.pop("again", None)
        assert found == expected

    kill_everywhere(work, check, least=15)
    assert len(collection(tmp_path).manifest.segments) == 1
    check()


def test_killed_during_apply(tmp_path):
    """Another plan each time, so that nothing is there yet of what is killed."""
    c = collection(tmp_path, "w-")
    c.put_many({**OLD, **NEW}, pack_bytes=60)
    del c["old/3"]
    expected, tries = contents(tmp_path), itertools.count()

    def work():
        c = collection(tmp_path, "r+")
        names = np.random.default_rng(next(tries)).permutation(list(c)).tolist()
        c.apply(plan_of(c, [names[at::4] for at in range(4)], keyed=names[:3]))

    def check():
        # Also here, as the child's count is its own.
        next(tries)
        assert contents(tmp_path) == expected

    kill_everywhere(work, check, least=30)
    assert contents(tmp_path) == expected


def test_a_killed_apply_goes_on(tmp_path):
    """None of the packs that a killed one has written is written again."""
    c = collection(tmp_path, "w-")
    c.put_many({**OLD, **NEW}, pack_bytes=60)
    names = list(c)
    plan = plan_of(c, [names[at::6] for at in range(6)], keyed=names[:3])
    del c["old/3"]
    expected = contents(tmp_path)
    packs = len(list((tmp_path / "packs").iterdir()))

    def work():
        collection(tmp_path, "r+").apply(plan)

    def check():
        assert contents(tmp_path) == expected

    kill_everywhere(work, check, least=15)
    check()
    c = c.refresh()
    names = list(c)
    assert len({entry.pack for entry in c.entries(names)}) == 6
    assert len(list((tmp_path / "packs").glob("*.pack"))) == packs + 6
    c.sweep(grace_s=0)
    assert len(list((tmp_path / "packs").glob("*.pack"))) == 6
    check()


def test_killed_during_sweep(tmp_path):
    c = collection(tmp_path, "w-")
    c.put_many(OLD)
    for name, array in NEW.items():
        c[name] = array
    c.compact()
    expected = contents(tmp_path)

    def work():
        collection(tmp_path, "r+").sweep(grace_s=0)

    kill_everywhere(work, lambda: None if contents(tmp_path) == expected else pytest.fail("lost"), least=3)
    assert contents(tmp_path) == expected


@pytest.mark.parametrize("after", [False, True], ids=["refused", "answer lost"])
@pytest.mark.parametrize("key", ["pack", "seg", "collection.json"])
def test_puts_that_fail_once_are_sent_again(tmp_path, session, key, after):
    collection(tmp_path, "w-").put_many(OLD)
    c, store = network(tmp_path, session)
    store.faults.append(Fault(key, 1, error=slow_down, on="put", after=after))
    c.put_many(NEW)
    generation = c.manifest.generation
    assert contents(tmp_path) == as_bytes({**OLD, **NEW})
    assert generation == 2
    assert sum(segment.rows for segment in c.manifest.segments) == 14


@pytest.mark.parametrize("key", ["pack", "seg", "collection.json"])
def test_puts_that_fail_for_good_change_nothing(tmp_path, session, key):
    collection(tmp_path, "w-").put_many(OLD)
    c, store = network(tmp_path, session)
    store.faults.append(Fault(key, None, error=slow_down, on="put"))
    with pytest.raises(StoreError):
        c.put_many(NEW, pack_bytes=60)
    assert contents(tmp_path) == as_bytes(OLD)
    store.faults.clear()
    c.put_many(NEW)
    assert contents(tmp_path) == as_bytes({**OLD, **NEW})


def test_a_lost_answer_that_another_writer_builds_on(tmp_path, session):
    """The commit was heard, its answer lost; meanwhile another put overwrites the same name and all are merged."""
    collection(tmp_path, "w-").put_many(OLD)
    c, store = network(tmp_path, session)

    def other() -> None:
        second = collection(tmp_path, "r+")
        second["both"] = np.array(2)
        second.compact()

    store.faults.append(Fault("collection.json", 1, run=other, error=slow_down, on="put", after=True))
    c["both"] = np.array(1)
    assert c["both"] == 2
    assert contents(tmp_path) == {**as_bytes(OLD), "both": np.array(2).tobytes()}


def test_another_writer_between_reading_and_writing_the_manifest(tmp_path, session):
    collection(tmp_path, "w-").put_many(OLD)
    c, store = network(tmp_path, session)
    store.faults.append(
        Fault("collection.json", 1, run=lambda: collection(tmp_path, "r+").put_many({"b": np.array(2)}), on="put")
    )
    c["a"] = np.array(1)
    assert set(contents(tmp_path)) == {*OLD, "a", "b"}
    assert set(c) == {*OLD, "a", "b"}


def test_what_comes_during_a_compaction_stays_on_top(tmp_path, session):
    collection(tmp_path, "w-").put_many(OLD)
    c, store = network(tmp_path, session)
    c["old/1"] = np.array(1)

    def other() -> None:
        second = collection(tmp_path, "r+")
        second["old/1"] = np.array(9)
        del second["old/2"]

    store.faults.append(Fault("collection.json", 1, run=other, on="put"))
    c.compact()
    expected = {**as_bytes(OLD), "old/1": np.array(9).tobytes()}
    del expected["old/2"]
    assert contents(tmp_path) == expected
    assert len(c.manifest.segments) == 3


def test_two_compactions_at_once(tmp_path, session):
    c = collection(tmp_path, "w-")
    c.put_many(OLD)
    c["x"] = np.array(1)
    expected = contents(tmp_path)
    c, store = network(tmp_path, session)
    store.faults.append(Fault("collection.json", 1, run=lambda: collection(tmp_path, "r+").compact(), on="put"))
    c.compact()
    assert contents(tmp_path) == expected
    assert contents(tmp_path) == {name: c.refresh()[name].tobytes() for name in c.refresh()}


def test_a_compaction_that_fails_does_not_spoil_the_put(tmp_path, session, monkeypatch):
    monkeypatch.setattr(compaction, "_FANOUT", 2)
    collection(tmp_path, "w-")
    c, store = network(tmp_path, session)
    c["a"] = np.array(1)
    store.faults.append(Fault("seg", None, skip=1, error=slow_down, on="put"))
    c["b"] = np.array(2)
    assert set(contents(tmp_path)) == {"a", "b"}
    assert len(c.manifest.segments) == 2


def put_some(path, writer, count):
    c = collection(path, "r+")
    for i in range(count):
        c[f"{writer}/{i}"] = np.array([writer, i])
        if i % 5 == 4:
            c.compact()


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_writers_at_once_lose_nothing(tmp_path, kind):
    collection(tmp_path, "w-")
    context = multiprocessing.get_context("fork")
    make = threading.Thread if kind == "threads" else context.Process
    running = [make(target=put_some, args=(tmp_path, writer, 12)) for writer in range(3)]
    for each in running:
        each.start()
    for each in running:
        each.join()
    found = contents(tmp_path)
    assert found == {f"{w}/{i}": np.array([w, i]).tobytes() for w in range(3) for i in range(12)}


def test_threads_read_one_handle_while_another_writes(tmp_path):
    path = tmp_path / "c"
    collection(path, "w-").put_many(OLD)
    stop, wrong = threading.Event(), []

    def reading(handle) -> None:
        while not stop.is_set():
            try:
                found = handle.read_many(list(OLD))
                wrong.extend(name for name, array in zip(OLD, found, strict=True) if array[0] != OLD[name][0])
            except HyperslabError as error:
                wrong.append(error)

    with hs.Session() as session:
        handle = collection(path, session=session)
        threads = [threading.Thread(target=reading, args=(handle,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        put_some(path, 1, 10)
        stop.set()
        for thread in threads:
            thread.join()
    assert wrong == []


def test_a_forked_child_reads_and_writes(tmp_path):
    c = collection(tmp_path, "w-")
    c.put_many(OLD)
    c["old/1"]

    def child() -> None:
        assert (c["old/2"] == 2).all()
        c["child"] = np.array(1)

    in_child(child)
    assert c.refresh()["child"] == 1


@pytest.mark.parametrize("key", ["seg", "pack", "collection.json"])
def test_reads_that_fail_once_are_sent_again(tmp_path, session, key):
    collection(tmp_path, "w-").put_many(OLD)
    store = FaultyStore(LocalStore(tmp_path))
    store.fail(2, key=key)
    c = open_at(str(tmp_path), store, "", session)
    assert {name: c[name].tobytes() for name in c} == as_bytes(OLD)


@pytest.mark.parametrize("key", ["seg", "pack"])
def test_answers_with_other_bytes_are_noticed(tmp_path, key):
    collection(tmp_path, "w-").put_many(OLD)
    with hs.Session(retries=0, cache_bytes=0) as session:
        c, store = network(tmp_path, session, "r")
        store.faults.append(Fault(key, None, edit=lambda data: data[:-1] + bytes([data[-1] ^ 1])))
        with pytest.raises(IntegrityError):
            c.read_many(list(OLD))


def test_a_pack_cut_off_under_a_reader_is_an_error(tmp_path):
    """The file is cut in place, which no writer of ours does; the next look at it tells."""
    c = collection(tmp_path, "w-")
    c.put_many(OLD)
    assert (c["old/3"] == 3).all()
    for path in (tmp_path / "packs").iterdir():
        os.truncate(path, 10)
    time.sleep(0.2)
    with pytest.raises(IntegrityError, match="cut off"):
        c["old/3"]


def test_memory_stores_are_conditional_too(session):
    url = f"memory://collections-faults-{os.getpid()}/c"
    collection(url, "w-", session=session)
    one, other = collection(url, "r+", session=session), collection(url, "r+", session=session)
    one["a"] = np.array(1)
    other["b"] = np.array(2)
    assert list(one.refresh()) == ["a", "b"]
    store, path = locate(url)
    store.delete(f"{path}/collection.json")
    with pytest.raises(hs.errors.NotFoundError):
        one["c"] = np.array(3)
    collection(url, "w-", session=session)
    with pytest.raises(ConflictError):
        one["c"] = np.array(3)
