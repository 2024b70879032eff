"""The value of a cell as numba sees it: a number that promotes as NumPy's do.

numba's own float32 times a constant is a float64, and its uint8 plus a uint8 an int64. A cell read through a stencil is
an array's value, so it is given a type of its own. Plain numbers of numba stand for Python's: they are weak. Every
operator and function is the loop of the NumPy ufunc that NumPy would choose.
"""

# mypy: allow-untyped-calls, allow-untyped-decorators
import builtins
import operator
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numba.core.errors import NumbaTypeError
from numba.core.imputils import lower_cast, lower_constant
from numba.core.typeconv.castgraph import Conversion
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import lower_builtin, models, register_model, typeof_impl
from numba.np import ufunc_db
from numba.np.numpy_support import from_dtype

from hyperslab.stencil.results import joined

__all__ = [
    "CellType",
    "Key",
    "Strong",
    "Table",
    "cast_to",
    "check_literals",
    "fit_to",
    "kind_of_type",
    "lower_ufunc",
    "own_code",
    "teach",
    "ufunc_loop",
]

_BINARY: dict[Any, Any] = {
    operator.add: np.add,
    operator.sub: np.subtract,
    operator.mul: np.multiply,
    operator.truediv: np.true_divide,
    operator.floordiv: np.floor_divide,
    operator.mod: np.remainder,
    operator.pow: np.power,
    operator.and_: np.bitwise_and,
    operator.or_: np.bitwise_or,
    operator.xor: np.bitwise_xor,
    operator.lshift: np.left_shift,
    operator.rshift: np.right_shift,
    operator.iadd: np.add,
    operator.isub: np.subtract,
    operator.imul: np.multiply,
    operator.itruediv: np.true_divide,
    operator.ifloordiv: np.floor_divide,
    operator.imod: np.remainder,
    operator.ipow: np.power,
    operator.iand: np.bitwise_and,
    operator.ior: np.bitwise_or,
    operator.ixor: np.bitwise_xor,
    operator.ilshift: np.left_shift,
    operator.irshift: np.right_shift,
    operator.lt: np.less,
    operator.le: np.less_equal,
    operator.eq: np.equal,
    operator.ne: np.not_equal,
    operator.gt: np.greater,
    operator.ge: np.greater_equal,
}
_UNARY: dict[Any, Any] = {
    operator.neg: np.negative,
    operator.pos: np.positive,
    operator.invert: np.invert,
    builtins.abs: np.absolute,
}
_COMPARISONS: dict[Any, Any] = {
    np.less: operator.lt,
    np.less_equal: operator.le,
    np.equal: operator.eq,
    np.not_equal: operator.ne,
    np.greater: operator.gt,
    np.greater_equal: operator.ge,
}


_DIVISIONS = (np.floor_divide, np.remainder, np.fmod)


class CellType(types.Type):
    """A value of an array, of one of NumPy's types."""

    def __init__(self, dtype: np.dtype) -> None:
        self.np_dtype = dtype
        self.scalar = from_dtype(dtype)
        if isinstance(self.scalar, types.Complex):
            self.underlying_float = self.scalar.underlying_float
        super().__init__(f"Cell({dtype})")

    def unify(self, context: Any, other: Any) -> Any:
        """Return the type of a variable that is this in one branch and `other` in another."""
        kind = kind_of_type(other)
        return None if kind is None else CellType(joined([self.np_dtype, kind]))

    def can_convert_from(self, context: Any, other: Any) -> Any:
        return None if kind_of_type(other) is None else Conversion.unsafe


class Strong:
    """A NumPy scalar among a function's constants: it promotes as an array does, not as a number of Python's."""

    def __init__(self, value: np.generic) -> None:
        self.value = value


class Table(np.ndarray):
    """An array among a function's constants; its values are cells."""


def _cell_model(manager: Any, cell: CellType) -> Any:
    """Lay out a cell as numba lays out the plain number."""
    if isinstance(cell.scalar, types.Boolean):
        return models.BooleanModel(manager, cell)
    if isinstance(cell.scalar, types.Complex):
        return models.ComplexModel(manager, cell)
    return models.PrimitiveModel(manager, cell, manager.lookup(cell.scalar).get_value_type())


register_model(CellType)(_cell_model)


@typeof_impl.register(Strong)
def _type_of_strong(strong: Strong, _: Any) -> CellType:
    return CellType(strong.value.dtype)


@typeof_impl.register(Table)
def _type_of_table(table: Table, _: Any) -> Any:
    return types.Array(CellType(table.dtype), table.ndim, "C", readonly=True)


@lower_constant(CellType)
def _constant(context: Any, builder: Any, cell: CellType, strong: Strong) -> Any:
    return context.get_constant_generic(builder, cell.scalar, strong.value.item())


