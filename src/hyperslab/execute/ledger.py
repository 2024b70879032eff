"""What reads and writes cost: the ledger of one of them, the metrics of a session, the record that a sink gets."""

import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from hyperslab.errors import BudgetError
from hyperslab.plan import Budget, CostModel, Estimate, Plan

__all__ = ["Account", "Ledger", "Metrics", "ReadRecord", "Sink"]


@dataclass(slots=True)
class Ledger:
    """What one read or write has sent and received so far, failed and repeated requests included.

    `puts` and `put_bytes` are of objects written, metadata included. `calls` of a function are apart from `requests`;
    what they answered, `call_bytes`, is part of `bytes`. The function ran `function_s` that are billed, and read
    `function_bytes` from the store by `function_gets` requests of its own. A request that was cancelled counts as
    sent; of an answer that broke off, the bytes cannot be known.
    """

    reads: int = 0
    requests: int = 0
    lookups: int = 0
    bytes: int = 0
    needed_bytes: int = 0
    retries: int = 0
    cache_hits: int = 0
    seconds: float = 0.0
    usd: float = 0.0
    puts: int = 0
    put_bytes: int = 0
    deletes: int = 0
    calls: int = 0
    call_bytes: int = 0
    function_s: float = 0.0
    function_gets: int = 0
    function_bytes: int = 0

    @property
    def all_requests(self) -> int:
        """All that was sent to be read: for data, for indexes, and calls."""
        return self.requests + self.lookups + self.calls

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
        self.puts += other.puts
        self.put_bytes += other.put_bytes
        self.deletes += other.deletes
        if other.calls:
            self.calls += other.calls
            self.call_bytes += other.call_bytes
            self.function_s += other.function_s
            self.function_gets += other.function_gets
            self.function_bytes += other.function_bytes

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """One read as the workload log sees it: which cells of which array, by which means, at what cost.

    Selections that were read by one plan have a record each, and one ledger in common.

    url, shape  of the array
    axes        (start, count, step) for each axis, or the indices themselves for a list; None for points
    method, chunks, predicted  of the plan: how, how many chunks, and what it was predicted to cost
    ledger      what was really sent and received, as `Session.metrics` counts it
    started_at  seconds since 1970
    process     the number of the process that read
    error       the name of the error that ended the read; None if it gave all cells
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
    error: str | None = None


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
    """A budget being spent: reads take from it what they are predicted to cost, and give back what they did not use."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self._lock = threading.Lock()
        self._requests = 0
        self._bytes = 0
        self._usd = 0.0

    def take(self, requests: int, nbytes: int, usd: float, seconds: float = 0.0) -> str | None:
        """Take this much off the budget; if it does not hold it, take nothing and say which limit is in the way."""
        with self._lock:
            after = Estimate(
                requests=self._requests + requests,
                fetched_bytes=self._bytes + nbytes,
                # Dollars are sums of tiny parts: a rounding error is not worth a refusal.
                usd=(self._usd + usd) * (1 - 1e-9),
                seconds=seconds,
            )
            over = self.budget.exceeded(after)
            if over is None:
                self._requests, self._bytes, self._usd = after.requests, after.fetched_bytes, self._usd + usd
            return over

    def give_back(self, requests: int, nbytes: int, usd: float) -> None:
        """Put back what was taken and not used."""
        with self._lock:
            self._requests -= requests
            self._bytes -= nbytes
            self._usd -= usd

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

    def after_fork(self) -> None:
        """Forget the lock: a thread that was not forked along may hold it."""
        self._lock = threading.Lock()


