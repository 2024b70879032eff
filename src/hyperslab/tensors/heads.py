"""What a table says of each of its tensors, in one row: its header, and metadata of the user's as columns.

id            string        of the tensor
layout        string        of its rows; null in rows of data, so that these are told apart
dtype         string        as NumPy writes it, with the order of the bytes
shape         array<long>
fill          string        the fill value's bytes, in hexadecimal digits
parameters    string        of the layout, in JSON
stored_bytes  long          bytes of the rows of data
created       timestamp     when it was put
"""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from hyperslab.errors import InvalidInputError, MetadataError
from hyperslab.tensors.layouts import COLUMNS
from hyperslab.tensors.values import Header

__all__ = [
    "HEAD_COLUMNS",
    "SCHEMA",
    "checked_metadata",
    "column_type",
    "header_of_row",
    "heads_table",
    "metadata_types",
]

HEAD_COLUMNS = pa.schema(
    [
        ("id", pa.string()),
        ("layout", pa.string()),
        ("dtype", pa.string()),
        ("shape", pa.list_(pa.int64())),
        ("fill", pa.string()),
        ("parameters", pa.string()),
        ("stored_bytes", pa.int64()),
        ("created", pa.timestamp("us", tz="UTC")),
    ]
)
# The columns of a new table.
SCHEMA = pa.schema([*HEAD_COLUMNS, *COLUMNS])

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
# Types of Python, and the columns that hold them; the first that fits counts, as a bool is an int, too.
_TYPES: tuple[tuple[Any, pa.DataType], ...] = (
    (bool, pa.bool_()),
    (int, pa.int64()),
    (float, pa.float64()),
    (str, pa.string()),
    (bytes, pa.binary()),
    (datetime, pa.timestamp("us", tz="UTC")),
    (date, pa.date32()),
)
# What the log calls these types.
_STORED = {
    "boolean": pa.bool_(), "long": pa.int64(), "integer": pa.int32(), "short": pa.int16(), "byte": pa.int8(),
    "double": pa.float64(), "float": pa.float32(), "string": pa.string(), "binary": pa.binary(),
    "timestamp": pa.timestamp("us", tz="UTC"), "date": pa.date32(),
}  # fmt: skip


def checked_metadata(metadata: Any) -> dict[str, Any]:
    """Return metadata as plain values of Python; what cannot be a column's is refused.

    >>> checked_metadata({"city": "Rome", "n": np.int32(3), "unknown": None})
    {'city': 'Rome', 'n': 3}
    """
    if metadata is not None and not isinstance(metadata, Mapping):
        raise InvalidInputError(f"metadata is a mapping of names to values, not {type(metadata).__name__}")
    plain = {}
    for name, value in (metadata or {}).items():
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name.lower() in SCHEMA.names:
            raise InvalidInputError(
                f"{name!r:.80} cannot be a column of metadata; use letters, digits and _, and none of the table's own "
                "columns"
            )
        value = value.item() if isinstance(value, np.generic) else value
        if isinstance(value, datetime) and value.tzinfo is None:
            value = value.replace(tzinfo=UTC)
        if value is not None:
            _type_of(name, value)
            plain[name] = value
    return plain


def _type_of(name: str, value: Any) -> pa.DataType:
    for kind, type_ in _TYPES:
        if isinstance(value, kind):
            if kind is int and not -(2**63) <= value < 2**63:
                break
            return type_
    raise InvalidInputError(
        f"metadata {name!r} is a bool, whole number, float, text, bytes, date or time, not {value!r:.80}"
    )


def metadata_types(rows: Sequence[Mapping[str, Any]], stored: Mapping[str, Any]) -> dict[str, pa.DataType]:
    """Return the columns that rows of metadata need, with their types; a table's own must hold them.

    >>> metadata_types([{"a": 1}, {"a": 0.5, "b": "x"}], {})
    {'a': DataType(double), 'b': DataType(string)}
    """
    types: dict[str, pa.DataType] = {}
    for row in rows:
        for name, value in row.items():
            new = _type_of(name, value)
            old = types.get(name) or _stored_type(name, stored)
            types[name] = new if old is None else _joined(name, old, new, fixed=name in stored)
    return types


def column_type(stored: Any) -> pa.DataType | None:
    """Return the type in Arrow of a column as the log has it; None if metadata cannot be of that type."""
    return _STORED.get(stored) if isinstance(stored, str) else None


def _stored_type(name: str, stored: Mapping[str, Any]) -> pa.DataType | None:
    if name not in stored:
        return None
    found = column_type(stored[name])
    if found is None:
        raise InvalidInputError(f"the table has a column {name!r} of type {stored[name]}, which metadata cannot go to")
    return found


def _joined(name: str, old: pa.DataType, new: pa.DataType, *, fixed: bool) -> pa.DataType:
    if old == new or (pa.types.is_floating(old) and pa.types.is_integer(new)):
        return old
    if pa.types.is_integer(old) and pa.types.is_integer(new):
        return old
    if pa.types.is_integer(old) and pa.types.is_floating(new) and not fixed:
        return new
    raise InvalidInputError(f"metadata {name!r} is of type {old} in the table, and a value of type {new} does not fit")


def heads_table(
    headers: Sequence[Header], stored_bytes: Sequence[int], metadata: Sequence[Mapping[str, Any]],
    types: Mapping[str, pa.DataType],
) -> pa.Table:  # fmt: skip
    """Return the rows of tensors."""
    now = datetime.now(UTC)
    told = [json.loads(header.to_json()) for header in headers]
    columns: dict[str, Any] = {
        "id": [each["id"] for each in told],
        "layout": [each["layout"] for each in told],
        "dtype": [each["dtype"] for each in told],
        "shape": [each["shape"] for each in told],
        "fill": [each["fill"] for each in told],
        "parameters": [json.dumps(each["parameters"], separators=(",", ":")) for each in told],
        "stored_bytes": list(stored_bytes),
        "created": [now] * len(told),
    }
    arrays = [pa.array(columns[field.name], field.type) for field in HEAD_COLUMNS]
    more = [pa.array([row.get(name) for row in metadata], type_) for name, type_ in types.items()]
    return pa.table([*arrays, *more], [*HEAD_COLUMNS.names, *types])


def header_of_row(row: Mapping[str, Any]) -> Header:
    """Return the header that a row of the table says."""
    try:
        told = {name: row[name] for name in ("id", "layout", "shape", "dtype", "fill")}
        return Header.from_json(json.dumps({**told, "parameters": json.loads(row["parameters"])}))
    except (KeyError, TypeError, ValueError) as error:
        raise MetadataError(f"the row of tensor {row.get('id')!r} cannot be read: {error}") from None
