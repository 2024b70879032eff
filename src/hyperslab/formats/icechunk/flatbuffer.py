"""FlatBuffers, read column by column: every offset is checked before it is followed.

A table lies anywhere in the buffer and begins with the distance back to its vtable, which says at which distance each
field lies; 0, or a vtable that ends before, means that the field is not there. Vectors and strings are a count and
their items, and lie where an offset says. Many tables of one type, like a million references to chunks, are read by
one step of NumPy for each field.
"""

import sys
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from hyperslab.errors import MetadataError

__all__ = ["Buffer", "Tables", "Vectors"]

Ints = npt.NDArray[np.int64]

# Names and places are shorter than that by far.
_MAX_TEXT_BYTES = 1 << 16


class Buffer:
    """The bytes of one FlatBuffer; `name` is what errors call it."""

    def __init__(self, data: bytes, name: str) -> None:
        self.name, self.nbytes = name, len(data)
        self.bytes = np.frombuffer(data, np.uint8)
        self._shorts = self.bytes[: self.nbytes // 2 * 2].view("<u2")
        self._words = self.bytes[: self.nbytes // 4 * 4].view("<u4")

    def fail(self, why: str) -> NoReturn:
        raise MetadataError(f"{self.name!r} is damaged: {why}")

    def shorts(self, at: Ints) -> Ints:
        """Return the 16-bit numbers at these places."""
        return self._pick(self._shorts, at, 2)

    def words(self, at: Ints) -> Ints:
        """Return the 32-bit numbers at these places."""
        return self._pick(self._words, at, 4)

    def _pick(self, items: npt.NDArray[Any], at: Ints, size: int) -> Ints:
        if at.size and (int(at.min()) < 0 or int(at.max()) >= items.size * size or (at & (size - 1)).any()):
            self.fail("an offset leads out of it, or between two numbers")
        return items[at // size].astype(np.int64)

    def check_spans(self, starts: Ints, nbytes: Ints) -> None:
        """Make sure that these bytes are there."""
        if starts.size and (int(starts.min()) < 0 or int((starts + nbytes).max()) > self.nbytes):
            self.fail("a vector leads out of it")

    def follow(self, at: Ints) -> Ints:
        """Return where the offsets at these places lead to."""
        return at + self.words(at)

    def root(self) -> "Tables":
        """Return the one table that all others hang on."""
        return Tables(self, self.follow(np.zeros(1, np.int64)))


class Tables:
    """Tables of one type; each method gives one field of all of them."""

    def __init__(self, buffer: Buffer, at: Ints) -> None:
        self.buffer, self.at = buffer, at
        # The distance to a vtable is signed: most lie before their tables.
        back = buffer.words(at)
        self._vtables = at - np.where(back >= 1 << 31, back - (1 << 32), back)
        self._widths = buffer.shorts(self._vtables)

    def __len__(self) -> int:
        return len(self.at)

    def take(self, rows: Ints | slice) -> "Tables":
        """Return some of the tables."""
        return Tables(self.buffer, self.at[rows])

    def places(self, field: int) -> Ints:
        """Return where the field lies in each table, -1 where it is not there."""
        entry = 4 + 2 * field
        distances = np.zeros(len(self.at), np.int64)
        known = self._widths >= entry + 2
        distances[known] = self.buffer.shorts(self._vtables[known] + entry)
        return np.where(distances > 0, self.at + distances, -1)

    def has(self, field: int) -> npt.NDArray[np.bool_]:
        """Return which tables have the field."""
        return self.places(field) >= 0

    def octets(self, field: int, default: int = 0) -> Ints:
        """Return a field of one byte."""
        return self._numbers(field, default, lambda at: self._raw(at, 1)[:, 0].astype(np.int64))

    def words(self, field: int, default: int = 0) -> Ints:
        """Return a field of 32 bits."""
        return self._numbers(field, default, self.buffer.words)

    def longs(self, field: int) -> Ints:
        """Return a field of 64 bits, 0 where it is not there. Half of them suffices for any file there is."""
        found = self._numbers(field, 0, lambda at: self.buffer.words(at) + (self.buffer.words(at + 4) << 32))
        if found.size and int(found.min()) < 0:
            self.buffer.fail("a size or place is 2**63 or more")
        return found

    def structs(self, field: int, nbytes: int) -> list[bytes]:
        """Return a field of so many bytes; all tables must have it."""
        rows = self._raw(self._needed(field), nbytes).tobytes()
        return [rows[at : at + nbytes] for at in range(0, len(rows), nbytes)]

    def vectors(self, field: int, item_bytes: int) -> "Vectors":
        """Return a field of items of so many bytes; empty where it is not there."""
        at = self.places(field)
        here = at >= 0
        starts, counts = np.zeros(len(at), np.int64), np.zeros(len(at), np.int64)
        starts[here] = self.buffer.follow(at[here])
        counts[here] = self.buffer.words(starts[here])
        starts[here] += 4
        self.buffer.check_spans(starts, counts * item_bytes)
        return Vectors(self.buffer, starts, counts, item_bytes)

    def tables(self, field: int) -> "Tables":
        """Return the tables that a field leads to, one for each; all must have it."""
        return Tables(self.buffer, self.buffer.follow(self._needed(field)))

    def lists(self, field: int, *, least_bytes: int = 12) -> "Tables":
        """Return the tables that a field of one table lists, each of which takes at least so many bytes."""
        vectors = self.vectors(field, 4)
        if int(vectors.counts[0]) * least_bytes > self.buffer.nbytes:
            self.buffer.fail("a vector lists more tables than there can be")
        at = vectors.starts[0] + 4 * np.arange(vectors.counts[0], dtype=np.int64)
        return Tables(self.buffer, self.buffer.follow(at))

    def texts(self, field: int) -> list[str]:
        """Return a field of text, '' where it is not there."""
        try:
            return [data.decode() for data in self.vectors(field, 1).raws(most_bytes=_MAX_TEXT_BYTES)]
        except UnicodeDecodeError:
            self.buffer.fail("a text is not in UTF-8")

    def _numbers(self, field: int, default: int, read: Any) -> Ints:
        at = self.places(field)
        found, here = np.full(len(at), default, np.int64), at >= 0
        found[here] = read(at[here])
        return found

    def _needed(self, field: int) -> Ints:
        at = self.places(field)
        if at.size and int(at.min()) < 0:
            self.buffer.fail(f"a table lacks its field {field}")
        return at

    def _raw(self, at: Ints, nbytes: int) -> npt.NDArray[np.uint8]:
        self.buffer.check_spans(at, np.full(len(at), nbytes, np.int64))
        rows: npt.NDArray[np.uint8] = self.buffer.bytes[at[:, None] + np.arange(nbytes)]
        return rows


class Vectors:
    """A vector of each of several tables: where its items start, and how many there are."""

    def __init__(self, buffer: Buffer, starts: Ints, counts: Ints, item_bytes: int) -> None:
        self.buffer, self.starts, self.counts, self.item_bytes = buffer, starts, counts, item_bytes

    def raws(self, *, most_bytes: int = sys.maxsize) -> list[bytes]:
        """Return the items of each vector as they are; none may have more bytes than that."""
        # Tables may share a vector, but vectors that overlap are made to fill memory.
        distinct, which = np.unique(self.starts, return_inverse=True)
        lengths = np.zeros(len(distinct), np.int64)
        lengths[which] = self.counts * self.item_bytes
        if lengths.size and (int(lengths.max()) > most_bytes or int(lengths.sum()) > self.buffer.nbytes):
            self.buffer.fail("texts or bytes overlap, or are longer than any should be")
        spans = zip(distinct.tolist(), lengths.tolist(), strict=True)
        found = [self.buffer.bytes[start : start + nbytes].tobytes() for start, nbytes in spans]
        return [found[number] for number in which.tolist()]

    def words(self, count: int) -> Ints:
        """Return numbers of 32 bits, one row for each vector; all must have so many."""
        if (self.counts * self.item_bytes != 4 * count).any():
            self.buffer.fail(f"a vector has not as many numbers as expected: {count}")
        if not count:
            return np.zeros((len(self.starts), 0), np.int64)
        return self.buffer.words(self.starts[:, None] + 4 * np.arange(count))
