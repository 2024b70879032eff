"""A Zarr array that can be changed: cells, attributes, completeness. What changes its shape is in `shape`.

Its layout may be changed in place by another process while cells are written here. So after its objects were put, a
writer looks at the metadata again: where they say that a change is under way, it adds there what it wrote, so that this
is moved once more; where the layout is another one already, it writes the same cells again, as they lie now. It also
looks before it puts, if it has not done so within a moment: under the names of an old layout's objects there may be
those of a later one.
"""

import random
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

from hyperslab.errors import (
    ConflictError,
    FormatError,
    IntegrityError,
    InvalidInputError,
    NotFoundError,
    UnsupportedError,
)
from hyperslab.execute import Session, Snapshot
from hyperslab.execute.write import StoreWriter
from hyperslab.formats.source import MAX_METADATA_BYTES, ArraySource, join, parse_document
from hyperslab.formats.zarr import v2 as zarr_v2
from hyperslab.formats.zarr import v3 as zarr_v3
from hyperslab.formats.zarr.assignment import Assignment, assign_values
from hyperslab.formats.zarr.change import Change, change_of, marked, same_layout
from hyperslab.formats.zarr.claims import is_gone
from hyperslab.formats.zarr.documents import change_attributes, change_document, dump, fetch_document
from hyperslab.formats.zarr.noted import Noted
from hyperslab.formats.zarr.objects import box_of_chunk, object_codec
from hyperslab.formats.zarr.seal import Seal, check_seal, seal_of, sealed
from hyperslab.formats.zarr.write import ObjectEdit, Objects, boxes_of, check_count
from hyperslab.layout import ChunkKeys, Layout
from hyperslab.layout.shards import parse_shard_index
from hyperslab.selection import Box, Points, Selection
from hyperslab.store import LocalStore, Store

__all__ = ["Done", "ZarrArray", "check_format", "coords_of", "stored_objects"]

Done = Callable[[int], None]

# How long what was seen of the metadata is trusted when an object is put. A sweep of old objects takes longer.
TRUST_S = 1.0
# How long a writer waits for a change of layout that is about to end, before it makes it go on.
_CLOSING_S = 10.0
_TRIES = 64


def check_format(form: str, url: str) -> None:
    """Refuse to change what is not Zarr."""
    if form not in (zarr_v2.FORMAT, zarr_v3.FORMAT):
        raise UnsupportedError(f"{url!r} is {form}, which is only read; hs.copy(url, ...) makes a Zarr array of it")


