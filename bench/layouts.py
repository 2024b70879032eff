"""Advised layouts against the automatic chunks of zarr-python and h5py: ten patterns of reading, in the lab.

    python -m bench.layouts                        both presets; about half an hour
    python -m bench.layouts --preset internet      one of them; may be repeated
    python -m bench.layouts --pattern "map at a time" --rounds 1

On each preset the store is measured first; then, for each pattern, `hs.advise` sees some reads and says how the array
should lie, and other reads of the same pattern are timed on five copies of the array: in the advised layout, in our
default one, as zarr-python stores it when left to itself, as h5py does (an HDF5 file with chunks=True), and in the
chunks that h5py chooses as Zarr objects, each of which can be had by one request. Hyperslab reads all of them, with
indexes but no chunks held in memory, in a new session for each round. Copies take turns; each is judged by its quickest
round. No read takes less than one round trip: where the last of these copies does with one, nothing is much faster.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

import hyperslab as hs
from bench.data import folder
from bench.figures import Figure, print_table
from bench.lab import PRESETS, Lab
from bench.lab.presets import location_of

__all__ = ["main"]

ROOT = Path(__file__).resolve().parents[1]
KNOWN, TIMED, ROUNDS = 60, 10, 3
# As each library stores by itself; and h5py's chunks where it would not put them, in objects of their own.
AUTOMATIC, LOOSE = ("zarr", "h5py"), "h5py's chunks as objects"
COPIES = {"default": "default", "zarr": "zarr", "h5py": "h5py.h5/a", LOOSE: "loose"}
WEATHER, IMAGES, ROWS = (480, 12, 90, 180), (256, 3, 512, 512), (200_000, 256)

Key = Any
Draw = Callable[[np.random.Generator], Key]


@dataclass(frozen=True, slots=True)
class Pattern:
    """A way to read an array: `draw` gives one key after the other."""

    data: str
    draw: Draw


def _at(rng: np.random.Generator, length: int, count: int = 1) -> int:
    return int(rng.integers(0, length - count + 1))


def _box(rng: np.random.Generator, sizes: tuple[int, ...]) -> Key:
    starts = [_at(rng, length, size) for length, size in zip(WEATHER, sizes, strict=True)]
    return tuple([slice(at, at + size) for at, size in zip(starts, sizes, strict=True)])


def _series(rng: np.random.Generator) -> Key:
    return (slice(None), _at(rng, 12), _at(rng, 90), _at(rng, 180))


def _map(rng: np.random.Generator) -> Key:
    return (_at(rng, 480), _at(rng, 12))


def _crop(rng: np.random.Generator) -> Key:
    y, x = _at(rng, 512, 96), _at(rng, 512, 96)
    return (_at(rng, 256), slice(None), slice(y, y + 96), slice(x, x + 96))


def _diagonal(rng: np.random.Generator) -> Key:
    step = int(rng.integers(0, 78))
    return (slice(6 * step, 6 * step + 6), slice(None), slice(step, step + 12), slice(2 * step, 2 * step + 24))


def _hot(rng: np.random.Generator) -> Key:
    if rng.random() < 0.1:
        return _box(rng, (24, 1, 8, 8))
    t, y, x = 400 + _at(rng, 80, 24), 40 + _at(rng, 20, 8), 60 + _at(rng, 40, 8)
    return (slice(t, t + 24), _at(rng, 12), slice(y, y + 8), slice(x, x + 8))


PATTERNS = {
    "time series at a point": Pattern("weather", _series),
    "map at a time": Pattern("weather", _map),
    "vertical profile": Pattern("weather", lambda rng: (_at(rng, 480), slice(None), _at(rng, 90), _at(rng, 180))),
    "small box": Pattern("weather", lambda rng: _box(rng, (8, 3, 10, 10))),
    "batch of images": Pattern("images", lambda rng: (np.sort(rng.choice(256, 8, replace=False)),)),
    "crop": Pattern("images", _crop),
    "diagonal line of boxes": Pattern("weather", _diagonal),
    "hot region": Pattern("weather", _hot),
    "mixed 50/50": Pattern("weather", lambda rng: (_series if rng.random() < 0.5 else _map)(rng)),
    "random rows": Pattern("rows", lambda rng: (np.sort(rng.choice(200_000, 64, replace=False)),)),
}


def keys_of(pattern: str, count: int, seed: int) -> list[Key]:
    """Return so many keys; another seed gives others."""
    rng = np.random.default_rng([seed, *pattern.encode()])
    return [PATTERNS[pattern].draw(rng) for _ in range(count)]


def cells(data: str) -> np.ndarray:
    """Return the cells of an array: fields that change slowly with noise on them, pictures, rows of noise."""
    rng = np.random.default_rng(7)
    if data == "rows":
        return rng.standard_normal(ROWS, np.float32)
    if data == "images":
        coarse = rng.integers(0, 255, (256, 3, 32, 32), np.uint8).repeat(16, axis=2).repeat(16, axis=3)
        return coarse + rng.integers(0, 6, IMAGES, np.uint8)
    t, z, y, x = (np.linspace(0, 6, n, dtype=np.float32).reshape([-1 if i == a else 1 for i in range(4)])
                  for a, n in enumerate(WEATHER))  # fmt: skip
    field = 280 + 20 * np.sin(t + x) * np.cos(y) - 6 * z + rng.standard_normal(WEATHER, np.float32) / 4
    return np.round(field, 2).astype("f4")


def stored(data: str, layout: str, form: dict[str, Any] | None = None) -> Path:
    """Return the folder of an array in one layout; made when it is first asked for."""
    name = f"layouts-{data}-{layout}".replace("'", "").replace(" ", "-") + (
        "" if form is None else "-" + "x".join(map(str, form["chunks"] + (form["shards"] or [0])))
    )
    path = folder() / f"{name}.{'h5' if layout == 'h5py' else 'zarr'}"
    if path.exists():
        return path
    made = path.with_suffix(".part")
    shutil.rmtree(made, ignore_errors=True)
    whole = cells(data)
    if layout == "h5py":
        with h5py.File(made, "w") as file:
            file.create_dataset("a", data=whole, chunks=True)
    elif layout in ("zarr", LOOSE):
        import zarr

        chunks = "auto" if layout == "zarr" else _chunks_of_h5py(whole)
        array: Any = zarr.create_array(made, shape=whole.shape, dtype=whole.dtype, chunks=chunks)
        array[...] = whole
    elif form is None:
        hs.save(made, whole)
    else:
        hs.save(made, whole, chunks=tuple(form["chunks"]), shards=tuple(form["shards"]) if form["shards"] else False)
    return made.rename(path)


def _chunks_of_h5py(whole: np.ndarray) -> Any:
    with h5py.File.in_memory() as file:
        return file.create_dataset("a", whole.shape, whole.dtype, chunks=True).chunks


# Inside the lab


def inside_advise(names: list[str]) -> dict[str, Any]:
    """Measure the store, and return the advice for each pattern; runs as the lab's client."""
    lab = _lab()
    hs.measure(lab.url(), storage_options=lab.storage_options)
    found = {}
    for name in names:
        with _session(lab) as session:
            array = hs.open(
                lab.url(f"{PATTERNS[name].data}-zarr"), storage_options=lab.storage_options, session=session
            )
            started = time.perf_counter()
            advice = hs.advise(array, keys_of(name, KNOWN, 1))
            found[name] = {**advice.to_dict(), "took_s": time.perf_counter() - started, "text": str(advice)}
    return found


