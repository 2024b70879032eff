"""Kernels: what is compiled, what types come out, how far is read, and what happens beyond."""

import math
import threading
import warnings

import numpy as np
import pytest
from support.stencils import expected

from hyperslab.errors import InvalidInputError, StencilError
from hyperslab.stencil import Kernel, Output, Reach, SlowStencilWarning, compile_kernel
from hyperslab.stencil.memory import apply_in_memory

RNG = np.random.default_rng(1)
CELLS = RNG.random((12, 17))
EDGES = [("nearest", "nearest")] * 2
HALF, THIRD = np.float32(0.5), np.float64(1 / 3)
WEIGHTS = np.array([0.25, 0.5, 0.125], np.float32)


def as_type(dtype):
    return (CELLS * 250).astype(dtype) if np.dtype(dtype).kind in "iu" else CELLS.astype(dtype)


def check(function, *dtypes, how="numba", exact=True):
    """Hold a function against NumPy, and against the way in which it should run."""
    arrays = [as_type(dtype) for dtype in dtypes]
    assert compile_kernel(function, dtypes, 2).how == how
    got = apply_in_memory(function, arrays)
    wanted = expected(function, arrays, EDGES, (8, 8), (8, 8))
    for one, want in zip(*(x if isinstance(x, tuple) else (x,) for x in (got, wanted)), strict=True):
        assert one.dtype == want.dtype
        np.testing.assert_allclose(one, want, rtol=0 if exact else 1e-6)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "int32", "uint64", "float32", "float64", "complex64"])
def test_results_have_numpys_type(dtype):
    check(lambda s: (2 * s(0, 1) + s(-1, 0), 0.25 * s(0, 0), s(0, 1) / s(0, 0), s(0, 1) == s(0, 0)), dtype)


def test_arithmetic_of_small_integers_wraps_as_numpys_does():
    check(lambda s: (s(0, 1) + 3 * s(0, 0), s(0, 1) ** 3, s(1, 0) // s(0, 0), s(1, 0) % s(0, 0), -s(0, 0)), "uint8")
    check(lambda s: (s(0, 1) << 2 | s(0, 0) >> 1, ~s(0, 0) & s(1, 0), s(0, 0) ^ 5), "uint8")


def test_numpys_scalars_and_arrays_are_strong_and_pythons_numbers_weak():
    check(lambda s: (HALF * s(0, 0), THIRD * s(0, 0), WEIGHTS[1] * s(0, 1), np.float32(2) * s(0, 0)), "uint8")
    check(lambda s: (HALF * s(0, 0), THIRD * s(0, 0), WEIGHTS[1] * s(0, 1), np.int64(2) * s(0, 0)), "float32")


def test_functions_of_numpy():
    check(lambda s: (np.sqrt(s(0, 1)), np.maximum(s(0, 0), s(1, 0)), np.where(s(0, 1) > 0.5, s(0, 0), 0)), "float32")
    check(lambda s: (np.exp(s(0, 1)), np.arctan2(s(0, 0), s(1, 0)), abs(s(0, -1))), "float32", exact=False)
    check(lambda s: (s(0, 1) * s(0, 0).real + 1j * s(1, 0).imag, abs(s(0, 0))), "complex128", exact=False)


def test_integers_of_python_that_do_not_fit_raise_as_in_numpy():
    with pytest.raises(StencilError, match="out of bounds"):
        apply_in_memory(lambda s: s(0, 0) + 300, [as_type("uint8")])

    def sums(s):
        total = s(0, 0)
        for k in range(400):
            total = total + k
        return total

    with pytest.raises(StencilError, match="out of bounds"):
        apply_in_memory(sums, [as_type("uint8")])
    assert apply_in_memory(lambda s: s(0, 0) < 300, [as_type("uint8")]).all()
    assert apply_in_memory(lambda s: s(0, 0) > -1, [as_type("uint8")]).all()


def test_division_by_zero_and_nan_are_numpys():
    array = np.array([0.0, -0.0, np.inf, np.nan, 3.0], np.float32)
    got = apply_in_memory(lambda s: (1 / s(0), s(0) / 0.0, s(0) % 0.0, np.isnan(s(0)), max(s(0), 1.0)), [array])
    with np.errstate(all="ignore"):
        wanted = (1 / array, array / 0.0, array % 0.0, np.isnan(array), [max(x, np.float32(1)) for x in array])
    for one, want in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(one, want)


def test_branches_loops_helpers_and_closures_are_compiled():
    weight = 0.5

    def side(s, k):
        return weight * s(0, k)

    def function(s):
        if s(0, 0) > 0.5 and not s(0, 1) > 0.9:
            return math.sqrt(s(1, 0)) * s(0, 0)
        total = 0.0
        for k in range(-2, 3):
            total += side(s, k)
        return total if total < 1 else 1

    array = as_type("float32")
    assert compile_kernel(function, ["float32"], 2).how == "numba"
    got = apply_in_memory(function, [array])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SlowStencilWarning)
        slow = apply_in_memory(function, [array], ways=())
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, slow)


