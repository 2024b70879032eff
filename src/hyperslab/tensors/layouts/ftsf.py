"""FTSF: a dense tensor as chunks, each of which is a run of its bytes.

A chunk covers the last axes whole (`chunk_dims` of them, as in the paper), and where `rows` is more than 1 so many
cells of the axis before them: many small pictures share a chunk, and a long vector has several. As the last axes are
whole, a chunk is a run of the tensor's bytes in row-major order: nothing is copied when it is stored.

    i0 … i7    place of the chunk in the grid of chunks, along the axes that are not whole. Where these are more than
               eight, the last column counts the rest row-major.
    nbytes, crc, payload
"""

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hyperslab.errors import IntegrityError, InvalidInputError, MetadataError
from hyperslab.selection import Box
from hyperslab.tensors.layouts.encoded import (
    INDEX_COLUMNS,
    MOST_INDEX_COLUMNS,
    Bounds,
    Encoded,
    Rows,
    binary_column,
    check_rows,
    row_checksums,
    rows_of,
    schema_of,
)
from hyperslab.tensors.values import Header, checked_dtype, checked_shape

__all__ = ["chunk_of", "decode", "encode", "prune"]

# What one request brings without much waiting beside it, and what one image has.
_CHUNK_BYTES = 4 << 20
_MOST_CHUNK_BYTES = 1 << 30
_TABLE_BYTES = 64 << 20

Ints = npt.NDArray[np.int64]


