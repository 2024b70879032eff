"""Filters: reversible changes of cells or of their bytes that keep, or change in a known way, their size."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from hyperslab.errors import ChunkSizeError, UnsupportedError
from hyperslab.layout.codecs import ByteArray, Size, numcodec

__all__ = ["PackBits", "Retype", "Shuffle", "Transpose"]

# Cells turned at once: their bytes then stay in the processor's cache.
_BLOCK_CELLS = 1 << 17


@dataclass(frozen=True, slots=True)
class Shuffle:
    """The bytes of all cells regrouped: all first bytes, then all second ones; a cell cut off stays at the end."""

    elementsize: int
    name: str = "shuffle"

    def encoded(self, size: Size) -> Size:
        return size

    def decode(self, data: ByteArray, size: Size, key: str) -> ByteArray:
        size.check(data.nbytes, key)
        width = self.elementsize
        count = data.nbytes // width if width else 0
        if width <= 1 or count <= 1:
            return data
        found: ByteArray = np.empty(data.nbytes, np.uint8)
        cells, planes = found[: count * width].reshape(count, width), data[: count * width].reshape(width, count)
        if width > count:
            cells[...] = planes.T
        else:
            # Plane by plane: several times faster than a transpose.
            for start in range(0, count, _BLOCK_CELLS):
                block = slice(start, start + _BLOCK_CELLS)
                for byte in range(width):
                    cells[block, byte] = planes[byte, block]
        found[count * width :] = data[count * width :]
        return found


@dataclass(frozen=True, slots=True)
class Retype:
    """Cells stored as another type, as numcodecs' delta, astype, quantize and fixedscaleoffset do."""

    name: Literal["astype", "delta", "fixedscaleoffset", "quantize"]
    decoded_dtype: np.dtype[np.generic]
    encoded_dtype: np.dtype[np.generic]
    options: tuple[tuple[str, int | float], ...] = ()

    def encoded(self, size: Size) -> Size:
        _need_exact(self.name, size)
        return Size(size.nbytes // self.decoded_dtype.itemsize * self.encoded_dtype.itemsize, exact=True)

    def decode(self, data: ByteArray, size: Size, key: str) -> ByteArray:
        self.encoded(size).check(data.nbytes, key)
        decoded, encoded = ("decode_dtype", "encode_dtype") if self.name == "astype" else ("dtype", "astype")
        codec = numcodec(
            ("id", self.name),
            (decoded, self.decoded_dtype.str),
            (encoded, self.encoded_dtype.str),
            *self.options,
        )
        with np.errstate(all="ignore"):  # a filter that loses digits does so without a warning
            return _flat(codec.decode(data))


@dataclass(frozen=True, slots=True)
class PackBits:
    """Booleans, eight to a byte, after a byte that says how many bits at the end are padding."""

    name: str = "packbits"

    def encoded(self, size: Size) -> Size:
        _need_exact(self.name, size)
        return Size(1 + -(-size.nbytes // 8), exact=True)

    def decode(self, data: ByteArray, size: Size, key: str) -> ByteArray:
        self.encoded(size).check(data.nbytes, key)
        if data[0] != -size.nbytes % 8:
            raise ChunkSizeError(key, 8 * (data.nbytes - 1) - int(data[0]), size.nbytes)
        return np.unpackbits(data[1:], count=size.nbytes)


@dataclass(frozen=True, slots=True)
class Transpose:
    """Cells of `itemsize` bytes in `shape`, stored row-major over the axes in `order`."""

    shape: tuple[int, ...]
    order: tuple[int, ...]
    itemsize: int
    name: str = "transpose"

    def encoded(self, size: Size) -> Size:
        return size

    def decode(self, data: ByteArray, size: Size, key: str) -> ByteArray:
        size.check(data.nbytes, key)
        cells = data.view(f"V{self.itemsize}").reshape([self.shape[axis] for axis in self.order])
        return _flat(np.ascontiguousarray(cells.transpose(np.argsort(self.order))))


def _need_exact(name: str, size: Size) -> None:
    if not size.exact:
        raise UnsupportedError(f"filter {name!r} of compressed bytes; expected it before the compressor")


def _flat(array: Any) -> ByteArray:
    flat: ByteArray = np.asarray(array).reshape(-1).view(np.uint8)
    return flat
