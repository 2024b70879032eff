"""Kernels: a user's function made ready to run over buffers of cells.

Three ways, the first that works is taken: compiled by numba, on NumPy slices, by Python cell by cell. All of them
give the same numbers, of the types that NumPy gives. A kernel reads buffers that are already padded by its reach;
where a function reads further than that, nothing outside is touched: the kernel says how far it went, and the caller
widens and does that chunk again.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, Protocol

import numpy as np

from hyperslab.errors import InvalidInputError, StencilError
from hyperslab.stencil.identity import identity_of
from hyperslab.stencil.plain import FARTHEST, Escape, Trial, run_plainly, try_cells
from hyperslab.stencil.reach import Reach
from hyperslab.stencil.results import Output, outputs_of
from hyperslab.stencil.slices import run_on_slices, try_slices

__all__ = ["WAYS", "Kernel", "Output", "SlowStencilWarning", "compile_kernel"]

# In the order in which they are tried. The last is always left.
WAYS = ("numba", "slices", "python")
_MOST_KERNELS = 256
_kernels: dict[Any, "Kernel"] = {}
_lock = Lock()


class SlowStencilWarning(UserWarning):
    """A function can be run by Python only, cell by cell."""


class Run(Protocol):
    """Fills `outs` from padded `inputs`, all checked before; returns how far a read went beyond the halo."""

    def __call__(self, inputs: Sequence[np.ndarray], outs: Sequence[np.ndarray], threads: int, /) -> Escape | None: ...


@dataclass(frozen=True, slots=True)
class Kernel:
    """A function, ready to run: what it reads, what it gives, and how it runs.

    `how` is "numba", "slices" or "python"; `why` says what kept it from being compiled. `strict` kernels raise where
    the function reads beyond the reach, others return the wider reach; that can only be where `may_escape` says so.
    """

    reach: Reach
    outputs: tuple[Output, ...]
    how: str
    why: str
    dtypes: tuple[np.dtype, ...]
    stride: tuple[int, ...]
    strict: bool
    may_escape: bool
    run: Run

    def compute(
        self, inputs: Sequence[np.ndarray], outs: Sequence[np.ndarray], origin: Sequence[int], threads: int = 1
    ) -> Reach | None:
        """Fill `outs`, whose first cell is the cell `origin` of the whole output.

        Cell `p` of `outs` sits at index `reach.before + p * stride` of the inputs. Returns None, or the wider reach
        that was asked for: then `outs` are not valid. The GIL is released by compiled kernels; calls with different
        buffers may run at once.
        """
        if not outs or 0 in outs[0].shape[: self.reach.ndim]:
            return None
        self._check(inputs, outs)
        try:
            escape = self.run(inputs, outs, threads)
        except StencilError as error:
            raise _moved(error, origin) from error.__cause__
        if escape is None:
            return None
        cell = tuple(a + b for a, b in zip(origin, escape.cell, strict=True))
        if max(*escape.reach.before, *escape.reach.after) > FARTHEST:
            raise StencilError(
                f"the function reads {escape.reach.before} cells before and {escape.reach.after} after a cell (seen at "
                f"cell {cell}), more than the {FARTHEST} that a halo may have; offsets are counted from the cell",
                cell,
            )
        if self.strict:
            raise StencilError(
                f"at cell {cell} the function reads further than the halo it was given: it needs {escape.reach.before} "
                f"cells before and {escape.reach.after} after a cell, the halo has {self.reach.before} and "
                f"{self.reach.after}; give a wider halo, or none to have it found",
                cell,
            )
        return self.reach.union(escape.reach)

    def of(self, function: Callable[..., Any]) -> "Kernel":
        """Return the kernel for an equal function: what is not compiled calls it, and closures may change later."""
        way = _UNCOMPILED.get(self.how)
        return (
            self if way is None else replace(self, run=_running(way, function, self.reach, self.stride, self.outputs))
        )

    def _check(self, inputs: Sequence[np.ndarray], outs: Sequence[np.ndarray]) -> None:
        """Refuse buffers that do not fit: compiled kernels trust their sizes."""
        ndim = self.reach.ndim
        grid = outs[0].shape[:ndim]
        needed = self.reach.padded(grid, self.stride)
        if tuple(array.dtype for array in inputs) != self.dtypes:
            raise InvalidInputError(f"expected inputs of {self.dtypes}, got {tuple(array.dtype for array in inputs)}")
        if any(array.ndim != ndim or any(n < m for n, m in zip(array.shape, needed, strict=True)) for array in inputs):
            raise InvalidInputError(f"expected inputs of shape {needed}, got {[array.shape for array in inputs]}")
        wanted = [(output.dtype, (*grid, *output.cell_shape)) for output in self.outputs]
        if [(out.dtype, out.shape) for out in outs] != wanted:
            raise InvalidInputError(f"expected outputs {wanted}, got {[(out.dtype, out.shape) for out in outs]}")
        for array in (*inputs, *outs):
            inner = array[(0,) * (ndim - 1)]
            if not (inner.flags.c_contiguous and array.flags.aligned):
                raise InvalidInputError("expected aligned buffers that are contiguous along their last axis")


def compile_kernel(
    function: Callable[..., Any],
    dtypes: Sequence[Any],
    ndim: int,
    *,
    reach: Reach | None = None,
    strict: bool = False,
    stride: Sequence[int] | None = None,
    samples: Sequence[np.ndarray] = (),
    ways: Sequence[str] = WAYS,
) -> Kernel:
    """Make a kernel of a function whose arguments are stencils over arrays of these types.

    How far it reaches is found: every literal offset in every branch where numba compiles it; computed offsets by
    calls on cells of `samples`, small pieces of the inputs, one each. `reach` is the least that the kernel has; with
    `strict` it is all that the function may read. Kernels are kept in the process by the function's code, the constants
    that it uses, the types, reach and stride.

    >>> kernel = compile_kernel(lambda s: 0.5 * (s(0, -1) + s(0, 2)), ["float32"], 2)
    >>> kernel.reach, kernel.outputs[0].dtype
    (Reach(before=(0, 1), after=(0, 2)), dtype('float32'))
    """
    types = tuple(np.dtype(dtype).newbyteorder("=") for dtype in dtypes)
    steps = tuple(int(step) for step in stride) if stride is not None else (1,) * ndim
    _check_request(types, ndim, reach, steps, samples)
    key = identity_of(function), types, ndim, reach, strict, steps, tuple(ways)
    known = _known(key)
    if known is not None:
        return known.of(function)
    # Where offsets are computed, what samples show is part of what is asked for: results never depend on earlier calls.
    trial = try_cells(function, samples or _usual_samples(types, ndim))
    known = _known((key, *trial.findings))
    if known is not None:
        return known.of(function)
    kernel = _compile(_Request(function, types, reach or Reach.zero(ndim), strict, steps, trial), ways)
    if key[0] is not None:
        _keep((key, *trial.findings) if kernel.may_escape else key, kernel)
    return kernel


def _known(key: Any) -> Kernel | None:
    with _lock:
        return _kernels.get(key)


def _keep(key: Any, kernel: Kernel) -> None:
    with _lock:
        _kernels[key] = kernel
        while len(_kernels) > _MOST_KERNELS:
            _kernels.pop(next(iter(_kernels)))


@dataclass(frozen=True, slots=True)
class _Request:
    """What a kernel is asked to be."""

    function: Callable[..., Any]
    dtypes: tuple[np.dtype, ...]
    least: Reach
    strict: bool
    stride: tuple[int, ...]
    trial: Trial

    def reach(self, found: Reach) -> Reach:
        """Return the reach of a kernel whose function was found to read so far."""
        return self.least if self.strict else self.least.union(found)

    def kernel(
        self, run: Run, reach: Reach, outputs: tuple[Output, ...], how: str, why: str, may_escape: bool = True
    ) -> Kernel:
        """Return the kernel that was asked for."""
        return Kernel(reach, outputs, how, why, self.dtypes, self.stride, self.strict, may_escape, run)


def _compile(request: _Request, ways: Sequence[str]) -> Kernel:
    """Return a kernel by the first of the ways that works."""
    reasons: list[str] = []
    for how, attempt in (("numba", _by_numba), ("slices", _by_slices)):
        if how not in ways:
            continue
        try:
            return attempt(request, "; ".join(reasons))
        except Exception as error:  # noqa: BLE001  # whatever keeps a function from running so only rules this way out
            reasons.append(f"{how}: {_first_lines(error)}")
    return _by_python(request, "; ".join(reasons))


def _by_numba(request: _Request, why: str) -> Kernel:
    from hyperslab.stencil.compiled import compile_function

    made = compile_function(
        request.function, request.dtypes, request.least, request.strict, request.stride, request.trial.reach
    )
    return request.kernel(made.run, made.reach, made.outputs, "numba", why, made.may_escape)


def _by_slices(request: _Request, why: str) -> Kernel:
    found, outputs = try_slices(request.function, request.dtypes, request.least.ndim)
    reach = request.reach(found)
    run = _running(run_on_slices, request.function, reach, request.stride, outputs)
    return request.kernel(run, reach, outputs, "slices", why)


def _by_python(request: _Request, why: str) -> Kernel:
    trial = request.trial
    if trial.error is not None:
        raise StencilError(
            f"the function raised {type(trial.error).__name__} when it was tried on a cell: {trial.error}"
        ) from trial.error
    reach, outputs = request.reach(trial.reach), outputs_of(trial.results)
    run = _running(run_plainly, request.function, reach, request.stride, outputs)
    if why:
        warnings.warn(
            f"the function {getattr(request.function, '__name__', '')} is run by Python, cell by cell: about "
            f"{trial.cell_s * 1e6:.2g} s for a million cells, where compiled functions take milliseconds. {why}",
            SlowStencilWarning,
            stacklevel=4,
        )
    return request.kernel(run, reach, outputs, "python", why)


_UNCOMPILED: dict[str, Callable[..., Escape | None]] = {"slices": run_on_slices, "python": run_plainly}


def _running(
    way: Callable[..., Escape | None],
    function: Callable[..., Any],
    reach: Reach,
    stride: tuple[int, ...],
    outputs: tuple[Output, ...],
) -> Run:
    """Return what runs a function that is not compiled."""

    def run(inputs: Sequence[np.ndarray], outs: Sequence[np.ndarray], threads: int) -> Escape | None:
        return way(function, reach, stride, outputs, inputs, outs)

    return run


def _first_lines(error: Exception) -> str:
    """Return what an error says, without the pages that numba adds."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    chosen = [line for line in lines if not line.startswith(("Failed in", "During", "File", "There are"))]
    return f"{type(error).__name__}: {' '.join(chosen)[:300]}"


