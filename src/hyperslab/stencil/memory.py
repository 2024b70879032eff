"""A function over arrays in memory.

Cells whose neighbours all lie inside the arrays, nearly all of them, are computed from the arrays themselves, without a
copy. Only those along the edges get small padded buffers.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from hyperslab.errors import InvalidInputError, StencilError
from hyperslab.selection import Box
from hyperslab.stencil.boundaries import Boundaries
from hyperslab.stencil.geometry import stride_of
from hyperslab.stencil.kernel import WAYS, Kernel, compile_kernel
from hyperslab.stencil.reach import Reach

__all__ = ["apply_in_memory", "sample_of"]

# Parts that are done again by themselves if a computed offset in them leaves the halo.
_PART_CELLS = 1 << 23
_SAMPLE_SIDE = 8


def apply_in_memory(
    function: Callable[..., Any],
    arrays: Sequence[Any],
    *,
    boundary: Any = "nearest",
    stride: Any = None,
    reach: Any = None,
    threads: int | None = None,
    out: Any = None,
    ways: Sequence[str] = WAYS,
) -> Any:
    """Call `function` for every cell of the arrays, all of one shape, with a stencil on each of them.

    Returns an array, or a tuple of them if the function returns one; `out` are arrays to fill instead of new ones.
    `boundary` says what lies beyond the edges, `stride` computes one cell out of so many along each axis, `reach` is a
    halo that the function must not leave; without it, it is found. `threads` are by default as many as there are
    processors. `ways` are those to try: "numba", "slices", and "python", which is always left.

    >>> apply_in_memory(lambda s: s(1) - s(-1), [np.array([1, 4, 9, 16])])
    array([ 3,  8, 12,  7])
    """
    inputs = _inputs(arrays)
    shape, ndim = inputs[0].shape, inputs[0].ndim
    boundaries = Boundaries.of(boundary, ndim)
    boundaries.check_values([array.dtype for array in inputs])
    steps = stride_of(stride, ndim)
    given = None if reach is None else Reach.of(reach, ndim)
    workers = threads or len(os.sched_getaffinity(0))
    samples = [sample_of(array) for array in inputs] if 0 not in shape else ()

    def compiled(least: Reach | None) -> Kernel:
        dtypes = [array.dtype for array in inputs]
        strict = given is not None
        return compile_kernel(
            function, dtypes, ndim, reach=least, strict=strict, stride=steps, samples=samples, ways=ways
        )

    kernel = compiled(given)
    while True:
        grid = boundaries.out_shape(shape, kernel.reach, kernel.stride)
        outs = _outs(kernel, grid, inputs, out)
        wider = _fill(kernel, compiled, boundaries, inputs, outs, workers)
        if wider is None:
            break
        kernel = compiled(wider)
    return _result(outs, out)


def sample_of(array: np.ndarray) -> np.ndarray:
    """Return some cells spread over an array, for trial runs."""
    return np.ascontiguousarray(array[tuple(slice(None, None, -(-n // _SAMPLE_SIDE)) for n in array.shape)])


def _fill(
    kernel: Kernel,
    compiled: Callable[[Reach], Kernel],
    boundaries: Boundaries,
    inputs: Sequence[np.ndarray],
    outs: Sequence[np.ndarray],
    threads: int,
) -> Reach | None:
    """Fill the outputs part by part; return a wider reach if the outputs have another shape with it."""
    grid = outs[0].shape[: kernel.reach.ndim]
    for box in _parts(kernel, boundaries, inputs[0].shape, grid):
        trusted = kernel
        while (wider := _fill_box(trusted, boundaries, inputs, outs, box, threads)) is not None:
            # Where an axis shrinks, output cells may lie elsewhere even if there are as many.
            grown = boundaries.out_shape(inputs[0].shape, wider, kernel.stride) != grid
            if grown or boundaries.first(wider) != boundaries.first(kernel.reach):
                return wider
            trusted = compiled(wider)
    return None


def _fill_box(
    kernel: Kernel,
    boundaries: Boundaries,
    inputs: Sequence[np.ndarray],
    outs: Sequence[np.ndarray],
    box: Box,
    threads: int,
) -> Reach | None:
    shape = inputs[0].shape
    padded = boundaries.padded_box(box, kernel.reach, kernel.stride)
    inside = all(a >= 0 and b <= n for a, b, n in zip(padded.start, padded.stop, shape, strict=True))
    try:
        buffers = [array[padded.slices] if inside else boundaries.pad(array, padded) for array in inputs]
    except MemoryError as error:
        raise StencilError(
            f"the function reads {kernel.reach.before} cells before and {kernel.reach.after} after a cell: a buffer of "
            f"{padded.shape} cells does not fit in memory"
        ) from error
    return kernel.compute(buffers, [out[box.slices] for out in outs], box.start, threads)


def _parts(kernel: Kernel, boundaries: Boundaries, shape: tuple[int, ...], grid: tuple[int, ...]) -> Iterator[Box]:
    """Yield the parts of the output: borders, whose neighbours are partly outside, and what lies between them."""
    first = boundaries.first(kernel.reach)
    start, stop = [0] * len(grid), list(grid)
    for axis, count in enumerate(grid):
        step, before, after = kernel.stride[axis], kernel.reach.before[axis], kernel.reach.after[axis]
        low = min(count, max(0, -(-(before - first[axis]) // step)))
        high = max(low, min(count, (shape[axis] - 1 - after - first[axis]) // step + 1))
        for a, b in ((0, low), (high, count)):
            if a < b:
                yield Box((*start[:axis], a, *start[axis + 1 :]), (*stop[:axis], b, *stop[axis + 1 :]))
        start[axis], stop[axis] = low, high
    inner = Box(tuple(start), tuple(stop))
    if inner.size:
        yield from _slabs(inner, kernel.may_escape)


def _slabs(box: Box, cut: bool) -> Iterator[Box]:
    """Yield a box in parts along its first axis that are small enough to be done twice."""
    rows = box.shape[0]
    height = max(1, _PART_CELLS * rows // box.size) if cut else rows
    for row in range(box.start[0], box.stop[0], height):
        yield Box((row, *box.start[1:]), (min(row + height, box.stop[0]), *box.stop[1:]))


def _inputs(arrays: Sequence[Any]) -> list[np.ndarray]:
    """Return the arrays as kernels take them: of one shape, in the machine's order of bytes, rows in one piece."""
    if not arrays:
        raise InvalidInputError("a function over neighbours needs at least one array")
    found = [np.asarray(array) for array in arrays]
    if found[0].ndim == 0 or any(array.shape != found[0].shape for array in found):
        raise InvalidInputError(
            f"expected arrays of one shape with at least one axis, got {[array.shape for array in found]}"
        )
    for array in found:
        if array.dtype.kind not in "biufc":
            raise InvalidInputError(f"an array holds {array.dtype}; a function over neighbours takes numbers")
    native = [a if a.dtype.isnative else a.astype(a.dtype.newbyteorder("=")) for a in found]
    return [array if _fits(array) else np.require(array, requirements=["C", "A"]) for array in native]


