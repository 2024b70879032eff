"""Advised layouts against the automatic chunks of zarr-python and h5py: ten patterns of reading, in the lab.

    python -m bench.layouts                        both presets; some 20 minutes, 10 of them to store all copies
    python -m bench.layouts --preset internet      one of them; may be repeated
    python -m bench.layouts --pattern "map at a time" --rounds 1
    python -m bench.layouts --libraries            also: how long zarr-python and h5py themselves take

On each preset the store is measured first; then, for each pattern, `hs.advise` sees some reads and says how the array
should lie, and other reads of the same pattern are timed on five copies of the array: in the advised layout, in our
default one, as zarr-python stores it when left to itself, as h5py does (an HDF5 file with chunks=True), and in the
chunks that h5py chooses as Zarr objects, each of which can be had by one request. Hyperslab reads all of them, so that
the layout is all that differs: with indexes but no chunks held in memory, in a new session for each round. Copies take
turns; each read counts by its quickest round; a copy that takes very long has one. No read takes less than one round
trip: where another copy does with little more, nothing is much faster. `patterns.py` says what is read.

What is stored is kept in `bench/out/layouts/`, some 15 GB; remove it after changing how arrays are written.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import hyperslab as hs
from bench.figures import Figure, print_table
from bench.lab import PRESETS, Lab
from bench.lab.presets import location_of
from bench.layouts.copies import DEFAULT, H5PY, LOOSE, ZARR, kept, put, truth
from bench.layouts.libraries import LIBRARIES, timed_by
from bench.layouts.patterns import PATTERNS, Key, reads_of

ROOT = Path(__file__).resolve().parents[2]
KNOWN, TIMED, ROUNDS = 60, 11, 5
# A copy whose reads of one round take longer has no further rounds.
LONG_S = 5.0
# As each library stores by itself; and h5py's chunks where it would not put them, in objects of their own.
AUTOMATIC = (ZARR, H5PY)
COPIES = (DEFAULT, *AUTOMATIC, LOOSE)
ADVISED = "advised"


# Inside the lab


def inside_advise(names: list[str], copies: dict[str, dict[str, str]]) -> dict[str, Any]:
    """Measure the store, and return the advice for each pattern; runs as the lab's client."""
    lab = _lab()
    hs.measure(lab.url(), storage_options=lab.storage_options)
    found = {}
    for name in names:
        with _session(lab) as session:
            array = hs.open(lab.url(copies[name][ZARR]), storage_options=lab.storage_options, session=session)
            started = time.perf_counter()
            advice = hs.advise(array, [key for keys in reads_of(name, KNOWN, 1) for key in keys])
            found[name] = {**advice.to_dict(), "took_s": time.perf_counter() - started, "text": str(advice)}
    return found


def inside_read(names: list[str], copies: dict[str, dict[str, str]], rounds: int) -> dict[str, Any]:
    """Time the reads of all patterns on all copies: the seconds of each read, by pattern, copy and round."""
    lab = _lab()
    hs.measure(lab.url(), storage_options=lab.storage_options)
    found: dict[str, Any] = {}
    for name in names:
        reads, cells = reads_of(name, TIMED, 2), truth(PATTERNS[name].data)
        times: dict[str, list[list[float]]] = {each: [] for each in copies[name]}
        for turn in range(rounds):
            for each in list(times) if turn % 2 else reversed(times):
                if not turn or sum(times[each][0]) < LONG_S:
                    times[each].append(_timed(lab, copies[name][each], reads, None if turn else cells))
        found[name] = times
        print(f"  {name}: done", file=sys.stderr, flush=True)
    return found


def _timed(lab: Lab, where: str, reads: list[list[Key]], cells: np.ndarray | None) -> list[float]:
    with _session(lab) as session:
        array = hs.open(lab.url(where), storage_options=lab.storage_options, session=session)
        array.read_boxes(reads[0])  # connections are opened
        taken = []
        for keys in reads[1:]:
            started = time.perf_counter()
            got = array.read_boxes(keys) if len(keys) > 1 else [array.read(keys[0])]
            taken.append(time.perf_counter() - started)
            if cells is not None and not all(np.array_equal(g, cells[key]) for g, key in zip(got, keys, strict=True)):
                raise SystemExit(f"wrong cells of {where}")
    return taken


def inside_libraries(names: list[str], copies: dict[str, dict[str, str]]) -> dict[str, Any]:
    """Return how long a read takes zarr-python and h5py on what they stored."""
    lab, found = _lab(), {}
    for name in names:
        reads = reads_of(name, TIMED, 2)
        found[name] = {each: timed_by(each, lab.endpoint, copies[name][each], reads) for each in LIBRARIES}
        print(f"  {name}: {found[name]}", file=sys.stderr, flush=True)
    return found


