"""Objects behind obstore: S3, and memory. One call is one request; retries are decided above."""

import math
import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Protocol
from weakref import WeakValueDictionary

from hyperslab.errors import ForkError, HyperslabError, InternalError
from hyperslab.store import runtime
from hyperslab.store.base import (
    CHILDREN_LIMIT,
    Reply,
    Span,
    check_key,
    check_limit,
    check_prefix,
    check_reply,
    check_span,
    strong_etag,
    too_many,
)
from hyperslab.store.failures import Place, is_empty_suffix, other_region, transient, translate
from hyperslab.store.s3 import S3Settings, bucket_region

__all__ = ["RemoteStore", "memory", "memory_store", "s3_store"]

# How long a connection may take to open, may stay silent, and a request may last at most.
CONNECT_S = 5.0
SILENT_S = 30.0
REQUEST_S = 600.0
LIST_S = 60.0


class Backend(Protocol):
    """What differs between the kinds of store behind obstore. Pickles; holds no connection."""

    @property
    def address(self) -> str: ...

    @property
    def scheme(self) -> str: ...

    @property
    def ready(self) -> bool:
        """Whether `client` answers without asking anybody."""
        ...

    @property
    def place(self) -> Place: ...

    def client(self, obstore: Any, timeout_s: float) -> Any:
        """Return obstore's store for requests that last at most `timeout_s`."""
        ...

    def explain(self, error: Exception) -> HyperslabError | None:
        """Return a better error than the usual one, where this kind of store knows of one."""
        ...


