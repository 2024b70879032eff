"""Writes that fail, are repeated, or meet other writers: all land, or the one that did not says so."""

import multiprocessing
import os
import threading
import time
from unittest import mock

import numpy as np
import pytest
from support.faulty import Fault, FaultyStore, slow_down
from support.forking import Child, in_child

import hyperslab as hs
from hyperslab.errors import ConflictError, IntegrityError, InvalidInputError, StoreError
from hyperslab.execute import retry
from hyperslab.formats.zarr import shape as zarr_shape
from hyperslab.formats.zarr import write as zarr_write
from hyperslab.store import locate


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(retry, "_FIRST_S", 0.0)


@pytest.fixture
def session():
    with hs.Session(prices="aws") as made:
        yield made


def faulty(array: hs.Array) -> tuple[hs.Array, FaultyStore]:
    """Return the array over a store that fails as told."""
    store = FaultyStore(array.store)
    return hs.Array(array.source, store, array.session, writable=True), store


@pytest.fixture
def array(tmp_path, session):
    values = np.arange(400, dtype="i4").reshape(20, 20)
    return hs.save(tmp_path / "a", values, chunks=(5, 5), shards=(10, 10), session=session)


def test_failed_puts_are_sent_again_and_counted(array, session):
    array, store = faulty(array)
    before = session.metrics.snapshot()
    store.fail(2, on="put")
    array[0:10, 0:10] = 1
    after = session.metrics.snapshot()
    # The first write takes the lengths of chunks out of the metadata.
    assert [put.key for put in store.puts] == ["c/0/0", "c/0/0", "c/0/0", "zarr.json"]
    assert (after.puts - before.puts, after.retries - before.retries) == (4, 2)
    assert after.put_bytes - before.put_bytes == sum(put.nbytes for put in store.puts)
    lookups = after.lookups - before.lookups
    assert after.usd - before.usd == pytest.approx(
        4 * 0.005 / 1000 + lookups * 0.0004 / 1000 + 0.09e-9 * (after.bytes - before.bytes)
    )
    assert (array[...][:10, :10] == 1).all()


def test_failure_that_stays_is_raised(array):
    array, store = faulty(array)
    store.fail(None, on="put")
    with pytest.raises(StoreError, match="503"):
        array[0:10, 0:10] = 1
    with pytest.raises(StoreError, match="503"):
        array[3, 3] = 1
    with pytest.raises(StoreError, match="503"):
        array.append(np.zeros((3, 20), "i4"))


def test_lost_answer_of_a_conditional_put_is_not_a_conflict(array):
    array, store = faulty(array)
    store.faults.append(Fault("c/0/0", on="put", error=slow_down, after=True))
    array[3, 3] = -1
    assert [put.if_match is not None for put in store.puts if put.key == "c/0/0"] == [True, True]
    assert array[3, 3] == -1
    assert array.refresh()[3, 4] == 64


def test_lost_answer_and_then_another_writer_is_a_conflict_that_is_resolved(array):
    array, store = faulty(array)
    other = hs.open(array.url, mode="r+")

    def write() -> None:
        other[4, 4] = -2

    store.faults.append(Fault("c/0/0", on="put", error=slow_down, after=True))
    store.faults.append(Fault("c/0/0", on="put", run=write))
    array[3, 3] = -1
    assert array[3:5, 3:5].tolist() == [[-1, 64], [83, -2]]


def test_another_writer_between_read_and_put(array):
    array, store = faulty(array)
    other = hs.open(array.url, mode="r+")
    seen = []

    def write() -> None:
        seen.append(len(store.puts))
        other[4, 4] = -len(seen)

    store.faults.append(Fault("c/0/0", on="put", times=3, run=write))
    array[3, 3] = -1
    assert array[3:5, 3:5].tolist() == [[-1, 64], [83, -3]]
    assert len(store.puts) == 4


