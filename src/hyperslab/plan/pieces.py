"""Pieces: what each chunk gives to a read, and where it goes."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, Protocol

import numpy as np

from hyperslab.layout import Layout
from hyperslab.plan.decompose import count_runs, decompose, decompose_coarsely
from hyperslab.plan.ranges import Ints
from hyperslab.selection import AxisParts, Points, Selection, project
from hyperslab.selection.axis import MOST_CHUNKS, too_many_chunks

__all__ = [
    "MOST_RUNS", "BoxPieces", "Pieces", "PointPieces", "cells_of", "chunk_count_of", "inners_of", "listed_of",
    "objects_of", "pieces_of", "which_object",
]  # fmt: skip

# More ranges are not planned one by one: their requests alone would take hours.
MOST_RUNS = 1 << 21


class Pieces(Protocol):
    """The pieces of one read, numbered from 0."""

    @property
    def layout(self) -> Layout: ...

    def __len__(self) -> int: ...

    def chunks(self) -> Iterator[tuple[int, ...]]:
        """The place of each piece's chunk in the grid of chunks."""
        ...

    def runs(self) -> tuple[Ints, Ints, Ints]:
        """(piece, start, stop) of each run of bytes in plain chunks, counted from the chunk's start."""
        ...

    @property
    def run_count(self) -> int:
        """How many byte ranges there are at most, before any is listed; an encoded chunk is one."""
        ...

    def source(self, piece: int) -> Any:
        """The key of the piece's cells within its chunk."""
        ...

    def target(self, piece: int) -> Any:
        """The key of the piece's cells within the canonical result."""
        ...

    @property
    def cells(self) -> int:
        """How many cells are read."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class BoxPieces:
    """The pieces of a selection made axis by axis: row-major over the parts of each axis.

    With `divided` a chunk may give several pieces, each a band of the cells that are wanted of it.
    """

    layout: Layout
    parts: tuple[AxisParts, ...]
    counts: tuple[int, ...]
    divided: bool = False

    def __len__(self) -> int:
        return prod([len(part) for part in self.parts])

    @property
    def cells(self) -> int:
        return prod(self.counts)

    def split(self, piece: int) -> list[int]:
        """Return which part of each axis the piece is made of."""
        if not piece:
            return [0] * len(self.parts)
        places = []
        for part in reversed(self.parts):
            piece, place = divmod(piece, len(part))
            places.append(place)
        return places[::-1]

    def chunks(self) -> Iterator[tuple[int, ...]]:
        coords: list[tuple[int, ...]] = [()]
        for part in self.parts:
            coords = [(*before, chunk) for before in coords for chunk in part.chunks]
        return iter(coords)

    def runs(self) -> tuple[Ints, Ints, Ints]:
        if self.run_count > MOST_RUNS:
            return decompose_coarsely(self.layout, self.parts, MOST_RUNS)
        return decompose(self.layout, self.parts)

    @property
    def run_count(self) -> int:
        return count_runs(self.layout, self.parts) if self.layout.plain else len(self)

    def one_run(self, piece: int) -> tuple[int, int]:
        """Return the start and length in bytes of a piece that is one run of its plain chunk; length 0 if it is not."""
        layout, places = self.layout, self.split(piece)
        start, step, whole = 0, layout.stored.itemsize, True
        nbytes = step
        for axis in reversed(layout.order):
            part, place, size = self.parts[axis], places[axis], layout.chunks[axis]
            count = part.counts[place]
            if count > 1 and (not whole or part.step != 1 or part.picks is not None):
                return 0, 0
            start += part.lows[place] * step
            nbytes *= count
            whole = whole and count == size
            step *= size
        return start, nbytes

    def run_step(self, limit_bytes: int) -> int:
        """Return the bytes of the largest whole rows (or planes …) of a stored chunk within the limit, or of a cell."""
        step = self.layout.stored.itemsize
        for axis in reversed(self.layout.order):
            if step * self.layout.chunks[axis] > limit_bytes:
                break
            step *= self.layout.chunks[axis]
        return step

    def reach_bytes(self) -> int:
        """Return the most bytes from the first wanted byte of a plain chunk to the last."""
        reach = step = self.layout.stored.itemsize
        for axis in reversed(self.layout.order):
            part, size = self.parts[axis], self.layout.chunks[axis]
            reach += step * ((max(part.counts, default=1) - 1) * part.step if part.picks is None else size - 1)
            step *= size
        return reach

    def in_bands(self, bands: int) -> "BoxPieces":
        """Return the same cells in about so many pieces of each chunk, along the axes that lie farthest apart."""
        parts = list(self.parts)
        for axis in self.layout.order:
            if bands > 1:
                runs = min(bands, max(parts[axis].counts, default=1))
                parts[axis], bands = parts[axis].divided(runs), -(-bands // runs)
        return BoxPieces(self.layout, tuple(parts), self.counts, divided=True)

    def source(self, piece: int) -> tuple[Any, ...]:
        keys = tuple([part.source(i) for part, i in zip(self.parts, self.split(piece), strict=True)])
        if any([part.picks is not None for part in self.parts]):
            return np.ix_(*[np.arange(k.start, k.stop, k.step) if isinstance(k, slice) else k for k in keys])
        return keys

    def target(self, piece: int) -> tuple[slice, ...]:
        return tuple([part.target(i) for part, i in zip(self.parts, self.split(piece), strict=True)])


@dataclass(frozen=True, slots=True, eq=False)
class PointPieces:
    """The pieces of a selection of single cells; points are sorted by chunk, then by place in the chunk.

    `order` leads from the sorted points to those of the result; `offsets` is the cell's place in the stored
    chunk; piece i has the points `bounds[i]` to `bounds[i + 1]`.
    """

    layout: Layout
    order: Ints
    offsets: Ints
    local: tuple[Ints, ...]
    grid_coords: tuple[Ints, ...]
    bounds: Ints

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @property
    def cells(self) -> int:
        return len(self.order)

    def chunks(self) -> Iterator[tuple[int, ...]]:
        firsts = self.bounds[:-1]
        columns = [coords[firsts].tolist() for coords in self.grid_coords]
        return iter(zip(*columns, strict=True)) if columns else iter([()] * len(self))

    def runs(self) -> tuple[Ints, Ints, Ints]:
        size = self.layout.stored.itemsize
        pieces = np.repeat(np.arange(len(self)), np.diff(self.bounds))
        starts = self.offsets * size
        return pieces, starts, starts + size

    @property
    def run_count(self) -> int:
        return self.cells if self.layout.plain else len(self)

    def source(self, piece: int) -> Any:
        low, high = self.bounds[piece], self.bounds[piece + 1]
        return tuple(axis[low:high] for axis in self.local)

    def target(self, piece: int) -> Any:
        return self.order[self.bounds[piece] : self.bounds[piece + 1]]


def chunk_count_of(pieces: Pieces) -> int:
    """Return how many chunks the pieces lie in."""
    if isinstance(pieces, BoxPieces) and pieces.divided:
        return prod([len(set(part.chunks)) for part in pieces.parts])
    return len(pieces)


def objects_of(pieces: Pieces) -> list[tuple[int, ...]]:
    """Return the objects that the pieces lie in, by their place in the grid of objects, as the pieces come to them."""
    layout = pieces.layout
    if not isinstance(pieces, BoxPieces):
        return list(dict.fromkeys(map(layout.object_of, pieces.chunks())))
    # Axis by axis: a read of small chunks touches hundreds of them, and few objects.
    axes = zip(pieces.parts, layout.chunks_per_object, strict=True)
    return list(product(*[_rows_of_objects(part.chunks, count) for part, count in axes]))


def _rows_of_objects(chunks: list[int], count: int) -> Iterable[int]:
    """Return which objects chunks lie in along an axis, of which each object has `count`; both ascend."""
    if not chunks or chunks[0] // count == chunks[-1] // count:
        return [chunk // count for chunk in chunks[:1]]
    return dict.fromkeys([chunk // count for chunk in chunks])


def which_object(pieces: Pieces) -> list[int]:
    """Return for each piece which of `objects_of` it lies in."""
    if not isinstance(pieces, BoxPieces):
        found: dict[tuple[int, ...], int] = {}
        return [found.setdefault(pieces.layout.object_of(chunk), len(found)) for chunk in pieces.chunks()]
    which = [0]
    for part, count in zip(pieces.parts, pieces.layout.chunks_per_object, strict=True):
        mine: dict[int, int] = {}
        here = [mine.setdefault(chunk // count, len(mine)) for chunk in part.chunks]
        which = [before * len(mine) + number for before in which for number in here]
    return which


def inners_of(pieces: Pieces) -> list[int]:
    """Return for each piece which chunk of its object it is of, counted row-major."""
    if not isinstance(pieces, BoxPieces):
        return [pieces.layout.inner_of(chunk) for chunk in pieces.chunks()]
    inners = [0]
    for part, count in zip(pieces.parts, pieces.layout.chunks_per_object, strict=True):
        here = [chunk % count for chunk in part.chunks]
        inners = [before * count + inner for before in inners for inner in here]
    return inners


def cells_of(pieces: Pieces) -> Ints:
    """Return how many cells each piece gives."""
    if isinstance(pieces, PointPieces):
        return np.diff(pieces.bounds)
    cells = np.ones(1, np.int64)
    if isinstance(pieces, BoxPieces):
        for part in pieces.parts:
            cells = np.multiply.outer(cells, np.array(part.counts, np.int64)).reshape(-1)
    return cells


def listed_of(pieces: Pieces) -> Ints | int:
    """Return how many indices it takes to say which cells each piece wants, beside those of evenly spaced ones."""
    if isinstance(pieces, PointPieces):
        return np.diff(pieces.bounds) * len(pieces.local)
    if not isinstance(pieces, BoxPieces) or all([part.picks is None for part in pieces.parts]):
        return 0
    listed = np.zeros(1, np.int64)
    for part in pieces.parts:
        mine = np.zeros(len(part), np.int64) if part.picks is None else np.array(part.counts, np.int64)
        listed = np.add.outer(listed, mine).reshape(-1)
    return listed


def pieces_of(layout: Layout, selection: Selection | Points) -> BoxPieces | PointPieces:
    """Cut a selection at the array's chunk borders."""
    if isinstance(selection, Selection):
        parts = tuple([project(axis, chunk) for axis, chunk in zip(selection.axes, layout.chunks, strict=True)])
        if prod([len(part) for part in parts]) > MOST_CHUNKS:
            raise too_many_chunks()
        return BoxPieces(layout, parts, selection.counts)
    coords = [axis // chunk for axis, chunk in zip(selection.coords, layout.chunks, strict=True)]
    local = [axis - c * chunk for axis, c, chunk in zip(selection.coords, coords, layout.chunks, strict=True)]
    offsets = np.zeros(selection.size, np.int64)
    for axis in layout.order:
        offsets = offsets * layout.chunks[axis] + local[axis]
    order, heads = _by_chunk(layout, coords, offsets)
    bounds = np.append(heads, selection.size)
    return PointPieces(
        layout, order, offsets[order], tuple(a[order] for a in local), tuple(a[order] for a in coords), bounds
    )


def _by_chunk(layout: Layout, coords: list[Ints], offsets: Ints) -> tuple[Ints, Ints]:
    """Return the order of points by chunk, then by place in it, and where in that order chunks begin."""
    cells = prod(layout.chunks)
    if prod(layout.grid) * cells < 2**63:
        # One number for each cell sorts several times faster than several columns.
        flat = np.zeros(len(offsets), np.int64)
        for axis, count in enumerate(layout.grid):
            flat = flat * count + coords[axis]
        order = (flat * cells + offsets).argsort()
        columns = [flat]
    else:
        order = np.lexsort((offsets, *reversed(coords)))
        columns = coords
    first = np.zeros(len(order), np.bool_)
    first[:1] = True
    for column in columns:
        first[1:] |= np.diff(column[order]) != 0
    return order, first.nonzero()[0]
