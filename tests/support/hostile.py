"""Arrays on a server that misbehaves: how they get there, what is left behind by a read, what the server saw."""

import asyncio
import gc
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager
from typing import Any

import numpy as np
import psutil
import uvloop
import zarr
from zarr.codecs import BytesCodec, Crc32cCodec, ShardingCodec, ZstdCodec
from zarr.storage import MemoryStore

import hyperslab as hs
from hyperslab.store import locate, memory
from hyperslab.store.local import _PROCESS_FILES
from support.fake_s3 import Answer
from support.s3proxy import S3Proxy

__all__ = [
    "FILL", "LAYOUTS", "CrowdProxy", "array_at", "bound_to", "connections_to", "encode", "fast", "left_behind",
    "options_for", "put", "sent", "settled", "wait_until",
]  # fmt: skip


# What cells hold whose chunk is not stored.
FILL = 77


def _sharded(*codecs: Any, location: str = "end") -> dict[str, Any]:
    def options(chunks: tuple[int, ...]) -> dict[str, Any]:
        shards = ShardingCodec(
            chunk_shape=chunks,
            codecs=[BytesCodec(), *codecs],
            index_codecs=[BytesCodec(), Crc32cCodec()],
            index_location=location,
        )
        return {"serializer": shards, "filters": None, "chunks": tuple(2 * n for n in chunks)}

    return {"sharded": options}


# How the chunks of a test's array are stored.
LAYOUTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "zstd": {"compressors": [ZstdCodec()]},
    "crc": {"compressors": [Crc32cCodec()]},
    "shards": _sharded(),
    "shards-start": _sharded(location="start"),
    "shards-zstd": _sharded(ZstdCodec()),
    "shards-crc": _sharded(Crc32cCodec()),
}


def encode(data: np.ndarray, chunks: tuple[int, ...], layout: str = "plain") -> dict[str, bytes]:
    """Return the objects of a Zarr array by their keys below it."""
    options = {"chunks": chunks, "compressors": None, **LAYOUTS[layout]}
    sharded = options.pop("sharded", None)
    if sharded is not None:
        options |= sharded(chunks)
    store: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        array = zarr.create_array(
            MemoryStore(store), shape=data.shape, dtype=data.dtype, fill_value=FILL,
            config={"write_empty_chunks": True}, **options,
        )  # fmt: skip
        array[...] = data
    return {key: value.to_bytes() for key, value in store.items()}


def put(
    proxy: S3Proxy, name: str, data: np.ndarray, chunks: tuple[int, ...], layout: str = "plain", bucket: str = "bucket"
) -> None:
    """Store an array on the fake S3 behind the proxy, in place of what is there under that name."""
    for key in [key for key in proxy.fake.objects if key.startswith(f"{bucket}/{name}/")]:
        del proxy.fake.objects[key]
    for key, value in encode(data, chunks, layout).items():
        proxy.fake.objects[f"{bucket}/{name}/{key}"] = value


def options_for(proxy: S3Proxy) -> dict[str, Any]:
    return {"endpoint": proxy.endpoint, "anonymous": True}


def array_at(proxy: S3Proxy, name: str, session: hs.Session) -> hs.Array:
    """Open an array behind the proxy, and forget the requests for that."""
    array = hs.open(f"s3://bucket/{name}", storage_options=options_for(proxy), session=session)
    assert isinstance(array, hs.Array)
    proxy.log.clear()
    return array


def bound_to(session: hs.Session, array: hs.Array, store: Any = None) -> hs.Array:
    """The same array, read through another session, or also another store."""
    return hs.Array(array.source, array.store if store is None else store, session)


@contextmanager
def fast(**settings: Any) -> Iterator[hs.Session]:
    """A session without a cache unless told. It is patient: what a busy machine holds up has not failed."""
    with hs.Session(**{"timeout_s": 30.0, "cache_bytes": 0, **settings}) as session:
        yield session


def sent(proxy: S3Proxy) -> tuple[int, int]:
    """How many requests for objects the server saw, and how many bytes of objects it sent back."""
    asked = proxy.gets()
    return len(asked), sum(each.body_bytes for each in asked if each.status in (200, 206))


def wait_until(true: Callable[[], object], within_s: float = 30.0) -> bool:
    """Whether something comes true, sooner or later: the machine may have other things to do."""
    end = time.monotonic() + within_s
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def settled(log: Sized, for_s: float = 0.3) -> bool:
    """Whether nothing comes to a log any more; what was on its way to it may still arrive."""
    seen, since = len(log), time.monotonic()

    def is_still() -> bool:
        nonlocal seen, since
        if len(log) != seen:
            seen, since = len(log), time.monotonic()
        return time.monotonic() - since >= for_s

    return wait_until(is_still)


def connections_to(port: int) -> int:
    """How many connections this process holds open to a port of its own machine."""
    found = psutil.Process().net_connections("tcp4")
    return sum(c.status == psutil.CONN_ESTABLISHED and bool(c.raddr) and c.raddr.port == port for c in found)


@contextmanager
def left_behind() -> Iterator[None]:
    """Check that a block leaves no more threads and open files than there were.

    Not counted is what a process has once: obstore's own threads, zarr's loop, the pipe by which uvloop hears of
    signals, and the local files that are kept open.
    """
    uvloop.new_event_loop().close()
    memory("left-behind").put("a", b"")
    asyncio.run(locate("memory://left-behind")[0].aget("a"))
    encode(np.zeros(1), (1,))
    gc.collect()
    before_threads, before_files = _threads(), _files()
    yield
    _PROCESS_FILES.clear()
    gc.collect()
    assert wait_until(lambda: _threads() <= before_threads), f"threads left: {_threads() - before_threads}"
    assert wait_until(lambda: _files() <= before_files), f"files left open: {_files() - before_files}"


def _threads() -> set[str]:
    return {f"{thread.name}-{thread.ident}" for thread in threading.enumerate() if "hyperslab" in thread.name}


def _files() -> set[str]:
    """Open files of the process that are not sockets: obstore keeps connections for the next session."""
    found = set()
    for name in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if not target.startswith(("socket:", "/proc/", "anon_inode:[eventfd]")) or "eventpoll" in target:
            found.add(f"{name} {target}")
    return found


class CrowdProxy(S3Proxy):
    """Also notes how many requests, and bytes asked for, it had at a time; each stays for `hold_s`.

    The first ones stay until there have been as many as `crowd` at a time: however slow their sender is.
    """

    def __init__(self, *, hold_s: float = 0.05) -> None:
        super().__init__()
        self.hold_s, self.crowd = hold_s, 0
        self.in_flight = self.most_in_flight = self.bytes_in_flight = self.most_bytes_in_flight = 0

    async def _forward(self, request: Any, *, ignore_range: bool = False) -> Answer:
        answer = await super()._forward(request, ignore_range=ignore_range)
        self.in_flight += 1
        self.bytes_in_flight += len(answer.body)
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        self.most_bytes_in_flight = max(self.most_bytes_in_flight, self.bytes_in_flight)
        end = time.monotonic() + 20
        try:
            await asyncio.sleep(self.hold_s)
            while self.most_in_flight < self.crowd and time.monotonic() < end:
                await asyncio.sleep(0.002)
        finally:
            self.in_flight -= 1
            self.bytes_in_flight -= len(answer.body)
        return answer
