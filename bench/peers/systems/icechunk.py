"""Icechunk: a repository of its own in the bucket, read by zarr-python; manifests fetched ahead, no cache of chunks."""

from typing import Any, ClassVar

import icechunk
import numpy as np
import zarr

from bench import servers
from bench.lab import Lab
from bench.peers.datasets import Dataset
from bench.peers.systems.zarr_reading import Layout, Reader, small_chunks, write_array
from bench.peers.workloads import Query

__all__ = ["System"]


class System:
    """It serves whole chunks to zarr-python; a large one comes by several requests at once."""

    title = "Icechunk"
    packages = ("icechunk", "zarr")
    layouts: ClassVar[dict[str, str]] = {
        "same": "plain chunks of 16 MB, each an object; async.concurrency 128, as its performance guide advises for "
        "object stores, and all manifests preloaded",
        "best": "the same settings with small chunks, each an object, as zarr-python, which reads them, is quickest: "
        "grid 256 × 256, plain; bert 1 MiB of rows (zstd at level 15, ids by Blosc's shuffled zstd) and camera "
        "3 × 288 × 384, zstd. Its guide has no other advice on chunks than Zarr's.",
    }

    def __init__(self) -> None:
        self._reader = Reader()

    def stored(self, data: Dataset, layout: str) -> str:
        return f"icechunk-{layout}"

    def prepare(self, data: Dataset, layout: str, lab: Lab) -> None:
        session = icechunk.Repository.create(self._storage(data, layout, lab)).writable_session("main")
        for info in data.arrays:
            cut = Layout(info.chunks) if layout == "same" else small_chunks(data, info)
            write_array(session.store, data, info, cut, name=info.name)
        session.commit(f"all of {data.name}")

    def open(self, data: Dataset, layout: str, lab: Lab) -> None:
        zarr.config.set({"async.concurrency": 128})
        preload = icechunk.ManifestPreloadConfig(
            max_total_refs=1_000_000, preload_if=icechunk.ManifestPreloadCondition.true()
        )
        config = icechunk.RepositoryConfig(
            caching=icechunk.CachingConfig(num_bytes_chunks=0), manifest=icechunk.ManifestConfig(preload=preload)
        )
        repository = icechunk.Repository.open(self._storage(data, layout, lab), config=config)
        self._reader.open(repository.readonly_session("main").store, data)

    def read(self, query: Query, **settings: Any) -> list[np.ndarray]:
        return self._reader.read(query)

    def told(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        self._reader.close()

    def _storage(self, data: Dataset, layout: str, lab: Lab) -> icechunk.Storage:
        options = servers.options_at(lab.endpoint)
        return icechunk.s3_storage(
            bucket=lab.bucket, prefix=data.prefix(self.stored(data, layout)), region="us-east-1",
            endpoint_url=lab.endpoint, allow_http=True, force_path_style=True,
            access_key_id=options["access_key_id"], secret_access_key=options["secret_access_key"],
        )  # fmt: skip
