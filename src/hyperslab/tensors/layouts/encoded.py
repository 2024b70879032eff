"""What a layout makes of a tensor: rows for a Parquet file, and how they are to be written and found.

All layouts share one set of columns, so that one table holds tensors of every layout; a file holds only the columns
that its layout has.

    i0 … i7       long     where the row belongs: what files, row groups and rows are found by
    count         long     how many cells a payload holds
    nbytes        long     how many bytes a payload has
    crc           long     CRC-32C of the row: its other columns of whole numbers, then the payload
    payload       binary   the cells
    value_int     long     one cell's value (layout "coo"), where values are whole numbers or times
    value_real    double   the same, where they are not
    value_imag    double   the same, the imaginary part of complex values

A payload is stored plain: not compressed by Parquet, no dictionary, one page for each row group, in which the lengths
of all payloads stand before the first. So the bytes of one row's payload are an extent of the file, which `nbytes` of
this row and of those after it in its group tell.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hyperslab.errors import IntegrityError, MetadataError
from hyperslab.execute.threads import on_threads, processors
from hyperslab.layout.checksums import crc32c
from hyperslab.tensors.values import Header

__all__ = [
    "COLUMNS",
    "MOST_INDEX_COLUMNS",
    "Bounds",
    "Encoded",
    "Rows",
    "binary_column",
    "check_rows",
    "row_checksums",
    "rows_of",
]

MOST_INDEX_COLUMNS = 8
INDEX_COLUMNS = tuple(f"i{axis}" for axis in range(MOST_INDEX_COLUMNS))
# The columns of all layouts, as a table declares them.
COLUMNS = pa.schema(
    [
        *(pa.field(name, pa.int64()) for name in (*INDEX_COLUMNS, "count", "nbytes", "crc")),
        pa.field("payload", pa.binary()),
        pa.field("value_int", pa.int64()),
        pa.field("value_real", pa.float64()),
        pa.field("value_imag", pa.float64()),
    ]
)
# Conditions that all wanted rows of one alternative meet: column → (lowest, highest), both included.
Bounds = Mapping[str, tuple[int, int]]

# Below this a call for each payload takes longer than a compiled loop over all of them.
_SHORT_BYTES = 2048
# Starting a thread takes about as long as summing up so many.
_BYTES_FOR_THREADS = 1 << 19

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Encoded:
    """A tensor as rows.

    `tables` gives the rows in the order in which they are to be stored, and can be gone through once. Each table but
    the last has a whole number of row groups of `row_group_rows`. `encodings` and `compression` are by column, in
    the words of `pyarrow.parquet.ParquetWriter`; columns that are not named have neither a dictionary nor an encoding
    of their own. `index` are the columns whose statistics are worth keeping, `payload` is whether the rows have one.
    """

    layout: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fill: Any
    parameters: Mapping[str, Any]
    schema: pa.Schema
    tables: Iterator[pa.Table]
    row_group_rows: int
    index: tuple[str, ...]
    encodings: Mapping[str, str] = field(default_factory=dict)
    compression: Mapping[str, str] = field(default_factory=dict)
    payload: bool = True

    def header(self, name: str) -> Header:
        """Return what is to be stored beside the rows of the tensor of this name."""
        return Header(name, self.layout, self.shape, self.dtype, self.fill, self.parameters)


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Rows that were read: columns of whole numbers by name, and where in `data` each row's payload begins and ends."""

    numbers: Mapping[str, Ints]
    data: Bytes
    starts: Ints
    stops: Ints

    def __len__(self) -> int:
        return len(self.starts)

    def column(self, name: str) -> Ints:
        """Return a column of whole numbers."""
        if name not in self.numbers:
            raise MetadataError(f"rows of a tensor have no column {name!r}; they have {', '.join(self.numbers)}")
        return self.numbers[name]

    def within(self, bounds: Bounds) -> "Rows":
        """Return the rows within bounds; payloads stay where they are."""
        met = np.ones(len(self), bool)
        for name, (low, high) in bounds.items():
            column = self.column(name)
            met &= (column >= low) & (column <= high)
        if met.all():
            return self
        kept = np.flatnonzero(met)
        numbers = {name: column[kept] for name, column in self.numbers.items()}
        return Rows(numbers, self.data, self.starts[kept], self.stops[kept])

    @staticmethod
    def joined(parts: "Sequence[Rows]") -> "Rows":
        """Return the rows of several files as one; where these are more than one, payloads are copied."""
        if len(parts) == 1:
            return parts[0]
        parts = [part for part in parts if len(part)] or list(parts[:1])
        names = parts[0].numbers if parts else ()
        lows = [int(part.starts.min()) if len(part) else 0 for part in parts]
        held = [part.data[low : part.stops.max(initial=0)] for low, part in zip(lows, parts, strict=True)]
        moves = np.cumsum([0, *map(len, held)])[:-1].tolist() if held else []
        moves = [to - low for to, low in zip(moves, lows, strict=True)]
        none = np.empty(0, np.int64)
        return Rows(
            {name: np.concatenate([part.column(name) for part in parts]) for name in names},
            np.concatenate([np.empty(0, np.uint8), *held]),
            np.concatenate([none, *(part.starts + move for part, move in zip(parts, moves, strict=True))]),
            np.concatenate([none, *(part.stops + move for part, move in zip(parts, moves, strict=True))]),
        )