def _check_request(
    dtypes: tuple[np.dtype, ...], ndim: int, reach: Reach | None, stride: tuple[int, ...], samples: Sequence[np.ndarray]
) -> None:
    if not dtypes or ndim < 1:
        raise InvalidInputError("a function over neighbours needs at least one array of at least one axis")
    if len(stride) != ndim or any(step < 1 for step in stride):
        raise InvalidInputError(f"expected a stride of at least 1 for each of {ndim} axes, got {stride}")
    if reach is not None and reach.ndim != ndim:
        raise InvalidInputError(f"the reach has {reach.ndim} axes, the arrays have {ndim}")
    if samples and (len(samples) != len(dtypes) or any(sample.ndim != ndim or not sample.size for sample in samples)):
        raise InvalidInputError(f"expected one sample with cells for each of {len(dtypes)} inputs")


def _usual_samples(dtypes: tuple[np.dtype, ...], ndim: int) -> list[np.ndarray]:
    """Return small arrays of zeros and ones, where nothing of the inputs is at hand."""
    places = np.indices((4,) * ndim).sum(0) % 2
    return [places.astype(dtype) for dtype in dtypes]


def _moved(error: StencilError, origin: Sequence[int]) -> StencilError:
    """Return an error of a chunk with its cell counted from the beginning of the whole output."""
    if error.cell is None:
        return error
    cell = tuple(a + b for a, b in zip(origin, error.cell, strict=True))
    return StencilError(f"at cell {cell}: {error}", cell)
