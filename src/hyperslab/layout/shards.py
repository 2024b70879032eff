"""The index of a shard: where its chunks lie."""

import numpy as np
import numpy.typing as npt

from hyperslab.errors import IntegrityError
from hyperslab.layout.checksums import crc32c
from hyperslab.layout.codecs import ByteArray
from hyperslab.layout.layout import ShardIndex
from hyperslab.layout.table import ChunkTable

__all__ = ["parse_shard_index"]

_MISSING = np.uint64(2**64 - 1)
# No object is larger; a check that no sum of offset and length overflows.
_MAX_OBJECT_BYTES = 2**62


def parse_shard_index(
    data: memoryview,
    index: ShardIndex,
    object_nbytes: int | None,
    key: str,
    *,
    chunk_nbytes: int | None = None,
) -> ChunkTable:
    """Return where a shard's chunks lie.

    `object_nbytes` is the shard's size where it is known. `chunk_nbytes`, given for plain chunks, is
    the length that every stored one must have.

    >>> table = np.array([[0, 8], [2**64 - 1, 2**64 - 1]], "<u8")
    >>> parse_shard_index(memoryview(table.tobytes()), ShardIndex(2, "end", False), 40, "s").offsets
    array([ 0, -1])
    """
    raw: ByteArray = np.frombuffer(data, np.uint8)
    if raw.nbytes != index.nbytes:
        raise _damaged(key, f"has {raw.nbytes} bytes, expected {index.nbytes}; is the object cut off?")
    if index.checksum:
        stored, found = int(raw[-4:].view("<u4")[0]), crc32c(raw[:-4])
        if stored != found:
            raise _damaged(key, f"has crc32c {found:#010x}, stored was {stored:#010x}")
    table = raw[: 16 * index.count].view("<u8").reshape(index.count, 2)
    missing = table == _MISSING
    if (missing[:, 0] != missing[:, 1]).any():
        raise _damaged(key, "has half an entry for a chunk that is not stored")
    absent = missing[:, 0]
    _check_bounds(table[~absent], index, object_nbytes, key, chunk_nbytes)
    # Read as signed, a missing chunk's entry is -1 already.
    signed = table.view("<i8").astype(np.int64)
    return ChunkTable(np.ascontiguousarray(signed[:, 0]), np.ascontiguousarray(signed[:, 1]))


def _check_bounds(
    table: npt.NDArray[np.uint64],
    index: ShardIndex,
    object_nbytes: int | None,
    key: str,
    chunk_nbytes: int | None,
) -> None:
    if not table.size:
        return
    first = index.nbytes if index.location == "start" else 0
    stop = _MAX_OBJECT_BYTES if object_nbytes is None else object_nbytes
    stop -= index.nbytes if index.location == "end" else 0
    offsets, lengths = table[:, 0], table[:, 1]
    limit = np.uint64(max(stop, 0))
    # Compared one by one first, so that their sum cannot wrap around.
    outside = (offsets > limit) | (lengths > limit)
    outside |= (offsets < first) | (offsets + lengths > limit)
    if outside.any():
        offset, length = map(int, table[outside.argmax()])
        raise _damaged(key, f"puts {length} bytes at {offset}, outside of the data (bytes {first} to {stop})")
    if chunk_nbytes is not None and (lengths != chunk_nbytes).any():
        length = int(lengths[(lengths != chunk_nbytes).argmax()])
        raise _damaged(key, f"has a chunk of {length} bytes, expected {chunk_nbytes}")


def _damaged(key: str, found: str) -> IntegrityError:
    return IntegrityError(f"the index of shard {key!r} {found}")
