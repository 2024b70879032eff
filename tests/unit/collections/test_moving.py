"""Plans applied: the same arrays, in the packs that the plan says."""

import io
import itertools
import os
import pickle
import re
import zipfile

import numpy as np
import pytest
from support.faulty import Fault, FaultyStore
from support.plans import plan_of, random_plan

import hyperslab as hs
from hyperslab.collections import collection, moving, plans, segment, writing
from hyperslab.collections.collection import open_at
from hyperslab.collections.plans import Plan, load_plan
from hyperslab.errors import ConflictError, FormatError, IntegrityError, InvalidInputError, NotFoundError
from hyperslab.store import LocalStore, locate

_numbers = itertools.count()
ARRAYS = {f"n/{i:03d}": np.full((3, 5), i, "f4") for i in range(40)}
ATTRS = {name: {"time": i, "kind": "ab"[i % 2]} for i, name in enumerate(ARRAYS)}
NAMES = list(ARRAYS)


@pytest.fixture(params=["file", "memory"])
def url(request, tmp_path):
    return tmp_path / "c" if request.param == "file" else f"memory://moving-{os.getpid()}-{next(_numbers)}/c"


@pytest.fixture
def session():
    with hs.Session(retries=1) as made:
        yield made


@pytest.fixture
def c(url, session):
    made = collection(url, "w-", session=session)
    made.put_many(ARRAYS, ATTRS, pack_bytes=400)
    return made


def contents(c):
    names = list(c)
    return {name: (array.dtype, array.tolist()) for name, array in zip(names, c.read_many(names), strict=True)}


def packs_of(c, names):
    return [entry.pack for entry in c.entries(names)]


def test_arrays_lie_as_planned(c):
    before = contents(c)
    ids = [entry.id for entry in c.entries(NAMES)]
    groups = [NAMES[0::2], NAMES[1::4], NAMES[3::4]]
    c.apply(plan_of(c, groups, keyed=NAMES[:5]))
    assert contents(c) == before == contents(c.refresh())
    for group in groups:
        entries = c.entries(group)
        assert len({entry.pack for entry in entries}) == 1
        assert [entry.start for entry in entries] == [60 * at for at in range(len(group))]
    assert len(set(packs_of(c, NAMES))) == 3
    assert [entry.id for entry in c.entries(NAMES)] == ids
    assert [entry.keyed for entry in c.entries(NAMES)] == [True] * 5 + [False] * 35
    assert c.select(time=(3, 7), kind="b") == ["n/003", "n/005"]


def test_old_packs_stay_until_they_are_swept(c):
    old, before = c.refresh(), contents(c)
    c.apply(plan_of(c, [NAMES]))
    assert contents(old) == before
    assert c.sweep(grace_s=3600) == 0
    assert contents(old) == before
    assert c.sweep(grace_s=0) >= 6
    assert contents(c) == before


def test_what_was_applied_is_nothing_to_do(url, c, session):
    plan = random_plan(c, np.random.default_rng(1))
    c.apply(plan)
    store, path = locate(url)
    faulty = FaultyStore(store)
    again = open_at(str(url), faulty, path, session, "r+")
    again.apply(plan)
    assert faulty.puts == []
    assert again.manifest == c.manifest


def test_one_plan_after_another(c):
    before, numbers = contents(c), np.random.default_rng(2)
    for _ in range(5):
        c.apply(random_plan(c, numbers))
        assert contents(c) == before
        c.sweep(grace_s=0)
    assert contents(c.refresh()) == before


def test_newer_arrays_stay_where_they_are_and_deleted_ones_are_gone(url, c, session):
    plan = plan_of(c, [NAMES[:20], NAMES[20:]], keyed=NAMES)
    other = collection(url, "r+", session=session)
    other["n/003"] = np.zeros(2)
    other["new"] = np.ones(3)
    del other["n/004"]
    c.apply(plan)
    assert c["n/003"].tolist() == [0, 0]
    assert c["new"].tolist() == [1, 1, 1]
    assert "n/004" not in c
    assert not c.entry("n/003").keyed
    assert len(c) == 40


def test_what_is_put_while_packs_are_written_stays(url, c, session):
    """Another writer comes in just before the manifest is replaced; also one that merges the whole index."""
    store, path = locate(url)
    for number, change in enumerate((
        lambda other: other.put_many({"late": np.array(7), "n/001": np.array(8)}),
        lambda other: other.delete_many(["n/002"]),
        lambda other: (other.put_many({"n/005": np.array(9)}), other.compact()),
    )):  # fmt: skip
        expected = contents(collection(url, session=session))
        faulty = FaultyStore(store)
        moving = open_at(str(url), faulty, path, session, "r+")

        def interfere(change=change):
            change(collection(url, "r+", session=session))

        faulty.faults.append(Fault("collection.json", 1, on="put", run=interfere))
        moving.apply(random_plan(moving, np.random.default_rng(number)))
        fresh = collection(url, session=session)
        expected |= {
            0: {"late": (np.dtype("i8"), 7), "n/001": (np.dtype("i8"), 8)},
            1: {}, 2: {"n/005": (np.dtype("i8"), 9)},
        }[number]  # fmt: skip
        if number == 1:
            del expected["n/002"]
        assert contents(fresh) == expected == contents(moving)


