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
