"""An assignment: which cells get which values, as NumPy would assign them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from hyperslab.errors import InvalidInputError
from hyperslab.layout import Layout
from hyperslab.plan import BoxPieces, Pieces, PointPieces, pieces_of
from hyperslab.selection import Points, Selection
from hyperslab.selection.selection import Fields

__all__ = ["Assignment", "assign_blocks", "assign_values"]

Cells = npt.NDArray[Any]
Source = Callable[[tuple[slice, ...]], Cells]

# The one field of the type that values of a single field are held in, so that a field may itself be an array.
_FIELD = "f"
_NUMBERS = "biufc"


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """Values at hand for some pieces: canonical cells, the first of them at `origin`."""

    cells: Cells
    origin: tuple[int, ...] | None


@dataclass(frozen=True, slots=True, eq=False)
class _Piece:
    """The values of one chunk."""

    source: Any
    values: Cells
    fields: Fields
    dtype: np.dtype[Any]

    def block(self, chunks: tuple[int, ...]) -> Cells | None:
        """Return the values as the whole chunk, if they are all of it."""
        if self.fields is not None or self.values.shape != chunks or not chunks:
            return None
        return self.values if self.values.dtype == self.dtype else self.values.astype(self.dtype)

    def apply(self, chunk: Cells) -> None:
        if self.fields is None:
            chunk[self.source] = self.values
        elif isinstance(self.fields, str):
            chunk[self.fields][self.source] = self.values[_FIELD]
        else:
            for name in self.fields:
                chunk[name][self.source] = self.values[name]


@dataclass(frozen=True, slots=True, eq=False)
class Assignment:
    """Pieces of chunks and the values for them: all in memory, or fetched by `source` as they are needed.

    `selection` is what was cut into the pieces.
    """

    pieces: Pieces
    selection: Selection | Points
    source: Source | None
    cells: Cells | None = None
    fields: Fields = None

    def on(self, layout: Layout) -> "Assignment":
        """Return the same assignment to an array whose cells lie elsewhere."""
        return replace(self, pieces=pieces_of(layout, self.selection))

    def load(self, numbers: Iterable[int]) -> _Block:
        """Return the values of the pieces with these numbers, which lie in one box."""
        if self.cells is not None:
            return _Block(self.cells, None)
        targets = [self.pieces.target(number) for number in numbers]
        lows = [min(each) for each in zip(*[[side.start for side in target] for target in targets], strict=True)]
        highs = [max(each) for each in zip(*[[side.stop for side in target] for target in targets], strict=True)]
        assert self.source is not None
        box = tuple([slice(low, high) for low, high in zip(lows, highs, strict=True)])
        cells = np.asarray(self.source(box))
        if cells.shape != tuple([side.stop - side.start for side in box]):
            raise InvalidInputError(f"the source gave an array of shape {cells.shape} for {box}")
        return _Block(cells, tuple(lows))

    def piece(self, number: int, block: _Block) -> _Piece:
        """Return the values of one piece."""
        target = self.pieces.target(number)
        if block.origin is not None:
            sides = zip(target, block.origin, strict=True)
            target = tuple([slice(side.start - low, side.stop - low) for side, low in sides])
        return _Piece(self.pieces.source(number), block.cells[target], self.fields, self.pieces.layout.dtype)

    def count(self, number: int) -> int:
        """Return how many different cells a piece has."""
        if isinstance(self.pieces, PointPieces):
            return int(self.pieces.bounds[number + 1] - self.pieces.bounds[number])
        assert isinstance(self.pieces, BoxPieces)
        places = self.pieces.split(number)
        return prod([part.counts[place] for part, place in zip(self.pieces.parts, places, strict=True)])

    @property
    def covers(self) -> bool:
        """Whether every cell of the array is assigned."""
        return self.fields is None and self.pieces.cells == prod(self.pieces.layout.shape)


def assign_blocks(layout: Layout, selection: Selection, source: Source) -> Assignment:
    """Return the assignment of values that are fetched box by box; boxes are counted from the selection's start."""
    return Assignment(pieces_of(layout, selection), selection, source)


def assign_values(layout: Layout, selection: Selection | Points, values: Any) -> Assignment:
    """Return the assignment of values in memory, broadcast and cast as NumPy would.

    Of a cell that is selected several times the last value counts.
    """
    fields = selection.fields
    held = _broadcast(values, selection.result_shape, _held_dtype(layout.dtype, fields))
    if isinstance(selection, Points) and not selection.coords:
        selection = Selection((), (), (), fields=fields)
    if isinstance(selection, Points):
        flat, selection = _last_points(held.reshape(-1), selection)
        return Assignment(pieces_of(layout, selection), selection, None, flat, fields)
    canonical = selection.target(held)
    for axis, order in selection.orders:
        last = np.zeros(selection.axes[axis].count, np.int64)
        last[order] = np.arange(len(order))
        canonical = canonical.take(last, axis)
    selection = replace(selection, orders=())
    return Assignment(pieces_of(layout, selection), selection, None, canonical, fields)


def _held_dtype(dtype: np.dtype[Any], fields: Fields) -> np.dtype[Any]:
    """Return the type that values are held in: the array's, or one with the assigned fields alone."""
    if fields is None:
        return dtype
    parts: Any = dtype.fields
    if isinstance(fields, str):
        return np.dtype([(_FIELD, parts[fields][0])])
    return np.dtype([(name, parts[name][0]) for name in fields])


def _broadcast(values: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Cells:
    """Return the values in the shape of the selection, without copying them where that can be."""
    try:
        if isinstance(values, np.ndarray) and _casts_later(values.dtype, dtype):
            return np.broadcast_to(_without_leading(values, len(shape)), shape)
        if np.ndim(values) == 0 and dtype.names is None:
            one = np.empty((), dtype)
            one[...] = values
            return np.broadcast_to(one, shape)
        held = np.empty(shape, dtype)
        if dtype.names == (_FIELD,):
            held[_FIELD][...] = values
        else:
            held[...] = values
        return held
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidInputError(f"the values do not fit cells of type {dtype} in the shape {shape}: {error}") from error


def _casts_later(found: np.dtype[Any], dtype: np.dtype[Any]) -> bool:
    """Whether values can be cast block by block: no value can fail once others have been written."""
    return found == dtype or (found.kind in _NUMBERS and dtype.kind in _NUMBERS)


def _without_leading(values: Cells, ndim: int) -> Cells:
    """Drop axes of length 1 that the selection does not have, as NumPy does."""
    while values.ndim > ndim and values.shape[0] == 1:
        values = values[0]
    return values


def _last_points(cells: Cells, points: Points) -> tuple[Cells, Points]:
    """Keep each point once, with the value that it was given last."""
    if points.size < 2:
        return cells, replace(points, result_shape=(points.size,))
    order = np.lexsort(points.coords[::-1])
    same = np.ones(len(order) - 1, np.bool_)
    for axis in points.coords:
        same &= axis[order][1:] == axis[order][:-1]
    # Sorting is stable, so of equal points the last one in the order is the last one given.
    last = order[np.append(~same, True)]
    kept = tuple([axis[last] for axis in points.coords])
    return cells[last], replace(points, coords=kept, result_shape=(len(last),))
