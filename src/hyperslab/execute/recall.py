"""What earlier reads left at hand: shard indexes and chunks, in memory and on the local disk."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hyperslab.errors import ConflictError, HyperslabError
from hyperslab.execute.run import Job, Run, Snapshot
from hyperslab.execute.session import Session
from hyperslab.layout import Layout
from hyperslab.plan import ChunkTable, Pieces
from hyperslab.store import LocalStore, Reply, Store

__all__ = ["Recall"]


class Recall:
    """Finds what a read needs in the caches of its session.

    Only versions that the array's handle has seen, or that the store has just confirmed, are served.
    `tables` are the shard indexes, by key; `etags` and `sizes` the versions that they, and the chunks at hand, are of.
    """

    def __init__(self, session: Session, store: Store, snapshots: list[Snapshot]) -> None:
        self.session, self.store, self.snapshots = session, store, snapshots
        self.disk = None if isinstance(store, LocalStore) else session.disk
        self.tables: dict[str, ChunkTable] = {}
        self.etags: dict[str, str] = {}
        self.sizes: dict[str, int] = {}
        self.hits: dict[tuple[str, int], npt.NDArray[Any]] = {}
        self._last_etags: dict[str, str] = {}

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
        self.tables[job.key], self.sizes[job.key] = run.table(job, reply), reply.object_nbytes
        if reply.etag is not None:
            self.etags[job.key] = reply.etag

    def add_absent(self, run: Run, job: Job) -> None:
        """Take note that a shard is not stored: it has no chunks."""
        if job.key in self.etags:
            raise ConflictError(f"shard {job.key!r} vanished while it was read; call refresh() and read again")
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
        # What else is fetched of the object must be of the same version.
        self.etags[key] = etag
        return True

    def unconfirmed(self, reads: Sequence[Pieces]) -> Iterator[Job]:
        """Requests for a byte of each object that the disk holds in a version which this handle has not seen yet."""
        for pieces in reads if self.disk is not None else ():
            layout = pieces.layout
            for coords in pieces.chunks() if layout.decoder is not None and layout.index is None else ():
                key = layout.keys.key(coords)
                if any(key in snapshot.etags for snapshot in self.snapshots) or key in self._last_etags:
                    continue
                etag = self.disk.last_etag(self.store.address, key) if self.disk is not None else None
                if etag is not None:
                    self._last_etags[key] = etag
                    yield Job(-1, key, (0, 1), 1, lookup=True)

    def confirm(self, job: Job, reply: Reply) -> None:
        """Serve an object from the disk if the store still has the version that the disk holds."""
        if reply.etag == self._last_etags[job.key]:
            for snapshot in self.snapshots:
                snapshot.etags[job.key] = reply.etag

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
