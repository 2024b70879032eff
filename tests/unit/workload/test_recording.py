"""What is recorded of reads: each once, with what it cost, by every way of asking for it."""

import asyncio
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from support.hostile import array_at, fast, put

import hyperslab as hs
from hyperslab.errors import BudgetError, InvalidInputError, NotFoundError
from hyperslab.execute import recording

DATA = np.arange(4096, dtype="i4").reshape(64, 64)


@pytest.fixture
def array(tmp_path):
    return hs.save(tmp_path / "a.zarr", DATA, chunks=(8, 8), layout="plain")


def load(path):
    return hs.Workload.load(path)


def column(workload, name):
    return workload.records.fixed[name].tolist()


def names(workload, kind):
    table = {"error": workload.records.errors, "method": workload.records.methods}[kind]
    return [table[place] for place in column(workload, kind)]


def test_a_read_is_recorded_with_its_cost(array, tmp_path):
    log, before = tmp_path / "w.hslog", time.time()
    with hs.record(log):
        array[3:20:2, [1, 2, 30]]
    found = load(log)
    assert len(found) == 1
    known = found.array
    assert (known.url, known.shape, known.dtype, known.itemsize) == (array.url, (64, 64), "<i4", 4)
    assert (known.chunks, known.shards) == (array.chunks, array.shards)
    assert column(found, "needed_bytes") == [9 * 3 * 4]
    assert before - 1 < column(found, "started_at")[0] <= time.time()
    assert 0 < column(found, "seconds")[0] < 10
    (process,) = found.records.processes
    assert (process.host, process.pid) == (os.uname().nodename, os.getpid())
    assert names(found, "error") == names(found, "method") == [None]


def test_nothing_is_recorded_outside_of_the_block(array, tmp_path):
    array[0]
    with hs.record(tmp_path / "w.hslog"):
        array[1]
    array[2]
    recording.flush_all()
    assert load(tmp_path / "w.hslog").boxes()[0].tolist() == [[1, 0]]
    assert recording.active is None


def test_records_inside_of_one_another_each_get_it_once(array, tmp_path):
    one, two = tmp_path / "1.hslog", tmp_path / "2.hslog"
    with hs.record(one):
        array[0]
        with hs.record(two), hs.record(one):
            array[1]
        array[2]
    assert load(one).boxes()[0][:, 0].tolist() == [0, 1, 2]
    assert load(two).boxes()[0][:, 0].tolist() == [1]
    assert len(hs.Workload.load(one, two, one)) == 3


def test_a_store_records_its_own_reads(array, tmp_path):
    log, other = tmp_path / "w.hslog", hs.save(tmp_path / "b.zarr", DATA)
    mine = hs.open(array.url, storage_options={"record": log})
    mine[5]
    other[6]
    with hs.record(log):
        mine[7]
    hs.read_many([(mine, np.s_[8]), (other, np.s_[9]), (array, np.s_[10])])
    recording.flush_all()
    found = load(log)
    assert sorted(found.of(array).boxes()[0][:, 0].tolist()) == [5, 7, 8]
    assert list(found.arrays) == [array.url]


def test_a_store_in_memory_records_and_has_connections_of_its_own(tmp_path):
    hs.save("memory://recorded/a", DATA)
    array = hs.open("memory://recorded/a", storage_options={"record": str(tmp_path / "w.hslog")})
    assert np.array_equal(array[3], DATA[3])
    hs.open("memory://recorded/a")[4]
    recording.flush_all()
    assert load(tmp_path / "w.hslog").of("memory://recorded/a").boxes()[0].tolist() == [[3, 0]]


@pytest.mark.parametrize("record", [3, "", "no/such/folder/w.hslog", "."])
def test_a_setting_that_cannot_be_is_refused_at_opening(array, record):
    with pytest.raises(InvalidInputError, match="record"):
        hs.open(array.url, storage_options={"record": record})


