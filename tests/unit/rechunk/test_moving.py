"""Rechunking to another place: what is kept, how much is read, how it ends when something fails."""

import os
import signal
import subprocess
import sys
import textwrap
import threading

import h5py
import numpy as np
import pytest
import zarr
from support.faulty import Fault, FaultyStore, slow_down

import hyperslab as hs
from hyperslab.formats.copying import Place, copy_tree
from hyperslab.formats.zarr.array import ZarrArray, stored_objects
from hyperslab.rechunk import move_cells, moving, scratch
from hyperslab.selection import Box
from hyperslab.store import LocalStore

CELLS = np.random.default_rng(3).normal(size=(40, 24, 30)).astype("f4")
ACROSS = {"chunks": (40, 4, 5), "shards": (40, 8, 10)}
# Enough for about an eighth of the cells.
LITTLE = 90_000


@pytest.fixture
def steps(tmp_path):
    return hs.save(tmp_path / "steps", CELLS, chunks=(1, 24, 30), shards=(1, 24, 30), dims=("t", "y", None),
                   attrs={"units": "m"}, fill_value=-1)  # fmt: skip


@pytest.mark.parametrize("memory_bytes", [LITTLE, 400_000, "1GB"])
def test_everything_is_kept(steps, tmp_path, exact, memory_bytes):
    made = hs.rechunk(steps.refresh(), tmp_path / "b", **ACROSS, memory_bytes=memory_bytes)
    assert np.array_equal(made[...], CELLS)
    assert (made.chunks, made.shards, made.dims, dict(made.attrs)) == (
        (40, 4, 5), (40, 8, 10), ("t", "y", None), {"units": "m"})  # fmt: skip
    assert made.fill_value == -1
    assert made.source.layout.complete
    assert made.writable
    assert np.array_equal(zarr.open_array(tmp_path / "b", mode="r")[...], CELLS)
    assert (exact.schemes[0].area is not None) == (memory_bytes == LITTLE)


def test_each_byte_is_read_about_once(steps, tmp_path, exact):
    stored = sum(file.stat().st_size for file in (tmp_path / "steps/c").rglob("*") if file.is_file())
    with hs.Session() as session:
        source = hs.open(tmp_path / "steps", session=session)
        before = session.metrics.snapshot()
        hs.rechunk(source, tmp_path / "b", **ACROSS, memory_bytes=LITTLE, session=session)
        read = session.metrics.snapshot().bytes - before.bytes
        assert not len(session.cache)
    assert exact.schemes[0].area is not None
    assert exact.schemes[0].amplification == 1
    assert stored * 0.9 <= read <= stored * 1.3


