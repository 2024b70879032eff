"""Plans of the paper's vortices: how long ours take, what they cost beside those of the paper, and with new queries.

Costs are by the model, a pack 10 times the price of a key. Seconds are of processor time, the compiler's not included.
What plans of one case cost is kept, until the planner is changed: a run that was stopped goes on where it was.
"""

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import product
from pathlib import Path

import numpy as np

import hyperslab.tune.placement
from bench.collections.partitioner import by_mt_kahypar
from bench.collections.workloads import GRIDS, MIXES, Vortices, recurring, vortex_queries, vortices
from bench.data import folder
from bench.figures import Figure, at_most
from hyperslab.plan import AccessPrices
from hyperslab.tune.placement.baselines import baseline, hill_climb, place_packs
from hyperslab.tune.placement.folds import WAYS, choose, split
from hyperslab.tune.placement.orders import fit_order
from hyperslab.tune.placement.planner import plan
from hyperslab.tune.placement.problem import Placement, Problem, Queries, cost_of, fits

__all__ = ["EVERY", "QUICK", "SOME", "against_the_paper", "compiled_once", "held_out", "problem_of", "times"]

PRICES = AccessPrices(10, 1)
PACKS, KEYS = (10, 45, 100, 1000), (0, 10_000, 20_000, 40_000, 80_000)
BAR_S, LARGE_BAR_S, LARGER = 10.0, 60.0, 7
BAR_OVER_BEST, BAR_UNDER_METIS, BAR_HELD_OUT = 1.01, 0.95, 1.03

# The modules by which the plans of the paper are made.
THEIRS = {"baselines", "climb", "compiled", "graph", "metis", "moves", "packing", "problem", "state"}

# A mix, a grid, what packs hold, and what the tier holds, each of several.
Case = tuple[str, int, int, tuple[int, ...]]

# One of each kind: every mix, grid, size of packs and of the tier is among them.
SOME: list[Case] = [
    ("time", 40, 10, (0, 20_000)), ("time", 40, 45, (0, 80_000)), ("time", 40, 100, (0, 10_000)),
    ("space-time", 10, 10, (0, 20_000)), ("space-time", 20, 100, (0, 40_000)), ("space-time", 30, 45, (0, 10_000)),
    ("space-time", 40, 45, (0, 20_000)), ("space-time", 40, 1000, (0, 80_000)), ("composite", 10, 45, (0, 40_000)),
    ("composite", 20, 100, (0, 20_000)), ("composite", 30, 10, (0, 80_000)), ("composite", 40, 1000, (0, 20_000)),
]  # fmt: skip
QUICK = [SOME[1], SOME[6]]
EVERY: list[Case] = [
    (mix, grid, pack, KEYS) for mix, grid, pack in product(MIXES, GRIDS, PACKS) if mix != "time" or grid == 40
]


def problem_of(flow: Vortices, queries: list[np.ndarray], pack: int, keys: int) -> Problem:
    return Problem.of(Queries.of(queries, len(flow)), pack, PRICES, keys=keys)


def compiled_once(flow: Vortices) -> None:
    """Let the compiler run, or read what it made before."""
    for pack in (45, 1000):
        choose(problem_of(flow, vortex_queries(flow, "composite", 50), pack, 100), flow.attributes, folds=2)
        plan(problem_of(flow, vortex_queries(flow, "composite", 50), pack, 0))


def timed(problem: Problem) -> tuple[Placement, float]:
    """Return our plan and the seconds of processor time it took."""
    started = time.process_time()
    found = plan(problem)
    taken = time.process_time() - started
    if not fits(problem, found.pack_of):
        raise AssertionError("the plan does not keep the limits")
    return found, taken


def times(flow: Vortices, quick: bool) -> Iterator[Figure]:
    taken = {mix: timed(problem_of(flow, vortex_queries(flow, mix), 45, 20_000))[1] for mix in MIXES}
    note = f" ({', '.join(f'{mix} {seconds:.1f} s' for mix, seconds in taken.items())})"
    yield at_most("placement: 164,599 arrays, slowest mix", max(taken.values()), BAR_S, " s", note)
    if not quick:
        flow = vortices(LARGER)
        queries = vortex_queries(flow, "composite", 10_000 * LARGER)
        _, seconds = timed(problem_of(flow, queries, 45, 20_000 * LARGER))
        yield at_most(f"placement: {len(flow):,} arrays, composite", seconds, LARGE_BAR_S, " s")


def against_the_paper(flow: Vortices, cases: Sequence[Case], until: float = float("inf")) -> Iterator[Figure]:
    """Give the figures of plans beside the paper's; after `until`, by `time.monotonic`, no more cases are begun."""
    found: dict[str, dict[str, float]] = {}
    left = 0
    for mix, grid, pack, all_keys in cases:
        names = [_name(mix, grid, pack, keys) for keys in all_keys]
        if time.monotonic() > until and not all(_kept(whose, name) for whose in ("ours", "theirs") for name in names):
            left += 1
            continue
        found |= _costs(flow, mix, grid, pack, all_keys)
    if left:
        yield Figure("placement: cases that are still to be planned", "", f"{left}; run it again for more", None)
    yield from _judged(found)
    yield from _beside_mt_kahypar(flow, found)


def _beside_mt_kahypar(flow: Vortices, found: dict[str, dict[str, float]]) -> Iterator[Figure]:
    """Say of cases that missed the bar against METIS how far the strongest partitioner gets in them."""
    told = []
    for mix, grid, pack in product(MIXES, GRIDS, PACKS):
        case = _name(mix, grid, pack, 0)
        costs = found.get(case)
        if costs is None or costs["ours"] <= BAR_UNDER_METIS * costs["P1"] or _bound_is_near(costs):
            continue
        best = by_mt_kahypar(problem_of(flow, vortex_queries(flow, mix, grid=grid), pack, 0))
        if best is not None:
            told.append(
                f"{mix}, {grid}×{grid}, packs of {pack}: {best / costs['P1']:.3f}, ours {costs['ours'] / best:.3f}"
            )
    if told:
        yield Figure("placement: Mt-KaHyPar's cost over METIS's, and ours over it", "", "; ".join(told), None)