def test_an_interrupted_change_goes_on_with_the_packs_that_it_has(url, c, session):
    plan = plan_of(c, [NAMES[at::8] for at in range(8)])
    store, path = locate(url)
    faulty = FaultyStore(store)
    before = contents(c)
    faulty.fail(100, key=".pack", on="put", skip=5)
    with pytest.raises(hs.errors.StoreError):
        open_at(str(url), faulty, path, session, "r+").apply(plan)
    assert contents(collection(url, session=session)) == before
    faulty, told = FaultyStore(store), []
    moving = open_at(str(url), faulty, path, session, "r+")
    moving.apply(plan, progress=lambda done, total: told.append((done, total)))
    again = [put.key for put in faulty.puts if put.key.endswith(".pack")]
    assert len(again) <= 3
    assert told[-1] == (2400, 2400)
    assert len(set(packs_of(moving, NAMES))) == 8
    assert contents(moving) == before


def test_a_pack_of_an_interrupted_change_that_is_not_whole_is_written_anew(tmp_path, session):
    c = collection(tmp_path / "c", "w-", session=session)
    c.put_many(ARRAYS)
    plan = plan_of(c, [NAMES[:20], NAMES[20:]])
    c.apply(plan)
    names = set(packs_of(c, NAMES))
    c.apply(plan_of(c, [NAMES]))
    for name in names:
        path = tmp_path / "c" / "packs" / f"{name}.pack"
        path.write_bytes(bytes(path.stat().st_size))
    c.apply(plan)
    assert set(packs_of(c, NAMES)) == names
    assert contents(c) == {name: (array.dtype, array.tolist()) for name, array in ARRAYS.items()}


def test_a_pack_that_is_marked_to_be_deleted_is_not_used_again(c):
    plan = plan_of(c, [NAMES[:20], NAMES[20:]])
    c.apply(plan)
    first = set(packs_of(c, NAMES))
    c.apply(plan_of(c, [NAMES]))
    assert c.sweep(grace_s=3600) == 0
    c.apply(plan)
    assert not first & set(packs_of(c, NAMES))


def test_damage_is_not_carried_over(tmp_path, session):
    c = collection(tmp_path / "c", "w-", session=session)
    c.put_many(ARRAYS)
    (path,) = (tmp_path / "c" / "packs").iterdir()
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    manifest = c.manifest
    with pytest.raises(IntegrityError, match="n/001"):
        collection(tmp_path / "c", "r+", session=session).apply(plan_of(c, [NAMES]))
    assert c.refresh().manifest == manifest


def test_empty_arrays_and_huge_names(url, session):
    c = collection(url, "w-", session=session)
    arrays = {"": np.zeros((0, 3)), "x" * 3000: np.arange(4), "..": np.array(5), "é": np.zeros(0, "U3")}
    c.put_many(arrays)
    before = contents(c)
    c.apply(plan_of(c, [list(arrays)], keyed=list(arrays)))
    assert contents(c) == before
    empty = Plan(c.manifest.uuid, *[np.zeros(0, np.int64)] * 2, np.zeros(0, bool))
    c.apply(empty)
    assert contents(c) == before


def test_many_segments_and_batches(url, monkeypatch):
    monkeypatch.setattr(segment, "_BLOCK_ROWS", 3)
    monkeypatch.setattr(writing, "_SEGMENT_ROWS", 7)
    arrays = {f"{i:04d}": np.full(5000, i) for i in range(100)}
    with hs.Session(memory_bytes=1 << 20) as session:
        c = collection(url, "w-", session=session)
        c.put_many(arrays, pack_bytes=100_000)
        told = []
        c.apply(random_plan(c, np.random.default_rng(3), 20), progress=lambda *now: told.append(now))
        assert len(told) > 3
        assert all((c[name] == array).all() for name, array in arrays.items())


