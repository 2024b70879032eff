"""The paper's evaluation, redone: every system, every workload, in the lab; writes a dated result and its page.

    python -m bench.peers.programme                    a smaller scale, two presets; ten minutes
    python -m bench.peers.programme --sweeps           the same, and phi, chunk sizes and lines varied; half an hour
    python -m bench.peers.programme --scale full       everything, at the paper's sizes; far longer
    python -m bench.peers.programme --preset internet --system hyperslab --system zarrs --workload camera

Data is made and stored at the first run, in `bench/out/peers/`, and used again. Results go there, too.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import distributions
from math import inf
from pathlib import Path
from typing import Any

import hyperslab as hs
from bench.data import folder
from bench.figures import Figure, print_table
from bench.lab import PRESETS
from bench.lab.presets import location_of
from bench.peers import sweeps
from bench.peers.judge import judged
from bench.peers.report import write_report
from bench.peers.running import ROOT, Bench, Failed
from bench.peers.systems import SYSTEMS, load
from bench.peers.workloads import NAMES, Workload, workload

__all__ = ["main"]


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured at a scale.

    `more_rounds` are for all that come near to the quickest: connections pick up speed from one read to the next, and
    who has several of them takes longer to have them all at theirs.
    """

    presets: tuple[str, ...]
    queries: int
    images: int
    rounds: int
    more_rounds: int
    sweeps: bool


EFFORTS = {
    "tiny": Effort(("internet",), 1, 1, 1, 0, sweeps=False),
    "quick": Effort(("internet", "same-region"), 1, 2, 3, 3, sweeps=False),
    "full": Effort(("internet", "same-region"), 3, 6, 3, 3, sweeps=True),
}
# A read that takes this long is not repeated; one that takes a moment even with open connections, only once.
LONG_S, MOMENT_S = 1.5, 0.5
# One that takes at most so many times as long as the quickest is repeated more often.
CLOSE = 2.0
METHODS = ("get", "merge", "fetch", "call", "paper")


@dataclass(frozen=True, slots=True)
class Variant:
    """A system on a layout, with what its reads are told."""

    system: str
    layout: str
    settings: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        return "/".join([self.system, self.layout, *(f"{name} {value}" for name, value in self.settings)])


def variants(systems: Iterable[str]) -> list[Variant]:
    """Return who reads: every system on its layouts; ours also by each method and for money alone.

    >>> [str(each) for each in variants(["zarrs"])]
    ['zarrs/same', 'zarrs/best']
    """
    found = [Variant(system, layout) for system in systems for layout in load(system).layouts]
    if "hyperslab" in systems:
        found += [Variant("hyperslab", layout, (("phi", inf),)) for layout in load("hyperslab").layouts]
        found += [Variant("hyperslab", "same", (("method", method),)) for method in METHODS]
    return found


