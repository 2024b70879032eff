"""The two workloads of the Henosis paper, made anew: images of transient stars, and vortices of a jet.

11,889 images of 5 arrays of 21×21, each image analysed by itself. 164,599 vortices of 42×50 cells in 2,040 snapshots
of a flow, read by Time queries (all vortices of a stamp), Space-Time queries (all that touch a cell of a grid, some
stamps before and after, the cell grown as far as vortices move meanwhile), or Composite ones (nine of ten Space-Time).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

__all__ = [
    "GRIDS",
    "MIXES",
    "Vortices",
    "image_arrays",
    "image_queries",
    "recurring",
    "vortex_arrays",
    "vortex_queries",
    "vortices",
]

IMAGES, ARRAYS_PER_IMAGE, IMAGE_SHAPE = 11_889, 5, (21, 21)
VORTICES, STAMPS, VORTEX_SHAPE = 164_599, 2_040, (42, 50)
# The plane of the flow, in the unit of the grids' cells; x is the way that vortices are carried.
LENGTH, WIDTH = 400.0, 160.0
MIXES = ("time", "space-time", "composite")
GRIDS = (10, 20, 30, 40)
# Stamps that a Space-Time query reaches before and after its own, and how far the cell is grown for it.
REACH = 3
# A vortex lives for so many stamps on average; more are alive than are found in each stamp.
LIFE, ALIVE = 60, 81


@dataclass(frozen=True, slots=True)
class Vortices:
    """Each vortex's stamp (sorted), the track it is on, and its bounding box (x0, x1, y0, y1)."""

    stamp: np.ndarray
    track: np.ndarray
    box: np.ndarray

    def __len__(self) -> int:
        return len(self.stamp)

    @property
    def stamps(self) -> int:
        return int(self.stamp[-1]) + 1

    @property
    def attributes(self) -> np.ndarray:
        """Return what a collection would know of each vortex: stamp and centre, (n, 3)."""
        x0, x1, y0, y1 = self.box.T
        return np.stack([self.stamp, (x0 + x1) / 2, (y0 + y1) / 2], axis=1)

    def starts(self) -> np.ndarray:
        """Return where each stamp's vortices begin, and where the last one's end."""
        return np.searchsorted(self.stamp, np.arange(self.stamps + 1))


def vortices(times: int = 1, seed: int = 0) -> Vortices:
    """Return the vortices of a flow: born anywhere, carried along, gone at the edge or after a while.

    `times` makes the simulation so many times as long: 7 is 1.15 million vortices.
    """
    random = np.random.default_rng(seed)
    alive, tracks = _born(random, ALIVE, LENGTH), np.arange(ALIVE)
    next_track, found = ALIVE, []
    for stamp in range(STAMPS * times):
        alive[:, :2] += alive[:, 2:4] + random.normal(0, 0.1, (len(alive), 2))
        x, y = alive[:, 0], alive[:, 1]
        lives = (x < LENGTH) & (y > 0) & (y < WIDTH) & (random.random(len(alive)) > 1 / LIFE)
        alive, tracks = alive[lives], tracks[lives]
        new = max(0, ALIVE + int(random.normal(0, 2)) - len(alive))
        alive = np.concatenate([alive, _born(random, new, LENGTH * 0.9)])
        tracks = np.concatenate([tracks, np.arange(next_track, next_track + new)])
        next_track += new
        x, y, radius = alive[:, 0], alive[:, 1], alive[:, 4]
        box = np.stack([x - radius, x + radius, y - radius, y + radius], axis=1)
        found.append((np.full(len(alive), stamp), tracks, box))
    stamp, track, box = (np.concatenate(part) for part in zip(*found, strict=True))
    keep = np.sort(random.permutation(len(stamp))[: VORTICES * times])
    return Vortices(stamp[keep], track[keep], box[keep])


