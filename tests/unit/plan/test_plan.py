"""Plans of whole reads: which bytes of which objects, for whom, and what that is said to cost."""

from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.brute import cell_bytes, ledger_of, rows_of, spelled_out
from support.profiles import times

from hyperslab.errors import IntegrityError, InvalidInputError
from hyperslab.layout import ChunkKeys, ChunkTable, Layout, ShardIndex
from hyperslab.layout.codecs import Size
from hyperslab.layout.layout import SingleKey
from hyperslab.plan import CostModel, Prices, Profile, check_method, direct_plan, make_plan, pieces_of
from hyperslab.plan import plan as planner
from hyperslab.plan.optimise import optimise
from hyperslab.selection import parse, parse_points

S3 = CostModel(Profile.named("s3"), Prices.named("aws"))
I4 = np.dtype("<i4")
METHODS = (None, "get", "merge", "fetch", "paper")


class Decoder:
    """Stands for any codec: the planner only asks how large its chunks are stored at most."""

    def __init__(self, nbytes: int = 100, exact: bool = False):
        self.encoded = Size(nbytes, exact)

    def decode(self, data, key):
        raise NotImplementedError


def plain(shape, chunks, *, order=None, prefix="", base=0, single=False) -> Layout:
    keys = SingleKey("a.npy") if single else ChunkKeys(prefix, "/", "c")
    order = order or tuple(range(len(shape)))
    return Layout(shape, I4, chunks, keys, np.zeros((), I4), I4, order, base=base)


def encoded(shape, chunks, *, exact=False) -> Layout:
    order, keys = tuple(range(len(shape))), ChunkKeys("e/", "/", "c")
    decoder = Decoder(4 * int(np.prod(chunks)) + 8, exact)
    return Layout(shape, I4, chunks, keys, np.zeros((), I4), I4, order, decoder)


def sharded(shape, chunks, shard, decoder=None) -> Layout:
    count = int(np.prod([s // c for s, c in zip(shard, chunks, strict=True)]))
    return Layout(
        shape, I4, chunks, ChunkKeys("s/", "/", "c"), np.zeros((), I4), I4, tuple(range(len(shape))), decoder,
        object_shape=shard, index=ShardIndex(count, "end", True),
    )  # fmt: skip


def read(layout, key=...):
    return pieces_of(layout, parse(key, layout.shape))


def wanted_bytes(layout, cells):
    """The bytes of the selected cells, by key of their object."""
    chunks = cell_bytes(layout, cells)
    return {layout.keys.key(chunk): {layout.base + place for place in places} for chunk, places in chunks.items()}


def fetched_bytes(plan):
    found = {}
    for obj, start, stop in rows_of(plan.requests):
        found.setdefault(plan.keys[obj], []).extend(range(start, stop))
    assert all(len(places) == len(set(places)) for places in found.values())
    return {key: set(places) for key, places in found.items()}


def assert_rows_are_served(plan):
    """Every row lies whole in the requests that are said to hold it, and belongs to a piece of its chunk."""
    needs = plan.needs
    firsts, lasts = needs.rows_in(plan.requests)
    held = {i: set() for i in range(len(needs))}
    for (obj, start, stop), first, last in zip(rows_of(plan.requests), firsts.tolist(), lasts.tolist(), strict=True):
        for i in range(first, last):
            assert needs.objects[i] == obj
            held[i] |= set(range(max(start, needs.starts[i]), min(stop, needs.stops[i])))
    for i, places in held.items():
        assert places == set(range(needs.starts[i], needs.stops[i]))


def assert_estimated(plan):
    """The estimate is that of the requests, by the formula."""
    estimate, model = plan.estimate, plan.model
    requests, nbytes, largest = ledger_of(plan.requests)
    seconds, usd = spelled_out(model, requests, nbytes, largest)
    assert (estimate.requests, estimate.fetched_bytes) == (requests, nbytes)
    assert estimate.seconds == pytest.approx(seconds)
    assert estimate.usd == pytest.approx(usd)
    assert estimate.exact


@st.composite
def plain_reads(draw):
    ndim = draw(st.integers(1, 3))
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=ndim, max_size=ndim)))
    chunks = tuple(draw(st.integers(1, n + 1)) for n in shape)
    layout = plain(shape, chunks, order=tuple(draw(st.permutations(range(ndim)))), base=draw(st.sampled_from([0, 80])))
    key, cells = [], []
    for n in shape:
        start, stop = sorted(draw(st.tuples(st.integers(0, n), st.integers(0, n))))
        part = slice(start, stop, draw(st.sampled_from([1, 2, 3])))
        key.append(part)
        cells.append(list(range(n))[part])
    return layout, tuple(key), cells


