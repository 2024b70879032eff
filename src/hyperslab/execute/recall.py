"""What earlier reads left at hand: shard indexes and chunks, in memory and on the local disk."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hyperslab.errors import ConflictError, HyperslabError
from hyperslab.execute.run import Job, Run, Snapshot, cache_key
from hyperslab.execute.session import Session
from hyperslab.layout import ChunkTable, FileVersion, Layout
from hyperslab.plan import Pieces
from hyperslab.plan.pieces import objects_of
from hyperslab.store import LocalStore, Reply, Store

__all__ = ["Recall"]

# In reads of up to so many bytes of chunks it is believed what the metadata tells of shards: what comes is held until
# that is confirmed. In larger ones, the round trip that it spares is nothing.
_BELIEVED_BYTES = 64 << 20


class Recall:
    """Finds what a read needs in the caches of its session.

    Only versions that the array's handle has seen, or that the store has just confirmed, are served.
    `tables` are the shard indexes, by key; `etags` and `sizes` the versions that they, and the chunks at hand, are of.
    Those of `told` are what the metadata says, until the store has been asked; `mistaken` if it said otherwise.
    """

    def __init__(self, session: Session, store: Store, snapshots: list[Snapshot]) -> None:
        self.session, self.store, self.snapshots = session, store, snapshots
        self.disk = None if isinstance(store, LocalStore) else session.disk
        self.tables: dict[str, ChunkTable] = {}
        self.told: set[str] = set()
        self.mistaken = False
        self._believes = not isinstance(store, LocalStore)
        self.etags: dict[str, str] = {}
        self.sizes: dict[str, int] = {}
        # Chunks at hand; None stands for one on the disk, which is decoded when it is its turn.
        self.hits: dict[Hashable, npt.NDArray[Any] | None] = {}
        self._lost: set[Hashable] = set()
        self._last_etags: dict[str, str] = {}

    def find_tables(self, reads: Sequence[Pieces]) -> None:
        """Look for the indexes of the shards that the reads touch; hold files to the version that was opened."""
        believes = self._believes and sum([len(each) * each.layout.chunk_nbytes for each in reads]) <= _BELIEVED_BYTES
        for pieces in reads:
            layout = pieces.layout
            if layout.file is not None:
                self._pin(layout.keys.key(()), layout.file)
            if layout.references is not None:
                self.etags.update(layout.references.etags)
            if layout.index is None:
                continue
            for coords in objects_of(pieces):
                key = layout.keys.key(coords)
                etag = self._etag(key)
                if etag is not None:
                    table = self.session.indexes.get(cache_key(self.store, layout, key, etag, "index"))
                    if table is not None:
                        self.tables[key], self.etags[key] = table, etag
                        self.told.discard(key)
                if key not in self.tables and layout.told is not None and believes:
                    self._believe(key, layout.told.table(coords))

    def _believe(self, key: str, table: ChunkTable | None) -> None:
        if table is not None:
            self.tables[key] = table
            self.told.add(key)

    def doubt(self, keys: Iterable[str]) -> None:
        """Do without what was told from here on, and forget what was seen of these shards: they are looked at anew."""
        self._believes = False
        self.told.clear()
        for key in keys:
            self.tables.pop(key, None)
            self.etags.pop(key, None)
            self.sizes.pop(key, None)
            for snapshot in self.snapshots:
                snapshot.etags.pop(key, None)

    def _pin(self, key: str, file: FileVersion) -> None:
        self.sizes[key] = file.nbytes
        if file.etag is not None:
            self.etags[key] = file.etag
            for snapshot in self.snapshots:
                snapshot.etags[key] = file.etag

    def add_table(self, run: Run, job: Job, reply: Reply) -> None:
        """Take a shard's index that was looked up."""
        table = run.table(job, reply)
        if job.key in self.told:
            self.told.remove(job.key)
            self.mistaken = self.mistaken or not _alike(self.tables[job.key], table)
        self.tables[job.key], self.sizes[job.key] = table, reply.object_nbytes
        if reply.etag is not None:
            self.etags[job.key] = reply.etag

    def add_absent(self, run: Run, job: Job) -> None:
        """Take note that a shard is not stored: it has no chunks."""
        if job.key in self.etags:
            raise ConflictError(f"shard {job.key!r} vanished while it was read; call refresh() and read again")
        if job.key in self.told:
            self.told.remove(job.key)
            self.mistaken = True
        index = run.looked_up(job).index
        none = np.full(index.count if index else 0, -1, np.int64)
        self.tables[job.key] = ChunkTable(none, none)

    @property
    def may_have_chunks(self) -> bool:
        """Whether any chunk can be at hand."""
        return self.disk is not None or bool(self.hits) or len(self.session.cache) > 0

    def has_chunk(self, layout: Layout, key: str, inner: int) -> bool:
        """Say whether a chunk is at hand; one in memory is held until the read is done."""
        slot = layout.slot_of(inner)
        name = _name(layout, key, slot)
        if name in self.hits:
            return True
        etag = self.etags.get(key) or self._etag(key)
        if etag is None or name in self._lost:
            return False
        chunk = self.session.cache.get(cache_key(self.store, layout, key, etag, slot))
        on_disk = chunk is None and self.disk is not None and layout.decoder is not None
        if chunk is None and not (on_disk and self.disk and self.disk.has(self.store.address, key, etag, slot)):
            return False
        self.hits[name] = chunk
        # What else is fetched of the object must be of the same version.
        self.etags[key] = etag
        return True

    def chunk(self, layout: Layout, key: str, inner: int) -> npt.NDArray[Any] | None:
        """Return a chunk that is at hand; None if the disk has lost it meanwhile, which is remembered."""
        slot = layout.slot_of(inner)
        name = _name(layout, key, slot)
        chunk = self.hits[name]
        if chunk is None and self.disk is not None and layout.decoder is not None:
            stored = self.disk.get(self.store.address, key, self.etags[key], slot)
            if stored is not None:
                return layout.decode(memoryview(stored), key, inner)
            self._lost.add(name)
        return chunk

    def forget_lost(self) -> bool:
        """Let go of the chunks that the disk has lost; say if there were any."""
        lost = [where for where in self._lost if where in self.hits]
        for where in lost:
            del self.hits[where]
        return bool(lost)

    def unconfirmed(self, reads: Sequence[Pieces]) -> Iterator[Job]:
        """Requests for a byte of each object of which the disk holds wanted chunks, in a version not seen here yet."""
        disk, address = self.disk, self.store.address
        if disk is None:
            return
        for pieces in reads:
            layout = pieces.layout
            # Which version of a file is read was settled when it was opened.
            for chunk in pieces.chunks() if layout.decoder is not None and layout.file is None else ():
                key, inner = layout.home_of(chunk)
                if not key or key in self._last_etags or any(key in snapshot.etags for snapshot in self.snapshots):
                    continue
                etag = disk.last_etag(address, key)
                slot = layout.slot_of(inner) if layout.packed else 0
                if etag is not None and disk.has(address, key, etag, slot):
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


def _name(layout: Layout, key: str, slot: int | str) -> Hashable:
    """Name a chunk: arrays of one file have the object in common, so that its number there is not enough."""
    return key, slot, layout.stored, layout.chunks, layout.order


def _alike(one: ChunkTable, other: ChunkTable) -> bool:
    return np.array_equal(one.offsets, other.offsets) and np.array_equal(one.lengths, other.lengths)


def _current_etag(store: Store, key: str) -> str | None:
    try:
        return store.head(key)[1]
    except HyperslabError:
        return None