def test_branches_of_different_types_meet_as_numpys_do():
    kernel = compile_kernel(lambda s: s(0, 0) if s(0, 1) > 0.5 else 0, ["float32"], 2)
    assert kernel.outputs == (Output(np.dtype("float32")),)
    kernel = compile_kernel(lambda s: 1 if s(0, 1) > 0.5 else 0, ["float32"], 2)
    assert kernel.outputs == (Output(np.dtype("int64")),)


def test_several_inputs_of_different_types():
    check(lambda u, v: (u(0, 1) * v(0, 0) + 1, v(1, 0) - u(0, 0)), "float32", "uint8")


def test_a_list_is_a_vector_for_each_cell():
    array = as_type("float32")
    got, other = apply_in_memory(lambda s: ([s(0, 0), s(0, 1), 2], s(1, 0)), [array])
    assert got.shape == (12, 17, 3)
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got[..., 1], np.c_[array[:, 1:], array[:, -1]])
    assert other.shape == (12, 17)
    kernel = compile_kernel(lambda s: np.array([s(0, 0), 1.5]), ["uint8"], 2)
    assert (kernel.how, kernel.outputs) == ("numba", (Output(np.dtype("float64"), (2,)),))


@pytest.mark.parametrize("dtype", ["uint8", "float32", "bool"])
@pytest.mark.parametrize("ways", [("numba",), ("slices",), ()], ids=["numba", "slices", "python"])
def test_blocks_are_reduced_as_numpy_reduces(dtype, ways):
    def function(s):
        block = s.block((0, 2), (-1, 2))
        return block.sum(), block.mean(), block.max(), block.min(), block[1, 0], block[-1, -1]

    array = (CELLS > 0.5) if dtype == "bool" else as_type(dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SlowStencilWarning)
        got = apply_in_memory(function, [array], boundary="shrink", ways=ways)
    windows = np.lib.stride_tricks.sliding_window_view(array, (2, 3)).reshape(11, 15, 6)
    firsts = [windows.sum(2), windows.mean(2), windows.max(2), windows.min(2), array[1:, :-2], array[1:, 2:]]
    for one, want in zip(got, firsts, strict=True):
        assert one.dtype == want.dtype
        np.testing.assert_allclose(one, want, rtol=1e-6)


def test_large_blocks_and_blocks_as_results():
    array = as_type("int16")
    got = apply_in_memory(lambda s: s.block((-4, 5), (-4, 5)).sum(), [array], boundary="shrink")
    np.testing.assert_array_equal(got, np.lib.stride_tricks.sliding_window_view(array, (9, 9)).sum((2, 3)))
    got = apply_in_memory(lambda s: s.block((0, 2), (0, 3)), [array], boundary="shrink", stride=(2, 3))
    np.testing.assert_array_equal(got, np.lib.stride_tricks.sliding_window_view(array, (2, 3))[::2, ::3])


def test_an_index_beyond_a_block_is_an_error_and_reads_nothing():
    with pytest.raises(StencilError, match="block"):
        apply_in_memory(lambda s: s.block((0, 2), (0, 2))[0, int(s(0, 0)) + 5], [as_type("float32")])


def test_literal_offsets_of_all_branches_are_found_without_a_run():
    def rare(s):
        if s(0, 0) > 1e30:
            return s(7, 0)
        return s(0, -2)

    kernel = compile_kernel(rare, ["float64"], 2)
    assert kernel.reach == Reach((0, 2), (7, 0))
    assert not kernel.may_escape


