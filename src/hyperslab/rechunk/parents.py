"""Groups above an array that carry its metadata inside of their own: they are to say what it says."""

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from hyperslab.errors import AccessError, MetadataError
from hyperslab.execute.write import StoreWriter
from hyperslab.formats.copying import Place
from hyperslab.formats.source import MAX_METADATA_BYTES, join, parse_document
from hyperslab.formats.zarr.change import same_layout
from hyperslab.formats.zarr.documents import change_document, fetch_document
from hyperslab.formats.zarr.seal import Seal
from hyperslab.store import LocalStore, Store

__all__ = ["update_parents"]

Document = dict[str, Any]

# Groups inside of groups.
_MOST_DEPTH = 64


def update_parents(place: Place) -> None:
    """Bring consolidated metadata of groups above an array up to date, where it has another layout for it."""
    for store, path, name in _above(place):
        writer, key = StoreWriter(place.session, store), join(path, "zarr.json")
        # One that cannot be written must not be passed over: whoever reads through it looks for old objects.
        if _is_old(_document(writer, key), name, place):
            _update(writer, key, name, place)


def _document(writer: StoreWriter, key: str) -> Document:
    """Return what may be the metadata of a group; nothing where nobody could read through it."""
    with suppress(AccessError, MetadataError):  # a folder that is none of ours
        reply = writer.get(key, limit_bytes=MAX_METADATA_BYTES, lookup=True)
        return {} if reply is None else parse_document(bytes(reply.data), key)
    return {}


def _update(writer: StoreWriter, key: str, name: str, place: Place) -> None:
    def edit(document: Document, seal: Seal | None) -> tuple[Document, Seal | None]:
        found = fetch_document(place.writer(), join(place.path, "zarr.json"))
        if found is None or name not in _members(document):
            return document, seal
        members = {**_members(document), name: found[0]}
        consolidated = {**document["consolidated_metadata"], "metadata": members}
        return {**document, "consolidated_metadata": consolidated}, seal

    change_document(writer, key, edit)


def _is_old(document: Document, name: str, place: Place) -> bool:
    entry = _members(document).get(name)
    if not isinstance(entry, dict):
        return False
    found = fetch_document(place.writer(), join(place.path, "zarr.json"))
    return found is not None and not same_layout(entry, found[0])


def _members(document: Document) -> Document:
    """Return the metadata of members by their paths; nothing where it is not consolidated."""
    consolidated = document.get("consolidated_metadata")
    members = consolidated.get("metadata") if isinstance(consolidated, dict) else None
    return members if isinstance(members, dict) else {}


def _above(place: Place) -> Iterator[tuple[Store, str, str]]:
    """Yield the places where groups above may be: store, path in it, and the path from there to the array."""
    parts = place.path.split("/") if place.path else []
    for n in range(len(parts) - 1, -1, -1)[:_MOST_DEPTH]:
        yield place.store, "/".join(parts[:n]), "/".join(parts[n:])
    if not isinstance(place.store, LocalStore):
        return
    here = place.store.root
    for _ in range(_MOST_DEPTH):
        above, name = os.path.split(here)
        if not name:
            return
        parts.insert(0, name)
        yield LocalStore(above), "", "/".join(parts)
        here = above