@settings(max_examples=times(200), deadline=None)
@given(plain_reads(), st.sampled_from(METHODS), st.sampled_from([0.0, 1e3, inf]))
def test_plain_reads_fetch_what_they_need(case, method, phi):
    layout, key, cells = case
    plan = make_plan([read(layout, key)], CostModel(S3.profile, S3.prices, phi), method)
    needed, fetched = wanted_bytes(layout, cells), fetched_bytes(plan)
    assert set(needed) == set(fetched)
    for chunk, places in needed.items():
        assert places <= fetched[chunk]
        if method == "get":
            assert fetched[chunk] == set(range(layout.base, layout.base + layout.chunk_nbytes))
        if method == "merge":
            assert fetched[chunk] == set(range(min(places), max(places) + 1))
        if method == "fetch":
            assert fetched[chunk] == places
    assert plan.estimate.needed_bytes == sum(map(len, needed.values()))
    assert plan.chunk_count == len(needed)
    assert_rows_are_served(plan)
    if needed:
        assert_estimated(plan)
        if method is None:
            others = [make_plan([read(layout, key)], plan.model, other).estimate for other in METHODS[1:]]
            best = min(plan.model.cost(e.requests, e.fetched_bytes) for e in others)
            assert plan.model.cost(*ledger_of(plan.requests)) <= best * 1.0015 + 1e-4 * (phi == 0)


@settings(max_examples=times(60), deadline=None)
@given(st.lists(plain_reads(), min_size=2, max_size=4), st.sampled_from(METHODS))
def test_several_reads_ask_for_shared_bytes_once(cases, method):
    """Some of the reads are of the same array, as every array here has the same keys."""
    layout = cases[0][0]
    cases = [cases[0], *[(layout, key, cells) for other, key, cells in cases[1:] if other.shape == layout.shape]]
    cases += cases[:1]
    plan = make_plan([read(layout, key) for layout, key, _ in cases], S3, method)
    needed = {}
    for layout, _, cells in cases:
        for key, places in wanted_bytes(layout, cells).items():
            needed.setdefault(key, set()).update(places)
    fetched = fetched_bytes(plan)
    assert set(fetched) == set(needed)
    assert all(places <= fetched[key] for key, places in needed.items())
    if method == "fetch":
        assert fetched == needed
    assert_rows_are_served(plan)
    owners = {plan.read_of(owner) for owner in plan.needs.owners.tolist()}
    assert owners == {(r, piece) for r, pieces in enumerate(plan.reads) for piece in range(len(pieces))}


@settings(max_examples=times(100), deadline=None)
@given(plain_reads(), st.integers(0, 3))
def test_a_plan_that_was_shifted_is_the_one_made_in_place(case, again):
    layout, key, _ = case
    # Elsewhere first, so that the plan is remembered from there.
    for start in range(again):
        make_plan([read(layout, tuple(slice(start, start + 1) for _ in layout.shape))], S3)
        make_plan([read(layout, tuple(slice(s.start + 1, s.stop + 1, s.step) for s in key))], S3)
    made = make_plan([read(layout, key)], S3)
    in_place = planner._plan_any([read(layout, key)], S3, None, {}, None, settled=False)
    assert made.keys == in_place.keys
    assert rows_of(made.requests) == rows_of(in_place.requests)
    for name in ("objects", "units", "owners", "starts", "stops"):
        assert getattr(made.needs, name).tolist() == getattr(in_place.needs, name).tolist()
    assert rows_of(made.needs.chunks) == rows_of(in_place.needs.chunks)
    assert (made.estimate, made.chunk_count, made.bases) == (in_place.estimate, in_place.chunk_count, in_place.bases)


