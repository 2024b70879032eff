"""Keys → selections, with NumPy as the judge of what a key means and which keys are wrong."""

from collections import namedtuple
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.arrays import assert_same, keys, picked, pointwise, tries

from hyperslab.errors import InvalidInputError, SelectionError
from hyperslab.selection import Picks, Points, Selection, Span, parse, parse_points

shapes = st.lists(st.integers(0, 9), max_size=4).map(tuple)


def numbered(shape: tuple[int, ...]) -> np.ndarray:
    """Return an array whose cells are all different."""
    return np.arange(np.prod(shape, dtype=int)).reshape(shape)


def canonical(data: np.ndarray, selection: Selection) -> np.ndarray:
    """Return the selected cells, ascending along every axis."""
    return data[np.ix_(*[axis.indices() for axis in selection.axes])] if data.ndim else data.copy()


@st.composite
def shapes_and_keys(draw, **options):
    shape = draw(shapes)
    return shape, draw(keys(shape, **options))


@tries(800, soak=150_000)
@given(shapes_and_keys())
@example(((), ()))
@example(((), ...))
@example(((5,), slice(None, None, 2**70)))
@example(((5,), slice(None, None, -(2**70))))
@example(((5,), (slice(4, None, -1),)))
@example(((0,), slice(None, None, -1)))
def test_selections_mean_what_numpy_means(case):
    shape, key = case
    data = numbered(shape)
    wanted = picked(data, key)
    selection = parse(key, shape)
    assert isinstance(selection, Selection)
    assert selection.result_shape == np.shape(wanted)
    assert selection.size == canonical(data, selection).size
    assert_same(selection.finish(canonical(data, selection)), wanted)
    if selection.direct:
        out = np.full(selection.result_shape, -1)
        target = selection.target(out)
        assert target.shape == selection.counts
        target[...] = canonical(data, selection)
        assert_same(out, np.asarray(wanted))


@tries(300, soak=50_000)
@given(shapes_and_keys())
def test_axes_are_ascending_and_within_the_array(case):
    shape, key = case
    for axis, length in zip(parse(key, shape).axes, shape, strict=True):
        cells = axis.indices()
        assert cells.dtype == np.int64
        assert len(cells) == axis.count
        assert not len(cells) or (cells[0] >= 0 and cells[-1] < length)
        assert (np.diff(cells) > 0).all()


@tries(300, soak=50_000)
@given(st.data(), shapes)
def test_points_mean_what_numpy_means(data, shape):
    index = data.draw(pointwise(shape))
    whole = numbered(shape)
    points = parse_points(index, shape)
    assert points.result_shape == np.shape(whole[index])
    assert all(len(axis) == points.size and axis.dtype == np.int64 for axis in points.coords)
    assert_same(points.finish(whole[points.coords].reshape(-1)), whole[index])


@tries(200)
@given(shapes.filter(len), st.integers(0, 99))
def test_masks_of_the_whole_shape_are_points(shape, seed):
    mask = np.random.default_rng(seed).random(shape) < 0.4
    whole = numbered(shape)
    for parsed in [parse_points(mask, shape), *([parse(mask, shape)] if len(shape) > 1 else [])]:
        assert isinstance(parsed, Points)
        assert_same(whole[parsed.coords], whole[mask])


def test_lists_with_even_steps_become_spans():
    axes = parse(([1, 4, 7], [3], np.array([False, True, False, True])), (9, 9, 4)).axes
    assert axes == (Span(1, 3, 3), Span(3, 1), Span(1, 2, 2))


def test_lists_in_any_order_are_read_once_and_ascending():
    selection = parse([5, 2, 2, -1], (9,))
    assert isinstance(selection.axes[0], Picks)
    assert selection.axes[0].cells.tolist() == [2, 5, 8]
    assert selection.orders[0][1].tolist() == [1, 0, 0, 2]
    assert selection.size == 3
    assert selection.result_shape == (4,)


def test_tuples_of_any_class_are_keys():
    pair = namedtuple("pair", "row column")
    assert parse(pair(1, slice(2)), (4, 4)).result_shape == (2,)
    assert parse_points(pair([1, 2], [3, 0]), (4, 4)).result_shape == (2,)


