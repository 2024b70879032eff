"""Twenty small arrays by name, warm, from local files: a collection beside what others keep them in.

Names are drawn anew for each query, so that no reader has just seen them. Ours verifies the checksum of every array;
LMDB and the others, as they are set up here, verify none.
"""

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

import hyperslab as hs
from bench.collections.peers import PEERS, Items, Reader, kept, sample_queries
from bench.collections.workloads import IMAGES, image_arrays, vortex_arrays, vortices
from bench.data import folder
from bench.figures import Figure, at_least
from bench.timing import Call, each_key, race, seconds_text

__all__ = ["measure"]

BARS = {"h5py datasets in one file": 15.0, "LMDB": 0.7, "a Zarr shard": 50.0}
BAR_EACH, EACH = 300.0, "one TileDB array per small array"
# Arrays that TileDB holds one by one: more would take long to write, and would be read no faster.
EACH_IMAGES = 400
SOME_VORTICES = 20_000
QUERIES, ROUNDS, QUICK_ROUNDS = 4_000, 15, 5
# In so long a turn it does not count that the one before has emptied the processor's caches.
BATCH_S = 0.1
# By then, whatever a reader does once is done.
SETTLED_S = 3.0


def measure(quick: bool, full: bool) -> Iterator[Figure]:
    """Give the figures of all readers; `full` is with as many vortices as the paper has."""
    rounds = QUICK_ROUNDS if quick else ROUNDS
    images = [name for name, _ in image_arrays(EACH_IMAGES)]
    yield _co_located(images, rounds)
    yield from _vortices(None if full else SOME_VORTICES, rounds)


def _co_located(names: list[str], rounds: int) -> Figure:
    """Read arrays that lie side by side: of 11,889 images in a collection, of fewer in TileDB arrays of their own."""
    place = folder() / "collections" / "images"
    ours = _collection(partial(image_arrays, IMAGES), place / "collection")
    theirs = PEERS[EACH](partial(image_arrays, EACH_IMAGES), place)
    queries = sample_queries(names, QUERIES, near=True)
    _check({"ours": ours, EACH: theirs}, queries[:3], dict(image_arrays(EACH_IMAGES)))
    _warm(place)
    calls = _settled({"ours": ours, EACH: theirs}, queries)
    found = race(calls, rounds=min(rounds, 5))
    ratio = found[EACH].best_s / found["ours"].best_s
    note = f" ({seconds_text(found['ours'].best_s)}, {seconds_text(found[EACH].best_s)} for 20 arrays of 21×21)"
    return at_least(f"collections: co-located reads against {EACH}", ratio, BAR_EACH, note)


def _vortices(count: int | None, rounds: int) -> Iterator[Figure]:
    flow = vortices()
    items = partial(vortex_arrays, flow, count)
    arrays = len(flow) if count is None else count
    place = folder() / "collections" / f"vortices-{arrays}"
    readers = {"ours": _collection(items, place / "collection")}
    readers |= {name: PEERS[name](items, place) for name in BARS}
    names = [f"t{flow.stamp[at]:05d}/v{flow.track[at]:06d}" for at in range(arrays)]
    queries = sample_queries(names, QUERIES)
    _check(readers, queries[:3], _chosen(items, {name for query in queries[:3] for name in query}))
    _warm(place)
    found = race(_settled(readers, queries), rounds=rounds, batch_s=BATCH_S)
    for name, bar in BARS.items():
        ratio = found[name].best_s / found["ours"].best_s
        note = f" ({seconds_text(found['ours'].best_s)}, {seconds_text(found[name].best_s)})"
        yield at_least(f"collections: 20 of {arrays:,} arrays against {name}", ratio, bar, note)


def _warm(place: Path) -> None:
    """Read all files once: what is measured is not the disk."""
    for path in sorted(path for path in place.rglob("*") if path.is_file()):
        with open(path, "rb") as file:
            while file.read(1 << 24):
                pass


def _settled(readers: dict[str, Reader], queries: list[list[str]]) -> dict[str, Call]:
    """Let each reader read for a while before it is timed: what it loads or compiles once is not measured."""
    calls = {name: each_key(read, queries) for name, read in readers.items()}
    for call in calls.values():
        until = time.monotonic() + SETTLED_S
        while time.monotonic() < until:
            call()
    return calls


def _collection(items: Items, path: Path) -> Reader:
    kept(path, lambda made: hs.collection(made, "w-").put_many(items()))
    return hs.collection(path).read_many


def _chosen(items: Items, names: set[str]) -> dict[str, np.ndarray]:
    return {name: array for name, array in items() if name in names}


def _check(readers: dict[str, Reader], queries: list[list[str]], expected: dict[str, np.ndarray]) -> None:
    """Refuse to time a reader that returns something else than was stored."""
    for name, read in readers.items():
        for query in queries:
            for key, array in zip(query, read(query), strict=True):
                if not np.array_equal(array, expected[key]):
                    raise AssertionError(f"{name} returned something else than was stored for {key}")