def _born(random: np.random.Generator, count: int, most_x: float) -> np.ndarray:
    """Return new vortices: x, y, speed along x and y, radius."""
    y = np.clip(random.normal(WIDTH / 2, WIDTH / 4, count), 4, WIDTH - 4)
    speed = random.uniform(0.3, 1.2, count), random.normal(0, 0.15, count)
    return np.stack([random.uniform(0, most_x, count), y, *speed, random.uniform(2, 7, count)], axis=1)


def vortex_queries(flow: Vortices, mix: str, count: int = 10_000, grid: int = 40, seed: int = 1) -> list[np.ndarray]:
    """Return which vortices each query reads, ascending; a query reads two at least."""
    random = np.random.default_rng(seed)
    whole = {"time": count, "space-time": 0, "composite": count // 10}[mix]
    queries = _space_time(flow, count - whole, grid, random) + _time(flow, whole, random)
    return [queries[at] for at in random.permutation(count)]


def _time(flow: Vortices, count: int, random: np.random.Generator) -> list[np.ndarray]:
    starts = flow.starts()
    return [np.arange(starts[stamp], starts[stamp + 1]) for stamp in random.integers(0, flow.stamps, count)]


def _space_time(flow: Vortices, count: int, grid: int, random: np.random.Generator) -> list[np.ndarray]:
    starts, queries = flow.starts(), []
    while len(queries) < count:
        stamp = random.integers(0, flow.stamps)
        x, y = random.integers(0, int(LENGTH) // grid) * grid, random.integers(0, int(WIDTH) // grid) * grid
        first = starts[max(0, stamp - REACH)]
        x0, x1, y0, y1 = flow.box[first : starts[min(flow.stamps, stamp + REACH + 1)]].T
        touched = (x0 < x + grid + REACH) & (x1 >= x - REACH) & (y0 < y + grid + REACH) & (y1 >= y - REACH)
        query = np.flatnonzero(touched) + first
        if len(query) >= 2:
            queries.append(query)
    return queries


def recurring(queries: list[np.ndarray], count: int, skew: float, seed: int = 1) -> list[np.ndarray]:
    """Return `count` queries drawn again and again from a few, by Zipf's law."""
    random = np.random.default_rng(seed)
    chances = 1 / np.arange(1, len(queries) + 1) ** skew
    return [queries[at] for at in random.choice(len(queries), count, p=chances / chances.sum())]


def image_queries(batch: int = 4, epochs: int = 3, seed: int = 1) -> list[np.ndarray]:
    """Return the arrays of each batch of images: those of an image are always read together, images in any order."""
    random, queries = np.random.default_rng(seed), []
    for _ in range(epochs):
        order = random.permutation(IMAGES)
        for first in range(0, IMAGES, batch):
            images = np.sort(order[first : first + batch])
            queries.append((images[:, None] * ARRAYS_PER_IMAGE + np.arange(ARRAYS_PER_IMAGE)).ravel())
    return queries


def image_arrays(images: int = IMAGES, seed: int = 0) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the names and cells of all arrays of the first `images` images: noise, and a star in the middle."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[-10:11, -10:11]
    star = np.exp(-(x * x + y * y) / 8.0)
    for image in range(images):
        for band in range(ARRAYS_PER_IMAGE):
            cells = random.normal(0, 1, IMAGE_SHAPE) + random.exponential(10) * star
            yield f"image-{image:05d}/{band}", cells.astype(np.float32)


def vortex_arrays(flow: Vortices, count: int | None = None, seed: int = 0) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the names and cells of the first `count` vortices (all of them if None): a swirl with noise."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[-1 : 1 : VORTEX_SHAPE[0] * 1j, -1 : 1 : VORTEX_SHAPE[1] * 1j]
    swirl = np.exp(-4 * (x * x + y * y)).astype(np.float32)
    for at in range(len(flow) if count is None else count):
        noise = random.random(VORTEX_SHAPE, np.float32)
        yield f"t{flow.stamp[at]:05d}/v{flow.track[at]:06d}", swirl * random.uniform(0.5, 2) + 0.05 * noise
