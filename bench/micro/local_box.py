"""A 21×21 box of a local plain Zarr array against zarr-python, TensorStore and h5py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

from bench import data, libraries
from bench.figures import Figure, at_least, at_most, main
from bench.timing import check_equal, each_key, race

SIDE = 21


def boxes(count: int) -> list[tuple[slice, slice]]:
    """Return boxes at random places; some lie over the border of two or four chunks."""
    corners = np.random.default_rng(7).integers(0, data.IMAGE_SHAPE[0] - SIDE, (count, 2))
    return [(slice(int(y), int(y) + SIDE), slice(int(x), int(x) + SIDE)) for y, x in corners]


def measure(quick: bool) -> list[Figure]:
    path, figures = data.image_zarr(), []
    readers = {
        "hyperslab": libraries.hyperslab_reader(path),
        "zarr-python": libraries.zarr_reader(path),
        "TensorStore": libraries.tensorstore_reader(path),
        "h5py": libraries.h5py_reader(),
    }
    fixed = (slice(3000, 3000 + SIDE), slice(5000, 5000 + SIDE))
    for where, keys in (("one place", [fixed]), ("random places", boxes(50))):
        check_equal(readers, keys, data.image())
        timings = race({name: each_key(read, keys) for name, read in readers.items()}, rounds=7 if quick else 25)
        print(*(f"  {where}, {name}: {timing}" for name, timing in timings.items()), sep="\n")
        ours = timings["hyperslab"]
        for peer in ("zarr-python", "TensorStore"):
            ratio = timings[peer].best_s / ours.best_s
            figures.append(at_least(f"21×21 box, {where}: faster than {peer}", ratio, 10))
        ratio = ours.best_s / timings["h5py"].best_s
        figures.append(at_most(f"21×21 box, {where}: time against h5py's", ratio, 3))
    return figures


if __name__ == "__main__":
    main(measure)
