"""Datatype messages: what one cell of a dataset or attribute is, and how NumPy holds it."""

import re
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np

from hyperslab.errors import MetadataError, UnsupportedError
from hyperslab.formats.hdf5.cursor import Cursor
from hyperslab.formats.hdf5.header import Message
from hyperslab.formats.hdf5.superblock import Superblock

__all__ = ["Datatype", "Field", "parse_datatype", "read_datatype"]

Kind = Literal[
    "number", "string", "vlen_string", "vlen", "enum", "compound", "array", "opaque", "reference", "bitfield"
]  # fmt: skip

_MOST_DEPTH = 32
_MOST_TYPES = 70_000
_MOST_BYTES = 2**31 - 1
_MOST_AXES = 32
# Offset, precision, where the exponent starts and its bits, where the mantissa starts and its bits, bias; the sign.
_FLOATS = {
    (2, (0, 16, 10, 5, 0, 10, 15), 15): "f2",
    (4, (0, 32, 23, 8, 0, 23, 127), 31): "f4",
    (8, (0, 64, 52, 11, 0, 52, 1023), 63): "f8",
    (16, (0, 80, 64, 15, 0, 64, 16383), 79): "f16",
}
_PADDINGS = ("null-terminated", "null-padded", "space-padded")
_CHARSETS = ("ascii", "utf-8")
_NUMPY_TIME = re.compile(rb"NUMPY:([<>=|]?[mM]8(\[\d{0,9}[A-Za-z]{1,2}\])?)")


@dataclass(frozen=True, slots=True)
class Field:
    """A named part of a compound, and at which byte of it the part starts."""

    name: str
    offset: int
    type: "Datatype"


@dataclass(frozen=True, slots=True)
class Datatype:
    """The type of a cell. `dtype` is how it lies in the file, `result` what a user sees.

    They differ where cells of variable length are involved: the file has references to a heap (void of 16 bytes),
    the user gets objects.
    """

    kind: Kind
    dtype: np.dtype[Any]
    result: np.dtype[Any]
    base: "Datatype | None" = None
    shape: tuple[int, ...] = ()
    fields: tuple[Field, ...] = ()
    # Of an enum: names and their values.
    members: tuple[tuple[str, int], ...] = ()
    padding: str = "null-terminated"
    charset: str = "ascii"
    tag: str = ""

    @property
    def nbytes(self) -> int:
        """Bytes of a cell in the file."""
        return self.dtype.itemsize

    @property
    def has_vlen(self) -> bool:
        """Whether cells, or parts of them, are references to a heap."""
        return bool(self.result.hasobject)

    @property
    def plain(self) -> bool:
        """Whether cells can be used as they lie in the file: neither in a heap nor strings with odd padding."""
        match self.kind:
            case "vlen" | "vlen_string":
                return False
            case "string":
                return self.padding == "null-padded" or (self.nbytes == 1 and self.padding != "space-padded")
            case "compound":
                return all(field.type.plain for field in self.fields)
            case "array":
                return self.base is None or self.base.plain
        return True


def read_datatype(message: Message, sb: Superblock) -> Datatype:
    """Return the type that a datatype message describes. Its body must not be a reference to a shared one."""
    return parse_datatype(message.cursor("a datatype"), sb)


def parse_datatype(cursor: Cursor, sb: Superblock) -> Datatype:
    """Return the type described from the cursor on.

    MetadataError for one that contradicts itself, UnsupportedError for one that NumPy has no type for; it is named.
    """
    return _Parser(cursor, sb).parse(0)


