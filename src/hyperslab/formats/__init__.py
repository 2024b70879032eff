"""Formats: metadata to sources. The format is found out from what is stored."""

from dataclasses import replace
from typing import Any

from hyperslab.errors import NotFoundError, UnsupportedError
from hyperslab.formats.detect import FILE_SUFFIXES, HDF5_SUFFIXES, REFERENCE_FOLDERS, REFERENCE_SUFFIXES, refuse_file
from hyperslab.formats.npy import open_npy
from hyperslab.formats.source import (
    MAX_METADATA_BYTES,
    ArraySource,
    GroupSource,
    MetadataReader,
    check_name,
    join,
    load_document,
)
from hyperslab.formats.zarr import v2 as zarr_v2
from hyperslab.formats.zarr import v3 as zarr_v3
from hyperslab.layout import Layout, References
from hyperslab.plan import pieces_of
from hyperslab.selection import Points, Selection

__all__ = [
    "MAX_METADATA_BYTES",
    "ArraySource",
    "GroupSource",
    "MetadataReader",
    "locate_chunks",
    "member_names",
    "open_member",
    "open_source",
    "reopen",
    "virtual_source",
]


def open_source(reader: MetadataReader, url: str, path: str) -> ArraySource | GroupSource:
    """Return the array or group at `path`, a key of the store; '' is its root.

    Asks for as little as its name allows: for most arrays `zarr.json` alone.
    """
    path = path.strip("/")
    found = _open_revision(reader, url, path) or _open_references(reader, url, path)
    if found is not None:
        return found
    if path.lower().endswith(".npy") and (array := open_npy(reader, url, path)):
        return array
    inside = _inside_file(path)
    if inside and (found := _open_hdf5(reader, url, *inside)):
        return found
    if path.lower().endswith(tuple(FILE_SUFFIXES)):
        refuse_file(reader, path)
    found = _open_v3(reader, url, path) or _open_v2(reader, url, path)
    if found is None and path and not inside:
        found = open_npy(reader, url, path) or _open_hdf5(reader, url, path)
    found = found or _open_unnamed_references(reader, url, path)
    if found is None:
        found = _open_repository(reader, url, path)
    if found is None:
        refuse_file(reader, path)
        keys = [join(path, name) for name in ("zarr.json", ".zarray", ".zgroup")] + [path] * bool(path)
        raise NotFoundError(f"nothing that can be read at {url!r}: looked for {', '.join(keys)}")
    return found


def open_member(reader: MetadataReader, group: GroupSource, name: str) -> ArraySource | GroupSource:
    """Return the member `name` of a group; 'a/b' is a member of a member.

    Nothing is fetched where the group's metadata is consolidated.
    """
    check_name(name)
    if group.inside is not None:
        return group.inside.member(reader, group, name)
    if group.part is not None:
        from hyperslab.formats.hdf5 import source as hdf5

        return hdf5.open_member(reader, group, name)
    url, path = group.url.rstrip("/") + "/" + name, join(group.path, name)
    if group.members is not None:
        return _from_consolidated(group, name, url, path)
    opener = _open_v3 if group.format == zarr_v3.FORMAT else _open_v2
    found = opener(reader, url, path)
    if found is None:
        raise NotFoundError(f"group {group.url!r} has no member {name!r}")
    return found


def member_names(reader: MetadataReader, group: GroupSource) -> list[str]:
    """Return the names one level below a group, sorted. Without consolidated metadata each is looked at."""
    if group.inside is not None:
        return group.inside.names(reader)
    if group.part is not None:
        from hyperslab.formats.hdf5 import source as hdf5

        return hdf5.member_names(reader, group)
    if group.members is not None:
        return sorted(name for name in group.members if name and "/" not in name)
    leaves = ("zarr.json",) if group.format == zarr_v3.FORMAT else (".zarray", ".zgroup")
    names = [name for name in reader.children(group.path) if not name.startswith(".") and name != "zarr.json"]
    return [
        name for name in sorted(names) if any(reader.get(join(group.path, name, leaf)) is not None for leaf in leaves)
    ]


def reopen(reader: MetadataReader, source: ArraySource | GroupSource) -> ArraySource | GroupSource:
    """Return the array or group as it is stored now."""
    part = source.part
    if source.format == "virtualizarr":  # which is in memory, and nowhere else
        return source
    if part is None:
        return open_source(reader, source.url, source.path)
    found = _open_hdf5(reader, source.url, part.key, part.path)
    if found is None:
        raise NotFoundError(f"{source.url!r} is not there any more")
    return found


def virtual_source(given: Any) -> ArraySource | GroupSource | None:
    """Return the source of something that VirtualiZarr made; None if it is something else, such as a URL."""
    if not type(given).__module__.startswith(("virtualizarr.", "xarray.")):
        return None
    from hyperslab.formats.references import virtual

    return virtual.virtual_source(given)


