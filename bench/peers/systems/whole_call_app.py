"""A function that answers a whole query in one call, served in the lab beside our own (`POST /whole`).

It gets every chunk that any part of the query touches, whole and only once, many at a time; takes the cells out; and
sends the cells of all parts in one reply. Arrays are Zarr v3 with plain or zstd chunks. What an array is, is asked for
once and kept, as a warm instance would; cells are not.
"""

import asyncio
import hmac
import json
import os
import threading
from collections.abc import Iterator, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np
import obstore
from numcodecs.zstd import Zstd
from obstore.store import S3Store

__all__ = ["KEY_HEADER", "PATH", "WholeCall", "from_environment"]

PATH = "/whole"
KEY_HEADER = "x-lab-key"
# Chunks under way at a time. A GET waits for the store for most of its time, so there are more than cores.
_AT_ONCE = 64
_SAMPLE_BYTES = 64 << 10
_PIECE_BYTES = 1 << 20

_Item = slice | np.ndarray
_zstd = Zstd(level=1)


def from_environment() -> "WholeCall":
    """Return the function with the bucket and the key that the lab's other function has."""
    root = os.environ["HYPERSLAB_FUNCTION_ROOTS"].removeprefix("s3://")
    options = json.loads(os.environ["HYPERSLAB_FUNCTION_STORAGE_OPTIONS"])
    store = S3Store(
        root.partition("/")[0], config={**options, "region": "us-east-1"}, client_options={"allow_http": True}
    )
    return WholeCall(store, os.environ["HYPERSLAB_FUNCTION_KEYS"])


@dataclass(frozen=True, slots=True)
class _Array:
    """What a `zarr.json` says, as far as it is needed here."""

    path: str
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: np.dtype
    is_zstd: bool


@dataclass(frozen=True, slots=True)
class _Piece:
    """Cells that one part takes from one chunk: `inside` of the chunk, and where they go."""

    out: np.ndarray
    at: tuple[slice, ...]
    inside: tuple[_Item, ...]


class _Read:
    """Counts the bytes that a call has read, in any thread."""

    def __init__(self) -> None:
        self.nbytes, self._lock = 0, threading.Lock()

    def add(self, nbytes: int) -> None:
        with self._lock:
            self.nbytes += nbytes


class WholeCall:
    """An ASGI application. The work is done in threads, so that other calls of this process go on."""

    def __init__(self, store: S3Store, key: str) -> None:
        self._store, self._key = store, key
        self._arrays: dict[str, _Array] = {}
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="whole-call")

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        headers = dict(scope["headers"])
        body = await _body(receive)
        if not hmac.compare_digest(headers.get(KEY_HEADER.encode(), b""), self._key.encode()):
            await _send(send, 403, [b"the key is wrong"])
            return
        read = _Read()
        try:
            reply = await asyncio.to_thread(self._answer, json.loads(body), read)
        except Exception as error:  # noqa: BLE001 the caller is told
            await _send(send, 500, [f"{type(error).__name__}: {error}".encode()])
            return
        await _send(send, 200, reply, read.nbytes)

    def _answer(self, asked: dict[str, Any], read: "_Read") -> list[bytes | memoryview]:
        """Return a reply's body: what the arrays are, or a byte that says if all is zstd, and the cells."""
        if "arrays" in asked:
            found = self._threads.map(self._array, asked["arrays"])
            return [json.dumps([{"shape": each.shape, "dtype": str(each.dtype)} for each in found]).encode()]
        outs = self._read(asked["parts"], read)
        cells = [memoryview(out).cast("B") for out in outs if out.size]
        if asked["may_compress"] and _shrinks(cells):
            return [b"\1", _zstd.encode(b"".join(cells))]
        return [b"\0", *cells]

    def _read(self, parts: list[dict[str, Any]], read: "_Read") -> list[np.ndarray]:
        outs, wanted = [], {}
        for part in parts:
            array = self._array(part["array"])
            key = [slice(*item) if len(item) == 2 else np.array(item[0]) for item in part["key"]]
            out = np.empty([_length(item) for item in key], array.dtype)
            outs.append(out)
            for chunk, piece in _pieces(array, key, out):
                wanted.setdefault((array, chunk), []).append(piece)
        # Each is waited for, so that what went wrong is raised.
        list(self._threads.map(lambda item: self._fetch(*item[0], item[1], read), wanted.items()))
        return outs

    def _fetch(self, array: _Array, chunk: tuple[int, ...], pieces: list[_Piece], read: "_Read") -> None:
        path = "/".join([array.path, "c", *map(str, chunk)])
        data = memoryview(obstore.get(self._store, path).bytes())
        read.add(len(data))
        nbytes = prod(array.chunks) * array.dtype.itemsize
        if array.is_zstd:
            data = _zstd.decode(data, np.empty(nbytes, np.uint8))
        cells = np.frombuffer(data, array.dtype).reshape(array.chunks)
        for piece in pieces:
            piece.out[piece.at] = cells[piece.inside]

    def _array(self, path: str) -> _Array:
        if path not in self._arrays:
            self._arrays[path] = _described(
                path, json.loads(bytes(obstore.get(self._store, f"{path}/zarr.json").bytes()))
            )
        return self._arrays[path]


