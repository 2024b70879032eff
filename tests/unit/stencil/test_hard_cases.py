"""Functions, numbers and places that are easily got wrong: refused with a typed error, or NumPy's result."""

import functools
import shutil

import h5py
import numpy as np
import pytest

import hyperslab as hs
from hyperslab.errors import InvalidInputError, StencilError
from hyperslab.stencil.identity import identity_of
from hyperslab.stencil.memory import apply_in_memory
from hyperslab.stencil.resuming import fingerprint

BYTES = np.array([0, 1, 2, 255, 200, 3], np.uint8)
SIGNED = np.array([-128, -1, 0, 3, 127, 2], np.int8)


def test_the_least_integer_divided_by_minus_one_is_numpys():
    got = apply_in_memory(lambda s: (s(0) // s(1), s(0) % s(1), np.fmod(s(0), s(1))), [SIGNED])
    after = np.append(SIGNED[1:], SIGNED[-1])
    with np.errstate(all="ignore"):
        wanted = SIGNED // after, SIGNED % after, np.fmod(SIGNED, after)
    np.testing.assert_array_equal(got, wanted)


def test_the_sign_of_large_unsigned_integers_is_one():
    np.testing.assert_array_equal(apply_in_memory(lambda s: np.sign(s(0)), [BYTES]), np.sign(BYTES))


@pytest.mark.parametrize(
    "function",
    [
        lambda s: s(0) if s(0) > 2 else 300,
        lambda s: [s(0), -1],
    ],
)
@pytest.mark.parametrize("ways", [("numba",), ("python",)])
def test_integers_that_the_output_cannot_hold_are_an_error(function, ways):
    with pytest.raises(StencilError, match=r"out of bounds|does not fit"):
        apply_in_memory(function, [BYTES], ways=ways)


def test_integers_are_not_raised_to_negative_powers():
    with pytest.raises(StencilError, match="negative integer powers"):
        apply_in_memory(lambda s: s(0) ** s(1), [SIGNED])


def test_an_error_in_compiled_code_names_its_cell():
    cells = np.arange(2 * 3 * 4 * 5.0).reshape(2, 3, 4, 5)

    def picky(s):
        if s(0, 0, 0, 0) >= 97:
            raise ValueError("too much")
        return s(0, 0, 0, 0)

    with pytest.raises(StencilError, match="too much") as caught:
        apply_in_memory(picky, [cells], ways=("numba",))
    assert caught.value.cell == np.unravel_index(97, cells.shape)


def test_an_error_that_comes_from_a_cell_beyond_the_halo_is_not_the_users():
    cells = np.ones(3000)
    cells[1501:1503] = 5

    def careful(s):
        if s(0) == 5 and s(-int(s(0))) != 1:
            raise ValueError("not one")
        return s(0)

    for ways in (("numba",), ("python",)):
        np.testing.assert_array_equal(apply_in_memory(careful, [cells], ways=ways), cells)


def test_a_wider_reach_moves_what_shrinks_even_where_the_shape_stays():
    cells = np.arange(3001.0)
    cells[1502:1507] = -2

    def computed(s):
        return s(-2) if s(0) == -2 else s(-int(s(0) > 0))

    got = apply_in_memory(computed, [cells], boundary="shrink", stride=3)
    at = np.arange(2, len(cells), 3)
    np.testing.assert_array_equal(got, np.where(cells[at] == -2, cells[at - 2], cells[at - 1]))


def test_keyword_defaults_and_changed_closures_are_other_functions():
    one, two = [lambda s, *, w=w: w * s(0) for w in (1, 2)]
    assert identity_of(one) != identity_of(two)

    def make(weight):
        def change(value):
            nonlocal weight
            weight = value

        return (lambda s: np.square(s(0), dtype=float) * weight), change

    (first, change), (second, _) = make(1), make(1)
    cells = np.arange(4.0)
    with pytest.warns(hs.stencil.SlowStencilWarning):
        before = apply_in_memory(first, [cells], ways=("slices",))
    change(5)
    np.testing.assert_array_equal(apply_in_memory(second, [cells], ways=("slices",)), before)


class Scaled:
    def __init__(self, by):
        self.by = by

    def __call__(self, s):
        return self.by * s(0)

    def method(self, s):
        return self.by * s(0)


def pair(a, b):
    return lambda s: a * s(0) + b


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (functools.partial(max, 1), functools.partial(max, 2)),
        (Scaled(1), Scaled(2)),
        (Scaled(1).method, Scaled(2).method),
        (pair(1, 23), pair(12, 3)),
    ],
)
def test_what_was_begun_by_a_function_is_not_gone_on_with_by_another(one, other):
    assert fingerprint(one, [], []) == fingerprint(one, [], [])
    assert fingerprint(one, [], []) != fingerprint(other, [], [])


