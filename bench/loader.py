"""An epoch over random boxes of pictures in the cloud, by two worker processes: how soon has a model seen them all?

In the lab, on its internet line. The boxes have 5% of the array's cells. Hyperslab's loader against (a) downloading all
of it first and reading the copy, (b) a plain Dataset that reads its box by zarr-python over obstore, (c) xbatcher's
MapDataset over xarray and zarr-python, which takes boxes of its own grid; so all boxes are on that. Each is a process
of its own, its time is from opening the array to the last batch. Of (b) and (c), which take one box after another, a
part of the boxes is read and the time scaled to all; what they take to start is left out. Batches are checked by sums.

    python -m bench.loader             all (needs xbatcher: pip install xbatcher; 2 GB in bench/out at the first run)
    python -m bench.loader --quick     a tenth of boxes and pictures, one round
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
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, Dataset

import hyperslab as hs
from bench import servers
from bench.figures import Figure, at_least, main
from bench.lab import Lab
from hyperslab.torch import SlabDataset, SlabLoader, as_tensors

PRESET, WORKERS, BATCH = "internet", 2, 50
SIDE, BOX, STEP, SHARE = 1024, 64, 32, 0.05
CHUNK, BOXES, QUICK_BOXES = 64, 10_000, 1_000
# Of the slow ones, one box in so many is read, but at least so many boxes.
PART = {"zarr": 10, "xbatcher": 10}
LEAST_BOXES = 250
BARS = {"download": 1.7, "zarr": 3, "xbatcher": 3}
TITLES = {
    "download": "downloading all first", "zarr": "a Dataset on zarr-python with obstore", "xbatcher": "xbatcher",
}  # fmt: skip
NAME = "pictures"


def measure(quick: bool) -> list[Figure]:
    boxes, rounds = (QUICK_BOXES, 1) if quick else (BOXES, 2)
    path = stored(pictures_for(boxes))
    found: dict[str, list[dict[str, float]]] = {name: [] for name in RUNS}
    with Lab(PRESET, function=False) as lab, tempfile.TemporaryDirectory(prefix="hyperslab-loader-") as home:
        lab.upload(path, NAME)
        _run(lab, home, "measure", boxes)
        for number in range(rounds):
            for name in list(RUNS)[:: -1 if number % 2 else 1]:
                found[name].append(_run(lab, home, name, boxes))
                seconds, read = found[name][-1]["seconds"], found[name][-1]["bytes"]
                print(f"  {TITLES.get(name, name)}: {seconds:.1f} s, {read / 1e6:.0f} MB", flush=True)
    best = {name: min(each["seconds"] for each in runs) for name, runs in found.items()}
    ours = f" ({best['hyperslab']:.1f} s, {found['hyperslab'][0]['bytes'] / 1e6:.0f} MB)"
    return [
        at_least(f"{boxes:,} boxes, against {TITLES[name]}", best[name] / best["hyperslab"], bar, ours)
        for name, bar in BARS.items()
    ]


def pictures_for(boxes: int) -> int:
    return round(boxes * BOX * BOX / (SHARE * SIDE * SIDE))


def bounds_of(boxes: int) -> np.ndarray:
    """Return the boxes, on xbatcher's grid: (boxes, axes, 2)."""
    random = np.random.default_rng(11)
    steps = (SIDE - BOX) // STEP + 1
    starts = np.column_stack([
        random.integers(0, pictures_for(boxes), boxes), *(STEP * random.integers(0, steps, (2, boxes)))
    ])  # fmt: skip
    return np.stack([starts, starts + np.array([1, BOX, BOX])], axis=2)


def stored(pictures: int) -> Path:
    """Return the pictures as a Zarr array, an object each, in chunks that can be read alone; made at the first call."""
    folder = Path(os.environ.get("HYPERSLAB_BENCH_DATA", Path(__file__).parent / "out"))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"pictures-{pictures}.zarr"
    if path.exists():
        return path
    half = path.with_suffix(".half")
    shutil.rmtree(half, ignore_errors=True)
    shape, chunks = (pictures, SIDE, SIDE, 3), (1, CHUNK, CHUNK, 3)
    array = hs.create(half, shape, "u1", chunks=chunks, shards=(1, SIDE, SIDE, 3), dims=["picture", "y", "x", "colour"])
    for number in range(pictures):
        array[number] = picture(number)
    half.rename(path)
    return path


def picture(number: int) -> np.ndarray:
    """Return one picture: soft shapes under a camera's noise."""
    random = np.random.default_rng(number)
    y, x = np.mgrid[:SIDE, :SIDE].astype(np.float32) / SIDE
    a, b, c, d = random.uniform(2, 12, 4)
    soft = 110 + 50 * np.sin(a * y + b * x) + 40 * np.cos(c * x - d * y)
    noise = random.integers(0, 24, (SIDE, SIDE, 3), np.uint8)
    return (soft[..., None].astype(np.uint8) + noise).astype(np.uint8)


def _run(lab: Lab, home: str, name: str, boxes: int) -> dict[str, float]:
    """Let one of them do it as the lab's client."""
    command = [sys.executable, "-m", "bench.loader", "--inside", name, str(boxes)]
    environment = {**os.environ, "HYPERSLAB_HOME": home}
    root = Path(__file__).resolve().parents[1]
    done = lab.run(command, cwd=root, stdout=subprocess.PIPE, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"{name} failed in the lab (exit {done.returncode})")
    return json.loads(done.stdout.splitlines()[-1])


# Inside the lab: each opens the array and returns an iterable of batches


