"""The last way to run a function: Python calls it for one cell after the other.

It runs everything that Python can, a thousand times slower than a compiled function. Trial runs on some cells, which
tell how far computed offsets reach, are made in the same way.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from operator import index
from time import perf_counter
from typing import Any

import numpy as np

from hyperslab.errors import HyperslabError, StencilError
from hyperslab.stencil.neighbours import At
from hyperslab.stencil.reach import Reach
from hyperslab.stencil.results import Output, joined, kind_of, outputs_of, parts_of

__all__ = ["FARTHEST", "Escape", "Trial", "run_plainly", "try_cells"]

_TRIALS = 64
# A wider halo is a mistake in computing offsets, and would only fail later for want of memory.
FARTHEST = 1 << 22


@dataclass(frozen=True, slots=True)
class Escape:
    """A read beyond the halo: how far all of them went, and the cell of the output at which one was seen."""

    reach: Reach
    cell: tuple[int, ...]


@dataclass(slots=True)
class Trial:
    """What some calls of a function showed."""

    reach: Reach
    results: list[Any] = field(default_factory=list)
    error: Exception | None = None
    cell_s: float = 0.0

    @property
    def findings(self) -> tuple[Any, ...]:
        """What the calls showed, without how long they took: the reach, and the types of the results."""
        try:
            return self.reach, outputs_of(self.results) if self.results else None
        except StencilError:
            return self.reach, None


class _Anywhere(At):
    """A cell whose neighbours beyond the sample's edges are the cells at the edges."""

    __slots__ = ()

    def value(self, offset: tuple[int, ...]) -> Any:
        places = zip(self.position, offset, self.array.shape, strict=True)
        return self.array[tuple(min(max(p + step, 0), n - 1) for p, step, n in places)]

    def __call__(self, *offset: int) -> Any:
        steps = tuple(index(step) for step in offset)
        self.check(steps)
        self.escaped.append(steps)
        return self.value(steps)


def try_cells(function: Callable[..., Any], samples: Sequence[np.ndarray]) -> Trial:
    """Call a function on some cells of the samples, one array for each of its arguments, and watch what it reads."""
    ndim = samples[0].ndim
    seen: list[tuple[int, ...]] = []
    cells = [_Anywhere(sample, Reach.zero(ndim), seen) for sample in samples]
    trial = Trial(Reach.zero(ndim))
    started = perf_counter()
    with np.errstate(all="ignore"):
        for position in _spread(samples[0].shape):
            for cell in cells:
                cell.position = position
            try:
                trial.results.append(function(*cells))
            except Exception as error:  # noqa: BLE001  # what a user's function raises is reported, whatever it is
                trial.error = error
                break
    trial.cell_s = (perf_counter() - started) / max(1, len(trial.results))
    near = (offset for offset in seen if max(map(abs, offset)) <= FARTHEST)
    trial.reach = Reach.of_offsets(near, ndim)
    return trial


def run_plainly(
    function: Callable[..., Any],
    reach: Reach,
    stride: tuple[int, ...],
    outputs: Sequence[Output],
    inputs: Sequence[np.ndarray],
    outs: Sequence[np.ndarray],
) -> Escape | None:
    """Call a function for every cell of `outs`; return how far it went if that was beyond the halo."""
    grid = outs[0].shape[: reach.ndim]
    escaped: list[tuple[int, ...]] = []
    cells = [At(array, reach, escaped) for array in inputs]
    known: list[set[Any]] = [set() for _ in outputs]
    first: tuple[int, ...] | None = None
    with np.errstate(all="ignore"):
        for place in product(*(range(n) for n in grid)):
            position = tuple(b + p * step for b, p, step in zip(reach.before, place, stride, strict=True))
            for cell in cells:
                cell.position = position
            try:
                _store(_call(function, cells, place), outputs, outs, place, known)
            except StencilError:
                # What was read beyond the halo is not what is there, so the error may come from that.
                if not escaped:
                    raise
            if escaped and first is None:
                first = place
    if first is None:
        return None
    return Escape(Reach.of_offsets(escaped, reach.ndim), first)


def _call(function: Callable[..., Any], cells: Sequence[At], place: tuple[int, ...]) -> Any:
    try:
        return function(*cells)
    except HyperslabError:
        raise
    except Exception as error:
        raise StencilError(f"the function raised {type(error).__name__}: {error}", place) from error


def _store(
    result: Any, outputs: Sequence[Output], outs: Sequence[np.ndarray], place: tuple[int, ...], known: list[set[Any]]
) -> None:
    """Write what a function returned for a cell; refuse values that the output cannot hold."""
    parts = parts_of(result)
    if [shape for _, shape in parts] != [output.cell_shape for output in outputs]:
        raise StencilError("the function returned another number or shape of values than for other cells", place)
    for (values, shape), output, out, kinds in zip(parts, outputs, outs, known, strict=True):
        for value in values:
            if type(value) not in kinds:
                if joined([output.dtype, kind_of(value)]) != output.dtype:
                    raise StencilError(
                        f"the function returned {value!r}, which the output's type {output.dtype} (as found on sampled "
                        "cells) cannot hold; let all its branches return one type",
                        place,
                    )
                kinds.add(type(value))
        try:
            out[place] = np.array(values, output.dtype).reshape(shape)
        except OverflowError as error:
            raise StencilError(f"the function returned a number that does not fit: {error}", place) from error


def _spread(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield cells spread over an array: its corners and others, the same ones for the same shape."""
    size = prod(shape)
    yield from product(*({0, n - 1} for n in shape)) if len(shape) <= 3 else ()
    chosen = np.random.default_rng(size).integers(0, size, _TRIALS)
    for flat in chosen.tolist():
        yield tuple(int(i) for i in np.unravel_index(flat, shape))
