"""A Zarr group as a file: read and written, with notes on what Zarr has no words for."""

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from hyperslab.array import Array, Group
from hyperslab.errors import MetadataError, NotFoundError
from hyperslab.execute.write import StoreWriter
from hyperslab.formats.hdf5.attributes import Unreadable
from hyperslab.formats.zarr.create import clear_place
from hyperslab.h5.celltypes import CellType, form_of, noted_type
from hyperslab.h5.failures import WrongKindError
from hyperslab.h5.nodes import ArrayNode, GroupNode, Kept, Link, Node, TypeNode, join, split
from hyperslab.h5.notes import NOTES, from_json, note_of_type, notes_of, to_json, type_of_note, user_attributes

__all__ = ["ZarrTree"]


class ZarrTree:
    """The arrays and groups below an opened Zarr group."""

    def __init__(self, root: Group) -> None:
        self.root, self.url, self.writable = root, root.url, root.writable
        self.closed, self.file = False, None
        self._kept = Kept()
        # The names in groups, of a file that only this handle could change and that was opened to be read.
        self._names: dict[str, list[str]] = {}
        self._changing = threading.RLock()

    def open(self, path: str) -> Node:
        """Return what is stored at a path."""
        return self._kept.get(path) or self._kept.put(path, self._node(path, self._handle(path)))

    def names(self, path: str) -> list[str]:
        """Return the names in a group."""
        if self.writable or path not in self._names:
            group = self._group(path)
            self._names[path] = sorted({*group, *notes_of(group.source.attrs).get("links", {})})
        return self._names[path]

    def link(self, path: str) -> Link | None:
        """Return what the last name of a path is in its group."""
        above, name = split(path)
        try:
            group = self._group(above)
        except NotFoundError:
            return None
        found = notes_of(group.source.attrs).get("links", {}).get(name)
        if found is not None:
            return _link(found, name)
        try:
            self.open(path)
        except NotFoundError:
            return None
        return Link()

    # Changing

    def create_group(self, path: str, *, ordered: bool = False, dtype: np.dtype[Any] | None = None) -> Node:
        """Create a group, or with `dtype` a named type, and return it."""
        notes: dict[str, Any] = {"ordered": True} if ordered else {}
        if dtype is not None:
            notes["datatype"] = note_of_type(dtype)
        made = self.root.create_group(path, attrs={NOTES: notes} if notes else None)
        return self._kept.put(path, self._node(path, made))

    def create_array(
        self, path: str, shape: tuple[int, ...], kind: CellType, values: Any, notes: dict[str, Any], **settings: Any
    ) -> ArrayNode:
        """Create an array, with values if there are any (as they are stored), and return it."""
        form = form_of(kind)
        notes = {**notes, "form": form} if form else notes
        attrs = {NOTES: notes} if notes else None
        if values is None:
            made = self.root.create(path, (*shape, *kind.inner), kind.stored, attrs=attrs, **settings)
        else:
            made = self.root.save(path, np.asarray(values, dtype=kind.stored), attrs=attrs, **settings)
        node = self._kept.put(path, self._node(path, made))
        assert isinstance(node, ArrayNode)
        return node

    def copy_array(self, path: str, array: Array, attrs: Mapping[str, Any], *, chunked: bool = True) -> None:
        """Store an array's cells, part by part, in chunks like its own; with attributes, notes included."""
        sizes: dict[str, Any] = {}
        if chunked and array.shape:
            sizes = {"chunks": array.chunks, "shards": array.shards or False}
        self.root.save(path, array, attrs=attrs, fill_value=array.fill_value, dims=array.dims, **sizes)

    def widen(self, node: ArrayNode, stored: np.dtype[Any]) -> None:
        """Write an array anew with room for longer texts; until that is done there is a copy of it beside it."""
        array = node.cells
        assert isinstance(array, Array)
        beside, attrs = f"{node.path}.hyperslab-wider", dict(array.source.attrs)
        wide = np.asarray(array[...]).astype(stored)
        sizes = {"chunks": array.chunks, "shards": array.shards or False, "fill_value": array.fill_value}
        self.root.save(beside, wide, attrs=attrs, overwrite=True, **sizes)
        node.cells = self.root.save(node.path, wide, attrs=attrs, overwrite=True, **sizes)
        node.type = noted_type(form_of(node.type), stored)
        self._clear(beside)

    def delete(self, path: str) -> None:
        """Delete a link, or an array or group with all below it."""
        above, name = split(path)
        links = notes_of(self._group(above).source.attrs).get("links", {})
        if name in links:
            self._note(above, links={other: each for other, each in links.items() if other != name})
            return
        self.open(path)
        self._clear(path)
        self._kept.drop(path)

    def set_link(self, path: str, link: Link) -> None:
        """Make a soft or external link; the group that it is in must be there."""
        above, name = split(path)
        links = notes_of(self._group(above).source.attrs).get("links", {})
        self._note(above, links={**links, name: [link.kind, link.path, link.file]})

    def attributes(self, path: str) -> dict[str, Any]:
        """Return all attributes as they are stored, notes included."""
        return dict(self._handle(path).source.attrs)

    def _clear(self, path: str) -> None:
        writer = StoreWriter(self.root.session, self.root.store)
        clear_place(writer, join(self.root.source.path, path), f"{self.url}/{path}", overwrite=True)

    def _note(self, path: str, **notes: Any) -> None:
        group = self._group(path)
        with self._changing:
            group.attrs.update({NOTES: {**notes_of(group.source.attrs), **notes}})

    def _handle(self, path: str) -> Array | Group:
        node = self._kept.get(path)
        if isinstance(node, ArrayNode) and isinstance(node.cells, Array):
            return node.cells
        if node is not None and isinstance(node.attrs, ZarrAttrs):
            return node.attrs.handle
        return self.root[path] if path else self.root

    def _group(self, path: str) -> Group:
        node = self.open(path)
        if not isinstance(node, GroupNode) or not isinstance(node.attrs, ZarrAttrs):
            raise NotFoundError(f"{path!r} of {self.url!r} is no group, and holds nothing")
        assert isinstance(node.attrs.handle, Group)
        return node.attrs.handle

    def _node(self, path: str, handle: Array | Group) -> Node:
        notes, attrs = notes_of(handle.source.attrs), ZarrAttrs(handle, self._changing)
        if isinstance(handle, Group):
            if "datatype" in notes:
                return TypeNode(path, attrs, type_of_note(notes["datatype"]), path)
            return GroupNode(path, attrs, path)
        kind = noted_type(notes.get("form", {}), handle.dtype)
        if kind.inner and handle.shape[-len(kind.inner) :] != kind.inner:
            raise MetadataError(f"{handle.url!r} has the shape {handle.shape}, and cells noted as arrays {kind.inner}")
        node = ArrayNode(path, attrs, handle, kind, path, empty=bool(notes.get("empty")))
        attrs.node = node
        node.maxshape = _maxshape(notes, node.shape, handle)
        node.chunks = handle.chunks[: len(node.shape)] or None
        node.fill, node.dims = handle.fill_value, (handle.dims or ())[: len(node.shape)]
        decoder = handle.source.layout.decoder
        node.filters = {} if decoder is None else dict.fromkeys(decoder.names)
        return node


