"""Entries of a chunk index, of whatever kind, checked and laid out over the grid of chunks."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hyperslab.errors import IntegrityError, MetadataError, UnsupportedError
from hyperslab.layout.table import ChunkTable
from hyperslab.selection.axis import MOST_CHUNKS

if TYPE_CHECKING:
    from hyperslab.formats.hdf5.cursor import FileBytes
    from hyperslab.formats.hdf5.messages import ChunkIndexMessage
    from hyperslab.formats.hdf5.superblock import Superblock

__all__ = [
    "ALL_FILTERS",
    "UNDEFINED",
    "Entries",
    "Grid",
    "Numbering",
    "absolute",
    "gather",
    "lay_out",
    "read_spans",
    "uints",
]

# The address of what is not stored, however wide addresses are in the file.
UNDEFINED = 2**64 - 1
# A mask that skips every filter.
ALL_FILTERS = 0xFFFFFFFF
# No chunk is larger: sums of an offset and a length then fit in 63 bits.
_MOST_CHUNK_BYTES = 1 << 60


@dataclass(frozen=True, slots=True)
class Grid:
    """The grid of an array's chunks: chunks along each axis, cells of a chunk, bytes of one before its filters."""

    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    counts: tuple[int, ...]
    chunk_nbytes: int

    @classmethod
    def of(cls, message: "ChunkIndexMessage", shape: tuple[int, ...]) -> "Grid":
        """Return the grid, if it is one that can be held in memory."""
        chunks = message.chunk_shape
        if not chunks or len(chunks) != len(shape):
            raise MetadataError(
                f"chunks have {len(chunks)} axes, the dataset {len(shape)}: expected the same, at least 1"
            )
        nbytes = prod(chunks) * message.element_nbytes
        if min(chunks) < 1 or not 0 < nbytes <= _MOST_CHUNK_BYTES:
            raise MetadataError(f"chunks of {chunks} cells of {message.element_nbytes} bytes; expected at least 1")
        counts = tuple([-(-n // c) for n, c in zip(shape, chunks, strict=True)])
        if prod(counts) > MOST_CHUNKS:
            raise UnsupportedError(
                f"{prod(counts):,} chunks ({shape} cells in chunks of {chunks}); at most {MOST_CHUNKS:,} are read"
            )
        return cls(shape, chunks, counts, nbytes)

    @property
    def size(self) -> int:
        return prod(self.counts)

    def positions(self, scaled: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
        """Return which rows of `scaled` (places of chunks, in chunks) lie in the grid, and their numbers, row-major."""
        inside: npt.NDArray[np.bool_] = np.asarray((scaled < np.array(self.counts, np.uint64)).all(axis=1))
        strides = [prod(self.counts[axis + 1 :]) for axis in range(len(self.counts))]
        return inside, scaled[inside].astype(np.int64) @ np.array(strides, np.int64)

    def partial(self) -> npt.NDArray[np.bool_]:
        """Return which chunks reach over the array's edge, row-major."""
        found = np.zeros(self.counts, np.bool_)
        for axis, (n, c) in enumerate(zip(self.shape, self.chunks, strict=True)):
            if n % c:
                found[(slice(None),) * axis + (-1,)] = True
        return found.reshape(-1)


@dataclass(frozen=True, slots=True)
class Numbering:
    """How chunks are numbered: row-major over the grid that the dataset may grow to, the endless axis first."""

    counts: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def of(cls, grid: Grid, max_shape: Sequence[int | None], *, endless: bool) -> "Numbering":
        """Return the numbering; `endless` says whether one axis must, or none may, be without end."""
        if len(max_shape) != len(grid.shape) or sum([n is None for n in max_shape]) != endless:
            raise MetadataError(f"a chunk index for {int(endless)} endless axes, the dataset may grow to {max_shape}")
        if any([m is not None and m < n for n, m in zip(grid.shape, max_shape, strict=True)]):
            raise MetadataError(f"the dataset has shape {grid.shape}, larger than the {max_shape} it may grow to")
        most = [1 if n is None else -(-n // c) for n, c in zip(max_shape, grid.chunks, strict=True)]
        strides = [prod(most[axis + 1 :]) for axis in range(len(most))]
        if endless:
            axis = list(max_shape).index(None)
            strides[axis] = prod(most)
        found = cls(grid.counts, tuple(strides))
        if found.last >= 1 << 60:
            raise UnsupportedError(f"a dataset that may grow to {max_shape}, in chunks of {grid.chunks}: too many")
        return found

    @property
    def last(self) -> int:
        """The largest number that a chunk of the present grid has."""
        return sum([(n - 1) * stride for n, stride in zip(self.counts, self.strides, strict=True)])

    def numbers(self) -> npt.NDArray[np.int64]:
        """Return the number of each chunk of the present grid, row-major."""
        found = np.zeros(1, np.int64)
        for count, stride in zip(self.counts, self.strides, strict=True):
            found = (found[:, None] + np.arange(count, dtype=np.int64) * stride).reshape(-1)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """Stored chunks: their places in the grid, row-major; where in the file, how long; the filters they skipped."""

    positions: npt.NDArray[np.int64]
    addresses: npt.NDArray[np.uint64]
    lengths: npt.NDArray[np.uint64]
    masks: npt.NDArray[np.uint32]


def lay_out(entries: Entries, file: "FileBytes", message: "ChunkIndexMessage", grid: Grid) -> ChunkTable:
    """Return the table of these chunks, once each is known to be there once and to lie inside of the file."""
    at, masks = entries.positions, entries.masks
    if message.skip_partial_edges:
        masks = np.where(grid.partial()[at], np.uint32(ALL_FILTERS), masks)
    _check_extents(entries.addresses, entries.lengths, file.size)
    unfiltered = np.ones(1, np.bool_) if not message.filtered else masks == ALL_FILTERS
    wrong = unfiltered & (entries.lengths != grid.chunk_nbytes)
    if wrong.any():
        found = int(entries.lengths[wrong.argmax()])
        raise IntegrityError(f"the chunk index has an unfiltered chunk of {found} bytes, expected {grid.chunk_nbytes}")
    offsets = np.full(grid.size, -1, np.int64)
    lengths = np.full(grid.size, -1, np.int64)
    offsets[at], lengths[at] = entries.addresses.astype(np.int64), entries.lengths.astype(np.int64)
    if np.count_nonzero(offsets >= 0) != at.size:
        raise IntegrityError("the chunk index lists a chunk twice")
    if not message.filtered or not masks.any():
        return ChunkTable(offsets, lengths)
    spread = np.zeros(grid.size, np.uint32)
    spread[at] = masks
    return ChunkTable(offsets, lengths, spread)


def _check_extents(addresses: npt.NDArray[np.uint64], lengths: npt.NDArray[np.uint64], size: int) -> None:
    """Check that all chunks lie inside of the file and none over another: HDF5 never shares storage."""
    limit = np.uint64(size)
    # Compared one by one first, so that their sum cannot wrap around.
    outside = (addresses > limit) | (lengths > limit) | (lengths == 0)
    outside |= addresses + lengths > limit
    if outside.any():
        bad = outside.argmax()
        raise IntegrityError(
            f"the chunk index puts {int(lengths[bad])} bytes at {int(addresses[bad])}, the file has {size}; "
            "is it cut off?"
        )
    order = np.argsort(addresses, kind="stable")
    starts = addresses[order]
    over = starts[:-1] + lengths[order][:-1] > starts[1:]
    if over.any():
        raise IntegrityError(f"the chunk index puts two chunks over one another, at {int(starts[1:][over.argmax()])}")


def read_spans(file: "FileBytes", spans: Sequence[tuple[int, int]], what: str) -> list[memoryview]:
    """Fetch parts of an index together; together they cannot be more than the file."""
    for start, nbytes in spans:
        if start < 0 or start + nbytes > file.size:
            raise IntegrityError(
                f"{what} of the chunk index lie at {start} to {start + nbytes}, the file has {file.size} bytes; "
                "is it cut off?"
            )
    if sum([nbytes for _, nbytes in spans]) > file.size:
        raise IntegrityError(f"{what} of the chunk index lie over one another")
    return file.read_many(spans) if spans else []


def gather(data: Any, positions: npt.NDArray[np.int64], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return the records of type `dtype` that begin at these bytes of `data`; all must lie within it.

    >>> gather(b"abcdef", np.array([4, 1]), np.dtype("S2")).tolist()
    [b'ef', b'bc']
    """
    starts = len(data) - dtype.itemsize + 1
    if not positions.size or starts < 1:
        return np.empty(0, dtype)
    return np.ndarray((starts,), dtype, data, strides=(1,))[positions]


def uints(raw: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    r"""Return little-endian integers of any width up to 8 bytes, given as void cells.

    >>> uints(np.array([b"\x01\x02\x00"], "V3")).tolist()
    [513]
    """
    wide = np.zeros((raw.size, 8), np.uint8)
    wide[:, : raw.itemsize] = np.ascontiguousarray(raw).view(np.uint8).reshape(raw.size, raw.itemsize)
    return wide.view("<u8")[:, 0].astype(np.uint64, copy=False)


def absolute(raw: npt.NDArray[Any], sb: "Superblock") -> npt.NDArray[np.uint64]:
    """Return addresses counted from the file's start, UNDEFINED for those that are."""
    found = uints(raw)
    undefined = found == np.uint64(2 ** (8 * raw.itemsize) - 1)
    # What is far outside of any file stays so: no sum wraps around.
    found = np.minimum(found, np.uint64(1 << 62)) + np.uint64(sb.base)
    found[undefined] = UNDEFINED
    return found