class Programme:
    """One run, at one scale."""

    def __init__(self, scale: str, effort: Effort, systems: list[str], workloads: list[str], home: Path) -> None:
        self.scale, self.effort, self.home = scale, effort, home
        self.systems = systems
        self.workloads = {name: workload(name, scale) for name in workloads}
        self.reads: list[dict[str, Any]] = []
        self.opens: list[dict[str, Any]] = []
        self.more: dict[str, list[dict[str, Any]]] = {}
        self._started = time.monotonic()

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self._started:6.0f} s  {text}", flush=True)

    def prepare(self) -> None:
        """Store every copy that is not there yet."""
        with Bench("same-region", self.scale, home=self.home) as bench:
            for data in self._datasets():
                for each in variants(self.systems):
                    try:
                        seconds = bench.prepare(each.system, data, each.layout)
                    except Failed as error:
                        self.say(f"{data} cannot be stored by {each}: {error}")
                        continue
                    if seconds:
                        self.say(f"{data} stored by {each.system}/{each.layout} in {seconds:.0f} s")

    def run(self, preset: str) -> None:
        """Read everything in one preset."""
        home = self.home / preset
        with Bench(preset, self.scale, home=home) as bench:
            if "hyperslab" in self.systems:
                bench.measure()
                self.say(f"{preset}: store and function are measured")
            for data in self._datasets():
                open_ = list(self._open(bench, data))
                for name, asked in self.workloads.items():
                    if asked.data.name == data:
                        self._read(bench, name, asked, open_)
                if data == "grid" and self.effort.sweeps and "vertical" in self.workloads:
                    self.more.setdefault("phi", []).extend(sweeps.phi_sweep(bench))
                bench.close([(each.system, data, each.layout) for each in open_])

    def sweep(self) -> None:
        """Measure what needs labs of its own: chunk sizes, lines, planning."""
        self.more["planning"] = sweeps.planning()
        self.more["lines"] = sweeps.lines(self.scale, self.home)
        self.more["chunk_sizes"] = sweeps.chunk_sizes(self.scale, self.home)

    def result(self) -> dict[str, Any]:
        """Return the result file's content."""
        found = {
            "made": self._made(),
            "presets": {name: _preset(name) for name in dict.fromkeys(each["preset"] for each in self.reads)},
            "workloads": {name: self._workload(asked) for name, asked in self.workloads.items()},
            "systems": {
                name: {"title": load(name).title, "ours": name == "hyperslab", "layouts": load(name).layouts}
                for name in self.systems
            },
            "reads": self.reads,
            "opens": self.opens,
            **self.more,
        }
        return {**found, "bars": [_bar(figure) for figure in judged(found)]}

    def _datasets(self) -> list[str]:
        return list(dict.fromkeys(asked.data.name for asked in self.workloads.values()))

    def _queries(self, asked: Workload) -> range:
        most = self.effort.images if asked.data.name == "camera" else self.effort.queries
        return range(min(most, len(asked.queries)))

    def _open(self, bench: Bench, data: str) -> Iterator[Variant]:
        """Open a dataset in each system; give the variants that can read it."""
        tried: dict[tuple[str, str], bool] = {}
        for system, layout in dict.fromkeys((each.system, each.layout) for each in variants(self.systems)):
            bench.start(system, data, layout)
        for each in variants(self.systems):
            at = each.system, each.layout
            if at not in tried:
                try:
                    self.opens.append(bench.open(each.system, data, each.layout))
                    tried[at] = True
                except Failed as error:
                    self.say(f"{data} cannot be opened by {each}: {error}")
                    tried[at] = False
                    at_all = {"preset": bench.lab.preset.name, "dataset": data, "system": at[0], "layout": at[1]}
                    self.opens.append({**at_all, "error": str(error)})
            if tried[at]:
                yield each

    def _read(self, bench: Bench, name: str, asked: Workload, open_: list[Variant]) -> None:
        for query in self._queries(asked):
            mine: dict[Variant, list[dict[str, Any]]] = {each: [] for each in open_}
            for turn in range(self.effort.rounds):
                now = [each for each in mine if not _is_over(mine[each])]
                self.reads += self._round(bench, name, asked, query, turn, mine, now)
            for turn in range(self.effort.rounds, self.effort.rounds + self.effort.more_rounds):
                self.reads += self._round(bench, name, asked, query, turn, mine, _close(mine))
            quickest = {
                each: min((r["seconds"] for r in rows if not r["error"]), default=0.0) for each, rows in mine.items()
            }
            ranked = sorted((seconds, str(each)) for each, seconds in quickest.items() if seconds)
            self.say(
                f"{bench.lab.preset.name}, {name} {query}: " + ", ".join(f"{w} {s * 1e3:.0f}" for s, w in ranked[:4])
            )

    def _round(
        self, bench: Bench, name: str, asked: Workload, query: int, turn: int,
        mine: dict[Variant, list[dict[str, Any]]], now: list[Variant],
    ) -> Iterator[dict[str, Any]]:  # fmt: skip
        """Let each read the query once, always in the same order: all connections are then idle for as long."""
        for each in now:
            row = bench.read(each.system, asked.data.name, each.layout, name, query, **dict(each.settings))
            mine[each].append({**row, "round": turn})
            yield mine[each][-1]

    def _workload(self, asked: Workload) -> dict[str, Any]:
        needed = [asked.needed_bytes(query) for query in self._queries(asked)]
        return {"about": asked.about, "dataset": asked.data.name, "needed_bytes": needed}

    def _made(self) -> dict[str, Any]:
        packages = sorted({each for name in self.systems for each in load(name).packages})
        memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
        return {
            "at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "commit": _git("rev-parse", "--short", "HEAD"),
            "dirty": bool(_git("status", "--porcelain", "--untracked-files=no")),
            "scale": self.scale,
            "seconds": time.monotonic() - self._started,
            "machine": {
                "cpu": _cpu(), "cores": os.cpu_count(), "memory_gb": round(memory_gb, 1),
                "kernel": platform.release(), "python": platform.python_version(),
            },
            "versions": {"hyperslab": hs.__version__, **{name: _version(name) for name in packages}},
        }  # fmt: skip


