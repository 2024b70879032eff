"""Reads files the shortest way: mapped or by pread, without an event loop."""

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from hyperslab.errors import ChunkSizeError, ConflictError, NotFoundError, StoreNotFoundError
from hyperslab.execute.clock import Clock
from hyperslab.execute.ledger import Meter
from hyperslab.execute.place import check_size, chunk_view, lost, nowhere, place_bytes, place_chunk
from hyperslab.execute.run import Job
from hyperslab.execute.waiting import closed_meanwhile
from hyperslab.layout import WHOLE, Layout, References
from hyperslab.plan import BoxPieces, Pieces
from hyperslab.store import LocalStore, Mapped, Reply
from hyperslab.store.base import changed, too_short

__all__ = ["map_pieces", "run_jobs"]

T = TypeVar("T")

# From this many bytes on a read is spread over this many threads.
_LANES = max(2, os.cpu_count() or 1)
_THREAD_BYTES = 1 << 23
# A run of at least this many bytes is read in blocks, not mapped.
_RUN_BYTES = 1 << 20
_BLOCK_BYTES = 1 << 20
# Copies of at least this many bytes take so long that somebody may write to the file meanwhile: it is looked at again.
_WATCH_BYTES = 1 << 16
# Mapped pages count as memory of the process: a read that maps more than this lets go of each chunk after use.
_RELEASE_BYTES = 192 << 20


def map_pieces(
    store: LocalStore,
    pieces: Pieces,
    target: npt.NDArray[Any],
    meter: Meter,
    pool: Callable[[], ThreadPoolExecutor],
    clock: Clock,
) -> None:
    """Copy the cells of plain chunks straight from the mapped files into the result."""
    size = pieces.layout.stored.itemsize
    count = len(pieces)
    release = count * pieces.layout.chunk_nbytes > _RELEASE_BYTES
    watch = pieces.cells * size >= _WATCH_BYTES * count

    def one(item: tuple[int, tuple[int, ...]]) -> None:
        mapped = _map_piece(store, pieces, item[0], item[1], target)
        if mapped is not None and watch:
            _check_unwritten(store, _place_of(pieces.layout, item[1])[0], mapped)
        if mapped is not None and release:
            mapped.release()

    lanes = _LANES if count > 1 and pieces.cells * size >= _THREAD_BYTES else 1
    _spread(one, enumerate(pieces.chunks()), pool, lanes, clock)
    meter.ledger.requests += count
    meter.ledger.bytes += pieces.cells * size


def _map_piece(
    store: LocalStore,
    pieces: Pieces,
    piece: int,
    coords: tuple[int, ...],
    target: npt.NDArray[Any],
) -> Mapped | None:
    """Copy one piece; return the mapping that it came out of, if any."""
    layout = pieces.layout
    key, base, length = _place_of(layout, coords)
    if base < 0:
        target[pieces.target(piece)] = layout.fill
        return None
    try:
        if _read_run(store, pieces, piece, key, base, target):
            return None
        mapped = store.map(key)
    except NotFoundError:
        _check_root(store)
        if layout.references is not None:
            raise nowhere(key) from None
        if layout.complete or not layout.sparse:
            raise lost(layout, key) from None
        target[pieces.target(piece)] = layout.fill
        return None
    check_size(layout, mapped.nbytes, key)
    if layout.references is not None:
        _check_reference(layout.references, key, base, length, layout.chunk_nbytes, mapped)
    if layout.file is not None and layout.file.etag != mapped.etag:
        raise changed(f"file {key!r}")
    data = mapped.bytes
    if mapped.nbytes != layout.chunk_nbytes:
        data = data[base : base + layout.chunk_nbytes]
    place_chunk(pieces, piece, target, chunk_view(layout, data))
    return mapped


def _place_of(layout: Layout, coords: tuple[int, ...]) -> tuple[str, int, int]:
    """Return the file of a plain chunk, where it starts there (-1: it is not stored), and how long it is said to be."""
    if layout.references is not None:
        place = layout.references.find(layout.inner_of(coords))
        return place if isinstance(place, tuple) else ("", -1, 0)
    base = layout.base if layout.table is None else int(layout.table.offsets[layout.inner_of(coords)])
    return layout.keys.key(coords), base, layout.chunk_nbytes


def _check_reference(references: References, key: str, base: int, length: int, nbytes: int, mapped: Mapped) -> None:
    """Refuse a file that does not hold the chunk of `nbytes` that is said to lie in it, or is of another version."""
    said = mapped.nbytes if length == WHOLE else length
    if said != nbytes:
        raise ChunkSizeError(key, said, nbytes)
    if base + nbytes > mapped.nbytes:
        raise too_short(f"file {key!r}", (base, base + nbytes), mapped.nbytes)
    if references.etags.get(key, mapped.etag) != mapped.etag:
        raise changed(f"file {key!r}")


