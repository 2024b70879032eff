"""What requests and bytes cost, by hand; and which profiles, prices and budgets are refused."""

import pickle
from dataclasses import replace
from math import inf, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.brute import spelled_out
from support.profiles import times

from hyperslab.errors import InvalidInputError
from hyperslab.plan import Budget, CostModel, Estimate, Prices, Profile

# Half a second a request, at most 4 in flight: 100, 300 and then 400 bytes a second; a tenth of a second's work each.
PROFILE = Profile("toy", 0.5, (1, 3, 5), (100.0, 300.0, 500.0), 4, 0.1)
PRICES = Prices("toy", "2026-11", 2.0, 0.01)
MODEL = CostModel(PROFILE, PRICES, phi=0.0)


@pytest.mark.parametrize(
    ("requests", "nbytes", "largest", "seconds"),
    [
        (1, 200, 200, 200 / 100 + 0.5 + 0.1),
        (2, 200, 100, 200 / 200 + 0.5 + 0.2),
        # The larger of two is waited for.
        (2, 200, 150, 150 / 100 + 0.5 + 0.2),
        (4, 800, 200, 800 / 400 + 0.5 + 0.4),
        # A fifth request goes in a second wave, and is not in flight with the others.
        (5, 800, 160, 800 / 400 + 2 * 0.5 + 0.5),
        (9, 900, 100, 900 / 400 + 3 * 0.5 + 0.9),
        (0, 0, 0, 0.0),
    ],
)
def test_seconds(requests, nbytes, largest, seconds):
    assert MODEL.seconds(requests, nbytes, largest) == pytest.approx(seconds)
    assert MODEL.cost(requests, nbytes, largest) == pytest.approx(seconds)


def test_dollars():
    assert MODEL.usd(3, 500) == pytest.approx(3 * 2.0 + 500 * 0.01)
    assert replace(MODEL, phi=10.0).cost(2, 200, 150) == pytest.approx(2.2 + 10 * (4 + 2))
    assert replace(MODEL, phi=inf).cost(2, 200, 150) == pytest.approx(6)


def test_work_goes_on_beside_the_bytes_of_other_requests():
    model = CostModel(Profile.named("s3"), PRICES)
    decoding = model.decode_seconds(200, 1 << 24)
    # Of one request, nothing goes on beside; of many with many bytes nearly all, and what plans count for sending, too.
    assert model.work_seconds(1, 1 << 24, 1, 200, 1 << 24) == pytest.approx(decoding)
    sending = 200 * model.profile.request_s
    hidden = model.work_seconds(200, 1 << 30, 1, 200, 1 << 24)
    assert hidden == pytest.approx((decoding + sending) / 200 - sending)
    assert model.work_seconds(200, 0, 1, 200, 1 << 24) == pytest.approx(decoding)


def test_different_objects_take_longer_to_find():
    model = CostModel(Profile.named("s3"), PRICES)
    one, many = (model.work_seconds(200, 0, objects, 0, 0) for objects in (1, 200))
    assert many > one + 0.02
    assert model.work_seconds(np.array([200]), np.array([0]), np.array([200]), 0, 0) == pytest.approx([many])
    files = replace(model, mapped=True)
    assert files.work_seconds(200, 0, 200, 7, 1000) == pytest.approx(files.decode_seconds(7, 1000))


numbers = st.integers(1, 300)
sizes = st.integers(0, 10**12)


@settings(max_examples=times(80), deadline=None)
@given(st.lists(st.tuples(numbers, sizes, sizes), min_size=1, max_size=20), st.sampled_from([0.0, 3.0, inf]))
def test_numbers_and_arrays_give_the_same_as_the_formula(plans, phi):
    for profile in (PROFILE, Profile.named("s3"), Profile.named("local")):
        model = CostModel(profile, PRICES, phi)
        columns = [np.array(column) for column in zip(*plans, strict=True)]
        seconds, costs = model.seconds(*columns), model.cost(*columns)
        for i, (requests, nbytes, largest) in enumerate(plans):
            expected = spelled_out(model, requests, nbytes, largest)
            assert model.seconds(requests, nbytes, largest) == pytest.approx(expected[0])
            assert model.usd(requests, nbytes) == pytest.approx(expected[1])
            assert seconds[i] == pytest.approx(expected[0])
            assert costs[i] == pytest.approx(model.cost(requests, nbytes, largest))


