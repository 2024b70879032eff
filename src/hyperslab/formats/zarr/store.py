"""A store for zarr-python that is one of ours: what it reads and writes is metered, retried, and metadata is sealed."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.buffer import cpu

from hyperslab.errors import ConflictError
from hyperslab.execute.write import StoreWriter
from hyperslab.formats.source import join, parse_document
from hyperslab.formats.zarr.documents import dump
from hyperslab.formats.zarr.seal import Seal, seal_of, sealed
from hyperslab.store import Span

__all__ = ["ZarrStore"]


class ZarrStore(Store):
    """What lies below `path` of a store, for zarr-python.

    Every `zarr.json` that is set is sealed: with what its seal said before, or as `seal` says if it is new. With
    `exclusive`, metadata is only set where there is none.
    """

    def __init__(
        self,
        writer: StoreWriter,
        path: str = "",
        *,
        exclusive: bool = False,
        seal: Seal | None = None,
        read_only: bool = False,
    ) -> None:
        super().__init__(read_only=read_only)
        self.writer, self.path, self.exclusive, self.seal = writer, path, exclusive, seal or Seal()
        # The last metadata document that was set, by its key.
        self.documents: dict[str, dict[str, Any]] = {}

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, ZarrStore) and other.path == self.path
        return same and other.writer.store.address == self.writer.store.address  # type: ignore[attr-defined]

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ZarrStore({self.writer.store!r}, {self.path!r})"

    @property
    def supports_writes(self) -> bool:
        return True

    @property
    def supports_deletes(self) -> bool:
        return True

    @property
    def supports_listing(self) -> bool:
        return True

    def with_read_only(self, read_only: bool = False) -> "ZarrStore":
        return ZarrStore(self.writer, self.path, exclusive=self.exclusive, seal=self.seal, read_only=read_only)

    async def get(self, key: str, prototype: Any = None, byte_range: ByteRequest | None = None) -> Any:
        found = await asyncio.to_thread(self._get, key, byte_range)
        if found is None:
            return None
        kind = cpu.Buffer if prototype is None else prototype.buffer
        return kind.from_bytes(found)

    async def get_partial_values(
        self, prototype: Any, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Any]:
        return list(await asyncio.gather(*[self.get(key, prototype, span) for key, span in key_ranges]))

    async def exists(self, key: str) -> bool:
        return await asyncio.to_thread(self._get, key, None) is not None

    async def set(self, key: str, value: Any) -> None:
        self._check_writable()
        await asyncio.to_thread(self._set, key, value.to_bytes(), self.exclusive)

    async def set_if_not_exists(self, key: str, value: Any) -> None:
        self._check_writable()
        try:
            await asyncio.to_thread(self._set, key, value.to_bytes(), True)
        except ConflictError:
            return

    async def delete(self, key: str) -> None:
        self._check_writable()
        await asyncio.to_thread(self.writer.delete, join(self.path, key))

    async def list(self) -> AsyncIterator[str]:
        async for name in self.list_prefix(""):
            yield name

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        for name in await asyncio.to_thread(self._names):
            if name.startswith(prefix):
                yield name

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        lead = prefix.rstrip("/") + "/" if prefix.rstrip("/") else ""
        below = {
            name.removeprefix(lead).partition("/")[0]
            for name in await asyncio.to_thread(self._names)
            if name.startswith(lead)
        }
        for name in sorted(below):
            yield name

    def _names(self) -> Iterable[str]:
        lead = self.path + "/" if self.path else ""
        return [key.removeprefix(lead) for key, _ in self.writer.keys(self.path)]

    def _get(self, key: str, span: ByteRequest | None) -> bytes | None:
        wanted: Span = None
        if isinstance(span, RangeByteRequest):
            wanted = (span.start, span.end)
        elif isinstance(span, SuffixByteRequest):
            wanted = -span.suffix
        reply = self.writer.get(join(self.path, key), wanted, lookup=True)
        if reply is None:
            return None
        data = bytes(reply.data)
        return data[span.offset :] if isinstance(span, OffsetByteRequest) else data

    def _set(self, key: str, data: bytes, only_new: bool) -> None:
        if key == "zarr.json" or key.endswith("/zarr.json"):
            document = parse_document(data, key)
            document = sealed(document, seal_of(document) or self.seal)
            self.documents[key], data = document, dump(document)
        self.writer.put(join(self.path, key), data, if_absent=only_new)
