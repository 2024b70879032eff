"""The plan of a read: which requests are sent for which bytes, and what that is predicted to cost."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Literal, get_args

import numpy as np

from hyperslab.errors import InvalidInputError
from hyperslab.layout import Layout
from hyperslab.plan.cost import CostModel, Estimate
from hyperslab.plan.optimise import fetch, get, merge, optimise
from hyperslab.plan.paper import paper
from hyperslab.plan.pieces import Pieces
from hyperslab.plan.ranges import Ints, Needs, Ranges, Units
from hyperslab.plan.shards import choose_wholes

__all__ = ["ChunkTable", "Method", "Plan", "check_method", "direct_plan", "make_plan"]

Method = Literal["get", "merge", "fetch", "paper"]

# Offsets and lengths of a shard's chunks; -1 where a chunk is not stored.
ChunkTable = tuple[Ints, Ints]


def check_method(method: str | None) -> Method | None:
    """Return `method` if there is such a one."""
    if method is not None and method not in get_args(Method):
        raise InvalidInputError(
            f"method must be one of {', '.join(get_args(Method))} or None, not {method!r}"
        )
    return method  # type: ignore[return-value]


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """All that has to be fetched for some reads of one store.

    Pieces are numbered through all reads: piece i of `reads[r]` is owner `bases[r] + i`. `requests` are ranges
    of objects (numbers into `keys`) that hold the rows of `needs`; `wholes` are objects fetched as they are,
    with the owners that they serve; `absent` and `cached` are owners that need no request. While `lookups`
    (shards whose index is not known yet) is not empty, the plan is a bound: it is made again with the indexes.
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
    chunk_count: int = 0
    direct: bool = False

    def read_of(self, owner: int) -> tuple[int, int]:
        """Return the read that an owner belongs to, and its piece."""
        if len(self.bases) == 1:
            return 0, owner
        read = int(np.searchsorted(self.bases, owner, side="right")) - 1
        return read, owner - self.bases[read]


@dataclass(slots=True)
class _Draft:
    """A plan in the making."""

    keys: list[str] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)
    needs: list[Needs] = field(default_factory=list)
    wholes: dict[int, list[int]] = field(default_factory=dict)
    whole_bytes: dict[int, int] = field(default_factory=dict)
    lookups: dict[int, Pieces] = field(default_factory=dict)
    absent: list[int] = field(default_factory=list)
    cached: list[int] = field(default_factory=list)
    needed_bytes: int = 0

    def number(self, key: str) -> int:
        if key not in self.numbers:
            self.numbers[key] = len(self.keys)
            self.keys.append(key)
        return self.numbers[key]


def make_plan(
    reads: Sequence[Pieces],
    model: CostModel,
    method: Method | None = None,
    *,
    tables: Mapping[str, ChunkTable] | None = None,
    is_cached: Callable[[Layout, str, int], bool] | None = None,
    settled: bool = False,
) -> Plan:
    """Plan some reads of one store together.

    `tables` are the shard indexes that are known, by object key. `is_cached(layout, key, inner)` says whether a decoded
    chunk is at hand (`inner` counts chunks within the object). `settled` says that lookups are over: shards whose
    index is not known are those that an earlier plan chose to fetch whole.
    """
    draft = _Draft()
    bases = []
    base = 0
    for read in reads:
        bases.append(base)
        if read.layout.index is not None:
            _add_sharded(draft, read, base, model, method, tables or {}, is_cached, settled)
        elif read.layout.plain:
            _add_plain(draft, read, base)
        else:
            _add_encoded(draft, read, base, is_cached)
        base += len(read)
    needs = Needs.joined(draft.needs) if draft.needs else _no_needs()
    requests = _choose(needs, model, method, list(draft.whole_bytes.values()))
    estimate = _estimate(draft, needs, requests, model)
    return Plan(
        model, method, tuple(reads), tuple(bases), draft.keys, needs, requests, draft.wholes, draft.lookups,
        draft.absent, draft.cached, estimate, base,
    )  # fmt: skip


