"""A selection: what the user asked for, in a form that every other room understands."""

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from hyperslab.selection.axis import Axis

__all__ = ["NEW", "Fields", "Points", "Selection"]

# Stands in `Selection.kept` for an axis that the key adds (`None`).
NEW = -1

Fields = str | tuple[str, ...] | None


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """Cells chosen axis by axis, and the way from them to the result.

    The cells are read in canonical form: one axis for each axis of the array, ascending. `kept` lists the
    canonical axis of each axis of the result (or `NEW`), `flipped` the axes that run backwards in the
    result, `orders` those whose cells are wanted in another order or more than once.
    """

    shape: tuple[int, ...]
    axes: tuple[Axis, ...]
    kept: tuple[int, ...]
    flipped: tuple[int, ...] = ()
    orders: tuple[tuple[int, npt.NDArray[np.int64]], ...] = ()
    fields: Fields = None
    scalar: bool = False

    @property
    def counts(self) -> tuple[int, ...]:
        """The canonical shape."""
        return tuple([axis.count for axis in self.axes])

    @property
    def size(self) -> int:
        """How many different cells are read."""
        return prod(self.counts)

    @property
    def direct(self) -> bool:
        """Whether the cells can be read straight into an array of the result's shape."""
        return not self.orders and self.fields is None

    @property
    def result_shape(self) -> tuple[int, ...]:
        if not self.orders and len(self.kept) == len(self.axes) and NEW not in self.kept:
            return self.counts
        sizes = list(self.counts)
        for axis, order in self.orders:
            sizes[axis] = len(order)
        return tuple(1 if axis == NEW else sizes[axis] for axis in self.kept)

    def dtype_of(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """Return the dtype of the result, given the array's."""
        return _take_fields(np.empty(0, dtype), self.fields).dtype

    def shape_of(self, dtype: np.dtype[Any]) -> tuple[int, ...]:
        """Return the shape of the result, given the array's dtype: a field may itself be an array."""
        return self.result_shape + _take_fields(np.empty(0, dtype), self.fields).shape[1:]

    def target(self, out: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the canonical view of `out`, an array of the result's shape.

        Writing the ascending cells into the view puts them where the key wants them.
        """
        if len(self.kept) == len(self.axes) and not self.flipped and NEW not in self.kept:
            return out
        index: list[Any] = []
        done = 0
        for axis in self.kept:
            if axis == NEW:
                index.append(0)
                continue
            index += [None] * (axis - done)
            index.append(slice(None, None, -1) if axis in self.flipped else slice(None))
            done = axis + 1
        index += [None] * (len(self.axes) - done)
        return out[(..., *index)]

    def finish(self, cells: npt.NDArray[Any]) -> Any:
        """Turn canonical cells into the result."""
        for axis, order in self.orders:
            cells = cells.take(order, axis)
        result = np.empty(self.result_shape, cells.dtype)
        self.target(result)[...] = cells
        if self.fields is not None:
            result = _take_fields(result, self.fields).copy()
        return result[()] if self.scalar else result


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """Single cells by their coordinates: one flat index array per axis, in the order of the result."""

    shape: tuple[int, ...]
    coords: tuple[npt.NDArray[np.int64], ...]
    result_shape: tuple[int, ...]
    fields: Fields = None

    @property
    def size(self) -> int:
        return prod(self.result_shape)

    def finish(self, cells: npt.NDArray[Any]) -> Any:
        """Turn the cells, in the order of the points, into the result; a single point is a scalar, as in NumPy."""
        cells = _take_fields(cells, self.fields)
        return cells.reshape(self.result_shape + cells.shape[1:])[()]

    def dtype_of(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """Return the dtype of the result, given the array's."""
        return _take_fields(np.empty(0, dtype), self.fields).dtype

    def shape_of(self, dtype: np.dtype[Any]) -> tuple[int, ...]:
        """Return the shape of the result, given the array's dtype."""
        return self.result_shape + _take_fields(np.empty(0, dtype), self.fields).shape[1:]


def _take_fields(cells: npt.NDArray[Any], fields: Fields) -> npt.NDArray[Any]:
    if fields is None:
        return cells
    return cells[fields if isinstance(fields, str) else list(fields)]
