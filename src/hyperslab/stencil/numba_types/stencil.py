"""A cell with its neighbours, and a block of them, as numba sees them.

A stencil is a raw pointer to its cell with the distances between neighbours along each axis: no array, whose references
would be counted, and no index, which would be checked. Typing sees every call `s(1, 0)`, in all branches: literal
offsets are noted and need no check later. Computed ones are compared with the reach when the code runs; what lies
outside is noted beside the buffers and answered with the cell itself, so that nothing outside a buffer is ever read.
"""

# mypy: allow-untyped-calls, allow-untyped-decorators
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import AbstractTemplate, AttributeTemplate, infer_getattr, signature
from numba.extending import lower_builtin, models, register_model

from hyperslab.stencil.numba_types.cell import CellType, cast_to
from hyperslab.stencil.reach import Reach

__all__ = ["BlockType", "Discovery", "StencilType", "items_of", "load", "move", "proxy", "store"]

_numbers = itertools.count()


class Discovery:
    """What typing and lowering a function found out: the literal offsets, and the bounds its checks were given."""

    def __init__(self, least: Reach, strict: bool) -> None:
        self.least, self.strict = least, strict
        self.number = next(_numbers)
        self.found = Reach.zero(least.ndim)
        self.checked: set[Reach] = set()

    def note(self, offset: Sequence[int]) -> None:
        """Note a literal offset."""
        self.found = self.found.union(Reach.of_offsets([offset], self.least.ndim))

    @property
    def reach(self) -> Reach:
        """The reach that is known by now."""
        return self.least if self.strict else self.least.union(self.found)


class StencilType(types.Callable):
    """The argument number `place` of a function that is being compiled."""

    def __init__(self, dtype: np.dtype, discovery: Discovery, place: int) -> None:
        self.cell = CellType(dtype)
        self.itemsize, self.ndim = dtype.itemsize, discovery.least.ndim
        self.discovery, self.place = discovery, place
        super().__init__(f"Stencil({dtype},{discovery.number},{place})")

    def get_call_type(self, context: Any, args: Any, kws: Any) -> Any:
        """Type `s(i, j)`; numba asks for every call, in all branches."""
        if kws or len(args) != self.ndim or not all(_is_integer(arg) for arg in args):
            return None
        if all(isinstance(arg, types.IntegerLiteral) for arg in args):
            self.discovery.note([arg.literal_value for arg in args])
        return signature(self.cell, *args, recvr=self)

    def get_call_signatures(self) -> Any:
        return (), True

    def get_impl_key(self, sig: Any) -> Any:
        return StencilType


class BlockType(types.Type):
    """Neighbours at the offsets from `start` on; its pointer is at the first of them."""

    def __init__(self, stencil: StencilType, ranges: tuple[tuple[int, int], ...]) -> None:
        self.stencil, self.ranges = stencil, ranges
        self.shape = tuple(b - a for a, b in ranges)
        super().__init__(f"Block({stencil.name},{ranges})")


def items_of(given: Any) -> list[Any]:
    """Return the types in a tuple's type, or the type alone."""
    return list(given) if isinstance(given, types.BaseTuple) else [given]  # type: ignore[call-overload]


def _is_integer(given: Any) -> bool:
    return isinstance(given, types.Integer) or (isinstance(given, CellType) and given.np_dtype.kind in "iu")


@register_model(StencilType)
class _StencilModel(models.StructModel):
    def __init__(self, manager: Any, stencil: StencilType) -> None:
        members = [("cell", types.voidptr), ("notes", types.CPointer(types.int64))]
        super().__init__(manager, stencil, members + [(f"step{d}", types.intp) for d in range(stencil.ndim - 1)])


@register_model(BlockType)
class _BlockModel(_StencilModel):
    def __init__(self, manager: Any, block: BlockType) -> None:
        super().__init__(manager, block.stencil)


def proxy(context: Any, builder: Any, stencil: StencilType, value: Any = None) -> Any:
    """Return a stencil's members by name."""
    return cgutils.create_struct_proxy(stencil)(context, builder, value=value)


def move(context: Any, builder: Any, stencil: StencilType, members: Any, offset: Sequence[Any]) -> Any:
    """Return the address of the neighbour at `offset`."""
    distance = builder.mul(offset[-1], _intp(context, stencil.itemsize), flags=["nsw"])
    for axis, step in enumerate(offset[:-1]):
        along = builder.mul(step, getattr(members, f"step{axis}"), flags=["nsw"])
        distance = builder.add(distance, along, flags=["nsw"])
    return builder.gep(members.cell, [distance], inbounds=True)


def load(context: Any, builder: Any, cell: CellType, address: Any) -> Any:
    """Load a cell's value; the compiler is told that no output ever lies there."""
    data = context.get_data_type(cell.scalar)
    if isinstance(cell.scalar, types.Complex):
        number = context.make_complex(builder, cell.scalar)
        part = context.get_data_type(cell.underlying_float)
        for place, name in enumerate(("real", "imag")):
            pointer = builder.gep(builder.bitcast(address, part.as_pointer()), [_intp(context, place)], inbounds=True)
            setattr(number, name, _apart(builder, builder.load(pointer)))
        return number._getvalue()
    value = _apart(builder, builder.load(builder.bitcast(address, data.as_pointer())))
    return builder.icmp_unsigned("!=", value, data(0)) if isinstance(cell.scalar, types.Boolean) else value


