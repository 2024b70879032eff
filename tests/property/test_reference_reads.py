"""Chunks that lie anywhere, by references, read as NumPy would: any layout without shards, any dtype and selection."""

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.arrays import METHODS, PROFILES, assert_same, catalogue, keys, picked, pointwise, sessions, stored, tries
from support.profiles import times
from support.references import WAYS, as_json, by_references, chunk_bytes, in_memory, scatter, write_parquet

import hyperslab as hs

CASES = [case for case in catalogue(times(150, 600)) if not case.layout.startswith(("shards", "npy"))]
ways = st.lists(st.sampled_from(WAYS), min_size=1, max_size=3).map(tuple)


@pytest.fixture(scope="module")
def made():
    with sessions() as found:
        yield found


@cache
def scattered(case, how, folder):
    """Put the chunks of a case into memory, or files, in different ways; return their places."""
    path, _ = stored(case)
    name = f"{abs(hash((case, how)))}"
    chunks, grid = chunk_bytes(path), hs.open(path).source.layout.grid
    if folder is None:
        return scatter(chunks, grid, how, in_memory("scattered", name))

    def put(key, data):
        (folder / f"{name}-{key}").write_bytes(data)
        return f"{name}-{key}"

    return scatter(chunks, grid, how, put)


@tries(200, soak=30_000)
@given(st.data(), st.sampled_from(CASES), ways, st.sampled_from(sorted(PROFILES)), st.sampled_from(METHODS))
def test_any_selection_by_references(made, data, case, how, profile, method):
    path, cells = stored(case)
    array = by_references(path, scattered(case, how, None), "memory://scattered", made.get(profile))
    key = data.draw(keys(case.shape))
    assert_same(array.read(key, method=method), picked(cells, key))


@tries(100, soak=10_000)
@given(st.data(), st.sampled_from(CASES), ways)
def test_any_selection_of_files_by_references(made, tmp_path_factory, data, case, how):
    folder = tmp_path_factory.getbasetemp()
    path, cells = stored(case)
    array = by_references(path, scattered(case, how, folder), str(folder), made.get("usual"))
    key = data.draw(keys(case.shape))
    assert_same(array[key], picked(cells, key))
    index = data.draw(pointwise(case.shape))
    assert_same(array.points[index], cells[index])


@tries(100, soak=10_000)
@given(st.data(), st.sampled_from(CASES), ways)
def test_what_is_explained_is_sent(made, data, case, how):
    path, _ = stored(case)
    array = by_references(path, scattered(case, how, None), "memory://scattered", made.get("s3"))
    key = data.draw(keys(case.shape))
    predicted = array.explain[key].plan.estimate
    before = array.session.metrics.snapshot()
    array[key]
    after = array.session.metrics.snapshot()
    sent, nbytes = after.requests - before.requests, after.bytes - before.bytes
    assert after.lookups == before.lookups
    assert sent <= predicted.requests
    assert nbytes <= predicted.all_bytes
    if predicted.exact:
        assert (sent, nbytes) == (predicted.requests, predicted.fetched_bytes)


@tries(120, soak=10_000)
@given(st.data(), st.sampled_from([case for case in CASES if case.layout.startswith("v2")]), ways, st.booleans())
def test_any_array_of_a_reference_file(made, tmp_path_factory, data, case, how, parquet):
    folder = tmp_path_factory.getbasetemp()
    path, cells = stored(case)
    places, name = scattered(case, how, folder), f"{abs(hash((case, how)))}"
    refs = folder / f"{name}.{'parq' if parquet else 'json'}"
    if parquet and not refs.exists():
        write_parquet(refs, path, places, record_size=1 + case.seed % 7)
    elif not parquet:
        refs.write_text(as_json(path, places, version=case.seed % 2))
    array = hs.open(refs / "a", session=made.get("usual"))
    key = data.draw(keys(case.shape))
    assert_same(array[key], picked(cells, key))
