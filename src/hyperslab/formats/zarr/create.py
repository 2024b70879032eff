"""New arrays and groups: zarr-python makes their metadata, which is sealed on its way through our store."""

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np

from hyperslab.errors import ConflictError, HyperslabError, InvalidInputError, UnsupportedError
from hyperslab.execute.write import StoreWriter
from hyperslab.formats.source import ArraySource, GroupSource, join, parse_document
from hyperslab.formats.zarr.compression import parse_compressor, zarr_codec
from hyperslab.formats.zarr.documents import plain_attributes
from hyperslab.formats.zarr.metadata import MAX_LENGTH, MAX_NDIM
from hyperslab.formats.zarr.seal import Seal
from hyperslab.formats.zarr.sizes import LONE_CHUNK_BYTES, OBJECT_BYTES, choose_sizes
from hyperslab.formats.zarr.v3 import parse_node
from hyperslab.layout.compression import DEFAULT, MOST_BLOSC_BYTES, Compression

__all__ = [
    "DOCUMENTS",
    "LayoutName",
    "NewArray",
    "check_size",
    "clear_place",
    "create_array",
    "create_group",
    "describe_array",
    "shape_and_dtype",
]

LayoutName = Literal["default", "plain"]

DOCUMENTS = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")
# The keys of Zarr's documents and chunks: only these are ever deleted.
_OURS = re.compile(r"(?:^|/)(?:zarr\.json|\.zarray|\.zgroup|\.zattrs|\.zmetadata|c(?:[/.]\d+)*|\d+(?:[./]\d+)*)$")


@dataclass(frozen=True, slots=True)
class NewArray:
    """What an array to be created is to be like; what is None is chosen."""

    shape: Any
    dtype: Any
    chunks: Any = None
    shards: Any = None
    layout: LayoutName = "default"
    fill_value: Any = 0
    dims: Sequence[str | None] | None = None
    attrs: Mapping[str, Any] | None = None
    compressor: Any = DEFAULT.name
    shuffle: bool | None = None


