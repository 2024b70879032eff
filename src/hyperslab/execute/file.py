"""Parts of one stored file that describe what is in it: fetched together, kept by the file's version."""

import threading
from bisect import bisect_right, insort
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from hyperslab.errors import ConflictError, IntegrityError
from hyperslab.execute import local
from hyperslab.execute.clock import Clock
from hyperslab.execute.disk import DiskCache
from hyperslab.execute.ledger import Ledger, Meter
from hyperslab.execute.run import Job
from hyperslab.execute.session import Session
from hyperslab.layout import FileVersion
from hyperslab.store import LocalStore, Reply, Store

__all__ = ["StoredFile"]

T = TypeVar("T")

# The first request for a file: most files have their directory, and small ones all of their metadata, in it.
_FIRST_BYTES = 64 << 10
# A request for little brings this much, as its neighbours are likely to be asked for next.
_AHEAD_BYTES = 16 << 10
_FEW_REQUESTS = 8
# Between parts that are asked for together, up to so many other bytes are fetched along.
_GAP_BYTES = 64 << 10
# What a file's metadata may take in memory; beyond, parts are fetched again.
_HELD_BYTES = 256 << 20
# The name under which a file's metadata is kept.
_BYTES = "bytes"


class StoredFile:
    """One version of a stored file, read in parts.

    What was fetched from a remote store is held, in the session's cache and on its disk, for the next who opens
    the same version. `etag` and `size` are of the version; a part of any other raises ConflictError.
    """

    def __init__(self, session: Session, store: Store, key: str, head: Reply) -> None:
        self.session, self.store, self.key = session, store, key
        self.size, self.etag = head.object_nbytes, head.etag
        # Local files are as quick as a copy of them.
        self._holds = not self.local
        self._held = self.recall(_BYTES, _Ranges.unpack) or _Ranges()
        self._held.add(0, head.data)

    @classmethod
    def open(cls, session: Session, store: Store, key: str, version: FileVersion | None = None) -> "StoredFile | None":
        """Return the file under `key`, None if there is none; of that version, where one is given."""
        if version is not None:
            return cls(session, store, key, Reply(memoryview(b""), version.etag, version.nbytes))
        head = _ask_head(session, store, key)
        return None if head is None else cls(session, store, key, head)

    @property
    def version(self) -> FileVersion:
        return FileVersion(self.etag, self.size)

    @property
    def local(self) -> bool:
        """Whether a request costs next to nothing."""
        return isinstance(self.store, LocalStore)

    def read(self, start: int, nbytes: int) -> memoryview:
        """Return these bytes."""
        return self.read_many([(start, nbytes)])[0]

    def read_many(self, spans: Sequence[tuple[int, int]]) -> list[memoryview]:
        """Return the bytes of each (start, length), fetched together in as few requests as is worth it."""
        for start, nbytes in spans:
            if start < 0 or nbytes < 0 or start + nbytes > self.size:
                raise IntegrityError(
                    f"{self.key!r} is cut off or damaged: it has {self.size} bytes, and refers to {nbytes} at {start}"
                )
        held = [self._held.find(*span) for span in spans]
        missing = sorted({span for span, found in zip(spans, held, strict=True) if found is None})
        if not missing:
            return [found for found in held if found is not None]
        fetched = _Ranges()
        for low, data in self._fetch(self._group(missing)):
            fetched.add(low, data)
        views = [fetched.find(*span) if found is None else found for span, found in zip(spans, held, strict=True)]
        if self._holds:
            self._held.take(fetched)
        return [view for view in views if view is not None]

    def passing(self) -> "StoredFile":
        """Return the same file for parts that are not worth being held: what is made of them is remembered."""
        other = copy(self)
        other._holds = False
        return other

    def recall(self, what: str, unpack: Callable[[bytes], T]) -> T | None:
        """Return what was remembered of this version of the file under that name, here or on the disk; or None."""
        if self.etag is None:
            return None
        value: T | None = self.session.indexes.get(self._name(what))
        if value is None and self._disk is not None:
            packed = self._disk.get(self.store.address, self.key, self.etag, what)
            value = None if packed is None else unpack(packed)
            if packed is not None:
                self.session.indexes.put(self._name(what), value, len(packed))
        return value

    def remember(self, what: str, value: T, pack: Callable[[T], bytes]) -> None:
        """Keep something that was made out of the file for others who open this version, also in other processes."""
        if self.etag is None:
            return
        packed = pack(value)
        self.session.indexes.put(self._name(what), value, len(packed))
        if self._disk is not None:
            self._disk.put(self.store.address, self.key, self.etag, what, memoryview(packed))

    def keep(self) -> None:
        """Keep what was fetched and held so far, in the same way."""
        if self._holds and self._held.changed:
            self._held.changed = False
            self.remember(_BYTES, self._held, _Ranges.pack)

    def held(self, what: str) -> Any:
        """Return what is held in memory of this version of the file under that name, or None."""
        return None if self.etag is None else self.session.indexes.get(self._name(what))

    def hold(self, what: str, value: Any, nbytes: int) -> None:
        """Hold something made out of the file in memory, as long as there is room for `nbytes`."""
        if self.etag is not None:
            self.session.indexes.put(self._name(what), value, nbytes)

    @property
    def _disk(self) -> DiskCache | None:
        return None if self.local else self.session.disk

    def _name(self, what: str) -> tuple[str, str, str | None, str]:
        return self.store.address, self.key, self.etag, what

    def _group(self, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return the (start, stop) to ask for: near ones as one, and more of few."""
        gap = min(self.session.model(self.store).gap_bytes(), _GAP_BYTES)
        groups: list[tuple[int, int]] = []
        for start, nbytes in spans:
            if groups and start - groups[-1][1] <= gap:
                groups[-1] = groups[-1][0], max(groups[-1][1], start + nbytes)
            else:
                groups.append((start, start + nbytes))
        if len(groups) <= _FEW_REQUESTS and not self.local:
            groups = [(low, min(self.size, max(high, low + _AHEAD_BYTES))) for low, high in groups]
        return [(low, high) for low, high in groups if low < high]

    def _fetch(self, ranges: list[tuple[int, int]]) -> list[tuple[int, memoryview]]:
        found: list[tuple[int, memoryview]] = []

        def done(job: Job, reply: Reply) -> None:
            if reply.etag != self.etag or reply.object_nbytes != self.size:
                raise ConflictError(f"file {self.key!r} changed while it was read; open it again")
            found.append((job.span[0], reply.data))  # type: ignore[index]

        jobs = [Job(-1, self.key, span, span[1] - span[0], self.etag, lookup=True) for span in ranges]
        send_lookups(self.session, self.store, jobs, done, self._missing)
        return found

    def _missing(self, job: Job) -> None:
        raise ConflictError(f"file {self.key!r} vanished while it was read; open it again")


class _Ranges:
    """Some byte ranges of a file."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._data: dict[int, memoryview] = {}
        self.nbytes = 0
        self.changed = False
        self._lock = threading.Lock()

    def add(self, start: int, data: memoryview) -> None:
        """Take in a range; of two that start at one place the longer stays."""
        with self._lock:
            old = self._data.get(start)
            if not len(data) or (old is not None and len(old) >= len(data)):
                return
            if old is None:
                insort(self._starts, start)
            self.nbytes += len(data) - (0 if old is None else len(old))
            self._data[start] = data
            self.changed = True

    def take(self, other: "_Ranges") -> None:
        """Take in the ranges of another, as long as there is room."""
        for start, data in other._data.items():
            if self.nbytes + len(data) <= _HELD_BYTES:
                self.add(start, data)

    def find(self, start: int, nbytes: int) -> memoryview | None:
        """Return these bytes if one range has all of them."""
        if not nbytes:
            return memoryview(b"")
        with self._lock:
            at = bisect_right(self._starts, start)
            # Ranges may overlap, as they were read ahead: the last few that begin before it may have it.
            for low in reversed(self._starts[max(0, at - 4) : at]):
                data = self._data[low]
                if start + nbytes <= low + len(data):
                    return data[start - low : start - low + nbytes]
        return None

    def pack(self) -> bytes:
        """Return all ranges as bytes."""
        with self._lock:
            places = np.array([[start, len(self._data[start])] for start in self._starts], "<i8")
            head = np.array([len(self._starts)], "<i8").tobytes() + places.tobytes()
            return b"".join([head, *(self._data[start] for start in self._starts)])

    @staticmethod
    def unpack(packed: bytes) -> "_Ranges":
        """Return the ranges that `pack` made the bytes of; the disk cache has checked that they are these."""
        ranges, count = _Ranges(), int(np.frombuffer(packed, "<i8", 1)[0])
        places = np.frombuffer(packed, "<i8", 2 * count, 8).reshape(count, 2)
        at = 8 + places.nbytes
        for start, nbytes in places.tolist():
            ranges.add(start, memoryview(packed)[at : at + nbytes])
            at += nbytes
        ranges.changed = False
        return ranges


def _ask_head(session: Session, store: Store, key: str) -> Reply | None:
    """Return the file's first bytes, None if there is no such file."""
    found: list[Reply] = []
    job = Job(-1, key, (0, _FIRST_BYTES), _FIRST_BYTES, lookup=True)
    try:
        send_lookups(session, store, [job], lambda _, reply: found.append(reply), _ignore)
    except IntegrityError:
        # Shorter than that: it can as well be read whole.
        whole = replace(job, span=None)
        send_lookups(session, store, [whole], lambda _, reply: found.append(reply), _ignore)
    return found[0] if found else None


def send_lookups(
    session: Session,
    store: Store,
    jobs: list[Job],
    done: Callable[[Job, Reply], None],
    missing: Callable[[Job], None],
) -> None:
    """Send requests for metadata, within the limits, retries and budget of the session; its metrics count them."""
    session.check_open()
    accounts = () if session.account is None else (session.account,)
    meter, clock = Meter(Ledger(), session.model(store), accounts), Clock(None)

    async def send() -> None:
        from hyperslab.execute import remote

        limits = session.limits(store, meter.model)
        await remote.run_jobs(
            store, jobs, done=done, missing=missing, skip=_never, meter=meter, limits=limits, clock=clock
        )

    try:
        if isinstance(store, LocalStore):
            local.run_jobs(
                store, jobs, done=done, missing=missing, skip=_never,
                meter=meter, pool=session.pool, clock=clock, memory_bytes=session.memory_bytes,
            )  # fmt: skip
        else:
            session.wait(send)
    finally:
        meter.settle()
        session.metrics.add(meter.ledger)


def _never(job: Job) -> bool:
    return False


def _ignore(job: Job) -> None:
    return None
