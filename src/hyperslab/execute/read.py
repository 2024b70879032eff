"""Reading: from selections to filled arrays. Every byte of array data comes through here."""

import os
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from hyperslab.errors import (
    BudgetError,
    ConflictError,
    FormatError,
    IntegrityError,
    InternalError,
    InvalidInputError,
)
from hyperslab.execute import local, recording
from hyperslab.execute.clock import Clock
from hyperslab.execute.cutting import Cutting
from hyperslab.execute.ledger import Account, Ledger, Meter, ReadRecord
from hyperslab.execute.light import light_layout, light_selection
from hyperslab.execute.recall import Recall
from hyperslab.execute.run import Job, Run, Snapshot
from hyperslab.execute.session import Session, check_kind
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
    instead_of_calls,
    make_plan,
    pieces_of,
)
from hyperslab.selection import Points, Selection, Span
from hyperslab.store import LocalStore, Reply, Store
from hyperslab.store.call import shrink_of
from hyperslab.store.routing import route

if TYPE_CHECKING:
    from hyperslab.execute.remote import Limits

__all__ = ["Options", "ReadTask", "aread", "plan_reads", "read"]


@dataclass(frozen=True, slots=True)
class Options:
    """How a read is to be done; None takes the session's setting. One that is not `recorded` is left out of logs."""

    phi: float | None = None
    budget: Budget | None = None
    method: Method | None = None
    deadline: float | None = None
    recorded: bool = True

    def __post_init__(self) -> None:
        check_method(self.method)
        check_kind("budget", self.budget, Budget)
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
    pieces: Sequence[Pieces]
    clock: Clock
    meter: Meter
    plan: Plan | None = None
    predicted: Estimate | None = None
    started_at: float = field(default_factory=time.time)
    _recall: Recall | None = None

    @classmethod
    def of(
        cls, session: Session, tasks: Sequence[ReadTask], options: Options, own: Account | None = None
    ) -> "_Reading":
        """`own` is the budget of this call, if it has one."""
        store = tasks[0].store
        pieces = [pieces_of(task.layout, task.selection) for task in tasks]
        accounts: tuple[Account, ...] = ()
        if own is not None or session.account is not None:
            accounts = tuple([account for account in (own, session.account) if account is not None])
        clock = Clock(options.deadline, _seconds(accounts) if accounts else None)
        model = session.model(store, options.phi, forced=options.method == "call")
        meter = Meter(Ledger(reads=1), model, accounts)
        return cls(session, store, tasks, options, pieces, clock, meter)

    @property
    def recall(self) -> Recall:
        """What is at hand; reads straight from files do without."""
        if self._recall is None:
            snapshots = list({id(task.snapshot): task.snapshot for task in self.tasks}.values())
            self._recall = Recall(self.session, self.store, snapshots)
        return self._recall

    @property
    def model(self) -> CostModel:
        return self.meter.model

    @property
    def ledger(self) -> Ledger:
        return self.meter.ledger

    @property
    def direct(self) -> bool:
        """Whether the cells can be copied out of mapped files."""
        return (
            self.options.method is None
            and isinstance(self.store, LocalStore)
            and all([task.layout.decoder is None and task.layout.index is None for task in self.tasks])
            # Bytes among references are in no file; planned, they cost nothing.
            and not any([task.layout.references is not None and task.layout.references.inline for task in self.tasks])
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
                tables=recall.tables, told=recall.told, settled=settled, shrinks=self._shrinks(),
                is_cached=recall.has_chunk if recall.may_have_chunks else None,
            )  # fmt: skip
        return self.plan

    def _shrinks(self) -> list[float]:
        """Return what share of their bytes the cells of each task are expected to have in a function's answer.

        Under a budget nothing is expected that is not certain.
        """
        if not self.session.compresses or self.meter.accounts:
            return []
        return [1.0 if task.snapshot.shrink is None else task.snapshot.shrink for task in self.tasks]

    def _look_at_cells(self) -> None:
        """See, once for each array, how well its cells can be compressed."""
        for task in self.tasks if self.session.compresses else ():
            if task.snapshot.shrink is None and task.target.size:
                task.snapshot.shrink = shrink_of(task.target)

    def admit(self) -> None:
        """Refuse the read if its plan goes over a budget; else take what it is predicted to cost."""
        plan = self.plan or self.make_plan()
        self.meter.admit(plan)
        self.predicted = plan.estimate

    def finish(self, started: float) -> None:
        """Settle accounts."""
        ledger = self.ledger
        ledger.seconds = time.perf_counter() - started
        ledger.needed_bytes = _needed(self)
        self.meter.settle()
        self.session.metrics.add(ledger)

    def tell(self, error: BaseException | None = None) -> None:
        """Leave a record with those who record reads; learn from the read, and tell the sink."""
        log, own = recording.active, self.store.record
        if (log is not None or own is not None) and self.session.recorded and self.options.recorded:
            ledger, tasks = self.meter.ledger, self.tasks
            if error is not None or own is not None or len(tasks) > 1 or ledger.needed_bytes > recording.SMALL_BYTES:
                self.hand_over(error)
            elif log is not None:
                # Written out, as this may take no longer than a microsecond: neither plan nor ReadRecord is made.
                task, started_at, rows = tasks[0], self.started_at, log.rows
                rows.append((task.url, task.layout, task.selection, ledger, started_at, self.options.method, None))
                if started_at > log.due_at or len(rows) >= log.most:
                    log.write()
        # For others there is nothing to learn, nobody to tell: small reads of files are a matter of microseconds.
        if self.session.sink is not None or not isinstance(self.store, LocalStore):
            self._teach(error)

    def hand_over(self, error: BaseException | None) -> None:
        """Give the recorders rows that say which part of the read they are, and hold on to nothing large."""
        recorded = self.session.recorded and self.options.recorded
        told = recording.recorders(self.store.record) if recorded else ()
        name, read = None if error is None else type(error).__name__, recording.new_numbers(1) if told else 0
        for part, (task, pieces) in enumerate(zip(self.tasks, self.pieces, strict=True)):
            layout, selection = light_layout(task.layout), light_selection(task.selection)
            more = (read, part, _bytes_of(pieces), name)
            row = (task.url, layout, selection, self.ledger, self.started_at, self.options.method, more)
            for recorder in told:
                recorder.rows.append(row)
                if len(recorder.rows) >= recorder.most or self.started_at + self.ledger.seconds > recorder.due_at:
                    recorder.write()

    def _teach(self, error: BaseException | None) -> None:
        """Learn from a read that went well; tell the sink. What that raises does not stand before the read's error."""
        session = self.session
        try:
            if error is None and self.plan is not None and not self.plan.direct:
                session.observe(self.store, self.plan, self.ledger, self.meter.ran_s)
                self._look_at_cells()
            session.tell_news()
            if session.sink is None or self.predicted is None:
                return
            for task, pieces in zip(self.tasks, self.pieces, strict=True):
                session.sink(self._record(task, pieces, error))
        except Exception as raised:
            if error is None:
                raise
            error.add_note(f"and the session's sink raised {type(raised).__name__}: {raised}")

    def _record(self, task: ReadTask, pieces: Pieces, error: BaseException | None) -> ReadRecord:
        axes: tuple[Any, ...] | None = None
        if isinstance(task.selection, Selection):
            axes = tuple(
                (axis.start, axis.count, axis.step) if isinstance(axis, Span) else axis.indices()
                for axis in task.selection.axes
            )
        return ReadRecord(
            task.url, axes, task.layout.shape, self.options.method, len(pieces), self.predicted, self.ledger,
            self.started_at, os.getpid(), None if error is None else type(error).__name__,
        )  # fmt: skip

    def run(self) -> Run:
        """Return the plan ready to be carried out."""
        plan = self.plan or self.make_plan()
        session, recall, targets = self.session, self.recall, [task.target for task in self.tasks]
        run = Run(plan, self.store, targets, recall.snapshots, session.cache, session.indexes, recall.disk)
        run.etags.update(recall.etags)
        run.sizes.update(recall.sizes)
        return run

    def without_requests(self, run: Run, lane: int = 0, lanes: int = 1) -> None:
        """Serve what is in the cache or not stored at all; each of several lanes does its part."""
        for owner in run.plan.absent[lane::lanes]:
            run.fill(owner)
        for owner in run.plan.inline[lane::lanes]:
            run.place_inline(owner)
        for owner in run.plan.cached[lane::lanes]:
            self.clock.check()
            chunk = self.recall.chunk(run.layout_of(owner), *run.where(owner))
            if chunk is not None:
                run.place(owner, chunk)
        self.ledger.cache_hits = len(run.plan.cached)


