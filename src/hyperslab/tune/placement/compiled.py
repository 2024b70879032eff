"""The inner loops are compiled by numba, which is asked for here alone: when a module with such a loop is imported."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from hyperslab.errors import InvalidInputError

__all__ = ["compiled"]

P = ParamSpec("P")
R = TypeVar("R")

try:
    import numba
except ImportError as error:
    raise InvalidInputError(
        "planning where small arrays are placed needs numba: install the extra hyperslab[collections]"
    ) from error


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function at its first call; what the compiler made is kept on disk for the next process."""
    made: Callable[P, R] = numba.njit(cache=True)(function)
    return made
