"""Prices as values: the names, what location and tier change, what a function is billed."""

import pickle
from math import inf, isclose, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperslab.errors import InvalidInputError
from hyperslab.plan.price_book import PROVIDERS, bundled_book
from hyperslab.plan.prices import LOCATIONS, FunctionPrices, Prices, split_name

ALL = [
    (provider, region, tier)
    for provider in PROVIDERS
    for region, found in bundled_book(provider).regions.items()
    for tier in found.tiers
]


@pytest.mark.parametrize(
    ("name", "reads_1000", "puts_1000", "out_gb"),
    [
        ("free", 0.0, 0.0, 0.0),
        ("aws", 0.0004, 0.005, 0.09),
        ("aws-internet", 0.0004, 0.005, 0.09),
        ("aws-same-region", 0.0004, 0.005, 0.0),
        ("aws-other-region", 0.0004, 0.005, 0.02),
        ("azure", 0.00044, 0.0055, 0.087),
        ("azure-same-region", 0.00044, 0.0055, 0.0),
        ("google", 0.0004, 0.005, 0.12),
        ("google-same-region", 0.0004, 0.005, 0.0),
        ("google-other-region", 0.0004, 0.005, 0.02),
    ],
)
def test_list_prices(name, reads_1000, puts_1000, out_gb):
    prices = Prices.named(name)
    assert prices.request_usd * 1e3 == pytest.approx(reads_1000)
    assert prices.put_usd * 1e3 == pytest.approx(puts_1000)
    assert prices.byte_usd * 1e9 == pytest.approx(out_gb)
    assert prices.dated == "2026-11"
    assert prices.name == name.removesuffix("-internet")


@pytest.mark.parametrize(
    ("provider", "million_calls", "gb_second", "cpu_second", "step_s", "least_s", "timeout_s"),
    [
        ("aws", 0.20, 0.0000166667, 0.0, 0.001, 0.001, 900),
        ("azure", 0.20, 0.000016, 0.0, 0.001, 0.1, 230),
        ("google", 0.40, 0.0000025, 0.000024, 0.1, 0.1, 3600),
    ],
)
def test_prices_of_functions(provider, million_calls, gb_second, cpu_second, step_s, least_s, timeout_s):
    function = Prices.named(provider).function
    assert function.call_usd * 1e6 == pytest.approx(million_calls)
    assert function.gb_second_usd == pytest.approx(gb_second)
    assert function.cpu_second_usd == pytest.approx(cpu_second)
    assert (function.step_s, function.least_s, function.timeout_s) == pytest.approx((step_s, least_s, timeout_s))


def test_limits_of_functions():
    aws, azure, google = (Prices.named(provider).function for provider in PROVIDERS)
    assert (aws.reply_bytes, aws.answer_bytes) == (6_000_000, 4_500_000)
    assert (aws.stream_bytes, aws.stream_free_bytes, aws.stream_bytes_s) == (200_000_000, 6_000_000, 2_000_000)
    assert (azure.reply_bytes, azure.answer_bytes, azure.stream_bytes) == (None, None, None)
    assert (google.reply_bytes, google.answer_bytes, google.stream_bytes) == (32_000_000, 32_000_000, 10_000_000)


@pytest.mark.parametrize(("provider", "region", "tier"), ALL)
def test_every_price_is_above_nothing_and_nearer_is_not_dearer(provider, region, tier):
    same, other, internet = (Prices.of(provider, region=region, tier=tier, location=each) for each in LOCATIONS)
    assert 0 < same.request_usd < same.put_usd <= 0.00005
    assert 0 <= same.byte_usd <= other.byte_usd < internet.byte_usd < 1e-9
    assert same.inside_byte_usd == other.inside_byte_usd == internet.inside_byte_usd == same.byte_usd
    assert (same.region, same.tier, same.location) == (region, tier, "same-region")
    assert internet.reply_byte_usd == pytest.approx(internet.byte_usd - internet.retrieval_byte_usd)
    assert internet.source.startswith("https://")


@pytest.mark.parametrize(("provider", "region", "tier"), ALL)
def test_only_other_tiers_take_something_for_retrieval(provider, region, tier):
    prices = Prices.of(provider, region=region, tier=tier, location="same-region")
    assert (prices.retrieval_byte_usd > 0) == (tier != bundled_book(provider).tier)
    multi = (provider, region) == ("google", "us")
    assert (prices.byte_usd == prices.retrieval_byte_usd) != multi


def test_a_function_reads_cold_bytes_that_are_paid_for_once():
    cold = Prices.of("aws", tier="standard-ia")
    assert cold.byte_usd * 1e9 == pytest.approx(0.10)
    assert cold.inside_byte_usd * 1e9 == pytest.approx(0.01)
    assert cold.reply_byte_usd * 1e9 == pytest.approx(0.09)
    mine = Prices("mine", "2026-11", 1e-6, 5e-11)
    assert (mine.reply_byte_usd, mine.inside_byte_usd, mine.function) == (5e-11, 0.0, None)


def test_names_say_what_is_not_usual():
    assert Prices.of("aws", region="us-east-1", tier="standard").name == "aws"
    assert Prices.of("aws", region="eu-west-1", location="other-region").name == "aws-other-region, eu-west-1"
    assert Prices.of("azure", tier="cool").name == "azure, cool"
    assert split_name("my-cloud-same-region") == ("my-cloud", "same-region")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"provider": "moon"}, "no price book of 'moon'; there are aws, azure, google"),
        ({"provider": "aws", "region": "mars-1"}, "no region 'mars-1', only us-east-1, .* in a book of your own"),
        ({"provider": "aws", "tier": "lava"}, "in us-east-1 have no tier 'lava', only standard, standard-ia"),
        ({"provider": "aws", "location": "orbit"}, "one of same-region, other-region, internet, not 'orbit'"),
    ],
)
def test_what_no_book_has(wrong, said):
    with pytest.raises(InvalidInputError, match=said):
        Prices.of(**wrong)


