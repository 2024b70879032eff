"""Objects behind obstore: clouds, web servers, memory. One call is one request; retries are decided above."""

import math
import os
import re
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from types import TracebackType
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from hyperslab.errors import (
    HyperslabError,
    InternalError,
    InvalidInputError,
    NotFoundError,
    StoreError,
    StoreNotFoundError,
)
from hyperslab.store import runtime
from hyperslab.store.backends import Backend, memory
from hyperslab.store.base import (
    CHILDREN_LIMIT,
    Data,
    Heard,
    Listed,
    Reply,
    Span,
    check_data,
    check_key,
    check_limit,
    check_new_key,
    check_prefix,
    check_reply,
    check_span,
    too_many,
    unlike,
)
from hyperslab.store.failures import is_empty_suffix, transient, translate, translate_put, unusable
from hyperslab.store.targets import Targets

__all__ = ["RemoteStore", "memory", "remote_store"]

T = TypeVar("T")
_NO_UTF8 = re.compile(r"[\ud800-\udfff]")

# How long a connection may stay silent, and a request or a listing may last at most.
SILENT_S = 30.0
REQUEST_S = 600.0
LIST_S = 60.0

# Of long answers, what has arrived is told about in parts of so many bytes.
_PART_BYTES = 32 << 10


class RemoteStore:
    """The objects of one bucket, or of one named store in memory."""

    def __init__(self, backend: Backend, record: str | None = None, targets: Targets | None = None) -> None:
        self._backend = backend
        # Where else references that are stored here may lead.
        self.targets = targets
        # The log that reads of this store are recorded to.
        self.record = record
        self.address = backend.address
        self.scheme = backend.scheme
        self.has_suffix = backend.has_suffix
        self._name = self.address.partition("?")[0]
        self._clients: dict[tuple[float, bool], Any] = {}
        self._pid = 0

    def __repr__(self) -> str:
        return f"RemoteStore({self.address!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_shared, (self._backend, self.record, self.targets))

    def with_targets(self, targets: Targets) -> "RemoteStore":
        """Return the same store, from which references may lead to other places."""
        return _shared(self._backend, self.record, targets)

    def get(
        self,
        key: str,
        span: Span = None,
        *,
        if_match: str | None = None,
        timeout_s: float | None = None,
        limit_bytes: int | None = None,
    ) -> Reply:
        if isinstance(span, int) and not self.has_suffix:
            return self._suffix(key, span, if_match, timeout_s)
        options = self._options(key, span, if_match)
        obstore, client = self._connect(timeout_s)
        try:
            answer = obstore.get(client, key, options=options)
            meta = self._check(key, span, answer, limit_bytes)
            data = answer.bytes()
        except Exception as error:  # noqa: BLE001  (obstore's classes differ between runtimes)
            return self._empty_or_raise(error, key, span)
        return self._reply(key, span, if_match, meta, data)

    async def aget(
        self,
        key: str,
        span: Span = None,
        *,
        if_match: str | None = None,
        timeout_s: float | None = None,
        limit_bytes: int | None = None,
        heard: Heard | None = None,
    ) -> Reply:
        if isinstance(span, int) and not self.has_suffix:
            return await self._asuffix(key, span, if_match, timeout_s)
        options = self._options(key, span, if_match)
        try:
            async with self._in_time(timeout_s, key):
                obstore, client = await self._aconnect()
                answer = await obstore.get_async(client, key, options=options)
                meta = self._check(key, span, answer, limit_bytes)
                if heard is None or not isinstance(span, tuple) or span[1] - span[0] < 2 * _PART_BYTES:
                    data = await answer.bytes_async()
                else:
                    data = await self._in_parts(answer, key, span, meta, heard)
        except Exception as error:  # noqa: BLE001
            return self._empty_or_raise(error, key, span)
        return self._reply(key, span, if_match, meta, data)

    async def _in_parts(
        self, answer: Any, key: str, span: tuple[int, int], meta: Mapping[str, Any], heard: Heard
    ) -> memoryview:
        """Return the bytes of an answer; tell of those that are there while others arrive."""
        data, there = memoryview(bytearray(span[1] - span[0])), 0
        reply = Reply(data.toreadonly(), self._backend.tag(meta), meta["size"])
        async for part in answer.stream(min_chunk_size=_PART_BYTES):
            low, there = there, there + len(part)
            if there > len(data):
                raise unlike(f"{self._name}/{key}", span, meta["size"], "more", len(data))
            data[low:there] = part
            if there < len(data):
                heard(reply, there)
        return reply.data[:there]

    def head(self, key: str, *, timeout_s: float | None = None) -> tuple[int, str | None]:
        self._check_key(key)
        obstore, client = self._connect(timeout_s)
        try:
            meta = obstore.head(client, key)
        except Exception as error:  # noqa: BLE001
            raise self._failed(error, key, None) from None
        return meta["size"], self._backend.tag(meta)

    async def ahead(self, key: str, *, timeout_s: float | None = None) -> tuple[int, str | None]:
        self._check_key(key)
        try:
            async with self._in_time(timeout_s, key):
                obstore, client = await self._aconnect()
                meta = await obstore.head_async(client, key)
        except Exception as error:  # noqa: BLE001
            raise self._failed(error, key, None) from None
        return meta["size"], self._backend.tag(meta)

    def children(self, prefix: str, *, timeout_s: float | None = None) -> list[str]:
        """As the protocol says; sends one request for every thousand names, for a minute at most."""
        return _run(self.achildren(prefix, timeout_s=timeout_s))

    async def achildren(self, prefix: str, *, timeout_s: float | None = None) -> list[str]:
        prefix = self._check_listing(prefix)
        try:
            async with self._listing(prefix, timeout_s):
                obstore, client = await self._aconnect()
                found = await obstore.list_with_delimiter_async(client, prefix or None)
        except Exception as error:  # noqa: BLE001
            raise self._failed(error, prefix, None) from None
        paths = [*found["common_prefixes"], *(entry["path"] for entry in found["objects"])]
        if len(paths) > CHILDREN_LIMIT:
            raise too_many(f"{self._name}/{prefix}")
        # An object may bear the very name of the prefix; it is not below it.
        return sorted({path.rstrip("/").rpartition("/")[2] for path in paths if path.rstrip("/") != prefix})

    def keys(self, prefix: str, *, timeout_s: float | None = None) -> list[tuple[str, int]]:
        """As the protocol says; sends one request for every thousand keys, for a minute at most."""
        return _run(self.akeys(prefix, timeout_s=timeout_s))

    async def akeys(self, prefix: str, *, timeout_s: float | None = None) -> list[tuple[str, int]]:
        return [(listed.key, listed.nbytes) for listed in await self.alisting(prefix, timeout_s=timeout_s)]

    def listing(self, prefix: str, *, timeout_s: float | None = None) -> list[Listed]:
        """As the protocol says; sends one request for every thousand keys, for a minute at most."""
        return _run(self.alisting(prefix, timeout_s=timeout_s))

    async def alisting(self, prefix: str, *, timeout_s: float | None = None) -> list[Listed]:
        prefix = self._check_listing(prefix)
        found: list[Listed] = []
        try:
            async with self._listing(prefix, timeout_s):
                obstore, client = await self._aconnect()
                async for page in obstore.list(client, prefix or None, chunk_size=1000):
                    found += [_listed(entry) for entry in page if entry["path"] != prefix]
                    if len(found) > CHILDREN_LIMIT:
                        raise too_many(f"{self._name}/{prefix}")
        except Exception as error:  # noqa: BLE001
            raise self._failed(error, prefix, None) from None
        return sorted(_without_markers(found), key=lambda listed: listed.key)

    def put(
        self,
        key: str,
        data: Data,
        *,
        if_match: str | None = None,
        if_absent: bool = False,
        timeout_s: float | None = None,
    ) -> str | None:
        view, mode = check_data(key, data, if_match, if_absent), self._mode(key, if_match, if_absent)
        obstore, client = self._connect(timeout_s, writing=True)
        try:
            done = obstore.put(client, key, view, mode=mode, use_multipart=False)
        except Exception as error:  # noqa: BLE001
            raise self._unwritten(error, key, if_match, if_absent) from None
        return self._backend.tag(done)

    async def aput(
        self,
        key: str,
        data: Data,
        *,
        if_match: str | None = None,
        if_absent: bool = False,
        timeout_s: float | None = None,
    ) -> str | None:
        view, mode = check_data(key, data, if_match, if_absent), self._mode(key, if_match, if_absent)
        try:
            async with self._in_time(timeout_s, key):
                obstore, client = await self._aconnect(writing=True)
                done = await obstore.put_async(client, key, view, mode=mode, use_multipart=False)
        except Exception as error:  # noqa: BLE001
            raise self._unwritten(error, key, if_match, if_absent) from None
        return self._backend.tag(done)

    def delete(self, key: str, *, timeout_s: float | None = None) -> None:
        self._check_new_key(key)
        obstore, client = self._connect(timeout_s)
        try:
            obstore.delete(client, key)
        except Exception as error:  # noqa: BLE001
            self._deleted_or_raise(error, key)

    async def adelete(self, key: str, *, timeout_s: float | None = None) -> None:
        self._check_new_key(key)
        try:
            async with self._in_time(timeout_s, key):
                obstore, client = await self._aconnect()
                await obstore.delete_async(client, key)
        except Exception as error:  # noqa: BLE001
            self._deleted_or_raise(error, key)

    def _suffix(self, key: str, span: int, if_match: str | None, timeout_s: float | None) -> Reply:
        """Return the last bytes from a store that must be asked for the object's size first: in two requests."""
        check_span(key, span)
        size, tag = self.head(key, timeout_s=timeout_s)
        if size == 0:
            return check_reply(f"{self._name}/{key}", span, Reply(memoryview(b""), tag, 0), if_match)
        part = (max(0, size + span), size)
        return replace(self.get(key, part, if_match=if_match or tag, timeout_s=timeout_s), requests=2)

    async def _asuffix(self, key: str, span: int, if_match: str | None, timeout_s: float | None) -> Reply:
        check_span(key, span)
        async with self._in_time(timeout_s, key):
            size, tag = await self.ahead(key)
            if size == 0:
                return check_reply(f"{self._name}/{key}", span, Reply(memoryview(b""), tag, 0), if_match)
            part = (max(0, size + span), size)
            return replace(await self.aget(key, part, if_match=if_match or tag), requests=2)

    def _options(self, key: str, span: Span, if_match: str | None) -> dict[str, Any] | None:
        self._check_key(key)
        check_span(key, span)
        options: dict[str, Any] = {}
        if span is not None:
            options["range"] = span if isinstance(span, tuple) else {"suffix": -span}
        if if_match is not None:
            options["if_match"] = self._backend.if_match(if_match)
        return options or None

    def _mode(self, key: str, if_match: str | None, if_absent: bool) -> Any:
        self._check_new_key(key)
        return self._backend.replacing(if_match) if if_match is not None else ("create" if if_absent else "overwrite")

    def _check(self, key: str, span: Span, answer: Any, limit_bytes: int | None) -> Mapping[str, Any]:
        """Refuse what cannot be the object; return what the store says of it, which obstore makes anew when asked."""
        name = f"{self._name}/{key}"
        self._backend.check(name, answer)
        meta: Mapping[str, Any] = answer.meta
        check_limit(name, span, meta["size"], limit_bytes)
        return meta

    def _check_key(self, key: str) -> None:
        check_key(key)
        if not key.isascii() and _NO_UTF8.search(key):
            raise InvalidInputError(f"key {key[:200]!r} is not UTF-8, as {self.scheme} wants it")
        if "\\" in key and not self._backend.has_backslash:
            raise InvalidInputError(f"key {key[:200]!r} has a backslash, which {self.scheme} takes for '/'")

    def _check_new_key(self, key: str) -> None:
        check_new_key(key)
        self._check_key(key)
        if not self._backend.can_write:
            raise StoreError(f"{self._name} is a web server, which can only be read; write to a store instead")

    def _check_listing(self, prefix: str) -> str:
        prefix = check_prefix(prefix)
        if prefix:
            self._check_key(prefix)
        if not self._backend.can_list:
            raise StoreError(
                f"{self._name} is a web server, which cannot list what it holds; open arrays by their path"
            )
        return prefix

    def _connect(self, timeout_s: float | None = None, *, writing: bool = False) -> tuple[Any, Any]:
        """Return the obstore of this process and a client in it, made at the first use."""
        limit_s = REQUEST_S if timeout_s is None else _rung(timeout_s)
        obstore = runtime.obstore_module()
        if self._pid == os.getpid():
            client = self._clients.get((limit_s, writing))
            if client is not None:
                return obstore, client
        with runtime.guard():
            if self._pid != os.getpid():
                runtime.keep_forever(self._clients)
                self._clients, self._pid = {}, os.getpid()
            if (limit_s, writing) not in self._clients:
                # An upload is silent until all of it has arrived.
                self._clients[limit_s, writing] = self._client(obstore, limit_s, limit_s if writing else SILENT_S)
            return obstore, self._clients[limit_s, writing]

    def _client(self, obstore: Any, limit_s: float, silent_s: float) -> Any:
        try:
            return self._backend.client(obstore, limit_s, min(silent_s, limit_s))
        except HyperslabError:
            raise
        except Exception as error:  # noqa: BLE001
            raise unusable(error, self._backend.place) from None

    async def _aconnect(self, *, writing: bool = False) -> tuple[Any, Any]:
        if self._backend.ready:
            return self._connect(writing=writing)
        import asyncio

        return await asyncio.to_thread(self._connect, writing=writing)

    def _in_time(self, timeout_s: float | None, key: str) -> "_InTime":
        """Let a request last for so long only."""
        return _InTime(timeout_s, f"{self._name}/{key}")

    @asynccontextmanager
    async def _listing(self, prefix: str, timeout_s: float | None) -> AsyncIterator[None]:
        """Let a listing, which may send any number of requests, last for so long only."""
        import asyncio

        limit_s = LIST_S if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(limit_s):
                try:
                    yield
                except asyncio.CancelledError:
                    runtime.note_cancelled()
                    raise
        except TimeoutError as error:
            if isinstance(error, HyperslabError):
                raise
            raise transient(f"listing {self._name}/{prefix} took over {limit_s} s; open by path instead") from None

    def _reply(self, key: str, span: Span, if_match: str | None, meta: Mapping[str, Any], data: Any) -> Reply:
        modified_ns = int(meta["last_modified"].timestamp()) * 1_000_000_000
        reply = Reply(memoryview(data), self._backend.tag(meta), meta["size"], modified_ns=modified_ns)
        return check_reply(f"{self._name}/{key}", span, reply, if_match)

    def _empty_or_raise(self, error: Exception, key: str, span: Span) -> Reply:
        if is_empty_suffix(error, span):
            return Reply(memoryview(b""), None, 0)
        raise self._failed(error, key, span) from None

    def _deleted_or_raise(self, error: Exception, key: str) -> None:
        failure = self._failed(error, key, None)
        if not isinstance(failure, NotFoundError) or isinstance(failure, StoreNotFoundError):
            raise failure from None

    def _unwritten(self, error: Exception, key: str, if_match: str | None, if_absent: bool) -> HyperslabError:
        name = f"{self._name}/{key}"
        if isinstance(error, HyperslabError):
            return error
        better = self._better(error)
        return better or translate_put(error, self._backend.place, name, if_match=if_match, if_absent=if_absent)

    def _failed(self, error: Exception, key: str, span: Span) -> HyperslabError:
        if isinstance(error, HyperslabError):
            return error
        better = self._better(error)
        return better or translate(error, self._backend.place, f"{self._name}/{key}", span)

    def _better(self, error: Exception) -> HyperslabError | None:
        better = self._backend.explain(error)
        if better is not None:
            self._clients = {}
        return better


