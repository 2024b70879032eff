"""How loops over single cells are compiled, by numba, and the few instructions that it has no words for.

numba is imported with this module alone. A change here does not make what is kept on disk of other modules old: numba
looks at the file of the compiled function only.
"""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from hyperslab.errors import InvalidInputError

__all__ = ["HAS_CRC", "compiled", "crc32c_word", "entry_at", "word_at"]

P = ParamSpec("P")
R = TypeVar("R")

try:
    import numba
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic

    from hyperslab.layout.instructions import crc32c_word, has_crc32c
except ImportError as error:
    raise InvalidInputError("sparse tensors need numba: install the extra hyperslab[tensors]") from error


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function at its first call; what the compiler made is kept on disk for the next process."""
    made: Callable[P, R] = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    return made


def _word_at(context: Any, address: Any, at: Any) -> Any:
    """Return the eight bytes from one byte on, which need not be a multiple of eight; nobody looks if they are there.

    An address, not an array: calls with arrays count who refers to these, which takes longer than reading them.
    """

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.inttoptr(builder.add(*arguments), ir.IntType(64).as_pointer())
        return builder.load(place, align=1)

    return types.uint64(types.uint64, types.uint64), emit


def _entry_at(context: Any, address: Any, at: Any) -> Any:
    """Return a number of an array of 32-bit numbers; nobody looks if it is there."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        first = builder.inttoptr(arguments[0], ir.IntType(32).as_pointer())
        return builder.zext(builder.load(builder.gep(first, [arguments[1]])), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), emit


# Whether what is compiled may use `crc32c_word`.
HAS_CRC = has_crc32c()

word_at: Any = intrinsic(_word_at)
entry_at: Any = intrinsic(_entry_at)