class ZarrArray:
    """Changes one array. `source` is the array as it is after the last change made here."""

    def __init__(
        self,
        session: Session,
        store: Store,
        source: ArraySource,
        snapshot: Snapshot,
        document: dict[str, Any] | None = None,
    ) -> None:
        check_format(source.format, source.url)
        self.session, self.store, self.source, self.snapshot = session, store, source, snapshot
        self._document = document
        self._noted: Noted | None = None
        self._looked_at_s = float("-inf") if document is None else time.monotonic()

    def __getstate__(self) -> dict[str, Any]:
        # Another machine has another clock, and puts other objects.
        return {**self.__dict__, "_looked_at_s": float("-inf"), "_noted": None}

    @property
    def key(self) -> str:
        """The key of the array's metadata document."""
        return join(self.source.path, "zarr.json" if self.source.format == zarr_v3.FORMAT else ".zarray")

    @property
    def document(self) -> dict[str, Any]:
        """The metadata document, as it was when it was first needed or last changed here."""
        return self._learn() if self._document is None else self._document

    def _learn(self) -> dict[str, Any]:
        at_s, document = time.monotonic(), self.fetch()
        if self.source.format == zarr_v3.FORMAT and not _placed_alike(self.parsed(document), self.source):
            self._move_on(document)
        self._document, self._looked_at_s = document, at_s
        return document

    @property
    def seal(self) -> Seal | None:
        """What the document's seal says; None for an array of somebody else's."""
        return check_seal(self.document, self.key) if self.source.format == zarr_v3.FORMAT else None

    def writer(self) -> StoreWriter:
        """Return what one change is sent by."""
        return StoreWriter(self.session, self.store)

    def fetch(self) -> dict[str, Any]:
        """Return the metadata document as it is stored now."""
        found = fetch_document(self.writer(), self.key)
        if found is None:
            raise NotFoundError(f"array {self.source.url!r} is gone")
        return found[0]

    def parsed(self, document: dict[str, Any]) -> ArraySource:
        """Return the array that a document describes, attributes of version 2 as they were."""
        source = self.source
        if source.format == zarr_v2.FORMAT:
            return zarr_v2.parse_array(document, dict(source.attrs), source.url, source.path)
        found = zarr_v3.parse_node(document, source.url, source.path)
        if not isinstance(found, ArraySource):
            raise ConflictError(f"{source.url!r} is not an array any more; open it again")
        return found

    def take(self, document: dict[str, Any]) -> None:
        """Go on with a changed document."""
        self.source, self._document = self.parsed(document), document

    def objects(self, writer: StoreWriter, layout: Layout | None = None, **options: Any) -> Objects:
        """Return what writes the array's objects."""
        layout = self.source.layout if layout is None else layout
        # A remote store may still look at the bytes of a put that was given up.
        codec = object_codec(self.document, layout, reuse=isinstance(self.store, LocalStore))
        return Objects(writer, layout, self.snapshot, codec, noted=self._notes(layout), **options)

    def _notes(self, layout: Layout) -> Noted:
        """Return where the lengths of chunks are noted, for this layout."""
        if self._noted is None or not _noted_alike(self._noted.layout, layout):
            self._noted = Noted(layout)
        return self._noted

    @property
    def lengths(self) -> str | None:
        """The lengths of all chunks in shards, if all were put here, for readers to be told."""
        noted = self._noted
        alike = noted is not None and _noted_alike(noted.layout, self.source.layout)
        return noted.text() if noted is not None and alike else None

    def assign(self, selection: Selection | Points, values: Any) -> None:
        """Write values into the selected cells."""
        self.write(assign_values(self.source.layout, selection, values))

    def write(
        self, assignment: Assignment, *, edits: Iterable[ObjectEdit] | None = None, done: Done | None = None
    ) -> None:
        """Carry an assignment out; if it was of every cell, the array is complete from then on.

        Where the array gets another layout meanwhile, all of it is carried out again, on that one.
        """
        for _ in range(_TRIES):
            try:
                self._write(assignment, edits, done)
                return
            except _MovedError as moved:
                self._move_on(moved.document)
                edits = None
        raise ConflictError(f"{self.source.url!r} was given another layout again and again meanwhile; try again later")

    def _write(self, assignment: Assignment, edits: Iterable[ObjectEdit] | None, done: Done | None) -> None:
        if self.source.format != zarr_v3.FORMAT:
            self.objects(self.writer()).assign(assignment, edits, done)
            return
        self._look_sometimes()
        if assignment.pieces.layout is not self.source.layout:
            assignment, edits = assignment.on(self.source.layout), None
        try:
            self.objects(self.writer(), fresh=self._look_sometimes).assign(assignment, edits, done)
        except (IntegrityError, FormatError):
            self._look()  # objects of an old layout may be gone
            raise
        self._settle(assignment)

    def _settle(self, assignment: Assignment) -> None:
        """Make sure that what was written stays, also if the layout is being changed."""
        if assignment.covers and not self.source.layout.complete and self.seal is not None:
            self.take(self._tell(boxes_of(assignment), completes=True))
            return
        document = self._look()
        if change_of(document, self.key) is not None:
            self._tell(boxes_of(assignment), completes=False)
        seal = seal_of(document)
        if seal is not None and seal.lengths is not None:
            self._tell_no_lengths()

    def _tell_no_lengths(self) -> None:
        """Tell readers nothing any more of how long chunks are: some have changed."""
        change_document(
            self.writer(), self.key, lambda found, seal: (found, None if seal is None else replace(seal, lengths=None))
        )
        self.source = replace(self.source, layout=replace(self.source.layout, told=None))

    def _tell(self, boxes: list[Box], *, completes: bool) -> dict[str, Any]:
        """Say in the metadata that these cells were written, if it is being changed; and that all have been."""
        until_s = time.monotonic() + _CLOSING_S
        shape = self.source.layout.shape

        def edit(document: dict[str, Any], seal: Seal | None) -> tuple[dict[str, Any], Seal | None]:
            self._check_layout(document)
            change = change_of(document, self.key)
            if change is not None and change.target is not None and boxes:
                if change.closing and time.monotonic() < until_s and not is_gone(change.token):
                    raise _ClosingError(change)
                # Whoever closes it may be gone: those who write next shall not wait for it again.
                document = marked(document, replace(change.with_written(boxes), closing=False))
            if completes:
                self.check_shape(document, shape)
                seal = replace(seal or Seal(), complete=shape, copying=None, lengths=self.lengths)
            return document, seal

        pause_s = 0.002
        while True:
            try:
                return change_document(self.writer(), self.key, edit)
            except _ClosingError:
                time.sleep(random.uniform(0, pause_s))
                pause_s = min(0.1, 1.5 * pause_s)

    def _look(self) -> dict[str, Any]:
        """Return the metadata document as it is stored now; raise _MovedError if it is of another layout."""
        at_s = time.monotonic()
        reply = self.writer().get(self.key, limit_bytes=MAX_METADATA_BYTES, lookup=True)
        if reply is None:
            raise NotFoundError(f"array {self.source.url!r} is gone")
        document = parse_document(bytes(reply.data), self.key)
        check_seal(document, self.key)
        self._check_layout(document)
        self._looked_at_s = at_s
        return document

    def _look_sometimes(self) -> None:
        """The same, unless it was done a moment ago."""
        if self._document is None:
            self._learn()
        elif time.monotonic() - self._looked_at_s >= TRUST_S:
            self._look()

    def _check_layout(self, document: dict[str, Any]) -> None:
        if not same_layout(document, self.document):
            raise _MovedError(document)

    def _move_on(self, document: dict[str, Any]) -> None:
        """Go on with another layout of the same array. Its shape stays as it is here: a handle is a snapshot."""
        old, found = self.source.layout, self.parsed(document)
        if found.layout.dtype != old.dtype or len(found.layout.shape) != len(old.shape):
            raise ConflictError(f"{self.source.url!r} is another array by now; open it again")
        self.source = replace(found, layout=replace(found.layout, shape=old.shape))
        self._document, self._looked_at_s = document, time.monotonic()
        self.snapshot.etags.clear()

    def mark_complete(self) -> None:
        """Say in the metadata that every object has been written."""
        self.take(self._tell([], completes=True))

    def mark_copied(self, *, complete: bool) -> None:
        """Say in the metadata that all has been copied into the array; and, if so, that every object was written."""
        if complete:
            self.mark_complete()
            return
        document = change_document(
            self.writer(), self.key, lambda found, seal: (found, replace(seal or Seal(), copying=None))
        )
        self.take(document)

    def check_shape(self, document: Mapping[str, Any], shape: tuple[int, ...]) -> None:
        """Raise ConflictError if the stored array has another shape than it had when it was opened."""
        if document.get("shape") != list(shape):
            raise ConflictError(
                f"{self.source.url!r} has the shape {document.get('shape')} by now, here it has {list(shape)}; "
                "call refresh() and try again"
            )

    def change_attributes(self, sets: Mapping[str, Any], drops: Iterable[str]) -> Mapping[str, Any]:
        """Set and drop attributes; return all that there are then."""
        attrs = change_attributes(self.writer(), self.source.path, self.source.format, sets, drops)
        self.source = replace(self.source, attrs=attrs)
        self._document = None if self.source.format == zarr_v3.FORMAT else self._document
        return attrs

    def complete(self, done: Done | None = None) -> None:
        """Seal the array: write what is missing as fill values, and sign its metadata as it is stored now."""
        if self.source.format != zarr_v3.FORMAT:
            raise UnsupportedError(f"{self.source.url!r} is {self.source.format}: only Zarr v3 is sealed; hs.copy it")
        writer = self.writer()
        found = fetch_document(writer, self.key, checked=False)
        if found is None:
            raise NotFoundError(f"array {self.source.url!r} is gone")
        document, etag = found
        seal = seal_of(document) or Seal()
        self.take(sealed(document, replace(seal, complete=None)))
        check_count(self.source.layout)
        objects = self.objects(writer)
        objects.fill(self._incomplete(writer), done)
        self.sign(writer, etag, replace(seal, complete=self.source.layout.shape, copying=None, lengths=self.lengths))

    def sign(self, writer: StoreWriter, etag: str, seal: Seal) -> None:
        """Put the document, signed, over the version that it was read in."""
        document = sealed(self.document, seal)
        writer.put(self.key, dump(document), if_match=etag)
        self.take(document)

    def _incomplete(self, writer: StoreWriter) -> Iterator[tuple[int, ...]]:
        """Yield the places of objects that are not there, or lack a chunk that lies in the shape."""
        layout, there = self.source.layout, stored_objects(writer, self.source)
        for coords in product(*[range(count) for count in layout.object_grid]):
            if coords not in there or (layout.index is not None and self._lacks_chunk(writer, coords)):
                yield coords

    def _lacks_chunk(self, writer: StoreWriter, coords: tuple[int, ...]) -> bool:
        layout = self.source.layout
        key, index = layout.keys.key(coords), layout.index
        assert index is not None
        reply = writer.get(key, (0, index.nbytes) if index.location == "start" else -index.nbytes)
        if reply is None:
            return True
        table = parse_shard_index(reply.data, index, reply.object_nbytes, key)
        absent = [inner for inner, offset in enumerate(table.offsets.tolist()) if offset < 0]
        return any(prod([b - a for a, b in box_of_chunk(layout, coords, inner)]) for inner in absent)