def test_selections_of_one_plan_are_counted_once(array, tmp_path):
    with fast() as session, hs.record(tmp_path / "w.hslog"):
        mine = hs.open(array.url, session=session)
        opening = session.metrics.bytes
        hs.read_many([(mine, np.s_[:4]), (mine, np.s_[:, 3]), (mine, np.s_[9, 9])], method="get")
        mine[1]
        spent = session.metrics.snapshot()
    found = load(tmp_path / "w.hslog")
    assert column(found, "needed_bytes") == [4 * 64 * 4, 64 * 4, 4, 64 * 4]
    assert len(set(column(found, "read")[:3])) == 1
    assert len(set(column(found, "read"))) == 2
    assert column(found, "part") == [0, 1, 2, 0]
    told = found.summary().arrays[0]
    assert (told.requests, told.fetched_bytes, told.needed_bytes) == (
        spent.requests,
        spent.bytes - opening,
        spent.needed_bytes,
    )
    assert 0 < told.seconds <= spent.seconds
    assert names(found, "method") == ["get"] * 3 + [None]


def test_a_remote_read_is_recorded_with_requests_and_dollars(fake_s3, tmp_path):
    put(fake_s3, "a", DATA, (8, 8), "shards-zstd")
    with fast() as session, hs.record(tmp_path / "w.hslog"):
        array = array_at(fake_s3, "a", session)
        before = session.metrics.snapshot()
        array[3:9]
        after = session.metrics.snapshot()
    found = load(tmp_path / "w.hslog")
    assert list(found.arrays) == ["s3://bucket/a"]
    for name, theirs in {"fetched_bytes": "bytes", "requests": "requests", "lookups": "lookups", "usd": "usd"}.items():
        assert column(found, name)[0] == pytest.approx(getattr(after, theirs) - getattr(before, theirs))
    assert column(found, "usd")[0] > 0


def test_failed_and_refused_reads_are_recorded(array, tmp_path):
    for path in (tmp_path / "a.zarr" / "c" / "0").iterdir():
        path.unlink() if path.is_file() else [inner.unlink() for inner in path.iterdir()]
    other = hs.save("memory://recorded/other", DATA)
    with hs.record(tmp_path / "w.hslog"):
        with pytest.raises(BudgetError):
            array.read(..., budget=hs.Budget(bytes=1))
        with pytest.raises(BudgetError):
            hs.read_many([(array, np.s_[50]), (other, ...)], budget=hs.Budget(bytes=1))
        with pytest.raises(hs.errors.IntegrityError):
            array[0]
    found = load(tmp_path / "w.hslog")
    assert names(found, "error") == ["BudgetError"] * 3 + ["IntegrityError"]
    assert column(found, "needed_bytes") == [DATA.nbytes, 256, DATA.nbytes, 256]
    assert found.of(array).summary().arrays[0].failed == 3


def test_an_async_read_is_recorded(array, tmp_path):
    async def some():
        return await asyncio.gather(*(array.aread(np.s_[row]) for row in range(5)))

    with hs.record(tmp_path / "w.hslog"):
        asyncio.run(some())
    assert sorted(load(tmp_path / "w.hslog").boxes()[0][:, 0].tolist()) == [0, 1, 2, 3, 4]


def test_threads_lose_and_repeat_nothing(array, tmp_path):
    def work(first):
        for row in range(first, 64, 4):
            for column in range(40):
                array[row, column]

    with hs.record(tmp_path / "w.hslog"):
        threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
    found = load(tmp_path / "w.hslog")
    assert len(found) == 64 * 40
    assert len(set(map(tuple, found.boxes()[0].tolist()))) == 64 * 40
    assert len(set(column(found, "read"))) == 64 * 40