@pytest.mark.parametrize("index", [np.int8(3), np.uint64(3), np.array(3), True + 2])
def test_whatever_is_an_index_is_one(index):
    selection = parse(index, (5,))
    assert selection.scalar
    assert selection.axes == (Span(3, 1),)


@pytest.mark.parametrize("sequence", [range(1, 4), (1, 2, 3), [np.int16(1), 2, 3], np.array([1, 2, 3], ">u2")])
def test_whatever_is_a_sequence_of_indices_is_one(sequence):
    assert parse((sequence, slice(None)), (5, 6)).result_shape == (3, 6)


def test_fields():
    names = ("a", "b", "c")
    assert parse("a", (4, 5), names).fields == "a"
    assert parse("a", (4, 5), names).result_shape == (4, 5)
    assert parse(["c", "a"], (4,), names).fields == ("c", "a")
    assert parse(("a", "b", 2), (4,), names).fields == ("a", "b")
    assert parse((slice(2), "b"), (4, 5), names).result_shape == (2, 5)
    assert parse(("b", 3), (4,), names).scalar
    assert not parse("b", (), names).scalar
    assert parse(("b", ()), (4,), names).result_shape == (0,)
    mask = np.eye(3, dtype=bool)
    assert parse(("b", mask), (3, 3), names).fields == "b"


# NumPy's own exceptions are the reference: each of these is an IndexError there.
WRONG = [
    (5, (5,), "index 5 is out of bounds for axis 0 with size 5"),
    (-6, (5,), "index -6 is out of bounds for axis 0 with size 5"),
    ((0, 7), (5, 6), "index 7 is out of bounds for axis 1 with size 6"),
    (0, (0,), "index 0 is out of bounds for axis 0 with size 0"),
    (2**80, (5,), "is out of bounds for axis 0"),
    ((0, 0), (5,), "too many indices for array: array is 1-dimensional, but 2 were indexed"),
    (0, (), "too many indices for array: array is 0-dimensional, but 1 were indexed"),
    (slice(None), (), "too many indices"),
    ((0, 0, 0, None), (5, 6), "too many indices"),
    ((..., 0, ...), (5, 6), "single ellipsis"),
    ([0, 5], (5,), "index 5 is out of bounds for axis 0 with size 5"),
    ([0, -6], (5,), "index -6 is out of bounds for axis 0 with size 5"),
    ((slice(None), [1, 2**40]), (5, 6), "is out of bounds for axis 1 with size 6"),
    (np.array([1, 200], "u1"), (5,), "index 200 is out of bounds"),
    ([0], (0,), "index 0 is out of bounds for axis 0 with size 0"),
    (np.array([2**63], "u8"), (5,), "is out of bounds"),
    ([True, False], (5,), "boolean mask for axis 0 has shape (2,), the axis has size 5"),
    (np.ones(6, bool), (5,), "boolean mask for axis 0 has shape (6,)"),
    (np.ones((5, 5), bool), (5, 6), "boolean mask has shape (5, 5), the array (5, 6)"),
    ([[True, False], [True, False]], (5, 6), "boolean mask has shape (2, 2)"),
    (1.0, (5,), "only integers, slices"),
    ([1.0, 2.0], (5,), "only integers, slices"),
    (np.array([], float), (5,), "only integers, slices"),
    ("a", (5,), "field 'a' asked of an array whose dtype has no fields"),
    (["a"], (5,), "field 'a' asked of an array whose dtype has no fields"),
    (1j, (5,), "only integers, slices"),
    (object(), (5,), "only integers, slices"),
    ((object(), 0), (5, 6), "only integers, slices"),
    (np.datetime64("2020"), (5,), "only integers, slices"),
    ({1: 2}, (5,), "only integers, slices"),
]


