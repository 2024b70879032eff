"""What a call asks for, as bytes: cells of chunks in one bucket, described in JSON. No input or output."""

import binascii
import json
import zlib
from base64 import b64decode, b64encode
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from hyperslab.errors import InvalidInputError, MetadataError
from hyperslab.layout.codecs import ChunkDecoder, Codec, chunk_decoder
from hyperslab.layout.wire import JOINED_BYTES, codecs_from_json, codecs_to_json, dtype_from_json, dtype_to_json
from hyperslab.store.base import check_key
from hyperslab.store.checked import MOST_CELLS, bad, entries, fields, numbers, over, parsed, tag, text, whole

__all__ = ["AxisSelect", "CallChunk", "CallLayout", "CallLimits", "CallRequest", "Points", "bucket_of"]

Ints = npt.NDArray[np.int64]

# Along one axis: (start, count, step), or the indices one by one.
AxisSelect = tuple[int, int, int] | Ints

_VERSION = 1
# Ten packets, less what HTTP says first.
_SENT_AT_ONCE = 12_000
_MOST_KEY = 1024


@dataclass(frozen=True, slots=True)
class CallLimits:
    """What one call may ask for at most."""

    body_bytes: int = 4 << 20
    chunks: int = 1024
    layouts: int = 256
    # Indices and coordinates in all.
    indices: int = 1 << 19
    codecs: int = 16
    # Cells sent back, before they are compressed.
    result_bytes: int = 64 << 20
    # One chunk decoded, or the part of a plain one that is read; and all of a call's.
    chunk_bytes: int = 128 << 20
    read_bytes: int = 1 << 30