def test_the_disk_is_used_as_far_as_it_goes(steps, tmp_path, exact, monkeypatch):
    # Two of the three rows of objects fit.
    monkeypatch.setattr(moving, "free_bytes", lambda folder: CELLS.nbytes * 2 // 3)
    assert np.array_equal(hs.rechunk(steps, tmp_path / "b", **ACROSS, memory_bytes=LITTLE)[...], CELLS)
    assert exact.schemes[0].amplification == 2
    monkeypatch.setattr(moving, "free_bytes", lambda folder: 0)
    assert np.array_equal(hs.rechunk(steps, tmp_path / "c", **ACROSS, memory_bytes=LITTLE)[...], CELLS)
    assert exact.schemes[1].area is None


@pytest.mark.parametrize("form", ["npy", "npy-f", "h5", "h5-plain", "v2", "strings"])
def test_other_formats(tmp_path, exact, form):
    wanted = CELLS
    if form == "npy":
        np.save(tmp_path / "a.npy", CELLS)
    elif form == "npy-f":
        np.save(tmp_path / "a.npy", np.asfortranarray(CELLS))
    elif form == "v2":
        zarr.create_array(tmp_path / "a.npy", data=CELLS, chunks=(1, 24, 30), zarr_format=2)
    else:
        wanted = CELLS[:, 0, 0].astype("U9").astype(object) if form == "strings" else CELLS
        with h5py.File(tmp_path / "a.h5", "w") as file:
            more = {"compression": "gzip", "chunks": (1, 24, 30)} if form == "h5" else {}
            file.create_dataset("x", data=wanted, **more)
    url = tmp_path / ("a.h5/x" if form.startswith(("h5", "strings")) else "a.npy")
    sizes = {"chunks": (7,)} if form == "strings" else ACROSS
    made = hs.rechunk(url, tmp_path / "b", **sizes, memory_bytes=LITTLE)
    assert np.array_equal(made[...], wanted)


def test_a_group_is_rechunked_array_by_array(tmp_path):
    group = hs.create_group(tmp_path / "g", attrs={"a": 1})
    group.save("x", np.arange(20).reshape(4, 5))
    group.save("in/y", np.ones((3, 3)))
    made = hs.rechunk(tmp_path / "g", tmp_path / "h", chunks=(2, 2))
    assert made["x"][3, 4] == 19
    assert made["in/y"].chunks == (2, 2)
    assert dict(made.attrs) == {"a": 1}


def test_a_sparse_array_stays_sparse(tmp_path, exact):
    source = hs.create(tmp_path / "a", (20, 20), "f8", chunks=(2, 20), shards=(2, 20), fill_value=np.nan)
    source[3] = 1.5
    made = hs.rechunk(source, tmp_path / "b", chunks=(5, 5), shards=(5, 5), memory_bytes=4000)
    assert np.array_equal(made[...], source[...], equal_nan=True)
    assert len(list((tmp_path / "b/c").glob("*/*"))) == 4
    assert not made.source.layout.complete
    full = hs.save(tmp_path / "f", np.zeros((20, 20)))
    assert hs.rechunk(full, tmp_path / "z", chunks=(5, 5), shards=(5, 5)).source.layout.complete
    assert len(list((tmp_path / "z/c").glob("*/*"))) == 16


def test_too_little_memory_is_said(steps, tmp_path):
    with pytest.raises(hs.errors.InvalidInputError, match="one object of the new layout needs"):
        hs.rechunk(steps, tmp_path / "b", chunks=(40, 24, 30), memory_bytes="100kB")
    for wrong in ("lots", 0, -1, None, 1.5, "12 parsecs"):
        with pytest.raises(hs.errors.InvalidInputError, match="memory_bytes"):
            hs.rechunk(steps, tmp_path / "c", memory_bytes=wrong)


def made_for(session, store, shape=CELLS.shape, dtype="f4", **settings) -> ZarrArray:
    from hyperslab.formats.zarr.create import NewArray

    return Place(session, store, "b", "b").create(NewArray(shape, dtype, **settings))


def test_only_some_boxes(steps, tmp_path, exact):
    with hs.Session() as session:
        store = LocalStore(tmp_path)
        target = made_for(session, store, chunks=(10, 6, 10), shards=(10, 6, 10))
        told = []
        boxes = [Box((0, 0, 0), (1, 1, 1)), Box((35, 20, 9), (36, 21, 11))]
        move_cells(steps, target, memory_bytes=30_000, done=set(), tell=told.append, only=boxes)
        there = stored_objects(target.writer(), target.source)
        assert there == {(0, 0, 0), (3, 3, 0), (3, 3, 1)}
        assert sum(told) == 3 * 600 * 4
        move_cells(steps, target, memory_bytes=30_000, done=there, tell=told.append)
        assert sum(told) == CELLS.nbytes
        assert np.array_equal(hs.open(tmp_path / "b")[...], CELLS)
        with pytest.raises(hs.errors.InvalidInputError, match="shape"):
            move_cells(steps, made_for(session, LocalStore(tmp_path / "o"), (3,)), memory_bytes=30_000, done=set())


@pytest.mark.parametrize("layout", ["default", "plain"])
def test_verifying(tmp_path, exact, layout):
    cells = CELLS.copy()
    cells[3, :5] = np.nan
    source = hs.save(tmp_path / "a", cells)
    with hs.Session(retries=0) as session:
        store = FaultyStore(LocalStore(tmp_path))
        target = made_for(session, store, chunks=(9, 7, 8), layout=layout)
        move_cells(source, target, memory_bytes=10**6, done=set(), verify=True)
        assert np.array_equal(hs.open(tmp_path / "b")[...], cells, equal_nan=True)
        # A store that stores something else.
        store.faults.append(Fault(key="b/c", times=None, edit=lambda data: data[:-5] + b"#" + data[-4:]))
        with pytest.raises((hs.errors.IntegrityError, hs.errors.FormatError)):
            move_cells(source, target, memory_bytes=10**6, done=set(), verify=True)


def rechunked(session, source, store, tell=None, **settings):
    """Rechunk into a store that is not the user's choice."""
    move = lambda source, target, done, tell: move_cells(  # noqa: E731
        source, target, memory_bytes=LITTLE, done=done, tell=tell
    )
    return copy_tree(source, Place(session, store, "b", "b"), settings or ACROSS, progress=tell, move=move)


def test_puts_that_fail_once_are_repeated(steps, tmp_path, exact):
    with hs.Session(retries=1) as session:
        store = FaultyStore(LocalStore(tmp_path))
        store.fail(key="b/c/0/0", on="put")
        store.fail(key="b/c/0/2/1", on="put")
        store.faults.append(Fault(key="b/c/0/1", on="put", after=True, error=slow_down))
        rechunked(session, steps, store)
        assert np.array_equal(hs.open(tmp_path / "b")[...], CELLS)


@pytest.mark.parametrize("layout", ["default", "plain"])
def test_going_on_after_every_put_that_fails(steps, tmp_path, exact, layout):
    settings = {"chunks": (40, 8, 10), "layout": layout, "shards": None if layout == "plain" else (40, 8, 10)}
    source, seen = hs.open(tmp_path / "steps"), []
    with hs.Session(retries=0) as session:
        for _ in range(8):
            store = FaultyStore(LocalStore(tmp_path))
            store.fail(times=None, key="b/c", skip=1, on="put")
            with pytest.raises(hs.errors.StoreError, match="503"):
                rechunked(session, source, store, **settings)
            assert not hs.open(tmp_path / "b").source.layout.complete
            seen.append(len([each for each in (tmp_path / "b/c").rglob("*") if each.is_file()]))
        assert seen == list(range(1, 9))
        told = []
        rechunked(session, source, LocalStore(tmp_path), lambda *each: told.append(each), **settings)
        assert told == [(CELLS.nbytes * 8 // 9, CELLS.nbytes), (CELLS.nbytes, CELLS.nbytes)]
    made = hs.open(tmp_path / "b")
    assert made.source.layout.complete
    assert np.array_equal(made[...], CELLS)


def test_a_damaged_source(steps, tmp_path, exact):
    path, threads = tmp_path / "steps/c/17/0/0", threading.active_count()
    path.write_bytes(path.read_bytes()[:-40] + bytes(40))
    with pytest.raises(hs.errors.IntegrityError):
        hs.rechunk(hs.open(tmp_path / "steps"), tmp_path / "b", **ACROSS, memory_bytes=LITTLE)
    assert not hs.open(tmp_path / "b").source.layout.complete
    path.unlink()
    with pytest.raises(hs.errors.IntegrityError, match="gone"):
        hs.rechunk(hs.open(tmp_path / "steps"), tmp_path / "b", **ACROSS, memory_bytes=LITTLE)
    assert threading.active_count() < threads + 10


def test_the_scratch_file_fails(steps, tmp_path, exact, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(scratch.os, "pwrite", full)
    with pytest.raises(hs.errors.StoreError, match="TMPDIR"):
        hs.rechunk(steps, tmp_path / "b", **ACROSS, memory_bytes=LITTLE)
    monkeypatch.undo()
    with pytest.raises(hs.errors.StoreError, match="TMPDIR"):
        scratch.Scratch(str(tmp_path / "nowhere"))


def test_another_array_is_not_gone_on_with(steps, tmp_path):
    hs.rechunk(steps, tmp_path / "b", **ACROSS)
    with pytest.raises(hs.errors.InvalidInputError, match="overwrite"):
        hs.rechunk(steps, tmp_path / "b", **ACROSS)
    made = hs.rechunk(steps, tmp_path / "b", chunks=(5, 6, 6), overwrite=True)
    assert np.array_equal(made[...], CELLS)
    with pytest.raises(hs.errors.InvalidInputError, match="in one another"):
        hs.rechunk(steps, tmp_path / "steps", overwrite=True)


CHILD = """
import sys, hyperslab as hs
from hyperslab.rechunk import memory, moving
memory.resident_bytes = lambda: 0
memory._SPARE_BYTES = memory._LEAST_BYTES = moving._ROOMY_BYTES = 0
hs.open(sys.argv[1])
print("go", flush=True)
made = hs.rechunk(sys.argv[1], sys.argv[2], chunks=(160, 4, 4), shards=(160, 4, 4), memory_bytes=300_000)
print("done", flush=True)
"""


def child(tmp_path):
    """Start one, with a folder of its own for scratch files: other tests make some meanwhile."""
    command = [sys.executable, "-c", textwrap.dedent(CHILD), str(tmp_path / "a"), str(tmp_path / "b")]
    (tmp_path / "scratch").mkdir(exist_ok=True)
    environment = {**os.environ, "TMPDIR": str(tmp_path / "scratch")}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stdout.readline() == "go\n"
    return process


@pytest.fixture
def long(tmp_path):
    cells = np.arange(160 * 96 * 80, dtype="f4").reshape(160, 96, 80)
    hs.save(tmp_path / "a", cells, chunks=(1, 96, 80), shards=(1, 96, 80))
    return cells


@pytest.mark.timeout(600)
def test_going_on_after_kills(long, tmp_path):
    rng = np.random.default_rng(5)
    for _ in range(3):
        process = child(tmp_path)
        threading.Event().wait(float(rng.uniform(0.02, 0.5)))
        process.kill()
        process.communicate()
        if (tmp_path / "b/zarr.json").exists():
            found = hs.open(tmp_path / "b")
            for file in (tmp_path / "b/c").glob("0/*/[0-9]*"):
                y, x = int(file.parent.name) * 4, int(file.name) * 4
                assert np.array_equal(found[:, y : y + 4, x : x + 4], long[:, y : y + 4, x : x + 4])
    process = child(tmp_path)
    _, errors = process.communicate(timeout=300)
    if process.returncode:  # it was done before
        assert "overwrite=True" in errors
    made = hs.open(tmp_path / "b")
    assert made.source.layout.complete
    assert np.array_equal(made[...], long)
    assert not [name for name in os.listdir(tmp_path / "scratch") if name.startswith("hyperslab-")]


def test_an_interrupt_ends_it_and_calling_again_goes_on(long, tmp_path):
    process = child(tmp_path)
    threading.Event().wait(0.15)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    if "done" not in out:
        assert "KeyboardInterrupt" in errors
        hs.rechunk(tmp_path / "a", tmp_path / "b", chunks=(160, 4, 4), shards=(160, 4, 4))
    assert np.array_equal(hs.open(tmp_path / "b")[...], long)


def test_memory_stays_within_its_limit(tmp_path):
    """The peak of a process, also with what it held before; staged, as chunks lie across."""
    cells = np.random.default_rng(1).normal(size=(96, 512, 512)).astype("f4")
    np.save(tmp_path / "cells.npy", cells)
    hs.save(tmp_path / "a", cells, chunks=(1, 512, 512), shards=(1, 512, 512))
    probe = """
    import sys, hyperslab as hs, numpy as np
    from pathlib import Path
    made = hs.rechunk(sys.argv[1], sys.argv[2], chunks=(96, 32, 32), memory_bytes=180_000_000)
    print(*[line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")])
    assert np.array_equal(made[:, 5, 7], np.load(sys.argv[3], mmap_mode="r")[:, 5, 7])
    """
    if not os.path.exists("/proc/self/status"):
        pytest.skip("the peak of a process is only told by Linux")
    command = [sys.executable, "-c", textwrap.dedent(probe), tmp_path / "a", tmp_path / "b", tmp_path / "cells.npy"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=100)
    assert int(done.stdout) * 1024 < 180_000_000
