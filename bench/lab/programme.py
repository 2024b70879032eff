"""The paper's reads in the lab: rows, columns and small boxes, on every preset, by every method, for three phi.

    python -m bench.lab.programme                      all presets, one table; about ten minutes
    python -m bench.lab.programme --preset paper-50    one of them; may be repeated
    python -m bench.lab.programme --quick              fewer rounds

On each preset the store and the function are measured first (`hs.measure`), as a person would; then every read is
planned with what was found. Methods take turns. A read sends what its plan says, so two methods with the same requests
and calls are one and share their times. Forced methods that are predicted to cost five times the best are not run:
they could not win.

Three things are judged: the optimiser's measured cost against the best forced method's (by the quickest round of each,
as what disturbs two cores is not the plan's doing; medians are printed beside), the predicted seconds against the
median of the measured ones, and the ledger against the meter on the wire. A phi sweep shows how plans move from time to
money.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from math import inf, isinf
from pathlib import Path
from typing import Any

import numpy as np

import hyperslab as hs
from bench.data import folder
from bench.figures import Figure, print_table
from bench.lab import PRESETS, Lab
from hyperslab.plan import Plan

__all__ = ["main"]

ROOT = Path(__file__).resolve().parents[2]
# The paper's 1 MB chunks, in an array of 64 MiB: caches are off, so that a larger one would show nothing more.
SIDE, CHUNK = 4096, 512
PHIS = (0.0, 100.0, inf)
SWEEP = (0.0, 1.0, 10.0, 100.0, 1e3, 1e4, 1e5, inf)
FORCED = ("get", "merge", "fetch", "call")
ROUNDS, QUICK_ROUNDS = 9, 3
TIMES_WORSE = 5.0


@dataclass(slots=True)
class Outcome:
    """One read by one plan: what was predicted, and what each round took."""

    workload: str
    methods: list[str]
    predicted_s: float
    predicted_usd: float
    requests: int
    calls: int
    seconds: list[float] = field(default_factory=list)
    usd: list[float] = field(default_factory=list)

    def cost(self, phi: float) -> float:
        """The measured cost: seconds of the quickest round, and dollars."""
        usd = statistics.median(self.usd)
        return usd if isinf(phi) else min(self.seconds) + phi * usd


def workloads() -> dict[str, list[tuple[Any, ...]]]:
    """Return the keys of the reads: two of each kind, at random places."""
    rng = np.random.default_rng(11)
    rows, columns = rng.integers(0, SIDE - 41, 2), rng.integers(0, SIDE - 41, 2)
    corners = rng.integers(0, SIDE - 21, (2, 2))
    return {
        "horizontal": [(slice(int(r), int(r) + 41), slice(None)) for r in rows],
        "vertical": [(slice(None), slice(int(c), int(c) + 41)) for c in columns],
        "small box": [(slice(int(r), int(r) + 21), slice(int(c), int(c) + 21)) for r, c in corners],
    }


def array_folder() -> Path:
    """Return the array's folder on disk; made at the first run."""
    path = folder() / f"programme-{SIDE}-{CHUNK}.zarr"
    if not path.exists():
        hs.save(path, cells(), chunks=(CHUNK, CHUNK), layout="plain")
    return path


def cells() -> Any:
    return np.random.default_rng(5).integers(0, 1 << 30, (SIDE, SIDE), dtype="i4")


# Inside the lab


def inside(quick: bool) -> dict[str, Any]:
    """Measure, read, and return all that is judged; runs as the lab's client."""
    lab = Lab.here()
    if lab is None:
        raise SystemExit("this part runs inside of a lab")
    function = hs.Function(lab.function_url, key=lab.key, provider="aws", memory_mb=lab.preset.provider.memory_mb)
    location = "same-region" if lab.preset.name == "same-region" else "internet"
    started, before = time.perf_counter(), lab.meter()
    measured = hs.measure(lab.url(), storage_options=lab.storage_options, function=function)
    took_s, used = time.perf_counter() - started, lab.meter() - before
    moved = sum(used.of(service).response_bytes + used.of(service).request_bytes for service in ("s3", "function"))
    left = [name for name in _names(lab) if "probe" in name]
    with hs.Session(function=function, prices=f"aws-{location}", cache_bytes=0, learn=False) as session:
        array = hs.open(lab.url("array.zarr"), storage_options=lab.storage_options, session=session)
        outcomes, wire = _read_all(lab, array, QUICK_ROUNDS if quick else ROUNDS)
        sweep = [_swept(array, phi) for phi in SWEEP]
    return {
        "preset": lab.preset.name,
        "measure": {"seconds": took_s, "megabytes": moved / 1e6, "left": left, "profile": measured.profile.to_dict()},
        "outcomes": [asdict(outcome) for outcome in outcomes],
        "chosen": {f"{o.workload}": o.methods for o in outcomes},
        "wire": wire,
        "sweep": sweep,
    }


