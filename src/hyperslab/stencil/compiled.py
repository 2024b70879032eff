"""The first way to run a function: numba compiles it with the loop over all cells around it.

The function is copied before, so that what it uses means to numba what it means to NumPy: helper functions are
compiled too, NumPy scalars and arrays in its closure keep their types. Its own code is not touched. What was compiled
is kept in the process only: numba's cache on disk never finds functions whose closures hold compiled ones.
"""

# mypy: allow-untyped-calls, allow-untyped-decorators
import types as python_types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from operator import mul
from typing import Any

import numpy as np
from numba import njit, types
from numba.core.dispatcher import Dispatcher

from hyperslab.errors import StencilError
from hyperslab.execute.threads import on_threads
from hyperslab.stencil.identity import constants_of
from hyperslab.stencil.numba_types import driving, fetching
from hyperslab.stencil.numba_types.cell import Strong, Table
from hyperslab.stencil.numba_types.cell_functions import STRONG_NUMBERS
from hyperslab.stencil.numba_types.shaping import StencilCompiler
from hyperslab.stencil.numba_types.stencil import Discovery, StencilType
from hyperslab.stencil.plain import Escape
from hyperslab.stencil.reach import Reach
from hyperslab.stencil.results import Output

__all__ = ["Compiled", "compile_function"]

