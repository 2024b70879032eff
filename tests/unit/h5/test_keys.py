"""Keys mean what they mean to h5py, and what h5py refuses is refused by an error of the same kind."""

import itertools

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import times

import hyperslab.h5
from hyperslab.h5.keys import is_simple, parse_key

KINDS = (TypeError, ValueError, IndexError)
_names = itertools.count()


@pytest.fixture(scope="module")
def both():
    """The same datasets of h5py and of ours, by shape."""
    with h5py.File.in_memory() as theirs, hyperslab.h5.File("memory://keys/file", "w") as ours:

        def pair(shape, dtype="i4"):
            name = f"{shape} {np.dtype(dtype).str}"
            if name not in theirs:
                cells = np.arange(int(np.prod(shape))).astype("i4").reshape(shape).astype(dtype)
                theirs[name], ours[name] = cells, cells
            return theirs[name], ours[name]

        yield pair


def answer(call):
    try:
        return call()
    except KINDS as error:
        return error
    except OSError as error:
        return IndexError(error)  # h5py's, for a list with places behind the end


def assert_same(one, other, mistakes=1):
    """Check results or errors; of which kind an error is only tells where one thing at most can be wrong."""
    if isinstance(one, Exception):
        assert isinstance(other, Exception), f"h5py raised {one!r}, ours gave {other!r}"
        assert mistakes > 1 or any(isinstance(one, kind) and isinstance(other, kind) for kind in KINDS), (one, other)
        return
    assert not isinstance(other, Exception), repr(other)
    assert type(one) is type(other)
    assert (one.dtype, one.shape) == (other.dtype, other.shape)
    assert np.array_equal(one, other)


def items(length, ndim):
    """Items of a key for an axis, wrong ones among them."""
    inside = st.integers(-length - 2, length + 2)
    optional = st.none() | inside
    slices = st.builds(slice, optional, optional, st.none() | st.integers(-1, 4))
    places = st.lists(st.integers(-length, max(length - 1, 0)), max_size=4 if length else 0)
    lists = places | places.map(sorted) | places.map(lambda each: sorted(set(each)))
    masks = st.lists(st.booleans(), min_size=max(1, length), max_size=max(1, length + (length > 3)))
    if ndim < 2:
        masks = st.just(0)  # of one axis h5py takes masks only as arrays
    odd = st.sampled_from([None, 1.5, "x", np.int16(0), np.array(0), range(0, length, 2)])
    return st.one_of(slices, slices, inside, lists, lists.map(lambda each: np.array(each, "i8")), masks, odd)


@st.composite
def keys(draw):
    shape = tuple(draw(st.lists(st.integers(0, 6), max_size=3)))
    count = draw(st.integers(0, len(shape) + (draw(st.integers(0, 9)) == 0)))
    # Of a dataset without cells h5py does not check the places of a list.
    lengths = [0 if 0 in shape else length for length in (*shape, 3)]
    key = [draw(items(lengths[axis], len(shape))) for axis in range(count)]
    if draw(st.booleans()):
        key.insert(draw(st.integers(0, len(key))), Ellipsis)
    return shape, tuple(key) if len(key) != 1 or draw(st.booleans()) else key[0]


def possible_mistakes(key, shape):
    given = [item for item in (key if isinstance(key, tuple) else (key,)) if item is not Ellipsis]
    plain = [isinstance(item, slice) and (item.step is None or item.step > 0) for item in given]
    return plain.count(False) + (len(given) > len(shape))


@settings(max_examples=times(150))
@given(shape_and_key=keys())
def test_reads_are_those_of_h5py(both, shape_and_key):
    shape, key = shape_and_key
    theirs, ours = both(shape)
    assert_same(answer(lambda: theirs[key]), answer(lambda: ours[key]), possible_mistakes(key, shape))


@pytest.mark.parametrize(
    "key",
    [np.s_["a"], np.s_["a", "b"], np.s_["b", 1:3], np.s_[0, "a"], np.s_["z"], np.s_[..., "b"], np.s_["a", [0, 2]], "a"],
    ids=repr,
)
def test_fields(both, key):
    theirs, ours = both((4,), [("a", "i4"), ("b", "f8")])
    assert_same(answer(lambda: theirs[key]), answer(lambda: ours[key]))


@pytest.mark.parametrize("shape", [(5,), (4, 3)])
def test_masks(both, shape):
    theirs, ours = both(shape)
    for mask in (
        np.ones(shape, bool),
        np.zeros(shape, bool),
        theirs[...] % 3 == 1,
        np.ones(shape[0], bool),
        np.ones(9, bool),
    ):
        assert_same(answer(lambda mask=mask: theirs[mask]), answer(lambda mask=mask: ours[mask]))


@pytest.mark.parametrize("block", [{}, {"start": 2}, {"stride": 3, "block": 2}, {"start": 1, "count": 2, "stride": 4}])
def test_blocks(both, block):
    theirs, ours = both((12, 3))
    key = (h5py.MultiBlockSlice(**block), 1)
    assert_same(theirs[key], ours[key])


@settings(max_examples=times(60))
@given(shape_and_key=keys(), data=st.data())
def test_writes_are_those_of_h5py(both, shape_and_key, data):
    shape, key = shape_and_key
    theirs, ours = both(shape)
    selected = answer(lambda: theirs[key])
    shapes = [(), (1,), (2,)]
    if not isinstance(selected, Exception):
        shapes += [np.shape(selected), (1, *np.shape(selected)), np.shape(selected)[1:]]
    values = np.full(data.draw(st.sampled_from(shapes)), next(_names), "i8")
    listed = any(isinstance(item, list | range | np.ndarray) for item in (key if isinstance(key, tuple) else (key,)))
    if listed and values.shape != np.shape(selected):
        return  # h5py broadcasts nothing to a list; ours what NumPy does
    one, other = answer(lambda: theirs.__setitem__(key, values)), answer(lambda: ours.__setitem__(key, values))
    assert isinstance(one, Exception) == isinstance(other, Exception), (one, other)
    assert np.array_equal(theirs[...], ours[...])


def test_simple_keys_are_not_parsed_but_mean_the_same():
    for key in (3, slice(1, 9, 2), (0, slice(None)), (..., 2), ()):
        assert is_simple(key)
    for key in ([1], None, slice(None, None, -1), slice(None, None, np.int64(1)), "a", np.int64(1), True, (1, [2])):
        assert not is_simple(key)
    assert parse_key((slice(1, 9, 3), 2), (8, 5), None).shape == (3,)