def _check_unwritten(store: LocalStore, key: str, mapped: Mapped) -> None:
    """Refuse cells of a file that was written to while they were copied; one that was replaced by another is good."""
    try:
        now = store.map(key)
    except NotFoundError:
        return
    if now is not mapped and now.etag != mapped.etag and _inode(now) == _inode(mapped):
        raise ConflictError(f"file {key!r} was written to while it was read; call refresh() and read again")


def _inode(mapped: Mapped) -> str:
    """The first part of a file's ETag; it stays when the file is written to, and is another one's when replaced."""
    return mapped.etag.partition("-")[0]


def _read_run(store: LocalStore, pieces: Pieces, piece: int, key: str, base: int, target: npt.NDArray[Any]) -> bool:
    """Read a piece that is one long run of bytes, block by block; say if it is one.

    A block stays in the processor's cache until it is copied, and there are none of the page faults of a mapping:
    for long runs that is twice as fast.
    """
    layout = pieces.layout
    if pieces.cells * layout.stored.itemsize < _RUN_BYTES or not isinstance(pieces, BoxPieces):
        return False
    if layout.references is not None:  # which a mapping is checked against
        return False
    start, nbytes = pieces.one_run(piece)
    if nbytes < _RUN_BYTES:
        return False
    check_size(layout, store.nbytes(key), key)
    row = pieces.run_step(_BLOCK_BYTES)
    block = np.empty(min(nbytes, max(row, _BLOCK_BYTES // row * row)), np.uint8)
    etag = layout.file.etag if layout.file is not None else None
    for low in range(start, start + nbytes, len(block)):
        data = block[: start + nbytes - low]
        etag = store.read_into(key, base + low, data.data, if_match=etag)
        place_bytes(pieces, piece, target, data, low)
    return True


def run_jobs(
    store: LocalStore,
    jobs: Iterable[Job],
    *,
    done: Callable[[Job, Reply], None],
    missing: Callable[[Job], None],
    skip: Callable[[Job], bool],
    meter: Meter,
    pool: Callable[[], ThreadPoolExecutor],
    clock: Clock,
    memory_bytes: int,
) -> None:
    """Read every job's bytes and hand them to `done`, in threads where there is much to decode."""

    def one(job: Job) -> None:
        if skip(job):
            return
        meter.before(job.nbytes, lookup=job.lookup)
        try:
            reply = store.get(job.key, job.asked, if_match=job.if_match, limit_bytes=job.limit_bytes)
        except NotFoundError:
            _check_root(store)
            meter.after(0, job.nbytes)
            missing(job)
            return
        meter.after(len(reply.data), job.nbytes)
        done(job, reply)

    planned = list(jobs)
    lanes = 1
    if len(planned) > 1 and sum(job.nbytes for job in planned) >= _THREAD_BYTES:
        lanes = max(1, min(_LANES, memory_bytes // max(job.held_bytes for job in planned)))
    _spread(one, planned, pool, lanes, clock)


def _check_root(store: LocalStore) -> None:
    """Raise if not only a file, but all of the store is gone: that is not a chunk that was never written."""
    if not os.path.isdir(store.root):
        raise StoreNotFoundError(f"there is no directory {store.root} any more; was it moved, or its disk unmounted?")


def _spread(
    one: Callable[[T], None],
    items: Iterable[T],
    pool: Callable[[], ThreadPoolExecutor],
    lanes: int,
    clock: Clock,
) -> None:
    """Call `one` for each item, in that many threads; the first error, or an interrupt, stops them all."""
    if lanes == 1:
        for item in items:
            clock.check()
            one(item)
        return
    source, lock = iter(items), threading.Lock()
    failures: list[BaseException] = []

    def lane() -> None:
        try:
            while True:
                clock.check()
                with lock:
                    item = next(source, None)
                if item is None:
                    return
                one(item)
        except BaseException as error:
            failures.append(error)
            clock.stop()
            raise

    running: list[Future[None]] = []
    try:
        for _ in range(lanes):
            running += [pool().submit(lane)]
        for future in running:
            future.result()
    except BaseException as error:
        _stop(running, clock)
        if isinstance(error, Exception):
            # What failed first: the others were only told to stop.
            raise (failures[0] if failures else _closed_or(error)) from None
        raise


def _stop(running: list["Future[None]"], clock: Clock) -> None:
    """Let every lane end after the item that it is at, and wait for that."""
    clock.stop()
    for future in running:
        with suppress(CancelledError):
            future.exception()


def _closed_or(error: Exception) -> Exception:
    """Return the error to raise instead, where it only says that the threads were ended meanwhile."""
    ended = isinstance(error, CancelledError) or "after shutdown" in str(error)
    return closed_meanwhile() if ended else error
