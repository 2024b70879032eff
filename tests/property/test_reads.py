"""Whatever is selected of whatever array, by whatever requests: NumPy gives the same."""

import asyncio
from unittest import mock

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from support.arrays import (
    METHODS,
    PLAIN,
    PROFILES,
    Case,
    added_axis,
    assert_same,
    catalogue,
    copied,
    copy_to_memory,
    fields_of,
    keys,
    picked,
    pointwise,
    sessions,
    small_is_large,
    small_requests,
    stored,
    tries,
    with_fields,
)
from support.profiles import times
from zarr.codecs import BytesCodec, ShardingCodec

import hyperslab as hs
from hyperslab.errors import SelectionError
from hyperslab.plan import pieces

CASES = catalogue(times(150, 600))
PLAIN_CASES = [case for case in CASES if case.layout in PLAIN]
cases = st.sampled_from(CASES)
profiles = st.sampled_from(sorted(PROFILES))


@pytest.fixture(scope="module")
def opened():
    with sessions() as made:
        yield made


@st.composite
def selections(draw, of=cases, **options):
    """Draw a case, a key for it, and fields if it has any."""
    case = draw(of)
    _, data = stored(case)
    return case, draw(keys(case.shape, **options)), draw(fields_of(data.dtype))


def check(arrays, case: Case, key: object, fields: object, methods=METHODS) -> None:
    _, data = stored(case)
    wanted = picked(data, key, fields)
    for array in arrays:
        for method in methods:
            found = array.read(with_fields(key, fields), method=method)
            assert_same(found, wanted)
            if isinstance(found, np.ndarray):
                assert found.flags.writeable


@tries(300, soak=60_000)
@given(selections(), profiles)
def test_every_method_gives_what_numpy_gives(opened, selection, profile):
    case, key, fields = selection
    check([opened.open(copied(case), profile), opened.open(stored(case)[0], profile)], case, key, fields)


@tries(150, soak=35_000)
@given(selections(st.sampled_from(PLAIN_CASES)), profiles, st.integers(1, 9), st.integers(1, 40))
def test_requests_cut_anywhere_give_the_same(opened, selection, profile, min_cut, max_request):
    case, key, fields = selection
    with small_requests(min_cut, max_request):
        check([opened.open(copied(case), profile)], case, key, fields, methods=(None, "paper"))


@tries(120, soak=35_000)
@given(selections(st.sampled_from(PLAIN_CASES)), profiles, st.integers(1, 30), st.integers(1, 60), st.booleans())
def test_coarse_ranges_give_the_same(opened, selection, profile, most_runs, max_request, cut):
    """Where there would be too many ranges to plan with, some gaps are closed from the start."""
    case, key, fields = selection
    with (
        mock.patch.object(pieces, "MOST_RUNS", most_runs),
        small_requests(*(1, max_request) if cut else (1 << 19, 1 << 26)),
    ):
        check([opened.open(copied(case), profile)], case, key, fields)


@tries(150, soak=25_000)
@given(selections(), profiles, st.integers(1, 200))
def test_the_ways_of_large_reads_give_the_same(opened, selection, profile, block_bytes):
    case, key, fields = selection
    arrays = [opened.open(copied(case), profile), opened.open(stored(case)[0], profile)]
    with small_is_large(block_bytes):
        check(arrays, case, key, fields, methods=(None, "fetch"))


@tries(120, soak=20_000)
@given(st.data(), cases, profiles)
def test_reads_from_the_cache_give_the_same(opened, data, case, profile):
    array = opened.open(copied(case), profile, 1 << 24)
    local = opened.open(stored(case)[0], profile, 1 << 24)
    for _ in range(3):
        check([array, local], case, data.draw(keys(case.shape)), None, methods=(None,))


@tries(150, soak=25_000)
@given(st.data(), cases, profiles)
def test_points(opened, data, case, profile):
    _, whole = stored(case)
    index = data.draw(pointwise(case.shape))
    array, local = opened.open(copied(case), profile), opened.open(stored(case)[0], profile)
    for each in (array, local):
        assert_same(each.points[index], whole[index])
    with small_requests(1, 7):
        assert_same(array.points[index], whole[index])


@tries(100, soak=15_000)
@given(st.data(), cases, profiles)
def test_masks_of_the_whole_shape(opened, data, case, profile):
    _, whole = stored(case)
    share = data.draw(st.sampled_from([0.0, 0.02, 0.1, 0.5, 1.0]))
    mask = np.random.default_rng(data.draw(st.integers(0, 99))).random(case.shape) < share
    fields = data.draw(fields_of(whole.dtype))
    if not case.shape:
        return
    key = mask.tolist() if data.draw(st.booleans()) and mask.size else mask
    wanted = whole[mask] if fields is None else whole[mask][fields]
    array = opened.open(copied(case), profile)
    for method in METHODS:
        assert_same(array.read(with_fields(key, fields), method=method), wanted)
    assert_same(opened.open(stored(case)[0])[with_fields(key, fields)], wanted)
    assert_same(array.points[mask], whole[mask])


