"""CSR and CSC: a sparse tensor as a matrix, its first axes flattened to rows and the others to columns.

CSR holds the matrix by rows, CSC by columns; below, a line is a row or a column. Cells are in the order of lines, and
cut into segments (see `segments`). Of lines that have no cells nothing is stored. A payload has four streams (see
`streams`):

1.  lines: how far each line lies from the one before; the first from 0;
2.  how many cells each line has; their running sum is the paper's pointer array;
3.  for each cell: how far it lies from the one before in its line, along the line; the first from 0;
4.  the values.
"""

from math import prod

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hyperslab.errors import IntegrityError, InvalidInputError, MetadataError
from hyperslab.selection import Box
from hyperslab.tensors.layouts.axes import folded_shape
from hyperslab.tensors.layouts.encoded import Bounds, Encoded
from hyperslab.tensors.layouts.segments import decode_segments, encode_segments, prune_segments
from hyperslab.tensors.layouts.streams import pack_numbers, unpack_numbers
from hyperslab.tensors.values import Coo, Header, positions

__all__ = ["decode", "encode", "encode_columns", "lines_of", "prune"]

Ints = npt.NDArray[np.int64]


def encode(tensor: Coo, *, row_axes: int | None = None, cells: int | None = None) -> Encoded:
    """Make rows of a sparse tensor by CSR. `row_axes` of the first axes are the matrix's rows (default: all but one).

    >>> encode(Coo.of((2, 3, 4), [[1], [2], [3]], np.ones(1))).header("a").parameters["flattened_shape"]
    [6, 4]
    """
    return _encoded(tensor, "csr", row_axes, cells)


def encode_columns(tensor: Coo, *, row_axes: int | None = None, cells: int | None = None) -> Encoded:
    """Make rows of a sparse tensor by CSC; `row_axes` as for CSR."""
    return _encoded(tensor, "csc", row_axes, cells)


def _encoded(tensor: Coo, layout: str, row_axes: int | None, cells: int | None) -> Encoded:
    shape = folded_shape(tensor.shape)
    split = len(shape) - 1 if row_axes is None else row_axes
    if not 0 <= split <= len(shape):
        raise InvalidInputError(f"a tensor with {len(shape)} axes has 0 to {len(shape)} of them as rows, not {split}")
    axes = list(range(len(shape)))
    if layout == "csc":
        axes = axes[split:] + axes[:split]
    lines = split if layout == "csr" else len(shape) - split
    sizes = tuple(shape[axis] for axis in axes)
    flattened = [prod(shape[:split]), prod(shape[split:])]

    def pack(coords: Ints) -> bytes:
        return b"".join(map(pack_numbers, lines_of(_flat(coords, sizes, lines))))

    return encode_segments(
        tensor, layout, axes, pack, {"row_axes": split, "flattened_shape": flattened}, cells=cells
    )  # fmt: skip


def _flat(coords: Ints, sizes: tuple[int, ...], lines: int) -> Ints:
    """Return the line of each cell, and its place in the line."""
    return np.array([positions(coords[:lines], sizes[:lines]), positions(coords[lines:], sizes[lines:])])


def lines_of(cells: Ints) -> tuple[Ints, Ints, Ints]:
    """Return distances of lines, their counts of cells, and distances of cells, given cells' lines and places.

    >>> [part.tolist() for part in lines_of(np.array([[0, 0, 3], [1, 5, 2]]))]
    [[0, 3], [2, 1], [1, 4, 2]]
    """
    line, place = cells
    starts = np.flatnonzero(np.diff(line, prepend=-1))
    distances = np.diff(place, prepend=0)
    distances[starts] = place[starts]
    return np.diff(line[starts], prepend=0), np.diff(np.append(starts, len(line))), distances


def prune(header: Header, box: Box) -> list[Bounds]:
    """Return what is true of the index columns of all segments that a box may need."""
    return prune_segments(header, box)


def decode(header: Header, table: pa.Table, box: Box) -> Coo:
    """Return the cells of a box."""
    shape, split = folded_shape(header.shape), header.parameters.get("row_axes")
    if not isinstance(split, int) or not 0 <= split <= len(shape):
        raise MetadataError(f"tensor {header.id!r} cannot have {split!r:.40} of its {len(shape)} axes as rows")
    csr = header.layout == "csr"
    outer, inner = (shape[:split], shape[split:]) if csr else (shape[split:], shape[:split])
    return decode_segments(header, table, box, _unpack, lambda found: _join(found, outer, inner))


def _unpack(data: npt.NDArray[np.uint8], at: int) -> tuple[list[Ints], int]:
    streams = []
    for _ in range(3):
        stream, at = unpack_numbers(data, at)
        streams.append(stream)
    lines, counts, distances = streams
    if len(lines) != len(counts) or counts.sum() != len(distances):
        raise IntegrityError("the lines of a segment have other cells than it holds")
    return [np.cumsum(lines), counts, distances], at


def _join(found: list[list[Ints]], outer: tuple[int, ...], inner: tuple[int, ...]) -> Ints:
    """Return coordinates of the cells of all segments."""
    lines, counts, distances = (np.concatenate(parts) for parts in zip(*found, strict=True))
    line, place = np.repeat(lines, counts), restarted(distances, counts)
    if len(line) and (line.max() >= prod(outer) or place.max() >= prod(inner) or line.min() < 0 or place.min() < 0):
        raise IntegrityError("a segment has cells outside of its matrix")
    parts = [*_unravelled(line, outer), *_unravelled(place, inner)]
    return np.array(parts, np.int64).reshape(len(parts), len(line))


def _unravelled(places: Ints, shape: tuple[int, ...]) -> list[Ints]:
    return [np.asarray(part, np.int64) for part in np.unravel_index(places, shape)] if shape else []


def restarted(distances: Ints, counts: Ints) -> Ints:
    """Return running sums that begin anew after so many numbers.

    >>> restarted(np.array([1, 4, 2, 2]), np.array([2, 2])).tolist()
    [1, 5, 2, 4]
    """
    sums = np.cumsum(distances)
    ends = np.cumsum(counts)
    before = np.where(ends > counts, sums[np.maximum(ends - counts - 1, 0)], 0) if len(sums) else sums
    return np.asarray(sums - np.repeat(before, counts))
