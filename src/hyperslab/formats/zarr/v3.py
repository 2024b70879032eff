"""Zarr version 3: `zarr.json` to layouts."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import prod
from typing import Any, Literal

from hyperslab.errors import MetadataError, UnsupportedError
from hyperslab.formats.source import ArraySource, GroupSource, check_stored_name, join
from hyperslab.formats.zarr.change import user_attributes
from hyperslab.formats.zarr.codecs import Config, Encoding, encoding_v3, named_codec
from hyperslab.formats.zarr.compression import written_anew
from hyperslab.formats.zarr.dtypes import DType, parse_dtype_v3, parse_fill
from hyperslab.formats.zarr.metadata import attributes, check_chunks, dimension_names, lengths, shown
from hyperslab.formats.zarr.seal import Seal, check_seal
from hyperslab.layout.layout import ChunkKeys, Layout, ShardIndex
from hyperslab.layout.told import ToldTables

__all__ = ["parse_node"]

FORMAT = "zarr3"

_NEEDED_FIELDS = {"shape", "data_type", "chunk_grid", "chunk_key_encoding", "fill_value", "codecs"}
_ARRAY_FIELDS = frozenset(
    ["zarr_format", "node_type", "attributes", "storage_transformers", "dimension_names", *_NEEDED_FIELDS]
)
_GROUP_FIELDS = frozenset(["zarr_format", "node_type", "attributes", "consolidated_metadata"])
_MAX_INDEX_BYTES = 2**28


def parse_node(
    document: dict[str, Any], url: str, path: str, *, members: Mapping[str, dict[str, Any]] | None = None
) -> ArraySource | GroupSource:
    """Return the array or group that a `zarr.json` describes.

    `members`, where given, is the consolidated metadata of a group above, cut down to this one.
    """
    key = join(path, "zarr.json")
    if document.get("zarr_format") != 3 or isinstance(document["zarr_format"], bool):
        found = shown(document.get("zarr_format"))
        raise UnsupportedError(f"{key!r} has zarr_format {found}; supported are 2 and 3")
    kind = document.get("node_type")
    seal = check_seal(document, key)
    if kind == "array":
        return _array(document, url, path, key, seal)
    if kind == "group":
        _check_extensions(document, _GROUP_FIELDS, key)
        if members is None:
            members = _consolidated(document, key)
        return GroupSource(url, path, FORMAT, _attributes(document, key), members)
    raise MetadataError(f"{key!r} has node_type {shown(kind)}; expected 'array' or 'group'")


def _array(document: dict[str, Any], url: str, path: str, key: str, seal: Seal | None) -> ArraySource:
    missing = _NEEDED_FIELDS - document.keys()
    if missing:
        raise MetadataError(f"{key!r} lacks {', '.join(sorted(missing))}")
    _check_extensions(document, _ARRAY_FIELDS, key)
    if document.get("storage_transformers"):
        raise UnsupportedError(f"{key!r} has storage transformers; none are supported")
    layout = _layout(document, path)
    if seal is not None and seal.complete == layout.shape:
        layout = replace(layout, complete=True, told=_told(layout, seal))
    return ArraySource(
        url,
        path,
        FORMAT,
        layout,
        _attributes(document, key),
        dimension_names(document.get("dimension_names"), len(layout.shape), key),
        compression=written_anew(document),
    )


def _told(layout: Layout, seal: Seal) -> ToldTables | None:
    if layout.index is None or seal.lengths is None:
        return None
    return ToldTables(seal.lengths, layout.object_grid, layout.index)


def _attributes(document: dict[str, Any], key: str) -> Mapping[str, Any]:
    """Return the user's attributes, the seal not among them."""
    attributes(document, key)
    return user_attributes(document)


def _layout(document: dict[str, Any], path: str) -> Layout:
    shape = lengths(document["shape"], "shape", least=0)
    dtype = parse_dtype_v3(document["data_type"])
    object_shape = _grid(document["chunk_grid"])
    if len(object_shape) != len(shape):
        raise MetadataError(f"the array has {len(shape)} axes and its chunks {len(object_shape)}")
    chunks, encoding, index = _encoding(document["codecs"], object_shape, dtype)
    check_chunks(shape, chunks, dtype.itemsize)
    return Layout(
        shape=shape,
        dtype=dtype,
        chunks=chunks,
        keys=_keys(document["chunk_key_encoding"], path),
        fill=_fill(document["fill_value"], dtype),
        stored=encoding.stored,
        order=encoding.order,
        decoder=encoding.decoder,
        object_shape=object_shape,
        index=index,
    )


