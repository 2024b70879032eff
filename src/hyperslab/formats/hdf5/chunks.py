"""The chunk index of a dataset, of any kind that HDF5 has, read level by level into one table."""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hyperslab.errors import IntegrityError, MetadataError, UnsupportedError
from hyperslab.formats.hdf5.btree2 import read_btree2
from hyperslab.formats.hdf5.chunk_arrays import extensible_array, fixed_array
from hyperslab.formats.hdf5.chunk_entries import Entries, Grid, Numbering, absolute, gather, lay_out, read_spans, uints
from hyperslab.layout.table import ChunkTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hyperslab.formats.hdf5.cursor import FileBytes
    from hyperslab.formats.hdf5.messages import ChunkIndexMessage
    from hyperslab.formats.hdf5.superblock import Superblock

__all__ = ["chunk_table"]

# A tree of nodes with two children each, as deep as this, would be larger than any file.
_MOST_LEVELS = 63


def chunk_table(
    file: "FileBytes",
    sb: "Superblock",
    message: "ChunkIndexMessage",
    shape: tuple[int, ...],
    max_shape: "Sequence[int | None] | None" = None,
    wanted: npt.NDArray[np.int64] | None = None,
) -> ChunkTable:
    """Read a dataset's chunk index: where each chunk of its grid lies, -1 for those that are not stored.

    `max_shape` is the shape up to which the dataset may grow, None for an axis without end; arrays
    number their chunks by it. By default it is `shape`. Chunks outside of `shape` are left out. With `wanted`, numbers
    of chunks, row-major and ascending, the table holds at least for those; others may be missing from it.
    """
    grid = Grid.of(message, shape)
    if message.address is None or not grid.size:
        nothing = np.full(grid.size, -1, np.int64)
        return ChunkTable(nothing, nothing.copy())
    return lay_out(_entries(file, sb, message, grid, max_shape or shape, wanted), file, message, grid)


def _entries(
    file: "FileBytes",
    sb: "Superblock",
    message: "ChunkIndexMessage",
    grid: Grid,
    max_shape: "Sequence[int | None]",
    wanted: npt.NDArray[np.int64] | None,
) -> Entries:
    match message.kind:
        case "btree1":
            return _btree1(file, sb, message, grid, wanted)
        case "single":
            return _single(message, grid)
        case "implicit":
            return _implicit(file, message, grid, max_shape)
        case "fixed_array":
            return fixed_array(file, sb, message, grid, max_shape)
        case "extensible_array":
            return extensible_array(file, sb, message, grid, max_shape)
        case "btree2":
            return _btree2(file, sb, message, grid)
    raise UnsupportedError(f"a chunk index of kind {message.kind!r}")


def _single(message: "ChunkIndexMessage", grid: Grid) -> Entries:
    if grid.size != 1:
        raise MetadataError(f"the chunk index has room for a single chunk, the dataset has {grid.size}")
    nbytes = message.single_nbytes if message.filtered else grid.chunk_nbytes
    mask = message.single_mask if message.filtered else 0
    return Entries(
        np.zeros(1, np.int64),
        np.array([message.address], np.uint64),
        np.array([nbytes], np.uint64),
        np.array([mask], np.uint32),
    )


def _implicit(
    file: "FileBytes", message: "ChunkIndexMessage", grid: Grid, max_shape: "Sequence[int | None]"
) -> Entries:
    """All chunks follow one another, in the order of the largest grid."""
    if message.filtered:
        raise MetadataError("an implicit chunk index with filters; expected none")
    numbering = Numbering.of(grid, max_shape, endless=False)
    if (numbering.last + 1) * grid.chunk_nbytes > file.size:
        raise IntegrityError(
            f"{grid.size} chunks of {grid.chunk_nbytes} bytes are too many for the file; is it cut off?"
        )
    addresses = numbering.numbers().astype(np.uint64) * np.uint64(grid.chunk_nbytes) + np.uint64(message.address or 0)
    count = addresses.size
    lengths = np.full(count, grid.chunk_nbytes, np.uint64)
    return Entries(np.arange(count), addresses, lengths, np.zeros(count, np.uint32))


def _btree1(
    file: "FileBytes",
    sb: "Superblock",
    message: "ChunkIndexMessage",
    grid: Grid,
    wanted: npt.NDArray[np.int64] | None,
) -> Entries:
    """Read a version 1 B-tree of chunks, one level at a time; of each only what leads to wanted chunks."""
    width, ndim = sb.offset_size, len(grid.counts)
    head = np.dtype([("sign", "S4"), ("type", "u1"), ("level", "u1"), ("used", "<u2"), ("siblings", f"V{2 * width}")])
    entry = np.dtype([("nbytes", "<u4"), ("mask", "<u4"), ("offsets", "<u8", (ndim + 1,)), ("child", f"V{width}")])
    addresses = np.array([message.address], np.uint64)
    level, spent = None, 0
    while True:
        heads, found = _level(file, addresses, head, entry, sb.chunk_k)
        spent += heads.size * head.itemsize + found.size * entry.itemsize
        if spent > file.size:
            raise IntegrityError("the chunk index has more nodes than the file has room for")
        level = int(heads["level"][0]) if level is None else level - 1
        wrong = (heads["sign"] != b"TREE") | (heads["type"] != 1) | (heads["level"] != level)
        if wrong.any() or level > _MOST_LEVELS:
            at = int(addresses[wrong.argmax()])
            raise IntegrityError(f"the chunk index is damaged: at {at} there is no node of level {level} of its B-tree")
        children = absolute(found["child"], sb)
        if level == 0:
            return _chunks_of_leaves(found, children, grid)
        addresses = children
        if wanted is not None and children.size:
            addresses = children[_leading_to(wanted, found["offsets"][:, :-1], grid)]
            if not addresses.size:
                return _chunks_of_leaves(found[:0], children[:0], grid)


