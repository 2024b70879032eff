"""A plan being carried out: what to ask of the store next, and what to do with each answer.

Nothing here waits: `local` and `remote` send the requests and hand the answers back.
"""

import threading
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from math import prod
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from hyperslab.errors import ChunkSizeError, ConflictError, IntegrityError, InternalError
from hyperslab.execute import pages
from hyperslab.execute.cache import MemoryCache
from hyperslab.execute.disk import DiskCache
from hyperslab.execute.place import (
    Routes,
    check_size,
    check_whole,
    chunk_view,
    inline_chunk,
    lost,
    nowhere,
    place_bytes,
    routes_of,
)
from hyperslab.layout import ChunkTable, Layout
from hyperslab.layout.shards import parse_shard_index
from hyperslab.plan import Plan
from hyperslab.plan.pieces import inners_of
from hyperslab.store import Reply, Store

__all__ = ["Job", "Run", "Snapshot", "cache_key"]

Bytes = npt.NDArray[np.uint8]
# What is up to so large, as it is decoded, is put in place at once: to hand it to a thread takes about as long. Not so
# where a read has more than so much to decode, which threads can do side by side. Indexes are parsed and kept, too.
_QUICK_BYTES, _QUICK_IN_ALL = 1 << 20, 32 << 20
_QUICK_INDEX_BYTES = 1 << 16
# Where an owner's cells go: an array, which of its cells, and which of the chunk's they are.
_Route = tuple[npt.NDArray[Any], Any, Any]
# A chunk within an answer: its first byte and the one after its last, its layout, which chunk of its object it is, and
# where its owners' cells go.
_Stored = tuple[int, int, Layout, int, list[_Route]]


@dataclass(slots=True)
class Snapshot:
    """What an opened array has seen of its store: the ETag of each object that a cache holds something of, and what
    share of their bytes its cells have when they are compressed, once some were read.
    """

    etags: dict[str, str] = field(default_factory=dict)
    shrink: float | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """One request to send: the object `number`, all of it or the bytes `span`."""

    number: int
    key: str
    span: tuple[int, int] | int | None
    nbytes: int
    if_match: str | None = None
    lookup: bool = False
    # The rows of the plan's needs that a range may hold.
    rows: tuple[int, int] = (0, 0)
    # Whether it takes long to put the answer in place, which is work for a thread.
    slow: bool = False
    # Whether the span is all of the object, so that it can be asked for without a range.
    whole: bool = False

    @property
    def asked(self) -> tuple[int, int] | int | None:
        """What to ask the store for."""
        return None if self.whole else self.span

    @property
    def held_bytes(self) -> int:
        """Memory that the answer takes until it is in place: a whole object is decoded, too."""
        return 2 * self.nbytes if self.span is None else self.nbytes

    @property
    def limit_bytes(self) -> int:
        """The most that a whole object may hold: no codec makes chunks much larger."""
        return 2 * self.nbytes + (1 << 20)