def test_writer_that_is_always_overtaken_gets_the_name_of_the_chunk(array):
    array, store = faulty(array)
    other = hs.open(array.url, mode="r+")
    numbers = iter(range(10**6))

    def write() -> None:
        other[4, 4] = next(numbers)

    store.faults.append(Fault("c/0/0", on="put", times=None, run=write))
    with mock.patch.multiple(zarr_write, _TRIES=5, _MOST_PAUSE_S=0.0), pytest.raises(ConflictError, match="c/0/0"):
        array[3, 3] = -1
    assert array.refresh()[3, 3] == 63


def test_whole_objects_are_put_without_reading(array, session):
    array, store = faulty(array)
    array[0, 0] = 0  # learns the metadata
    store.log.clear()
    store.puts.clear()
    array[0:10, 10:20] = 5
    assert [asked.key for asked in store.log] == ["zarr.json"]  # after the put: has the layout been changed meanwhile?
    assert [(put.key, put.if_match, put.if_absent) for put in store.puts] == [("c/0/1", None, False)]


def test_part_of_an_object_is_one_get_and_one_conditional_put(array):
    array, store = faulty(array)
    array[0, 0] = 0
    store.log.clear()
    store.puts.clear()
    array[1, 1:3] = 5
    assert [(asked.key, asked.span) for asked in store.log] == [("c/0/0", None), ("zarr.json", None)]
    assert [(put.key, put.if_match is not None) for put in store.puts] == [("c/0/0", True)]


def test_damage_is_not_passed_on(array, tmp_path):
    path = tmp_path / "a/c/0/0"
    data = bytearray(path.read_bytes())
    data[-10] ^= 1  # in the last chunk of the shard
    path.write_bytes(data)
    with pytest.raises(IntegrityError, match="damaged"):
        array[0, 0] = 5
    assert path.read_bytes() == data


def test_error_in_one_of_many_objects_stops_the_others(tmp_path):
    with hs.Session(memory_bytes=1 << 20) as session:
        array = hs.create(tmp_path / "a", (64, 64), "i4", chunks=(2, 2), shards=(2, 2), session=session)
        array, store = faulty(array)
        store.faults.append(Fault("c/", on="put", skip=20, times=None, error=IntegrityError("no")))
        with pytest.raises(IntegrityError, match="no"):
            array[...] = 1
        assert len(store.puts) < 100
        assert not array.source.layout.complete
        store.faults.clear()
        array[...] = 1
        assert array.source.layout.complete


def test_interrupt_ends_a_stalled_write(tmp_path):
    def write() -> float:
        with hs.Session() as session:
            array = hs.create(tmp_path / "a", (64, 64), "i4", chunks=(8, 8), shards=(8, 8), session=session)
            array, store = faulty(array)
            store.faults.append(Fault("c/", on="put", times=None, stall_s=60.0))
            threading.Timer(0.5, lambda: os.kill(os.getpid(), 2)).start()
            started = time.monotonic()
            with pytest.raises(KeyboardInterrupt):
                array[...] = 1
            return time.monotonic() - started

    assert in_child(write, 90) < 40


def test_handle_reads_what_it_wrote_from_a_remote_store():
    with hs.Session(cache_bytes=1 << 20) as session:
        array = hs.save(
            "memory://faults/own", np.zeros((20, 20), "i4"), chunks=(5, 5), shards=(10, 10), session=session
        )
        for n in range(5):
            assert array[3, 3] == n
            array[3, 3] = n + 1
            array[:10, :10] = np.where(array[:10, :10] == n + 1, n + 1, 0)


def test_read_only_handles_refuse(array, tmp_path):
    reader = hs.open(array.url)
    np.save(tmp_path / "x.npy", np.arange(3))
    for change in (
        lambda: reader.__setitem__((0, 0), 1),
        lambda: reader.points.__setitem__(([0], [0]), 1),
        lambda: reader.resize((1, 1)),
        lambda: reader.append(np.zeros((1, 20))),
        reader.seal,
        lambda: reader.attrs.update(a=1),
        reader.attrs.clear,
        lambda: hs.open(array.url, mode="w"),
    ):
        with pytest.raises(InvalidInputError, match="r\\+"):
            change()
    with pytest.raises(hs.errors.UnsupportedError, match="npy"):
        hs.open(tmp_path / "x.npy", mode="r+")


