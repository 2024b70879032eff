"""Shards that references lead to: their indexes, which say where the chunks in them lie."""

from collections.abc import Sequence
from dataclasses import dataclass

from hyperslab.errors import IntegrityError
from hyperslab.formats.icechunk.manifest import ChunkRef
from hyperslab.formats.icechunk.versions import check_version
from hyperslab.formats.source import MetadataReader
from hyperslab.layout import ChunkTable, Layout, Place, ShardIndex
from hyperslab.layout.shards import parse_shard_index

__all__ = ["Shard", "read_indexes"]


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard, as it is referred to; `name` is of the object that it lies in."""

    ref: ChunkRef
    name: str

    @property
    def nbytes(self) -> int:
        return self.ref.length if self.ref.inline is None else len(self.ref.inline)

    def place(self, table: ChunkTable, inner: int) -> Place | None:
        """Return where one of its chunks lies; None if it is not stored."""
        low, nbytes = int(table.offsets[inner]), int(table.lengths[inner])
        if low < 0:
            return None
        if self.ref.inline is not None:
            return self.ref.inline[low : low + nbytes]
        return self.name, self.ref.offset + low, nbytes

    def span(self, index: ShardIndex) -> tuple[int, int]:
        """Return where its index lies in it."""
        if self.nbytes < index.nbytes:
            raise IntegrityError(
                f"shard {self.name!r} has {self.nbytes} bytes, which are too few for its index of {index.nbytes}"
            )
        return (0, index.nbytes) if index.location == "start" else (self.nbytes - index.nbytes, self.nbytes)

    def what(self, index: ShardIndex, etag: str | None) -> str:
        """Return what its index is held under."""
        return f"{index} of {self.ref.length} bytes at {self.ref.offset} in {etag}"


def read_indexes(
    reader: MetadataReader, layout: Layout, index: ShardIndex, shards: Sequence[Shard], etags: dict[str, str]
) -> list[ChunkTable]:
    """Return where the chunks of each shard lie in it; indexes that are not at hand are fetched together.

    `etags` are the versions that objects must have; those of files whose version nobody noted are added.
    """
    tables: dict[int, ChunkTable] = {}
    missing: list[int] = []
    for number, shard in enumerate(shards):
        low, high = shard.span(index)
        held = None
        if shard.ref.inline is not None:
            held = _table(layout, index, shard, memoryview(shard.ref.inline)[low:high])
        elif shard.ref.chunk is not None or shard.name in etags:
            held = reader.held(shard.name, shard.what(index, etags.get(shard.name)))
        if held is None:
            missing.append(number)
        else:
            tables[number] = held
    tables |= _fetch(reader, layout, index, shards, missing, etags)
    return [tables[number] for number in range(len(shards))]


def _fetch(
    reader: MetadataReader,
    layout: Layout,
    index: ShardIndex,
    shards: Sequence[Shard],
    numbers: Sequence[int],
    etags: dict[str, str],
) -> dict[int, ChunkTable]:
    spans = [(shards[number].ref.offset, *shards[number].span(index)) for number in numbers]
    asked = [
        (shards[number].name, (base + low, base + high), high - low)
        for number, (base, low, high) in zip(numbers, spans, strict=True)
    ]
    found: dict[int, ChunkTable] = {}
    for number, reply in zip(numbers, reader.fetch_many(asked), strict=True):
        shard = shards[number]
        if reply is None:
            raise IntegrityError(f"shard {shard.name!r} is not there, though a manifest names it; was it deleted?")
        check_version(shard.name, etags, reply)
        if shard.ref.chunk is None and reply.etag is not None:
            etags[shard.name] = reply.etag
        table = found[number] = _table(layout, index, shard, reply.data)
        if shard.ref.chunk is not None or shard.name in etags:
            reader.hold(shard.name, shard.what(index, etags.get(shard.name)), table, table.nbytes)
    return found


def _table(layout: Layout, index: ShardIndex, shard: Shard, data: memoryview) -> ChunkTable:
    exact = layout.chunk_nbytes if layout.plain else None
    return parse_shard_index(data, index, shard.nbytes, shard.name, chunk_nbytes=exact)
