"""Attributes of arrays as typed columns: which type a column has, how a block stores it, what is chosen by it.

A column is of one type in all of a collection: "bool", "int" (64 bits), "float" (64 bits), "str" or "time"
(nanoseconds). Whole numbers may be put where floats are, and turn a column of whole numbers into floats when floats
are put there. An array that has no value in a column is never chosen by it.

In a block a column has one bit for each row that says whether there is a value, then the values: eight bytes each (one
for bool), or for texts where each ends, then all of them as UTF-8.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from hyperslab.collections.names import shown
from hyperslab.errors import FormatError, InvalidInputError

__all__ = [
    "MAX_COLUMNS",
    "MAX_TEXT_BYTES",
    "TYPES",
    "Column",
    "Condition",
    "checked_attributes",
    "conditions",
    "join_type",
    "joined_type",
    "pack_column",
    "values_of",
]

Bools = npt.NDArray[np.bool_]

TYPES = {"bool": np.dtype("?"), "int": np.dtype("<i8"), "float": np.dtype("<f8"), "time": np.dtype("<M8[ns]")}
# All of an array's attributes lie in one block of the index, and all columns are named in the manifest.
MAX_TEXT_BYTES = 1 << 16
MAX_COLUMNS = 1024
_MAX_COLUMN_NAME = 256
_MAX_ATTRIBUTES = 256


def checked_attributes(name: str, attrs: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return attributes as they are stored: without those that are None, each of one of the types.

    >>> checked_attributes("a", {"x": np.int16(3), "y": None})
    {'x': 3}
    """
    if attrs is None:
        return {}
    if not isinstance(attrs, Mapping):
        raise InvalidInputError(f"attributes of {shown(name)} are a mapping of names to values, not {attrs!r:.80}")
    found = {_column_name(column): _plain(name, column, value) for column, value in attrs.items()}
    if len(found) > _MAX_ATTRIBUTES:
        raise InvalidInputError(f"{shown(name)} has {len(found)} attributes; at most {_MAX_ATTRIBUTES} are stored")
    return {column: value for column, value in found.items() if value is not None}


def _column_name(column: Any) -> str:
    if not isinstance(column, str) or not 0 < len(column) <= _MAX_COLUMN_NAME or not column.isprintable():
        raise InvalidInputError(f"an attribute's name is a short text, not {column!r:.80}")
    return column


def _plain(name: str, column: Any, value: Any) -> Any:
    if isinstance(value, np.ndarray) and not value.shape:
        value = value[()]
    if isinstance(value, np.datetime64 | date | datetime):
        return _time(name, column, value)
    # A number of nanoseconds would be an int by `item`, and one of seconds none.
    if isinstance(value, np.generic) and not isinstance(value, np.timedelta64):
        value = value.item()
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise InvalidInputError(f"attribute {column!r} of {shown(name)} is {value}, more than 64 bits hold")
        return value
    if isinstance(value, str):
        return _text(name, column, value)
    raise InvalidInputError(
        f"attribute {column!r} of {shown(name)} is a {type(value).__name__}; use a bool, number, text or time"
    )


def _text(name: str, column: Any, value: str) -> str:
    try:
        nbytes = len(value.encode())
    except UnicodeEncodeError:
        raise InvalidInputError(f"attribute {column!r} of {shown(name)} has half a character") from None
    if nbytes > MAX_TEXT_BYTES:
        raise InvalidInputError(
            f"attribute {column!r} of {shown(name)} has {nbytes:,} bytes; at most {MAX_TEXT_BYTES:,} are stored in the "
            "index: put a longer text as an array"
        )
    return value


def _time(name: str, column: Any, value: Any) -> Any:
    if isinstance(value, datetime) and value.tzinfo is not None:
        raise InvalidInputError(f"attribute {column!r} of {shown(name)} has a time zone; give it in UTC without one")
    # What pandas has for a time is a datetime, too, but NumPy would not see its nanoseconds.
    value = value.to_datetime64() if hasattr(value, "to_datetime64") else value
    try:
        found = np.datetime64(value, "ns")
        back = found.astype(np.datetime64(value).dtype)
    except (ValueError, OverflowError) as error:
        raise InvalidInputError(f"attribute {column!r} of {shown(name)} is no time: {error}") from None
    if np.isnat(found):
        return None
    if back != np.datetime64(value):
        raise InvalidInputError(f"attribute {column!r} of {shown(name)} is {value}, outside of what nanoseconds reach")
    return found


def type_of(value: Any) -> str:
    """Return the type of a value that `checked_attributes` gave."""
    return "time" if isinstance(value, np.datetime64) else type(value).__name__


def joined_type(column: str, one: str | None, other: str) -> str:
    """Return the type of a column that holds values of both types.

    >>> joined_type("time", "int", "float")
    'float'
    """
    if one is None or one == other:
        return other
    if {one, other} == {"int", "float"}:
        return "float"
    raise InvalidInputError(f"attribute {column!r} holds values of type {one}; {other} cannot be put beside them")


def join_type(columns: dict[str, str], column: str, type_: str) -> None:
    """Have columns hold values of a type in one of them, which may be a new one."""
    if column not in columns and len(columns) >= MAX_COLUMNS:
        raise InvalidInputError(
            f"attribute {column!r} would be one more than the {MAX_COLUMNS:,} that a collection has at most; what "
            "differs from array to array belongs into values, not into names of attributes"
        )
    columns[column] = joined_type(column, columns.get(column), type_)


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """A column of one block: `values` has something for every row, which counts where `present` says so."""

    type: str
    present: Bools
    values: Any


