"""Puts fetched bytes where the result wants them, copied once."""

from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from hyperslab.errors import ChunkSizeError, IntegrityError, InternalError
from hyperslab.layout import WHOLE, Layout
from hyperslab.plan import BoxPieces, Pieces, PointPieces
from hyperslab.plan.decompose import stored_strides
from hyperslab.selection import AxisParts, boxes_of_run

__all__ = [
    "Routes",
    "check_size",
    "check_whole",
    "chunk_view",
    "inline_chunk",
    "lost",
    "nowhere",
    "place_bytes",
    "place_cells",
    "place_chunk",
    "routes_of",
]

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
    if not layout.packed and nbytes != expected and (layout.sparse or nbytes < expected):
        raise ChunkSizeError(key, nbytes, expected)


def check_whole(layout: Layout, inner: int, nbytes: int) -> None:
    """Refuse a plain chunk that is referred to as a whole object, if that has another size."""
    place = None if layout.references is None else layout.references.find(inner)
    if isinstance(place, tuple) and place[2] == WHOLE and nbytes != layout.chunk_nbytes:
        raise ChunkSizeError(place[0], nbytes, layout.chunk_nbytes)


def inline_chunk(layout: Layout, inner: int) -> Array:
    """Return the cells of a chunk whose bytes are among the references."""
    stored = None if layout.references is None else layout.references.find(inner)
    if not isinstance(stored, bytes):
        raise InternalError(f"chunk {inner} is not among the references")
    name = f"among the references, number {inner}"
    if layout.decoder is not None:
        return layout.decoder.decode(memoryview(stored), name)
    if len(stored) != layout.chunk_nbytes:
        raise ChunkSizeError(name, len(stored), layout.chunk_nbytes)
    return chunk_view(layout, np.frombuffer(stored, np.uint8))


def nowhere(key: str) -> IntegrityError:
    """Return the error for a reference to an object that is not there."""
    return IntegrityError(
        f"object {key!r} is not there, though chunks of the array are said to lie in it; was it moved or deleted?"
    )


def lost(layout: Layout, key: str) -> IntegrityError:
    """Return the error for an object that is not there, or lacks a chunk, though fill values must not stand for it."""
    if not layout.complete:
        return IntegrityError(f"object {key!r} is gone; the array cannot be read without it")
    return IntegrityError(
        f"object {key!r}, or a chunk in it, is gone, though all were written; if the array was made smaller meanwhile, "
        "refresh() it; if another program leaves out chunks that are empty, `hyperslab seal URL` writes them"
    )


class Routes(Protocol):
    """Where the cells of each piece come from, in its chunk, and where they go, in the result; all pieces tell that."""

    def source(self, piece: int) -> Any: ...

    def target(self, piece: int) -> Any: ...


@dataclass(frozen=True, slots=True, eq=False)
class _ListedRoutes:
    sources: list[tuple[Any, ...]]
    targets: list[tuple[Any, ...]]

    def source(self, piece: int) -> tuple[Any, ...]:
        return self.sources[piece]

    def target(self, piece: int) -> tuple[Any, ...]:
        return self.targets[piece]


def routes_of(pieces: Pieces) -> Routes:
    """Return the routes of pieces, listed where that is cheap: a read of small chunks asks for thousands."""
    # Lists along two axes are to be combined; one alone can stand beside slices.
    if not isinstance(pieces, BoxPieces) or sum([part.picks is not None for part in pieces.parts]) > 1:
        return pieces
    sources = product(*[[_source(part, i) for i in range(len(part))] for part in pieces.parts])
    targets = product(*[[part.target(i) for i in range(len(part))] for part in pieces.parts])
    return _ListedRoutes(list(sources), list(targets))


def _source(part: AxisParts, i: int) -> Any:
    """Return the cells within the i-th chunk; a slice if it is one cell, which is taken more quickly than a list."""
    return slice(part.lows[i], part.lows[i] + 1) if part.counts[i] == 1 else part.source(i)


