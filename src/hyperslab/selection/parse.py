"""Keys → selections: NumPy's basic indexing, h5py's lists, masks and field names."""

import operator
from typing import Any

import numpy as np
import numpy.typing as npt

from hyperslab.errors import SelectionError
from hyperslab.selection.axis import Axis, Picks, Span
from hyperslab.selection.selection import NEW, Fields, Points, Selection

__all__ = ["parse", "parse_points"]


def parse(key: Any, shape: tuple[int, ...], names: tuple[str, ...] | None = None) -> Selection | Points:
    """Parse a key for an array of `shape`, whose dtype has the fields `names`.

    Lists and masks choose along their own axis (orthogonal indexing); a mask of the whole shape chooses
    points. Raises SelectionError where NumPy would raise IndexError.

    >>> parse((3, slice(None, None, -2), None), (8, 5)).result_shape
    (3, 1)
    """
    items = tuple(key) if isinstance(key, tuple) else (key,)
    fields: Fields = None
    scalar = False
    if not items or len(items) != len(shape) or not all([type(item) is slice for item in items]):
        if any(isinstance(item, str) or _is_names(item) for item in items):
            items, fields = _take_fields(items, names)
            items = items or (Ellipsis,)
        if len(items) == 1 and _is_whole_mask(items[0], shape):
            return _points_of_mask(np.asarray(items[0]), shape, fields)
        items, scalar = _expand(items, shape)
    axes: list[Axis] = []
    kept: list[int] = []
    flipped: list[int] = []
    orders: list[tuple[int, npt.NDArray[np.int64]]] = []
    for item in items:
        if item is None:
            kept.append(NEW)
            continue
        axis = len(axes)
        if type(item) is slice:
            axes.append(_span(item, shape[axis], axis, flipped))
            kept.append(axis)
        elif (index := _as_int(item)) is not None:
            axes.append(Span(_within(index, shape[axis], axis), 1))
        else:
            cells, order = _picks(item, shape[axis], axis)
            axes.append(cells)
            kept.append(axis)
            if order is not None:
                orders.append((axis, order))
    return Selection(shape, tuple(axes), tuple(kept), tuple(flipped), tuple(orders), fields, scalar)


def parse_points(key: Any, shape: tuple[int, ...]) -> Points:
    """Parse one index (or array of them) per axis, to be paired up as NumPy pairs index arrays.

    >>> parse_points(([0, 7], [1, 2]), (8, 5)).result_shape
    (2,)
    """
    items = tuple(key) if isinstance(key, tuple) else (key,)
    if len(items) == 1 and _is_whole_mask(items[0], shape):
        return _points_of_mask(np.asarray(items[0]), shape, None)
    if len(items) != len(shape):
        raise SelectionError(f"points need one index per axis: array has {len(shape)} axes, got {len(items)}")
    arrays = [_index_array(item, shape[axis], axis) for axis, item in enumerate(items)]
    try:
        together = np.broadcast_arrays(*arrays) if arrays else []
    except ValueError as error:
        shapes = " ".join(str(a.shape) for a in arrays)
        raise SelectionError(f"points could not be broadcast together with shapes {shapes}") from error
    result_shape = together[0].shape if together else ()
    return Points(shape, tuple(np.ascontiguousarray(a).reshape(-1) for a in together), result_shape)


def _is_names(item: Any) -> bool:
    return isinstance(item, list) and bool(item) and all(isinstance(name, str) for name in item)


def _take_fields(items: tuple[Any, ...], names: tuple[str, ...] | None) -> tuple[tuple[Any, ...], Fields]:
    chosen = [item for item in items if isinstance(item, str) or _is_names(item)]
    rest = tuple(item for item in items if not (isinstance(item, str) or _is_names(item)))
    single = len(chosen) == 1 and isinstance(chosen[0], str)
    wanted = [name for item in chosen for name in ([item] if isinstance(item, str) else item)]
    for name in wanted:
        if names is None:
            raise SelectionError(f"field {name!r} asked of an array whose dtype has no fields")
        if name not in names:
            raise SelectionError(f"no field named {name!r}; the dtype has {', '.join(names)}")
    if len(set(wanted)) != len(wanted):
        raise SelectionError(f"fields {wanted} name one field twice")
    return rest, wanted[0] if single else tuple(wanted)


def _is_whole_mask(item: Any, shape: tuple[int, ...]) -> bool:
    if isinstance(item, (int, slice, str)) or item is None or item is Ellipsis or len(shape) < 2:
        return False
    if isinstance(item, np.ndarray):
        return item.dtype == bool and item.ndim > 1
    # A list of lists of bools; one level of bools is a mask of one axis.
    nested = isinstance(item, list) and bool(item) and isinstance(item[0], list)
    return nested and _as_array(item, 0).dtype == bool