def shape_and_dtype(new: NewArray) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return the shape and the type of cells that an array will have."""
    return _shape(new.shape), _dtype(new.dtype)


def create_array(
    writer: StoreWriter, path: str, url: str, new: NewArray, *, overwrite: bool = False, seal: Seal | None = None
) -> tuple[ArraySource, dict[str, Any]]:
    """Create an array and return it with its metadata document. No cell is written."""
    settings = _settings(new)
    if not clear_place(writer, path, url, overwrite=overwrite):
        _clear_chunks(writer, path, url, len(settings["shape"]), overwrite=overwrite)
    if seal is None and 0 in settings["shape"]:
        # It has no object that could be missing; what is appended is written.
        seal = Seal(complete=settings["shape"])
    document = _through_zarr(writer, path, url, "create_array", settings, seal)
    source = parse_node(document, url, path)
    if not isinstance(source, ArraySource):
        raise UnsupportedError(f"zarr-python did not make an array at {url!r}")
    return source, document


def create_group(
    writer: StoreWriter,
    path: str,
    url: str,
    attrs: Mapping[str, Any] | None = None,
    *,
    overwrite: bool = False,
    seal: Seal | None = None,
) -> GroupSource:
    """Create a group without members."""
    settings = {"attributes": plain_attributes(attrs)}
    clear_place(writer, path, url, overwrite=overwrite)
    source = parse_node(_through_zarr(writer, path, url, "create_group", settings, seal), url, path)
    if not isinstance(source, GroupSource):
        raise UnsupportedError(f"zarr-python did not make a group at {url!r}")
    return source


def clear_place(writer: StoreWriter, path: str, url: str, *, overwrite: bool) -> bool:
    """Make room for a new array or group: where one is stored, with all below it, it is deleted or left and refused.

    Metadata goes first, so that nothing half deleted can be opened. Other files than Zarr's stay. Returns whether
    there was one.
    """
    there = [name for name in DOCUMENTS[:3] if writer.get(join(path, name), lookup=True) is not None]
    if there and not overwrite:
        raise InvalidInputError(f"{url!r} is stored already; pass overwrite=True to replace it with all that it holds")
    if not there:
        return False
    for name in there:
        writer.delete(join(path, name))
    lead = path + "/" if path else ""
    doomed = [key for key, _ in writer.keys(path) if _OURS.search(key.removeprefix(lead))]
    doomed.sort(key=lambda key: (not key.endswith(DOCUMENTS), key))
    writer.each(doomed, writer.delete, held_bytes=1)
    return True


def _clear_chunks(writer: StoreWriter, path: str, url: str, ndim: int, *, overwrite: bool) -> None:
    """Refuse or delete chunks without metadata: a deletion that was interrupted leaves them, and they would be read."""
    lead = join(path, "c")
    found = [key for key, _ in writer.keys(lead) if re.fullmatch(rf"(/\d+){{{ndim}}}", key.removeprefix(lead))]
    if not ndim and writer.get(lead, lookup=True) is not None:
        found.append(lead)
    if found and not overwrite:
        raise InvalidInputError(
            f"{url!r} has no metadata, but chunks of an array ({found[0]!r} and {len(found) - 1} more), which would "
            "become part of the new one; pass overwrite=True to delete them"
        )
    writer.each(found, writer.delete, held_bytes=1)


def _through_zarr(
    writer: StoreWriter, path: str, url: str, make: str, settings: dict[str, Any], seal: Seal | None
) -> dict[str, Any]:
    """Let zarr-python write the metadata through our store, and return it as it was stored."""
    from hyperslab.formats.zarr.store import ZarrStore

    store = ZarrStore(writer, path, exclusive=True, seal=seal)
    try:
        _make(store, url, make, settings)
    except ConflictError:
        raise ConflictError(
            f"{url!r} was created by another writer meanwhile; open it, or pass overwrite=True"
        ) from None
    return store.documents["zarr.json"]


def describe_array(url: str, new: NewArray) -> dict[str, Any]:
    """Return the metadata document that an array would get, without storing it."""
    from zarr.storage import MemoryStore

    held: dict[str, Any] = {}
    _make(MemoryStore(held), url, "create_array", _settings(new))
    return parse_document(held["zarr.json"].to_bytes(), "zarr.json")


def _make(store: Any, url: str, make: str, settings: dict[str, Any]) -> None:
    import zarr

    try:
        with warnings.catch_warnings():
            # That a type is not in Zarr's specification yet is said in the documentation of formats.
            warnings.simplefilter("ignore")
            getattr(zarr, make)(store, **settings)
    except HyperslabError:
        raise
    except Exception as error:  # zarr-python has no one class of its own
        raise InvalidInputError(f"zarr-python cannot make {url!r}: {error}") from error


def _settings(new: NewArray) -> dict[str, Any]:
    """Return the arguments of zarr-python's `create_array`."""
    from zarr.codecs import BytesCodec, Crc32cCodec, ShardingCodec

    if new.layout not in ("default", "plain"):
        raise InvalidInputError(f"layout is 'default' or 'plain', not {new.layout!r}")
    shape, dtype = _shape(new.shape), _dtype(new.dtype)
    lone_bytes = OBJECT_BYTES if new.layout == "plain" else None
    if new.layout == "default" and (not shape or dtype.kind == "V"):
        # zarr-python cannot read shards of structures.
        lone_bytes = LONE_CHUNK_BYTES
    chunks, shards = choose_sizes(shape, dtype.itemsize, chunks=new.chunks, shards=new.shards, lone_bytes=lone_bytes)
    compression = _compression(new, dtype, prod(chunks) * dtype.itemsize)
    serializer: Any = BytesCodec(endian="little")
    packed = [] if compression is None else [zarr_codec(compression)]
    compressors: Any = None if new.layout == "plain" else [*packed, Crc32cCodec()]
    if shards is not None:
        index: list[Any] = [BytesCodec(endian="little"), Crc32cCodec()]
        inner = [serializer, *(compressors or [])]
        serializer = ShardingCodec(chunk_shape=chunks, codecs=inner, index_codecs=index, index_location="start")
        compressors = None
    return {
        "shape": shape,
        "dtype": dtype,
        "chunks": shards or chunks,
        "filters": None,
        "serializer": serializer,
        "compressors": compressors,
        "fill_value": _fill_value(new.fill_value, dtype),
        "dimension_names": _dims(new.dims, len(shape)),
        "attributes": plain_attributes(new.attrs),
    }


