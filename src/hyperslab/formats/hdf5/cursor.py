"""How bytes of an HDF5 file are asked for, and read field by field without ever running over."""

from collections.abc import Sequence
from typing import Protocol

from hyperslab.errors import MetadataError

__all__ = ["Cursor", "FileBytes"]


class FileBytes(Protocol):
    """The bytes of one file, wherever it is."""

    @property
    def size(self) -> int:
        """Bytes of the whole file."""

    @property
    def etag(self) -> str | None:
        """What changes when the file does, None where nothing is known to."""

    def read(self, start: int, nbytes: int) -> memoryview:
        """Return exactly `nbytes` bytes from `start`; IntegrityError where the file ends before."""

    def read_many(self, spans: Sequence[tuple[int, int]]) -> list[memoryview]:
        """Return the bytes of each (start, nbytes), fetched together in few requests."""


class Cursor:
    """A place in some bytes that moves on as fields are read. All integers are little-endian.

    `origin` is where in the file the bytes start, `what` what they are, for errors.

    >>> cursor = Cursor(memoryview(bytes([1, 2, 0, 9])), what="an example")
    >>> cursor.u8(), cursor.u16(), cursor.left
    (1, 2, 1)
    >>> cursor.u32()
    Traceback (most recent call last):
    hyperslab.errors.MetadataError: an example ends at byte 4, where 4 more bytes from byte 3 were expected; ...
    """

    __slots__ = ("at", "data", "origin", "what")

    def __init__(self, data: memoryview, *, origin: int = 0, what: str = "HDF5 metadata") -> None:
        self.data = data
        self.at = 0
        self.origin = origin
        self.what = what

    @property
    def left(self) -> int:
        """How many bytes have not been read."""
        return len(self.data) - self.at

    @property
    def place(self) -> int:
        """Where in the file the next byte lies."""
        return self.origin + self.at

    def take(self, nbytes: int) -> memoryview:
        """Return the next `nbytes` bytes and move behind them."""
        start, stop = self.at, self.at + nbytes
        if not start <= stop <= len(self.data):
            raise MetadataError(
                f"{self.what} ends at byte {self.origin + len(self.data)}, where {nbytes} more bytes from byte "
                f"{self.place} were expected; the file is damaged"
            )
        self.at = stop
        return self.data[start:stop]

    def skip(self, nbytes: int) -> None:
        """Move over `nbytes` bytes."""
        self.take(nbytes)

    def uint(self, nbytes: int) -> int:
        """Return an unsigned integer of `nbytes` bytes."""
        return int.from_bytes(self.take(nbytes), "little")

    def u8(self) -> int:
        """Return one byte."""
        return self.uint(1)

    def u16(self) -> int:
        """Return two bytes as an unsigned integer."""
        return self.uint(2)

    def u32(self) -> int:
        """Return four bytes as an unsigned integer."""
        return self.uint(4)

    def u64(self) -> int:
        """Return eight bytes as an unsigned integer."""
        return self.uint(8)

    def align(self, nbytes: int) -> None:
        """Move to the next multiple of `nbytes`, counted from the first byte."""
        self.skip(-self.at % nbytes)

    def rest(self) -> memoryview:
        """Return all bytes that have not been read."""
        return self.take(self.left)

    def expect(self, signature: bytes) -> None:
        """Read a signature, MetadataError if it is another."""
        start = self.place
        if (found := bytes(self.take(len(signature)))) != signature:
            raise MetadataError(
                f"{self.what} at byte {start} should begin with {signature!r} and begins with {found!r}; "
                "the file is damaged"
            )

    def version(self, *known: int) -> int:
        """Read a version byte, MetadataError if it is none of `known`."""
        if (found := self.u8()) not in known:
            wanted = " or ".join(map(str, known))
            raise MetadataError(f"{self.what} at byte {self.place - 1} has version {found}, expected {wanted}")
        return found

    def until_nul(self) -> bytes:
        """Return the bytes up to the next zero byte, and move behind it."""
        # In growing steps: what follows a short name may be long.
        step = 64
        while (nbytes := bytes(self.data[self.at : self.at + step]).find(0)) < 0:
            if step >= self.left:
                raise MetadataError(
                    f"{self.what} has a name from byte {self.place} that never ends; the file is damaged"
                )
            step *= 2
        name = bytes(self.take(nbytes))
        self.skip(1)
        return name
