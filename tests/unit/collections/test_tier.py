"""Arrays in a key/value tier beside their packs: who asks what of it, and what happens when it has something else."""

import pickle
import socket
import warnings

import numpy as np
import pytest
from support.faulty import FaultyStore
from support.forking import in_child
from support.plans import plan_of

import hyperslab as hs
from hyperslab.collections import collection
from hyperslab.collections.collection import open_at
from hyperslab.collections.tier import Tier
from hyperslab.errors import InvalidInputError, StoreError
from hyperslab.store import LocalStore
from hyperslab.store.keyvalue import Guard, TierWarning, open_tier

pytest.importorskip("lmdb")

ARRAYS = {f"n/{i:03d}": np.full((10, 10), i, "f4") for i in range(60)}
NAMES = list(ARRAYS)
KEYED = NAMES[::3]


@pytest.fixture
def session():
    with hs.Session() as made:
        yield made


@pytest.fixture
def c(tmp_path, session):
    made = collection(tmp_path / "c", "w-", tier=f"lmdb:{tmp_path}/tier", tier_bytes=1 << 20, session=session)
    made.put_many({**ARRAYS, "empty": np.zeros((0, 2))})
    made.apply(plan_of(made, [NAMES[:30], NAMES[30:]], keyed=[*KEYED]))
    return made


def counts(c):
    return c.tier.guard.counts


def check(c, names=NAMES):
    for name, found in zip(names, c.read_many(names), strict=True):
        assert np.array_equal(found, ARRAYS[name])
        found[:] = -1


def as_over_a_network(c):
    store = FaultyStore(LocalStore(c.store.root))
    return open_at("c", store, "", c.session, "r+", c.tier.guard), store


def test_keyed_arrays_come_from_the_tier_and_others_from_packs(c):
    keys = set(c.tier.keys())
    assert keys == {c.tier.key(entry.id) for entry in c.entries(KEYED)}
    asked = [NAMES[3], NAMES[1], NAMES[3], "empty", NAMES[0]]
    found = c.read_many(asked)
    assert [array.shape for array in found] == [(10, 10)] * 3 + [(0, 2), (10, 10)]
    assert [array.flat[0] for array in found if array.size] == [3, 1, 3, 0]
    assert found[0] is not found[2]
    assert (counts(c).hits, counts(c).misses) == (2, 0)
    check(c)
    check(c)


def test_only_what_is_not_there_is_asked_of_the_store(c):
    remote, store = as_over_a_network(c)
    store.log.clear()
    remote.entries(NAMES)
    asked = len(store.log)
    check(remote, KEYED)
    assert len(store.log) == asked
    check(remote)
    assert len(store.log) > asked


def test_without_the_tier_everything_is_in_packs(c, session):
    check(collection(c.store.root, session=session))


def test_what_is_missing_is_put_back(c):
    c.tier.guard.tier.delete_many(list(c.tier.keys()))
    with pytest.warns(TierWarning, match="was it emptied"):
        check(c)
    assert counts(c).misses == len(KEYED)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(c)
    assert counts(c).hits == len(KEYED)


def test_wrong_values_are_replaced(c):
    c.tier.guard.tier.put_many(dict.fromkeys(c.tier.keys(), b"poison"))
    with pytest.warns(TierWarning, match="wrong bytes"):
        check(c)
    check(c)
    assert (counts(c).wrong, counts(c).hits) == (len(KEYED), len(KEYED))


def test_a_new_version_is_not_taken_from_the_tier(c):
    c[KEYED[0]] = np.array(77)
    assert c[KEYED[0]] == 77
    assert not c.entry(KEYED[0]).keyed
    old = collection(c.store.root, tier=c.tier.guard.tier, session=c.session)
    assert old[KEYED[0]] == 77


def test_another_plan_takes_arrays_out_of_the_tier(c):
    c.apply(plan_of(c, [NAMES], keyed=NAMES[:4]))
    assert set(c.tier.keys()) == {c.tier.key(entry.id) for entry in c.entries(NAMES[:4])}
    check(c)
    c.apply(plan_of(c, [NAMES]))
    assert list(c.tier.keys()) == []
    check(c)


def test_collections_share_a_tier(c, tmp_path, session):
    other = collection(tmp_path / "other", "w-", tier=c.tier.guard.tier, session=session)
    other.put_many(ARRAYS)
    other.apply(plan_of(other, [NAMES], keyed=NAMES[:2]))
    other.apply(plan_of(other, [NAMES], keyed=NAMES[:1]))
    assert len(list(other.tier.keys())) == 1
    assert len(list(c.tier.keys())) == len(KEYED)
    assert len(list(c.tier.guard.tier.keys())) == 1 + len(KEYED)


def test_what_has_no_room_is_said_and_read_from_packs(tmp_path, session):
    arrays = {f"{i:03d}": np.full(10_000, i, "i8") for i in range(40)}
    c = collection(tmp_path / "c", "w-", tier=f"lmdb:{tmp_path}/tier", tier_bytes=1 << 20, session=session)
    c.put_many(arrays)
    with pytest.warns(TierWarning, match="no room for"):
        c.apply(plan_of(c, [list(arrays)], keyed=list(arrays)))
    stored = len(list(c.tier.keys()))
    assert 5 < stored < 20
    with pytest.warns(TierWarning, match="lacks"):
        found = c.read_many(list(arrays))
    assert all(np.array_equal(one, other) for one, other in zip(found, arrays.values(), strict=True))
    assert len(list(c.tier.keys())) >= stored


