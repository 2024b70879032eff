"""The superblock: where an HDF5 file says how wide its addresses are and where its root lies."""

from dataclasses import dataclass, replace

from hyperslab.errors import IntegrityError, MetadataError, UnsupportedError
from hyperslab.formats.hdf5.checksum import lookup3
from hyperslab.formats.hdf5.cursor import Cursor, FileBytes

__all__ = ["SIGNATURE", "Superblock", "check_driver", "find_superblock"]

SIGNATURE = b"\x89HDF\r\n\x1a\n"
_MOST_BYTES = 256
# Flags of a file that someone has open: to write it, and so that others may read it meanwhile (SWMR).
_WRITING, _SHARING = 1, 4


@dataclass(frozen=True, slots=True)
class Superblock:
    """What the whole file has in common. Its addresses, and those that `address` returns, count from byte 0."""

    version: int
    base: int
    offset_size: int
    length_size: int
    size: int
    root: int
    extension: int | None = None
    group_leaf_k: int = 4
    group_internal_k: int = 16
    chunk_k: int = 32

    def address(self, cursor: Cursor) -> int | None:
        """Read an address: None if it is undefined, MetadataError if it lies outside the file."""
        found = cursor.uint(self.offset_size)
        if found == (1 << (8 * self.offset_size)) - 1:
            return None
        if (absolute := found + self.base) > self.size:
            raise MetadataError(
                f"{cursor.what} points to byte {absolute}, the file has {self.size}; it is damaged or cut off"
            )
        return absolute

    def must_address(self, cursor: Cursor) -> int:
        """Read an address that may not be undefined."""
        if (found := self.address(cursor)) is None:
            raise MetadataError(f"{cursor.what} lacks an address before byte {cursor.place}; the file is damaged")
        return found

    def length(self, cursor: Cursor) -> int:
        """Read a length."""
        return cursor.uint(self.length_size)


def find_superblock(file: FileBytes) -> Superblock | None:
    """Return the file's superblock, None if it is no HDF5 file.

    It lies at byte 0, or at 512, 1024, 2048, … behind something else.
    """
    starts = [0]
    while (start := max(512, 2 * starts[-1])) + len(SIGNATURE) <= file.size:
        starts.append(start)
    if file.size < len(SIGNATURE):
        return None
    if bytes(file.read(0, len(SIGNATURE))) == SIGNATURE:
        return _parse(file, 0)
    found = file.read_many([(start, len(SIGNATURE)) for start in starts[1:]])
    for start, signature in zip(starts[1:], found, strict=True):
        if bytes(signature) == SIGNATURE:
            return _parse(file, start)
    return None


def _parse(file: FileBytes, start: int) -> Superblock:
    data = file.read(start, min(_MOST_BYTES, file.size - start))
    cursor = Cursor(data, origin=start, what="the superblock")
    cursor.skip(len(SIGNATURE))
    version = cursor.version(0, 1, 2, 3)
    found = _parse_old(cursor, version, start, file) if version < 2 else _parse_new(cursor, version, start, file)
    if found.root >= file.size:
        raise MetadataError(f"the superblock's root lies at byte {found.root} of {file.size}; the file is damaged")
    return found


def _parse_old(cursor: Cursor, version: int, start: int, file: FileBytes) -> Superblock:
    cursor.skip(4)
    offset_size, length_size = _widths(cursor)
    cursor.skip(1)
    leaf_k, internal_k = cursor.u16(), cursor.u16()
    cursor.skip(4)
    chunk_k = 32
    if version == 1:
        chunk_k = cursor.u16()
        cursor.skip(2)
    if not (leaf_k and internal_k and chunk_k):
        raise MetadataError("the superblock gives a B-tree nodes of no entries; the file is damaged")
    base = cursor.uint(offset_size)
    cursor.skip(offset_size)
    _check_end(cursor.uint(offset_size), base, start, file)
    bare = Superblock(
        version, start, offset_size, length_size, file.size, 0,
        group_leaf_k=leaf_k, group_internal_k=internal_k, chunk_k=chunk_k,
    )  # fmt: skip
    if (driver := bare.address(cursor)) is not None and file.size - driver >= 16:
        check_driver(bytes(file.read(driver + 8, 8)))
    cursor.skip(length_size)  # the place of the root's name
    return replace(bare, root=bare.must_address(cursor))


def _parse_new(cursor: Cursor, version: int, start: int, file: FileBytes) -> Superblock:
    offset_size, length_size = _widths(cursor)
    flags = cursor.u8()
    base = cursor.uint(offset_size)
    body = Cursor(cursor.take(3 * offset_size), origin=cursor.place, what="the superblock")
    if lookup3(cursor.data[: cursor.at]) != cursor.u32():
        raise IntegrityError("the superblock's checksum does not hold; the file is damaged")
    if version == 3 and flags & (_WRITING | _SHARING) == _WRITING:
        raise IntegrityError(
            "the file is being written, or its writer never closed it: what is stored may be incomplete; "
            "close it first, or clear the mark (h5clear -s) if nobody writes it any more"
        )
    bare = Superblock(version, start, offset_size, length_size, file.size, 0)
    extension = bare.address(body)
    _check_end(body.uint(offset_size), base, start, file)
    return replace(bare, root=bare.must_address(body), extension=extension)


def check_driver(name: bytes) -> None:
    """Refuse a file that is only one of several, by the name of the driver that wrote it."""
    if name.startswith(b"NCSAmult"):
        raise UnsupportedError(
            "the file is one of several in which HDF5's split or multi driver keeps metadata and cells apart; "
            "rewrite it as one file (h5repack)"
        )


def _widths(cursor: Cursor) -> tuple[int, int]:
    offset_size, length_size = cursor.u8(), cursor.u8()
    if offset_size not in (2, 4, 8) or length_size not in (2, 4, 8):
        raise MetadataError(
            f"the superblock has addresses of {offset_size} and lengths of {length_size} bytes; "
            "expected 2, 4 or 8: the file is damaged"
        )
    return offset_size, length_size


def _check_end(end: int, base: int, start: int, file: FileBytes) -> None:
    """Refuse a file that ends before the end it was written with. `base` is what the file believes `start` to be."""
    expected = end - base + start
    if expected > file.size:
        raise IntegrityError(
            f"the file is cut off: its superblock promises {expected} bytes and it has {file.size}; "
            "copy it again (or it is one part of a family of files, which are not read)"
        )
