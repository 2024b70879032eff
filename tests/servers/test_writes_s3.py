"""Writing to a real S3 server: conditional puts, several writers, kills; what the wire saw is what was counted."""

import os
import random
import signal
import time
import uuid

import numpy as np
import pytest
import zarr
from support.forking import Child
from support.profiles import times
from support.s3proxy import Rule
from support.seaweed import options_for

import hyperslab as hs
from hyperslab.errors import ConflictError, IntegrityError


@pytest.fixture
def url(s3):
    return s3.url(f"writes/{uuid.uuid4().hex}")


@pytest.fixture
def options(s3):
    return s3.storage_options


def test_everything_once(url, options, tmp_path):
    values = np.arange(300 * 200, dtype="i4").reshape(300, 200)
    with hs.Session() as session:
        made = {"storage_options": options, "session": session}
        array = hs.save(url, values, chunks=(50, 50), shards=(100, 100), attrs={"a": 1}, **made)
        array[10:20, ::3] = -1
        values[10:20, ::3] = -1
        assert (array[...] == values).all()
        array.append(values[:50])
        array.attrs["b"] = 2
        again = hs.open(url, mode="r+", **made)
        assert again.shape == (350, 200)
        assert again.attrs == {"a": 1, "b": 2}
        assert (again[300:] == values[:50]).all()
        again.resize((90, 120))
        assert sorted(key for key, _ in array.store.keys(again.source.path)) == sorted(
            again.source.path + "/" + name for name in ("c/0/0", "c/0/1", "zarr.json")
        )
        again.resize((150, 120))
        assert (again[:90] == values[:90, :120]).all()
        assert not again[90:].any()
        hs.copy(again, tmp_path / "copy", session=session)
        assert (zarr.open_array(str(tmp_path / "copy"))[...] == again[...]).all()
        metrics = session.metrics
        assert metrics.puts > 12
        assert metrics.usd > metrics.puts * 0.005 / 1000


def test_meter_agrees_with_the_wire(s3, s3_proxy):
    with hs.Session() as session:
        made = {"storage_options": options_for(s3_proxy.endpoint), "session": session}
        array = hs.save(s3.url(f"metered/{uuid.uuid4().hex}"), np.arange(10000), chunks=(100,), shards=(1000,), **made)
        array[5] = 3
        array[2000:3000] = 0
        array.resize((500,))
        methods = [entry.method for entry in s3_proxy.log]
        assert session.metrics.puts == methods.count("PUT")
        assert session.metrics.deletes == methods.count("DELETE") + methods.count("POST")
        assert session.metrics.lookups + session.metrics.requests == methods.count("GET") + methods.count("HEAD")


def test_failed_puts_are_repeated(s3, s3_proxy):
    with hs.Session() as session:
        made = {"storage_options": options_for(s3_proxy.endpoint), "session": session}
        array = hs.save(s3.url(f"failing/{uuid.uuid4().hex}"), np.arange(100), chunks=(10,), shards=(50,), **made)
        s3_proxy.rules += [
            Rule("status", "c/0", method="PUT", status=503, code="SlowDown", times=2),
            Rule("drop", "c/0", method="PUT", times=1),  # stored, but the answer is lost
        ]
        array[5] = 77
        assert array[5] == 77
        puts = [entry.status for entry in s3_proxy.log if entry.method == "PUT" and entry.key.endswith("c/0")]
        assert puts[-4:] == [503, 503, 0, 412]
        assert session.metrics.retries == 3


def increment(url: str, options: dict, cell: int, rounds: int) -> None:
    with hs.Session() as session:
        array = hs.open(url, mode="r+", storage_options=options, session=session)
        for n in range(rounds):
            array[cell] = n + 1


def test_writers_of_one_chunk_all_land(url, options):
    hs.save(url, np.zeros(4, "i8"), storage_options=options)
    children = [Child(lambda n=n: increment(url, options, n, 5)) for n in range(3)]
    for child in children:
        child.result(60)
    assert hs.open(url, storage_options=options)[...].tolist() == [5, 5, 5, 0]


def append_rows(url: str, options: dict, number: int) -> None:
    with hs.Session() as session:
        array = hs.open(url, mode="r+", storage_options=options, session=session)
        for n in range(3):
            array.append(np.full((3, 4), 100 * number + n))


def test_appends_of_several_processes_all_land(url, options):
    hs.save(url, np.zeros((0, 4), "i8"), chunks=(5, 4), shards=(5, 4), storage_options=options)
    children = [Child(lambda n=n: append_rows(url, options, n)) for n in (1, 2)]
    for child in children:
        child.result(90)
    found = hs.open(url, storage_options=options)[...]
    groups = found.reshape(6, 12)
    assert (groups == groups[:, :1]).all()
    assert sorted(groups[:, 0].tolist()) == [100, 101, 102, 200, 201, 202]


def test_lost_objects_are_noticed(s3, url, options):
    array = hs.save(url, np.arange(100), chunks=(10,), shards=(10,), storage_options=options)
    s3.delete(array.source.path + "/c/4")
    again = hs.open(url, storage_options=options)
    with pytest.raises(IntegrityError, match="c/4"):
        again[...]
    with pytest.raises(IntegrityError, match="c/4"):
        array[45] = 1
    assert again[:40].tolist() == list(range(40))


def test_created_twice(url, options):
    hs.create(url, (4,), "i4", storage_options=options)
    with pytest.raises((hs.errors.InvalidInputError, ConflictError)):
        hs.create(url, (4,), "i4", storage_options=options)


def kill_after(work, delay_s: float) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    time.sleep(delay_s)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def test_killed_writers_leave_whole_objects(url, options):
    """Overwriting and appending, killed at any time: each chunk is old or new, the array opens."""
    rng = random.Random(3)
    hs.save(url, np.zeros((8, 8), "i8"), chunks=(4, 4), shards=(4, 8), storage_options=options)
    started = time.monotonic()
    with hs.Session() as session:
        hs.open(url, mode="r+", storage_options=options, session=session)[...] = 1
    whole_s = time.monotonic() - started + 0.1
    rows = 8
    for n in range(times(20, 400)):

        def work(n: int = n) -> None:
            with hs.Session() as session:
                array = hs.open(url, mode="r+", storage_options=options, session=session)
                if n % 2:
                    array[:8] = n
                else:
                    array.append(np.full((3, 8), n))

        kill_after(work, rng.uniform(0, whole_s))
        with hs.Session() as session:
            found = hs.open(url, storage_options=options, session=session)
            cells = found[...]
        assert found.source.layout.complete
        assert found.shape[0] in (rows, rows + 3)
        rows = found.shape[0]
        for low in (0, 4):
            assert len(np.unique(cells[low : low + 4])) == 1
        groups = cells[8:].reshape(-1, 24)
        assert (groups == groups[:, :1]).all()
