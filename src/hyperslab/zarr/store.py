"""The store that zarr-python is given: keys and bytes, read and written through a session."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype

from hyperslab.errors import ConflictError
from hyperslab.execute import Session, check_kind, default_session
from hyperslab.execute.write import StoreWriter
from hyperslab.formats.source import join
from hyperslab.formats.zarr.documents import dump
from hyperslab.formats.zarr.seal import seal_of, sealed
from hyperslab.store import locate
from hyperslab.zarr.fetching import Fetcher, Wanted

__all__ = ["HyperslabStore"]

T = TypeVar("T")
Waiting = list[tuple[Wanted, asyncio.Future[bytes | None]]]

# As many requests wait for a store at once; zarr-python asks for ten at a time unless it is told otherwise.
_THREADS = 32


class HyperslabStore(Store):
    """What lies at a URL, for zarr-python: `zarr.open(HyperslabStore("s3://bucket/a.zarr"), mode="r")`.

    Requests are sent by `session` (default: the one that `hs.open` uses), with its limits, retries, budget and metrics.
    A store that is only read is a snapshot: what was read is kept in the session's cache, and an object that changes
    afterwards is a ConflictError. Metadata of arrays that Hyperslab has sealed are sealed again when they are set.
    """

    def __init__(
        self,
        url: Any,
        *,
        storage_options: Any = None,
        session: Session | None = None,
        read_only: bool = False,
    ) -> None:
        super().__init__(read_only=read_only)
        check_kind("session", session, Session)
        self.url = str(url)
        self._session = default_session() if session is None else session
        self._store, self._path = locate(url, storage_options, create=True)
        self._start()

    def _start(self) -> None:
        """Begin without anything that cannot be handed to another process."""
        self._fetcher = Fetcher(self._session, self._store, keeps=self.read_only)
        # Ranges that wait to be fetched, by the loop that they are asked for in: zarr-python has one of its own.
        self._waiting: WeakKeyDictionary[asyncio.AbstractEventLoop, Waiting] = WeakKeyDictionary()
        self._tasks: set[asyncio.Task[None]] = set()
        self._threads: ThreadPoolExecutor | None = None

    def __getstate__(self) -> dict[str, Any]:
        started = {"_fetcher", "_waiting", "_tasks", "_threads"}
        return {name: value for name, value in self.__dict__.items() if name not in started}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, HyperslabStore):
            return False
        mine, others = [(each._store.address, each._path, each.read_only) for each in (self, other)]
        return mine == others

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"HyperslabStore({self.url!r})"

    @property
    def supports_writes(self) -> bool:
        return True

    @property
    def supports_deletes(self) -> bool:
        return True

    @property
    def supports_listing(self) -> bool:
        return True

    def with_read_only(self, read_only: bool = False) -> "HyperslabStore":
        """Return the same store, to be read only or to be changed; it has seen nothing yet."""
        other = object.__new__(type(self))
        other.__setstate__({**self.__getstate__(), "_read_only": read_only, "_is_open": False})
        return other

    def close(self) -> None:
        """Stop the threads of the store. The session stays open."""
        super().close()
        if self._threads is not None:
            self._threads.shutdown(wait=False)
            self._threads = None

    # Reading

    async def get(
        self, key: str, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """Return an object, or a part of it; None if it is not there."""
        await self._ensure_open()
        if isinstance(byte_range, RangeByteRequest):
            data = await self._planned(Wanted(join(self._path, key), byte_range.start, byte_range.end))
        else:
            data = await self._run(self._read, key, byte_range)
        return _buffer(data, prototype)

    def get_sync(
        self, key: str, *, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """The same as `get`, for callers that may wait."""
        return _buffer(self._read(key, byte_range), prototype)

    def _read(self, key: str, byte_range: ByteRequest | None) -> bytes | None:
        name = join(self._path, key)
        match byte_range:
            case None:
                return self._fetcher.whole(name)
            case RangeByteRequest():
                return self._fetcher.ranges([Wanted(name, byte_range.start, byte_range.end)])[0]
            case SuffixByteRequest():
                return self._fetcher.last(name, byte_range.suffix)
            case OffsetByteRequest():
                data = self._fetcher.whole(name)
                return None if data is None else data[byte_range.offset :]
        raise TypeError(f"Unexpected byte_range, got {byte_range}.")

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """Return parts of objects, ranges of them by one plan."""
        return list(await asyncio.gather(*[self.get(key, prototype, span) for key, span in key_ranges]))

    async def exists(self, key: str) -> bool:
        """Whether there is an object of that name."""
        return await self._run(self._fetcher.last, join(self._path, key), 1) is not None

    async def getsize(self, key: str) -> int:
        """Return the size of an object in bytes."""
        found = await self._run(StoreWriter(self._session, self._store).get, join(self._path, key), -1)
        if found is None:
            raise FileNotFoundError(key)
        return int(found.object_nbytes)

    async def _planned(self, wanted: Wanted) -> bytes | None:
        """Wait for a range, which is fetched with all others that are asked for before the loop's next turn."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[bytes | None] = loop.create_future()
        waiting = self._waiting.setdefault(loop, [])
        waiting.append((wanted, turn))
        if len(waiting) == 1:
            loop.call_soon(self._begin, loop)
        return await turn

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        task = loop.create_task(self._answer(loop))
        # A loop forgets tasks that nobody holds.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, loop: asyncio.AbstractEventLoop) -> None:
        waiting = self._waiting.pop(loop, [])
        try:
            found = await self._run(self._fetcher.ranges, [wanted for wanted, _ in waiting])
        except BaseException as error:
            for _, turn in waiting:
                if not turn.done():
                    turn.set_exception(error)
            if not isinstance(error, Exception):
                raise
            return
        for (_, turn), data in zip(waiting, found, strict=True):
            if not turn.done():
                turn.set_result(data)

    async def _run(self, call: Callable[..., T], *arguments: Any) -> T:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="hyperslab-zarr")
        return await asyncio.get_running_loop().run_in_executor(self._threads, call, *arguments)

    # Changing

    async def set(self, key: str, value: Buffer) -> None:
        """Store an object."""
        await self._put(key, value, only_new=False)

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        """Store an object unless there is one; of several who try, one succeeds."""
        try:
            await self._put(key, value, only_new=True)
        except ConflictError:
            return

    async def _put(self, key: str, value: Buffer, *, only_new: bool) -> None:
        await self._ensure_open()
        await self._run(self._write, key, value, only_new)

    def set_sync(self, key: str, value: Buffer) -> None:
        """The same as `set`, for callers that may wait."""
        self._write(key, value, only_new=False)

    def _write(self, key: str, value: Buffer, only_new: bool) -> None:
        self._check_writable()
        if not isinstance(value, Buffer):
            raise TypeError(f"a zarr.abc.buffer.Buffer is stored, got {type(value).__name__}")
        data = _sealed_again(key, value.to_bytes())
        StoreWriter(self._session, self._store).put(join(self._path, key), data, if_absent=only_new)

    async def delete(self, key: str) -> None:
        """Remove an object; that it is not there is no error."""
        await self._ensure_open()
        await self._run(self.delete_sync, key)

    def delete_sync(self, key: str) -> None:
        """The same as `delete`, for callers that may wait."""
        self._check_writable()
        StoreWriter(self._session, self._store).delete(join(self._path, key))

    # Listing

    async def list(self) -> AsyncIterator[str]:
        """Give the names of all objects."""
        for name in await self._run(self._names, ""):
            yield name

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """Give the names of all objects that begin so."""
        for name in await self._run(self._names, prefix):
            yield name

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Give the names one level below a prefix."""
        inside = prefix.strip("/")
        for name in await self._run(self._store.children, join(self._path, inside)):
            yield name

    def _names(self, prefix: str) -> Iterable[str]:
        """Return the names that begin with `prefix`; only what is below its last slash is listed."""
        folder = join(self._path, prefix.rpartition("/")[0])
        lead = self._path + "/" if self._path else ""
        keys = [key.removeprefix(lead) for key, _ in StoreWriter(self._session, self._store).keys(folder)]
        return [key for key in keys if key.startswith(prefix)]


def _buffer(data: bytes | None, prototype: BufferPrototype | None) -> Buffer | None:
    return None if data is None else (prototype or default_buffer_prototype()).buffer.from_bytes(data)


def _sealed_again(key: str, data: bytes) -> bytes:
    """Return what is to be stored: a document that carries a seal gets one that holds for it as it is now."""
    if key.rpartition("/")[2] != "zarr.json":
        return data
    try:
        document = json.loads(data)
    except ValueError:
        return data
    seal = seal_of(document) if isinstance(document, dict) else None
    return data if seal is None else dump(sealed(document, seal))
