"""A plan seen from above: its chunks as squares along two axes, counted by the way they come."""

from dataclasses import dataclass
from math import ceil, prod
from typing import Any

import numpy as np
import numpy.typing as npt

from hyperslab.plan.breakdown import Way, shares_of, ways_of
from hyperslab.plan.pieces import BoxPieces, Pieces, PointPieces, cells_of
from hyperslab.plan.plan import Plan
from hyperslab.plan.ranges import Ints

__all__ = ["Canvas", "Squares", "shown_axes", "squares_of"]

# At most this many squares along an axis; beyond that a square stands for several chunks.
_MOST_SQUARES = 200


@dataclass(frozen=True, slots=True)
class Canvas:
    """What part of the grid is shown, along a vertical and a horizontal axis (None: there is no such axis).

    `lows` and `highs` are the first chunk shown and the one after the last; a square is `sides` chunks wide.
    `chunks` and `shape` are in cells.
    """

    axes: tuple[int | None, int | None]
    lows: tuple[int, int]
    highs: tuple[int, int]
    sides: tuple[int, int]
    chunks: tuple[int, int]
    shape: tuple[int, int]

    @classmethod
    def around(cls, pieces: Pieces, axes: tuple[int | None, int | None]) -> "Canvas":
        """Show the touched chunks and one more on each side."""
        layout = pieces.layout
        lows, highs, sides = [], [], []
        for axis in axes:
            count = 1 if axis is None else max(1, layout.grid[axis])
            touched = _touched(pieces, axis)
            low, high = (int(touched.min()), int(touched.max()) + 1) if len(touched) else (0, min(count, 8))
            low, high = max(0, low - 1), min(count, high + 1)
            lows.append(low)
            highs.append(high)
            sides.append(ceil((high - low) / _MOST_SQUARES))
        chunks = [1 if axis is None else layout.chunks[axis] for axis in axes]
        shape = [1 if axis is None else layout.shape[axis] for axis in axes]
        return cls(axes, *(_pair(values) for values in (lows, highs, sides, chunks, shape)))

    @property
    def squares(self) -> tuple[int, int]:
        spans = zip(self.lows, self.highs, self.sides, strict=True)
        return _pair([ceil((high - low) / side) for low, high, side in spans])

    def limits(self, which: int) -> tuple[float, float]:
        """Return the first cell shown along an axis and the one after the last square."""
        first = self.lows[which] * self.chunks[which]
        return first, first + self.squares[which] * self.sides[which] * self.chunks[which]

    @property
    def ratio(self) -> float:
        """How high what is shown is, in its widths."""
        (top, bottom), (left, right) = self.limits(0), self.limits(1)
        return (bottom - top) / (right - left)

    def edges(self, which: int) -> Ints:
        """Return the cells at which squares begin, and the end."""
        steps = np.arange(self.squares[which] + 1) * self.sides[which] + self.lows[which]
        edges: Ints = steps * self.chunks[which]
        return edges


def _pair(values: Any) -> tuple[int, int]:
    first, second = values
    return int(first), int(second)


def _touched(pieces: Pieces, axis: int | None) -> Ints:
    """Return the places of the touched chunks along an axis, each at least once."""
    if axis is None:
        return np.zeros(min(1, len(pieces)), np.int64)
    if isinstance(pieces, BoxPieces):
        return np.array(pieces.parts[axis].chunks, np.int64)
    return pieces.grid_coords[axis] if isinstance(pieces, PointPieces) else np.zeros(0, np.int64)


def shown_axes(pieces: Pieces) -> tuple[int | None, int | None]:
    """Choose the axes to show: all of one or two, else the two along which most chunks are touched."""
    ndim = len(pieces.layout.shape)
    if ndim <= 2:
        return (None, None) if ndim == 0 else (None, 0) if ndim == 1 else (0, 1)
    counts = [len(np.unique(_touched(pieces, axis))) for axis in range(ndim)]
    # Of equal ones the last, for these are the axes of images.
    most = sorted(range(ndim), key=lambda axis: (-counts[axis], -axis))[:2]
    return min(most), max(most)


@dataclass(frozen=True, slots=True, eq=False)
class Squares:
    """For each square: how many chunks of it come each way, and the share of their bytes that is fetched."""

    counts: npt.NDArray[np.int64]
    shares: npt.NDArray[np.float64]

    @property
    def ways(self) -> npt.NDArray[np.int64]:
        """The way that most chunks of a square come; -1 where none is touched."""
        best = self.counts.argmax(axis=0)
        return np.where(self.counts.any(axis=0), best, -1)


def squares_of(plan: Plan, pieces: Pieces, canvas: Canvas) -> Squares:
    counts = np.zeros((len(Way), *canvas.squares), np.int64)
    shares = np.zeros(canvas.squares)
    if plan.direct and isinstance(pieces, BoxPieces):
        # Of so regular a read each axis is summed alone: there may be very many chunks.
        tallies = [_tally(pieces, canvas, which) for which in range(2)]
        others = [part for axis, part in enumerate(pieces.parts) if axis not in canvas.axes]
        counts[Way.MAP] = np.outer(tallies[0][0], tallies[1][0]) * prod(len(part) for part in others)
        cells = np.outer(tallies[0][1], tallies[1][1]) * float(prod(sum(part.counts) for part in others))
        shares = cells / prod(pieces.layout.chunks)
    elif len(pieces):
        rows, columns = (_places(pieces, canvas, which) for which in range(2))
        each = cells_of(pieces) / prod(pieces.layout.chunks) if plan.direct else shares_of(plan)[: len(pieces)]
        ways = np.full(len(pieces), Way.MAP) if plan.direct else ways_of(plan)[: len(pieces)]
        np.add.at(counts, (ways, rows, columns), 1)
        np.add.at(shares, (rows, columns), each)
    touched = counts.sum(axis=0)
    return Squares(counts, np.minimum(shares / np.maximum(touched, 1), 1.0))


def _tally(pieces: BoxPieces, canvas: Canvas, which: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Count the chunks and the cells in each row (or column) of squares."""
    axis = canvas.axes[which]
    if axis is None:
        return np.ones(1), np.ones(1)
    part = pieces.parts[axis]
    place = (np.array(part.chunks, np.int64) - canvas.lows[which]) // canvas.sides[which]
    length = canvas.squares[which]
    return np.bincount(place, minlength=length), np.bincount(place, np.array(part.counts), minlength=length)


def _places(pieces: Pieces, canvas: Canvas, which: int) -> Ints:
    """Return the row (or column) of squares that each piece is in."""
    axis = canvas.axes[which]
    if axis is None:
        return np.zeros(len(pieces), np.int64)
    if isinstance(pieces, PointPieces):
        chunks = pieces.grid_coords[axis][pieces.bounds[:-1]]
    else:
        sizes = [len(part) for part in pieces.parts] if isinstance(pieces, BoxPieces) else []
        shape = [size if i == axis else 1 for i, size in enumerate(sizes)]
        chunks = np.broadcast_to(_touched(pieces, axis).reshape(shape), sizes).reshape(-1)
    places: Ints = (chunks - canvas.lows[which]) // canvas.sides[which]
    return places
