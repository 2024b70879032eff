"""Version 2 B-trees: their records as they are stored, whatever they index."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hyperslab.errors import IntegrityError, MetadataError
from hyperslab.formats.hdf5.checksum import lookup3, lookup3_many
from hyperslab.formats.hdf5.cursor import Cursor, FileBytes
from hyperslab.formats.hdf5.superblock import Superblock

__all__ = ["read_btree2"]

Rows = npt.NDArray[np.uint8]

# Signature, version and type before the records of a node; a checksum behind them.
_BEFORE, _BEHIND = 6, 4
_MOST_DEPTH = 16
_MOST_NODE_BYTES = 16 << 20
_MOST_TREE_BYTES = 128 << 20


@dataclass(frozen=True, slots=True)
class _Tree:
    """A tree's header."""

    type: int
    node_nbytes: int
    record_nbytes: int
    depth: int
    root: int | None
    root_records: int
    total_records: int


@dataclass(frozen=True, slots=True)
class _Level:
    """Nodes of one height: how many records fit in one, and the widths of what it says of its children."""

    most_records: int
    most_below: int
    count_width: int
    total_width: int

    def pointer_nbytes(self, sb: Superblock) -> int:
        return sb.offset_size + self.count_width + self.total_width


def read_btree2(
    file: FileBytes, sb: Superblock, address: int, record_type: int | tuple[int, ...], most_records: int
) -> list[Rows]:
    """Return the records of a tree, in arrays of uint8[n, record_size], one request round per level.

    The order is by level, not by key. `record_type` is what the tree must index, or several kinds of it.
    """
    types = (record_type,) if isinstance(record_type, int) else record_type
    tree = _read_tree(file, sb, address, types)
    if tree.root is None or not tree.root_records:
        return []
    if tree.total_records > most_records:
        raise MetadataError(f"a B-tree says it has {tree.total_records} records; at most {most_records} are read here")
    levels = _levels(tree, sb)
    nodes = np.array([[tree.root, tree.root_records]], np.int64)
    seen: set[int] = set()
    found: list[Rows] = []
    count = nbytes = 0
    for height in range(tree.depth, -1, -1):
        nbytes += len(nodes) * tree.node_nbytes
        count += int(nodes[:, 1].sum())
        if count > most_records or nbytes > _MOST_TREE_BYTES:
            raise MetadataError(
                f"a B-tree has over {min(count, most_records)} records in {nbytes} bytes; it is damaged"
            )
        _note(nodes[:, 0].tolist(), seen)
        nodes = _read_level(file, sb, tree, levels, height, nodes, found)
    if count != tree.total_records:
        raise MetadataError(f"a B-tree has {count} records and says it has {tree.total_records}; the file is damaged")
    return found


def _read_tree(file: FileBytes, sb: Superblock, address: int, types: tuple[int, ...]) -> _Tree:
    nbytes = 22 + sb.offset_size + sb.length_size
    data = file.read(address, nbytes)
    cursor = Cursor(data, origin=address, what="a B-tree's header")
    cursor.expect(b"BTHD")
    if lookup3(data[:-4]) != int.from_bytes(data[-4:], "little"):
        raise IntegrityError(
            f"the checksum of the B-tree's header at byte {address} does not hold; the file is damaged"
        )
    cursor.version(0)
    kind, node_nbytes, record_nbytes, depth = cursor.u8(), cursor.u32(), cursor.u16(), cursor.u16()
    cursor.skip(2)
    if kind not in types:
        raise MetadataError(f"{cursor.what} at byte {address} is of type {kind}, expected {types}")
    if not 0 < record_nbytes < node_nbytes <= _MOST_NODE_BYTES or depth > _MOST_DEPTH:
        raise MetadataError(
            f"{cursor.what} at byte {address} has nodes of {node_nbytes} bytes, records of {record_nbytes} "
            f"and depth {depth}; the file is damaged"
        )
    return _Tree(
        kind, node_nbytes, record_nbytes, depth, sb.address(cursor), cursor.u16(), sb.length(cursor)
    )  # fmt: skip


