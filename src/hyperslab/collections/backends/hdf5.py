"""Arrays as datasets of one HDF5 file, by h5py."""

from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote, unquote

import h5py
import numpy as np
import numpy.typing as npt

from hyperslab.collections.kinds import checked_array
from hyperslab.collections.names import encoded, shown
from hyperslab.collections.writing import Items, items_of
from hyperslab.errors import FormatError, NotFoundError, StoreError, UnsupportedError

__all__ = ["Hdf5Backend"]

# Names are any texts, and HDF5's are not: '/' and '.' mean something there.
_LEAD = "n"


class Hdf5Backend:
    """One file, opened for as long as the backend is there."""

    def __init__(self, path: str, mode: str) -> None:
        try:
            # The newest layout finds a link among many by a B-tree.
            self._file = h5py.File(path, mode, libver="latest")
        except FileNotFoundError:
            raise NotFoundError(f"there is no file {path!r}") from None
        except OSError as error:
            raise FormatError(f"{path!r} cannot be opened: {error}") from None

    def put_many(self, items: Items) -> None:
        for name, value, _ in items_of(items, None):
            key, array = _key(name), checked_array(name, value)
            if key in self._file:
                del self._file[key]
            try:
                self._file.create_dataset(key, data=array)
            except (TypeError, ValueError) as error:
                raise UnsupportedError(f"{shown(name)} has cells of {array.dtype}, which HDF5 lacks: {error}") from None
        self._file.flush()

    def read_many(self, names: Iterable[str]) -> list[npt.NDArray[Any]]:
        return [self._read(name) for name in names]

    def names(self, prefix: str = "") -> Iterator[str]:
        found = sorted([unquote(key.removeprefix(_LEAD)) for key in self._file])
        return (name for name in found if name.startswith(prefix))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _read(self, name: str) -> npt.NDArray[Any]:
        try:
            return np.asarray(self._file[_key(name)][()])
        except KeyError:
            raise NotFoundError(f"there is no array {shown(name)} in the file") from None
        except OSError as error:
            raise StoreError(f"{shown(name)} cannot be read: {error}") from None


def _key(name: str) -> str:
    """Return the name of a dataset.

    >>> _key("../a b"), _key("")
    ('n..%2Fa%20b', 'n')
    """
    return _LEAD + quote(encoded(name), safe="")
