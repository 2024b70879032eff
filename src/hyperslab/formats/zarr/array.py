"""A Zarr array that can be changed: cells, attributes, completeness. What changes its shape is in `zarr_shape`."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

from hyperslab.errors import ConflictError, InvalidInputError, NotFoundError, UnsupportedError
from hyperslab.execute import Session, Snapshot
from hyperslab.execute.write import StoreWriter
from hyperslab.formats.source import ArraySource, join
from hyperslab.formats.zarr import v2 as zarr_v2
from hyperslab.formats.zarr import v3 as zarr_v3
from hyperslab.formats.zarr.assignment import Assignment, assign_values
from hyperslab.formats.zarr.documents import change_attributes, change_document, dump, fetch_document
from hyperslab.formats.zarr.objects import box_of_chunk, object_codec
from hyperslab.formats.zarr.seal import Seal, check_seal, seal_of, sealed
from hyperslab.formats.zarr.write import ObjectEdit, Objects, check_count, object_grid
from hyperslab.layout import ChunkKeys, Layout
from hyperslab.layout.shards import parse_shard_index
from hyperslab.selection import Points, Selection
from hyperslab.store import LocalStore, Store

__all__ = ["Done", "ZarrArray", "check_format", "coords_of", "stored_objects"]

Done = Callable[[int], None]


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

    @property
    def key(self) -> str:
        """The key of the array's metadata document."""
        return join(self.source.path, "zarr.json" if self.source.format == zarr_v3.FORMAT else ".zarray")

    @property
    def document(self) -> dict[str, Any]:
        """The metadata document, as it was when it was first needed or last changed here."""
        if self._document is None:
            self._document = self.fetch()
        return self._document

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
        return Objects(writer, layout, self.snapshot, codec, **options)

    def assign(self, selection: Selection | Points, values: Any) -> None:
        """Write values into the selected cells."""
        self.write(assign_values(self.source.layout, selection, values))

    def write(
        self, assignment: Assignment, *, edits: Iterable[ObjectEdit] | None = None, done: Done | None = None
    ) -> None:
        """Carry an assignment out; if it was of every cell, the array is complete from then on."""
        self.objects(self.writer()).assign(assignment, edits, done)
        if assignment.covers and not self.source.layout.complete and self.seal is not None:
            self.mark_complete()

    def mark_complete(self) -> None:
        """Say in the metadata that every object has been written."""
        shape = self.source.layout.shape

        def edit(document: dict[str, Any], seal: Seal | None) -> tuple[dict[str, Any], Seal | None]:
            self.check_shape(document, shape)
            return document, replace(seal or Seal(), complete=shape, copying=None)

        self.take(change_document(self.writer(), self.key, edit))

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
        self.sign(writer, etag, replace(seal, complete=self.source.layout.shape, copying=None))

    def sign(self, writer: StoreWriter, etag: str, seal: Seal) -> None:
        """Put the document, signed, over the version that it was read in."""
        document = sealed(self.document, seal)
        writer.put(self.key, dump(document), if_match=etag)
        self.take(document)

    def _incomplete(self, writer: StoreWriter) -> Iterator[tuple[int, ...]]:
        """Yield the places of objects that are not there, or lack a chunk that lies in the shape."""
        layout, there = self.source.layout, stored_objects(writer, self.source)
        for coords in product(*[range(count) for count in object_grid(layout)]):
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
