"""The function's core: the bytes of a chunk, how it is stored and what is wanted of it in, cells out. Pure."""

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from hyperslab.errors import ChunkSizeError
from hyperslab.layout.codecs import Codec, Size
from hyperslab.layout.filters import Retype
from hyperslab.layout.hdf5_filters import Fletcher32, ScaleOffset
from hyperslab.store.call import AxisSelect, CallChunk, CallLayout, CallLimits, CallRequest, Points
from hyperslab.store.checked import over

__all__ = ["Work", "cells_of", "work_of"]

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Work:
    """What one chunk takes, known before anything is read.

    `low` and `high` are the bytes that are needed of the chunk as it is stored; `high` is a bound where its codecs
    do not say how long it is. `memory_bytes` is held at most until its cells, of `result_bytes`, are there.
    """

    low: int
    high: int
    memory_bytes: int
    result_bytes: int

    @property
    def read_bytes(self) -> int:
        return self.high - self.low


def work_of(request: CallRequest, limits: CallLimits) -> list[Work]:
    """Return what each chunk of a request takes; raises CallTooLargeError if that is more than allowed.

    >>> layout = CallLayout((4, 4), np.dtype("u1"), (0, 1))
    >>> request = CallRequest("s3://b", (layout,), (CallChunk("c", 0, ((1, 2, 1), (0, 2, 1))),))
    >>> work_of(request, CallLimits())
    [Work(low=4, high=10, memory_bytes=14, result_bytes=4)]
    """
    works = [_work(request.layouts[chunk.layout], chunk, limits) for chunk in request.chunks]
    total = sum([work.read_bytes for work in works])
    if total > limits.read_bytes:
        raise over("bytes to read for all chunks", total, limits.read_bytes)
    return works


