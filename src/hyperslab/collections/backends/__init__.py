"""Other ways to keep many small arrays, by the interface of a collection, so that they can be compared with it.

packs         a collection
hdf5          one HDF5 file, each array a dataset
tiledb        TileDB arrays, in each of them all small arrays of one dtype and shape, merged along their first axis
tiledb-each   one TileDB array for each small array

The last three are what others use, read and written by their own libraries: they know no attributes, plans or budgets,
what they write is not atomic, and they lie on local disks.
"""

import os
from collections.abc import Iterable, Iterator
from typing import Any, Literal, Protocol

import numpy.typing as npt

from hyperslab.collections.collection import collection
from hyperslab.collections.writing import Items
from hyperslab.errors import InvalidInputError

__all__ = ["BACKENDS", "Backend", "open_backend"]

BACKENDS = ("packs", "hdf5", "tiledb", "tiledb-each")


class Backend(Protocol):
    """What is asked of all of them."""

    def put_many(self, items: Items) -> None:
        """Store arrays under names, in place of those that have them."""
        ...

    def read_many(self, names: Iterable[str]) -> list[npt.NDArray[Any]]:
        """Return arrays in the order of their names."""
        ...

    def names(self, prefix: str = "") -> Iterator[str]:
        """Yield the names that begin with a text, sorted."""
        ...


def open_backend(kind: str, path: str | os.PathLike[str], mode: Literal["r", "a"] = "r", **options: Any) -> Backend:
    """Open one of `BACKENDS` at a path; with mode "a" it is made where there is none.

    `pack_arrays`, an option of "tiledb", is how many small arrays lie in one tile.

    >>> import tempfile, numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     backend = open_backend("hdf5", folder + "/a.h5", "a")
    ...     backend.put_many({"x/1": np.arange(3)})
    ...     backend.read_many(["x/1", "x/1"]), list(backend.names("x"))
    ([array([0, 1, 2]), array([0, 1, 2])], ['x/1'])
    """
    if kind not in BACKENDS or mode not in ("r", "a"):
        raise InvalidInputError(f"a backend is one of {', '.join(BACKENDS)}, and its mode 'r' or 'a'")
    if kind == "packs":
        return collection(path, mode, **options)
    if kind == "hdf5":
        from hyperslab.collections.backends.hdf5 import Hdf5Backend

        return Hdf5Backend(os.fspath(path), mode, **options)
    from hyperslab.collections.backends.tiledb import EachBackend, MergedBackend

    merged = kind == "tiledb"
    return MergedBackend(os.fspath(path), mode, **options) if merged else EachBackend(os.fspath(path), mode, **options)