def place_chunk(pieces: Routes, piece: int, target: Array, chunk: Array) -> None:
    """Copy a piece out of its whole chunk."""
    target[pieces.target(piece)] = chunk[pieces.source(piece)]


def place_cells(pieces: Pieces, piece: int, target: Array, data: npt.NDArray[np.uint8]) -> None:
    """Copy a piece whose cells, and no others, are in `data`, one after the other."""
    into = target[pieces.target(piece)]
    cells = data.view(pieces.layout.stored).reshape(into.shape)
    target[pieces.target(piece)] = cells


def place_bytes(pieces: Pieces, piece: int, target: Array, data: npt.NDArray[np.uint8], first: int) -> None:
    """Copy the part of a piece that lies in `data`, the bytes of its plain chunk from byte `first` on.

    `data` may hold other cells of the chunk as well; it begins and ends at cells' borders.
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
    head = _rank(pieces, places, counts, -(-first // size))
    stop = _rank(pieces, places, counts, (first + len(data)) // size)
    if head >= stop:
        return
    strides = stored_strides(layout)
    for box in boxes_of_run(_unravel(head, counts), _unravel(stop - 1, counts), counts):
        span: list[slice] = [slice(0)] * len(box)
        for axis, some in zip(layout.order, box, strict=True):
            span[axis] = some
        _copy_box(pieces, places, span, strides, target, data, first)


def _rank(pieces: BoxPieces, places: list[int], counts: list[int], cell: int) -> int:
    """Return how many of a piece's cells lie before `cell` of its stored chunk."""
    layout = pieces.layout
    coords = []
    for axis in reversed(layout.order[1:]):
        cell, at = divmod(cell, layout.chunks[axis])
        coords.append(at)
    rank = 0
    for i, (axis, at) in enumerate(zip(layout.order, [cell, *coords[::-1]], strict=False)):
        before, selected = _before(pieces.parts[axis], places[axis], at)
        rank = rank * counts[i] + before
        if not selected:
            return rank * prod(counts[i + 1 :])
    return rank if layout.order else cell


def _before(part: AxisParts, place: int, at: int) -> tuple[int, bool]:
    """Return how many of a part's cells lie before cell `at` of its chunk, and whether that is one of them."""
    count = part.counts[place]
    if part.picks is not None:
        cells = part.picks[part.target(place)]
        before = int(np.searchsorted(cells, at))
        return before, before < count and int(cells[before]) == at
    before = max(0, -(-(at - part.lows[place]) // part.step))
    if before >= count:
        return count, False
    return before, part.lows[place] + before * part.step == at


def _unravel(rank: int, counts: list[int]) -> tuple[int, ...]:
    coords = []
    for count in reversed(counts):
        rank, at = divmod(rank, count)
        coords.append(at)
    return tuple(coords[::-1])


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
    into: list[slice] = []
    picked: list[npt.NDArray[np.int64] | None] = []
    for axis, some in enumerate(box):
        part, place = pieces.parts[axis], places[axis]
        into.append(slice(part.places[place] + some.start, part.places[place] + some.stop))
        if part.picks is None:
            offset += (part.lows[place] + some.start * part.step) * strides[axis]
            shape.append(some.stop - some.start)
            steps.append(part.step * strides[axis])
            picked.append(None)
        else:
            cells = part.picks[into[-1]]
            low = int(cells[0])
            offset += low * strides[axis]
            shape.append(int(cells[-1]) - low + 1)
            steps.append(strides[axis])
            picked.append(cells - low)
    view: Array = np.ndarray(shape, pieces.layout.stored, data, offset, steps)
    if any(cells is not None and len(cells) != n for cells, n in zip(picked, shape, strict=True)):
        view = view[np.ix_(*[np.arange(n) if cells is None else cells for cells, n in zip(picked, shape, strict=True)])]
    target[tuple(into)] = view
