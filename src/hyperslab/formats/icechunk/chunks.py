"""Where the chunks of a read lie, by the manifests that it needs and, where chunks are shards, by their indexes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from hyperslab.errors import IntegrityError, InternalError, MetadataError
from hyperslab.formats.icechunk.ids import name_of
from hyperslab.formats.icechunk.manifest import ChunkRef, Manifest
from hyperslab.formats.icechunk.shards import Shard, read_indexes
from hyperslab.formats.icechunk.snapshot import ArrayManifests
from hyperslab.formats.icechunk.versions import check_version, pin_versions
from hyperslab.formats.source import MetadataReader, join
from hyperslab.layout import ChunkTable, Layout, Place, References, ShardIndex, numbers_of
from hyperslab.plan import Pieces

__all__ = ["RepositoryChunks"]

Ints = npt.NDArray[np.int64]

# Larger manifests are refused; a repository's writer can split them.
_MAX_MANIFEST_BYTES = 256 << 20
# What a handle keeps of the manifests that it has read.
_HELD_BYTES = 256 << 20


class _Held:
    """What a handle has seen: manifests by their ids, and ETags of files by their locations. A copy starts anew."""

    def __init__(self) -> None:
        self.manifests: dict[bytes, Manifest] = {}
        self.etags: dict[str, str] = {}

    def keep(self, identity: bytes, manifest: Manifest) -> None:
        """Keep a manifest; those read first go when there are too many."""
        self.manifests[identity] = manifest
        while len(self.manifests) > 1 and sum([each.nbytes for each in list(self.manifests.values())]) > _HELD_BYTES:
            self.manifests.pop(next(iter(self.manifests)), None)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Held, ()


@dataclass(frozen=True, slots=True, eq=False)
class RepositoryChunks:
    """Finds the chunks of an array of the repository at `root`. Manifests never change, so that each is read once."""

    root: str
    manifests: ArrayManifests
    held: _Held = field(default_factory=_Held, repr=False)

    def lookup(self, reader: MetadataReader, wanted: Pieces) -> References:
        """Return references to the chunks of a read; fetches what is needed for that and is not at hand."""
        layout = wanted.layout
        numbers = np.unique(numbers_of(layout.grid, wanted.chunks()))
        places = _places(numbers, layout.grid)
        if layout.index is not None:
            return self._in_shards(reader, layout, layout.index, numbers, places)
        refs = self._refs(reader, places)
        etags = pin_versions(reader, [ref for ref in refs if ref is not None], self.held.etags)
        found = {n: self._place(ref) for n, ref in zip(numbers.tolist(), refs, strict=True) if ref is not None}
        return References.of(found, etags)

    def stored(self, reader: MetadataReader, place: Ints) -> bytes | None:
        """Return the bytes of the chunk, or shard, at one place of the grid; None if it is not stored."""
        ref = self._refs(reader, place)[0]
        if ref is None or ref.inline is not None:
            return None if ref is None else ref.inline
        name, etags = self._name(ref), pin_versions(reader, [ref], self.held.etags)
        reply = reader.fetch_many([(name, (ref.offset, ref.offset + ref.length), ref.length)])[0]
        if reply is None:
            raise IntegrityError(f"chunk {name!r} is not there, though a manifest refers to it; was it deleted?")
        check_version(name, etags, reply)
        return bytes(reply.data)

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
        ids = self.manifests.ids
        found: dict[bytes, Manifest] = {}
        missing: dict[int, str] = {}
        for number in numbers:
            key = join(self.root, "manifests", name_of(ids[number]))
            held = self.held.manifests.get(ids[number]) or reader.held(key, "manifest")
            if held is None:
                missing[number] = key
            else:
                found[ids[number]] = held
        found |= self._fetch(reader, missing)
        return [found[ids[number]] for number in numbers]

    def _fetch(self, reader: MetadataReader, keys: Mapping[int, str]) -> dict[bytes, Manifest]:
        ids, sizes = self.manifests.ids, self.manifests.sizes
        for number, key in keys.items():
            if sizes[number] > _MAX_MANIFEST_BYTES:
                raise MetadataError(f"{key!r} has {sizes[number]} bytes; at most {_MAX_MANIFEST_BYTES} are read")
        replies = reader.fetch_many([(key, None, sizes[number]) for number, key in keys.items()])
        found: dict[bytes, Manifest] = {}
        for (number, key), reply in zip(keys.items(), replies, strict=True):
            if reply is None:
                raise IntegrityError(f"manifest {key!r} is not there, though its snapshot names it; was it deleted?")
            manifest = found[ids[number]] = Manifest(bytes(reply.data), ids[number], key)
            self.held.keep(ids[number], manifest)
            reader.hold(key, "manifest", manifest, manifest.nbytes)
        return found

    def _place(self, ref: ChunkRef) -> Place:
        return ref.inline if ref.inline is not None else (self._name(ref), ref.offset, ref.length)

    def _name(self, ref: ChunkRef) -> str:
        """Return the name of the object that a chunk lies in, '' if it is inline."""
        return ref.location if ref.chunk is None else join(self.root, "chunks", name_of(ref.chunk))

    def _in_shards(
        self, reader: MetadataReader, layout: Layout, index: ShardIndex, numbers: Ints, places: Ints
    ) -> References:
        """Return references to chunks within shards, whose indexes are looked up."""
        per_shard = np.array(layout.chunks_per_object, np.int64)
        grid, which = np.unique(places // per_shard, axis=0, return_inverse=True)
        refs = self._refs(reader, grid)
        shards = {row: Shard(ref, self._name(ref)) for row, ref in enumerate(refs) if ref is not None}
        etags = pin_versions(reader, [shard.ref for shard in shards.values()], self.held.etags)
        tables = dict(zip(shards, read_indexes(reader, layout, index, list(shards.values()), etags), strict=True))
        inner = numbers_of(layout.chunks_per_object, places % per_shard)
        found: dict[int, Place] = {}
        for number, row, chunk in zip(numbers.tolist(), which.reshape(-1).tolist(), inner.tolist(), strict=True):
            place = shards[row].place(tables[row], chunk) if row in shards else None
            if place is not None:
                found[number] = place
        return References.of(found, etags, in_shards=True)


def _places(numbers: Ints, grid: tuple[int, ...]) -> Ints:
    """Return the place in the grid of each chunk of these numbers, one row each."""
    places = np.empty((len(numbers), len(grid)), np.int64)
    for axis in reversed(range(len(grid))):
        numbers, places[:, axis] = np.divmod(numbers, grid[axis])
    return places
