"""Filters of HDF5 plugins that cut a chunk into blocks: LZ4, and bits regrouped within LZ4 or Zstandard."""

import struct
from dataclasses import dataclass
from typing import Literal

import numpy as np

from hyperslab.errors import IntegrityError, UnsupportedError
from hyperslab.layout.codecs import ByteArray, Size, numcodec
from hyperslab.layout.compressors import Zstd

__all__ = ["BitShuffle", "BlockLz4"]

# Total bytes, then bytes of a block.
_HEAD = struct.Struct(">QI")
_BLOSC_MOST_WIDTH = 255
# Bits are regrouped in steps of this many bytes, or one block: that bounds what it takes beside the chunk.
_MOST_STEP_BYTES = 1 << 22


@dataclass(frozen=True, slots=True)
class BlockLz4:
    """LZ4 as HDF5's plugin writes it: blocks, each after its stored size."""

    name: str = "lz4"

    def encoded(self, size: Size) -> Size:
        return Size(2 * size.nbytes + 4096, exact=False)

    def decode(self, data: ByteArray, size: Size, key: str) -> ByteArray:
        total, block = _head(data, key)
        size.check(total, key)
        if not 0 < block < 1 << 31 or -(-total // block) > data.nbytes // 4:
            raise IntegrityError(f"chunk {key!r} is damaged: {data.nbytes} bytes hold no {total} in blocks of {block}")
        found: ByteArray = np.empty(total, np.uint8)
        at = _HEAD.size
        for start in range(0, total, block):
            part = found[start : start + block]
            stored = _stored(data, at, key)
            if stored.nbytes == part.nbytes:
                part[:] = stored
            else:
                _unlz4(stored, part)
            at += 4 + stored.nbytes
        return found


@dataclass(frozen=True, slots=True)
class BitShuffle:
    """The bits of all cells of a block regrouped: all first bits, then all second ones; each block then compressed.

    `block_cells` matters only without a compressor; with one, each chunk states it. Cells behind the last
    multiple of eight are stored as they are.
    """

    cell_nbytes: int
    block_cells: int = 0
    compressor: Literal["none", "lz4", "zstd"] = "none"
    name: str = "bitshuffle"

    def encoded(self, size: Size) -> Size:
        return size if self.compressor == "none" else Size(2 * size.nbytes + 4096, exact=False)

    def decode(self, data: ByteArray, size: Size, key: str) -> ByteArray:
        if self.compressor == "none":
            size.check(data.nbytes, key)
            total, cells, at = data.nbytes, self.block_cells or _usual_block(self.cell_nbytes), 0
        else:
            total, block = _head(data, key)
            size.check(total, key)
            cells, at = block // self.cell_nbytes or _usual_block(self.cell_nbytes), _HEAD.size
        if total % self.cell_nbytes or cells % 8:
            raise IntegrityError(
                f"chunk {key!r} is damaged: {total} bytes, blocks of {cells} cells of {self.cell_nbytes}"
            )
        if self.cell_nbytes > _BLOSC_MOST_WIDTH and min(cells * self.cell_nbytes, total) > _MOST_STEP_BYTES:
            raise UnsupportedError(f"chunk {key!r} has blocks of {cells} cells of {self.cell_nbytes} bytes: too large")
        block, whole = cells * self.cell_nbytes, total // self.cell_nbytes // 8 * 8 * self.cell_nbytes
        if self.compressor == "none":
            return _unshuffled(data, block, whole, self.cell_nbytes)
        if -(-whole // block) > data.nbytes // 4:
            raise IntegrityError(f"chunk {key!r} is damaged: {data.nbytes} bytes hold no {total} in blocks of {block}")
        shuffled: ByteArray = np.empty(total, np.uint8)
        for start in range(0, whole, block):
            at = self._undo_block(data, at, shuffled[start : min(start + block, whole)], key)
        if data.nbytes - at < total - whole:
            raise IntegrityError(f"chunk {key!r} is damaged: it is cut off")
        shuffled[whole:] = data[at : at + total - whole]
        return _unshuffled(shuffled, block, whole, self.cell_nbytes)

    def _undo_block(self, data: ByteArray, at: int, part: ByteArray, key: str) -> int:
        """Decompress the block at byte `at` into `part`; return where the next one begins."""
        stored = _stored(data, at, key)
        if self.compressor == "lz4":
            _unlz4(stored, part)
        else:
            part[:] = Zstd().decode(stored, Size(part.nbytes, exact=True), key)
        return at + 4 + stored.nbytes


def _head(data: ByteArray, key: str) -> tuple[int, int]:
    if data.nbytes < _HEAD.size:
        raise IntegrityError(f"chunk {key!r} is damaged: {data.nbytes} bytes are too few for its header")
    total, block = _HEAD.unpack(data[: _HEAD.size].tobytes())
    return int(total), int(block)


def _stored(data: ByteArray, at: int, key: str) -> ByteArray:
    """Return the stored bytes of the block at byte `at`, where its size is."""
    nbytes = int.from_bytes(data[at : at + 4].tobytes(), "big")
    if data.nbytes < at + 4 + nbytes or data.nbytes < at + 4:
        raise IntegrityError(f"chunk {key!r} is damaged: a block of {nbytes} bytes at {at} is cut off")
    return data[at + 4 : at + 4 + nbytes]


def _unlz4(stored: ByteArray, part: ByteArray) -> None:
    # numcodecs wants the decoded size before a block. It checks that the block gives just that.
    numcodec(("id", "lz4")).decode(part.nbytes.to_bytes(4, "little") + stored.tobytes(), out=part)


def _usual_block(cell_nbytes: int) -> int:
    """Return the cells of a block where nothing else was asked for: 8 KiB of them, at least 128."""
    return max(8192 // cell_nbytes // 8 * 8, 128)


def _unshuffled(shuffled: ByteArray, block: int, whole: int, width: int) -> ByteArray:
    """Return cells of `width` bytes whose bits were regrouped in blocks of `block` bytes, up to byte `whole`."""
    found: ByteArray = np.empty(shuffled.nbytes, np.uint8)
    found[whole:] = shuffled[whole:]
    unshuffle = _unshuffle_by_blosc if width <= _BLOSC_MOST_WIDTH else _unshuffle_by_numpy
    step = max(1, _MOST_STEP_BYTES // block) * block
    full = whole // block * block
    for start in range(0, full, step):
        part = slice(start, min(start + step, full))
        unshuffle(shuffled[part], block, width, found[part])
    if full < whole:
        unshuffle(shuffled[full:whole], whole - full, width, found[full:whole])
    return found


def _unshuffle_by_numpy(shuffled: ByteArray, block: int, width: int, out: ByteArray) -> None:
    """Regroup the bits of equal blocks, of cells of any width."""
    bits = np.unpackbits(shuffled.reshape(-1, 8 * width, block // width // 8), axis=2, bitorder="little")
    out[:] = np.packbits(bits.transpose(0, 2, 1), axis=2, bitorder="little").reshape(-1)


def _unshuffle_by_blosc(shuffled: ByteArray, block: int, width: int, out: ByteArray) -> None:
    """Regroup the bits of equal blocks: wrapped as Blosc would store what it cannot compress, which is quick."""
    count = shuffled.nbytes // block
    head = 16 + 4 * count
    frame: ByteArray = np.empty(head + count * (4 + block), np.uint8)
    # Version 2; bits shuffled, blocks in one piece.
    frame[:4] = 2, 1, 0x04 | 0x10, width
    frame[4:16].view("<u4")[:] = shuffled.nbytes, block, frame.nbytes
    frame[16:head].view("<u4")[:] = head + np.arange(count, dtype=np.uint32) * np.uint32(4 + block)
    rows = frame[head:].reshape(count, 4 + block)
    rows[:, :4] = np.frombuffer(block.to_bytes(4, "little"), np.uint8)
    rows[:, 4:] = shuffled.reshape(count, block)
    numcodec(("id", "blosc")).decode(frame, out=out)
