"""Functions of cells that are not ufuncs: conversions, `math`, `max` and `min`, `np.where`, NumPy's number classes."""

# mypy: allow-untyped-calls, allow-untyped-decorators
import builtins
import math
import operator
from typing import Any

import numpy as np
from numba import types
from numba.core.typing.templates import AbstractTemplate, AttributeTemplate, infer_getattr, infer_global, signature
from numba.extending import lower_builtin, lower_getattr

from hyperslab.stencil.numba_types.cell import (
    CellType,
    Key,
    cast_to,
    check_literals,
    fit_to,
    kind_of_type,
    lower_ufunc,
    own_code,
    teach,
    ufunc_loop,
)
from hyperslab.stencil.results import joined

__all__ = ["STRONG_NUMBERS"]

_MATH = (
    math.sqrt, math.exp, math.expm1, math.log, math.log1p, math.log10, math.sin, math.cos, math.tan, math.asin,
    math.acos, math.atan, math.sinh, math.cosh, math.tanh, math.asinh, math.acosh, math.atanh, math.fabs, math.erf,
    math.erfc, math.gamma, math.lgamma, math.degrees, math.radians, math.atan2, math.hypot, math.pow,
)  # fmt: skip
_NUMBERS = (
    np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64, np.float32, np.float64,
    np.complex64, np.complex128,
)  # fmt: skip


def _teach_conversion(function: Any, scalar: Any) -> None:
    def typing(*args: Any) -> Any:
        loses = len(args) == 1 and _is_complex(args[0]) and scalar in (types.int64, types.float64)
        return scalar if len(args) == 1 and not loses else None

    def lowering(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return cast_to(context, builder, args[0], sig.args[0], scalar)

    teach(function, typing, lowering)


_teach_conversion(int, types.int64)
_teach_conversion(float, types.float64)
_teach_conversion(complex, types.complex128)
_teach_conversion(bool, types.boolean)


def _teach_not() -> None:
    def lowering(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.not_(cast_to(context, builder, args[0], sig.args[0], types.boolean))

    teach(operator.not_, lambda _: types.boolean, lowering)


def _teach_math(function: Any) -> None:
    """`math.sqrt` takes a float and gives one of Python's, whatever the cell is."""

    def typing(*args: Any) -> Any:
        real = all(kind_of_type(arg) is not None and not _is_complex(arg) for arg in args)
        return types.float64 if real else None

    def lowering(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        code = own_code(context, function, [types.float64] * len(args))
        return code(
            builder, [cast_to(context, builder, *pair, types.float64) for pair in zip(args, sig.args, strict=True)]
        )

    teach(function, typing, lowering)


def _is_complex(given: Any) -> bool:
    return isinstance(given.scalar if isinstance(given, CellType) else given, types.Complex)


def _teach_choice(function: Any, compare: np.ufunc) -> None:
    """`max(a, b)` gives the first of the greatest, as Python does; numbers of different types meet in one."""

    def typing(*args: Any) -> Any:
        kinds = [kind_of_type(arg) for arg in args]
        if any(kind is None for kind in kinds) or len(kinds) < 2 or any(map(_is_complex, args)):
            return None
        cell = CellType(joined(kinds))
        check_literals(args, [cell.np_dtype] * len(args))
        return cell

    def lowering(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        cell = sig.return_type
        loop = ufunc_loop(compare, [cell.np_dtype] * 2)
        best, *others = [fit_to(context, builder, *pair, cell) for pair in zip(args, sig.args, strict=True)]
        for other in others:
            better = lower_ufunc(context, builder, compare, loop, [cell, cell], [other, best])
            best = builder.select(better, other, best)
        return best

    teach(function, typing, lowering)


def _teach_where() -> None:
    def typing(*args: Any) -> Any:
        kinds = [kind_of_type(arg) for arg in args]
        if len(kinds) != 3 or any(kind is None for kind in kinds):
            return None
        return CellType(joined(kinds[1:]))

    def lowering(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        chosen = cast_to(context, builder, args[0], sig.args[0], types.boolean)
        # As NumPy does here, alone, integers of Python's wrap.
        values = [cast_to(context, builder, args[i], sig.args[i], sig.return_type.scalar) for i in (1, 2)]
        return builder.select(chosen, *values)

    teach(np.where, typing, lowering)


_teach_not()
_teach_where()
_teach_choice(builtins.max, np.greater)
_teach_choice(builtins.min, np.less)
for _function in _MATH:
    _teach_math(_function)


@infer_getattr
class _CellAttributes(AttributeTemplate):
    key = CellType

    def resolve_real(self, cell: CellType) -> CellType:
        return CellType(np.zeros(0, cell.np_dtype).real.dtype)

    resolve_imag = resolve_real


@lower_getattr(CellType, "real")
def _real(context: Any, builder: Any, cell: CellType, value: Any) -> Any:
    return context.make_complex(builder, cell.scalar, value).real if _is_complex(cell) else value


@lower_getattr(CellType, "imag")
def _imag(context: Any, builder: Any, cell: CellType, value: Any) -> Any:
    if _is_complex(cell):
        return context.make_complex(builder, cell.scalar, value).imag
    return context.get_constant(cell.scalar, 0)


def strong_number(dtype: np.dtype) -> Any:
    """Return a function that numba compiles as NumPy's class of numbers: `np.float32(x)` is a cell, not weak."""

    def number(value: Any) -> Any:
        return dtype.type(value)

    key = Key()

    class Template(AbstractTemplate):
        key = number

        def generic(self, args: Any, kws: Any) -> Any:
            if kws or len(args) != 1 or kind_of_type(args[0]) is None:
                return None
            return signature(CellType(dtype), types.unliteral(args[0]))

        def get_impl_key(self, sig: Any) -> Any:
            return key

    def lowering(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return fit_to(context, builder, args[0], sig.args[0], sig.return_type)

    infer_global(number, types.Function(Template))
    lower_builtin(key, types.VarArg(types.Any))(lowering)
    return number


STRONG_NUMBERS = {kind: strong_number(np.dtype(kind)) for kind in _NUMBERS}
