"""TileDB: dense arrays of one fragment each, read by TileDB's own S3 client."""

from concurrent.futures import ThreadPoolExecutor
from math import prod
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import tiledb

from bench.lab import Lab
from bench.peers.datasets import ArrayInfo, Dataset
from bench.peers.systems.copies import ZSTD_LEVELS, upload_from
from bench.peers.workloads import Part, Query
from bench.servers import options_at

__all__ = ["System"]

# What its documentation gives as the least size of a tile; tiles of 256 KB were slower for all queries of the grid.
_TILE_BYTES = 64 << 10

_SETTINGS = {
    # Threads wait for the store, so there may be many more than cores ("read parallelism" in the documentation).
    "sm.io_concurrency_level": 64,
    "vfs.s3.max_parallel_ops": 64,
    # By default tiles are fetched with all that lies between them until 20 MB are together: made for whole scans.
    "vfs.min_batch_size": 0,
    "vfs.min_batch_gap": 64 << 10,
    # This cache keeps small tiles from query to query, too.
    "vfs.read_ahead_size": 0,
    "vfs.read_ahead_cache_size": 0,
    # 16 MB on a narrow line take longer than the 3 s of the default.
    "vfs.s3.request_timeout_ms": 120_000,
}


class System:
    """Arrays stay open with their fragments' metadata; TileDB has no cache of tiles any more.

    An array reads all of its parts by one query with several ranges where that touches fewer tiles than a query for
    each: the ranges of a query are a cross product. Else the parts are read side by side, by threads.
    """

    title = "TileDB"
    packages = ("tiledb",)
    layouts: ClassVar[dict[str, str]] = {
        "same": "Tiles of 16 MB without filters, one fragment; I/O threads and batches set for an object store.",
        "best": "Tiles of 64 KB in the shape of the queries (grid 128 × 128, bert whole rows, camera 3 × 160 × 160), "
        "one fragment, the same settings; byte shuffle and zstd at level 15 for bert, zstd for camera. TileDB's guide "
        "to tiling and data layout asks for tiles like the queries, of 64 KB at least; its page on parallelism has "
        "the settings.",
    }

    def __init__(self) -> None:
        self._arrays: dict[str, tiledb.DenseArray] = {}
        self._tiles: dict[str, tuple[int, ...]] = {}
        self._pool = ThreadPoolExecutor(25)

    def stored(self, data: Dataset, layout: str) -> str:
        return f"tiledb-{layout}"

    def prepare(self, data: Dataset, layout: str, lab: Lab) -> None:
        def write(folder: Path, info: ArrayInfo) -> None:
            at = str(folder / info.name)
            tiledb.Array.create(at, _schema(data.name, info, layout))
            with tiledb.open(at, "w") as array:
                # One write is one fragment: nothing is left to consolidate.
                array[:] = np.asarray(data.truth(info.name))

        upload_from(data, self.stored(data, layout), lab, write)

    def open(self, data: Dataset, layout: str, lab: Lab) -> None:
        context = tiledb.Ctx(_config(lab))
        at = f"s3://{lab.bucket}/{data.prefix(self.stored(data, layout))}"
        opened = self._pool.map(lambda info: tiledb.open(f"{at}/{info.name}", ctx=context), data.arrays)
        self._arrays = {info.name: array for info, array in zip(data.arrays, opened, strict=True)}
        self._tiles = {info.name: _tile(data.name, info, layout) for info in data.arrays}

    def read(self, query: Query, **settings: Any) -> list[np.ndarray]:
        if len(query.parts) == 1:
            return [self._read(query.parts[0])]
        together = self._together(query)
        if together is None:
            return list(self._pool.map(self._read, query.parts))
        cells = self._read(together)
        return [cells[_places(part.key, together.key)] for part in query.parts]

    def _read(self, part: Part) -> np.ndarray:
        array = self._arrays[part.array]
        wanted = tiledb.Subarray(array)
        wanted.add_ranges([_ranges(axis) for axis in part.key])
        cells: np.ndarray = array.read_subarray(wanted)[""]
        return cells

    def _together(self, query: Query) -> Part | None:
        """Return the cross product of the parts of one array, where it has fewer tiles than they have."""
        name = query.parts[0].array
        if any(part.array != name for part in query.parts):
            return None
        keys = [tuple(map(_numbers, part.key)) for part in query.parts]
        union = tuple(np.unique(np.concatenate(axis)) for axis in zip(*keys, strict=True))
        tile = self._tiles[name]
        return Part(name, union) if _touched(union, tile) < sum(_touched(key, tile) for key in keys) else None

    def told(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        self._pool.shutdown()
        for array in self._arrays.values():
            array.close()


def _numbers(axis: Any) -> np.ndarray:
    return np.arange(axis.start, axis.stop) if isinstance(axis, slice) else axis


def _ranges(axis: Any) -> list[tuple[int, int]]:
    """Return an axis of a key as TileDB has it: first and last of each run."""
    if isinstance(axis, slice):
        return [(axis.start, axis.stop - 1)]
    runs = np.split(axis, np.flatnonzero(np.diff(axis) != 1) + 1)
    return [(int(run[0]), int(run[-1])) for run in runs]


def _places(key: tuple[slice, ...], union: tuple[np.ndarray, ...]) -> tuple[slice, ...]:
    starts = [int(np.searchsorted(numbers, axis.start)) for axis, numbers in zip(key, union, strict=True)]
    return tuple(slice(at, at + axis.stop - axis.start) for at, axis in zip(starts, key, strict=True))


def _touched(key: tuple[np.ndarray, ...], tile: tuple[int, ...]) -> int:
    return prod(len(np.unique(numbers // extent)) for numbers, extent in zip(key, tile, strict=True))


def _schema(data: str, info: ArrayInfo, layout: str) -> tiledb.ArraySchema:
    dimensions = (
        tiledb.Dim(f"axis{axis}", domain=(0, n - 1), tile=extent, dtype=np.uint64)
        for axis, (n, extent) in enumerate(zip(info.shape, _tile(data, info, layout), strict=True))
    )
    filters = tiledb.FilterList(_filters(data) if layout == "best" else [])
    cells = tiledb.Attr(dtype=np.dtype(info.dtype), filters=filters)
    return tiledb.ArraySchema(domain=tiledb.Domain(*dimensions), attrs=[cells])


def _tile(data: str, info: ArrayInfo, layout: str) -> tuple[int, ...]:
    if layout == "same":
        return info.chunks
    whole = info.shape[1:]
    tile = {
        "grid": (128, 128),
        "bert": (_TILE_BYTES // 4 // prod(whole), *whole),
        "camera": (3, 160, 160),
    }[data]
    return tuple(map(min, tile, info.shape))


def _filters(data: str) -> list[tiledb.Filter]:
    # Random integers of the grid only grow; bytes of pictures have nothing to shuffle.
    zstd = tiledb.ZstdFilter(level=ZSTD_LEVELS[data])
    return {"grid": [], "bert": [tiledb.ByteShuffleFilter(), zstd], "camera": [zstd]}[data]


def _config(lab: Lab) -> tiledb.Config:
    options = options_at(lab.endpoint)
    place = {
        "vfs.s3.endpoint_override": lab.endpoint.removeprefix("http://"),
        "vfs.s3.scheme": "http",
        "vfs.s3.use_virtual_addressing": "false",
        "vfs.s3.region": "us-east-1",
        "vfs.s3.aws_access_key_id": options["access_key_id"],
        "vfs.s3.aws_secret_access_key": options["secret_access_key"],
    }
    return tiledb.Config({name: str(value) for name, value in (place | _SETTINGS).items()})