class _InTime:
    """Lets what is done within it last for so long only; not by a generator, as every request passes here."""

    __slots__ = ("_limit", "_name", "_timeout_s")

    def __init__(self, timeout_s: float | None, name: str) -> None:
        import asyncio

        self._limit, self._timeout_s, self._name = asyncio.timeout(timeout_s), timeout_s, name

    async def __aenter__(self) -> None:
        await self._limit.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Whatever cancelled it: the end of its time, too.
        if kind is not None and not issubclass(kind, Exception):
            runtime.note_cancelled()
        try:
            await self._limit.__aexit__(kind, error, trace)
            late = isinstance(error, TimeoutError) and not isinstance(error, HyperslabError)
        except TimeoutError:
            late = True
        if late:
            raise transient(f"{self._name} was not answered within {self._timeout_s} s; try again") from None


_stores: WeakValueDictionary[tuple[Backend, str | None, Targets | None], RemoteStore] = WeakValueDictionary()


def remote_store(backend: Backend, record: str | None = None) -> RemoteStore:
    """Return the store for this backend: the same one, with its connections, as long as it is in use."""
    return _shared(backend, record)


def _shared(backend: Backend, record: str | None = None, targets: Targets | None = None) -> RemoteStore:
    with runtime.guard():
        store = _stores.get((backend, record, targets))
        if store is None:
            store = _stores[backend, record, targets] = RemoteStore(backend, record, targets)
        return store


