"""Fractal heaps: where newer files keep the links of large groups, and attributes that are many or large."""

from collections.abc import Sequence
from dataclasses import dataclass

from hyperslab.errors import IntegrityError, MetadataError, UnsupportedError
from hyperslab.formats.hdf5.btree2 import read_btree2
from hyperslab.formats.hdf5.checksum import lookup3, lookup3_each
from hyperslab.formats.hdf5.cursor import Cursor, FileBytes
from hyperslab.formats.hdf5.superblock import Superblock

__all__ = ["Heap", "read_heap", "read_objects"]

_MOST_BLOCK_BYTES = 64 << 20
_MOST_TOTAL_BYTES = 128 << 20
_MOST_HUGE = 1 << 20
_HUGE_RECORDS = 1


@dataclass(frozen=True, slots=True)
class Heap:
    """A heap's header: how identifiers are read, and the table of blocks, each row twice as large as the last."""

    address: int
    id_nbytes: int
    guarded: bool
    most_managed_nbytes: int
    huge_tree: int | None
    width: int
    start_nbytes: int
    most_direct_nbytes: int
    most_bits: int
    root: int | None
    root_rows: int

    @property
    def offset_nbytes(self) -> int:
        """Bytes of an offset within the heap."""
        return (self.most_bits + 7) // 8

    @property
    def length_nbytes(self) -> int:
        """Bytes of a length in an identifier."""
        return min((self.most_direct_nbytes.bit_length() + 6) // 8, (self.most_managed_nbytes.bit_length() + 7) // 8)

    @property
    def direct_rows(self) -> int:
        """How many rows of the table hold blocks of objects; further rows hold blocks of blocks."""
        return self.most_direct_nbytes.bit_length() - self.start_nbytes.bit_length() + 2

    def row_nbytes(self, row: int) -> int:
        """Bytes of each block in a row."""
        return self.start_nbytes << max(0, row - 1)

    def row_start(self, row: int) -> int:
        """Where a row's first block starts, counted from the start of its table."""
        return 0 if row == 0 else self.start_nbytes * self.width << (row - 1)

    def find(self, offset: int) -> tuple[int, int, int]:
        """Return the row and column of the block that holds an offset, and where that block starts."""
        unit = self.start_nbytes * self.width
        row = (offset // unit).bit_length()
        column = (offset - self.row_start(row)) // self.row_nbytes(row)
        return row, column, self.row_start(row) + column * self.row_nbytes(row)

    def inner_rows(self, nbytes: int) -> int:
        """Return how many rows the table of a block of blocks has, `nbytes` being what all its blocks span."""
        return (nbytes // (self.start_nbytes * self.width)).bit_length()


def read_heap(file: FileBytes, sb: Superblock, address: int) -> Heap:
    """Return the fractal heap whose header is at `address`."""
    nbytes = 26 + 12 * sb.length_size + 3 * sb.offset_size
    data = file.read(address, nbytes)
    cursor = Cursor(data, origin=address, what=f"the fractal heap at byte {address}")
    cursor.expect(b"FRHP")
    cursor.version(0)
    id_nbytes, filter_nbytes, flags, most_managed = cursor.u16(), cursor.u16(), cursor.u8(), cursor.u32()
    if filter_nbytes:
        raise UnsupportedError(f"{cursor.what} is compressed, which is not supported; rewrite it without (h5repack)")
    if lookup3(data[:-4]) != int.from_bytes(data[-4:], "little"):
        raise IntegrityError(f"the checksum of {cursor.what} does not hold; the file is damaged")
    cursor.skip(sb.length_size)
    huge_tree = sb.address(cursor)
    cursor.skip(9 * sb.length_size + sb.offset_size)
    width, start, most_direct = cursor.u16(), sb.length(cursor), sb.length(cursor)
    most_bits = cursor.u16()
    cursor.skip(2)
    heap = Heap(
        address, id_nbytes, bool(flags & 2), most_managed, huge_tree, width, start, most_direct, most_bits,
        sb.address(cursor), cursor.u16(),
    )  # fmt: skip
    _check_heap(heap, cursor.what)
    return heap


def _check_heap(heap: Heap, what: str) -> None:
    sizes = (heap.width, heap.start_nbytes, heap.most_direct_nbytes)
    if any(size < 1 or size & (size - 1) for size in sizes):
        raise MetadataError(f"{what} has a table of {sizes} (width, least, most bytes); expected powers of two")
    if not heap.start_nbytes <= heap.most_direct_nbytes <= _MOST_BLOCK_BYTES or not heap.most_managed_nbytes:
        raise MetadataError(
            f"{what} has blocks of {heap.start_nbytes} to {heap.most_direct_nbytes} bytes; it is damaged"
        )
    if not 1 <= heap.most_bits <= 64 or heap.root_rows > 64 or not 1 <= heap.id_nbytes <= 4096:
        raise MetadataError(f"{what} spans 2**{heap.most_bits} bytes in {heap.root_rows} rows; it is damaged")


def read_objects(file: FileBytes, sb: Superblock, heap: Heap, ids: Sequence[bytes]) -> list[memoryview]:
    """Return the objects with these identifiers; what they have in common is fetched once, and level by level."""
    found: list[memoryview | None] = [None] * len(ids)
    managed: list[tuple[int, int, int]] = []
    huge: list[tuple[int, int, int]] = []
    for at, name in enumerate(ids):
        cursor = Cursor(memoryview(name), what="an identifier in a fractal heap")
        head = cursor.u8()
        if head >> 6:
            raise MetadataError(f"{cursor.what} has version {head >> 6}, expected 0")
        match head >> 4 & 3:
            case 0:
                managed.append((at, cursor.uint(heap.offset_nbytes), cursor.uint(heap.length_nbytes)))
            case 1:
                huge.append((at, *_huge_id(cursor, heap, sb)))
            case 2:
                found[at] = _tiny(cursor, heap, head)
            case kind:
                raise MetadataError(f"{cursor.what} is of kind {kind}, expected managed, huge or tiny")
    if sum(nbytes for _, _, nbytes in managed) > _MOST_TOTAL_BYTES:
        raise MetadataError(f"objects of {_MOST_TOTAL_BYTES} bytes and more are asked of a fractal heap; it is damaged")
    if managed:
        _read_managed(file, sb, heap, managed, found)
    if huge:
        _read_huge(file, sb, heap, huge, found)
    return [each if each is not None else memoryview(b"") for each in found]


def _tiny(cursor: Cursor, heap: Heap, head: int) -> memoryview:
    """Return an object that is its own identifier."""
    nbytes = head & 15 if heap.id_nbytes <= 18 else (head & 15) << 8 | cursor.u8()
    return cursor.take(nbytes + 1)


def _huge_id(cursor: Cursor, heap: Heap, sb: Superblock) -> tuple[int, int]:
    """Return an object's address and bytes, or its number and 0 where a tree has to be asked."""
    if heap.id_nbytes > sb.offset_size + sb.length_size:
        return sb.must_address(cursor), sb.length(cursor)
    return cursor.uint(min(heap.id_nbytes - 1, sb.length_size)), 0


def _read_huge(
    file: FileBytes, sb: Superblock, heap: Heap, wanted: list[tuple[int, int, int]], found: list[memoryview | None]
) -> None:
    if heap.id_nbytes <= sb.offset_size + sb.length_size:
        if heap.huge_tree is None:
            raise MetadataError(f"the fractal heap at byte {heap.address} has no tree for its huge objects")
        places = {}
        for rows in read_btree2(file, sb, heap.huge_tree, _HUGE_RECORDS, _MOST_HUGE):
            for row in rows:
                cursor = Cursor(memoryview(row.tobytes()), what="a record of a huge object")
                address, nbytes = sb.must_address(cursor), sb.length(cursor)
                places[sb.length(cursor)] = (address, nbytes)
        if missing := [number for _, number, _ in wanted if number not in places]:
            raise MetadataError(f"the fractal heap at byte {heap.address} lacks its huge object {missing[0]}")
        wanted = [(at, *places[number]) for at, number, _ in wanted]
    if sum(nbytes for _, _, nbytes in wanted) > _MOST_TOTAL_BYTES:
        raise MetadataError(
            f"huge objects of over {_MOST_TOTAL_BYTES} bytes are asked of a fractal heap; it is damaged"
        )
    if any(address + nbytes > sb.size for _, address, nbytes in wanted):
        raise MetadataError(f"a huge object of the fractal heap at byte {heap.address} reaches out of the file")
    blocks = file.read_many([(address, nbytes) for _, address, nbytes in wanted])
    for (at, _, _), block in zip(wanted, blocks, strict=True):
        found[at] = block


def _read_managed(
    file: FileBytes, sb: Superblock, heap: Heap, wanted: list[tuple[int, int, int]], found: list[memoryview | None]
) -> None:
    """Fetch the blocks that hold the wanted (place in `found`, offset, nbytes)."""
    blocks = _direct_blocks(file, sb, heap, sorted({offset for _, offset, _ in wanted}))
    places = dict(blocks)
    if sum({address: nbytes for address, _, nbytes in places.values()}.values()) > _MOST_TOTAL_BYTES:
        raise MetadataError(
            f"the fractal heap at byte {heap.address} needs over {_MOST_TOTAL_BYTES} bytes; it is damaged"
        )
    unique = sorted({(address, nbytes) for address, _, nbytes in places.values()})
    data = dict(zip(unique, file.read_many(unique), strict=True))
    _check_direct(data, heap, sb)
    for at, offset, nbytes in wanted:
        address, start, block_nbytes = places[offset]
        block = data[address, block_nbytes]
        inner = offset - start
        if inner + nbytes > len(block):
            raise MetadataError(f"an object at {offset} of the fractal heap at byte {heap.address} leaves its block")
        found[at] = block[inner : inner + nbytes]


def _check_direct(blocks: dict[tuple[int, int], memoryview], heap: Heap, sb: Superblock) -> None:
    """Raise MetadataError or IntegrityError if what was read at some (address, nbytes) are no blocks of objects."""
    sums, bodies = [], []
    for (address, _), block in blocks.items():
        cursor = Cursor(block, origin=address, what="a block of a fractal heap")
        cursor.expect(b"FHDB")
        cursor.version(0)
        cursor.skip(sb.offset_size + heap.offset_nbytes)
        if heap.guarded:
            # The checksum is over the whole block, with zeros in its own place.
            at = cursor.at
            sums.append((address, cursor.u32()))
            bodies.append(bytes(block[:at]) + bytes(4) + bytes(block[at + 4 :]))
    for (address, expected), found in zip(sums, lookup3_each(bodies), strict=True):
        if found != expected:
            raise IntegrityError(
                f"the checksum of the fractal heap's block at byte {address} does not hold; it is damaged"
            )


def _direct_blocks(file: FileBytes, sb: Superblock, heap: Heap, offsets: list[int]) -> dict[int, tuple[int, int, int]]:
    """Return for each offset the (address, start within the heap, nbytes) of the block of objects that holds it."""
    if heap.root is None:
        raise MetadataError(f"the fractal heap at byte {heap.address} is empty, and objects are asked of it")
    if heap.root_rows == 0:
        return {offset: _block(heap.root, 0, heap.start_nbytes, sb) for offset in offsets}
    found: dict[int, tuple[int, int, int]] = {}
    # A block of blocks: its address, where it starts within the heap, and the rows of its table.
    level = {(heap.root, 0, heap.root_rows): offsets}
    for _ in range(heap.most_bits):
        if not level:
            return found
        spans = [(address, _indirect_nbytes(heap, sb, rows)) for address, _, rows in level]
        if any(address + nbytes > sb.size for address, nbytes in spans):
            raise MetadataError(f"the fractal heap at byte {heap.address} reaches out of the file; it is damaged")
        below: dict[tuple[int, int, int], list[int]] = {}
        for ((_, start, rows), inner), data in zip(level.items(), file.read_many(spans), strict=True):
            table = _parse_indirect(data, heap, sb, rows)
            for offset in inner:
                row, column, block_start = heap.find(offset - start)
                address = table.get(row * heap.width + column)
                if address is None:
                    raise MetadataError(f"the fractal heap at byte {heap.address} has no block for offset {offset}")
                nbytes = heap.row_nbytes(row)
                if row < heap.direct_rows:
                    found[offset] = _block(address, start + block_start, nbytes, sb)
                else:
                    key = (address, start + block_start, heap.inner_rows(nbytes))
                    below.setdefault(key, []).append(offset)
        level = below
    raise MetadataError(f"the fractal heap at byte {heap.address} has blocks within blocks without end; it is damaged")


def _block(address: int, start: int, nbytes: int, sb: Superblock) -> tuple[int, int, int]:
    if address + nbytes > sb.size:
        raise MetadataError(f"a block of {nbytes} bytes at byte {address} reaches out of the file; it is damaged")
    return address, start, nbytes


def _indirect_nbytes(heap: Heap, sb: Superblock, rows: int) -> int:
    return 9 + sb.offset_size + heap.offset_nbytes + rows * heap.width * sb.offset_size


def _parse_indirect(data: memoryview, heap: Heap, sb: Superblock, rows: int) -> dict[int, int]:
    """Return the addresses in a block of blocks by their place in its table."""
    cursor = Cursor(data, what="a block of blocks in a fractal heap")
    cursor.expect(b"FHIB")
    if lookup3(data[:-4]) != int.from_bytes(data[-4:], "little"):
        raise IntegrityError(f"the checksum of {cursor.what} does not hold; the file is damaged")
    cursor.version(0)
    cursor.skip(sb.offset_size + heap.offset_nbytes)
    found = {}
    for place in range(rows * heap.width):
        if (address := sb.address(cursor)) is not None:
            found[place] = address
    return found
