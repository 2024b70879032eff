"""Advice on collections: queries from logs, measured prices, plans within their limits, figures that hold."""

import json
import os
import sys
from itertools import count
from math import inf

import numpy as np
import pytest
from support.forking import in_child

import hyperslab as hs
from hyperslab.collections import collection
from hyperslab.collections.catalog import read_catalog
from hyperslab.collections.index import Index
from hyperslab.collections.queries import read_log
from hyperslab.collections.tier import KEY_BYTES
from hyperslab.collections.touching import Touches, measure_keys, measure_touches, tier_weights
from hyperslab.errors import InvalidInputError, NotFoundError
from hyperslab.plan import Prices, Profile
from hyperslab.plan.cost import CostModel
from hyperslab.store.keyvalue import HEADER_BYTES, open_tier

pytest.importorskip("numba")
pytest.importorskip("lmdb")

_numbers = count()
COUNT, NBYTES = 240, 1764
NAMES = [f"n/{i:03d}" for i in range(COUNT)]
# What is read together lies far apart: groups of eight, 30 apart.
GROUPS = [NAMES[at::30] for at in range(30)]


@pytest.fixture
def session():
    with hs.Session(profile="s3", learn=False) as made:
        yield made


@pytest.fixture(params=["file", "memory"])
def url(request, tmp_path):
    return tmp_path / "c" if request.param == "file" else f"memory://advising-{os.getpid()}-{next(_numbers)}/c"


def filled(url, session, **options):
    c = collection(url, "w-", session=session, **options)
    items = ((name, np.full((21, 21), at, "f4"), {"time": at % 30, "x": at}) for at, name in enumerate(NAMES))
    c.put_many(items, pack_bytes=20 * NBYTES)
    return c


@pytest.fixture
def c(url, session):
    return filled(url, session)


@pytest.fixture
def tiered(session, tmp_path):
    url = f"memory://advising-{os.getpid()}-{next(_numbers)}/c"
    return filled(url, session, tier=f"lmdb:{tmp_path}/tier", tier_bytes=1 << 20)


def catalog_of(c, columns=()):
    return read_catalog(Index(c.session, c.store, c.path, c.manifest), columns)


def log_of(c, workload, by="read"):
    found = read_log(workload, c.url, catalog_of(c), by)
    return [[NAMES[at] for at in query.tolist()] for query in found.queries], found.lost


class TestQueries:
    def test_of_a_recording(self, c, tmp_path):
        with hs.record(tmp_path / "log"):
            c.read_many(GROUPS[3])
            c[NAMES[5]]
            c.read_many([NAMES[7], NAMES[2], NAMES[7]])
        expected = [GROUPS[3], [NAMES[5]], [NAMES[2], NAMES[7]]]
        for given in (tmp_path / "log", str(tmp_path / "log"), hs.Workload.load(tmp_path / "log")):
            assert log_of(c, given) == (expected, 0)

    def test_of_several_processes(self, tmp_path, session):
        c = filled(tmp_path / "c", session)

        def child(at):
            with hs.record(tmp_path / f"log{at}"):
                c[GROUPS[at][0]]
                c.read_many(GROUPS[at][1:])

        for at in range(3):
            in_child(lambda at=at: child(at))
        workload = hs.Workload.load(*[tmp_path / f"log{at}" for at in range(3)])
        queries, _ = log_of(c, workload)
        assert sorted(map(len, queries)) == [1, 1, 1, 7, 7, 7]
        queries, _ = log_of(c, workload, by="process")
        assert sorted(queries) == sorted(GROUPS[:3])

    def test_of_arrays_that_changed_since(self, c, tmp_path):
        with hs.record(tmp_path / "log"):
            c.read_many(NAMES[:4])
            c.read_many([NAMES[1]])
        c[NAMES[1]] = np.zeros(3)
        del c[NAMES[0]]
        found = read_log(tmp_path / "log", c.url, catalog_of(c))
        assert [len(query) for query in found.queries] == [2]
        assert found.lost == 3
        assert c.advise(tmp_path / "log").findings.lost == 3

    def test_of_a_collection_that_was_moved(self, tmp_path, session):
        c = filled(tmp_path / "c", session)
        with hs.record(tmp_path / "log"):
            c.read_many(GROUPS[0])
        os.rename(tmp_path / "c", tmp_path / "d")
        assert log_of(collection(tmp_path / "d", session=session), tmp_path / "log") == ([GROUPS[0]], 0)

    def test_of_names(self, c):
        assert log_of(c, [GROUPS[1], (NAMES[0],), iter(NAMES[3:5]), []]) == ([GROUPS[1], [NAMES[0]], NAMES[3:5]], 0)

    @pytest.mark.parametrize(
        ("given", "error"),
        [
            (None, InvalidInputError),
            (b"abc", InvalidInputError),
            (["n/001"], InvalidInputError),
            ([3], InvalidInputError),
            ([[]], InvalidInputError),
            ([["none"]], NotFoundError),
            ("nowhere.log", NotFoundError),
        ],
    )
    def test_what_is_no_workload(self, c, given, error):
        with pytest.raises(error):
            c.advise(given)

    def test_reads_of_an_array_are_none_of_a_collection(self, c, tmp_path):
        array = hs.save(tmp_path / "a.zarr", np.zeros(40))
        with hs.record(tmp_path / "log"):
            array[3:5]
        with pytest.raises(NotFoundError):
            c.advise(tmp_path / "log")