def test_plans_of_large_boxes_are_not_remembered():
    layout = plain((1000, 1000), (1000, 1000))
    before = planner._plan_at_start.cache_info().currsize
    make_plan([read(layout, (slice(0, 900), slice(0, 900)))], S3)
    assert planner._plan_at_start.cache_info().currsize == before


def test_the_plan_of_a_small_box():
    layout = plain((8192, 8192), (2048, 2048), prefix="a/")
    plan = make_plan([read(layout, (slice(3000, 3021), slice(3000, 3021)))], S3)
    assert plan.keys == ["a/c/1/1"]
    assert (len(plan.needs), plan.estimate.needed_bytes) == (21, 21 * 21 * 4)
    # Three are predicted to be best, by less than they could be wrong: so it is one, from the first row to the last.
    best = optimise(plan.needs, S3)
    assert (len(best), plan.estimate.requests, len(plan.requests)) == (3, 1, 1)
    assert S3.cost(3, best.nbytes, best.largest) < plan.estimate.seconds < 1.03 * S3.cost(3, best.nbytes, best.largest)
    assert (plan.needs.align, plan.needs.overlapping) == (4, False)
    fetch = make_plan(plan.reads, S3, "fetch")
    assert (fetch.estimate.requests, fetch.estimate.fetched_bytes) == (21, 21 * 21 * 4)


def test_more_requests_that_are_cheaper_too_need_not_be_a_tenth_better():
    """Rows of a box by themselves are 4% quicker here than all in one, and cheaper only where bytes have a price."""
    layout = plain((8192, 8192), (2048, 2048), prefix="a/")
    alone = ((4096, 0.0), (65536, 0.002), (262144, 0.009))
    line = Profile("line", 0.05, (1, 64), (25e6, 31e6), 256, 1.7e-4, alone)
    sent = []
    for prices in ("aws", "free"):
        model = CostModel(line, Prices.named(prices))
        plan = make_plan([read(layout, (slice(3000, 3021), slice(3000, 3021)))], model)
        best = optimise(plan.needs, model)
        one = model.cost(1, 20 * 2048 * 4 + 21 * 4, 20 * 2048 * 4 + 21 * 4)
        assert 1.03 < one / model.cost(len(best), best.nbytes, best.largest) < 1.1
        sent.append((len(plan.requests), len(best)))
    assert sent[0][0] == sent[0][1] > 1
    assert sent[1][0] == 1 < sent[1][1]


def test_a_box_over_four_chunks():
    layout = plain((100, 100), (50, 50))
    plan = make_plan([read(layout, (slice(49, 51), slice(48, 53)))], S3, "fetch")
    assert plan.keys == ["c/0/0", "c/0/1", "c/1/0", "c/1/1"]
    assert rows_of(plan.requests) == [(0, 9992, 10000), (1, 9800, 9812), (2, 192, 200), (3, 0, 12)]
    assert plan.needs.owners.tolist() == [0, 1, 2, 3]


def test_one_file_has_its_header_before_the_cells():
    layout = plain((10, 10), (10, 10), base=128, single=True)
    plan = make_plan([read(layout, (slice(2, 4), slice(None)))], S3)
    assert plan.keys == ["a.npy"]
    assert rows_of(plan.requests) == [(0, 128 + 80, 128 + 160)]


def test_points_that_name_a_cell_twice():
    layout = plain((100,), (50,))
    pieces = pieces_of(layout, parse_points(([60, 7, 60, 8],), layout.shape))
    plan = make_plan([pieces], S3, "fetch")
    assert [(plan.keys[obj], a, b) for obj, a, b in rows_of(plan.requests)] == [("c/0", 28, 36), ("c/1", 40, 44)]
    assert plan.needs.overlapping
    assert_rows_are_served(plan)


def test_encoded_chunks_come_whole_and_cached_ones_do_not_come():
    layout = encoded((40,), (10,))
    plan = make_plan([read(layout, slice(5, 40))], S3, is_cached=lambda _, key, __: key == "e/c/1")
    assert plan.keys == ["e/c/0", "e/c/2", "e/c/3"]
    assert (plan.wholes, plan.cached, len(plan.requests)) == ({0: [0], 1: [2], 2: [3]}, [1], 0)
    assert (plan.estimate.requests, plan.estimate.fetched_bytes, plan.estimate.exact) == (3, 3 * 48, False)
    assert make_plan([read(encoded((40,), (10,), exact=True))], S3).estimate.exact


