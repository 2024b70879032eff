"""What VirtualiZarr makes of files, as sources: manifests of chunks, in its stores or in datasets of xarray."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hyperslab.errors import InternalError, InvalidInputError, NotFoundError, UnsupportedError
from hyperslab.formats.references.entries import target_name
from hyperslab.formats.source import ArraySource, GroupSource, MetadataReader, join
from hyperslab.formats.zarr import v3
from hyperslab.layout import ChunkKeys, ChunkTable, Layout, Place, References, numbers_of
from hyperslab.plan import Pieces

__all__ = ["FORMAT", "URL", "virtual_source"]

FORMAT = "virtualizarr"
# What has no place of its own is called so.
URL = "virtual"

# Other names for codecs that are known.
_SAME_CODEC = {"imagecodecs_zstd": {"name": "zstd", "configuration": {"level": 0, "checksum": False}}}


def virtual_source(given: Any) -> ArraySource | GroupSource | None:
    """Return the source of a ManifestStore, ManifestGroup or ManifestArray, or of an xarray object that holds such.

    None if it is something else.
    """
    node = _node_of(given)
    if node is None:
        return None
    if isinstance(node, _Group):
        return GroupSource(URL, "", FORMAT, node.attrs, inside=VirtualMembers(node))
    return _array(node, URL, "")


@dataclass(frozen=True, slots=True, eq=False)
class _Array:
    """An array: a ManifestArray, or cells that are in memory already."""

    cells: Any
    attrs: Mapping[str, Any]
    dims: tuple[str | None, ...] | None


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    attrs: Mapping[str, Any]
    members: dict[str, "_Array | _Group"] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class VirtualMembers:
    """The arrays and groups of a group."""

    group: _Group

    def names(self, reader: MetadataReader) -> list[str]:
        """Return the names one level below the group, sorted."""
        return sorted(self.group.members)

    def member(self, reader: MetadataReader, group: GroupSource, name: str) -> ArraySource | GroupSource:
        """Return the member `name`."""
        node: _Array | _Group = self.group
        for part in name.split("/"):
            found = node.members.get(part) if isinstance(node, _Group) else None
            if found is None:
                raise NotFoundError(f"group {group.url!r} has no member {name!r}")
            node = found
        url, path = group.url.rstrip("/") + "/" + name, join(group.path, name)
        if isinstance(node, _Group):
            return GroupSource(url, path, FORMAT, node.attrs, inside=VirtualMembers(node))
        return _array(node, url, path)


@dataclass(frozen=True, slots=True, eq=False)
class VirtualChunks:
    """The chunks of an array, as its manifest has them; of an array in memory, all of it."""

    cells: Any

    def lookup(self, reader: MetadataReader, wanted: Pieces) -> References:
        """Return where the chunks of a read lie."""
        chunks = list(wanted.chunks())
        numbers = numbers_of(wanted.layout.grid, chunks).tolist()
        if isinstance(self.cells, np.ndarray):
            return References.of(dict.fromkeys(numbers, self.cells.tobytes()))
        manifest, places = self.cells.manifest, dict[int, Place]()
        for number, chunk in zip(numbers, chunks, strict=True):
            entry = manifest.get_entry(chunk)
            if entry is not None:
                places[number] = target_name(str(entry["path"]), ""), int(entry["offset"]), int(entry["length"])
        return References.of(places)

    def table(self, reader: MetadataReader) -> ChunkTable:
        """There is none: manifests are looked up read by read."""
        raise InternalError("manifests have no table of all chunks")


def _node_of(given: Any) -> "_Array | _Group | None":
    """Return the tree of something that VirtualiZarr made; None if it did not."""
    kind = type(given).__name__
    if not type(given).__module__.startswith(("virtualizarr.", "xarray.")):
        return None
    if kind == "ManifestStore":
        return _node_of(given._group)
    if kind == "ManifestGroup":
        found = {name: _node_of(each) for name, each in (*given.arrays.items(), *given.groups.items())}
        return _Group(given.metadata.attributes, {name: each for name, each in found.items() if each is not None})
    if kind == "ManifestArray":
        return _Array(given, given.metadata.attributes, given.metadata.dimension_names)
    if kind in ("Dataset", "DatasetView"):
        return _Group(given.attrs, {str(name): _variable(each) for name, each in given.variables.items()})
    if kind == "DataTree":
        found = {str(name): _node_of(each) for name, each in (("", given.dataset), *given.children.items())}
        top = found.pop("")
        own = top.members if isinstance(top, _Group) else {}
        return _Group(given.attrs, own | {name: each for name, each in found.items() if each is not None})
    if kind in ("DataArray", "Variable"):
        return _variable(given.variable if kind == "DataArray" else given)
    return None


def _variable(variable: Any) -> _Array:
    cells = variable.data
    if type(cells).__name__ != "ManifestArray":
        cells = np.asarray(cells)
    return _Array(cells, variable.attrs, tuple(map(str, variable.dims)))


def _array(node: _Array, url: str, path: str) -> ArraySource:
    if isinstance(node.cells, np.ndarray):
        cells = np.ascontiguousarray(node.cells).reshape(node.cells.shape)
        return ArraySource(
            url, path, FORMAT, _layout_in_memory(cells, url), node.attrs, node.dims, chunks=VirtualChunks(cells)
        )
    from zarr.core.buffer import default_buffer_prototype

    document = json.loads(node.cells.metadata.to_buffer_dict(default_buffer_prototype())["zarr.json"].to_bytes())
    document["codecs"] = [_SAME_CODEC.get(each.get("name"), each) for each in document["codecs"]]
    # The manifest's own names and attributes; those of a dataset may be others.
    source = v3.parse_node(document | {"attributes": {}, "dimension_names": None}, url, path)
    if not isinstance(source, ArraySource):
        raise InvalidInputError(f"{url!r} is no array; expected one of VirtualiZarr")
    chunks = VirtualChunks(node.cells)
    return replace(source, format=FORMAT, attrs=node.attrs, dimension_names=node.dims, chunks=chunks)


def _layout_in_memory(cells: np.ndarray[Any, Any], url: str) -> Layout:
    if cells.dtype.hasobject:
        raise UnsupportedError(f"{url!r} holds Python objects, which are in memory already; use them as they are")
    return Layout(
        shape=cells.shape, dtype=cells.dtype, chunks=tuple([max(1, n) for n in cells.shape]),
        keys=ChunkKeys("", "/", "c"), fill=np.zeros((), cells.dtype), stored=cells.dtype,
        order=tuple(range(cells.ndim)),
    )  # fmt: skip
