"""Reads by references: what is sent, what is refused, what is kept."""

import zlib

import numpy as np
import pytest
from support.faulty import FaultyStore
from support.references import Chunks

import hyperslab as hs
from hyperslab.array import wrap
from hyperslab.errors import AccessError, BudgetError, ChunkSizeError, ConflictError, IntegrityError
from hyperslab.formats import ArraySource
from hyperslab.formats.zarr import v2
from hyperslab.layout import WHOLE
from hyperslab.store import locate, memory

CELLS = np.arange(24, dtype="<i4").reshape(4, 6)


def source(chunks: Chunks, *, zipped: bool = False, dtype: str = "<i4", shape=(4, 6), pieces=(2, 6)) -> ArraySource:
    document = {
        "zarr_format": 2, "shape": list(shape), "chunks": list(pieces), "dtype": dtype, "order": "C", "fill_value": 7,
        "filters": None, "compressor": {"id": "zlib", "level": 1} if zipped else None,
    }  # fmt: skip
    found = v2.parse_array(document, {}, "memory://refs/a", "a")
    return ArraySource(found.url, found.path, found.format, found.layout, {}, chunks=chunks)


def opened(places, url="memory://refs", session=None, options=None, **how):
    store = FaultyStore(locate(url, options)[0])
    store.targets = store.inner.targets
    return wrap(source(Chunks(places), **how), store, session or hs.Session(profile="s3")), store


def asked(store):
    found = [(each.key, each.span) for each in store.log]
    store.log.clear()
    return sorted(found, key=repr)


@pytest.fixture(autouse=True)
def objects():
    both = CELLS.tobytes()
    memory("refs").put("both", b"head" + both)
    memory("refs").put("first", both[:48])
    memory("refs").put("zipped", zlib.compress(both[:48]) + zlib.compress(both[48:]))
    memory("other").put("second", both[48:])
    return both


def test_rows_of_plain_chunks_are_read_in_part_and_neighbours_by_one_request():
    array, store = opened({0: ("both", 4, 48), 1: ("both", 52, 48)})
    assert np.array_equal(array[1:3], CELLS[1:3])
    assert asked(store) == [("both", (28, 76))]
    assert np.array_equal(array[3, 2:4], CELLS[3, 2:4])
    assert asked(store) == [("both", (84, 92))]


def test_inline_and_absent_chunks_cost_no_request(objects):
    array, store = opened({0: objects[:48]})
    assert np.array_equal(array[:2], CELLS[:2])
    assert (array[2:] == 7).all()
    plan = array.explain[...].plan
    assert asked(store) == []
    assert plan.estimate.requests == 0
    assert "INLINE" in str(array.explain[...])
    assert array.session.metrics.requests == 0


def test_whole_objects_are_asked_for_as_such():
    array, store = opened({0: ("first", 0, WHOLE)})
    assert np.array_equal(array[:2], CELLS[:2])
    assert asked(store) == [("first", (0, 48))]
    memory("refs").put("alone", zlib.compress(CELLS[:2].tobytes()))
    array, store = opened({0: ("alone", 0, WHOLE)}, zipped=True)
    assert np.array_equal(array[1], CELLS[1])
    assert asked(store) == [("alone", None)]


def test_only_the_chunks_of_a_read_are_looked_up():
    array, _ = opened({0: ("both", 4, 48), 1: ("both", 52, 48)})
    array[3]
    assert array.source.chunks.asked == [[1]]


@pytest.mark.parametrize("place", [("first", 0, 47), ("first", 0, 49), ("both", 0, WHOLE)])
@pytest.mark.parametrize("local", [True, False])
def test_a_plain_chunk_of_another_size_is_refused(place, local, tmp_path, objects):
    (tmp_path / "first").write_bytes(objects[:48])
    (tmp_path / "both").write_bytes(objects)
    array, _ = opened({0: place}, str(tmp_path) if local else "memory://refs")
    if local:
        array.store = array.store.inner
    with pytest.raises(ChunkSizeError, match="expected 48"):
        array[0]