def test_the_best_is_the_cheapest_the_first_of_equals():
    assert MODEL.best(np.array([1, 2, 2]), np.array([200, 200, 200]), np.array([200, 100, 100])) == 1


def test_where_only_dollars_count_equal_ones_are_told_apart_by_seconds():
    dollars = CostModel(PROFILE, PRICES, inf)
    # 1 request + 300 bytes and 2 requests + 100 bytes both cost 5 dollars.
    assert dollars.best(np.array([3, 1, 2]), np.array([1, 300, 100]), np.array([1, 300, 50])) == 2
    assert dollars.rank(1, 300, 300)[0] == dollars.rank(2, 100, 50)[0]
    assert dollars.rank(1, 300, 300) > dollars.rank(2, 100, 50)
    # A cent less is better, however slow.
    assert dollars.best(np.array([1, 1]), np.array([300, 299]), np.array([0, 10**9])) == 1
    free = CostModel(PROFILE, Prices.named("free"), inf)
    assert free.best(np.array([1, 4]), np.array([400, 400]), np.array([400, 100])) == 1


def test_rank_is_the_cost_where_seconds_count():
    assert MODEL.rank(2, 200, 150) == (MODEL.cost(2, 200, 150), 0.0)


def test_how_many_bytes_a_request_is_worth():
    assert MODEL.gap_bytes() == pytest.approx((0.5 / 4 + 0.1) * 400)
    assert replace(MODEL, phi=inf).gap_bytes() == pytest.approx(200)
    assert replace(MODEL, phi=inf, prices=Prices.named("free")).gap_bytes() == inf
    s3 = CostModel(Profile.named("s3"), Prices.named("aws"))
    assert 100_000 < s3.gap_bytes() < 2_000_000


def test_an_estimate_adds_lookups_to_data():
    estimate = MODEL.estimate(requests=2, needed=90, fetched=200, largest=150, lookups=3, lookup_bytes=60, exact=False)
    assert estimate.seconds == pytest.approx(2.2 + (60 / 300 + 0.5 + 0.3))
    assert estimate.usd == pytest.approx(5 * 2.0 + 260 * 0.01)
    assert (estimate.all_requests, estimate.all_bytes, estimate.exact) == (5, 260, False)
    assert MODEL.estimate(requests=0, needed=0, fetched=0, largest=0).seconds == 0.0


# Profiles


def test_bandwidth_between_the_points_is_straight():
    assert [PROFILE.bandwidth_at(n) for n in (1, 2, 3, 4, 5, 9)] == [100, 200, 300, 400, 500, 500]
    assert PROFILE.bandwidth_at(np.array([2, 9])).tolist() == [200, 500]
    # No more are in flight than the concurrency.
    assert [PROFILE.rate_of(n) for n in (0, 1, 4, 5, 9)] == [100, 100, 400, 400, 400]
    assert PROFILE.rate_of(np.array([1, 9])).tolist() == [100, 400]


def test_where_bandwidth_is_near_its_best():
    peak = Profile("peak", 0.0, (1, 4, 8, 16, 32), (10.0, 92.0, 100.0, 95.0, 50.0), 8)
    assert (peak.n_min, peak.n_max, peak.stream_bandwidth) == (4, 16, 10.0)


@pytest.mark.parametrize("name", ["local", "memory", "s3", "s3-internet"])
def test_built_in_profiles(name):
    profile = Profile.named(name)
    assert profile.name == name
    assert profile.n_min <= profile.n_max
    assert profile.bandwidth_at(2) <= 2 * profile.stream_bandwidth
    assert pickle.loads(pickle.dumps(profile)) == profile
    assert hash(profile) == hash(replace(profile))
    assert replace(profile, concurrency=3).rate_of(10**6) == profile.bandwidth_at(3)


