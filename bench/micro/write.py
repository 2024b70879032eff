"""Writing 1 GiB to local files in Hyperslab's default layout, against zarr-python with the same chunks and codecs.

Each write has a process of its own, and turns are taken. The array is in memory before; what counts as memory is the
peak of the process during the write, less what it had before.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import json
import shutil
import subprocess
import tempfile

import numpy as np

from bench import data
from bench.figures import Figure, at_least, at_most, main
from bench.micro.memory import MIB, forget_peak, resident

LIMIT_MIB = 512
ROWS = 2048


def measure(quick: bool) -> list[Figure]:
    rounds = 1 if quick else 4
    found: dict[str, list[dict[str, float]]] = {name: [] for name in WRITERS}
    with tempfile.TemporaryDirectory(dir=data.folder()) as folder:
        for number in range(rounds):
            for name in list(WRITERS)[:: -1 if number % 2 else 1]:
                found[name].append(_write(name, Path(folder) / "a.zarr"))
    best = {name: min(run["seconds"] for run in runs) for name, runs in found.items()}
    for name, runs in found.items():
        peak, stored = max(run["peak"] for run in runs), runs[0]["stored"]
        print(f"  {name}: {best[name]:.2f} s, {stored / 1e6:.0f} MB stored, {peak / MIB:.0f} MiB beside the array")
    peak = max(run["peak"] for run in found["hyperslab"]) / MIB
    return [
        at_least("1 GiB written, default layout: faster than zarr-python", best["zarr-python"] / best["hyperslab"], 1),
        at_most("memory of that, beside the array", peak, LIMIT_MIB, " MiB"),
    ]


def _write(name: str, path: Path) -> dict[str, float]:
    command = [sys.executable, __file__, "--write", name, str(path)]
    try:
        return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    finally:
        shutil.rmtree(path, ignore_errors=True)


def hyperslab_writer():
    """Hyperslab, as one would: no settings."""
    import hyperslab as hs

    return hs.save


def zarr_writer():
    """zarr-python, told to make the same layout."""
    import zarr
    from zarr.registry import get_codec_class

    import hyperslab as hs

    with tempfile.TemporaryDirectory() as folder:
        like = hs.create(f"{folder}/like.zarr", data.GIB_SHAPE, np.int32)
        # How cells are compressed is told by themselves.
        hs.save(f"{folder}/part.zarr", data.gib_part(0, ROWS))
        document = json.loads(Path(f"{folder}/part.zarr/zarr.json").read_text())
    stored = document["codecs"][0]["configuration"]["codecs"][1:]
    codecs = [get_codec_class(codec["name"]).from_dict(codec) for codec in stored]

    def write(path: Path, cells: np.ndarray) -> None:
        array = zarr.create_array(
            str(path), shape=cells.shape, dtype=cells.dtype, chunks=like.chunks, compressors=codecs,
            shards={"shape": like.shards, "index_location": "start"}, config={"write_empty_chunks": True},
        )  # fmt: skip
        array[...] = cells

    return write


WRITERS = {"hyperslab": hyperslab_writer, "zarr-python": zarr_writer}


def write_once(name: str, path: str) -> None:
    """Write in this process and print what that took."""
    import time

    import hyperslab as hs

    write = WRITERS[name]()
    cells = np.concatenate([data.gib_part(row, ROWS) for row in range(0, data.GIB_SHAPE[0], ROWS)])
    forget_peak()
    before = resident("VmRSS")
    started = time.perf_counter()
    write(Path(path), cells)
    seconds = time.perf_counter() - started
    peak = resident("VmHWM") - before
    assert np.array_equal(hs.open(path)[5000:5021], cells[5000:5021])
    stored = sum(file.stat().st_size for file in Path(path).rglob("*") if file.is_file())
    print(json.dumps({"seconds": seconds, "peak": peak, "stored": stored}))


if __name__ == "__main__":
    if "--write" in sys.argv:
        write_once(*sys.argv[2:4])
    else:
        main(measure)
