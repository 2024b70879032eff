"""Planning as arrays grow: the same bytes are asked of arrays of 64 GB to 2 TB, of which only the metadata exists.

What is timed is all that happens before the first request. The store's behaviour and prices are those of S3.
"""

import sys
import time
from collections.abc import Iterator
from functools import cache, partial
from math import prod
from typing import Any

import numpy as np

import hyperslab as hs
from bench.micro.planning import in_memory, plan_of
from bench.peers.workloads import BOX
from bench.timing import each_key, race
from hyperslab.plan import CostModel, FunctionModel, FunctionProfile, Plan, Prices, Profile, make_plan, pieces_of
from hyperslab.selection import parse

__all__ = ["SHAPES", "planning"]

CELL_BYTES = 4
CHUNKS = (2048, 2048)
# 64 GB, 256 GB, 1 TB and 2 TB of int32.
SHAPES = ((131_072, 131_072), (262_144, 262_144), (524_288, 524_288), (524_288, 1_048_576))
# 1% of the smallest, whatever it is asked of.
ASKED_BYTES = prod(SHAPES[0]) * CELL_BYTES // 100
PLACES, ROUNDS = 16, 7

Key = tuple[slice, slice]


def planning() -> list[dict[str, Any]]:
    """Return the rows of Figure 12a. `function_seconds` and `calls` are of planning with a function at hand."""
    return list(_rows())


def _rows() -> Iterator[dict[str, Any]]:
    started = time.monotonic()
    for shape in SHAPES:
        array = in_memory(f"planned-{shape[0]}x{shape[1]}", shape, CHUNKS)
        for workload, keys in _keys(shape).items():
            ways = {"plain": partial(plan_of, array), "function": partial(_plan_with_function, array)}
            taken = race({name: each_key(plan, keys) for name, plan in ways.items()}, rounds=ROUNDS)
            plan, called = (each(keys[0]).estimate for each in ways.values())
            yield {
                "array_bytes": prod(shape) * CELL_BYTES,
                "chunks": prod(n // c for n, c in zip(shape, CHUNKS, strict=True)),
                "workload": workload,
                "seconds": taken["plain"].best_s,
                "requests": plan.requests,
                "needed_bytes": plan.needed_bytes,
                "function_seconds": taken["function"].best_s,
                "function_requests": called.requests,
                "function_calls": called.calls,
            }
            told = f"{taken['plain']}, with a function {taken['function']}"
            what = f"planning {workload} of {prod(shape) * CELL_BYTES / 1e9:,.0f} GB"
            print(f"{time.monotonic() - started:6.0f} s  {what}: {told}", file=sys.stderr, flush=True)


def _keys(shape: tuple[int, int]) -> dict[str, list[Key]]:
    """Return the reads, each at many places: no plan is made twice in a row."""
    rng, (height, width) = np.random.default_rng(12), shape
    rows, columns = (ASKED_BYTES // (CELL_BYTES * n) for n in (width, height))
    tops, lefts = (rng.integers(0, n - m, PLACES).tolist() for n, m in ((height, rows), (width, columns)))
    corners = rng.integers(0, np.subtract(shape, BOX), (PLACES, 2)).tolist()
    return {
        "horizontal": [(slice(top, top + rows), slice(0, width)) for top in tops],
        "vertical": [(slice(0, height), slice(left, left + columns)) for left in lefts],
        "small box": [(slice(y, y + BOX), slice(x, x + BOX)) for y, x in corners],
    }


def _plan_with_function(array: hs.Array, key: Key) -> Plan:
    layout = array.source.layout
    return make_plan([pieces_of(layout, parse(key, layout.shape))], _model())


@cache
def _model() -> CostModel:
    """An array in memory has no function beside it, so the model is told of one."""
    prices = Prices.named("aws")
    assert prices.function is not None
    return CostModel(
        Profile.named("s3"), prices, 0.0,
        function=FunctionModel(FunctionProfile(0.02, 1e-8, chunk_s=0.002), prices.function),
    )  # fmt: skip
