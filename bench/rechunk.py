"""Chunks of one time step each, turned into chunks of all time steps: 2 GB of float32 within 512 MB of memory.

Hyperslab against Dask's `rechunk` and against rechunker, each as its documentation says, each in a process of its own,
taking turns. What counts as memory is the peak of a process (VmHWM), for Dask's cluster also those of its workers. Each
result is compared with NumPy, cell by cell.

    python -m bench.rechunk                     all; arrays are made at the first run (6 GB in bench/out)
    python -m bench.rechunk --quick             256 MB, one round
    RECHUNKER_PYTHON=/path/to/python            has rechunker, see bench/rechunker.txt (it works with Zarr 2 alone)
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import contextlib
import json
import os
import resource
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np

from bench.figures import Figure, at_least, at_most, main

LIMIT_BYTES = 512_000_000
STEPS, SIDE, TILE = 512, 1024, 64
QUICK_STEPS = 64
KINDS = ("zarr", "zarr2", "plain", "hdf5")


def measure(quick: bool) -> list[Figure]:
    steps, rounds = (QUICK_STEPS, 1) if quick else (STEPS, 3)
    others = [("dask", "zarr"), ("dask-cluster", "zarr"), ("rechunker", "zarr2")]
    runs = [*[("hyperslab", kind) for kind in KINDS], *others]
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    for number in range(rounds):
        for name, kind in runs[:: -1 if number % 2 else 1]:
            result = _run(name, kind, steps)
            if result is not None:
                found.setdefault((name, kind), []).append(result)
    best = {run: min(each["seconds"] for each in results) for run, results in found.items()}
    for (name, kind), results in found.items():
        peaks = ", ".join(f"{each['peak'] / 1e6:.0f}" for each in results)
        times = ", ".join(f"{each['seconds']:.1f}" for each in results)
        cpu = min(each["cpu"] for each in results)
        print(f"  {name} from {kind}: {times} s (processor {cpu:.1f} s); peak {peaks} MB; right to the last cell")
    return [*_memory(found), *_speed(best)]


def _memory(found: dict[tuple[str, str], list[dict[str, float]]]) -> list[Figure]:
    peaks = {kind: max(run["peak"] for run in runs) for (name, kind), runs in found.items() if name == "hyperslab"}
    return [at_most(f"peak memory, from {kind}", peak / 1e6, LIMIT_BYTES / 1e6, " MB") for kind, peak in peaks.items()]


def _speed(best: dict[tuple[str, str], float]) -> list[Figure]:
    others = [run for run in best if run[0] != "hyperslab"]
    return [
        at_least(f"faster than {name}, from {kind}", best[name, kind] / best["hyperslab", kind], 1)
        for name, kind in others
    ]  # fmt: skip


def _run(name: str, kind: str, steps: int) -> dict[str, float] | None:
    """Let one of them do it in a process of its own, and check the result here."""
    python = os.environ.get("RECHUNKER_PYTHON") if name == "rechunker" else sys.executable
    if python is None:
        return None
    source = stored(kind, steps)
    with tempfile.TemporaryDirectory(dir=folder()) as place:
        # Not with this folder before all others: `collections` in it is not the one of Python.
        command = [python, "-P", __file__, "--run", name, str(source), place + "/out.zarr"]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            last = done.stderr.strip().splitlines()[-1:] or ["no reason given"]
            print(f"  {name} from {kind} failed: {last[0]}", flush=True)
            return None
        _check(place + "/out.zarr", steps)
        return json.loads(done.stdout.splitlines()[-1])


def folder() -> Path:
    path = Path(os.environ.get("HYPERSLAB_BENCH_DATA", Path(__file__).parent / "out"))
    path.mkdir(parents=True, exist_ok=True)
    return path


def base() -> np.ndarray:
    """Return the first time step: a smooth field with noise."""
    rows = np.linspace(0, 12, SIDE, dtype=np.float32)
    noise = np.random.default_rng(7).integers(0, 64, (SIDE, SIDE)).astype(np.float32) / 64
    return (100 * np.sin(rows)[:, None] * np.cos(rows)[None, :]).astype(np.float32) + noise


def step(first: np.ndarray, t: int) -> np.ndarray:
    """Return a time step of some rows, given their first one."""
    return np.roll(first, 5 * t, axis=1) + np.float32(t)


def _check(url: str, steps: int) -> None:
    import hyperslab as hs

    first = base()
    with hs.Session(cache_bytes=0) as session:
        array = hs.open(url, session=session)
        assert array.chunks == (steps, TILE, TILE), array.chunks
        for row in range(0, SIDE, TILE):
            found = array[:, row : row + TILE]
            for t in range(steps):
                assert np.array_equal(found[t], step(first[row : row + TILE], t)), (row, t)


def stored(kind: str, steps: int) -> Path:
    """Return the array in one of the forms that it is read from; it is made at the first call."""
    path = folder() / f"steps-{steps}.{'h5' if kind == 'hdf5' else kind}"
    if path.exists():
        return path
    half = path.with_name(path.name + ".half")
    shutil.rmtree(half, ignore_errors=True)
    half.unlink(missing_ok=True)
    _write(kind, half, steps)
    half.rename(path)
    return path


def _write(kind: str, path: Path, steps: int) -> None:
    import h5py
    import zarr

    shape, chunks, first = (steps, SIDE, SIDE), (1, SIDE, SIDE), base()
    if kind == "hdf5":
        with h5py.File(path, "w") as file:
            array = file.create_dataset("a", shape, "f4", chunks=chunks, compression="gzip", compression_opts=1)
            for t in range(steps):
                array[t] = step(first, t)
        return
    settings: dict[str, object] = {"compressors": None} if kind == "plain" else {}
    if kind == "zarr2":
        from numcodecs import Zstd

        settings = {"zarr_format": 2, "compressors": Zstd()}
    target = zarr.create_array(path, shape=shape, dtype="f4", chunks=chunks, **settings)
    for t in range(steps):
        target[t] = step(first, t)


def run_hyperslab(source: str, target: str) -> None:
    import hyperslab as hs

    source = source + "/a" if source.endswith(".h5") else source
    array = hs.open(source)
    hs.rechunk(array, target, chunks=(array.shape[0], TILE, TILE), memory_bytes=LIMIT_BYTES)


def run_dask(source: str, target: str) -> None:
    """Dask's threads: as its documentation of arrays has it, which knows no limit of memory."""
    import dask.array as da

    array = da.from_zarr(source)
    array.rechunk((array.shape[0], TILE, TILE)).to_zarr(target)


