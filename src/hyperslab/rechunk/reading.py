"""The cells of an array that is moved, read without filling a cache that others come back to."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, Protocol, cast

import numpy.typing as npt

from hyperslab.execute import Options, Result, Session, Snapshot, StoreReader, read
from hyperslab.formats import locate_chunks
from hyperslab.formats.copying import Readable
from hyperslab.formats.source import ArraySource
from hyperslab.layout import Layout
from hyperslab.selection import Box, Selection, Span
from hyperslab.store import LocalStore, Store
from hyperslab.store.local import OpenFiles

__all__ = ["CellSource", "Opened", "OtherCells", "StoredCells", "cells_of", "part_of"]

Cells = npt.NDArray[Any]

# Shorter runs of plain cells than this are not worth a read of their own: from files, and over a network.
_LOCAL_RUN_BYTES = 16 << 10
_REMOTE_RUN_BYTES = 1 << 20
# Plain files are mapped, and mapped pages count as memory: so much at a time.
_MAPPED_BYTES = 16 << 20
# Reading gets this part of the memory, more only where a single chunk needs it.
_READ_SHARE = 8
_LANES = max(2, os.cpu_count() or 1)


class CellSource(Protocol):
    """Where cells are moved from."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def unit(self) -> tuple[int, ...]:
        """Cells that are read, and decoded, together."""
        ...

    @property
    def sparse(self) -> bool:
        """Whether what was never written is not stored."""
        ...

    def reserve(self, memory_bytes: int) -> int:
        """Return the memory that reading takes beside the cells, of so much in all, and hold to it from now on."""
        ...

    def read_into(self, box: Box, out: Cells) -> None: ...


@dataclass(frozen=True, slots=True)
class Opened:
    """A stored array, without a session that it is read by."""

    source: ArraySource
    store: Store

    @property
    def shape(self) -> tuple[int, ...]:
        return self.source.layout.shape

    @property
    def nbytes(self) -> int:
        return self.source.layout.nbytes


def cells_of(source: Readable | Opened, session: Session) -> CellSource:
    """Return what reads an array's cells: a stored one through `session`, another one as it can."""
    inner, store = getattr(source, "source", None), getattr(source, "store", None)
    if isinstance(inner, ArraySource) and store is not None:
        return StoredCells(inner, store, session)
    return OtherCells(cast(Readable, source))


class StoredCells:
    """The cells of an array in a store."""

    def __init__(self, source: ArraySource, store: Store, session: Session) -> None:
        self.source, self.session, self.snapshot = source, session, Snapshot()
        self.slab_bytes = _MAPPED_BYTES
        self.mapped = type(store) is LocalStore and source.layout.plain and source.layout.index is None
        # Files of its own: those of other readers stay mapped after a read.
        self.store: Store = store
        if isinstance(store, LocalStore):
            self.store = LocalStore(store.root, files=_no_files(), targets=store.targets)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.source.layout.shape

    @property
    def unit(self) -> tuple[int, ...]:
        layout = self.source.layout
        if not layout.plain:
            return tuple([max(1, min(c, n)) for c, n in zip(layout.chunks, layout.shape, strict=True)])
        return _run_shape(layout, _LOCAL_RUN_BYTES if isinstance(self.store, LocalStore) else _REMOTE_RUN_BYTES)

    @property
    def sparse(self) -> bool:
        return self.source.layout.sparse and not self.source.layout.complete

    def reserve(self, memory_bytes: int) -> int:
        layout, share = self.source.layout, memory_bytes // _READ_SHARE
        if self.mapped:
            self.slab_bytes = min(_MAPPED_BYTES, share)
            return self.slab_bytes
        if layout.plain:
            self.session.memory_bytes = max(1, share)
            return share
        # An answer, its cells, and what undoing filters takes; an answer may be a whole shard, for several threads.
        shard_bytes = prod(layout.object_shape) * layout.dtype.itemsize if layout.index is not None else 0
        wished = _LANES * max(3 * layout.chunk_nbytes, 2 * shard_bytes)
        self.session.memory_bytes = max(3 * layout.chunk_nbytes, min(wished, share))
        return self.session.memory_bytes

    def read_into(self, box: Box, out: Cells) -> None:
        """Read the cells of a box."""
        for part in _slabs(box, out.itemsize, self.slab_bytes) if self.mapped else (box,):
            self._read(part, part_of(out, box, part))

    def _read(self, box: Box, out: Cells) -> None:
        source, reader = self.source, StoreReader(self.session, self.store)
        spans = tuple([Span(start, count) for start, count in zip(box.start, box.shape, strict=True)])
        selection = Selection(source.layout.shape, spans, tuple(range(len(spans))))
        self.source, layout = locate_chunks(reader, source, selection)
        straight = source.cells is None and out.dtype == layout.dtype
        result = Result(source.url, self.store, layout, self.snapshot, selection, out if straight else None)
        read(self.session, (result.task,), Options())
        if not straight:
            out[...] = source.resolve(reader, result.get())


class OtherCells:
    """The cells of anything that can be read box by box."""

    def __init__(self, source: Readable) -> None:
        self.source, self.shape, self.slab_bytes = source, source.shape, _MAPPED_BYTES
        self.unit, self.sparse = tuple([1] * len(source.shape)), False

    def reserve(self, memory_bytes: int) -> int:
        self.slab_bytes = min(_MAPPED_BYTES, memory_bytes // _READ_SHARE)
        return self.slab_bytes

    def read_into(self, box: Box, out: Cells) -> None:
        """Read the cells of a box."""
        for part in _slabs(box, out.itemsize, self.slab_bytes):
            part_of(out, box, part)[...] = self.source.read(part.slices)


def part_of(cells: Cells, box: Box, inner: Box) -> Cells:
    """Return the view of those cells of a box that lie in another one inside of it."""
    sides = zip(inner.start, inner.stop, box.start, strict=True)
    key = tuple([slice(low - first, high - first) for low, high, first in sides])
    return cells[key] if key else cells


def _no_files() -> OpenFiles:
    return OpenFiles(mappings=1, mapped_bytes=0, handles=16)


def _run_shape(layout: Layout, nbytes: int) -> tuple[int, ...]:
    """Return the box of cells that lie side by side in a plain chunk, about so many bytes long."""
    unit, cells = [1] * len(layout.shape), max(1, nbytes // max(1, layout.stored.itemsize))
    for axis in reversed(layout.order or range(len(unit))):
        unit[axis] = max(1, min(layout.chunks[axis], layout.shape[axis], cells // prod(unit)))
        if unit[axis] < layout.chunks[axis]:
            break
    return tuple(unit)


def _slabs(box: Box, itemsize: int, most_bytes: int) -> Iterator[Box]:
    """Cut a box along its first axes into parts of limited size."""
    axis = next((axis for axis, n in enumerate(box.shape) if n > 1), None)
    if axis is None or box.size * itemsize <= most_bytes:
        yield box
        return
    row_bytes = box.size // box.shape[axis] * itemsize
    rows = max(1, most_bytes // row_bytes)
    for low in range(box.start[axis], box.stop[axis], rows):
        start = (*box.start[:axis], low, *box.start[axis + 1 :])
        stop = (*box.stop[:axis], min(low + rows, box.stop[axis]), *box.stop[axis + 1 :])
        part = Box(start, stop)
        yield from _slabs(part, itemsize, most_bytes) if row_bytes > most_bytes else (part,)