class Meter:
    """Keeps a read's ledger, and what the read has taken from budgets; no request is sent that they do not hold."""

    def __init__(self, ledger: Ledger, model: CostModel, accounts: tuple[Account, ...] = ()) -> None:
        self.ledger, self.model, self.accounts = ledger, model, accounts
        self.plan: Plan | None = None
        # Taken from the accounts so far; and the bytes that requests under way may still bring.
        self._requests = self._bytes = self._coming_bytes = 0
        # What calls cost beyond requests and bytes, likewise.
        self._extra_taken_usd = 0.0
        # How long the function ran, before that is rounded up to be billed.
        self.ran_s = 0.0
        # Local files are read in several threads.
        self._lock = threading.Lock()

    def admit(self, plan: Plan) -> None:
        """Take what the plan is predicted to cost, beside what was used already, or refuse the read."""
        self.plan = plan
        if self.accounts:
            estimate, ledger = plan.estimate, self.ledger
            requests = ledger.all_requests + estimate.all_requests
            extra_usd = self._extra_usd() + self.model.extra_usd(estimate)
            over = self._hold(requests, ledger.bytes + estimate.all_bytes, estimate.seconds, extra_usd)
            if over:
                raise BudgetError(f"the read would go over its budget ({over}); read less or loosen it", plan)

    def before(self, nbytes: int, *, lookup: bool = False, call: bool = False) -> None:
        """Count a request that is about to be sent; refuse it if the budgets do not hold it."""
        ledger = self.ledger
        with self._lock:
            if self.accounts:
                over = self._hold(ledger.all_requests + 1, ledger.bytes + self._coming_bytes + nbytes)
                if over:
                    raise BudgetError(
                        f"the read was stopped at its budget ({over}), retries included; read less or loosen it",
                        self.plan,
                    )
            if call:
                ledger.calls += 1
            elif lookup:
                ledger.lookups += 1
            else:
                ledger.requests += 1
            self._coming_bytes += nbytes

    def more(self, requests: int, *, lookup: bool = False) -> None:
        """Count requests that an answer took beside the one that was counted before."""
        with self._lock:
            if lookup:
                self.ledger.lookups += requests
            else:
                self.ledger.requests += requests

    def after(self, nbytes: int, asked: int) -> None:
        """Count the bytes that came back, of a request that was to bring `asked`; none if it failed."""
        with self._lock:
            self._coming_bytes -= asked
            self.ledger.bytes += nbytes

    def after_call(self, nbytes: int, asked: int, seconds: float, gets: int, read_bytes: int) -> None:
        """Count what a call brought, and what it took beside the data; one that failed is billed as well."""
        self.after(nbytes, asked)
        function = self.model.function
        with self._lock:
            ledger = self.ledger
            ledger.call_bytes += nbytes
            self.ran_s += seconds
            ledger.function_s += seconds if function is None else function.prices.billed_s(seconds)
            ledger.function_gets += gets
            ledger.function_bytes += read_bytes

    def settle(self) -> None:
        """Price what was used, and give back the rest of what was taken."""
        ledger = self.ledger
        ledger.usd = float(self.model.usd(ledger.requests + ledger.lookups + ledger.calls, ledger.bytes))
        if ledger.calls:
            ledger.usd += self._extra_usd()
        if not self.accounts:
            return
        with self._lock:
            requests, nbytes = self._requests - ledger.all_requests, self._bytes - ledger.bytes
            taken_usd = float(self.model.usd(self._requests, self._bytes)) + self._extra_taken_usd
            for account in self.accounts:
                account.give_back(requests, nbytes, taken_usd - ledger.usd)
            self._requests, self._bytes = self._requests - requests, self._bytes - nbytes
            self._extra_taken_usd = self._extra_usd()

    def _extra_usd(self) -> float:
        """Dollars that calls have cost so far beyond what as many requests and bytes would; negative if less."""
        used = self.ledger
        if not used.calls or self.model.function is None:
            return 0.0
        counts = used.calls, used.function_s, used.function_gets, used.function_bytes, used.call_bytes
        return float(self.model.call_usd(*counts) - self.model.usd(used.calls, used.call_bytes))

    def _hold(self, requests: int, nbytes: int, seconds: float = 0.0, extra_usd: float = 0.0) -> str | None:
        """Have at least this much taken from every account; say which limit is in the way."""
        more, more_bytes = max(0, requests - self._requests), max(0, nbytes - self._bytes)
        more_usd = max(0.0, extra_usd - self._extra_taken_usd)
        if not (more or more_bytes or seconds or more_usd):
            return None
        usd = float(self.model.usd(more, more_bytes)) + more_usd
        for n, account in enumerate(self.accounts):
            over = account.take(more, more_bytes, usd, seconds)
            if over:
                for other in self.accounts[:n]:
                    other.give_back(more, more_bytes, usd)
                return over
        self._requests, self._bytes = self._requests + more, self._bytes + more_bytes
        self._extra_taken_usd += more_usd
        return None