def _fits(array: np.ndarray) -> bool:
    """Say whether a kernel can read or write an array as it is: its last axis in one piece, no negative steps."""
    rows_are_whole = array.strides[-1] == array.itemsize or array.shape[-1] == 1
    return bool(array.flags.aligned and rows_are_whole and all(step > 0 for step in array.strides))


def _outs(kernel: Kernel, grid: tuple[int, ...], inputs: Sequence[np.ndarray], given: Any) -> list[np.ndarray]:
    """Return the arrays to fill: those given where they can be filled directly, else new ones."""
    wanted = [((*grid, *output.cell_shape), output.dtype) for output in kernel.outputs]
    targets = [None] * len(wanted) if given is None else list(given) if isinstance(given, list | tuple) else [given]
    if len(targets) != len(wanted):
        raise InvalidInputError(f"the function has {len(wanted)} outputs, but {len(targets)} arrays to fill are given")
    return [_out(target, *want, inputs) for target, want in zip(targets, wanted, strict=True)]


def _out(target: Any, shape: tuple[int, ...], dtype: np.dtype, inputs: Sequence[np.ndarray]) -> np.ndarray:
    if target is None:
        return np.empty(shape, dtype)
    if not target.flags.writeable:
        raise InvalidInputError("the array to fill may not be written to; give another one")
    if target.shape != shape or not np.can_cast(dtype, target.dtype, "same_kind"):
        raise InvalidInputError(
            f"expected an array of shape {shape} that holds {dtype} to fill, got {target.shape} of {target.dtype}"
        )
    direct = target.dtype == dtype and target.flags.c_contiguous and target.flags.aligned
    apart = not any(np.may_share_memory(target, array) for array in inputs)
    return target if direct and apart else np.empty(shape, dtype)


def _result(outs: Sequence[np.ndarray], given: Any) -> Any:
    """Return what was filled, as it was asked for."""
    if given is not None:
        targets = given if isinstance(given, list | tuple) else [given]
        for target, out in zip(targets, outs, strict=True):
            if target is not out:
                target[...] = out
        return given
    return outs[0] if len(outs) == 1 else tuple(outs)