@pytest.mark.parametrize("local", [True, False])
def test_a_place_beyond_the_end_is_refused(local, tmp_path, objects):
    (tmp_path / "first").write_bytes(objects[:48])
    array, _ = opened({0: ("first", 8, 48)}, str(tmp_path) if local else "memory://refs")
    if local:
        array.store = array.store.inner
    with pytest.raises(IntegrityError, match="holds only 48"):
        array[:2]


def test_an_encoded_chunk_that_claims_to_be_huge_is_refused_before_it_is_asked_for():
    array, store = opened({0: ("zipped", 0, 1 << 50)}, zipped=True)
    with pytest.raises(ChunkSizeError):
        array[0]
    assert asked(store) == []


@pytest.mark.parametrize(("place", "zipped"), [(("gone", 4, 48), False), (("gone", 0, WHOLE), True)])
@pytest.mark.parametrize("local", [True, False])
def test_a_reference_to_nothing_is_an_error_and_no_fill_value(place, zipped, local, tmp_path):
    array, _ = opened({0: place}, str(tmp_path) if local else "memory://refs", zipped=zipped)
    if local:
        array.store = array.store.inner
    with pytest.raises(IntegrityError, match="'gone' is not there"):
        array[0]


def test_an_object_that_is_another_version_than_the_references_are_for_is_a_conflict():
    etag = locate("memory://refs")[0].head("both")[1]
    array, _ = opened({0: ("both", 4, 48)})
    array.source.chunks.etags["both"] = etag
    assert np.array_equal(array[1], CELLS[1])
    memory("refs").put("both", b"other" + CELLS.tobytes())
    with pytest.raises(ConflictError):
        array[1]


def test_two_arrays_may_make_something_else_of_the_same_bytes():
    session = hs.Session(profile="s3")
    place = {0: ("zipped", 0, len(zlib.compress(CELLS[:2].tobytes())))}
    one, _ = opened(place, session=session, zipped=True)
    other, _ = opened(place, session=session, zipped=True, dtype="<f4")
    other.store = one.store
    for _ in range(2):
        first, second = hs.read_many([(one, slice(0, 2)), (other, slice(0, 2))])
        assert np.array_equal(first, CELLS[:2])
        assert np.array_equal(second.view("<i4"), CELLS[:2])


def test_what_was_decoded_is_kept():
    array, store = opened({0: ("zipped", 0, len(zlib.compress(CELLS[:2].tobytes())))}, zipped=True)
    array[0]
    assert len(asked(store)) == 1
    assert np.array_equal(array[1], CELLS[1])
    assert asked(store) == []


def test_the_disk_keeps_chunks_for_other_sessions(tmp_path):
    place = {0: ("zipped", 0, len(zlib.compress(CELLS[:2].tobytes())))}
    for wanted in ([("zipped", (0, place[0][2]))], [("zipped", (0, 1))]):
        with hs.Session(profile="s3", disk_cache=tmp_path) as session:
            array, store = opened(place, session=session, zipped=True)
            assert np.array_equal(array[:2], CELLS[:2])
            assert asked(store) == wanted


def test_one_read_reaches_several_stores():
    places = {0: ("first", 0, WHOLE), 1: ("memory://other/second", 0, 48)}
    array, _ = opened(places, options={"targets": ["memory://other"]})
    assert np.array_equal(array[...], CELLS)
    assert array.session.metrics.requests == 2
    array, _ = opened(places)
    assert np.array_equal(array[:2], CELLS[:2])
    with pytest.raises(AccessError, match="'targets'"):
        array[...]


def test_files_here_and_objects_there(tmp_path, objects):
    (tmp_path / "first").write_bytes(objects[:48])
    places = {0: ("first", 0, WHOLE), 1: ("memory://other/second", 0, 48)}
    array, _ = opened(places, str(tmp_path), options={"targets": ["memory://other"]})
    array.store = array.store.inner
    assert np.array_equal(array[...], CELLS)
    assert array.session.metrics.requests == 2


def test_budgets_hold_for_what_is_referred_to():
    array, store = opened({0: ("both", 4, 48), 1: ("both", 52, 48)})
    with pytest.raises(BudgetError):
        array.read(..., budget=hs.Budget(bytes=95))
    assert asked(store) == []
    assert np.array_equal(array.read(..., budget=hs.Budget(bytes=96)), CELLS)
