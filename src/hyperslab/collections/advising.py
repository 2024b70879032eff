"""Advice on a collection: which arrays should share a pack and which be kept in the tier, by what is read together.

Each way to plan (by the log itself, by an order fitted on attributes) and each size of packs is made from a part of the
queries and held against the rest; what does best there is made again from all of them. What is told of the result is
its cost on the queries that it was made from, and on those that it had not seen.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hyperslab.collections.catalog import Catalog, Ints, read_catalog
from hyperslab.collections.index import Index
from hyperslab.collections.plans import Plan
from hyperslab.collections.queries import By, Log, read_log
from hyperslab.collections.touching import KeyPrices, Touches, measure_keys, measure_touches, tier_weights
from hyperslab.errors import InvalidInputError
from hyperslab.plan import AccessPrices
from hyperslab.tune.placement.problem import KEYED, Cost, Placement, Problem, Queries, cost_of

if TYPE_CHECKING:
    from hyperslab.collections.collection import Collection
    from hyperslab.tune.placement.folds import Chosen

__all__ = ["Findings", "HeldOut", "Settings", "Tell", "checked", "find_plan"]

Tell = Callable[[int, int], None]
# Sizes of packs that are tried where none is given.
_SIZES = tuple(1 << power for power in (16, 18, 20, 22, 24))
# Fewer arrays than these in a pack are no consolidation.
_LEAST_MEMBERS = 4
# Attributes that an order is fitted on where none are named.
_MOST_COLUMNS = 3
# A change has to spare so much of the cost of reads to be advised: figures are predictions.
_WORTH = 0.05


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user wants: see `Collection.advise`."""

    key_bytes: int | None = None
    pack_bytes: int | None = None
    order_by: Sequence[str] | None = None
    by: By = "read"
    compare: bool = False
    folds: int = 5
    phi: float | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class HeldOut:
    """The cost of a query, on average: of those that a plan was made from, and of those that it had not seen."""

    trained: float
    held_out: float | None


@dataclass(frozen=True, slots=True, eq=False)
class Findings:
    """The plan, and what queries cost with it and without.

    `now` and `best` are of all queries together; `told` of one, on average. `sizes` are held-out costs by the size of
    packs, `baselines` those of the paper's plans, None for one that cannot be made here.
    """

    plan: Plan
    arrays: int
    queries: int
    lost: int
    pack_bytes: int
    key_bytes: int
    keyed_arrays: int
    packs: int
    packs_now: int
    touches: Touches
    keys: KeyPrices | None
    prices: AccessPrices
    now: Cost
    best: Cost
    told: HeldOut
    bound: float
    way: str
    ways: Mapping[str, HeldOut]
    sizes: Mapping[int, float]
    baselines: Mapping[str, HeldOut | None]

    @property
    def keep(self) -> bool:
        """Whether the arrays had better stay where they are."""
        after = self.told.trained if self.told.held_out is None else self.told.held_out
        return after > (1 - _WORTH) * self.now.seconds / self.queries


def find_plan(collection: "Collection", workload: Any, settings: Settings, tell: Tell | None = None) -> Findings:
    """Search for the plan that queries like those of the workload cost least with."""
    columns = _columns(collection.manifest.columns, settings.order_by)
    index = Index(collection.session, collection.store, collection.path, collection.manifest)
    catalog = read_catalog(index, columns)
    log = read_log(workload, collection.url, catalog, settings.by)
    return _Search(collection, catalog, log, settings, columns, tell).run()


