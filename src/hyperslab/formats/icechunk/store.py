"""One array of a snapshot as a store for zarr-python, which decodes what has no fixed places: texts of any length."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from typing import Any

import numpy as np
from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.buffer import cpu

from hyperslab.formats.icechunk.chunks import RepositoryChunks
from hyperslab.formats.icechunk.snapshot import Node
from hyperslab.formats.source import MetadataReader

__all__ = ["RepositoryStore"]

_DOCUMENT = "zarr.json"


class RepositoryStore(Store):
    """The metadata document of an array and its chunks, under the names that Zarr gives them; they are only read."""

    def __init__(self, reader: MetadataReader, chunks: RepositoryChunks, node: Node) -> None:
        super().__init__(read_only=True)
        self._reader, self._chunks, self._node = reader, chunks, node

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = None  # type: ignore[assignment]

    supports_writes = False
    supports_deletes = False
    supports_listing = False

    async def get(self, key: str, prototype: Any = None, byte_range: ByteRequest | None = None) -> Any:
        found = await asyncio.to_thread(self._get, key)
        if found is None:
            return None
        kind = cpu.Buffer if prototype is None else prototype.buffer
        return kind.from_bytes(_part(found, byte_range))

    async def get_partial_values(
        self, prototype: Any, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Any]:
        return list(await asyncio.gather(*[self.get(key, prototype, part) for key, part in key_ranges]))

    async def exists(self, key: str) -> bool:
        return await asyncio.to_thread(self._get, key) is not None

    async def set(self, key: str, value: Any) -> None:
        self._check_writable()

    async def delete(self, key: str) -> None:
        self._check_writable()

    async def list(self) -> AsyncIterator[str]:
        yield _DOCUMENT

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        if _DOCUMENT.startswith(prefix):
            yield _DOCUMENT

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        if not prefix.strip("/"):
            yield _DOCUMENT

    def _get(self, key: str) -> bytes | None:
        if key == _DOCUMENT:
            return json.dumps(self._node.document).encode()
        place = _place(key, len(self._node.document["shape"]))
        return None if place is None else self._chunks.stored(self._reader, np.array([place], np.int64))


def _place(key: str, ndim: int) -> list[int] | None:
    """Return the place in the grid that the name of a chunk says, however it is written; None if it is no chunk's.

    >>> _place("c/0/12", 2), _place("0.12", 2), _place("c", 0), _place("zarr.json", 2)
    ([0, 12], [0, 12], [], None)
    """
    parts = key.replace(".", "/").split("/")
    if parts[0] == "c":
        parts = parts[1:]
    elif not ndim and parts == ["0"]:
        return []
    good = len(parts) == ndim and all([part.isascii() and part.isdigit() and len(part) < 12 for part in parts])
    return [int(part) for part in parts] if good else None


def _part(data: bytes, wanted: ByteRequest | None) -> bytes:
    if isinstance(wanted, RangeByteRequest):
        return data[wanted.start : wanted.end]
    if isinstance(wanted, OffsetByteRequest):
        return data[wanted.offset :]
    if isinstance(wanted, SuffixByteRequest):
        return data[max(0, len(data) - wanted.suffix) :]
    return data