def test_two_reads_of_an_encoded_chunk_fetch_it_once():
    layout = encoded((40,), (10,))
    plan = make_plan([read(layout, slice(0, 5)), read(layout, slice(7, 15))], S3)
    assert plan.wholes == {0: [0, 1], 1: [2]}
    assert [plan.read_of(owner) for owner in (0, 1, 2)] == [(0, 0), (1, 0), (1, 1)]


# Shards

TABLE = ChunkTable(np.array([0, 100, -1, 30]), np.array([30, 25, -1, 70]))


def test_chunks_of_a_shard_whose_index_is_known():
    layout = sharded((80,), (10,), (40,), Decoder())
    plan = make_plan([read(layout, slice(0, 40))], S3, "fetch", tables={"s/c/0": TABLE})
    assert rows_of(plan.requests) == [(0, 0, 125)]
    assert (plan.absent, plan.lookups, plan.wholes) == ([2], {}, {})
    # In the order of their places.
    assert plan.needs.owners.tolist() == [0, 3, 1]
    assert plan.needs.whole(np.arange(3)).all()
    assert plan.estimate.exact


@pytest.mark.parametrize("phi", [0.0, 1e3, inf])
@pytest.mark.parametrize("stored", [(0, 40), (500, 999), (7, 1)])
def test_the_plan_of_one_chunk_is_that_of_any_read(monkeypatch, stored, phi):
    layout, (low, nbytes) = sharded((40, 40), (10, 10), (20, 20), Decoder(5000)), stored
    table = ChunkTable(np.array([-1, 9000, low, -1]), np.array([-1, 5, nbytes, -1]))
    tables, model = {"s/c/1/0": table}, CostModel(S3.profile, S3.prices, phi)

    def plans():
        boxes = [(slice(30, 35), slice(2, 9)), (slice(30, 31), [1, 5]), (slice(31, 35), 0)]
        return [make_plan([read(layout, box)], model, tables=tables) for box in boxes]

    quick = plans()
    monkeypatch.setattr(planner, "_plan_obvious", lambda *parts: None)
    for one, other in zip(quick, plans(), strict=True):
        assert rows_of(one.requests) == rows_of(other.requests) == [(0, low, low + nbytes)]
        assert (one.keys, one.estimate, one.bases) == (other.keys, other.estimate, other.bases)
        assert (one.absent, one.cached, one.lookups) == (other.absent, other.cached, other.lookups)
        assert_rows_are_served(one)


def test_one_chunk_that_is_not_stored_or_cached_or_only_told_of_is_no_exception():
    layout = sharded((40, 40), (10, 10), (20, 20), Decoder(5000))
    table = ChunkTable(np.array([0, -1, -1, -1]), np.array([40, -1, -1, -1]))
    one, absent = read(layout, (slice(2, 5), 3)), read(layout, (slice(2, 5), 13))
    assert make_plan([absent], S3, tables={"s/c/0/0": table}).absent == [0]
    assert make_plan([one], S3, tables={"s/c/0/0": table}, is_cached=lambda *chunk: True).cached == [0]
    told = make_plan([one], S3, tables={"s/c/0/0": table}, told={"s/c/0/0"})
    assert told.confirmed or told.wholes
    unknown = make_plan([one], S3)
    assert unknown.lookups or unknown.wholes


def test_two_chunks_of_a_shard_at_one_place():
    """Writers may store equal chunks once."""
    layout = sharded((40,), (10,), (40,), Decoder())
    table = ChunkTable(np.array([0, 50, 0, 40]), np.array([50, 20, 50, 20]))
    for method in METHODS:
        plan = make_plan([read(layout)], S3, method, tables={"s/c/0": table})
        assert plan.needs.overlapping
        assert_rows_are_served(plan)
    assert rows_of(make_plan([read(layout)], S3, "fetch", tables={"s/c/0": table}).requests) == [(0, 0, 70)]


