"""Reads in forked and spawned processes, after the parent has read: their own threads, the right numbers, no hang."""

import multiprocessing
import os
import pickle
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest
from support.forking import Child, in_child
from support.hostile import array_at, encode, fast, put
from support.s3proxy import Rule

import hyperslab as hs
from hyperslab.errors import BudgetError, ForkError
from hyperslab.execute import default_session

DATA = np.arange(4096, dtype="i4").reshape(64, 64)
CHUNKS = (8, 8)
layouts = pytest.mark.parametrize("layout", ["plain", "zstd", "shards-zstd"])


@pytest.fixture
def remote(fake_s3):
    put(fake_s3, "a", DATA, CHUNKS, "shards-zstd")
    return fake_s3


def on_disk(folder, layout):
    for key, value in encode(DATA, CHUNKS, layout).items():
        path = folder / "a" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(value)
    return folder / "a"


def rows(array, low, high):
    """The job of a worker: read some rows, and say who did it."""
    return os.getpid(), array[low:high]


def check_rows(results):
    for number, (pid, found) in enumerate(results):
        assert pid != os.getpid()
        assert np.array_equal(found, DATA[8 * number : 8 * number + 8])


# Fork


@layouts
def test_a_forked_child_reads_files(tmp_path, layout):
    with fast(cache_bytes=1 << 20) as session:
        array = hs.open(on_disk(tmp_path, layout), session=session)
        assert np.array_equal(array[...], DATA)
        assert np.array_equal(in_child(lambda: array[3:60, 5:]), DATA[3:60, 5:])
        assert np.array_equal(array[...], DATA)


@layouts
def test_a_forked_child_reads_from_s3(fake_s3, layout):
    put(fake_s3, "a", DATA, CHUNKS, layout)
    with fast(cache_bytes=1 << 20) as session:
        array = array_at(fake_s3, "a", session)
        assert np.array_equal(array[...], DATA)

        def child():
            found = array[...]
            again = hs.open(array.url, storage_options={"endpoint": fake_s3.endpoint, "anonymous": True})[8:9]
            return found, again, session.metrics.reads

        found, again, reads = in_child(child)
        assert np.array_equal(found, DATA)
        assert np.array_equal(again, DATA[8:9])
        assert reads == 1  # a child counts its own
        assert np.array_equal(array[...], DATA)
        assert session.metrics.reads == 2


def test_a_child_of_a_child(remote):
    with fast() as session:
        array = array_at(remote, "a", session)
        array[0, 0]
        assert np.array_equal(in_child(lambda: (array[0, 0], in_child(lambda: array[...]))[1]), DATA)


def test_a_child_forked_in_the_middle_of_a_read(remote):
    """Other threads of the parent hold its locks and wait for its loop: the child has neither."""
    with fast(timeout_s=60, cache_bytes=1 << 20) as session:
        array = array_at(remote, "a", session)
        array[8, 8]
        going = True

        def busy():
            while going:
                array[...]
                array.refresh()[5, 5]

        readers = [threading.Thread(target=busy) for _ in range(2)]
        for reader in readers:
            reader.start()
        try:
            for _ in range(4):
                assert np.array_equal(in_child(lambda: array[...]), DATA)
        finally:
            going = False
            for reader in readers:
                reader.join()


def test_a_child_forked_while_the_parent_waits(remote):
    with fast(timeout_s=60) as session:
        array = array_at(remote, "a", session)
        asked, child_done = threading.Event(), threading.Event()
        remote.rules.append(Rule("run", key="c/0/0", times=1, run=lambda: (asked.set(), child_done.wait(40))))
        reader = threading.Thread(target=lambda: array[...])
        reader.start()
        assert asked.wait(60)
        assert np.array_equal(in_child(lambda: array[16:]), DATA[16:])
        assert reader.is_alive()
        child_done.set()
        reader.join(60)
        assert not reader.is_alive()


@pytest.mark.parametrize("held", ["cache", "metrics", "account", "disk", "threads"])
def test_a_lock_that_the_parent_holds_at_the_fork(remote, tmp_path, held):
    budget = hs.Budget(requests=10_000)
    with fast(cache_bytes=1 << 20, disk_cache=tmp_path / "disk", budget=budget) as session:
        array = array_at(remote, "a", session)
        array[0, 0]
        owner = getattr(session, held, None) or session._threads
        with owner._lock:
            child = Child(lambda: array[...])
        assert np.array_equal(child.result(), DATA)


def test_a_child_may_close_the_session(remote):
    with fast() as session:
        array = array_at(remote, "a", session)
        array[0, 0]

        def child():
            session.close()
            with pytest.raises(hs.errors.InvalidInputError, match="closed"):
                array[0, 0]
            return True

        assert in_child(child)
        assert array[0, 1] == 1


def test_a_session_closed_before_the_fork_stays_closed(remote):
    session = hs.Session()
    array = array_at(remote, "a", session)
    array[0, 0]
    session.close()

    def child():
        with pytest.raises(hs.errors.InvalidInputError, match="closed"):
            array[0, 0]
        return True

    assert in_child(child)


def test_the_default_session_in_a_child(remote, tmp_path):
    array = hs.open(on_disk(tmp_path, "zstd"))
    assert np.array_equal(array[...], DATA)
    assert np.array_equal(in_child(lambda: (default_session() is array.session, array[...]))[1], DATA)


def test_what_is_in_memory_stays_there():
    from hyperslab.store import memory

    for key, value in encode(DATA, CHUNKS).items():
        memory("forked").put(f"a/{key}", value)
    with fast() as session:
        array = hs.open("memory://forked/a", session=session)
        assert array[0, 1] == 1
        with pytest.raises(ForkError, match="use files or S3"):
            in_child(lambda: array[0, 1])