class RemoteStore:
    """The objects of one bucket, or of one named store in memory."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.address = backend.address
        self.scheme = backend.scheme
        self._name = self.address.partition("?")[0]
        self._clients: dict[float, Any] = {}
        self._pid = 0

    def __repr__(self) -> str:
        return f"RemoteStore({self.address!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_shared, (self._backend,))

    def get(
        self,
        key: str,
        span: Span = None,
        *,
        if_match: str | None = None,
        timeout_s: float | None = None,
        limit_bytes: int | None = None,
    ) -> Reply:
        options = _options(key, span, if_match)
        obstore, client = self._connect(timeout_s)
        try:
            answer = obstore.get(client, key, options=options)
            check_limit(f"{self._name}/{key}", span, answer.meta["size"], limit_bytes)
            data = answer.bytes()
        except Exception as error:  # noqa: BLE001  (obstore's classes differ between runtimes)
            return self._empty_or_raise(error, key, span)
        return self._reply(key, span, if_match, answer.meta, data)

    async def aget(
        self,
        key: str,
        span: Span = None,
        *,
        if_match: str | None = None,
        timeout_s: float | None = None,
        limit_bytes: int | None = None,
    ) -> Reply:
        import asyncio

        options = _options(key, span, if_match)
        try:
            async with asyncio.timeout(timeout_s):
                if self._backend.ready:
                    obstore, client = self._connect()
                else:
                    obstore, client = await asyncio.to_thread(self._connect)
                answer = await obstore.get_async(client, key, options=options)
                check_limit(f"{self._name}/{key}", span, answer.meta["size"], limit_bytes)
                data = await answer.bytes_async()
        except TimeoutError:
            raise transient(f"{self._name}/{key} was not answered within {timeout_s} s; try again") from None
        except Exception as error:  # noqa: BLE001
            return self._empty_or_raise(error, key, span)
        return self._reply(key, span, if_match, answer.meta, data)

    def head(self, key: str) -> tuple[int, str | None]:
        check_key(key)
        obstore, client = self._connect()
        try:
            meta = obstore.head(client, key)
        except Exception as error:  # noqa: BLE001
            raise self._failed(error, key, None) from None
        return meta["size"], strong_etag(meta["e_tag"])

    def children(self, prefix: str) -> list[str]:
        """As the protocol says; sends one request for every thousand names, for a minute at most."""
        prefix = check_prefix(prefix)
        obstore, client = self._connect()
        try:
            found = _within(LIST_S, obstore.list_with_delimiter_async, client, prefix or None)
        except TimeoutError:
            raise transient(f"listing {self._name}/{prefix} took over {LIST_S} s; open by path instead") from None
        except Exception as error:  # noqa: BLE001
            raise self._failed(error, prefix, None) from None
        paths = [*found["common_prefixes"], *(entry["path"] for entry in found["objects"])]
        if len(paths) > CHILDREN_LIMIT:
            raise too_many(f"{self._name}/{prefix}")
        # An object may bear the very name of the prefix; it is not below it.
        return sorted({path.rstrip("/").rpartition("/")[2] for path in paths if path.rstrip("/") != prefix})

    def _connect(self, timeout_s: float | None = None) -> tuple[Any, Any]:
        """Return the obstore of this process and a client in it, made at the first use."""
        limit_s = REQUEST_S if timeout_s is None else _rung(timeout_s)
        obstore = runtime.obstore_module()
        if self._pid == os.getpid():
            client = self._clients.get(limit_s)
            if client is not None:
                return obstore, client
        with runtime.guard():
            if self._pid != os.getpid():
                runtime.keep_forever(self._clients)
                self._clients, self._pid = {}, os.getpid()
            if limit_s not in self._clients:
                self._clients[limit_s] = self._backend.client(obstore, limit_s)
            return obstore, self._clients[limit_s]

    def _reply(self, key: str, span: Span, if_match: str | None, meta: Mapping[str, Any], data: Any) -> Reply:
        reply = Reply(memoryview(data), strong_etag(meta["e_tag"]), meta["size"])
        return check_reply(f"{self._name}/{key}", span, reply, if_match)

    def _empty_or_raise(self, error: Exception, key: str, span: Span) -> Reply:
        if is_empty_suffix(error, span):
            return Reply(memoryview(b""), None, 0)
        raise self._failed(error, key, span) from None

    def _failed(self, error: Exception, key: str, span: Span) -> HyperslabError:
        if isinstance(error, HyperslabError):
            return error
        better = self._backend.explain(error)
        if better is not None:
            self._clients = {}
            return better
        return translate(error, self._backend.place, f"{self._name}/{key}", span)


class S3Backend:
    """Clients for a bucket; finds out its region when nobody said it."""

    scheme = "s3"

    def __init__(self, settings: S3Settings) -> None:
        self.settings = settings
        self.address = settings.address
        self._region = settings.region or ("us-east-1" if settings.endpoint else None)
        self._corrected = False

    def __reduce__(self) -> tuple[Any, ...]:
        return (S3Backend, (self.settings,))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, S3Backend) and other.settings == self.settings

    def __hash__(self) -> int:
        return hash(self.settings)

    @property
    def ready(self) -> bool:
        return self._region is not None

    @property
    def place(self) -> Place:
        settings = self.settings
        name = f"s3://{settings.bucket}" + (f" at {settings.endpoint}" if settings.endpoint else "")
        delegated = not settings.anonymous and settings.access_key_id is None
        return Place(name, settings.url(self._region or "") if delegated else None, settings.secrets)

    def client(self, obstore: Any, timeout_s: float) -> Any:
        settings = self.settings
        if self._region is None:
            self._region = bucket_region(settings.bucket)
        url = settings.url(self._region)
        # Every value is given, else obstore would take it from the environment, whatever our options say.
        config = {
            "endpoint": url,
            "aws_endpoint_url_s3": url,
            "region": self._region,
            "skip_signature": settings.anonymous,
            "request_payer": settings.requester_pays,
            "virtual_hosted_style_request": settings.virtual_hosted,
        }
        return obstore.store.S3Store(
            settings.bucket,
            config=config,
            client_options=_client_options(timeout_s, allow_http=url.startswith("http://")),
            retry_config={"max_retries": 0},
            credential_provider=None if settings.access_key_id is None else _Login(settings),
        )

    def explain(self, error: Exception) -> HyperslabError | None:
        """Find the right region once, where a wrong one came from the environment or a profile."""
        region = other_region(error)
        if region is None or self.settings.endpoint or self.settings.region_chosen or self._corrected:
            return None
        wrong, self._region, self._corrected = self._region, region or None, True
        return transient(f"bucket s3://{self.settings.bucket} is not in region {wrong}; try again, elsewhere")


class MemoryBackend:
    """A store in this process's memory, shared by all who use its name."""

    scheme = "memory"
    ready = True

    def __init__(self, name: str) -> None:
        self.name = name
        self.address = f"memory://{name}"
        self.place = Place(self.address)

    def __reduce__(self) -> tuple[Any, ...]:
        return (MemoryBackend, (self.name,))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MemoryBackend) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def client(self, obstore: Any, timeout_s: float) -> Any:
        return memory(self.name)

    def explain(self, error: Exception) -> HyperslabError | None:
        return None


