"""HDF5 files made by hand, byte by byte, so that they can lie."""

import struct
from typing import Any

from hyperslab.formats.hdf5.checksum import lookup3
from hyperslab.formats.hdf5.objects import open_file
from hyperslab.formats.hdf5.superblock import SIGNATURE
from support.hdf5_files import BytesFile

__all__ = ["CONTINUED", "LAYOUT", "NOWHERE", "ROOT", "Image", "attribute", "chunks", "dataset", "guarded", "message"]

CONTINUED = 0x10
DATASPACE = struct.pack("<BBB5x", 1, 2, 0)
NOWHERE = 2**64 - 1
ROOT = 96


class Image:
    """A file of 64 KiB in the making, its root's header at byte 96."""

    def __init__(self) -> None:
        self.data = bytearray(1 << 16)
        end = len(self.data)
        self.put(
            0,
            SIGNATURE
            + struct.pack("<8BHHIQQQQQQ", 0, 0, 0, 0, 0, 8, 8, 0, 4, 16, 0, 0, NOWHERE, end, NOWHERE, 0, ROOT),
        )

    def put(self, at: int, raw: bytes) -> "Image":
        self.data[at : at + len(raw)] = raw
        return self

    def header(
        self, at: int, *messages: tuple[int, bytes], count: int | None = None, nbytes: int | None = None
    ) -> "Image":
        body = b"".join(message(*each) for each in messages)
        total = len(messages) if count is None else count
        return self.put(at, struct.pack("<BxHIII", 1, total, 1, len(body) if nbytes is None else nbytes, 0) + body)

    def tree(self, at: int, height: int, *children: int, count: int | None = None) -> "Image":
        raw = b"TREE" + struct.pack("<BBHQQ", 0, height, len(children) if count is None else count, NOWHERE, NOWHERE)
        return self.put(at, raw + b"".join(struct.pack("<QQ", 0, child) for child in children))

    def symbols(self, at: int, *entries: tuple[int, int], count: int | None = None) -> "Image":
        raw = b"SNOD" + struct.pack("<BxH", 1, len(entries) if count is None else count)
        return self.put(at, raw + b"".join(struct.pack("<QQII16x", name, header, 0, 0) for name, header in entries))

    def heap(self, at: int, start: int, names: bytes, nbytes: int | None = None, free: int = NOWHERE) -> "Image":
        self.put(at, b"HEAP" + struct.pack("<4xQQQ", len(names) if nbytes is None else nbytes, free, start))
        return self.put(start, names)

    def group(self, at: int = ROOT) -> "Image":
        """An old-style group: its tree at 1000, its heap at 2000."""
        return self.header(at, (0x11, struct.pack("<QQ", 1000, 2000))).heap(
            2000, 2100, b"\0" * 8 + b"name\0\0\0\0" + b"o\0"
        )

    def open(self) -> Any:
        return open_file(BytesFile(bytes(self.data)))


def message(kind: int, body: bytes) -> bytes:
    body += bytes(-len(body) % 8)
    return struct.pack("<HHB3x", kind, len(body), 0) + body


def guarded(raw: bytes) -> bytes:
    return raw + struct.pack("<I", lookup3(raw))


def dataset(*more: tuple[int, bytes], shape: tuple[int, int] = (2, 3), kind: bytes | None = None) -> Image:
    messages = [
        (1, DATASPACE + struct.pack("<QQ", *shape)),
        (3, struct.pack("<BBHIHH", 0x10, 8, 0, 4, 0, 32) if kind is None else kind),
    ]
    return Image().group().tree(1000, 0, 1600).symbols(1600, (8, 5000)).header(5000, *messages, *more)


LAYOUT = (8, struct.pack("<BBQQ", 3, 1, 6000, 24))


def chunks(*lengths: int) -> tuple[int, bytes]:
    return 8, struct.pack(f"<BBBQ{len(lengths)}I", 3, 2, len(lengths), 6000, *lengths)


def attribute(
    shape: tuple[int, ...], data: bytes, kind: bytes = struct.pack("<BBHIHH", 0x10, 8, 0, 4, 0, 32)
) -> tuple[int, bytes]:
    space = struct.pack(f"<BBB5x{len(shape)}Q", 1, len(shape), 0, *shape)
    parts = b"".join(part + bytes(-len(part) % 8) for part in (b"a\0", kind, space))
    return 0x0C, struct.pack("<BxHHH", 1, 2, len(kind), len(space)) + parts + data