def _names(lab: Lab) -> list[str]:
    from bench.servers import obstore_client

    return [each["path"] for batch in obstore_client(lab.endpoint).list() for each in batch]


def _read_all(lab: Lab, array: hs.Array, rounds: int) -> tuple[list[Outcome], list[tuple[int, int, int, int]]]:
    """Read everything by every plan, by turns; return the outcomes, and what ledger and wire disagree in."""
    truth, outcomes, differ = cells(), [], []
    for workload, keys in workloads().items():
        for number, key in enumerate(keys):
            mine = list(_plans(array, f"{workload} {number + 1}", key))
            for turn in range(rounds + 1):
                for outcome, phi, method in mine if turn % 2 else reversed(mine):
                    before, wired = array.session.metrics.snapshot(), lab.meter()
                    found = array.read(key, phi=phi, method=method)
                    after, used = array.session.metrics.snapshot(), lab.meter() - wired
                    if turn:  # the first opens connections, and warms instances
                        outcome.seconds.append(after.seconds - before.seconds)
                        outcome.usd.append(after.usd - before.usd)
                    if not np.array_equal(found, truth[key]):
                        raise SystemExit(f"{method} read wrong cells of {key}")
                    differ += _difference(before, after, used)
            outcomes += [outcome for outcome, _, _ in mine]
    return outcomes, differ


def _difference(before: Any, after: Any, used: Any) -> list[tuple[int, int, int, int]]:
    """Return requests and bytes by which the ledger and the wire differ, for the store and for the function."""
    store, function = used.of("s3"), used.of("function")
    calls = (after.calls - before.calls) - function.requests
    call_bytes = (after.call_bytes - before.call_bytes) - function.response_bytes
    requests = (after.requests + after.lookups - before.requests - before.lookups) - store.requests
    nbytes = (after.bytes - before.bytes) - (after.call_bytes - before.call_bytes) - store.response_bytes
    return [(requests, nbytes, calls, call_bytes)] if any((requests, nbytes, calls, call_bytes)) else []


def _plans(array: hs.Array, workload: str, key: Any) -> Iterator[tuple[Outcome, float, Any]]:
    """Give each different plan of a read once, with all the methods that it is of."""
    found: dict[tuple[Any, ...], tuple[Outcome, float, Any]] = {}
    plans = [(f"phi {phi:g}", phi, None, array.explain(key, phi=phi).plan) for phi in PHIS]
    best = {phi: plan.model.weigh(plan.estimate) for _, phi, _, plan in plans}
    for method in FORCED:
        plan = array.explain(key, phi=0.0, method=method).plan
        usd = {
            phi: plan.estimate.usd if isinf(phi) else plan.estimate.seconds + phi * plan.estimate.usd for phi in PHIS
        }
        if any(usd[phi] <= TIMES_WORSE * best[phi] for phi in PHIS):
            plans.append((method, 0.0, method, plan))
    for name, phi, method, plan in plans:
        outcome = Outcome(
            workload, [], plan.estimate.seconds, plan.estimate.usd, plan.estimate.requests, plan.estimate.calls
        )
        found.setdefault(_signature(plan), (outcome, phi, method))[0].methods.append(name)
    return iter(found.values())


def _signature(plan: Plan) -> tuple[Any, ...]:
    """What a plan sends, whoever made it."""
    ranges = [column.tobytes() for column in (plan.requests.objects, plan.requests.starts, plan.requests.stops)]
    return (*ranges, tuple(plan.wholes), tuple(sorted(call.owners for call in plan.calls)))