# Several writers


def increment(url: str, cells: list[tuple[int, int]], rounds: int) -> None:
    with hs.Session() as session:
        array = hs.open(url, mode="r+", session=session)
        for _ in range(rounds):
            for cell in cells:
                array[cell] = array.refresh()[cell] + 1


@pytest.mark.parametrize("start", ["thread", "fork", "spawn"])
def test_writers_of_one_chunk_all_land(tmp_path, start):
    url = str(tmp_path / "a")
    hs.save(url, np.zeros((4, 4), "i8"), chunks=(4, 4))
    works = [(url, [(n, n)], 8) for n in range(3)]
    if start == "thread":
        workers = [threading.Thread(target=increment, args=work) for work in works]
    else:
        workers = [multiprocessing.get_context(start).Process(target=increment, args=work) for work in works]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(100)
    assert hs.open(url)[...].diagonal().tolist() == [8, 8, 8, 0]


def test_writers_of_different_chunks_do_not_disturb_each_other(tmp_path):
    url = str(tmp_path / "a")
    hs.save(url, np.zeros((6, 6), "i8"), chunks=(2, 2), shards=(2, 2))
    children = [Child(lambda n=n: increment(url, [(2 * n, 0), (2 * n + 1, 5)], 6)) for n in range(3)]
    for child in children:
        child.result(60)
    found = hs.open(url)[...]
    assert found[:, 0].tolist() == [6, 0] * 3
    assert found[:, 5].tolist() == [0, 6] * 3


def append_rows(url: str, number: int, rounds: int) -> None:
    with hs.Session() as session:
        array = hs.open(url, mode="r+", session=session)
        for n in range(rounds):
            array.append(np.full((3, 4), 100 * number + n))


@pytest.mark.parametrize("sealed", [True, False])
def test_appends_of_several_processes_all_land(tmp_path, sealed):
    url = str(tmp_path / "a")
    if sealed:
        hs.save(url, np.zeros((0, 4), "i8"), chunks=(5, 2), shards=(5, 4))
    else:
        import zarr

        zarr.create_array(url, shape=(0, 4), dtype="i8", chunks=(5, 4))
    children = [Child(lambda n=n: append_rows(url, n, 5)) for n in (1, 2, 3)]
    for child in children:
        child.result(90)
    found = hs.open(url)[...]
    assert found.shape == (45, 4)
    assert (found == found[:, :1]).all()
    groups = found[:, 0].reshape(15, 3)
    assert (groups == groups[:, :1]).all()
    assert sorted(groups[:, 0].tolist()) == [100 * n + k for n in (1, 2, 3) for k in range(5)]


def test_claim_of_a_slow_writer_is_taken_over_and_it_cannot_do_harm(tmp_path):
    """A writer is held up in the middle of an append; another appends; the first one must not spoil that."""
    url = str(tmp_path / "a")
    array, store = faulty(hs.save(url, np.zeros((3, 4), "i8"), chunks=(2, 4), shards=(2, 4)))
    other = hs.open(url, mode="r+")

    def overtake() -> None:
        with mock.patch.object(zarr_shape, "PATIENCE_S", 0.0):
            other.append(np.full((4, 4), 2))

    for key in ("c/1/0", "c/2/0", "zarr.json"):
        before = hs.open(url)[...]
        # The second put of the metadata is the one that ends the append.
        store.faults.append(Fault(key, on="put", skip=int(key == "zarr.json"), run=overtake))
        with pytest.raises(ConflictError, match="taken over"):
            array.append(np.full((5, 4), 1))
        store.faults.clear()
        found = hs.open(url)[...]
        assert found.shape == (len(before) + 4, 4)
        assert (found[: len(before)] == before).all()
        assert (found[len(before) :] == 2).all()
        other.resize((3, 4))
    array.append(np.full((5, 4), 1))
    assert hs.open(url)[3:].min() == 1


