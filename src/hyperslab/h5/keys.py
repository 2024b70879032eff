"""What stands between the brackets of a dataset, read as h5py reads it.

h5py allows less than NumPy, and raises other errors: steps go forwards, one list or mask at most, its places in
increasing order, no new axes. What it allows means the same as in NumPy.
"""

import operator
from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from hyperslab.errors import SelectionError
from hyperslab.h5.failures import WrongSelectionError

__all__ = ["Key", "is_simple", "parse_key"]

Shape = tuple[int, ...]

_SHORT = 64


@dataclass(frozen=True, slots=True, eq=False)
class Key:
    """A checked key: one item per axis (or one mask of them all), the fields, and the shape of what it selects."""

    items: tuple[Any, ...]
    fields: tuple[str, ...]
    shape: Shape
    mask: bool = False

    def for_array(self) -> tuple[Any, ...]:
        """Return the key as arrays of Hyperslab take it."""
        if not self.fields:
            return self.items
        return (*self.items, self.fields[0] if len(self.fields) == 1 else list(self.fields))


def is_simple(key: Any) -> bool:
    """Whether a key is made of integers, forward slices and `...`: then NumPy and h5py select the same cells.

    >>> is_simple((3, slice(0, 9, 2))), is_simple(slice(None, None, -1)), is_simple([1, 2])
    (True, False, False)
    """
    for item in key if type(key) is tuple else (key,):
        if type(item) is slice:
            if item.step is not None and not (type(item.step) is int and item.step > 0):
                return False
        elif type(item) is not int and item is not Ellipsis:
            return False
    return True


def parse_key(key: Any, shape: Shape, names: tuple[str, ...] | None) -> Key:
    """Check a key as h5py does, and return it for an array of this shape, whose cells have these fields.

    >>> parse_key((slice(2, None), [0, -1]), (8, 5), None).shape
    (6, 2)
    """
    given = key if isinstance(key, tuple) else (key,)
    fields = tuple(item for item in given if isinstance(item, str))
    _check_fields(fields, names)
    items = tuple(item for item in given if not isinstance(item, str))
    if any(item is None for item in items):
        raise WrongSelectionError("None (or np.newaxis) adds no axis to a dataset; index what was read")
    if not shape:
        return Key(_scalar(items, fields), fields, ())
    if len(items) == 1 and isinstance(items[0], np.ndarray) and items[0].dtype.kind == "b":
        mask = items[0]
        if mask.shape == shape and len(shape) > 1:
            return Key((mask,), fields, (int(np.count_nonzero(mask)),), mask=True)
        if mask.shape != shape[:1]:
            raise WrongSelectionError(f"a mask of shape {mask.shape} selects nothing of a dataset of shape {shape}")
    parsed, lengths, lists = [], [], 0
    for axis, item in enumerate(_expanded(items, len(shape))):
        found, length, listed = _item(item, shape[axis], axis)
        parsed.append(found)
        lists += listed
        if length is not None:
            lengths.append(length)
    if lists > 1:
        raise WrongSelectionError("only one list or mask is allowed in a key; read with one and index the result")
    return Key(tuple(parsed), fields, tuple(lengths))


def _check_fields(fields: tuple[str, ...], names: tuple[str, ...] | None) -> None:
    for field in fields:
        if names is None:
            raise SelectionError(f"field {field!r} was asked for, but the dataset's type has no fields")
        if field not in names:
            raise SelectionError(f"no field is called {field!r}; the type has {', '.join(names)}")


def _scalar(items: tuple[Any, ...], fields: tuple[str, ...]) -> tuple[Any, ...]:
    if not items or (len(items) == 1 and items[0] is Ellipsis):
        return () if fields else items
    raise SelectionError(f"a dataset without axes is read by [()] or [...], not by {items!r:.80}")


def _expanded(items: tuple[Any, ...], ndim: int) -> list[Any]:
    """Fill up with full slices, where `...` stands or at the end."""
    dots = [at for at, item in enumerate(items) if item is Ellipsis]
    if len(dots) > 1:
        raise SelectionError("only one ellipsis ('...') may be in a key")
    missing = ndim - len(items) + len(dots)
    if missing < 0:
        raise SelectionError(f"{len(items) - len(dots)} indices were given for {ndim} axes")
    at = dots[0] if dots else len(items)
    return [*items[:at], *[slice(None)] * missing, *items[at + len(dots) :]]


def _item(item: Any, length: int, axis: int) -> tuple[Any, int | None, bool]:
    """Return an axis's item, how many cells it selects (None: the axis goes), and whether it was a list."""
    if isinstance(item, slice):
        return (*_slice(item, length, axis), False)
    if isinstance(item, h5py.MultiBlockSlice):
        start, stride, count, block = item.indices(length)
        places = (start + stride * np.arange(count)[:, None] + np.arange(block)).ravel()
        return places, len(places), False
    if isinstance(item, (list, tuple, range)) or (isinstance(item, np.ndarray) and item.ndim):
        places = item if _is_short(item, length) else _places(item, length, axis)
        return places, len(places), True
    try:
        index = operator.index(item)
    except TypeError:
        raise WrongSelectionError(
            f"axis {axis}: integers, slices, lists, masks and field names select cells, not {item!r:.80}"
        ) from None
    if not -length <= index < length:
        raise SelectionError(f"index {index} is out of range for axis {axis} with {length} cells")
    return index % length, None, False


def _slice(item: slice, length: int, axis: int) -> tuple[slice, int]:
    try:
        start, stop, step = item.indices(length)
    except TypeError as error:
        raise WrongSelectionError(f"axis {axis}: {error}") from None
    except ValueError as error:
        raise SelectionError(f"axis {axis}: {error}") from None
    if step < 1:
        raise SelectionError(f"axis {axis}: a step is at least 1, not {step}; turn round what was read")
    return slice(start, max(start, stop), step), max(0, -(-(stop - start) // step))


def _is_short(item: Any, length: int) -> bool:
    """Whether a list is short and already as it must be; it takes NumPy longer to say so."""
    if type(item) is not list or len(item) > _SHORT:
        return False
    last = -1
    for place in item:
        if type(place) is not int or not last < place < length:
            return False
        last = place
    return bool(item)


def _places(item: Any, length: int, axis: int) -> npt.NDArray[np.int64]:
    try:
        array = np.asarray(item)
    except ValueError as error:
        raise WrongSelectionError(f"axis {axis}: {item!r:.80} is no list of places: {error}") from None
    if array.dtype.kind == "b":
        if array.shape != (length,):
            raise WrongSelectionError(f"axis {axis}: a mask of shape {array.shape} does not fit {length} cells")
        return np.flatnonzero(array).astype(np.int64, copy=False)
    if not array.size:
        array = array.astype(np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise WrongSelectionError(f"axis {axis}: a list holds whole numbers along one axis, not {item!r:.80}")
    places = array.astype(np.int64)
    places = np.where(places < 0, places + length, places)
    if (np.diff(places) <= 0).any():
        raise WrongSelectionError(f"axis {axis}: the places of a list must increase, and {item!r:.80} does not")
    if places.size and not (int(places[0]) >= 0 and int(places[-1]) < length):
        raise SelectionError(f"axis {axis}: a place in {item!r:.80} is out of range for {length} cells")
    return places
