"""Collections on files and in memory: what is put comes back, handles are snapshots, wrong calls are refused."""

import datetime
import itertools
import os
import pickle

import numpy as np
import pytest

import hyperslab as hs
from hyperslab.collections import collection, compaction, index, segment, writing
from hyperslab.errors import ConflictError, InvalidInputError, NotFoundError
from hyperslab.execute.write import StoreWriter
from hyperslab.store import LocalStore, locate

_numbers = itertools.count()

NAMES = ["", "..", "/abs", "a/../b", "x" * 10_000, "NUL\x00in", "🌀", "é", "a", "a/", "a\\b", ".", "con", "\n"]


@pytest.fixture(params=["file", "memory"])
def url(request, tmp_path):
    return str(tmp_path / "c") if request.param == "file" else f"memory://collections-{os.getpid()}-{next(_numbers)}/c"


@pytest.fixture
def session():
    with hs.Session() as made:
        yield made


@pytest.fixture
def small(monkeypatch):
    """Small blocks and segments, so that few arrays go the ways of many."""
    monkeypatch.setattr(segment, "_BLOCK_ROWS", 3)
    monkeypatch.setattr(writing, "_SEGMENT_ROWS", 10)
    monkeypatch.setattr(compaction, "MAX_ROWS", 25)
    monkeypatch.setattr(index, "_SMALL_BYTES", 0)


def numbered(count: int, start: int = 0) -> dict[str, np.ndarray]:
    return {f"n/{i:05d}": np.full((2, 3), i, "i4") for i in range(start, start + count)}


def same(found: np.ndarray, expected: np.ndarray) -> bool:
    expected = np.asarray(expected)
    return found.dtype == expected.dtype and found.shape == expected.shape and found.tobytes() == expected.tobytes()


def test_arrays_of_any_kind_come_back(url, session):
    arrays = {
        "float": np.random.default_rng(0).random((4, 5), dtype="f4"),
        "scalar": np.array(7),
        "empty": np.empty((0, 3), ">i2"),
        "no axes, no cells": np.empty((3, 0, 2)),
        "text": np.array(["a", "bcd"]),
        "bytes": np.array([b"x", b"yz"]),
        "time": np.array(["2020-01-01", "NaT"], "M8[D]"),
        "span": np.array([3, 4], "m8[10s]"),
        "bool": np.array([True, False]),
        "complex": np.array([1 + 2j]),
        "fields": np.array([(1, [2.0, 3.0], "q")], [("a", "i4"), ("b", "f8", (2,)), ("c", "U3")]),
        "padded": np.zeros(2, np.dtype([("a", "i1"), ("b", "f8")], align=True)),
        "raw": np.frombuffer(b"abcdef", "V3"),
        "transposed": np.arange(6).reshape(2, 3).T,
        "strided": np.arange(20)[::3],
    }
    c = collection(url, "w-", session=session)
    c.put_many(arrays)
    c = collection(url, session=session)
    for name, found in zip(arrays, c.read_many(list(arrays)), strict=True):
        assert same(found, arrays[name]), name
        assert found.flags.writeable
        assert same(c[name], arrays[name])
    assert c.entry("float").shape == (4, 5)


@pytest.mark.parametrize(
    "value",
    [
        np.array([object()]),
        np.array(["a"], np.dtypes.StringDType()),
        np.ma.masked_array([1, 2], [0, 1]),
        [[1], [2, 3]],
        np.zeros(1, {"names": ["a", "b"], "formats": ["i4", "i4"], "offsets": [0, 2]}),
    ],
)
def test_what_is_no_plain_array_is_refused(url, session, value):
    c = collection(url, "w-", session=session)
    with pytest.raises(InvalidInputError):
        c["a"] = value
    assert len(collection(url, session=session)) == 0


def test_names_are_data(url, session, tmp_path):
    c = collection(url, "w-", session=session)
    c.put_many((name, np.array(i)) for i, name in enumerate(NAMES))
    c = collection(url, session=session)
    assert list(c) == sorted(NAMES)
    assert [int(each) for each in c.read_many(NAMES)] == list(range(len(NAMES)))
    store, path = locate(url)
    keys = [key.removeprefix(path).lstrip("/") for key, _ in store.keys(path)]
    assert {key.partition("/")[0] for key in keys} == {"collection.json", "index", "packs"}
    assert os.listdir(tmp_path) in ([], ["c"])


