"""What the systems that read by zarr-python share: how a copy is written, and how a query's parts are read at once."""

import asyncio
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from math import ceil, prod
from typing import Any

import numpy as np
import zarr
from zarr.abc.store import Store
from zarr.codecs import BloscCodec, ZstdCodec

from bench import servers
from bench.lab import Lab
from bench.peers.datasets import ArrayInfo, Dataset
from bench.peers.systems.copies import BLOSC_LEVEL, ZSTD_LEVELS, bands, is_shuffled
from bench.peers.workloads import Part, Query

__all__ = ["Layout", "Reader", "object_store", "rows_of", "runs_of", "small_chunks", "write_array"]

# Rows nearer than this come by one request: 2 ms of a line of 250 Mbit/s, about what a request costs the client.
_GAP_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Layout:
    """How an array is cut: `chunks` can be read alone; with `shards`, the chunks of so many cells are one object."""

    chunks: tuple[int, ...]
    shards: tuple[int, ...] | None = None
    compressed: bool = False

    def fitted(self, info: ArrayInfo) -> "Layout":
        """Return the layout cut down to an array's sides, so that one layout serves every scale.

        >>> Layout((128, 128), (2048, 2048)).fitted(ArrayInfo("a", (512, 100), "int32", (512, 100)))
        Layout(chunks=(128, 100), shards=(512, 100), compressed=False)
        """
        chunks = tuple(map(min, self.chunks, info.shape))
        if self.shards is None:
            return Layout(chunks, None, self.compressed)
        sides = zip(self.shards, chunks, info.shape, strict=True)
        # A shard is of whole chunks.
        shards = tuple(min(shard // chunk, ceil(n / chunk)) * chunk for shard, chunk, n in sides)
        return Layout(chunks, shards, self.compressed)


def rows_of(info: ArrayInfo, nbytes: int) -> int:
    """Return how many rows of an array have so many bytes; at least one."""
    return max(1, nbytes // (info.nbytes // info.shape[0]))


def small_chunks(data: Dataset, info: ArrayInfo) -> Layout:
    """Return the quickest layout that we found for zarr-python: each chunk an object, compressed where that helps.

    In shards, it waits for one chunk of a shard before it asks for the next: two to eight times slower.
    """
    if data.name == "grid":
        return Layout((256, 256))
    if data.name == "bert":
        return Layout((rows_of(info, 1 << 20), *info.shape[1:]), compressed=True)
    return Layout((3, 288, 384), compressed=True)


def write_array(store: Any, data: Dataset, info: ArrayInfo, layout: Layout, *, name: str | None = None) -> None:
    """Store one array as `layout` has it; `name` is its place in a store of several."""
    fitted = layout.fitted(info)
    array = zarr.create_array(
        store, name=name, shape=info.shape, dtype=info.dtype, chunks=fitted.chunks, shards=fitted.shards,
        compressors=_codec(data, info) if fitted.compressed else None,
    )  # fmt: skip
    for rows in bands(info, (fitted.shards or fitted.chunks)[0]):
        array[rows] = data.truth(info.name)[rows]


def _codec(data: Dataset, info: ArrayInfo) -> BloscCodec | ZstdCodec:
    if is_shuffled(info):
        return BloscCodec(cname="zstd", clevel=BLOSC_LEVEL, shuffle="shuffle", typesize=4)
    return ZstdCodec(level=ZSTD_LEVELS[data.name])


def object_store(lab: Lab, prefix: str) -> Store:
    """Return zarr-python's store for what lies under `prefix` in the bucket, by obstore."""
    client = servers.obstore_client(lab.endpoint, prefix, retries=5)
    return zarr.storage.ObjectStore(client, read_only=True)


class Reader:
    """Arrays opened by zarr-python's asynchronous interface, in a loop of our own.

    By itself, zarr-python fetches whole chunks: boxes of one array are then asked for as one selection, so that a chunk
    comes once. `reads_within_chunks` is for a pipeline that fetches less: each box alone, and rows as runs, because
    row numbers that are not one after another would be left to zarr-python.
    """

    def __init__(self, *, reads_within_chunks: bool = False, threads: int | None = None) -> None:
        self._within, self._threads = reads_within_chunks, threads
        self._arrays: dict[str, Any] = {}

    @cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        """Made at the first use: who only asks what is stored needs none."""
        loop = asyncio.new_event_loop()
        if self._threads is not None:
            loop.set_default_executor(ThreadPoolExecutor(self._threads))
        return loop

    def open(self, store: Store, data: Dataset) -> None:
        """Open all arrays of a copy, side by side."""
        names = [info.name for info in data.arrays]
        opened = self._all([zarr.api.asynchronous.open_array(store=store, path=name, mode="r") for name in names])
        self._arrays = dict(zip(names, opened, strict=True))

    def read(self, query: Query) -> list[np.ndarray]:
        """Return the cells of each part; all are under way at once."""
        parts = query.parts
        if not self._within and len(parts) > 1 and len({part.array for part in parts}) == 1:
            return _apart(self._all([self._points(parts)])[0], parts)
        return self._all([self._part(part) for part in parts])

    def close(self) -> None:
        """End the loop and its threads."""
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    async def _part(self, part: Part) -> np.ndarray:
        array = self._arrays[part.array]
        if isinstance(part.key[0], slice):
            return np.asarray(await array.getitem(part.key))
        if not self._within:
            return np.asarray(await array.oindex.getitem(part.key))
        return await self._runs(array, part.key[0], part.key[1:])

    async def _runs(self, array: Any, rows: np.ndarray, rest: tuple[slice, ...]) -> np.ndarray:
        cells = np.empty((len(rows), *(each.stop - each.start for each in rest)), array.dtype)

        async def read(run: slice) -> None:
            first, last = int(rows[run.start]), int(rows[run.stop - 1])
            band = np.asarray(await array.getitem((slice(first, last + 1), *rest)))
            cells[run] = band[rows[run] - first]

        await asyncio.gather(*map(read, runs_of(rows, gap=_GAP_BYTES // cells[0].nbytes)))
        return cells

    async def _points(self, parts: Sequence[Part]) -> np.ndarray:
        grids = [np.meshgrid(*(np.arange(s.start, s.stop) for s in part.key), indexing="ij") for part in parts]
        axes = tuple(np.concatenate([grid[axis].ravel() for grid in grids]) for axis in range(len(parts[0].key)))
        return np.asarray(await self._arrays[parts[0].array].vindex.getitem(axes))

    def _all(self, doing: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
        async def gather() -> list[Any]:
            return await asyncio.gather(*doing)

        return self._loop.run_until_complete(gather())


def runs_of(rows: np.ndarray, *, gap: int) -> list[slice]:
    """Return which of the sorted row numbers to read as one band: those with at most `gap` unwanted rows in between.

    >>> runs_of(np.array([3, 4, 8, 20]), gap=3)
    [slice(0, 3, None), slice(3, 4, None)]
    """
    ends = [*(np.flatnonzero(np.diff(rows) > gap + 1) + 1).tolist(), len(rows)]
    return [slice(start, stop) for start, stop in zip([0, *ends], ends, strict=False)]


def _apart(cells: np.ndarray, parts: Sequence[Part]) -> list[np.ndarray]:
    """Give each box its cells."""
    shapes = [tuple(s.stop - s.start for s in part.key) for part in parts]
    ends = np.cumsum([prod(shape) for shape in shapes])[:-1]
    return [box.reshape(shape) for box, shape in zip(np.split(cells, ends), shapes, strict=True)]
