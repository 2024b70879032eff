"""Chunk indexes that are arrays: of a fixed number of chunks, or growing along one axis without end."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hyperslab.errors import IntegrityError, MetadataError, UnsupportedError
from hyperslab.formats.hdf5.checksum import lookup3, lookup3_many
from hyperslab.formats.hdf5.chunk_entries import UNDEFINED, Entries, Grid, Numbering, absolute, read_spans, uints
from hyperslab.formats.hdf5.cursor import Cursor, FileBytes

if TYPE_CHECKING:
    from hyperslab.formats.hdf5.messages import ChunkIndexMessage
    from hyperslab.formats.hdf5.superblock import Superblock

__all__ = ["extensible_array", "fixed_array"]

_SUM_BYTES = 4
# Signature, version, and whether chunks are filtered.
_PREFIX_BYTES = 6
_MOST_PAGE_BITS = 24
# So few checksums are quicker one by one.
_FEW = 12
# A part of an extensible array: its first element, where it lies, and its bytes without the checksum.
_Span = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class _Kind:
    """What the elements of an index are: addresses, and for filtered chunks sizes and masks too."""

    sb: "Superblock"
    filtered: bool
    element_nbytes: int

    def __post_init__(self) -> None:
        extra = self.element_nbytes - self.sb.offset_size
        if not (5 <= extra <= 12 if self.filtered else extra == 0):
            raise MetadataError(f"elements of a chunk index have {self.element_nbytes} bytes; the file is damaged")

    def look_up(
        self, pieces: list[tuple[int, memoryview]], numbers: npt.NDArray[np.int64], chunk_nbytes: int
    ) -> Entries:
        """Return the chunks of these numbers that are stored; `pieces` are elements from some number on."""
        pieces = sorted(pieces, key=lambda piece: piece[0])
        firsts = np.array([-1, *[first for first, _ in pieces]])
        counts = np.array([0, *[len(piece) // self.element_nbytes for _, piece in pieces]])
        which = np.searchsorted(firsts, numbers, "right") - 1
        within = numbers - firsts[which]
        known = np.flatnonzero(within < counts[which])
        data = np.frombuffer(b"".join([piece for _, piece in pieces]), self._dtype())
        rows = data[(np.cumsum(counts) - counts)[which[known]] + within[known]]
        addresses = absolute(rows["address"], self.sb)
        stored = addresses != UNDEFINED
        rows, addresses, known = rows[stored], addresses[stored], known[stored]
        if self.filtered:
            return Entries(known, addresses, uints(rows["nbytes"]), rows["mask"].astype(np.uint32))
        lengths = np.full(known.size, chunk_nbytes, np.uint64)
        return Entries(known, addresses, lengths, np.zeros(known.size, np.uint32))

    def _dtype(self) -> np.dtype[Any]:
        width = self.sb.offset_size
        fields: list[tuple[str, str]] = [("address", f"V{width}")]
        if self.filtered:
            fields += [("nbytes", f"V{self.element_nbytes - width - 4}"), ("mask", "<u4")]
        return np.dtype(fields)


def fixed_array(
    file: FileBytes, sb: "Superblock", message: "ChunkIndexMessage", grid: Grid, max_shape: Sequence[int | None]
) -> Entries:
    """Read a fixed array: its header, the head of its data block, and the pages that chunks of the grid are on."""
    numbering = Numbering.of(grid, max_shape, endless=False)
    nbytes = _PREFIX_BYTES + 2 + sb.length_size + sb.offset_size
    cursor = _block(file, message.address or 0, nbytes, b"FAHD", message)
    element_nbytes, page_bits, count = cursor.u8(), cursor.u8(), sb.length(cursor)
    kind = _Kind(sb, message.filtered, element_nbytes)
    if page_bits > _MOST_PAGE_BITS or count <= numbering.last:
        raise MetadataError(f"a fixed array of {count} chunks in pages of 2^{page_bits}; expected {numbering.last + 1}")
    start, numbers, pieces = sb.address(cursor), numbering.numbers(), []
    if start is not None and count <= 1 << page_bits:
        nbytes = _PREFIX_BYTES + sb.offset_size + count * element_nbytes
        cursor = _block(file, start, nbytes, b"FADB", message)
        _check_owner(cursor, sb, message)
        pieces = [(0, cursor.rest())]
    elif start is not None:
        # A bit for each page says whether it was ever written.
        pages = (count - 1 >> page_bits) + 1
        nbytes = _PREFIX_BYTES + sb.offset_size + (pages + 7) // 8
        cursor = _block(file, start, nbytes, b"FADB", message)
        _check_owner(cursor, sb, message)
        written = np.unpackbits(np.frombuffer(cursor.rest(), np.uint8)).astype(bool)
        wanted = np.unique(numbers >> page_bits)
        pieces = _fixed_pages(
            file, start + nbytes + _SUM_BYTES, wanted[written[wanted]], count, page_bits, element_nbytes
        )
    return kind.look_up(pieces, numbers, grid.chunk_nbytes)


def _fixed_pages(
    file: FileBytes, start: int, wanted: npt.NDArray[np.int64], count: int, page_bits: int, element_nbytes: int
) -> list[tuple[int, memoryview]]:
    """Return the elements of some pages of a fixed array of `count`; the first page lies at `start`."""
    firsts = wanted << page_bits
    sizes = np.minimum(count - firsts, 1 << page_bits) * element_nbytes
    starts = start + wanted * ((element_nbytes << page_bits) + _SUM_BYTES)
    found = _pages(file, list(zip(starts.tolist(), sizes.tolist(), strict=True)))
    return list(zip(firsts.tolist(), found, strict=True))


@dataclass(frozen=True, slots=True)
class _Extensible:
    """The shape of an extensible array, from its header: blocks of blocks that double in size.

    Level u has 2^(u//2) data blocks of 2^((u+1)//2) * `least` elements each. The first levels' data
    blocks are listed in the index block, the others' in one secondary block for each level.
    """

    kind: _Kind
    bits: int
    direct: int  # elements in the index block itself
    least: int
    pointers: int
    page_bits: int
    address: int | None

    @property
    def levels(self) -> int:
        return 1 + self.bits - (self.least.bit_length() - 1)

    @property
    def listed(self) -> int:
        """How many levels have their data blocks listed in the index block."""
        return min(2 * (self.pointers.bit_length() - 1), self.levels)

    @property
    def offset_nbytes(self) -> int:
        return -(-self.bits // 8)

    def blocks(self, level: int) -> int:
        return 1 << (level // 2)

    def elements(self, level: int) -> int:
        return self.least << ((level + 1) // 2)

    def pages(self, level: int) -> int:
        """Return the pages of a data block; 0 if it is not paged."""
        return self.elements(level) >> self.page_bits if self.elements(level) > 1 << self.page_bits else 0

    def first(self, level: int) -> int:
        """Return the number of the level's first element, those of the index block not counted."""
        return self.least * ((1 << level) - 1)

    def mark(self, first: int) -> int:
        """Return what the data block that starts with element `first` has stored as its start.

        HDF5 counts blocks from the level's first, but those of the index block from the very first.
        """
        level = (first // self.least + 1).bit_length() - 1
        if level >= self.listed:
            return first
        return first + sum([self.blocks(before) for before in range(level)]) * self.elements(level)

    @classmethod
    def read(cls, file: FileBytes, sb: "Superblock", message: "ChunkIndexMessage") -> "_Extensible":
        nbytes = _PREFIX_BYTES + 6 + 6 * sb.length_size + sb.offset_size
        cursor = _block(file, message.address or 0, nbytes, b"EAHD", message)
        element_nbytes, bits, direct, least, pointers, page_bits = [cursor.u8() for _ in range(6)]
        cursor.skip(6 * sb.length_size)
        found = cls(
            _Kind(sb, message.filtered, element_nbytes), bits, direct, least, pointers, page_bits, sb.address(cursor)
        )
        powers = [n > 0 and not n & (n - 1) for n in (least, pointers)]
        if not all(powers) or not found.least <= 1 << bits or bits > 64 or page_bits > _MOST_PAGE_BITS:
            raise MetadataError(f"an extensible array contradicts itself: {found}")
        if any([found.pages(level) for level in range(found.listed)]):
            raise UnsupportedError("an extensible array whose index block lists paged data blocks")
        return found


def extensible_array(
    file: FileBytes, sb: "Superblock", message: "ChunkIndexMessage", grid: Grid, max_shape: Sequence[int | None]
) -> Entries:
    """Read an extensible array: header, index block, then all secondary blocks, then all data blocks needed."""
    numbering = Numbering.of(grid, max_shape, endless=True)
    array = _Extensible.read(file, sb, message)
    numbers = numbering.numbers()
    if array.address is None:
        return array.kind.look_up([], numbers, grid.chunk_nbytes)
    if numbering.last >= array.direct + array.first(array.levels):
        raise MetadataError(f"an extensible array of at most 2^{array.bits} chunks; expected {numbering.last + 1}")
    element_nbytes, width = array.kind.element_nbytes, sb.offset_size
    lists = 2 * (array.pointers - 1)
    tail = lists + array.levels - array.listed
    nbytes = _PREFIX_BYTES + width + array.direct * element_nbytes + tail * width
    cursor = _block(file, array.address, nbytes, b"EAIB", message)
    _check_owner(cursor, sb, message)
    pieces = [(0, cursor.take(array.direct * element_nbytes))]
    addresses = absolute(np.frombuffer(cursor.rest(), f"V{width}"), sb)
    wanted = _wanted(array, numbers)
    levels = _data_blocks(file, sb, message, array, addresses, lists, sorted(wanted))
    pieces += _elements(file, sb, message, array, levels, wanted)
    return array.kind.look_up(pieces, numbers, grid.chunk_nbytes)


def _wanted(array: _Extensible, numbers: npt.NDArray[np.int64]) -> dict[int, npt.NDArray[np.int64]]:
    """Return for each level the numbers of the elements wanted from it, counted from the level's first."""
    later = np.sort(numbers[numbers >= array.direct] - array.direct)
    found = {}
    for level in range(array.levels):
        low, high = np.searchsorted(later, [array.first(level), array.first(level + 1)])
        if high > low:
            found[level] = later[low:high] - array.first(level)
        if high == later.size:
            break
    return found


@dataclass(frozen=True, slots=True)
class _Level:
    """The data blocks of one level: their addresses, and which of their pages were written."""

    addresses: npt.NDArray[np.uint64]
    written: npt.NDArray[np.bool_]


def _data_blocks(
    file: FileBytes,
    sb: "Superblock",
    message: "ChunkIndexMessage",
    array: _Extensible,
    addresses: npt.NDArray[np.uint64],
    lists: int,
    levels: list[int],
) -> dict[int, _Level]:
    """Return the data blocks of these levels, from the index block's `addresses` or from secondary blocks."""
    found, spans, far = {}, [], []
    for level in levels:
        if level < array.listed:
            first = sum([array.blocks(before) for before in range(level)])
            found[level] = _Level(addresses[first : first + array.blocks(level)], np.empty(0, np.bool_))
        elif (address := int(addresses[lists + level - array.listed])) != UNDEFINED:
            head = _PREFIX_BYTES + sb.offset_size + array.offset_nbytes
            nbytes = head + array.blocks(level) * (-(-array.pages(level) // 8) + sb.offset_size)
            spans.append((address, nbytes + _SUM_BYTES))
            far.append(level)
    for level, view in zip(far, read_spans(file, spans, "secondary blocks"), strict=True):
        _check_sums([view])
        cursor = _opened(view[:-_SUM_BYTES], b"EASB", message)
        _check_owner(cursor, sb, message)
        _check_first(cursor.uint(array.offset_nbytes), array.first(level))
        bitmap = np.frombuffer(cursor.take(array.blocks(level) * -(-array.pages(level) // 8)), np.uint8)
        blocks = absolute(np.frombuffer(cursor.rest(), f"V{sb.offset_size}"), sb)
        found[level] = _Level(blocks, np.unpackbits(bitmap).astype(bool))
    return found


def _elements(
    file: FileBytes,
    sb: "Superblock",
    message: "ChunkIndexMessage",
    array: _Extensible,
    levels: dict[int, _Level],
    wanted: dict[int, npt.NDArray[np.int64]],
) -> list[tuple[int, memoryview]]:
    """Return the elements of all data blocks, or pages of them, that hold wanted ones."""
    head = _PREFIX_BYTES + sb.offset_size + array.offset_nbytes
    blocks: list[_Span] = []
    pages: list[_Span] = []
    for level, data in levels.items():
        if array.pages(level):
            pages += _page_spans(array, level, data, wanted[level], head)
        else:
            blocks += _block_spans(array, level, data, wanted[level], head)
    found = _pages(file, [(at, nbytes) for _, at, nbytes in blocks + pages])
    pieces = [(array.direct + first, view) for (first, _, _), view in zip(pages, found[len(blocks) :], strict=True)]
    for (first, _, _), view in zip(blocks, found, strict=False):
        cursor = _opened(view, b"EADB", message)
        _check_owner(cursor, sb, message)
        _check_first(cursor.uint(array.offset_nbytes), array.mark(first))
        pieces.append((array.direct + first, cursor.rest()))
    return pieces


def _block_spans(array: _Extensible, level: int, data: _Level, wanted: npt.NDArray[np.int64], head: int) -> list[_Span]:
    """Return the data blocks of a level that hold wanted elements."""
    each = array.elements(level)
    which = np.unique(wanted // each)
    which = which[data.addresses[which] != UNDEFINED]
    nbytes = head + each * array.kind.element_nbytes
    places = zip(which.tolist(), data.addresses[which].tolist(), strict=True)
    return [(array.first(level) + number * each, at, nbytes) for number, at in places]


def _page_spans(array: _Extensible, level: int, data: _Level, wanted: npt.NDArray[np.int64], head: int) -> list[_Span]:
    """Return the pages of data blocks of a level that hold wanted elements."""
    count, nbytes = array.pages(level), array.kind.element_nbytes << array.page_bits
    pages = np.unique(wanted >> array.page_bits)
    pages = pages[(data.addresses[pages // count] != UNDEFINED) & data.written[pages]]
    places = zip(pages.tolist(), data.addresses[pages // count].tolist(), strict=True)
    return [
        (
            array.first(level) + (page << array.page_bits),
            at + head + _SUM_BYTES + page % count * (nbytes + _SUM_BYTES),
            nbytes,
        )
        for page, at in places
    ]


def _pages(file: FileBytes, spans: Sequence[tuple[int, int]]) -> list[memoryview]:
    """Fetch these bytes, each followed by a checksum, which is checked."""
    found = read_spans(file, [(start, nbytes + _SUM_BYTES) for start, nbytes in spans], "data blocks")
    _check_sums(found)
    return [view[:-_SUM_BYTES] for view in found]


def _check_sums(views: Sequence[memoryview]) -> None:
    groups: dict[int, list[memoryview]] = defaultdict(list)
    for view in views:
        groups[len(view)].append(view)
    for nbytes, group in groups.items():
        rows = np.frombuffer(b"".join(group), np.uint8).reshape(len(group), nbytes)
        stored = np.ascontiguousarray(rows[:, -_SUM_BYTES:]).view("<u4")[:, 0]
        found = lookup3_many(rows[:, :-_SUM_BYTES]) if len(group) > _FEW else [lookup3(v[:-_SUM_BYTES]) for v in group]
        if (stored != found).any():
            raise IntegrityError("a checksum of the chunk index does not hold; the file is damaged")


def _block(file: FileBytes, address: int, nbytes: int, sign: bytes, message: "ChunkIndexMessage") -> Cursor:
    """Fetch a block of `nbytes` and a checksum, and open it behind its prefix."""
    (view,) = _pages(file, [(address, nbytes)])
    return _opened(view, sign, message)


def _opened(view: memoryview, sign: bytes, message: "ChunkIndexMessage") -> Cursor:
    cursor = Cursor(view, what="the chunk index")
    cursor.expect(sign)
    cursor.version(0)
    if cursor.u8() != message.filtered:
        raise MetadataError("the chunk index and the dataset differ in whether chunks are filtered")
    return cursor


def _check_owner(cursor: Cursor, sb: "Superblock", message: "ChunkIndexMessage") -> None:
    if sb.address(cursor) != message.address:
        raise MetadataError("a block of the chunk index belongs to another index; the file is damaged")


def _check_first(found: int, expected: int) -> None:
    if found != expected:
        raise MetadataError(f"a block of the chunk index starts at chunk {found}, expected {expected}; it is damaged")