@pytest.mark.parametrize("name", ["\ud800", "x" * (1 << 17), 3, None, b"a", ["a"]])
def test_names_that_are_none(url, session, name):
    c = collection(url, "w-", session=session)
    with pytest.raises(InvalidInputError):
        c.put_many([(name, np.zeros(1))])
    with pytest.raises((InvalidInputError, TypeError)):
        c[name]
    assert len(c) == 0


def test_reading_keeps_order_and_duplicates_apart(url, session):
    c = collection(url, "w-", session=session)
    c.put_many(numbered(9))
    one, other, again = c.read_many(["n/00007", "n/00003", "n/00007"])
    assert (one[0, 0], other[0, 0], again[0, 0]) == (7, 3, 7)
    one[...] = 0
    assert (again == 7).all()
    assert (c["n/00007"] == 7).all()
    assert c.read_many([]) == []
    with pytest.raises(NotFoundError, match="n/99"):
        c.read_many(["n/00001", "n/99"])
    with pytest.raises(KeyError):
        c["other"]
    with pytest.raises(InvalidInputError):
        c.read_many("n/00001")


def test_later_puts_win_and_deleted_names_are_gone(url, session, small):
    c = collection(url, "w-", session=session)
    c.put_many(numbered(40))
    c.put_many([("n/00005", np.array(1)), ("n/00005", np.array(2)), ("m", np.array(3))])
    del c["n/00006"]
    c.delete_many(["n/00007", "n/00007"])
    expected = sorted({*numbered(40), "m"} - {"n/00006", "n/00007"})
    for handle in (c, collection(url, session=session)):
        assert list(handle.names()) == expected
        assert len(handle) == len(expected)
        assert list(handle.names("n/0001")) == [f"n/{i:05d}" for i in range(10, 20)]
        assert handle["n/00005"] == 2
        assert "n/00006" not in handle
        assert "m" in handle
        assert 3 not in handle
        assert "\ud800" not in handle
    with pytest.raises(NotFoundError):
        del c["n/00006"]
    c["n/00006"] = np.array(9)
    assert c["n/00006"] == 9
    assert len(c) == len(expected) + 1


def test_compaction_changes_nothing_but_the_index(url, session, small):
    c = collection(url, "w-", session=session)
    c.put_many(numbered(60), {"n/00011": {"x": 1, "kind": "a"}, "n/00012": {"x": 2.5}})
    for i in range(5):
        c[f"n/{i:05d}"] = np.array(-i)
    del c["n/00059"]
    ids = {name: c.entry(name).id for name in c}
    before = dict(zip(c, c.read_many(list(c)), strict=True))
    old = collection(url, session=session)
    c.compact()
    # As many rows as there are arrays, in segments of 25.
    assert [each.rows for each in c.manifest.segments] == [25, 25, 9]
    assert not any(each.deleted for each in c.manifest.segments)
    for handle in (c, old, old.refresh()):
        assert {name: handle.entry(name).id for name in handle} == ids
        assert all(same(handle[name], before[name]) for name in before)
        assert handle.select(x=(0, None)) == ["n/00011", "n/00012"]
    assert c.manifest.generation > old.manifest.generation


def test_segments_stay_few_however_often_something_is_put(url, session):
    c = collection(url, "w-", session=session)
    for i in range(100):
        c[f"n/{i:05d}"] = np.array(i)
    assert len(c.manifest.segments) < 16
    assert sum(each.rows for each in c.manifest.segments) == len(c) == 100
    assert [int(each) for each in c.read_many(list(c))] == list(range(100))


def test_a_handle_is_a_snapshot(url, session):
    c = collection(url, "w-", session=session)
    c.put_many(numbered(3))
    old = collection(url, session=session)
    c["n/00001"] = np.array(-1)
    c["new"] = np.array(1)
    del c["n/00002"]
    c.compact()
    assert list(old) == ["n/00000", "n/00001", "n/00002"]
    assert (old["n/00001"] == 1).all()
    assert (old["n/00002"] == 2).all()
    fresh = old.refresh()
    assert list(fresh) == ["n/00000", "n/00001", "new"]
    assert fresh["n/00001"] == -1
    assert list(old) == ["n/00000", "n/00001", "n/00002"]


def test_ids_are_for_life(url, session):
    c = collection(url, "w-", session=session)
    c.put_many(numbered(5))
    ids = [entry.id for entry in c.entries(list(c))]
    assert len(set(ids)) == 5
    assert all(0 <= each < 1 << 62 for each in ids)
    c["more"] = np.zeros(1)
    c.compact()
    assert [entry.id for entry in c.entries([f"n/{i:05d}" for i in range(5)])] == ids


