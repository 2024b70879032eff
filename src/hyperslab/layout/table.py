"""A table of chunks: where each chunk of an array lies within one object."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["ChunkTable"]


@dataclass(frozen=True, slots=True, eq=False)
class ChunkTable:
    """Where the chunks of an array lie in its object, one entry for each, row-major over the grid of chunks.

    A chunk that is not stored has offset and length -1. `masks` says for each chunk which filters of
    the array were skipped when it was written: bit i stands for the i-th filter. None: no filter, for no chunk.
    """

    offsets: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    masks: npt.NDArray[np.uint32] | None = None

    @property
    def nbytes(self) -> int:
        """Memory that the table takes."""
        return self.offsets.nbytes + self.lengths.nbytes + (0 if self.masks is None else self.masks.nbytes)

    def pack(self) -> bytes:
        """Return the table as bytes.

        >>> table = ChunkTable(np.array([8, -1]), np.array([4, -1]))
        >>> ChunkTable.unpack(table.pack()).offsets
        array([ 8, -1])
        """
        columns = [self.offsets.astype("<i8"), self.lengths.astype("<i8")]
        columns += [] if self.masks is None else [self.masks.astype("<u4")]
        return b"".join([len(self.offsets).to_bytes(8, "little"), *(column.tobytes() for column in columns)])

    @staticmethod
    def unpack(packed: bytes) -> "ChunkTable":
        """Return the table that `pack` made the bytes of."""
        count = int.from_bytes(packed[:8], "little")
        offsets, lengths = np.frombuffer(packed, "<i8", 2 * count, 8).reshape(2, count).astype(np.int64, copy=False)
        masked = len(packed) > 8 + 16 * count
        masks = np.frombuffer(packed, "<u4", count, 8 + 16 * count).astype(np.uint32, copy=False) if masked else None
        return ChunkTable(offsets, lengths, masks)
