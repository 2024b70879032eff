"""A function compiled, on slices and cell by cell gives NumPy's numbers, of NumPy's types."""

import warnings
from math import prod

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import times
from support.stencils import expected

from hyperslab.errors import StencilError
from hyperslab.stencil import Boundaries, Reach
from hyperslab.stencil.memory import apply_in_memory

DTYPES = [
    "bool",
    "uint8",
    "int8",
    "int16",
    "uint32",
    "int64",
    "uint64",
    "float32",
    "float64",
    "complex64",
    "complex128",
]
CONSTANTS = {
    "half": np.float32(0.5),
    "third": np.float64(1 / 3),
    "small": np.int8(3),
    "big": np.uint16(40_000),
    "weights": np.array([0.25, 2.5], np.float32),
}
NUMBERS = ["2", "3", "0.25", "1.5", "half", "third", "small", "big", "weights[1]", "np.float32(2)", "np.int16(-5)"]
SIDES = st.sampled_from(["nearest", "reflect", "periodic", "shrink", 1])
# What keeps a function on slices from being compiled, and one that is compiled from running on slices.
WAYS = [("numba",), ("slices",), ("python",)]


def cells(names, ndim):
    """Strategy of texts such as `u(0, -2)`, and of the reach that holds all of them."""
    offsets = st.lists(st.integers(-2, 2), min_size=ndim, max_size=ndim)
    return st.builds(lambda name, offset: f"{name}({', '.join(map(str, offset))})", st.sampled_from(names), offsets)


def expressions(names, ndim):
    """Strategy of expressions without branches, of cells and numbers."""

    def wider(inner):
        operator = st.sampled_from(["+", "-", "*", "/", "//", "%", "<", "!=", "&", "|"])
        pair = st.builds(lambda a, op, b: f"({a} {op} {b})", inner, operator, inner | st.sampled_from(NUMBERS))
        turned = st.builds(lambda a, op, b: f"({a} {op} {b})", st.sampled_from(NUMBERS), operator, inner)
        one = st.builds(lambda f, a: f"{f}({a})", st.sampled_from(["abs", "-", "np.square", "np.isnan"]), inner)
        two = st.builds(lambda f, a, b: f"{f}({a}, {b})", st.sampled_from(["np.maximum", "np.minimum"]), inner, inner)
        three = st.builds(lambda c, a, b: f"np.where({c}, {a}, {b})", inner, inner, inner | st.sampled_from(NUMBERS))
        return pair | turned | one | two | three

    return st.recursive(cells(names, ndim), wider, max_leaves=6)


@st.composite
def problems(draw):
    """Draw a function's text, its inputs, boundaries and stride."""
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    names = ["u", "v"][: draw(st.integers(1, 2))]
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    arrays = [rng.integers(-9, 9, shape).astype(draw(st.sampled_from(DTYPES))) for _ in names]
    texts = draw(st.lists(expressions(names, len(shape)), min_size=1, max_size=2))
    text = f"lambda {', '.join(names)}: {texts[0] if len(texts) == 1 else f'({texts[0]}, {texts[1]})'}"
    sides = [draw(st.tuples(SIDES, SIDES)) for _ in shape]
    return text, arrays, sides, [draw(st.integers(1, 2)) for _ in shape]


@settings(max_examples=times(35))
@given(problem=problems())
def test_three_ways_are_numpys(problem):
    text, arrays, sides, stride = problem
    function = eval(text, {"np": np, **CONSTANTS})
    # A halo that is given: the shape of what shrinks depends on it, not on what the function happens to read.
    reach = Reach.of(2, arrays[0].ndim)
    shape = Boundaries.of(sides, arrays[0].ndim).out_shape(arrays[0].shape, reach, stride)
    try:
        wanted = expected(function, arrays, sides, reach.before, reach.after, stride)
    except (TypeError, OverflowError):
        wanted = None
    if prod(shape) == 0:
        return
    for ways in WAYS:
        options = {"boundary": sides, "stride": stride, "reach": reach, "ways": ways}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                got = apply_in_memory(function, arrays, **options)
            except StencilError:
                assert wanted is None, ways
                continue
        assert wanted is not None, ways
        check(got, wanted, shape, ways)


def check(got, wanted, shape, ways):
    for one, want in zip(*(x if isinstance(x, tuple) else (x,) for x in (got, wanted)), strict=True):
        assert one.dtype == want.dtype, ways
        assert one.shape == shape, ways
        # Complex products and quotients are rounded in another order by some builds of NumPy.
        close = np.allclose if one.dtype.kind == "c" else np.array_equal
        assert close(one, want, equal_nan=one.dtype.kind in "fc"), ways
