"""Tensors on their way into a table and out of it: sparse ones as coordinates and values, and what describes one.

A sparse tensor is a `Coo`: the cells that differ from the fill value, in row-major order, each once. A cell differs
when its bytes do: -0.0 is not 0.0, and NaN may be the fill value. A dense tensor is a NumPy array.

A `Header` is what a decoder needs beside the rows: it is stored once for each tensor, as JSON.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from hyperslab.errors import InvalidInputError, MetadataError, UnsupportedError
from hyperslab.selection import NEW, Box, Selection, Span

__all__ = ["Coo", "Header", "bounding_box", "coo_of_dense", "positions"]

Array = npt.NDArray[Any]
Coords = npt.NDArray[np.int64]

_STORED_KINDS = "biufcmMSUV"
_MOST_AXES = 64
_MOST_CELLS = 2**63 - 1


@dataclass(frozen=True, slots=True, eq=False)
class Coo:
    """A sparse tensor: `values[k]` is at `coords[:, k]`, all other cells are `fill`. Row-major, each cell once.

    `Coo.of` makes one from what need not be in order.

    >>> Coo.of((2, 3), [[1, 0, 1], [2, 0, 2]], np.array([1.0, 2.0, 3.0])).to_dense()
    array([[2., 0., 0.],
           [0., 0., 4.]])
    """

    shape: tuple[int, ...]
    coords: Coords
    values: Array
    fill: Any

    @classmethod
    def of(cls, shape: tuple[int, ...], coords: npt.ArrayLike, values: npt.ArrayLike, fill: Any = 0) -> "Coo":
        """Sort cells, sum those that are given more than once, and leave out those that are `fill`."""
        shape = checked_shape(shape)
        values = np.asarray(values)
        filler = fill_of(fill, values.dtype)
        coords = _checked_coords(coords, shape, values)
        order = positions(coords, shape)
        if len(order) > 1 and not bool((order[1:] > order[:-1]).all()):
            coords, values = _sorted(coords, order, values)
        return _without_fill(cls(shape, coords, values, filler))

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.values.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def nnz(self) -> int:
        """How many cells are stored."""
        return len(self.values)

    @property
    def density(self) -> float:
        """Which share of the cells is stored; 1 where there are no cells.

        >>> Coo.of((4,), [[2]], np.ones(1)).density
        0.25
        """
        cells = prod(self.shape)
        return self.nnz / cells if cells else 1.0

    def to_dense(self) -> Array:
        """Return the tensor as a NumPy array."""
        dense = np.full(self.shape, self.fill, self.dtype)
        dense.reshape(-1)[positions(self.coords, self.shape)] = self.values
        return dense

    def cut(self, box: Box) -> "Coo":
        """Return the cells of a box, counted from its start.

        >>> Coo.of((4,), [[1, 3]], np.array([5, 6])).cut(Box((2,), (4,))).to_dense()
        array([0, 6])
        """
        whole = tuple(zip(box.start, box.stop, self.shape, strict=True))
        cut_axes = [axis for axis, (low, high, n) in enumerate(whole) if low > 0 or high < n]
        if not cut_axes:
            return self
        inside = np.ones(self.nnz, bool)
        for axis in cut_axes:
            along = self.coords[axis]
            inside &= (along >= box.start[axis]) & (along < box.stop[axis])
        coords = self.coords[:, inside] - np.array(box.start, np.int64)[:, None]
        return Coo(box.shape, coords, self.values[inside], self.fill)

    def select(self, selection: Selection) -> "Coo":
        """Return the cells that a selection of the whole tensor's cells takes; `self` is its bounding box, cut out.

        >>> from hyperslab.selection import parse
        >>> x = Coo.of((4, 3), [[0, 2], [1, 2]], np.array([5, 6]))
        >>> chosen = parse((slice(None, None, -1), 2), (4, 3))
        >>> x.cut(bounding_box(chosen)).select(chosen).to_dense()
        array([0, 6, 0, 0])
        """
        if selection.orders:
            raise UnsupportedError("lists of indices are not taken from sparse tensors; read the box and index it")
        if selection.result_shape == self.shape and selection.direct and not selection.flipped:
            return self
        along, taken = list(self.coords), np.ones(self.nnz, bool)
        for axis, wanted in enumerate(selection.axes):
            if not (isinstance(wanted, Span) and wanted.step == 1):
                along[axis] = _renumbered(along[axis], taken, wanted)
            if axis in selection.flipped:
                along[axis] = wanted.count - 1 - along[axis]
        rows = [along[axis] if axis != NEW else np.zeros(self.nnz, np.int64) for axis in selection.kept]
        coords = np.array(rows, np.int64).reshape(len(rows), self.nnz)
        values = self.values
        if not taken.all():
            coords, values = coords[:, taken], values[taken]
        if selection.flipped:
            return Coo.of(selection.result_shape, coords, values, self.fill)
        return Coo(selection.result_shape, coords, values, self.fill)


def _renumbered(along: Coords, taken: npt.NDArray[np.bool_], wanted: Any) -> Coords:
    """Count the cells along an axis as the result does; those that are not wanted are no longer `taken`."""
    if isinstance(wanted, Span):
        taken &= along % wanted.step == 0
        return along // wanted.step
    cells = wanted.indices() - wanted.indices()[:1]
    if not len(cells):
        taken[:] = False
        return along
    place = np.minimum(np.searchsorted(cells, along), len(cells) - 1)
    taken &= cells[place] == along
    return place


def bounding_box(selection: Selection) -> Box:
    """Return the smallest box that holds all the cells of a selection.

    >>> from hyperslab.selection import parse
    >>> bounding_box(parse((slice(1, 8, 3), 4), (9, 9)))
    Box(start=(1, 4), stop=(8, 5))
    """
    start, stop = [], []
    for axis in selection.axes:
        if axis.count == 0:
            first, last = 0, -1
        elif isinstance(axis, Span):
            first, last = axis.start, axis.start + (axis.count - 1) * axis.step
        else:
            first, last = int(axis.cells[0]), int(axis.cells[-1])
        start.append(first)
        stop.append(last + 1)
    return Box(tuple(start), tuple(stop))


def positions(coords: Coords, shape: tuple[int, ...]) -> Coords:
    """Return the row-major place of each cell.

    >>> positions(np.array([[1, 0], [2, 1]]), (2, 3))
    array([5, 1])
    """
    if not shape:
        return np.zeros(coords.shape[1], np.int64)
    flat: Coords = coords[0].copy()
    for along, n in zip(coords[1:], shape[1:], strict=True):
        flat *= n
        flat += along
    return flat


def coo_of_dense(x: Array, fill: Any = 0) -> Coo:
    """Return the cells of an array whose bytes are not those of `fill`.

    >>> coo_of_dense(np.array([0.0, -0.0, 3.0])).coords
    array([[1, 2]])
    """
    flat = np.ascontiguousarray(x).reshape(-1)
    at = np.flatnonzero(differs(flat, fill_of(fill, x.dtype)))
    coords = np.empty((x.ndim, len(at)), np.int64)
    if x.ndim:
        coords[:] = np.unravel_index(at, x.shape)
    return Coo(checked_shape(x.shape), coords, flat[at], fill_of(fill, x.dtype))


def differs(values: Array, fill: Any) -> npt.NDArray[np.bool_]:
    """Return which of the values have other bytes than `fill`."""
    width = values.dtype.itemsize
    if width in (1, 2, 4, 8):
        bits = np.dtype(f"u{width}")
        return np.asarray(np.ascontiguousarray(values).view(bits) != np.asarray(fill, values.dtype).view(bits))
    as_bytes = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), width)
    return np.asarray((as_bytes != np.frombuffer(np.asarray(fill, values.dtype).tobytes(), np.uint8)).any(axis=1))


def fill_of(fill: Any, dtype: np.dtype[Any]) -> Any:
    """Return a fill value as a scalar of a dtype; one that it cannot hold exactly is refused."""
    try:
        with np.errstate(all="ignore"):
            cast = np.asarray(fill).astype(dtype)
    except (TypeError, ValueError, OverflowError):
        cast = None
    if cast is None or cast.ndim or (dtype.kind in "biuf" and not (cast == fill or (cast != cast and fill != fill))):
        raise InvalidInputError(f"the fill value {fill!r:.60} is no {dtype}; give one that this dtype holds")
    return cast[()]


def checked_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape as a tuple of int, or refuse it."""
    shape = tuple(int(n) for n in shape)
    if len(shape) > _MOST_AXES or min(shape, default=0) < 0 or prod(shape) > _MOST_CELLS:
        raise InvalidInputError(f"a tensor has at most {_MOST_AXES} axes and 2**63 - 1 cells; its shape is {shape}")
    return shape