def direct_plan(reads: Sequence[Pieces], model: CostModel) -> Plan:
    """Plan reads of plain chunks in local files: one access for each chunk, exactly the needed bytes."""
    count = sum(len(read) for read in reads)
    nbytes = [read.cells * read.layout.stored.itemsize for read in reads]
    total = sum(nbytes)
    largest = max((n // max(1, len(read)) for n, read in zip(nbytes, reads, strict=True)), default=0)
    estimate = model.estimate(requests=count, needed=total, fetched=total, largest=largest)
    needs = _no_needs()
    nothing = Ranges(needs.starts, needs.starts, needs.starts)
    return Plan(
        model, None, tuple(reads), (), [], needs, nothing, {}, {}, [], [], estimate, count, direct=True
    )


def _choose(needs: Needs, model: CostModel, method: Method | None, whole_bytes: list[int]) -> Ranges:
    if not len(needs):
        return Ranges(needs.starts, needs.starts, needs.starts)
    if method is None:
        return optimise(
            needs,
            model,
            others=len(whole_bytes),
            other_bytes=sum(whole_bytes),
            other_largest=max(whole_bytes, default=0),
        )
    if method == "paper":
        return paper(needs, model)
    return {"get": get, "merge": merge, "fetch": fetch}[method](needs)


def _add_plain(draft: _Draft, read: Pieces, base: int) -> None:
    """Chunks that are objects (or parts of one) whose cells lie at known places."""
    layout = read.layout
    objects = np.array([draft.number(layout.keys.key(coords)) for coords in read.chunks()], np.int64)
    if not len(objects):
        return
    pieces, starts, stops = read.runs()
    lows = np.full(len(objects), layout.base, np.int64)
    if layout.base:
        starts, stops = starts + layout.base, stops + layout.base
    chunks = Units(objects, lows, lows + layout.chunk_nbytes)
    # Points may name a cell twice.
    draft.needs.append(
        Needs.sorted(
            chunks, pieces, pieces + base if base else pieces, starts, stops,
            layout.stored.itemsize, overlapping=not hasattr(read, "parts"),
        )
    )  # fmt: skip
    draft.needed_bytes += read.cells * layout.stored.itemsize


def _add_encoded(
    draft: _Draft, read: Pieces, base: int, is_cached: Callable[[Layout, str, int], bool] | None
) -> None:
    """Chunks that are whole objects of a size that is not known beforehand."""
    layout = read.layout
    for piece, coords in enumerate(read.chunks()):
        key = layout.keys.key(coords)
        if is_cached is not None and is_cached(layout, key, 0):
            draft.cached.append(base + piece)
            continue
        number = draft.number(key)
        draft.wholes.setdefault(number, []).append(base + piece)
        draft.whole_bytes[number] = layout.chunk_nbytes
    draft.needed_bytes += read.cells * layout.stored.itemsize


def _add_sharded(
    draft: _Draft,
    read: Pieces,
    base: int,
    model: CostModel,
    method: Method | None,
    tables: Mapping[str, ChunkTable],
    is_cached: Callable[[Layout, str, int], bool] | None,
    settled: bool,
) -> None:
    """Chunks inside shards: ranges where the shard's index is known, else its lookup, or the shard whole."""
    layout = read.layout
    wanted: dict[int, list[tuple[int, int]]] = {}
    for piece, coords in enumerate(read.chunks()):
        key, inner = layout.keys.key(layout.object_of(coords)), layout.inner_of(coords)
        if is_cached is not None and is_cached(layout, key, inner):
            draft.cached.append(base + piece)
        else:
            wanted.setdefault(draft.number(key), []).append((piece, inner))
    draft.needed_bytes += read.cells * layout.stored.itemsize
    unknown = {number: len(wanted[number]) for number in wanted if draft.keys[number] not in tables}
    # Two reads of one shard must agree.
    wholes = draft.wholes.keys() & unknown.keys()
    if settled:
        wholes = set(unknown)
    elif not method:
        open_choice = {n: unknown[n] for n in unknown if n not in wholes and n not in draft.lookups}
        wholes |= choose_wholes(layout, open_choice, model)
    extents: list[tuple[int, int, int, int]] = []
    for number, pairs in wanted.items():
        if number in wholes:
            draft.wholes.setdefault(number, []).extend(base + piece for piece, _ in pairs)
            index_nbytes = layout.index.nbytes if layout.index is not None else 0
            draft.whole_bytes[number] = prod(layout.chunks_per_object) * layout.chunk_nbytes + index_nbytes
        elif draft.keys[number] in tables:
            offsets, lengths = tables[draft.keys[number]]
            for piece, inner in pairs:
                if offsets[inner] < 0:
                    draft.absent.append(base + piece)
                else:
                    extents.append((piece, number, int(offsets[inner]), int(offsets[inner] + lengths[inner])))
        else:
            draft.lookups[number] = read
            size = layout.chunk_nbytes
            extents += [(piece, number, inner * size, (inner + 1) * size) for piece, inner in pairs]
    if extents:
        draft.needs.append(_needs_of_extents(read, base, np.array(extents, np.int64)))


def _needs_of_extents(read: Pieces, base: int, extents: Ints) -> Needs:
    """Needs of chunks that lie anywhere in their objects: whole ones if encoded, runs if plain."""
    extents = extents[np.lexsort((extents[:, 2], extents[:, 1]))]
    pieces, objects, lows, highs = np.ascontiguousarray(extents.T)
    # An index may lead to one place from two chunks.
    overlapping = bool(((objects[1:] == objects[:-1]) & (lows[1:] < highs[:-1])).any())
    units = np.arange(len(pieces))
    chunks = Units(objects, lows, highs)
    if not read.layout.plain:
        return Needs.sorted(chunks, units, pieces + base, lows, highs, 0, overlapping=overlapping)
    owners, starts, stops = read.runs()
    unit_of = np.full(len(read), -1, np.int64)
    unit_of[pieces] = units
    stored = unit_of[owners] >= 0
    owners, starts, stops = owners[stored], starts[stored], stops[stored]
    lows = lows[unit_of[owners]]
    return Needs.sorted(
        chunks, unit_of[owners], owners + base, starts + lows, stops + lows, read.layout.stored.itemsize,
        overlapping=overlapping or not hasattr(read, "parts"),
    )  # fmt: skip


def _no_needs() -> Needs:
    none = np.zeros(0, np.int64)
    return Needs(Units(none, none, none), none, none, none, none, 0)


def _estimate(draft: _Draft, needs: Needs, requests: Ranges, model: CostModel) -> Estimate:
    whole_bytes = list(draft.whole_bytes.values())
    return model.estimate(
        requests=len(requests) + len(whole_bytes),
        needed=draft.needed_bytes,
        fetched=requests.nbytes + sum(whole_bytes),
        largest=max([requests.largest, *whole_bytes]),
        lookups=len(draft.lookups),
        lookup_bytes=sum([read.layout.index.nbytes for read in draft.lookups.values() if read.layout.index]),
        exact=not draft.wholes and not draft.lookups,
    )
