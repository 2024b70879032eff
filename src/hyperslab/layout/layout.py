"""Where the cells of an array lie: its grid of chunks, the objects that hold them, how they are encoded."""

from dataclasses import dataclass, field
from math import prod
from operator import floordiv
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from hyperslab.errors import InternalError
from hyperslab.layout.codecs import Codec, Size
from hyperslab.layout.references import References
from hyperslab.layout.table import ChunkTable

__all__ = ["ChunkKeys", "Decoder", "FileVersion", "Keys", "Layout", "ShardIndex", "SingleKey"]


@dataclass(frozen=True, slots=True)
class SingleKey:
    """The key of an array that is one object."""

    name: str

    def key(self, coords: tuple[int, ...]) -> str:
        return self.name


class Keys(Protocol):
    """Gives the key of an object from its place in the grid of objects."""

    def key(self, coords: tuple[int, ...]) -> str: ...


@dataclass(frozen=True, slots=True)
class ChunkKeys:
    """How the key of an object is made from its place in the grid of objects.

    >>> ChunkKeys("a/", separator="/", lead="c").key((0, 3))
    'a/c/0/3'
    >>> ChunkKeys("a/", separator=".", lead="").key((0, 3))
    'a/0.3'
    """

    prefix: str
    separator: str
    lead: str
    scalar: str = "0"

    def key(self, coords: tuple[int, ...]) -> str:
        parts = [self.lead] if self.lead else []
        parts += map(str, coords)
        return self.prefix + (self.separator.join(parts) if parts else self.scalar)


@dataclass(frozen=True, slots=True)
class ShardIndex:
    """The table inside a shard that says where each of its chunks lies.

    `count` pairs of little-endian uint64 (offset, length), row-major over the shard's chunks;
    all bits set means that the chunk is not stored. A crc32c of the table may follow it.
    """

    count: int
    location: Literal["start", "end"]
    checksum: bool

    @property
    def nbytes(self) -> int:
        return 16 * self.count + (4 if self.checksum else 0)


class Decoder(Protocol):
    """Turns the stored bytes of one chunk into its cells; they are of the size `encoded`."""

    @property
    def encoded(self) -> Size: ...

    @property
    def names(self) -> tuple[str, ...]:
        """The codecs, in the order of encoding."""
        ...

    def decode(self, data: memoryview, key: str) -> npt.NDArray[np.generic]:
        """Return the chunk's cells, shaped like the chunk. `key` is named in errors.

        Never allocates much more than the chunk's declared size, whatever `data` claims.
        """
        ...

    def for_mask(self, mask: int) -> "Decoder":
        """Return the decoder of chunks that were stored without the filters whose bits are set."""
        ...

    def codecs_of(self, mask: int = 0) -> tuple[Codec, ...]:
        """Return the codecs that a chunk with that mask went through, in the order of encoding."""
        ...


@dataclass(frozen=True, slots=True)
class FileVersion:
    """The version of a file that places in it were read from; they hold for no other."""

    etag: str | None
    nbytes: int