def _fill(value: Any, dtype: DType) -> Any:
    if value is None:
        raise MetadataError("the fill value is null; Zarr v3 needs one")
    return parse_fill(value, dtype)


def _grid(spec: Any) -> tuple[int, ...]:
    name, config = named_codec(spec)
    if name != "regular":
        raise UnsupportedError(f"chunk grid {shown(name)} is not supported; expected 'regular'")
    return lengths(config.get("chunk_shape"), "chunk_shape", least=1)


def _keys(spec: Any, path: str) -> ChunkKeys:
    name, config = named_codec(spec)
    if name not in ("default", "v2"):
        raise UnsupportedError(f"chunk key encoding {shown(name)} is not supported; 'default' and 'v2' are")
    separator = config.get("separator", "/" if name == "default" else ".")
    if separator not in ("/", "."):
        raise MetadataError(f"chunk keys have the separator {shown(separator)}; expected '/' or '.'")
    return ChunkKeys(path + "/" if path else "", separator, "c" if name == "default" else "")


def _encoding(
    specs: Any, object_shape: tuple[int, ...], dtype: DType
) -> tuple[tuple[int, ...], Encoding, ShardIndex | None]:
    """Return the shape of chunks, their encoding and, for shards, the form of the index."""
    codecs = _codecs(specs)
    shards = [config for name, config in codecs if name == "sharding_indexed"]
    if not shards:
        check_chunks(object_shape, object_shape, dtype.itemsize)
        return object_shape, encoding_v3(codecs, chunks=object_shape, dtype=dtype), None
    if len(codecs) > 1:
        raise UnsupportedError("codec 'sharding_indexed' together with other codecs is not supported")
    config = shards[0]
    chunks = lengths(config.get("chunk_shape"), "the chunk_shape of 'sharding_indexed'", least=1)
    check_chunks(object_shape, chunks, dtype.itemsize)
    if any(whole % part for whole, part in zip(object_shape, chunks, strict=True)):
        raise MetadataError(f"shards of {object_shape} cannot be cut into chunks of {chunks}")
    inner = _codecs(config.get("codecs"))
    if any(name == "sharding_indexed" for name, _ in inner):
        raise UnsupportedError("shards inside of shards are not supported")
    return chunks, encoding_v3(inner, chunks=chunks, dtype=dtype), _index(config, object_shape, chunks)


def _index(config: Config, object_shape: tuple[int, ...], chunks: tuple[int, ...]) -> ShardIndex:
    codecs = _codecs(config.get("index_codecs"))
    names = [name for name, _ in codecs]
    if names not in (["bytes"], ["bytes", "crc32c"]) or codecs[0][1].get("endian", "little") != "little":
        raise UnsupportedError(f"index codecs {shown(codecs)} are not supported; little-endian bytes, crc32c are")
    location: Literal["start", "end"] | Any = config.get("index_location", "end")
    if location not in ("start", "end"):
        raise MetadataError(f"the index of a shard is at {shown(location)}; expected 'start' or 'end'")
    count = prod(whole // part for whole, part in zip(object_shape, chunks, strict=True))
    if 16 * count > _MAX_INDEX_BYTES:
        most = _MAX_INDEX_BYTES // 16
        raise MetadataError(f"the index of a shard would list {count} chunks; at most {most} can be read")
    return ShardIndex(count, location, "crc32c" in names)


def _codecs(specs: Any) -> list[tuple[str, Config]]:
    if not isinstance(specs, list) or not specs:
        raise MetadataError(f"codecs are {shown(specs)}; expected a list of at least one")
    return [named_codec(spec) for spec in specs]


def _check_extensions(document: Mapping[str, Any], known: Iterable[str], key: str) -> None:
    for name in document.keys() - set(known):
        extension = document[name]
        if not isinstance(extension, dict) or extension.get("must_understand") is not False:
            raise UnsupportedError(f"{key!r} has the extension {shown(name)}, which is not supported")


def _consolidated(document: Mapping[str, Any], key: str) -> dict[str, dict[str, Any]] | None:
    """Return the metadata of all members, by path, that a group carries inside of its own."""
    consolidated = document.get("consolidated_metadata")
    if consolidated is None:
        return None
    if not isinstance(consolidated, dict) or not isinstance(consolidated.get("metadata"), dict):
        raise MetadataError(f"the consolidated metadata in {key!r} is not an object with 'metadata'")
    if consolidated.get("kind", "inline") != "inline":
        return None
    members = consolidated["metadata"]
    for name, member in members.items():
        if not isinstance(member, dict):
            raise MetadataError(f"the consolidated metadata in {key!r} has {shown(member)} for {shown(name)}")
        check_stored_name(name, key)
    return dict(members)
