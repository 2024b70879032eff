"""Object headers: the list of messages that describes a group, a dataset or a committed datatype."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hyperslab.errors import IntegrityError, MetadataError
from hyperslab.formats.hdf5.checksum import lookup3_each
from hyperslab.formats.hdf5.cursor import Cursor, FileBytes
from hyperslab.formats.hdf5.superblock import Superblock

__all__ = ["Message", "ObjectHeader", "read_header", "read_headers"]

NIL, CONTINUATION = 0x00, 0x10
# Most headers are shorter: one request.
_FIRST_BYTES = 512
_MOST_BYTES = 64 << 20
_MOST_BYTES_AT_ONCE = 128 << 20
_MOST_MESSAGES = 100_000
_MOST_BLOCKS = 10_000


@dataclass(frozen=True, slots=True)
class Message:
    """One message: its type, its flags, its bytes, and where in the file they start."""

    type: int
    flags: int
    body: memoryview
    at: int

    @property
    def shared(self) -> bool:
        """Whether the body only says where the message is stored."""
        return bool(self.flags & 2)

    def cursor(self, what: str) -> Cursor:
        """Return a cursor at the start of the body; `what` names it in errors."""
        return Cursor(self.body, origin=self.at, what=f"{what} at byte {self.at}")


@dataclass(frozen=True, slots=True)
class ObjectHeader:
    """The messages of one object, in the order of the file."""

    address: int
    version: int
    messages: list[Message]

    def first(self, *types: int) -> Message | None:
        """Return the first message of one of these types, None if there is none."""
        return next((message for message in self.messages if message.type in types), None)

    def all(self, kind: int) -> list[Message]:
        """Return all messages of a type."""
        return [message for message in self.messages if message.type == kind]


@dataclass(slots=True)
class _Reading:
    """A header that is being read: what is known, and which blocks are still to come."""

    address: int
    version: int = 0
    flags: int = 0
    left: int = _MOST_MESSAGES
    nbytes: int = 0
    messages: list[Message] = field(default_factory=list)
    todo: list[tuple[int, int]] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)

    @property
    def guard_nbytes(self) -> int:
        """Bytes of the checksum that ends each block."""
        return 0 if self.version == 1 else 4


def read_header(file: FileBytes, sb: Superblock, address: int) -> ObjectHeader:
    """Return the header at `address`, all its continuations included."""
    return read_headers(file, sb, [address])[0]


def read_headers(file: FileBytes, sb: Superblock, addresses: Sequence[int]) -> list[ObjectHeader]:
    """Return many headers, each round of blocks fetched together."""
    starts = file.read_many([(address, _head_bytes(file, address)) for address in addresses])
    readings = [_Reading(address) for address in addresses]
    spans = [_parse_start(data, reading, file) for reading, data in zip(readings, starts, strict=True)]
    longer = [at for at, (_, stop) in enumerate(spans) if stop > len(starts[at])]
    for at, data in zip(longer, _read_blocks(file, [(addresses[at], spans[at][1]) for at in longer]), strict=True):
        starts[at] = data
    blocks = [data[:stop] for data, (_, stop) in zip(starts, spans, strict=True)]
    _check(readings, blocks, addresses)
    for reading, block, (start, stop) in zip(readings, blocks, spans, strict=True):
        _parse_block(block[start : stop - reading.guard_nbytes], reading.address + start, reading, sb)
    _follow(file, sb, readings)
    return [ObjectHeader(reading.address, reading.version, reading.messages) for reading in readings]


def _read_blocks(file: FileBytes, spans: Sequence[tuple[int, int]]) -> list[memoryview]:
    if sum(nbytes for _, nbytes in spans) > _MOST_BYTES_AT_ONCE:
        raise MetadataError(
            f"{len(spans)} object headers promise over {_MOST_BYTES_AT_ONCE} bytes; the file is damaged"
        )
    return file.read_many(spans) if spans else []


def _head_bytes(file: FileBytes, address: int) -> int:
    if not 0 <= address < file.size:
        raise MetadataError(f"an object header should be at byte {address} of a file of {file.size} bytes")
    return min(_FIRST_BYTES, file.size - address)


def _parse_start(data: memoryview, reading: _Reading, file: FileBytes) -> tuple[int, int]:
    """Read the prefix: return where in the first block messages start, and where it ends, checksum included."""
    cursor = Cursor(data, origin=reading.address, what="an object header")
    if bytes(data[:4]) != b"OHDR":
        reading.version = cursor.version(1)
        cursor.skip(1)
        reading.left = cursor.u16()
        cursor.skip(4)
        nbytes = cursor.u32()
        cursor.skip(4)
    else:
        cursor.skip(4)
        reading.version, reading.flags = cursor.version(2), cursor.u8()
        cursor.skip((16 if reading.flags & 0x20 else 0) + (4 if reading.flags & 0x10 else 0))
        nbytes = cursor.uint(1 << (reading.flags & 3))
    stop = cursor.at + nbytes + reading.guard_nbytes
    if stop > min(_MOST_BYTES, file.size - reading.address):
        raise MetadataError(f"the object header at byte {reading.address} promises {stop} bytes; the file is damaged")
    return cursor.at, stop


def _check(readings: Sequence[_Reading], blocks: Sequence[memoryview], places: Sequence[int]) -> None:
    """Raise IntegrityError if a checksum at the end of a block does not hold; old headers have none."""
    guarded = [at for at, reading in enumerate(readings) if reading.guard_nbytes]
    for at, found in zip(guarded, lookup3_each([blocks[at][:-4] for at in guarded]), strict=True):
        if found != int.from_bytes(blocks[at][-4:], "little"):
            raise IntegrityError(
                f"the checksum of the object header's block at byte {places[at]} does not hold; the file is damaged"
            )


def _follow(file: FileBytes, sb: Superblock, readings: Iterable[_Reading]) -> None:
    """Read continuation blocks until no header has any left."""
    while waiting := [(reading, span) for reading in readings for span in reading.todo]:
        for reading, _ in waiting:
            reading.todo = []
        blocks = _read_blocks(file, [span for _, span in waiting])
        _check([reading for reading, _ in waiting], blocks, [at for _, (at, _) in waiting])
        for (reading, (at, _)), block in zip(waiting, blocks, strict=True):
            if reading.guard_nbytes:
                Cursor(block, origin=at, what="a continuation of an object header").expect(b"OCHK")
                at, block = at + 4, block[4 : -reading.guard_nbytes]
            _parse_block(block, at, reading, sb)


def _parse_block(block: memoryview, at: int, reading: _Reading, sb: Superblock) -> None:
    """Add a block's messages, and note where it is continued."""
    cursor = Cursor(block, origin=at, what="an object header")
    old = reading.version == 1
    prefix = 8 if old else 6 if reading.flags & 4 else 4
    # What is too short for a message is a gap.
    while cursor.left >= prefix and reading.left > 0:
        kind, nbytes, flags = cursor.u16() if old else cursor.u8(), cursor.u16(), cursor.u8()
        cursor.skip(prefix - (5 if old else 4))
        start = cursor.place
        body = cursor.take(nbytes)
        reading.left -= 1
        if kind == CONTINUATION:
            _note_continuation(Cursor(body, origin=start, what="a continuation message"), reading, sb)
        elif kind != NIL:
            reading.messages.append(Message(kind, flags, body, start))
    if not old and not reading.left:
        raise MetadataError(f"the object header at byte {reading.address} has more than {_MOST_MESSAGES} messages")


def _note_continuation(cursor: Cursor, reading: _Reading, sb: Superblock) -> None:
    at, nbytes = sb.must_address(cursor), sb.length(cursor)
    reading.nbytes += nbytes
    if at in reading.seen or at == reading.address or len(reading.seen) >= _MOST_BLOCKS:
        raise MetadataError(f"the object header at byte {reading.address} continues in itself at {at}; it is damaged")
    if nbytes < 8 or at + nbytes > sb.size or reading.nbytes > _MOST_BYTES:
        raise MetadataError(
            f"the object header at byte {reading.address} continues with {nbytes} bytes at {at} "
            f"of a file of {sb.size}; it is damaged"
        )
    reading.seen.add(at)
    reading.todo.append((at, nbytes))