class Told(Protocol):
    """Says where the chunks of shards should lie: not certain, so whoever uses it makes sure."""

    def table(self, coords: tuple[int, ...]) -> ChunkTable | None:
        """Return the table of the shard at a place of the grid of objects; None if nothing is told of it."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """An array's shape and type, and where its cells lie in objects.

    The array is cut into objects of `object_shape` cells, an object into chunks of `chunks` cells
    (the same unless it is a shard). Chunks at the edge are stored whole. A chunk without a decoder
    is plain: its cells lie row-major over the axes in `order`, as `stored` says, from byte `base` on.

    With a `table` all chunks lie in one object, where it says; no index has to be looked up. `file` is the version
    of the object that the table, or `base`, belongs to. `told`, for shards, says what their indexes should say.
    With `references` every chunk lies where they say, in any object; they hold for the chunks of one read.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    chunks: tuple[int, ...]
    keys: Keys
    fill: npt.NDArray[np.generic]
    stored: np.dtype[np.generic]
    order: tuple[int, ...]
    decoder: Decoder | None = None
    object_shape: tuple[int, ...] = ()
    index: ShardIndex | None = None
    base: int = 0
    # A chunk that is not there: fill values (Zarr's rule), or an error (`.npy`).
    sparse: bool = True
    # Every object was written, so that one that is not there is lost.
    complete: bool = False
    table: ChunkTable | None = None
    file: FileVersion | None = None
    told: Told | None = None
    references: References | None = None
    # Worked out once, as every small read asks for them: chunks along each axis of an object, bytes of a decoded chunk.
    chunks_per_object: tuple[int, ...] = field(init=False)
    chunk_nbytes: int = field(init=False)
    # How chunks are encoded, in a text: several arrays may make something else of the same referenced bytes.
    coding: str = field(init=False, default="")

    def __post_init__(self) -> None:
        if self.table is not None or self.references is not None:
            whole = tuple([c * max(1, n) for c, n in zip(self.chunks, self.grid, strict=True)])
            object.__setattr__(self, "object_shape", whole)
            object.__setattr__(self, "coding", "" if self.references is None else repr(self.decoder))
        elif not self.object_shape:
            object.__setattr__(self, "object_shape", self.chunks)
        per_object = tuple([o // c for o, c in zip(self.object_shape, self.chunks, strict=True)])
        object.__setattr__(self, "chunks_per_object", per_object)
        object.__setattr__(self, "chunk_nbytes", prod(self.chunks) * self.stored.itemsize)

    @property
    def plain(self) -> bool:
        """Whether parts of a chunk can be read."""
        return self.decoder is None

    @property
    def packed(self) -> bool:
        """Whether an object may hold several chunks, each where a table says."""
        return self.index is not None or self.table is not None or self.references is not None

    @property
    def stored_size(self) -> Size:
        """Bytes of one chunk as it is stored: exact, or at most so many."""
        return Size(self.chunk_nbytes, exact=True) if self.decoder is None else self.decoder.encoded

    @property
    def grid(self) -> tuple[int, ...]:
        """How many chunks there are along each axis."""
        return tuple(-(-n // c) for n, c in zip(self.shape, self.chunks, strict=True))

    @property
    def object_grid(self) -> tuple[int, ...]:
        """How many objects there are along each axis."""
        return tuple([-(-n // whole) for n, whole in zip(self.shape, self.object_shape, strict=True)])

    def object_of(self, chunk: tuple[int, ...]) -> tuple[int, ...]:
        """Return the place of the object that holds a chunk, in the grid of objects."""
        if not self.packed:
            return chunk
        return tuple(map(floordiv, chunk, self.chunks_per_object))

    def inner_of(self, chunk: tuple[int, ...]) -> int:
        """Return which chunk of its object a chunk is, counted row-major."""
        inner = 0
        for c, n in zip(chunk, self.chunks_per_object, strict=True):
            inner = inner * n + c % n
        return inner

    def home_of(self, chunk: tuple[int, ...]) -> tuple[str, int]:
        """Return the key of the object that holds a chunk, and which of its chunks it is.

        By references, chunks are counted over all of the array; one that lies in no object has the key ''.
        """
        inner = self.inner_of(chunk)
        if self.references is None:
            return self.keys.key(self.object_of(chunk)), inner
        place = self.references.find(inner)
        return place[0] if isinstance(place, tuple) else "", inner

    def slot_of(self, inner: int) -> int | str:
        """Return what tells a chunk from all others in its object: in a file with several arrays, its place."""
        if self.references is not None:
            place = self.references.find(inner)
            return f"{place[1:]} {self.coding}" if isinstance(place, tuple) else ""
        return inner if self.table is None else int(self.table.offsets[inner])

    def decode(self, data: memoryview, key: str, inner: int) -> npt.NDArray[np.generic]:
        """Return the cells of an encoded chunk."""
        decoder, masks = self.decoder, None if self.table is None else self.table.masks
        if decoder is None:
            raise InternalError(f"chunk {key!r} is plain")
        if masks is not None and masks[inner]:
            decoder = decoder.for_mask(int(masks[inner]))
        return decoder.decode(data, key)

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize
