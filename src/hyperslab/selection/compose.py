"""A selection of a selection is a selection: what lazy views are made of."""

from typing import Any

import numpy as np
import numpy.typing as npt

from hyperslab.errors import SelectionError
from hyperslab.selection.axis import Axis, Picks, Span
from hyperslab.selection.parse import parse
from hyperslab.selection.selection import NEW, Points, Selection

__all__ = ["compose"]


def compose(first: Selection, key: Any, names: tuple[str, ...] | None = None) -> Selection:
    """Return the selection that gives, in one read, `array[first][key]`.

    >>> whole = parse((slice(2, 20, 3),), (20,))
    >>> compose(whole, slice(None, None, -2)).result_shape
    (3,)
    """
    # Of several fields some may be chosen again; one field has no others in it.
    names = None if isinstance(first.fields, str) else first.fields or names
    second = parse(key, first.result_shape, names)
    if isinstance(second, Points):
        raise SelectionError("a mask of the whole shape cannot follow another selection lazily; read first")
    axes: list[Axis] = list(first.axes)
    kept: list[int] = []
    flipped: list[int] = []
    orders: list[tuple[int, npt.NDArray[np.int64]]] = []
    for place in second.kept:
        axis = NEW if place == NEW else first.kept[place]
        kept.append(axis)
    for place, axis in enumerate(first.kept):
        if axis == NEW:
            _check_new(second, place)
            continue
        axes[axis], backwards, order = _compose_axis(first, axis, second, place)
        if backwards:
            flipped.append(axis)
        if order is not None:
            orders.append((axis, order))
    fields = first.fields if second.fields is None else second.fields
    # A field of a scalar is a scalar.
    only_fields = second.fields is not None and isinstance(key, (str, list))
    scalar = (first.scalar if only_fields else second.scalar) and len(kept) == 0
    return Selection(first.shape, tuple(axes), tuple(kept), tuple(flipped), tuple(orders), fields, scalar)


def _check_new(second: Selection, place: int) -> None:
    if second.axes[place].count != 1 or any(axis == place for axis, _ in second.orders):
        raise SelectionError(f"axis {place} was added by None: lazily it can only be taken whole, or dropped")


def _compose_axis(
    first: Selection, axis: int, second: Selection, place: int
) -> tuple[Axis, bool, npt.NDArray[np.int64] | None]:
    inner, outer = first.axes[axis], second.axes[place]
    order = next((cells for a, cells in first.orders if a == axis), None)
    again = next((cells for a, cells in second.orders if a == place), None)
    backwards = (axis in first.flipped) != (place in second.flipped)
    if isinstance(inner, Span) and isinstance(outer, Span) and order is None and again is None:
        if axis in first.flipped:
            # `outer` counts from the far end.
            low = inner.count - 1 - (outer.start + (outer.count - 1) * outer.step)
            outer = Span(low, outer.count, outer.step)
        start = inner.start + outer.start * inner.step if outer.count else 0
        return Span(start, outer.count, inner.step * outer.step), backwards and outer.count > 1, None
    # In general: the wanted cells one by one, in the order of the result.
    places = outer.indices() if again is None else outer.indices()[again]
    places = places[::-1] if place in second.flipped else places
    places = inner.count - 1 - places if axis in first.flipped else places
    places = places if order is None else order[places]
    cells = inner.start + places * inner.step if isinstance(inner, Span) else inner.cells[places]
    unique, wanted = np.unique(cells, return_inverse=True)
    if len(unique) == len(cells) and (wanted[1:] > wanted[:-1]).all():
        return Picks(unique), False, None
    return Picks(unique), False, wanted.astype(np.int64, copy=False)