def inside_read(names: list[str], rounds: int, forms: dict[str, str]) -> dict[str, Any]:
    """Time the reads of all patterns on all copies."""
    lab = _lab()
    hs.measure(lab.url(), storage_options=lab.storage_options)
    found: dict[str, Any] = {}
    for name in names:
        data, keys = PATTERNS[name].data, keys_of(name, TIMED, 2)
        truth = cells(data)
        copies = {each: f"{data}-{where}" for each, where in COPIES.items()} | {"advised": forms[name]}
        times: dict[str, list[float]] = {each: [] for each in copies}
        for turn in range(rounds):
            for each in list(copies) if turn % 2 else reversed(copies):
                times[each].append(_timed(lab, copies[each], keys, truth, check=not turn))
        found[name] = times
        print(f"  {name}: done", file=sys.stderr, flush=True)
    return found


def _timed(lab: Lab, where: str, keys: list[Key], truth: np.ndarray, *, check: bool) -> float:
    with _session(lab) as session:
        array = hs.open(lab.url(where), storage_options=lab.storage_options, session=session)
        array.read(keys[0])  # connections are opened
        taken = 0.0
        for key in keys[1:]:
            started = time.perf_counter()
            got = array.read(key)
            taken += time.perf_counter() - started
            if check and not np.array_equal(got, truth[key]):
                raise SystemExit(f"wrong cells of {where}")
    return taken / (len(keys) - 1)


