"""Boxes, rows and columns of a local HDF5 file, plain and gzip, against h5py on the same file."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench import data, libraries
from bench.figures import Figure, at_least, at_most, main
from bench.micro.local_box import boxes
from bench.timing import check_equal, each_key, race

ROWS = 82


def measure(quick: bool) -> list[Figure]:
    figures = []
    for kind, path in (("plain", data.image_h5()), ("gzip", data.image_h5_gzip())):
        readers = {"hyperslab": libraries.hyperslab_reader(path / "a"), "h5py": libraries.h5py_reader(path)}
        whole = slice(None)
        for what, keys in (
            ("21×21 box", boxes(20)),
            ("82 rows", [(slice(1000, 1000 + ROWS), whole), (slice(6100, 6100 + ROWS), whole)]),
            ("82 columns", [(whole, slice(1000, 1000 + ROWS)), (whole, slice(6100, 6100 + ROWS))]),
        ):
            check_equal(readers, keys, data.image())
            rounds = 5 if quick else 15 if kind == "gzip" else 25
            timings = race({name: each_key(read, keys) for name, read in readers.items()}, rounds=rounds)
            print(*(f"  {kind}, {what}, {name}: {timing}" for name, timing in timings.items()), sep="\n")
            figures.append(_figure(kind, what, timings["h5py"].best_s / timings["hyperslab"].best_s))
    return figures


def _figure(kind: str, what: str, ratio: float) -> Figure:
    if kind == "plain" and what == "21×21 box":
        return at_most(f"HDF5 {kind}, {what}: time against h5py's", 1 / ratio, 3)
    return at_least(f"HDF5 {kind}, {what}: faster than h5py", ratio, 1)


if __name__ == "__main__":
    main(measure)
