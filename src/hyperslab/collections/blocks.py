"""Blocks: some hundred entries of the index, sorted by name. A block can be read, checked and searched alone.

    head      magic, and how many rows, slots, packs and bytes of the parts below there are
    rows      40 bytes for each entry: id, start, nbytes, pack, kind, crc32c, flags
    ends      where each name ends in `names`
    slots     a hash table: the row, counted from 1, of a name is at its crc32, or in the slots after that
    packs     24 bytes for each pack that rows refer to: its name, its size
    kinds     dtype and shape of arrays, one line for each kind that rows refer to
    heads     JSON: name, type and bytes of each column of attributes
    names     one after the other
    columns   one after the other

A name is found without a look at the others: nothing has to be decoded first, and what is searched may be a mapped
file. What a block claims is checked where it is used: damage, also a wilful one, gives an error.
"""

import json
import struct
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from hyperslab.collections.columns import Column, pack_column, unpack_column
from hyperslab.collections.kinds import Kind, kind_of
from hyperslab.errors import FormatError

__all__ = ["DELETED", "HEAD_BYTES", "KEYED", "MAX_BLOCK_BYTES", "MAX_ROWS", "ROW_BYTES", "Block", "Entry", "Row",
           "Spot", "pack_block"]  # fmt: skip

DELETED, KEYED = 1, 2
MAX_ROWS = 4096
MAX_BLOCK_BYTES = 1 << 28
PACK_NAME_BYTES = 16

_MAGIC = b"HSB1"
_HEAD = struct.Struct("<4s7I")
_ROW = struct.Struct("<qqqIIIB3x")
_PACK = struct.Struct(f"<{PACK_NAME_BYTES}sq")
_NO_PACK = bytes(PACK_NAME_BYTES)
HEAD_BYTES, ROW_BYTES = _HEAD.size, _ROW.size
# Names are copied out of a block if they are short: slices of bytes are compared in half the time.
_COPIED_BYTES = 1 << 13
# Of an array: its id, pack, that one's size, where in it the array begins, its size, crc32c and flags.
Spot = tuple[int, str, int, int, int, int, int]
# What the constructor of a named tuple does in the end, in half the time.
_new_tuple = tuple.__new__


class Row(NamedTuple):
    """An entry on its way into a block, or from one block to another. A tuple, as there may be millions."""

    name: bytes
    id: int
    pack: bytes
    pack_nbytes: int
    start: int
    nbytes: int
    kind: bytes
    crc32c: int
    flags: int
    attrs: dict[str, Any]


class Entry(NamedTuple):
    """What the index knows of one array. A tuple, as one is taken apart for every array that is read."""

    pack: str
    start: int
    stop: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    crc32c: int
    id: int
    name: str
    pack_nbytes: int
    keyed: bool

    @property
    def nbytes(self) -> int:
        return self.stop - self.start


def pack_block(rows: Sequence[Row]) -> bytes:
    """Return the bytes of a block with these rows, which are sorted by name."""
    packs = {(row.pack, row.pack_nbytes): place for place, row in enumerate(_firsts(rows, _pack_of))}
    kinds = {row.kind: place for place, row in enumerate(_firsts(rows, _kind_of_row))}
    fixed = [
        _ROW.pack(
            row.id, row.start, row.nbytes, packs[_pack_of(row)], kinds[row.kind], row.crc32c, row.flags
        )
        for row in rows
    ]  # fmt: skip
    names = [row.name for row in rows]
    ends = np.cumsum([len(name) for name in names], dtype="<u4").tobytes()
    slots = _slots(names)
    heads, columns = _packed_columns(rows)
    described, texts = json.dumps(heads, separators=(",", ":")).encode("ascii"), b"\n".join(kinds)
    joined = b"".join(names)
    head = _HEAD.pack(
        _MAGIC, len(rows), len(slots), len(packs), len(texts), len(described), len(joined), sum(map(len, columns))
    )
    packed = [_PACK.pack(*pack) for pack in packs]
    return b"".join([head, *fixed, ends, slots.tobytes(), *packed, texts, described, joined, *columns])


def _pack_of(row: Row) -> tuple[bytes, int]:
    return row.pack, row.pack_nbytes


def _kind_of_row(row: Row) -> bytes:
    return row.kind


def _firsts(rows: Sequence[Row], what: Any) -> list[Row]:
    """Return the first row of each group that has the same of something."""
    found: dict[Any, Row] = {}
    for row in rows:
        found.setdefault(what(row), row)
    return list(found.values())


