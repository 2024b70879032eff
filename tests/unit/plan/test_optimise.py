"""The chosen requests against every other choice, and against a dynamic program where there are too many."""

import random
from itertools import pairwise
from math import inf
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.brute import best_by_count, best_of_all, fewest_bytes, ledger_of, needs_of, rank, rows_of
from support.profiles import times

from hyperslab.plan import CostModel, Needs, Prices, Profile, Units
from hyperslab.plan import optimise as optimiser
from hyperslab.plan.optimise import MAX_REQUEST_BYTES, optimise

S3 = CostModel(Profile.named("s3"), Prices.named("aws"))
PHIS = st.sampled_from([0.0, 1.0, 1e3, 1e6, inf])
PRICES = st.sampled_from(
    [Prices.named("aws"), Prices.named("aws-same-region"), Prices.named("free"), Prices("bytes", "2026-11", 0.0, 1e-9)]
)


@st.composite
def profiles(draw, *, flat: bool = False) -> Profile:
    """A store that is slow enough for single bytes to matter."""
    steps = draw(st.lists(st.floats(0.0, 3.0), max_size=3))
    rates = [10.0 ** draw(st.integers(1, 6))]
    points = [1]
    for step in steps:
        # More in flight may also be slower.
        rates.append(rates[0] if flat else rates[-1] * draw(st.sampled_from([0.7, 1.0, 1.3, 1.9])))
        points.append(points[-1] + 1 + round(step))
    latency, work = draw(st.sampled_from([0.0, 1e-4, 3e-2, 2.0])), draw(st.sampled_from([0.0, 1e-5, 1e-2]))
    return Profile("drawn", latency, tuple(points), tuple(rates), draw(st.integers(1, 9)), work)


@st.composite
def models(draw, *, flat: bool = False) -> CostModel:
    return CostModel(draw(profiles(flat=flat)), draw(PRICES), draw(PHIS))


@st.composite
def rows(draw, *, most: int, objects: int = 3, gap: int = 2000, size: int = 500):
    """Ranges of some objects, with gaps of which many may be equal."""
    some = draw(st.sampled_from([st.integers(1, gap), st.sampled_from([7, 100, gap])]))
    found, obj, place = [], 0, 0
    for _ in range(draw(st.integers(1, most))):
        if found and obj + 1 < objects and draw(st.integers(0, 4)) == 0:
            obj, place = obj + 1, 0
        start = place + draw(some)
        place = start + draw(st.integers(1, size))
        found.append((obj, start, place))
    return found


def assert_not_above(found: tuple[float, float], best: tuple[float, float], slack: float = 1 + 1e-9) -> None:
    """Compare ranks: costs first, then seconds."""
    assert found[0] <= best[0] * slack
    if found[0] >= best[0] * (1 - 1e-9):
        assert found[1] <= best[1] * slack


def assert_holds(plan, needed) -> None:
    """Every needed range lies in requests, which ascend and do not overlap."""
    requests = rows_of(plan)
    for a, b in pairwise(requests):
        assert a[0] < b[0] or a[2] <= b[1]
    assert all(start < stop for _, start, stop in requests)
    fetched = {(obj, place) for obj, start, stop in requests for place in range(start, stop)}
    assert {(obj, place) for obj, start, stop in needed for place in range(start, stop)} <= fetched


# The optimum


@settings(max_examples=times(200), deadline=None)
@given(rows(most=8), models())
def test_no_grouping_of_a_few_ranges_is_cheaper(needed, model):
    plan = optimise(needs_of(needed), model)
    assert_holds(plan, needed)
    assert_not_above(rank(model, *ledger_of(plan)), best_of_all(needed, model))


@settings(max_examples=times(60), deadline=None)
@given(rows(most=8), models(), st.integers(1, 12), st.integers(1, 5000))
def test_no_grouping_is_cheaper_together_with_requests_that_are_decided(needed, model, others, nbytes):
    plan = optimise(needs_of(needed), model, others=others, other_bytes=others * nbytes, other_largest=nbytes)
    # As if the others were ranges of objects of their own.
    beside = [(10 + i, 0, nbytes) for i in range(others)]
    requests, total, largest = ledger_of(plan)
    found = rank(model, requests + others, total + others * nbytes, max(largest, nbytes))
    assert_not_above(found, best_of_all([*needed, *beside], model))


