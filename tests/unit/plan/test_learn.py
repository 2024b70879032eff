"""Learning from reads: outliers move nothing, what lasts moves it soon, what moves is kept."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperslab.errors import InvalidInputError
from hyperslab.plan import CostModel, FunctionProfile, Prices, Profile
from hyperslab.plan.learn import Learner, Observation

BASE = Profile(
    "measured", 0.05, (1, 4, 64), (4e7, 1e8, 1.2e8), 64, 1e-4,
    alone=((1023, 0.0), (65536, 0.02), (1 << 24, 0.3)), spread_s=(0.04, 0.07),
    measured_at="2026-11-16T09:00:00+00:00", function=FunctionProfile(0.02, 1e-8, chunk_s=0.001),
)  # fmt: skip

small = st.tuples(st.integers(1, 200), st.integers(1, 2000))
large = st.tuples(st.integers(1, 16), st.integers(4 << 20, 32 << 20))


def took(profile: Profile, requests: int, size: int) -> float:
    return float(CostModel(profile, Prices.named("free")).seconds(requests, requests * size, size))


def feed(learner: Learner, world: Profile, reads: list[tuple[int, int]], noise: list[float]) -> None:
    for (requests, size), factor in zip(reads, noise, strict=False):
        learner.observe(Observation(requests, requests * size, size, took(world, requests, size) * factor))


def changed(answers: float = 1.0, transfer: float = 1.0) -> Profile:
    """The world after a change."""
    return replace(
        BASE, latency_s=BASE.latency_s * answers, request_s=BASE.request_s * answers,
        bandwidth=tuple(rate / transfer for rate in BASE.bandwidth),
        alone=tuple((size, time * transfer) for size, time in BASE.alone),
    )  # fmt: skip


@given(st.lists(st.one_of(small, large), min_size=1, max_size=60), st.randoms(use_true_random=False))
def test_as_long_as_reads_agree_the_profile_is_the_same_object(reads, chance) -> None:
    learner = Learner(BASE)
    feed(learner, BASE, reads, [chance.uniform(0.96, 1.04) for _ in reads])
    assert learner.profile() is BASE
    assert learner.drift() is None


@given(st.lists(st.one_of(small, large), min_size=30, max_size=30), st.integers(0, 27), st.floats(5.0, 500.0))
def test_an_outlier_or_two_move_nothing(reads, at, factor) -> None:
    learner = Learner(BASE)
    feed(learner, BASE, reads, [factor if at <= i < at + 2 else 1.0 for i in range(30)])
    assert learner.profile() is BASE


@given(st.floats(0.2, 8.0), st.lists(small, min_size=40, max_size=40), st.randoms(use_true_random=False))
def test_a_lasting_change_of_answers_is_learned_within_16_reads(factor, reads, chance) -> None:
    learner = Learner(BASE)
    noise = [chance.uniform(0.97, 1.03) for _ in reads]
    feed(learner, BASE, reads[:24], noise)
    feed(learner, changed(answers=factor), reads[24:], noise)
    assert learner.profile().latency_s == pytest.approx(BASE.latency_s * factor, rel=0.25)
    assert learner.profile().bandwidth == BASE.bandwidth


@given(st.floats(0.3, 8.0), st.lists(large, min_size=40, max_size=40))
def test_a_lasting_change_of_transfer_is_learned_within_16_reads(factor, reads) -> None:
    learner = Learner(BASE)
    feed(learner, BASE, reads[:24], [1.0] * 24)
    feed(learner, changed(transfer=factor), reads[24:], [1.0] * 16)
    assert learner.profile().bandwidth[-1] == pytest.approx(BASE.bandwidth[-1] / factor, rel=0.3)
    assert learner.profile().latency_s == BASE.latency_s


def test_both_parts_are_told_apart() -> None:
    learner, world = Learner(BASE), changed(answers=3.0, transfer=2.0)
    for _ in range(24):
        feed(learner, world, [(20, 100), (4, 16 << 20)], [1.0, 1.0])
    found = learner.profile()
    assert found.latency_s == pytest.approx(0.15, rel=0.15)
    assert found.bandwidth[1] == pytest.approx(0.5e8, rel=0.2)
    assert found.spread_s == pytest.approx((0.04 * found.latency_s / 0.05, 0.07 * found.latency_s / 0.05))


def test_small_moves_of_the_estimate_keep_the_profile() -> None:
    learner = Learner(BASE)
    feed(learner, changed(answers=2.0), [(1, 100)] * 16, [1.0] * 16)
    first = learner.profile()
    feed(learner, changed(answers=2.1), [(1, 100)] * 32, [1.0] * 32)
    assert learner.profile() is first


def test_a_change_back_is_learned_too() -> None:
    learner = Learner(BASE)
    feed(learner, changed(answers=4.0), [(1, 100)] * 40, [1.0] * 40)
    feed(learner, BASE, [(1, 100)] * 16, [1.0] * 16)
    assert learner.profile().latency_s == pytest.approx(BASE.latency_s, rel=0.1)
    assert learner.drift() is None


def test_calls_tell_of_the_function_alone() -> None:
    learner = Learner(BASE)
    for _ in range(16):
        seen = Observation(
            2, 100, 50, 9.0, calls=3, chunks=6, read_bytes=3_000_000, function_s=2 * 0.0912, cut_chunks=4,
            decoded_bytes=1_000_000,
        )  # fmt: skip
        learner.observe(seen)
    function = learner.profile().function
    assert function is not None
    assert (function.start_s, function.byte_s, function.chunk_s) == pytest.approx((0.04, 2e-8, 0.002))
    assert (function.cut_s, function.decoded_byte_s) == pytest.approx((1e-4, 2e-9))
    assert learner.profile().latency_s == BASE.latency_s
    assert "the function runs 2.0 times slower" in str(learner.drift())


def test_calls_without_a_measured_function_are_left_alone() -> None:
    learner = Learner(replace(BASE, function=None))
    learner.observe(Observation(0, 0, 0, 1.0, calls=1, chunks=1, read_bytes=10, function_s=1.0))
    assert not learner.news


def test_drift_is_said_in_words() -> None:
    learner = Learner(BASE)
    feed(learner, changed(answers=2.1), [(1, 100)] * 16, [1.0] * 16)
    assert learner.drift("s3://b") == (
        "it answers 2.1 times slower than measured on 2026-11-16; `hyperslab measure s3://b` measures again"
    )
    feed(learner, changed(answers=0.5), [(1, 100)] * 32, [1.0] * 32)
    assert "it answers 2.0 times faster" in str(learner.drift())


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_times_that_cannot_be_are_left_alone(seconds) -> None:
    learner = Learner(BASE)
    for _ in range(20):
        learner.observe(Observation(1, 10, 10, seconds))
        learner.observe(Observation(0, 10, 10, 1.0))
    assert learner.profile() is BASE
    assert not learner.news


@given(st.lists(st.tuples(small, st.floats(1e-6, 1e4)), max_size=80))
def test_whatever_reads_take_the_profile_stays_one(reads) -> None:
    learner = Learner(BASE)
    for (requests, size), seconds in reads:
        learner.observe(Observation(requests, requests * size, size, seconds))
    assert 0 < learner.profile().latency_s < 100 * BASE.latency_s
    assert learner.news == bool(reads)


@given(st.lists(st.tuples(st.one_of(small, large), st.floats(0.1, 10.0)), max_size=60))
def test_what_was_learned_goes_through_json(reads) -> None:
    learner = Learner(BASE)
    feed(learner, BASE, [read for read, _ in reads], [factor for _, factor in reads])
    again = Learner.from_dict(BASE, json.loads(json.dumps(learner.to_dict(), allow_nan=False)))
    assert again.profile() == learner.profile()
    assert again.to_dict() == learner.to_dict()
    assert not again.news


@pytest.mark.parametrize(
    "damage",
    [
        {},
        {"answers": 1},
        {"used": float("nan"), "seen": []},
        {"used": 1e9, "seen": []},
        {"used": 1.0, "seen": [1.0] * 1000},
        {"used": 1.0, "seen": ["x"]},
    ],
)
def test_what_cannot_have_been_learned_is_refused(damage) -> None:
    values = damage if "used" not in damage else {**Learner(BASE).to_dict(), "answers": damage}
    with pytest.raises(InvalidInputError, match="learned"):
        Learner.from_dict(BASE, values)
