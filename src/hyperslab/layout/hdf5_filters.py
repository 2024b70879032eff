"""The filters of HDF5 that need no plugin: undone within the size that a chunk must have."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from zlib_ng import zlib_ng

from hyperslab.errors import ChunkSizeError, IntegrityError, UnsupportedError
from hyperslab.layout.codecs import ByteArray, Size

__all__ = ["Deflate", "Fletcher32", "ScaleOffset", "fletcher32"]


# Cells unpacked at once: their bytes then stay in the processor's cache.
_BLOCK_CELLS = 1 << 17


@dataclass(frozen=True, slots=True)
class Deflate:
    """A zlib stream. What follows it is left alone, as HDF5 does."""

    name: str = "deflate"

    def encoded(self, size: Size) -> Size:
        return Size(size.nbytes + size.nbytes // 64 + 4096, exact=False)

    def decode(self, data: ByteArray, size: Size, key: str) -> ByteArray:
        engine = zlib_ng.decompressobj()
        # One byte more than there may be: the stream's end is then seen, and so is a stream that goes on.
        found = engine.decompress(data.data, size.nbytes + 1)
        if len(found) > size.nbytes:
            raise ChunkSizeError(key, f"more than {size.nbytes}", size.nbytes)
        if not engine.eof:
            raise IntegrityError(f"chunk {key!r} is damaged: its deflate stream ends early")
        size.check(len(found), key)
        return np.frombuffer(found, np.uint8)


@dataclass(frozen=True, slots=True)
class Fletcher32:
    """HDF5's checksum behind the bytes it is of."""

    name: str = "fletcher32"

    def encoded(self, size: Size) -> Size:
        return Size(size.nbytes + 4, size.exact)

    def decode(self, data: ByteArray, size: Size, key: str) -> ByteArray:
        size.check(data.nbytes - 4, key)
        if data.nbytes < 4:
            raise IntegrityError(f"chunk {key!r} is damaged: {data.nbytes} bytes are too few for a checksum")
        payload, stored = data[:-4], int.from_bytes(data[-4:].tobytes(), "little")
        found = fletcher32(payload)
        # HDF5 before 1.6.3 stored it on some machines with the bytes of each half swapped.
        swapped = (found & 0x00FF00FF) << 8 | found >> 8 & 0x00FF00FF
        if stored not in (found, swapped):
            raise IntegrityError(f"chunk {key!r} is damaged: its fletcher32 is {found:#x}, stored was {stored:#x}")
        return payload


# Words in a row: their sum weighted by 1 to 256 just fits in 32 bits.
_ROW_WORDS = 256
_MODULUS = 65535


def fletcher32(data: ByteArray) -> int:
    """Return HDF5's Fletcher checksum of some bytes.

    >>> hex(fletcher32(np.frombuffer(b"abcde", np.uint8)))
    '0x4ff029c7'
    """
    count = data.nbytes // 2
    words = data[: 2 * count].view("<u2")
    head = words[: count % _ROW_WORDS].astype(np.uint32)
    rows = words[head.size :].astype(np.uint32).reshape(-1, _ROW_WORDS)
    weights = np.arange(_ROW_WORDS, 0, -1, dtype=np.uint32)
    sums = np.concatenate([[head.sum()], rows.sum(axis=1)]).astype(np.uint64)
    weighted = np.concatenate([[(head * weights[_ROW_WORDS - head.size :]).sum()], np.einsum("ij,j->i", rows, weights)])
    after = np.arange(len(rows), -1, -1, dtype=np.uint64) * np.uint64(_ROW_WORDS) % np.uint64(_MODULUS)
    first = int(sums.sum())
    second = int(weighted.astype(np.uint64).sum()) + int((sums % np.uint64(_MODULUS) * after).sum())
    if data.nbytes % 2:
        first += int(data[-1])
        second += first
    # HDF5 adds words of the other byte order: swapping their bytes is a multiplication by 256 here.
    return _folded(second) << 16 | _folded(first)


def _folded(total: int) -> int:
    # Carries are added back, so only a sum of nothing but zeros stays 0.
    return total * 256 % _MODULUS or (_MODULUS if total else 0)