class _MovedError(Exception):
    """The array has another layout than the one that cells were written in."""

    def __init__(self, document: dict[str, Any]) -> None:
        super().__init__("the layout was changed")
        self.document = document


class _ClosingError(Exception):
    """A change of layout is about to end."""

    def __init__(self, change: Change) -> None:
        super().__init__(change.token)


def _noted_alike(one: Layout, other: Layout) -> bool:
    a, b = [(each.keys, each.shape, each.chunks, each.object_shape) for each in (one, other)]
    return a == b


def _placed_alike(one: ArraySource, other: ArraySource) -> bool:
    """Whether cells lie in the same places of the same objects, encoded by the same codecs."""
    a, b = one.layout, other.layout
    names = [None if layout.decoder is None else layout.decoder.names for layout in (a, b)]
    same = (a.keys, a.chunks, a.object_shape, a.index, a.order, a.stored) == (
        b.keys, b.chunks, b.object_shape, b.index, b.order, b.stored,
    )  # fmt: skip
    return same and names[0] == names[1]


def stored_objects(writer: StoreWriter, source: ArraySource) -> set[tuple[int, ...]]:
    """Return the places of the objects that are stored, also outside of the shape."""
    keys = source.layout.keys
    if not isinstance(keys, ChunkKeys):
        raise InvalidInputError(f"{source.url!r} does not consist of objects of its own")
    found = (coords_of(keys, key, len(source.layout.shape)) for key, _ in writer.keys(source.path))
    return {coords for coords in found if coords is not None}


def coords_of(keys: ChunkKeys, key: str, ndim: int) -> tuple[int, ...] | None:
    """Return the place in the grid that a key names, None if it names no chunk.

    >>> coords_of(ChunkKeys("a/", "/", "c"), "a/c/0/3", 2), coords_of(ChunkKeys("a/", "/", "c"), "a/zarr.json", 2)
    ((0, 3), None)
    """
    parts = re.findall(r"\d+", key.removeprefix(keys.prefix))
    coords = tuple(map(int, parts)) if ndim else ()
    return coords if len(coords) == ndim and keys.key(coords) == key else None