@dataclass(frozen=True, slots=True)
class CallLayout:
    """How chunks are stored: their shape, the type of a cell, the axes' order, the codecs in order of encoding.

    Without codecs they are plain.
    """

    chunks: tuple[int, ...]
    stored: np.dtype[np.generic]
    order: tuple[int, ...]
    codecs: tuple[Codec, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes of a decoded chunk."""
        return prod(self.chunks) * self.stored.itemsize

    def decoder(self) -> ChunkDecoder:
        """Return the decoder of such chunks; their cells come as unsigned integers or raw bytes of the same size."""
        return _decoder(self.codecs, self.chunks, self.stored.itemsize, self.order)

    def to_json(self) -> dict[str, Any]:
        return {
            "chunks": list(self.chunks),
            "type": dtype_to_json(self.stored),
            "order": list(self.order),
            "codecs": codecs_to_json(self.codecs),
        }

    @staticmethod
    def from_json(spec: Any, limits: CallLimits) -> "CallLayout":
        """Return the layout that `to_json` described, if a chunk of it may be decoded."""
        fields("a layout", spec, "chunks", "type", "order", "codecs")
        chunks, order = numbers("chunks", spec["chunks"], 1), numbers("order", spec["order"], 0)
        if sorted(order) != list(range(len(chunks))):
            bad("order", order, f"each of {len(chunks)} axes once")
        if isinstance(spec["codecs"], list) and len(spec["codecs"]) > limits.codecs:
            raise over("codecs", len(spec["codecs"]), limits.codecs)
        try:
            layout = CallLayout(chunks, dtype_from_json(spec["type"]), order, codecs_from_json(spec["codecs"]))
        except MetadataError as error:
            raise InvalidInputError(str(error)) from None
        if layout.nbytes > MOST_CELLS:
            raise over("a chunk's bytes", layout.nbytes, MOST_CELLS)
        if layout.codecs:
            layout._check_decoded(limits.chunk_bytes)
        return layout

    def _check_decoded(self, limit_bytes: int) -> None:
        """Refuse a chunk that is too large when decoded, or in between: filters may have made it larger."""
        if self.nbytes > limit_bytes:
            raise over("a chunk's bytes", self.nbytes, limit_bytes)
        decoder = self.decoder()
        most = max([decoder.encoded.nbytes, *[size.nbytes for _, size in decoder.stages]])
        if most > 2 * limit_bytes + (64 << 10):
            raise over("a chunk's bytes while it is decoded", most, 2 * limit_bytes)


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """Single cells of a chunk: one array of indices for each axis."""

    coords: tuple[Ints, ...]


@dataclass(frozen=True, slots=True, eq=False)
class CallChunk:
    """The cells wanted of one chunk.

    `layout` is the number of its layout in the request. The chunk is the bytes from `start` to `stop` of its
    object; None and None: all of it. `etag` is the version that it must be, where that is known.
    """

    key: str
    layout: int
    select: tuple[AxisSelect, ...] | Points
    start: int | None = None
    stop: int | None = None
    etag: str | None = None

    @property
    def counts(self) -> tuple[int, ...]:
        """The shape of what is sent back."""
        if isinstance(self.select, Points):
            return (len(self.select.coords[0]),)
        return tuple([axis[1] if isinstance(axis, tuple) else len(axis) for axis in self.select])

    def to_json(self) -> dict[str, Any]:
        select: Any
        if isinstance(self.select, Points):
            select = {"points": [_pack_indices(axis) for axis in self.select.coords]}
        else:
            select = [list(axis) if isinstance(axis, tuple) else _pack_indices(axis) for axis in self.select]
        extent = None if self.start is None else [self.start, self.stop]
        return {"key": self.key, "layout": self.layout, "select": select, "extent": extent, "etag": self.etag}


@dataclass(frozen=True, slots=True, eq=False)
class CallRequest:
    """What is asked of a function: cells of some chunks in one bucket.

    `store` names the bucket without its server, as `bucket_of` gives it: where that is, the function knows.
    `compress`: whether the cells may come back compressed. `gap_bytes`: chunks of one object are read together where
    at most so many bytes lie between them; 0: only where they touch.
    """

    store: str
    layouts: tuple[CallLayout, ...]
    chunks: tuple[CallChunk, ...]
    compress: bool = False
    gap_bytes: int = 0

    @property
    def cell_nbytes(self) -> int:
        """How long every cell of the answer is; 1 if they are not equally long."""
        sizes = {layout.stored.itemsize for layout in self.layouts}
        return sizes.pop() if len(sizes) == 1 else 1

    def result_nbytes(self, number: int) -> int:
        """Return the bytes of the cells of one chunk."""
        chunk = self.chunks[number]
        return prod(chunk.counts) * self.layouts[chunk.layout].stored.itemsize

    def pack(self) -> bytes:
        """Return the request as JSON, a long one compressed by zlib.

        >>> layout = CallLayout((4,), np.dtype("<i2"), (0,))
        >>> request = CallRequest("s3://b", (layout,), (CallChunk("a/c/0", 0, ((1, 2, 1),)),))
        >>> CallRequest.unpack(request.pack(), CallLimits()).chunks[0].counts
        (2,)
        """
        spec: dict[str, Any] = {
            "version": _VERSION,
            "store": self.store,
            "layouts": [layout.to_json() for layout in self.layouts],
            "chunks": [chunk.to_json() for chunk in self.chunks],
            "compress": self.compress,
        }
        # Older functions do not know it.
        if self.gap_bytes:
            spec["gap"] = self.gap_bytes
        body = json.dumps(spec, separators=(",", ":")).encode()
        # What is sent at once on a connection that has sent little so far: more would wait for an acknowledgement.
        return body if len(body) <= _SENT_AT_ONCE else zlib.compress(body, 1)

    @staticmethod
    def unpack(body: bytes, limits: CallLimits) -> "CallRequest":
        """Return the request that `pack` made the bytes of, whoever sent them: within the limits, or an error."""
        if len(body) > limits.body_bytes:
            raise over("the request's bytes", len(body), limits.body_bytes)
        spec = parsed(_inflated(body, limits.body_bytes))
        # Older callers do not send it.
        gap = spec.pop("gap", 0) if isinstance(spec, dict) else 0
        fields("the request", spec, "version", "store", "layouts", "chunks", "compress")
        if type(spec["version"]) is not int or spec["version"] != _VERSION:
            bad("version", spec["version"], f"{_VERSION}; update the caller or the function")
        store, compress = text("store", spec["store"], 512), spec["compress"]
        if type(compress) is not bool:
            bad("compress", compress, "true or false")
        gap_bytes = whole("gap", gap, 0, JOINED_BYTES)
        layouts = [CallLayout.from_json(each, limits) for each in entries("layouts", spec["layouts"], limits.layouts)]
        left = [limits.indices]
        chunks = [_chunk(each, layouts, left) for each in entries("chunks", spec["chunks"], limits.chunks)]
        request = CallRequest(store, tuple(layouts), tuple(chunks), compress, gap_bytes)
        nbytes = sum([request.result_nbytes(number) for number in range(len(chunks))])
        if nbytes > limits.result_bytes:
            raise over("the bytes of all cells asked for", nbytes, limits.result_bytes)
        return request


def _inflated(body: bytes, most: int) -> bytes:
    """Return the JSON of a body, which says by its first byte whether it is compressed."""
    if not body.startswith(b"x"):
        return body
    stream = zlib.decompressobj()
    try:
        text = stream.decompress(body, most + 1)
    except zlib.error:
        raise InvalidInputError("that is not zlib that can be read") from None
    if len(text) > most:
        raise over("the request's bytes", len(text), most)
    if not stream.eof or stream.unused_data:
        raise InvalidInputError("the zlib of the request does not end where it does")
    return text


def bucket_of(address: str) -> str:
    """Return what a call names a store by: its address without the server.

    >>> bucket_of("s3://bench?endpoint=127.0.0.1:8333"), bucket_of("az://c?account=abc&endpoint=127.0.0.1:10000")
    ('s3://bench', 'az://c?account=abc')
    """
    name, mark, query = address.partition("?")
    kept = [part for part in query.split("&") if part.startswith("account=")]
    return name + mark * bool(kept) + "&".join(kept)


@lru_cache(maxsize=64)
def _decoder(codecs: tuple[Codec, ...], chunks: tuple[int, ...], width: int, order: tuple[int, ...]) -> ChunkDecoder:
    raw = np.dtype(f"u{width}") if width in (1, 2, 4, 8) else np.dtype(f"V{width}")
    return chunk_decoder(codecs, chunks=chunks, stored=raw, order=order)


def _chunk(spec: Any, layouts: list[CallLayout], left: list[int]) -> CallChunk:
    fields("a chunk", spec, "key", "layout", "select", "extent", "etag")
    key = text("key", spec["key"], _MOST_KEY)
    check_key(key)
    number = whole("layout", spec["layout"], 0, len(layouts) - 1)
    layout = layouts[number]
    start, stop = _extent(spec["extent"], layout)
    return CallChunk(key, number, _select(spec["select"], layout.chunks, left), start, stop, tag(spec["etag"]))


def _extent(spec: Any, layout: CallLayout) -> tuple[int | None, int | None]:
    if spec is None:
        return None, None
    if not isinstance(spec, list) or len(spec) != 2:
        bad("extent", spec, "[start, stop] or null")
    start = whole("start", spec[0], 0, MOST_CELLS)
    stop = whole("stop", spec[1], start + 1, start + MOST_CELLS)
    size = layout.decoder().encoded
    if not size.fits(stop - start):
        bad("extent", spec, f"{size.nbytes} bytes, as the layout says")
    return start, stop


def _select(spec: Any, shape: tuple[int, ...], left: list[int]) -> tuple[AxisSelect, ...] | Points:
    """Return what is selected of a chunk of this shape; `left` is how many indices there may still be."""
    if isinstance(spec, dict):
        fields("select", spec, "points")
        spec, single = spec["points"], True
    else:
        single = False
    if not isinstance(spec, list) or len(spec) != len(shape) or (single and not spec):
        bad("select", spec, f"one entry for each of {len(shape)} axes")
    if not single:
        return tuple([_axis(each, size, left) for each, size in zip(spec, shape, strict=True)])
    coords = tuple([_unpack_indices(each, size, left) for each, size in zip(spec, shape, strict=True)])
    if len({len(axis) for axis in coords}) > 1:
        bad("points", [len(axis) for axis in coords], "as many indices on each axis")
    return Points(coords)


def _axis(spec: Any, size: int, left: list[int]) -> AxisSelect:
    if isinstance(spec, dict):
        return _unpack_indices(spec, size, left)
    if not isinstance(spec, list) or len(spec) != 3:
        bad("an axis' selection", spec, "[start, count, step], or indices")
    start, count, step = [whole("start, count or step", n, 0, size) for n in spec]
    if not count or not step or start + (count - 1) * step >= size:
        bad("an axis' selection", spec, f"cells within the {size} of a chunk, at least one")
    return start, count, step


def _pack_indices(indices: Ints) -> dict[str, str]:
    """Return indices as little-endian unsigned numbers in base64: shorter than digits, and quicker to read."""
    wide = bool(len(indices)) and int(indices.max()) >= 2**32
    form = "u8" if wide else "u4"
    return {form: b64encode(indices.astype("<" + form).tobytes()).decode("ascii")}


def _unpack_indices(spec: Any, size: int, left: list[int]) -> Ints:
    form = next((name for name in ("u4", "u8") if isinstance(spec, dict) and spec.keys() == {name}), None)
    if form is None or not isinstance(spec[form], str):
        bad("indices", spec, "{'u4': base64} or {'u8': base64}")
    most = left[0] * int(form[1])
    if len(spec[form]) > 4 * -(-most // 3):
        raise over("indices", len(spec[form]) * 3 // 4 // int(form[1]), left[0])
    try:
        packed = b64decode(spec[form], validate=True)
        found = np.frombuffer(packed, "<" + form)
    except (binascii.Error, ValueError):
        bad("indices", "other text", f"base64 of {form}")
    if not 1 <= len(found) <= left[0]:
        raise over("indices", len(found), left[0])
    left[0] -= len(found)
    if int(found.max()) >= size:
        bad("indices", int(found.max()), f"numbers below {size}, the cells of a chunk")
    return found.astype(np.int64)