def _bound_is_near(costs: dict[str, float]) -> bool:
    """Whether nothing can be so much better than METIS, as the bound says."""
    return costs["bound"] > BAR_UNDER_METIS * costs["P1"]


def _judged(found: dict[str, dict[str, float]]) -> Iterator[Figure]:
    over = {
        case: costs["ours"] / min(costs[name] for name in costs if name not in ("ours", "bound"))
        for case, costs in found.items()
    }
    if not over:
        return
    what = f"placement: cost over the best of P1, PO, C-P, P-C, worst of {len(over)}"
    worst = max(over, key=lambda case: over[case])
    yield at_most(what, over[worst], BAR_OVER_BEST, note=f" ({worst})")
    without = {case: costs for case, costs in found.items() if case.endswith(" 0 keys")}
    under = {case: over[case] for case, costs in without.items() if not _bound_is_near(costs)}
    missed = {case: ratio for case, ratio in under.items() if ratio > BAR_UNDER_METIS}
    what = f"placement: without keys, cost over query-weighted METIS, worst of {len(under)}"
    listed = "; ".join(f"{case} {ratio:.3f}" for case, ratio in missed.items())
    note = f" ({len(missed)} above: {listed}; best {min(under.values()):.2f}×; " if missed else " ("
    note += f"in {len(without) - len(under)} more METIS is within 5% of the bound)"
    yield at_most(what, max(under.values()), BAR_UNDER_METIS, note=note)


def _costs(flow: Vortices, mix: str, grid: int, pack: int, all_keys: Iterable[int]) -> dict[str, dict[str, float]]:
    """Return what each plan costs, ours and the paper's, by case; and keep it."""
    queries, found, initial = vortex_queries(flow, mix, grid=grid), {}, None
    for keys in all_keys:
        problem, case = problem_of(flow, queries, pack, keys), _name(mix, grid, pack, keys)
        ours, theirs = _kept("ours", case), _kept("theirs", case)
        if theirs is None:
            initial = initial or baseline(problem_of(flow, queries, pack, 0), "P1")
            theirs = _keep("theirs", case, _baselines(problem, initial))
        if ours is None:
            planned, _ = timed(problem)
            ours = _keep("ours", case, {"ours": planned.cost.seconds, "bound": planned.bound_s or 0.0})
        found[case] = costs = ours | theirs
        print(f"  {case}: " + ", ".join(f"{name} {seconds:,.0f}" for name, seconds in costs.items()), flush=True)
    return found


def _baselines(problem: Problem, initial: Placement) -> dict[str, float]:
    costs = {"P1": initial.cost.seconds}
    if problem.keys:
        costs["PO"] = cost_of(problem, hill_climb(problem, initial.pack_of)).seconds
        costs["C-P"] = cost_of(problem, place_packs(problem, initial.pack_of)).seconds
        costs["P-C"] = baseline(problem, "P-C").cost.seconds
    return costs


def _name(mix: str, grid: int, pack: int, keys: int) -> str:
    return f"{mix}, {grid}×{grid}, packs of {pack}, {keys} keys"


def _kept(whose: str, case: str) -> dict[str, float] | None:
    """Return what an earlier run found of a case."""
    path = _place(whose, case)
    return json.loads(path.read_text()) if path.exists() else None


def _keep(whose: str, case: str, costs: dict[str, float]) -> dict[str, float]:
    path = _place(whose, case)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(costs))
    return costs


def _place(whose: str, case: str) -> Path:
    """Return where the costs of a case are kept; what other code found is elsewhere."""
    sources = sorted(Path(hyperslab.tune.placement.__path__[0]).glob("*.py"))
    sources = [file for file in sources if whose == "ours" or file.stem in THEIRS]
    texts = [file.read_bytes() for file in (*sources, Path(__file__).with_name("workloads.py"))]
    planner = sha256(b"".join(texts)).hexdigest()[:12]
    return folder() / "collections" / f"plans-{whose}-{planner}" / f"{case.replace(', ', '-')}.json"


def held_out(flow: Vortices, splits: int) -> Iterator[Figure]:
    few = vortex_queries(flow, "composite", 2_000, seed=7)
    logs = {
        "new queries": vortex_queries(flow, "space-time", 4_000, seed=5),
        "recurring queries": recurring(few, 4_000, 0.8),
    }
    for name, queries in logs.items():
        problem, costs = problem_of(flow, queries, 45, 10_000), dict.fromkeys((*WAYS, "chosen"), 0.0)
        for seed in range(splits):
            known, asked_queries = split(problem.queries, 2, seed)[0]
            told, asked = problem.reading(known), problem.reading(asked_queries)
            order = fit_order(told, flow.attributes)
            plans = {way: make(told, order, seed) for way, make in WAYS.items()}
            plans["chosen"] = choose(told, flow.attributes, folds=3, seed=seed).placement
            for way, found in plans.items():
                costs[way] += cost_of(asked, found.pack_of).seconds / asked_queries.times.sum() / splits
        note = f" ({', '.join(f'{way} {seconds:.1f}' for way, seconds in costs.items())}; mean of {splits} splits)"
        ratio = costs["chosen"] / min(costs[way] for way in WAYS)
        yield at_most(f"placement: held-out cost over the better way, {name}", ratio, BAR_HELD_OUT, note=note)
