"""Attributes of groups, datasets and datatypes, as Python and NumPy values."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hyperslab.errors import MetadataError, UnsupportedError
from hyperslab.formats.hdf5.btree2 import read_btree2
from hyperslab.formats.hdf5.cursor import Cursor
from hyperslab.formats.hdf5.datatype import Datatype, read_datatype
from hyperslab.formats.hdf5.header import Message, ObjectHeader
from hyperslab.formats.hdf5.messages import Dataspace, parse_dataspace
from hyperslab.formats.hdf5.opened import Opened
from hyperslab.formats.hdf5.vlen import Resolver, heap_addresses, text

__all__ = ["Reference", "Unreadable", "read_attributes", "user_attrs"]

DATASPACE, DATATYPE, ATTRIBUTE, ATTRIBUTE_INFO = 0x01, 0x03, 0x0C, 0x15
_MOST_ATTRIBUTES = 1 << 16
_DENSE_RECORDS = 8
# What NetCDF-4 and HDF5's dimension scales write for themselves.
_HOUSEKEEPING = frozenset(
    ["CLASS", "NAME", "REFERENCE_LIST", "DIMENSION_LIST", "DIMENSION_LABELS", "_Netcdf4Dimid", "_Netcdf4Coordinates",
     "_nc3_strict", "_NCProperties"]
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reference:
    """A value that is another object of the file, by the address of its header."""

    address: int | None


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A value of a type that is not supported; it does not keep the others from being read."""

    reason: str


@dataclass(frozen=True, slots=True)
class _Attribute:
    name: str
    datatype: Datatype | None
    space: Dataspace | None
    cells: npt.NDArray[Any] | None
    reason: str = ""


