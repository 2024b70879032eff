"""The messages of an object header that describe a dataset's cells and how they are stored."""

from dataclasses import dataclass
from math import prod
from typing import Literal

from hyperslab.errors import MetadataError, UnsupportedError
from hyperslab.formats.hdf5.cursor import Cursor
from hyperslab.formats.hdf5.header import Message
from hyperslab.formats.hdf5.superblock import Superblock

__all__ = [
    "ChunkIndexMessage", "Compact", "Contiguous", "Dataspace", "External", "ExternalFile", "FilterMessage", "Storage",
    "Virtual", "parse_dataspace", "parse_external_files", "parse_fill", "parse_filters", "parse_layout",
]  # fmt: skip

ChunkIndexKind = Literal["btree1", "single", "implicit", "fixed_array", "extensible_array", "btree2"]

_MOST_AXES = 32
_MOST_FILTERS = 32
_MOST_LENGTH = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Dataspace:
    """The shape of a dataset or attribute, None if it has no cells by its nature; `maxshape` has None for no limit."""

    shape: tuple[int, ...] | None
    maxshape: tuple[int | None, ...] | None

    @property
    def ncells(self) -> int:
        """How many cells there are."""
        return 0 if self.shape is None else prod(self.shape)


@dataclass(frozen=True, slots=True)
class FilterMessage:
    """One filter that chunks went through when they were written."""

    id: int
    name: str
    optional: bool
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Compact:
    """Cells that lie within the object header, at a place in the file."""

    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Contiguous:
    """Cells in one run; `offset` is None if none has been written."""

    offset: int | None
    nbytes: int


@dataclass(frozen=True, slots=True)
class Virtual:
    """Cells that other datasets hold; which ones is written in a global heap."""

    heap: int | None
    index: int


@dataclass(frozen=True, slots=True)
class ExternalFile:
    """A part of the cells in another file. `name_at` is the place of its name in the local heap."""

    name_at: int
    offset: int
    nbytes: int
    name: str = ""


@dataclass(frozen=True, slots=True)
class External:
    """Cells in other files, one part after the other."""

    heap: int
    files: tuple[ExternalFile, ...]


@dataclass(frozen=True, slots=True)
class ChunkIndexMessage:
    """How the chunks of a dataset are found. `address` counts from the file's start, None if no chunk is stored."""

    kind: ChunkIndexKind
    address: int | None
    # Without the last axis that HDF5 adds, the bytes of a cell.
    chunk_shape: tuple[int, ...]
    element_nbytes: int
    filtered: bool
    # A single chunk with filters: its stored bytes, and the filters it skipped.
    single_nbytes: int = 0
    single_mask: int = 0
    # A fixed array.
    page_bits: int = 0
    # An extensible array: (max_bits, index_elements, min_pointers, min_elements, page_bits);
    # a version 2 B-tree: (node_nbytes, split, merge).
    params: tuple[int, ...] = ()
    # Chunks that reach over the array's edge are stored without filters.
    skip_partial_edges: bool = False
    # The version of the layout message: from 5 on, sizes of filtered chunks are stored in full width.
    version: int = 3


Storage = Compact | Contiguous | Virtual | External | ChunkIndexMessage


