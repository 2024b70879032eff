"""The members of a group, in all three ways in which files keep them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from hyperslab.errors import MetadataError
from hyperslab.formats.hdf5.btree1 import node_nbytes, read_symbols
from hyperslab.formats.hdf5.btree2 import read_btree2
from hyperslab.formats.hdf5.cursor import Cursor, FileBytes
from hyperslab.formats.hdf5.fractal import read_heap, read_objects
from hyperslab.formats.hdf5.header import Message, ObjectHeader
from hyperslab.formats.hdf5.heaps import local_heap_nbytes, read_local_heap
from hyperslab.formats.hdf5.superblock import Superblock

__all__ = ["Link", "kind_of", "read_members"]

_LINK_INFO, _LINK, _GROUP_INFO, _SYMBOL_TABLE = 0x02, 0x06, 0x0A, 0x11
_DATASPACE, _DATATYPE, _LAYOUT = 0x01, 0x03, 0x08
_MOST_MEMBERS = 1 << 20
_LINK_RECORDS = 5


@dataclass(frozen=True, slots=True)
class Link:
    """What a name in a group leads to: an object's header, a path in this file, or a path in another file."""

    kind: Literal["hard", "soft", "external", "unknown"]
    address: int | None = None
    path: str = ""
    file: str = ""
    order: int | None = None


def kind_of(header: ObjectHeader) -> Literal["array", "group", "type"]:
    """Return what an object is, by the messages of its header: array, group or type."""
    types = {message.type for message in header.messages}
    # A group without members still has a message that says so.
    if types & {_LINK_INFO, _LINK, _SYMBOL_TABLE, _GROUP_INFO}:
        return "group"
    if _LAYOUT in types or {_DATASPACE, _DATATYPE} <= types:
        return "array"
    if _DATATYPE in types:
        return "type"
    raise MetadataError(f"the object at byte {header.address} is neither group, dataset nor datatype; it is damaged")


def read_members(file: FileBytes, sb: Superblock, header: ObjectHeader) -> dict[str, Link]:
    """Return the links of a group by name, sorted."""
    found: dict[str, Link] = {}
    for message in header.all(_LINK):
        name, link = parse_link(message.cursor("a link"), sb)
        found[name] = link
    if (info := header.first(_LINK_INFO)) is not None:
        found |= _dense(file, sb, info)
    if (table := header.first(_SYMBOL_TABLE)) is not None:
        found |= _old(file, sb, table)
    return dict(sorted(found.items()))


def _old(file: FileBytes, sb: Superblock, message: Message) -> dict[str, Link]:
    cursor = message.cursor("a symbol table message")
    tree, heap_at = sb.must_address(cursor), sb.must_address(cursor)
    spans = [(tree, min(node_nbytes(sb), sb.size - tree)), (heap_at, local_heap_nbytes(sb))]
    root, header = file.read_many(spans)
    heap = read_local_heap(file, sb, heap_at, header)
    found: dict[str, Link] = {}
    for symbol in read_symbols(file, sb, tree, root):
        name = _text(heap.name(symbol.name_at))
        if symbol.link_at is not None:
            found[name] = Link("soft", path=_text(heap.name(symbol.link_at)))
        elif symbol.header is None:
            raise MetadataError(f"the member {name!r} of a group leads nowhere; the file is damaged")
        else:
            found[name] = Link("hard", symbol.header)
    return found


def _dense(file: FileBytes, sb: Superblock, message: Message) -> dict[str, Link]:
    cursor = message.cursor("a link info message")
    cursor.version(0)
    cursor.skip(8 if cursor.u8() & 1 else 0)
    heap_at, tree = sb.address(cursor), sb.address(cursor)
    if heap_at is None or tree is None:
        return {}
    heap = read_heap(file, sb, heap_at)
    # A record is the hash of a name, then the link's identifier in the heap.
    ids = [row[4:].tobytes() for rows in read_btree2(file, sb, tree, _LINK_RECORDS, _MOST_MEMBERS) for row in rows]
    return parse_links(read_objects(file, sb, heap, ids), sb)


def parse_links(objects: Iterable[memoryview], sb: Superblock) -> dict[str, Link]:
    """Return the links that a heap's objects hold."""
    return dict(parse_link(Cursor(each, what="a link in a fractal heap"), sb) for each in objects)


def parse_link(cursor: Cursor, sb: Superblock) -> tuple[str, Link]:
    """Return a link and its name."""
    cursor.version(1)
    flags = cursor.u8()
    kind = cursor.u8() if flags & 8 else 0
    order = cursor.u64() if flags & 4 else None
    cursor.skip(1 if flags & 16 else 0)
    name = _text(bytes(cursor.take(cursor.uint(1 << (flags & 3)))))
    if kind == 0:
        return name, Link("hard", sb.must_address(cursor), order=order)
    value = cursor.take(cursor.u16())
    if kind == 1:
        return name, Link("soft", path=_text(bytes(value)), order=order)
    if kind != 64:
        return name, Link("unknown", path=f"a link of kind {kind}", order=order)
    inner = Cursor(value, what="an external link")
    inner.skip(1)
    other, path = inner.until_nul(), inner.until_nul()
    return name, Link("external", path=_text(path), file=_text(other), order=order)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