def read(session: Session, tasks: Sequence[ReadTask], options: Options) -> Ledger:
    """Fill the targets of all tasks; return what it cost."""
    readings = _begin(session, tasks, options)
    for reading in readings:
        try:
            if isinstance(reading.store, LocalStore):
                _read_local(reading)
            else:
                started = time.perf_counter()
                if session.disk is None and reading.plan is None:
                    reading.make_plan()  # here, as other reads need the loop
                session.wait(partial(_read_remote, reading, started))
        except BaseException as error:
            _give_up(readings)
            reading.tell(error)
            raise
        reading.tell()
    return _sum([reading.ledger for reading in readings])


async def aread(session: Session, tasks: Sequence[ReadTask], options: Options) -> Ledger:
    """The same as `read`, without blocking the running loop; where it is cancelled, its requests are, too."""
    import asyncio

    readings = _begin(session, tasks, options)
    for reading in readings:
        try:
            if isinstance(reading.store, LocalStore):
                await asyncio.to_thread(_read_local, reading)
            else:
                await session.wait_async(partial(_read_remote, reading, time.perf_counter()))
        except BaseException as error:
            reading.clock.stop()
            _give_up(readings)
            reading.tell(error)
            raise
        reading.tell()
    return _sum([reading.ledger for reading in readings])