def kind_of_type(given: Any) -> Any:
    """Return the kind of a numba type as promotion sees it: a dtype, or int, float or complex; None if not a number."""
    if isinstance(given, CellType):
        return given.np_dtype
    if isinstance(given, types.Boolean):
        return np.dtype(bool)
    for kind, python in ((types.Integer, int), (types.Float, float), (types.Complex, complex)):
        if isinstance(given, kind):
            return python
    return None


def scalar_of(given: Any) -> Any:
    """Return the plain type of numba in which a value is laid out."""
    return given.scalar if isinstance(given, CellType) else types.unliteral(given)


def cast_to(context: Any, builder: Any, value: Any, given: Any, scalar: Any) -> Any:
    """Cast a cell or a plain number to a plain type; complex numbers lose their imaginary part."""
    have = scalar_of(given)
    if isinstance(have, types.Complex) and not isinstance(scalar, types.Complex | types.Boolean):
        value = context.make_complex(builder, have, value).real
        have = have.underlying_float
    return context.cast(builder, value, have, scalar)


def fit_to(context: Any, builder: Any, value: Any, given: Any, cell: CellType) -> Any:
    """Cast a value to that of a cell; raise at run time, as NumPy does, if it is an integer that does not fit."""
    _check_number(context, builder, given, value, cell.np_dtype)
    return cast_to(context, builder, value, given, cell.scalar)


@lower_cast(CellType, CellType)
@lower_cast(types.Number, CellType)
@lower_cast(types.Boolean, CellType)
def _cast(context: Any, builder: Any, have: Any, want: CellType, value: Any) -> Any:
    return fit_to(context, builder, value, have, want)


def ufunc_loop(ufunc: np.ufunc, kinds: Sequence[Any]) -> tuple[np.dtype, ...]:
    """Return the types, inputs then output, of the loop that NumPy runs for operands of these kinds."""
    if ufunc.nout != 1 or ufunc.nin != len(kinds):
        raise NumbaTypeError(f"{ufunc.__name__} is not compiled for cells")
    try:
        loop = tuple(ufunc.resolve_dtypes((*kinds, None)))
    except TypeError as error:
        raise NumbaTypeError(str(error)) from error
    if _loop_name(loop) not in ufunc_db.get_ufunc_info(ufunc):
        raise NumbaTypeError(f"{ufunc.__name__} is not compiled for {loop}")
    return loop


def _loop_name(loop: tuple[np.dtype, ...]) -> str:
    return "".join(dtype.char for dtype in loop[:-1]) + "->" + loop[-1].char


def lower_ufunc(context: Any, builder: Any, ufunc: np.ufunc, loop: Any, given: Any, values: Any) -> Any:
    scalars = [from_dtype(dtype) for dtype in loop]
    operands = zip(values, given, scalars, strict=False)
    numbers = [cast_to(context, builder, value, kind, scalar) for value, kind, scalar in operands]
    impl = ufunc_db.get_ufunc_info(ufunc)[_loop_name(loop)]
    sig = signature(scalars[-1], *scalars[:-1])
    if ufunc in _DIVISIONS and loop[-1].kind == "i":
        code = partial(impl, context, builder, sig)
        return _divide(builder, numbers, code, is_quotient=ufunc is np.floor_divide)
    if ufunc is np.sign and loop[-1].kind == "u":  # which numba takes for signed
        return builder.zext(builder.icmp_unsigned("!=", numbers[0], numbers[0].type(0)), numbers[0].type)
    return impl(context, builder, sig, numbers)


def _divide(builder: Any, numbers: Any, code: Any, *, is_quotient: bool) -> Any:
    """Divide signed integers; the least one by -1 ends the process if it is left to the processor."""
    number, by = numbers
    by_minus_one = builder.icmp_signed("==", by, by.type(-1))
    result = code([number, builder.select(by_minus_one, by.type(1), by)])
    return builder.select(by_minus_one, builder.neg(number) if is_quotient else number.type(0), result)


class Key:
    """What numba finds the code of a function on cells by."""


def teach(function: Any, typing: Any, lowering: Any) -> None:
    """Teach numba a function for the case that one of its operands is a cell: its type, and its code."""
    key = Key()

    class Template(AbstractTemplate):
        prefer_literal = True

        def generic(self, args: Any, kws: Any) -> Any:
            if kws or not any(isinstance(arg, CellType) for arg in args):
                return None
            result = typing(*args)
            return None if result is None else signature(result, *args)

        def get_impl_key(self, sig: Any) -> Any:
            return key

    infer_global(function)(Template)
    lower_builtin(key, types.VarArg(types.Any))(lowering)


