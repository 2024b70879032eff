"""The data: what every system stores, at three scales, with NumPy's copy beside it.

`grid` is the paper's array of random integers. `bert` are files of token ids as a language model is trained on: five
2-D arrays and one 1-D each. `camera` are pictures as a camera trap takes them. All are made from fixed seeds and kept
in `bench/out/peers/`.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from math import prod

import numpy as np

from bench.data import folder

__all__ = ["SCALES", "SWEPT_SIDE", "ArrayInfo", "Dataset", "Scale", "dataset"]


@dataclass(frozen=True, slots=True)
class Scale:
    """How much of everything. Chunks are 16 MB at `quick` and `full`, as in the paper; `tiny` is for tests."""

    name: str
    side: int  # of the grid
    files: int
    rows: int  # of each file's arrays
    images: int
    image: tuple[int, int, int]
    divide: int = 1  # the chunks' sides, and rows, by this


SCALES = {
    scale.name: scale
    for scale in (
        Scale("tiny", 512, 2, 768, 2, (3, 180, 240), divide=16),
        Scale("quick", 4096, 2, 8192, 2, (3, 2880, 3840)),
        Scale("full", 16384, 3, 24576, 6, (3, 2880, 3840)),
    )
}
# Of the grid whose chunks are made larger and smaller: 2 KB chunks of a larger one would be half a million objects.
SWEPT_SIDE = 8192


@dataclass(frozen=True, slots=True)
class ArrayInfo:
    """One array: `chunks` are those of the layout that all systems share."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    chunks: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True, slots=True)
class Dataset:
    """Arrays that belong together, by name."""

    name: str
    scale: Scale
    arrays: tuple[ArrayInfo, ...]

    def prefix(self, stored: str) -> str:
        """Return where in the bucket a copy lies: `stored` names the copy, as "zarr-plain"."""
        return f"{self.scale.name}/{self.name}/{stored}"

    def truth(self, name: str) -> np.ndarray:
        """Return an array's cells, mapped from disk; made at the first time."""
        return _truth(self.name.split("/")[0], next(each for each in self.arrays if each.name == name))


@cache
def dataset(name: str, scale: str) -> Dataset:
    """Return a dataset by its name and the name of its scale. "grid/256x512" is the smaller grid in such chunks.

    >>> dataset("grid", "full").arrays[0].chunks, dataset("grid/256x512", "full").arrays[0].chunks
    ((2048, 2048), (256, 512))
    """
    size = SCALES[scale]
    if name.startswith("grid/"):
        chunks = tuple(int(text) for text in name.removeprefix("grid/").split("x"))
        return Dataset(name, size, (ArrayInfo("a", (min(size.side, SWEPT_SIDE),) * 2, "int32", chunks),))
    make = {"grid": _grid, "bert": _bert, "camera": _camera}[name]
    return Dataset(name, size, tuple(make(size)))


def _grid(size: Scale) -> Iterator[ArrayInfo]:
    chunk = 2048 // size.divide
    yield ArrayInfo("a", (size.side, size.side), "int32", (chunk, chunk))


# The arrays of a file, with their widths: what a masked language model is fed with.
BERT_ARRAYS = {
    "input_ids": 512, "input_mask": 512, "segment_ids": 512,
    "masked_lm_positions": 80, "masked_lm_ids": 80, "next_sentence_labels": None,
}  # fmt: skip


def _bert(size: Scale) -> Iterator[ArrayInfo]:
    """Chunks are of whole rows, 16 MB; the narrow arrays are smaller than that, so one chunk each."""
    for file in range(size.files):
        for name, width in BERT_ARRAYS.items():
            shape = (size.rows,) if width is None else (size.rows, width)
            rows = min(size.rows, (16 << 20) // (4 * (width or 1)) // size.divide)
            yield ArrayInfo(f"file{file}/{name}", shape, "int32", (rows, *shape[1:]))


def _camera(size: Scale) -> Iterator[ArrayInfo]:
    planes, height, width = size.image
    for image in range(size.images):
        yield ArrayInfo(f"image{image:02}", size.image, "uint8", (planes, height // 2, width))


@cache
def _truth(name: str, info: ArrayInfo) -> np.ndarray:
    size = "x".join(map(str, info.shape))
    path = folder() / "peers" / name / f"{info.name}-{size}.npy"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f"draft-{os.getpid()}-{path.name}")
        make = {"grid": _grid_cells, "bert": _bert_cells, "camera": _camera_cells}[name]
        with draft.open("wb") as file:
            np.save(file, make(info))
        draft.rename(path)
    return np.load(path, mmap_mode="r")


def _seed(info: ArrayInfo) -> np.random.Generator:
    return np.random.default_rng(list(info.name.encode()))


def _grid_cells(info: ArrayInfo) -> np.ndarray:
    return _seed(info).integers(0, 1 << 31, info.shape, np.int32)


def _bert_cells(info: ArrayInfo) -> np.ndarray:
    """Ids as Zipf's law has them; masks of sentences that are shorter than their row."""
    rng, kind, rows = _seed(info), info.name.split("/")[1], info.shape[0]
    if kind == "next_sentence_labels":
        return rng.integers(0, 2, rows, np.int32)
    if kind == "masked_lm_positions":
        return np.sort(rng.integers(0, 512, info.shape, np.int32), axis=1)
    if kind in ("input_mask", "segment_ids"):
        ends = rng.integers(200, 513, rows)[:, None]
        starts = (ends // 2) * (kind == "segment_ids")
        column = np.arange(512)[None, :]
        return ((column >= starts) & (column < ends)).astype(np.int32)
    return np.minimum(rng.zipf(1.3, info.shape), 30521).astype(np.int32)


def _camera_cells(info: ArrayInfo) -> np.ndarray:
    """A soft landscape with the noise of a sensor: it compresses about as little as a decoded picture does."""
    rng, (planes, height, width) = _seed(info), info.shape
    y, x = np.arange(height)[:, None] / height, np.arange(width)[None, :] / width
    cells = np.empty(info.shape, np.uint8)
    for plane in range(planes):
        field = 110 + 70 * np.sin(6 * y + plane) * np.cos(9 * x + rng.random())
        cells[plane] = np.clip(field + rng.normal(0, 6, (height, width)), 0, 255)
    return cells