def test_a_chunk_without_bytes_is_refused():
    layout = sharded((40,), (10,), (40,), Decoder())
    table = ChunkTable(np.array([0, 50, 50, 60]), np.array([50, 0, 10, 20]))
    with pytest.raises(IntegrityError, match="index of shard 's/c/0' has a chunk of 0 bytes"):
        make_plan([read(layout)], S3, tables={"s/c/0": table})


def test_rows_of_plain_chunks_in_a_shard():
    layout = sharded((8, 8), (4, 4), (8, 8))
    # Stored in another order than the grid's.
    table = ChunkTable(np.array([128, 0, 64, 192]), np.array([64, 64, 64, 64]))
    plan = make_plan([read(layout, (slice(1, 3), slice(2, 6)))], S3, "fetch", tables={"s/c/0/0": table})
    assert rows_of(plan.requests) == [(0, 16, 24), (0, 32, 40), (0, 152, 160), (0, 168, 176)]
    assert plan.needs.owners.tolist() == [1, 1, 0, 0]
    assert_rows_are_served(plan)


def test_without_an_index_it_is_looked_up_or_the_shard_fetched_whole():
    small, large = sharded((8, 8), (4, 4), (8, 8)), sharded((4096, 4096), (1024, 1024), (4096, 4096))
    whole = make_plan([read(small, (0, 0))], S3)
    assert (whole.wholes, whole.lookups, whole.estimate.exact) == ({0: [0]}, {}, False)
    looked_up = make_plan([pieces := read(large, (0, 0))], S3)
    assert (looked_up.wholes, looked_up.lookups) == ({}, {0: pieces})
    assert (looked_up.estimate.lookups, looked_up.estimate.lookup_bytes) == (1, 16 * 16 + 4)
    assert not looked_up.estimate.exact
    # A forced method looks up.
    assert make_plan([read(small, (0, 0))], S3, "get").lookups
    # After the lookups, what is still unknown was to be fetched whole.
    assert make_plan([read(large, (0, 0))], S3, settled=True).wholes == {0: [0]}


def test_two_reads_of_one_shard_agree():
    layout = sharded((64, 64), (8, 8), (64, 64))
    plan = make_plan([read(layout, (0, 0)), read(layout), read(layout, (9, 9))], S3)
    assert not (plan.wholes.keys() & plan.lookups.keys())
    assert plan.wholes == {0: list(range(66))} or list(plan.lookups) == [0]


def test_chunks_of_a_shard_that_are_cached():
    layout = sharded((80,), (10,), (40,), Decoder())

    def at_hand(_, __, inner):
        return inner < 3

    plan = make_plan([read(layout, slice(0, 40))], S3, tables={"s/c/0": TABLE}, is_cached=at_hand)
    assert (plan.cached, rows_of(plan.requests)) == ([0, 1, 2], [(0, 30, 100)])


# Other plans


def test_a_direct_plan_accesses_each_chunk_once():
    layout = plain((100, 100), (50, 50))
    plan = direct_plan([read(layout, (slice(49, 51), slice(48, 53))), read(layout, (0, 0))], S3)
    assert plan.direct
    assert (plan.chunk_count, plan.estimate.requests, plan.estimate.fetched_bytes) == (5, 5, 44)
    assert len(plan.requests) == len(plan.needs) == 0


@pytest.mark.parametrize("method", METHODS)
def test_nothing_selected_is_no_request(method):
    plan = make_plan([read(plain((10,), (5,)), slice(3, 3))], S3, method)
    assert (len(plan.requests), plan.estimate.requests, plan.estimate.seconds) == (0, 0, 0.0)
    assert make_plan([], S3, method).chunk_count == 0


def test_methods_have_names():
    assert [check_method(method) for method in METHODS] == list(METHODS)
    with pytest.raises(
        InvalidInputError, match="method must be one of get, merge, fetch, paper, call or None, not 'fast'"
    ):
        check_method("fast")


def test_wholes_and_ranges_are_priced_together():
    """A large object that is fetched anyway sets the pace: beside it, cutting gains nothing."""
    large, beside = encoded((30_000_000,), (30_000_000,)), plain((2_000_000,), (2_000_000,))
    alone = make_plan([read(beside)], S3)
    together = make_plan([read(beside), read(large)], S3)
    assert len(alone.requests) > len(together.requests) == 1