@pytest.mark.parametrize("where", ["file", "s3"])
def test_a_pool_of_forked_processes(remote, tmp_path, where):
    with fast() as session:
        array = array_at(remote, "a", session) if where == "s3" else hs.open(on_disk(tmp_path, "zstd"), session=session)
        assert np.array_equal(array[...], DATA)
        with multiprocessing.get_context("fork").Pool(2) as pool:
            work = [pool.apply_async(rows, (array, 8 * n, 8 * n + 8)) for n in range(8)]
            check_rows([each.get(90) for each in work])


# Spawn, and pickling


@pytest.mark.parametrize("where", ["file", "s3"])
def test_a_pool_of_spawned_processes(remote, tmp_path, where):
    with fast() as session:
        array = array_at(remote, "a", session) if where == "s3" else hs.open(on_disk(tmp_path, "zstd"), session=session)
        assert np.array_equal(array[...], DATA)
        with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
            work = [pool.submit(rows, array, 8 * n, 8 * n + 8) for n in range(8)]
            check_rows([each.result(90) for each in work])


@layouts
def test_an_array_pickles(fake_s3, layout):
    put(fake_s3, "a", DATA, CHUNKS, layout)
    with fast(phi=3.0, retries=2, cache_bytes=1 << 20) as session:
        array = array_at(fake_s3, "a", session)
        array[...]
        copy = pickle.loads(pickle.dumps(array))
        assert (copy.shape, copy.dtype, copy.url, copy.attrs) == (array.shape, array.dtype, array.url, array.attrs)
        assert copy.store is array.store
        assert copy.session is not session
        assert (copy.session.phi, copy.session.retries) == (3.0, 2)
        assert np.array_equal(copy[...], DATA)
        copy.session.close()
        one, other = pickle.loads(pickle.dumps((array, array.refresh())))
        assert one.session is other.session
        one.session.close()


def test_an_array_of_the_default_session_pickles_without_it(tmp_path):
    array = hs.open(on_disk(tmp_path, "plain"))
    assert array.session is default_session()
    assert pickle.loads(pickle.dumps(array)).session is default_session()


def test_a_group_and_a_view_pickle(tmp_path):
    (tmp_path / "zarr.json").write_bytes(b'{"zarr_format": 3, "node_type": "group", "attributes": {"x": 1}}')
    on_disk(tmp_path, "zstd")
    with fast() as session:
        group = hs.open(tmp_path, session=session)
        copy = pickle.loads(pickle.dumps(group))
        assert list(copy) == ["a"]
        assert copy.attrs == {"x": 1}
        view = pickle.loads(pickle.dumps(group["a"].lazy[4:9, ::2]))
        assert np.array_equal(view[1:], DATA[5:9, ::2])


def test_a_session_pickles_with_the_budget_that_is_left(remote):
    with fast(budget=hs.Budget(requests=100)) as session:
        array = array_at(remote, "a", session)
        array[...]
        used = session.metrics.requests
        copy = pickle.loads(pickle.dumps(session))
        assert copy.account.left().requests < 100
        assert copy.account.left() == session.account.left()
        assert used > 0
        copy.close()


def test_workers_get_shares_of_a_budget(remote):
    with fast(budget=hs.Budget(requests=100, bytes=1_000_000, usd=1.0, seconds=9.0)) as session:
        array = array_at(remote, "a", session)
        array[0:8, 0:8]
        left = session.account.left()
        shares = session.share(3)
        assert sum(share.account.left().requests for share in shares) <= left.requests
        assert {share.account.left().requests for share in shares} == {left.requests // 3}
        assert {share.account.left().bytes for share in shares} == {left.bytes // 3}
        assert sum(share.account.left().usd for share in shares) == pytest.approx(left.usd)
        assert {share.account.left().seconds for share in shares} == {9.0}
        for share in shares:
            mine = hs.Array(array.source, array.store, share)
            with pytest.raises(BudgetError):
                [mine[...] for _ in range(100)]
            assert share.metrics.requests + share.metrics.lookups <= left.requests // 3
            assert share.metrics.bytes <= left.bytes // 3
            share.close()
    with fast() as session, pytest.raises(hs.errors.InvalidInputError, match="1 worker or more"):
        session.share(0)
    with fast() as session:
        assert [share.account for share in session.share(2)] == [None, None]


def test_a_refusal_crosses_a_process_border_with_its_plan(remote):
    with fast() as session:
        array = array_at(remote, "a", session)
        with pytest.raises(BudgetError) as caught:
            array.read(budget=hs.Budget(requests=0))
        copy = pickle.loads(pickle.dumps(caught.value))
        assert str(copy) == str(caught.value)
        assert copy.plan.estimate == caught.value.plan.estimate
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            with pytest.raises(BudgetError, match="requests") as caught:
                pool.submit(_read_without_budget, array).result(60)
            assert caught.value.plan.estimate.all_requests > 0


def _read_without_budget(array):
    return array.read(budget=hs.Budget(requests=0))


# Threads


@pytest.mark.parametrize("where", ["file", "s3"])
def test_a_pool_of_threads_on_one_array(remote, tmp_path, where):
    with fast(cache_bytes=1 << 16) as session:
        array = (
            array_at(remote, "a", session) if where == "s3" else hs.open(on_disk(tmp_path, "plain"), session=session)
        )
        with ThreadPoolExecutor(8) as pool:
            for number, found in enumerate(pool.map(lambda n: array[n % 64], range(256))):
                assert np.array_equal(found, DATA[number % 64])