def test_append_whose_last_answer_is_lost_does_not_say_that_it_failed(tmp_path):
    """It was stored, and another writer has appended since: to try again would store it twice."""
    array, store = faulty(hs.save(tmp_path / "a", np.zeros(4), chunks=(2,), shards=(2,)))
    other = hs.open(array.url, mode="r+")

    def overtake() -> None:
        other.append(np.full(2, 2.0))
        raise slow_down()

    store.faults.append(Fault("zarr.json", on="put", skip=1, run=overtake, after=True))
    with pytest.raises(ConflictError, match="not known; refresh"):
        array.append(np.full(2, 1.0))
    assert hs.open(array.url)[4:].tolist() == [1, 1, 2, 2]


def test_claim_that_could_not_be_given_back_does_not_last(tmp_path):
    array, store = faulty(hs.save(tmp_path / "a", np.zeros((3, 4), "i8"), chunks=(2, 4), shards=(2, 4)))
    # The claim is stored, then nothing works any more.
    store.faults.append(Fault("", on="put", skip=1, times=None, error=StoreError("the line is dead")))
    with pytest.raises(StoreError, match="dead"):
        array.append(np.ones((3, 4)))
    assert "claim" in (tmp_path / "a/zarr.json").read_text()
    started = time.monotonic()
    hs.open(tmp_path / "a", mode="r+").append(np.ones((1, 4)))
    assert time.monotonic() - started < 60
    assert hs.open(tmp_path / "a").shape == (4, 4)


def test_attributes_of_two_writers_both_land(tmp_path):
    array, store = faulty(hs.save(tmp_path / "a", np.zeros(3)))
    other = hs.open(array.url, mode="r+")
    store.faults.append(Fault("zarr.json", on="put", run=lambda: other.attrs.update(b=2)))
    array.attrs["a"] = 1
    assert array.attrs == {"a": 1, "b": 2}
    assert hs.open(array.url).attrs == {"a": 1, "b": 2}


def test_stale_handle_does_not_cut_off_what_others_appended(tmp_path):
    array = hs.save(tmp_path / "a", np.zeros((3, 3), "i4"), chunks=(4, 4), shards=(4, 4))
    other = hs.open(array.url, mode="r+")
    other.append(np.ones((1, 3), "i4"))
    array[...] = 5
    assert hs.open(array.url)[...].tolist() == [[5, 5, 5]] * 3 + [[1, 1, 1]]
    with pytest.raises(ConflictError, match="refresh"):
        array.resize((2, 3))
    array.append(np.full((1, 3), 7, "i4"))
    assert array[...][:, 0].tolist() == [5, 5, 5, 1, 7]


def test_created_by_two_writers_at_once(tmp_path):
    url = str(tmp_path / "a")

    def both() -> list[str]:
        outcomes = []
        barrier = threading.Barrier(4)

        def make() -> None:
            barrier.wait()
            try:
                hs.create(url, (4,), "i4")
                outcomes.append("made")
            except (ConflictError, InvalidInputError) as error:
                outcomes.append(type(error).__name__)

        threads = [threading.Thread(target=make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return outcomes

    assert both().count("made") == 1


def test_closed_session_refuses(array):
    array.session.close()
    with pytest.raises(InvalidInputError, match="closed"):
        array[0, 0] = 1


def test_locating_a_file_as_a_new_array(tmp_path):
    (tmp_path / "x").write_text("hello")
    with pytest.raises(InvalidInputError, match="is a file"):
        hs.create(tmp_path / "x", (1,), "i4")
    assert locate(str(tmp_path / "new"), create=True)[1] == ""
