"""When two functions are the same: their code, and the values of every constant that it uses.

A kernel is kept under this, so that a lambda written in a loop is compiled once, and one whose closure has changed
is compiled anew.
"""

import cmath
import math
import operator
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

__all__ = ["constants_of", "identity_of"]


_STEADY_MODULES = (np, math, cmath, operator)


class _UnknownError(Exception):
    """A function uses something whose value cannot be told apart."""


def identity_of(function: Callable[..., Any]) -> Any:
    """Return a hashable value that is equal for functions that do the same; None if that cannot be told.

    >>> makers = [lambda s, w=w: w * s(0) for w in (1, 1, 2)]
    >>> identity_of(makers[0]) == identity_of(makers[1]), identity_of(makers[0]) == identity_of(makers[2])
    (True, False)
    """
    try:
        return _function(function, set())
    except _UnknownError:
        return None


def constants_of(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the names and values that a function uses from around it: its closure, then its globals."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        yield name, cell.cell_contents
    for name in _names(function.__code__):
        if name in function.__globals__:
            yield name, function.__globals__[name]


def _names(code: types.CodeType) -> Iterator[str]:
    """Yield the global names in a code object and in those nested in it (comprehensions, inner functions)."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _function(function: Any, above: set[int]) -> Any:
    plain = getattr(function, "py_func", function)
    if not isinstance(plain, types.FunctionType) or id(plain) in above:
        raise _UnknownError
    defaults = tuple(_value(value, above) for value in plain.__defaults__ or ())
    named = tuple((name, _value(value, above)) for name, value in sorted((plain.__kwdefaults__ or {}).items()))
    inner = above | {id(plain)}
    constants = tuple((name, _value(value, inner)) for name, value in constants_of(plain))
    return plain.__code__, defaults, named, constants


def _value(value: Any, above: set[int]) -> Any:
    """Return what tells a constant from others: 1 is not 1.0, and 0.0 is not -0.0."""
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return type(value), repr(value)
    if isinstance(value, np.generic | np.ndarray) and not value.dtype.hasobject:
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, tuple):
        return tuple(_value(item, above) for item in value)
    # What other modules hold may change; their functions cannot be told apart by the module's name.
    if isinstance(value, types.BuiltinFunctionType | np.ufunc | type) or any(
        value is module for module in _STEADY_MODULES
    ):
        return id(value)
    if isinstance(value, types.FunctionType) and value.__module__.partition(".")[0] == "numpy":
        return id(value)
    return _function(value, above)
