"""Arrays and groups of reference sets as sources."""

from dataclasses import dataclass, replace
from typing import Any

from hyperslab.errors import InternalError, NotFoundError
from hyperslab.formats.references.json_set import open_json
from hyperslab.formats.references.parquet_set import open_parquet
from hyperslab.formats.references.sets import ReferenceSet
from hyperslab.formats.source import ArraySource, GroupSource, MetadataReader, join
from hyperslab.formats.zarr import v2
from hyperslab.layout import ChunkTable, References
from hyperslab.plan import Pieces

__all__ = ["FORMAT", "open_references"]

FORMAT = "kerchunk"


def open_references(
    reader: MetadataReader, url: str, key: str, path: str = "", *, folder: bool = False
) -> ArraySource | GroupSource | None:
    """Return what is at `path` of the references in the file `key`, or in that folder; None if there are none."""
    found: ReferenceSet | None = open_parquet(reader, key) if folder else open_json(reader, key)
    return None if found is None else _source(found, reader, url, path)


@dataclass(frozen=True, slots=True)
class ReferencedChunks:
    """The chunks of one array of a reference set. `has_fill` says whether its metadata names a fill value."""

    set: ReferenceSet
    path: str
    has_fill: bool

    def lookup(self, reader: MetadataReader, wanted: Pieces) -> References:
        """Return where the chunks of a read lie."""
        return self.set.references(reader, self.path, wanted)

    def table(self, reader: MetadataReader) -> ChunkTable:
        """There is none: references are looked up read by read."""
        raise InternalError("references have no table of all chunks")


@dataclass(frozen=True, slots=True)
class ReferencedMembers:
    """The arrays and groups below one group of a reference set."""

    set: ReferenceSet
    path: str

    def names(self, reader: MetadataReader) -> list[str]:
        """Return the names one level below the group, sorted."""
        lead = self.path + "/" if self.path else ""
        paths = [path[len(lead) :] for path in self.set.nodes(reader) if path.startswith(lead)]
        return sorted(path for path in paths if path and "/" not in path)

    def member(self, reader: MetadataReader, group: GroupSource, name: str) -> ArraySource | GroupSource:
        """Return the member `name`."""
        return _source(self.set, reader, group.url.rstrip("/") + "/" + name, join(self.path, name))


def _source(found: ReferenceSet, reader: MetadataReader, url: str, path: str) -> ArraySource | GroupSource:
    node = found.nodes(reader).get(path)
    if node is None:
        raise NotFoundError(f"the references in {found.key!r} have no array or group {path!r}")
    attrs: dict[str, Any] = node.get(".zattrs", {})
    if ".zarray" in node:
        array = v2.parse_array(node[".zarray"], attrs, url, path)
        chunks = ReferencedChunks(found, path, node[".zarray"].get("fill_value") is not None)
        return replace(array, path=join(found.key, path), format=FORMAT, chunks=chunks)
    if ".zgroup" in node:
        v2.parse_group(node[".zgroup"], attrs, url, path, None)
    inside = ReferencedMembers(found, path)
    return GroupSource(url, join(found.key, path), FORMAT, attrs, inside=inside)
