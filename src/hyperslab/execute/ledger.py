"""What reads cost: the ledger of one read, the metrics of a session, the record that a sink gets."""

import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from hyperslab.errors import BudgetError
from hyperslab.plan import Budget, CostModel, Estimate, Plan

__all__ = ["Account", "Ledger", "Metrics", "ReadRecord", "Sink"]


@dataclass(slots=True)
class Ledger:
    """What one read has sent and received so far, failed and repeated requests included."""

    reads: int = 0
    requests: int = 0
    lookups: int = 0
    bytes: int = 0
    needed_bytes: int = 0
    retries: int = 0
    cache_hits: int = 0
    seconds: float = 0.0
    usd: float = 0.0

    def add(self, other: "Ledger") -> None:
        # Spelled out: a loop over the fields would be a fifth of a small local read.
        self.reads += other.reads
        self.requests += other.requests
        self.lookups += other.lookups
        self.bytes += other.bytes
        self.needed_bytes += other.needed_bytes
        self.retries += other.retries
        self.cache_hits += other.cache_hits
        self.seconds += other.seconds
        self.usd += other.usd

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """One read as the workload log sees it: which cells of which array, by which means, at what cost.

    `axes` has (start, count, step) for each axis, or the indices themselves for a list; None for points.
    """

    url: str
    axes: tuple[Any, ...] | None
    shape: tuple[int, ...]
    method: str | None
    chunks: int
    predicted: Estimate | None
    ledger: Ledger
    started_at: float
    process: int


Sink = Callable[[ReadRecord], None]


class Metrics:
    """The sum of a session's ledgers; safe to read from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._total = Ledger()

    def add(self, ledger: Ledger) -> None:
        with self._lock:
            self._total.add(ledger)

    def snapshot(self) -> Ledger:
        with self._lock:
            return Ledger(**asdict(self._total))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._total, name)

    def __repr__(self) -> str:
        return repr(self.snapshot()).replace("Ledger", "Metrics")


class Account:
    """A budget being spent: reads reserve what they are predicted to cost, and give back what they did not use."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self._lock = threading.Lock()
        self._requests = 0
        self._bytes = 0
        self._usd = 0.0

    def reserve(self, estimate: Estimate, plan: Plan | None) -> None:
        """Take the estimate off the budget, or refuse."""
        with self._lock:
            after = Estimate(
                requests=self._requests + estimate.all_requests,
                fetched_bytes=self._bytes + estimate.all_bytes,
                usd=self._usd + estimate.usd,
                seconds=estimate.seconds,
            )
            over = self.budget.exceeded(after)
            if over:
                raise BudgetError(f"the read would go over its budget ({over}); read less or loosen it", plan)
            self._requests, self._bytes, self._usd = after.requests, after.fetched_bytes, after.usd

    def settle(self, estimate: Estimate, ledger: Ledger) -> None:
        """Replace a reservation by what was really used."""
        with self._lock:
            self._requests += ledger.requests + ledger.lookups - estimate.all_requests
            self._bytes += ledger.bytes - estimate.all_bytes
            self._usd += ledger.usd - estimate.usd

    def left(self) -> Budget:
        """Return the budget that is left."""
        with self._lock:
            limits = self.budget
            return Budget(
                requests=None if limits.requests is None else max(0, limits.requests - self._requests),
                bytes=None if limits.bytes is None else max(0, limits.bytes - self._bytes),
                usd=None if limits.usd is None else max(0.0, limits.usd - self._usd),
                seconds=limits.seconds,
            )


class Meter:
    """Keeps a read's ledger, and stops the read when a request would go over what it may still use."""

    def __init__(
        self, ledger: Ledger, model: CostModel, limits: tuple[Budget, ...], plan: Plan | None = None
    ) -> None:
        self.ledger, self.model, self.limits, self.plan = ledger, model, limits, plan
        # Local files are read in several threads.
        self._lock = threading.Lock()

    def before(self, nbytes: int, *, lookup: bool = False) -> None:
        """Count a request that is about to be sent; refuse it if the budget does not hold it."""
        with self._lock:
            self._before(nbytes, lookup)

    def _before(self, nbytes: int, lookup: bool) -> None:
        ledger = self.ledger
        for limit in self.limits:
            usd = ledger.usd + float(self.model.usd(1, nbytes))
            over = limit.exceeded(
                Estimate(
                    requests=ledger.requests + ledger.lookups + 1,
                    fetched_bytes=ledger.bytes + nbytes,
                    usd=usd,
                )
            )
            if over:
                raise BudgetError(f"the read was stopped at its budget ({over}), retries included", self.plan)
        if lookup:
            ledger.lookups += 1
        else:
            ledger.requests += 1
        ledger.usd += self.model.prices.request_usd

    def after(self, nbytes: int) -> None:
        """Count the bytes that came back."""
        with self._lock:
            self.ledger.bytes += nbytes
            self.ledger.usd += nbytes * self.model.prices.byte_usd
