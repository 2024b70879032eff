"""HSDS, the HDF Group's service, on the client's machine; it reads its own objects from the bucket over the line."""

import time
from math import prod
from typing import Any, ClassVar

import h5pyd
import numpy as np

from bench.lab import Lab
from bench.peers.datasets import ArrayInfo, Dataset
from bench.peers.systems.copies import bands
from bench.peers.systems.hsds_server import PASSWORD, USER, Server
from bench.peers.workloads import Query
from bench.servers import options_at

__all__ = ["System"]

# Its guides say: typically as many as the machine has cores. One and four were no quicker.
DATA_NODES = 2
# A data node keeps a chunk for whole seconds, and for ever where this is 0.
STALE_S = 1
# Of one request to the service, without a byte of its answer.
TIMEOUT_S = 120
TRIES = 3  # to write a copy
_CONFLICT = 409

# What is written at a time must fit in both, and the last flush waits for all of it.
_WRITING = {"max_request_size": "1g", "chunk_mem_cache_size": "4g", "flush_timeout": 300}
# Parts of one query share a chunk that is under way or has just come, however long it takes: with no room for a chunk,
# or after the usual second of waiting, each part would fetch it anew. That no chunk outlives a query, `rest` sees to.
_READING = {"chunk_mem_cache_size": "1g", "chunk_mem_cache_expire": STALE_S, "store_read_timeout": TIMEOUT_S}


class System:
    """Data nodes have a cache of chunks that cannot be switched off without harm; see `rest`."""

    title = "HSDS"
    packages = ("hsds", "h5pyd", "aiobotocore")
    layouts: ClassVar[dict[str, str]] = {
        "same": "chunks of 16 MB without compression, each an object; 2 data nodes on the client's machine",
        "best": "chunks of 1 MB, the least that its config.yml recommends (min_chunk_size 1m to max_chunk_size 4m), of "
        "whole rows for bert and of all planes for camera; bert with shuffle and gzip, which h5pyd documents as in "
        "h5py; 2 data nodes on the client's machine",
    }

    def __init__(self) -> None:
        self._server: Server | None = None
        self._file: h5pyd.File | None = None
        self._arrays: dict[str, h5pyd.Dataset] = {}
        self._stale_at = 0.0

    def stored(self, data: Dataset, layout: str) -> str:
        return f"hsds-{layout}"

    def prepare(self, data: Dataset, layout: str, lab: Lab) -> None:
        """Write the copy, anew if the service has failed: on a busy machine it answers 503, and h5pyd gives up."""
        for more_tries in reversed(range(TRIES)):
            try:
                self._write(data, layout, lab)
                return
            except (OSError, KeyError):
                if not more_tries:
                    raise

    def _write(self, data: Dataset, layout: str, lab: Lab) -> None:
        server = Server(data_nodes=DATA_NODES, settings={**_store(lab), **_WRITING})
        try:
            access, domain = _access(server), _domain(data, self.stored(data, layout))
            _make_folders(domain, access)
            with _File(domain, "w", **access) as file:
                # All links in one request: made one by one between the writes, one was lost.
                arrays = [_create(file, info, data, layout) for info in data.arrays]
                file.flush()
                for array, info in zip(arrays, data.arrays, strict=True):
                    for rows in bands(info):
                        array[rows] = np.ascontiguousarray(data.truth(info.name)[rows])
                        file.flush()
            # To open a file for writing makes the data nodes store what they still hold.
            with _File(domain, "r+", **access) as file:
                for info in data.arrays:
                    _check(file[info.name].chunks, info, layout)
        finally:
            server.stop()

    def open(self, data: Dataset, layout: str, lab: Lab) -> None:
        self._server = Server(data_nodes=DATA_NODES, settings={**_store(lab), **_READING})
        self._file = _File(_domain(data, self.stored(data, layout)), "r", **_access(self._server))
        self._arrays = {info.name: self._file[info.name] for info in data.arrays}

    def read(self, query: Query, **settings: Any) -> list[np.ndarray]:
        wanted = [self._arrays[part.array] for part in query.parts]
        try:
            if len(wanted) == 1:
                return [wanted[0][query.parts[0].key]]
            return list(h5pyd.MultiManager(wanted)[[part.key for part in query.parts]])
        finally:
            self._stale_at = time.monotonic() + STALE_S + 0.1

    def rest(self) -> None:
        """Return when the data nodes have forgotten the chunks of the last read."""
        time.sleep(max(0.0, self._stale_at - time.monotonic()))

    def told(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        if self._server is not None:
            self._server.stop()


class _File(h5pyd.File):
    """A file whose requests end. h5pyd 1.0.0 takes `retries` and `timeout` but does not pass them on."""

    def _init_db(self, domain: str, **options: Any) -> Any:
        return super()._init_db(domain, **{**options, "retries": 2, "timeout": TIMEOUT_S})


def _store(lab: Lab) -> dict[str, object]:
    options = options_at(lab.endpoint)
    return {
        "aws_s3_gateway": lab.endpoint,
        "aws_access_key_id": options["access_key_id"],
        "aws_secret_access_key": options["secret_access_key"],
        "aws_region": "us-east-1",
        "bucket_name": lab.bucket,
    }


def _access(server: Server) -> dict[str, str]:
    return {"endpoint": server.endpoint, "username": USER, "password": PASSWORD}


def _domain(data: Dataset, stored: str) -> str:
    return f"/{data.prefix(stored)}.h5"


def _make_folders(domain: str, access: dict[str, str]) -> None:
    """Make the folders above a file, those that are not there."""
    names = domain.split("/")[1:-1]
    for depth in range(1, len(names) + 1):
        try:
            h5pyd.Folder(f"/{'/'.join(names[:depth])}/", mode="x", **access).close()
        except OSError as error:
            if error.errno != _CONFLICT:
                raise


def _create(file: h5pyd.File, info: ArrayInfo, data: Dataset, layout: str) -> h5pyd.Dataset:
    packed = layout == "best" and data.name == "bert"
    how = {"compression": "gzip", "shuffle": True} if packed else {}
    return file.create_dataset(info.name, info.shape, info.dtype, chunks=_chunks(info, layout), **how)


def _chunks(info: ArrayInfo, layout: str) -> tuple[int, ...]:
    """Return an array's chunks: those that all systems share, or of about 1 MB, if the array has as much."""
    if layout == "same":
        return info.chunks
    if len(info.shape) == 3:
        most: tuple[int, ...] = (3, 480, 768)
    elif info.chunks[1:] != info.shape[1:]:
        most = (512, 512)
    else:
        row_bytes = np.dtype(info.dtype).itemsize * prod(info.shape[1:])
        most = (-(-(1 << 20) // row_bytes), *info.shape[1:])
    return tuple(min(pair) for pair in zip(most, info.shape, strict=True))


def _check(found: tuple[int, ...], info: ArrayInfo, layout: str) -> None:
    """HSDS may choose chunks of its own; then the layout would not be what it is said to be."""
    if tuple(found) != _chunks(info, layout):
        raise ValueError(f"HSDS stored {info.name} in chunks of {found}, not {_chunks(info, layout)}")
