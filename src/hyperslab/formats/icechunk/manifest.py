"""Manifests: where each chunk of an array lies. In the repository, in a file elsewhere, or in the manifest itself."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hyperslab.errors import MetadataError
from hyperslab.formats.icechunk.envelope import unwrap
from hyperslab.formats.icechunk.flatbuffer import Buffer, Tables
from hyperslab.formats.icechunk.ids import ID_BYTES, NODE_ID_BYTES

__all__ = ["ArrayRefs", "ChunkRef", "Manifest"]

Ints = npt.NDArray[np.int64]

# Fields of the tables, by their numbers.
_ID, _ARRAYS, _DICTIONARY = range(3)
_NODE_ID, _REFS = 0, 1
_INDEX, _INLINE, _OFFSET, _LENGTH, _CHUNK_ID, _LOCATION, _ETAG, _MODIFIED, _PACKED_LOCATION = range(9)
# A reference's entry in the list, its table and its index take more.
_LEAST_REF_BYTES = 24
_MAX_LOCATION_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class ChunkRef:
    """Where one chunk lies: `inline`, or at `offset` of the object `chunk` (an id) or `location` (a URL).

    `etag`, or the second `modified_s` since 1970, is of the version of that object that was referred to, where it was
    noted.
    """

    inline: bytes | None = None
    chunk: bytes | None = None
    location: str = ""
    offset: int = 0
    length: int = 0
    etag: str = ""
    modified_s: int = 0


class ArrayRefs:
    """The references to an array's chunks in one manifest."""

    def __init__(self, refs: Tables, ndim: int, dictionary: bytes) -> None:
        self._refs, self._dictionary = refs, dictionary
        self._places = _sortable(refs.vectors(_INDEX, 4).words(ndim))
        if (self._places[1:] <= self._places[:-1]).any():
            refs.buffer.fail("its references are not sorted by the places of their chunks")

    def __len__(self) -> int:
        return len(self._refs)

    def find(self, places: Ints) -> Ints:
        """Return the number of the reference to the chunk at each of these places, -1 where there is none."""
        if not len(self):
            return np.full(len(places), -1, np.int64)
        wanted = _sortable(places)
        rows = np.minimum(np.searchsorted(self._places, wanted), len(self) - 1).astype(np.int64)
        return np.where(self._places[rows] == wanted, rows, -1)

    def read(self, rows: Ints) -> list[ChunkRef]:
        """Return the references of these numbers."""
        tables = self._refs.take(rows)
        inline, native = tables.has(_INLINE), tables.has(_CHUNK_ID)
        virtual = tables.has(_LOCATION) | tables.has(_PACKED_LOCATION)
        if (inline.astype(int) + native + virtual != 1).any():
            tables.buffer.fail("a reference is to several chunks, or to none")
        refs = np.empty(len(rows), object)
        for which, read in ((inline, _inline), (native, _native), (virtual, self._virtual)):
            picked = np.flatnonzero(which)
            if picked.size:
                refs[picked] = read(tables.take(picked))
        return list(refs)

    def _virtual(self, tables: Tables) -> list[ChunkRef]:
        columns = zip(
            self._locations(tables),
            tables.longs(_OFFSET).tolist(),
            tables.longs(_LENGTH).tolist(),
            tables.texts(_ETAG),
            tables.words(_MODIFIED).tolist(),
            strict=True,
        )
        return [
            ChunkRef(location=where, offset=offset, length=length, etag=etag, modified_s=modified)
            for where, offset, length, etag, modified in columns
        ]

    def _locations(self, tables: Tables) -> list[str]:
        packed = tables.vectors(_PACKED_LOCATION, 1).raws(most_bytes=_MAX_LOCATION_BYTES)
        if not any(packed):
            return tables.texts(_LOCATION)
        unpack = _unpacker(self._dictionary, tables.buffer)
        pairs = zip(tables.texts(_LOCATION), packed, strict=True)
        return [unpack(data) if data else text for text, data in pairs]


class Manifest:
    """The references of one manifest, array by array."""

    def __init__(self, data: bytes, identity: bytes, key: str) -> None:
        buffer, self.version = unwrap(data, "manifest", key)
        root = buffer.root()
        if root.structs(_ID, ID_BYTES)[0] != identity:
            raise MetadataError(f"{key!r} is another manifest than its name says")
        self._arrays = root.lists(_ARRAYS)
        self._rows = {identity: row for row, identity in enumerate(self._arrays.structs(_NODE_ID, NODE_ID_BYTES))}
        self._dictionary = root.vectors(_DICTIONARY, 1).raws()[0]
        self._parsed: dict[tuple[bytes, int], ArrayRefs] = {}
        # With the places of all chunks.
        self.nbytes = 2 * buffer.nbytes

    def refs(self, node: bytes, ndim: int) -> ArrayRefs | None:
        """Return the references to the chunks of an array with so many axes, by its id; None if there are none."""
        row = self._rows.get(node)
        if row is None:
            return None
        found = self._parsed.get((node, ndim))
        if found is None:
            tables = self._arrays.take(slice(row, row + 1)).lists(_REFS, least_bytes=_LEAST_REF_BYTES)
            found = self._parsed[node, ndim] = ArrayRefs(tables, ndim, self._dictionary)
        return found


def _sortable(places: Ints) -> npt.NDArray[np.bytes_]:
    """Return places in a grid as texts that sort as they do: axis by axis."""
    rows, ndim = places.shape
    if not ndim:
        return np.zeros(rows, "S1")
    return np.ascontiguousarray(places, ">u4").view(f"S{4 * ndim}")[:, 0]


def _inline(tables: Tables) -> list[ChunkRef]:
    return [ChunkRef(inline=data) for data in tables.vectors(_INLINE, 1).raws()]


def _native(tables: Tables) -> list[ChunkRef]:
    ids = tables.structs(_CHUNK_ID, ID_BYTES)
    spans = zip(ids, tables.longs(_OFFSET).tolist(), tables.longs(_LENGTH).tolist(), strict=True)
    return [ChunkRef(chunk=identity, offset=offset, length=length) for identity, offset, length in spans]


def _unpacker(dictionary: bytes, buffer: Buffer) -> Callable[[bytes], str]:
    """Return what unpacks locations that were compressed with a dictionary."""
    import zstandard

    engine = zstandard.ZstdDecompressor(dict_data=zstandard.ZstdCompressionDict(dictionary))

    def unpack(packed: bytes) -> str:
        try:
            # A size that the frame states is taken at its word, so that it is looked at first.
            if zstandard.frame_content_size(packed) > _MAX_LOCATION_BYTES:
                buffer.fail("a location is longer than any should be")
            return str(engine.decompress(packed, max_output_size=_MAX_LOCATION_BYTES), "utf-8")
        except (zstandard.ZstdError, UnicodeDecodeError, MemoryError) as error:
            buffer.fail(f"a location cannot be unpacked: {error}")

    return unpack