def store(context: Any, builder: Any, cell: CellType, value: Any, address: Any) -> None:
    """Store a cell's value in an output."""
    data = context.get_data_type(cell.scalar)
    if isinstance(cell.scalar, types.Complex):
        number = context.make_complex(builder, cell.scalar, value)
        part = context.get_data_type(cell.underlying_float)
        for place, name in enumerate(("real", "imag")):
            pointer = builder.gep(builder.bitcast(address, part.as_pointer()), [_intp(context, place)], inbounds=True)
            _apart(builder, builder.store(getattr(number, name), pointer), is_output=True)
        return
    if isinstance(cell.scalar, types.Boolean):
        value = builder.zext(value, data)
    _apart(builder, builder.store(value, builder.bitcast(address, data.as_pointer())), is_output=True)


def _apart(builder: Any, instruction: Any, is_output: bool = False) -> Any:
    """Mark an access, so that inputs and outputs are known not to overlap: else long loops do not vectorise."""
    module = builder.module
    domain = module.add_metadata(["hyperslab.stencil"])
    scope = module.add_metadata(["hyperslab.stencil.output", domain])
    instruction.set_metadata("alias.scope" if is_output else "noalias", module.add_metadata([scope]))
    return instruction


def _intp(context: Any, number: int) -> Any:
    return context.get_constant(types.intp, number)


@lower_builtin(StencilType, StencilType, types.VarArg(types.Any))
def _neighbour(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    stencil, *given = sig.args
    members = proxy(context, builder, stencil, args[0])
    offset = [cast_to(context, builder, *pair, types.intp) for pair in zip(args[1:], given, strict=True)]
    address = move(context, builder, stencil, members, offset)
    reach = stencil.discovery.reach
    literal = all(isinstance(arg, types.IntegerLiteral) for arg in given)
    if not literal or not reach.holds([arg.literal_value for arg in given]):
        stencil.discovery.checked.add(reach)
        outside = _outside(context, builder, offset, reach)
        with cgutils.if_unlikely(builder, outside):
            _take_note(context, builder, stencil, members, offset)
        address = builder.select(outside, members.cell, address)
    return load(context, builder, stencil.cell, address)


def _outside(context: Any, builder: Any, offset: Sequence[Any], reach: Reach) -> Any:
    """Say whether an offset lies beyond the reach: constants, so that it folds away where loops are unrolled."""
    outside = cgutils.false_bit
    for step, before, after in zip(offset, reach.before, reach.after, strict=True):
        from_first = builder.add(step, _intp(context, before))
        beyond = builder.icmp_unsigned(">", from_first, _intp(context, before + after))
        outside = builder.or_(outside, beyond)
    return outside


def _take_note(context: Any, builder: Any, stencil: StencilType, members: Any, offset: Sequence[Any]) -> None:
    """Note how far a read went and, for the first one, at which cell of which input.

    The notes: cells before and after on each axis, then 1 + the input's place, then the cell's address.
    """

    def note(place: int) -> Any:
        return builder.gep(members.notes, [_intp(context, place)])

    for axis, step in enumerate(offset):
        for place, far in ((axis, builder.neg(step)), (stencil.ndim + axis, step)):
            known = builder.load(note(place))
            builder.store(builder.select(builder.icmp_signed(">", far, known), far, known), note(place))
    who, where = note(2 * stencil.ndim), note(2 * stencil.ndim + 1)
    with builder.if_then(builder.icmp_signed("==", builder.load(who), _intp(context, 0))):
        builder.store(_intp(context, stencil.place + 1), who)
        builder.store(builder.ptrtoint(members.cell, cgutils.intp_t), where)


class _BlockTemplate(AbstractTemplate):
    """Types `s.block(...)`, whose ranges have been spread into literals, two for each axis."""

    key = "stencil.block"
    prefer_literal = True
    this: StencilType

    def generic(self, args: Any, kws: Any) -> Any:
        stencil = self.this
        if kws or len(args) != 2 * stencil.ndim or not all(isinstance(arg, types.IntegerLiteral) for arg in args):
            return None
        numbers = [arg.literal_value for arg in args]
        ranges = tuple(zip(numbers[::2], numbers[1::2], strict=True))
        first, last = [a for a, _ in ranges], [b - 1 for _, b in ranges]
        if any(a > b for a, b in zip(first, last, strict=True)):
            return None
        stencil.discovery.note(first)
        stencil.discovery.note(last)
        if not (stencil.discovery.reach.holds(first) and stencil.discovery.reach.holds(last)):
            return None
        return signature(BlockType(stencil, ranges), *args, recvr=stencil)


@infer_getattr
class _StencilAttributes(AttributeTemplate):
    key = StencilType

    def resolve_block(self, stencil: StencilType) -> Any:
        return types.BoundFunction(_BlockTemplate, stencil)


@lower_builtin("stencil.block", StencilType, types.VarArg(types.Any))
def _block(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    stencil, block = sig.args[0], sig.return_type
    members = proxy(context, builder, stencil, args[0])
    members.cell = move(context, builder, stencil, members, [_intp(context, a) for a, _ in block.ranges])
    return members._getvalue()