def cells_of(
    layout: CallLayout, chunk: CallChunk, data: memoryview, first: int = 0, shared_bytes: int = 0
) -> memoryview:
    """Return the cells wanted of a chunk, from its stored bytes: C-contiguous over the array's axes.

    A plain chunk's `data` may begin at its byte `first` and end early, if all that is needed lies within. Where `data`
    is part of something larger, `shared_bytes` is the size of that.
    """
    kept_bytes = max(len(data), shared_bytes)
    if layout.codecs:
        whole = layout.decoder().decode(data, chunk.key)
        kept_bytes = max(kept_bytes, layout.nbytes)
        if isinstance(chunk.select, Points):
            return _packed(whole[chunk.select.coords], kept_bytes)
        return _packed(_inside(whole, chunk.select, [0] * whole.ndim), kept_bytes)
    if isinstance(chunk.select, Points):
        width = layout.stored.itemsize
        cells = _flat(data, layout, chunk.key)
        return _packed(cells[_offsets(layout, chunk.select) - first // width], kept_bytes)
    return _packed(_plain_box(layout, chunk, data, first), kept_bytes)


def _work(layout: CallLayout, chunk: CallChunk, limits: CallLimits) -> Work:
    result_bytes = prod(chunk.counts) * layout.stored.itemsize
    if not layout.codecs:
        low, high = _needed(layout, chunk.select)
        if high - low > limits.chunk_bytes:
            raise over("bytes to read of one chunk", high - low, limits.chunk_bytes)
        return Work(low, high, high - low + 2 * result_bytes, result_bytes)
    decoder = layout.decoder()
    extent = None if chunk.start is None or chunk.stop is None else chunk.stop - chunk.start
    stored = decoder.encoded.nbytes if extent is None else extent
    size, most = decoder.encoded, layout.nbytes + 2 * result_bytes
    for codec, decoded in decoder.stages:
        most = max(most, size.nbytes + decoded.nbytes + _beside(codec, decoded))
        size = decoded
    return Work(0, stored, stored + most, result_bytes)


def _beside(codec: Codec, decoded: Size) -> int:
    """Return the bytes that undoing a codec takes beside what goes in and comes out."""
    if isinstance(codec, Retype):
        # Two rounds of arithmetic, in complex numbers at worst.
        return 32 * -(-decoded.nbytes // codec.decoded_dtype.itemsize)
    if isinstance(codec, (Fletcher32, ScaleOffset)):
        return 4 * decoded.nbytes
    # Compressors put their output together from parts, or keep a window of it.
    return decoded.nbytes


def _needed(layout: CallLayout, select: tuple[AxisSelect, ...] | Points) -> tuple[int, int]:
    """Return the first byte of a plain chunk that is needed, and the one behind the last."""
    width = layout.stored.itemsize
    if isinstance(select, Points):
        offsets = _offsets(layout, select)
        return int(offsets.min()) * width, int(offsets.max() + 1) * width
    strides = _strides(layout)
    lows, highs = _corners(select)
    low = sum([at * stride for at, stride in zip(lows, strides, strict=True)])
    return low, sum([at * stride for at, stride in zip(highs, strides, strict=True)]) + width


def _strides(layout: CallLayout) -> list[int]:
    """Return how far apart in a plain chunk cells lie that are neighbours along each axis."""
    strides, step = [0] * len(layout.chunks), layout.stored.itemsize
    for axis in reversed(layout.order):
        strides[axis] = step
        step *= layout.chunks[axis]
    return strides


def _corners(select: tuple[AxisSelect, ...]) -> tuple[list[int], list[int]]:
    """Return the first and the last cell along each axis."""
    lows = [axis[0] if isinstance(axis, tuple) else int(axis.min()) for axis in select]
    highs = [axis[0] + (axis[1] - 1) * axis[2] if isinstance(axis, tuple) else int(axis.max()) for axis in select]
    return lows, highs


def _offsets(layout: CallLayout, points: Points) -> npt.NDArray[np.int64]:
    """Return the place of each point among the cells of its stored chunk."""
    offsets = np.zeros(len(points.coords[0]), np.int64)
    for axis in layout.order:
        offsets = offsets * layout.chunks[axis] + points.coords[axis]
    return offsets


def _plain_box(layout: CallLayout, chunk: CallChunk, data: memoryview, first: int) -> Array:
    select = chunk.select
    assert not isinstance(select, Points)
    lows, highs = _corners(select)
    strides = _strides(layout)
    offset = sum([low * stride for low, stride in zip(lows, strides, strict=True)]) - first
    shape = [high - low + 1 for low, high in zip(lows, highs, strict=True)]
    dtype = layout.decoder().stored
    box: Array = np.ndarray(shape, dtype, _bytes_of(data, layout, chunk.key), offset, strides)
    return _inside(box, select, lows)


def _inside(box: Array, select: tuple[AxisSelect, ...], lows: list[int]) -> Array:
    """Return what is selected of a box whose first cell is at `lows` of its chunk."""
    evenly = [
        slice(axis[0] - low, axis[0] - low + (axis[1] - 1) * axis[2] + 1, axis[2])
        if isinstance(axis, tuple)
        else slice(None)
        for axis, low in zip(select, lows, strict=True)
    ]
    found = box[tuple(evenly)]
    picked = [
        (len(axis) / box.shape[number], number) for number, axis in enumerate(select) if not isinstance(axis, tuple)
    ]
    # Where an axis gets longer, as indices may repeat, that comes last: what is in between is never the largest.
    for _, number in sorted(picked):
        found = found.take(np.asarray(select[number]) - lows[number], number)
    return found


def _flat(data: memoryview, layout: CallLayout, key: str) -> Array:
    return np.frombuffer(_bytes_of(data, layout, key), np.uint8).view(layout.decoder().stored)


def _bytes_of(data: memoryview, layout: CallLayout, key: str) -> memoryview:
    """Return the bytes of a plain chunk, or of a part of it; whole cells."""
    if len(data) > layout.nbytes or len(data) % layout.stored.itemsize:
        raise ChunkSizeError(key, len(data), layout.nbytes)
    return data


def _packed(cells: Array, kept_bytes: int) -> memoryview:
    """Return cells as bytes; a copy unless they are all of what would stay in memory for them."""
    packed = np.ascontiguousarray(cells)
    if packed.base is not None and packed.nbytes < kept_bytes:
        packed = packed.copy()
    return packed.reshape(-1).view(np.uint8).data