@settings(max_examples=times(100), deadline=None)
@given(rows(most=40, objects=9), models(flat=True))
def test_of_many_ranges_no_grouping_has_a_better_count_and_bytes(needed, model):
    """With one bandwidth for any number of requests the largest never matters: the scan is exact.

    Fewer requests that are alike may be taken instead.
    """
    best = best_by_count(needed, model)
    for alike in (1.0, optimiser._ALIKE):
        with mock.patch.object(optimiser, "_ALIKE", alike):
            plan = optimise(needs_of(needed), model)
        assert_holds(plan, needed)
        assert_not_above(rank(model, *ledger_of(plan)), best, slack=alike * (1 + 1e-9))


@settings(max_examples=times(60), deadline=None)
@given(rows(most=30, objects=6), models())
def test_no_number_of_requests_needs_fewer_bytes_than_the_scan_says(needed, model):
    ranges = needs_of(needed).merged()
    gaps = optimiser._Gaps.between(ranges, 1)
    found = dict(zip(gaps.requests.tolist(), gaps.nbytes.tolist(), strict=True))
    assert found == fewest_bytes(rows_of(ranges))
    for count in range(len(gaps.ascending) + 1):
        requests, nbytes, _ = ledger_of(gaps.group(ranges, count))
        assert found[requests] == nbytes
        assert requests == len(ranges) - count


def test_mixed_plans_of_more_than_sixteen_chunks():
    """Of 24 chunks, those with near rows come in one request each, the others in parts."""
    draw = random.Random(7)
    needed, near = [], set(range(0, 24, 3))
    for obj in range(24):
        place = 0
        for _ in range(draw.randint(3, 6)):
            start = place + (draw.randint(10, 200) if obj in near else draw.randint(2_000_000, 9_000_000))
            place = start + draw.randint(50, 400)
            needed.append((obj, start, place))
    for phi in (0.0, 100.0, inf):
        model = CostModel(S3.profile, S3.prices, phi)
        plan = optimise(needs_of(needed), model)
        assert_not_above(rank(model, *ledger_of(plan)), best_by_count(needed, model), 1.002)
        counts = [sum(row[0] == obj for row in rows_of(plan)) for obj in range(24)]
        assert all(counts[obj] == 1 for obj in near)
        assert all(counts[obj] == sum(row[0] == obj for row in needed) for obj in set(range(24)) - near)


def test_equal_gaps_are_opened_evenly():
    """Rows of a chunk: three requests of like size, so that none is waited for."""
    needed = [(0, i * 8192, i * 8192 + 84) for i in range(21)]
    sizes = [stop - start for _, start, stop in rows_of(optimise(needs_of(needed, 4), S3))]
    assert len(sizes) == 3
    assert max(sizes) - min(sizes) <= 8192


@settings(max_examples=times(100), deadline=None)
@given(st.integers(1, 60), st.integers(0, 60))
def test_however_many_equal_gaps_stay_open_groups_are_alike(ranges, closed):
    gaps = optimiser._Gaps.between(merged := needs_of([(0, i * 10, i * 10 + 1) for i in range(ranges)]).merged(), 1)
    sizes = {stop - start for _, start, stop in rows_of(gaps.group(merged, min(closed, ranges - 1)))}
    assert max(sizes) - min(sizes) <= 10


def scattered(draw: random.Random, size: float, gap: float, count: int):
    needed, obj, place = [], 0, 0
    for _ in range(count):
        if draw.random() < 0.15:
            obj, place = obj + 1, 0
        start = place + 1 + int(draw.expovariate(1 / gap))
        place = start + 1 + int(draw.expovariate(1 / size))
        needed.append((obj, start, place))
    return needed


@pytest.mark.parametrize("name", ["s3", "s3-internet"])
def test_where_the_largest_request_sets_the_pace_plans_are_near_the_best(name):
    """Encoded chunks of very different sizes, more gaps than are tried in every combination."""
    draw = random.Random(11)
    excess = []
    for _ in range(times(20)):
        needed = scattered(draw, 10 ** draw.uniform(3.5, 6.5), 10 ** draw.uniform(3, 6.5), 14)
        model = CostModel(Profile.named(name), Prices.named("aws"), draw.choice([0.0, 0.0, 10.0, 1e3]))
        plan = optimise(needs_of(needed, 0), model)
        excess.append(rank(model, *ledger_of(plan))[0] / best_of_all(needed, model)[0] - 1)
    assert max(excess) < 0.02
    assert np.mean(excess) < 0.002