def _listed(entry: Mapping[str, Any]) -> Listed:
    """Return one object of obstore's listing; an ETag may be of the bytes alone, so the time is part of the version."""
    modified_ns = int(entry["last_modified"].timestamp() * 1_000_000) * 1000
    version = f"{entry['e_tag']}#{entry.get('version')}@{modified_ns}"
    return Listed(entry["path"], entry["size"], version, modified_ns)


def _without_markers(found: list[Listed]) -> list[Listed]:
    """Leave out the empty objects by which some programs mark a directory: they bear its name and a slash.

    >>> found = [Listed(key, nbytes, "", 0) for key, nbytes in [("a", 0), ("a/b", 3), ("c", 0)]]
    >>> [listed.key for listed in _without_markers(found)]
    ['a/b', 'c']
    """
    if all(listed.nbytes for listed in found):
        return found
    keys = [listed.key for listed in found]
    folders = {key[:cut] for key in keys for cut in range(len(key)) if key[cut] == "/"}
    return [listed for listed in found if listed.nbytes or listed.key not in folders]


def _run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run what may send any number of requests, in a loop of its own; an interrupt ends it at once."""
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    running: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = []

    async def noted() -> T:
        task = asyncio.current_task()
        if task is not None:
            running.append((asyncio.get_running_loop(), task))
        return await coroutine

    # In a thread, as a loop may already run in this one.
    with ThreadPoolExecutor(1, thread_name_prefix="hyperslab-list") as pool:
        future = pool.submit(asyncio.run, noted())
        try:
            return future.result()
        except BaseException:
            for loop, task in running:
                with suppress(RuntimeError):  # it has ended by itself
                    loop.call_soon_threadsafe(task.cancel)
            raise


def _rung(timeout_s: float) -> float:
    """Round a timeout up to one of ten per decade, as each has a client with connections of its own.

    >>> _rung(0.3), _rung(30.0), _rung(1e9)
    (0.316, 31.6, 600.0)
    """
    if not timeout_s > 0:
        raise InternalError(f"a request needs time, got timeout_s={timeout_s}")
    if timeout_s >= REQUEST_S:
        return REQUEST_S
    return float(f"{10 ** (math.ceil(math.log10(max(timeout_s, 0.001)) * 10 - 1e-9) / 10):.3g}")
