"""Reading: from selections to filled arrays. Every byte of array data comes through here."""

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from hyperslab.errors import BudgetError, InternalError, InvalidInputError
from hyperslab.execute import local
from hyperslab.execute.ledger import Ledger, Meter, ReadRecord
from hyperslab.execute.local import Clock
from hyperslab.execute.recall import Recall
from hyperslab.execute.run import Job, Run, Snapshot
from hyperslab.execute.session import Session
from hyperslab.layout import Layout
from hyperslab.plan import (
    Budget,
    CostModel,
    Estimate,
    Method,
    Pieces,
    Plan,
    check_method,
    direct_plan,
    make_plan,
    pieces_of,
)
from hyperslab.selection import Points, Selection, Span
from hyperslab.store import LocalStore, Store

if TYPE_CHECKING:
    from hyperslab.execute.remote import Limits

__all__ = ["Options", "ReadTask", "aread", "plan_reads", "read"]


@dataclass(frozen=True, slots=True)
class Options:
    """How a read is to be done; None takes the session's setting."""

    phi: float | None = None
    budget: Budget | None = None
    method: Method | None = None
    deadline: float | None = None

    def __post_init__(self) -> None:
        check_method(self.method)
        if self.phi is not None and not self.phi >= 0:
            raise InvalidInputError(f"phi must be 0 or more, not {self.phi}")
        if self.deadline is not None and not self.deadline > 0:
            raise InvalidInputError(f"a deadline is in seconds above 0, not {self.deadline}")


@dataclass(frozen=True, slots=True, eq=False)
class ReadTask:
    """A selection of an opened array, and the array that its cells go into (canonical, or flat for points)."""

    url: str
    store: Store
    layout: Layout
    snapshot: Snapshot
    selection: Selection | Points
    target: npt.NDArray[Any]


