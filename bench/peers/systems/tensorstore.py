"""TensorStore by its own S3 client: no cache of cells, all parts of a query in one batch."""

import os
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import tensorstore as ts

from bench import servers
from bench.lab import Lab
from bench.peers.datasets import ArrayInfo, Dataset
from bench.peers.systems.copies import (
    BLOSC_LEVEL,
    ZARR_PLAIN,
    ZSTD_LEVELS,
    bands,
    is_shuffled,
    upload_from,
    write_zarr_plain,
)
from bench.peers.systems.zarr_reading import Layout, rows_of
from bench.peers.workloads import Query

__all__ = ["System"]


class System:
    """It reads whole chunks, and joins those that lie side by side in a shard."""

    title = "TensorStore"
    packages = ("tensorstore",)
    layouts: ClassVar[dict[str, str]] = {
        "same": "plain chunks of 16 MB, each an object; s3_request_concurrency 128, metadata looked at only at "
        "opening, the parts of a query in one batch, as its documentation of Batch has it",
        "best": "the same settings with the zarr3 driver's shards of about 16 MB: grid 128 × 128, plain; bert 64 KiB "
        "of rows (zstd at level 15, ids by Blosc's shuffled zstd at 7) and camera 3 × 96 × 128, zstd. Shard indexes "
        "stay in a metadata_cache_pool, as the documentation of zarr3_sharding_indexed says that each read fetches "
        "them again without a cache.",
    }

    def __init__(self) -> None:
        self._arrays: dict[str, Any] = {}

    def stored(self, data: Dataset, layout: str) -> str:
        return ZARR_PLAIN if layout == "same" else "tensorstore-best"

    def prepare(self, data: Dataset, layout: str, lab: Lab) -> None:
        if layout == "same":
            write_zarr_plain(data, lab)
            return

        def write(folder: Path, info: ArrayInfo) -> None:
            _write(folder / info.name, data, info, _best(data, info).fitted(info))

        upload_from(data, self.stored(data, layout), lab, write)

    def open(self, data: Dataset, layout: str, lab: Lab) -> None:
        options = servers.options_at(lab.endpoint)
        os.environ["AWS_ACCESS_KEY_ID"] = options["access_key_id"]
        os.environ["AWS_SECRET_ACCESS_KEY"] = options["secret_access_key"]
        context = ts.Context(
            {
                "cache_pool": {"total_bytes_limit": 0},
                "cache_pool#metadata": {"total_bytes_limit": 100_000_000},
                "s3_request_concurrency": {"limit": 128},
            }
        )
        prefix = data.prefix(self.stored(data, layout))
        opening = {
            info.name: ts.open(
                {
                    "driver": "zarr3",
                    "kvstore": {
                        "driver": "s3", "bucket": lab.bucket, "path": f"{prefix}/{info.name}/",
                        "endpoint": lab.endpoint, "aws_region": "us-east-1", "aws_credentials": {"type": "environment"},
                    },
                    "metadata_cache_pool": "cache_pool#metadata",
                    "recheck_cached_metadata": "open", "recheck_cached_data": "open",
                },
                context=context, open=True, read=True,
            )
            for info in data.arrays
        }  # fmt: skip
        self._arrays = {name: array.result() for name, array in opening.items()}

    def read(self, query: Query, **settings: Any) -> list[np.ndarray]:
        with ts.Batch() as batch:
            reading = [self._arrays[part.array][part.key].read(batch=batch) for part in query.parts]
        return [cells.result() for cells in reading]

    def told(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        self._arrays.clear()


def _best(data: Dataset, info: ArrayInfo) -> Layout:
    if data.name == "grid":
        return Layout((128, 128), (2048, 2048))
    if data.name == "bert":
        rows = rows_of(info, 64 << 10)
        return Layout((rows, *info.shape[1:]), (256 * rows, *info.shape[1:]), compressed=True)
    return Layout((3, 96, 128), info.shape, compressed=True)


def _write(path: Path, data: Dataset, info: ArrayInfo, layout: Layout) -> None:
    """Store an array in shards."""
    codecs: list[dict[str, Any]] = [{"name": "bytes", "configuration": {"endian": "little"}}]
    if layout.compressed and is_shuffled(info):
        blosc = {"cname": "zstd", "clevel": BLOSC_LEVEL, "shuffle": "shuffle", "typesize": 4, "blocksize": 0}
        codecs.append({"name": "blosc", "configuration": blosc})
    elif layout.compressed:
        codecs.append({"name": "zstd", "configuration": {"level": ZSTD_LEVELS[data.name]}})
    sharding = {"name": "sharding_indexed", "configuration": {"chunk_shape": layout.chunks, "codecs": codecs}}
    array = ts.open(
        {
            "driver": "zarr3", "kvstore": {"driver": "file", "path": f"{path}/"},
            "metadata": {
                "shape": info.shape, "data_type": info.dtype, "codecs": [sharding],
                "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": layout.shards}},
            },
        },
        create=True,
    ).result()  # fmt: skip
    assert layout.shards is not None
    for rows in bands(info, layout.shards[0]):
        array[rows].write(data.truth(info.name)[rows]).result()