class _Search:
    """All that plans are made from. Arrays are those with cells: empty ones lie nowhere."""

    def __init__(
        self,
        collection: "Collection",
        catalog: Catalog,
        log: Log,
        settings: Settings,
        columns: Sequence[str],
        tell: Tell | None,
    ) -> None:
        self.catalog, self.log, self.settings = catalog, log, settings
        self.uuid = collection.manifest.uuid
        self.kept = np.flatnonzero(catalog.nbytes > 0)
        self.nbytes = catalog.nbytes[self.kept]
        self.queries = self._queries()
        self.attributes = _attributes(catalog, columns, self.kept)
        self.touches = measure_touches(
            collection.session, collection.store, collection.path, catalog, settings.phi
        )  # fmt: skip
        tier = None if collection.tier is None else collection.tier.guard.tier
        self.key_bytes = _key_bytes(settings.key_bytes, None if tier is None else tier.capacity_bytes)
        self.keys: KeyPrices | None = None
        self.weights = self.nbytes
        if tier is not None and self.key_bytes:
            self.keys = measure_keys(tier, int(np.average(self.nbytes, weights=1 + self.queries.read_by())))
            self.weights = tier_weights(tier, self.nbytes)
        self._steps, self._done, self._tell = 0, 0, tell

    def run(self) -> Findings:
        runs = float(self.queries.times.sum())
        folds = int(min(self.settings.folds, runs))
        sizes = self._sizes()
        self._steps = (len(sizes) if len(sizes) > 1 else 0) + 1 + (6 if self.settings.compare else 0)
        compared = {size: self._try(self.problem(size)) for size in sizes} if len(sizes) > 1 else {}
        size = min(compared, key=lambda size: compared[size]) if compared else sizes[0]
        problem = self.problem(size)
        chosen = self._choose(problem, folds)
        placement = chosen.placement
        self._step()
        ways = {way: HeldOut(each.trained_s, each.held_out_s) for way, each in chosen.ways.items()}
        now, packs_now = self._now()
        told = HeldOut(placement.cost.seconds / runs, chosen.held_out_s if ways else None)
        from hyperslab.tune.placement.bound import lower_bound

        return Findings(
            self._plan(problem, placement, chosen.order.order), len(self.kept), round(runs), self.log.lost, size,
            self.key_bytes, int((placement.pack_of == KEYED).sum()), int(placement.pack_of.max(initial=-1)) + 1,
            packs_now, self.touches, self.keys, problem.prices, now, placement.cost, told,
            lower_bound(problem) / runs, placement.by, ways, compared, self._baselines(problem, folds),
        )  # fmt: skip

    def _queries(self) -> Queries:
        own = np.full(len(self.catalog), -1, np.int64)
        own[self.kept] = np.arange(len(self.kept))
        found = Queries.of([each[each >= 0] for each in (own[query] for query in self.log.queries)], len(self.kept))
        if not len(found):
            raise InvalidInputError("all arrays that were read are empty: there is nothing to place")
        return found

    def problem(self, size: int) -> Problem:
        """Return the problem of placing all arrays in packs of that many bytes.

        What an array takes of the tier is more than its bytes, and weighs; a pack's limit is scaled by the least that
        it is more, so that both limits hold.
        """
        room = int(size * float((self.weights / self.nbytes).min()))
        # A tier of one's own bills nothing for a request.
        keys = KeyPrices(0.0, 0.0) if self.keys is None or self.touches.in_dollars else self.keys
        prices = AccessPrices(self.touches.cost(size), keys.key_s, keys.request_s)
        limit = self.key_bytes if self.keys is not None else 0
        return Problem.of(self.queries, max(1, room), prices, keys=limit, weights=self.weights)

    def _sizes(self) -> list[int]:
        given = self.settings.pack_bytes
        if given is not None:
            return [given]
        least, total = _LEAST_MEMBERS * float(np.median(self.nbytes)), int(self.nbytes.sum())
        if self.touches.mapped:
            # A touch of a mapped file costs the same however large it is, and fewer are touched the larger they are.
            return [_SIZES[-1]]
        return [size for size in _SIZES if least <= size < 2 * total] or [_SIZES[-1]]

    def _try(self, problem: Problem) -> float:
        """Return what a query that was not seen costs with packs of a size, by the better way; one split tells."""
        from hyperslab.tune.placement.folds import WAYS, split
        from hyperslab.tune.placement.orders import fit_order

        parts = [(problem.queries, problem.queries)]
        if problem.queries.times.sum() >= 2:
            parts = split(problem.queries, 2, self.settings.seed)
        known, unknown = parts[0]
        told, asked = problem.reading(known), problem.reading(unknown)
        order = fit_order(told, self.attributes)
        made = [make(told, order, self.settings.seed) for make in WAYS.values()]
        self._step()
        return min(cost_of(asked, each.pack_of).seconds for each in made) / float(unknown.times.sum())

    def _choose(self, problem: Problem, folds: int) -> "Chosen":
        from hyperslab.tune.placement.folds import Chosen, choose
        from hyperslab.tune.placement.orders import fit_order
        from hyperslab.tune.placement.planner import plan

        if folds >= 2:
            return choose(problem, self.attributes, folds=folds, seed=self.settings.seed)
        order = fit_order(problem, self.attributes)
        found = plan(problem, order=order.order, seed=self.settings.seed)
        return Chosen(replace(found, by="log"), order, {})

    def _now(self) -> tuple[Cost, int]:
        """Return what the queries cost with arrays as they lie now, and in how many packs that is."""
        catalog = self.catalog
        packs, pack_of = np.unique(catalog.pack[self.kept], return_inverse=True)
        sizes = np.array([catalog.packs[pack][1] for pack in packs.tolist()], np.float64)
        keyed = catalog.keyed[self.kept] if self.keys is not None else np.zeros(len(self.kept), np.bool_)
        # Of the packs that are touched, not of all.
        rows = self.queries.rows * len(packs) + pack_of[self.queries.indices]
        touched = np.unique(rows[~keyed[self.queries.indices]])
        times = self.queries.times[touched // len(packs)]
        mean = float(np.average(sizes[touched % len(packs)], weights=times)) if len(touched) else float(sizes.mean())
        problem = self.problem(int(mean))
        return cost_of(problem, np.where(keyed, KEYED, pack_of)), len(packs)

    def _plan(self, problem: Problem, placement: Placement, order: Ints) -> Plan:
        """Return where all arrays are to lie. Those of the tier have packs of their own, for when it fails."""
        from hyperslab.tune.placement.packing import in_order

        keyed, pack_of = placement.pack_of == KEYED, placement.pack_of.copy()
        apart = order[keyed[order]]
        pack_of[apart] = pack_of.max(initial=-1) + 1 + in_order(problem.weights[apart], problem.pack)
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        lying = np.lexsort((rank, pack_of))
        return Plan(self.uuid, self.catalog.id[self.kept[lying]], pack_of[lying], keyed[lying])

    def _baselines(self, problem: Problem, folds: int) -> dict[str, HeldOut | None]:
        if not self.settings.compare:
            return {}
        from hyperslab.tune.placement.baselines import BASELINES

        found: dict[str, HeldOut | None] = {}
        for name in BASELINES:
            try:
                found[name] = self._baseline(problem, name, folds)
            except InvalidInputError:
                # METIS is not installed.
                found[name] = None
            self._step()
        return found

    def _baseline(self, problem: Problem, name: str, folds: int) -> HeldOut:
        from hyperslab.tune.placement.baselines import baseline
        from hyperslab.tune.placement.folds import split

        seed, after = self.settings.seed, []
        for known, unknown in split(problem.queries, folds, seed) if folds >= 2 else ():
            placement = baseline(problem.reading(known), name, seed=seed)
            after.append(cost_of(problem.reading(unknown), placement.pack_of).seconds / float(unknown.times.sum()))
        whole = baseline(problem, name, seed=seed).cost.seconds / float(problem.queries.times.sum())
        return HeldOut(whole, float(np.mean(after)) if after else None)

    def _step(self) -> None:
        self._done += 1
        if self._tell is not None:
            self._tell(self._done, self._steps)


def _key_bytes(given: int | None, capacity: int | None) -> int:
    if capacity is None:
        if given:
            raise InvalidInputError(
                "key_bytes are of a tier, and the collection has none; open it with tier='redis://host:6379/0'"
            )
        return 0
    return capacity if given is None else min(given, capacity)


def _columns(types: Mapping[str, str], wanted: Sequence[str] | None) -> tuple[str, ...]:
    if wanted is None:
        return tuple([column for column in sorted(types) if types[column] != "str"][:_MOST_COLUMNS])
    if isinstance(wanted, str) or not all(isinstance(column, str) for column in wanted):
        raise InvalidInputError(f"order_by is a list of attributes, not {wanted!r:.80}")
    for column in wanted:
        if column not in types:
            known = ", ".join(sorted(types)) or "none"
            raise InvalidInputError(f"no array has an attribute {column!r:.80}; there are: {known:.400}")
    return tuple(wanted)


def _attributes(catalog: Catalog, columns: Sequence[str], kept: Ints) -> npt.NDArray[np.float64] | None:
    """Return attributes as numbers, texts by their order; an array that lacks one has its median."""
    found = []
    for column in columns:
        values = [catalog.columns[column][at] for at in kept.tolist()]
        if any(isinstance(value, str) for value in values):
            places = {text: at for at, text in enumerate(sorted({value for value in values if value is not None}))}
            values = [None if value is None else places[value] for value in values]
        numbers = np.array([np.nan if value is None else float(value) for value in values])
        numbers[np.isinf(numbers)] = np.nan
        known = numbers[~np.isnan(numbers)]
        found.append(np.where(np.isnan(numbers), np.median(known) if len(known) else 0.0, numbers))
    return np.stack(found, axis=1) if found else None


def checked(settings: Settings) -> Settings:
    """Return what the user wants, if that can be."""
    for name, least in (("key_bytes", 0), ("pack_bytes", 1), ("folds", 1)):
        value = getattr(settings, name)
        if value is not None and (type(value) is not int or not least <= value < 1 << 62):
            raise InvalidInputError(f"{name} is a whole number from {least} on, not {value!r:.80}")
    phi: Any = settings.phi
    if phi is not None and not (isinstance(phi, Real) and 0 <= float(phi) <= inf):
        raise InvalidInputError(f"phi is 0 or more, in seconds for a dollar, not {phi!r:.80}")
    return settings