def parse_dataspace(message: Message, sb: Superblock) -> Dataspace:
    """Return the shape that a dataspace message gives."""
    cursor = message.cursor("a dataspace")
    version = cursor.version(1, 2)
    ndim, flags = cursor.u8(), cursor.u8()
    # Version 1 has no type: it is a scalar without axes, else an array.
    kind = cursor.u8() if version == 2 else min(1, ndim)
    if version == 1:
        cursor.skip(5)
    if kind > 2 or ndim > _MOST_AXES or (ndim and kind != 1):
        raise MetadataError(f"{cursor.what} of kind {kind} has {ndim} axes; at most {_MOST_AXES} are possible")
    if kind == 2:
        return Dataspace(None, None)
    shape = tuple(sb.length(cursor) for _ in range(ndim))
    maxshape: tuple[int | None, ...] = shape
    if flags & 1:
        unlimited = (1 << (8 * sb.length_size)) - 1
        limits = [sb.length(cursor) for _ in range(ndim)]
        maxshape = tuple(None if limit == unlimited else limit for limit in limits)
    if prod(max(1, length) for length in shape) > _MOST_LENGTH:
        raise MetadataError(f"{cursor.what} has the shape {shape}, more cells than can be counted")
    if any(limit is not None and limit < length for length, limit in zip(shape, maxshape, strict=True)):
        raise MetadataError(f"{cursor.what} has the shape {shape} and may have at most {maxshape}")
    return Dataspace(shape, maxshape)


def parse_fill(message: Message) -> memoryview | None:
    """Return the bytes of the fill value, None if it is not defined or all zeros."""
    cursor = message.cursor("a fill value")
    if message.type == 4:
        return cursor.take(cursor.u32()) or None
    version = cursor.version(1, 2, 3)
    if version == 3:
        defined = bool(cursor.u8() & 0x20)
    else:
        cursor.skip(2)
        # Version 1 has a size also where nothing is defined.
        defined = bool(cursor.u8()) or version == 1
    if not defined:
        return None
    nbytes = cursor.u32()
    # Written as a signed number: -1 is "undefined", 0 "zeros".
    return None if nbytes in (0, 0xFFFFFFFF) else cursor.take(nbytes)


def parse_filters(message: Message) -> tuple[FilterMessage, ...]:
    """Return the filters of a pipeline in the order in which they were applied."""
    cursor = message.cursor("a filter pipeline")
    version = cursor.version(1, 2)
    count = cursor.u8()
    if count > _MOST_FILTERS:
        raise MetadataError(f"{cursor.what} has {count} filters; at most {_MOST_FILTERS} are possible")
    if version == 1:
        cursor.skip(6)
    return tuple(_parse_filter(cursor, version) for _ in range(count))


def _parse_filter(cursor: Cursor, version: int) -> FilterMessage:
    number = cursor.u16()
    name_nbytes = cursor.u16() if version == 1 or number >= 256 else 0
    flags, count = cursor.u16(), cursor.u16()
    name = bytes(cursor.take(name_nbytes + (-name_nbytes % 8 if version == 1 else 0)))
    values = tuple(cursor.u32() for _ in range(count))
    if version == 1 and count % 2:
        cursor.skip(4)
    return FilterMessage(number, name.partition(b"\0")[0].decode("utf-8", "replace"), bool(flags & 1), values)


def parse_layout(message: Message, sb: Superblock, *, filtered: bool) -> Storage:
    """Return where a dataset's cells lie. `filtered` says whether it has a filter pipeline.

    The bytes of a contiguous dataset are 0 where the message does not say (versions 1 and 2).
    """
    cursor = message.cursor("a data layout")
    version = cursor.version(1, 2, 3, 4, 5)
    if version < 3:
        return _parse_old_layout(cursor, sb, filtered)
    kind = cursor.u8()
    if kind == 0:
        nbytes = cursor.u16()
        start = cursor.place
        cursor.skip(nbytes)
        return Compact(start, nbytes)
    if kind == 1:
        return Contiguous(sb.address(cursor), sb.length(cursor))
    if kind == 2 and version == 3:
        ndim = _layout_axes(cursor, cursor.u8())
        address = sb.address(cursor)
        return _chunks(cursor, "btree1", address, [cursor.u32() for _ in range(ndim)], filtered=filtered)
    if kind == 2:
        return _parse_new_chunks(cursor, sb, version, filtered)
    if kind == 3 and version > 3:
        return Virtual(sb.address(cursor), cursor.u32())
    raise MetadataError(f"{cursor.what} of version {version} has the unknown class {kind}")


