"""The plan of a read: which requests are sent for which bytes, and what that is predicted to cost."""

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from math import isinf, prod
from typing import Literal, TypeGuard, get_args

import numpy as np

from hyperslab.errors import InvalidInputError, UnsupportedError
from hyperslab.layout import ChunkTable, Layout
from hyperslab.layout.wire import travels
from hyperslab.plan.calls import Choice, Query, choose_calls, worth_calling
from hyperslab.plan.cost import CostModel, Estimate, FunctionModel
from hyperslab.plan.decompose import stored_strides
from hyperslab.plan.draft import Draft, IsCached
from hyperslab.plan.grouping import Call
from hyperslab.plan.obvious import obvious
from hyperslab.plan.optimise import MAX_REQUEST_BYTES, fetch, get, merge, optimise
from hyperslab.plan.paper import paper
from hyperslab.plan.pieces import MOST_RUNS, BoxPieces, Pieces, chunk_count_of
from hyperslab.plan.ranges import Needs, Ranges
from hyperslab.selection import AxisParts

__all__ = ["Method", "Plan", "check_method", "direct_plan", "instead_of_calls", "make_plan"]

Method = Literal["get", "merge", "fetch", "paper", "call"]

# A function that reads less of a chunk takes hardly less long.
_LEAST_BAND_BYTES = 1 << 20

# Seconds that it takes to look for calls, about: where they cannot spare as much, requests alone are sent.
_SEARCH_S = 0.01

# More requests than one for each chunk, and requests beside calls, have to be better by so much than fewer, or calls
# alone: each can meet a connection that was idle, and together they may be more than the line takes at once.
_ALIKE = 1.1
# Less is asked of those that are cheaper as well, as they fetch less: at least what predictions are off by.
_DEARER_ALIKE = 1.03

# Boxes of up to so many cells may have their plans remembered.
_SMALL_CELLS = 4096

_NO_NEEDS, _NO_REQUESTS = Needs.nothing(), Ranges.nothing()


def check_method(method: str | None) -> Method | None:
    """Return `method` if there is such a one."""
    if method is not None and method not in get_args(Method):
        raise InvalidInputError(f"method must be one of {', '.join(get_args(Method))} or None, not {method!r}")
    return method  # type: ignore[return-value]


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """All that has to be fetched for some reads of one store.

    Pieces are numbered through all reads: piece i of `reads[r]` is owner `bases[r] + i`. `requests` are ranges
    of objects (numbers into `keys`) that hold the rows of `needs`; `wholes` are objects fetched as they are,
    with the owners that they serve; `absent`, `cached` and `inline` are owners that need no request. While `lookups`
    (shards whose index is not known yet) is not empty, the plan is a bound: it is made again with the indexes.
    `confirmed` are shards whose index was told: it is read along with the data, to see whether that was right.
    `calls` are of a function beside the data; `call_needs` and `call_wholes` are what would be needed without it.
    A `direct` plan sends no requests: the cells are copied out of mapped files.
    """

    model: CostModel
    method: Method | None
    reads: tuple[Pieces, ...]
    bases: tuple[int, ...]
    keys: list[str]
    needs: Needs
    requests: Ranges
    wholes: dict[int, list[int]]
    lookups: dict[int, Pieces]
    absent: list[int]
    cached: list[int]
    estimate: Estimate
    piece_count: int = 0
    direct: bool = False
    calls: tuple[Call, ...] = ()
    call_needs: Needs = _NO_NEEDS
    call_wholes: dict[int, list[int]] = field(default_factory=dict)
    confirmed: dict[int, Pieces] = field(default_factory=dict)
    inline: list[int] = field(default_factory=list)
    # The rows of `needs` that each request may hold, where that is known already: see `row_spans`.
    spans: list[tuple[int, int]] | None = None

    def __str__(self) -> str:
        from hyperslab.plan.explain import describe  # told by the room's last file, which knows plans

        return describe(self)

    @property
    def chunk_count(self) -> int:
        """How many chunks are touched; one that two reads touch counts twice."""
        return sum([chunk_count_of(read) for read in self.reads])

    @property
    def largest_bytes(self) -> int:
        """The most bytes that one request, or call, brings."""
        wholes = [self.reads[self.read_of(owners[0])[0]].layout.stored_size.nbytes for owners in self.wholes.values()]
        return max([self.requests.largest, *wholes, *[call.reply_bytes for call in self.calls]])

    def row_spans(self) -> list[tuple[int, int]]:
        """Return for each request the first row of `needs` that it may hold, and the row after the last."""
        if self.spans is not None:
            return self.spans
        firsts, lasts = self.needs.rows_in(self.requests)
        return list(zip(firsts.tolist(), lasts.tolist(), strict=True))

    def read_of(self, owner: int) -> tuple[int, int]:
        """Return the read that an owner belongs to, and its piece."""
        if len(self.bases) == 1:
            return 0, owner
        read = bisect_right(self.bases, owner) - 1
        return read, owner - self.bases[read]


