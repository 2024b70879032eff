"""HDF5 files of a single chunk, in which the HDF5 library finds a filter just as it was stored elsewhere."""

import struct

from hyperslab.formats.hdf5.checksum import lookup3
from hyperslab.formats.hdf5.plugin_child import TAP

__all__ = ["image_head"]

_UNDEFINED = 2**64 - 1
_ROOT_AT = 48
# Types of header messages.
_DATASPACE, _LINK_INFO, _DATATYPE, _FILL, _LINK, _LAYOUT, _GROUP_INFO, _PIPELINE = 1, 2, 3, 5, 6, 8, 10, 11


def image_head(number: int, values: tuple[int, ...], most_nbytes: int, nbytes: int) -> bytes:
    """Return all of a file but the chunk of `nbytes` bytes at its end.

    Its dataset "a" has one chunk of `most_nbytes` bytes, behind filter `number` with these values, and
    before it our own: the library then gives us what the filter does, however many bytes that is.
    """
    extent = struct.pack("<BBBBQ", 2, 1, 0, 1, most_nbytes)
    cell = struct.pack("<BBHIHH", 0x10, 0, 0, 1, 0, 8)
    pipeline = struct.pack("<BB", 2, 2) + _filter(TAP, ()) + _filter(number, values)
    # Lengths are as wide as the longest needs.
    width = -(-most_nbytes.bit_length() // 8)
    lengths = most_nbytes.to_bytes(width, "little") + (1).to_bytes(width, "little")
    layout = bytes([4, 2, 2, 2, width]) + lengths + struct.pack("<BQI", 1, nbytes, 0)
    described = [(_DATASPACE, extent), (_DATATYPE, cell), (_FILL, b"\x03\x0a"), (_PIPELINE, pipeline)]
    dataset_at = _ROOT_AT + len(_root(0))
    data_at = dataset_at + len(_header([*described, (_LAYOUT, layout + bytes(8))]))
    dataset = _header([*described, (_LAYOUT, layout + struct.pack("<Q", data_at))])
    superblock = struct.pack("<BBBBQQQQ", 2, 8, 8, 0, 0, _UNDEFINED, data_at + nbytes, _ROOT_AT)
    return _summed(b"\x89HDF\r\n\x1a\n" + superblock) + _root(dataset_at) + dataset


def _root(dataset_at: int) -> bytes:
    """Return the header of the root, a group of one link."""
    links = struct.pack("<BBQQ", 0, 0, _UNDEFINED, _UNDEFINED)
    link = struct.pack("<BBBcQ", 1, 0, 1, b"a", dataset_at)
    return _header([(_LINK_INFO, links), (_GROUP_INFO, bytes(2)), (_LINK, link)])


def _filter(number: int, values: tuple[int, ...]) -> bytes:
    # Filters of the library itself have no room for a name.
    named = struct.pack("<H", 0) if number >= 256 else b""
    return struct.pack("<H", number) + named + struct.pack(f"<HH{len(values)}I", 0, len(values), *values)


def _header(messages: list[tuple[int, bytes]]) -> bytes:
    bodies = b"".join([struct.pack("<BHB", number, len(body), 0) + body for number, body in messages])
    return _summed(b"OHDR" + struct.pack("<BBI", 2, 2, len(bodies)) + bodies)


def _summed(data: bytes) -> bytes:
    return data + struct.pack("<I", lookup3(data))