@dataclass(slots=True, eq=False)
class _Reading:
    """One read of one store on its way."""

    session: Session
    store: Store
    tasks: Sequence[ReadTask]
    options: Options
    model: CostModel
    pieces: Sequence[Pieces]
    clock: Clock
    recall: Recall
    ledger: Ledger = field(default_factory=lambda: Ledger(reads=1))
    plan: Plan | None = None
    reserved: Estimate | None = None

    @classmethod
    def of(cls, session: Session, tasks: Sequence[ReadTask], options: Options) -> "_Reading":
        store = tasks[0].store
        pieces = [pieces_of(task.layout, task.selection) for task in tasks]
        recall = Recall(session, store, list({id(task.snapshot): task.snapshot for task in tasks}.values()))
        model = session.model(store, options.phi)
        return cls(session, store, tasks, options, model, pieces, Clock(options.deadline), recall)

    @property
    def direct(self) -> bool:
        """Whether the cells can be copied out of mapped files."""
        return (
            self.options.method is None
            and isinstance(self.store, LocalStore)
            and all([task.layout.decoder is None and task.layout.index is None for task in self.tasks])
        )

    def make_plan(self, *, settled: bool = False) -> Plan:
        """Plan with the indexes and chunks that are at hand; `settled` once the lookups are done."""
        if self.direct:
            self.plan = direct_plan(self.pieces, self.model)
        else:
            recall = self.recall
            recall.find_tables(self.pieces)
            self.plan = make_plan(
                self.pieces, self.model, self.options.method,
                tables=recall.tables, is_cached=recall.has_chunk, settled=settled,
            )  # fmt: skip
        return self.plan

    def limits(self) -> tuple[Budget, ...]:
        """The budgets that hold while the read runs."""
        account, reserved = self.session.account, self.reserved
        own = (self.options.budget,) if self.options.budget is not None else ()
        if account is None or reserved is None:
            return own
        # What the session had left before this read's own reservation.
        left = account.left()
        return (
            *own,
            Budget(
                requests=None if left.requests is None else left.requests + reserved.all_requests,
                bytes=None if left.bytes is None else left.bytes + reserved.all_bytes,
                usd=None if left.usd is None else left.usd + reserved.usd,
            ),
        )

    def admit(self) -> Meter:
        """Refuse the read if its plan goes over a budget; else reserve what it is predicted to cost."""
        plan = self.plan or self.make_plan()
        if self.options.budget is not None:
            _refuse_over(self.options.budget, plan)
        if self.session.account is not None:
            self.session.account.reserve(plan.estimate, plan)
            self.reserved = plan.estimate
        return Meter(self.ledger, self.model, self.limits(), plan)

    def finish(self, started: float) -> None:
        """Settle accounts and tell the sink."""
        session, ledger = self.session, self.ledger
        ledger.seconds = time.perf_counter() - started
        if self.reserved is not None and session.account is not None:
            session.account.settle(self.reserved, ledger)
        session.metrics.add(ledger)
        if session.sink is not None:
            for task, pieces in zip(self.tasks, self.pieces, strict=True):
                session.sink(self._record(task, pieces))

    def _record(self, task: ReadTask, pieces: Pieces) -> ReadRecord:
        axes: tuple[Any, ...] | None = None
        if isinstance(task.selection, Selection):
            axes = tuple(
                (axis.start, axis.count, axis.step) if isinstance(axis, Span) else axis.indices()
                for axis in task.selection.axes
            )
        predicted = self.plan.estimate if self.plan is not None else None
        return ReadRecord(
            task.url, axes, task.layout.shape, self.options.method, len(pieces), predicted, self.ledger,
            time.time() - self.ledger.seconds, os.getpid(),
        )  # fmt: skip

    def run(self) -> Run:
        """Return the plan ready to be carried out."""
        plan = self.plan or self.make_plan()
        session, targets = self.session, [task.target for task in self.tasks]
        run = Run(plan, self.store, targets, self.recall.snapshots, session.cache, self.recall.disk)
        run.etags.update(self.recall.etags)
        return run

    def without_requests(self, run: Run) -> None:
        """Serve what is in the cache or not stored at all."""
        for owner in run.plan.absent:
            run.fill(owner)
        for owner in run.plan.cached:
            run.place(owner, self.recall.hits[run.where(owner)])
        self.ledger.cache_hits = len(run.plan.cached)


def read(session: Session, tasks: Sequence[ReadTask], options: Options) -> Ledger:
    """Fill the targets of all tasks; return what it cost."""
    session.check_open()
    ledgers = []
    for group in _by_store(tasks):
        reading = _Reading.of(session, group, options)
        if isinstance(reading.store, LocalStore):
            _read_local(reading)
        else:
            _wait(session, reading)
        ledgers.append(reading.ledger)
    return _sum(ledgers)


async def aread(session: Session, tasks: Sequence[ReadTask], options: Options) -> Ledger:
    """The same as `read`, without blocking the running loop."""
    import asyncio

    session.check_open()
    ledgers = []
    for group in _by_store(tasks):
        reading = _Reading.of(session, group, options)
        if isinstance(reading.store, LocalStore):
            await asyncio.to_thread(_read_local, reading)
        else:
            await asyncio.wrap_future(session.submit(_read_remote(reading)))
        ledgers.append(reading.ledger)
    return _sum(ledgers)


def _sum(ledgers: list[Ledger]) -> Ledger:
    if len(ledgers) == 1:
        return ledgers[0]
    total = Ledger()
    for ledger in ledgers:
        total.add(ledger)
    return total


def plan_reads(session: Session, tasks: Sequence[ReadTask], options: Options) -> Plan:
    """Return the plan of tasks that all read one store; nothing is sent."""
    session.check_open()
    return _Reading.of(session, tasks, options).make_plan()


def _wait(session: Session, reading: _Reading) -> None:
    """Run a remote read on the session's loop; an interrupt cancels it before it is passed on."""
    future = session.submit(_read_remote(reading))
    try:
        future.result()
    except BaseException:
        future.cancel()
        raise


