"""How each library reads the same array: opened once, cache off where it has one, result a NumPy array."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bench import data, servers

__all__ = [
    "Read",
    "h5py_reader",
    "hyperslab_reader",
    "tensorstore_reader",
    "tensorstore_s3_reader",
    "tiledb_reader",
    "zarr_reader",
    "zarr_s3_reader",
    "zarrs_reader",
]

Read = Callable[[Any], np.ndarray]


def hyperslab_reader(path: Path, **settings: Any) -> Read:
    """Hyperslab, cache off."""
    import hyperslab as hs

    return hs.open(path, session=hs.Session(cache_bytes=0, **settings)).__getitem__


def zarr_reader(path: Path) -> Read:
    """zarr-python 3, as `zarr.open_array` gives it; it has no cache."""
    import zarr

    return zarr.open_array(path, mode="r").__getitem__


def tensorstore_reader(path: Path) -> Read:
    """TensorStore, cache off; its settings for looking again at what is stored are at their defaults."""
    return _tensorstore({"driver": "file", "path": f"{path}/"})


def h5py_reader(path: Path | None = None) -> Read:
    """h5py on a file of its own, with HDF5's default chunk cache (smaller than a chunk)."""
    import h5py

    return h5py.File(path or data.image_h5(), "r")["a"].__getitem__


def tiledb_reader(path: Path | None = None) -> Read:
    """TileDB on an array of its own, opened once, with its default configuration."""
    import tiledb

    return tiledb.open(str(path or data.image_tiledb()), "r").__getitem__


def zarr_s3_reader(endpoint: str, name: str) -> Read:
    """zarr-python 3 over obstore."""
    import zarr

    store = zarr.storage.ObjectStore(servers.obstore_client(endpoint, name), read_only=True)
    return zarr.open_array(store, mode="r").__getitem__


def tensorstore_s3_reader(endpoint: str, name: str) -> Read:
    """TensorStore with its own S3 client, cache off."""
    options = servers.options_at(endpoint)
    os.environ["AWS_ACCESS_KEY_ID"] = options["access_key_id"]
    os.environ["AWS_SECRET_ACCESS_KEY"] = options["secret_access_key"]
    return _tensorstore(
        {
            "driver": "s3", "bucket": servers.BUCKET, "path": f"{name}/", "endpoint": endpoint,
            "aws_region": "us-east-1", "aws_credentials": {"type": "environment"},
        }
    )  # fmt: skip


def _tensorstore(kvstore: dict[str, Any]) -> Read:
    import tensorstore as ts

    context = ts.Context({"cache_pool": {"total_bytes_limit": 0}})
    spec = {"driver": "zarr3", "kvstore": kvstore}
    array = ts.open(spec, context=context, open=True, read=True).result()
    return lambda key: array[key].read().result()


def zarrs_reader(path: Path) -> Read:
    """zarr-python 3 with the codec pipeline of zarrs, where that is installed."""
    import zarr

    with zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"}):
        return zarr.open_array(path, mode="r").__getitem__
