"""A function over neighbours, 5 points, of 2 GB of float32 on the disk: out of HDF5 and out of Zarr, into Zarr.

Hyperslab against Dask's `map_overlap`, which is given the function compiled by numba; each in a process of its own,
taking turns, each into its default layout (compressed) and into plain chunks like those of the input. What counts as
memory is the peak of a process (VmHWM). Rows of each result are compared with NumPy. Then the figures of the paper
ArrayUDF, drawn again on this machine: see `stencil_figures.py`.

    python -m bench.stencil                     all; arrays are made at the first run (4 GB in bench/out)
    python -m bench.stencil --quick             256 MB, one round
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable

import numpy as np

from bench.figures import Figure, at_least, at_most, main

ROWS, COLUMNS = 16384, 32768
QUICK_ROWS = 2048
CHUNKS = (1024, 4096)
PEAK_BYTES = 600_000_000
KINDS = ("hdf5", "zarr")
LAYOUTS = ("default", "plain")


def measure(quick: bool) -> list[Figure]:
    from bench.stencil_figures import paper_figures

    return [*_out_of_core(quick), *paper_figures(quick)]


def _out_of_core(quick: bool) -> list[Figure]:
    rows, rounds = (QUICK_ROWS, 1) if quick else (ROWS, 2)
    runs = [(name, kind, layout) for kind in KINDS for layout in LAYOUTS for name in RUNS]
    found: dict[tuple[str, str, str], list[dict[str, float]]] = {}
    for number in range(rounds):
        for run in runs[:: -1 if number % 2 else 1]:
            found.setdefault(run, []).append(_run(*run, rows))
            each = found[run][-1]
            print(f"  {' '.join(run)}: {each['seconds']:.1f} s, peak {each['peak'] / 1e6:.0f} MB", flush=True)
    figures = []
    for kind in KINDS:
        for layout in LAYOUTS:
            ours, others = found["hyperslab", kind, layout], found["dask", kind, layout]
            ratio = min(each["seconds"] for each in others) / min(each["seconds"] for each in ours)
            figures.append(at_least(f"5-point, {kind} to Zarr ({layout}), against Dask", ratio, 1))
            peak = max(each["peak"] for each in ours)
            figures.append(at_most(f"its peak memory, {kind} ({layout})", peak / 1e6, PEAK_BYTES / 1e6, " MB"))
    return figures


def _run(name: str, kind: str, layout: str, rows: int) -> dict[str, float]:
    """Let one of them do it in a process of its own, and look at the result here."""
    source = stored(kind, rows)
    with tempfile.TemporaryDirectory(dir=folder()) as place:
        command = [sys.executable, __file__, "--run", name, str(source), place + "/out.zarr", layout]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{name} from {kind} failed: {done.stderr[-2000:]}")
        _check(place + "/out.zarr", rows)
        return json.loads(done.stdout.splitlines()[-1])


def folder() -> Path:
    path = Path(os.environ.get("HYPERSLAB_BENCH_DATA", Path(__file__).parent / "out"))
    path.mkdir(parents=True, exist_ok=True)
    return path


def cells(row: int, count: int) -> np.ndarray:
    """Return some rows of the array: a smooth field with noise; `row` is a multiple of a chunk's rows."""
    y = np.arange(row, row + count, dtype=np.float32)[:, None] / 700
    x = np.arange(COLUMNS, dtype=np.float32)[None, :] / 900
    noise = np.random.default_rng(row).integers(0, 64, (count, COLUMNS), np.int16).astype(np.float32) / 64
    return 100 * np.sin(y) * np.cos(x) + noise