def _layout_axes(cursor: Cursor, ndim: int, least: int = 2) -> int:
    if not least <= ndim <= _MOST_AXES + 1:
        raise MetadataError(f"{cursor.what} has {ndim} axes; expected {least} to {_MOST_AXES + 1}")
    return ndim


def _parse_old_layout(cursor: Cursor, sb: Superblock, filtered: bool) -> Storage:
    ndim, kind = cursor.u8(), cursor.u8()
    cursor.skip(5)
    if kind > 2:
        raise MetadataError(f"{cursor.what} has the unknown class {kind}")
    address = sb.address(cursor) if kind else None
    lengths = [cursor.u32() for _ in range(_layout_axes(cursor, ndim, least=2 if kind == 2 else 0))]
    if kind == 2:
        return _chunks(cursor, "btree1", address, lengths, filtered=filtered)
    if kind == 1:
        return Contiguous(address, 0)
    nbytes = cursor.u32()
    start = cursor.place
    cursor.skip(nbytes)
    return Compact(start, nbytes)


def _parse_new_chunks(cursor: Cursor, sb: Superblock, version: int, filtered: bool) -> ChunkIndexMessage:
    flags, ndim, width = cursor.u8(), _layout_axes(cursor, cursor.u8()), cursor.u8()
    if not 1 <= width <= 8:
        raise MetadataError(f"{cursor.what} has lengths of {width} bytes; expected 1 to 8")
    lengths = [cursor.uint(width) for _ in range(ndim)]
    number = cursor.u8()
    kinds: dict[int, ChunkIndexKind] = {
        1: "single", 2: "implicit", 3: "fixed_array", 4: "extensible_array", 5: "btree2"
    }  # fmt: skip
    if number not in kinds:
        raise UnsupportedError(f"chunks are found by an index of kind {number}; known are {kinds}")
    nbytes = mask = page_bits = 0
    params: tuple[int, ...] = ()
    if number == 1 and flags & 2:
        nbytes, mask = sb.length(cursor), cursor.u32()
    elif number == 3:
        page_bits = cursor.u8()
    elif number == 4:
        params = tuple(cursor.u8() for _ in range(5))
    elif number == 5:
        params = (cursor.u32(), cursor.u8(), cursor.u8())
    return _chunks(
        cursor, kinds[number], sb.address(cursor), lengths, filtered=filtered, single_nbytes=nbytes, single_mask=mask,
        page_bits=page_bits, params=params, skip_partial_edges=bool(flags & 1), version=version,
    )  # fmt: skip


def _chunks(
    cursor: Cursor,
    kind: ChunkIndexKind,
    address: int | None,
    lengths: list[int],
    *,
    filtered: bool,
    single_nbytes: int = 0,
    single_mask: int = 0,
    page_bits: int = 0,
    params: tuple[int, ...] = (),
    skip_partial_edges: bool = False,
    version: int = 3,
) -> ChunkIndexMessage:
    if 0 in lengths or prod(lengths) > _MOST_LENGTH:
        raise MetadataError(f"{cursor.what} has chunks of {lengths} cells and bytes; expected lengths from 1")
    return ChunkIndexMessage(
        kind, address, tuple(lengths[:-1]), lengths[-1], filtered, single_nbytes, single_mask, page_bits, params,
        skip_partial_edges, version,
    )  # fmt: skip


def parse_external_files(message: Message, sb: Superblock) -> External:
    """Return the parts of a dataset that lie in other files, their names not yet looked up."""
    cursor = message.cursor("a list of external files")
    cursor.version(1)
    cursor.skip(5)
    count = cursor.u16()
    heap = sb.must_address(cursor)
    files = [
        ExternalFile(sb.length(cursor), sb.length(cursor), sb.length(cursor))
        for _ in range(min(count, cursor.left // (3 * sb.length_size)))
    ]
    return External(heap, tuple(files))
