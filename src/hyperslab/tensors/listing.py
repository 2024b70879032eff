"""What is in a table: a row for each tensor, chosen by what it says; and times as a person writes them."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hyperslab.errors import InvalidInputError
from hyperslab.tensors.extents import read_whole
from hyperslab.tensors.heads import HEAD_COLUMNS, SCHEMA, column_type
from hyperslab.tensors.place import Place
from hyperslab.tensors.snapshot import Snapshot

__all__ = ["list_tensors", "moment_ns"]


def list_tensors(place: Place, snapshot: Snapshot | None, filter: Any, columns: Sequence[str] | None) -> pa.Table:
    """Return the rows of all tensors that a filter lets through, sorted by id."""
    tables = [] if snapshot is None else [read_whole(place, each.file) for each in snapshot.heads]
    found = pa.concat_tables([HEAD_COLUMNS.empty_table(), *tables], promote_options="default")
    found = _with_columns(found, snapshot)
    if filter is not None:
        found = _filtered(found, filter)
    if columns is not None:
        found = found.select(_known(found, list(columns)))
    return found.sort_by("id") if "id" in found.schema.names else found


def _with_columns(found: pa.Table, snapshot: Snapshot | None) -> pa.Table:
    """Add the columns of metadata that no tensor has any more: the table still has them."""
    for name, stored in {} if snapshot is None else snapshot.version.columns.items():
        type_ = column_type(stored)
        if name not in SCHEMA.names and name not in found.schema.names and type_ is not None:
            found = found.append_column(name, pa.nulls(found.num_rows, type_))
    return found


def _filtered(found: pa.Table, wanted: Any) -> pa.Table:
    if isinstance(wanted, Mapping):
        wanted = _expression(found, wanted)
        if wanted is None:
            return found
    if not isinstance(wanted, pc.Expression):
        raise InvalidInputError(
            f"a filter is an expression of pyarrow.compute or a mapping of columns to values, not {wanted!r:.80}"
        )
    try:
        return found.filter(wanted)
    except (pa.ArrowException, TypeError) as error:
        raise InvalidInputError(
            f"the filter does not fit the columns {', '.join(found.schema.names)}: {error}"
        ) from None


def _expression(found: pa.Table, wanted: Mapping[str, Any]) -> pc.Expression | None:
    whole: pc.Expression | None = None
    for name in _known(found, list(wanted)):
        part = _condition(pc.field(name), wanted[name])
        whole = part if whole is None else whole & part
    return whole


def _condition(field: pc.Expression, value: Any) -> pc.Expression:
    if isinstance(value, tuple):
        low, high = (*value, None)[:2] if len(value) == 1 else value
        parts = ([field >= low] if low is not None else []) + ([field < high] if high is not None else [])
        return parts[0] & parts[1] if len(parts) == 2 else parts[0] if parts else field.is_valid()
    if isinstance(value, list):
        return field.isin(value)
    return field.is_null() if value is None else field == value


def _known(found: pa.Table, names: list[str]) -> list[str]:
    for name in names:
        if name not in found.schema.names:
            raise InvalidInputError(f"there is no column {name!r:.80}; there are {', '.join(found.schema.names)}")
    return names


def moment_ns(timestamp: datetime | str | None) -> int:
    """Return a time in nanoseconds since 1970.

    >>> moment_ns("1970-01-01T00:00:01")
    1000000000
    """
    try:
        moment = datetime.fromisoformat(timestamp) if isinstance(timestamp, str) else timestamp
    except ValueError:
        moment = None
    if not isinstance(moment, datetime):
        raise InvalidInputError(
            f"a timestamp is a datetime or a text such as '2026-07-01T12:00:00', not {timestamp!r:.80}"
        )
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    return int(moment.timestamp() * 1_000_000) * 1000
