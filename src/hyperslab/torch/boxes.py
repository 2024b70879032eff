"""Boxes: which cells of an array each sample has, in a form in which ten million of them are a few arrays."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hyperslab.array import Array
from hyperslab.errors import InvalidInputError, SelectionError
from hyperslab.selection import Points, Selection, Span, parse

__all__ = ["Boxes", "boxes_of"]

Ints = npt.NDArray[np.int64]


class Boxes:
    """The samples of one array: the box around the cells of each, and the selection that gives them.

    `lows` and `counts` have a row for each sample and a column for each axis. Without `selections` the samples are
    exactly these boxes; `rows` says that the first axis is left out of them.
    """

    def __init__(
        self,
        array: Array,
        lows: Ints,
        counts: Ints,
        *,
        rows: bool = False,
        selections: Sequence[Selection | Points] | None = None,
    ) -> None:
        self.lows, self.counts, self._rows, self._selections = lows, counts, rows, selections
        self._shape = array.shape
        cells = counts.prod(axis=1) if selections is None else np.array([_size(each) for each in selections], np.int64)
        self.nbytes: Ints = cells * array.dtype.itemsize

    def __len__(self) -> int:
        return len(self.lows)

    def selection(self, sample: int) -> Selection | Points:
        """What is read for a sample."""
        if self._selections is not None:
            return self._selections[sample]
        bounds = zip(self.lows[sample].tolist(), self.counts[sample].tolist(), strict=True)
        key = tuple([slice(low, low + count) for low, count in bounds])
        return parse((key[0].start, *key[1:]) if self._rows else key, self._shape)

    def whole(self, samples: Ints) -> bool:
        """Whether each of the samples has every cell of its box."""
        return self._selections is None or all([_is_box(self._selections[sample]) for sample in samples.tolist()])


def boxes_of(array: Array, boxes: Any) -> Boxes:
    """Return the samples that a user's `boxes` mean: rows by their numbers, an array of bounds, or keys.

    All are checked here, so that a wrong one is found before anything is read.
    """
    if isinstance(boxes, range):
        boxes = np.arange(boxes.start, boxes.stop, boxes.step, dtype=np.int64)
    if isinstance(boxes, np.ndarray) and boxes.dtype.kind in "iu":
        if boxes.ndim == 1:
            return _of_rows(array, boxes.astype(np.int64))
        if boxes.ndim == 3 and boxes.shape[2] == 2:
            return _of_bounds(array, boxes.astype(np.int64))
    if isinstance(boxes, np.ndarray):
        raise InvalidInputError(
            "boxes in an array are whole numbers, either (samples,) for rows or (samples, axes, 2) for starts and "
            f"stops, not {boxes.dtype} of shape {boxes.shape}"
        )
    if not isinstance(boxes, Iterable) or isinstance(boxes, (str, bytes)):
        raise InvalidInputError(f"boxes are a sequence of keys or an array of bounds, not {boxes!r}")
    return _of_keys(array, list(boxes))


def _of_rows(array: Array, rows: Ints) -> Boxes:
    if not array.shape:
        raise SelectionError(f"{array.url!r} has no axes, and so no rows")
    size = array.shape[0]
    wrong = (rows < -size) | (rows >= size)
    if wrong.any():
        raise SelectionError(f"row {rows[wrong][0]} is not in {array.url!r}, which has {size}")
    lows = np.zeros((len(rows), array.ndim), np.int64)
    lows[:, 0] = np.where(rows < 0, rows + size, rows)
    return Boxes(array, lows, np.tile(np.array((1, *array.shape[1:]), np.int64), (len(rows), 1)), rows=True)


def _of_bounds(array: Array, bounds: Ints) -> Boxes:
    """Axes that the bounds leave out, at the end, are taken whole."""
    axes = bounds.shape[1]
    if axes > array.ndim:
        raise SelectionError(f"boxes have {axes} axes, {array.url!r} has {array.ndim}")
    starts, stops = bounds[:, :, 0], bounds[:, :, 1]
    wrong = ((starts < 0) | (stops < starts) | (stops > np.array(array.shape[:axes]))).any(axis=1)
    if wrong.any():
        number = int(wrong.argmax())
        raise SelectionError(f"box {number} is {bounds[number].tolist()}, outside of {array.url!r}, {array.shape}")
    lows = np.zeros((len(bounds), array.ndim), np.int64)
    counts = np.tile(np.array(array.shape, np.int64), (len(bounds), 1))
    lows[:, :axes], counts[:, :axes] = starts, stops - starts
    return Boxes(array, lows, counts)


def _of_keys(array: Array, keys: list[Any]) -> Boxes:
    selections = [_parsed(array, number, key) for number, key in enumerate(keys)]
    lows, counts = (np.zeros((len(keys), array.ndim), np.int64) for _ in range(2))
    for number, selection in enumerate(selections):
        for axis, (low, count) in enumerate(_bounds(selection)):
            lows[number, axis], counts[number, axis] = low, count
    return Boxes(array, lows, counts, selections=selections)


def _parsed(array: Array, number: int, key: Any) -> Selection | Points:
    try:
        return parse(key, array.shape, array.dtype.names)
    except SelectionError as error:
        raise SelectionError(f"box {number} does not fit {array.url!r}: {error}") from error


def _bounds(selection: Selection | Points) -> list[tuple[int, int]]:
    """Return the first cell and the number of cells, on each axis, of the box around a selection."""
    if isinstance(selection, Points):
        axes = [(int(each.min()), int(each.max()) + 1) if each.size else (0, 0) for each in selection.coords]
        return [(low, high - low) for low, high in axes]
    found = []
    for axis in selection.axes:
        if isinstance(axis, Span):
            found.append((axis.start, (axis.count - 1) * axis.step + 1 if axis.count else 0))
        else:
            picks = axis.indices()
            found.append((int(picks[0]), int(picks[-1] - picks[0]) + 1) if len(picks) else (0, 0))
    return found


def _size(selection: Selection | Points) -> int:
    return int(np.prod(selection.result_shape, dtype=object))


def _is_box(selection: Selection | Points) -> bool:
    if isinstance(selection, Points) or not selection.direct:
        return False
    return all([isinstance(axis, Span) and (axis.step == 1 or axis.count < 2) for axis in selection.axes])