def checked_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a dtype that a table can hold, or refuse it."""
    if dtype.kind not in _STORED_KINDS or dtype.hasobject or dtype.fields is not None or dtype.subdtype is not None:
        raise InvalidInputError(f"tensors of {dtype} are not stored: use numbers, times or texts of fixed length")
    return dtype


def _checked_coords(coords: npt.ArrayLike, shape: tuple[int, ...], values: Array) -> Coords:
    given = np.asarray(coords)
    if given.size and given.dtype.kind not in "iu":
        raise InvalidInputError(f"coordinates are whole numbers, not {given.dtype}")
    found = np.ascontiguousarray(given, np.int64)
    if values.ndim != 1 or found.shape != (len(shape), len(values)):
        raise InvalidInputError(
            f"{len(shape)} axes and values of shape {values.shape} need coordinates of shape "
            f"({len(shape)}, {values.size}), not {found.shape}"
        )
    for axis, n in enumerate(shape):
        if len(values) and not (found[axis].min() >= 0 and found[axis].max() < n):
            raise InvalidInputError(f"coordinates along axis {axis} are not all within 0 … {n - 1}")
    return found


def _sorted(coords: Coords, order: Coords, values: Array) -> tuple[Coords, Array]:
    """Sort cells by their place and sum those that have the same."""
    by_place = np.argsort(order, kind="stable")
    order = order[by_place]
    first = np.flatnonzero(np.concatenate(([True], order[1:] != order[:-1])))
    values = values[by_place]
    if len(first) < len(order):
        if values.dtype.kind not in "biufcm":
            raise InvalidInputError(f"a cell is given more than once, and {values.dtype} cannot be summed")
        # By the kind of number alone: ufuncs take neither a byte order nor a unit of time.
        kind = None if values.dtype.kind == "m" else values.dtype.type
        values = np.add.reduceat(values, first, dtype=kind).astype(values.dtype, copy=False)
        by_place = by_place[first]
    return coords[:, by_place], values


def _without_fill(tensor: Coo) -> Coo:
    kept = differs(tensor.values, tensor.fill)
    if kept.all():
        return tensor
    return Coo(tensor.shape, tensor.coords[:, kept], tensor.values[kept], tensor.fill)


@dataclass(frozen=True, slots=True)
class Header:
    """What a decoder needs beside a tensor's rows. `parameters` are the layout's own, of plain JSON types.

    >>> header = Header("a", "coo", (2, 3), np.dtype("f4"), np.float32(0), {"nnz": 1})
    >>> Header.from_json(header.to_json()) == header
    True
    """

    id: str
    layout: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fill: Any
    parameters: Mapping[str, Any] = field(default_factory=dict)
    # What a layout made of the parameters, so that it is made once.
    derived: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def to_json(self) -> str:
        """Return the header as text. The fill value is written as its bytes, so that NaN and the like are kept."""
        described = {
            "id": self.id,
            "layout": self.layout,
            "shape": list(self.shape),
            "dtype": self.dtype.str,
            "fill": np.asarray(self.fill, self.dtype).tobytes().hex(),
            "parameters": dict(self.parameters),
        }
        return json.dumps(described, separators=(",", ":"), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "Header":
        """Return the header that a text describes; a text that describes none is an error."""
        try:
            found = json.loads(text)
            dtype = checked_dtype(np.dtype(found["dtype"]))
            fill = np.frombuffer(bytes.fromhex(found["fill"]), dtype)
            shape = checked_shape(tuple(found["shape"]))
            return cls(str(found["id"]), str(found["layout"]), shape, dtype, fill[()][0], dict(found["parameters"]))
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
            raise MetadataError(f"the header of a tensor cannot be read ({error}): {text!r:.200}") from error
