"""zarrs: its codec pipeline in zarr-python, which reads from the store by itself, in Rust."""

import os
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import zarr

from bench.lab import Lab
from bench.peers.datasets import ArrayInfo, Dataset
from bench.peers.systems.copies import ZARR_PLAIN, upload_from, write_zarr_plain
from bench.peers.systems.zarr_reading import Layout, Reader, object_store, write_array
from bench.peers.workloads import Query

__all__ = ["System"]

# Its threads wait for the store, so that many more than cores are of use.
_THREADS = 64


class System:
    """It reads ranges of plain chunks: per chunk a HEAD, then ranges, those within 1 MiB of each other as one."""

    title = "zarrs"
    packages = ("zarrs", "zarr", "obstore")
    layouts: ClassVar[dict[str, str]] = {
        "same": "plain chunks of 16 MB, each an object; 64 threads (threading.max_workers, chunk_concurrent_minimum "
        "and _maximum of its README, RAYON_NUM_THREADS); row numbers as runs, as its README says that others fall back",
        "best": "the same settings with plain chunks, of which it reads parts: grid 256 × 256, camera 3 × 288 × 384, "
        'bert as in "same". Its README has no advice on chunks; compressed chunks and shards, which it praises for '
        "concurrency, were slower, as reads of several at once waited for one another.",
    }

    def __init__(self) -> None:
        self._reader = Reader(reads_within_chunks=True, threads=_THREADS)

    def stored(self, data: Dataset, layout: str) -> str:
        return ZARR_PLAIN if layout == "same" or data.name == "bert" else "zarrs-best"

    def prepare(self, data: Dataset, layout: str, lab: Lab) -> None:
        if self.stored(data, layout) == ZARR_PLAIN:
            write_zarr_plain(data, lab)
            return

        def write(folder: Path, info: ArrayInfo) -> None:
            cut = Layout((256, 256)) if data.name == "grid" else Layout((3, 288, 384))
            write_array(str(folder / info.name), data, info, cut)

        upload_from(data, self.stored(data, layout), lab, write)

    def open(self, data: Dataset, layout: str, lab: Lab) -> None:
        # The pool of the Rust side is made when zarr-python first imports the pipeline.
        os.environ["RAYON_NUM_THREADS"] = str(_THREADS)
        zarr.config.set(
            {
                "threading.max_workers": _THREADS,
                "codec_pipeline.path": "zarrs.ZarrsCodecPipeline",
                "codec_pipeline.chunk_concurrent_minimum": _THREADS,
                "codec_pipeline.chunk_concurrent_maximum": _THREADS,
                # Raises where it would fall back to zarr-python unseen.
                "codec_pipeline.strict": True,
            }
        )
        self._reader.open(object_store(lab, data.prefix(self.stored(data, layout))), data)

    def read(self, query: Query, **settings: Any) -> list[np.ndarray]:
        return self._reader.read(query)

    def told(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        self._reader.close()