def _slots(names: Sequence[bytes]) -> "np.ndarray[Any, np.dtype[np.uint16]]":
    size = 1 << (2 * len(names) - 1).bit_length()
    slots = [0] * size
    for row, name in enumerate(names, 1):
        at = crc32(name) & (size - 1)
        while slots[at]:
            at = (at + 1) & (size - 1)
        slots[at] = row
    return np.array(slots, "<u2")


def _packed_columns(rows: Sequence[Row]) -> tuple[list[tuple[str, str, int]], list[bytes]]:
    heads, columns = [], []
    for column in sorted({column for row in rows for column in row.attrs}):
        type_, data = pack_column([row.attrs.get(column) for row in rows])
        heads.append((column, type_, len(data)))
        columns.append(data)
    return heads, columns


class Block:
    """A block, read from a buffer that it shares memory with. Its checksum has been found to hold."""

    __slots__ = ("_columns", "_ends", "_fixed", "_heads", "_kinds", "_mask", "_names", "_packs", "_slots", "_tail",
                 "_texts", "data", "nbytes", "rows", "where")  # fmt: skip

    def __init__(self, data: memoryview, where: str) -> None:
        self.where, self.nbytes, self.data = where, len(data), data
        try:
            magic, rows, slots, packs, texts, heads, names, columns = _HEAD.unpack_from(data)
        except struct.error:
            raise self._damaged("it is cut off") from None
        sizes = (_ROW.size * rows, 4 * rows, 2 * slots, _PACK.size * packs, texts, heads, names, columns)
        if magic != _MAGIC or _HEAD.size + sum(sizes) != len(data):
            raise self._damaged("its parts do not add up")
        if not 0 < rows <= MAX_ROWS or not rows < slots <= 4 * MAX_ROWS or slots & (slots - 1) or packs > rows:
            raise self._damaged(f"it cannot have {rows} rows in {slots} slots")
        parts, at = [], _HEAD.size
        for size in sizes:
            parts.append(data[at : at + size])
            at += size
        self.rows, self._mask, self._fixed = rows, slots - 1, parts[0]
        self._names: bytes | memoryview = bytes(parts[6]) if names <= _COPIED_BYTES else parts[6]
        self._ends, self._slots = _native(parts[1], "I"), _native(parts[2], "H")
        self._packs = [(name.hex(), nbytes) for name, nbytes in _PACK.iter_unpack(parts[3])]
        self._texts = bytes(parts[4]).split(b"\n")
        self._kinds: list[Kind | None] = [None] * len(self._texts)
        self._heads, self._tail = parts[5], parts[7]
        self._columns: dict[str, Column] | None = None

    def find(self, name: bytes) -> int:
        """Return the row of a name, -1 if it is not here."""
        slots, mask, ends, names = self._slots, self._mask, self._ends, self._names
        at = crc32(name) & mask
        try:
            for _ in range(mask + 1):
                row: int = slots[at] - 1
                if row < 0:
                    return -1
                if names[ends[row - 1] if row else 0 : ends[row]] == name:
                    return row
                at = (at + 1) & mask
        except IndexError:
            raise self._damaged("a slot leads to no row") from None
        return -1

    def take(self, text: bytes, name: str) -> Entry | None:
        """Return the entry of a name, None if it is not here: `find` and `entry` in one, as every lookup goes here."""
        ends = self._ends
        try:
            row = self._slots[crc32(text) & self._mask] - 1
            if row < 0:
                return None
            if self._names[ends[row - 1] if row else 0 : ends[row]] != text and (row := self.find(text)) < 0:
                return None
            number, start, nbytes, pack, kind, crc32c, flags = _ROW.unpack_from(self._fixed, _ROW.size * row)
            packed, pack_nbytes = self._packs[pack]
            found = self._kinds[kind] or self._kind(kind)
        except (IndexError, struct.error):
            raise self._damaged("a slot or a row leads to nothing") from None
        stop = start + nbytes
        if nbytes != found.nbytes or start < 0 or stop > pack_nbytes or number < 0:
            raise self._damaged(f"its row {row} contradicts itself")
        if flags & DELETED:
            return None
        values = (packed, start, stop, found.dtype, found.shape, crc32c, number, name, pack_nbytes, bool(flags & KEYED))
        return _new_tuple(Entry, values)

    def parts(self) -> tuple[int, int, int, int, int, int]:
        """Return the rows, the mask of slots, where ends, slots and names begin, and the bytes of names."""
        ends = _HEAD.size + len(self._fixed)
        slots = ends + 4 * self.rows
        names = self.nbytes - len(self._tail) - len(self._names)
        return self.rows, self._mask, ends, slots, names, len(self._names)

    def pack_list(self) -> list[tuple[str, int]]:
        """Return the packs that rows refer to by their places: name and size."""
        return self._packs

    def kind_list(self) -> list[Kind | None]:
        """Return the kinds that rows refer to by their places; None for one that cannot be."""
        return [self._kind_or_none(place) for place in range(len(self._texts))]

    def _kind_or_none(self, place: int) -> Kind | None:
        try:
            return self._kind(place)
        except FormatError:
            return None

    def is_deleted(self, row: int) -> bool:
        """Say whether a row only says that there is no array of its name any more."""
        return bool(self._fixed[_ROW.size * row + _FLAGS_AT] & DELETED)

    def name(self, row: int) -> bytes:
        return bytes(self._names[self._ends[row - 1] if row else 0 : self._ends[row]])

    def names(self) -> list[bytes]:
        """Return all names, in order."""
        joined, ends = bytes(self._names), [0, *self._ends.tolist()]
        return [joined[low:high] for low, high in pairwise(ends)]

    def deleted(self) -> list[bool]:
        """Say of each row whether it only says that there is no array of its name any more."""
        return [bool(flags & DELETED) for flags in self._fixed[_FLAGS_AT :: _ROW.size].tolist()]

    def entry(self, row: int, name: str) -> Entry:
        """Return what a row says of the array of that name."""
        number, start, nbytes, pack, kind, crc32c, flags = _ROW.unpack_from(self._fixed, _ROW.size * row)
        found = self._kind(kind)
        packed, pack_nbytes = self._pack(pack)
        if nbytes != found.nbytes or start < 0 or start + nbytes > pack_nbytes or number < 0:
            raise self._damaged(f"its row {row} contradicts itself")
        return Entry(
            packed, start, start + nbytes, found.dtype, found.shape, crc32c, number, name, pack_nbytes,
            bool(flags & KEYED),
        )  # fmt: skip

    def iter_rows(self) -> Iterator[Row]:
        """Yield all rows, to be put into another block."""
        columns = self.columns()
        fixed = _ROW.iter_unpack(self._fixed)
        for at, (name, (number, start, nbytes, pack, kind, crc, flags)) in enumerate(
            zip(self.names(), fixed, strict=True)
        ):
            self._kind(kind)
            attrs = {}
            for column, found in columns.items():
                if found.present[at]:
                    value = found.values[at]
                    attrs[column] = value if found.type in ("str", "time") else value.item()
            packed, pack_nbytes = self._pack(pack)
            yield Row(
                name, number, bytes.fromhex(packed), pack_nbytes, start, nbytes, self._texts[kind], crc, flags, attrs
            )

    def spots(self) -> list[Spot]:
        """Return of each row where its array lies, and nothing else."""
        found = []
        for number, start, nbytes, pack, _, crc, flags in _ROW.iter_unpack(self._fixed):
            packed, pack_nbytes = self._pack(pack)
            if nbytes < 0 or start < 0 or start + nbytes > pack_nbytes or number < 0:
                raise self._damaged("a row contradicts itself")
            found.append((number, packed, pack_nbytes, start, nbytes, crc, flags))
        return found

    def packs(self) -> set[str]:
        """Return the names of the packs that rows refer to."""
        return {name for name, _ in self._packs if name != _NO_PACK.hex()}

    def columns(self) -> dict[str, Column]:
        """Return the columns of attributes."""
        if self._columns is None:
            try:
                self._columns = self._parsed_columns()
            except (ValueError, TypeError, RecursionError, OverflowError) as error:
                raise self._damaged(str(error)) from None
        return self._columns

    def _parsed_columns(self) -> dict[str, Column]:
        found, at = {}, 0
        for name, type_, nbytes in json.loads(bytes(self._heads)):
            if not isinstance(name, str) or type(nbytes) is not int or not 0 <= nbytes <= len(self._tail) - at:
                raise ValueError("a column is not where it should be")
            found[name] = unpack_column(type_, self._tail[at : at + nbytes], self.rows)
            at += nbytes
        return found

    def _kind(self, number: int) -> Kind:
        try:
            kind = self._kinds[number]
            if kind is None:
                kind = self._kinds[number] = kind_of(self._texts[number])
        except IndexError:
            raise self._damaged("a row is of no kind") from None
        return kind

    def _pack(self, number: int) -> tuple[str, int]:
        try:
            return self._packs[number]
        except IndexError:
            raise self._damaged("a row is in no pack") from None

    def _damaged(self, why: str) -> FormatError:
        return FormatError(f"{self.where} is no block of an index: {why}")


_FLAGS_AT = _ROW.size - 4


def _native(data: memoryview, code: str) -> memoryview:
    """Return numbers, stored with their low byte first, that are quick to be had one by one."""
    if sys.byteorder == "little":
        return data.cast(code)  # type: ignore[call-overload,no-any-return]
    return np.frombuffer(data, f"<{code}").astype(code).data
