"""What an array's metadata is to say after its layout was changed in place.

The objects of the new layout lie beside those of the old one, so they need other names. Zarr knows four ways to name
them; each change takes the next one. So a handle of an old layout, whose objects are swept away one day, finds nothing
under its names for a long time, rather than objects of another layout.
"""

from collections.abc import Mapping
from typing import Any

from hyperslab.errors import InvalidInputError, UnsupportedError
from hyperslab.execute import StoreReader
from hyperslab.execute.write import StoreWriter
from hyperslab.formats import open_source
from hyperslab.formats.copying import Place
from hyperslab.formats.source import ArraySource, join
from hyperslab.formats.zarr.array import coords_of
from hyperslab.formats.zarr.change import layout_of
from hyperslab.formats.zarr.compression import as_now
from hyperslab.formats.zarr.create import NewArray, describe_array
from hyperslab.formats.zarr.documents import fetch_document
from hyperslab.formats.zarr.v3 import FORMAT, parse_node
from hyperslab.layout import ChunkKeys

__all__ = ["fetch_array", "is_left_over", "new_layout", "source_of"]

Document = dict[str, Any]

_ENCODINGS = (("default", "/"), ("default", "."), ("v2", "/"), ("v2", "."))


def fetch_array(writer: StoreWriter, place: Place) -> tuple[Document, str]:
    """Return the metadata document of the Zarr v3 array or group at a place, and its version."""
    found = fetch_document(writer, join(place.path, "zarr.json"))
    if found is not None:
        return found
    source = open_source(StoreReader(place.session, place.store), place.url, place.path)
    raise UnsupportedError(
        f"{place.url!r} is {source.format}: only the layout of {FORMAT} is changed in place; hs.rechunk(url, other) "
        "writes it to another place"
    )


def source_of(document: Document, place: Place) -> ArraySource:
    """Return the array that a document describes; a group is refused."""
    source = parse_node(document, place.url, place.path)
    if not isinstance(source, ArraySource):
        raise InvalidInputError(f"{place.url!r} is a group; change the layout of its arrays one by one")
    return source


def new_layout(document: Document, source: ArraySource, settings: Mapping[str, Any]) -> Document:
    """Return the fields of the metadata that say where cells lie, as they are to become.

    Where they are as they are to be already, the names stay, too.
    """
    layout = source.layout
    chosen = as_now(settings, source.compression)
    new = describe_array(source.url, NewArray(layout.shape, layout.dtype, fill_value=layout.fill[()], **chosen))
    target = {**layout_of(new), "chunk_key_encoding": document["chunk_key_encoding"]}
    if target == layout_of(document):
        return target
    return {**target, "chunk_key_encoding": _next_encoding(_keys_of(source), len(layout.shape))}


def is_left_over(source: ArraySource, key: str) -> bool:
    """Whether a key names an object of this array in another layout than its present one."""
    keys, ndim = _keys_of(source), len(source.layout.shape)
    if coords_of(keys, key, ndim) is not None:
        return False
    others = (ChunkKeys(keys.prefix, separator, _lead(name)) for name, separator in _ENCODINGS)
    return any(coords_of(other, key, ndim) is not None for other in others)


def _keys_of(source: ArraySource) -> ChunkKeys:
    keys = source.layout.keys
    if not isinstance(keys, ChunkKeys):
        raise InvalidInputError(f"{source.url!r} does not consist of objects of its own")
    return keys


def _next_encoding(keys: ChunkKeys, ndim: int) -> Document:
    """Return the way to name objects that follows the present one, and does give other names."""
    first = (0,) * ndim
    names = [ChunkKeys(keys.prefix, separator, _lead(name)) for name, separator in _ENCODINGS]
    here = next(at for at, each in enumerate(names) if (each.separator, each.lead) == (keys.separator, keys.lead))
    order = [(here + step) % len(names) for step in range(1, len(names))]
    chosen = next(at for at in order if names[at].key(first) != keys.key(first))
    name, separator = _ENCODINGS[chosen]
    return {"name": name, "configuration": {"separator": separator}}


def _lead(name: str) -> str:
    return "c" if name == "default" else ""
