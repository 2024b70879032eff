"""Measured seconds of plans: vortices in packs on the lab's store and in Redis, read by the queries they were made for.

What a touch, a key and a request for keys cost is measured there first; with these prices all plans are made, ours and
the paper's, and the same arrays laid out by each. Queries are read with one request at a time, as the model counts
them; no chunk is kept. Plans take turns, and each query is judged by its quickest round.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

import hyperslab as hs
from bench import servers
from bench.collections.workloads import Vortices, vortex_arrays, vortex_queries, vortices
from bench.figures import Figure, at_most
from bench.lab import Lab
from bench.lab.network import ADDRESSES, STORE
from hyperslab.collections.catalog import read_catalog
from hyperslab.collections.filling import fill_tier
from hyperslab.collections.index import Index
from hyperslab.collections.plans import Plan
from hyperslab.collections.touching import measure_keys, measure_touches
from hyperslab.plan import AccessPrices
from hyperslab.tune.placement.baselines import BASELINES, baseline
from hyperslab.tune.placement.packing import in_order
from hyperslab.tune.placement.planner import plan
from hyperslab.tune.placement.problem import KEYED, Placement, Problem, Queries, cost_of

__all__ = ["inside", "measure"]

ROOT = Path(__file__).resolve().parents[2]
PRESET, REDIS_PORT = "same-region", 6379
ARRAYS, PACK_ARRAYS, KEYED_ARRAYS = 6_000, 45, 700
MIX, KNOWN, TIMED, ROUNDS = "composite", 400, 80, 3
QUICK_TIMED, QUICK_ROUNDS = 25, 2
# Plans whose costs are nearer to each other than this need not be told apart.
APART, BAR_OURS = 1.03, 1.03


def measure(quick: bool) -> Iterator[Figure]:
    """Give the figures of one run of the lab."""
    flow = vortices()
    flow = Vortices(flow.stamp[:ARRAYS], flow.track[:ARRAYS], flow.box[:ARRAYS])
    queries = vortex_queries(flow, MIX, KNOWN)
    with tempfile.TemporaryDirectory(prefix="hyperslab-plans-") as home, Lab(PRESET, function=False) as lab:
        stored = Path(home) / "start"
        hs.collection(stored, "w-").put_many(vortex_arrays(flow), pack_bytes=_pack_bytes())
        with _redis(lab) as tier:
            lab.upload(stored, "start")
            prices = AccessPrices(**_run(lab, home, step="prices", tier=tier))
            problem = Problem.of(Queries.of(queries, len(flow)), PACK_ARRAYS, prices, keys=KEYED_ARRAYS)
            plans = {name: baseline(problem, name) for name in BASELINES} | {"ours": plan(problem)}
            for name, placement in plans.items():
                lab.upload(_laid_out(stored, placement), f"plan-{name}")
            timed = [query.tolist() for query in queries[: QUICK_TIMED if quick else TIMED]]
            rounds = QUICK_ROUNDS if quick else ROUNDS
            seconds = _run(lab, home, step="read", tier=tier, plans=list(plans), queries=timed, rounds=rounds)
    asked = problem.reading(Queries.of(timed, len(flow)))
    modelled = {name: cost_of(asked, placement.pack_of).seconds for name, placement in plans.items()}
    yield from judged(modelled, seconds, prices)


def judged(modelled: dict[str, float], measured: dict[str, float], prices: AccessPrices) -> Iterator[Figure]:
    """Hold measured seconds against those of the model."""
    pairs = [pair for pair in combinations(modelled, 2) if _apart(*(modelled[name] for name in pair))]
    wrong = [
        pair for pair in pairs
        if (modelled[pair[0]] - modelled[pair[1]]) * (measured[pair[0]] - measured[pair[1]]) <= 0
    ]  # fmt: skip
    told = ", ".join(
        f"{name} {measured[name]:.1f} s ({modelled[name]:.1f})" for name in sorted(measured, key=measured.get)
    )
    note = f"{len(pairs) - len(wrong)} of {len(pairs)}: measured (model) {told}; a pack {prices.pack_s * 1e3:.1f} ms, "
    note += f"a key {prices.key_s * 1e3:.2f} ms, a request for keys {prices.request_s * 1e3:.1f} ms"
    note += "".join(f"; not {one} and {other}" for one, other in wrong)
    yield Figure("plans in the lab: pairs ordered as the model says", f"all {len(pairs)}", note, not wrong)
    ratio = measured["ours"] / min(measured.values())
    yield at_most("plans in the lab: ours over the fastest", ratio, BAR_OURS)


def _apart(one: float, other: float) -> bool:
    return max(one, other) > APART * min(one, other)


def _pack_bytes() -> int:
    _, array = next(iter(vortex_arrays(vortices(), 1)))
    return PACK_ARRAYS * int(array.nbytes)


def _laid_out(stored: Path, placement: Placement) -> Path:
    """Return a copy of the collection whose arrays lie as a placement says; those in the tier are in packs as well."""
    path = stored.with_name(f"plan-{placement.by}")
    shutil.copytree(stored, path)
    pack_of, keyed = placement.pack_of.copy(), placement.pack_of == KEYED
    pack_of[keyed] = pack_of.max() + 1 + in_order(np.ones(int(keyed.sum()), np.int64), PACK_ARRAYS)
    changed = hs.collection(path, "r+")
    ids = np.array([changed.entry(name).id for name in _names(len(pack_of))], np.int64)
    order = np.argsort(pack_of, kind="stable")
    changed.apply(Plan(changed.manifest.uuid, ids[order], pack_of[order], keyed[order]))
    changed.sweep(0)
    return path


def _names(count: int) -> list[str]:
    flow = vortices()
    return [f"t{flow.stamp[at]:05d}/v{flow.track[at]:06d}" for at in range(count)]


@contextmanager
def _redis(lab: Lab) -> Iterator[str]:
    """Start Redis beside the lab's store; give its URL."""
    servers.use_test_support()
    from support.redis_server import find_redis

    program = find_redis()
    if program is None:
        raise SystemExit("redis-server is not installed; Debian has it as redis-server")
    address = "127.0.0.1" if lab.lacks else ADDRESSES[STORE]
    command = [program, "--port", str(REDIS_PORT), "--bind", address, "--protected-mode", "no", "--save", ""]
    running = lab.start(command, beside_store=True, stdout=subprocess.DEVNULL)
    try:
        yield f"redis://{address}:{REDIS_PORT}"
    finally:
        running.terminate()
        running.wait()


