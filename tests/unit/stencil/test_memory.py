"""Functions over arrays in memory."""

import numpy as np
import pytest

from hyperslab.errors import InvalidInputError
from hyperslab.stencil import Reach, memory
from hyperslab.stencil.examples import poisson_2d
from hyperslab.stencil.kernel import compile_kernel
from hyperslab.stencil.memory import apply_in_memory

RNG = np.random.default_rng(3)


def five_points(array):
    """Return what `poisson_2d` gives inside an array."""
    middle = 4 * array[1:-1, 1:-1]
    return middle - array[:-2, 1:-1] - array[2:, 1:-1] - array[1:-1, :-2] - array[1:-1, 2:]


def test_edges_and_inside_make_one_output():
    array = RNG.random((70, 90))
    got = apply_in_memory(poisson_2d, [array], boundary="reflect", threads=3)
    np.testing.assert_array_equal(got, five_points(np.pad(array, 1, mode="symmetric")))


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (9, 1), (2, 2), (3, 40_000)])
def test_any_shape(shape):
    array = RNG.random(shape)
    got = apply_in_memory(poisson_2d, [array], boundary="periodic", threads=2)
    np.testing.assert_array_equal(got, five_points(np.pad(array, 1, mode="wrap")))


@pytest.mark.parametrize("ndim", [4, 5])
def test_many_axes(ndim):
    array = RNG.random((3, 4, 2, 5, 3)[:ndim])
    steps = (1, -1, 0, 2, -2)[:ndim]
    got = apply_in_memory(lambda s: s(*steps) - s(*[0] * ndim), [array], boundary="periodic", ways=("slices",))
    np.testing.assert_array_equal(got, np.roll(array, [-step for step in steps], range(ndim)) - array)
    function = (
        (lambda s: s(1, -1, 0, 2) - s(0, 0, 0, 0)) if ndim == 4 else (lambda s: s(1, -1, 0, 2, -2) - s(0, 0, 0, 0, 0))
    )
    assert compile_kernel(function, ["float64"], ndim).how == "numba"
    np.testing.assert_array_equal(apply_in_memory(function, [array], boundary="periodic"), got)


def test_empty_arrays_give_empty_outputs():
    assert apply_in_memory(poisson_2d, [np.zeros((0, 5))]).shape == (0, 5)
    assert apply_in_memory(poisson_2d, [np.zeros((2, 5))], boundary="shrink").shape == (0, 3)


@pytest.mark.parametrize(
    "turn",
    [
        lambda a: a.T,
        lambda a: a[::-1, ::-1],
        lambda a: a[::2, ::3],
        lambda a: a.astype(">f8"),
        np.asfortranarray,
        lambda a: np.broadcast_to(a[:1], a.shape),
        lambda a: np.frombuffer(b"x" + a.tobytes(), np.uint8)[1:].view(a.dtype).reshape(a.shape),
    ],
    ids=["transposed", "reversed", "strided", "other byte order", "Fortran", "broadcast", "unaligned"],
)
def test_arrays_in_any_order_of_memory(turn):
    array = turn(RNG.random((30, 40)))
    got = apply_in_memory(poisson_2d, [array], boundary="shrink")
    assert got.dtype == np.float64
    np.testing.assert_array_equal(got, five_points(np.asarray(array, "<f8")))


def test_a_branch_that_one_cell_in_ten_million_takes_is_exact():
    def rare(s):
        if s(0) > 0.5:
            return s(5) - s(-11)
        return s(1)

    array = np.zeros(10_000_000, np.float32)
    array[[8_765_432, 8_765_437, 8_765_421]] = 0.75, 0.25, -0.125
    assert compile_kernel(rare, ["float32"], 1).reach == Reach((11,), (5,))
    got = apply_in_memory(rare, [array])
    wanted = np.append(array[1:], array[-1])
    wanted[8_765_432] = 0.375
    np.testing.assert_array_equal(got, wanted)


def test_a_computed_offset_that_one_cell_in_ten_million_takes_is_exact(monkeypatch):
    """It is seen at run time, the halo widened, and only the part where it was done again."""

    def rare(s):
        return s(int(s(0)))

    boxes = []
    fill_box = memory._fill_box
    monkeypatch.setattr(memory, "_fill_box", lambda *args: boxes.append(args[4]) or fill_box(*args))
    array = np.zeros(10_000_000, np.float32)
    array[[9_100_000, 9_100_300]] = 300, -0.5
    got = apply_in_memory(rare, [array])
    wanted = array.copy()
    wanted[9_100_000] = -0.5
    np.testing.assert_array_equal(got[:9_100_300], wanted[:9_100_300])
    again = [box for box in boxes if boxes.count(box) > 1]
    assert 0 < sum(box.size for box in set(again)) <= memory._PART_CELLS < array.size


def test_computed_offsets_on_axes_that_shrink():
    """A wider reach makes the output smaller: it begins anew."""
    array = np.zeros(100)
    array[50] = 4
    got = apply_in_memory(lambda s: s(int(s(0))), [array], boundary="shrink")
    assert len(got) in (95, 96)
    assert got.sum() == 0


def test_stride_calls_the_function_once_for_each_tile():
    array = RNG.random((9, 12)).astype(np.float32)
    got = apply_in_memory(lambda s: s.block((0, 2), (0, 3)).max(), [array], stride=(2, 3), boundary="shrink")
    np.testing.assert_array_equal(got, array[:8].reshape(4, 2, 4, 3).max((1, 3)))
    assert apply_in_memory(lambda s: s(0, 0), [array], stride=4).shape == (3, 3)


def test_outputs_that_are_given_are_filled():
    array = RNG.random((20, 30))
    wanted = apply_in_memory(poisson_2d, [array])
    for out in (
        np.empty((20, 30)),
        np.empty((20, 30), "f8", order="F"),
        np.empty((20, 30), ">f8"),
        np.empty((40, 30))[::2],
    ):
        assert apply_in_memory(poisson_2d, [array], out=out) is out
        np.testing.assert_array_equal(out, wanted)
    assert apply_in_memory(poisson_2d, [array], out=array) is array
    np.testing.assert_array_equal(array, wanted)
    pair = np.empty((20, 30)), np.empty((20, 30), bool)
    apply_in_memory(lambda s: (s(0, 0), s(0, 0) > 0), [array], out=pair)
    np.testing.assert_array_equal(pair[1], wanted > 0)


@pytest.mark.parametrize(
    ("arrays", "options"),
    [
        ([], {}),
        ([np.float64(3)], {}),
        ([np.zeros(3), np.zeros(4)], {}),
        ([np.zeros(3)], {"out": np.zeros(4)}),
        ([np.zeros(3)], {"out": np.zeros(3, int)}),
        ([np.zeros(3)], {"out": (np.zeros(3), np.zeros(3))}),
    ],
)
def test_wrong_arguments_are_refused(arrays, options):
    with pytest.raises(InvalidInputError):
        apply_in_memory(lambda *s: s[0](0), arrays, **options)
