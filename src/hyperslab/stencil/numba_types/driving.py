"""What the loop over all cells is made of: the stencils at a row and at a cell, and storing what came out.

A table of numbers says where everything is: the addresses of the inputs' first cells and of the outputs, how many cells
there are along each axis but the last, then the distances in bytes between neighbours along those axes, of each input
and each output. Rows are counted along the last axis but one, planes over all axes before it: only the first row of a
plane is found by dividing.
"""

# mypy: allow-untyped-calls, allow-untyped-decorators
from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from hyperslab.stencil.numba_types.block import cells_of
from hyperslab.stencil.numba_types.cell import CellType, fit_to, kind_of_type
from hyperslab.stencil.numba_types.stencil import BlockType, StencilType, items_of, move, proxy, store
from hyperslab.stencil.results import Output, joined

__all__ = ["cells_at", "input_rows", "output_rows", "outputs_of_type", "put"]


def outputs_of_type(returned: Any) -> tuple[Output, ...]:
    """Return the outputs of a function whose result numba has typed as `returned`."""
    if not items_of(returned):
        raise TypeError("the function returns an empty tuple, expected numbers")
    return tuple(_output(result) for result in items_of(returned))


def _output(result: Any) -> Output:
    if isinstance(result, BlockType):
        return Output(result.stencil.cell.np_dtype, result.shape)
    is_vector = isinstance(result, types.BaseTuple)
    kinds = [kind_of_type(value) for value in items_of(result)]
    if not kinds or any(kind is None for kind in kinds):
        raise TypeError(f"the function returns {result}, expected numbers")
    return Output(joined(kinds), (len(kinds),) if is_vector else ())


class _Table:
    """Reads the numbers of the table, each once for a row."""

    def __init__(
        self, context: Any, builder: Any, array_type: Any, array: Any, plane: Any, line: Any, ndim: int
    ) -> None:
        self.builder, self.ndim = builder, ndim
        self.data = context.make_array(array_type)(context, builder, array).data
        self.plane, self.line = plane, line

    def __getitem__(self, place: int) -> Any:
        return self.builder.load(self.builder.gep(self.data, [cgutils.intp_t(place)], inbounds=True))

    def indices(self, counts_at: int) -> list[Any]:
        """Return the row's index along each axis but the last."""
        if self.ndim == 1:
            return []
        found, rest = [self.line], self.plane
        for axis in reversed(range(1, self.ndim - 2)):
            count = self[counts_at + axis]
            found.insert(0, self.builder.urem(rest, count))
            rest = self.builder.udiv(rest, count)
        return [rest, *found] if self.ndim > 2 else found


def input_rows(stencils: Sequence[StencilType], stride: tuple[int, ...], outputs: int) -> Any:
    """Return a function of numba's that gives the stencils at the first cell of a row."""
    ndim, inputs = stencils[0].ndim, len(stencils)
    counts_at = inputs + outputs
    result = types.Tuple(tuple(stencils))

    @intrinsic
    def rows(_: Any, table: Any, notes: Any, plane: Any, line: Any) -> Any:
        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            if stride[-1] == 1 and ndim < 3:
                _use_half_vectors(builder)
            numbers = _Table(context, builder, sig.args[0], args[0], args[2], args[3], ndim)
            indices = numbers.indices(counts_at)
            made = []
            for place, stencil in enumerate(stencils):
                members = proxy(context, builder, stencil)
                members.notes = context.make_array(sig.args[1])(context, builder, args[1]).data
                distance = cgutils.intp_t(0)
                for axis, index in enumerate(indices):
                    step = numbers[counts_at + (ndim - 1) * (1 + place) + axis]
                    setattr(members, f"step{axis}", step)
                    cells = builder.mul(index, cgutils.intp_t(stride[axis]))
                    distance = builder.add(distance, builder.mul(cells, step))
                address = builder.add(numbers[place], distance)
                members.cell = builder.inttoptr(address, cgutils.voidptr_t)
                made.append(members._getvalue())
            return context.make_tuple(builder, sig.return_type, made)

        return result(table, notes, plane, line), generate

    return rows


