"""Compressors: undone within the size that a chunk must have, whatever their streams claim."""

import bz2
import lzma
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, cast

import numpy as np
from zlib_ng import zlib_ng

from hyperslab.errors import ChunkSizeError, IntegrityError, UnsupportedError
from hyperslab.layout import zstd
from hyperslab.layout.codecs import ByteArray, Size, numcodec

__all__ = ["Blosc", "Bz2", "Lz4", "Lzma", "Zlib", "Zstd", "unpack_zstd"]

# What the decoder of an xz stream may use for its dictionary; `xz -9` needs 65 MiB.
_LZMA_MEMORY_BYTES = 512 << 20
# Members after the first are fed in windows of this size: the engines copy what they did not use.
_WINDOW_BYTES = 64 << 10


class _Compressor:
    """What compressors share: their output can have any size up to a bound."""

    __slots__ = ()

    def encoded(self, size: Size) -> Size:
        # No compressor here makes incompressible bytes longer by more than this.
        return Size(size.nbytes + size.nbytes // 64 + 4096, exact=False)


@dataclass(frozen=True, slots=True)
class Zlib(_Compressor):
    """DEFLATE, in zlib's or in gzip's wrapping."""

    name: Literal["zlib", "gzip"]

    def decode(self, data: ByteArray, size: Size, key: str) -> ByteArray:
        gzip = self.name == "gzip"
        wbits = 31 if gzip else 15
        return _inflate(lambda: zlib_ng.decompressobj(wbits), data, size, key, self.name, many=gzip)


@dataclass(frozen=True, slots=True)
class Bz2(_Compressor):
    """Bzip2: one stream or several."""

    name: str = "bz2"

    def decode(self, data: ByteArray, size: Size, key: str) -> ByteArray:
        return _inflate(bz2.BZ2Decompressor, data, size, key, self.name, many=True)


@dataclass(frozen=True, slots=True)
class Lzma(_Compressor):
    """LZMA; `filters`, each as pairs of names and numbers, are needed for raw streams only."""

    format: int = lzma.FORMAT_XZ
    filters: tuple[tuple[tuple[str, int], ...], ...] = ()
    name: str = "lzma"

    def decode(self, data: ByteArray, size: Size, key: str) -> ByteArray:
        many = self.format in (lzma.FORMAT_XZ, lzma.FORMAT_AUTO)
        return _inflate(self._engine, data, size, key, self.name, many=many)

    def _engine(self) -> lzma.LZMADecompressor:
        if self.format == lzma.FORMAT_RAW:
            return lzma.LZMADecompressor(self.format, filters=[dict(each) for each in self.filters])
        return lzma.LZMADecompressor(self.format, memlimit=_LZMA_MEMORY_BYTES)


@dataclass(frozen=True, slots=True)
class Lz4(_Compressor):
    """LZ4 as numcodecs writes it: one block after its decoded size."""

    name: str = "lz4"

    def decode(self, data: ByteArray, size: Size, key: str) -> ByteArray:
        if data.nbytes < 4:
            raise IntegrityError(f"chunk {key!r} is damaged: {data.nbytes} bytes are too few for lz4")
        claimed = int(data[:4].view("<u4")[0])
        size.check(claimed, key)
        return _into(numcodec(("id", "lz4")), data, claimed)


@dataclass(frozen=True, slots=True)
class Zstd(_Compressor):
    """Zstandard: one frame or several, with or without their sizes."""

    name: str = "zstd"

    def decode(self, data: ByteArray, size: Size, key: str) -> ByteArray:
        try:
            return zstd.decompress(data, size.nbytes)
        except (zstd.error(), ValueError):
            pass  # damaged; or other frames than one that states this size, which the other library knows
        claimed = _zstd_frame_nbytes(data)
        if claimed is not None and claimed < size.nbytes:
            # Either too small, or the first of several frames.
            claimed = _zstd_nbytes(data)
        if claimed is None:
            if not size.exact:
                raise UnsupportedError(f"chunk {key!r} has zstd of unknown size within another compressor")
            # The library checks that such a stream fills the buffer exactly.
            claimed = size.nbytes
        size.check(claimed, key)
        out: ByteArray = np.empty(claimed, np.uint8)
        _zstd_decompress()(data, out)
        return out


@dataclass(frozen=True, slots=True)
class Blosc(_Compressor):
    """Blosc 1 with any of its inner compressors.

    The library takes the header at its word, up to reading past the end of `data`; so every
    figure in it is checked first.
    """

    name: str = "blosc"

    def decode(self, data: ByteArray, size: Size, key: str) -> ByteArray:
        claimed = _blosc_nbytes(data, key)
        size.check(claimed, key)
        out: ByteArray = np.empty(claimed, np.uint8)
        _blosc_decompress()(data, out)
        return out


def _into(codec: Any, data: ByteArray, nbytes: int) -> ByteArray:
    out: ByteArray = np.empty(nbytes, np.uint8)
    codec.decode(data, out=out)
    return out


def _inflate(engine: Callable[[], Any], data: ByteArray, size: Size, key: str, name: str, *, many: bool) -> ByteArray:
    """Decompress with a standard library engine; `many`: streams may follow one another."""
    current = engine()
    first = current.decompress(data, size.nbytes + 1)
    if len(first) > size.nbytes:
        raise ChunkSizeError(key, f"more than {size.nbytes}", size.nbytes)
    if not current.eof:
        raise IntegrityError(f"chunk {key!r} is damaged: its {name} stream ends early")
    parts = [first]
    rest = len(current.unused_data)
    if rest and many:
        parts += _more_streams(engine, data[data.nbytes - rest :], size, len(first), key, name)
    elif rest:
        raise IntegrityError(f"chunk {key!r} is damaged: {rest} bytes follow its {name} stream")
    whole = np.frombuffer(parts[0] if len(parts) == 1 else b"".join(parts), np.uint8)
    size.check(whole.nbytes, key)
    return whole


def _more_streams(
    engine: Callable[[], Any], data: ByteArray, size: Size, done: int, key: str, name: str
) -> list[bytes]:
    """Decompress the streams that follow the first one, which gave `done` bytes of `size`."""
    parts: list[bytes] = []
    at, streams, limit, room = 0, 0, 1000 + size.nbytes // 4096, size.nbytes - done
    current = engine()
    while at < data.nbytes:
        if name == "gzip" and not data[at] and not data[at:].any():
            break  # padding with zeros after the last member is allowed
        window = data[at : at + _WINDOW_BYTES]
        part = current.decompress(window, room + 1)
        room -= len(part)
        if room < 0:
            raise ChunkSizeError(key, f"more than {size.nbytes}", size.nbytes)
        parts.append(part)
        at += window.nbytes
        if current.eof:
            at -= len(current.unused_data)
            current, streams = engine(), streams + 1
            if streams > limit:
                raise IntegrityError(f"chunk {key!r} is damaged: it holds more than {limit} {name} streams")
            continue
        if at >= data.nbytes:
            raise IntegrityError(f"chunk {key!r} is damaged: its {name} stream ends early")
    return parts


def _zstd_frame_nbytes(data: ByteArray) -> int | None:
    """Return the decoded size that the first frame states, None if it states none."""
    head = data[:18].tobytes()
    if head[:4] != b"\x28\xb5\x2f\xfd":
        raise ValueError("no zstd frame")
    size_flag, single = head[4] >> 6, head[4] >> 5 & 1
    width = (single, 2, 4, 8)[size_flag]
    at = 5 + (not single) + (0, 1, 2, 4)[head[4] & 3]
    if len(head) < at + width:
        raise ValueError("the frame header is cut off")
    if not width:
        return None
    return int.from_bytes(head[at : at + width], "little") + (256 if width == 2 else 0)


# Kinds of blocks in a zstd frame, and what one that is compressed can hold at most.
_ZSTD_RUN, _ZSTD_PACKED = 1, 2
_ZSTD_BLOCK_BYTES = 128 << 10


@lru_cache(maxsize=1)
def _zstd_decompress() -> Callable[..., Any]:
    """Return what undoes several frames, or such as do not state their sizes."""
    from numcodecs.zstd import decompress  # type: ignore[import-untyped,unused-ignore]

    return cast("Callable[..., Any]", decompress)


def _zstd_nbytes(data: ByteArray) -> int | None:
    """Return the decoded size that all frames together state, None if one states none."""
    total, frames = 0, 0
    while data.nbytes:
        nbytes = _zstd_frame_nbytes(data)
        if nbytes is None:
            return None
        total, frames = total + nbytes, frames + 1
        if frames > 1000:
            raise ValueError("more than 1000 frames")
        data = data[_zstd_frame_end(data) :]
    return total


def unpack_zstd(data: ByteArray, limit_bytes: int) -> bytes:
    """Return what zstd frames hold, which may not state their sizes; ValueError if that could exceed the limit.

    A frame's blocks, which are counted first, hold so many bytes each at most: nothing is unpacked that is too large.
    """
    rest, most = data, 0
    while rest.nbytes:
        stated, (end, bound) = _zstd_frame_nbytes(rest), _zstd_frame_ends(rest)
        most += bound if stated is None else stated
        if most > limit_bytes:
            raise ValueError(f"it may unpack to {most} bytes; at most {limit_bytes} are read")
        rest = rest[end:]
    try:
        return bytes(_zstd_decompress()(data))
    except RuntimeError as error:
        raise ValueError(str(error)) from error


def _zstd_frame_end(data: ByteArray) -> int:
    """Return where the first frame ends, going from block to block."""
    return _zstd_frame_ends(data)[0]


def _zstd_frame_ends(data: ByteArray) -> tuple[int, int]:
    """Return where the first frame ends, and how many bytes its blocks can hold at most."""
    descriptor = int(data[4])
    single = descriptor >> 5 & 1
    at = 5 + (not single) + (0, 1, 2, 4)[descriptor & 3] + (single, 2, 4, 8)[descriptor >> 6]
    last, most = False, 0
    while not last:
        if at + 3 > data.nbytes:
            raise ValueError("a block is cut off")
        block = int.from_bytes(data[at : at + 3].tobytes(), "little")
        last, kind = bool(block & 1), block >> 1 & 3
        at += 3 + (1 if kind == _ZSTD_RUN else block >> 3)
        most += _ZSTD_BLOCK_BYTES if kind == _ZSTD_PACKED else block >> 3
    return at + 4 * (descriptor >> 2 & 1), most


# Version, the inner compressor's, flags, bytes of a cell; bytes of all that is decoded, of a block of it, encoded.
_BLOSC_HEADER = struct.Struct("<BBBBIII")
_BLOSC_START = struct.Struct("<I")
_BLOSC_COMPRESSORS = ("blosclz", "lz4", "snappy", "zlib", "zstd")


def _blosc_nbytes(data: ByteArray, key: str) -> int:
    """Check a Blosc header in all that the library relies on; return the decoded size it states."""
    if data.nbytes < 16:
        raise ValueError(f"{data.nbytes} bytes are too few")
    version, _, flags, typesize, nbytes, blocksize, cbytes = _BLOSC_HEADER.unpack_from(data.data)
    if version != 2:
        raise UnsupportedError(f"chunk {key!r} is in version {version} of the Blosc format, expected 2")
    if cbytes != data.nbytes:
        raise ValueError(f"the header states {cbytes} bytes, there are {data.nbytes}")
    if not typesize or not blocksize or blocksize > max(nbytes, 1) or nbytes > 2**31 - 17:
        raise ValueError("the header contradicts itself")
    if flags & 2:  # stored as it is
        if cbytes != nbytes + 16:
            raise ValueError("the header contradicts itself")
        return int(nbytes)
    if flags >> 5 >= len(_BLOSC_COMPRESSORS):
        raise ValueError("the inner compressor is not known")
    if _BLOSC_COMPRESSORS[flags >> 5] not in _blosc_compressors():
        raise UnsupportedError(f"chunk {key!r} is compressed with blosc-{_BLOSC_COMPRESSORS[flags >> 5]}")
    first = 16 + 4 * -(-nbytes // blocksize)
    if first > cbytes:
        raise ValueError("the table of blocks is cut off")
    if nbytes:
        lowest, highest = _blosc_reach(data, first)
        if lowest < first or highest > cbytes - 4:
            raise ValueError("a block lies outside of the data")
    return int(nbytes)


def _blosc_reach(data: ByteArray, first: int) -> tuple[int, int]:
    """Return where the first and the last block begin; the table of where they do ends at `first`."""
    if first == 20:  # the one block of a small chunk, of which a read may have hundreds
        (start,) = _BLOSC_START.unpack_from(data.data, 16)
        return start, start
    starts = data[16:first].view("<u4")
    return int(starts.min()), int(starts.max())


@lru_cache(maxsize=1)
def _blosc_decompress() -> Callable[..., Any]:
    """Return what undoes a whole chunk; a codec of numcodecs looks at both its arguments several times before."""
    from numcodecs.blosc import decompress  # type: ignore[import-untyped,unused-ignore]

    return cast("Callable[..., Any]", decompress)


@lru_cache(maxsize=1)
def _blosc_compressors() -> tuple[str, ...]:
    from numcodecs import blosc  # type: ignore[import-untyped,unused-ignore]

    return tuple(blosc.list_compressors())