def _compression(new: NewArray, dtype: np.dtype[Any], chunk_bytes: int) -> Compression | None:
    """Return how the chunks of an array are compressed; None if they are not."""
    compression = parse_compressor(new.compressor, new.shuffle, dtype)
    if new.layout == "plain":
        if compression not in (None, DEFAULT):
            raise InvalidInputError(
                f"layout='plain' is without compression: leave it out, or compressor={new.compressor!r}, shuffle"
            )
        return None
    if compression is not None and compression.name == "blosc" and chunk_bytes > MOST_BLOSC_BYTES:
        raise InvalidInputError(
            f"compressor={new.compressor!r} with shuffle={new.shuffle} is Blosc's, which takes chunks of up to 2 GiB, "
            f"not of {chunk_bytes:,} bytes; choose smaller chunks, or compressor='zstd'"
        )
    return compression


def _shape(value: Any) -> tuple[int, ...]:
    items = (value,) if isinstance(value, int | np.integer) else value
    if not isinstance(items, Sequence) or isinstance(items, str):
        raise InvalidInputError(f"a shape is a tuple of lengths, not {value!r}")
    if not all(isinstance(n, int | np.integer) and not isinstance(n, bool) and 0 <= n < 2**63 for n in items):
        raise InvalidInputError(f"a shape holds whole numbers from 0 on, not {value!r}")
    shape = tuple(int(n) for n in items)
    check_size(shape)
    return shape


def check_size(shape: tuple[int, ...]) -> None:
    """Refuse a shape that could be stored, but not opened again."""
    if len(shape) > MAX_NDIM or prod(shape) > MAX_LENGTH:
        raise InvalidInputError(
            f"an array has at most {MAX_NDIM} axes and {MAX_LENGTH} cells, not {len(shape)} and {prod(shape)}"
        )


def _dtype(value: Any) -> np.dtype[Any]:
    try:
        dtype = np.dtype(value)
    except TypeError as error:
        raise InvalidInputError(f"{value!r} is not a dtype: {error}") from error
    if dtype.hasobject:
        raise InvalidInputError(f"cells of type {dtype} are Python objects; use a fixed-length type such as 'U10'")
    if not dtype.itemsize or dtype.subdtype is not None:
        raise InvalidInputError(
            f"cells of type {dtype} cannot be stored; give them a size, and arrays axes of their own"
        )
    return _little(dtype)


def _little(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type as it is stored: little-endian, and a structure without gaps."""
    if dtype.subdtype is not None:
        raise InvalidInputError(f"fields that hold arrays ({dtype}) have no form in Zarr; give each a field of its own")
    if dtype.kind in "mM" and np.datetime_data(dtype)[0] == "generic":
        raise InvalidInputError(f"times of type {dtype} have no unit, without which they mean nothing; give them one")
    if dtype.fields is None:
        return dtype.newbyteorder("<")
    return np.dtype([(name, _little(dtype.fields[name][0])) for name in dtype.names or ()])


def _fill_value(value: Any, dtype: np.dtype[Any]) -> Any:
    try:
        fill = np.zeros((), dtype)
        if not (isinstance(value, int) and value == 0):
            fill[...] = value
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidInputError(f"fill_value {value!r} is not a cell of type {dtype}: {error}") from error
    return fill[()]


def _dims(value: Any, ndim: int) -> list[str | None] | None:
    if value is None:
        return None
    names = [value] if isinstance(value, str) else list(value)
    if len(names) != ndim or not all(name is None or isinstance(name, str) for name in names):
        raise InvalidInputError(f"dims must be a name or None for each of {ndim} axes, not {value!r}")
    return names