def make_plan(
    reads: Sequence[Pieces],
    model: CostModel,
    method: Method | None = None,
    *,
    tables: Mapping[str, ChunkTable] | None = None,
    told: Collection[str] = (),
    is_cached: IsCached | None = None,
    settled: bool = False,
    shrinks: Sequence[float] = (),
) -> Plan:
    """Plan some reads of one store together.

    `tables` are the shard indexes that are known, by object key; those in `told` are not certain. `is_cached(layout,
    key, inner)` says whether a decoded chunk is at hand (`inner` counts chunks within the object). `settled` says that
    lookups are over: shards whose index is not known are those that an earlier plan chose to fetch whole. `shrinks`
    are, one for each read, what share of their bytes cells are expected to have in a function's compressed answer.
    """
    if method == "fetch" and sum([read.run_count for read in reads]) > MOST_RUNS:
        raise InvalidInputError(f"method 'fetch' would send over {MOST_RUNS:,} requests; use another, or read less")
    if method == "call":
        _check_callable(reads, model)
    if method is None and len(reads) == 1 and _is_small_box(reads[0]):
        box = _plan_small_box(reads[0], model)
        if box is not None:
            return box
    if method is None and (plan := _plan_obvious(reads, model, tables or {}, told, is_cached)) is not None:
        return plan
    if model.function is not None and method in (None, "call"):
        reads = _in_bands(reads, model.function, hurry=not isinf(model.phi))
    return _plan_any(reads, model, method, tables or {}, is_cached, settled, shrinks, told)