@pytest.mark.parametrize("name", ["moon", "aws-orbit", "", "same-region", "-same-region", "free-same-region", "AWS"])
def test_names_that_there_are_not(name):
    with pytest.raises(InvalidInputError, match=r"no prices named .* aws, aws-other-region, aws-same-region, azure, "):
        Prices.named(name)


@pytest.mark.parametrize("field", ["request_usd", "byte_usd", "put_usd", "retrieval_byte_usd", "inside_byte_usd"])
@pytest.mark.parametrize("value", [-1e-12, nan, inf, -inf])
def test_prices_that_cannot_be(field, value):
    good = {"name": "x", "dated": "2026-11", "request_usd": 1.0, "byte_usd": 1.0, "put_usd": 1.0}
    with pytest.raises(InvalidInputError, match="finite and not negative"):
        Prices(**{**good, field: value})


def test_retrieval_is_part_of_a_byte():
    with pytest.raises(InvalidInputError, match="holds that of its retrieval"):
        Prices("x", "2026-11", 0.0, 1e-12, retrieval_byte_usd=2e-12)


def test_prices_travel_and_compare():
    prices = Prices.of("google", tier="nearline")
    assert pickle.loads(pickle.dumps(prices)) == prices
    assert len({prices, Prices.of("google", tier="nearline")}) == 1
    assert Prices.of("google", tier="nearline") is prices


# What a function is billed


@given(st.floats(0, 900), st.sampled_from([0.001, 0.01, 0.1, 1.0]), st.sampled_from([0.0, 0.001, 0.1, 0.25]))
def test_billed_time_is_the_time_rounded_up(seconds, step_s, least_s):
    billed = FunctionPrices(0.0, 0.0, step_s=step_s, least_s=least_s).billed_s(seconds)
    assert billed >= least_s
    assert billed > seconds - 1e-6 * step_s
    assert billed <= max(least_s, seconds + step_s * (1 + 1e-6))
    assert billed == least_s or isclose(billed / step_s, round(billed / step_s), abs_tol=1e-6)


@given(st.integers(0, 10**6), st.sampled_from([0.001, 0.01, 0.1]))
def test_a_whole_step_is_not_rounded_to_the_next(steps, step_s):
    function = FunctionPrices(0.0, 0.0, step_s=step_s, least_s=0.0)
    assert function.billed_s(steps * step_s) == pytest.approx(steps * step_s)


@given(st.lists(st.floats(0, 900), min_size=1, max_size=20))
def test_arrays_are_billed_cell_by_cell_and_more_time_never_costs_less(seconds):
    function = Prices.named("google").function
    ascending = np.sort(np.array(seconds))
    billed = function.billed_s(ascending)
    assert billed.tolist() == [function.billed_s(each) for each in ascending.tolist()]
    assert (np.diff(billed) >= 0).all()


@given(st.integers(1, 20_000), st.sampled_from(PROVIDERS))
def test_billed_memory_is_what_can_be_had(memory_mb, provider):
    function = Prices.named(provider).function
    gigabytes = function.memory_gb(memory_mb)
    assert function.memory_least_mb <= gigabytes * 1024 <= function.memory_most_mb
    assert gigabytes * 1024 >= min(memory_mb, function.memory_most_mb)
    assert gigabytes * 1024 % function.memory_step_mb == 0
    assert function.memory_gb(memory_mb + 1) >= gigabytes
    assert function.second_usd(memory_mb + 1) >= function.second_usd(memory_mb) > 0


def test_processors_are_billed_where_they_are_priced():
    google = Prices.named("google").function
    assert [google.cpu_count(memory) for memory in (100, 128, 129, 2048, 2049, 99_999)] == [
        0.083, 0.083, 0.167, 1.0, 2.0, 4.0,
    ]  # fmt: skip
    assert google.second_usd() == pytest.approx(2 * 0.0000025 + 0.000024)
    aws = Prices.named("aws").function
    assert (aws.cpu_count(), aws.second_usd(1024)) == (0.0, pytest.approx(0.0000166667))
    assert Prices.named("azure").function.memory_gb(160) == 0.25


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"call_usd": -1.0}, "not negative"),
        ({"gb_second_usd": nan}, "finite"),
        ({"cpu_second_usd": inf}, "finite"),
        ({"least_s": -0.1}, "not negative"),
        ({"step_s": 0.0}, "steps above 0"),
        ({"step_s": inf}, "steps above 0"),
        ({"timeout_s": 0}, "more than 0 s"),
        ({"memory_mb": 64}, "between its least and its most"),
        ({"memory_most_mb": 1024}, "between its least and its most"),
        ({"memory_step_mb": 0}, "steps from 1 MB"),
        ({"cpus": ((256, 1.0), (128, 0.5))}, "ascending"),
        ({"cpus": ((128, 0.5), (128, 1.0))}, "ascending"),
        ({"cpus": ((128, 0.0),)}, "above 0"),
    ],
)
def test_functions_that_cannot_be(wrong, said):
    with pytest.raises(InvalidInputError, match=said):
        FunctionPrices(**{"call_usd": 1e-7, "gb_second_usd": 1e-5, **wrong})