class TestPrices:
    def test_a_touch_is_measured(self, c):
        touches = measure_touches(c.session, c.store, c.path, catalog_of(c))
        assert 0 < touches.seconds < 5
        assert touches.sample_nbytes == NBYTES
        assert touches.cost(1 << 20) >= touches.seconds
        assert touches.mapped == (touches.cost(1 << 30) == touches.cost(1))

    def test_it_grows_as_the_model_says_and_is_billed(self):
        model = CostModel(Profile.named("s3"), Prices.named("aws"), phi=100.0)
        touches = Touches(0.02, 1000, False, model)
        grown = float(model.seconds(1, 1 << 24, 1 << 24)) - float(model.seconds(1, 1000))
        assert touches.cost(1 << 24) == pytest.approx(0.02 + grown + 100 * float(model.usd(1, 1 << 24)))
        only_dollars = Touches(0.02, 1000, False, CostModel(Profile.named("s3"), Prices.named("aws"), phi=inf))
        assert only_dollars.cost(1 << 24) == pytest.approx(float(model.usd(1, 1 << 24)))

    def test_where_only_dollars_count_keys_are_free_and_where_none_are_billed_time_decides(self, tiered, session):
        free = tiered.advise(3 * GROUPS, pack_bytes=8 * NBYTES, key_bytes=20_000, phi=inf)
        assert not free.findings.touches.in_dollars
        assert free.findings.prices.key_s > 0
        with hs.Session(profile="s3", prices="aws", learn=False) as billed:
            c = collection(tiered.url, tier=tiered.tier.guard.tier, session=billed)
            advice = c.advise(3 * GROUPS, pack_bytes=8 * NBYTES, key_bytes=20_000, phi=inf)
        assert (advice.findings.prices.key_s, advice.findings.prices.request_s) == (0.0, 0.0)
        assert "$0.0" in str(advice)

    def test_keys_have_a_price_each_and_leave_nothing(self, tmp_path):
        tier = open_tier(tmp_path / "tier", capacity_bytes=4 << 20)
        prices = measure_keys(tier, NBYTES)
        assert 0 < prices.key_s < 0.1
        assert prices.request_s >= 0
        assert list(tier.keys()) == []

    def test_a_full_tier_is_measured_by_what_it_has(self, tmp_path):
        tier = open_tier(tmp_path / "tier", capacity_bytes=1 << 20)
        assert len(tier.put_many({b"%d" % n: bytes(200_000) for n in range(9)})) > 1
        assert measure_keys(tier, 900_000) is not None
        tier.delete_many(list(tier.keys()))
        assert measure_keys(tier, 2 << 20) is None

    def test_weights_are_what_the_tier_counts(self, tmp_path):
        tier = open_tier(tmp_path / "tier", capacity_bytes=64 << 20)
        few = np.array([100, 5000, 100])
        exact = [tier.price_bytes(KEY_BYTES, HEADER_BYTES + size) for size in few.tolist()]
        assert tier_weights(tier, few).tolist() == exact
        many = np.random.default_rng(0).integers(1, 1 << 20, 500)
        exact = np.array([tier.price_bytes(KEY_BYTES, HEADER_BYTES + size) for size in many.tolist()])
        found = tier_weights(tier, many)
        assert (found >= exact).all()
        assert (found <= 1.4 * exact + 9000).all()

    def test_what_no_tier_takes_has_no_room(self, tmp_path):
        tier = open_tier(tmp_path / "tier", capacity_bytes=1 << 30)
        sizes = np.array([1 << 20, 65 << 20, 4 << 30])
        found = tier_weights(tier, sizes)
        assert found[0] < tier.capacity_bytes < found[1]
        assert found[2] >= sizes[2]

    def test_large_values_are_measured_by_few(self, tmp_path):
        tier = open_tier(tmp_path / "tier", capacity_bytes=1 << 30)
        assert measure_keys(tier, 16 << 20) is not None
        assert os.path.getsize(tmp_path / "tier" / "data.mdb") < 64 << 20