def _teach_ufunc(function: Any, ufunc: np.ufunc) -> None:
    def loop_of(args: Any) -> Any:
        kinds = [kind_of_type(arg) for arg in args]
        if any(kind is None for kind in kinds):
            return None
        loop = ufunc_loop(ufunc, kinds)
        if not _compares_with_int(ufunc, kinds):
            check_literals(args, loop)
        return loop

    def typing(*args: Any) -> Any:
        loop = loop_of(args)
        return loop and CellType(loop[-1])

    def lowering(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        loop = loop_of(sig.args)
        if _compares_with_int(ufunc, [kind_of_type(arg) for arg in sig.args]):
            return _compare_with_int(context, builder, _COMPARISONS[ufunc], sig.args, args)
        if ufunc is np.power and getattr(sig.args[1], "literal_value", None) == 2:
            square = ufunc_loop(np.square, [loop[-1]])
            return lower_ufunc(context, builder, np.square, square, sig.args[:1], args[:1])
        for arg, value, dtype in zip(sig.args, args, loop, strict=False):
            _check_number(context, builder, arg, value, dtype)
        if ufunc is np.power:
            _check_power(context, builder, sig.args[1], args[1], loop)
        return lower_ufunc(context, builder, ufunc, loop, sig.args, args)

    teach(function, typing, lowering)


def check_literals(args: Any, loop: Any) -> None:
    """Refuse what NumPy refuses: `300 * s(0)` of a uint8."""
    for arg, dtype in zip(args, loop, strict=False):
        if isinstance(arg, types.IntegerLiteral) and dtype.kind in "iu":
            limits = np.iinfo(dtype)
            if not limits.min <= arg.literal_value <= limits.max:
                raise NumbaTypeError(f"{arg.literal_value} is out of bounds for {dtype}")


def _check_number(context: Any, builder: Any, arg: Any, value: Any, dtype: np.dtype) -> None:
    """Raise at run time, as NumPy does, where an integer of Python's does not fit the cells that it meets."""
    if not isinstance(arg, types.Integer) or dtype.kind not in "iu" or scalar_of(arg) == from_dtype(dtype):
        return
    signed: bool = scalar_of(arg).signed
    limits, plain = np.iinfo(dtype), types.int64 if signed else types.uint64
    wide, high = context.cast(builder, value, arg, plain), min(int(limits.max), int(np.iinfo(str(plain)).max))
    compare = builder.icmp_signed if signed else builder.icmp_unsigned
    outside = compare(">", wide, context.get_constant(plain, high))
    if signed:
        outside = builder.or_(outside, compare("<", wide, context.get_constant(plain, int(limits.min))))
    with cgutils.if_unlikely(builder, outside):
        text = f"a Python integer out of bounds for {dtype}"
        context.call_conv.return_user_exc(builder, OverflowError, (text,))


def _check_power(context: Any, builder: Any, exponent: Any, value: Any, loop: Any) -> None:
    """Raise at run time, as NumPy does, where an integer is raised to a negative one."""
    if loop[-1].kind not in "iu" or kind_of_type(exponent) in (None, np.dtype(bool)):
        return
    if not scalar_of(exponent).signed:
        return
    with cgutils.if_unlikely(builder, builder.icmp_signed("<", value, value.type(0))):
        text = "Integers to negative integer powers are not allowed."
        context.call_conv.return_user_exc(builder, ValueError, (text,))


def _compares_with_int(ufunc: np.ufunc, kinds: Sequence[Any]) -> bool:
    """Say whether integers of an array are compared with one of Python's, which may be any number."""
    if ufunc not in _COMPARISONS or all(kind is not int for kind in kinds):
        return False
    return any(isinstance(kind, np.dtype) and kind.kind in "iu" for kind in kinds)


def _compare_with_int(context: Any, builder: Any, compare: Any, given: Any, values: Any) -> Any:
    scalars = [scalar_of(arg) for arg in given]
    wide = [types.uint64 if scalar == types.uint64 else types.int64 for scalar in scalars]
    numbers = [context.cast(builder, *item) for item in zip(values, scalars, wide, strict=True)]
    return own_code(context, compare, wide)(builder, numbers)


def own_code(context: Any, function: Any, scalars: Sequence[Any]) -> Any:
    """Return numba's own code of a function of plain numbers; called with a builder and values."""
    kind = context.typing_context.resolve_value_type(function)
    return context.get_function(kind, context.typing_context.resolve_function_type(kind, tuple(scalars), {}))


for _function, _ufunc in (_BINARY | _UNARY | {ufunc: ufunc for ufunc in ufunc_db.get_ufuncs()}).items():
    _teach_ufunc(_function, _ufunc)
