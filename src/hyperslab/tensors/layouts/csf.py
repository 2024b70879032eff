"""CSF: a sparse tensor as a tree of fibres. A level for each axis; a node is an index, once for all that share it.

Cells are cut into segments (see `segments`), each a tree of its own. A payload has, level by level (see `streams`):

1.  for each node: how far its index lies from the one before under the same parent; the first from 0;
2.  for each node of all levels but the last: how many children it has; their running sum is the paper's `fptr`;

and then the values, one for each node of the last level.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hyperslab.errors import IntegrityError
from hyperslab.selection import Box
from hyperslab.tensors.layouts.axes import folded_shape
from hyperslab.tensors.layouts.csr import restarted
from hyperslab.tensors.layouts.encoded import Bounds, Encoded
from hyperslab.tensors.layouts.segments import decode_segments, encode_segments, prune_segments
from hyperslab.tensors.layouts.streams import pack_numbers, unpack_numbers
from hyperslab.tensors.values import Coo, Header

__all__ = ["cells_of", "decode", "encode", "fibres_of", "prune"]

Ints = npt.NDArray[np.int64]


def encode(tensor: Coo, *, axes: Sequence[int] | None = None, cells: int | None = None) -> Encoded:
    """Make rows of a sparse tensor; `axes` is the order of levels, from the root on.

    >>> rows = next(encode(Coo.of((2, 3, 4), [[0, 1], [2, 2], [3, 3]], np.ones(2))).tables)
    >>> rows.column("i0").to_pylist(), rows.column("i1").to_pylist()
    ([11], [23])
    """
    order = tuple(range(len(folded_shape(tensor.shape)))) if axes is None else tuple(axes)
    return encode_segments(tensor, "csf", order, _pack, {}, cells=cells)


def fibres_of(coords: Ints) -> tuple[list[Ints], list[Ints]]:
    """Return the indices of the nodes of each level, and how many children those of all levels but the last have.

    >>> indices, children = fibres_of(np.array([[0, 0, 0, 2], [1, 1, 3, 1]]))
    >>> [level.tolist() for level in indices], [level.tolist() for level in children]
    ([[0, 2], [1, 1, 3, 1]], [[3, 1]])
    """
    new = np.zeros(coords.shape[1], bool)
    new[:1] = True
    starts, indices = [], []
    for level, along in enumerate(coords):
        new[1:] |= along[1:] != along[:-1]
        if level == len(coords) - 1:
            new[:] = True
        starts.append(np.flatnonzero(new))
        indices.append(along[starts[-1]])
    children = []
    for upper, lower in pairwise(starts):
        children.append(np.diff(np.append(np.searchsorted(lower, upper), len(lower))))
    return indices, children


def cells_of(indices: list[Ints], children: list[Ints]) -> Ints:
    """Return the coordinates of the cells of a tree.

    >>> cells_of([np.array([0, 2]), np.array([1, 3, 1])], [np.array([2, 1])]).tolist()
    [[0, 0, 2], [1, 3, 1]]
    """
    coords = [indices[0]]
    for level, counts in enumerate(children):
        coords = [np.repeat(along, counts) for along in coords]
        coords.append(indices[level + 1])
    return np.array(coords, np.int64)


def _pack(coords: Ints) -> bytes:
    indices, children = fibres_of(coords)
    roots = [np.array([len(indices[0])]), *children]
    parts = []
    for level, counts in zip(indices, roots, strict=True):
        distances = np.diff(level, prepend=0)
        starts = np.cumsum(counts) - counts
        distances[starts] = level[starts]
        parts.append(pack_numbers(distances))
    return b"".join([*parts, *map(pack_numbers, children)])


def prune(header: Header, box: Box) -> list[Bounds]:
    """Return what is true of the index columns of all segments that a box may need."""
    return prune_segments(header, box)


def decode(header: Header, table: pa.Table, box: Box) -> Coo:
    """Return the cells of a box."""
    levels = len(folded_shape(header.shape))
    return decode_segments(header, table, box, lambda data, at: _unpack(data, at, levels), _join)


def _unpack(data: npt.NDArray[np.uint8], at: int, levels: int) -> tuple[list[Ints], int]:
    streams = []
    for _ in range(2 * levels - 1):
        stream, at = unpack_numbers(data, at)
        streams.append(stream)
    distances, children = streams[:levels], streams[levels:]
    for upper, counts, lower in zip(distances[:-1], children, distances[1:], strict=True):
        if len(counts) != len(upper) or counts.sum() != len(lower):
            raise IntegrityError("a level of a tree has other nodes than the one above it says")
    roots = np.array([len(distances[0])])
    return [roots, *children, *distances], at


def _join(found: list[list[Ints]]) -> Ints:
    """Return coordinates of the cells of all segments: side by side, their trees are one."""
    streams = [np.concatenate(parts) for parts in zip(*found, strict=True)]
    levels = len(streams) // 2
    counts, distances = streams[:levels], streams[levels:]
    indices = [restarted(level, each) for level, each in zip(distances, counts, strict=True)]
    return cells_of(indices, counts[1:])
