"""Functions over neighbours by Spark, the way of the paper ArrayUDF: `flatMap` each cell to the groups that it belongs
to, `reduceByKey` each group to its value. Runs in Spark's own environment; `stencil_figures.py` starts it.

    SPARK_PYTHON -m bench.stencil_spark CELLS.npy RESULT-FOLDER     one JSON line: seconds by function

Spark's start, and a first small job by which its workers are started and warm, are not part of the seconds. What is in
them is what the paper has in them: from cells in Spark's memory to cells of the result in Spark's memory.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from pyspark import RDD, SparkContext, StorageLevel

# How much each neighbour counts, by its offset; as `window` and `poisson_2d` have it.
WEIGHTS = {
    "window": {(0, 0): 0.25, (0, 1): 0.25, (1, 0): 0.25, (1, 1): 0.25},
    "poisson": {(0, 0): 4.0, (-1, 0): -1.0, (1, 0): -1.0, (0, -1): -1.0, (0, 1): -1.0},
}


def groups(weights: dict[tuple[int, int], float], side: int) -> Callable[[tuple[int, float]], list[tuple[int, float]]]:
    """Return what gives each cell to the groups of those whose neighbour it is, inside of the array."""
    offsets = list(weights.items())

    def spread(cell: tuple[int, float]) -> list[tuple[int, float]]:
        at, value = cell
        y, x = divmod(at, side)
        return [
            ((y - dy) * side + x - dx, value * weight)
            for (dy, dx), weight in offsets
            if 0 <= y - dy < side and 0 <= x - dx < side
        ]

    return spread


def run(cells: RDD, weights: dict[tuple[int, int], float], side: int, parts: int) -> tuple[RDD, float]:
    """Return the result, which is in memory, and the seconds that it took."""
    started = time.perf_counter()
    made = cells.flatMap(groups(weights, side)).reduceByKey(lambda a, b: a + b, parts).persist(StorageLevel.MEMORY_ONLY)
    assert made.count() == side * side
    return made, time.perf_counter() - started


def main(source: str, folder: str) -> None:
    cells = np.load(source)
    side, parts = len(cells), 2 * (os.cpu_count() or 1)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    context = SparkContext("local[*]", "stencil")
    context.setLogLevel("ERROR")
    try:
        small = context.parallelize(list(enumerate(cells[:100, :100].ravel().tolist())), parts)
        run(small, WEIGHTS["window"], 100, parts)
        pairs = context.parallelize(list(enumerate(cells.ravel().tolist())), parts).persist(StorageLevel.MEMORY_ONLY)
        pairs.count()
        seconds = {}
        for name, weights in WEIGHTS.items():
            made, seconds[name] = run(pairs, weights, side, parts)
            found = np.zeros(side * side)
            for at, value in made.collect():
                found[at] = value
            np.save(Path(folder) / f"{name}.npy", found.reshape(side, side))
            made.unpersist()
    finally:
        context.stop()
    print(json.dumps(seconds))


if __name__ == "__main__":
    main(*sys.argv[1:3])
