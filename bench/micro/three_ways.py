"""Planning with three ways: 10,000 chunks, each by GET, ranges or a call; from the pieces to the plan."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from collections.abc import Iterator
from math import inf

import numpy as np

from bench.figures import Figure, main
from bench.timing import race
from hyperslab.layout import ChunkKeys, Layout
from hyperslab.plan import CostModel, FunctionModel, FunctionProfile, Prices, Profile, make_plan, pieces_of
from hyperslab.selection import parse

BAR_S = 0.050
SIDE, CHUNK = 100, 256
KEYS = {
    "8 runs a chunk": (slice(None, None, 32), slice(10, -20)),
    "every 2nd cell": (slice(None, None, 32), slice(None, None, 2)),
    "some chunks' cells": (slice(None, None, 100), slice(None, None, 300)),
}


def measure(quick: bool) -> Iterator[Figure]:
    cells = SIDE * CHUNK
    dtype = np.dtype("<f4")
    keys = ChunkKeys("a/", "/", "c")
    layout = Layout((cells, cells), dtype, (CHUNK, CHUNK), keys, np.zeros((), dtype), dtype, (0, 1))
    aws = Prices.named("aws")
    function = FunctionModel(FunctionProfile(0.02, 1e-8, chunk_s=0.002), aws.function)
    for name, key in KEYS.items():
        pieces = pieces_of(layout, parse(key, layout.shape))
        for phi in (0.0, 100.0, inf):
            model = CostModel(Profile.named("s3"), aws, phi, function=function)
            plan = make_plan([pieces], model)
            taken = race({"plan": lambda: make_plan([pieces], model)}, rounds=3 if quick else 9)["plan"]  # noqa: B023
            told = f"{taken.best_s * 1e3:.1f} ms; {len(plan.calls)} calls, {len(plan.requests)} requests"
            what = f"three ways, {len(pieces):,} chunks, {name}, phi {phi:g}"
            yield Figure(what, "50 ms", told, taken.best_s <= BAR_S)


if __name__ == "__main__":
    main(measure)