# Starting threads takes longer than computing so many cells; large parts are cut further, so that none waits long.
_LEAST_CELLS_PER_THREAD = 1 << 14
_LEAST_CELLS_PER_PART = 1 << 20
_MOST_PARTS_PER_THREAD = 4


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compiled function: its code fills some planes, rows and columns of its outputs (see `driving`)."""

    code: Callable[..., None]
    reach: Reach
    stride: tuple[int, ...]
    outputs: tuple[Output, ...]
    may_escape: bool

    def run(self, inputs: Sequence[np.ndarray], outs: Sequence[np.ndarray], threads: int) -> Escape | None:
        """Fill `outs`; the parts of several threads are cut along the first axis that is long enough."""
        ndim = self.reach.ndim
        grid = outs[0].shape[:ndim]
        sizes = prod(grid[:-2]), grid[-2] if ndim > 1 else 1, grid[-1]
        table = self._table(inputs, outs, grid)
        parts = _parts(prod(grid), threads)
        axis = next((axis for axis, size in enumerate(sizes) if size >= parts), int(np.argmax(sizes)))
        edges = [sizes[axis] * k // parts for k in range(parts + 1)]
        notes = np.zeros((parts, 2 * ndim + 2), np.int64)

        def box_of(part: int) -> list[tuple[int, int]]:
            return [(edges[part], edges[part + 1]) if each == axis else (0, size) for each, size in enumerate(sizes)]

        def run_part(part: int) -> Exception | None:
            return self._run_box(table, notes[part], box_of(part))

        errors = on_threads(run_part, parts, threads)
        # What was read beyond the halo is not what is there, so an error may come from that.
        escape = self._escape(notes, inputs) if self.may_escape else None
        failed = next((part for part, error in enumerate(errors) if error is not None), None)
        if failed is None or escape is not None:
            return escape
        place = self._failing_place(table, notes[failed], box_of(failed))
        planes = [int(n) for n in np.unravel_index(place[0], grid[:-2])] if ndim > 2 else []
        cell = (*planes, *place[1:])[-ndim:]
        error = errors[failed]
        raise StencilError(f"the function raised {type(error).__name__}: {error}", cell) from error

    def _run_box(self, table: np.ndarray, notes: np.ndarray, box: Sequence[tuple[int, int]]) -> Exception | None:
        """Compute some planes, rows and columns; return what the function raised."""
        try:
            self.code(table, notes, *box[0], *box[1], *box[2])
        except Exception as error:  # noqa: BLE001  # what a user's function raises is reported, whatever it is
            return error
        return None

    def _failing_place(self, table: np.ndarray, notes: np.ndarray, box: list[tuple[int, int]]) -> list[int]:
        """Return the plane, row and column of the first cell in a box at which the function raises, by halving it."""
        for axis in range(3):
            while box[axis][1] - box[axis][0] > 1:
                low, high = box[axis]
                middle = (low + high) // 2
                box[axis] = low, middle
                if self._run_box(table, notes, box) is None:
                    box[axis] = middle, high
        return [low for low, _ in box]

    def _table(self, inputs: Sequence[np.ndarray], outs: Sequence[np.ndarray], grid: tuple[int, ...]) -> np.ndarray:
        """Return the addresses, counts and distances that the code works with; see `driving` for their order."""
        ndim = self.reach.ndim
        numbers = [array.__array_interface__["data"][0] for array in (*inputs, *outs)]
        for place, array in enumerate(inputs):
            numbers[place] += sum(map(mul, self.reach.before, array.strides))
        numbers += grid[:-1]
        for array in inputs:
            numbers += array.strides[: ndim - 1]
        for out in outs:
            numbers += out.strides[: ndim - 1]
        return np.array(numbers, np.int64)

    def _escape(self, notes: np.ndarray, inputs: Sequence[np.ndarray]) -> Escape | None:
        """Return what the code noted about reads beyond the halo."""
        ndim = self.reach.ndim
        seen = notes[notes[:, 2 * ndim] != 0]
        if not len(seen):
            return None
        far = seen.max(0).tolist()
        array = inputs[int(seen[0, 2 * ndim]) - 1]
        distance = int(seen[0, 2 * ndim + 1]) - array.__array_interface__["data"][0]
        position = [0] * ndim
        for axis in sorted(range(ndim), key=lambda axis: -array.strides[axis]):
            position[axis], distance = divmod(distance, array.strides[axis])
        placed = zip(position, self.reach.before, self.stride, strict=True)
        cell = tuple((p - b) // step for p, b, step in placed)
        return Escape(Reach(tuple(far[:ndim]), tuple(far[ndim : 2 * ndim])), cell)


def compile_function(
    function: Callable[..., Any],
    dtypes: Sequence[np.dtype],
    least: Reach,
    strict: bool,
    stride: tuple[int, ...],
    tried: Reach,
) -> Compiled:
    """Compile a function; `tried` is how far it went on some cells, of use where offsets are computed.

    Raises errors of numba's if it cannot be compiled.
    """
    known = least if strict else least.union(tried)
    while True:
        discovery = Discovery(known, strict)
        stencils = [StencilType(dtype, discovery, place) for place, dtype in enumerate(dtypes)]
        compiled = _prepared(function, {})
        compiled.compile((*stencils, *_omitted(compiled.py_func, len(stencils))))
        outputs = driving.outputs_of_type(compiled.nopython_signatures[-1].return_type)
        driver = _driver(compiled, stencils, stride, len(outputs))
        driver.compile((types.int64[::1], types.int64[::1], *[types.int64] * 6))
        reach = discovery.reach
        if discovery.checked <= {reach}:
            break
        # A helper function was checked against less than what is known now.
        known = reach
    if not discovery.checked and not strict:
        reach = least.union(discovery.found)
    return Compiled(driver, reach, stride, outputs, bool(discovery.checked))


def _parts(cells: int, threads: int) -> int:
    """Return in how many parts to compute so many cells."""
    workers = max(1, min(threads, cells // _LEAST_CELLS_PER_THREAD))
    return (
        workers if workers == 1 else max(workers, min(threads * _MOST_PARTS_PER_THREAD, cells // _LEAST_CELLS_PER_PART))
    )


def _prepared(function: Any, known: dict[int, Any]) -> Any:
    """Return a copy of a function, ready for numba, as are the functions that it calls."""
    plain = getattr(function, "py_func", function)
    if not isinstance(plain, python_types.FunctionType):
        raise TypeError(f"a {type(function).__name__} is not a function of Python's")
    if id(plain) in known:
        return known[id(plain)]
    known[id(plain)] = None
    scope = dict(plain.__globals__)
    cells: dict[str, Any] = {}
    for name, value in constants_of(plain):
        target = cells if name in plain.__code__.co_freevars else scope
        target[name] = _constant(value, known)
    closure = tuple(python_types.CellType(cells[name]) for name in plain.__code__.co_freevars)
    defaults = tuple(_constant(value, known) for value in plain.__defaults__ or ())
    copy = python_types.FunctionType(plain.__code__, scope, plain.__name__, defaults, closure)
    compiled = njit(nogil=True, error_model="numpy", pipeline_class=StencilCompiler)(copy)
    known[id(plain)] = compiled
    return compiled


def _omitted(function: Any, given: int) -> list[Any]:
    """Return the types of the arguments that a function has beyond those that are given: their defaults."""
    defaults = function.__defaults__ or ()
    missing = max(0, function.__code__.co_argcount - given)
    return [types.Omitted(value) for value in defaults[len(defaults) - missing :]] if missing else []


def _constant(value: Any, known: dict[int, Any]) -> Any:
    if isinstance(value, type) and value in STRONG_NUMBERS:
        return STRONG_NUMBERS[value]
    if isinstance(value, np.generic):
        return Strong(value)
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
        return np.ascontiguousarray(value).view(Table)
    is_ours = isinstance(value, python_types.FunctionType) and not value.__module__.startswith("numpy")
    return _prepared(value, known) if is_ours or isinstance(value, Dispatcher) else value


def _driver(function: Any, stencils: Sequence[StencilType], stride: tuple[int, ...], outputs: int) -> Any:
    """Return the loop over all cells of some planes, in numba's hands."""
    input_rows, output_rows = driving.input_rows(stencils, stride, outputs), driving.output_rows(stencils, outputs)
    cells_at, put = driving.cells_at(stencils, stride), driving.put()
    fetch_ahead = fetching.fetch_ahead(stencils, stride)

    def drive(table, notes, plane, last_plane, line, last_line, column, last_column):  # type: ignore[no-untyped-def]
        for outer in range(plane, last_plane):
            for inner in range(line, last_line):
                cells = input_rows(table, notes, outer, inner)
                outs = output_rows(table, outer, inner)
                fetch_ahead(cells, column, last_column)
                for place in range(column, last_column):
                    put(outs, place, function(*cells_at(cells, place)))

    return njit(nogil=True, error_model="numpy")(drive)