@pytest.mark.parametrize(("key", "shape", "message"), WRONG, ids=lambda value: str(value)[:20])
def test_wrong_keys_are_refused_as_numpy_refuses_them(key, shape, message):
    with pytest.raises(IndexError):
        numbered(shape)[key]
    with pytest.raises(SelectionError) as raised:
        parse(key, shape)
    assert message in str(raised.value)
    assert isinstance(raised.value, IndexError)
    assert isinstance(raised.value, InvalidInputError)


# NumPy raises something else for these, or allows what cannot be planned.
OURS = [
    (slice(None, None, 0), (5,), "slice step cannot be zero", ValueError),
    (slice("a"), (5,), "bad slice for axis 0", TypeError),
    (slice(1.5), (5,), "bad slice for axis 0", TypeError),
    (True, (5,), "True is not an index; use a mask", None),
    (np.True_, (5,), "is not an index; use a mask", None),
    ((0, False), (5, 6), "False is not an index", None),
    ([[0, 1], [1, 2]], (5,), "use `array.points[...]` to pair indices up", None),
    ((np.ones((5, 6), bool), 0), (5, 6, 7), "boolean mask for axis 0 has shape (5, 6)", None),
    (np.ones((5, 6), bool), (5, 6, 7), "boolean mask has shape (5, 6), the array (5, 6, 7)", None),
    ([[1], [1, 2]], (5, 6), "index for axis 0 is not an array", ValueError),
    ([[True], [True, False]], (2, 2), "index for axis 0 is not an array", ValueError),
    (([1, [2]], 0), (5, 6), "index for axis 0 is not an array", ValueError),
]


@pytest.mark.parametrize(("key", "shape", "message", "numpys"), OURS, ids=lambda value: str(value)[:30])
def test_what_we_refuse_besides(key, shape, message, numpys):
    if numpys is not None:
        with pytest.raises(numpys):
            numbered(shape)[key]
    with pytest.raises(SelectionError, match=r"\S") as raised:
        parse(key, shape)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("c", "no field named 'c'; the dtype has a, b"),
        (["a", "c"], "no field named 'c'"),
        (["a", "a"], "name one field twice"),
        (("a", "a"), "name one field twice"),
        (("a", 9), "index 9 is out of bounds"),
        (["a", 1], "only integers, slices"),
    ],
    ids=str,
)
def test_wrong_fields(key, message):
    data = np.zeros(5, [("a", "i4"), ("b", "f8")])
    with pytest.raises((IndexError, ValueError, KeyError)):
        data[key]
    with pytest.raises(SelectionError) as raised:
        parse(key, (5,), ("a", "b"))
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (([0, 9], [0, 0]), "index 9 is out of bounds for axis 0 with size 5"),
        (([0, 1], [0, 1, 2]), "points could not be broadcast together with shapes (2,) (3,)"),
        (([0.5], [0]), "only integers, slices"),
        ((slice(None), [0]), "only integers, slices"),
        (([0],), "points need one index per axis: array has 2 axes, got 1"),
        ([0], "points need one index per axis: array has 2 axes, got 1"),
        (([0], [0], [0]), "points need one index per axis: array has 2 axes, got 3"),
        (([[0], [0, 1]], [0]), "index for axis 0 is not an array"),
        (np.ones((5, 5), bool), "boolean mask has shape (5, 5), the array (5, 6)"),
        ((np.ones(4, bool), 0), "boolean mask for axis 0 has shape (4,), the axis has size 5"),
        ((..., 0), "only integers, slices"),
        ((None, 0), "only integers, slices"),
        (("a", 0), "only integers, slices"),
    ],
    ids=str,
)
def test_wrong_points(key, message):
    with pytest.raises(SelectionError) as raised:
        parse_points(key, (5, 6))
    assert message in str(raised.value)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=2) | st.just(...) | st.binary(max_size=2)
    | st.builds(slice, st.none() | st.integers() | st.text(max_size=1), st.none() | st.integers(), st.integers(-3, 3)),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner) | st.tuples(inner, inner),
    max_leaves=5,
)  # fmt: skip


@tries(800, soak=150_000)
@given(anything, shapes)
def test_any_key_is_parsed_or_refused(key, shape):
    for read in (parse, parse_points):
        with suppress(SelectionError):
            read(key, shape)