def test_packs_are_filled_up_to_a_size(url, session):
    c = collection(url, "w-", session=session)
    sizes = [30, 30, 30, 50, 200, 10, 90]
    c.put_many(((f"{i}", np.zeros(n, "u1")) for i, n in enumerate(sizes)), pack_bytes=100)
    packs = {}
    for i in range(len(sizes)):
        packs.setdefault(c.entry(f"{i}").pack, []).append(i)
    assert list(packs.values()) == [[0, 1, 2], [3], [4], [5, 6]]
    with pytest.raises(InvalidInputError):
        c.put_many({"a": np.zeros(1)}, pack_bytes=0)


def test_modes(url, session):
    with pytest.raises(NotFoundError):
        collection(url, session=session)
    collection(url, "a", session=session)["a"] = np.array(1)
    with pytest.raises(ConflictError):
        collection(url, "w-", session=session)
    assert list(collection(url, "a", session=session)) == ["a"]
    reader = collection(url, session=session)
    for change in (
        lambda: reader.put_many({}),
        lambda: reader.delete_many(["a"]),
        reader.compact,
        reader.sweep,
    ):
        with pytest.raises(InvalidInputError, match="r\\+"):
            change()
    writer = collection(url, "r+", session=session)
    fresh = collection(url, "w", session=session)
    assert list(fresh) == []
    # The handle from before is of a collection that is no more.
    with pytest.raises(ConflictError):
        writer["b"] = np.array(2)
    with pytest.raises(InvalidInputError):
        collection(url, "x", session=session)


def test_put_many_refuses_what_it_cannot_understand(url, session):
    c = collection(url, "w-", session=session)
    for items in (3, [("a",)], ["ab1"], [("a", np.zeros(1), 3)]):
        with pytest.raises(InvalidInputError):
            c.put_many(items)
    with pytest.raises(InvalidInputError):
        c.put_many({"a": np.zeros(1)}, attrs=[1])
    with pytest.raises(ZeroDivisionError):
        c.put_many((f"{i}", np.zeros(1 // (3 - i))) for i in range(5))
    c.put_many({})
    assert c.manifest.generation == 0


def test_progress_is_told(url, session):
    told = []
    c = collection(url, "w-", session=session)
    c.put_many(numbered(4), progress=lambda done, total: told.append((done, total)))
    assert told == [(24, 96), (48, 96), (72, 96), (96, 96)]


def test_it_pickles(url, session):
    c = collection(url, "w-", session=session)
    c.put_many(numbered(4))
    copy = pickle.loads(pickle.dumps(c))
    assert list(copy) == list(c)
    assert (copy["n/00003"] == 3).all()


def test_info_says_what_there_is(url, session):
    c = collection(url, "w-", session=session)
    c.put_many(numbered(4), {"n/00001": {"x": 1}})
    info = c.info()
    assert (info["rows"], info["segments"], info["data_bytes"], info["columns"]) == (4, 1, 96, {"x": "int"})
    assert repr(url)[1:-1] in repr(c)


ATTRS = {
    "a": {"time": 0, "x": 1.5, "kind": "one", "ok": True, "day": np.datetime64("2020-01-01")},
    "b": {"time": 3, "x": 2, "kind": "two", "ok": False, "day": datetime.date(2020, 1, 2)},
    "c": {"time": 5, "kind": "one"},
    "d": {"time": None, "x": float("nan")},
    "e": {},
}


@pytest.fixture(params=["one segment", "many"])
def described(request, url, session, small):
    c = collection(url, "w-", session=session)
    if request.param == "one segment":
        c.put_many({name: np.zeros(1) for name in ATTRS}, ATTRS)
    else:
        c.put_many((name, np.zeros(1), {"time": -1, "kind": "old"}) for name in [*ATTRS, "gone"])
        del c["gone"]
        for name, attrs in ATTRS.items():
            c.put_many([(name, np.zeros(2), attrs)])
    return collection(url, session=session)


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ({}, "abcde"),
        ({"time": (0, 5)}, "ab"),
        ({"time": (None, 5)}, "ab"),
        ({"time": (3, None)}, "bc"),
        ({"time": 3}, "b"),
        ({"time": [0, 5, 7]}, "ac"),
        ({"time": np.array([0, 5])}, "ac"),
        ({"time": range(4)}, "ab"),
        ({"kind": "one"}, "ac"),
        ({"kind": ["two", "three"]}, "b"),
        ({"kind": ("p", None)}, "b"),
        ({"x": (1, 3)}, "ab"),
        ({"x": 2}, "b"),
        ({"time": (0, 9), "kind": "one", "x": (0, 9)}, "a"),
        ({"ok": True}, "a"),
        ({"ok": [True, False]}, "ab"),
        ({"day": (np.datetime64("2020-01-01"), np.datetime64("2020-01-02"))}, "a"),
        ({"day": datetime.date(2020, 1, 2)}, "b"),
        ({"time": []}, ""),
        ({"kind": "old"}, ""),
    ],
)
def test_select(described, wanted, names):
    assert described.select(**wanted) == list(names)


@pytest.mark.parametrize("wanted", [{"y": 1}, {"time": "a"}, {"kind": 3}, {"time": (1, 2, 3)}, {"time": None}])
def test_select_refuses(described, wanted):
    with pytest.raises(InvalidInputError):
        described.select(**wanted)


def test_attributes_are_typed_columns(described):
    found = described.attributes(["b", "a", "b"])
    assert found["time"].tolist() == [3, 0, 3]
    assert found["time"].dtype == "i8"
    assert found["x"].tolist() == [2.0, 1.5, 2.0]
    assert found["kind"].tolist() == ["two", "one", "two"]
    assert found["ok"].tolist() == [False, True, False]
    assert found["day"].dtype == "M8[ns]"
    found = described.attributes(columns=["time", "kind"])
    assert list(found) == ["time", "kind"]
    assert found["time"].mask.tolist() == [False, False, False, True, True]
    assert found["time"][:3].tolist() == [0, 3, 5]
    assert found["kind"].tolist() == ["one", "two", "one", None, None]
    with pytest.raises(InvalidInputError):
        described.attributes(["a"], ["nothing"])
    with pytest.raises(NotFoundError):
        described.attributes(["z"])


@pytest.mark.parametrize(
    "value", [[1], {"a": 1}, 2**63, b"x", "\ud800", datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC), 1j,
              np.datetime64("9999-01-01"), np.timedelta64(5, "ns"), np.timedelta64(5, "s"), "é" * 32_769],
)  # fmt: skip
def test_attributes_that_are_none(url, session, value):
    c = collection(url, "w-", session=session)
    with pytest.raises(InvalidInputError):
        c.put_many([("a", np.zeros(1), {"x": value})])


