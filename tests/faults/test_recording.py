"""Recording when something goes wrong: kills, forks, full disks. No read fails, and no frame before is lost."""

import errno
import fcntl
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest
from support.forking import in_child

import hyperslab as hs
from hyperslab.execute import recording
from hyperslab.workload import frames, recorder

DATA = np.arange(4096, dtype="i4").reshape(64, 64)


@pytest.fixture
def array(tmp_path):
    return hs.save(tmp_path / "a.zarr", DATA, chunks=(8, 8), layout="plain")


def rows_in(log):
    return sorted(hs.Workload.load(log).boxes()[0][:, 0].tolist())


FOREVER = """
import sys, hyperslab as hs
array, count = hs.open(sys.argv[1]), 0
with hs.record(sys.argv[2]):
    while True:
        array[count % 64, count // 64 % 64]
        count += 1
        if count % 1024 == 1:
            print(count, flush=True)
"""


def test_a_killed_process_leaves_whole_frames(array, tmp_path):
    log = tmp_path / "w.hslog"
    for _ in range(3):
        process = subprocess.Popen([sys.executable, "-c", FOREVER, array.url, log], stdout=subprocess.PIPE, text=True)
        try:
            for _ in range(4):
                said = int(process.stdout.readline())
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait(60)
            process.stdout.close()
        found = hs.Workload.load(log)
        mine = [place for place, who in enumerate(found.records.processes) if who.pid == process.pid]
        reads = found.records.take(np.isin(found.records.fixed["process"], mine))
        # All that were written before it said so; of the rest whole frames, from the first on.
        assert len(reads) >= said - 1024
        order = reads.start.reshape(-1, 2)
        assert np.array_equal(order[:, 0], np.arange(len(reads)) % 64)


def test_a_forked_child_begins_anew_and_records_on(array, tmp_path):
    log = tmp_path / "w.hslog"
    with hs.record(log):
        array[0], array[1], array[2]

        def child():
            assert not recording.active.rows
            array[10], array[11]
            recording.flush_all()

        in_child(child)
        array[3]
    assert rows_in(log) == [0, 1, 2, 3, 10, 11]
    assert len(hs.Workload.load(log).records.processes) == 2


def some_rows(array, first):
    for row in range(first, first + 4):
        array[row]
    return os.getpid()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_record_what_the_environment_asks_for(array, tmp_path, monkeypatch, method):
    log = tmp_path / "w.hslog"
    monkeypatch.setenv("HYPERSLAB_RECORD", str(log))
    context = multiprocessing.get_context(method)
    # Handed over in a session that the worker makes anew, or, forked, in the parent's.
    with hs.Session() as session:
        try:
            mine = hs.open(array.url, session=session)
            with ProcessPoolExecutor(2, mp_context=context) as pool:
                pids = list(pool.map(some_rows, [mine] * 4, [0, 4, 8, 12], timeout=60))
        finally:
            recording.stop(os.path.realpath(log))
    assert rows_in(log) == list(range(16))
    assert {who.pid for who in hs.Workload.load(log).records.processes} == set(pids)


def test_a_worker_records_for_a_store_that_was_sent_to_it(array, tmp_path):
    log = tmp_path / "w.hslog"
    mine = hs.open(array.url, storage_options={"record": str(log)})
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        pool.submit(some_rows, mine, 20).result(60)
    assert rows_in(log) == [20, 21, 22, 23]


def check_reads(array):
    for number in range(600):
        assert array[1, number % 64] == DATA[1, number % 64]
    recording.flush_all()


@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EACCES, errno.EIO, "short"])
def test_a_log_that_cannot_be_written_is_warned_of_once(array, tmp_path, monkeypatch, fault):
    def write(fd, data):
        if fault == "short":
            return os_write(fd, data[: len(data) // 2])
        raise OSError(fault, os.strerror(fault))

    log, os_write = tmp_path / "w.hslog", os.write
    with hs.record(log):
        array[0]
        with monkeypatch.context() as patched:
            patched.setattr(frames.os, "write", write)
            with pytest.warns(RuntimeWarning, match="not recorded") as told:
                check_reads(array)
            assert len(told) == 1
        array[2]
    found = hs.Workload.load(log)
    assert {0, 2} <= set(found.boxes()[0][:, 0].tolist())
    assert (found.skipped_bytes > 0) == (fault == "short")


def test_warnings_that_are_errors_fail_no_read(array, tmp_path):
    folder = tmp_path / "gone"
    folder.mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with hs.record(folder / "w.hslog"):
            shutil.rmtree(folder)
            assert np.array_equal(array[3], DATA[3])


def test_a_log_that_was_moved_away_is_made_anew(array, tmp_path):
    with hs.record(tmp_path / "w.hslog"):
        array[0]
        os.rename(tmp_path / "w.hslog", tmp_path / "old.hslog")
        array[1]
    assert (rows_in(tmp_path / "old.hslog"), rows_in(tmp_path / "w.hslog")) == ([0], [1])


def test_a_lock_that_is_held_forever_holds_up_no_read(array, tmp_path):
    log = tmp_path / "w.hslog"
    with hs.record(log), open(log, "ab") as stopped:
        fcntl.flock(stopped, fcntl.LOCK_EX)
        began = time.monotonic()
        array[0]
        assert time.monotonic() - began < 30
    assert rows_in(log) == [0]


def test_a_mistake_in_writing_fails_no_read(array, tmp_path, monkeypatch):
    monkeypatch.setattr(recorder, "encode", lambda *_: 1 / 0)
    with pytest.warns(RuntimeWarning, match="ZeroDivisionError"), hs.record(tmp_path / "w.hslog"):
        assert np.array_equal(array[3], DATA[3])


def test_a_sink_that_raises_does_not_keep_a_read_from_being_recorded(array, tmp_path):
    def sink(record):
        raise ValueError("from the sink")

    with hs.Session(sink=sink) as session:
        mine = hs.open(array.url, session=session)
        with hs.record(tmp_path / "w.hslog"), pytest.raises(ValueError, match="from the sink"):
            mine[4]
    assert rows_in(tmp_path / "w.hslog") == [4]