def _begin(session: Session, tasks: Sequence[ReadTask], options: Options) -> list[_Reading]:
    """Return the reads, one for each store; where there are several, all are admitted before one is begun."""
    session.check_open()
    tasks = _routed(tasks)
    own = None if options.budget is None else Account(options.budget)
    readings = [_Reading.of(session, group, options, own) for group in _by_store(tasks)]
    try:
        for reading in readings if len(readings) > 1 else ():
            reading.admit()
    except BudgetError as error:
        _give_up(readings)
        for reading in readings:
            reading.hand_over(error)
        raise
    return readings


def _seconds(accounts: tuple[Account, ...]) -> float | None:
    limits = (account.budget.seconds for account in accounts)
    return min((seconds for seconds in limits if seconds is not None), default=None)


def _give_up(readings: list[_Reading]) -> None:
    for reading in readings:
        reading.meter.settle()


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
    return _Reading.of(session, _routed(tasks), options).make_plan()


def _read_local(reading: _Reading) -> None:
    started = time.perf_counter()
    session, store, clock, meter = reading.session, reading.store, reading.clock, reading.meter
    if not isinstance(store, LocalStore):
        raise InternalError(f"{store!r} is not local")
    if reading.direct:
        _read_direct(reading, store, started)
        return
    reading.admit()
    send = partial(
        local.run_jobs, store, meter=meter, pool=session.pool, clock=clock, memory_bytes=session.memory_bytes
    )
    try:
        run = reading.run()
        if run.plan.lookups:
            found, absent = partial(reading.recall.add_table, run), partial(reading.recall.add_absent, run)
            send(run.lookups(), done=found, missing=absent, skip=_never)
            meter.admit(reading.make_plan(settled=True))
            run = reading.run()
        reading.without_requests(run)
        send(run.jobs(), done=run.done, missing=run.missing, skip=lambda job: job.number in run.gone)
    finally:
        reading.finish(started)


def _read_direct(reading: _Reading, store: LocalStore, started: float) -> None:
    session = reading.session
    if reading.meter.accounts or session.sink is not None:
        reading.admit()
    try:
        for task, pieces in zip(reading.tasks, reading.pieces, strict=True):
            local.map_pieces(store, pieces, task.target, reading.meter, session.pool, reading.clock)
    finally:
        reading.finish(started)


async def _read_remote(reading: _Reading, started: float) -> None:
    from hyperslab.execute import remote

    recall, meter = reading.recall, reading.meter
    limits = reading.session.limits(reading.store, reading.model)
    send = partial(remote.run_jobs, reading.store, meter=meter, limits=limits, clock=reading.clock)
    unconfirmed = list(recall.unconfirmed(reading.pieces))
    if not unconfirmed:
        reading.admit()
    try:
        if unconfirmed:
            # Chunks on the local disk: ask the store, without fetching them, whether they are still the current ones.
            await send(unconfirmed, done=recall.confirm, missing=_ignore, skip=_never)
            reading.plan = None
            reading.admit()
        while not await _carry_out(reading, send, limits):
            meter.admit(reading.make_plan())
    finally:
        reading.finish(started)


async def _carry_out(reading: _Reading, send: Callable[..., Awaitable[None]], limits: "Limits") -> bool:
    """Carry the plan out; False if it cannot be, as something is not where it was taken to be: then make another."""
    from hyperslab.execute import remote

    recall, run = reading.recall, reading.run()
    if run.plan.lookups:
        found, absent = partial(recall.add_table, run), partial(recall.add_absent, run)
        await send(run.lookups(), done=found, missing=absent, skip=_never)
        reading.meter.admit(reading.make_plan(settled=True))
        run = reading.run()
    await remote.in_threads(limits.pool, partial(reading.without_requests, run), len(run.plan.cached))
    if recall.forget_lost():
        return False
    fetching, recall.mistaken = _Fetching(run, recall), False
    fetch = partial(
        send, fetching.jobs(), done=fetching.done, missing=fetching.missing, skip=fetching.is_gone,
        prepare=run.prepare, heard=run.heard,
    )  # fmt: skip
    try:
        await (_fetch_and_call(reading, run, fetch, send, limits) if run.plan.calls else fetch())
    except (ConflictError, FormatError, IntegrityError):
        # Perhaps only because the metadata told of other places than those where chunks lie by now.
        if not run.plan.confirmed:
            raise
        recall.doubt([run.plan.keys[number] for number in run.plan.confirmed])
        return False
    if recall.mistaken:
        return False
    run.keep()
    return True


