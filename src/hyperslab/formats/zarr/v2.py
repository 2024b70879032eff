"""Zarr version 2: `.zarray`, `.zgroup`, `.zattrs` and `.zmetadata` to layouts."""

from collections.abc import Mapping
from typing import Any

from hyperslab.errors import MetadataError, UnsupportedError
from hyperslab.formats.source import ArraySource, GroupSource, check_stored_name, join
from hyperslab.formats.zarr.codecs import Config, encoding_v2, named_codec
from hyperslab.formats.zarr.dtypes import parse_dtype_v2, parse_fill
from hyperslab.formats.zarr.metadata import check_chunks, lengths, shown
from hyperslab.layout.layout import ChunkKeys, Layout

__all__ = ["consolidated", "parse_array", "parse_group"]

FORMAT = "zarr2"


def parse_array(document: dict[str, Any], attrs: dict[str, Any], url: str, path: str) -> ArraySource:
    """Return the array that a `.zarray` and a `.zattrs` describe."""
    key = join(path, ".zarray")
    _check_version(document, key)
    missing = {"shape", "chunks", "dtype", "order"} - document.keys()
    if missing:
        raise MetadataError(f"{key!r} lacks {', '.join(sorted(missing))}")
    layout = _layout(document, path)
    return ArraySource(url, path, FORMAT, layout, attrs, _dimension_names(attrs, len(layout.shape)))


def parse_group(
    document: dict[str, Any],
    attrs: dict[str, Any],
    url: str,
    path: str,
    members: Mapping[str, dict[str, Any]] | None,
) -> GroupSource:
    """Return the group that a `.zgroup` and a `.zattrs` describe."""
    _check_version(document, join(path, ".zgroup"))
    return GroupSource(url, path, FORMAT, attrs, members)


def consolidated(document: dict[str, Any], key: str) -> dict[str, dict[str, Any]]:
    """Return, by path, what a `.zmetadata` holds: the documents of each node, under their names.

    The group itself has the path ''.
    """
    entries = document.get("metadata")
    if document.get("zarr_consolidated_format") != 1 or not isinstance(entries, dict):
        raise UnsupportedError(f"{key!r} is not consolidated metadata of version 1")
    members: dict[str, dict[str, Any]] = {}
    for name, entry in entries.items():
        path, _, leaf = name.rpartition("/")
        if leaf not in (".zarray", ".zgroup", ".zattrs") or not isinstance(entry, dict):
            raise MetadataError(f"{key!r} has {shown(name)}; expected objects named .zarray, .zgroup or .zattrs")
        if path:
            check_stored_name(path, key)
        members.setdefault(path, {})[leaf] = entry
    return members


def _layout(document: dict[str, Any], path: str) -> Layout:
    shape = lengths(document["shape"], "shape", least=0)
    chunks = lengths(document["chunks"], "chunks", least=1)
    dtype = parse_dtype_v2(document["dtype"])
    check_chunks(shape, chunks, dtype.itemsize)
    if document["order"] not in ("C", "F"):
        raise MetadataError(f"order is {shown(document['order'])}; expected 'C' or 'F'")
    separator = document.get("dimension_separator", ".")
    if separator not in (".", "/"):
        raise MetadataError(f"dimension_separator is {shown(separator)}; expected '.' or '/'")
    order = tuple(range(len(shape)))[:: 1 if document["order"] == "C" else -1]
    encoding = encoding_v2(_codecs(document), chunks=chunks, dtype=dtype, order=order)
    return Layout(
        shape=shape,
        dtype=dtype,
        chunks=chunks,
        keys=ChunkKeys(path + "/" if path else "", separator, ""),
        fill=parse_fill(document.get("fill_value"), dtype),
        stored=encoding.stored,
        order=encoding.order,
        decoder=encoding.decoder,
    )


def _codecs(document: dict[str, Any]) -> list[tuple[str, Config]]:
    filters, compressor = document.get("filters"), document.get("compressor")
    if not isinstance(filters, list | None):
        raise MetadataError(f"filters are {shown(filters)}; expected a list or null")
    specs = [*(filters or []), *([] if compressor is None else [compressor])]
    return [named_codec(spec, label="id") for spec in specs]


def _dimension_names(attrs: Mapping[str, Any], ndim: int) -> tuple[str | None, ...] | None:
    """Return the names of the axes that xarray keeps in an attribute, where they fit."""
    names = attrs.get("_ARRAY_DIMENSIONS")
    if isinstance(names, list) and len(names) == ndim and all(isinstance(name, str) for name in names):
        return tuple(names)
    return None


def _check_version(document: Mapping[str, Any], key: str) -> None:
    if document.get("zarr_format") != 2 or isinstance(document["zarr_format"], bool):
        found = shown(document.get("zarr_format"))
        raise UnsupportedError(f"{key!r} has zarr_format {found}; supported are 2 and 3")
