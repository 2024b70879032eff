"""How each library reads the same array: opened once, cache off where it has one, result a NumPy array."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bench import data

__all__ = ["Read", "h5py_reader", "hyperslab_reader", "tensorstore_reader", "tiledb_reader", "zarr_reader"]

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
    """TensorStore, cache off.

    With no cache, its defaults for looking again at cached data play no part but for the metadata, which
    it reads once when opened.
    """
    import tensorstore as ts

    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(path) + "/"}}
    context = ts.Context({"cache_pool": {"total_bytes_limit": 0}})
    array = ts.open(spec, context=context, open=True, read=True).result()
    return lambda key: array[key].read().result()


def h5py_reader(path: Path | None = None) -> Read:
    """h5py on a file of its own, with HDF5's default chunk cache (smaller than a chunk)."""
    import h5py

    return h5py.File(path or data.image_h5(), "r")["a"].__getitem__


def tiledb_reader(path: Path | None = None) -> Read:
    """TileDB on an array of its own, opened once, with its default configuration."""
    import tiledb

    return tiledb.open(str(path or data.image_tiledb()), "r").__getitem__
