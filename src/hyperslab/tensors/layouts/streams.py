"""Streams of whole numbers and of values in a payload: narrow, byte by byte of all, with zstd where it helps.

A stream is a head of nine bytes and its data. The head: how many bytes a number has (0 where all are 0), plus 128 if
the data is compressed; how many numbers there are (4 bytes, little-endian); how many bytes of data follow (4 bytes).
The data has the lowest bytes of all numbers, then their second bytes, and so on; if compressed, one zstd frame of this.
"""

import struct
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hyperslab.errors import IntegrityError

__all__ = ["pack_numbers", "pack_values", "unpack_numbers", "unpack_values"]

_HEAD = struct.Struct("<BII")
_COMPRESSED = 128
_MOST_NUMBERS = 1 << 24

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


@lru_cache(maxsize=1)
def _zstd() -> Any:
    return pa.Codec("zstd", compression_level=1)


def pack_numbers(numbers: Ints) -> bytes:
    """Return the stream of numbers that are not negative.

    >>> pack_numbers(np.array([1, 258])).hex()
    '02020000000400000001020001'
    """
    highest = int(numbers.max()) if len(numbers) else 0
    width = next(w for w in (0, 1, 2, 4, 8) if highest < 1 << (8 * w))
    if width == 0:
        return _HEAD.pack(0, len(numbers), 0)
    return _packed(numbers.astype(f"<u{width}"), width)


def pack_values(values: npt.NDArray[Any]) -> bytes:
    """Return the stream of values, of whatever dtype."""
    return _packed(np.ascontiguousarray(values), values.dtype.itemsize)


def _packed(values: npt.NDArray[Any], width: int) -> bytes:
    planes = np.ascontiguousarray(values.view(np.uint8).reshape(len(values), width).T).tobytes()
    smaller = _zstd().compress(planes, asbytes=True) if len(planes) > 32 else planes
    if len(smaller) < len(planes):
        return _HEAD.pack(width | _COMPRESSED, len(values), len(smaller)) + smaller
    return _HEAD.pack(width, len(values), len(planes)) + planes


def unpack_numbers(data: Bytes, at: int) -> tuple[Ints, int]:
    """Return the numbers of the stream that begins at a place, and where the next begins."""
    width, count, held, at = _unpacked(data, at)
    if width == 0:
        return np.zeros(count, np.int64), at
    if width not in (1, 2, 4, 8):
        raise IntegrityError(f"a stream has numbers of {width} bytes; a payload is damaged")
    return held.view(f"<u{width}").reshape(-1).astype(np.int64), at


def unpack_values(data: Bytes, at: int, dtype: np.dtype[Any]) -> tuple[npt.NDArray[Any], int]:
    """Return the values of the stream that begins at a place, and where the next begins."""
    width, _, held, at = _unpacked(data, at)
    if width != dtype.itemsize:
        raise IntegrityError(f"a stream has values of {width} bytes, but {dtype} has {dtype.itemsize}")
    return held.view(dtype).reshape(-1), at


def _unpacked(data: Bytes, at: int) -> tuple[int, int, Bytes, int]:
    if len(data) - at < _HEAD.size:
        raise IntegrityError("a payload ends before its last stream")
    kind, count, nbytes = _HEAD.unpack(data[at : at + _HEAD.size].tobytes())
    start, stop = at + _HEAD.size, at + _HEAD.size + nbytes
    width = kind & ~_COMPRESSED
    if stop > len(data) or count > _MOST_NUMBERS:
        raise IntegrityError(f"a stream of {count} numbers in {nbytes} bytes is more than its payload holds")
    held = data[start:stop]
    if kind & _COMPRESSED:
        try:
            held = np.frombuffer(_zstd().decompress(held.tobytes(), count * width), np.uint8)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise IntegrityError(f"a stream cannot be decompressed: {error}") from error
    if len(held) != count * width:
        raise IntegrityError(f"a stream of {count} numbers of {width} bytes has {len(held)} bytes")
    return width, count, np.ascontiguousarray(held.reshape(width, count).T), stop
