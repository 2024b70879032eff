"""A whole query in one call of a function beside the data: HSLambda's way, which is HSDS inside of AWS Lambda.

HSLambda itself runs only in Lambda. This is its way of reading, in the lab's function host, with nothing that would be
slow for reasons of its own: the function gets the chunks whole, each once, many at a time, and puts the cells of all
parts into one reply (`whole_call_app`). Instances, cold starts and billed time are those of our own function.

It is treated kindly: replies have any length, where AWS has a limit of 200 MB for streamed replies and of 6 MB for
others, and are compressed if that makes them shorter. A call reads at the pace of one instance, as ours do.
"""

import json
from http.client import HTTPConnection
from math import prod
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import numpy as np

from bench.lab import Lab
from bench.peers.datasets import ArrayInfo, Dataset
from bench.peers.systems.copies import ZARR_PLAIN, ZSTD_LEVELS, bands, upload_from, write_zarr_plain
from bench.peers.systems.whole_call_app import KEY_HEADER, PATH
from bench.peers.workloads import Part, Query

__all__ = ["System"]

_TIMEOUT_S = 120
_BEST_BYTES = 1 << 20


class System:
    """The client has one connection, which it keeps."""

    title = "whole query in one call"
    packages = ("obstore", "numpy", "numcodecs")
    layouts: ClassVar[dict[str, str]] = {
        "same": "plain chunks of 16 MB, each an object; the function gets them whole",
        "best": "zstd chunks of 1 MB (bert at level 15), each an object: the least that HSDS takes by its config.yml "
        "(min_chunk_size 1m, max_chunk_size 4m)",
    }

    def __init__(self) -> None:
        self._connection: HTTPConnection | None = None
        self._key = self._root = ""
        self._dtypes: dict[str, np.dtype] = {}

    def stored(self, data: Dataset, layout: str) -> str:
        return ZARR_PLAIN if layout == "same" else "zarr-zstd-1mb"

    def prepare(self, data: Dataset, layout: str, lab: Lab) -> None:
        if layout == "same":
            write_zarr_plain(data, lab)
            return

        def write(folder: Path, info: ArrayInfo) -> None:
            import zarr

            chunks = _best_chunks(info, _BEST_BYTES // data.scale.divide**2)
            array = zarr.create_array(
                str(folder / info.name), shape=info.shape, chunks=chunks, dtype=info.dtype,
                compressors=zarr.codecs.ZstdCodec(level=ZSTD_LEVELS[data.name]),
            )  # fmt: skip
            for rows in bands(info, 4 * chunks[0]):
                array[rows] = data.truth(info.name)[rows]

        upload_from(data, self.stored(data, layout), lab, write)

    def open(self, data: Dataset, layout: str, lab: Lab) -> None:
        self._connection = HTTPConnection(urlsplit(lab.function_url).netloc, timeout=_TIMEOUT_S)
        self._key, self._root = lab.key, f"{data.prefix(self.stored(data, layout))}/"
        names = [info.name for info in data.arrays]
        answer = json.loads(self._call({"arrays": [self._root + name for name in names]}))
        self._dtypes = {name: np.dtype(said["dtype"]) for name, said in zip(names, answer, strict=True)}

    def read(self, query: Query, **settings: Any) -> list[np.ndarray]:
        parts = [{"array": self._root + part.array, "key": [_said(item) for item in part.key]} for part in query.parts]
        reply = memoryview(self._call({"parts": parts, "may_compress": True}))
        cells = reply[1:]
        if reply[0]:
            from numcodecs.zstd import Zstd

            cells = memoryview(Zstd().decode(cells))
        found, start = [], 0
        for part in query.parts:
            shape, dtype = _shape(part), self._dtypes[part.array]
            found.append(np.frombuffer(cells, dtype, prod(shape), start).reshape(shape))
            start += found[-1].nbytes
        return found

    def _call(self, asked: dict[str, Any]) -> bytes:
        if self._connection is None:
            raise RuntimeError("nothing is open")
        body = json.dumps(asked, separators=(",", ":"))
        try:
            self._connection.request("POST", PATH, body.encode(), {KEY_HEADER: self._key})
            response = self._connection.getresponse()
        except ConnectionError:  # the server has closed it meanwhile
            self._connection.close()
            self._connection.request("POST", PATH, body.encode(), {KEY_HEADER: self._key})
            response = self._connection.getresponse()
        content = response.read()
        if response.status != 200:
            raise RuntimeError(f"the function answered {response.status}: {content[:300].decode(errors='replace')}")
        return content

    def told(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


def _said(item: Any) -> list[Any]:
    """Return an item of a key as JSON has it: [start, stop], or [[row numbers]]."""
    return [item.start, item.stop] if isinstance(item, slice) else [item.tolist()]


def _shape(part: Part) -> tuple[int, ...]:
    return tuple(item.stop - item.start if isinstance(item, slice) else len(item) for item in part.key)


def _best_chunks(info: ArrayInfo, nbytes: int) -> tuple[int, ...]:
    """Return chunks of so many bytes: whole rows of tables, squares of the grid, all planes of tiles of a picture."""
    cells = nbytes // np.dtype(info.dtype).itemsize
    if len(info.shape) == 3:
        side = round((cells / info.shape[0]) ** 0.5)
        return (info.shape[0], *(min(side, n) for n in info.shape[1:]))
    if info.shape == (info.shape[0],) or info.chunks[1:] == info.shape[1:]:
        return (max(1, min(info.shape[0], cells // prod(info.shape[1:]))), *info.shape[1:])
    return tuple(min(round(cells**0.5), n) for n in info.shape)