def stored(kind: str, rows: int) -> Path:
    """Return the array in one of the forms that it is read from; it is made at the first call."""
    import h5py
    import zarr

    path = folder() / f"field-{rows}.{'h5' if kind == 'hdf5' else 'zarr'}"
    if path.exists():
        return path
    half = path.with_name(path.name + ".half")
    shutil.rmtree(half, ignore_errors=True)
    half.unlink(missing_ok=True)
    if kind == "hdf5":
        file = h5py.File(half, "w")
        array = file.create_dataset("field", (rows, COLUMNS), "f4", chunks=CHUNKS)
    else:
        array = zarr.create_array(half, shape=(rows, COLUMNS), dtype="f4", chunks=CHUNKS, compressors=None)
    for row in range(0, rows, CHUNKS[0]):
        array[row : row + CHUNKS[0]] = cells(row, CHUNKS[0])
    if kind == "hdf5":
        file.close()
    half.rename(path)
    return path


def _check(url: str, rows: int) -> None:
    """Compare rows of chunks' borders, of the array's edges and of the middle with NumPy."""
    import zarr

    found = zarr.open_array(url, mode="r")
    assert found.shape == (rows, COLUMNS)
    for row in (0, CHUNKS[0] - 1, CHUNKS[0], rows // 2 + 7, rows - 1):
        first = max(0, row - 1) // CHUNKS[0] * CHUNKS[0]
        near = cells(first, CHUNKS[0])
        if min(rows - 1, row + 1) >= first + CHUNKS[0]:
            near = np.concatenate([near, cells(first + CHUNKS[0], CHUNKS[0])])
        above, here, below = (near[min(max(at, 0), rows - 1) - first] for at in (row - 1, row, row + 1))
        wide = np.pad(here, 1, mode="edge")
        expected = 4 * here - above - below - wide[:-2] - wide[2:]
        assert np.allclose(np.asarray(found[row]), expected, atol=1e-3), row


def five_points(s):
    return 4 * s(0, 0) - s(-1, 0) - s(1, 0) - s(0, -1) - s(0, 1)


def run_hyperslab(source: str, target: str, layout: str) -> Callable[[], None]:
    import hyperslab as hs

    hs.apply(five_points, np.zeros((8, 8), np.float32))
    source = source + "/field" if source.endswith(".h5") else source
    output = {"chunks": CHUNKS, "layout": "plain"} if layout == "plain" else {}
    return lambda: hs.apply(five_points, source, target, boundary="nearest", output=output)


def run_dask(source: str, target: str, layout: str) -> Callable[[], None]:
    """Dask's threads, as its documentation of arrays has it: chunks like those of the input, the halo exchanged."""
    import dask.array as da
    import h5py
    import numba
    import zarr

    @numba.njit(nogil=True)
    def kernel(block):
        out = np.zeros_like(block)
        four = np.float32(4)
        for i in range(1, block.shape[0] - 1):
            for j in range(1, block.shape[1] - 1):
                near = block[i - 1, j] + block[i + 1, j] + block[i, j - 1] + block[i, j + 1]
                out[i, j] = four * block[i, j] - near
        return out

    kernel(np.zeros((8, 8), np.float32))

    def run() -> None:
        hdf5 = source.endswith(".h5")
        array = da.from_array(h5py.File(source)["field"], chunks=CHUNKS) if hdf5 else da.from_zarr(source)
        made = array.map_overlap(kernel, depth=1, boundary="nearest", dtype="f4", meta=np.empty((0, 0), "f4"))
        if layout == "default":
            made.to_zarr(target)
            return
        config = {"write_empty_chunks": True}
        store = zarr.create_array(target, shape=array.shape, dtype="f4", chunks=CHUNKS, compressors=None, config=config)
        da.store(made, store, lock=False)

    return run


RUNS: dict[str, Callable[[str, str, str], Callable[[], None]]] = {"hyperslab": run_hyperslab, "dask": run_dask}


def run_once(name: str, source: str, target: str, layout: str) -> None:
    """Do it in this process, and print what it took; compiling before is not part of it."""
    run = RUNS[name](source, target, layout)
    started, used = time.perf_counter(), time.process_time()
    run()
    seconds, cpu = time.perf_counter() - started, time.process_time() - used
    lines = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    print(json.dumps({"seconds": seconds, "cpu": cpu, "peak": peak}))


if __name__ == "__main__":
    if "--run" in sys.argv:
        run_once(*sys.argv[2:6])
    else:
        main(measure)