def test_computed_offsets_are_found_on_samples_and_checked():
    def far(s):
        return s(int(s(0)))

    assert compile_kernel(far, ["float64"], 1, samples=[np.array([0.0, 3.0, -2.0])]).reach == Reach((2,), (3,))
    kernel = compile_kernel(far, ["float64"], 1)
    assert kernel.may_escape
    padded, out = np.array([0.0, 9.0, 0.0, 0.0]), np.empty(3)
    assert kernel.reach == Reach((0,), (1,))
    assert kernel.compute([padded], [out], (0,)) == Reach((0,), (9,))


def test_a_halo_of_the_users_that_is_too_small_is_an_error_with_the_cell():
    def rare(s):
        return s(0, 2) if s(0, 0) > 0 else s(0, 0)

    array = np.zeros((6, 8))
    array[4, 3] = 1
    for ways in (("numba",), ()):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SlowStencilWarning)
            assert not apply_in_memory(rare, [array[:4]], reach=1, ways=ways).any()
            with pytest.raises(StencilError, match="reads further than the halo") as caught:
                apply_in_memory(rare, [array], reach=((1, 1), (1, 1)), ways=ways)
        assert caught.value.cell == (4, 3)
    with pytest.raises(StencilError, match="reads further than the halo"):
        apply_in_memory(lambda s: s(0, 2) + 1, [array], reach=1, ways=("slices",))


def test_offsets_out_of_all_bounds_are_an_error_with_the_cell():
    array = np.array([0.0, 1e15, 0.0])
    with pytest.raises(StencilError, match="more than the") as caught:
        apply_in_memory(lambda s: s(int(s(0))), [array], ways=("numba",))
    assert caught.value.cell == (1,)


def test_results_do_not_depend_on_what_was_run_before():
    """A halo found on other cells would make what shrinks smaller."""

    def far(s):
        return s(int(s(0)))

    near = np.array([0.0, 1.0, 0.0, 0.0, 0.0])
    first = apply_in_memory(far, [near], boundary="shrink")
    apply_in_memory(far, [np.array([0.0, 3.0, 0.0, 0.0, 0.0])], boundary="shrink")
    np.testing.assert_array_equal(apply_in_memory(far, [near], boundary="shrink"), first)


def test_what_numba_cannot_compile_runs_on_slices():
    check(lambda s: sum(s(0, k) for k in range(-1, 2)), "float32", how="slices")
    check(lambda s: s(0, 1) * 2.0, "float16", how="slices")
    kernel = compile_kernel(lambda s: sum(s(0, k) for k in range(2)), ["float32"], 2)
    assert "numba" in kernel.why


def test_slices_are_never_reduced_over_cells():
    """On arrays these would give one number for all cells; they must not run on slices, or run cell by cell."""
    array = as_type("float64")
    for function in (lambda s: np.max([s(0, 0), s(0, 1)]), lambda s: np.median([s(0, 0), s(0, 1)])):
        with pytest.warns(SlowStencilWarning, match="cell by cell"):
            got = apply_in_memory(function, [array], ways=("slices",))
        pairs = np.stack([array, np.c_[array[:, 1:], array[:, -1]]])
        np.testing.assert_array_equal(got, (np.max if function.__code__.co_names[1] == "max" else np.median)(pairs, 0))


def test_plain_python_warns_once_that_it_is_slow_and_why():
    def middle(s):
        return np.median([s(0, -1), s(0, 0), s(0, 1)])

    with pytest.warns(SlowStencilWarning, match=r"middle.*a million cells.*numba: .*slices: ") as caught:
        got = apply_in_memory(middle, [CELLS])
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = apply_in_memory(middle, [CELLS])
    np.testing.assert_array_equal(got, again)
    assert got[3, 5] == np.median(CELLS[3, 4:7])


def test_values_that_a_sampled_type_cannot_hold_are_refused():
    def function(s):
        return [s(0), 1.5][int(s(0) > 9)] if repr(s(0)) else 0

    array = np.zeros(500, np.int64)
    array[333] = 10
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SlowStencilWarning)
        with pytest.raises(StencilError, match=r"at cell \(333,\).*cannot hold") as caught:
            apply_in_memory(function, [array], ways=())
    assert caught.value.cell == (333,)


