"""Planning: from a NumPy key to a plan, for a small box and for a million byte ranges.

What is timed is what `array[key]` does before its first request: `hyperslab.selection.parse`, then
`hyperslab.execute.plan_reads` (which cuts at chunk borders and calls `hyperslab.plan.make_plan`).
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from functools import partial

import numpy as np

import hyperslab as hs
from bench import data
from bench.figures import Figure, main
from bench.timing import each_key, race, seconds_text
from hyperslab.execute import Options, ReadTask, plan_reads
from hyperslab.plan import Plan
from hyperslab.selection import parse_points

SIDE = 21
OVER_FOUR = [(slice(2048 - i, 2069 - i), slice(4096 - i, 4117 - i)) for i in range(1, SIDE)]


def shapes() -> list[tuple[slice, slice]]:
    """Return boxes of 900 shapes about as large: more than any memory of earlier plans holds."""
    return [(slice(3000, 3000 + h), slice(5000, 5000 + w)) for h in range(10, 40) for w in range(10, 40)]


def boxes() -> list[tuple[slice, slice]]:
    """Return boxes at random places, none over the border of two chunks: no plan is made twice in a row."""
    rng = np.random.default_rng(5)
    chunk = data.IMAGE_CHUNKS[0]
    corners = rng.integers(0, 4, (500, 2)) * chunk + rng.integers(0, chunk - SIDE, (500, 2))
    return [(slice(y, y + SIDE), slice(x, x + SIDE)) for y, x in corners.tolist()]


def plan_of(array: hs.Array, key: object) -> Plan:
    """Plan a read without running it, as `array[key]` would."""
    task = ReadTask(
        array.url, array.store, array.source.layout, array.snapshot, array._parse(key), np.empty(0, array.dtype)
    )
    return plan_reads(array.session, (task,), Options())


def in_memory(name: str, shape: tuple[int, int], chunks: tuple[int, int]) -> hs.Array:
    """Return an array of an object store that is planned for as if it were S3; it holds no chunks."""
    import zarr

    from hyperslab.store.remote import memory

    store = zarr.storage.ObjectStore(memory("bench"))
    zarr.create_array(store, name=name, shape=shape, chunks=chunks, dtype="int32", compressors=None)
    return hs.open(f"memory://bench/{name}", session=hs.Session(profile="s3", prices="aws", cache_bytes=0))


def measure(quick: bool) -> list[Figure]:
    rounds = 7 if quick else 25
    local = hs.open(data.image_zarr())
    remote = in_memory("image", data.IMAGE_SHAPE, data.IMAGE_CHUNKS)
    small = {
        "box, local file": each_key(partial(plan_of, local), boxes()),
        "box, S3": each_key(partial(plan_of, remote), boxes()),
        "box of a new shape, S3": each_key(partial(plan_of, remote), shapes()),
        "box over 4 chunks, S3": each_key(partial(plan_of, remote), OVER_FOUR),
    }
    figures = [
        _figure(what, timing.best_s, 40e-6 if what in ("box, local file", "box, S3") else None)
        for what, timing in race(small, rounds=rounds).items()
    ]

    two = in_memory("two", (500_000, 128), (500_000, 64))
    many = in_memory("many", (500_000, 128), (500, 64))
    columns, cells = (slice(None), slice(60, 68)), _cells()
    large = {
        "2 objects": lambda: plan_of(two, columns),
        "2,000 objects": lambda: plan_of(many, columns),
        "shuffled points, 2 objects": lambda: plan_of(two, parse_points(cells, two.shape)),
    }
    for plan in large.values():
        assert len(plan().needs.merged()) == 1_000_000
    timings = race(large, rounds=3 if quick else 5, batch_s=0)
    figures += [_figure(f"1,000,000 ranges, {what}", timing.best_s, 0.5) for what, timing in timings.items()]
    return figures


def _cells() -> tuple[np.ndarray, np.ndarray]:
    """Return the coordinates of a million cells, none beside another, in no order."""
    order = np.random.default_rng(1).permutation(1_000_000)
    return order // 2, np.where(order % 2, 90, 3)


def _figure(what: str, seconds: float, bar_s: float | None) -> Figure:
    if bar_s is None:
        return Figure(f"planning: {what}", "", seconds_text(seconds))
    return Figure(f"planning: {what}", f"≤ {seconds_text(bar_s)}", seconds_text(seconds), seconds <= bar_s)


if __name__ == "__main__":
    main(measure)
