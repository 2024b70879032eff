"""Variables whose cells are read when xarray asks for them: each request is one planned read."""

import asyncio
import threading
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
from xarray.backends import BackendArray
from xarray.coding.strings import create_vlen_dtype
from xarray.core.indexing import ExplicitIndexer, IndexingSupport, VectorizedIndexer, explicit_indexing_adapter

from hyperslab.array import Array, read_many

__all__ = ["Coordinates", "PythonVariable", "StoredVariable"]

# Up to so many cells are paired up as points; more are cut out of the box around them.
_MOST_POINTS = 1 << 20
# What all coordinates of a dataset may take together to be read by one plan, and held.
_MOST_COORDINATE_BYTES = 16 << 20


# How xarray knows that cells are texts without looking at them.
_TEXT: np.dtype[Any] = create_vlen_dtype(str)  # type: ignore[no-untyped-call]


class _Lazy(BackendArray):
    """Cells that are elsewhere. Nothing of it changes, so copies of a dataset share it."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __getitem__(self, key: ExplicitIndexer) -> Any:
        return explicit_indexing_adapter(key, self.shape, IndexingSupport.OUTER, self._read)

    async def async_getitem(self, key: ExplicitIndexer) -> Any:
        """Read without blocking the running event loop."""
        return await asyncio.to_thread(self.__getitem__, key)

    def _read(self, key: tuple[Any, ...]) -> npt.NDArray[Any]:
        """Return the cells of a key in which lists choose along their own axes."""
        raise NotImplementedError

    def __copy__(self) -> "_Lazy":
        return self

    def __deepcopy__(self, memo: object) -> "_Lazy":
        return self


class StoredVariable(_Lazy):
    """The cells of an array of Hyperslab. Slices, lists along several axes and points are read as such.

    Where `shape` goes further than the array, cells hold its fill value.
    """

    def __init__(self, array: Array, shape: tuple[int, ...] | None = None) -> None:
        self.stored, self.shape = array, array.shape if shape is None else shape
        self.dtype = _TEXT if array.dtype.kind == "O" else array.dtype
        self.coordinates: Coordinates | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "coordinates": None}

    def __getitem__(self, key: ExplicitIndexer) -> Any:
        if not isinstance(key, VectorizedIndexer):
            # As it is: xarray would take steps backwards apart, and fails where they meet no cell.
            return self._read(key.tuple)
        if self.coordinates is None and self.shape == self.stored.shape and (points := _points(key, self.shape)):
            return self.stored.points[points]
        return super().__getitem__(key)

    def _read(self, key: tuple[Any, ...]) -> npt.NDArray[Any]:
        if self.coordinates is not None:
            return np.asarray(self.coordinates.cells(self)[key])
        if self.shape == self.stored.shape:
            return np.asarray(self.stored[key])
        return _read_grown(self.stored, self.shape, key)


class PythonVariable(_Lazy):
    """The cells of an array of zarr-python's; texts come as `str`."""

    def __init__(self, array: Any) -> None:
        self.stored, self.shape = array, array.shape
        self._is_text = array.dtype.kind in "OT"
        self.dtype = _TEXT if self._is_text else array.dtype

    def _read(self, key: tuple[Any, ...]) -> npt.NDArray[Any]:
        cells = np.asarray(self.stored.oindex[key])
        return cells.astype(object) if self._is_text else cells


class Coordinates:
    """Variables along their own axes, which make a dataset's indexes: all are read together when one is.

    xarray reads each of them when a dataset is opened, of times a cell or two before.
    """

    def __init__(self) -> None:
        self._members: list[StoredVariable] = []
        self._nbytes = 0
        self._cells: dict[int, npt.NDArray[Any]] = {}
        self._lock = threading.Lock()

    def add(self, variable: StoredVariable) -> None:
        """Take a variable of one axis in, if there is room for it."""
        array = variable.stored
        if array.shape == variable.shape and self._nbytes + array.nbytes <= _MOST_COORDINATE_BYTES:
            self._nbytes += array.nbytes
            self._members.append(variable)
            variable.coordinates = self

    def cells(self, variable: StoredVariable) -> npt.NDArray[Any]:
        """Return all cells of a variable."""
        with self._lock:
            if not self._cells:
                found = read_many([(each.stored, ...) for each in self._members])
                self._cells = {id(each): cells for each, cells in zip(self._members, found, strict=True)}
        return self._cells[id(variable)]


def _points(key: VectorizedIndexer, shape: tuple[int, ...]) -> tuple[npt.NDArray[np.int64], ...] | None:
    """Return the coordinates of cells that a key pairs up, along slices each with every place; None if too many.

    As in xarray, the axes of the lists come first, then those of slices.
    """
    lists = [item for item in key.tuple if isinstance(item, np.ndarray)]
    common = np.broadcast_shapes(*[item.shape for item in lists])
    slices = [np.arange(n)[item] for item, n in zip(key.tuple, shape, strict=True) if isinstance(item, slice)]
    if prod(common) * prod([len(each) for each in slices]) > _MOST_POINTS:
        return None
    points, place = [], len(slices)
    for item, n in zip(key.tuple, shape, strict=True):
        if isinstance(item, slice):
            place -= 1
            points.append(np.arange(n)[item].reshape(-1, *[1] * place))
        else:
            points.append(np.asarray(item, np.int64).reshape(*item.shape, *[1] * len(slices)))
    return tuple(points)


def _read_grown(array: Array, shape: tuple[int, ...], key: tuple[Any, ...]) -> npt.NDArray[Any]:
    """Return cells of an array that was not written as far as others along an axis that may grow."""
    places = [np.atleast_1d(np.arange(n)[item]) for item, n in zip(key, shape, strict=True)]
    written = [each < n for each, n in zip(places, array.shape, strict=True)]
    cells = np.full([len(each) for each in places], array.fill_value, array.dtype)
    inside = tuple(each[mask] for each, mask in zip(places, written, strict=True))
    if all(len(each) for each in inside):
        cells[np.ix_(*written)] = array[inside]
    dropped = tuple(0 if np.ndim(np.arange(n)[item]) == 0 else slice(None) for item, n in zip(key, shape, strict=True))
    return np.asarray(cells[dropped])