def _points_of_mask(mask: npt.NDArray[Any], shape: tuple[int, ...], fields: Fields) -> Points:
    if mask.shape != shape:
        raise SelectionError(f"boolean mask has shape {mask.shape}, the array {shape}")
    coords = tuple(c.astype(np.int64, copy=False) for c in np.nonzero(mask))
    return Points(shape, coords, (len(coords[0]),), fields)


def _expand(items: tuple[Any, ...], shape: tuple[int, ...]) -> tuple[tuple[Any, ...], bool]:
    """Fill up with full slices, where `...` stands or at the end; also say if the result is a scalar."""
    expanded: list[Any] = []
    given = 0
    dots = False
    for item in items:
        if item is Ellipsis:
            if dots:
                raise SelectionError("an index can only have a single ellipsis ('...')")
            dots = True
        elif item is not None:
            given += 1
    missing = len(shape) - given
    if missing < 0:
        raise SelectionError(f"too many indices for array: array is {len(shape)}-dimensional, but {given} were indexed")
    full = [slice(None)] * missing
    for item in items:
        if item is Ellipsis:
            expanded += full
        else:
            expanded.append(item)
    if not dots:
        expanded += full
    scalar = not dots and missing == 0 and all(_as_int(item) is not None for item in expanded)
    return tuple(expanded), scalar


def _as_int(item: Any) -> int | None:
    """Return the item as an index, or None if it is not one."""
    if type(item) is int:
        return item
    if isinstance(item, (slice, list)) or item is None:
        return None
    if isinstance(item, (bool, np.bool_)):
        raise SelectionError(f"{item} is not an index; use a mask as long as the axis, or an integer")
    try:
        return operator.index(item)
    except TypeError:
        return None


def _within(index: int, length: int, axis: int) -> int:
    if not -length <= index < length:
        raise SelectionError(f"index {index} is out of bounds for axis {axis} with size {length}")
    return index if index >= 0 else index + length


def _span(item: slice, length: int, axis: int, flipped: list[int]) -> Span:
    try:
        start, stop, step = item.indices(length)
    except (TypeError, ValueError) as error:
        raise SelectionError(f"bad slice for axis {axis}: {error}") from None
    if step > 0:
        count = (stop - start + step - 1) // step if stop > start else 0
        # A step that is never taken may be larger than any index.
        return Span(start, count, step if count > 1 else 1)
    count = max(0, (start - stop - step - 1) // -step)
    if count <= 1:
        return Span(start if count else 0, count)
    flipped.append(axis)
    return Span(start + (count - 1) * step, count, -step)


def _as_array(item: Any, axis: int) -> npt.NDArray[Any]:
    try:
        return np.asarray(item)
    except ValueError as error:
        raise SelectionError(f"index for axis {axis} is not an array: {error}") from None


def _index_array(item: Any, length: int, axis: int) -> npt.NDArray[np.int64]:
    array = _as_array(item, axis)
    if array.dtype == bool:
        if array.shape != (length,):
            raise SelectionError(f"boolean mask for axis {axis} has shape {array.shape}, the axis has size {length}")
        return np.flatnonzero(array).astype(np.int64, copy=False)
    if array.size == 0 and array.dtype == float and not isinstance(item, np.ndarray):
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise SelectionError(
            f"axis {axis}: only integers, slices, `...`, None, lists, masks and field names are indices, not {item!r}"
        )
    if array.size and (int(array.min()) < -length or int(array.max()) >= length):
        wrong = array[(array < -length) | (array >= length)].flat[0]
        raise SelectionError(f"index {wrong} is out of bounds for axis {axis} with size {length}")
    array = array.astype(np.int64, copy=False)
    return np.where(array < 0, array + length, array)


def _picks(item: Any, length: int, axis: int) -> tuple[Axis, npt.NDArray[np.int64] | None]:
    """Parse a list or mask; the second value is the order in which its cells are wanted, if not ascending."""
    cells = _index_array(item, length, axis)
    if cells.ndim != 1:
        raise SelectionError(
            f"index for axis {axis} has {cells.ndim} dimensions; lists and masks choose along one axis, "
            "use `array.points[...]` to pair indices up"
        )
    if len(cells) == 0:
        return Span(0, 0), None
    steps = np.diff(cells)
    if len(cells) == 1 or (steps[0] > 0 and (steps == steps[0]).all()):
        return Span(int(cells[0]), len(cells), int(steps[0]) if len(steps) else 1), None
    if (steps > 0).all():
        return Picks(cells), None
    unique, order = np.unique(cells, return_inverse=True)
    return Picks(unique), order.astype(np.int64, copy=False)
