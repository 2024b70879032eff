"""An oracle for functions over neighbours: NumPy alone, on whole padded arrays."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

__all__ = ["Shifted", "expected", "padded"]

_MODES = {"nearest": "edge", "reflect": "symmetric", "periodic": "wrap"}


class Shifted:
    """`s(1, 0)` as an array: all cells one further along the first axis."""

    def __init__(self, array: np.ndarray, before: Sequence[int], shape: Sequence[int], stride: Sequence[int]) -> None:
        self.array, self.before, self.shape, self.stride = array, before, shape, stride

    def __call__(self, *offset: int) -> np.ndarray:
        starts = [b + step for b, step in zip(self.before, offset, strict=True)]
        spans = zip(starts, self.shape, self.stride, strict=True)
        return self.array[tuple(slice(a, a + (n - 1) * step + 1, step) for a, n, step in spans)]


def padded(
    array: np.ndarray, sides: Sequence[tuple[Any, Any]], before: Sequence[int], after: Sequence[int]
) -> np.ndarray:
    """Pad an array by `before` and `after` cells; sides that shrink get none."""
    for axis, (low, high) in enumerate(sides):
        parts = [array]
        if low != "shrink":
            parts.insert(0, _beyond(array, axis, (before[axis], 0), low).take(range(before[axis]), axis))
        if high != "shrink":
            length = array.shape[axis]
            parts.append(_beyond(array, axis, (0, after[axis]), high).take(range(length, length + after[axis]), axis))
        array = np.concatenate(parts, axis)
    return array


def expected(
    function: Callable[..., Any],
    arrays: Sequence[np.ndarray],
    sides: Sequence[tuple[Any, Any]],
    before: Sequence[int],
    after: Sequence[int],
    stride: Sequence[int] | None = None,
) -> Any:
    """Return what NumPy gives for a function without branches, run once on whole arrays."""
    steps = stride or (1,) * arrays[0].ndim
    pads = [padded(array, sides, before, after) for array in arrays]
    room = zip(pads[0].shape, before, after, steps, strict=True)
    shape = [max(0, -(-(n - b - a) // step)) for n, b, a, step in room]
    with np.errstate(all="ignore"):
        return function(*(Shifted(pad, before, shape, steps) for pad in pads))


def _beyond(array: np.ndarray, axis: int, counts: tuple[int, int], side: Any) -> np.ndarray:
    widths = [(0, 0)] * array.ndim
    widths[axis] = counts
    if isinstance(side, str):
        return np.pad(array, widths, mode=_MODES[side])
    return np.pad(array, widths, mode="constant", constant_values=np.asarray(side).astype(array.dtype))