def run_hyperslab(lab: Lab, bounds: np.ndarray) -> Any:
    array = hs.open(lab.url(NAME), storage_options=lab.storage_options)
    return SlabLoader(SlabDataset(array, bounds), BATCH, num_workers=WORKERS)


def run_download(lab: Lab, bounds: np.ndarray) -> Any:
    """Fetch all objects, 32 at a time, then read the copy by the same loader."""
    from concurrent.futures import ThreadPoolExecutor

    client, folder = servers.obstore_client(lab.endpoint, NAME, retries=5), Path(tempfile.mkdtemp())
    import obstore

    def fetch(key: str) -> None:
        path = folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(obstore.get(client, key).bytes())

    keys = [each["path"] for part in obstore.list(client) for each in part]
    with ThreadPoolExecutor(32) as pool:
        list(pool.map(fetch, keys))
    return SlabLoader(SlabDataset(hs.open(folder), bounds), BATCH, num_workers=WORKERS)


class ZarrBoxes(Dataset):
    """What one writes first: a box of a zarr-python array, opened in the worker that reads it."""

    def __init__(self, lab: Lab, bounds: np.ndarray) -> None:
        self.endpoint, self.bounds, self.array = lab.endpoint, bounds, None

    def __len__(self) -> int:
        return len(self.bounds)

    def __getitem__(self, sample: int) -> Any:
        if self.array is None:
            self.array = zarr_array(self.endpoint)
        return as_tensors(self.array[tuple(slice(*each) for each in self.bounds[sample])])


def zarr_array(endpoint: str) -> Any:
    import zarr

    zarr.config.set({"async.concurrency": 128})
    client = servers.obstore_client(endpoint, NAME, retries=5)
    return zarr.open_array(zarr.storage.ObjectStore(client, read_only=True), mode="r")


def run_zarr(lab: Lab, bounds: np.ndarray) -> Any:
    return DataLoader(ZarrBoxes(lab, bounds), BATCH, num_workers=WORKERS)


class XbatcherBoxes(ZarrBoxes):
    """xbatcher's MapDataset, made in the worker, whose items are picked by their number on its grid."""

    def __getitem__(self, sample: int) -> Any:
        if self.array is None:
            self.array = xbatcher_grid(self.endpoint)
        picture, y, x = self.bounds[sample, :, 0]
        steps = (SIDE - BOX) // STEP + 1
        return self.array[int((picture * steps + y // STEP) * steps + x // STEP)]


def xbatcher_grid(endpoint: str) -> Any:
    import xarray
    import xbatcher
    from xbatcher.loaders.torch import MapDataset

    class Lazy(xarray.backends.BackendArray):
        """xarray opens groups; the array that the others read is in none."""

        def __init__(self, array: Any) -> None:
            self.array, self.shape, self.dtype = array, array.shape, array.dtype

        def __getitem__(self, key: Any) -> Any:
            support = xarray.core.indexing.IndexingSupport.BASIC
            return xarray.core.indexing.explicit_indexing_adapter(key, self.shape, support, self.array.__getitem__)

    lazy = xarray.core.indexing.LazilyIndexedArray(Lazy(zarr_array(endpoint)))
    cells = xarray.DataArray(xarray.Variable(("picture", "y", "x", "colour"), lazy))
    sides = {"picture": 1, "y": BOX, "x": BOX}
    overlap = {"y": BOX - STEP, "x": BOX - STEP}
    return MapDataset(xbatcher.BatchGenerator(cells, sides, overlap, preload_batch=False))


def run_xbatcher(lab: Lab, bounds: np.ndarray) -> Any:
    return DataLoader(XbatcherBoxes(lab, bounds), BATCH, num_workers=WORKERS)


RUNS: dict[str, Callable[[Lab, np.ndarray], Any]] = {
    "hyperslab": run_hyperslab, "download": run_download, "zarr": run_zarr, "xbatcher": run_xbatcher,
}  # fmt: skip


def inside(name: str, boxes: int) -> None:
    """Go through an epoch as the lab's client, and print what it took."""
    lab = Lab.here()
    if lab is None:
        raise SystemExit("this part runs inside of a lab")
    if name == "measure":
        # Once for a machine, as the guide has it: plans then know the line.
        hs.measure(lab.url(), storage_options=lab.storage_options)
        print(json.dumps({}))
        return
    part = max(1, min(PART.get(name, 1), boxes // LEAST_BOXES))
    bounds = bounds_of(boxes)[: boxes // part]
    before, started, sums = lab.meter(), time.perf_counter(), []
    for batch in RUNS[name](lab, bounds):
        sums.append(int(batch.long().sum()))
        if part > 1 and len(sums) == WORKERS:
            started = time.perf_counter()
    seconds = time.perf_counter() - started
    if part > 1:
        seconds *= boxes / (len(bounds) - WORKERS * BATCH)
    nbytes = (lab.meter() - before).of("s3").response_bytes
    _check(sums, bounds)
    print(json.dumps({"seconds": seconds, "bytes": nbytes * part}))


def _check(sums: list[int], bounds: np.ndarray) -> None:
    """Compare the first and the last batch with the pictures."""
    for at in (0, len(sums) - 1):
        expected = 0
        for (number, _), (top, bottom), (left, right) in bounds[at * BATCH : (at + 1) * BATCH].tolist():
            expected += int(picture(number)[top:bottom, left:right].sum(dtype=np.int64))
        if sums[at] != expected:
            raise SystemExit(f"batch {at} has other cells than were written")


if __name__ == "__main__":
    if "--inside" in sys.argv:
        inside(sys.argv[2], int(sys.argv[3]))
    else:
        main(measure)
