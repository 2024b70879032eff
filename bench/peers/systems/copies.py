"""Copies that several systems read: plain Zarr v3, every chunk an object of 16 MB."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.lab import Lab
from bench.peers.datasets import ArrayInfo, Dataset

__all__ = ["BLOSC_LEVEL", "ZARR_PLAIN", "ZSTD_LEVELS", "bands", "is_shuffled", "upload_from", "write_zarr_plain"]

ZARR_PLAIN = "zarr-plain"
# Of zstd in everybody's best layout: tokens get 5 to 10 % smaller, and are read a little quicker, for what they take to
# be written once; of the other data a higher level spares nothing.
ZSTD_LEVELS = {"grid": 3, "bert": 15, "camera": 3}
# Ids and positions get another fifth smaller by Blosc's shuffled zstd, and are read quicker; masks slower.
BLOSC_LEVEL = 7
_SHUFFLED = ("input_ids", "masked_lm_positions", "masked_lm_ids")


def write_zarr_plain(data: Dataset, lab: Lab) -> None:
    """Store the arrays as zarr-python writes them without compression."""

    def write(folder: Path, info: ArrayInfo) -> None:
        import zarr

        array = zarr.create_array(
            str(folder / info.name), shape=info.shape, chunks=info.chunks, dtype=info.dtype, compressors=None
        )
        for rows in bands(info):
            array[rows] = data.truth(info.name)[rows]

    upload_from(data, ZARR_PLAIN, lab, write)


def is_shuffled(info: ArrayInfo) -> bool:
    """Whether Blosc's shuffled zstd suits an array best."""
    return info.name.rpartition("/")[2] in _SHUFFLED


def bands(info: ArrayInfo, rows: int | None = None) -> Iterator[slice]:
    """Give an array's rows in bands of whole chunks, or of so many rows: what is written at a time."""
    step = rows or info.chunks[0]
    for start in range(0, info.shape[0], step):
        yield slice(start, min(start + step, info.shape[0]))


def upload_from(data: Dataset, stored: str, lab: Lab, write: Callable[[Path, ArrayInfo], Any]) -> None:
    """Let `write` make each array in a local folder, and put all that it made under the copy's prefix."""
    folder = Path(tempfile.mkdtemp(prefix="hyperslab-copy-"))
    try:
        for info in data.arrays:
            (folder / info.name).parent.mkdir(parents=True, exist_ok=True)
            write(folder, info)
        lab.upload(folder, data.prefix(stored))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