def _lab() -> Lab:
    lab = Lab.here()
    if lab is None:
        raise SystemExit("this part runs inside of a lab")
    return lab


def _session(lab: Lab) -> hs.Session:
    prices = f"aws-{location_of(lab.preset.name)}".removesuffix("-internet")
    return hs.Session(prices=prices, cache_bytes=0, index_bytes=1 << 26, learn=False)


# Outside


def run_preset(preset: str, names: list[str], rounds: int) -> dict[str, Any]:
    """Start a lab, take advice in it, store copies accordingly, and time the reads."""
    with Lab(preset) as lab, tempfile.TemporaryDirectory(prefix="hyperslab-layouts-") as home:
        for data in dict.fromkeys(PATTERNS[name].data for name in names):
            for layout, where in COPIES.items():
                lab.upload(stored(data, layout), f"{data}-{where}".removesuffix("/a"))
        advice = _run(lab, home, "--advise", names)
        forms = {}
        for name in names:
            best, data = advice[name]["best"], PATTERNS[name].data
            path = stored(data, "advised", best)
            forms[name] = lab.upload(path, path.name).removeprefix(lab.url() + "/")
        times = _run(lab, home, "--read", names, rounds=rounds, forms=forms)
    return {"preset": preset, "advice": advice, "times": times}


def _run(lab: Lab, home: str, part: str, names: list[str], **more: Any) -> dict[str, Any]:
    order = json.dumps({"names": names, **more})
    command = [sys.executable, "-m", "bench.layouts", part, order]
    environment = {**os.environ, "HYPERSLAB_HOME": home}
    done = lab.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False, env=environment)
    if done.returncode:
        raise SystemExit(f"{part} failed in the lab (exit {done.returncode})")
    return json.loads(done.stdout.splitlines()[-1])


def judged(found: dict[str, Any]) -> Iterator[Figure]:
    """Give the figures of one preset."""
    preset, thrice = found["preset"], 0
    for name, times in found["times"].items():
        best = {each: min(rounds) for each, rounds in times.items()}
        ratios = {each: best[each] / best["advised"] for each in best if each != "advised"}
        thrice += min(ratios[each] for each in AUTOMATIC) >= 3
        worst = min(ratios[each] for each in (*AUTOMATIC, LOOSE))
        form = found["advice"][name]["best"]
        text = ", ".join(f"{each} {ratio:.2f}×" for each, ratio in ratios.items())
        note = f"{text}; {best['advised'] * 1e3:.0f} ms, chunks {form['chunks']} shards {form['shards']}"
        yield Figure(f"{preset}: {name}", "≥ 1×", note, worst >= 1)
    count = len(found["times"])
    yield Figure(f"{preset}: at least 3 times faster", f"{-(-count // 2)} of {count}", str(thrice), thrice >= count / 2)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", action="append", choices=list(PRESETS))
    parser.add_argument("--pattern", action="append", choices=list(PATTERNS))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--texts", action="store_true", help="print the advice as well")
    parser.add_argument("--advise", help=argparse.SUPPRESS)
    parser.add_argument("--read", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.advise:
        print(json.dumps(inside_advise(**json.loads(options.advise))))
        return 0
    if options.read:
        print(json.dumps(inside_read(**json.loads(options.read))))
        return 0
    figures: list[Figure] = []
    for preset in options.preset or ("internet", "same-region"):
        found = run_preset(preset, options.pattern or list(PATTERNS), options.rounds)
        if options.texts:
            print("\n\n".join(each["text"] for each in found["advice"].values()))
        figures += judged(found)
    print_table(figures)
    return 0 if all(figure.passed for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
