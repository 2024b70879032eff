"""What the h5py API costs a small local read, over the same read of what `hs.open` gives."""

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

import hyperslab as hs
import hyperslab.h5
from bench.figures import Figure, at_most, main
from bench.timing import check_equal, race

MOST_US = 30
KEYS = {
    "a cell": np.s_[3, 4],
    "a box": np.s_[10:31, 20:41],
    "a list": np.s_[[1, 5, 9], 7],
    "a row behind an ellipsis": np.s_[17, ...],
}


def measure(quick: bool) -> list[Figure]:
    """Return the microseconds that are added."""
    cells = np.arange(256 * 256, dtype="f4").reshape(256, 256)
    figures = []
    with tempfile.TemporaryDirectory() as folder:
        url = folder + "/small.h5"
        with hyperslab.h5.File(url, "w") as file:
            file.create_dataset("cells", data=cells, chunks=(64, 64))
        array, dataset = hs.open(url + "/cells"), hyperslab.h5.File(url)["cells"]
        for what, key in KEYS.items():
            readers = {"hs.open": array.__getitem__, "h5": dataset.__getitem__}
            check_equal(readers, [key], cells)
            calls = {name: (lambda read=read, key=key: read(key)) for name, read in readers.items()}
            timings = race(calls, rounds=15 if quick else 60, batch_s=0.003)
            print(*(f"  {what}, {name}: {timing}" for name, timing in timings.items()), sep="\n")
            added_us = (timings["h5"].best_s - timings["hs.open"].best_s) * 1e6
            figures.append(at_most(f"h5py API over hs.open, {what}", added_us, MOST_US, " µs"))
    return figures


if __name__ == "__main__":
    main(measure)
