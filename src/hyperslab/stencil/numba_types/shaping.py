"""Two forms of Python that numba has no types for, made into those that it has, before types are found.

The ranges of `s.block((-1, 2), (0, 3))` become literals, and a list that is returned, a vector for each cell, becomes a
tuple within a tuple.
"""

# mypy: allow-untyped-calls, allow-untyped-decorators
from typing import Any

import numpy as np
from numba.core import ir
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import FunctionPass, register_pass
from numba.core.errors import ConstantInferenceError
from numba.core.untyped_passes import IRProcessing

from hyperslab.stencil.numba_types.cell_functions import STRONG_NUMBERS

__all__ = ["StencilCompiler"]

_STRONG_NAMES = {kind.__name__: function for kind, function in STRONG_NUMBERS.items()}


@register_pass(mutates_CFG=False, analysis_only=False)
class _Shaping(FunctionPass):
    _name = "hyperslab_stencil_shaping"

    def __init__(self) -> None:
        FunctionPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        """Rewrite the code of one function."""
        code = state.func_ir
        changed = False
        for block in code.blocks.values():
            for statement in list(block.body):
                if isinstance(statement, ir.Assign) and isinstance(statement.value, ir.Expr):
                    changed |= _spread_block(code, block, statement) or _strengthen(code, statement)
                elif isinstance(statement, ir.Return):
                    changed |= _shape_return(code, block, statement)
        return changed


class StencilCompiler(CompilerBase):
    """numba's own compiler, and the rewriting of this module."""

    def define_pipelines(self) -> list[Any]:
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.add_pass_after(_Shaping, IRProcessing)
        passes.finalize()
        return [passes]


def _definition(code: Any, variable: Any) -> Any:
    """Return what a variable is, if it is one thing; names that only pass it on are looked through."""
    try:
        found = code.get_definition(variable)
    except KeyError:
        return None
    if isinstance(found, ir.Expr) and found.op == "cast":
        return _definition(code, found.value)
    return found


def _is(found: Any, op: str) -> bool:
    return isinstance(found, ir.Expr) and found.op == op


def _spread_block(code: Any, block: Any, statement: Any) -> bool:
    """Make `s.block((a, b), (c, d))` with constants a call with four of them."""
    call = statement.value
    if call.op != "call" or call.kws or call.vararg:
        return False
    method = _definition(code, call.func)
    if not _is(method, "getattr") or method.attr != "block":
        return False
    try:
        ranges = [code.infer_constant(argument) for argument in call.args]
    except ConstantInferenceError:
        return False
    if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in ranges):
        return False
    spread = []
    for number in (number for pair in ranges for number in pair):
        variable = block.scope.redefine("hyperslab_bound", loc=statement.loc)
        constant = ir.Assign(ir.Const(number, statement.loc), variable, statement.loc)
        block.body.insert(block.body.index(statement), constant)
        code._definitions[variable.name].append(constant.value)
        spread.append(variable)
    call.args = tuple(spread)
    return True


def _strengthen(code: Any, statement: Any) -> bool:
    """Make `np.float32` a function whose result promotes as NumPy's scalars do."""
    value = statement.value
    if value.op != "getattr" or value.attr not in _STRONG_NAMES:
        return False
    owner = _definition(code, value.value)
    if not isinstance(owner, ir.Global | ir.FreeVar) or owner.value is not np:
        return False
    statement.value = ir.Global(value.attr, _STRONG_NAMES[value.attr], statement.loc)
    return True


def _shape_return(code: Any, block: Any, statement: Any) -> bool:
    """Make a list that is returned a tuple, in a tuple of one if it is all that is returned."""
    returned = _definition(code, statement.value)
    if _is(returned, "build_tuple"):
        return any([_as_tuple(code, _definition(code, item)) for item in returned.items])
    if not _as_tuple(code, returned):
        return False
    variable = block.scope.redefine("hyperslab_outputs", loc=statement.loc)
    outputs = ir.Assign(ir.Expr.build_tuple([statement.value], statement.loc), variable, statement.loc)
    block.body.insert(block.body.index(statement), outputs)
    code._definitions[variable.name].append(outputs.value)
    statement.value = variable
    return True


def _as_tuple(code: Any, found: Any) -> bool:
    """Make the expression of a list, or of `np.array` of one, that of a tuple."""
    if _is(found, "call") and len(found.args) == 1 and not found.kws and _is_array(code, found.func):
        inner = _definition(code, found.args[0])
        if not _as_tuple(code, inner):
            return False
        found.op, found._kws = "build_tuple", {"items": list(inner.items)}
        return True
    if not _is(found, "build_list"):
        return False
    found.op = "build_tuple"
    return True


def _is_array(code: Any, function: Any) -> bool:
    """Say whether a variable is `np.array`."""
    found = _definition(code, function)
    if isinstance(found, ir.Global | ir.FreeVar):
        return found.value is np.array
    if not _is(found, "getattr") or found.attr != "array":
        return False
    owner = _definition(code, found.value)
    return isinstance(owner, ir.Global | ir.FreeVar) and owner.value is np
