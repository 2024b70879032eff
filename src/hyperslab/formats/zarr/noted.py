"""The lengths of chunks as they are written into shards, noted so that the metadata can tell them to readers."""

import numpy as np
import numpy.typing as npt

from hyperslab.layout import Layout
from hyperslab.layout.shards import parse_shard_index
from hyperslab.layout.told import MOST_CHUNKS, lengths_of, pack_lengths

__all__ = ["Noted"]


class Noted:
    """What one process put into the shards of an array, in any thread."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._shards = int(np.prod(layout.object_grid, dtype=object))
        self._fits = layout.index is not None and self._shards * layout.index.count <= MOST_CHUNKS
        self._found: dict[tuple[int, ...], npt.NDArray[np.uint32] | None] = {}

    def take(self, coords: tuple[int, ...], data: npt.NDArray[np.uint8]) -> None:
        """Note the lengths of the chunks in a shard that was put."""
        index = self.layout.index
        if index is None or not self._fits:
            return
        stored = data[: index.nbytes] if index.location == "start" else data[-index.nbytes :]
        table = parse_shard_index(stored.data, index, data.nbytes, self.layout.keys.key(coords))
        self._found[coords] = lengths_of(table, index)

    def text(self) -> str | None:
        """Return all lengths, packed; None if some are not known, or that would be too long."""
        if not self._fits or len(self._found) < self._shards:
            return None
        rows = [self._found.get(coords) for coords in np.ndindex(self.layout.object_grid)]
        return None if any([row is None for row in rows]) else pack_lengths(np.array(rows, np.uint32))