def locate_chunks(
    reader: MetadataReader, source: ArraySource, selection: Selection | Points
) -> tuple[ArraySource, Layout]:
    """Return the layout by which a selection can be planned; and the source, which may have learned from it.

    Where the chunks lie may not have been read yet; for a few of them all of it may not have to be.
    """
    if source.chunks is None:
        return source, source.layout
    found = source.chunks.lookup(reader, pieces_of(source.layout, selection))
    if isinstance(found, References):
        if source.layout.index is not None and not found.in_shards:
            raise UnsupportedError(f"{source.url!r} has shards that are referred to; only chunks can be")
        return source, replace(source.layout, references=found, index=None)
    if found is not None:
        return source, replace(source.layout, table=found)
    layout = replace(source.layout, table=source.chunks.table(reader))
    return replace(source, layout=layout, chunks=None), layout


def _open_hdf5(reader: MetadataReader, url: str, key: str, path: str = "") -> ArraySource | GroupSource | None:
    """Return the dataset or group at `path` of the file `key`; None if there is no such file or it is no HDF5."""
    # Imported here, as below: HDF5's many parts take a tenth of a second, which Zarr alone need not spend.
    from hyperslab.formats.hdf5 import source as hdf5

    return hdf5.open_hdf5(reader, url, key, path)


def _open_references(reader: MetadataReader, url: str, path: str) -> ArraySource | GroupSource | None:
    """Return what is at a path that leads into references, by the name of their file or folder."""
    inside = _inside_file(path, (*REFERENCE_SUFFIXES, *REFERENCE_FOLDERS))
    if inside is None:
        return None
    from hyperslab.formats.references.source import open_references

    folder = inside[0].lower().endswith(REFERENCE_FOLDERS)
    return open_references(reader, url, *inside, folder=folder)


def _open_unnamed_references(reader: MetadataReader, url: str, path: str) -> ArraySource | GroupSource | None:
    """Return the references in a file or folder whose name does not say that they are there."""
    from hyperslab.formats.references.source import open_references

    if path and (reader.get_range(path, 0, 1) or b"") == b"{" and (found := open_references(reader, url, path)):
        return found
    return open_references(reader, url, path, folder=True)


def _open_revision(reader: MetadataReader, url: str, path: str) -> ArraySource | GroupSource | None:
    """Return what a path names in a version of an Icechunk repository (`repo@tag=v1/a`); None if it names none."""
    if "@" not in path:
        return None
    from hyperslab.formats.icechunk import source as icechunk

    return icechunk.open_revision(reader, url, path)


def _open_repository(reader: MetadataReader, url: str, path: str) -> ArraySource | GroupSource | None:
    """Return what a path leads to in an Icechunk repository, at the head of `main`; None if it leads into none."""
    from hyperslab.formats.icechunk import source as icechunk

    return icechunk.open_main(reader, url, path)


def _inside_file(path: str, suffixes: tuple[str, ...] = HDF5_SUFFIXES) -> tuple[str, str] | None:
    """Return the key of the file and the path in it, if the name of a part of `path` says that it is a file.

    >>> _inside_file("run/a.h5/fields/t")
    ('run/a.h5', 'fields/t')
    """
    parts = path.split("/")
    for n, part in enumerate(parts, 1):
        if part.lower().endswith(suffixes):
            return "/".join(parts[:n]), "/".join(parts[n:])
    return None


def _open_v3(reader: MetadataReader, url: str, path: str) -> ArraySource | GroupSource | None:
    document = load_document(reader, join(path, "zarr.json"))
    return None if document is None else zarr_v3.parse_node(document, url, path)


def _open_v2(reader: MetadataReader, url: str, path: str) -> ArraySource | GroupSource | None:
    array = load_document(reader, join(path, ".zarray"))
    if array is not None:
        return zarr_v2.parse_array(array, load_document(reader, join(path, ".zattrs")) or {}, url, path)
    group = load_document(reader, join(path, ".zgroup"))
    if group is None:
        return None
    key = join(path, ".zmetadata")
    whole = load_document(reader, key)
    if whole is None:
        return zarr_v2.parse_group(group, load_document(reader, join(path, ".zattrs")) or {}, url, path, None)
    members = zarr_v2.consolidated(whole, key)
    return zarr_v2.parse_group(group, members.pop("", {}).get(".zattrs", {}), url, path, members)


def _from_consolidated(group: GroupSource, name: str, url: str, path: str) -> ArraySource | GroupSource:
    assert group.members is not None
    entry = group.members.get(name)
    if entry is None:
        raise NotFoundError(f"group {group.url!r} has no member {name!r}")
    lead = name + "/"
    below = {other.removeprefix(lead): each for other, each in group.members.items() if other.startswith(lead)}
    if group.format == zarr_v3.FORMAT:
        return zarr_v3.parse_node(entry, url, path, members=below)
    attrs: dict[str, Any] = entry.get(".zattrs", {})
    if ".zarray" in entry:
        return zarr_v2.parse_array(entry[".zarray"], attrs, url, path)
    return zarr_v2.parse_group(entry.get(".zgroup", {}), attrs, url, path, below)
