"""Segments of the index: entries sorted by name, in blocks that can be fetched alone, and a table of the blocks.

    magic     8 bytes
    blocks    one after the other
    tail      the table: where each block begins and its crc32c; the first name, then a text that parts each block from
              the one before; the last name

The table is small (some 40 bytes for a block of 256 entries), fetched once and kept. Blocks are parted by the shortest
texts that do it, so that long names do not make it long.
"""

import secrets
import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from hyperslab.collections.blocks import DELETED, MAX_BLOCK_BYTES, Row, pack_block
from hyperslab.collections.manifest import SegmentRef, join
from hyperslab.errors import FormatError, IntegrityError
from hyperslab.layout.checksums import crc32c

__all__ = ["MAX_TAIL_BYTES", "PackedSegment", "Table", "block_checksum", "pack_segments", "segment_key", "text_bytes"]

MAX_TAIL_BYTES = 256 << 20

_MAGIC = b"HSLABSG1"
_TAIL_MAGIC = b"HST1"
_TAIL = struct.Struct("<4sIII")
# A block is closed with so many entries, or bytes of names and other texts; a segment with so many bytes.
_BLOCK_ROWS = 256
_BLOCK_TEXT_BYTES = 1 << 18
_SEGMENT_BYTES = 512 << 20


def segment_key(path: str, name: str) -> str:
    return join(path, f"index/{name}.seg")


@dataclass(frozen=True, slots=True, eq=False)
class PackedSegment:
    """A segment that is to be stored."""

    ref: SegmentRef
    data: bytes


def pack_segments(rows: Iterable[Row], most_rows: int) -> Iterator[PackedSegment]:
    """Yield the segments of rows that are sorted by name, each of at most so many, and of bytes that memory holds."""
    building = _Building()
    for row in rows:
        if building.count >= most_rows or building.nbytes >= _SEGMENT_BYTES:
            yield building.finish()
            building = _Building()
        building.add(row)
    if building.count:
        yield building.finish()


def text_bytes(row: Row) -> int:
    """Return about what a row takes of a block besides its numbers."""
    return len(row.name) + (sum([len(each) for each in row.attrs.values() if type(each) is str]) if row.attrs else 0)


class _Building:
    """A segment in the making."""

    def __init__(self) -> None:
        self.count = self.deleted = self.data_bytes = 0
        self._parts, self._at = [_MAGIC], len(_MAGIC)
        self._starts: list[int] = []
        self._checksums: list[int] = []
        self._separators: list[bytes] = []
        self._rows: list[Row] = []
        self._text_bytes = 0
        self._last = b""

    @property
    def nbytes(self) -> int:
        """How many bytes there are, up to the last block that is closed."""
        return self._at

    def add(self, row: Row) -> None:
        if len(self._rows) >= _BLOCK_ROWS or self._text_bytes > _BLOCK_TEXT_BYTES:
            self._close_block()
        self._rows.append(row)
        self._text_bytes += text_bytes(row)
        self.count += 1
        self.deleted += bool(row.flags & DELETED)
        self.data_bytes += row.nbytes

    def _close_block(self) -> None:
        data = pack_block(self._rows)
        first = self._rows[0].name
        self._separators.append(_separator(self._last, first) if self._parts[1:] else first)
        self._starts.append(self._at)
        self._checksums.append(crc32c(np.frombuffer(data, np.uint8)))
        self._parts.append(data)
        self._at += len(data)
        self._last = self._rows[-1].name
        self._rows, self._text_bytes = [], 0

    def finish(self) -> PackedSegment:
        self._close_block()
        texts = [*self._separators, self._last]
        tail = b"".join([
            _TAIL.pack(_TAIL_MAGIC, len(self._starts), self.count, len(b"".join(texts))),
            np.array([*self._starts, self._at], "<u8").tobytes(),
            np.array(self._checksums, "<u4").tobytes(),
            np.cumsum([len(text) for text in texts], dtype="<u4").tobytes(),
            *texts,
        ])  # fmt: skip
        data = b"".join([*self._parts, tail])
        checksum = crc32c(np.frombuffer(tail, np.uint8))
        name = secrets.token_hex(16)
        ref = SegmentRef(name, len(data), self._at, checksum, self.count, self.deleted, self.data_bytes)
        return PackedSegment(ref, data)


def _separator(before: bytes, first: bytes) -> bytes:
    """Return the shortest text that is above `before` and not above `first`.

    >>> _separator(b"vortex/0012", b"vortex/0100")
    b'vortex/01'
    """
    same = 0
    for one, other in zip(before, first, strict=False):
        if one != other:
            break
        same += 1
    return first[: same + 1]


class Table:
    """The table of a segment's blocks."""

    __slots__ = ("blocks", "checksums", "last", "nbytes", "separators", "starts", "where")

    def __init__(self, data: memoryview, ref: SegmentRef, where: str) -> None:
        self.where, self.nbytes = where, 3 * len(data)
        found = block_checksum(data)
        if len(data) != ref.nbytes - ref.tail or found != ref.crc32c:
            raise IntegrityError(
                f"{where} is damaged: the crc32c of its table is {found:#010x}, not {ref.crc32c:#010x}"
            )
        try:
            self._parse(data, ref)
        except (ValueError, struct.error) as error:
            raise FormatError(f"{where} is no segment of an index: {error}") from None

    def _parse(self, data: memoryview, ref: SegmentRef) -> None:
        magic, blocks, rows, nbytes = _TAIL.unpack_from(data)
        sizes = (_TAIL.size, 8 * (blocks + 1), 4 * blocks, 4 * (blocks + 1), nbytes)
        if magic != _TAIL_MAGIC or sum(sizes) != len(data) or not blocks or rows != ref.rows:
            raise ValueError("the parts of its table do not add up")
        at = np.cumsum(sizes).tolist()
        starts = np.frombuffer(data[at[0] : at[1]], "<u8").astype(np.int64)
        lengths = np.diff(starts)
        if starts[0] != len(_MAGIC) or starts[-1] != ref.tail or lengths.min() <= 0 or lengths.max() > MAX_BLOCK_BYTES:
            raise ValueError("its blocks do not lie one after the other")
        ends = np.frombuffer(data[at[2] : at[3]], "<u4").astype(np.int64)
        if ends[-1] != nbytes or np.diff(ends, prepend=0).min() < 0:
            raise ValueError("the texts of its table do not add up")
        texts, bounds = bytes(data[at[3] :]), [0, *ends.tolist()]
        split = [texts[low:high] for low, high in pairwise(bounds)]
        self.blocks, self.starts = blocks, starts.tolist()
        self.checksums: list[int] = np.frombuffer(data[at[1] : at[2]], "<u4").tolist()
        self.separators, self.last = split[:-1], split[-1]
        if any(one >= other for one, other in pairwise(self.separators)):
            raise ValueError("its blocks are not in order")

    def block_of(self, name: bytes) -> int:
        """Return the block that would hold a name, -1 if none could."""
        return bisect_right(self.separators, name) - 1 if name <= self.last else -1

    def span(self, block: int) -> tuple[int, int]:
        """Return where a block begins and ends."""
        return self.starts[block], self.starts[block + 1]


def block_checksum(data: memoryview) -> int:
    return crc32c(np.frombuffer(data, np.uint8))