def pack_column(values: Sequence[Any]) -> tuple[str, bytes]:
    """Return the type and the bytes of a column, None where a row has no value."""
    type_ = None
    for value in values:
        if value is not None:
            type_ = joined_type("", type_, type_of(value))
    if type_ is None:
        raise FormatError("a column without values is not stored")
    present = np.array([value is not None for value in values])
    bits = np.packbits(present, bitorder="little").tobytes()
    if type_ == "str":
        texts = [b"" if value is None else value.encode() for value in values]
        ends = np.cumsum([len(text) for text in texts], dtype="<u4")
        return type_, b"".join([bits, ends.tobytes(), *texts])
    dtype = TYPES[type_]
    filled = np.array([np.zeros((), dtype)[()] if value is None else value for value in values], dtype)
    return type_, bits + filled.tobytes()


def unpack_column(type_: Any, data: memoryview, rows: int) -> Column:
    """Return the column of a block with so many rows; raises ValueError for what `pack_column` has not made."""
    bits = (rows + 7) // 8
    present = np.unpackbits(np.frombuffer(data[:bits], np.uint8), count=rows, bitorder="little").view(np.bool_)
    rest = data[bits:]
    if type_ == "str":
        return Column("str", present, _texts(rest, rows))
    if type_ not in TYPES:
        raise ValueError(f"{type_!r:.40} is no type of a column")
    values = np.frombuffer(rest, TYPES[type_] if type_ != "bool" else np.dtype("u1"))
    if len(values) != rows:
        raise ValueError("a column has other rows than its block")
    return Column(type_, present, values != 0 if type_ == "bool" else values)


def _texts(data: memoryview, rows: int) -> list[str]:
    ends = np.frombuffer(data[: 4 * rows], "<u4").astype(np.int64)
    if len(ends) != rows or (np.diff(ends, prepend=0) < 0).any() or (rows and ends[-1] != len(data) - 4 * rows):
        raise ValueError("the texts of a column are not where they should be")
    blob, starts = bytes(data[4 * rows :]), [0, *ends.tolist()]
    return [blob[low:high].decode() for low, high in pairwise(starts)]


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """What values of a column are wanted: from `low` on and below `high`, or one of `values`."""

    column: str
    low: Any = None
    high: Any = None
    values: tuple[Any, ...] | None = None

    def matches(self, column: Column) -> Bools:
        """Say of each row whether it has a value that is wanted."""
        if column.type == "str":
            return self._match_texts(column)
        wanted = column.present.copy()
        if self.values is not None:
            some = np.zeros(len(wanted), np.bool_)
            for value in self.values:
                some |= column.values == value
            return wanted & some
        if self.low is not None:
            wanted &= column.values >= self.low
        if self.high is not None:
            wanted &= column.values < self.high
        return wanted

    def _match_texts(self, column: Column) -> Bools:
        if self.values is not None:
            some = frozenset(self.values)
            found = [value in some for value in column.values]
        else:
            low, high = self.low, self.high
            found = [(low is None or low <= value) and (high is None or value < high) for value in column.values]
        return column.present & np.array(found, np.bool_)


def conditions(wanted: Mapping[str, Any], types: Mapping[str, str]) -> list[Condition]:
    """Return what a selection by attributes means: a tuple is a range (low, high), a list several values.

    >>> conditions({"time": (0, 5)}, {"time": "int"})[0].high
    5
    """
    return [_condition(column, value, types) for column, value in wanted.items()]


def _condition(column: str, value: Any, types: Mapping[str, str]) -> Condition:
    if column not in types:
        known = ", ".join(sorted(types)) or "none"
        raise InvalidInputError(f"no array has an attribute {column!r:.80}; there are: {known:.400}")
    if isinstance(value, tuple):
        if len(value) != 2:
            raise InvalidInputError(
                f"a range of {column!r} is (low, high), not {value!r:.80}; several values are a list"
            )
        low, high = (None if each is None else _operand(column, each, types[column]) for each in value)
        return Condition(column, low, high)
    several = value if isinstance(value, list | set | frozenset | np.ndarray | range) else [value]
    return Condition(column, values=tuple([_operand(column, each, types[column]) for each in several]))


def _operand(column: str, value: Any, type_: str) -> Any:
    found = _plain("a selection", column, value)
    if found is None:
        raise InvalidInputError(f"attribute {column!r} is compared with {value!r:.80}, which is no value")
    other = type_of(found)
    if other != type_ and not {other, type_} <= {"bool", "int", "float"}:
        raise InvalidInputError(f"attribute {column!r} is of type {type_}, and compared with {found!r:.80}")
    return found


def values_of(found: Sequence[Any], type_: str) -> npt.NDArray[Any]:
    """Return a column of values as an array; where one is None the array is masked, or of texts None itself."""
    if type_ == "str":
        texts = np.empty(len(found), object)
        texts[:] = found
        return texts
    dtype = TYPES[type_]
    absent = [value is None for value in found]
    values = np.array([np.zeros((), dtype)[()] if value is None else value for value in found], dtype)
    return np.ma.MaskedArray(values, absent) if any(absent) else values
