"""Encoding chunks: the layouts that we create, and shards put together from chunks. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hyperslab.errors import IntegrityError
from hyperslab.layout.checksums import crc32c
from hyperslab.layout.codecs import ByteArray
from hyperslab.layout.compression import Compression
from hyperslab.layout.layout import ShardIndex
from hyperslab.layout.shards import parse_shard_index

__all__ = ["ChunkEncoder", "join_shard", "split_shard"]

_MISSING = np.uint64(2**64 - 1)
# Up to so many planes of a chunk are compressed each by codes of its own, if they have at least so many bytes: red,
# green and blue of a picture are not alike, and took 18 % less of a camera's pictures. Where planes are alike, their
# codes take a hundred bytes each.
_MOST_PLANES, _PLANE_BYTES = 4, 1 << 12


@dataclass(frozen=True, slots=True)
class ChunkEncoder:
    """Encodes cells as bytes: row-major over the axes in `order`, then compressed, then a crc32c.

    Without a `compression` nothing is compressed; `checksum` says whether the crc32c is there.

    >>> raw = ChunkEncoder(np.dtype("<i2"), (0,), compression=None, checksum=False)
    >>> raw.encode(np.array([1, 2])).tolist()
    [1, 0, 2, 0]
    """

    stored: np.dtype[np.generic]
    order: tuple[int, ...]
    compression: Compression | None
    checksum: bool

    def encode(self, cells: npt.NDArray[np.generic]) -> ByteArray:
        """Return the stored bytes of one chunk; a view of `cells` where nothing had to be changed."""
        ordered = np.ascontiguousarray(cells.transpose(self.order), self.stored)
        flat: ByteArray = ordered.reshape(-1).view(np.uint8)
        if self.compression is not None:
            flat = self.compression.encode(flat, _planes(ordered.shape, flat.nbytes))
        return _with_checksum(flat) if self.checksum else flat

    def check(self, data: ByteArray, key: str) -> None:
        """Raise IntegrityError if the stored bytes of a chunk do not have the checksum that goes with them."""
        if not self.checksum:
            return
        stored = int(data[-4:].view("<u4")[0]) if data.nbytes >= 4 else -1
        if stored != crc32c(data[:-4]):
            raise IntegrityError(f"chunk {key!r} is damaged: its crc32c is not the one stored; write all of it anew")


def _planes(shape: tuple[int, ...], nbytes: int) -> int:
    """Return by how many codes a chunk's planes are compressed.

    >>> _planes((3, 126, 64), 24192), _planes((1, 4, 64, 64), 16384), _planes((16, 512), 32768)
    (3, 4, 1)
    """
    count = next((length for length in shape[:-1] if length > 1), 1)
    return count if count <= _MOST_PLANES and nbytes >= count * _PLANE_BYTES else 1


def join_shard(
    index: ShardIndex, parts: Sequence[ByteArray | None], take: Callable[[int], ByteArray] | None = None
) -> ByteArray:
    """Return the object that holds the encoded chunks, in row-major order; None for one that is not stored.

    `take` gives the memory for so many bytes, new by default.

    >>> index = ShardIndex(2, "end", checksum=False)
    >>> join_shard(index, [None, np.array([7, 8], np.uint8)])[:2].tolist()
    [7, 8]
    """
    at_start = index.location == "start"
    first = index.nbytes if at_start else 0
    table = np.full((index.count, 2), _MISSING, "<u8")
    stop = first
    for inner, part in enumerate(parts):
        if part is not None:
            table[inner] = stop, part.nbytes
            stop += part.nbytes
    nbytes = stop if at_start else stop + index.nbytes
    whole = np.empty(nbytes, np.uint8) if take is None else take(nbytes)
    place = slice(0, index.nbytes) if at_start else slice(stop, None)
    flat: ByteArray = table.reshape(-1).view(np.uint8)
    whole[place] = _with_checksum(flat) if index.checksum else flat
    for part, (low, length) in zip(parts, table.tolist(), strict=True):
        if part is not None:
            whole[low : low + length] = part
    return whole


def split_shard(
    index: ShardIndex, data: ByteArray, key: str, *, chunk_nbytes: int | None = None
) -> list[ByteArray | None]:
    """Return the encoded chunks of a shard, views of `data`; None for one that is not stored."""
    if data.nbytes < index.nbytes:
        raise IntegrityError(f"shard {key!r} holds {data.nbytes} bytes, less than its index of {index.nbytes}")
    stored = data[: index.nbytes] if index.location == "start" else data[-index.nbytes :]
    table = parse_shard_index(stored.data, index, data.nbytes, key, chunk_nbytes=chunk_nbytes)
    extents = zip(table.offsets.tolist(), table.lengths.tolist(), strict=True)
    return [None if low < 0 else data[low : low + length] for low, length in extents]


def _with_checksum(data: ByteArray) -> ByteArray:
    whole = np.empty(data.nbytes + 4, np.uint8)
    whole[:-4] = data
    whole[-4:].view("<u4")[0] = crc32c(data)
    return whole
