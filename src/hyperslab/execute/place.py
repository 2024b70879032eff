"""Puts fetched bytes where the result wants them, copied once."""

from typing import Any

import numpy as np
import numpy.typing as npt

from hyperslab.errors import ChunkSizeError
from hyperslab.layout import Layout
from hyperslab.plan import BoxPieces, Pieces, PointPieces
from hyperslab.plan.decompose import stored_strides
from hyperslab.selection import boxes_of_run

__all__ = ["check_size", "chunk_view", "place_bytes", "place_chunk"]

Array = npt.NDArray[Any]


def chunk_view(layout: Layout, data: npt.NDArray[np.uint8]) -> Array:
    """Return the cells of a plain chunk without copying them, axes in the array's order."""
    if layout.order == tuple(range(len(layout.chunks))):
        return data.view(layout.stored).reshape(layout.chunks)
    cells = data.view(layout.stored).reshape([layout.chunks[axis] for axis in layout.order])
    return cells.transpose(np.argsort(layout.order))


def check_size(layout: Layout, nbytes: int, key: str) -> None:
    """Refuse a plain chunk whose object has another size than the metadata says: its cells would be wrong."""
    expected = layout.base + layout.chunk_nbytes
    if layout.index is None and nbytes != expected and (layout.sparse or nbytes < expected):
        raise ChunkSizeError(key, nbytes, expected)


def place_chunk(pieces: Pieces, piece: int, target: Array, chunk: Array) -> None:
    """Copy a piece out of its whole chunk."""
    target[pieces.target(piece)] = chunk[pieces.source(piece)]


def place_bytes(pieces: Pieces, piece: int, target: Array, data: npt.NDArray[np.uint8], first: int) -> None:
    """Copy the part of a piece that lies in `data`, the bytes of its plain chunk from byte `first` on.

    `data` begins and ends at cells that belong to the piece.
    """
    if isinstance(pieces, PointPieces):
        _place_points(pieces, piece, target, data, first)
    elif isinstance(pieces, BoxPieces):
        _place_box(pieces, piece, target, data, first)


def _place_points(pieces: PointPieces, piece: int, target: Array, data: npt.NDArray[np.uint8], first: int) -> None:
    size = pieces.layout.stored.itemsize
    low, high = int(pieces.bounds[piece]), int(pieces.bounds[piece + 1])
    cell = first // size
    inside = low + np.searchsorted(pieces.offsets[low:high], [cell, cell + len(data) // size])
    cells = data[: len(data) // size * size].view(pieces.layout.stored)
    some = slice(int(inside[0]), int(inside[1]))
    target[pieces.order[some]] = cells[pieces.offsets[some] - cell]


def _place_box(pieces: BoxPieces, piece: int, target: Array, data: npt.NDArray[np.uint8], first: int) -> None:
    layout = pieces.layout
    size = layout.stored.itemsize
    places = pieces.split(piece)
    counts = [pieces.parts[axis].counts[places[axis]] for axis in layout.order]
    head = _cell_ranks(pieces, places, first // size)
    tail = _cell_ranks(pieces, places, (first + len(data)) // size - 1)
    strides = stored_strides(layout)
    for box in boxes_of_run(head, tail, counts):
        span: list[slice] = [slice(0)] * len(box)
        for axis, some in zip(layout.order, box, strict=True):
            span[axis] = some
        _copy_box(pieces, places, span, strides, target, data, first)


def _cell_ranks(pieces: BoxPieces, places: list[int], cell: int) -> tuple[int, ...]:
    """Return for each stored axis how many selected cells of the piece lie before `cell`."""
    layout = pieces.layout
    ranks = []
    for axis in reversed(layout.order):
        cell, at = divmod(cell, layout.chunks[axis])
        part, place = pieces.parts[axis], places[axis]
        if part.picks is None:
            ranks.append((at - part.lows[place]) // part.step)
        else:
            ranks.append(int(np.searchsorted(part.picks[part.target(place)], at)))
    return tuple(ranks[::-1])


def _copy_box(
    pieces: BoxPieces,
    places: list[int],
    box: list[slice],
    strides: list[int],
    target: Array,
    data: npt.NDArray[np.uint8],
    first: int,
) -> None:
    offset, shape, steps = -first, [], []
    into, picked = [], []
    for axis, some in enumerate(box):
        part, place = pieces.parts[axis], places[axis]
        into.append(slice(part.places[place] + some.start, part.places[place] + some.stop))
        if part.picks is None:
            offset += (part.lows[place] + some.start * part.step) * strides[axis]
            shape.append(some.stop - some.start)
            steps.append(part.step * strides[axis])
            picked.append(np.arange(shape[-1]))
        else:
            cells = part.picks[into[-1]]
            low = int(cells[0])
            offset += low * strides[axis]
            shape.append(int(cells[-1]) - low + 1)
            steps.append(strides[axis])
            picked.append(cells - low)
    view: Array = np.ndarray(shape, pieces.layout.stored, data, offset, steps)
    if any(len(cells) != n for cells, n in zip(picked, shape, strict=True)):
        view = view[np.ix_(*picked)]
    target[tuple(into)] = view
