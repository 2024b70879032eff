"""Segments: runs of a sparse tensor's cells, in the order of some of its axes, each run a row.

CSR, CSC and CSF share them. They differ in the order of axes, and in how a run's coordinates are packed.

    i0, i1     place of the first and of the last cell: row-major, in the order of axes that the header names (`axes`)
    count      how many cells
    nbytes, crc, payload
"""

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hyperslab.errors import IntegrityError, InvalidInputError, MetadataError
from hyperslab.selection import Box
from hyperslab.tensors.layouts.axes import fold, folded_box, folded_shape, unfold
from hyperslab.tensors.layouts.encoded import (
    Bounds,
    Encoded,
    Rows,
    binary_column,
    check_rows,
    row_checksums,
    rows_of,
    schema_of,
)
from hyperslab.tensors.layouts.streams import pack_values, unpack_values
from hyperslab.tensors.values import Coo, Header, checked_dtype, positions

__all__ = ["decode_segments", "encode_segments", "prune_segments"]

_SEGMENT_CELLS = 1 << 14
_COLUMNS = ("i0", "i1", "count", "nbytes")
_GROUP_ROWS = 8

Ints = npt.NDArray[np.int64]
# Streams of the coordinates of some cells, and the way back: streams' bytes and where they begin → coordinates, end.
Pack = Callable[[Ints], bytes]
Unpack = Callable[[Any, int], tuple[list[Ints], int]]
Join = Callable[[list[list[Ints]]], Ints]


def encode_segments(
    tensor: Coo, layout: str, axes: Sequence[int], pack: Pack, further: dict[str, Any], cells: int | None = None
) -> Encoded:
    """Cut a tensor into runs of cells in the order of `axes`; `pack` makes streams of the coordinates of a run."""
    checked_dtype(tensor.dtype)
    cells = _SEGMENT_CELLS if cells is None else cells
    if not 1 <= cells <= 1 << 20:
        raise InvalidInputError(f"a segment has 1 to {1 << 20} cells, not {cells}")
    folded = fold(tensor)
    axes = checked_axes(axes, folded.ndim)
    coords, values = folded.coords[list(axes)], folded.values
    places = positions(coords, tuple(folded.shape[axis] for axis in axes))
    if list(axes) != sorted(axes):
        order = np.argsort(places, kind="stable")
        coords, values, places = coords[:, order], values[order], places[order]
    schema = schema_of(*_COLUMNS, "crc", "payload")
    names = (*_COLUMNS, "crc")
    return Encoded(
        layout, tensor.shape, tensor.dtype, tensor.fill, {"axes": list(axes), "nnz": tensor.nnz, **further}, schema,
        _tables(schema, coords, values, places, pack, cells),
        row_group_rows=_GROUP_ROWS, index=("i0", "i1"),
        encodings={**dict.fromkeys(names, "DELTA_BINARY_PACKED"), "payload": "DELTA_LENGTH_BYTE_ARRAY"},
        compression={**dict.fromkeys(names, "ZSTD"), "payload": "NONE"},
    )  # fmt: skip


def checked_axes(axes: Sequence[int], ndim: int) -> tuple[int, ...]:
    """Return an order of axes, if it names each once."""
    if sorted(axes) != list(range(ndim)):
        raise InvalidInputError(f"an order of {ndim} axes names each once, not {tuple(axes)}")
    return tuple(axes)


def _tables(schema: pa.Schema, coords: Ints, values: Any, places: Ints, pack: Pack, cells: int) -> Iterator[pa.Table]:
    step = cells * _GROUP_ROWS * 8
    for low in range(0, len(values), step):
        starts = range(low, min(low + step, len(values)), cells)
        runs = [slice(start, min(start + cells, low + step, len(values))) for start in starts]
        payloads = [pack(coords[:, run]) + pack_values(values[run]) for run in runs]
        first, last = places[[run.start for run in runs]], places[[run.stop - 1 for run in runs]]
        counts = np.array([run.stop - run.start for run in runs])
        ends = np.cumsum([0, *map(len, payloads)])
        data = np.frombuffer(b"".join(payloads), np.uint8)
        numbers = [first, last, counts, np.diff(ends)]
        yield pa.table([*numbers, row_checksums(numbers, data, ends[:-1], ends[1:]), binary_column(data, ends)], schema)