def _leading_to(wanted: npt.NDArray[np.int64], corners: npt.NDArray[np.uint64], grid: Grid) -> npt.NDArray[np.int64]:
    """Return which children of a level to follow; each holds the chunks from its own corner to that of the next.

    Where not all of a level was read, the next one known may be farther than the next one: then a child too many is
    followed, never one too few.
    """
    scaled = (corners // np.array(grid.chunks, np.uint64)).astype(np.float64)
    # Chunks outside of the grid, left over from a larger one, keep their order among those within.
    sizes = np.maximum(scaled.max(axis=0) + 1, grid.counts)
    if np.prod(sizes) >= 2**52:
        return np.arange(len(corners))
    strides = np.append(np.cumprod(sizes[:0:-1])[::-1], 1.0)
    first = scaled @ strides
    places = np.stack(np.unravel_index(wanted, grid.counts), axis=1).astype(np.float64) @ strides
    order: npt.NDArray[np.int64] = np.argsort(first, kind="stable")
    found = sorted(set((np.searchsorted(first[order], places, side="right") - 1).tolist()) - {-1})
    chosen: npt.NDArray[np.int64] = order[found]
    return chosen


def _level(
    file: "FileBytes", addresses: npt.NDArray[np.uint64], head: np.dtype[Any], entry: np.dtype[Any], k: int
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the headers and all entries of the nodes at these addresses.

    Nodes have room for `k` times two entries, unless the file says so in a place that was not read: then
    they turn out to be larger, and are read again. Each ends where the next one begins.
    """
    if not addresses.size:
        raise IntegrityError("the chunk index is damaged: a node of its B-tree has no children")
    if int(addresses.max()) > file.size - head.itemsize:
        raise IntegrityError(
            f"a node of the chunk index lies at {int(addresses.max())}, the file has {file.size} bytes"
        )
    order = np.argsort(addresses, kind="stable")
    starts = addresses[order].astype(np.int64)
    room = np.diff(starts, append=file.size)
    if (room < head.itemsize).any():
        raise IntegrityError("the chunk index is damaged: nodes of its B-tree lie over one another")
    sizes = np.minimum(room, head.itemsize + 2 * k * entry.itemsize)
    data, begins = _joined(file, starts, sizes)
    heads = gather(data, begins, head)
    needs = head.itemsize + heads["used"].astype(np.int64) * entry.itemsize
    if (needs > room).any():
        raise IntegrityError("the chunk index is damaged: nodes of its B-tree lie over another, or over the end")
    if (needs > sizes).any():
        data, begins = _joined(file, starts, needs)
    used = heads["used"].astype(np.int64)
    within = np.arange(used.sum()) - np.repeat(np.cumsum(used) - used, used)
    found = gather(data, np.repeat(begins + head.itemsize, used) + within * entry.itemsize, entry)
    return heads, found


def _joined(
    file: "FileBytes", starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
) -> tuple[bytes, npt.NDArray[np.int64]]:
    views = read_spans(file, list(zip(starts.tolist(), sizes.tolist(), strict=True)), "nodes")
    return b"".join(views), np.cumsum(sizes) - sizes


def _chunks_of_leaves(found: npt.NDArray[Any], addresses: npt.NDArray[np.uint64], grid: Grid) -> Entries:
    corners, chunks = found["offsets"][:, :-1], np.array(grid.chunks, np.uint64)
    scaled = corners // chunks
    if (scaled * chunks != corners).any() or found["offsets"][:, -1].any():
        raise IntegrityError(f"the chunk index is damaged: it has a chunk at no multiple of {grid.chunks}")
    inside, positions = grid.positions(scaled)
    lengths = found["nbytes"][inside].astype(np.uint64)
    return Entries(positions, addresses[inside], lengths, found["mask"][inside].astype(np.uint32))


def _btree2(file: "FileBytes", sb: "Superblock", message: "ChunkIndexMessage", grid: Grid) -> Entries:
    """Read a version 2 B-tree: records of an address, a size and a mask if filtered, and the chunk's place."""
    ndim = len(grid.counts)
    places_nbytes, width = 8 * ndim, sb.offset_size
    most = file.size // (width + places_nbytes)
    rows = read_btree2(file, sb, message.address or 0, 11 if message.filtered else 10, most)
    nbytes = rows[0].shape[1] if rows else width + places_nbytes + (5 if message.filtered else 0)
    extra = nbytes - width - places_nbytes
    if not (5 <= extra <= 12 if message.filtered else extra == 0):
        raise MetadataError(f"records of a chunk index have {nbytes} bytes; the file is damaged")
    fields: list[Any] = [("address", f"V{width}")]
    if message.filtered:
        fields += [("nbytes", f"V{extra - 4}"), ("mask", "<u4")]
    records = np.concatenate([*rows, np.empty((0, nbytes), np.uint8)]).view([*fields, ("scaled", "<u8", (ndim,))])[:, 0]
    inside, positions = grid.positions(records["scaled"])
    records = records[inside]
    addresses = absolute(records["address"], sb)
    if message.filtered:
        return Entries(positions, addresses, uints(records["nbytes"]), records["mask"].astype(np.uint32))
    lengths = np.full(positions.size, grid.chunk_nbytes, np.uint64)
    return Entries(positions, addresses, lengths, np.zeros(positions.size, np.uint32))
