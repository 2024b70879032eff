"""What earlier reads left at hand: shard indexes and chunks, in memory and on the local disk."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hyperslab.errors import HyperslabError
from hyperslab.execute.run import Job, Run, Snapshot
from hyperslab.execute.session import Session
from hyperslab.layout import Layout
from hyperslab.plan import ChunkTable, Pieces
from hyperslab.store import LocalStore, Reply, Store

__all__ = ["Recall"]


class Recall:
    """Finds what a read needs in the caches of its session.

    Only versions that the array's handle has seen, or that the store has just confirmed, are served.
    `tables` are the shard indexes, by key; `etags` the versions that they are of.
    """

    def __init__(self, session: Session, store: Store, snapshots: list[Snapshot]) -> None:
        self.session, self.store, self.snapshots = session, store, snapshots
        self.disk = None if isinstance(store, LocalStore) else session.disk
        self.tables: dict[str, ChunkTable] = {}
        self.etags: dict[str, str] = {}
        self.hits: dict[tuple[str, int], npt.NDArray[Any]] = {}

    def find_tables(self, reads: Sequence[Pieces]) -> None:
        """Look for the indexes of the shards that the reads touch."""
        for pieces in reads:
            layout = pieces.layout
            if layout.index is None:
                continue
            for coords in {layout.object_of(chunk) for chunk in pieces.chunks()}:
                key = layout.keys.key(coords)
                etag = self._etag(key)
                table = self.session.cache.get((self.store.address, key, etag, "index")) if etag else None
                if table is not None and etag is not None:
                    self.tables[key], self.etags[key] = table, etag

    def add_table(self, run: Run, job: Job, reply: Reply) -> None:
        """Take a shard's index that was looked up."""
        self.tables[job.key] = run.table(job, reply)
        if reply.etag is not None:
            self.etags[job.key] = reply.etag

    def add_absent(self, run: Run, job: Job) -> None:
        """Take note that a shard is not stored: it has no chunks."""
        index = run.plan.lookups[job.number].layout.index
        none = np.full(index.count if index else 0, -1, np.int64)
        self.tables[job.key] = (none, none)

    def has_chunk(self, layout: Layout, key: str, inner: int) -> bool:
        """Say whether a decoded chunk is at hand, and hold it until the read is done."""
        if (key, inner) in self.hits:
            return True
        etag = self.etags.get(key) or self._etag(key)
        if etag is None:
            return False
        chunk = self.session.cache.get((self.store.address, key, etag, inner))
        if chunk is None and self.disk is not None and layout.decoder is not None:
            stored = self.disk.get(self.store.address, key, etag, inner)
            chunk = layout.decoder.decode(memoryview(stored), key) if stored is not None else None
        if chunk is None:
            return False
        self.hits[key, inner] = chunk
        return True

    def unconfirmed(self, reads: Sequence[Pieces]) -> dict[str, str]:
        """Return the objects of which the disk holds a chunk, with its ETag, that this handle has not seen."""
        disk, found = self.disk, {}
        for pieces in reads if disk is not None else ():
            layout = pieces.layout
            for coords in pieces.chunks() if layout.decoder is not None and layout.index is None else ():
                key = layout.keys.key(coords)
                if disk is not None and not any(key in s.etags for s in self.snapshots):
                    etag = disk.last_etag(self.store.address, key)
                    found.update({key: etag} if etag is not None else {})
        return found

    def confirm(self, key: str, etag: str) -> None:
        """Ask the store whether the object is still the version that the disk holds."""
        if _current_etag(self.store, key) == etag:
            for snapshot in self.snapshots:
                snapshot.etags[key] = etag

    def _etag(self, key: str) -> str | None:
        """Return the version of an object that the cache may serve."""
        etag = next((s.etags[key] for s in self.snapshots if key in s.etags), None)
        if etag is not None and isinstance(self.store, LocalStore):
            # A look at the file costs next to nothing.
            return etag if _current_etag(self.store, key) == etag else None
        return etag


def _current_etag(store: Store, key: str) -> str | None:
    try:
        return store.head(key)[1]
    except HyperslabError:
        return None
