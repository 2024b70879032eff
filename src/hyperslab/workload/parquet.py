"""Workloads as Parquet files: one row for each read, for whatever else reads Parquet. Needs pyarrow."""

import json
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from hyperslab.errors import FormatError, InvalidInputError
from hyperslab.workload.frames import Skipped
from hyperslab.workload.records import COUNTS, FIXED, MOST_AXES, SECONDS, KnownArray, Process, Records

__all__ = ["is_parquet", "read_parquet", "write_parquet"]

_MISSING = "Parquet files need pyarrow; install it with: pip install 'hyperslab[workload]'"
_MARK = b"hyperslab.workload"
_VERSION = 1
_MAGIC = b"PAR1"
# What of a read is a place in a table, and the columns that stand for it.
_CODES = ("array", "process", "method", "error")
_ARRAY = ("url", "shape", "dtype", "itemsize", "chunks", "shards")
_PROCESS = ("host", "pid", "run")
_AXES = ("start", "count", "step")
_TEXTS = ("url", "dtype", "host", "run", "method", "error")
_LISTS = ("shape", "chunks", "shards", *_AXES, "cells")
_COLUMNS = (*_ARRAY, *_PROCESS, *[name for name in FIXED if name not in ("array", "process")], *_AXES, "cells")
_ROWS_AT_ONCE = 65_536
# Columns are packed so well that a small file may hold more numbers than there is memory for.
_MOST_NUMBERS = 1 << 29


def is_parquet(path: str) -> bool:
    """Whether a file is a Parquet file, by its name or by its first bytes."""
    if path.lower().endswith((".parquet", ".pq")):
        return True
    if not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def write_parquet(path: str, records: Records, skipped: Skipped) -> None:
    """Write records, and how much of their logs was skipped."""
    arrow, parquet = _pyarrow()
    columns: dict[str, Any] = {}
    arrays = [_spelled(array) for array in records.arrays]
    for name in _ARRAY:
        columns[name] = _looked_up(arrow, [array[name] for array in arrays], records.fixed["array"], name)
    for name in _PROCESS:
        values = [getattr(process, name) for process in records.processes]
        columns[name] = _looked_up(arrow, values, records.fixed["process"], name)
    columns["method"] = _looked_up(arrow, records.methods, records.fixed["method"], "method")
    columns["error"] = _looked_up(arrow, records.errors, records.fixed["error"], "error")
    columns |= {name: arrow.array(records.fixed[name]) for name in FIXED if name not in _CODES}
    for name in _AXES:
        columns[name] = arrow.LargeListArray.from_arrays(records.bounds, getattr(records, name))
    ends = np.cumsum(np.where(records.step < 0, records.count, 0), dtype=np.int64)
    cells = np.concatenate([np.zeros(1, np.int64), ends])[records.bounds]
    columns["cells"] = arrow.LargeListArray.from_arrays(cells, records.cells)
    told = json.dumps({"version": _VERSION, "skipped_frames": skipped.frames, "skipped_bytes": skipped.bytes})
    table = arrow.table(columns).replace_schema_metadata({_MARK: told.encode()})
    # Under another name until it is whole: it may take the place of one of the files that it was made of.
    part = f"{path}.{secrets.token_hex(8)}.part"
    try:
        parquet.write_table(table, part, compression="zstd", row_group_size=_ROWS_AT_ONCE)
        os.replace(part, path)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        raise InvalidInputError(f"{path!r} cannot be written: {why}; choose another file") from None
    finally:
        with suppress(OSError):
            os.unlink(part)


def read_parquet(path: str, skipped: Skipped) -> Iterator[Records]:
    """Yield the records of a file that `write_parquet` made; add to `skipped` what its logs lacked."""
    arrow, parquet = _pyarrow()
    try:
        with parquet.ParquetFile(path) as file:
            _check_columns(arrow, file)
            told = json.loads((file.schema_arrow.metadata or {})[_MARK])
            if told["version"] != _VERSION:
                raise ValueError(f"version {told['version']!r} is not known")
            skipped.frames += _count(told["skipped_frames"])
            skipped.bytes += _count(told["skipped_bytes"])
            for batch in file.iter_batches(_ROWS_AT_ONCE):
                yield _records(batch).checked()
    except FileNotFoundError:
        raise
    except (
        arrow.ArrowException, OSError, KeyError, TypeError, ValueError, IndexError, OverflowError, RecursionError,
    ) as error:  # fmt: skip
        raise FormatError(f"{path!r} is no workload that `to_parquet` has written: {error}") from None