def prune_segments(header: Header, box: Box) -> list[Bounds]:
    """Return what is true of the first and last places of all segments that a box may need."""
    if not box.size:
        return []
    axes, shape = _axes_of(header)
    folded = folded_box(header.shape, box)
    ends = np.array([[folded.start[axis], folded.stop[axis] - 1] for axis in axes], np.int64)
    low, high = positions(ends, tuple(shape[axis] for axis in axes)).tolist()
    return [{"i0": (0, high), "i1": (low, prod(shape) - 1)}]


def decode_segments(header: Header, table: Any, box: Box, unpack: Unpack, join: Join) -> Coo:
    """Return the cells of a box. `unpack` undoes the streams of a segment, `join` makes coordinates of those of all."""
    axes, shape = _axes_of(header)
    bounds = prune_segments(header, box)
    nnz = header.parameters.get("nnz")
    if not bounds or not nnz:
        return Coo(box.shape, np.empty((len(box.shape), 0), np.int64), np.empty(0, header.dtype), header.fill)
    rows = Rows.joined([part.within(bounds[0]) for part in rows_of(table)])
    _, _, counts, _ = check_rows(header, rows, _COLUMNS)
    folded = folded_box(header.shape, box)
    if folded.shape == shape and counts.sum() != nnz:
        raise IntegrityError(f"tensor {header.id!r} has {nnz} cells, but its rows hold {counts.sum()}")
    coords, values = _unpacked(header, rows, counts, unpack, join, len(shape))
    sizes = np.array([shape[axis] for axis in axes])[:, None]
    if coords.shape != (len(axes), len(values)) or (coords < 0).any() or (coords >= sizes).any():
        raise IntegrityError(f"a segment of tensor {header.id!r} has cells outside of the tensor")
    unordered = np.empty_like(coords)
    unordered[list(axes)] = coords
    whole = Coo(shape, unordered, values, header.fill).cut(folded)
    if list(axes) != sorted(axes):
        order = np.argsort(positions(whole.coords, whole.shape), kind="stable")
        whole = Coo(whole.shape, whole.coords[:, order], whole.values[order], whole.fill)
    return unfold(whole, header.shape, folded, box)


def _unpacked(
    header: Header, rows: Rows, counts: Ints, unpack: Unpack, join: Join, ndim: int
) -> tuple[Ints, Any]:  # fmt: skip
    streams, values = [], [np.empty(0, header.dtype)]
    for row, count in enumerate(counts.tolist()):
        held = rows.data[rows.starts[row] : rows.stops[row]]
        found, at = unpack(held, 0)
        value, at = unpack_values(held, at, header.dtype)
        if at != len(held) or len(value) != count or len(found[-1]) != count:
            raise IntegrityError(f"a segment of tensor {header.id!r} does not hold the {count} cells that its row says")
        streams.append(found)
        values.append(value)
    if not streams:
        return np.empty((ndim, 0), np.int64), values[0]
    # NumPy joins arrays in the byte order of the machine.
    return join(streams), np.concatenate(values).astype(header.dtype, copy=False)


def _axes_of(header: Header) -> tuple[tuple[int, ...], tuple[int, ...]]:
    shape, axes = folded_shape(header.shape), header.parameters.get("axes")
    nnz = header.parameters.get("nnz")
    if not isinstance(axes, list) or sorted(map(str, axes)) != sorted(map(str, range(len(shape)))):
        raise MetadataError(f"tensor {header.id!r} names its axes as {axes!r:.60}, but has {len(shape)}")
    if not isinstance(nnz, int):
        raise MetadataError(f"the header of tensor {header.id!r} does not say how many cells it has")
    return tuple(int(axis) for axis in axes), shape