def _described(path: str, said: dict[str, Any]) -> _Array:
    codecs = [codec["name"] for codec in said["codecs"]]
    if codecs not in (["bytes"], ["bytes", "zstd"]):
        raise ValueError(f"the chunks of {path!r} are encoded by {codecs}; this function reads plain and zstd ones")
    chunks = said["chunk_grid"]["configuration"]["chunk_shape"]
    return _Array(path, tuple(said["shape"]), tuple(chunks), np.dtype(said["data_type"]), "zstd" in codecs)


def _length(item: _Item) -> int:
    return item.stop - item.start if isinstance(item, slice) else len(item)


def _pieces(array: _Array, key: list[_Item], out: np.ndarray) -> Iterator[tuple[tuple[int, ...], _Piece]]:
    """Give the chunks that a key touches, each with the piece of it that is wanted."""
    axes = [list(_along(item, length)) for item, length in zip(key, array.chunks, strict=True)]
    for steps in product(*axes):
        chunk, at, inside = zip(*steps, strict=True)
        yield chunk, _Piece(out, at, inside)


def _along(item: _Item, length: int) -> Iterator[tuple[int, slice, _Item]]:
    """Give the chunks along one axis: number, where in the result, what of the chunk. Row numbers are sorted.

    >>> list(_along(slice(3, 6), 4))
    [(0, slice(0, 1, None), slice(3, 4, None)), (1, slice(1, 3, None), slice(0, 2, None))]
    """
    if isinstance(item, slice):
        for number in range(item.start // length, -(-item.stop // length)):
            start, stop = max(item.start, number * length), min(item.stop, (number + 1) * length)
            yield number, slice(start - item.start, stop - item.start), slice(start % length, stop - number * length)
        return
    numbers, firsts = np.unique(item // length, return_index=True)
    for number, start, stop in zip(numbers.tolist(), firsts, [*firsts[1:], len(item)], strict=True):
        yield number, slice(int(start), int(stop)), item[start:stop] - number * length


def _shrinks(cells: list[memoryview]) -> bool:
    """Tell if it is worth while to compress, by the first bytes of each part."""
    samples = [part[:_SAMPLE_BYTES] for part in cells]
    nbytes = sum(len(sample) for sample in samples)
    return len(_zstd.encode(b"".join(samples))) < 0.8 * nbytes


async def _body(receive: Any) -> bytes:
    parts = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


async def _send(send: Any, status: int, parts: list[Any], read_bytes: int = 0) -> None:
    """Send a body in pieces, as a streamed reply goes; the lab is told what was read."""
    length = sum(len(part) for part in parts)
    headers = [(b"content-type", b"application/octet-stream"), (b"content-length", str(length).encode())]
    headers.append((b"x-read-bytes", str(read_bytes).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    for part in parts:
        for start in range(0, len(part), _PIECE_BYTES):
            piece = bytes(part[start : start + _PIECE_BYTES])
            await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
