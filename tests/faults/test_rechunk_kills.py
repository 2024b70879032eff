"""Changes of layout that are killed -9, or whose calls fail: the array is whole at once, and the next call ends it."""

import os
import random
import shutil
import signal
import time
from contextlib import nullcontext, suppress
from pathlib import Path

import numpy as np
import pytest
import zarr
from support.faulty import Fault, FaultyStore, slow_down
from support.killing import killed
from support.profiles import times

import hyperslab as hs
from hyperslab.errors import StoreError
from hyperslab.execute import retry
from hyperslab.formats.zarr import array as zarr_array
from hyperslab.rechunk import listing

VALUES = np.arange(12 * 10, dtype="i4").reshape(12, 10)
NEW = {"chunks": (12, 2), "shards": (12, 4)}


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(retry, "_FIRST_S", 0.0)
    monkeypatch.setattr(zarr_array, "TRUST_S", 0.0)


def check(url: object, values: np.ndarray = VALUES) -> None:
    """Read all with both programs."""
    assert (hs.open(url)[...] == values).all()
    assert (zarr.open_array(str(url))[...] == values).all()


def finish(url: Path, values: np.ndarray = VALUES) -> None:
    """End the change and sweep up."""
    changed = hs.rechunk(url, **NEW)
    assert changed.chunks == (12, 2)
    hs.sweep(url)
    check(url, values)
    found = {key for key, _ in changed.store.keys("")}
    assert found == {"zarr.json", *(f"c.0.{n}" for n in range(3))}
    assert hs.open(url).source.layout.complete


def test_killed_at_any_call(tmp_path):
    hs.save(tmp_path / "first", VALUES, chunks=(3, 5), shards=(6, 5))
    at, step, count = random.Random(1).randrange(7), 7 if times(1) == 1 else 1, 0
    while True:
        shutil.rmtree(tmp_path / "a", ignore_errors=True)
        shutil.copytree(tmp_path / "first", tmp_path / "a")
        was_killed = killed(lambda: hs.rechunk(tmp_path / "a", **NEW), at)
        check(tmp_path / "a")
        finish(tmp_path / "a")
        if not was_killed:
            break
        at, count = at + step, count + 1
        assert count < 500
    assert count > 5


def test_killed_again_and_again_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(listing, "_MARGIN_NS", 0)  # else all that was written within seconds is moved again
    hs.save(tmp_path / "a", VALUES, chunks=(6, 1), shards=(6, 1))
    values = VALUES.copy()
    values[0, 0] = -1
    time.sleep(0.05)  # steps of the file system's clock: what is as new as the newest object is moved again as well
    hs.open(tmp_path / "a", mode="r+")[0, 0] = -1
    count = 0
    while killed(lambda: hs.rechunk(tmp_path / "a", chunks=(12, 1), shards=(12, 1)), 65):
        check(tmp_path / "a", values)
        count += 1
        assert count < 40, "the change does not get on"
    assert count > 1
    assert hs.open(tmp_path / "a").chunks == (12, 1)
    check(tmp_path / "a", values)


def test_sweep_that_is_killed(tmp_path):
    hs.save(tmp_path / "a", VALUES, chunks=(3, 5), shards=(6, 5))
    hs.rechunk(tmp_path / "a", **NEW)
    count = 0
    while killed(lambda: hs.sweep(tmp_path / "a"), 25):
        check(tmp_path / "a")
        count += 1
        assert count < 40, "the sweep does not get on"
    finish(tmp_path / "a")
    assert count > 0


def write_on(url: Path, pipe: int) -> None:
    """Write numbers into cells, and tell of each once it is stored."""
    array = hs.open(url, mode="r+")
    for n in range(1, 1_000_000):
        array[n % 12, n % 10] = -n
        os.write(pipe, n.to_bytes(4, "little"))


def forked(work) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    return pid


def test_no_write_is_lost_when_changes_are_killed(tmp_path):
    url, chance = tmp_path / "a", random.Random(3)
    hs.save(url, VALUES, chunks=(3, 5), shards=(6, 5))
    heard, told = os.pipe()
    writer = forked(lambda: write_on(url, told))
    try:
        os.read(heard, 4)
        for n in range(times(6, 60)):
            sizes = {"chunks": (12, 2), "shards": (12, 4)} if n % 4 < 2 else {"chunks": (3, 5), "shards": (6, 5)}
            pid = forked(lambda sizes=sizes: hs.rechunk(url, **sizes))
            time.sleep(chance.uniform(0.0, 0.15))
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            hs.rechunk(url, **sizes)
            hs.sweep(url)
    finally:
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
    os.close(told)
    numbers = np.frombuffer(b"".join(iter(lambda: os.read(heard, 1 << 16), b"")), "<i4")
    os.close(heard)
    found, last = hs.open(url)[...], int(numbers[-1])
    wanted = VALUES.copy()
    for n in range(1, last + 1):
        wanted[n % 12, n % 10] = -n
    unknown = (last + 1) % 12, (last + 1) % 10  # the writer may have been killed after this one was stored
    if found[unknown] == -(last + 1):
        wanted[unknown] = -(last + 1)
    assert (found == wanted).all()
    assert (zarr.open_array(str(url))[...] == wanted).all()


@pytest.mark.parametrize("on", ["get", "put", "list"])
@pytest.mark.parametrize("kind", ["passing", "lasting", "answer lost"])
def test_every_call_fails_once(on, kind):
    """A failure that passes is not noticed; one that stays is told of, and calling again ends the change."""
    if kind == "answer lost" and on != "put":
        return
    with hs.Session(retries=2) as session:
        for skip in range(100):
            name = f"memory://failing-{on}-{kind.split()[0]}/{skip}"
            array = hs.save(name, VALUES, chunks=(6, 5), shards=(6, 5), session=session)
            store = FaultyStore(array.store)
            handle = hs.Array(array.source, store, session, writable=True)
            error = slow_down if kind != "lasting" else lambda: StoreError("it is broken")
            fault = Fault("", times=1, skip=skip, error=error, on=on, after=kind == "answer lost")
            store.faults.append(fault)
            with suppress(StoreError) if kind == "lasting" else nullcontext():
                assert (hs.rechunk(handle, **NEW)[...] == VALUES).all()
            assert (hs.open(name, session=session)[...] == VALUES).all()
            store.faults.clear()
            changed = hs.rechunk(handle, **NEW)
            assert changed.chunks == (12, 2)
            assert (changed[...] == VALUES).all()
            if fault.times:
                break
        assert skip > 1


@pytest.mark.parametrize("on", ["get", "put"])
def test_every_call_of_a_sweep_fails_once(on):
    with hs.Session(retries=0) as session:
        for skip in range(100):
            name = f"memory://sweeping-{on}/{skip}"
            hs.rechunk(hs.save(name, VALUES, chunks=(6, 5), shards=(6, 5), session=session), **NEW)
            array = hs.open(name, mode="r+", session=session)
            store = FaultyStore(array.store)
            handle = hs.Array(array.source, store, session, writable=True)
            fault = Fault("", times=1, skip=skip, error=lambda: StoreError("it is broken"), on=on)
            store.faults.append(fault)
            with suppress(StoreError):
                hs.sweep(handle)
            store.faults.clear()
            assert (hs.open(name, session=session)[...] == VALUES).all()
            hs.sweep(handle)
            assert (hs.open(name, session=session)[...] == VALUES).all()
            assert len(array.store.keys(str(skip))) == 4
            if fault.times:
                break
        assert skip > 1