def _read_local(reading: _Reading) -> None:
    started = time.perf_counter()
    session, store = reading.session, reading.store
    if not isinstance(store, LocalStore):
        raise InternalError(f"{store!r} is not local")
    try:
        if reading.direct:
            _read_direct(reading, store)
            return
        meter = reading.admit()
        run = reading.run()
        if run.plan.lookups:
            first = run
            local.run_jobs(
                store, first.lookups(), done=lambda job, reply: reading.recall.add_table(first, job, reply),
                missing=lambda job: reading.recall.add_absent(first, job), skip=_never,
                meter=meter, pool=session.pool, clock=reading.clock, memory_bytes=session.memory_bytes,
            )  # fmt: skip
            reading.make_plan(settled=True)
            run = reading.run()
        reading.without_requests(run)
        local.run_jobs(
            store, run.jobs(), done=run.done, missing=run.missing, skip=lambda job: job.number in run.gone,
            meter=meter, pool=session.pool, clock=reading.clock, memory_bytes=session.memory_bytes,
        )  # fmt: skip
    finally:
        reading.ledger.needed_bytes = _needed(reading)
        reading.finish(started)


def _read_direct(reading: _Reading, store: LocalStore) -> None:
    session = reading.session
    if reading.options.budget is not None or session.account is not None or session.sink is not None:
        meter = reading.admit()
    else:
        meter = Meter(reading.ledger, reading.model, ())
    for task, pieces in zip(reading.tasks, reading.pieces, strict=True):
        local.map_pieces(store, pieces, task.target, meter, session.pool, reading.clock)


async def _read_remote(reading: _Reading) -> None:
    from hyperslab.execute import remote

    started = time.perf_counter()
    try:
        limits = reading.session.limits(reading.model)
        if reading.session.disk is not None:
            await _confirm(reading, limits)
        meter = reading.admit()
        run = reading.run()
        if run.plan.lookups:
            first = run
            await remote.run_jobs(
                reading.store, first.lookups(), done=lambda job, reply: reading.recall.add_table(first, job, reply),
                missing=lambda job: reading.recall.add_absent(first, job), skip=_never, meter=meter, limits=limits,
                deadline_s=reading.clock.left_s(),
            )  # fmt: skip
            reading.make_plan(settled=True)
            run = reading.run()
        reading.without_requests(run)
        await remote.run_jobs(
            reading.store, run.jobs(), done=run.done, missing=run.missing, skip=lambda job: job.number in run.gone,
            meter=meter, limits=limits, deadline_s=reading.clock.left_s(),
        )  # fmt: skip
    finally:
        reading.ledger.needed_bytes = _needed(reading)
        reading.finish(started)


async def _confirm(reading: _Reading, limits: "Limits") -> None:
    """Ask the store, without fetching, whether chunks on the local disk are of the current version."""
    import asyncio

    async def one(key: str, etag: str) -> None:
        async with limits.in_flight:
            reading.ledger.lookups += 1
            reading.ledger.usd += reading.model.prices.request_usd
            await asyncio.get_running_loop().run_in_executor(limits.pool, reading.recall.confirm, key, etag)

    await asyncio.gather(*(one(key, etag) for key, etag in reading.recall.unconfirmed(reading.pieces).items()))


def _never(job: Job) -> bool:
    return False


def _needed(reading: _Reading) -> int:
    return sum([pieces.cells * pieces.layout.stored.itemsize for pieces in reading.pieces])


def _by_store(tasks: Sequence[ReadTask]) -> Iterable[Sequence[ReadTask]]:
    if len(tasks) == 1:
        return (tasks,)
    groups: dict[str, list[ReadTask]] = {}
    for task in tasks:
        groups.setdefault(task.store.address, []).append(task)
    return groups.values()


def _refuse_over(budget: Budget, plan: Plan) -> None:
    over = budget.exceeded(plan.estimate)
    if over:
        raise BudgetError(f"the read would go over its budget ({over}); read less or loosen it", plan)