@tries(180, soak=30_000)
@given(st.data(), selections(), profiles)
def test_reading_into_an_array(opened, data, selection, profile):
    case, key, fields = selection
    _, whole = stored(case)
    wanted = np.asarray(picked(whole, key, fields))
    way = data.draw(st.sampled_from(["same", "strided", "turned", "wider"]))
    room = np.zeros([2 * n + 1 for n in wanted.shape], wanted.dtype)
    out = room[(..., *(slice(1, 2 * n + 1, 2) for n in wanted.shape))]
    if way == "same":
        out = np.zeros(wanted.shape, wanted.dtype)
    elif way == "turned":
        out = np.zeros(wanted.shape[::-1], wanted.dtype).T[(..., *[slice(None, None, -1)] * wanted.ndim)]
    elif way == "wider" and wanted.dtype.kind in "biuf":
        out = np.zeros(wanted.shape, "f8")
    for array in (opened.open(copied(case), profile), opened.open(stored(case)[0], profile)):
        out[...] = np.zeros((), out.dtype)
        assert array.read(with_fields(key, fields), out=out) is out
        assert_same(out, wanted.astype(out.dtype))
    if way == "strided" and wanted.ndim:
        # Nothing beside was written to.
        out[...] = np.zeros((), out.dtype)
        assert_same(room, np.zeros(room.shape, room.dtype))


@tries(100, soak=15_000)
@given(st.data(), cases, profiles, st.sampled_from(METHODS))
def test_several_selections_of_one_array(opened, data, case, profile, method):
    _, whole = stored(case)
    wanted = data.draw(st.lists(keys(case.shape), max_size=5))
    wanted += wanted[:1]
    for array in (opened.open(copied(case), profile), opened.open(stored(case)[0], profile)):
        found = array.read_boxes(wanted, method=method)
        assert len(found) == len(wanted)
        for key, result in zip(wanted, found, strict=True):
            assert_same(result, picked(whole, key))
        with small_requests(1, 9):
            for key, result in zip(wanted, array.read_boxes(wanted), strict=True):
                assert_same(result, picked(whole, key))


@tries(120, soak=20_000)
@given(st.data(), st.lists(cases, min_size=1, max_size=4), profiles, st.sampled_from(METHODS))
def test_several_selections_of_several_arrays(opened, data, some, profile, method):
    pairs = []
    for case in [*some, some[0]]:
        where = copied(case) if data.draw(st.booleans()) else stored(case)[0]
        pairs.append((case, opened.open(where, profile), data.draw(keys(case.shape))))
    found = hs.read_many([(array, key) for _, array, key in pairs], method=method)
    for (case, _, key), result in zip(pairs, found, strict=True):
        assert_same(result, picked(stored(case)[1], key))


@tries(200, soak=35_000)
@given(st.data(), selections(), profiles)
def test_selections_of_lazy_selections(opened, data, selection, profile):
    case, key, fields = selection
    _, whole = stored(case)
    wanted = picked(whole, key)
    lazy = opened.open(copied(case), profile).lazy[key]
    chain = [key]
    for _ in range(data.draw(st.integers(0, 2))):
        again = data.draw(keys(np.shape(wanted)))
        try:
            lazy = lazy[again]
        except SelectionError:
            # An axis that None added is taken whole, or dropped.
            assert any(map(added_axis, chain))
            return
        chain.append(again)
        wanted = picked(np.asarray(wanted, whole.dtype), again)
    if fields is not None:
        lazy, wanted = lazy[fields], wanted[fields]
    assert lazy.shape == np.shape(wanted)
    assert lazy.dtype == (whole if fields is None else whole[fields]).dtype
    assert_same(lazy.read(), wanted)
    assert_same(np.asarray(lazy), np.asarray(wanted))


@tries(40)
@given(st.lists(selections(), min_size=1, max_size=6), profiles)
def test_reading_in_a_running_loop(opened, wanted, profile):
    async def read_all():
        arrays = [
            opened.open(copied(case) if n % 2 else stored(case)[0], profile) for n, (case, *_) in enumerate(wanted)
        ]
        return await asyncio.gather(
            *(array.aread(with_fields(key, fields)) for array, (_, key, fields) in zip(arrays, wanted, strict=True))
        )

    for (case, key, fields), found in zip(wanted, asyncio.run(read_all()), strict=True):
        assert_same(found, picked(stored(case)[1], key, fields))


def test_shards_that_were_chosen_whole_stay_whole(tmp_path):
    """Once some indexes are known, the rest alone might be planned otherwise; their lookups are over by then."""
    data = np.arange(400, dtype="u1")
    sharding = ShardingCodec(chunk_shape=(10,), codecs=[BytesCodec()], index_location="start")
    zarr.create_array(
        str(tmp_path / "a"), shape=(400,), chunks=(100,), dtype="u1", serializer=sharding, compressors=None
    )[...] = data
    wanted = [0, 10, 100, 110, 200, 210, 220, 230, 300, 310, 320, 330, 340, 350, 360]
    profile = hs.Profile("odd", 0.01, (1, 2, 4, 8), (1e3, 2e3, 1e4, 1e5), 3)
    copy_to_memory(tmp_path / "a", tmp_path.name)
    with hs.Session(profile=profile, prices="free") as session:
        for url in (f"memory://{tmp_path.name}/a", tmp_path / "a"):
            array = hs.open(url, session=session)
            plan = array.explain(wanted).plan
            assert len(plan.wholes) == 1
            assert len(plan.lookups) == 3
            assert array[wanted].tolist() == data[wanted].tolist()
