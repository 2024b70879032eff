"""COO: a sparse tensor as its cells, one row each, in columns that every reader of the table understands.

    i0 … i7       the cell's index along each axis; where there are more than eight, the last counts the rest row-major
    value_int     its value, where values are whole numbers, bool (0, 1) or times (their count of units); unsigned
                  numbers of 64 bits from 2**63 on are negative, 2**64 less
    value_real    its value where it is not whole by its dtype; float16 and float32 fit exactly
    value_imag    the imaginary part of complex values

Rows are sorted row-major, so that an index along the first axes is in few row groups.
"""

from collections.abc import Iterator
from math import isqrt
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hyperslab.errors import IntegrityError, InvalidInputError, MetadataError
from hyperslab.selection import Box
from hyperslab.tensors.layouts.axes import fold, folded_box, folded_shape, unfold
from hyperslab.tensors.layouts.encoded import INDEX_COLUMNS, Bounds, Encoded, ints_of_column, schema_of
from hyperslab.tensors.values import Coo, Header, positions

__all__ = ["decode", "encode", "prune"]

# About what a cell takes, and what a column of a row group takes in a file's footer.
_CELL_BYTES = 4
_FOOTER_BYTES = 100
_LEAST_GROUP_ROWS = 4096
_TABLE_ROWS = 1 << 20

Array = npt.NDArray[Any]


def encode(tensor: Coo, *, row_group_rows: int | None = None) -> Encoded:
    """Make a row of each cell.

    >>> rows = next(encode(Coo.of((3, 3), [[0, 2], [1, 2]], np.array([1.5, 2.5]))).tables)
    >>> rows.to_pydict()
    {'i0': [0, 2], 'i1': [1, 2], 'value_real': [1.5, 2.5]}
    """
    folded = fold(tensor)
    columns = INDEX_COLUMNS[: folded.ndim]
    values = value_columns(tensor.dtype)
    group_rows = _group_rows(tensor.nnz, folded.ndim) if row_group_rows is None else row_group_rows
    if group_rows < 1:
        raise InvalidInputError(f"a row group has at least one row, not {row_group_rows}")
    names = (*columns, *values)
    schema = schema_of(*names)
    return Encoded(
        "coo", tensor.shape, tensor.dtype, tensor.fill, {"nnz": tensor.nnz}, schema,
        _tables(schema, folded, group_rows),
        row_group_rows=group_rows, index=columns, payload=False,
        encodings={
            name: "BYTE_STREAM_SPLIT" if name in ("value_real", "value_imag") else "DELTA_BINARY_PACKED"
            for name in names
        },
        compression=dict.fromkeys(names, "ZSTD"),
    )  # fmt: skip


def _group_rows(nnz: int, axes: int) -> int:
    """Return row groups that make what is read too much about as large as what the footer says of them."""
    groups = isqrt(nnz * _CELL_BYTES // (_FOOTER_BYTES * (axes + 1))) or 1
    return max(_LEAST_GROUP_ROWS, -(-nnz // groups))


def value_columns(dtype: np.dtype[Any]) -> tuple[str, ...]:
    """Return the columns that values of a dtype are in.

    >>> value_columns(np.dtype("c8")), value_columns(np.dtype("?"))
    (('value_real', 'value_imag'), ('value_int',))
    """
    if dtype.kind in "biumM":
        return ("value_int",)
    if dtype.kind == "f" and dtype.itemsize <= 8:
        return ("value_real",)
    if dtype.kind == "c" and dtype.itemsize <= 16:
        return ("value_real", "value_imag")
    raise InvalidInputError(f"layout 'coo' has no column for values of {dtype}; use 'ftsf' or another layout")


def _tables(schema: pa.Schema, tensor: Coo, group_rows: int) -> Iterator[pa.Table]:
    step = max(1, _TABLE_ROWS // group_rows) * group_rows
    for low in range(0, tensor.nnz, step):
        rows = slice(low, low + step)
        yield pa.table([*(along[rows] for along in tensor.coords), *_as_columns(tensor.values[rows])], schema)


def _as_columns(values: Array) -> list[Array]:
    if values.dtype.kind in "mM":
        return [values.astype(values.dtype.newbyteorder("=")).view(np.int64)]
    if values.dtype.kind in "biu":
        return [values.astype(np.uint64).view(np.int64) if values.dtype.kind == "u" else values.astype(np.int64)]
    if values.dtype.kind == "c":
        return [values.real.astype(np.float64), values.imag.astype(np.float64)]
    return [values.astype(np.float64)]


def prune(header: Header, box: Box) -> list[Bounds]:
    """Return what is true of the indices of all cells of a box.

    >>> header = encode(Coo.of((3, 3), [[0], [1]], np.ones(1))).header("a")
    >>> prune(header, Box((1, 0), (3, 2)))
    [{'i0': (1, 2), 'i1': (0, 1)}]
    """
    if not box.size:
        return []
    folded = folded_box(header.shape, box)
    ends = zip(INDEX_COLUMNS, folded.start, folded.stop, strict=False)
    return [{name: (low, high - 1) for name, low, high in ends}]


def decode(header: Header, table: pa.Table, box: Box) -> Coo:
    """Return the cells of a box."""
    shape, nnz = folded_shape(header.shape), header.parameters.get("nnz")
    if not isinstance(nnz, int):
        raise MetadataError(f"the header of tensor {header.id!r} does not say how many cells it has")
    if not box.size or not nnz:
        return Coo(box.shape, np.empty((len(box.shape), 0), np.int64), np.empty(0, header.dtype), header.fill)
    folded = folded_box(header.shape, box)
    coords = np.array([ints_of_column(table, name) for name in INDEX_COLUMNS[: len(shape)]])
    values = _as_values(header, table)
    if folded.shape == shape and len(values) != nnz:
        raise IntegrityError(f"tensor {header.id!r} has {nnz} cells, but {len(values)} rows")
    if len(values) and (coords.min() < 0 or (coords.max(axis=1) >= np.array(shape)).any()):
        raise IntegrityError(f"tensor {header.id!r} has cells outside of its shape {header.shape}")
    order = positions(coords, shape)
    if not bool((order[1:] > order[:-1]).all()):
        raise IntegrityError(f"the cells of tensor {header.id!r} are not in their order, or one is there twice")
    return unfold(Coo(shape, coords, values, header.fill).cut(folded), header.shape, folded, box)


def _as_values(header: Header, table: pa.Table) -> Array:
    dtype = header.dtype
    first, *rest = value_columns(dtype)
    if first == "value_int":
        numbers = ints_of_column(table, first)
        if dtype.kind in "mM":
            return numbers.view(dtype.newbyteorder("=")).astype(dtype)
        return (numbers.view(np.uint64) if dtype.kind == "u" else numbers).astype(dtype)
    real = np.asarray(table.column(first).to_numpy(), np.float64)
    if not rest:
        return real.astype(dtype)
    values = np.empty(len(real), dtype)
    values.real, values.imag = real, table.column(rest[0]).to_numpy()
    return values
