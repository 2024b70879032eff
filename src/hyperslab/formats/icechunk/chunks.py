"""Where the chunks of a read lie, by the manifests that it needs and, where chunks are shards, by their indexes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from hyperslab.errors import IntegrityError, InternalError, MetadataError
from hyperslab.formats.icechunk.ids import name_of
from hyperslab.formats.icechunk.manifest import ChunkRef, Manifest
from hyperslab.formats.icechunk.snapshot import ArrayManifests
from hyperslab.formats.icechunk.versions import pin_versions
from hyperslab.formats.source import MetadataReader, join
from hyperslab.layout import ChunkTable, Layout, Place, References, ShardIndex, numbers_of
from hyperslab.layout.shards import parse_shard_index
from hyperslab.plan import Pieces

__all__ = ["RepositoryChunks"]

Ints = npt.NDArray[np.int64]

# Larger manifests are refused; a repository's writer can split them.
_MAX_MANIFEST_BYTES = 256 << 20
# What a handle keeps of the manifests that it has read.
_HELD_BYTES = 256 << 20


class _Manifests(dict[bytes, Manifest]):
    """Manifests that were read, by their ids; those read first go when there are too many. A copy starts empty."""

    def keep(self, identity: bytes, manifest: Manifest) -> None:
        self[identity] = manifest
        while len(self) > 1 and sum([each.nbytes for each in list(self.values())]) > _HELD_BYTES:
            self.pop(next(iter(self)), None)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Manifests, ()


@dataclass(frozen=True, slots=True, eq=False)
class RepositoryChunks:
    """Finds the chunks of an array of the repository at `root`. Manifests never change, so that each is read once."""

    root: str
    manifests: ArrayManifests
    held: _Manifests = field(default_factory=_Manifests, repr=False)

    def lookup(self, reader: MetadataReader, wanted: Pieces) -> References:
        """Return references to the chunks of a read; fetches what is needed for that and is not at hand."""
        layout = wanted.layout
        numbers = np.unique(numbers_of(layout.grid, wanted.chunks()))
        places = _places(numbers, layout.grid)
        if layout.index is None:
            refs = self._refs(reader, places)
            etags = pin_versions(reader, [ref for ref in refs if ref is not None])
            found = {n: self._place(ref) for n, ref in zip(numbers.tolist(), refs, strict=True) if ref is not None}
            return References.of(found, etags)
        return self._in_shards(reader, layout, numbers, places)

    def table(self, reader: MetadataReader) -> ChunkTable:
        raise InternalError("chunks of a repository are looked up for each read")

    def _refs(self, reader: MetadataReader, places: Ints) -> list[ChunkRef | None]:
        """Return the references to the chunks, or shards, at places of the grid; None for those that are not stored."""
        covering = self.manifests.covering(places)
        read = self._read(reader, [number for number, _ in covering])
        found: list[ChunkRef | None] = [None] * len(places)
        for (_, rows), manifest in zip(covering, read, strict=True):
            refs = manifest.refs(self.manifests.node, places.shape[1])
            if refs is None:
                continue
            numbers = refs.find(places[rows])
            here = numbers >= 0
            for row, ref in zip(rows[here].tolist(), refs.read(numbers[here]), strict=True):
                found[row] = found[row] or ref
        return found

    def _read(self, reader: MetadataReader, numbers: Sequence[int]) -> list[Manifest]:
        """Return manifests, those that are not at hand fetched together."""
        ids, sizes = self.manifests.ids, self.manifests.sizes
        found = {ids[number]: self.held.get(ids[number]) for number in numbers}
        missing = [number for number in numbers if found[ids[number]] is None]
        keys = [join(self.root, "manifests", name_of(ids[number])) for number in missing]
        for key, number in zip(keys, missing, strict=True):
            if sizes[number] > _MAX_MANIFEST_BYTES:
                raise MetadataError(f"{key!r} has {sizes[number]} bytes; manifests are read up to {_MAX_MANIFEST_BYTES}")
        replies = reader.fetch_many([(key, None, sizes[number]) for key, number in zip(keys, missing, strict=True)])
        for key, number, reply in zip(keys, missing, replies, strict=True):
            if reply is None:
                raise IntegrityError(f"manifest {key!r} is not there, though the snapshot refers to it; was it deleted?")
            manifest = Manifest(bytes(reply.data), ids[number], key)
            self.held.keep(ids[number], manifest)
            found[ids[number]] = manifest
        return [manifest for number in numbers if (manifest := found[ids[number]]) is not None]

    def _place(self, ref: ChunkRef) -> Place:
        return ref.inline if ref.inline is not None else (self._name(ref), ref.offset, ref.length)

    def _name(self, ref: ChunkRef) -> str:
        return ref.location if ref.chunk is None else join(self.root, "chunks", name_of(ref.chunk))

    def _in_shards(self, reader: MetadataReader, layout: Layout, numbers: Ints, places: Ints) -> References:
        """Return references to chunks within shards, whose indexes are looked up."""
        per_object = np.array(layout.chunks_per_object, np.int64)
        shards, which = np.unique(places // per_object, axis=0, return_inverse=True)
        refs = self._refs(reader, shards)
        etags = pin_versions(reader, [ref for ref in refs if ref is not None])
        tables = self._indexes(reader, layout, refs, etags)
        inner = np.zeros(len(places), np.int64)
        for axis, count in enumerate(layout.chunks_per_object):
            inner = inner * count + places[:, axis] % count
        found: dict[int, Place] = {}
        for number, shard, chunk in zip(numbers.tolist(), which.reshape(-1).tolist(), inner.tolist(), strict=True):
            ref, table = refs[shard], tables[shard]
            if ref is None or table is None or table.offsets[chunk] < 0:
                continue
            low, nbytes = int(table.offsets[chunk]), int(table.lengths[chunk])
            found[number] = (
                ref.inline[low : low + nbytes] if ref.inline is not None else (self._name(ref), ref.offset + low, nbytes)
            )
        return References.of(found, etags)

    def _indexes(
        self, reader: MetadataReader, layout: Layout, refs: Sequence[ChunkRef | None], etags: dict[str, str]
    ) -> list[ChunkTable | None]:
        """Return where the chunks of each shard lie in it; those of versions that are certain are remembered."""
        index = layout.index
        if index is None:
            raise InternalError("the array has no shards")
        tables: list[ChunkTable | None] = [None] * len(refs)
        missing: list[tuple[int, str, tuple[int, int]]] = []
        for row, ref in enumerate(refs):
            if ref is None:
                continue
            low, high = _index_span(index, len(ref.inline) if ref.inline is not None else ref.length)
            if ref.inline is not None:
                tables[row] = _table(layout, index, memoryview(ref.inline)[low:high], len(ref.inline), "an inline shard")
                continue
            tables[row] = reader.held(self._name(ref), _index_name(ref, etags))
            if tables[row] is None:
                missing.append((row, self._name(ref), (ref.offset + low, ref.offset + high)))
        replies = reader.fetch_many([(name, span, span[1] - span[0]) for _, name, span in missing])
        for (row, name, _), reply in zip(missing, replies, strict=True):
            ref = refs[row]
            if reply is None or ref is None:
                raise IntegrityError(f"shard {name!r} is not there, though a manifest refers to it; was it deleted?")
            table = tables[row] = _table(layout, index, reply.data, ref.length, name)
            if ref.chunk is None and reply.etag is not None:
                etags.setdefault(name, reply.etag)
            if ref.chunk is not None or name in etags:
                reader.hold(name, _index_name(ref, etags), table, table.nbytes)
        return tables


def _places(numbers: Ints, grid: tuple[int, ...]) -> Ints:
    """Return the place in the grid of each chunk of these numbers, one row each."""
    places = np.empty((len(numbers), len(grid)), np.int64)
    for axis in reversed(range(len(grid))):
        numbers, places[:, axis] = np.divmod(numbers, grid[axis])
    return places


def _index_span(index: ShardIndex, nbytes: int) -> tuple[int, int]:
    """Return where the index lies in a shard of so many bytes."""
    if nbytes < index.nbytes:
        raise IntegrityError(f"a shard has {nbytes} bytes, which are too few for its index of {index.nbytes}")
    return (0, index.nbytes) if index.location == "start" else (nbytes - index.nbytes, nbytes)


def _index_name(ref: ChunkRef, etags: dict[str, str]) -> str:
    return f"shard index of {ref.offset} {ref.length} {etags.get(ref.location)}"


def _table(layout: Layout, index: ShardIndex, data: memoryview, nbytes: int, key: str) -> ChunkTable:
    return parse_shard_index(data, index, nbytes, key, chunk_nbytes=layout.chunk_nbytes if layout.plain else None)