def _value(value: Any, note: Any) -> Any:
    """Return an attribute's value; one that is damaged does not keep the others from being read."""
    try:
        return from_json(value, note)
    except MetadataError as error:
        return Unreadable(str(error))


def _link(found: Any, name: str) -> Link:
    if not isinstance(found, list) or len(found) != 3 or not all(isinstance(each, str) for each in found):
        raise MetadataError(f"the link {name!r} is noted as {found!r:.80}, expected its kind, path and file")
    if found[0] not in ("soft", "external"):
        raise MetadataError(f"the link {name!r} is noted to be {found[0]!r:.80}, expected 'soft' or 'external'")
    return Link(*found)


def _maxshape(notes: Mapping[str, Any], shape: tuple[int, ...], handle: Array) -> tuple[int | None, ...]:
    """Return how far the array may grow: as noted; one of another program's as far as one likes."""
    found = notes.get("maxshape", [None] * len(shape))
    good = isinstance(found, list) and all(each is None or type(each) is int for each in found)
    if not good or len(found) != len(shape):
        raise MetadataError(f"{handle.url!r} has {len(shape)} axes and a note that they may grow to {found!r:.80}")
    return tuple(found)


class ZarrAttrs:
    """The attributes of a Zarr array or group."""

    def __init__(self, handle: Array | Group, changing: threading.RLock) -> None:
        self._handle, self._changing = handle, changing
        self.node: ArrayNode | None = None

    @property
    def handle(self) -> Array | Group:
        """What the attributes are of, as it was last written."""
        node = self.node
        return node.cells if node is not None and isinstance(node.cells, Array) else self._handle

    def read(self) -> dict[str, Any]:
        """Return all of them: sorted, or as they were made where that is noted."""
        attrs = self.handle.source.attrs
        notes, values = notes_of(attrs), user_attributes(attrs)
        names = list(values) if notes.get("ordered") else sorted(values)
        kinds = notes.get("values", {})
        return {name: _value(values[name], kinds.get(name)) for name in names}

    def store(self, name: str, value: Any, dtype: Any = None, shape: Any = None) -> None:
        """Store one."""
        if name == NOTES:
            raise WrongKindError(f"the attribute {NOTES!r} is kept for notes of our own; choose another name")
        plain, note = to_json(value, dtype, shape)
        with self._changing:
            notes = notes_of(self.handle.source.attrs)
            kinds = {other: each for other, each in notes.get("values", {}).items() if other != name}
            if note is not None:
                kinds[name] = note
            same = kinds == notes.get("values", {})
            self.handle.attrs.update({name: plain} | ({} if same else {NOTES: {**notes, "values": kinds}}))

    def drop(self, name: str) -> None:
        """Delete one."""
        del self.handle.attrs[name]
