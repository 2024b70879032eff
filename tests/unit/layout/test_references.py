"""References: found by number, checked before anything is read by them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperslab.errors import MetadataError
from hyperslab.layout import WHOLE, References, numbers_of

places = st.one_of(
    st.binary(max_size=5),
    st.tuples(
        st.sampled_from(["a", "b/c", "s3://d/e"]), st.integers(0, 1 << 60), st.integers(1, 1 << 60) | st.just(WHOLE)
    ),
)


@given(st.dictionaries(st.integers(0, 1 << 61), places, max_size=20), st.integers(0, 1 << 61))
def test_every_chunk_is_found_where_it_was_put(given_places, other):
    references = References.of(given_places)
    assert {number: references.find(number) for number in given_places} == given_places
    assert references.find(other) == given_places.get(other)
    assert np.array_equal(references.numbers, sorted(given_places))


@pytest.mark.parametrize("place", [("a", -1, 4), ("a", 0, 0), ("a", 0, -2), ("a", 1 << 61, 1), ("a", 0, 1 << 61)])
def test_places_that_no_object_has_are_refused(place):
    with pytest.raises(MetadataError, match="expected an offset"):
        References.of({0: place})


def test_objects_can_be_called_otherwise():
    references = References.of({0: ("a", 0, 4), 1: ("b", 2, 4), 2: b"x"}, {"a": "1", "b": "2", "c": "3"})
    other = references.with_keys(["x", "y"])
    assert other.find(0) == ("x", 0, 4)
    assert other.find(1) == ("y", 2, 4)
    assert other.find(2) == b"x"
    assert other.etags == {"x": "1", "y": "2"}


@given(st.lists(st.integers(1, 6), min_size=0, max_size=4), st.data())
def test_numbers_are_those_of_numpy(grid, data):
    chunks = [tuple(data.draw(st.integers(0, n - 1)) for n in grid) for _ in range(3)]
    wanted = [int(np.ravel_multi_index(at, grid)) if grid else 0 for at in chunks]
    assert numbers_of(grid, chunks).tolist() == wanted


def test_more_chunks_than_can_be_numbered_are_refused():
    with pytest.raises(MetadataError, match="more than can be referred to"):
        numbers_of((1 << 40, 1 << 40), [(0, 0)])