def rows_of(table: Any) -> Sequence[Rows]:
    """Return the rows of a table of Arrow; what are such rows already stays as it is."""
    if not isinstance(table, pa.Table):
        given: Sequence[Rows] = table
        return given
    names = [field.name for field in table.schema if pa.types.is_integer(field.type)]
    data, ends = bytes_of_column(table.column("payload"))
    return [Rows({name: ints_of_column(table, name) for name in names}, data, ends[:-1], ends[1:])]


def schema_of(*names: str) -> pa.Schema:
    """Return the schema of these columns."""
    return pa.schema([COLUMNS.field(name).with_nullable(False) for name in names])


def binary_column(data: Any, ends: Ints) -> pa.Array:
    """Return a column of byte strings that follow one another in `data`; nothing is copied. `ends` begins with 0.

    >>> binary_column(b"abcde", np.array([0, 2, 5])).to_pylist()
    [b'ab', b'cde']
    """
    offsets = pa.py_buffer(np.ascontiguousarray(ends, np.int32))
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, [None, offsets, pa.py_buffer(data)])


def bytes_of_column(column: Any) -> tuple[Bytes, Ints]:
    """Return the bytes of a column of byte strings, one after the other, and where each begins and ends."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], pa.binary())
    if pa.types.is_large_binary(array.type):
        width: Any = np.int64
    else:
        array, width = array.cast(pa.binary()), np.int32
    _, offsets, data = array.buffers()
    if not len(array):
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    ends = np.frombuffer(offsets, width)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    held = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]] if data is not None else np.empty(0, np.uint8)
    return held, ends - ends[0]


def ints_of_column(table: pa.Table, name: str) -> Ints:
    """Return a column of whole numbers."""
    if name not in table.schema.names:
        raise MetadataError(f"rows of a tensor have no column {name!r}; they have {', '.join(table.schema.names)}")
    column = table.column(name)
    if column.null_count:
        raise IntegrityError(f"column {name!r} of a tensor's rows has empty places; the table is damaged")
    return np.asarray(column.to_numpy(), np.int64)


def row_checksums(numbers: Sequence[Ints], data: Bytes, starts: Ints, stops: Ints) -> Ints:
    """Return the checksum of each row: of its whole numbers, as 8 bytes each, and then of its payload."""
    rows = len(starts)
    heads = np.array(numbers, "<i8").reshape(len(numbers), rows)
    nbytes = int((stops - starts).sum())
    if rows and nbytes // rows < _SHORT_BYTES:
        return _short_checksums(heads, data, starts, stops, nbytes)
    head_bytes = np.ascontiguousarray(heads.T).view(np.uint8).reshape(rows, 8 * len(numbers))
    import google_crc32c

    found = np.empty(rows, np.int64)
    for row in range(rows):
        # The extension takes arrays, also read-only ones, without a copy.
        found[row] = google_crc32c.extend(crc32c(head_bytes[row]), data[starts[row] : stops[row]])
    return found


def _short_checksums(heads: Ints, data: Bytes, starts: Ints, stops: Ints, nbytes: int) -> Ints:
    from hyperslab.tensors.layouts import unpacking

    rows, threads = len(starts), processors()
    found = np.empty(rows, np.int64)
    numbers = np.concatenate([heads, found[None]])
    data = data.view()
    data.flags.writeable = False
    parts = max(1, min(threads, rows, nbytes // _BYTES_FOR_THREADS))
    edges = [rows * part // parts for part in range(parts + 1)]

    def sum_up(part: int) -> None:
        low, high = edges[part], edges[part + 1]
        unpacking.checksums(numbers, data, starts, stops, low, high, unpacking.CHECKSUM_TABLES, found[low:])

    on_threads(sum_up, parts, threads)
    return found


def check_rows(header: Header, rows: Rows, columns: Sequence[str]) -> list[Ints]:
    """Return the columns of whole numbers, if all checksums hold."""
    numbers = [rows.column(name) for name in columns]
    if ((rows.stops - rows.starts) != rows.column("nbytes")).any():
        raise IntegrityError(f"a payload of tensor {header.id!r} has another length than its row says")
    wrong = np.flatnonzero(row_checksums(numbers, rows.data, rows.starts, rows.stops) != rows.column("crc"))
    if len(wrong):
        place = [int(column[wrong[0]]) for column in numbers]
        raise IntegrityError(
            f"{len(wrong)} of {len(rows)} rows of tensor {header.id!r} are damaged: the first one's checksum does "
            f"not hold ({', '.join(f'{name}={n}' for name, n in zip(columns, place, strict=True))})"
        )
    return numbers
