"""Results: the array that a selection is read into, and what the user gets of it."""

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from hyperslab.errors import InvalidInputError
from hyperslab.execute.read import ReadTask
from hyperslab.execute.run import Snapshot
from hyperslab.layout import Layout
from hyperslab.selection import Points, Selection
from hyperslab.store import Store

__all__ = ["Resolve", "Result"]


class Resolve(Protocol):
    """Makes cells of type `dtype` out of those that are stored."""

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def __call__(self, cells: npt.NDArray[Any]) -> npt.NDArray[Any]: ...


class Result:
    """One selection on its way into a new array, or into the `out` that the user gave.

    Where the selection allows it, `task` reads straight into the array that the user gets. `resolve` makes what the
    user gets out of cells that only refer to it.
    """

    def __init__(
        self,
        url: str,
        store: Store,
        layout: Layout,
        snapshot: Snapshot,
        selection: Selection | Points,
        out: npt.NDArray[Any] | None = None,
        resolve: Resolve | None = None,
    ) -> None:
        self.selection, self.out, self.resolve = selection, out, resolve
        if out is not None:
            _check_out(out, selection, layout.dtype if resolve is None else resolve.dtype)
        self.cells, target = self._allocate(selection, layout.dtype)
        self.task = ReadTask(url, store, layout, snapshot, selection, target)

    def _allocate(self, selection: Selection | Points, dtype: np.dtype[Any]) -> tuple[npt.NDArray[Any], Any]:
        self.straight = False
        if isinstance(selection, Points):
            cells = np.empty(selection.size, dtype)
            return cells, cells
        if not selection.direct or self.resolve is not None or (self.out is not None and self.out.dtype != dtype):
            cells = np.empty(selection.counts, dtype)
            return cells, cells
        self.straight = True
        cells = np.empty(selection.result_shape, dtype) if self.out is None else self.out
        return cells, selection.target(cells)

    def get(self) -> Any:
        """Return what the user gets, once the task has been read."""
        selection, out = self.selection, self.out
        if self.straight:
            scalar = isinstance(selection, Selection) and selection.scalar and out is None
            return self.cells[()] if scalar else self.cells
        finished = selection.finish(self.cells if self.resolve is None else self.resolve(self.cells))
        if out is None:
            return finished
        out[...] = finished
        return out


def _check_out(out: Any, selection: Selection | Points, dtype: np.dtype[Any]) -> None:
    shape, dtype = selection.shape_of(dtype), selection.dtype_of(dtype)
    if not isinstance(out, np.ndarray) or out.shape != shape:
        found = f"shape {out.shape}" if isinstance(out, np.ndarray) else type(out).__name__
        raise InvalidInputError(f"out must be an array of shape {shape}, not {found}")
    if not out.flags.writeable:
        raise InvalidInputError("out cannot be written to")
    if not np.can_cast(dtype, out.dtype, "same_kind"):
        raise InvalidInputError(f"out has dtype {out.dtype}, into which {dtype} cannot be cast")