class _Login:
    """Hands obstore fixed credentials; given as plain options, the environment's token would be added."""

    def __init__(self, settings: S3Settings) -> None:
        self._settings = settings

    def __call__(self) -> dict[str, Any]:
        return {
            "access_key_id": self._settings.access_key_id,
            "secret_access_key": self._settings.secret_access_key,
            "token": self._settings.session_token,
            "expires_at": None,
        }


_memories: dict[str, tuple[int, Any]] = {}
_stores: WeakValueDictionary[Backend, RemoteStore] = WeakValueDictionary()


def memory(name: str) -> Any:
    """Return the obstore MemoryStore behind `memory://name`, to put objects there.

    It lives as long as the process, and only in this one.
    """
    obstore = runtime.obstore_module()
    with runtime.guard():
        pid, store = _memories.setdefault(name, (os.getpid(), None))
        if pid != os.getpid():
            raise ForkError(
                f"memory://{name} lives in the process that made it, not in this fork of it; use files or S3"
            )
        if store is None:
            store = obstore.store.MemoryStore()
            _memories[name] = (pid, store)
        return store


def memory_store(name: str) -> RemoteStore:
    """Return the store `memory://name`."""
    return _shared(MemoryBackend(name))


def s3_store(settings: S3Settings) -> RemoteStore:
    """Return the store for these settings: the same one, with its connections, as long as it is in use."""
    return _shared(S3Backend(settings))


def _shared(backend: Backend) -> RemoteStore:
    with runtime.guard():
        store = _stores.get(backend)
        if store is None:
            store = _stores[backend] = RemoteStore(backend)
        return store


def _options(key: str, span: Span, if_match: str | None) -> dict[str, Any] | None:
    check_key(key)
    check_span(key, span)
    options: dict[str, Any] = {}
    if span is not None:
        options["range"] = span if isinstance(span, tuple) else {"suffix": -span}
    if if_match is not None:
        options["if_match"] = if_match
    return options or None


def _within(limit_s: float, function: Any, *arguments: Any) -> Any:
    """Run one of obstore's async functions that may send any number of requests, but not for longer."""
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    async def bounded() -> Any:
        async with asyncio.timeout(limit_s):
            return await function(*arguments)

    # In a thread, as a loop may already run in this one.
    with ThreadPoolExecutor(1, thread_name_prefix="hyperslab-list") as pool:
        return pool.submit(asyncio.run, bounded()).result()


def _client_options(limit_s: float, *, allow_http: bool) -> dict[str, Any]:
    return {
        "allow_http": allow_http,
        "connect_timeout": timedelta(seconds=min(CONNECT_S, limit_s)),
        "read_timeout": timedelta(seconds=min(SILENT_S, limit_s)),
        "timeout": timedelta(seconds=limit_s),
        "pool_idle_timeout": timedelta(seconds=20),
    }


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
