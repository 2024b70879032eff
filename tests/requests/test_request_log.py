"""The exact requests of named reads: key, bytes, and whether the object's version was pinned."""

import numpy as np
import pytest
import zarr
from support.arrays import copy_to_memory, open_logged, sent
from zarr.codecs import BytesCodec, GzipCodec, ShardingCodec, ZstdCodec

import hyperslab as hs

DATA = np.arange(64 * 64, dtype="<i4").reshape(64, 64)
NAME = "request-log"
BOX = np.s_[10:13, 4:6]


def sharding(location: str, *codecs) -> dict:
    codec = ShardingCodec(chunk_shape=(16, 16), codecs=[BytesCodec(), *codecs], index_location=location)
    return {"chunks": (32, 32), "serializer": codec, "compressors": None}


LAYOUTS = {
    "plain": {},
    "v2": {"zarr_format": 2},
    "fortran": {"zarr_format": 2, "order": "F"},
    "gzip": {"compressors": [GzipCodec()]},
    "shards": sharding("end"),
    "shards-start": sharding("start"),
    "shards-zstd": sharding("end", ZstdCodec()),
}


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Arrays of 64 × 64 int32 in chunks of 32 × 32, in memory."""
    folder = tmp_path_factory.mktemp("request-log")
    for name, options in LAYOUTS.items():
        settings = {"chunks": (32, 32), "compressors": None, "fill_value": -1, **options}
        zarr.create_array(str(folder / name), shape=DATA.shape, dtype=DATA.dtype, **settings)[...] = DATA
    for name in ("plain", "shards"):
        settings = {"chunks": (32, 32), "compressors": None, "fill_value": -1, **LAYOUTS[name]}
        array = zarr.create_array(str(folder / f"{name}-part"), shape=DATA.shape, dtype=DATA.dtype, **settings)
        array[:16, :16] = DATA[:16, :16]
    np.save(folder / "a.npy", DATA)
    for path in folder.iterdir():
        copy_to_memory(path, NAME)


@pytest.fixture
def session():
    # One at a time would pin versions from the second request on; these profiles send all at once.
    with hs.Session(profile="s3") as session:
        yield session


@pytest.fixture
def opened(stores, session):
    """Open an array by its name; return it with the log of its store, which is empty."""

    def open_(name: str):
        array, store = open_logged(f"memory://{NAME}/{name}", session)
        sent(store)
        return array, store

    return open_


def check(array, key, **options) -> None:
    assert np.array_equal(array.read(key, **options), DATA[key])


def test_opening(stores, session):
    assert sent(open_logged(f"memory://{NAME}/plain", session)[1]) == [("plain/zarr.json", None, False)]
    assert sent(open_logged(f"memory://{NAME}/shards", session)[1]) == [("shards/zarr.json", None, False)]


def test_fetch_asks_for_exactly_the_needed_bytes(opened):
    array, log = opened("plain")
    check(array, BOX, method="fetch")
    assert sent(log) == [
        ("plain/c/0/0", (1296, 1304), False),
        ("plain/c/0/0", (1424, 1432), False),
        ("plain/c/0/0", (1552, 1560), False),
    ]


def test_merge_asks_from_the_first_needed_byte_to_the_last(opened):
    array, log = opened("plain")
    check(array, BOX, method="merge")
    assert sent(log) == [("plain/c/0/0", (1296, 1560), False)]


def test_get_asks_for_whole_chunks(opened):
    array, log = opened("plain")
    check(array, BOX, method="get")
    assert sent(log) == [("plain/c/0/0", None, False)]
    array, log = opened("shards-start")
    check(array, BOX, method="get")
    assert sent(log) == [("shards-start/c/0/0", (0, 68), False), ("shards-start/c/0/0", (68, 1092), True)]
    array, log = opened("a.npy")
    check(array, BOX, method="get")
    assert sent(log) == [("a.npy", (128, 16512), False)]


def test_far_away_the_optimiser_closes_small_gaps(opened):
    array, log = opened("plain")
    check(array, BOX)
    assert sent(log) == [("plain/c/0/0", (1296, 1560), False)]


def test_at_hand_the_optimiser_leaves_gaps_open(stores):
    profile = hs.Profile("at hand", 0.0, (1,), (1e6,), 8)
    with hs.Session(profile=profile) as session:
        array, log = open_logged(f"memory://{NAME}/plain", session)
        sent(log)
        check(array, BOX)
        assert sent(log) == [
            ("plain/c/0/0", (1296, 1304), False),
            ("plain/c/0/0", (1424, 1432), False),
            ("plain/c/0/0", (1552, 1560), False),
        ]


def test_one_after_the_other_pins_the_version_seen_first(stores):
    with hs.Session(profile=hs.Profile("alone", 0.0, (1,), (1e6,), 1)) as session:
        array, log = open_logged(f"memory://{NAME}/plain", session)
        log.log.clear()
        check(array, BOX)
        assert [(asked.span, asked.if_match is not None) for asked in log.log] == [
            ((1296, 1304), False),
            ((1424, 1432), True),
            ((1552, 1560), True),
        ]


def test_a_whole_chunk_is_one_request(opened):
    array, log = opened("plain")
    check(array, np.s_[32:, :32], method="fetch")
    assert sent(log) == [("plain/c/1/0", (0, 4096), False)]


def test_a_box_over_four_chunks(opened):
    array, log = opened("plain")
    check(array, np.s_[31:33, 30:33])
    assert sent(log) == [
        ("plain/c/0/0", (4088, 4096), False),
        ("plain/c/0/1", (3968, 3972), False),
        ("plain/c/1/0", (120, 128), False),
        ("plain/c/1/1", (0, 4), False),
    ]


def test_every_other_column(opened):
    array, log = opened("plain")
    check(array, np.s_[3, :8:2], method="fetch")
    assert sent(log) == [("plain/c/0/0", (start, start + 4), False) for start in (384, 392, 400, 408)]
    check(array, np.s_[3, 6::-2])
    assert sent(log) == [("plain/c/0/0", (384, 412), False)]


def test_lists_and_points(opened):
    array, log = opened("plain")
    check(array, np.s_[0, [9, 2, 2, 3]], method="fetch")
    assert sent(log) == [("plain/c/0/0", (36, 40), False), ("plain/c/0/0", (8, 16), False)]
    assert array.points[[0, 63, 0], [1, 63, 1]].tolist() == DATA[[0, 63, 0], [1, 63, 1]].tolist()
    assert sent(log) == [("plain/c/0/0", (4, 8), False), ("plain/c/1/1", (4092, 4096), False)]


def test_v2_and_fortran_order(opened):
    array, log = opened("v2")
    check(array, BOX)
    assert sent(log) == [("v2/0.0", (1296, 1560), False)]
    array, log = opened("fortran")
    check(array, BOX, method="fetch")
    assert sent(log) == [("fortran/0.0", (552, 564), False), ("fortran/0.0", (680, 692), False)]


def test_npy(stores, session):
    array, log = open_logged(f"memory://{NAME}/a.npy", session)
    assert ("a.npy", (0, 1024), False) in sent(log)
    check(array, np.s_[10:12, 4:6], method="fetch")
    assert sent(log) == [("a.npy", (128 + 2576, 128 + 2584), False), ("a.npy", (128 + 2832, 128 + 2840), False)]
    check(array, np.s_[:2])
    assert sent(log) == [("a.npy", (128, 640), False)]


def test_compressed_chunks_come_whole_and_once(opened):
    array, log = opened("gzip")
    check(array, BOX)
    assert sent(log) == [("gzip/c/0/0", None, False)]
    check(array, np.s_[:, 0])
    assert sent(log) == [("gzip/c/1/0", None, False)]
    check(array, np.s_[5:50, 10:20])
    assert sent(log) == []
    array = array.refresh()
    sent(log)
    check(array, BOX)
    assert sent(log) == [("gzip/c/0/0", None, False)]


@pytest.mark.parametrize("method", ["get", "merge", "fetch", "paper"])
def test_methods_make_no_difference_to_compressed_chunks(opened, method):
    array, log = opened("gzip")
    check(array, BOX, method=method)
    assert sent(log) == [("gzip/c/0/0", None, False)]


def test_a_missing_chunk_is_asked_for_once(opened):
    array, log = opened("plain-part")
    assert array[40:44, 40:44].tolist() == [[-1] * 4] * 4
    assert sent(log) == [("plain-part/c/1/1", (1056, 1456), False)]
    # Everything in it is known to be missing after the first answer.
    with hs.Session(profile=hs.Profile("alone", 0.0, (1,), (1e6,), 1)) as alone:
        array, log = open_logged(f"memory://{NAME}/plain-part", alone)
        sent(log)
        assert array[40:44, 40:44].tolist() == [[-1] * 4] * 4
        assert sent(log) == [("plain-part/c/1/1", (1056, 1072), False)]


# Shards of 2 × 2 chunks of 1,024 bytes; the index is 4 × 16 bytes and a checksum.
LOOKUP = {"shards": -68, "shards-start": (0, 68)}
FIRST = {"shards": 0, "shards-start": 68}


@pytest.mark.parametrize("name", LOOKUP)
def test_shards_take_a_lookup_then_data(opened, name):
    array, log = opened(name)
    base = FIRST[name]
    check(array, BOX, method="fetch")
    assert [(asked.span, asked.if_match is not None) for asked in log.log] == [
        (LOOKUP[name], False),
        ((base + 656, base + 664), True),
        ((base + 720, base + 728), True),
        ((base + 784, base + 792), True),
    ]
    assert {key for key, *_ in sent(log)} == {f"{name}/c/0/0"}
    # The index is known from now on.
    check(array, BOX, method="merge")
    assert sent(log) == [(f"{name}/c/0/0", (base + 656, base + 792), True)]


def test_small_shards_far_away_come_whole(opened):
    array, log = opened("shards")
    check(array, BOX)
    assert sent(log) == [("shards/c/0/0", None, False)]


def test_two_selections_of_a_shard_share_one_request(opened):
    array, log = opened("shards")
    for found, key in zip(array.read_boxes([BOX, np.s_[20:22, 20:22]]), [BOX, np.s_[20:22, 20:22]], strict=True):
        assert np.array_equal(found, DATA[key])
    assert sent(log) == [("shards/c/0/0", None, False)]


def test_chunks_that_a_shard_lacks_are_not_asked_for(opened):
    array, log = opened("shards-part")
    assert (
        array.read(np.s_[14:18, 14:18], method="fetch").tolist()
        == np.pad(DATA[14:16, 14:16], (0, 2), constant_values=-1).tolist()
    )
    assert sent(log) == [
        ("shards-part/c/0/0", (1016, 1024), True),
        ("shards-part/c/0/0", (952, 960), True),
        ("shards-part/c/0/0", -68, False),
    ]
    assert array.read(np.s_[40:42, 40:42], method="fetch").tolist() == [[-1, -1], [-1, -1]]
    assert sent(log) == [("shards-part/c/1/1", -68, False)]


def test_compressed_chunks_of_shards(opened):
    array, log = opened("shards-zstd")
    check(array, BOX, method="fetch")
    first = sent(log)
    assert [(key, pinned) for key, _, pinned in first] == [("shards-zstd/c/0/0", True), ("shards-zstd/c/0/0", False)]
    start, stop = first[0][1]
    assert 0 <= start < stop
    assert first[1][1] == -68
    # Chunk and index are in the cache.
    check(array, np.s_[0:3, 7], method="fetch")
    assert sent(log) == []


def test_overlapping_boxes_share_their_bytes(opened):
    array, log = opened("plain")
    keys = [np.s_[10, 4:9], np.s_[10, 7:12], np.s_[10, 4:9], np.s_[10, 20]]
    for found, key in zip(array.read_boxes(keys, method="fetch"), keys, strict=True):
        assert np.array_equal(found, DATA[key])
    assert sent(log) == [("plain/c/0/0", (1296, 1328), False), ("plain/c/0/0", (1360, 1364), False)]


def test_several_arrays_of_one_store_have_one_plan(stores, session):
    one, first = open_logged(f"memory://{NAME}/plain", session)
    other, second = open_logged(f"memory://{NAME}/v2", session)
    for log in (first, second):
        sent(log)
    found = hs.read_many([(one, np.s_[0, :2]), (other, np.s_[1, :2]), (one, np.s_[0, 1:4])])
    assert [cells.tolist() for cells in found] == [[0, 1], [64, 65], [1, 2, 3]]
    assert sorted(sent(first) + sent(second)) == [("plain/c/0/0", (0, 16), False), ("v2/0.0", (128, 136), False)]


EMPTY = [np.s_[0:0], np.s_[:, 5:5], np.s_[[], 3], np.s_[np.zeros(64, bool)], np.s_[9:3, ::-1], np.zeros((64, 64), bool)]


@pytest.mark.parametrize("name", ["plain", "gzip", "shards", "fortran", "a.npy"])
def test_nothing_selected_nothing_sent(opened, name):
    array, log = opened(name)
    for key in EMPTY:
        for method in (None, "get", "merge", "fetch", "paper"):
            found = array.read(key, method=method)
            assert found.shape == DATA[key].shape
            assert found.dtype == DATA.dtype
    array.points[np.zeros(0, int), np.zeros(0, int)]
    array.read_boxes(EMPTY)
    assert sent(log) == []


BAD = [64, (0, 64), (0, 0, 0), "x", [64], 1.5, True, (..., ...), np.ones((3, 3), bool), [[0, 1]], slice(None, None, 0)]


@pytest.mark.parametrize("name", ["plain", "gzip", "shards"])
def test_bad_keys_and_explanations_send_nothing(opened, name):
    array, log = opened(name)
    for key in BAD:
        for use in (
            array.__getitem__,
            array.read,
            array.explain,
            array.lazy.__getitem__,
            lambda k: array.read_boxes([0, k]),
        ):
            with pytest.raises(hs.errors.SelectionError):
                use(key)
    with pytest.raises(hs.errors.InvalidInputError):
        array.read(0, method="guess")
    with pytest.raises(hs.errors.InvalidInputError):
        array.read(0, out=np.empty(63, "i4"))
    with pytest.raises(hs.errors.BudgetError):
        array.read(..., budget=hs.Budget(requests=0))
    for key in (..., BOX, [3, 1], np.s_[::7, 5]):
        str(array.explain[key])
        array.explain(key, method="paper").to_dict()
    array.lazy[3:5][1]
    assert sent(log) == []
