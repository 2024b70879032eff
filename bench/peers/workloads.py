"""The queries: the same for every system, from fixed seeds.

A query has parts, each a key of one array. A key is of slices, one for each axis; for `bert rows` the first is a sorted
array of row numbers instead.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import exp, sqrt
from statistics import NormalDist
from typing import Any

import numpy as np

from bench.peers.datasets import ArrayInfo, Dataset, dataset

__all__ = ["NAMES", "Part", "Query", "Workload", "workload"]

QUERIES = 3
BOX = 21  # cells, each way
SHARE = 0.01  # of the grid, and of each file's rows


@dataclass(frozen=True, slots=True)
class Part:
    """A key of one array."""

    array: str
    key: tuple[Any, ...]

    def cells(self, truth: np.ndarray) -> np.ndarray:
        """Return NumPy's answer."""
        return np.ascontiguousarray(truth[self.key])


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked for at once; a system may fetch its parts side by side."""

    parts: tuple[Part, ...]

    def answer(self, data: Dataset) -> list[np.ndarray]:
        """Return NumPy's answer, part by part."""
        return [part.cells(data.truth(part.array)) for part in self.parts]


@dataclass(frozen=True, slots=True)
class Workload:
    """Queries of one kind."""

    name: str
    about: str
    data: Dataset
    queries: tuple[Query, ...]

    def needed_bytes(self, query: int) -> int:
        """Return the bytes of a query's cells."""
        return sum(cells.nbytes for cells in self.queries[query].answer(self.data))


def _horizontal(data: Dataset, rng: np.random.Generator) -> Iterator[Query]:
    (info,) = data.arrays
    side = info.shape[0]
    rows = round(side * SHARE)
    for start in rng.integers(0, side - rows, QUERIES):
        yield Query((Part(info.name, (slice(int(start), int(start) + rows), slice(0, side))),))


def _vertical(data: Dataset, rng: np.random.Generator) -> Iterator[Query]:
    for query in _horizontal(data, rng):
        (part,) = query.parts
        yield Query((Part(part.array, part.key[::-1]),))


def _small_box(data: Dataset, rng: np.random.Generator) -> Iterator[Query]:
    (info,) = data.arrays
    for y, x in rng.integers(0, info.shape[0] - BOX, (QUERIES, 2)).tolist():
        yield Query((Part(info.name, (slice(y, y + BOX), slice(x, x + BOX))),))


def _scattered(data: Dataset, rng: np.random.Generator) -> Iterator[Query]:
    """25 boxes inside of one chunk: one object, where every chunk is an object."""
    (info,) = data.arrays
    for _ in range(QUERIES):
        corner = [int(rng.integers(0, n // c)) * c for n, c in zip(info.shape, info.chunks, strict=True)]
        places = (corner + rng.integers(0, np.subtract(info.chunks, BOX), (25, 2))).tolist()
        yield Query(tuple(Part(info.name, (slice(y, y + BOX), slice(x, x + BOX))) for y, x in places))


def _files(data: Dataset) -> Iterator[tuple[tuple[ArrayInfo, ...], int]]:
    """Give for each query the arrays of its file, and how many rows 1% is."""
    for number in range(QUERIES):
        file = f"file{number % data.scale.files}/"
        yield tuple(each for each in data.arrays if each.name.startswith(file)), round(data.scale.rows * SHARE)


def _bert_runs(data: Dataset, rng: np.random.Generator) -> Iterator[Query]:
    for arrays, rows in _files(data):
        start = int(rng.integers(0, data.scale.rows - rows))
        yield Query(tuple(_rows(info, slice(start, start + rows)) for info in arrays))


def _bert_rows(data: Dataset, rng: np.random.Generator) -> Iterator[Query]:
    for arrays, rows in _files(data):
        drawn = np.sort(rng.choice(data.scale.rows, rows, replace=False)).astype(np.int64)
        yield Query(tuple(_rows(info, drawn) for info in arrays))


def _rows(info: ArrayInfo, rows: Any) -> Part:
    return Part(info.name, (rows, *(slice(0, n) for n in info.shape[1:])))


def _camera(data: Dataset, rng: np.random.Generator) -> Iterator[Query]:
    """A box of each picture. Most animals are small in the picture, a few fill a good part of it: areas are log-normal,
    5% of the picture in the middle, taken at even quantiles so that few pictures stand for many. On average a box is
    8% of its picture; in the paper, 8.5%."""
    (planes, height, width), arrays = data.scale.image, data.arrays
    shares = [0.05 * exp(1.03 * NormalDist().inv_cdf((n + 0.5) / len(arrays))) for n in range(len(arrays))]
    for info, share in zip(arrays, rng.permutation(shares).tolist(), strict=True):
        aspect = exp(rng.normal(0.1, 0.35))
        h = min(height, max(8, round(sqrt(share * height * width / aspect))))
        w = min(width, max(8, round(share * height * width / h)))
        y, x = int(rng.integers(0, height - h + 1)), int(rng.integers(0, width - w + 1))
        yield Query((Part(info.name, (slice(0, planes), slice(y, y + h), slice(x, x + w))),))


_ALL = {
    "horizontal": ("grid", _horizontal, "1% of the array, whole rows"),
    "vertical": ("grid", _vertical, "1% of the array, whole columns"),
    "small box": ("grid", _small_box, "21 × 21 cells"),
    "scattered": ("grid", _scattered, "25 boxes of 21 × 21 cells in one chunk, asked for at once"),
    "bert runs": ("bert", _bert_runs, "1% of a file's rows, one after another, of its six arrays at once"),
    "bert rows": ("bert", _bert_rows, "1% of a file's rows, drawn at random, of its six arrays at once"),
    "camera": ("camera", _camera, "one animal's box of a picture"),
}
NAMES = tuple(_ALL)


def workload(name: str, scale: str, data: str | None = None) -> Workload:
    """Return a workload by its name, at a scale; `data` is another dataset than its own, as "grid/256x512".

    >>> [len(query.parts) for query in workload("bert runs", "tiny").queries]
    [6, 6, 6]
    """
    own, make, about = _ALL[name]
    chosen = dataset(data or own, scale)
    rng = np.random.default_rng(list(name.encode()))
    return Workload(name, about, chosen, tuple(make(chosen, rng)))