def test_reads_are_recorded_whole(c, tmp_path):
    with hs.record(tmp_path / "log"):
        c.read_many(NAMES[:5])
        c.read_many(KEYED[:2])
        c[NAMES[1]]
    workload = hs.Workload.load(tmp_path / "log")
    ids = [set(picks.axes[0].cells.tolist()) for picks in workload.selections()]
    expected = [NAMES[:5], KEYED[:2], [NAMES[1]]]
    assert ids == [{entry.id for entry in c.entries(names)} for names in expected]


def test_metrics_count_what_the_tier_gave(c):
    before = c.session.metrics.snapshot()
    c.read_many(KEYED[:4])
    after = c.session.metrics.snapshot()
    assert (after.reads - before.reads, after.cache_hits - before.cache_hits) == (1, 4)
    assert (after.needed_bytes - before.needed_bytes, after.requests - before.requests) == (1600, 0)


def test_options_hold_with_a_tier(c):
    remote, _ = as_over_a_network(c)
    for array, name in zip(remote.read_many(NAMES, deadline=30, phi=0.0), NAMES, strict=True):
        assert np.array_equal(array, ARRAYS[name])
    assert counts(remote).hits >= len(KEYED)


def test_a_tier_that_does_not_answer_leaves_time_for_the_packs(c):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        guard = Guard(open_tier(f"redis://127.0.0.1:{silent.getsockname()[1]}/0", capacity_bytes=1 << 20))
        store = FaultyStore(LocalStore(c.store.root), latency_s=0.02)
        remote = open_at("c", store, "", c.session, "r", guard)
        remote["empty"]
        with pytest.warns(TierWarning, match="fails"):
            found = remote.read_many(KEYED, deadline=5.0)
    assert np.array_equal(found[3], ARRAYS[KEYED[3]])


def test_handles_keep_their_tier(c):
    assert c.refresh().tier.guard is c.tier.guard
    copy = pickle.loads(pickle.dumps(c))
    check(copy)
    assert counts(copy).hits == len(KEYED)
    assert in_child(lambda: (check(c), counts(c).hits)[1]) == len(KEYED)


class _Broken:
    """A tier that fails at everything."""

    address, capacity_bytes = "broken://", 1 << 20

    def _fail(self, *_, **__):
        raise StoreError("broken")

    get_many = put_many = delete_many = keys = used_bytes = price_bytes = _fail

    def close(self):
        pass


def test_a_tier_that_fails_is_said_once(c):
    broken = collection(c.store.root, "r+", tier=_Broken(), session=c.session)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check(broken)
        check(broken)
        broken.apply(plan_of(broken, [NAMES], keyed=NAMES[:9]))
        check(broken)
    (told,) = caught
    assert "fails: broken" in str(told.message)
    assert told.filename == __file__


def test_a_tier_that_fails_cannot_be_planned_for(c):
    broken = collection(c.store.root, tier=_Broken(), session=c.session)
    with pytest.raises(StoreError, match="broken"):
        broken.advise([NAMES[:3]])
    assert broken.advise([NAMES[:3]], key_bytes=0).findings.keys is None


def test_a_tier_that_fails_while_it_is_filled(c):
    broken = collection(c.store.root, "r+", tier=_Broken(), session=c.session)
    with pytest.warns(TierWarning, match="fails: broken") as caught:
        broken.apply(plan_of(broken, [NAMES], keyed=NAMES[:9]))
    assert len(caught) == 1
    assert sum(entry.keyed for entry in broken.entries(NAMES)) == 9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tier_bytes": 5}, "name the tier"),
        ({"tier": "s3://bucket/x"}, "is no tier"),
        ({"tier": 5}, "a tier is a URL"),
        ({"tier": "lmdb:"}, "named by its path"),
        ({"tier": "lmdb://"}, "named by its path"),
        ({"tier": "redis://localhost", "tier_bytes": -1}, "capacity_bytes"),
    ],
)
def test_tiers_that_are_none(tmp_path, options, message):
    with pytest.raises(InvalidInputError, match=message):
        collection(tmp_path / "c", "w-", **options)


def test_a_collection_that_is_made_anew_leaves_nothing_in_the_tier(c):
    tier = c.tier.guard.tier
    used = tier.used_bytes()
    for _ in range(3):
        new = collection(c.url, "w", tier=tier, session=c.session)
        assert list(tier.keys()) == []
        new.put_many(ARRAYS)
        new.apply(plan_of(new, [NAMES], keyed=KEYED))
        assert tier.used_bytes() <= used
        check(new)
    assert counts(new).misses == 0


def test_a_tier_that_is_open_with_another_capacity_is_read_around(c, session):
    other = collection(c.url, tier=f"lmdb:{c.url}/../tier", tier_bytes=2 << 20, session=session)
    with pytest.warns(TierWarning, match="close that tier first"):
        check(other)


def test_an_open_tier_has_its_capacity(tmp_path):
    with pytest.raises(InvalidInputError, match="leave tier_bytes out"):
        collection(tmp_path / "c", "w-", tier=open_tier(tmp_path / "t", capacity_bytes=1 << 20), tier_bytes=1 << 20)


def test_little_is_put_back_at_a_time(tmp_path, session):
    tier = open_tier(tmp_path / "t", capacity_bytes=64 << 20)
    c = collection(tmp_path / "c", "w-", tier=tier, session=session)
    c.put_many({str(i): np.full(50_000, i) for i in range(8)})
    c.apply(plan_of(c, [list(c)], keyed=list(c)))
    tier.delete_many(list(tier.keys()))
    with pytest.warns(TierWarning):
        c.read_many(list(c))
    assert len(list(tier.keys())) == 2


def test_keys_tell_collections_apart(tmp_path):
    guard = Guard(open_tier(tmp_path / "t", capacity_bytes=1 << 20))
    one, other = Tier(guard, "0" * 32), Tier(guard, "f" * 32)
    assert one.key(5) != other.key(5) != other.key(6)
    assert len(one.key((1 << 62) - 2)) == 24
