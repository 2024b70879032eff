"""An opened file: its superblock, and what has been read of it and is kept."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace

from hyperslab.errors import MetadataError, UnsupportedError
from hyperslab.formats.hdf5.cursor import FileBytes
from hyperslab.formats.hdf5.fractal import Heap, read_heap, read_objects
from hyperslab.formats.hdf5.header import Message, ObjectHeader, read_header, read_headers
from hyperslab.formats.hdf5.heaps import Collections
from hyperslab.formats.hdf5.shared import SharedTable, parse_shared, read_shared_table
from hyperslab.formats.hdf5.superblock import Superblock, check_driver

__all__ = ["HeadBytes", "Opened", "open_superblock"]

_HEAD_BYTES = 64 << 10
_MOST_HEADERS = 4096
_MOST_AT_ONCE = 1024
_DRIVER, _CACHE_IMAGE = 0x14, 0x18


class HeadBytes:
    """A file whose start has been read: what lies there needs no further request."""

    def __init__(self, file: FileBytes, nbytes: int = _HEAD_BYTES) -> None:
        self.size = file.size
        self.etag = file.etag
        self._file = file
        self._head = file.read(0, min(nbytes, file.size))

    def read(self, start: int, nbytes: int) -> memoryview:
        """Return `nbytes` bytes from `start`."""
        return self.read_many([(start, nbytes)])[0]

    def read_many(self, spans: Sequence[tuple[int, int]]) -> list[memoryview]:
        """Return the bytes of each (start, nbytes); one call to the file for those behind its start."""
        head = len(self._head)
        behind = [span for span in spans if sum(span) > head]
        rest = iter(self._file.read_many(behind) if behind else ())
        return [next(rest) if start + n > head else self._head[start : start + n] for start, n in spans]


class Opened:
    """The file below its objects: headers by address, shared messages, heaps."""

    def __init__(self, file: FileBytes, superblock: Superblock, shared: SharedTable) -> None:
        self.file = file
        self.superblock = superblock
        self.collections = Collections()
        self._shared = shared
        self._heaps: dict[int, Heap] = {}
        self._headers: OrderedDict[int, ObjectHeader] = OrderedDict()

    def header(self, address: int) -> ObjectHeader:
        """Return the object header at `address`."""
        return self.headers([address])[0]

    def headers(self, addresses: Sequence[int]) -> list[ObjectHeader]:
        """Return many object headers; those not yet known are fetched together."""
        known = {address: self._headers.get(address) for address in addresses}
        found = {address: header for address, header in known.items() if header is not None}
        missing = [address for address in dict.fromkeys(addresses) if address not in found]
        for start in range(0, len(missing), _MOST_AT_ONCE):
            for header in read_headers(self.file, self.superblock, missing[start : start + _MOST_AT_ONCE]):
                found[header.address] = self._headers[header.address] = header
        while len(self._headers) > _MOST_HEADERS:
            self._headers.popitem(last=False)
        return [found[address] for address in addresses]

    def plain(self, message: Message) -> Message:
        """Return the message itself, or the one it stands for if it is shared."""
        if not message.shared:
            return message
        place = parse_shared(message.cursor("a shared message"), self.superblock)
        if place.heap_id is not None:
            body = self.shared_objects(message.type, [place.heap_id])[0]
            return Message(message.type, message.flags & ~2, body, message.at)
        assert place.address is not None
        found = self.header(place.address).first(message.type)
        if found is None or found.shared:
            raise MetadataError(
                f"the object at byte {place.address} should hold a message of type {message.type} that others share; "
                "it has none, and the file is damaged"
            )
        return found

    def shared_objects(self, kind: int, ids: Sequence[bytes]) -> list[memoryview]:
        """Return messages of a type from the file's table of shared messages."""
        return self.heap_objects(self._shared.heap(kind), ids)

    def heap_objects(self, address: int, ids: Sequence[bytes]) -> list[memoryview]:
        """Return objects of the fractal heap at `address`."""
        if address not in self._heaps:
            self._heaps[address] = read_heap(self.file, self.superblock, address)
        return read_objects(self.file, self.superblock, self._heaps[address], ids)


def open_superblock(file: FileBytes, superblock: Superblock) -> Opened:
    """Return the opened file, with what the superblock's extension adds: widths of B-trees, shared messages."""
    if superblock.extension is None:
        return Opened(file, superblock, SharedTable())
    extension = read_header(file, superblock, superblock.extension)
    if extension.first(_CACHE_IMAGE) is not None:
        raise UnsupportedError(
            "the file's metadata is in an image of its writer's cache, which is not read, and what is in its place "
            "may be old; open the file once for writing with HDF5 and close it (or h5repack)"
        )
    if (driver := extension.first(_DRIVER)) is not None:
        cursor = driver.cursor("a driver info message")
        cursor.version(0)
        check_driver(bytes(cursor.take(8)))
    if (message := extension.first(0x13)) is not None:
        cursor = message.cursor("a message of B-tree widths")
        cursor.version(0)
        chunk_k, internal_k, leaf_k = cursor.u16(), cursor.u16(), cursor.u16()
        if not (chunk_k and internal_k and leaf_k):
            raise MetadataError(f"{cursor.what} gives a B-tree nodes of no entries; the file is damaged")
        superblock = replace(superblock, chunk_k=chunk_k, group_internal_k=internal_k, group_leaf_k=leaf_k)
    return Opened(file, superblock, read_shared_table(file, superblock, extension))