def test_what_waits_is_written_by_number_and_by_time(array, tmp_path, monkeypatch):
    log = tmp_path / "w.hslog"
    with hs.record(log):
        array[0, 0]
        assert len(load(log)) == 1  # the first at once
        recording.active.due_at = float("inf")
        for _ in range(1023):
            array[0, 1]
        assert len(load(log)) == 1
        array[0, 2]
        assert len(load(log)) == 1025
        array[0, 3]
        recording.active.due_at = 0.0
        array[0, 4]
        assert len(load(log)) == 1027


def test_closing_a_session_writes(array, tmp_path):
    with hs.record(tmp_path / "w.hslog"):
        with hs.Session() as session:
            mine = hs.open(array.url, session=session)
            mine[0], mine[1]
        assert len(load(tmp_path / "w.hslog")) == 2


def test_no_secret_gets_into_a_log(tmp_path, array):
    from hyperslab.workload.place import clean_url

    assert clean_url("https://me:hush@host:80/a/b.zarr?sig=hush#frag") == "https://host:80/a/b.zarr"
    assert clean_url("s3://bucket/a.zarr?token=hush") == "s3://bucket/a.zarr"
    assert clean_url("s3://key:hush@bucket/a") == "s3://bucket/a"
    assert clean_url("abfss://box@acc.dfs.core.windows.net/a") == "abfss://box@acc.dfs.core.windows.net/a"
    assert clean_url("file:///x/../a%20b") == "/a b"
    assert clean_url("a.zarr/") == os.path.abspath("a.zarr")


def test_a_path_that_cannot_be_recorded_to(tmp_path, array):
    (tmp_path / "data.npy").write_bytes(b"precious")
    for path in (tmp_path / "no" / "w.hslog", tmp_path, tmp_path / "data.npy", 5, ""):
        with pytest.raises(InvalidInputError), hs.record(path):
            raise AssertionError
    assert (tmp_path / "data.npy").read_bytes() == b"precious"
    with pytest.raises(NotFoundError):
        hs.Workload.load(tmp_path / "nothing.hslog")
    with pytest.raises(InvalidInputError):
        hs.Workload.load(tmp_path)


PROGRAM = """
import sys, hyperslab as hs
array = hs.open(sys.argv[1])
for row in range(int(sys.argv[2])):
    array[row]
"""


def test_the_environment_records_every_process_and_exit_writes(array, tmp_path):
    log = tmp_path / "w.hslog"
    command = [sys.executable, "-c", PROGRAM, array.url, "7"]
    running = [subprocess.Popen(command, env={**os.environ, "HYPERSLAB_RECORD": str(log)}) for _ in range(3)]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    found = load(log)
    assert len(found) == 21
    assert {process.pid for process in found.records.processes} == {process.pid for process in running}
    assert found.skipped_bytes == 0


def test_settings_that_name_another_file_leave_it_alone(array, tmp_path):
    for name in ("notes.txt", "more.txt"):
        (tmp_path / name).write_text("precious")
    command = [sys.executable, "-W", "error", "-c", PROGRAM, array.url, "3"]
    done = subprocess.run(
        command, env={**os.environ, "HYPERSLAB_RECORD": str(tmp_path / "notes.txt")}, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    opened = hs.open(array.url, storage_options={"record": tmp_path / "more.txt"})
    with pytest.warns(RuntimeWarning, match="it is not a log"):
        opened[0]
    for _ in range(300):
        opened[1]
    recording.flush_all()
    assert [(tmp_path / name).read_text() for name in ("notes.txt", "more.txt")] == ["precious"] * 2


MOVING = """
import os, sys, hyperslab as hs
hs.open(sys.argv[1])[0]
os.chdir("elsewhere")
with hs.Session() as session:
    hs.open(sys.argv[1], session=session)[1]
"""


def test_a_relative_path_in_the_environment_is_one_log(array, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    environment = {**os.environ, "HYPERSLAB_RECORD": "w.hslog"}
    subprocess.run([sys.executable, "-c", MOVING, array.url], cwd=tmp_path, env=environment, check=True)
    assert len(load(tmp_path / "w.hslog")) == 2
    assert not list((tmp_path / "elsewhere").iterdir())
