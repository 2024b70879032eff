"""Version 1 B-trees of groups: from the tree to the tables of symbols, level by level."""

from collections.abc import Iterator
from dataclasses import dataclass

from hyperslab.errors import MetadataError
from hyperslab.formats.hdf5.cursor import Cursor, FileBytes
from hyperslab.formats.hdf5.superblock import Superblock

__all__ = ["Symbol", "node_nbytes", "read_symbols"]

_MOST_DEPTH = 16
_MOST_NODES = 1 << 20
_MOST_BYTES = 128 << 20


@dataclass(frozen=True, slots=True)
class Symbol:
    """A member of an old-style group: where its name is in the local heap, and its header or soft link."""

    name_at: int
    header: int | None
    # Where the path of a soft link is in the local heap.
    link_at: int | None


def read_symbols(file: FileBytes, sb: Superblock, address: int, root: memoryview | None = None) -> Iterator[Symbol]:
    """Yield the symbols of the group whose tree is at `address`, one round of requests per level.

    `root` is the first node, where it has been read already.
    """
    seen: set[int] = set()
    nodes, height = [address], None
    blocks = _read(file, sb, nodes, node_nbytes(sb)) if root is None else [root]
    while True:
        _note(nodes, seen)
        below: list[int] = []
        heights = set()
        for at, data in zip(nodes, blocks, strict=True):
            level, children = _parse_node(data, sb, at)
            heights.add(level)
            below += children
        if len(heights) != 1 or (height is not None and heights != {height - 1}) or max(heights) > _MOST_DEPTH:
            raise MetadataError(
                f"the B-tree of a group at byte {address} has levels {heights} after {height}; it is damaged"
            )
        nodes, height = below, heights.pop()
        if height == 0 or not nodes:
            break
        blocks = _read(file, sb, nodes, node_nbytes(sb))
    _note(nodes, seen)
    for at, data in zip(nodes, _read(file, sb, nodes, _table_nbytes(sb)), strict=True):
        yield from _parse_table(data, sb, at)


def node_nbytes(sb: Superblock) -> int:
    """Return the bytes of a node of a group's tree."""
    keys = 2 * sb.group_internal_k
    return 8 + 2 * sb.offset_size + keys * sb.offset_size + (keys + 1) * sb.length_size


def _table_nbytes(sb: Superblock) -> int:
    return 8 + 2 * sb.group_leaf_k * _symbol_nbytes(sb)


def _symbol_nbytes(sb: Superblock) -> int:
    return sb.offset_size + sb.length_size + 24


def _note(nodes: list[int], seen: set[int]) -> None:
    for node in nodes:
        if node in seen or len(seen) >= _MOST_NODES:
            raise MetadataError(
                f"the B-tree of a group has the node at byte {node} twice, or no end; the file is damaged"
            )
        seen.add(node)


def _read(file: FileBytes, sb: Superblock, nodes: list[int], nbytes: int) -> list[memoryview]:
    if not nodes:
        return []
    if len(nodes) * nbytes > _MOST_BYTES:
        raise MetadataError(f"the B-tree of a group has {len(nodes)} nodes of {nbytes} bytes on a level; it is damaged")
    # The last node of a file may be cut short behind its last entry.
    return file.read_many([(node, min(nbytes, sb.size - node)) for node in nodes])


def _parse_node(data: memoryview, sb: Superblock, at: int) -> tuple[int, list[int]]:
    """Return a node's height and where its children are."""
    cursor = Cursor(data, origin=at, what="a node of a group's B-tree")
    cursor.expect(b"TREE")
    if (kind := cursor.u8()) != 0:
        raise MetadataError(f"{cursor.what} at byte {at} is of type {kind}, expected 0")
    height, count = cursor.u8(), cursor.u16()
    if count > 2 * sb.group_internal_k:
        raise MetadataError(f"{cursor.what} at byte {at} has {count} entries; at most {2 * sb.group_internal_k} fit")
    cursor.skip(2 * sb.offset_size)
    children = []
    for _ in range(count):
        cursor.skip(sb.length_size)
        children.append(sb.must_address(cursor))
    return height, children


def _parse_table(data: memoryview, sb: Superblock, at: int) -> Iterator[Symbol]:
    cursor = Cursor(data, origin=at, what="a symbol table")
    cursor.expect(b"SNOD")
    cursor.version(1)
    cursor.skip(1)
    count = cursor.u16()
    if count > 2 * sb.group_leaf_k:
        raise MetadataError(f"{cursor.what} at byte {at} has {count} symbols; at most {2 * sb.group_leaf_k} fit")
    for _ in range(count):
        name_at, header = sb.length(cursor), sb.address(cursor)
        kind = cursor.u32()
        cursor.skip(4)
        link_at = cursor.u32()
        cursor.skip(12)
        yield Symbol(name_at, header, link_at if kind == 2 else None)
