"""zarr-python 3 over obstore: the parts of a query by its asynchronous interface, with more requests in flight."""

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import zarr

from bench.lab import Lab
from bench.peers.datasets import ArrayInfo, Dataset
from bench.peers.systems.copies import ZARR_PLAIN, upload_from, write_zarr_plain
from bench.peers.systems.zarr_reading import Reader, object_store, small_chunks, write_array
from bench.peers.workloads import Query

__all__ = ["System"]


class System:
    """It reads whole chunks, or whole inner chunks of a shard; it has no cache."""

    title = "zarr-python"
    packages = ("zarr", "obstore", "numcodecs")
    layouts: ClassVar[dict[str, str]] = {
        "same": "plain chunks of 16 MB, each an object; async.concurrency 128, which its performance guide says to "
        "raise for remote stores; boxes of one array by one coordinate selection, so that a chunk comes once",
        "best": "the same settings with small chunks, each an object: grid 256 × 256, plain; bert 1 MiB of rows (zstd "
        "at level 15, ids by Blosc's shuffled zstd at 7) and camera 3 × 288 × 384, zstd. Its performance guide says to "
        "fit chunks to the reads, from about 1 MB on; smaller were quicker for boxes, and shards slower: it fetches "
        "the chunks of a shard one after another.",
    }

    def __init__(self) -> None:
        self._reader = Reader()

    def stored(self, data: Dataset, layout: str) -> str:
        return ZARR_PLAIN if layout == "same" else "zarr-python-best"

    def prepare(self, data: Dataset, layout: str, lab: Lab) -> None:
        if layout == "same":
            write_zarr_plain(data, lab)
            return

        def write(folder: Path, info: ArrayInfo) -> None:
            write_array(str(folder / info.name), data, info, small_chunks(data, info))

        upload_from(data, self.stored(data, layout), lab, write)

    def open(self, data: Dataset, layout: str, lab: Lab) -> None:
        zarr.config.set({"async.concurrency": 128})
        self._reader.open(object_store(lab, data.prefix(self.stored(data, layout))), data)

    def read(self, query: Query, **settings: Any) -> list[np.ndarray]:
        return self._reader.read(query)

    def told(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        self._reader.close()