@pytest.mark.parametrize("given", [lambda s: (), lambda s: []])
def test_a_function_that_returns_nothing_is_refused(given):
    with pytest.raises(StencilError, match="no value"):
        apply_in_memory(given, [BYTES])


@pytest.mark.parametrize(
    ("cells", "settings"),
    [
        (np.arange(3), {"boundary": 1.5}),
        (BYTES, {"boundary": -1}),
        (np.arange(3), {"boundary": np.nan}),
        (np.arange(3.0), {"boundary": 1j}),
        (np.arange(3.0), {"boundary": None}),
        (np.arange(3.0), {"stride": 2.5}),
        (np.arange(3.0), {"halo": [1.5]}),
        (np.array([1, None]), {}),
        (np.array(["a", "b"]), {}),
    ],
)
def test_arguments_that_make_no_sense_are_refused(cells, settings):
    with pytest.raises(InvalidInputError):
        hs.apply(lambda s: s(-1), cells, **settings)


def test_an_output_may_be_the_input_in_memory_and_not_a_file_that_is_read(tmp_path):
    cells = np.random.default_rng(0).random((60, 80))
    wanted = hs.apply(lambda s: s(0, -1) + s(-1, 0), cells, boundary="periodic")
    same = cells.copy()
    hs.apply(lambda s: s(0, -1) + s(-1, 0), same, out=same, boundary="periodic", chunks=(20, 20))
    np.testing.assert_array_equal(same, wanted)
    with h5py.File(tmp_path / "in.h5", "w") as file:
        file["a"] = cells
    (tmp_path / "link.h5").symlink_to(tmp_path / "in.h5")
    for name in ("in.h5", "link.h5"):
        with pytest.raises(InvalidInputError, match="would be lost"):
            hs.apply(lambda s: s(0, 0), tmp_path / "in.h5/a", tmp_path / name / "b", overwrite=True)


def test_outputs_do_not_lie_in_each_other(tmp_path):
    with pytest.raises(InvalidInputError, match="lie in each other"):
        hs.apply(lambda s: (s(0), -s(0)), np.arange(4.0), out=(tmp_path / "a/b", tmp_path / "a"))


def test_an_input_file_that_was_replaced_is_another_input(tmp_path):
    with h5py.File(tmp_path / "in.h5", "w") as file:
        file["a"] = np.arange(4.0)

    def picky(s):
        if s(0) == 3:
            raise ValueError("three")
        return s(0)

    with pytest.raises(StencilError, match="three"):
        hs.apply(picky, tmp_path / "in.h5/a", tmp_path / "out.zarr")
    shutil.copy(tmp_path / "in.h5", tmp_path / "new.h5")
    with h5py.File(tmp_path / "new.h5", "a") as file:
        file["a"][...] = 1
    (tmp_path / "new.h5").replace(tmp_path / "in.h5")
    with pytest.raises(InvalidInputError, match="unfinished"):
        hs.apply(picky, tmp_path / "in.h5/a", tmp_path / "out.zarr")


def test_a_rank_without_a_share_may_come_last(tmp_path):
    cells = np.arange(5.0)
    hs.save(tmp_path / "in.zarr", cells)
    for rank in (1, 2, 0):
        made = hs.apply(
            lambda s: s(1), tmp_path / "in.zarr", tmp_path / "out.zarr", rank=rank, size=3, output={"chunks": (3,)}
        )
    np.testing.assert_array_equal(made[...], [1, 2, 3, 4, 4])
