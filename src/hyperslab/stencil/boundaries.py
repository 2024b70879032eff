"""Boundaries: what a function sees beyond the edges of its array.

A chunk with its halo is a box that may stick out of the array. Cells outside stand for cells inside (nearest,
reflect, periodic), hold a constant, or are never asked for (shrink). Which cells of the array have to be read
(`source_boxes`) and how the rest of the buffer is filled from them (`fill`) is decided here, one axis at a time;
kernels see a buffer without edges.

    "nearest"     a a a | a b c d | d d d
    "reflect"     c b a | a b c d | d c b
    "periodic"    b c d | a b c d | a b c
    0.5           the value 0.5; also ("constant", 0.5)
    "shrink"      no cells: the output is smaller
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from numbers import Number
from typing import Any

import numpy as np

from hyperslab.errors import InvalidInputError
from hyperslab.selection import Box
from hyperslab.stencil.reach import Reach

__all__ = ["Boundaries", "Piece", "Side"]

_KINDS = ("nearest", "reflect", "periodic", "shrink")
_NOWHERE = -1


@dataclass(frozen=True, slots=True)
class Side:
    """The boundary at one side of one axis: `kind` and, for "constant", its value."""

    kind: str
    value: Any = None


@dataclass(frozen=True, slots=True)
class Piece:
    """Cells to read: `source` in the array goes to `target` in the buffer; the shapes are equal."""

    source: Box
    target: Box


@dataclass(frozen=True, slots=True)
class Boundaries:
    """The boundaries of all axes, each a pair of sides (low, high)."""

    sides: tuple[tuple[Side, Side], ...]

    @classmethod
    def of(cls, given: Any, ndim: int) -> "Boundaries":
        """Return what a user wrote: one boundary for all sides, or one per axis, or a pair (low, high) for an axis.

        A list or tuple of `ndim` items gives the axes; a dictionary gives some of them, the others are "nearest".

        >>> Boundaries.of(["nearest", ("periodic", 0.0)], 2).sides[1]
        (Side(kind='periodic', value=None), Side(kind='constant', value=0.0))
        >>> Boundaries.of({1: "shrink"}, 2).sides[0][0].kind
        'nearest'
        """
        if isinstance(given, str) and given in _KINDS:
            return _everywhere(given, ndim)
        if isinstance(given, Boundaries):
            axes: list[Any] = list(given.sides)
        elif isinstance(given, Mapping):
            axes = _named_axes(given, ndim)
        elif _is_one(given):
            axes = [given] * ndim
        elif isinstance(given, Sequence):
            axes = list(given)
        else:
            axes = [_side(given)] * ndim
        if len(axes) != ndim:
            raise InvalidInputError(f"expected a boundary for each of {ndim} axes, got {len(axes)}: {given!r}")
        return cls(tuple(_pair(axis) for axis in axes))

    def check_values(self, dtypes: Sequence[np.dtype]) -> None:
        """Refuse a constant that the cells of an input cannot hold: it would be another number."""
        values = [side.value for pair in self.sides for side in pair if side.kind == "constant"]
        for dtype in dtypes:
            for value in values:
                if not _is_held(value, dtype):
                    raise InvalidInputError(f"the boundary {value!r} is no value of {dtype}, which an input holds")

    @property
    def ndim(self) -> int:
        return len(self.sides)

    def first(self, reach: Reach) -> tuple[int, ...]:
        """Return the cell of the array at which the output begins: 0, or where a shrunk axis has all its neighbours."""
        return tuple(b if low.kind == "shrink" else 0 for (low, _), b in zip(self.sides, reach.before, strict=True))

    def out_shape(self, shape: Sequence[int], reach: Reach, stride: Sequence[int] | None = None) -> tuple[int, ...]:
        """Return the shape of the output for an array of `shape`, one cell for each `stride`.

        >>> Boundaries.of(["shrink", "nearest"], 2).out_shape((10, 10), Reach((1, 1), (2, 2)), stride=(1, 3))
        (7, 4)
        """
        steps = stride or (1,) * self.ndim
        first = self.first(reach)
        ends = zip(shape, self.sides, reach.after, strict=True)
        last = [n - (a if high.kind == "shrink" else 0) for n, (_, high), a in ends]
        return tuple(max(0, -(-(b - a) // step)) for a, b, step in zip(first, last, steps, strict=True))

    def padded_box(self, out: Box, reach: Reach, stride: Sequence[int] | None = None) -> Box:
        """Return the cells of the array, its halo included, that the cells `out` of the output need.

        It may stick out of the array, never where an axis shrinks.

        >>> Boundaries.of("nearest", 1).padded_box(Box((0,), (4,)), Reach((1,), (2,)))
        Box(start=(-1,), stop=(6,))
        """
        steps = stride or (1,) * self.ndim
        starts = zip(self.first(reach), out.start, steps, reach.before, strict=True)
        start = tuple(first + a * step - before for first, a, step, before in starts)
        size = reach.padded(out.shape, steps)
        return Box(start, tuple(a + n for a, n in zip(start, size, strict=True)))

    def source_boxes(self, shape: Sequence[int], box: Box) -> list[Piece]:
        """Return what has to be read from an array of `shape` before `fill` can complete a buffer for `box`.

        The first piece is the part of `box` inside the array; others are cells of far edges.

        >>> for piece in Boundaries.of("periodic", 1).source_boxes((10,), Box((-2,), (4,))):
        ...     print(piece.source, piece.target)
        Box(start=(0,), stop=(4,)) Box(start=(2,), stop=(6,))
        Box(start=(8,), stop=(10,)) Box(start=(0,), stop=(2,))
        """
        runs = [_reads(pair, n, a, b) for pair, n, a, b in zip(self.sides, shape, box.start, box.stop, strict=True)]
        return [
            Piece(
                Box(tuple(run[0] for run in chosen), tuple(run[0] + run[2] for run in chosen)),
                Box(tuple(run[1] for run in chosen), tuple(run[1] + run[2] for run in chosen)),
            )
            for chosen in product(*runs)
        ]

    def fill(self, buffer: np.ndarray, shape: Sequence[int], box: Box) -> None:
        """Complete a buffer for `box` whose pieces of `source_boxes` have been read into it."""
        for axis, (pair, n, a, b) in enumerate(zip(self.sides, shape, box.start, box.stop, strict=True)):
            view = np.moveaxis(buffer, axis, 0)
            for target, source, count, step in _copies(pair, n, a, b):
                if step is None:
                    view[target : target + count] = pair[0].value if target + a < 0 else pair[1].value
                else:
                    view[target : target + count] = view[_positions(source, count, step)]

    def pad(self, array: np.ndarray, box: Box) -> np.ndarray:
        """Return the cells `box` of an array in memory, those outside it filled in.

        >>> Boundaries.of("reflect", 1).pad(np.arange(4), Box((-2,), (6,)))
        array([1, 0, 0, 1, 2, 3, 3, 2])
        """
        buffer = np.empty(box.shape, array.dtype)
        for piece in self.source_boxes(array.shape, box):
            buffer[piece.target.slices] = array[piece.source.slices]
        self.fill(buffer, array.shape, box)
        return buffer


def _is_one(given: Any) -> bool:
    """Say whether `given` is the boundary of one side, not a collection of them."""
    if isinstance(given, str | Number | np.generic | Side):
        return True
    return isinstance(given, tuple) and len(given) == 2 and given[0] == "constant" and not isinstance(given[1], str)


def _is_held(value: Any, dtype: np.dtype) -> bool:
    """Say whether cells of a type can hold a number; numbers are rounded to fit floats."""
    if dtype.kind == "c" or (dtype.kind == "f" and np.asarray(value).dtype.kind != "c"):
        return True
    try:
        with np.errstate(all="ignore"):
            return bool(np.asarray(value).dtype.kind != "c" and dtype.type(value) == value)
    except (OverflowError, ValueError):
        return False


@cache
def _everywhere(kind: str, ndim: int) -> Boundaries:
    """Return the same boundary for all sides, kept: looking at what users may write takes a while."""
    return Boundaries(((Side(kind), Side(kind)),) * ndim)


def _named_axes(given: Mapping[int, Any], ndim: int) -> list[Any]:
    axes: list[Any] = ["nearest"] * ndim
    for axis, boundary in given.items():
        if not -ndim <= axis < ndim:
            raise InvalidInputError(f"a boundary is given for axis {axis}, but the array has {ndim} axes")
        axes[axis] = boundary
    return axes


def _pair(given: Any) -> tuple[Side, Side]:
    if _is_one(given):
        return _side(given), _side(given)
    sides = tuple(given)
    if len(sides) != 2:
        raise InvalidInputError(f"expected one boundary for an axis, or a pair (low, high), got {given!r}")
    return _side(sides[0]), _side(sides[1])


def _side(given: Any) -> Side:
    if isinstance(given, Side):
        return given
    if isinstance(given, str) and given in _KINDS:
        return Side(given)
    if isinstance(given, Number | np.generic):
        return Side("constant", given)
    if _is_one(given) and not isinstance(given, str):
        return Side("constant", given[1])
    raise InvalidInputError(
        'expected "nearest", "reflect", "periodic", "shrink", a number or ("constant", number) as boundary, '
        f"got {given!r}"
    )


def _source(pair: tuple[Side, Side], n: int, index: int) -> int:
    """Return the cell in the array that stands for the cell at `index`, or _NOWHERE for a constant."""
    if 0 <= index < n:
        return index
    kind = pair[0 if index < 0 else 1].kind
    if kind == "constant":
        return _NOWHERE
    if kind == "nearest":
        return 0 if index < 0 else n - 1
    if kind == "periodic":
        return index % n
    if kind == "reflect":
        turned = index % (2 * n)
        return turned if turned < n else 2 * n - 1 - turned
    raise InvalidInputError(f"cell {index} of an axis of {n} cells is beyond an edge that shrinks")


def _reads(pair: tuple[Side, Side], n: int, a: int, b: int) -> list[tuple[int, int, int]]:
    """Return runs (source, target, count) of one axis that must be read: the inside first, then far cells."""
    inside = max(a, 0), min(b, n)
    runs = [(inside[0], inside[0] - a, inside[1] - inside[0])] if inside[0] < inside[1] else []
    for index in _outside(n, a, b):
        source = _source(pair, n, index)
        if source == _NOWHERE or inside[0] <= source < inside[1]:
            continue
        last = runs[-1] if runs else None
        if last and index != n and last[0] + last[2] == source and last[1] + last[2] == index - a:
            runs[-1] = (last[0], last[1], last[2] + 1)
        else:
            runs.append((source, index - a, 1))
    return runs


def _copies(pair: tuple[Side, Side], n: int, a: int, b: int) -> Iterator[tuple[int, int, int, int | None]]:
    """Yield runs (target, source, count, step) within a buffer of one axis; a step of None means the constant."""
    inside = max(a, 0), min(b, n)
    run: tuple[int, int, int, int | None] | None = None
    for index in _outside(n, a, b):
        source, target = _source(pair, n, index), index - a
        if source != _NOWHERE and not inside[0] <= source < inside[1]:
            continue
        longer = _longer(run, target, source - a, source == _NOWHERE)
        if longer is None and run is not None:
            yield run
        run = longer or (target, source - a, 1, None if source == _NOWHERE else 0)
    if run is not None:
        yield run


def _longer(
    run: tuple[int, int, int, int | None] | None, target: int, source: int, constant: bool
) -> tuple[int, int, int, int | None] | None:
    """Return `run` with one more cell if it goes on in the same way, else None."""
    if run is None or run[0] + run[2] != target or (run[3] is None) != constant:
        return None
    first, begin, count, step = run
    if step is None:
        return first, begin, count + 1, None
    if count == 1 and abs(source - begin) <= 1:
        step = source - begin
    return (first, begin, count + 1, step) if begin + count * step == source else None


def _outside(n: int, a: int, b: int) -> Iterator[int]:
    """Yield the indices of [a, b) that are not in [0, n), the low ones first."""
    yield from range(a, min(b, 0))
    yield from range(max(a, n), b)


def _positions(source: int, count: int, step: int) -> Any:
    """Return the key of `count` positions from `source` on, each `step` (-1, 0 or 1) after the other."""
    if step == 0:
        return slice(source, source + 1)
    last = source + count * step
    return slice(source, None if last < 0 else last, step)