class _Fetching:
    """The requests for data, and those that confirm on the way what was told of shards."""

    def __init__(self, run: Run, recall: Recall) -> None:
        self.run, self.recall = run, recall

    def jobs(self) -> Iterator[Job]:
        yield from self.run.lookups()
        yield from self.run.jobs()

    def done(self, job: Job, reply: Reply) -> None:
        if job.lookup:
            self.run.check_version(job.key, reply.etag, reply.object_nbytes)
            self.recall.add_table(self.run, job, reply)
        else:
            self.run.done(job, reply)

    def missing(self, job: Job) -> None:
        if job.lookup:
            self.recall.add_absent(self.run, job)
        else:
            self.run.missing(job)

    def is_gone(self, job: Job) -> bool:
        return job.number in self.run.gone


async def _fetch_and_call(
    reading: _Reading,
    run: Run,
    fetch: Callable[[], Awaitable[None]],
    send: Callable[..., Awaitable[None]],
    limits: "Limits",
) -> None:
    """Call the function beside the data while the other chunks are fetched; what it does not give is fetched after."""
    from hyperslab.execute import remote

    caller = reading.session.caller
    if caller is None:
        raise InternalError("a plan with calls, without a function")
    cutting = Cutting(run, trusted=reading.store.address in caller.trusted)
    call = partial(remote.run_calls, cutting, caller=caller, meter=reading.meter, limits=limits, clock=reading.clock)
    await remote.both(call, fetch)
    if cutting.seen:
        await _check_function(reading, cutting, send)
        cutting.agree()
    if not cutting.failed:
        return
    rest = instead_of_calls(run.plan, cutting.failed, replace(reading.model, function=None))
    reading.meter.admit(rest)
    again = run.going_on(rest)
    await send(again.jobs(), done=again.done, missing=again.missing, skip=lambda job: job.number in again.gone)


async def _check_function(reading: _Reading, cutting: Cutting, send: Callable[..., Awaitable[None]]) -> None:
    """Compare, once, an object that the function read with the store's own; if it is another, believe no answer."""
    caller = reading.session.caller
    if caller is None:
        return
    key, etag, nbytes = cutting.seen[-1]
    same: list[bool] = []

    def compare(job: Job, reply: Reply) -> None:
        tagged = etag is None or reply.etag is None or etag == reply.etag
        same.append(tagged and reply.object_nbytes == nbytes)

    # Counted, but not held to the read's budget: it is for the session, as opening is.
    meter = Meter(reading.ledger, reading.model)
    await send([Job(-1, key, (0, 1), 1, lookup=True)], done=compare, missing=_ignore, skip=_never, meter=meter)
    if any(same):
        caller.trusted.add(reading.store.address)
        return
    caller.mistrust(key)
    cutting.distrust()


def _never(job: Job) -> bool:
    return False


def _ignore(job: Job) -> None:
    return None


def _needed(reading: _Reading) -> int:
    return sum([_bytes_of(pieces) for pieces in reading.pieces])


def _bytes_of(pieces: Pieces) -> int:
    return pieces.cells * pieces.layout.stored.itemsize


def _routed(tasks: Sequence[ReadTask]) -> Sequence[ReadTask]:
    """Return the tasks with the stores that their references lead to."""
    return [_follow(task) for task in tasks] if any([task.layout.references for task in tasks]) else tasks


def _follow(task: ReadTask) -> ReadTask:
    references = task.layout.references
    if references is None:
        return task
    store, keys = route(task.store, references.keys)
    return replace(task, store=store, layout=replace(task.layout, references=references.with_keys(keys)))


def _by_store(tasks: Sequence[ReadTask]) -> Iterable[Sequence[ReadTask]]:
    if len(tasks) == 1:
        return (tasks,)
    groups: dict[tuple[Hashable, int], list[ReadTask]] = {}
    handles: dict[Hashable, list[Hashable]] = {}
    for task in tasks:
        # One bucket may be open with two logins; a directory is the same however often it was opened.
        here: Hashable = (
            (task.store.address, task.store.record) if isinstance(task.store, LocalStore) else id(task.store)
        )
        # Two handles of one array may be of different versions of it; arrays of one version of a file go together.
        version = id(task.snapshot) if task.layout.file is None else task.layout.file
        known = handles.setdefault((here, task.layout.keys), [])
        if version not in known:
            known.append(version)
        groups.setdefault((here, known.index(version)), []).append(task)
    return groups.values()
