"""Placing small arrays: how long a plan takes, what it costs beside those of the paper, and with new queries.

Costs are by the model, a pack 10 times the price of a key. Seconds are of processor time, the compiler's not included.
With HYPERSLAB_EVERY_PLAN=1 in the environment, all mixes, grids, sizes of packs and of the tier are planned (an hour).
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import os
import time
from collections.abc import Iterator
from itertools import product

import numpy as np

from bench.collections.workloads import GRIDS, MIXES, Vortices, recurring, vortex_queries, vortices
from bench.figures import Figure, at_most, main
from hyperslab.tune.placement.baselines import baseline, hill_climb, place_packs
from hyperslab.tune.placement.folds import WAYS, choose, split
from hyperslab.tune.placement.orders import fit_order
from hyperslab.tune.placement.planner import plan
from hyperslab.tune.placement.problem import Placement, Prices, Problem, Queries, cost_of, fits

PRICES = Prices(10, 1)
PACKS, KEYS = (10, 45, 100, 1000), (0, 10_000, 20_000, 40_000, 80_000)
BAR_S, LARGE_BAR_S, LARGER = 10.0, 60.0, 7
BAR_OVER_BEST, BAR_UNDER_METIS, BAR_HELD_OUT = 1.01, 0.95, 1.03
# One of each kind: every mix, grid, size of packs and of the tier is among them.
SOME = [
    ("time", 40, 10, (0, 20_000)), ("time", 40, 45, (0, 80_000)), ("time", 40, 100, (0, 10_000)),
    ("space-time", 10, 10, (0, 20_000)), ("space-time", 20, 100, (0, 40_000)), ("space-time", 30, 45, (0, 10_000)),
    ("space-time", 40, 45, (0, 20_000)), ("space-time", 40, 1000, (0, 80_000)), ("composite", 10, 45, (0, 40_000)),
    ("composite", 20, 100, (0, 20_000)), ("composite", 30, 10, (0, 80_000)), ("composite", 40, 1000, (0, 20_000)),
]  # fmt: skip
QUICK = [SOME[1], SOME[6]]
EVERY = [(mix, grid, pack, KEYS) for mix, grid, pack in product(MIXES, GRIDS, PACKS) if mix != "time" or grid == 40]


def problem_of(flow: Vortices, queries: list[np.ndarray], pack: int, keys: int) -> Problem:
    return Problem.of(Queries.of(queries, len(flow)), pack, PRICES, keys=keys)


def timed(problem: Problem) -> tuple[Placement, float]:
    """Return our plan and the seconds of processor time it took."""
    started = time.process_time()
    found = plan(problem)
    taken = time.process_time() - started
    if not fits(problem, found.pack_of):
        raise AssertionError("the plan does not keep the limits")
    return found, taken


def measure(quick: bool) -> Iterator[Figure]:
    flow = vortices()
    # The compiler runs here, or reads what it made before.
    choose(problem_of(flow, vortex_queries(flow, "composite", 50), 45, 100), flow.attributes, folds=2)
    yield from _times(flow, quick)
    every = os.environ.get("HYPERSLAB_EVERY_PLAN") == "1"
    yield from _against_the_paper(flow, EVERY if every else QUICK if quick else SOME)
    yield from _held_out(flow, splits=2 if quick else 10)


def _times(flow: Vortices, quick: bool) -> Iterator[Figure]:
    taken = {mix: timed(problem_of(flow, vortex_queries(flow, mix), 45, 20_000))[1] for mix in MIXES}
    note = f" ({', '.join(f'{mix} {seconds:.1f} s' for mix, seconds in taken.items())})"
    yield at_most("placement: 164,599 arrays, slowest mix", max(taken.values()), BAR_S, " s", note)
    if not quick:
        flow = vortices(LARGER)
        queries = vortex_queries(flow, "composite", 10_000 * LARGER)
        _, seconds = timed(problem_of(flow, queries, 45, 20_000 * LARGER))
        yield at_most(f"placement: {len(flow):,} arrays, composite", seconds, LARGE_BAR_S, " s")


def _against_the_paper(flow: Vortices, cases: list[tuple[str, int, int, tuple[int, ...]]]) -> Iterator[Figure]:
    over, under, close = {}, {}, []
    for mix, grid, pack, all_keys in cases:
        queries = vortex_queries(flow, mix, grid=grid)
        initial = baseline(problem_of(flow, queries, pack, 0), "P1")
        for keys in all_keys:
            problem, case = problem_of(flow, queries, pack, keys), f"{mix}, {grid}×{grid}, packs of {pack}, {keys} keys"
            ours, _ = timed(problem)
            theirs = {"P1": initial.cost.seconds}
            if keys:
                theirs["PO"] = cost_of(problem, hill_climb(problem, initial.pack_of)).seconds
                theirs["C-P"] = cost_of(problem, place_packs(problem, initial.pack_of)).seconds
                theirs["P-C"] = baseline(problem, "P-C").cost.seconds
            over[case] = ours.cost.seconds / min(theirs.values())
            if not keys and ours.bound_s <= BAR_UNDER_METIS * theirs["P1"]:
                under[case] = over[case]
            elif not keys:
                close.append(case)
            told = ", ".join(f"{name} {seconds:,.0f}" for name, seconds in theirs.items())
            print(f"  {case}: {ours.cost.seconds:,.0f} (bound {ours.bound_s:,.0f}); {told}", flush=True)
    worst = max(over, key=lambda case: over[case])
    what = f"placement: cost over the best of P1, PO, C-P, P-C, worst of {len(over)}"
    yield at_most(what, over[worst], BAR_OVER_BEST, note=f" ({worst})")
    worst = max(under, key=lambda case: under[case])
    note = f" ({worst}; best {min(under.values()):.2f}×; in {len(close)} more METIS is within 5% of the bound)"
    what = f"placement: without keys, cost over query-weighted METIS, worst of {len(under)}"
    yield at_most(what, under[worst], BAR_UNDER_METIS, note=note)


def _held_out(flow: Vortices, splits: int) -> Iterator[Figure]:
    few = vortex_queries(flow, "composite", 2_000, seed=7)
    logs = {
        "new queries": vortex_queries(flow, "space-time", 4_000, seed=5),
        "recurring queries": recurring(few, 4_000, 0.8),
    }
    for name, queries in logs.items():
        problem, costs = problem_of(flow, queries, 45, 10_000), dict.fromkeys((*WAYS, "chosen"), 0.0)
        for seed in range(splits):
            known, held_out = split(problem.queries, 2, seed)[0]
            told, asked = problem.reading(known), problem.reading(held_out)
            order = fit_order(told, flow.attributes)
            plans = {way: make(told, order, seed) for way, make in WAYS.items()}
            plans["chosen"] = choose(told, flow.attributes, folds=3, seed=seed).placement
            for way, found in plans.items():
                costs[way] += cost_of(asked, found.pack_of).seconds / held_out.times.sum() / splits
        note = f" ({', '.join(f'{way} {seconds:.1f}' for way, seconds in costs.items())}; mean of {splits} splits)"
        ratio = costs["chosen"] / min(costs[way] for way in WAYS)
        yield at_most(f"placement: held-out cost over the better way, {name}", ratio, BAR_HELD_OUT, note=note)


if __name__ == "__main__":
    main(measure)
