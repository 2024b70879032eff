"""The objects of a Zarr array, made from cells: by our own encoder where it knows the codecs, else by zarr-python."""

import json
import threading
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from hyperslab.errors import ChunkSizeError, UnsupportedError
from hyperslab.formats.zarr.compression import Chain, bytes_chain, compression_of
from hyperslab.layout import Layout
from hyperslab.layout.codecs import ByteArray
from hyperslab.layout.encode import ChunkEncoder, join_shard, split_shard

__all__ = ["ChunkEdit", "ObjectCodec", "box_of_chunk", "chunks_of_object", "object_codec"]

Cells = npt.NDArray[Any]


class ChunkEdit(Protocol):
    """What is to become of one chunk of an object."""

    @property
    def replaces(self) -> bool:
        """Whether nothing of the old chunk is left."""
        ...

    def block(self) -> Cells | None:
        """Return the new chunk where it is at hand, shaped like a chunk."""
        ...

    def apply(self, chunk: Cells) -> None:
        """Change the cells of the chunk in place."""
        ...


Edits = Mapping[int, ChunkEdit]


class ObjectCodec(Protocol):
    """Makes the bytes of an object: `old` with the chunks in `edits` changed; without `old` others are fill values."""

    def build(self, coords: tuple[int, ...], edits: Edits, old: ByteArray | None, key: str) -> ByteArray: ...


def object_codec(document: Mapping[str, Any], layout: Layout, *, reuse: bool = False) -> ObjectCodec:
    """Return what encodes the objects of the array that a metadata document describes.

    With `reuse` an object's bytes hold until the next one is built in the same thread: taking memory from the system
    for each takes a fifth of the time.
    """
    encoder = _own_encoder(document, layout)
    if encoder is not None:
        return _OwnObjects(layout, encoder, _Scratch() if reuse else None)
    return _ZarrObjects(layout, document)


def box_of_chunk(layout: Layout, coords: tuple[int, ...], inner: int) -> tuple[tuple[int, int], ...]:
    """Return (start, stop) along each axis of a chunk, the `inner`-th of the object at `coords`, cut at the shape."""
    starts = _starts(layout, coords, inner)
    ends = zip(starts, layout.chunks, layout.shape, strict=True)
    return tuple([(start, max(start, min(start + chunk, length))) for start, chunk, length in ends])


def _starts(layout: Layout, coords: tuple[int, ...], inner: int) -> list[int]:
    within = []
    for count in reversed(layout.chunks_per_object):
        inner, place = divmod(inner, count)
        within.append(place)
    sizes = zip(coords, layout.object_shape, reversed(within), layout.chunks, strict=True)
    return [at * whole + place * chunk for at, whole, place, chunk in sizes]


def _inside(layout: Layout, coords: tuple[int, ...], inner: int) -> bool:
    return all([start < stop for start, stop in box_of_chunk(layout, coords, inner)])


def _decoded(layout: Layout, part: ByteArray | None, key: str) -> Cells:
    """Return the cells of a chunk, to be changed; fill values if it is not stored."""
    if part is None:
        return np.full(layout.chunks, layout.fill, layout.dtype)
    if layout.decoder is not None:
        cells: Cells = layout.decoder.decode(part.data, key)
    else:
        if part.nbytes != layout.chunk_nbytes:
            raise ChunkSizeError(key, part.nbytes, layout.chunk_nbytes)
        ordered = part.view(layout.stored).reshape([layout.chunks[axis] for axis in layout.order])
        cells = ordered.transpose(np.argsort(layout.order)) if layout.order else ordered
    return np.array(cells, layout.dtype, order="C")


def _split(layout: Layout, old: ByteArray | None, key: str) -> list[ByteArray | None]:
    if layout.index is None:
        return [old]
    if old is None:
        return [None] * layout.index.count
    exact = layout.chunk_nbytes if layout.plain else None
    return split_shard(layout.index, old, key, chunk_nbytes=exact)


def chunks_of_object(layout: Layout, data: ByteArray, key: str) -> Iterator[tuple[int, Cells]]:
    """Yield which chunk of its object each one is that is stored in it, and its cells."""
    for inner, part in enumerate(_split(layout, data, key)):
        if part is not None:
            yield inner, _decoded(layout, part, key)


def _changed(layout: Layout, edit: ChunkEdit, part: ByteArray | None, key: str) -> Cells:
    block = edit.block()
    if block is not None:
        return block
    chunk = _decoded(layout, None if edit.replaces else part, key)
    edit.apply(chunk)
    return chunk


