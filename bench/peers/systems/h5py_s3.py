"""h5py over a file object on S3: h5py's wheel has no S3 driver of its own.

The file object is fsspec's, its bytes come by `obstore.fsspec`. All calls of HDF5 hold one lock, also while they wait
for the store, so the parts of a query, and the chunks of a part, come one after another.
"""

from math import prod
from pathlib import Path
from typing import Any, ClassVar

import h5py
import hdf5plugin
import numpy as np
from fsspec.caching import BlockCache
from fsspec.spec import AbstractBufferedFile
from obstore.fsspec import FsspecStore

from bench.lab import Lab
from bench.peers.datasets import ArrayInfo, Dataset
from bench.peers.systems.copies import ZSTD_LEVELS, bands, upload_from
from bench.peers.workloads import Query
from bench.servers import options_at

__all__ = ["System"]

_PAGE_BYTES = 4 << 20
_CHUNK_BYTES = 1 << 20
# For "same", 1 MB is quicker where few cells are read, 4 MB where many chunks are; 4 MB loses less.
_BLOCK_BYTES = {"same": 4 << 20, "best": 1 << 20}
# Of HDF5's chunk cache. Pieces of chunks of 16 MB are read as they are; small chunks are read once in a query.
_CHUNK_CACHE_BYTES = {"same": 0, "best": 4 << 20}
_BLOCKS = 256


class System:
    """Files stay open with what HDF5 keeps of their metadata; caches of blocks and of chunks are new for each query.

    A file of the grid, one of each file of `bert` with its six arrays, one of all pictures.
    """

    title = "h5py"
    packages = ("h5py", "hdf5plugin", "fsspec", "obstore")
    layouts: ClassVar[dict[str, str]] = {
        "same": "Chunked datasets, chunks of 16 MB without filters; fsspec's block cache with blocks of 4 MB.",
        "best": "Cloud-optimised HDF5: paged aggregation with pages of 4 MB, chunks of 256 KB (grid, 256 × 256), "
        "300 KB (camera, 3 × 320 × 320) or 1 MB (bert, whole rows), zstd for bert (at level 15) and camera; fsspec's "
        "block cache, blocks of 1 MB. As the cloud-native geospatial guide, written with The HDF Group and NASA's data "
        "centres, advises: metadata in pages, chunks of 100 KB to 2 MB, compressed, a block cache.",
    }

    def __init__(self) -> None:
        self._objects: dict[str, AbstractBufferedFile] = {}
        self._files: dict[str, h5py.File] = {}

    def stored(self, data: Dataset, layout: str) -> str:
        return f"h5py-{layout}"

    def prepare(self, data: Dataset, layout: str, lab: Lab) -> None:
        def write(folder: Path, info: ArrayInfo) -> None:
            name, inside = _place(info.name)
            with _created(folder / name, layout) as file:
                made = file.create_dataset(inside, info.shape, info.dtype, **_storage(data.name, info, layout))
                for rows in bands(info):
                    made[rows] = data.truth(info.name)[rows]

        upload_from(data, self.stored(data, layout), lab, write)

    def open(self, data: Dataset, layout: str, lab: Lab) -> None:
        config = {**options_at(lab.endpoint), "region": "us-east-1"}
        store = FsspecStore("s3", config=config, client_options={"allow_http": True})
        at = f"{lab.bucket}/{data.prefix(self.stored(data, layout))}"
        for name in dict.fromkeys(_place(info.name)[0] for info in data.arrays):
            # Not `store.open`: that gives a file of obstore's which ignores fsspec's caches.
            self._objects[name] = AbstractBufferedFile(
                store, f"{at}/{name}", block_size=_BLOCK_BYTES[layout],
                cache_type=BlockCache.name, cache_options={"maxblocks": _BLOCKS},
            )  # fmt: skip
            self._files[name] = h5py.File(
                self._objects[name], "r", rdcc_nbytes=_CHUNK_CACHE_BYTES[layout], rdcc_nslots=10_007
            )
        for info in data.arrays:
            name, inside = _place(info.name)
            # Reads the root of the index of chunks.
            self._files[name][inside].id.get_chunk_info(0)

    def read(self, query: Query, **settings: Any) -> list[np.ndarray]:
        for opened in self._objects.values():
            opened.cache = BlockCache(opened.blocksize, opened.cache.fetcher, opened.size, maxblocks=_BLOCKS)
        # A dataset's chunk cache lives as long as its handle, so handles are of one query.
        places = {part.array: _place(part.array) for part in query.parts}
        handles = {array: self._files[name][inside] for array, (name, inside) in places.items()}
        return [handles[part.array][part.key] for part in query.parts]

    def told(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        for file in self._files.values():
            file.close()


def _place(array: str) -> tuple[str, str]:
    """Return an array's file and its name in there."""
    file, _, inside = array.rpartition("/")
    return f"{file or 'all'}.h5", inside


def _created(path: Path, layout: str) -> h5py.File:
    if path.exists():
        return h5py.File(path, "a", libver="latest")
    paged = {"fs_strategy": "page", "fs_page_size": _PAGE_BYTES} if layout == "best" else {}
    return h5py.File(path, "w", libver="latest", **paged)


def _storage(data: str, info: ArrayInfo, layout: str) -> dict[str, Any]:
    if layout == "same":
        return {"chunks": info.chunks}
    whole = info.shape[1:]
    chunks = {
        "grid": (256, 256),
        "bert": (_CHUNK_BYTES // 4 // prod(whole), *whole),
        "camera": (3, 320, 320),
    }[data]
    # The grid's random integers do not get smaller. h5py's own gzip takes thrice as long to read.
    filters = {} if data == "grid" else {**hdf5plugin.Zstd(clevel=ZSTD_LEVELS[data]), "shuffle": data == "bert"}
    return {"chunks": tuple(map(min, chunks, info.shape)), **filters}
