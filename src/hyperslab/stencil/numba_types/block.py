"""Blocks of neighbours as numba sees them: indexing, and sum, mean, min and max in row-major order."""

# mypy: allow-untyped-calls, allow-untyped-decorators
import operator
from collections.abc import Callable, Iterator
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import (
    AbstractTemplate,
    AttributeTemplate,
    bound_function,
    infer_getattr,
    infer_global,
    signature,
)
from numba.extending import lower_builtin, lower_getattr

from hyperslab.stencil.neighbours import mean_dtype, sum_dtype
from hyperslab.stencil.numba_types.cell import CellType, cast_to, lower_ufunc, ufunc_loop
from hyperslab.stencil.numba_types.stencil import BlockType, items_of, load, move, proxy

__all__ = ["cells_of"]

# Blocks of more cells are walked by a loop: code for each of them would take long to compile.
_MOST_UNROLLED = 64


def cells_of(context: Any, builder: Any, block: BlockType, value: Any) -> Iterator[Any]:
    """Yield the values of all cells of a block, in order."""
    members = proxy(context, builder, block.stencil, value)
    for place in product(*(range(n) for n in block.shape)):
        offset = [context.get_constant(types.intp, i) for i in place]
        yield load(context, builder, block.stencil.cell, move(context, builder, block.stencil, members, offset))


def _reduce(context: Any, builder: Any, block: BlockType, value: Any, ufunc: np.ufunc, cell: CellType) -> Any:
    """Return all cells of a block, each as a `cell`, joined by a function of two in row-major order."""
    loop = ufunc_loop(ufunc, [cell.np_dtype] * 2)

    def join(known: Any, next_value: Any) -> Any:
        value_as = cast_to(context, builder, next_value, block.stencil.cell, cell.scalar)
        return value_as if known is None else lower_ufunc(context, builder, ufunc, loop, [cell] * 2, [known, value_as])

    if prod(block.shape) <= _MOST_UNROLLED:
        result = None
        for one in cells_of(context, builder, block, value):
            result = join(result, one)
        return result
    return _reduce_by_loop(context, builder, block, value, join)


def _reduce_by_loop(context: Any, builder: Any, block: BlockType, value: Any, join: Callable[[Any, Any], Any]) -> Any:
    members = proxy(context, builder, block.stencil, value)
    zero = [context.get_constant(types.intp, 0)] * len(block.shape)
    first = join(None, load(context, builder, block.stencil.cell, move(context, builder, block.stencil, members, zero)))
    result = cgutils.alloca_once_value(builder, first)
    counts = [context.get_constant(types.intp, n) for n in block.shape]
    with cgutils.loop_nest(builder, counts, counts[0].type) as place:
        is_first = builder.icmp_signed("==", _sum(builder, place), zero[0])
        value = load(context, builder, block.stencil.cell, move(context, builder, block.stencil, members, place))
        known = builder.load(result)
        builder.store(builder.select(is_first, known, join(known, value)), result)
    return builder.load(result)


def _sum(builder: Any, numbers: Any) -> Any:
    total = numbers[0]
    for number in numbers[1:]:
        total = builder.add(total, number)
    return total


def _mean_cell(block: BlockType) -> CellType:
    return CellType(mean_dtype(block.stencil.cell.np_dtype))


_RESULTS: dict[str, Callable[[BlockType], CellType]] = {
    "sum": lambda block: CellType(sum_dtype(block.stencil.cell.np_dtype)),
    "mean": _mean_cell,
    "min": lambda block: block.stencil.cell,
    "max": lambda block: block.stencil.cell,
}
_UFUNCS = {"sum": np.add, "mean": np.add, "min": np.minimum, "max": np.maximum}


@infer_getattr
class _BlockAttributes(AttributeTemplate):
    key = BlockType

    def resolve_size(self, block: BlockType) -> Any:
        return types.intp


@lower_getattr(BlockType, "size")
def _size(context: Any, builder: Any, block: BlockType, value: Any) -> Any:
    return context.get_constant(types.intp, prod(block.shape))


@infer_global(operator.getitem)
class _Item(AbstractTemplate):
    """Types `block[i, j]`."""

    def generic(self, args: Any, kws: Any) -> Any:
        if not isinstance(args[0], BlockType):
            return None
        block, index = args
        indices = items_of(index)
        fits = len(indices) == len(block.shape) and all(isinstance(one, types.Integer) for one in indices)
        return signature(block.stencil.cell, block, index) if fits else None

    def get_impl_key(self, sig: Any) -> Any:
        return "block.getitem"


@lower_builtin("block.getitem", BlockType, types.Any)
def _item(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    block, index = sig.args
    values = cgutils.unpack_tuple(builder, args[1]) if isinstance(index, types.BaseTuple) else [args[1]]
    offset = []
    for value, given, count in zip(values, items_of(index), block.shape, strict=True):
        place, size = context.cast(builder, value, given, types.intp), context.get_constant(types.intp, count)
        zero = context.get_constant(types.intp, 0)
        place = builder.select(builder.icmp_signed("<", place, zero), builder.add(place, size), place)
        with cgutils.if_unlikely(builder, builder.icmp_unsigned(">=", place, size)):
            context.call_conv.return_user_exc(
                builder, IndexError, (f"an index is outside of a block of {count} cells",)
            )
        offset.append(place)
    members = proxy(context, builder, block.stencil, args[0])
    return load(context, builder, block.stencil.cell, move(context, builder, block.stencil, members, offset))


def _teach_method(name: str) -> None:
    """Teach numba `block.sum()` or another that makes one value of a block."""

    def resolve(self: Any, block: BlockType, args: Any, kws: Any) -> Any:
        return None if args or kws else signature(_RESULTS[name](block), recvr=block)

    setattr(_BlockAttributes, f"resolve_{name}", bound_function(f"block.{name}")(resolve))

    @lower_builtin(f"block.{name}", BlockType)
    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        block, cell = sig.args[0], sig.return_type
        result = _reduce(context, builder, block, args[0], _UFUNCS[name], cell)
        if name != "mean":
            return result
        count = context.get_constant(types.int64, prod(block.shape))
        loop = ufunc_loop(np.true_divide, [cell.np_dtype, int])
        return lower_ufunc(context, builder, np.true_divide, loop, [cell, types.int64], [result, count])


for _name in _RESULTS:
    _teach_method(_name)
