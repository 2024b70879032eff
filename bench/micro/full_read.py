"""All of a 1 GiB array from local files, plain and compressed, against other libraries. No bar: for information."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from importlib.util import find_spec

import numpy as np

from bench import data, libraries
from bench.figures import Figure, main
from bench.timing import race


def measure(quick: bool) -> list[Figure]:
    figures = []
    for compressed in (False, True):
        path = data.gib(compressed)
        readers = {
            "hyperslab": libraries.hyperslab_reader(path),
            "zarr-python": libraries.zarr_reader(path),
            "TensorStore": libraries.tensorstore_reader(path),
        }
        if compressed and find_spec("zarrs"):
            readers["zarrs"] = libraries.zarrs_reader(path)
        _check(readers)
        calls = {name: (lambda read=read: read(...)) for name, read in readers.items()}
        timings = race(calls, rounds=1 if quick else 3, batch_s=0)
        what = "zstd" if compressed else "plain"
        print(*(f"  1 GiB {what}, {name}: {timing}" for name, timing in timings.items()), sep="\n")
        for peer in list(readers)[1:]:
            ratio = timings[peer].best_s / timings["hyperslab"].best_s
            figures.append(Figure(f"1 GiB of local {what} chunks: faster than {peer}", "", f"{ratio:.3g}×"))
    return figures


def _check(readers: dict[str, libraries.Read]) -> None:
    rows = slice(2000, 2100)
    expected = np.concatenate([data.gib_part(0, 2048), data.gib_part(2048, 2048)])[rows]
    for name, read in readers.items():
        assert np.array_equal(read((rows, slice(None))), expected), name


if __name__ == "__main__":
    main(measure)