@dataclass(frozen=True, slots=True)
class ScaleOffset:
    """Numbers as their difference from the smallest, in as few bits as the largest needs.

    `digits` is given for floats: they were multiplied by ten to that power and rounded. `fill` are the bytes of
    the fill value, least significant first; None if it has none. `dtype` is that of a cell, as stored.
    """

    dtype: np.dtype[np.generic]
    digits: int | None = None
    fill: bytes | None = None
    name: str = "scaleoffset"

    _HEAD_BYTES = 21

    def encoded(self, size: Size) -> Size:
        if not size.exact:
            raise UnsupportedError("filter 'scaleoffset' of compressed bytes; expected it before the compressor")
        return Size(size.nbytes + self._HEAD_BYTES + 1, exact=False)

    def decode(self, data: ByteArray, size: Size, key: str) -> ByteArray:
        if data.nbytes < self._HEAD_BYTES:
            raise IntegrityError(f"chunk {key!r} is damaged: {data.nbytes} bytes are too few for scaleoffset")
        width, count = int.from_bytes(data[:4].tobytes(), "little"), size.nbytes // self.dtype.itemsize
        least = int.from_bytes(data[5 : 5 + min(int(data[4]), 8)].tobytes(), "little")
        packed = data[self._HEAD_BYTES :]
        if width > 8 * self.dtype.itemsize or packed.nbytes < -(-count * width // 8):
            raise IntegrityError(
                f"chunk {key!r} is damaged: {packed.nbytes} bytes are too few for {count} numbers of {width} bits"
            )
        unsigned = np.dtype(f"<u{self.dtype.itemsize}")
        if width == 8 * self.dtype.itemsize:
            found = packed[: size.nbytes].view(unsigned)
        else:
            found = _unpacked(packed, count, width, unsigned)
            found = self._moved(found, width, least) if self.digits is None else self._scaled(found, width, least)
        return found.byteswap().view(np.uint8) if self.dtype.byteorder == ">" else found.view(np.uint8)

    def _moved(self, found: npt.NDArray[Any], width: int, least: int) -> npt.NDArray[Any]:
        unsigned = found.dtype
        moved: npt.NDArray[Any] = found + np.array(least & (1 << 8 * unsigned.itemsize) - 1, unsigned)
        if self.fill is None:
            return moved
        filled: npt.NDArray[Any] = np.where(found == (1 << width) - 1, np.frombuffer(self.fill, unsigned)[0], moved)
        return filled

    def _scaled(self, found: npt.NDArray[Any], width: int, least: int) -> npt.NDArray[Any]:
        assert self.digits is not None
        nbytes = found.dtype.itemsize
        real = np.dtype(f"<f{nbytes}")
        smallest = np.frombuffer(least.to_bytes(8, "little")[:nbytes], real)[0]
        with np.errstate(all="ignore"):
            scaled: npt.NDArray[Any] = (
                found.view(f"<i{nbytes}").astype(real) / np.power(10.0, self.digits).astype(real) + smallest
            )
        if self.fill is None:
            return scaled
        filled: npt.NDArray[Any] = np.where(found == (1 << width) - 1, np.frombuffer(self.fill, real)[0], scaled)
        return filled


def _unpacked(packed: ByteArray, count: int, width: int, unsigned: np.dtype[np.generic]) -> npt.NDArray[Any]:
    """Return `count` numbers of `width` bits (fewer than 64) each, most significant bit first.

    >>> _unpacked(np.array([0b10101100], np.uint8), 2, 3, np.dtype("u1")).tolist()
    [5, 3]
    """
    found = np.zeros(count, unsigned)
    if not width:
        return found
    padded = np.concatenate([packed, np.zeros(8, np.uint8)])
    for start in range(0, count, _BLOCK_CELLS):
        stop = min(start + _BLOCK_CELLS, count)
        bits = np.arange(start, stop, dtype=np.int64) * width
        if width > 57:  # may lie over nine bytes
            high = _numbers(padded, bits, width - 32)
            found[start:stop] = high << np.uint64(32) | _numbers(padded, bits + width - 32, 32)
        else:
            found[start:stop] = _numbers(padded, bits, width)
    return found


def _numbers(padded: ByteArray, bits: npt.NDArray[np.int64], width: int) -> npt.NDArray[np.uint64]:
    """Return the numbers of `width` bits, at most 57, that begin at these bits."""
    words = np.ndarray((padded.nbytes - 7,), ">u8", padded, strides=(1,))[bits >> 3].astype(np.uint64)
    shift = np.uint64(64 - width) - (bits & 7).astype(np.uint64)
    found: npt.NDArray[np.uint64] = words >> shift & np.uint64((1 << width) - 1)
    return found
