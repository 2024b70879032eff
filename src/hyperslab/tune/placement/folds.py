"""Which kind of plan to trust: each is made from a part of the log and held against the rest of it.

A plan fitted to a log can lose on queries that are not in it, where one by an order of the arrays does not; where the
same queries come again, the log's plan is far better. The log itself tells which it is.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from hyperslab.errors import InvalidInputError
from hyperslab.tune.placement.baselines import hill_climb
from hyperslab.tune.placement.orders import Order, fit_order
from hyperslab.tune.placement.planner import plan
from hyperslab.tune.placement.problem import Placement, Problem, Queries, cost_of

__all__ = ["WAYS", "Chosen", "HeldOut", "choose", "choose_size", "split"]


def _by_log(problem: Problem, order: Order, seed: int) -> Placement:
    return plan(problem, order=order.order, seed=seed)


def _by_order(problem: Problem, order: Order, seed: int) -> Placement:
    return Placement.of(problem, hill_climb(problem, order.packs(problem)), "order")


# The log's own plan, with unread arrays in the fitted order; and packs in that order, keys by the log.
WAYS: dict[str, Callable[[Problem, Order, int], Placement]] = {"log": _by_log, "order": _by_order}


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Seconds of a query, on average: of those that a plan was made from, and of those that it had not seen."""

    trained_s: float
    held_out_s: float


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """The plan of all of the log, made in the way that did best on queries it had not seen; and how each way did."""

    placement: Placement
    order: Order
    ways: Mapping[str, HeldOut]

    @property
    def held_out_s(self) -> float:
        """Return seconds of a query that the plan has not seen, on average."""
        return self.ways[self.placement.by].held_out_s


def split(queries: Queries, folds: int, seed: int = 0) -> list[tuple[Queries, Queries]]:
    """Return for each fold the queries that a plan may know and those that it is held against.

    Each run of a query falls into one fold by chance: a query that ran often is in all of them.
    """
    random = np.random.default_rng(seed)
    runs = np.repeat(np.arange(len(queries)), queries.times.astype(np.int64))
    if folds < 2 or len(runs) < folds:
        raise InvalidInputError(f"{len(runs)} runs of queries cannot be split into {folds} folds of at least 2")
    fold_of = random.permutation(np.arange(len(runs)) % folds)
    parts = [np.bincount(runs[fold_of == fold], minlength=len(queries)).astype(np.float64) for fold in range(folds)]
    whole = np.sum(parts, axis=0)
    return [(_ran(queries, whole - part), _ran(queries, part)) for part in parts]


def _ran(queries: Queries, times: npt.NDArray[np.float64]) -> Queries:
    return replace(queries, times=times).only(times > 0)


def choose(problem: Problem, attributes: npt.ArrayLike | None = None, *, folds: int = 5, seed: int = 0) -> Chosen:
    """Return a plan made in the way that costs least on held-out queries, the mean of several folds."""
    sums = {way: np.zeros(2) for way in WAYS}
    parts = split(problem.queries, folds, seed)
    for known, held_out in parts:
        told, asked = problem.reading(known), problem.reading(held_out)
        order = fit_order(told, attributes)
        for way, make in WAYS.items():
            placement = make(told, order, seed)
            after = cost_of(asked, placement.pack_of).seconds / held_out.times.sum()
            sums[way] += placement.cost.seconds / known.times.sum(), after
    ways = {way: HeldOut(*(both / folds).tolist()) for way, both in sums.items()}
    best = min(ways, key=lambda way: ways[way].held_out_s)
    order = fit_order(problem, attributes)
    placement = WAYS[best](problem, order, seed)
    return Chosen(replace(placement, by=best), order, ways)


def choose_size(
    problem: Problem,
    pack_s: Mapping[int, float],
    attributes: npt.ArrayLike | None = None,
    *,
    folds: int = 5,
    seed: int = 0,
) -> dict[int, Chosen]:
    """Return a plan for each size of packs, the best first: that with the least cost on held-out queries.

    `pack_s` are the measured seconds of an access to a pack, by what packs hold.
    """
    found = {}
    for pack, seconds in pack_s.items():
        prices = replace(problem.prices, pack_s=seconds)
        sized = Problem.of(problem.queries, pack, prices, keys=problem.keys, weights=problem.weights)
        found[pack] = choose(sized, attributes, folds=folds, seed=seed)
    return dict(sorted(found.items(), key=lambda item: item[1].held_out_s))