class Run:
    """Carries one plan through: `jobs` gives requests, `done` and `missing` take the answers, in any thread."""

    def __init__(
        self,
        plan: Plan,
        store: Store,
        targets: list[npt.NDArray[Any]],
        snapshots: list[Snapshot],
        cache: MemoryCache,
        indexes: MemoryCache,
        disk: DiskCache | None = None,
    ) -> None:
        self.plan, self.store, self.targets, self.snapshots = plan, store, targets, snapshots
        self.cache, self.indexes = cache, indexes
        # A read of more than the cache holds would only push out what other reads come back to.
        self._decoded_bytes = sum(
            [len(each) * each.layout.chunk_nbytes for each in plan.reads if not each.layout.plain]
        )
        self._keeps_chunks = self._decoded_bytes <= cache.limit_bytes
        # The version of each object that this read has seen, by key; its size tells where the store gives no ETag.
        self.etags: dict[str, str] = {}
        self.sizes: dict[str, int] = {}
        self.gone: set[int] = set()
        self.disk = disk
        # Chunks of shards of which it is not certain that they lie where they were read, and such of answers that had
        # not arrived whole: kept once that is certain.
        self._kept_later: list[tuple[Job, Reply, Layout, int | str, npt.NDArray[Any], Bytes]] = []
        self._lock = threading.Lock()
        self._objects = plan.needs.objects
        # Whether what is needed are whole chunks, and no parts of plain ones.
        self._needs_chunks = isinstance(plan.needs.align, int) and not plan.needs.align
        # Of each read: its pieces' chunks, and which of its object each is.
        self._coords: dict[int, list[tuple[int, ...]]] = {}
        self._inners: dict[int, list[int]] = {}
        self._routes: dict[int, Routes] = {}
        # By object and span: the chunks of answers that are on their way.
        self._ahead: dict[tuple[int, Any], list[_Stored]] = {}

    def going_on(self, plan: Plan) -> "Run":
        """Return what carries out another plan of the same read, held to the versions that were seen."""
        run = Run(plan, self.store, self.targets, self.snapshots, self.cache, self.indexes, self.disk)
        run.etags, run.sizes = self.etags, self.sizes
        return run

    # What to ask

    def lookups(self) -> Iterator[Job]:
        """Requests for the shard indexes that the plan needs first, or that are to be confirmed."""
        for number, read in (self.plan.lookups | self.plan.confirmed).items():
            index = read.layout.index
            if index is None:
                raise InternalError("a lookup in an object that has no index")
            span = (0, index.nbytes) if index.location == "start" else -index.nbytes
            slow, key = index.nbytes > _QUICK_INDEX_BYTES, self.plan.keys[number]
            yield Job(number, key, span, index.nbytes, self._pinned(number), lookup=True, slow=slow)

    def jobs(self) -> Iterator[Job]:
        """Requests for the data, the largest first so that none is left to run alone at the end."""
        plan = self.plan
        quick_bytes, chunk_nbytes = self._quick_bytes()
        for number in plan.wholes:
            read, _ = plan.read_of(plan.wholes[number][0])
            layout = plan.reads[read].layout
            # What is referred to as a whole object is one chunk.
            nbytes = layout.chunk_nbytes * (1 if layout.references is not None else prod(layout.chunks_per_object))
            yield Job(number, plan.keys[number], None, nbytes, self._pinned(number), slow=nbytes > quick_bytes)
        requests = plan.requests
        if not len(requests):
            return
        columns = (requests.starts - requests.stops, requests.objects, requests.starts, requests.stops)
        # By loops: of a few requests, all that is done to arrays takes longer.
        rows = zip(*[column.tolist() for column in columns], plan.row_spans(), strict=True)
        for _, number, start, stop, (first, last) in sorted(rows, key=itemgetter(0)):
            slow = max(stop - start, (last - first) * chunk_nbytes) > quick_bytes
            job = Job(
                number, plan.keys[number], (start, stop), stop - start, self._pinned(number), False,
                (first, last), slow,
            )  # fmt: skip
            yield replace(job, whole=True) if plan.method == "get" and self._is_whole(job) else job

    def _quick_bytes(self) -> tuple[int, int]:
        """Return how many bytes are put in place at once, and how many one row of the needs is decoded to."""
        encoded = [read.layout.chunk_nbytes for read in self.plan.reads if not read.layout.plain]
        if not encoded:
            return _QUICK_BYTES, 0
        # Chunks that go to the disk, too, wait for it.
        quick = self.disk is None and self._decoded_bytes <= _QUICK_IN_ALL
        return _QUICK_BYTES if quick else 0, max(encoded)

    def _is_whole(self, job: Job) -> bool:
        """Whether a range is a chunk that is an object of its own."""
        layout = self._layout_of(job)
        return not layout.packed and layout.sparse and job.span == (0, layout.chunk_nbytes)

    def _pinned(self, number: int) -> str | None:
        """The version that a shard's index, or an earlier answer, belongs to."""
        return self.etags.get(self.plan.keys[number])

    def prepare(self, jobs: Sequence[Job]) -> Iterator[None]:
        """Do, step by step, what can be done while the first answers are on their way: nothing else can be done then.

        Find out where the chunks in each of them go, and have memory for the results.
        """
        for job in jobs if self._needs_chunks else ():
            if not job.slow and isinstance(job.span, tuple):
                self._ahead[job.number, job.span] = self._stored_in(slice(*job.rows), job.span[0])
                yield
        for target in self.targets:
            yield from pages.had(target)

    # What came back

    def check_version(self, key: str, etag: str | None, size: int, *, gone: bool = False) -> None:
        """Refuse an answer from another version of the object than earlier ones of this read."""
        with self._lock:
            same = self.sizes.setdefault(key, size) == size and not gone
            if etag is not None:
                same = same and self.etags.setdefault(key, etag) == etag
        if not same:
            raise ConflictError(f"object {key!r} changed while it was read; call refresh() and read again")

    def table(self, job: Job, reply: Reply) -> ChunkTable:
        """Parse a shard's index and keep it for later reads."""
        layout = self.looked_up(job)
        table = self._parse_index(layout, reply.data, reply.object_nbytes, job.key)
        self._keep(job, reply, layout, "index", table, table.nbytes)
        return table

    def looked_up(self, job: Job) -> Layout:
        """The layout of the shard that a lookup is for."""
        return (self.plan.lookups.get(job.number) or self.plan.confirmed[job.number]).layout

    def _parse_index(self, layout: Layout, data: memoryview, object_nbytes: int, key: str) -> ChunkTable:
        if layout.index is None:
            raise InternalError(f"object {key!r} has no index")
        exact = layout.chunk_nbytes if layout.plain else None
        return parse_shard_index(data, layout.index, object_nbytes, key, chunk_nbytes=exact)

    def heard(self, job: Job, reply: Reply, nbytes: int) -> None:
        """Put the chunks into the result that lie in the first bytes of an answer, of which the rest is to come.

        Those that could not be are left for when all has arrived. So are all, where it was not found out before where
        they go; and where versions cannot be told apart, as what is asked for again may then be of another one.
        """
        chunks = [] if reply.etag is None else self._ahead.get((job.number, job.span), [])
        there = list(takewhile(lambda chunk: chunk[1] <= nbytes, chunks))
        if there:
            self.check_version(job.key, reply.etag, reply.object_nbytes, gone=job.number in self.gone)
            self._decode(job, reply, np.frombuffer(reply.data, np.uint8), there, certain=False)
            del chunks[: len(there)]

    def done(self, job: Job, reply: Reply) -> None:
        """Put an answer's cells into the result."""
        self.check_version(job.key, reply.etag, reply.object_nbytes, gone=job.number in self.gone)
        data = np.frombuffer(reply.data, np.uint8)
        owners = self.plan.wholes.get(job.number) if job.span is None else None
        if owners is not None:
            self._place_object(job, reply, data, owners)
        else:
            self._place_range(job, reply, data)

    def missing(self, job: Job) -> None:
        """Take note that an object is not there: its cells are fill values, or that is an error."""
        with self._lock:
            if job.number in self.gone:
                return
            if self._is_referenced(job):
                raise nowhere(job.key)
            # An answer, or the index that told where to look, has been seen.
            indexed = isinstance(job.span, tuple) and self._layout_of(job).packed
            if indexed or job.key in self.etags or job.key in self.sizes:
                raise ConflictError(f"object {job.key!r} vanished while it was read; call refresh() and read again")
            self.gone.add(job.number)
        rows = np.flatnonzero(self._objects == job.number)
        owners = {*self.plan.needs.owners[rows].tolist(), *self.plan.wholes.get(job.number, ())}
        for owner in owners:
            self.fill(owner, job.key)

    def _is_referenced(self, job: Job) -> bool:
        owners = self.plan.wholes.get(job.number) if job.span is None else None
        layout = self._layout_of(job) if owners is None else self.layout_of(owners[0])
        return layout.references is not None

    def _layout_of(self, job: Job) -> Layout:
        """The layout of the array that a range was asked for."""
        return self.layout_of(int(self.plan.needs.owners[job.rows[0]]))

    def fill(self, owner: int, key: str = "") -> None:
        """Put fill values where a chunk is not stored."""
        read, piece = self.plan.read_of(owner)
        pieces = self.plan.reads[read]
        if pieces.layout.complete or not pieces.layout.sparse:
            raise lost(pieces.layout, key or self.where(owner)[0])
        self.targets[read][pieces.target(piece)] = pieces.layout.fill

    def place_inline(self, owner: int) -> None:
        """Put a chunk into the result whose bytes are among the references."""
        layout, inner = self.layout_of(owner), self._inner_of(owner)
        self.place(owner, inline_chunk(layout, inner))

    def place(self, owner: int, chunk: npt.NDArray[Any]) -> None:
        """Copy an owner's cells out of its decoded chunk."""
        target, into, source = self._route(owner)
        target[into] = chunk[source]

    def _route(self, owner: int) -> _Route:
        read, piece = self.plan.read_of(owner)
        if read not in self._routes:
            self._routes[read] = routes_of(self.plan.reads[read])
        routes = self._routes[read]
        return self.targets[read], routes.target(piece), routes.source(piece)

    def _place_object(self, job: Job, reply: Reply, data: Bytes, owners: list[int]) -> None:
        layout = self.layout_of(owners[0])
        if layout.index is None:
            self._decode(job, reply, data, [self._stored(0, len(data), *alike) for alike in self._alike(owners)])
            return
        span = slice(0, layout.index.nbytes) if layout.index.location == "start" else slice(-layout.index.nbytes, None)
        if len(data) < layout.index.nbytes:
            raise IntegrityError(
                f"shard {job.key!r} holds {len(data)} bytes, less than its index of {layout.index.nbytes}"
            )
        table = self._parse_index(layout, data[span].data, len(data), job.key)
        self._keep(job, reply, layout, "index", table, table.nbytes)
        inners = [self._inner_of(owner) for owner in owners]
        lows, lengths = table.offsets[inners], table.lengths[inners]
        chunks: list[_Stored] = []
        for low, high, inner, owner in zip(lows.tolist(), (lows + lengths).tolist(), inners, owners, strict=True):
            if low < 0:
                self.fill(owner)
            else:
                chunks.append(self._stored(low, high, inner, [owner]))
        self._decode(job, reply, data, chunks)

    def _alike(self, owners: list[int]) -> Iterator[tuple[int, list[int]]]:
        """Put together the owners of one stored chunk for which it is decoded alike, with its number in its object.

        Of what is referred to, several arrays may make something else.
        """
        if len(owners) == 1:
            yield self._inner_of(owners[0]), owners
            return
        groups: dict[int, list[int]] = {}
        for owner in owners:
            groups.setdefault(id(self.layout_of(owner).decoder), []).append(owner)
        for group in groups.values():
            packed = self.layout_of(group[0]).packed
            yield self._inner_of(group[0]) if packed else 0, group

    def _plain_chunk(self, layout: Layout, data: Bytes, key: str) -> npt.NDArray[Any]:
        if len(data) != layout.chunk_nbytes:
            raise ChunkSizeError(key, len(data), layout.chunk_nbytes)
        return chunk_view(layout, data)

    def _place_range(self, job: Job, reply: Reply, data: Bytes) -> None:
        """Serve every row of the plan's needs that lies in this range."""
        if not isinstance(job.span, tuple):
            raise InternalError(f"a range without bounds: {job}")
        start = job.span[0]
        needs = self.plan.needs
        if self._needs_chunks:
            ahead = self._ahead.pop((job.number, job.span), None)
            self._decode(job, reply, data, self._stored_in(slice(*job.rows), start) if ahead is None else ahead)
            return
        rows = np.arange(*job.rows)
        if needs.overlapping:
            rows = rows[needs.stops[rows] > start]
        whole = needs.whole(rows)
        self._decode(job, reply, data, self._stored_in(rows[whole], start))
        rows = rows[~whole]
        owners = needs.owners[rows]
        one = not needs.overlapping and len(owners) > 0 and owners[0] == owners[-1]
        for owner in owners[:1].tolist() if one else sorted(set(owners.tolist())):
            self._place_rows(owner, rows if one else rows[owners == owner], job, reply, data)

    def _stored_in(self, rows: slice | npt.NDArray[np.int64], start: int) -> list[_Stored]:
        """Return the encoded chunks that some rows of the needs are, in an answer that begins at byte `start`."""
        needs = self.plan.needs
        columns = [column[rows].tolist() for column in (needs.starts, needs.stops, needs.owners)]
        extents: dict[tuple[int, int], list[int]] = {}
        for low, high, owner in zip(*columns, strict=True):
            if high > start:
                extents.setdefault((low - start, high - start), []).append(owner)
        return [self._stored(*extent, *alike) for extent, owners in extents.items() for alike in self._alike(owners)]

    def _stored(self, low: int, high: int, inner: int, owners: list[int]) -> _Stored:
        return low, high, self.layout_of(owners[0]), inner, [self._route(owner) for owner in owners]

    def _place_rows(self, owner: int, rows: npt.NDArray[np.int64], job: Job, reply: Reply, data: Bytes) -> None:
        """Put the part of a plain chunk that an answer holds into the result."""
        start, stop = job.span  # type: ignore[misc]
        needs = self.plan.needs
        read, piece = self.plan.read_of(owner)
        pieces = self.plan.reads[read]
        check_size(pieces.layout, reply.object_nbytes, job.key)
        if pieces.layout.references is not None:
            check_whole(pieces.layout, self._inner_of(owner), reply.object_nbytes)
        base = int(needs.chunks.starts[needs.units[rows[0]]])
        low = max(start, int(needs.starts[rows[0]]))
        high = min(stop, int(needs.stops[rows].max()))
        place_bytes(pieces, piece, self.targets[read], data[low - start : high - start], low - base)

    def _decode(self, job: Job, reply: Reply, data: Bytes, chunks: list[_Stored], *, certain: bool = True) -> None:
        """Put chunks that lie whole in an answer into the result; it may not be certain that the answer is right."""
        keeps = reply.etag is not None and (self._keeps_chunks or self.disk is not None)
        for low, high, layout, inner, routes in chunks:
            stored = data[low:high]
            if layout.decoder is None:
                chunk = self._plain_chunk(layout, stored, job.key)
            else:
                chunk = layout.decode(stored.data, job.key, inner)
                if keeps:
                    found = (job, reply, layout, layout.slot_of(inner), chunk, stored)
                    if job.number in self.plan.confirmed or not certain:
                        self._kept_later.append(found)
                    else:
                        self._keep_chunk(*found)
            for target, into, source in routes:
                target[into] = chunk[source]

    def keep(self) -> None:
        """Let later reads have the chunks of which it was not certain, before all had arrived, that they are right."""
        for found in self._kept_later:
            self._keep_chunk(*found)
        self._kept_later.clear()

    def _keep_chunk(
        self, job: Job, reply: Reply, layout: Layout, slot: int | str, chunk: npt.NDArray[Any], stored: Bytes
    ) -> None:
        """Let later reads take a chunk from memory, as it is decoded, or from the disk, as it is stored."""
        if self._keeps_chunks:
            # A view of a long answer would keep all of it in memory.
            view = chunk.nbytes * 2 < len(reply.data) and np.may_share_memory(chunk, stored)
            self._keep(job, reply, layout, slot, chunk.copy() if view else chunk, chunk.nbytes)
        if self.disk is not None and reply.etag is not None:
            self._note_version(job.key, reply.etag)
            self.disk.put(self.store.address, job.key, reply.etag, slot, stored.data)

    def layout_of(self, owner: int) -> Layout:
        """The layout of the array that an owner's chunk is of."""
        return self.plan.reads[self.plan.read_of(owner)[0]].layout

    def where(self, owner: int) -> tuple[str, int]:
        """Return the key of the object that holds an owner's chunk, and which of its chunks that is."""
        read, piece = self.plan.read_of(owner)
        return self.plan.reads[read].layout.home_of(self._chunks_of(read)[piece])

    def _inner_of(self, owner: int) -> int:
        read, piece = self.plan.read_of(owner)
        if read not in self._inners:
            self._inners[read] = inners_of(self.plan.reads[read])
        return self._inners[read][piece]

    def _chunks_of(self, read: int) -> list[tuple[int, ...]]:
        if read not in self._coords:
            self._coords[read] = list(self.plan.reads[read].chunks())
        return self._coords[read]

    def _keep(self, job: Job, reply: Reply, layout: Layout, what: int | str, value: Any, nbytes: int) -> None:
        if reply.etag is None:
            return
        self._note_version(job.key, reply.etag)
        cache = self.indexes if what == "index" else self.cache
        cache.put(cache_key(self.store, layout, job.key, reply.etag, what), value, nbytes)

    def _note_version(self, key: str, etag: str) -> None:
        """Let later reads of the same handles take this version from the caches."""
        for snapshot in self.snapshots:
            snapshot.etags[key] = etag


def cache_key(store: Store, layout: Layout, key: str, etag: str, what: int | str) -> Hashable:
    """Name a chunk, or the "index", of one version of an object, as an array of that layout decodes it."""
    return store.address, key, etag, what, layout.stored, layout.chunks, layout.order