def user_attrs(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes that someone wrote, without those by which libraries keep house.

    >>> user_attrs({"units": "m", "_Netcdf4Dimid": 0})
    {'units': 'm'}
    """
    return {name: value for name, value in attrs.items() if name not in _HOUSEKEEPING}


def read_attributes(opened: Opened, header: ObjectHeader, names: Iterable[str] | None = None) -> dict[str, Any]:
    """Return an object's attributes by name, or only those of `names`. All heaps they need are fetched together.

    Scalars come as NumPy scalars, strings as `str` (several as an array of them), without any cell as an empty array.
    """
    messages = [opened.plain(message) for message in header.all(ATTRIBUTE)]
    if (info := header.first(ATTRIBUTE_INFO)) is not None:
        messages += _dense(opened, info)
    wanted = None if names is None else set(names)
    found = [_parse(opened, message, wanted) for message in messages]
    kept = [each for each in found if each is not None]
    sb, needed = opened.superblock, set[int]()
    for each in kept:
        if each.cells is not None and each.datatype is not None:
            needed |= heap_addresses(sb, each.cells, each.datatype)
    if len(needed) > 1:
        for _ in opened.collections.rounds(opened.file, sb, sorted(needed)):
            pass
    resolver = Resolver(opened.file, sb, opened.collections)
    return {each.name: _value(opened, each, resolver) for each in kept}


def _dense(opened: Opened, message: Message) -> list[Message]:
    """Return the attribute messages that an object keeps in a heap, in the order in which they were made."""
    cursor = message.cursor("an attribute info message")
    cursor.version(0)
    flags = cursor.u8()
    cursor.skip(2 if flags & 1 else 0)
    sb = opened.superblock
    heap_at, tree = sb.address(cursor), sb.address(cursor)
    if heap_at is None or tree is None:
        return []
    rows = [row for each in read_btree2(opened.file, sb, tree, _DENSE_RECORDS, _MOST_ATTRIBUTES) for row in each]
    if any(len(row) != 17 for row in rows):
        raise MetadataError(f"records of attributes have {len(rows[0])} bytes, expected 17; the file is damaged")
    # A record is an identifier, flags, when the attribute was made, and the hash of its name.
    records = sorted((int.from_bytes(row[9:13].tobytes(), "little"), row.tobytes()) for row in rows)
    private = [row[:8] for _, row in records if not row[8] & 2]
    shared = [row[:8] for _, row in records if row[8] & 2]
    bodies = opened.heap_objects(heap_at, private) if private else []
    bodies += opened.shared_objects(ATTRIBUTE, shared) if shared else []
    return [Message(ATTRIBUTE, 0, body, 0) for body in bodies]


def _parse(opened: Opened, message: Message, wanted: set[str] | None) -> _Attribute | None:
    """Return an attribute whose heaps have not been read, None if it is not wanted."""
    cursor = message.cursor("an attribute")
    version = cursor.version(1, 2, 3)
    flags = cursor.u8()
    sizes = [cursor.u16() for _ in range(3)]
    cursor.skip(1 if version == 3 else 0)
    raw, kind, space = (_part(cursor, nbytes, padded=version == 1) for nbytes in sizes)
    name = bytes(raw.body).partition(b"\0")[0].decode("utf-8", "surrogateescape")
    if wanted is not None and name not in wanted:
        return None
    try:
        kind = Message(DATATYPE, 2 * (flags & 1 and version > 1), kind.body, kind.at)
        datatype = read_datatype(opened.plain(kind), opened.superblock)
    except UnsupportedError as error:
        return _Attribute(name, None, None, None, str(error))
    space = Message(DATASPACE, flags & 2 if version > 1 else 0, space.body, space.at)
    found = parse_dataspace(opened.plain(space), opened.superblock)
    return _Attribute(name, datatype, found, _cells(cursor, name, datatype, found))


def _part(cursor: Cursor, nbytes: int, *, padded: bool) -> Message:
    at = cursor.place
    body = cursor.take(nbytes)
    cursor.skip(min(-nbytes % 8, cursor.left) if padded else 0)
    return Message(0, 0, body, at)


def _cells(cursor: Cursor, name: str, datatype: Datatype, space: Dataspace) -> npt.NDArray[Any]:
    nbytes = space.ncells * datatype.nbytes
    if nbytes > cursor.left:
        raise MetadataError(
            f"the attribute {name!r} needs {nbytes} bytes and {cursor.left} are stored; the file is damaged"
        )
    shape = (0,) if space.shape is None else space.shape
    cells = np.frombuffer(cursor.take(nbytes), np.uint8).copy()
    base, inner = (datatype.dtype, ()) if datatype.dtype.subdtype is None else datatype.dtype.subdtype
    try:
        return cells.view(base).reshape(shape + inner)
    except ValueError as error:
        raise MetadataError(f"the attribute {name!r} of shape {shape} cannot be held by NumPy: {error}") from error


def _value(opened: Opened, attribute: _Attribute, resolver: Resolver) -> Any:
    datatype, cells, space = attribute.datatype, attribute.cells, attribute.space
    if datatype is None or cells is None or space is None:
        return Unreadable(attribute.reason)
    if space.shape is None and datatype.kind in ("string", "vlen_string"):
        return ""
    if datatype.kind == "string":
        # Not through NumPy's strings, which lose zeros at their end.
        raw = cells.reshape(-1).view(np.uint8).reshape(-1, datatype.nbytes)
        found = np.empty(len(raw), object)
        found[:] = [text(each.tobytes(), datatype) for each in raw]
        values = found.reshape(cells.shape)
    elif datatype.kind == "reference":
        values = _references(cells, opened)
    else:
        values = resolver.resolve(cells, datatype)
    return values[()] if values.shape == () else values


def _references(cells: npt.NDArray[Any], opened: Opened) -> npt.NDArray[Any]:
    base, size = opened.superblock.base, opened.superblock.size
    values = np.empty(cells.size, object)
    # Zero, and all bits set, are references to nothing.
    values[:] = [Reference(raw + base if 0 < raw < size - base else None) for raw in cells.ravel().tolist()]
    return values.reshape(cells.shape)
