"""Messages that are stored once for many objects: committed datatypes, and the file's table of shared messages."""

from dataclasses import dataclass

from hyperslab.errors import IntegrityError, MetadataError
from hyperslab.formats.hdf5.checksum import lookup3
from hyperslab.formats.hdf5.cursor import Cursor, FileBytes
from hyperslab.formats.hdf5.header import ObjectHeader
from hyperslab.formats.hdf5.superblock import Superblock

__all__ = ["SharedPlace", "SharedTable", "parse_shared", "read_shared_table"]

_MOST_INDEXES = 8


@dataclass(frozen=True, slots=True)
class SharedPlace:
    """Where a shared message is: in the header at `address`, or under `heap_id` in the heap for its type."""

    address: int | None
    heap_id: bytes | None


@dataclass(frozen=True, slots=True)
class SharedTable:
    """For sets of message types (a bit each), the fractal heap in which the file keeps shared ones."""

    heaps: tuple[tuple[int, int], ...] = ()

    def heap(self, kind: int) -> int:
        """Return the address of the heap for messages of a type."""
        # Fill values of the old kind are kept with those of the new.
        bit = 5 if kind == 4 else kind
        for types, heap in self.heaps:
            if types >> bit & 1:
                return heap
        raise MetadataError(f"a shared message of type {kind} has no heap in the file's table; the file is damaged")


def parse_shared(cursor: Cursor, sb: Superblock) -> SharedPlace:
    """Return where the message is that a shared one stands for."""
    version, kind = cursor.version(1, 2, 3), cursor.u8()
    if version == 1:
        cursor.skip(6)
        # An entry of a symbol table: the place of a name comes before the address.
        cursor.skip(sb.length_size if cursor.left >= sb.length_size + sb.offset_size else 0)
    if version == 3 and kind == 1:
        return SharedPlace(None, bytes(cursor.take(8)))
    return SharedPlace(sb.must_address(cursor), None)


def read_shared_table(file: FileBytes, sb: Superblock, extension: ObjectHeader) -> SharedTable:
    """Return the file's table of shared messages; it is empty if the superblock's extension names none."""
    if (message := extension.first(0x0F)) is None:
        return SharedTable()
    cursor = message.cursor("a shared message table's message")
    cursor.version(0)
    address, count = sb.must_address(cursor), cursor.u8()
    if not 1 <= count <= _MOST_INDEXES:
        raise MetadataError(f"{cursor.what} has {count} indexes; expected 1 to {_MOST_INDEXES}")
    entry_nbytes = 14 + 2 * sb.offset_size
    data = file.read(address, 8 + count * entry_nbytes)
    table = Cursor(data, origin=address, what="the shared message table")
    table.expect(b"SMTB")
    if lookup3(data[:-4]) != int.from_bytes(data[-4:], "little"):
        raise IntegrityError("the checksum of the shared message table does not hold; the file is damaged")
    heaps = []
    for _ in range(count):
        table.version(0)
        table.skip(1)
        types = table.u16()
        table.skip(10)
        sb.address(table)
        if (heap := sb.address(table)) is not None:
            heaps.append((types, heap))
    return SharedTable(tuple(heaps))
