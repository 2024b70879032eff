"""Choosing arrays by their attributes, and reading attributes as columns."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hyperslab.collections.blocks import Block
from hyperslab.collections.columns import Condition, conditions, values_of
from hyperslab.collections.index import Index
from hyperslab.collections.names import unknown
from hyperslab.collections.scanning import decoded
from hyperslab.errors import InvalidInputError

__all__ = ["attributes_of", "selected"]


def selected(index: Index, wanted: Mapping[str, Any], types: Mapping[str, str]) -> list[str]:
    """Return the names of arrays whose attributes are as wanted, sorted."""
    all_of = conditions(wanted, types)
    return [name for part in index.parts() for name in _selected(part, all_of)]


def _selected(index: Index, all_of: Sequence[Condition]) -> list[str]:
    if len(index.segments) == 1:
        # Nothing hides a row, so that those which do not match need not be looked at one by one.
        rows = ((block, np.flatnonzero(_matches(block, all_of)).tolist()) for block in index.through(0))
        return [decoded(block.name(row)) for block, some in rows for row in some]
    merged = index.merged(b"", b"", lambda block: _matches(block, all_of).tolist())
    return [decoded(name) for name, _, matches in merged if matches]


def _matches(block: Block, all_of: Sequence[Condition]) -> npt.NDArray[np.bool_]:
    """Say of each row whether it is an array that is wanted."""
    found: npt.NDArray[np.bool_] = ~np.array(block.deleted(), np.bool_)
    columns = block.columns() if all_of else {}
    for condition in all_of:
        if condition.column not in columns:
            return np.zeros(block.rows, np.bool_)
        found &= condition.matches(columns[condition.column])
    return found


def attributes_of(
    index: Index, names: Sequence[str], types: Mapping[str, str], columns: Sequence[str] | None
) -> dict[str, npt.NDArray[Any]]:
    """Return columns of attributes of arrays, in the order of their names."""
    for column in columns or ():
        if column not in types:
            raise InvalidInputError(f"no array has an attribute {column!r:.80}; there are: {', '.join(sorted(types))}")
    located = index.locate(set(names))
    for name in names:
        if name not in located:
            raise unknown(name)
    found = {}
    for column in sorted(types) if columns is None else columns:
        values = [_value(*located[name], column) for name in names]
        found[column] = values_of(values, types[column])
    return found


def _value(block: Block, row: int, column: str) -> Any:
    found = block.columns().get(column)
    return None if found is None or not found.present[row] else found.values[row]