class _Parser:
    """One datatype message; the types within a type count towards one limit."""

    def __init__(self, cursor: Cursor, sb: Superblock) -> None:
        self.cursor = cursor
        self.sb = sb
        self.left = _MOST_TYPES

    def parse(self, depth: int) -> Datatype:
        self.left -= 1
        if depth > _MOST_DEPTH or self.left < 0:
            raise MetadataError(f"{self.cursor.what} is nested deeper than {_MOST_DEPTH} types, or has too many")
        head, bits = self.cursor.u8(), self.cursor.uint(3)
        number, version, nbytes = head & 15, head >> 4, self.cursor.u32()
        if not 1 <= version <= 5:
            raise MetadataError(f"{self.cursor.what} has version {version}, expected 1 to 5")
        if not 0 < nbytes <= _MOST_BYTES:
            raise MetadataError(f"{self.cursor.what} has cells of {nbytes} bytes; expected 1 to {_MOST_BYTES}")
        if number == 2:
            raise UnsupportedError("cells of HDF5's time type are not supported; store seconds as numbers instead")
        if number in (6, 8, 9, 10, 11):
            return self._nested(number, bits, nbytes, version, depth)
        match number:
            case 0 | 4:
                return self._integer(bits, nbytes, number)
            case 1:
                return self._float(bits, nbytes)
            case 3:
                return self._string(bits, nbytes)
            case 5:
                return self._opaque(bits, nbytes)
            case 7:
                return self._reference(bits, nbytes)
        raise MetadataError(f"{self.cursor.what} has the unknown class {number}; the file is damaged")

    def _nested(self, number: int, bits: int, nbytes: int, version: int, depth: int) -> Datatype:
        match number:
            case 6:
                return self._compound(bits & 0xFFFF, nbytes, version, depth)
            case 8:
                return self._enum(bits & 0xFFFF, nbytes, version, depth)
            case 9:
                return self._vlen(bits, nbytes, depth)
            case 10:
                return self._array(nbytes, version, depth)
        return self._complex(bits, nbytes, depth)

    def _integer(self, bits: int, nbytes: int, number: int) -> Datatype:
        offset, precision = self.cursor.u16(), self.cursor.u16()
        if offset or precision != 8 * nbytes or nbytes not in (1, 2, 4, 8):
            raise UnsupportedError(
                f"integers of {precision} bits from bit {offset} of {nbytes} bytes are not supported; "
                "supported are whole ones of 1, 2, 4 and 8 bytes"
            )
        sign = "i" if bits & 8 and number == 0 else "u"
        return _plain("number" if number == 0 else "bitfield", f"{'>' if bits & 1 else '<'}{sign}{nbytes}")

    def _float(self, bits: int, nbytes: int) -> Datatype:
        cursor = self.cursor
        layout = (cursor.u16(), cursor.u16(), cursor.u8(), cursor.u8(), cursor.u8(), cursor.u8(), cursor.u32())
        code = _FLOATS.get((nbytes, layout, bits >> 8 & 0xFF))
        order = {0: "<", 1: ">"}.get(bits & 1 | bits >> 5 & 2)
        implied = bits >> 4 & 3
        if code is None or order is None or implied != (0 if code == "f16" else 2):
            raise UnsupportedError(
                f"floats of {nbytes} bytes with {layout[3]} bits of exponent, {layout[5]} of mantissa and byte order "
                f"{order or 'VAX'} are not supported; supported are IEEE's of 2, 4 and 8 bytes"
            )
        if code == "f16" and (order != "<" or np.finfo(np.longdouble).nmant != 63 or np.longdouble().itemsize != 16):
            raise UnsupportedError("floats of 80 bits are supported on x86 only, and stored as there")
        return _plain("number", order + code)

    def _complex(self, bits: int, nbytes: int, depth: int) -> Datatype:
        base = self.parse(depth + 1)
        if bits & 6 or base.kind != "number" or base.dtype.kind != "f" or nbytes != 2 * base.nbytes or base.nbytes < 4:
            raise UnsupportedError(f"complex numbers of {nbytes} bytes made of {base.dtype} are not supported")
        return _plain("number", f"{base.dtype.str[0]}c{nbytes}")

    def _string(self, bits: int, nbytes: int) -> Datatype:
        return _plain(
            "string", f"S{nbytes}", padding=self._pick(_PADDINGS, bits), charset=self._pick(_CHARSETS, bits >> 4)
        )

    def _pick(self, names: tuple[str, ...], bits: int) -> str:
        if (number := bits & 15) >= len(names):
            raise UnsupportedError(f"{self.cursor.what} has strings of kind {number}; known are {', '.join(names)}")
        return names[number]

    def _opaque(self, bits: int, nbytes: int) -> Datatype:
        tag = bytes(self.cursor.take(bits & 0xFF)).partition(b"\0")[0]
        if nbytes == 8 and (time := _NUMPY_TIME.fullmatch(tag)):
            try:
                # A name that h5py gives to NumPy's times, so that they come back as such.
                return _plain("number", time.group(1).decode("ascii"))
            except (TypeError, ValueError, OverflowError) as error:
                raise MetadataError(f"{self.cursor.what} is tagged {tag!r}, which is no type: {error}") from error
        return _plain("opaque", f"V{nbytes}", tag=tag.decode("utf-8", "replace"))

    def _reference(self, bits: int, nbytes: int) -> Datatype:
        if bits & 15 or nbytes != self.sb.offset_size:
            named = {0: "objects", 1: "regions", 2: "objects", 3: "regions", 4: "attributes"}.get(bits & 15, "things")
            raise UnsupportedError(f"references to {named} (of {nbytes} bytes, kind {bits & 15}) are not supported")
        return _plain("reference", f"<u{nbytes}")

    def _compound(self, count: int, nbytes: int, version: int, depth: int) -> Datatype:
        fields = tuple(self._field(nbytes, version, depth) for _ in range(count))
        names = [each.name for each in fields]
        if not fields or len(set(names)) != len(names):
            raise MetadataError(
                f"{self.cursor.what} is a compound whose fields are {names[:20]}; expected unlike names"
            )
        for each in fields:
            if each.offset + each.type.nbytes > nbytes:
                raise MetadataError(f"{self.cursor.what} has the field {each.name!r}, which reaches out of its cell")
        if (pair := _complex_pair(fields, nbytes)) is not None:
            return _plain("number", pair)
        stored = _structure(fields, [each.type.dtype for each in fields], [each.offset for each in fields], nbytes)
        result = stored
        if any(each.type.has_vlen for each in fields):
            result = np.dtype([(each.name, each.type.result) for each in fields])
        return Datatype("compound", stored, result, fields=fields)

    def _field(self, nbytes: int, version: int, depth: int) -> Field:
        cursor = self.cursor
        start = cursor.at
        name = _text(cursor.until_nul())
        if version < 3:
            cursor.skip(-(cursor.at - start) % 8)
        offset = cursor.uint(4 if version < 3 else (nbytes.bit_length() + 7) // 8)
        shape: tuple[int, ...] = ()
        if version == 1:
            ndim = cursor.u8()
            cursor.skip(11)
            sizes = [cursor.u32() for _ in range(4)]
            if ndim > 4:
                raise MetadataError(f"{cursor.what} has the field {name!r} with {ndim} axes; at most 4 are possible")
            shape = tuple(sizes[:ndim])
        inner = self.parse(depth + 1)
        return Field(name, offset, self._arrayed(inner, shape) if shape else inner)

    def _enum(self, count: int, nbytes: int, version: int, depth: int) -> Datatype:
        base = self.parse(depth + 1)
        if base.kind != "number" or base.dtype.kind not in "iu" or base.nbytes != nbytes:
            raise UnsupportedError(
                f"enums of {nbytes} bytes over {base.kind} {base.dtype} are not supported; integers are"
            )
        names = []
        for _ in range(count):
            start = self.cursor.at
            names.append(_text(self.cursor.until_nul()))
            if version < 3:
                self.cursor.skip(-(self.cursor.at - start) % 8)
        values = np.frombuffer(self.cursor.take(count * nbytes), base.dtype).tolist()
        members = tuple(zip(names, values, strict=True))
        dtype = np.dtype(np.bool_) if nbytes == 1 and dict(members) == {"FALSE": 0, "TRUE": 1} else base.dtype
        return Datatype("enum", dtype, dtype, base=base, members=members)

    def _vlen(self, bits: int, nbytes: int, depth: int) -> Datatype:
        base = self.parse(depth + 1)
        if bits & 15 > 1 or nbytes != 8 + self.sb.offset_size:
            raise MetadataError(f"{self.cursor.what} has cells of variable length and {nbytes} bytes, kind {bits & 15}")
        stored, result = np.dtype(f"V{nbytes}"), np.dtype(object)
        if bits & 15 == 0:
            return Datatype("vlen", stored, result, base=base)
        padding, charset = self._pick(_PADDINGS, bits >> 4), self._pick(_CHARSETS, bits >> 8)
        return Datatype("vlen_string", stored, result, base=base, padding=padding, charset=charset)

    def _array(self, nbytes: int, version: int, depth: int) -> Datatype:
        cursor = self.cursor
        if (ndim := cursor.u8()) > _MOST_AXES or not ndim:
            raise MetadataError(f"{cursor.what} is an array of {ndim} axes; expected 1 to {_MOST_AXES}")
        cursor.skip(3 if version < 3 else 0)
        shape = tuple(cursor.u32() for _ in range(ndim))
        cursor.skip(4 * ndim if version < 3 else 0)
        found = self._arrayed(self.parse(depth + 1), shape)
        if found.nbytes != nbytes:
            raise MetadataError(f"{cursor.what} is an array {shape} of {found.nbytes} bytes, and says it has {nbytes}")
        return found

    def _arrayed(self, base: Datatype, shape: tuple[int, ...]) -> Datatype:
        if 0 in shape or prod(shape) * base.nbytes > _MOST_BYTES:
            raise MetadataError(f"{self.cursor.what} is an array of shape {shape}; expected 1 to {_MOST_BYTES} bytes")
        try:
            stored, result = _grid(base.dtype, shape), _grid(base.result, shape)
        except ValueError as error:
            raise MetadataError(f"{self.cursor.what} is an array that NumPy cannot hold: {error}") from error
        return Datatype("array", stored, result, base=base, shape=shape)


def _grid(base: np.dtype[Any], shape: tuple[int, ...]) -> np.dtype[Any]:
    """Return the type of an array of a type; an array of arrays is one array with the axes of both."""
    inner, axes = (base, ()) if base.subdtype is None else base.subdtype
    return np.dtype((inner, shape + axes))


def _plain(kind: Kind, code: str, **rest: Any) -> Datatype:
    dtype: np.dtype[Any] = np.dtype(code)
    return Datatype(kind, dtype, dtype, **rest)


def _complex_pair(fields: tuple[Field, ...], nbytes: int) -> str | None:
    """Return NumPy's code for complex numbers if a compound is what h5py writes for them: the floats r and i."""
    if len(fields) != 2 or [each.name for each in fields] != ["r", "i"]:
        return None
    first, second = fields[0].type, fields[1].type
    if first != second or first.kind != "number" or first.dtype.kind != "f" or first.nbytes not in (4, 8, 16):
        return None
    if (fields[0].offset, fields[1].offset, nbytes) != (0, first.nbytes, 2 * first.nbytes):
        return None
    return f"{first.dtype.str[0]}c{nbytes}"


def _structure(
    fields: tuple[Field, ...], dtypes: list[np.dtype[Any]], offsets: list[int], nbytes: int
) -> np.dtype[Any]:
    try:
        return np.dtype(
            {"names": [each.name for each in fields], "formats": dtypes, "offsets": offsets, "itemsize": nbytes}
        )
    except (ValueError, TypeError) as error:
        raise MetadataError(f"a compound cannot be held by NumPy: {error}") from error


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
