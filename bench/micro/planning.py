"""Planning: from a NumPy key to a plan, for a small box and for a million byte ranges.

What is timed is what `array[key]` does before its first request: `hyperslab.selection.parse`, then
`hyperslab.execute.plan_reads` (which cuts at chunk borders and calls `hyperslab.plan.make_plan`).
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

import hyperslab as hs
from bench import data
from bench.figures import Figure, main
from bench.timing import race, seconds_text
from hyperslab.execute import Options, ReadTask, plan_reads
from hyperslab.plan import Plan
from hyperslab.selection import parse_points

BOX = (slice(3000, 3021), slice(5000, 5021))
OVER_FOUR = (slice(2040, 2061), slice(4090, 4111))


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
        "box, local file": lambda: plan_of(local, BOX),
        "box, S3": lambda: plan_of(remote, BOX),
        "box over 4 chunks, S3": lambda: plan_of(remote, OVER_FOUR),
    }
    figures = [
        _figure(what, timing.best_s, None if "4 chunks" in what else 40e-6)
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