@pytest.mark.parametrize("unit", ["s", "us", "ns"])
def test_a_time_in_an_array_without_axes_is_a_time(url, session, unit):
    c = collection(url, "w-", session=session)
    c.put_many([("a", 1, {"t": np.array("2020-01-01T12", f"M8[{unit}]"), "self": np.array(3)})])
    assert c.attributes()["t"].tolist() == np.array(["2020-01-01T12"], "M8[ns]").tolist()
    assert c.manifest.columns == {"t": "time", "self": "int"}
    assert c.select(self=3, t=np.datetime64("2020-01-01T12")) == ["a"]


def test_times_of_pandas_keep_their_nanoseconds(url, session):
    pandas = pytest.importorskip("pandas")
    c = collection(url, "w-", session=session)
    when = "2020-01-01T00:00:00.000000123"
    c.put_many([("a", 1, {"t": pandas.Timestamp(when)}), ("b", 1, {"t": pandas.NaT})])
    assert c.attributes(["a"])["t"].tolist() == np.array([when], "M8[ns]").tolist()
    assert c.select(t=(None, None)) == ["a"]
    with pytest.raises(InvalidInputError, match="time zone"):
        c.put_many([("c", 1, {"t": pandas.Timestamp(when, tz="UTC")})])


def test_long_texts_do_not_make_blocks_that_nobody_reads(url, session, monkeypatch):
    monkeypatch.setattr(segment, "MAX_BLOCK_BYTES", 1 << 20)
    c = collection(url, "w-", session=session)
    text = "x" * (1 << 16)
    c.put_many((f"n{i:02}", np.full(2, i), {"text": text, "i": i}) for i in range(40))
    found = collection(url, session=session)
    assert found["n17"].tolist() == [17, 17]
    assert found.select(i=(3, 5)) == ["n03", "n04"]
    assert found.attributes(["n39"])["text"].tolist() == [text]
    c.compact()
    assert len(collection(url, session=session)) == 40


