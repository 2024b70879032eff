"""Whatever is selected of whatever HDF5 dataset, by whatever requests: NumPy, and h5py, give the same."""

from unittest import mock

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.arrays import METHODS, PROFILES, assert_same, keys, picked, pointwise, sessions, small_requests, tries
from support.hdf5_cases import FILTERS, INDEXES, hdf5_catalogue, hdf5_copied, hdf5_stored
from support.profiles import times

import hyperslab as hs
from hyperslab.formats.hdf5 import source

CASES = hdf5_catalogue(times(180, 600))
cases = st.sampled_from(CASES)
profiles = st.sampled_from(sorted(PROFILES))


@pytest.fixture(scope="module")
def opened():
    with sessions() as made:
        yield made


def both(opened, case, profile, cache_bytes=0):
    """The dataset opened from its file, and from memory as a remote store."""
    path, _ = hdf5_stored(case)
    return [opened.open(url, profile, cache_bytes) for url in (f"{path}/g/a", f"{hdf5_copied(case)}/g/a")]


def test_the_cases_have_every_storage_index_and_filter():
    assert {case.storage for case in CASES} == {"chunked", "contiguous", "compact"}
    chunked = [case for case in CASES if case.storage == "chunked"]
    assert {case.index for case in chunked} == set(INDEXES)
    assert {case.filters for case in chunked if case.index == "earliest"} == set(FILTERS)
    assert {case.filters for case in chunked if case.index == "all-grow"} == set(FILTERS)


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_datasets_are_what_h5py_says(opened, case):
    path, data = hdf5_stored(case)
    with h5py.File(path) as file:
        dataset = file["g/a"]
        for array in both(opened, case, "usual"):
            assert (array.shape, array.dtype) == (dataset.shape, dataset.dtype)
            assert array.chunks == (dataset.chunks or tuple(max(1, n) for n in dataset.shape))
            assert_same(array[...], data)
            assert_same(np.asarray(array.fill_value, array.dtype)[()], np.asarray(dataset.fillvalue, dataset.dtype)[()])


@tries(350, soak=70_000)
@given(st.data(), cases, profiles)
def test_every_method_gives_what_numpy_gives(opened, data, case, profile):
    _, whole = hdf5_stored(case)
    key = data.draw(keys(case.shape))
    for array in both(opened, case, profile):
        for method in METHODS:
            assert_same(array.read(key, method=method), picked(whole, key, None))


@tries(180, soak=30_000)
@given(st.data(), cases, profiles, st.integers(1, 9), st.integers(1, 40))
def test_requests_cut_anywhere_give_the_same(opened, data, case, profile, min_cut, max_request):
    _, whole = hdf5_stored(case)
    key = data.draw(keys(case.shape))
    with small_requests(min_cut, max_request):
        assert_same(both(opened, case, profile)[1].read(key), picked(whole, key, None))


@tries(180, soak=30_000)
@given(st.data(), cases, profiles)
def test_points_and_cached_reads(opened, data, case, profile):
    _, whole = hdf5_stored(case)
    for array in both(opened, case, profile, 1 << 24):
        for _ in range(2):
            index = data.draw(pointwise(case.shape))
            assert_same(array.points[index], whole[index])


@tries(180, soak=30_000)
@given(st.data(), st.sampled_from([case for case in CASES if case.index == "earliest" and case.storage == "chunked"]))
def test_a_few_chunks_looked_up_in_a_long_index(data, case):
    _, whole = hdf5_stored(case)
    with mock.patch.multiple(source, _LONG_INDEX=1, _FEW_LOOKUPS=3), hs.Session(cache_bytes=1 << 20) as session:
        array = hs.open(f"{hdf5_copied(case)}/g/a", session=session)
        for _ in range(5):
            key = data.draw(keys(case.shape))
            assert_same(array[key], picked(whole, key, None))


@tries(100, soak=15_000)
@given(st.data(), profiles)
def test_datasets_of_several_files_are_read_together(opened, data, profile):
    chosen = [data.draw(cases) for _ in range(3)]
    drawn = [data.draw(keys(case.shape)) for case in chosen]
    arrays = [both(opened, case, profile)[n % 2] for n, case in enumerate(chosen)]
    found = hs.read_many(list(zip(arrays, drawn, strict=True)))
    for case, key, cells in zip(chosen, drawn, found, strict=True):
        assert_same(cells, picked(hdf5_stored(case)[1], key, None))
