"""Local and global heaps: where names, and cells of variable length, are kept."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence

from hyperslab.errors import IntegrityError, MetadataError
from hyperslab.formats.hdf5.cursor import Cursor, FileBytes
from hyperslab.formats.hdf5.superblock import Superblock

__all__ = ["Collections", "LocalHeap", "Objects", "local_heap_nbytes", "read_local_heap"]

_MOST_LOCAL_BYTES = 64 << 20
_MOST_COLLECTION_BYTES = 64 << 20
_MOST_OBJECTS = 65_536
# Most collections have 4096 bytes; a larger one takes a second request.
_FIRST_BYTES = 4096
_MOST_AT_ONCE = 1024

Objects = dict[int, memoryview]


class LocalHeap:
    """The names of an old-style group."""

    __slots__ = ("_data", "_start")

    def __init__(self, data: memoryview, start: int) -> None:
        self._data = bytes(data)
        self._start = start

    def name(self, offset: int) -> bytes:
        """Return the bytes from `offset` up to the next zero."""
        stop = self._data.find(0, offset) if 0 <= offset < len(self._data) else -1
        if stop < 0:
            raise MetadataError(
                f"a name at {offset} of the local heap at byte {self._start} does not end in its {len(self._data)} "
                "bytes; the file is damaged"
            )
        return self._data[offset:stop]


def local_heap_nbytes(sb: Superblock) -> int:
    """Return the bytes of a local heap's header."""
    return 8 + 2 * sb.length_size + sb.offset_size


def read_local_heap(file: FileBytes, sb: Superblock, address: int, header: memoryview | None = None) -> LocalHeap:
    """Return the local heap whose header is at `address`, or has been read already."""
    if header is None:
        header = file.read(address, local_heap_nbytes(sb))
    start, nbytes = _parse_local_heap(header, sb, address)
    return LocalHeap(file.read(start, nbytes), start)


def _parse_local_heap(header: memoryview, sb: Superblock, address: int) -> tuple[int, int]:
    """Return where a local heap's bytes lie and how many there are."""
    cursor = Cursor(header, origin=address, what="a local heap")
    cursor.expect(b"HEAP")
    cursor.version(0)
    cursor.skip(3)
    nbytes = sb.length(cursor)
    sb.length(cursor)  # the list of free blocks, of no use to a reader
    start = sb.must_address(cursor)
    if nbytes > min(_MOST_LOCAL_BYTES, sb.size - start):
        raise MetadataError(f"{cursor.what} at byte {address} says it has {nbytes} bytes from {start}; it is damaged")
    return start, nbytes


class Collections:
    """The global heap's collections: read when they are needed, and at most `most_bytes` of them kept."""

    def __init__(self, most_bytes: int = 32 << 20) -> None:
        self.most_bytes = most_bytes
        self._nbytes = 0
        self._kept: OrderedDict[int, tuple[int, Objects]] = OrderedDict()

    def rounds(self, file: FileBytes, sb: Superblock, addresses: Sequence[int]) -> Iterator[dict[int, Objects]]:
        """Yield collections by address, as many at a time as are fetched together."""
        known = {address: self._kept.get(address) for address in addresses}
        kept = {address: each[1] for address, each in known.items() if each is not None}
        if kept:
            yield kept
        missing = [address for address in addresses if address not in kept]
        for start in range(0, len(missing), _MOST_AT_ONCE):
            for blocks in _fetch(file, sb, missing[start : start + _MOST_AT_ONCE]):
                found = {address: _parse_collection(data, sb, address) for address, data in blocks.items()}
                for address, data in blocks.items():
                    self._keep(address, len(data), found[address])
                yield found

    def _keep(self, address: int, nbytes: int, objects: Objects) -> None:
        if address in self._kept:
            return
        self._kept[address] = (nbytes, objects)
        self._nbytes += nbytes
        while self._nbytes > self.most_bytes and len(self._kept) > 1:
            self._nbytes -= self._kept.popitem(last=False)[1][0]


def _fetch(file: FileBytes, sb: Superblock, addresses: list[int]) -> Iterator[dict[int, memoryview]]:
    """Yield the bytes of collections; those longer than most are fetched some at a time."""
    if bad := [address for address in addresses if not 0 <= address < file.size]:
        raise MetadataError(f"a cell refers to a global heap at byte {bad[0]} of {file.size}; the file is damaged")
    starts = file.read_many([(address, min(_FIRST_BYTES, file.size - address)) for address in addresses])
    short: dict[int, memoryview] = {}
    longer: list[tuple[int, int]] = []
    for address, data in zip(addresses, starts, strict=True):
        nbytes = _collection_bytes(data, sb, address)
        if nbytes <= len(data):
            short[address] = data[:nbytes]
        else:
            longer.append((address, nbytes))
    yield short
    while longer:
        count, total = 0, 0
        while count < len(longer) and (not count or total + longer[count][1] <= _MOST_COLLECTION_BYTES):
            total += longer[count][1]
            count += 1
        some, longer = longer[:count], longer[count:]
        yield {address: data for (address, _), data in zip(some, file.read_many(some), strict=True)}


def _collection_bytes(data: memoryview, sb: Superblock, address: int) -> int:
    cursor = Cursor(data, origin=address, what="a global heap")
    cursor.expect(b"GCOL")
    cursor.version(1)
    cursor.skip(3)
    nbytes = sb.length(cursor)
    if not cursor.at <= nbytes <= _MOST_COLLECTION_BYTES:
        raise MetadataError(
            f"{cursor.what} at byte {address} says it has {nbytes} bytes; at most {_MOST_COLLECTION_BYTES} are read"
        )
    if address + nbytes > sb.size:
        raise IntegrityError(
            f"{cursor.what} at byte {address} has {nbytes} bytes and the file ends before; it is cut off"
        )
    return nbytes


def _parse_collection(data: memoryview, sb: Superblock, address: int) -> Objects:
    """Return the objects of a collection by index."""
    cursor = Cursor(data, origin=address, what="a global heap")
    cursor.skip(8 + sb.length_size)
    cursor.align(8)
    found: Objects = {}
    # An object begins at a multiple of eight bytes, and so does what it holds: lengths may be shorter.
    while cursor.left >= 16 and len(found) < _MOST_OBJECTS:
        index = cursor.u16()
        cursor.skip(6)
        nbytes = sb.length(cursor)
        cursor.align(8)
        # Index 0 is the free space that ends a collection.
        if index == 0:
            break
        found[index] = cursor.take(nbytes)
        cursor.skip(min(-nbytes % 8, cursor.left))
    return found