GOOD = {"name": "x", "latency_s": 0.1, "in_flight": (1, 2), "bandwidth": (1.0, 2.0), "concurrency": 2, "request_s": 0.0}


@pytest.mark.parametrize(
    "wrong",
    [
        {"in_flight": (), "bandwidth": ()},
        {"bandwidth": (1.0,)},
        {"in_flight": (1, 1)},
        {"in_flight": (2, 1)},
        {"in_flight": (2, 3)},
        {"in_flight": (1, 10**9), "concurrency": 10**9},
        {"bandwidth": (0.0, 1.0)},
        {"bandwidth": (1.0, -1.0)},
        {"bandwidth": (1.0, nan)},
        {"bandwidth": (1.0, inf)},
        {"latency_s": -1.0},
        {"latency_s": nan},
        {"latency_s": inf},
        {"request_s": -1e-9},
        {"request_s": nan},
        {"concurrency": 0},
    ],
)
def test_wrong_profiles_are_refused(wrong):
    Profile(**GOOD)
    with pytest.raises(InvalidInputError, match="a profile"):
        Profile(**{**GOOD, **wrong})


def test_names_of_profiles_and_prices():
    with pytest.raises(InvalidInputError, match="no profile named 'moon'; built in are local, memory, s3, s3-internet"):
        Profile.named("moon")
    with pytest.raises(
        InvalidInputError, match="no prices named 'moon'; built in are aws, aws-other-region, aws-same-region, azure,"
    ):
        Prices.named("moon")


@pytest.mark.parametrize(("request_usd", "byte_usd"), [(-1.0, 0.0), (0.0, -1.0), (nan, 0.0), (0.0, nan)])
def test_wrong_prices_are_refused(request_usd, byte_usd):
    with pytest.raises(InvalidInputError, match="negative"):
        Prices("x", "2026-11", request_usd, byte_usd)


def test_list_prices():
    aws = Prices.named("aws")
    assert 1e6 * aws.request_usd == pytest.approx(0.4)
    assert 1e9 * aws.byte_usd == pytest.approx(0.09)
    assert Prices.named("aws-same-region").byte_usd == 0.0


# Budgets

SPENT = Estimate(requests=10, fetched_bytes=1000, lookups=2, lookup_bytes=50, seconds=1.5, usd=0.25)


def test_what_is_within_a_budget():
    assert Budget().exceeded(SPENT) is None
    assert Budget(requests=12, bytes=1050, usd=0.25, seconds=1.5).exceeded(SPENT) is None
    assert Budget(requests=0, bytes=0, usd=0, seconds=0).exceeded(Estimate()) is None


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"requests": 11}, "requests: 12 of at most 11"),
        ({"bytes": 1049}, "bytes: 1,050 of at most 1,049"),
        ({"usd": 0.2}, "usd: 0.25 of at most 0.2"),
        ({"seconds": 1}, "seconds: 1.5 of at most 1"),
    ],
)
def test_what_is_not(limits, said):
    assert Budget(**limits).exceeded(SPENT) == said


@pytest.mark.parametrize("name", ["requests", "bytes", "usd", "seconds"])
@pytest.mark.parametrize("limit", [-1, nan])
def test_wrong_budgets_are_refused(name, limit):
    with pytest.raises(InvalidInputError, match=f"a budget's {name} must be 0 or more"):
        Budget(**{name: limit})


def test_what_may_be_under_way_fills_the_line_several_times():
    near, wide = Profile("near", 0.02, (1, 8), (1e7, 1e8), 64), Profile("wide", 0.02, (1, 32), (5e7, 1e9), 256)
    assert (near.flight_bytes, near.flight_requests) == (8_000_000, 16)
    assert (wide.flight_bytes, wide.flight_requests) == (80_000_000, 64)
    assert Profile("slow", 0.02, (1,), (1e5,), 64).flight_bytes == 4 << 20
