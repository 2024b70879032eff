"""Where the chunks of shards lie, told by the array's metadata: so that they can be asked for at once.

Without it a shard's index has to be read before its chunks can be asked for. What is told here is the stored length of
every chunk; they lie one after the other, in row-major order, behind the index or from the shard's start on. It may be
out of date, as shards can be changed by programs that know nothing of it: whoever uses it reads the index all the same,
but at the same time, and begins again if that says otherwise.
"""

import base64
import binascii
import zlib
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from hyperslab.layout.layout import ShardIndex
from hyperslab.layout.table import ChunkTable

__all__ = ["MOST_CHUNKS", "TOLD_CHUNKS", "ToldTables", "lengths_of", "pack_lengths"]

Lengths = npt.NDArray[np.uint32]

# The metadata are read by everyone who opens the array: what is told may not make them much longer. So much takes a
# round trip or two more on a new connection, once; what is not told takes one for each shard that is met. Equal lengths
# take next to nothing, those of compressed chunks some two characters each; of so many chunks, any fit.
_MOST_TEXT = 192 << 10
MOST_CHUNKS = 1 << 18
TOLD_CHUNKS = 1 << 16


def lengths_of(table: ChunkTable, index: ShardIndex) -> Lengths | None:
    """Return the lengths of a shard's chunks, 0 for one that is not stored; None if they do not lie in a row.

    >>> lengths_of(ChunkTable(np.array([0, -1, 7]), np.array([7, -1, 2])), ShardIndex(3, "end", False))
    array([7, 0, 2], dtype=uint32)
    """
    lengths = np.where(table.offsets < 0, 0, table.lengths)
    if lengths.max(initial=0) >= 1 << 32 or not np.array_equal(_table(lengths, index).offsets, table.offsets):
        return None
    return lengths.astype(np.uint32)


def _table(lengths: npt.NDArray[np.int64], index: ShardIndex) -> ChunkTable:
    first = index.nbytes if index.location == "start" else 0
    starts = first + np.cumsum(lengths) - lengths
    return ChunkTable(np.where(lengths == 0, -1, starts), np.where(lengths == 0, -1, lengths))


def pack_lengths(lengths: Lengths) -> str | None:
    """Return the lengths of all chunks, a row for each shard, as text; None if that would be too long.

    >>> len(pack_lengths(np.full((4, 256), 65_540, np.uint32))) < 60
    True
    """
    if lengths.size > MOST_CHUNKS:
        return None
    # Byte by byte, as the upper ones hardly differ.
    planes = np.ascontiguousarray(lengths.astype("<u4").reshape(-1).view(np.uint8).reshape(-1, 4).T)
    text = base64.b85encode(zlib.compress(planes.tobytes(), 9)).decode("ascii")
    return text if len(text) <= _MOST_TEXT else None


@dataclass(frozen=True, slots=True, eq=False)
class ToldTables:
    """The tables of all shards of an array: `text` is of `pack_lengths`, `grid` says how many shards there are."""

    text: str
    grid: tuple[int, ...]
    index: ShardIndex
    # The lengths, once they were asked for.
    _held: list[Lengths | None] = field(default_factory=list)

    def table(self, coords: tuple[int, ...]) -> ChunkTable | None:
        """Return where the chunks of the shard at a place of the grid lie; None if that is not told.

        >>> index = ShardIndex(2, "end", False)
        >>> told = ToldTables(pack_lengths(np.array([[3, 4], [5, 0]], np.uint32)), (2,), index)
        >>> told.table((1,)).offsets, told.table((2,))
        (array([ 0, -1]), None)
        """
        if not self._held:
            self._held.append(self._lengths())
        lengths = self._held[0]
        if lengths is None or not all([at < count for at, count in zip(coords, self.grid, strict=True)]):
            return None
        return _table(lengths[np.ravel_multi_index(coords, self.grid)].astype(np.int64), self.index)

    def _lengths(self) -> Lengths | None:
        """Return the lengths; None if the text makes no sense, as then nothing is told."""
        shards = int(np.prod(self.grid, dtype=object))
        if shards * self.index.count > MOST_CHUNKS or len(self.text) > _MOST_TEXT:
            return None
        nbytes = 4 * shards * self.index.count
        try:
            engine = zlib.decompressobj()
            found = engine.decompress(base64.b85decode(self.text), nbytes + 1)
        except (ValueError, binascii.Error, zlib.error):
            return None
        if len(found) != nbytes:
            return None
        planes = np.frombuffer(found, np.uint8).reshape(4, -1)
        return np.ascontiguousarray(planes.T).view("<u4").astype(np.uint32).reshape(shards, self.index.count)
