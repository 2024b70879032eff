"""Ten ways to read an array, and the arrays that are read so.

surface   temperature near the ground in Europe, every hour of a year, a quarter of a degree: as of ERA5, 1.1 GB
levels    temperature at 13 pressures all over the globe, every six hours of half a year, 1.5 degrees: as of
          WeatherBench, 1.1 GB
images    256 pictures, 0.2 GB
rows      200,000 embeddings, 0.2 GB
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

__all__ = ["PATTERNS", "SHAPES", "Key", "cells", "reads_of"]

SHAPES = {
    "surface": (8760, 149, 217),
    "levels": (1460, 13, 121, 240),
    "images": (256, 3, 512, 512),
    "rows": (200_000, 256),
}
# What nine of ten reads of a hot region go to: a country, in the last quarter.
_HOT = ((6570, 2190), (60, 16), (100, 24))

Key = Any
Draw = Callable[[np.random.Generator], list[Key]]


@dataclass(frozen=True, slots=True)
class Pattern:
    """A way to read an array: `draws`, in turn, give one read after the other, each of a key or of several at once."""

    data: str
    draws: tuple[Draw, ...]


def _at(rng: np.random.Generator, length: int, count: int = 1) -> int:
    return int(rng.integers(0, length - count + 1))


def _box(rng: np.random.Generator, lengths: tuple[int, ...], sizes: tuple[int, ...]) -> Key:
    starts = [_at(rng, length, size) for length, size in zip(lengths, sizes, strict=True)]
    return tuple([slice(at, at + size) for at, size in zip(starts, sizes, strict=True)])


def _series(rng: np.random.Generator) -> list[Key]:
    _, height, width = SHAPES["surface"]
    return [(slice(None), _at(rng, height), _at(rng, width))]


def _map(rng: np.random.Generator) -> list[Key]:
    return [(_at(rng, SHAPES["surface"][0]),)]


def _profile(rng: np.random.Generator) -> list[Key]:
    times, _, height, width = SHAPES["levels"]
    return [(_at(rng, times), slice(None), _at(rng, height), _at(rng, width))]


def _small_box(rng: np.random.Generator) -> list[Key]:
    return [_box(rng, SHAPES["levels"], (8, 3, 10, 10))]


def _batch(rng: np.random.Generator) -> list[Key]:
    return [(np.sort(rng.choice(SHAPES["images"][0], 8, replace=False)),)]


def _crop(rng: np.random.Generator) -> list[Key]:
    count, _, height, width = SHAPES["images"]
    y, x = _at(rng, height, 96), _at(rng, width, 96)
    return [(_at(rng, count), slice(None), slice(y, y + 96), slice(x, x + 96))]


def _diagonal(rng: np.random.Generator) -> list[Key]:
    step = int(rng.integers(0, 109))  # of a line through the whole of it
    sizes, starts = (6, 13, 12, 24), (13 * step, 0, step, 2 * step)
    return [tuple([slice(at, at + size) for at, size in zip(starts, sizes, strict=True)])]


def _hot(rng: np.random.Generator) -> list[Key]:
    sizes = (720, 8, 8)  # a month of a place and what is around it
    if rng.random() < 0.1:
        return [_box(rng, SHAPES["surface"], sizes)]
    inside = _box(rng, tuple([length for _, length in _HOT]), sizes)
    return [tuple([slice(at + part.start, at + part.stop) for (at, _), part in zip(_HOT, inside, strict=True)])]


def _rows(rng: np.random.Generator) -> list[Key]:
    return [(np.sort(rng.choice(SHAPES["rows"][0], 64, replace=False)),)]


PATTERNS = {
    "time series at a point": Pattern("surface", (_series,)),
    "map at a time": Pattern("surface", (_map,)),
    "vertical profile": Pattern("levels", (_profile,)),
    "small box": Pattern("levels", (_small_box,)),
    "batch of images": Pattern("images", (_batch,)),
    "crop": Pattern("images", (_crop,)),
    "diagonal line of boxes": Pattern("levels", (_diagonal,)),
    "hot region": Pattern("surface", (_hot,)),
    "mixed 50/50": Pattern("surface", (_series, _map)),
    "random rows": Pattern("rows", (_rows,)),
}


def reads_of(pattern: str, count: int, seed: int) -> list[list[Key]]:
    """Return so many reads, the keys of each; another seed gives others."""
    rng = np.random.default_rng([seed, *pattern.encode()])
    draws = PATTERNS[pattern].draws
    return [draws[number % len(draws)](rng) for number in range(count)]


def cells(data: str) -> np.ndarray:
    """Return the cells of an array: fields that change slowly with noise on them, pictures, rows of noise."""
    rng, shape = np.random.default_rng(7), SHAPES[data]
    if data == "rows":
        return rng.standard_normal(shape, np.float32)
    if data == "images":
        coarse = rng.integers(0, 255, (256, 3, 32, 32), np.uint8).repeat(16, axis=2).repeat(16, axis=3)
        return coarse + rng.integers(0, 6, shape, np.uint8)
    field = np.empty(shape, np.float32)
    t, *others = [np.linspace(0, 6, n, dtype=np.float32).reshape([-1 if i == a else 1 for i in range(len(shape))])
                  for a, n in enumerate(shape)]  # fmt: skip
    across = np.cos(others[-2]) - (0.3 * others[0] if data == "levels" else 0)
    step = max(1, (8 << 20) // prod(shape[1:]))
    for first in range(0, shape[0], step):
        part = field[first : first + step]
        rng.standard_normal(out=part, dtype=np.float32)
        part /= 4
        part += 280 + 20 * np.sin(t[first : first + step] + others[-1]) * across
        np.round(part, 2, out=part)
    return field
