"""82 full rows and 82 full columns of a local plain Zarr array against four other libraries."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

from bench import data, libraries
from bench.figures import Figure, main
from bench.timing import check_equal, each_key, race

COUNT = 82


def selections() -> dict[str, list[tuple[slice, slice]]]:
    """Return the keys: inside a row or column of chunks, and over the border of two."""
    starts = np.random.default_rng(8).integers(0, data.IMAGE_CHUNKS[0] - COUNT, 4) + np.arange(4) * data.IMAGE_CHUNKS[0]
    inside = [slice(start, start + COUNT) for start in starts.tolist()]
    border = [slice(edge - COUNT // 2, edge + COUNT // 2) for edge in (2048, 4096, 6144)]
    every = slice(None)
    return {
        "rows": [(span, every) for span in inside],
        "rows over a border": [(span, every) for span in border],
        "columns": [(every, span) for span in inside],
        "columns over a border": [(every, span) for span in border],
    }


def measure(quick: bool) -> list[Figure]:
    path, figures = data.image_zarr(), []
    readers = {
        "hyperslab": libraries.hyperslab_reader(path),
        "zarr-python": libraries.zarr_reader(path),
        "TensorStore": libraries.tensorstore_reader(path),
        "TileDB": libraries.tiledb_reader(),
        "h5py": libraries.h5py_reader(),
    }
    for what, keys in selections().items():
        check_equal(readers, keys, data.image())
        calls = {name: each_key(read, keys) for name, read in readers.items()}
        timings = race(calls, rounds=3 if quick else 10, batch_s=0.02)
        print(*(f"  82 {what}, {name}: {timing}" for name, timing in timings.items()), sep="\n")
        for peer in list(readers)[1:]:
            ratio = timings[peer].best_s / timings["hyperslab"].best_s
            figures.append(Figure(f"82 full {what}: faster than {peer}", "> 1×", f"{ratio:.3g}×", ratio > 1))
    return figures


if __name__ == "__main__":
    main(measure)
