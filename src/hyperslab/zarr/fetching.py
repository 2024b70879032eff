"""Bytes of objects for zarr-python: what is asked for together is planned together, what was read is kept.

zarr-python asks for one chunk at a time, whole objects or ranges of them. Ranges that are asked for at the same moment
become one plan, which joins those that lie near each other by the session's cost model. In a store that is only read,
answers stay in the session's cache, by the version of their object; another version than the one that was seen first is
a ConflictError, as for every handle of Hyperslab.
"""

import threading
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hyperslab.errors import ConflictError, IntegrityError, InternalError
from hyperslab.execute import Session
from hyperslab.execute.file import send_lookups
from hyperslab.execute.run import Job
from hyperslab.execute.write import StoreWriter
from hyperslab.plan.optimise import optimise
from hyperslab.plan.ranges import Needs, Units
from hyperslab.store import Reply, Store
from hyperslab.store import Span as StoreSpan

__all__ = ["Fetcher", "Range", "Wanted"]

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Wanted:
    """A range of an object."""

    key: str
    start: int
    stop: int


class Fetcher:
    """Reads the objects of one store, in any thread; with `keeps`, through the session's cache."""

    def __init__(self, session: Session, store: Store, *, keeps: bool) -> None:
        self.session, self.store, self.keeps = session, store, keeps
        # The version and the size of each object as it was first seen.
        self._versions: dict[str, tuple[str, int]] = {}
        self._lock = threading.Lock()

    def whole(self, key: str) -> bytes | None:
        """Return an object, None if it is not there."""
        return self._get(key, None, "all")

    def last(self, key: str, nbytes: int) -> bytes | None:
        """Return the last bytes of an object, all if it has no more; None if it is not there."""
        return self._get(key, -nbytes, ("last", nbytes)) if nbytes else self._nothing(key)

    def ranges(self, wanted: Sequence[Wanted]) -> list[bytes | None]:
        """Return the bytes of each range, fewer at an object's end, by one plan; None if an object is not there."""
        found = {each: self._kept_range(each) for each in wanted}
        missing = [each for each, data in found.items() if data is None]
        small = {each.key for each in missing if self._is_small(each.key)}
        for each in [each for each in missing if each.key in small]:
            data = self.whole(each.key)
            found[each] = None if data is None else data[each.start : each.stop]
        found |= self._fetch([each for each in missing if each.key not in small])
        return [found[each] for each in wanted]

    def _nothing(self, key: str) -> bytes | None:
        return None if self.whole(key) is None else b""

    def _get(self, key: str, span: StoreSpan, part: Hashable) -> bytes | None:
        kept = self._kept(key, part)
        if kept is not None:
            return kept
        reply = StoreWriter(self.session, self.store).get(key, span)
        if reply is None:
            return None
        self._see(key, reply)
        data = bytes(reply.data)
        self._keep(key, part, data)
        return data

    def _fetch(self, wanted: Sequence[Wanted]) -> dict[Wanted, bytes | None]:
        """Return ranges that are not at hand, by one plan."""
        found: dict[Wanted, bytes | None] = dict.fromkeys(wanted)
        unread = [each for each in wanted if each.start < each.stop]
        answers: dict[Job, Reply] = {}
        jobs = self._plan(unread)
        try:
            send_lookups(self.session, self.store, jobs, answers.__setitem__, lambda job: None)
        except IntegrityError:
            # A range goes beyond the end of its object, which zarr-python may ask for.
            return {each: None if (data := self.whole(each.key)) is None else _cut(data, each) for each in wanted}
        for job, reply in answers.items():
            self._see(job.key, reply)
        for each in unread:
            job = _job_of(each, jobs)
            if job in answers:
                low = each.start - _start(job)
                found[each] = bytes(answers[job].data[low : low + each.stop - each.start])
                self._keep(each.key, (each.start, each.stop), found[each] or b"")
        return found | {each: self._nothing(each.key) for each in wanted if each.start >= each.stop}

    def _plan(self, wanted: Sequence[Wanted]) -> list[Job]:
        """Return the requests that bring these ranges at the least cost."""
        if not wanted:
            return []
        keys = list(dict.fromkeys(each.key for each in wanted))
        rows = sorted({(keys.index(each.key), each.start, each.stop) for each in wanted})
        objects, starts, stops = np.array(rows, np.int64).T
        numbers = np.arange(len(rows))
        chunks = Units(objects, starts, stops)
        needs = Needs.sorted(chunks, numbers, numbers, starts, stops, 0, overlapping=True)
        plan = optimise(needs, self.session.model(self.store))
        parts = zip(plan.objects.tolist(), plan.starts.tolist(), plan.stops.tolist(), strict=True)
        return [
            Job(-1, keys[number], (low, high), high - low, self._etag(keys[number])) for number, low, high in parts
        ]  # fmt: skip

    def _is_small(self, key: str) -> bool:
        """Whether an object takes no longer to fetch whole than another request would take."""
        seen = self._versions.get(key) if self.keeps else None
        return seen is not None and seen[1] <= self.session.model(self.store).gap_bytes()

    def _etag(self, key: str) -> str | None:
        seen = self._versions.get(key) if self.keeps else None
        return None if seen is None else seen[0]

    def _see(self, key: str, reply: Reply) -> None:
        if not self.keeps or reply.etag is None:
            return
        with self._lock:
            seen = self._versions.setdefault(key, (reply.etag, reply.object_nbytes))
        if seen[0] != reply.etag:
            raise ConflictError(f"{key!r} was changed since the store was opened; open it again")

    def _name(self, etag: str, key: str, part: Hashable) -> Hashable:
        return "bytes", self.store.address, key, etag, part

    def _kept(self, key: str, part: Hashable) -> bytes | None:
        etag = self._etag(key)
        found: Any = None if etag is None else self.session.cache.get(self._name(etag, key, part))
        return found if isinstance(found, bytes) else None

    def _kept_range(self, wanted: Wanted) -> bytes | None:
        whole = self._kept(wanted.key, "all")
        return self._kept(wanted.key, (wanted.start, wanted.stop)) if whole is None else _cut(whole, wanted)

    def _keep(self, key: str, part: Hashable, data: bytes) -> None:
        etag = self._etag(key)
        if etag is not None:
            self.session.cache.put(self._name(etag, key, part), data, len(data))


def _cut(data: bytes, wanted: Wanted) -> bytes:
    return data[wanted.start : wanted.stop]


def _start(job: Job) -> int:
    return job.span[0] if isinstance(job.span, tuple) else 0


def _job_of(wanted: Wanted, jobs: Sequence[Job]) -> Job:
    """Return the request that brings a range."""
    for job in jobs:
        if job.key == wanted.key and isinstance(job.span, tuple) and job.span[0] <= wanted.start < job.span[1]:
            return job
    raise InternalError(f"no request was planned for bytes {wanted.start}..{wanted.stop} of {wanted.key!r}")
