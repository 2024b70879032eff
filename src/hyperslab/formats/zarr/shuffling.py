"""Whether cells are shuffled before they are compressed, where nobody says it: told by a sample of them."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import takewhile
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from hyperslab.formats.zarr.compression import parse_compressor, shuffled
from hyperslab.formats.zarr.create import NewArray, shape_and_dtype
from hyperslab.layout.codecs import ByteArray

__all__ = ["as_sample_says"]

# About as much as a chunk has by default.
_SAMPLE_BYTES = 32 << 10
# To shuffle has to spare so much of what is stored, and of what it is made of: to undo it takes its time, too.
_WORTH, _WORTH_OF_CELLS = 0.1, 1 / 32
# What is shuffled well: numbers, times, and strings of four bytes a letter.
_KINDS = "iufcmMU"


def as_sample_says(new: NewArray, values: npt.NDArray[Any]) -> NewArray:
    """Return the array to be with its cells shuffled, if nothing was said of that and they are shorter by it.

    >>> new = NewArray((1000, 100), "i4")
    >>> as_sample_says(new, np.arange(100_000, dtype="i4").reshape(1000, 100)).shuffle
    True
    >>> as_sample_says(new, np.zeros((1000, 100), "i4")).shuffle is None
    True
    """
    if new.shuffle is not None or new.layout == "plain" or not isinstance(new.compressor, str):
        return new
    dtype = shape_and_dtype(new)[1]
    asis = parse_compressor(new.compressor, None, dtype)
    other = None if asis is None or dtype.kind not in _KINDS else shuffled(asis, dtype)
    if asis is None or other is None:
        return new
    samples = list(_samples(values, dtype))
    kept, spared = [sum([len(each.encode(sample)) for sample in samples]) for each in (asis, other)]
    worth = max(_WORTH * kept, _WORTH_OF_CELLS * sum([len(sample) for sample in samples]))
    return replace(new, shuffle=True) if kept - spared > worth else new


def _samples(values: npt.NDArray[Any], dtype: np.dtype[Any]) -> Iterator[ByteArray]:
    """Give the bytes of some cells at the array's begin, its middle and its end, as they are to be stored."""
    if not values.size:
        return
    lengths = _lengths(values.shape, _SAMPLE_BYTES // dtype.itemsize)
    for third in range(3):
        firsts = [(n - length) * third // 2 for n, length in zip(values.shape, lengths, strict=True)]
        box = tuple([slice(first, first + length) for first, length in zip(firsts, lengths, strict=True)])
        yield np.ascontiguousarray(values[box], dtype).reshape(-1).view(np.uint8)


def _lengths(shape: tuple[int, ...], cells: int) -> list[int]:
    """Return the shape of a box of about so many cells, as long as they reach along the last axes.

    >>> _lengths((50, 40, 30), 100)
    [1, 3, 30]
    """
    whole = list(takewhile(lambda n: prod(shape[len(shape) - n :]) <= cells, range(1, len(shape) + 1)))
    kept = len(whole)
    rest = [1] * (len(shape) - kept)
    if rest:
        rest[-1] = max(1, min(shape[len(rest) - 1], cells // max(1, prod(shape[len(rest) :]))))
    return [*rest, *shape[len(shape) - kept :]]