def test_other_groupings_are_looked_for_only_where_they_can_spare_the_time_of_that():
    """Twelve objects with chunks side by side: on a far store a millisecond is not looked for, on a slow line it is."""
    needed = [(obj, i * 8000, i * 8000 + 8000) for obj in range(12) for i in range(16)]
    near = Profile("near", 0.02, (1, 64), (80e6, 115e6), 64, 3e-4, alone=((1024, 0.0), (1 << 17, 0.004)))
    slow = Profile("slow", 0.02, (1, 64), (1e6, 115e6), 64, 3e-4, alone=((1024, 0.0), (1 << 17, 0.4)))
    for profile, phi, searched in ((near, 0.0, False), (slow, 0.0, True)):
        with mock.patch.object(optimiser, "_descend", wraps=optimiser._descend) as descend:
            plan = optimise(needs_of(needed, 0), CostModel(profile, Prices.named("aws"), phi))
        assert descend.called is searched
        assert (len(plan) == 12) is not searched


def test_of_groupings_that_are_alike_the_one_of_fewer_requests_is_taken():
    """A box of the three planes of a picture: a fourth request would spare one gap, and a thousandth of the time."""
    planes = [plane * 5_529_600 for plane in range(3)]
    needed = [(0, plane + row * 3840, plane + row * 3840 + 520) for plane in planes for row in range(255)]
    profile = Profile("near", 0.02, (1, 2, 4), (82e6, 114e6, 120e6), 64, 3e-4)
    model = CostModel(profile, Prices.named("aws"), 0.0)
    assert len(optimise(needs_of(needed, 1), model)) == 3
    with mock.patch.object(optimiser, "_ALIKE", 1.0):
        assert len(optimise(needs_of(needed, 1), model)) == 4


# Cuts


def cuts(min_cut: int, limit: int):
    """Let the optimiser cut requests of a few bytes."""
    return mock.patch.multiple(optimiser, _MIN_CUT_BYTES=min_cut, MAX_REQUEST_BYTES=limit)


