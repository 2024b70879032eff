"""Figures 7 to 11 of the paper ArrayUDF, drawn again on this machine: what reading halos takes, and a window's average.

Figures 7 to 10 have no bar: they are read from files that the system holds in memory, which have no seeks.

7    time to read a chunk against its size: a line, whose slope is α and whose start is β
8    time to read a chunk with its halo against its shape, where rows lie side by side and where columns do
9    time to read rows against the width of their halo
10   all of an array, slab by slab: halo rows carried over, read with each slab, or loaded with their own slabs
11   the average of a window of 2×2 (and 2×2×2), and Poisson's equation, against Dask and SciPy; both of 1000² cells
     against Spark, where SPARK_PYTHON names a Python that has it (`make bench-stencil` sees to that)

python -m bench.stencil_figures [--quick]
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from bench.figures import Figure, at_least, main
from bench.timing import race, seconds_text

SIDE = 8192
QUICK_SIDE = 2048
SPARK_SIDE, SPARK_BAR = 1000, 100


def paper_figures(quick: bool) -> list[Figure]:
    """Return the figures, and print the curves that they are made of."""
    import hyperslab as hs

    side = QUICK_SIDE if quick else SIDE
    rounds = 9 if quick else 15
    arrays = {order: hs.open(_field(side, order)) for order in "CF"}
    return [
        *_figure_7(arrays["C"], rounds), *_figure_8(arrays, rounds), *_figure_9(arrays["C"], rounds),
        *_figure_10(arrays["C"], rounds), *_figure_11(side, rounds),
        *_spark(rounds),
    ]  # fmt: skip


def _field(side: int, order: str) -> str:
    """Return a file of side² float32, row by row ("C") or column by column ("F")."""
    folder = Path(os.environ.get("HYPERSLAB_BENCH_DATA", Path(__file__).parent / "out"))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"square-{side}-{order}.npy"
    if not path.exists():
        cells = np.random.default_rng(1).random((side, side), np.float32)
        np.save(path.with_suffix(".half.npy"), cells if order == "C" else np.asfortranarray(cells))
        path.with_suffix(".half.npy").rename(path)
    return str(path)


def _figure_7(array, rounds: int) -> list[Figure]:
    sides = [side for side in (128, 256, 512, 1024, 2048, 4096) if side <= len(array)]
    calls = {str(side): _reading(array, np.s_[:side, :side]) for side in sides}
    found = race(calls, rounds=rounds)
    seconds = np.array([found[str(side)].best_s for side in sides])
    nbytes = np.array([side * side * 4 for side in sides])
    slope, start = np.polyfit(nbytes, seconds, 1)
    fitted = slope * nbytes + start
    unexplained = ((seconds - fitted) ** 2).sum() / ((seconds - seconds.mean()) ** 2).sum()
    _print("7", {f"{side}²": each for side, each in zip(sides, seconds, strict=True)})
    line = f"α {slope * 1e9:.2f} s/GB, β {seconds_text(max(start, 0))}, R² {1 - unexplained:.3f}"
    return [Figure("figure 7: time to read a chunk against its bytes", "", line)]


def _figure_8(arrays: dict[str, object], rounds: int) -> list[Figure]:
    side = arrays["C"].shape[0]
    cells = side * side // 64
    shapes = [(cells // n, n) for n in (side, side // 2, side // 8, side // 32, cells // side)]
    best = {}
    for order, array in arrays.items():
        calls = {f"{a}×{b}": _reading(array, np.s_[1 : min(a + 2, side), : min(b + 1, side)]) for a, b in shapes}
        times = race(calls, rounds=rounds)
        best[order] = {name: each.best_s for name, each in times.items()}
        _print(f"8, {'rows' if order == 'C' else 'columns'} side by side", best[order])
    names = list(best["C"])
    rows, columns = best["C"], best["F"]
    ways = f"rows {rows[names[-1]] / rows[names[0]]:.2f}×, columns {columns[names[-1]] / columns[names[0]]:.2f}×"
    return [Figure("figure 8: tall chunks' time over flat ones', by what lies side by side", "", ways)]


def _figure_9(array, rounds: int) -> list[Figure]:
    rows = len(array) // 8
    halos = [halo for halo in (0, 1, 4, 16, 64) if halo * 2 < rows]
    calls = {str(halo): _reading(array, np.s_[rows - halo : 2 * rows + halo]) for halo in halos}
    found = {name: each.best_s for name, each in race(calls, rounds=rounds).items()}
    _print("9, by halo", found)
    ratio = f"{found[str(halos[-1])] / found['0']:.2f}× the time, {1 + 2 * halos[-1] / rows:.2f}× the rows"
    return [Figure(f"figure 9: {rows} rows with a halo of {halos[-1]}, against none", "", ratio)]


def _figure_10(array, rounds: int) -> list[Figure]:
    """Read all rows in slabs of 1/32 of them, with a halo of 1/8 of a slab."""
    step = len(array) // 32
    halo = max(1, step // 8)
    buffer = np.zeros((step + 2 * halo, array.shape[1]), array.dtype)
    found = {
        name: each.best_s
        for name, each in race(
            {
                "carried": lambda: _read(array, buffer, _carried(len(array), step, halo)),
                "with each slab": lambda: _read(array, buffer, _extended(len(array), step, halo)),
                "loaded with its slab": lambda: _read(array, buffer, _loaded(len(array), step)),
            },
            rounds=rounds,
        ).items()
    }
    _print("10", found)
    carried = found["carried"]
    others = f"{found['with each slab'] / carried:.2f}×, {found['loaded with its slab'] / carried:.2f}×"
    return [Figure("figure 10: halo read with each slab, loaded with its own slab, over carried", "", others)]


def _reading(array, key) -> Callable[[], object]:
    """Return a call that reads into memory that was touched before: its first use is not what is measured."""
    return partial(array.read, key, out=array.read(key))


def _read(array, buffer: np.ndarray, slabs: Iterator[tuple[int, int]]) -> None:
    for low, high in slabs:
        array.read(np.s_[low:high], out=buffer[: high - low])


def _carried(rows: int, step: int, halo: int) -> Iterator[tuple[int, int]]:
    return ((low, min(low + step, rows)) for low in range(0, rows, step))


def _extended(rows: int, step: int, halo: int) -> Iterator[tuple[int, int]]:
    return ((max(0, low - halo), min(low + step + halo, rows)) for low in range(0, rows, step))


def _loaded(rows: int, step: int) -> Iterator[tuple[int, int]]:
    for low in range(0, rows, step):
        for first in (low, low - step, low + step):
            if 0 <= first < rows:
                yield first, min(first + step, rows)


def window(s):
    return (s(0, 0) + s(0, 1) + s(1, 0) + s(1, 1)) / 4


def window_3d(s):
    near = s(0, 0, 0) + s(0, 0, 1) + s(0, 1, 0) + s(0, 1, 1)
    return (near + s(1, 0, 0) + s(1, 0, 1) + s(1, 1, 0) + s(1, 1, 1)) / 8


def _figure_11(side: int, rounds: int) -> list[Figure]:
    from scipy import ndimage

    import hyperslab as hs
    from hyperslab.stencil.examples import poisson_2d, poisson_3d

    rng = np.random.default_rng(2)
    flat = rng.random((side, side), np.float32)
    deep = rng.random((side // 32, side // 8, side // 8), np.float32)
    figures = []
    for name, cells, mean, poisson in (("2-D", flat, window, poisson_2d), ("3-D", deep, window_3d, poisson_3d)):
        calls: dict[str, Callable[[], object]] = {
            "hyperslab": partial(hs.apply, mean, cells),
            "dask": _dask(cells),
            "scipy": partial(ndimage.uniform_filter, cells, 2, mode="nearest", origin=-1),
            "hyperslab, Poisson": partial(hs.apply, poisson, cells),
        }
        assert np.allclose(calls["hyperslab"](), calls["dask"](), atol=1e-5)
        assert np.allclose(calls["hyperslab"](), calls["scipy"](), atol=1e-5)
        found = {each: timing.best_s for each, timing in race(calls, rounds=rounds // 3).items()}
        _print(f"11, {name} {cells.shape}", found)
        figures += [
            at_least(f"figure 11: window average, {name}, against Dask", found["dask"] / found["hyperslab"], 5),
            at_least(f"the same against SciPy's uniform_filter, {name}", found["scipy"] / found["hyperslab"], 1),
        ]
    return figures


def _dask(cells: np.ndarray) -> Callable[[], np.ndarray]:
    import dask.array as da

    def mean(block: np.ndarray) -> np.ndarray:
        out = np.zeros_like(block)
        inner = tuple(slice(None, -1) for _ in block.shape)
        total = sum(
            block[tuple(slice(1, None) if bit >> axis & 1 else slice(None, -1) for axis in range(block.ndim))]
            for bit in range(2**block.ndim)
        )
        out[inner] = total / 2**block.ndim
        return out

    lazy = da.from_array(cells, chunks=tuple(-(-n // 2) for n in cells.shape))
    return lazy.map_overlap(mean, depth=1, boundary="nearest", dtype=cells.dtype, meta=cells[:0]).compute


def _spark(rounds: int) -> list[Figure]:
    """Compare with Spark's `flatMap` and `reduceByKey`; inner cells are compared, as Spark's way has no edges."""
    import hyperslab as hs
    from hyperslab.stencil.examples import poisson_2d

    python = os.environ.get("SPARK_PYTHON")
    if not python:
        return [Figure("figure 11: Spark", "", "not measured: SPARK_PYTHON names no Python")]
    cells = np.random.default_rng(3).random((SPARK_SIDE, SPARK_SIDE))
    with tempfile.TemporaryDirectory(prefix="hyperslab-spark-") as folder:
        np.save(f"{folder}/cells.npy", cells)
        command = [python, "-m", "bench.stencil_spark", f"{folder}/cells.npy", folder]
        done = subprocess.run(command, cwd=Path(__file__).parents[1], check=False, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"Spark failed: {done.stderr[-2000:]}")
        results = {name: np.load(f"{folder}/{name}.npy") for name in ("window", "poisson")}
    spark = json.loads(done.stdout.splitlines()[-1])
    calls = {"window": partial(hs.apply, window, cells), "poisson": partial(hs.apply, poisson_2d, cells)}
    for name, call in calls.items():
        assert np.allclose(call()[1:-1, 1:-1], results[name][1:-1, 1:-1])
    ours = {name: timing.best_s for name, timing in race(calls, rounds=rounds).items()}
    _print("11, Spark", {**spark, **{f"{name}, hyperslab": each for name, each in ours.items()}})
    names = {"window": "window average", "poisson": "Poisson"}
    return [
        at_least(f"figure 11: {names[name]}, {SPARK_SIDE}², against Spark", spark[name] / ours[name], SPARK_BAR)
        for name in ours
    ]


def _print(name: str, found: dict[str, float]) -> None:
    print(f"  figure {name}: " + ", ".join(f"{what} {seconds_text(each)}" for what, each in found.items()), flush=True)


if __name__ == "__main__":
    main(paper_figures)
