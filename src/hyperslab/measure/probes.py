"""Probes: ranges of one object, asked for at once through the executor and timed, never beyond what was allowed."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from hyperslab.errors import BudgetError, DeadlineError, NotFoundError, StoreError
from hyperslab.execute import Ledger, Session
from hyperslab.execute.clock import Clock
from hyperslab.execute.ledger import Meter
from hyperslab.execute.remote import Gate, Limits, run_jobs
from hyperslab.execute.run import Job
from hyperslab.store import Reply, Store

__all__ = ["Prober", "SpentError", "Target", "Timing"]

# A store that fails this often is not measured: what it answers in between says little.
_MOST_FAILURES = 8
# What a probe may hold in memory while it runs.
_HELD_BYTES = 1 << 30


class SpentError(Exception):
    """The time or the bytes that were allowed are used up: what was seen until then has to do."""


@dataclass(frozen=True, slots=True)
class Target:
    """The object whose ranges are read; `encoded` are the places of encoded chunks in it, one after another."""

    key: str
    nbytes: int
    etag: str | None
    encoded: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Timing:
    """A probe: so many requests at once, of so many bytes each, took so long.

    `kind` is what it was for: "connect", "answer", "alone", "small" or "level". The first of a pair opens connections
    and lets them pick up speed; it is not `steady`, and nothing is fitted to it.
    """

    kind: str
    requests: int
    size_bytes: int
    seconds: float
    steady: bool = True

    @property
    def nbytes(self) -> int:
        return self.requests * self.size_bytes


class Prober:
    """Sends probes until time or bytes run out; every request is metered and counts against the session's budget."""

    def __init__(self, session: Session, store: Store, end: float, tell: Callable[[str], None]) -> None:
        self.session, self.store, self.tell = session, store, tell
        self.end = end
        self.target = Target("", 0, None)
        self.timings: list[Timing] = []
        self.failures = 0
        self._chance = np.random.default_rng()

    def now(self) -> float:
        """Return the time on the clock by which `end` is set."""
        return time.monotonic()

    def rest(self, seconds: float) -> None:
        """Send nothing for a while."""
        time.sleep(seconds)

    def left_s(self) -> float:
        """Return the seconds that probes may still take."""
        return self.end - self.now()

    def left_bytes(self) -> int:
        """Return the bytes that may still be moved."""
        account = self.session.account
        left = None if account is None else account.left().bytes
        return 0 if left is None else left

    def seen(self, kind: str) -> list[Timing]:
        """Return what steady probes of a kind have shown."""
        return [each for each in self.timings if each.kind == kind and each.steady]

    def fits(self, nbytes: int, expected_s: float) -> bool:
        """Whether a probe of so many bytes, expected to take so long, is within what is left."""
        return nbytes <= self.left_bytes() and expected_s < self.left_s()

    def probe(self, kind: str, requests: int, size_bytes: int, *, steady: bool = True) -> Timing | None:
        """Ask for random ranges, all at once; return what was seen, None if a request failed."""
        size_bytes = min(size_bytes, self.target.nbytes)
        if not self.fits(requests * size_bytes, 0.0):
            raise SpentError
        try:
            seconds = self._timed(requests, size_bytes)
        except (DeadlineError, BudgetError):
            raise SpentError from None
        except StoreError as error:
            self.failures += 1
            if not error.transient or self.failures > _MOST_FAILURES:
                raise
            return None
        self.timings.append(Timing(kind, requests, size_bytes, seconds, steady))
        return self.timings[-1]

    def starts(self, count: int, size_bytes: int, within_bytes: int | None = None) -> list[int]:
        """Return where in the object, or in so many bytes, ranges of that size begin, at random."""
        whole = self.target.nbytes if within_bytes is None else max(within_bytes, size_bytes)
        return [int(start) for start in self._chance.integers(0, whole - size_bytes + 1, count)]

    def _timed(self, requests: int, size_bytes: int) -> float:
        session, store = self.session, self.store
        accounts = () if session.account is None else (session.account,)
        meter, clock = Meter(Ledger(), session.model(store), accounts), Clock(self.left_s())
        # A read puts its answers in place, which takes time, too.
        buffer = np.empty((requests, size_bytes), np.uint8)

        def done(job: Job, reply: Reply) -> None:
            buffer[job.number] = np.frombuffer(reply.data, np.uint8)

        async def send() -> None:
            # Nothing is sent again: a pause between two attempts is not the store's time.
            limits = Limits(
                concurrency=requests, flight_bytes=_HELD_BYTES, flight_requests=requests, memory=Gate(_HELD_BYTES),
                retries=0, timeout_s=session.timeout_s, pool=session.pool(),
            )  # fmt: skip
            jobs = self._jobs(requests, size_bytes)
            await run_jobs(
                store, jobs, done=done, missing=_missing, skip=_never, meter=meter, limits=limits, clock=clock
            )

        started = time.perf_counter()
        try:
            session.wait(send)
        finally:
            ended = time.perf_counter()
            meter.settle()
            session.metrics.add(meter.ledger)
        return ended - started

    def _jobs(self, requests: int, size_bytes: int) -> Iterator[Job]:
        target = self.target
        for number, start in enumerate(self.starts(requests, size_bytes)):
            yield Job(number, target.key, (start, start + size_bytes), size_bytes, target.etag)


def _missing(job: Job) -> None:
    raise NotFoundError(f"{job.key!r} is gone: it was removed while it was measured; measure again")


def _never(_: Job) -> bool:
    return False