def _use_half_vectors(builder: Any) -> None:
    """Have the loop use vectors of 256 bits where the processor has longer ones.

    Of a cell's neighbours hardly any are aligned: every load of 512 bits then reaches into two lines of the cache, of
    256 bits every second one. On a processor with both, 5 points took 0.75 of the time. Where cells are left out by a
    stride, loads are shuffled, and longer ones are better; as they are for the short rows that three axes have.
    """
    # llvmlite knows LLVM's attributes without a value only; what is in the set is printed as it is.
    set.add(builder.function.attributes, '"prefer-vector-width"="256"')


def output_rows(stencils: Sequence[StencilType], outputs: int) -> Any:
    """Return a function of numba's that gives the addresses of a row of each output."""
    ndim, inputs = stencils[0].ndim, len(stencils)
    counts_at = inputs + outputs
    steps_at = counts_at + (ndim - 1) * (1 + inputs)

    @intrinsic
    def rows(_: Any, table: Any, plane: Any, line: Any) -> Any:
        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            numbers = _Table(context, builder, sig.args[0], args[0], args[1], args[2], ndim)
            indices = numbers.indices(counts_at)
            addresses = []
            for place in range(outputs):
                address = numbers[inputs + place]
                for axis, index in enumerate(indices):
                    step = numbers[steps_at + (ndim - 1) * place + axis]
                    address = builder.add(address, builder.mul(index, step))
                addresses.append(builder.inttoptr(address, cgutils.voidptr_t))
            return context.make_tuple(builder, sig.return_type, addresses)

        return types.UniTuple(types.voidptr, outputs)(table, plane, line), generate

    return rows


def cells_at(stencils: Sequence[StencilType], stride: tuple[int, ...]) -> Any:
    """Return a function of numba's that gives the stencils at a cell of a row, from those at its first cell."""
    result = types.Tuple(tuple(stencils))

    @intrinsic
    def cells(_: Any, row: Any, place: Any) -> Any:
        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            made = []
            for stencil, value in zip(stencils, cgutils.unpack_tuple(builder, args[0]), strict=True):
                members = proxy(context, builder, stencil, value)
                zero, last = cgutils.intp_t(0), cgutils.intp_t(stride[-1])
                offset = [zero] * (stencil.ndim - 1) + [builder.mul(args[1], last, flags=["nsw"])]
                members.cell = move(context, builder, stencil, members, offset)
                made.append(members._getvalue())
            return context.make_tuple(builder, sig.return_type, made)

        return result(row, place), generate

    return cells


def put() -> Any:
    """Return a function of numba's that stores what a function returned for a cell of a row."""

    @intrinsic
    def put_result(_: Any, outs: Any, place: Any, result: Any) -> Any:
        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            rows = cgutils.unpack_tuple(builder, args[0])
            given = sig.args[2]
            is_tuple = isinstance(given, types.BaseTuple)
            results = (
                zip(given, cgutils.unpack_tuple(builder, args[2]), strict=True) if is_tuple else [(given, args[2])]
            )
            for row, (kind, value) in zip(rows, results, strict=True):
                _put_one(context, builder, row, args[1], kind, value)
            return context.get_dummy_value()

        return types.void(outs, place, result), generate

    return put_result


def _put_one(context: Any, builder: Any, row: Any, place: Any, kind: Any, value: Any) -> None:
    """Store one output's values for a cell."""
    output = _output(kind)
    if isinstance(kind, BlockType):
        values = [(kind.stencil.cell, one) for one in cells_of(context, builder, kind, value)]
    elif isinstance(kind, types.BaseTuple):
        values = list(zip(items_of(kind), cgutils.unpack_tuple(builder, value), strict=True))
    else:
        values = [(kind, value)]
    cell, size = CellType(output.dtype), np.dtype(output.dtype).itemsize
    first = builder.mul(place, cgutils.intp_t(size * len(values)), flags=["nsw"])
    for number, (given, one) in enumerate(values):
        distance = builder.add(first, cgutils.intp_t(size * number), flags=["nsw"])
        address = builder.gep(row, [distance], inbounds=True)
        store(context, builder, cell, fit_to(context, builder, one, given, cell), address)
