"""Chunk shapes for 1,000 query shapes in 10 dimensions: how long the closed form, the greedy and the exact search take.

Of several families of workloads the slowest is shown; in some of them, what suits one query does not suit another. Then
the models against counted chunks, as in the paper's Figure 4.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bench.figures import Figure, at_most, main
from bench.timing import no_collection, seconds_text
from hyperslab.tune.exact import qs_exact
from hyperslab.tune.greedy import qs_greedy
from hyperslab.tune.models import iar_powers, iar_real, qs_cost, ss_cost
from hyperslab.tune.touched import chunks_touched, expected_touched

QUERIES, NDIM = 1000, 10
SIZE = QUERIES, NDIM
BAR_S, FAST_BAR_S = 2.0, 0.050
BAR_PERCENT = 2.0


def families(seed: int) -> dict[str, np.ndarray]:
    """Return adjusted shapes (queries, axes) by the name of their family."""
    r = np.random.default_rng(seed)
    long, ranks = r.integers(1, 4096, SIZE), r.random(SIZE).argsort(axis=1)
    halves = (r.random(QUERIES) < 0.5)[:, None] == (np.arange(NDIM) < NDIM // 2)
    centres = np.exp(r.normal(2.5, 2, (5, NDIM)))[r.integers(0, 5, QUERIES)]
    made = {
        "uniform to 1000": r.integers(0, 1000, SIZE),
        "uniform to 40": r.integers(0, 40, SIZE),
        "uniform to 12": r.integers(0, 12, SIZE),
        "lognormal": np.exp(r.normal(2, 1.5, SIZE)),
        "lognormal, wide": np.exp(r.normal(1, 3, SIZE)),
        "Pareto": r.pareto(0.8, SIZE),
        "anisotropic": r.random(SIZE) * 2.0 ** r.integers(0, 14, NDIM),
        "anisotropic lognormal": np.exp(r.normal(0, 1, SIZE) + r.normal(2.5, 1.5, NDIM)),
        "five kinds": centres * np.exp(r.normal(0, 0.3, SIZE)),
        "large or small": np.where(r.random(SIZE) < 0.5, r.integers(100, 1000, SIZE), r.integers(0, 3, SIZE)),
        "one half or the other": np.where(halves, r.integers(50, 2000, SIZE), r.integers(0, 8, SIZE)),
        "a cell or all of an axis": np.where(r.random(SIZE) < 0.3, 2.0 ** r.integers(3, 12, NDIM) - 1, 0),
        "a cell or 256": np.where(r.random(SIZE) < 0.3, 255, 0),
        "a million cells": 2.0 ** (r.dirichlet(np.ones(NDIM), QUERIES) * 20) - 1,
        "a million cells, in few axes": 2.0 ** (r.dirichlet(np.full(NDIM, 0.2), QUERIES) * 20) - 1,
        "lines": np.where(ranks < 1, long, 0),
        "equal lines": np.where(ranks < 1, 999, 0),
        "lines, slightly thick": np.where(ranks < 1, long, r.integers(0, 4, SIZE)),
        "lines, some thick": np.where(ranks < 1, long, np.where(r.random(SIZE) < 0.03, r.integers(1, 4, SIZE), 0)),
        "planes": np.where(ranks < 2, long, 0),
        "planes, lognormal": np.where(ranks < 2, np.exp(r.normal(3, 2, SIZE)), 0),
        "blocks": np.where(ranks < 3, long, 0),
    }
    return {name: np.minimum(np.floor(shapes), 1e6) for name, shapes in made.items()}


def measure(quick: bool) -> Iterator[Figure]:
    seeds, sizes = (1, (14, 20, 26)) if quick else (3, (8, 11, 14, 17, 20, 23, 26))
    slowest: dict[str, tuple[float, str]] = {}
    worse, cases, gaps = 0, 0, [0.0]
    for seed in range(seeds):
        weights = np.random.default_rng(seed).exponential(size=QUERIES)
        for name, adjusted in families(seed).items():
            means = weights @ adjusted / weights.sum()
            of_family = 0.0
            for log2_cells in sizes:
                where = f"{name}, 2^{log2_cells} cells"
                _, s = _timed(lambda: (iar_real(means, 2.0**log2_cells), iar_powers(means, log2_cells)))  # noqa: B023
                _keep(slowest, "IAR", s, where)
                greedy, s = _timed(lambda: qs_greedy(adjusted, weights, log2_cells))  # noqa: B023
                _keep(slowest, "greedy", s, where)
                best, s = _timed(lambda: qs_exact(adjusted, weights, log2_cells))  # noqa: B023
                _keep(slowest, "exact", s, where)
                if log2_cells == 20:
                    _keep(slowest, "exact, 2^20 cells", s, name)
                if not best.proven or best.cost > greedy.cost:
                    raise AssertionError(f"the exact search failed for {where}, seed {seed}")
                of_family = max(of_family, s)
                gaps.append(greedy.cost / best.cost - 1)
                worse, cases = worse + (gaps[-1] > 1e-9), cases + 1
            print(f"  {name}: exact {seconds_text(of_family)}")
    for what, bar_s in {"IAR": FAST_BAR_S, "greedy": FAST_BAR_S, "exact, 2^20 cells": BAR_S, "exact": BAR_S}.items():
        s, where = slowest[what]
        told = f"{seconds_text(s)} ({where})"
        yield Figure(f"shapes: {what}, slowest of {cases} cases", f"≤ {seconds_text(bar_s)}", told, s <= bar_s)
    told = f"in {worse} of {cases} cases, by {max(gaps):.2%} at most"
    yield Figure("shapes: the greedy costs more than the optimum", "", told)
    yield from _predictions(quick)


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """Return what a call returns and the seconds it took, the better of two times."""
    taken = []
    for _ in range(2):
        with no_collection():
            started = time.perf_counter()
            result = call()
            taken.append(time.perf_counter() - started)
    return result, min(taken)


def _keep(slowest: dict[str, tuple[float, str]], what: str, seconds: float, where: str) -> None:
    slowest[what] = max(slowest.get(what, (0.0, "")), (seconds, where))


def _predictions(quick: bool) -> Iterator[Figure]:
    """Compare models with counts: random boxes in 2 to 5 dimensions, in a large array and in one they nearly fill."""
    errors: dict[str, list[float]] = {"formula": [], "SS": [], "exact mean": [], "formula there": []}
    random = np.random.default_rng(0)
    for ndim in (2, 3, 4, 5):
        for _ in range(3 if quick else 20):
            chunks = random.integers(2, 33, ndim)
            boxes = random.integers(1, 101, (50_000, ndim))
            counted = chunks_touched(random.integers(0, 1_000_000, boxes.shape), boxes, chunks).mean()
            errors["formula"].append(qs_cost(boxes, None, chunks) / counted - 1)
            errors["SS"].append(ss_cost(boxes, None, chunks) / counted - 1)
            shape = random.integers(20, 100, ndim)
            boxes = random.integers(1, shape + 1, (50_000, ndim))
            counted = chunks_touched(random.integers(0, shape - boxes + 1), boxes, chunks).mean()
            errors["exact mean"].append(expected_touched(shape, boxes, chunks).mean() / counted - 1)
            errors["formula there"].append(qs_cost(boxes, None, chunks) / counted - 1)
    worst = {what: 100 * float(np.abs(all_errors).max()) for what, all_errors in errors.items()}
    note = f" (SS model: {worst['SS']:.0f}%)"
    yield at_most("shapes: formula against counted chunks, large array", worst["formula"], BAR_PERCENT, "%", note)
    note = f" (formula: {worst['formula there']:.0f}%)"
    yield at_most("shapes: exact mean against counted chunks, small array", worst["exact mean"], BAR_PERCENT, "%", note)


if __name__ == "__main__":
    main(measure)