def test_errors_of_the_function_name_the_cell():
    def fails(s):
        if s(0) == 5:
            raise ValueError("five")
        return s(0)

    array = np.where(np.arange(999) == 501, 5, 0)
    with pytest.raises(StencilError, match="five"):
        apply_in_memory(fails, [array])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SlowStencilWarning)
        with pytest.raises(StencilError, match="five") as caught:
            apply_in_memory(fails, [array], ways=())
    assert caught.value.cell == (501,)
    with pytest.raises(StencilError, match="NameError"):
        apply_in_memory(lambda s: s(0) + unknown, [array])  # noqa: F821


def test_kernels_are_kept_by_what_the_function_does():
    def made(weight):
        return compile_kernel(lambda s: weight * s(0), ["float64"], 1, ways=("numba",))

    assert made(1.0) is made(1.0)
    assert made(1.0) is not made(2.0)
    assert made(1) is not made(1.0)
    assert made(np.float32(1)) is not made(np.float64(1))
    assert made(0.0) is not made(-0.0)


def test_buffers_that_do_not_fit_are_refused():
    kernel = compile_kernel(lambda s: s(0, 1) - s(0, -1), ["float32"], 2)
    good, out = np.zeros((4, 8), np.float32), np.zeros((4, 6), np.float32)
    assert kernel.compute([good], [out], (0, 0)) is None
    for inputs, outs in [
        ([good[:, 1:]], [out]),
        ([good.astype("float64")], [out]),
        ([good], [out.astype("float64")]),
        ([good, good], [out]),
        ([np.zeros((8, 4), np.float32).T], [out]),
        ([good], [np.zeros((6, 4), np.float32).T]),
    ]:
        with pytest.raises(InvalidInputError):
            kernel.compute(inputs, outs, (0, 0))


@pytest.mark.parametrize(
    ("dtypes", "ndim", "options"),
    [
        ([], 1, {}),
        (["f4"], 0, {}),
        (["f4"], 2, {"stride": (1,)}),
        (["f4"], 1, {"stride": (0,)}),
        (["f4"], 1, {"reach": Reach.zero(2)}),
        (["f4"], 1, {"samples": [np.zeros((1, 1))]}),
    ],
)
def test_wrong_requests_are_refused(dtypes, ndim, options):
    with pytest.raises(InvalidInputError):
        compile_kernel(lambda s: s(0), dtypes, ndim, **options)


def test_calls_from_several_threads_at_once():
    kernel: Kernel = compile_kernel(lambda s: s(-1) + s(1), ["float64"], 1)
    outs = [np.empty(100_000) for _ in range(4)]
    inputs = [RNG.random(100_002) for _ in outs]

    def work(number):
        for _ in range(5):
            kernel.compute([inputs[number]], [outs[number]], (0,), 2)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for array, out in zip(inputs, outs, strict=True):
        np.testing.assert_array_equal(out, array[:-2] + array[2:])


def test_short_rows_are_asked_for_ahead_and_long_runs_are_not():
    """Processors foresee a long run by themselves; an array without rows is one."""
    from hyperslab.stencil.compiled import compile_function

    def code_of(function, ndim):
        reach = Reach.zero(ndim)
        made = compile_function(function, [np.dtype("float32")], reach, False, (1,) * ndim, reach)
        return next(iter(made.code.inspect_llvm().values()))

    assert "llvm.prefetch" in code_of(lambda s: s(0, 0, 1) - s(-1, 0, 0), 3)
    assert "llvm.prefetch" not in code_of(lambda s: s(1) - s(-1), 1)


def test_rows_that_are_asked_for_may_lie_beyond_the_end():
    cells = np.arange(5 * 3 * 7, dtype="float32").reshape(5, 3, 7)
    kernel = compile_kernel(lambda s: s(0, 0, 0) + s(3, 1, 2), ["float32"], 3)
    out = np.empty((2, 2, 5), "float32")
    assert kernel.compute([cells], [out], (0, 0, 0)) is None
    np.testing.assert_array_equal(out, cells[:2, :2, :5] + cells[3:, 1:, 2:])
