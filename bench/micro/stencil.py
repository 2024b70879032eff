"""A function over neighbours, in memory, against a loop by hand for numba, numba's @stencil and dask's map_overlap.

Each is written as its own users would write it; the loops by hand use unsigned indices, which numba does not check for
being negative. All have as many threads, and are checked against ours before they are timed. Loops by hand leave out
the cells at the edges, so ours do too (boundary "shrink"); what the edges take is told beside. Both fill the same
memory, so that where it lies is no difference between them. Told, too, is which part of the machine's memory bandwidth,
as plain copying has it, is used.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from math import prod

import numba
import numpy as np
from numba import njit, prange, stencil

from bench.figures import Figure, at_least, at_most, main
from bench.timing import race
from hyperslab.stencil.examples import moving_average, poisson_2d, poisson_3d
from hyperslab.stencil.memory import apply_in_memory

THREADS = len(os.sched_getaffinity(0))
HAND_BAR, STENCIL_BAR, DASK_BAR, FIRST_BAR_S = 0.9, 3.0, 5.0, 1.5
ONE, TWO, THREE = np.uint64(1), np.uint64(2), np.uint64(3)

FIRST_CALL = """
import time
import numpy as np
import hyperslab.stencil.memory as memory
array = np.ones((512, 512), np.float32)
started = time.perf_counter()
memory.apply_in_memory(lambda s: 4 * s(0, 0) - s(-1, 0) - s(1, 0) - s(0, -1) - s(0, 1), [array])
print(time.perf_counter() - started)
"""


@njit(parallel=True)
def five_by_hand(a, out):
    four = a.dtype.type(4)
    for i in prange(ONE, np.uint64(a.shape[0] - 1)):
        for j in range(ONE, np.uint64(a.shape[1] - 1)):
            out[i, j] = four * a[i, j] - a[i - ONE, j] - a[i + ONE, j] - a[i, j - ONE] - a[i, j + ONE]


@njit(parallel=True)
def seven_by_hand(a, out):
    six = a.dtype.type(6)
    for i in prange(ONE, np.uint64(a.shape[0] - 1)):
        for j in range(ONE, np.uint64(a.shape[1] - 1)):
            for k in range(ONE, np.uint64(a.shape[2] - 1)):
                rest = six * a[i, j, k] - a[i - ONE, j, k] - a[i + ONE, j, k] - a[i, j - ONE, k] - a[i, j + ONE, k]
                out[i, j, k] = rest - a[i, j, k - ONE] - a[i, j, k + ONE]


@njit(parallel=True)
def tiles_by_hand(a, out):
    four = a.dtype.type(4)
    for i in prange(np.uint64(out.shape[0])):
        for j in range(np.uint64(out.shape[1])):
            y, x = TWO * i, TWO * j
            out[i, j] = (a[y, x] + a[y, x + ONE] + a[y + ONE, x] + a[y + ONE, x + ONE]) / four


@njit(parallel=True)
def average_by_hand(a, out):
    four = a.dtype.type(4)
    for i in prange(np.uint64(a.shape[0] - 3)):
        out[i + ONE] = (a[i] + a[i + ONE] + a[i + TWO] + a[i + THREE]) / four


@stencil
def five_kernel(a):
    return 4 * a[0, 0] - a[-1, 0] - a[1, 0] - a[0, -1] - a[0, 1]


@stencil
def seven_kernel(a):
    return 6 * a[0, 0, 0] - a[-1, 0, 0] - a[1, 0, 0] - a[0, -1, 0] - a[0, 1, 0] - a[0, 0, -1] - a[0, 0, 1]


@stencil
def tiles_kernel(a):
    return (a[0, 0] + a[0, 1] + a[1, 0] + a[1, 1]) / 4


@stencil
def average_kernel(a):
    return (a[-1] + a[0] + a[1] + a[2]) / 4


@njit(parallel=True)
def five_by_stencil(a):
    return five_kernel(a)


@njit(parallel=True)
def seven_by_stencil(a):
    return seven_kernel(a)


@njit(parallel=True)
def tiles_by_stencil(a):
    return tiles_kernel(a)


@njit(parallel=True)
def average_by_stencil(a):
    return average_kernel(a)


def five_on_arrays(a):
    out = np.empty_like(a)
    out[1:-1, 1:-1] = 4 * a[1:-1, 1:-1] - a[:-2, 1:-1] - a[2:, 1:-1] - a[1:-1, :-2] - a[1:-1, 2:]
    return out


def seven_on_arrays(a):
    out, inner = np.empty_like(a), slice(1, -1)
    total = 6 * a[inner, inner, inner] - a[:-2, inner, inner] - a[2:, inner, inner] - a[inner, :-2, inner]
    out[inner, inner, inner] = total - a[inner, 2:, inner] - a[inner, inner, :-2] - a[inner, inner, 2:]
    return out


def tiles_on_arrays(a):
    return (a[::2, ::2] + a[::2, 1::2] + a[1::2, ::2] + a[1::2, 1::2]) / 4


def average_on_arrays(a):
    out = np.empty_like(a)
    out[1:-2] = (a[:-3] + a[1:-2] + a[2:-1] + a[3:]) / 4
    return out


@dataclass(frozen=True, slots=True)
class Case:
    """One function in all its forms; `inside` are the cells of the output that all of them compute."""

    name: str
    shape: tuple[int, ...]
    ours: Callable
    by_hand: Callable
    by_stencil: Callable
    on_arrays: Callable
    dask: dict
    inside: tuple[slice, ...]
    stride: int = 1


def four_points(s):
    return (s(-1) + s(0) + s(1) + s(2)) / 4


def tile_average(s):
    return (s(0, 0) + s(0, 1) + s(1, 0) + s(1, 1)) / 4


def cases(quick: bool) -> list[Case]:
    side, inner = 2048 if quick else 8192, slice(1, -1)
    halo = {"depth": 1, "boundary": "nearest"}
    return [
        Case("5-point", (side, side), poisson_2d, five_by_hand, five_by_stencil, five_on_arrays, halo, (inner,) * 2),
        Case(
            "7-point", (128, 256, 128) if quick else (512, 512, 256), poisson_3d, seven_by_hand, seven_by_stencil,
            seven_on_arrays, halo, (inner,) * 3,
        ),
        Case(
            "2×2 average", (side, side), tile_average, tiles_by_hand, tiles_by_stencil, tiles_on_arrays,
            {"depth": 0, "boundary": "none", "trim": False}, (slice(None),) * 2, stride=2,
        ),
        Case(
            "4-point moving average", (side * side,), four_points, average_by_hand, average_by_stencil,
            average_on_arrays, {"depth": 2, "boundary": "nearest"}, (slice(1, -2),),
        ),
    ]  # fmt: skip


def measure(quick: bool) -> Iterator[Figure]:
    numba.set_num_threads(THREADS)
    copy_bytes_s = copying(quick)
    for case in cases(quick):
        for dtype in ("float32", "float64"):
            yield from _figures(case, dtype, copy_bytes_s, rounds=5 if quick else 15)
    yield _computed_offsets(quick)
    yield at_most("stencil: first call, with compiling", min(first_calls(3)), FIRST_BAR_S, " s")


def _figures(case: Case, dtype: str, copy_bytes_s: float, rounds: int) -> Iterator[Figure]:
    import dask.array as da

    array = np.random.default_rng(2).random(case.shape, dtype)
    whole = touched([n // case.stride for n in case.shape], dtype)
    ours = partial(apply_in_memory, case.ours, [array], stride=case.stride, threads=THREADS)
    shrunk = ours(boundary="shrink").shape
    out = whole.reshape(-1)[: prod(shrunk)].reshape(shrunk)
    chunks = tuple(max(64, n // 4) for n in case.shape)
    lazy = da.from_array(array, chunks=chunks)
    sizes = {"chunks": tuple(n // case.stride for n in chunks)} if case.stride > 1 else {}
    planned = da.map_overlap(
        case.on_arrays, lazy, dtype=dtype, meta=np.empty((0,) * array.ndim, dtype), **case.dask, **sizes
    )
    calls = {
        "ours": partial(ours, boundary="shrink", out=out),
        "edges too": partial(ours, boundary="nearest", out=whole),
        "hand": partial(case.by_hand, array, whole),
        "@stencil": partial(case.by_stencil, array),
        "dask": partial(planned.compute, scheduler="threads", num_workers=THREADS),
    }
    _check(case, calls, out, whole)
    times = race(calls, rounds=rounds, batch_s=0)
    ours_s = times["ours"].best_s
    what = f"stencil: {case.name}, {dtype}"
    share = (array.nbytes + out.nbytes) / ours_s / copy_bytes_s
    edges = times["edges too"].best_s / ours_s - 1
    told = f"; {ours_s * 1e3:.3g} ms, {share:.0%} of the bandwidth of copying, edges {edges:+.0%}"
    yield at_least(f"{what}, against numba by hand", times["hand"].best_s / ours_s, HAND_BAR, told)
    yield at_least(f"{what}, against numba @stencil", times["@stencil"].best_s / ours_s, STENCIL_BAR)
    yield at_least(f"{what}, against dask map_overlap", times["dask"].best_s / ours_s, DASK_BAR)


def _computed_offsets(quick: bool) -> Figure:
    """Return what it takes to check offsets that a function computes, against one that writes them down."""
    array = np.random.default_rng(2).random(1 << (22 if quick else 26), "float32")
    outs = [touched(array.shape, array.dtype) for _ in range(2)]
    functions = {"literal": four_points, "computed": moving_average(1, 2)}
    calls = {
        name: partial(apply_in_memory, function, [array], out=out, threads=THREADS)
        for (name, function), out in zip(functions.items(), outs, strict=True)
    }
    times = race(calls, rounds=5 if quick else 15, batch_s=0)
    ratio = times["computed"].best_s / times["literal"].best_s
    return Figure("stencil: computed offsets, against literal ones", "", f"{ratio:.3g}× the time")


def _check(case: Case, calls: dict, out: np.ndarray, whole: np.ndarray) -> None:
    """Refuse to time what does not compute the same."""
    calls["ours"]()
    ours = out.copy()
    calls["hand"]()
    others = {"hand": whole, "@stencil": calls["@stencil"](), "dask": calls["dask"]()}
    for name, other in others.items():
        if name == "@stencil" and case.stride > 1:
            other = other[tuple(slice(None, None, case.stride) for _ in case.shape)]
        if not np.allclose(ours, other[case.inside], rtol=1e-4, atol=1e-4):
            raise AssertionError(f"{name} computes something else than we do: {case.name}")


def touched(shape, dtype) -> np.ndarray:
    """Return memory that has been written to: in huge pages, which NumPy asks for in `empty` and not in `zeros`."""
    made = np.empty(shape, dtype)
    made.fill(0)
    return made


def copying(quick: bool) -> float:
    """Return the bytes a second, read and written, at which all threads together copy memory."""
    source = np.ones(1 << (24 if quick else 27), np.float32)
    target = touched(source.shape, source.dtype)
    edges = [len(source) * k // THREADS for k in range(THREADS + 1)]
    with ThreadPoolExecutor(THREADS) as pool:

        def copy() -> None:
            list(
                pool.map(
                    lambda k: np.copyto(target[edges[k] : edges[k + 1]], source[edges[k] : edges[k + 1]]),
                    range(THREADS),
                )
            )

        return 2 * source.nbytes / race({"copy": copy}, rounds=7, batch_s=0)["copy"].best_s


def first_calls(count: int) -> list[float]:
    """Return the seconds of the first call in fresh processes: importing numba, compiling, computing."""
    command = [sys.executable, "-c", FIRST_CALL]
    return [float(subprocess.run(command, capture_output=True, text=True, check=True).stdout) for _ in range(count)]


if __name__ == "__main__":
    main(measure)