def limits_hold(c, advice, pack_bytes, key_bytes=0):
    """Check a plan against its limits, by sizes as they are counted; return the names by pack."""
    plan, sizes = advice.plan, {entry.id: entry.nbytes for entry in c.entries(list(c))}
    assert sorted(plan.ids.tolist()) == sorted(number for number, nbytes in sizes.items() if nbytes)
    loads = np.bincount(plan.packs, [sizes[number] for number in plan.ids.tolist()])
    counts = np.bincount(plan.packs)
    assert ((loads <= pack_bytes) | (counts == 1)).all()
    if plan.keyed.any():
        tier = c.tier.guard.tier
        kept = [sizes[number] for number in plan.ids[plan.keyed].tolist()]
        assert sum(tier.price_bytes(KEY_BYTES, HEADER_BYTES + nbytes) for nbytes in kept) <= key_bytes


class TestPlans:
    def test_what_is_read_together_is_packed_together(self, c):
        pack_bytes = 8 * NBYTES
        advice = c.advise(3 * GROUPS, pack_bytes=pack_bytes)
        limits_hold(c, advice, pack_bytes)
        found = advice.findings
        assert not advice.keep
        assert found.best.touches == 90
        assert found.now.touches == pytest.approx(8 * 90, rel=0.1)
        assert found.told.held_out < found.now.seconds / found.queries / 4
        assert found.bound <= found.told.trained * (1 + 1e-9)
        applied = advice.apply()
        for group in GROUPS:
            assert len({entry.pack for entry in applied.entries(group)}) == 1
        assert c.refresh().advise(3 * GROUPS, pack_bytes=pack_bytes).keep

    def test_hot_arrays_go_to_the_tier_within_its_room(self, tiered):
        rng = np.random.default_rng(1)
        queries = [list(rng.choice(NAMES, 6, replace=False)) + NAMES[:3] for _ in range(60)]
        advice = tiered.advise(queries, key_bytes=100_000, pack_bytes=8 * NBYTES)
        limits_hold(tiered, advice, 8 * NBYTES, 100_000)
        assert 0 < advice.findings.keyed_arrays < 100
        applied = advice.apply()
        assert all(entry.keyed for entry in applied.entries(NAMES[:3]))
        assert len(list(applied.tier.keys())) == advice.findings.keyed_arrays
        found = applied.read_many(NAMES)
        assert [array[0, 0] for array in found] == list(range(COUNT))
        assert applied.tier.guard.counts.hits == advice.findings.keyed_arrays
        again = applied.advise(queries, key_bytes=100_000, pack_bytes=8 * NBYTES)
        assert again.findings.now.keys > 0

    def test_the_size_of_packs_is_chosen_by_unseen_queries(self, session):
        url = f"memory://advising-{os.getpid()}-{next(_numbers)}/c"
        c = collection(url, "w-", session=session)
        c.put_many({name: np.full(3000, at) for at, name in enumerate(NAMES)})
        told = []
        advice = c.advise(2 * GROUPS, progress=lambda *now: told.append(now))
        sizes = advice.findings.sizes
        assert len(sizes) > 2
        assert advice.pack_bytes == min(sizes, key=lambda size: sizes[size])
        assert told[-1] == (len(sizes) + 1, len(sizes) + 1)
        limits_hold(c, advice, advice.pack_bytes)

    def test_unseen_queries_are_served_by_the_order_of_attributes(self, session):
        """Each query reads one stamp, and no two queries the same: only the attribute tells what comes next."""
        url = f"memory://advising-{os.getpid()}-{next(_numbers)}/c"
        c = filled(url, session)
        rng = np.random.default_rng(2)
        queries = [list(rng.choice(GROUPS[at % 30], 4, replace=False)) for at in range(60)]
        advice = c.advise(queries, pack_bytes=8 * NBYTES, order_by=("time",))
        assert advice.findings.ways["order"].held_out <= advice.findings.ways["log"].held_out * 1.01
        assert advice.findings.told.held_out < advice.findings.now.seconds / 60 / 2

    def test_one_query_is_planned_for_without_folds(self, c):
        found = c.advise([GROUPS[0]], pack_bytes=8 * NBYTES).findings
        assert (found.best.touches, found.told.held_out, found.ways) == (1, None, {})

    def test_attributes_of_all_kinds_order(self, session):
        url = f"memory://advising-{os.getpid()}-{next(_numbers)}/c"
        c = collection(url, "w-", session=session)
        c.put_many(
            (name, np.zeros(90), {"kind": "ab"[at % 2], "when": np.datetime64(at, "h"), "y": None if at % 3 else inf})
            for at, name in enumerate(NAMES)
        )
        for columns in (None, (), ("kind",), ("when", "y", "kind")):
            limits_hold(c, c.advise(GROUPS, pack_bytes=5000, order_by=columns), 5000)

    def test_arrays_without_cells_and_larger_than_a_pack(self, url, session):
        c = collection(url, "w-", session=session)
        c.put_many({"empty": np.zeros(0), "large": np.zeros(5000), **{str(i): np.zeros(100) for i in range(9)}})
        advice = c.advise(4 * [["empty", "large", "1"], ["2", "8"]], pack_bytes=2000)
        limits_hold(c, advice, 2000)
        assert list(advice.apply()) == sorted(["empty", "large", *map(str, range(9))])
        with pytest.raises(InvalidInputError, match="empty"):
            c.advise([["empty"]])

    def test_newer_arrays_than_the_advice_stay(self, c):
        advice = c.advise(3 * GROUPS, pack_bytes=8 * NBYTES)
        c["new"] = np.ones(3)
        c[NAMES[0]] = np.zeros(2)
        c.apply(advice)
        assert c["new"].sum() == 3
        assert c[NAMES[0]].shape == (2,)

    def test_advice_to_stay_changes_nothing(self, c):
        advice = c.advise([[name] for name in NAMES], pack_bytes=20 * NBYTES)
        assert advice.keep
        manifest = c.manifest
        c.apply(advice)
        assert advice.apply().manifest == manifest
        c.apply(advice.plan)
        assert c.manifest != manifest


