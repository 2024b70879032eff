"""A collection as a file: its arrays are the datasets, the slashes in their names make groups."""

from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from hyperslab.collections import Collection
from hyperslab.errors import NotFoundError
from hyperslab.h5.celltypes import new_type
from hyperslab.h5.failures import ReadOnlyError
from hyperslab.h5.nodes import ArrayNode, GroupNode, Link, Node

__all__ = ["CollectionTree"]


class CollectionTree:
    """The arrays of a collection, read whole and then cut."""

    writable = False

    def __init__(self, collection: Collection) -> None:
        self.collection, self.url = collection, collection.url
        self.closed, self.file = False, None

    def open(self, path: str) -> Node:
        """Return the array of that name, or the group of those whose names go on behind it."""
        if path and path in self.collection:
            cells = Whole(self.collection, path)
            node = ArrayNode(path, _Columns(self.collection, path), cells, new_type(cells.dtype), path)
            node.maxshape = cells.shape
            return node
        if path and next(self.collection.names(path + "/"), None) is None:
            raise NotFoundError(f"the collection {self.url!r} has no array called {path!r}, nor any below it")
        return GroupNode(path, _Columns(self.collection, None), path)

    def names(self, path: str) -> list[str]:
        """Return the names one level below a path."""
        lead = path + "/" if path else ""
        names = dict.fromkeys(name[len(lead) :].partition("/")[0] for name in self.collection.names(lead))
        return sorted(name for name in names if name)

    def link(self, path: str) -> Link | None:
        """Return what the last name of a path is: nothing but the thing itself."""
        try:
            self.open(path)
        except NotFoundError:
            return None
        return Link()


class Whole:
    """An array of a collection: small, so it is read whole."""

    def __init__(self, collection: Collection, name: str) -> None:
        self._collection, self._name = collection, name
        entry = collection.entry(name)
        self.shape, self.dtype = tuple(entry.shape), np.dtype(entry.dtype)

    def __getitem__(self, key: Any) -> Any:
        cells, items = self._collection[self._name], key if isinstance(key, tuple) else (key,)
        if items and _are_names(items[-1]):
            cells, items = cells[items[-1]], items[:-1]
        if len(items) == 1:
            return cells[items[0]]
        # A list along its axis first: NumPy would pair it up with integers, and move its axis.
        for axis, item in enumerate(items):
            if isinstance(item, list | np.ndarray):
                cells = np.take(cells, item, axis)
        return cells[tuple(slice(None) if isinstance(item, list | np.ndarray) else item for item in items)]

    def read(self, key: Any = ..., *, out: npt.NDArray[Any] | None = None) -> Any:
        """Read a selection, into `out` if it is given."""
        found = self[key]
        if out is None:
            return found
        out[...] = found
        return out


class _Columns:
    """What a collection's columns say of an array."""

    def __init__(self, collection: Collection, name: str | None) -> None:
        self._collection, self._name = collection, name

    def read(self) -> Mapping[str, Any]:
        """Return the attributes that the array has."""
        if self._name is None or not self._collection.manifest.columns:
            return {}
        columns = self._collection.attributes([self._name])
        return {name: cells[0] for name, cells in columns.items() if cells[0] is not None and not _is_masked(cells)}

    def store(self, name: str, value: Any, dtype: Any = None, shape: Any = None) -> NoReturn:
        raise ReadOnlyError(f"{self._collection.url!r} is a collection; its put_many stores attributes, not its files")

    def drop(self, name: str) -> NoReturn:
        raise ReadOnlyError(f"{self._collection.url!r} is a collection, which is only read as a file")


def _are_names(item: Any) -> bool:
    """Whether an item of a key names fields."""
    return isinstance(item, str) or (isinstance(item, list) and bool(item) and isinstance(item[0], str))


def _is_masked(cells: npt.NDArray[Any]) -> bool:
    return bool(np.ma.getmaskarray(cells)[0])