def _run(lab: Lab, home: str, **order: Any) -> Any:
    """Run a step as the lab's client and return its answer."""
    command = [sys.executable, "-m", "bench.collections", "--inside", json.dumps(order)]
    environment = {**os.environ, "HYPERSLAB_HOME": home}
    done = lab.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False, env=environment)
    if done.returncode:
        raise SystemExit(f"a step failed in the lab (exit {done.returncode})")
    return json.loads(done.stdout.splitlines()[-1])


# Inside the lab


def inside(step: str, **order: Any) -> Any:
    """Do a step as the lab's client."""
    lab = Lab.here()
    if lab is None:
        raise SystemExit("this part runs inside of a lab")
    return _prices(lab, **order) if step == "prices" else _read(lab, **order)


def _opened(lab: Lab, name: str, tier: str) -> hs.Collection:
    session = hs.Session(concurrency=1, cache_bytes=0, index_bytes=1 << 26, learn=False)
    return hs.collection(lab.url(name), tier=tier, storage_options=lab.storage_options, session=session)


def _prices(lab: Lab, tier: str) -> dict[str, float]:
    hs.measure(lab.url(), storage_options=lab.storage_options)
    start = _opened(lab, "start", tier)
    catalog = read_catalog(Index(start.session, start.store, start.path, start.manifest))
    touches = measure_touches(start.session, start.store, start.path, catalog)
    keys = measure_keys(start.tier.guard.tier, int(np.median(catalog.nbytes)))
    return {"pack_s": touches.cost(_pack_bytes() / 2), "key_s": keys.key_s, "request_s": keys.request_s}


def _read(lab: Lab, tier: str, plans: list[str], queries: list[list[int]], rounds: int) -> dict[str, float]:
    """Return the seconds of all queries with each plan: each query's least of all rounds, added up."""
    names, truth = _names(ARRAYS), dict(vortex_arrays(vortices(), ARRAYS))
    opened, best = {}, {name: np.full(len(queries), np.inf) for name in plans}
    for number, name in enumerate(plans):
        # Each plan has a database of its own.
        found = opened[name] = _opened(lab, f"plan-{name}", f"{tier}/{number}")
        fill_tier(found.session, found.store, found.path, found.manifest, found.tier)
        found.entries(names)
    for turn in range(rounds):
        for at, query in enumerate(queries):
            wanted = [names[array] for array in query]
            for name in plans if (turn + at) % 2 else reversed(plans):
                started = time.perf_counter()
                got = opened[name].read_many(wanted)
                best[name][at] = min(best[name][at], time.perf_counter() - started)
                if not turn and not all(map(np.array_equal, got, (truth[each] for each in wanted))):
                    raise SystemExit(f"wrong cells with the plan {name}")
        print(f"  round {turn + 1} of {rounds}", file=sys.stderr, flush=True)
    return {name: float(each.sum()) for name, each in best.items()}