def _lab() -> Lab:
    lab = Lab.here()
    if lab is None:
        raise SystemExit("this part runs inside of a lab")
    return lab


def _session(lab: Lab) -> hs.Session:
    prices = f"aws-{location_of(lab.preset.name)}".removesuffix("-internet")
    return hs.Session(prices=prices, cache_bytes=0, index_bytes=1 << 26, learn=False)


INSIDE = {"advise": inside_advise, "read": inside_read, "libraries": inside_libraries}


# Outside


def run_preset(preset: str, names: list[str], rounds: int, libraries: bool) -> dict[str, Any]:
    """Start a lab, take advice in it, store copies accordingly, and time the reads."""
    with (
        Lab(preset, store_folder=kept() / "store") as lab,
        tempfile.TemporaryDirectory(prefix="hyperslab-layouts-") as home,
    ):
        copies = {name: {each: put(lab, PATTERNS[name].data, each) for each in COPIES} for name in names}
        advice = _run(lab, home, "advise", names=names, copies=copies)
        for name in names:
            copies[name][ADVISED] = put(lab, PATTERNS[name].data, ADVISED, advice[name]["best"])
        times = _run(lab, home, "read", names=names, copies=copies, rounds=rounds)
        by_libraries = _run(lab, home, "libraries", names=names, copies=copies) if libraries else {}
    return {"preset": preset, "advice": advice, "times": times, "libraries": by_libraries}


def _run(lab: Lab, home: str, part: str, **order: Any) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.layouts", "--inside", part, json.dumps(order)]
    environment = {**os.environ, "HYPERSLAB_HOME": home}
    done = lab.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False, env=environment)
    if done.returncode:
        raise SystemExit(f"{part} failed in the lab (exit {done.returncode})")
    return json.loads(done.stdout.splitlines()[-1])


def judged(found: dict[str, Any]) -> Iterator[Figure]:
    """Give the figures of one preset."""
    preset, thrice = found["preset"], 0
    for name, times in found["times"].items():
        # Of each read the quickest round; their mean.
        took = {each: float(np.min(rounds, axis=0).mean()) for each, rounds in times.items()}
        ratios = {each: took[each] / took[ADVISED] for each in COPIES}
        thrice += min(ratios[each] for each in AUTOMATIC) >= 3
        text = ", ".join(f"{each} {ratio:.2f}×" for each, ratio in ratios.items())
        if library := found["libraries"].get(name):
            text += "; " + ", ".join(f"{each} itself {taken / took[ADVISED]:.3g}×" for each, taken in library.items())
        form = found["advice"][name]["best"]
        note = f"{text}; {took[ADVISED] * 1e3:.1f} ms, chunks {form['chunks']} shards {form['shards']}"
        yield Figure(f"{preset}: {name}", "≥ 1×", note, min(ratios[each] for each in (*AUTOMATIC, LOOSE)) >= 1)
    count = len(found["times"])
    yield Figure(f"{preset}: at least 3 times faster", f"{-(-count // 2)} of {count}", str(thrice), thrice >= count / 2)
    yield _default(found)


def _default(found: dict[str, Any]) -> Figure:
    """Return how our default layout, which knows of no reads, does against the other libraries' ones."""
    took = [{each: float(np.min(rounds, axis=0).mean()) for each, rounds in times.items()}
            for times in found["times"].values()]  # fmt: skip
    words = []
    for each in AUTOMATIC:
        ratios = [times[each] / times[DEFAULT] for times in took]
        better, mean = sum(ratio >= 1 for ratio in ratios), float(np.exp(np.mean(np.log(ratios))))
        words.append(f"faster than {each}'s in {better} of {len(took)}, {mean:.2f}× on (geometric) average")
    return Figure(f"{found['preset']}: default layout", "–", "; ".join(words))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", action="append", choices=list(PRESETS))
    parser.add_argument("--pattern", action="append", choices=list(PATTERNS))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--libraries", action="store_true", help="time zarr-python and h5py themselves as well")
    parser.add_argument("--texts", action="store_true", help="print the advice as well")
    parser.add_argument("--inside", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        part, order = options.inside
        print(json.dumps(INSIDE[part](**json.loads(order))))
        return 0
    figures: list[Figure] = []
    for preset in options.preset or ("internet", "same-region"):
        found = run_preset(preset, options.pattern or list(PATTERNS), options.rounds, options.libraries)
        (kept() / f"{preset}.json").write_text(json.dumps(found))
        if options.texts:
            print("\n\n".join(each["text"] for each in found["advice"].values()))
        figures += judged(found)
    print_table(figures)
    return 0 if all(figure.passed is not False for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