class TestRefused:
    def test_of_another_collection(self, c, url, session):
        plan = plan_of(c, [NAMES])
        other = collection(url, "w", session=session)
        with pytest.raises(InvalidInputError, match="another collection"):
            other.apply(plan)
        with pytest.raises(ConflictError, match="another collection"):
            c.apply(plan)

    def test_opened_to_be_read(self, c, url):
        with pytest.raises(InvalidInputError, match="opened to be read"):
            collection(url).apply(plan_of(c, [NAMES]))

    @pytest.mark.parametrize("given", [None, 3, [], {"plan": 1}])
    def test_what_is_no_plan(self, c, given):
        with pytest.raises(InvalidInputError, match="a plan is"):
            c.apply(given)

    @pytest.mark.parametrize(
        ("ids", "packs"), [([1, 1], [0, 0]), ([1, 2], [0]), ([1, 2], [1, 1]), ([1, 2], [0, 2]), ([-1], [0])]
    )
    def test_plans_that_contradict_themselves(self, ids, packs):
        with pytest.raises(InvalidInputError):
            Plan("0" * 32, np.array(ids), np.array(packs), np.zeros(len(ids), bool))


class TestSaved:
    def test_it_comes_back(self, c, tmp_path):
        plan = plan_of(c, [NAMES[:7], NAMES[7:]], keyed=NAMES[3:9])
        plan.save(tmp_path / "plan.npz")
        found = load_plan(tmp_path / "plan.npz")
        assert found.uuid == plan.uuid
        for column in ("ids", "packs", "keyed"):
            assert np.array_equal(getattr(found, column), getattr(plan, column))
        assert not [name for name in os.listdir(tmp_path) if name.endswith(".part")]
        c.apply(tmp_path / "plan.npz")
        assert len(set(packs_of(c, NAMES))) == 2

    def test_files_that_are_no_plans(self, c, tmp_path, monkeypatch):
        path = tmp_path / "plan.npz"
        with pytest.raises(NotFoundError):
            c.apply(path)
        plan_of(c, [NAMES]).save(path)
        good = path.read_bytes()
        np.savez(tmp_path / "other.npz", a=np.arange(3))
        np.save(tmp_path / "array.npy", np.arange(3))
        bad = [b"", b"nothing", good[:-30], good[:40], (tmp_path / "other.npz").read_bytes(), pickle.dumps([1]),
               (tmp_path / "array.npy").read_bytes()]  # fmt: skip
        for data in [*bad, *_wilful(good)]:
            path.write_bytes(data)
            with pytest.raises(FormatError, match="no plan"):
                load_plan(path)
        np.savez_compressed(path, **dict.fromkeys(["ids", "packs"], np.zeros(64 << 20, "u1")), format=np.int64(1))
        assert path.stat().st_size < 1 << 20
        with monkeypatch.context() as patch:
            patch.setattr(plans, "_MOST_BYTES", 100 << 20)
            with pytest.raises(FormatError, match="would take"):
                load_plan(path)
        with pytest.raises(InvalidInputError):
            load_plan(tmp_path)
        with pytest.raises(InvalidInputError, match="cannot be written"):
            plan_of(c, [NAMES]).save(tmp_path / "none" / "plan.npz")


def _wilful(good):
    """Yield files that are plans but for one thing, which libraries stumble on in their own ways."""
    for flag, at_entry, at_file in ((1, 8, 6), (99, 10, 8)):
        # Encrypted; packed by a method that nobody knows.
        data = bytearray(good)
        for magic, offset in ((b"PK\1\2", at_entry), (b"PK\3\4", at_file)):
            for found in re.finditer(re.escape(magic), good):
                data[found.start() + offset] = flag
        yield bytes(data)
    for header in (
        "{'descr': '<i8', 'fortran_order': False, 'shape': (8589934592,)}",
        "{'descr': '<i8', 'fortran_order': False, 'shape': (-1,)}",
        "{'descr': '|O', 'fortran_order': False, 'shape': (1,)}",
        "(" * 5000,
        "-" * 6000 + "1",
    ):
        text = header.encode() + b"\n"
        column = b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text
        made = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(good)) as stored, zipfile.ZipFile(made, "w") as packed:
            for name in stored.namelist():
                packed.writestr(name, column if name == "ids.npy" else stored.read(name))
        yield made.getvalue()


def test_a_pack_that_memory_would_not_hold_is_refused(c, monkeypatch):
    monkeypatch.setattr(moving, "_MOST_PACK_BYTES", sum(ARRAYS[name].nbytes for name in NAMES) - 1)
    before = packs_of(c, NAMES)
    with pytest.raises(InvalidInputError, match="fewer pack_bytes"):
        c.apply(plan_of(c, [NAMES]))
    assert packs_of(c.refresh(), NAMES) == before


def test_a_pickled_handle_applies(tmp_path):
    c = collection(tmp_path / "c", "w-")
    c.put_many(ARRAYS)
    copy = pickle.loads(pickle.dumps(c))
    copy.apply(plan_of(c, [NAMES]))
    assert isinstance(copy.store, LocalStore)
    assert len(set(packs_of(copy, NAMES))) == 1
