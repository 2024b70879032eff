"""Reading whole arrays the slow and obvious way: every object fetched whole, every chunk decoded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

import numpy as np

from hyperslab.errors import IntegrityError
from hyperslab.formats import ArraySource
from hyperslab.layout import FileVersion
from hyperslab.layout.layout import Layout
from hyperslab.layout.shards import parse_shard_index


@dataclass
class DirectoryReader:
    """A metadata reader over a directory that notes which keys were asked for."""

    root: Path
    asked: list[str] = field(default_factory=list)

    def get(self, key: str) -> bytes | None:
        self.asked.append(key)
        path = self.root / key
        return path.read_bytes() if path.is_file() else None

    def get_range(self, key: str, start: int, stop: int) -> bytes | None:
        whole = self.get(key)
        return None if whole is None else whole[start:stop]

    def file(self, key: str, version: FileVersion | None = None) -> "HeldFile | None":
        whole = self.get(key)
        return None if whole is None else HeldFile(whole)

    def size(self, key: str) -> int | None:
        path = self.root / key
        return path.stat().st_size if path.is_file() else None

    def children(self, prefix: str) -> list[str]:
        return sorted(path.name for path in (self.root / prefix).iterdir())


class HeldFile:
    """A file that is in memory."""

    local = True
    etag = '"held"'

    def __init__(self, data: bytes) -> None:
        self.data, self.size, self.version = data, len(data), FileVersion('"held"', len(data))

    def read(self, start: int, nbytes: int) -> memoryview:
        return self.read_many([(start, nbytes)])[0]

    def read_many(self, spans: Sequence[tuple[int, int]]) -> list[memoryview]:
        if any(start < 0 or nbytes < 0 or start + nbytes > self.size for start, nbytes in spans):
            raise IntegrityError("the file is cut off")
        return [memoryview(self.data)[start : start + nbytes] for start, nbytes in spans]

    def passing(self) -> "HeldFile":
        return self

    def recall(self, what: str, unpack: object) -> None:
        return None

    def remember(self, what: str, value: object, pack: object) -> None:
        return None

    def keep(self) -> None:
        return None

    def held(self, what: str) -> None:
        return None

    def hold(self, what: str, value: object, nbytes: int) -> None:
        return None


@dataclass
class DictReader:
    """A metadata reader over objects in memory."""

    objects: Mapping[str, bytes]
    asked: list[str] = field(default_factory=list)

    def get(self, key: str) -> bytes | None:
        self.asked.append(key)
        return self.objects.get(key)

    def get_range(self, key: str, start: int, stop: int) -> bytes | None:
        whole = self.get(key)
        return None if whole is None else whole[start:stop]

    def file(self, key: str, version: FileVersion | None = None) -> "HeldFile | None":
        whole = self.get(key)
        return None if whole is None else HeldFile(whole)

    def size(self, key: str) -> int | None:
        return len(self.objects[key]) if key in self.objects else None

    def children(self, prefix: str) -> list[str]:
        lead = prefix + "/" if prefix else ""
        return sorted({key[len(lead) :].split("/")[0] for key in self.objects if key.startswith(lead)})


def read_whole(reader: DirectoryReader | DictReader, source: ArraySource) -> np.ndarray:
    """Return all cells of an array."""
    layout = source.layout
    out = np.empty(layout.shape, layout.dtype)
    out[...] = layout.fill
    for place in np.ndindex(*layout.grid):
        found = read_chunk(reader, layout, place)
        if found is not None:
            here = tuple(
                slice(p * c, min(n, (p + 1) * c)) for p, c, n in zip(place, layout.chunks, layout.shape, strict=True)
            )
            out[here] = found[tuple(slice(0, s.stop - s.start) for s in here)]
        else:
            assert layout.sparse
    return out


def read_chunk(reader: DirectoryReader | DictReader, layout: Layout, place: tuple[int, ...]) -> np.ndarray | None:
    """Return the cells of one chunk, None if it is not stored."""
    per = layout.chunks_per_object
    key = layout.keys.key(tuple(p // n for p, n in zip(place, per, strict=True)))
    stored = reader.get(key)
    if stored is None:
        return None
    data = memoryview(stored)
    if layout.index is not None:
        inside = tuple(p % n for p, n in zip(place, per, strict=True))
        number = int(np.ravel_multi_index(inside, per)) if per else 0
        nbytes = layout.index.nbytes
        table = data[:nbytes] if layout.index.location == "start" else data[-nbytes:]
        plain_nbytes = layout.chunk_nbytes if layout.plain else None
        found = parse_shard_index(table, layout.index, len(data), key, chunk_nbytes=plain_nbytes)
        if found.offsets[number] < 0:
            return None
        data = data[found.offsets[number] : found.offsets[number] + found.lengths[number]]
    if layout.decoder is not None:
        cells = layout.decoder.decode(data, key)
        assert cells.shape == layout.chunks
        assert cells.dtype == layout.stored
        return cells
    data = data[layout.base : layout.base + prod(layout.chunks) * layout.stored.itemsize]
    flat = np.frombuffer(data, layout.stored).reshape([layout.chunks[axis] for axis in layout.order])
    return flat.transpose(np.argsort(layout.order))