def chunk_of(shape: tuple[int, ...], itemsize: int, target_bytes: int = _CHUNK_BYTES) -> tuple[int, int]:
    """Return how many last axes a chunk covers whole, and how many cells of the axis before them.

    >>> chunk_of((5000, 3, 1024, 1024), 1)
    (3, 1)
    >>> chunk_of((60000, 28, 28), 1)
    (2, 5349)
    """
    dims = 0
    while dims < len(shape) and prod(shape[len(shape) - dims - 1 :]) * itemsize <= target_bytes:
        dims += 1
    if dims == len(shape):
        return dims, 1
    each = max(1, prod(shape[len(shape) - dims :]) * itemsize)
    return dims, max(1, target_bytes // each)


def encode(x: npt.NDArray[Any], *, chunk_dims: int | None = None, rows: int | None = None) -> Encoded:
    """Cut a dense tensor into chunks.

    >>> table = next(encode(np.zeros((24, 3, 8, 8), "u1"), chunk_dims=3).tables)
    >>> table.num_rows, table.column("i0").to_pylist()[:3], table.column("nbytes").to_pylist()[:3]
    (24, [0, 1, 2], [192, 192, 192])
    """
    shape, dtype = checked_shape(x.shape), checked_dtype(x.dtype)
    found_dims, found_rows = chunk_of(shape, dtype.itemsize)
    dims = found_dims if chunk_dims is None else chunk_dims
    each = rows if rows is not None else found_rows if dims == found_dims else 1
    if not 0 <= dims <= len(shape) or each < 1:
        raise InvalidInputError(
            f"a chunk of a tensor with {len(shape)} axes covers 0 to {len(shape)} of them whole and at least 1 row of "
            f"the next, not {dims} and {each}"
        )
    grid = _Grid(shape, dims, each)
    if max(grid.sizes(np.zeros(1, np.int64))[0], 1) * dtype.itemsize > _MOST_CHUNK_BYTES:
        raise InvalidInputError(
            f"chunks of {grid.cells * dtype.itemsize:,} bytes are too large; cover fewer axes than {dims} whole"
        )
    return Encoded(
        "ftsf", shape, dtype, np.zeros((), dtype)[()], {"chunk_dims": dims, "rows": each},
        schema_of(*grid.columns, "nbytes", "crc", "payload"),
        _tables(np.ascontiguousarray(x).reshape(shape), grid),
        row_group_rows=1, index=grid.columns,
        compression=dict.fromkeys((*grid.columns, "nbytes", "crc", "payload"), "NONE"),
    )  # fmt: skip


class _Grid:
    """Where chunks lie: `counts` of them along each axis that is not whole, and what runs of cells they are."""

    def __init__(self, shape: tuple[int, ...], dims: int, rows: int) -> None:
        cut = len(shape) - dims
        self.shape, self.rows, self.cut = shape, rows, cut
        self.inner = prod(shape[cut:])
        self.length = shape[cut - 1] if cut else 1
        self.counts = (*shape[: max(cut - 1, 0)], *([-(-self.length // rows)] if cut else []))
        if not prod(shape):
            self.counts = tuple(0 for _ in self.counts) or (0,)
        merged = self.counts[MOST_INDEX_COLUMNS - 1 :]
        self.merged = (*self.counts[: MOST_INDEX_COLUMNS - 1], prod(merged)) if merged else self.counts
        self.columns = INDEX_COLUMNS[: max(1, len(self.merged))]
        self.chunks = prod(self.counts) if prod(shape) else 0
        self.cells = min(rows, self.length) * self.inner

    def firsts(self, chunks: Ints) -> Ints:
        """Return the row-major place of the first cell of chunks."""
        along = -(-self.length // self.rows)
        outer, last = np.divmod(chunks, max(along, 1))
        return np.asarray((outer * self.length + last * self.rows) * self.inner)

    def sizes(self, chunks: Ints) -> Ints:
        """Return how many cells chunks have: the last along the cut axis may have fewer."""
        along = max(-(-self.length // self.rows), 1)
        return np.asarray(np.minimum(self.rows, self.length - (chunks % along) * self.rows) * self.inner)

    def places(self, chunks: Ints) -> list[Ints]:
        """Return the index columns of chunks."""
        if not self.merged:
            return [np.zeros(len(chunks), np.int64)]
        return [np.asarray(place, np.int64) for place in np.unravel_index(chunks, self.merged)]

    def ranges(self, box: Box) -> list[tuple[int, int]]:
        """Return the first and last chunk that meet a box, along each axis that is cut."""
        found = []
        for axis in range(self.cut):
            each = self.rows if axis == self.cut - 1 else 1
            found.append((box.start[axis] // each, (box.stop[axis] - 1) // each))
        return found


def _tables(x: npt.NDArray[Any], grid: _Grid) -> Iterator[pa.Table]:
    data = x.reshape(-1).view(np.uint8) if x.size else np.empty(0, np.uint8)
    width = x.dtype.itemsize
    step = max(1, _TABLE_BYTES // max(1, grid.cells * width))
    for low in range(0, grid.chunks, step):
        chunks = np.arange(low, min(low + step, grid.chunks), dtype=np.int64)
        first = int(grid.firsts(chunks[:1])[0]) * width
        ends = np.concatenate(([0], np.cumsum(grid.sizes(chunks)))) * width
        held = data[first : first + int(ends[-1])]
        places, nbytes = grid.places(chunks), np.diff(ends)
        crc = row_checksums([*places, nbytes], held, ends[:-1], ends[1:])
        columns = [*places, nbytes, crc, binary_column(held, ends)]
        yield pa.table(columns, schema_of(*grid.columns, "nbytes", "crc", "payload"))


def prune(header: Header, box: Box) -> list[Bounds]:
    """Return what is true of the index columns of all chunks that meet a box.

    >>> header = encode(np.zeros((24, 3, 8, 8)), chunk_dims=3).header("a")
    >>> prune(header, Box((2, 0, 0, 0), (5, 3, 8, 8)))
    [{'i0': (2, 4)}]
    """
    if not box.size:
        return []
    grid = _grid_of(header)
    ranges = grid.ranges(box)
    if len(ranges) >= MOST_INDEX_COLUMNS:
        merged = grid.counts[MOST_INDEX_COLUMNS - 1 :]
        ends = np.array(ranges[MOST_INDEX_COLUMNS - 1 :]).T
        low, high = (int(np.ravel_multi_index(tuple(end), merged)) for end in ends)
        ranges = [*ranges[: MOST_INDEX_COLUMNS - 1], (low, high)]
    return [dict(zip(grid.columns, ranges or [(0, 0)], strict=True))]


def decode(header: Header, table: Any, box: Box) -> npt.NDArray[Any]:
    """Put the chunks of `table` together to the cells of a box. It must hold all that `prune` asks for, or more."""
    out = np.empty(box.shape, header.dtype)
    if not box.size:
        return out
    grid = _grid_of(header)
    wanted = prod(high - low + 1 for low, high in grid.ranges(box))
    done: set[int] = set()
    for rows in rows_of(table):
        done.update(_put_rows(out, header, grid, rows, box))
    if len(done) != wanted:
        raise IntegrityError(f"tensor {header.id!r} lacks {wanted - len(done)} of {wanted} chunks that were asked for")
    return out


def _put_rows(out: Any, header: Header, grid: _Grid, rows: Rows, box: Box) -> Iterator[int]:
    """Copy what a box needs from where the payloads lie to the result; give the chunks that had something for it."""
    *places, nbytes = check_rows(header, rows, (*grid.columns, "nbytes"))
    chunks = np.ravel_multi_index(tuple(places), grid.merged) if grid.merged else places[0]
    if (nbytes != grid.sizes(chunks) * header.dtype.itemsize).any():
        raise IntegrityError(f"a chunk of tensor {header.id!r} has another length than its place asks for")
    if not grid.cut:
        # The only chunk is all of the tensor: a row of one.
        out, box = out[None], Box((0, *box.start), (1, *box.stop))
    axes = np.unravel_index(chunks, grid.counts or (1,))
    *outer, first = [column.tolist() for column in (*axes[:-1], axes[-1] * grid.rows)]
    part = _Part(grid, box)
    for chunk, start, stop, low, *at in zip(chunks.tolist(), rows.starts.tolist(), rows.stops.tolist(), first, *outer,
                                            strict=True):  # fmt: skip
        met = part.of(at, low)
        if met is not None:
            target, source = met
            out[target] = rows.data[start:stop].view(header.dtype).reshape(part.shape)[source]
            yield chunk


class _Part:
    """What of a chunk is in a box, and where: along the whole axes it is the same for all chunks."""

    def __init__(self, grid: _Grid, box: Box) -> None:
        last = len(box.start) - (len(grid.shape) - grid.cut) - 1
        self.start, self.counts, self.rows = box.start[:last], box.shape[:last], grid.rows
        self.low, self.high, self.inner = box.start[last], box.stop[last], box.slices[last + 1 :]
        self.shape = (-1, *grid.shape[grid.cut :])

    def of(self, at: list[int], first: int) -> tuple[Any, Any] | None:
        """Return where cells are in the box and in the chunk, for one whose first row is given; None if nowhere."""
        outer = [place - low for place, low in zip(at, self.start, strict=True)]
        low, high = max(first, self.low), min(first + self.rows, self.high)
        if low >= high or not all([0 <= place < count for place, count in zip(outer, self.counts, strict=True)]):
            return None
        return (*outer, slice(low - self.low, high - self.low)), (slice(low - first, high - first), *self.inner)


def _grid_of(header: Header) -> _Grid:
    dims, rows = header.parameters.get("chunk_dims"), header.parameters.get("rows")
    if not isinstance(dims, int) or not isinstance(rows, int) or not 0 <= dims <= len(header.shape) or rows < 1:
        raise MetadataError(f"the chunks of tensor {header.id!r} cannot be {dims!r} whole axes and {rows!r} rows")
    return _Grid(header.shape, dims, rows)