def _check_columns(arrow: Any, file: Any) -> None:
    """Refuse a file whose columns are others than those of workloads, or too long, before they are read."""
    schema, whole = file.schema_arrow, arrow.int64()
    lists, texts = (arrow.large_list(whole), arrow.list_(whole)), (arrow.string(), arrow.large_string())
    for name in _COLUMNS:
        at = schema.get_field_index(name)
        if at < 0:
            raise ValueError(f"it has no column {name!r}, or two of them")
        kind = schema.field(at).type
        known = lists if name in _LISTS else texts if name in _TEXTS else (whole,)
        if kind not in ((arrow.float64(),) if name in SECONDS else known):
            raise ValueError(f"its column {name!r} is {kind}")
    groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
    numbers = sum(group.column(number).num_values for group in groups for number in range(group.num_columns))
    if numbers > _MOST_NUMBERS:
        raise ValueError(f"it holds {numbers:,} values, more than are read at once")


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise ValueError(f"{value!r} is no count")
    return value


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise InvalidInputError(_MISSING) from None
    return pyarrow, pyarrow.parquet


def _spelled(array: KnownArray) -> dict[str, Any]:
    return {name: getattr(array, name) for name in _ARRAY}


def _looked_up(arrow: Any, values: Sequence[Any], places: Any, name: str) -> Any:
    """Return the column of a table's values, one for each read."""
    sizes, whole = arrow.large_list(arrow.int64()), arrow.int64()
    kind = {"shape": sizes, "chunks": sizes, "shards": sizes, "itemsize": whole, "pid": whole}.get(name, arrow.string())
    # A file's name may hold bytes that are no text.
    safe = [value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value for value in values]
    return arrow.array(safe, kind).take(arrow.array(places))


def _records(batch: Any) -> Records:
    columns = {name: batch.column(name) for name in batch.schema.names}
    for name in ("shape", "chunks", "shards"):
        if (columns[name].value_lengths().fill_null(0).to_numpy(zero_copy_only=False) > MOST_AXES).any():
            raise ValueError("an array has too many axes")
    fixed = {
        name: _flat(columns[name], np.float64 if name in SECONDS else np.int64) for name in FIXED if name not in _CODES
    }
    arrays, fixed["array"] = _table(columns, _ARRAY)
    processes, fixed["process"] = _table(columns, _PROCESS)
    methods, fixed["method"] = _table(columns, ("method",))
    errors, fixed["error"] = _table(columns, ("error",))
    bounds = _bounds(columns["start"])
    start, count, step = (columns[name].flatten() for name in _AXES)
    if any(not np.array_equal(_bounds(columns[name]), bounds) for name in _AXES):
        raise ValueError("axes do not fit together")
    return Records(
        tuple(map(_array, arrays)), tuple([Process(str(host), int(pid), str(run)) for host, pid, run in processes]),
        tuple([method for (method,) in methods]), tuple([error for (error,) in errors]),
        {name: fixed[name] for name in (*COUNTS, *SECONDS)}, bounds,
        *(_flat(column, np.int64) for column in (start, count, step, columns["cells"].flatten())),
    )  # fmt: skip


def _flat(column: Any, kind: type) -> Any:
    if column.null_count:
        raise ValueError("a value is missing")
    return column.to_numpy(zero_copy_only=False).astype(kind, casting="safe")


def _bounds(column: Any) -> Any:
    lengths = column.value_lengths()
    if lengths.null_count:
        raise ValueError("a list is missing")
    sizes = lengths.to_numpy(zero_copy_only=False).astype(np.int64)
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])


def _table(columns: dict[str, Any], names: tuple[str, ...]) -> tuple[list[tuple[Any, ...]], Any]:
    """Return the different values of some columns, and which of them each row has."""
    rows = zip(*(map(_hashable, columns[name].to_pylist()) for name in names), strict=True)
    places: dict[tuple[Any, ...], int] = {}
    found = [places.setdefault(row, len(places)) for row in rows]
    return list(places), np.array(found, np.int64)


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _array(values: tuple[Any, ...]) -> KnownArray:
    url, shape, dtype, itemsize, chunks, shards = values
    if len(shape) > MOST_AXES or len(chunks) != len(shape) or len(shards or chunks) != len(shape):
        raise ValueError("an array's shape and chunks do not fit together")
    if not all(isinstance(size, int) and 0 <= size < 1 << 62 for size in (*shape, *chunks, *(shards or ()), itemsize)):
        raise ValueError("sizes are whole numbers from 0 on")
    return KnownArray(str(url), shape, str(dtype), itemsize, chunks, shards)
