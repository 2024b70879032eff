"""References: where the chunks of a read lie, each in any object, or among the metadata itself."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from hyperslab.errors import MetadataError

__all__ = ["WHOLE", "Place", "References", "numbers_of"]

Ints = npt.NDArray[np.int64]

# A chunk's bytes themselves, or (object, offset, length); the length WHOLE stands for all of the object.
Place = bytes | tuple[str, int, int]
WHOLE = -1

# No store has objects as long as that, and sums of two such places still fit.
_FARTHEST = 1 << 60
_INLINE = -1


@dataclass(frozen=True, slots=True, eq=False)
class References:
    """Where the chunks of one read lie. Those that are not among `numbers` are not stored.

    `numbers` are chunks, counted row-major over the array's grid, ascending. Chunk `numbers[i]` is `lengths[i]` bytes
    from `offsets[i]` on of the object `keys[objects[i]]`, or all of it if its length is WHOLE; with the object -1 its
    bytes are in `inline`, under its number. A key is one of the array's own store, or a URL, which leads to where
    the store's targets allow. `etags` has, by key, the version of an object that the references are for, if known.
    """

    numbers: Ints
    objects: Ints
    offsets: Ints
    lengths: Ints
    keys: tuple[str, ...]
    inline: Mapping[int, bytes] = field(default_factory=dict)
    etags: Mapping[str, str] = field(default_factory=dict)
    # Whether shards were looked into: where an array has them, it is their chunks that are referred to.
    in_shards: bool = False

    @classmethod
    def of(
        cls, places: Mapping[int, Place], etags: Mapping[str, str] | None = None, *, in_shards: bool = False
    ) -> "References":
        """Return the references of chunks, given by their numbers.

        >>> references = References.of({7: ("b.nc", 100, 40), 2: b"abcd"})
        >>> references.find(7), references.find(2), references.find(3)
        (('b.nc', 100, 40), b'abcd', None)
        """
        numbers = sorted(places)
        keys: dict[str, int] = {}
        rows = np.empty((3, len(numbers)), np.int64)
        inline: dict[int, bytes] = {}
        for row, number in enumerate(numbers):
            place = places[number]
            if isinstance(place, bytes):
                inline[number], rows[:, row] = place, (_INLINE, 0, len(place))
            else:
                key, offset, length = place
                _check(key, offset, length)
                rows[:, row] = keys.setdefault(key, len(keys)), offset, length
        objects, offsets, lengths = rows
        return cls(np.array(numbers, np.int64), objects, offsets, lengths, tuple(keys), inline, etags or {}, in_shards)

    def rows(self, numbers: Ints) -> Ints:
        """Return the row of each of these chunks, -1 for those that are not stored."""
        if not len(self.numbers):
            return np.full(len(numbers), -1, np.int64)
        rows = np.minimum(np.searchsorted(self.numbers, numbers), len(self.numbers) - 1)
        found: Ints = np.where(self.numbers[rows] == numbers, rows, -1)
        return found

    def find(self, number: int) -> Place | None:
        """Return where one chunk lies; None if it is not stored."""
        row = int(self.numbers.searchsorted(number))
        if row == len(self.numbers) or self.numbers[row] != number:
            return None
        if self.objects[row] == _INLINE:
            return self.inline[number]
        return self.keys[self.objects[row]], int(self.offsets[row]), int(self.lengths[row])

    def with_keys(self, keys: Sequence[str]) -> "References":
        """Return the same references to objects that are called otherwise."""
        names = dict(zip(self.keys, keys, strict=True))
        etags = {names[key]: etag for key, etag in self.etags.items() if key in names}
        return References(
            self.numbers, self.objects, self.offsets, self.lengths, tuple(keys), self.inline, etags
        )  # fmt: skip

    @property
    def nbytes(self) -> int:
        """Memory that the references take, about."""
        return 4 * self.numbers.nbytes + sum(map(len, self.keys)) + sum(map(len, self.inline.values()))


def numbers_of(grid: Sequence[int], chunks: Iterable[tuple[int, ...]]) -> Ints:
    """Return the number of each chunk, row-major over a grid.

    >>> numbers_of((3, 4), [(0, 1), (2, 3)])
    array([ 1, 11])
    """
    size = 1
    for count in grid:
        size *= count
    if size >= 1 << 62:
        raise MetadataError(f"an array of {size:,} chunks has more than can be referred to")
    listed = list(chunks)
    places = np.array(listed, np.int64).reshape(len(listed), len(grid))
    numbers = np.zeros(len(places), np.int64)
    for axis, count in enumerate(grid):
        numbers = numbers * count + places[:, axis]
    return numbers


def _check(key: str, offset: int, length: int) -> None:
    """Refuse a place that no object has."""
    if not 0 <= offset <= _FARTHEST or not (length == WHOLE or 0 < length <= _FARTHEST):
        raise MetadataError(
            f"a chunk is said to be {length} bytes at {offset} of {key[:200]!r}; expected an offset from 0 on, "
            "and a byte or more"
        )