def _is_over(rows: list[dict[str, Any]]) -> bool:
    """Whether a read failed, or took so long that it is not read once more."""
    if not rows or rows[-1]["error"] is not None:
        return bool(rows)
    return rows[-1]["seconds"] > (LONG_S if len(rows) == 1 else MOMENT_S)


def _close(mine: dict[Variant, list[dict[str, Any]]]) -> list[Variant]:
    """Return who is about as quick as the quickest, on the shared layout or on others."""
    quickest = {each: min(row["seconds"] for row in rows) for each, rows in mine.items() if rows and not _is_over(rows)}
    least = {
        shared: min([seconds for each, seconds in quickest.items() if (each.layout == "same") is shared], default=0.0)
        for shared in (True, False)
    }
    return [each for each, seconds in quickest.items() if seconds <= CLOSE * least[each.layout == "same"]]


def _preset(name: str) -> dict[str, Any]:
    preset = PRESETS[name]
    return {
        "why": preset.why, "latency_s": preset.latency_s, "bytes_per_s": preset.outside.bytes_per_s,
        "location": location_of(name),
    }  # fmt: skip


def _bar(figure: Figure) -> dict[str, Any]:
    return {"what": figure.what, "bar": figure.bar, "figure": figure.figure, "passed": figure.passed, "note": ""}


def _version(name: str) -> str:
    """Return the version of a package, here or in an environment that a system has for itself."""
    own = [str(path) for path in Path(sys.prefix).glob("*/lib/python*/site-packages")]
    return next(distributions(name=name, path=[*sys.path, *own])).version


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


def _written(programme: Programme, path: Path) -> dict[str, Any]:
    """Write what there is so far, as much may follow that takes hours; return it."""
    result = programme.result()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result))
    write_report(result, path.with_suffix(".html"))
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", default="quick", choices=list(EFFORTS))
    parser.add_argument("--preset", action="append", choices=list(PRESETS))
    parser.add_argument("--system", action="append", choices=SYSTEMS)
    parser.add_argument("--workload", action="append", choices=NAMES)
    parser.add_argument("--sweeps", action="store_true", help="vary phi, chunks and the line, too, at any scale")
    parser.add_argument("--out", type=Path, help="the result's file; its page is beside it")
    options = parser.parse_args()
    effort = EFFORTS[options.scale]
    effort = replace(effort, sweeps=effort.sweeps or options.sweeps)
    with tempfile.TemporaryDirectory(prefix="hyperslab-peers-") as home:
        programme = Programme(
            options.scale, effort, options.system or list(SYSTEMS), options.workload or list(NAMES), Path(home)
        )
        programme.prepare()
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        path = options.out or folder() / "peers" / "results" / f"{options.scale}-{stamp}.json"
        for preset in options.preset or programme.effort.presets:
            programme.run(preset)
            result = _written(programme, path)
        if programme.effort.sweeps and not (options.preset or options.system or options.workload):
            programme.sweep()
            result = _written(programme, path)
    print()
    print_table([Figure(each["what"], each["bar"], each["figure"], each["passed"]) for each in result["bars"]])
    held = [each["passed"] for each in result["bars"] if each["passed"] is not None]
    print(f"\n{sum(held)} of {len(held)} bars held, {result['made']['seconds']:.0f} s")
    print(path, path.with_suffix(".html"), sep="\n")
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
