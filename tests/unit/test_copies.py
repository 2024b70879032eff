"""Several copies of one array, read as one: which copy a read goes to, and that it gives the right cells."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hyperslab as hs
from hyperslab.errors import InvalidInputError

CELLS = np.arange(96 * 64, dtype="i4").reshape(96, 64)


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    folder = tmp_path_factory.mktemp("copies")
    hs.save(folder / "rows", CELLS, chunks=(1, 64), layout="plain", attrs={"unit": "m"})
    hs.save(folder / "columns", CELLS, chunks=(96, 1), shards=False)
    with hs.Session(profile="s3", prices="aws") as session:
        yield hs.Copies([folder / "rows", folder / "columns"], session=session)


def test_each_read_goes_to_the_copy_that_it_costs_least_from(both):
    rows, columns = both.copies
    assert both.cheapest(np.s_[3]) is rows
    assert both.cheapest(np.s_[:, 3]) is columns
    assert both.explain(np.s_[:, 3]).plan.estimate.requests == 1
    before = rows.session.metrics.requests
    assert (both[:, 3] == CELLS[:, 3]).all()
    assert rows.session.metrics.requests == before + 1


@settings(
    suppress_health_check=[*settings().suppress_health_check, HealthCheck.function_scoped_fixture], max_examples=40
)
@given(st.tuples(st.slices(96), st.slices(64)), st.sampled_from([0.0, 50.0, float("inf")]))
def test_cells_are_those_of_numpy_from_whichever_copy(both, key, phi):
    assert np.array_equal(both.read(key, phi=phi), CELLS[key])


def test_it_is_like_an_array(both):
    assert both.shape == (96, 64)
    assert both.ndim == 2
    assert len(both) == 96
    assert both.dtype == np.dtype("i4")
    assert both.attrs == {"unit": "m"}
    assert np.array_equal(np.asarray(both), CELLS)
    assert "rows" in repr(both)
    with pytest.raises(ValueError, match="always copies"):
        both.__array__(copy=False)


def test_one_copy_is_enough_and_none_is_not(both):
    assert (hs.Copies(both.copies[:1])[5] == CELLS[5]).all()
    with pytest.raises(InvalidInputError, match="one or more"):
        hs.Copies([])


def test_what_is_not_a_copy_is_refused(both, tmp_path):
    other = hs.save(tmp_path / "other", CELLS[:5])
    with pytest.raises(InvalidInputError, match="same type and shape"):
        hs.Copies([both.copies[0], other])
    group = hs.create_group(tmp_path / "group")
    with pytest.raises(InvalidInputError, match="is a group"):
        hs.Copies([group.url])
