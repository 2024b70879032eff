"""How long zarr-python and h5py take themselves for reads of what they stored: what a user has without Hyperslab."""

import time
from collections.abc import Callable
from typing import Any

import h5py
import zarr
from obstore.fsspec import FsspecStore

from bench import servers
from bench.layouts.copies import H5PY, ZARR
from bench.layouts.patterns import Key

__all__ = ["LIBRARIES", "timed_by"]

LIBRARIES = (ZARR, H5PY)
# h5py sends one request after the other: a few reads are enough to see how many there are.
_MOST_READS, _LONG_S = 3, 15.0


def timed_by(library: str, endpoint: str, where: str, reads: list[list[Key]]) -> float:
    """Return the mean seconds of a few reads; what opens connections and metadata goes before."""
    read = _zarr(endpoint, where) if library == ZARR else _h5py(endpoint, where)
    read(reads[0][0])
    taken: list[float] = []
    for keys in reads[1 : 1 + _MOST_READS]:
        started = time.perf_counter()
        for key in keys:
            read(key)
        taken.append(time.perf_counter() - started)
        if sum(taken) > _LONG_S:
            break
    return sum(taken) / len(taken)


def _zarr(endpoint: str, where: str) -> Callable[[Key], Any]:
    store = zarr.storage.ObjectStore(servers.obstore_client(endpoint, where), read_only=True)
    return zarr.open_array(store, mode="r").oindex.__getitem__


def _h5py(endpoint: str, where: str) -> Callable[[Key], Any]:
    config = {**servers.options_at(endpoint), "region": "us-east-1"}
    files = FsspecStore("s3", config=config, client_options={"allow_http": True})
    path, _, name = where.rpartition("/")
    return h5py.File(files.open(f"{servers.BUCKET}/{path}", "rb"), "r")[name].__getitem__