def test_segments_are_cut_by_their_bytes_too(url, session, monkeypatch):
    monkeypatch.setattr(writing, "_SEGMENT_TEXT_BYTES", 1 << 18)
    monkeypatch.setattr(segment, "_SEGMENT_BYTES", 1 << 20)
    c = collection(url, "w-", session=session)
    names = [f"{i:02}" + "n" * 60_000 for i in range(40)]
    putting = writing.Putting(StoreWriter(session, c.store), c.path, {}, 1000)
    stored = putting.run(((name, np.full(2, i), None) for i, name in enumerate(names)), None, 0)
    assert [each.rows for each in stored] == 8 * [5]
    putting.commit(c.manifest.uuid)
    c.compact()
    assert len(c.manifest.segments) == 2
    assert list(c) == names
    assert c[names[33]].tolist() == [33, 33]


def test_attributes_do_not_outgrow_the_manifest(url, session):
    c, other = collection(url, "w-", session=session), collection(url, "r+", session=session)
    with pytest.raises(InvalidInputError, match="belongs into values"):
        c.put_many((f"n{i}", 0, {f"column {i}": i}) for i in range(1025))
    assert list(c.refresh()) == []
    c.put_many((f"n{i}", 0, {f"column {i}": i}) for i in range(1024))
    c.put_many([("again", 0, {"column 7": 8})])
    # A handle that has not seen the columns learns of them when it commits.
    with pytest.raises(InvalidInputError, match="belongs into values"):
        other.put_many([("more", 0, {"column": 1})])
    assert len(other.refresh()) == 1025


def test_a_column_has_one_type(url, session):
    c = collection(url, "w-", session=session)
    other = collection(url, "r+", session=session)
    c.put_many([("a", np.zeros(1), {"x": 1})])
    c.put_many([("b", np.zeros(1), {"x": 1.5})])
    assert c.manifest.columns == {"x": "float"}
    assert c.attributes(["a", "b"])["x"].tolist() == [1.0, 1.5]
    with pytest.raises(InvalidInputError, match="str"):
        c.put_many([("c", np.zeros(1), {"x": "text"})])
    # A handle that has not seen the column learns of it when it commits.
    with pytest.raises(InvalidInputError, match="float"):
        other.put_many([("c", np.zeros(1), {"x": "text"})])
    assert list(c.refresh()) == ["a", "b"]


def test_files_are_read_mapped_and_counted(tmp_path, session):
    c = collection(tmp_path / "c", "w-", session=session)
    c.put_many(numbered(30))
    assert isinstance(c.store, LocalStore)
    c.read_many(list(c))
    before = session.metrics.snapshot()
    c.read_many(["n/00001", "n/00002"])
    after = session.metrics.snapshot()
    assert (after.reads - before.reads, after.bytes - before.bytes, after.lookups - before.lookups) == (1, 48, 0)


def test_a_budget_and_options_hold_for_files_too(tmp_path):
    with hs.Session(budget=hs.Budget(bytes=100)) as session:
        c = collection(tmp_path / "c", "a")
        c.put_many(numbered(30))
        c = collection(tmp_path / "c", session=session)
        with pytest.raises(hs.errors.BudgetError):
            c.read_many(list(c))
    c = collection(tmp_path / "c")
    with pytest.raises(hs.errors.BudgetError):
        c.read_many(list(c), budget=hs.Budget(bytes=100))
    assert (c.read_many(["n/00001"], method="get", deadline=60.0)[0] == 1).all()


def test_what_is_read_is_recorded_as_ids(url, session, tmp_path):
    c = collection(url, "w-", session=session)
    c.put_many(numbered(6))
    with hs.record(tmp_path / "log"):
        c.read_many(["n/00003", "n/00001", "n/00003"])
        c["n/00002"]
    workload = hs.Workload.load(tmp_path / "log")
    assert len(workload) == 2
    ids = [sorted(c.entry(name).id for name in some) for some in (["n/00001", "n/00003"], ["n/00002"])]
    assert workload.records.cells.tolist() == [*ids[0], *ids[1]]
    assert workload.records.arrays[0].url.endswith("/c")
    assert str(workload.summary())


def test_memory_for_the_index_is_bounded(url, tmp_path):
    collection(url, "w-").put_many((f"n/{i:06d}", np.array(i)) for i in range(20_000))
    with hs.Session(index_bytes=100_000, cache_bytes=0) as session:
        c = collection(url, session=session)
        for i in np.random.default_rng(0).integers(0, 20_000, 300).tolist():
            assert c[f"n/{i:06d}"] == i
        assert session.indexes.used_bytes <= 100_000
        assert len(c._index.known) <= 200
        names = [f"n/{i:06d}" for i in range(0, 20_000, 7)]
        assert [int(each) for each in c.read_many(names)] == list(range(0, 20_000, 7))
        assert len(c._index.known) <= 200
        assert sum(1 for _ in c) == 20_000
