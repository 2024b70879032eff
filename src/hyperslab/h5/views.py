"""Other ways to read a dataset: as another type, as text, some fields only."""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hyperslab.h5.failures import WrongKindError

if TYPE_CHECKING:
    from hyperslab.h5.dataset import Dataset

__all__ = ["AsStrView", "AstypeView", "FieldsView", "as_array"]


class _View:
    """A dataset that is read in another way; nothing is read before it is indexed."""

    def __init__(self, dataset: "Dataset") -> None:
        self._dataset = dataset

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of what is read."""
        return self._dataset.dtype

    @property
    def ndim(self) -> int:
        return self._dataset.ndim

    @property
    def shape(self) -> tuple[int, ...] | None:
        return self._dataset.shape

    @property
    def size(self) -> int | None:
        return self._dataset.size

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, key: Any) -> Any:
        raise NotImplementedError

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return as_array(self[...], dtype, copy)


class AstypeView(_View):
    """Reads a dataset as another type."""

    def __init__(self, dataset: "Dataset", dtype: npt.DTypeLike) -> None:
        super().__init__(dataset)
        self._dtype = np.dtype(dtype)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._dtype

    def __getitem__(self, key: Any) -> Any:
        found = self._dataset[key]
        if self._dtype.kind == "O":
            return found
        return np.asarray(found).astype(self._dtype, copy=False)[() if np.ndim(found) == 0 else ...]


class AsStrView(_View):
    """Reads texts as `str`."""

    def __init__(self, dataset: "Dataset", encoding: str, errors: str) -> None:
        super().__init__(dataset)
        self._encoding, self._errors = encoding, errors

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(object)

    def __getitem__(self, key: Any) -> Any:
        found = self._dataset[key]
        if not isinstance(found, np.ndarray):
            return bytes(found).decode(self._encoding, self._errors)
        texts = np.empty(found.size, object)
        texts[:] = [bytes(each).decode(self._encoding, self._errors) for each in found.ravel().tolist()]
        return texts.reshape(found.shape)


class FieldsView(_View):
    """Reads one field, or several, of a dataset of structures."""

    def __init__(self, dataset: "Dataset", names: str | list[str]) -> None:
        super().__init__(dataset)
        self._names = (names,) if isinstance(names, str) else tuple(names)
        self._single = isinstance(names, str)
        known = dataset.dtype.names
        if known is None or not set(self._names) <= set(known):
            raise WrongKindError(f"the fields {names!r} were asked for; the dataset's type has {known}")

    @property
    def dtype(self) -> np.dtype[Any]:
        whole = self._dataset.dtype
        if self._single:
            return whole[self._names[0]]
        return np.dtype([(name, whole[name]) for name in self._names])

    def __getitem__(self, key: Any) -> Any:
        found = self._dataset[(*(key if isinstance(key, tuple) else (key,)), *self._names)]
        if self._single or len(self._names) > 1:
            return found
        # Of one field alone NumPy would give its cells; as a list of one it was asked for as a structure.
        cells = np.empty(np.shape(found), [(self._names[0], np.asarray(found).dtype)])
        cells[self._names[0]] = found
        return cells[()]


def as_array(cells: Any, dtype: npt.DTypeLike | None, copy: bool | None) -> npt.NDArray[Any]:
    """Return what was read as an array of a type, as NumPy's protocol asks for it."""
    if copy is False:
        raise ValueError("memory allocation cannot be avoided: what is read was not in memory; use copy=None")
    return np.asarray(cells, dtype=dtype)
