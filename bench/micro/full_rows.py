"""82 full rows and 82 full columns of a local plain Zarr array against four other libraries."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

from bench import data, peers
from bench.figures import Figure, main
from bench.timing import check_equal, each_key, race

COUNT = 82


def measure(quick: bool) -> list[Figure]:
    path, figures = data.image_zarr(), []
    readers = {
        "hyperslab": peers.hyperslab_reader(path),
        "zarr-python": peers.zarr_reader(path),
        "TensorStore": peers.tensorstore_reader(path),
        "TileDB": peers.tiledb_reader(),
        "h5py": peers.h5py_reader(),
    }
    starts = np.random.default_rng(8).integers(0, data.IMAGE_SHAPE[0] - COUNT, 4).tolist()
    spans = [slice(start, start + COUNT) for start in [*starts, 2048 - COUNT // 2]]
    for what, keys in (("rows", [(s, slice(None)) for s in spans]), ("columns", [(slice(None), s) for s in spans])):
        check_equal(readers, keys, data.image())
        calls = {name: each_key(read, keys) for name, read in readers.items()}
        timings = race(calls, rounds=5 if quick else 20, batch_s=0.02)
        print(*(f"  82 {what}, {name}: {timing}" for name, timing in timings.items()), sep="\n")
        for peer in list(readers)[1:]:
            ratio = timings[peer].best_s / timings["hyperslab"].best_s
            figures.append(Figure(f"82 full {what}: faster than {peer}", "> 1×", f"{ratio:.3g}×", ratio > 1))
    return figures


if __name__ == "__main__":
    main(measure)