def run_dask_cluster(source: str, target: str) -> None:
    """A local cluster of one worker, which moves cells by way of its disk (method p2p).

    Without the limit: held to 512 MB, its worker is killed again and again, until Dask gives up.
    """
    import dask
    import dask.array as da
    from distributed import Client, LocalCluster

    with (
        tempfile.TemporaryDirectory(dir=folder()) as scratch,
        dask.config.set({"array.rechunk.method": "p2p"}),
        LocalCluster(
            n_workers=1, threads_per_worker=os.cpu_count(), processes=True,
            local_directory=scratch, dashboard_address="127.0.0.1:0",
        ) as cluster,
        Client(cluster),
    ):  # fmt: skip
        array = da.from_zarr(source)
        array.rechunk((array.shape[0], TILE, TILE)).to_zarr(target)


def run_rechunker(source: str, target: str) -> None:
    import zarr
    from rechunker import rechunk

    array = zarr.open(source, mode="r")
    with tempfile.TemporaryDirectory(dir=folder()) as scratch:
        plan = rechunk(array, (array.shape[0], TILE, TILE), LIMIT_BYTES, target, temp_store=scratch + "/t.zarr")
        plan.execute()


RUNS: dict[str, Callable[[str, str], None]] = {
    "hyperslab": run_hyperslab,
    "dask": run_dask,
    "dask-cluster": run_dask_cluster,
    "rechunker": run_rechunker,
}


def run_once(name: str, source: str, target: str) -> None:
    """Do it in this process, and print what it took; the time to start Python is not part of it."""
    watch = _Watch()
    started = time.perf_counter()
    RUNS[name](source, target)
    seconds = time.perf_counter() - started
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu = sum(each.ru_utime + each.ru_stime for each in used)
    print(json.dumps({"seconds": seconds, "cpu": cpu, "peak": watch.end()}))


class _Watch:
    """The peak of this process; where it has children (a cluster's workers) the most that all held at a time."""

    def __init__(self) -> None:
        self._most, self._ended = 0, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def end(self) -> int:
        self._ended.set()
        self._thread.join()
        return max(self._most, _status("self", "VmHWM"))

    def _look(self) -> None:
        while not self._ended.wait(0.1):
            pids = list(_below("self"))
            if pids:
                self._most = max(self._most, sum(_status(pid, "VmRSS") for pid in ["self", *pids]))


def _below(pid: str) -> Iterator[str]:
    """Yield the processes that one has started, and those that they have."""
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in path.read_text().split():
                yield child
                yield from _below(child)


def _status(pid: str, field: str) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:  # it has ended
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(field)), 0)


if __name__ == "__main__":
    if "--run" in sys.argv:
        run_once(*sys.argv[2:5])
    else:
        main(measure)
