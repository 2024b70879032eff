"""What a function returned: one value per cell or a tuple of them, each a scalar or a vector, with NumPy's types.

Numbers of Python's own are weak, as in NumPy 2: `0` beside a float32 is a float32, alone it is an int64.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hyperslab.errors import StencilError
from hyperslab.stencil.neighbours import Block

__all__ = ["Output", "joined", "kind_of", "outputs_of", "parts_of"]

# A cell's type as promotion sees it: a dtype, or one of Python's own types of numbers.
Kind = np.dtype | type


@dataclass(frozen=True, slots=True)
class Output:
    """One output: its dtype and what one cell of it holds, () for one value, (k,) for a vector."""

    dtype: np.dtype
    cell_shape: tuple[int, ...] = ()


def parts_of(result: Any) -> list[tuple[list[Any], tuple[int, ...]]]:
    """Return the outputs in what a function returned, each as its values in order and its cell's shape."""
    results = result if isinstance(result, tuple) else (result,)
    return [_values_of(one) for one in results]


def outputs_of(results: Iterable[Any]) -> tuple[Output, ...]:
    """Return the outputs of a function that returned these results for some cells.

    >>> outputs_of([(np.float32(1), [1, 2.0]), (0, [np.float32(3), 1])])
    (Output(dtype=dtype('float32'), cell_shape=()), Output(dtype=dtype('float32'), cell_shape=(2,)))
    """
    all_parts = [parts_of(result) for result in results]
    if any([not parts or not all([values for values, _ in parts]) for parts in all_parts]):
        raise StencilError("the function returned no value for a cell, expected a number, or at least one")
    shapes = {tuple(shape for _, shape in parts) for parts in all_parts}
    if len(shapes) != 1:
        raise StencilError(f"the function returns values of different shapes, {sorted(shapes)}; return one always")
    outputs = []
    for number, shape in enumerate(shapes.pop()):
        kinds = {kind_of(value) for parts in all_parts for value in parts[number][0]}
        outputs.append(Output(joined(kinds), shape))
    return tuple(outputs)


def kind_of(value: Any) -> Kind:
    """Return a value's type as promotion sees it."""
    if isinstance(value, bool):
        return np.dtype(bool)
    if isinstance(value, int | float | complex) and not isinstance(value, np.generic):
        return type(value)
    dtype = getattr(value, "dtype", None)
    if not isinstance(dtype, np.dtype) or dtype.hasobject:
        raise StencilError(f"the function returned a {type(value).__name__}, expected numbers; see what it returns")
    return dtype


def joined(kinds: Iterable[Kind]) -> np.dtype:
    """Return the dtype that holds values of all these kinds, by NumPy's rules of promotion."""
    return np.result_type(*(kind if isinstance(kind, np.dtype) else kind(0) for kind in kinds))


def _values_of(one: Any) -> tuple[list[Any], tuple[int, ...]]:
    if isinstance(one, Block):
        return one.cells, one.shape
    if isinstance(one, np.ndarray) and one.ndim:
        return list(one.ravel()), one.shape
    if isinstance(one, list | tuple):
        return list(one), (len(one),)
    return [one], ()