@settings(max_examples=times(150), deadline=None)
@given(st.data(), rows(most=10, gap=60, size=60), models(), st.integers(1, 12), st.integers(1, 80))
def test_cut_requests_hold_whole_cells_and_what_is_needed(data, needed, model, min_cut, limit):
    aligns = data.draw(st.lists(st.sampled_from([0, 1, 2, 5]), min_size=len(needed), max_size=len(needed)))
    needed = [
        (obj, start, start + max(1, (stop - start) // (align or 1)) * (align or 1))
        for (obj, start, stop), align in zip(needed, aligns, strict=True)
    ]
    if any(a[0] == b[0] and a[2] >= b[1] for a, b in pairwise(needed)):
        return
    with cuts(min_cut, limit):
        plan = optimise(needs_of(needed, aligns), model)
    assert_holds(plan, needed)
    requests = rows_of(plan)
    for (obj, start, stop), align in zip(needed, aligns, strict=True):
        cell = align or stop - start
        borders = {place for o, a, b in requests if o == obj for place in (a, b) if start < place < stop}
        # An encoded extent is in one request; a plain range is cut between cells only.
        assert all((place - start) % cell == 0 for place in borders)
    for obj, start, stop in requests:
        inside = [(*row[1:], align) for row, align in zip(needed, aligns, strict=True) if row[0] == obj]
        inside = [(low, high, align) for low, high, align in inside if low < stop and high > start]
        # Neither begins nor ends in a gap.
        assert inside[0][0] <= start
        assert stop <= inside[-1][1]
        smallest = inside[0][2] or inside[0][1] - inside[0][0]
        assert stop - start <= max(limit, smallest)


def test_cut_plans_are_near_the_best_of_all_cuts():
    """Every cell's border is a place to cut, so that a plan is a grouping of cells."""
    draw = random.Random(1)
    excess = []
    while len(excess) < times(100):
        needed = [(obj, start, start + 4 * draw.randint(1, 4)) for obj, start, _ in scattered(draw, 20, 40, 4)]
        if any(a[0] == b[0] and a[2] >= b[1] for a, b in pairwise(needed)):
            continue
        rate = 10.0 ** draw.randint(1, 3)
        profile = Profile(
            "drawn", draw.choice([0, 1e-3, 0.03, 0.5]), (1, 4, 16), (rate, 3.8 * rate, 10 * rate),
            draw.choice([1, 2, 4, 8, 16, 64]), draw.choice([0, 1e-4, 1e-2]),
        )  # fmt: skip
        model = CostModel(profile, Prices.named("aws"), draw.choice([0.0, 0.0, 1.0, 1e3]))
        with cuts(1, 10**6):
            plan = optimise(needs_of(needed, 4), model)
        cells = [(obj, at, at + 4) for obj, start, stop in needed for at in range(start, stop, 4)]
        excess.append(rank(model, *ledger_of(plan))[0] / best_of_all(cells, model)[0] - 1)
    assert np.mean(np.array(excess) < 1e-9) > 0.9
    assert np.mean(excess) < 0.01


def test_a_large_range_is_cut_for_good_concurrency():
    plan = optimise(needs_of([(0, 0, 200_000_000)], 8), S3)
    requests, nbytes, largest = ledger_of(plan)
    assert nbytes == 200_000_000
    assert 12 <= requests <= 64
    assert largest - min(stop - start for _, start, stop in rows_of(plan)) < largest // 4


def test_encoded_chunks_that_touch_are_cut_at_their_borders():
    needed = [(0, i * 1_000_003, (i + 1) * 1_000_003) for i in range(100)]
    requests = rows_of(optimise(needs_of(needed, 0), S3))
    assert 8 <= len(requests) <= 40
    assert {start for _, start, _ in requests} <= {start for _, start, _ in needed}
    assert {stop for _, _, stop in requests} <= {stop for _, _, stop in needed}
    assert sum(stop - start for _, start, stop in requests) == 100 * 1_000_003


def test_no_request_is_larger_than_the_limit_where_it_can_be_cut():
    dear = CostModel(Profile.named("s3"), Prices.named("aws"), inf)
    assert ledger_of(optimise(needs_of([(0, 0, 3 * MAX_REQUEST_BYTES)], 8), dear))[::2] == (3, MAX_REQUEST_BYTES)
    # One encoded chunk cannot be.
    assert rows_of(optimise(needs_of([(0, 5, 2 * MAX_REQUEST_BYTES)], 0), dear)) == [(0, 5, 2 * MAX_REQUEST_BYTES)]
    sizes = [40 << 20] * 10
    places = [0, *np.cumsum(sizes).tolist()]
    chunks = [(0, start, stop) for start, stop in pairwise(places)]
    assert rows_of(optimise(needs_of(chunks, 0), dear)) == chunks


def test_a_cell_larger_than_the_limit_stays_whole():
    cell = 80 << 20
    plan = optimise(needs_of([(0, 0, 5 * cell)], cell), S3)
    assert rows_of(plan) == [(0, i * cell, (i + 1) * cell) for i in range(5)]


def test_a_gap_where_a_cut_falls_is_not_fetched():
    cheap_bytes = CostModel(Profile("x", 1.0, (1,), (1e9,), 1), Prices.named("free"))
    with cuts(10, 100):
        plan = optimise(needs_of([(0, 0, 90), (0, 120, 200)]), cheap_bytes)
    assert rows_of(plan) == [(0, 0, 90), (0, 120, 200)]


# Sizes


def test_a_million_ranges():
    starts = np.arange(1_000_000) * 1000 + np.random.default_rng(0).integers(0, 500, 1_000_000)
    one = np.zeros(1, np.int64)
    zeros = np.zeros(len(starts), np.int64)
    chunks = Units(one, one, one + 2**40)
    needs = Needs.sorted(chunks, zeros, zeros, starts, starts + 100, 1, overlapping=False)
    requests, nbytes, largest = ledger_of(optimise(needs, S3))
    assert nbytes <= int(starts[-1]) + 100
    assert largest <= MAX_REQUEST_BYTES
    assert requests < 1000


def test_many_objects_with_few_gaps():
    """As many groupings as a few gaps have, times as many ranges as there are objects, would not fit in memory."""
    needed = [(obj, 0, 10) for obj in range(20_000)] + [(20_000, i * 1000, i * 1000 + 10) for i in range(8)]
    assert len(optimise(needs_of(needed), S3)) >= 20_001


def test_nothing_is_no_request():
    assert len(optimise(Needs.nothing(), S3)) == 0
