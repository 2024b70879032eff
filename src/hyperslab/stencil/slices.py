"""The second way to run a function: once, on whole slices of the arrays instead of on cells.

`s(1, 0)` is then all cells one further along the first axis. What works cell by cell for NumPy's elementwise
functions works on slices alike; anything else (a branch on a value, `max`, a sort) raises, and never gives
another number: slices are no arrays that NumPy would reduce.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from hyperslab.errors import StencilError
from hyperslab.stencil.neighbours import Neighbours
from hyperslab.stencil.plain import Escape, run_plainly
from hyperslab.stencil.reach import Reach
from hyperslab.stencil.results import Output, outputs_of, parts_of

__all__ = ["Cells", "run_on_slices", "try_slices"]

_ELEMENTWISE = (np.where, np.clip, np.real, np.imag, np.round, np.around, np.nan_to_num, np.angle)


class Cells(NDArrayOperatorsMixin):
    """The values of a neighbour for many cells at once; only elementwise functions take them."""

    __slots__ = ("values",)

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__" or ufunc.signature is not None or options:
            raise TypeError(f"{ufunc.__name__} does not work cell by cell on slices")
        return _wrapped(ufunc(*map(_unwrapped, inputs)))

    def __array_function__(self, function: Any, types: Any, arguments: Any, options: Any) -> Any:
        if function not in _ELEMENTWISE:
            raise TypeError(f"{function.__name__} is not known to work cell by cell on slices")
        plain = {name: _unwrapped(value) for name, value in options.items()}
        return _wrapped(function(*map(_unwrapped, arguments), **plain))

    def __bool__(self) -> bool:
        raise TypeError("a branch on the value of a cell cannot be taken for many cells at once")

    @property
    def dtype(self) -> np.dtype:
        return self.values.dtype

    @property
    def real(self) -> "Cells":
        return Cells(self.values.real)

    @property
    def imag(self) -> "Cells":
        return Cells(self.values.imag)

    def astype(self, dtype: Any) -> "Cells":
        """Return the values as another type."""
        return Cells(self.values.astype(dtype))

    def conjugate(self) -> "Cells":
        """Return the complex conjugates."""
        return Cells(self.values.conjugate())

    # `t += s(0, 1)` makes a new value, as it does for one cell: the slices are the input itself.
    __iadd__ = NDArrayOperatorsMixin.__add__
    __isub__ = NDArrayOperatorsMixin.__sub__
    __imul__ = NDArrayOperatorsMixin.__mul__
    __itruediv__ = NDArrayOperatorsMixin.__truediv__
    __ifloordiv__ = NDArrayOperatorsMixin.__floordiv__
    __imod__ = NDArrayOperatorsMixin.__mod__
    __ipow__ = NDArrayOperatorsMixin.__pow__
    __ilshift__ = NDArrayOperatorsMixin.__lshift__
    __irshift__ = NDArrayOperatorsMixin.__rshift__
    __iand__ = NDArrayOperatorsMixin.__and__
    __ixor__ = NDArrayOperatorsMixin.__xor__
    __ior__ = NDArrayOperatorsMixin.__or__


class _Slices(Neighbours):
    """All cells of a grid at once, in an array that is padded by the reach."""

    __slots__ = ("array", "grid", "stride")

    def __init__(
        self,
        array: np.ndarray,
        grid: tuple[int, ...],
        stride: tuple[int, ...],
        reach: Reach,
        escaped: list[tuple[int, ...]],
    ) -> None:
        super().__init__(reach, escaped)
        self.array, self.grid, self.stride = array, grid, stride

    def value(self, offset: tuple[int, ...]) -> Cells:
        starts = [b + step for b, step in zip(self.reach.before, offset, strict=True)]
        spans = zip(starts, self.grid, self.stride, strict=True)
        return Cells(self.array[tuple(slice(a, a + (n - 1) * step + 1, step) for a, n, step in spans)])


def try_slices(function: Callable[..., Any], dtypes: Sequence[np.dtype], ndim: int) -> tuple[Reach, tuple[Output, ...]]:
    """Run a function on slices of a few cells; return how far it reaches and what it gives.

    Raises what the function raises if it cannot run on slices.
    """
    reach, stride, grid = Reach.zero(ndim), (1,) * ndim, (2,) * ndim
    while True:
        escaped: list[tuple[int, ...]] = []
        inputs = [np.ones(reach.padded(grid), dtype) for dtype in dtypes]
        slices = [_Slices(array, grid, stride, reach, escaped) for array in inputs]
        with np.errstate(all="ignore"):
            result = function(*slices)
        wider = reach.union(Reach.of_offsets(escaped, ndim))
        if wider == reach:
            return reach, outputs_of([result])
        reach = wider


def run_on_slices(
    function: Callable[..., Any],
    reach: Reach,
    stride: tuple[int, ...],
    outputs: Sequence[Output],
    inputs: Sequence[np.ndarray],
    outs: Sequence[np.ndarray],
) -> Escape | None:
    """Call a function once for all cells of `outs`; return how far it went if that was beyond the halo."""
    grid = outs[0].shape[: reach.ndim]
    escaped: list[tuple[int, ...]] = []
    slices = [_Slices(array, grid, stride, reach, escaped) for array in inputs]
    try:
        with np.errstate(all="ignore"):
            result = function(*slices)
    except Exception:  # noqa: BLE001  # cell by cell it is found where it is raised
        return run_plainly(function, reach, stride, outputs, inputs, outs)
    if escaped:
        return Escape(Reach.of_offsets(escaped, reach.ndim), (0,) * reach.ndim)
    if outputs_of([result]) != tuple(outputs):
        raise StencilError("the function returned other types or shapes than at its first run; is it random?")
    for (values, shape), out in zip(parts_of(result), outs, strict=True):
        for place, value in zip(np.ndindex(shape), values, strict=True):
            try:
                out[(..., *place)] = _unwrapped(value)
            except OverflowError as error:
                raise StencilError(f"the function returned a number that does not fit: {error}") from error
    return None


def _wrapped(result: Any) -> Any:
    if isinstance(result, tuple):
        return tuple(Cells(one) for one in result)
    return Cells(result)


def _unwrapped(value: Any) -> Any:
    return value.values if isinstance(value, Cells) else value