def _swept(array: hs.Array, phi: float) -> dict[str, Any]:
    estimate = array.explain(workloads()["vertical"][0], phi=phi).plan.estimate
    return {"phi": str(phi), "requests": estimate.requests, "calls": estimate.calls, "bytes": estimate.fetched_bytes,
            "seconds": estimate.seconds, "usd": estimate.usd}  # fmt: skip


# Outside


def run_preset(name: str, quick: bool) -> dict[str, Any]:
    """Start a lab, read in it, and return what was found."""
    with Lab(name) as lab:
        lab.upload(array_folder(), "array.zarr")
        command = [sys.executable, "-m", "bench.lab.programme", "--inside", *(["--quick"] if quick else [])]
        done = lab.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the programme failed on {name} (exit {done.returncode})")
    return json.loads(done.stdout.splitlines()[-1])


def judged(found: dict[str, Any]) -> Iterator[Figure]:
    """Give the figures of one preset."""
    name, probe = found["preset"], found["measure"]
    outcomes = [Outcome(**each) for each in found["outcomes"]]
    within = probe["seconds"] <= 60 and probe["megabytes"] <= 300 and not probe["left"]
    told = f"{probe['seconds']:.0f} s, {probe['megabytes']:.0f} MB, {len(probe['left'])} objects left"
    yield Figure(f"{name}: measure", "60 s, 300 MB, nothing left", told, within)
    errors = [abs(o.predicted_s / statistics.median(o.seconds) - 1) for o in outcomes]
    error = statistics.median(errors)
    yield Figure(f"{name}: predicted time, median error", "20%", f"{error:.0%} (worst {max(errors):.0%})", error <= 0.2)
    for phi in PHIS:
        ratios = _ratios(outcomes, phi)
        worst = max(ratios, key=lambda each: each[0])
        text = f"{worst[0]:.3f} ({worst[1]}; {worst[2]})"
        yield Figure(f"{name}: optimiser against best forced, phi {phi:g}", "≤ 1.05", text, worst[0] <= 1.05)
    wire = found["wire"]
    yield Figure(f"{name}: ledger against the wire", "equal", "equal" if not wire else str(wire[:3]), not wire)


def _ratios(outcomes: list[Outcome], phi: float) -> list[tuple[float, str, str]]:
    """Return for each read what the optimiser cost in costs of the best forced method, and which that is."""
    found = []
    for workload in {o.workload: None for o in outcomes}:
        mine = [o for o in outcomes if o.workload == workload]
        ours = next(o for o in mine if f"phi {phi:g}" in o.methods)
        best = min((o for o in mine if set(o.methods) & set(FORCED)), key=lambda o: o.cost(phi))
        found.append((ours.cost(phi) / best.cost(phi), workload, "/".join(m for m in best.methods if m in FORCED)))
    return found


def _show(found: dict[str, Any]) -> None:
    print(f"\n{found['preset']}")
    for each in found["outcomes"]:
        o = Outcome(**each)
        took, usd = statistics.median(o.seconds), statistics.median(o.usd)
        print(f"  {o.workload:13} {', '.join(o.methods):32} {o.requests:5} requests {o.calls:3} calls  "
              f"predicted {o.predicted_s * 1e3:7.1f} ms, took {took * 1e3:7.1f} ms (best {min(o.seconds) * 1e3:7.1f}), "
              f"${usd:.7f}")  # fmt: skip
    print("  vertical 1, by phi:")
    for row in found["sweep"]:
        print(f"    phi {row['phi']:>8}: {row['requests']:4} requests {row['calls']:3} calls, "
              f"{row['bytes'] / 1e6:7.2f} MB, {row['seconds'] * 1e3:7.1f} ms, ${row['usd']:.7f}")  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", action="append", choices=list(PRESETS))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        with tempfile.TemporaryDirectory(prefix="hyperslab-programme-") as home:
            os.environ["HYPERSLAB_HOME"] = home  # the profile is the lab's, not the person's
            print(json.dumps(inside(options.quick)))
        return 0
    figures: list[Figure] = []
    for name in options.preset or PRESETS:
        found = run_preset(name, options.quick)
        _show(found)
        figures += judged(found)
    print()
    print_table(figures)
    return 0 if all(figure.passed for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