class TestTold:
    def test_in_words(self, tiered):
        advice = tiered.advise(3 * GROUPS, pack_bytes=8 * NBYTES, key_bytes=20_000)
        text = str(advice)
        for expected in ("240 in 12 packs", "queries     90", "a key takes", "now", "advised", "held out"):
            assert expected in text
        assert "<table>" in advice._repr_html_()
        assert repr(advice).startswith("<hyperslab.CollectionAdvice 'memory://")

    def test_for_programs(self, c):
        values = json.loads(json.dumps(c.advise(3 * GROUPS, pack_bytes=8 * NBYTES).to_dict(), allow_nan=False))
        assert (values["keep"], values["arrays"], values["queries"]) == (False, COUNT, 90)
        assert values["best"]["packs"] == 1.0
        assert values["best"]["held_out"] < values["now"]["held_out"]
        assert set(values["ways"]) == {"log", "order"}

    def test_beside_the_plans_of_the_paper(self, c):
        pytest.importorskip("pymetis")
        advice = c.advise(3 * GROUPS, pack_bytes=8 * NBYTES, compare=True)
        found = advice.findings
        assert list(found.baselines) == ["range", "object", "P1", "PO", "C-P", "P-C"]
        assert all(found.told.trained <= each.trained * 1.01 for each in found.baselines.values())
        assert "query-weighted METIS (P1)" in str(advice)

    def test_without_metis_the_others_are_compared(self, c, monkeypatch):
        monkeypatch.setitem(sys.modules, "pymetis", None)
        advice = c.advise(3 * GROUPS, pack_bytes=8 * NBYTES, compare=True)
        assert advice.findings.baselines["P1"] is None
        assert advice.findings.baselines["range"].held_out > 0
        assert "needs pymetis" in str(advice)

    def test_a_saved_plan_is_the_same(self, c, tmp_path):
        advice = c.advise(3 * GROUPS, pack_bytes=8 * NBYTES)
        advice.save(tmp_path / "plan.npz")
        c.apply(tmp_path / "plan.npz")
        assert all(len({entry.pack for entry in c.entries(group)}) == 1 for group in GROUPS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key_bytes": 5}, "open it with tier"),
        ({"key_bytes": -1}, "key_bytes is"),
        ({"pack_bytes": 0}, "pack_bytes is"),
        ({"pack_bytes": 1.5}, "pack_bytes is"),
        ({"folds": 0}, "folds is"),
        ({"phi": -1}, "phi is"),
        ({"order_by": "time"}, "order_by is"),
        ({"order_by": ["none"]}, "there are: time, x"),
        ({"by": "day"}, "'process'"),
        ({"progress": 3}, "progress is"),
    ],
)
def test_wrong_options(c, options, message):
    with pytest.raises(InvalidInputError, match=message):
        c.advise(GROUPS, **options)