def _levels(tree: _Tree, sb: Superblock) -> list[_Level]:
    """Return what nodes of each height can hold, leaves first; the widths of counts follow from it."""
    most = (tree.node_nbytes - _BEFORE - _BEHIND) // tree.record_nbytes
    if not 0 < most < 1 << 16:
        raise MetadataError(f"a B-tree's leaves would hold {most} records; the file is damaged")
    count_width = _width(most)
    levels = [_Level(most, most, count_width, 0)]
    for _ in range(tree.depth):
        below = levels[-1]
        pointer = below.pointer_nbytes(sb)
        most = (tree.node_nbytes - _BEFORE - _BEHIND - pointer) // (tree.record_nbytes + pointer)
        if most < 1:
            raise MetadataError(f"a B-tree's nodes of {tree.node_nbytes} bytes hold no records; the file is damaged")
        total = min((most + 1) * below.most_below + most, 2**64 - 1)
        levels.append(_Level(most, total, count_width, _width(total)))
    return levels


def _width(number: int) -> int:
    """Return the bytes that hold a number.

    >>> _width(255), _width(256)
    (1, 2)
    """
    return (number.bit_length() + 7) // 8


def _note(addresses: Iterable[int], seen: set[int]) -> None:
    for address in addresses:
        if address in seen:
            raise MetadataError(f"a B-tree has the node at byte {address} twice; the file is damaged")
        seen.add(address)


def _read_level(
    file: FileBytes, sb: Superblock, tree: _Tree, levels: list[_Level], height: int, nodes: npt.NDArray[np.int64],
    found: list[Rows],
) -> npt.NDArray[np.int64]:  # fmt: skip
    """Add the records of nodes of one height to `found`; return their children as rows of (address, records)."""
    if int(nodes[:, 1].max()) > levels[height].most_records:
        raise MetadataError(f"a B-tree has a node of {int(nodes[:, 1].max())} records; the file is damaged")
    spans = [(start, min(tree.node_nbytes, sb.size - start)) for start in nodes[:, 0].tolist()]
    blocks = file.read_many(spans)
    pointer = levels[height - 1].pointer_nbytes(sb) if height else 0
    children = [np.empty((0, 2), np.int64)]
    for records in np.unique(nodes[:, 1]).tolist():
        used = _BEFORE + records * tree.record_nbytes + (records + 1) * pointer
        chosen = np.flatnonzero(nodes[:, 1] == records).tolist()
        rows = _stack([blocks[at] for at in chosen], used + _BEHIND)
        _check(rows, b"BTIN" if height else b"BTLF", tree.type)
        split = _BEFORE + records * tree.record_nbytes
        if records:
            found.append(rows[:, _BEFORE:split].reshape(-1, tree.record_nbytes))
        if height:
            children.append(_children(rows[:, split:used].reshape(-1, pointer), sb, levels[height - 1]))
    return np.concatenate(children)


def _stack(blocks: list[memoryview], nbytes: int) -> Rows:
    """Return the first `nbytes` of each block as one row."""
    if any(len(block) < nbytes for block in blocks):
        raise MetadataError(f"a B-tree's node of {nbytes} bytes reaches over the end of the file; it is cut off")
    rows = np.empty((len(blocks), nbytes), np.uint8)
    for row, block in zip(rows, blocks, strict=True):
        row[:] = np.frombuffer(block[:nbytes], np.uint8)
    return rows


def _check(rows: Rows, signature: bytes, kind: int) -> None:
    expected = np.frombuffer(signature + bytes([0, kind]), np.uint8)
    if (rows[:, :_BEFORE] != expected).any():
        raise MetadataError(f"a B-tree's node does not begin with {signature!r} and type {kind}; the file is damaged")
    sums = np.ascontiguousarray(rows[:, -_BEHIND:]).view("<u4").ravel()
    if (lookup3_many(rows[:, :-_BEHIND]) != sums).any():
        raise IntegrityError("the checksum of a B-tree's node does not hold; the file is damaged")


def _children(pointers: Rows, sb: Superblock, below: _Level) -> npt.NDArray[np.int64]:
    """Return where the children lie and how many records each has."""
    offsets = _uints(pointers[:, : sb.offset_size])
    counts = _uints(pointers[:, sb.offset_size : sb.offset_size + below.count_width])
    if len(offsets) and int(offsets.max()) + sb.base >= sb.size:
        raise MetadataError(f"a B-tree has a node at byte {int(offsets.max()) + sb.base} of {sb.size}; it is damaged")
    return np.stack([offsets.astype(np.int64) + sb.base, counts.astype(np.int64)], axis=1)


def _uints(columns: Rows) -> npt.NDArray[np.uint64]:
    """Return each row of up to 8 bytes as a number."""
    wide = np.zeros((len(columns), 8), np.uint8)
    wide[:, : columns.shape[1]] = columns
    return wide.view("<u8").ravel().astype(np.uint64, copy=False)
