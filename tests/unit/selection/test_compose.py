"""A selection of a selection is what NumPy gives when it indexes twice."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.arrays import added_axis, assert_same, keys, picked, tries

from hyperslab.errors import SelectionError
from hyperslab.selection import compose, parse

shapes = st.lists(st.integers(0, 9), max_size=3).map(tuple)


def numbered(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(np.prod(shape, dtype=int)).reshape(shape)


def apply(data: np.ndarray, selection) -> object:
    cells = data[np.ix_(*[axis.indices() for axis in selection.axes])] if data.ndim else data
    return selection.finish(cells)


@st.composite
def chains(draw):
    """Draw a shape and up to four keys, each for what the ones before it give."""
    shape = draw(shapes)
    data, chain = numbered(shape), []
    for _ in range(draw(st.integers(1, 4))):
        key = draw(keys(np.shape(data)))
        data = np.asarray(picked(np.asarray(data), key))
        chain.append(key)
    return shape, chain


@tries(700, soak=120_000)
@given(chains())
@example(((9,), [slice(None, None, -1), slice(None, None, -2)]))
@example(((9,), [[5, 2, 2, 8], slice(None, None, -1), [0, 3, 1]]))
@example(((9,), [slice(None, None, -2), [0, 4, 0]]))
def test_chains_of_selections(case):
    shape, chain = case
    wanted = numbered(shape)
    selection = parse(chain[0], shape)
    wanted = picked(wanted, chain[0])
    for key in chain[1:]:
        try:
            selection = compose(selection, key)
        except SelectionError:
            # An axis that None added is taken whole, or dropped.
            assert any(added_axis(key) for key in chain)
            return
        wanted = picked(np.asarray(wanted), key)
        assert selection.result_shape == np.shape(wanted)
    assert_same(apply(numbered(shape), selection), wanted)


def test_spans_stay_spans():
    selection = compose(parse(slice(90, 10, -3), (100,)), slice(20, None, -4))
    assert type(selection.axes[0]).__name__ == "Span"
    assert_same(apply(numbered((100,)), selection), numbered((100,))[90:10:-3][20::-4])


def test_keys_are_checked_against_the_view():
    view = parse((slice(2, 5), 3), (9, 9))
    with pytest.raises(SelectionError, match="index 3 is out of bounds for axis 0 with size 3"):
        compose(view, 3)
    with pytest.raises(SelectionError, match="too many indices"):
        compose(view, (0, 0))
    with pytest.raises(SelectionError, match="read first"):
        compose(parse(..., (2, 2)), np.ones((2, 2), bool))


def test_new_axes_are_kept_or_dropped():
    data = numbered((4, 5))
    view = parse((slice(None), None, slice(None, None, 2)), (4, 5))
    wanted = data[:, None, ::2]
    for key in [(slice(None), 0), (..., slice(None, None, -1), slice(None)), (1, slice(None), None), (..., [0], [1])]:
        assert_same(apply(data, compose(view, key)), picked(wanted, key))
    with pytest.raises(SelectionError, match="axis 1 was added by None"):
        compose(view, (slice(None), [0, 0]))


def test_fields_of_a_view():
    names = ("a", "b", "c")
    view = parse(["a", "c"], (4,), names)
    assert compose(view, "c", names).fields == "c"
    assert compose(view, slice(2), names).fields == ("a", "c")
    assert compose(parse(slice(2), (4,), names), ["b", "a"], names).fields == ("b", "a")
    with pytest.raises(SelectionError, match="no field named 'b'; the dtype has a, c"):
        compose(view, "b", names)
    with pytest.raises(SelectionError, match="has no fields"):
        compose(parse("a", (4,), names), "a", names)


def test_a_few_cells_of_a_view_of_many():
    """Composing takes no more memory than the cells that are chosen in the end."""
    view = parse(slice(None, None, -2), (2**60,))
    assert compose(view, [5, 3, 9]).axes[0].indices().tolist() == [2**60 - 19, 2**60 - 11, 2**60 - 7]
    assert compose(compose(view, [5, 3, 9]), slice(None, None, -1)).result_shape == (3,)