def direct_plan(reads: Sequence[Pieces], model: CostModel) -> Plan:
    """Plan reads of plain chunks in local files: one access for each chunk, exactly the needed bytes."""
    count = sum([len(read) for read in reads])
    nbytes = [read.cells * read.layout.stored.itemsize for read in reads]
    total = sum(nbytes)
    largest = max([n // max(1, len(read)) for n, read in zip(nbytes, reads, strict=True)], default=0)
    estimate = model.estimate(requests=count, needed=total, fetched=total, largest=largest)
    return Plan(
        model, None, tuple(reads), (), [], _NO_NEEDS, _NO_REQUESTS, {}, {}, [], [], estimate, count, direct=True
    )


def _plan_any(
    reads: Sequence[Pieces],
    model: CostModel,
    method: Method | None,
    tables: Mapping[str, ChunkTable],
    is_cached: IsCached | None,
    settled: bool,
    shrinks: Sequence[float] = (),
    told: Collection[str] = (),
) -> Plan:
    draft = Draft(model, tables, is_cached, method is None, settled, shrinks, told)
    for read in reads:
        draft.add(read)
    needs = draft.all_needs()
    if model.function is not None and method in (None, "call"):
        return _plan_with_calls(draft, needs, method)
    requests = _choose(needs, model, method, draft.others)
    return Plan(
        model, method, tuple(reads), tuple(draft.bases), draft.keys, needs, requests, draft.wholes, draft.lookups,
        draft.absent, draft.cached, draft.estimate(requests), draft.count, confirmed=draft.confirmed,
        inline=draft.inline,
    )  # fmt: skip


def _plan_with_calls(draft: Draft, needs: Needs, method: Method | None) -> Plan:
    """Choose among all three ways."""
    model = draft.model
    if method is None and not isinf(model.phi):
        best = _best(needs, model, draft.others)
        requests = _or_fewer(best, needs, model, draft.others)
        estimate = draft.estimate(requests)
        choice = None
        if worth_calling(model.weigh(estimate), model.least_with_call(0, 0), _SEARCH_S):
            # Calls are chosen without a thought to what is confirmed beside them.
            known = None if draft.confirmed else best
            choice = _choose_calls(Query(needs, draft.whole_bytes, draft.offers(needs), model, known), requests)
        if choice is None or choice.grouped is None:
            return Plan(
                model, None, tuple(draft.reads), tuple(draft.bases), draft.keys, needs, requests, draft.wholes,
                draft.lookups, draft.absent, draft.cached, estimate, draft.count, confirmed=draft.confirmed,
                inline=draft.inline,
            )  # fmt: skip
    else:
        query = Query(needs, draft.whole_bytes, draft.offers(needs), model)
        choice = choose_calls(query, all_of_them=method == "call")
    call_wholes = {number: draft.wholes.pop(number) for number in choice.objects}
    for number in choice.objects:
        del draft.whole_bytes[number]
    called, rest = (needs.only(choice.units), needs.without(choice.units)) if len(choice.units) else (_NO_NEEDS, needs)
    calls = choice.calls
    return Plan(
        draft.model, method, tuple(draft.reads), tuple(draft.bases), draft.keys, rest, choice.requests, draft.wholes,
        draft.lookups, draft.absent, draft.cached, draft.estimate(choice.requests, calls), draft.count,
        calls=calls, call_needs=called, call_wholes=call_wholes, confirmed=draft.confirmed,
        inline=draft.inline,
    )  # fmt: skip


def _choose_calls(query: Query, requests: Ranges) -> Choice:
    """Choose calls; requests beside them, or instead of them if they are many, only if these are worth it.

    As `_ALIKE` says: they share the line, and calls bring less over it. Many are more than one for each chunk;
    `requests` are those that would be sent without calls.
    """
    best = choose_calls(query, spare=_SEARCH_S, alike=_ALIKE)
    if not len(best.requests) or (best.grouped is None and len(requests) <= len(merge(query.needs))):
        return best
    alone = choose_calls(query, all_of_them=True)
    fewer = len(alone.requests) < len(best.requests)
    worth = alone.grouped is not None and fewer and alone.rank[0] <= _ALIKE * best.rank[0]
    return alone if worth else best


def _in_bands(reads: Sequence[Pieces], function: FunctionModel, *, hurry: bool) -> Sequence[Pieces]:
    """Divide plain chunks of which more is wanted than an answer holds; and in a hurry, more chunks.

    Where fewer are touched than a function has instances at once, each instance then reads a part of a chunk, which
    takes it less long; the optimiser may put parts together again. Where only money counts nothing is gained by that:
    every part is a request more.
    """
    pieces, at_once = sum([len(read) for read in reads]), function.profile.at_once
    bands = -(-at_once // pieces) if hurry and 0 < pieces < at_once else 1
    return [
        _divided(read, bands, function.reply_bytes) if isinstance(read, BoxPieces) and read.layout.plain else read
        for read in reads
    ]


def _divided(read: BoxPieces, bands: int, reply_bytes: int) -> BoxPieces:
    cells = prod([max(part.counts, default=0) for part in read.parts])
    # Not quite full: bands are not all alike, and answers have headers.
    fitting = -(-cells * read.layout.stored.itemsize // (reply_bytes * 7 // 8))
    bands = max(fitting, min(bands, read.reach_bytes() // _LEAST_BAND_BYTES))
    return read.in_bands(bands) if bands > 1 else read


def _check_callable(reads: Sequence[Pieces], model: CostModel) -> None:
    if model.function is None:
        raise InvalidInputError("method 'call' needs a function beside the data: Session(function=…)")
    for read in reads:
        if (reason := travels(read.layout)) is not None:
            raise UnsupportedError(f"method 'call' cannot be used here: {reason}; leave it out")


def instead_of_calls(plan: Plan, failed: Sequence[Call], model: CostModel) -> Plan:
    """Plan what some calls were to bring once more, by requests alone."""
    owners = {owner for call in failed for owner in call.owners}
    rows = np.isin(plan.call_needs.owners, list(owners))
    needs = plan.call_needs.only(plan.call_needs.units[rows])
    wholes = {number: mine for number, mine in plan.call_wholes.items() if owners.issuperset(mine)}
    sizes = [plan.reads[plan.read_of(mine[0])[0]].layout.stored_size for mine in wholes.values()]
    whole_bytes = [size.nbytes for size in sizes]
    requests = _choose(needs, model, None, whole_bytes)
    estimate = model.estimate(
        requests=len(requests) + len(wholes),
        needed=int((needs.stops - needs.starts).sum()) + sum(whole_bytes),
        fetched=requests.nbytes + sum(whole_bytes),
        largest=max([requests.largest, *whole_bytes]),
        exact=all([size.exact for size in sizes]),
    )
    return Plan(
        model, None, plan.reads, plan.bases, plan.keys, needs, requests, wholes, {}, [], [], estimate, len(owners)
    )


def _choose(needs: Needs, model: CostModel, method: Method | None, other_bytes: list[int]) -> Ranges:
    """Choose the requests for ranges; `other_bytes` are what others bring that are sent at the same time."""
    if not len(needs):
        return _NO_REQUESTS
    if method is None:
        return _or_fewer(_best(needs, model, other_bytes), needs, model, other_bytes)
    if method == "paper":
        return paper(needs, model)
    return {"get": get, "merge": merge, "fetch": fetch}[method](needs)


def _best(needs: Needs, model: CostModel, other_bytes: list[int]) -> Ranges:
    total, largest = sum(other_bytes), max(other_bytes, default=0)
    return optimise(needs, model, others=len(other_bytes), other_bytes=total, other_largest=largest)


def _or_fewer(best: Ranges, needs: Needs, model: CostModel, other_bytes: list[int]) -> Ranges:
    """Return the best requests, or one for each chunk where they are fewer and as good, in seconds or in dollars."""
    if best.one_each:
        return best
    joined = merge(needs)
    if isinf(model.phi) or len(joined) >= len(best) or joined.largest > MAX_REQUEST_BYTES:
        return best
    count, total, largest = len(other_bytes), sum(other_bytes), max(other_bytes, default=0)
    costs = [model.cost(count + len(each), total + each.nbytes, max(largest, each.largest)) for each in (joined, best)]
    usd = [model.usd(count + len(each), total + each.nbytes) for each in (joined, best)]
    return joined if costs[0] <= (_ALIKE if usd[0] <= usd[1] else _DEARER_ALIKE) * costs[1] else best


def _plan_obvious(
    reads: Sequence[Pieces],
    model: CostModel,
    tables: Mapping[str, ChunkTable],
    told: Collection[str],
    is_cached: IsCached | None,
) -> Plan | None:
    """Plan reads for which there is one way, without a call; None if there is more to decide."""
    if model.function is not None and isinf(model.phi):
        return None
    found = obvious(reads, model, tables, told, is_cached)
    if found is None or (
        model.function is not None
        and worth_calling(model.weigh(found.estimate), model.least_with_call(0, 0), _SEARCH_S)
    ):
        return None
    bases = tuple(accumulate([len(read) for read in reads[:-1]], initial=0))
    return Plan(
        model, None, tuple(reads), bases, found.keys, found.needs, found.requests, {}, {}, [], [], found.estimate,
        len(found.needs), spans=found.spans,
    )  # fmt: skip


def _is_small_box(read: Pieces) -> TypeGuard[BoxPieces]:
    """Say whether a read is of a few cells, evenly spaced, near each other in one plain chunk that is an object."""
    return (
        isinstance(read, BoxPieces)
        and read.layout.plain
        and not read.layout.packed
        and read.cells <= _SMALL_CELLS
        and all([len(part.chunks) == 1 and part.picks is None for part in read.parts])
        and read.reach_bytes() < 2 * _LEAST_BAND_BYTES
    )


def _plan_small_box(read: BoxPieces, model: CostModel) -> Plan | None:
    """Shift the plan of the same box at its chunk's start to where this one lies; None if it is by calls.

    Boxes of one shape are read again and again, each elsewhere; within a chunk, what is best for one is for all.
    """
    layout = read.layout
    plan = _plan_at_start(layout, read.counts, tuple([part.step for part in read.parts]), model)
    if plan.calls:
        return None
    shift = sum([part.lows[0] * stride for part, stride in zip(read.parts, stored_strides(layout), strict=True)])
    rows, sent = plan.needs, plan.requests
    needs = Needs(rows.chunks, rows.units, rows.owners, rows.starts + shift, rows.stops + shift, rows.align)
    requests = Ranges(sent.objects, sent.starts + shift, sent.stops + shift, sent.align)
    keys = [layout.keys.key(tuple([part.chunks[0] for part in read.parts]))]
    return Plan(model, None, (read,), (0,), keys, needs, requests, {}, {}, [], [], plan.estimate, 1)


@lru_cache(maxsize=256)
def _plan_at_start(layout: Layout, counts: tuple[int, ...], steps: tuple[int, ...], model: CostModel) -> Plan:
    parts = tuple([AxisParts([0], [0], [count], [0], step) for count, step in zip(counts, steps, strict=True)])
    return _plan_any([BoxPieces(layout, parts, counts)], model, None, {}, None, settled=False)