class _OwnObjects:
    """Chunks that are not changed are copied as they are stored, once their checksum was found to hold."""

    def __init__(self, layout: Layout, encoder: ChunkEncoder, scratch: "_Scratch | None" = None) -> None:
        self.layout, self.encoder, self.scratch = layout, encoder, scratch
        self._fill: ByteArray | None = None

    def build(self, coords: tuple[int, ...], edits: Edits, old: ByteArray | None, key: str) -> ByteArray:
        layout, encoder = self.layout, self.encoder
        parts = _split(layout, old, key)
        for inner, part in enumerate(parts):
            edit = edits.get(inner)
            if edit is not None:
                parts[inner] = encoder.encode(_changed(layout, edit, part, key))
            elif part is not None:
                encoder.check(part, key)
            elif _inside(layout, coords, inner):
                parts[inner] = self._fill_part()
        if layout.index is not None:
            return join_shard(layout.index, parts, None if self.scratch is None else self.scratch.take)
        whole = parts[0]
        return self._fill_part() if whole is None else whole

    def _fill_part(self) -> ByteArray:
        if self._fill is None:
            self._fill = self.encoder.encode(_decoded(self.layout, None, ""))
        return self._fill


class _Scratch(threading.local):
    """Memory of a thread that is used again and again."""

    def __init__(self) -> None:
        self.held: ByteArray = np.empty(0, np.uint8)

    def take(self, nbytes: int) -> ByteArray:
        if self.held.nbytes < nbytes:
            self.held = np.empty(nbytes + nbytes // 8, np.uint8)
        return self.held[:nbytes]


class _ZarrObjects:
    """Whole objects, encoded as zarr-python encodes an array of one object."""

    def __init__(self, layout: Layout, document: Mapping[str, Any]) -> None:
        self.layout, self.document = layout, document
        self.name = "zarr.json" if document.get("zarr_format") == 3 else ".zarray"

    def build(self, coords: tuple[int, ...], edits: Edits, old: ByteArray | None, key: str) -> ByteArray:
        layout = self.layout
        parts = _split(layout, old, key)
        block = np.full(layout.object_shape, layout.fill, layout.dtype)
        origin = [at * whole for at, whole in zip(coords, layout.object_shape, strict=True)]
        for inner, part in enumerate(parts):
            edit = edits.get(inner)
            if edit is None and part is None:
                continue
            starts = _starts(layout, coords, inner)
            ends = zip(starts, origin, layout.chunks, strict=True)
            place = tuple([slice(start - low, start - low + chunk) for start, low, chunk in ends])
            block[place] = _decoded(layout, part, key) if edit is None else _changed(layout, edit, part, key)
        return self._encode(block, key)

    def _encode(self, block: Cells, key: str) -> ByteArray:
        import zarr
        from zarr.buffer import cpu
        from zarr.storage import MemoryStore

        document = {**self.document, "shape": list(self.layout.object_shape)}
        if "attributes" in document:
            document["attributes"] = {}
        held: dict[str, Any] = {self.name: cpu.Buffer.from_bytes(json.dumps(document).encode())}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                array: Any = zarr.open_array(MemoryStore(held), mode="r+", zarr_format=self.document["zarr_format"])
                array = array.with_config({"write_empty_chunks": True})
                array[...] = block
        except Exception as error:  # zarr-python raises what its codecs do
            raise UnsupportedError(f"zarr-python cannot encode object {key!r}: {error}; copy the array") from error
        stored = [value for name, value in held.items() if name != self.name]
        if len(stored) != 1:
            raise UnsupportedError(f"zarr-python encoded object {key!r} as {len(stored)} objects; copy the array")
        return np.frombuffer(stored[0].to_bytes(), np.uint8)


def _own_encoder(document: Mapping[str, Any], layout: Layout) -> ChunkEncoder | None:
    """Return our encoder, None if the array has codecs that it does not know."""
    older = document.get("zarr_format") == 2
    chain = _chain_v2(document) if older else bytes_chain(document)
    if chain is None or (older and [name for name, _ in chain] not in ([], ["zstd"])):
        return None
    found = compression_of(chain)
    return None if found is None else ChunkEncoder(layout.stored, layout.order, *found)


def _chain_v2(document: Mapping[str, Any]) -> Chain | None:
    if document.get("filters"):
        return None
    compressor = document.get("compressor")
    return [] if compressor is None else [(compressor["id"], compressor)]
