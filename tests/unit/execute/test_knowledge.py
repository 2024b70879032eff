"""What a session knows of its stores: given, measured or typical; learned, kept, and said when it has changed."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest

import hyperslab as hs
from hyperslab.errors import InvalidInputError
from hyperslab.execute.knowledge import DriftWarning, Knowledge, check_location
from hyperslab.execute.ledger import Ledger
from hyperslab.execute.profiles import find_known, save_profile
from hyperslab.functions.config import function_config
from hyperslab.functions.core import work_of
from hyperslab.layout.compressors import Zstd
from hyperslab.plan import FunctionProfile, Prices, Profile
from hyperslab.store.call import CallChunk, CallLayout, CallRequest
from hyperslab.store.callee import Function

ADDRESS = "s3://bucket?endpoint=127.0.0.1:8333"
LOCAL = Function("http://127.0.0.1:9000/")
MEASURED = Profile(
    "measured", 0.05, (1, 16), (5e7, 4e8), 16, measured_at="2026-11-16T10:00:00+00:00",
    function=FunctionProfile(0.01, 1e-8, at_once=8, chunk_s=0.001),
)  # fmt: skip


@pytest.fixture
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("HYPERSLAB_HOME", str(tmp_path))
    return tmp_path


def store(address=ADDRESS, scheme="s3", has_suffix=True):
    """All that is asked of a store here."""
    return SimpleNamespace(address=address, scheme=scheme, has_suffix=has_suffix)


def knowledge(**settings):
    usual = {"profile": None, "prices": None, "location": None, "concurrency": None, "function": None, "learn": True}
    return Knowledge(**{**usual, **settings})


def plan_of(requests=1, calls=0, largest=100):
    return SimpleNamespace(estimate=SimpleNamespace(requests=requests, calls=calls), largest_bytes=largest, calls=())


def read_of(seconds, **counts):
    return Ledger(**{"reads": 1, "requests": 1, "bytes": 100, "seconds": seconds, **counts})


def learn(known, seconds, times=16, where=None):
    for _ in range(times):
        known.observe(where or store(), plan_of(), read_of(seconds))


def said_by(known):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        known.tell()
    return [str(each.message) for each in said if each.category is DriftWarning]


# Models


def test_models_are_made_once(home):
    known = knowledge(function=LOCAL)
    model = known.model(store(), 0.0, calls=True)
    assert known.model(store(), 0.0, calls=True) is model
    assert known.model(store(), 1.0, calls=True) is not model
    assert known.model(store("s3://other"), 0.0, calls=True).phi == 0.0
    assert known.model(store(), 0.0, calls=False).function is None
    for number in range(1000):  # many values of phi do not fill the memory
        known.model(store(), float(number), calls=False)
    assert len(known._models) < 300


def test_calls_without_a_function_are_not_modelled(home):
    assert knowledge().model(store(), 0.0, calls=True).function is None


@pytest.mark.parametrize(
    ("scheme", "profile", "prices"),
    [
        ("file", "local", "free"), ("memory", "memory", "free"), ("s3", "s3", "aws"), ("az", "s3", "azure"),
        ("gs", "s3", "google"), ("http", "s3-internet", "free"),
    ],
)  # fmt: skip
def test_typical_figures_by_the_kind_of_store(home, scheme, profile, prices):
    model = knowledge().model(store(scheme=scheme), 0.0, calls=False)
    assert (model.profile.name, model.prices.name) == (profile, prices)


def test_what_is_given_goes_first(home):
    save_profile(ADDRESS, MEASURED)
    given, prices = Profile.named("s3-internet"), Prices("mine", "today", 1.0, 2.0)
    known = knowledge(profile=given, prices=prices)
    model = known.model(store(), 0.0, calls=False)
    assert (model.profile, model.prices) == (given, prices)
    learn(known, 5.0)  # it was given, not measured
    assert known.model(store(), 0.0, calls=False) is model


def test_a_number_of_requests_in_flight_that_is_given(home):
    save_profile(ADDRESS, MEASURED)
    assert knowledge(concurrency=3).model(store(), 0.0, calls=False).profile.concurrency == 3
    assert knowledge().model(store(), 0.0, calls=False).profile == MEASURED


def test_servers_that_cannot_give_the_end_of_an_object_are_asked_twice(home):
    assert knowledge().model(store(has_suffix=False), 0.0, calls=False).end_requests == 2
    assert knowledge().model(store(), 0.0, calls=False).end_requests == 1


@pytest.mark.parametrize("location", ["same-region", "other-region", "internet", None])
def test_where_the_reader_is_decides_what_a_byte_costs(home, location):
    check_location(location)
    prices = knowledge(location=location).model(store(), 0.0, calls=False).prices
    assert prices.location == (location or "internet")
    assert (prices.byte_usd == 0) == (location == "same-region")


def test_places_that_no_book_knows():
    with pytest.raises(InvalidInputError, match="same-region"):
        check_location("the moon")


# The function


def test_a_function_that_was_measured(home):
    save_profile(ADDRESS, MEASURED)
    model = knowledge(function=LOCAL).model(store(), 0.0, calls=True)
    assert model.function.profile == MEASURED.function
    assert model.function.second_usd == 0
    assert model.call_usd(10, 5.0, 0, 0, 0) == 0  # a server of one's own bills nothing


def test_a_function_that_was_not(home):
    model = knowledge(function=LOCAL).model(store(), 0.0, calls=True).function
    assert model.profile.start_s > 0
    assert model.profile.byte_s > 0


@pytest.mark.parametrize("provider", ["aws", "google", "azure"])
def test_a_providers_prices_and_limits(home, provider):
    schemes = {"aws": "s3", "google": "gs", "azure": "az"}
    function = Function("https://function.example/", provider=provider, memory_mb=1024)
    listed = Prices.named(provider).function
    model = knowledge(function=function).model(store(scheme=schemes[provider]), 0.0, calls=True).function
    assert model.prices == listed
    assert model.memory_mb == 1024
    assert model.second_usd == listed.second_usd(1024) > 0
    if listed.answer_bytes is not None:
        assert 0 < model.reply_bytes < listed.answer_bytes
    # Chunks are held beside what is cut out of them, within the function's memory.
    assert 0 < model.read_bytes < 1024 << 20


def test_a_function_of_another_provider_than_the_store(home):
    function = Function("https://function.example/", provider="google")
    model = knowledge(function=function).model(store(), 0.0, calls=True)
    assert model.prices.provider == "aws"
    assert model.function.prices == Prices.named("google").function


def test_more_memory_reads_more(home):
    sizes = [
        knowledge(function=Function("http://127.0.0.1:9/", memory_mb=mb)).model(store(), 0.0, calls=True).function
        for mb in (128, 512, 4096)
    ]
    assert sizes[0].read_bytes < sizes[1].read_bytes < sizes[2].read_bytes


@pytest.mark.parametrize("mb", [384, 512, 1024, 1769, 10240])
@pytest.mark.parametrize("codecs", [(), (Zstd(),)])
def test_what_fits_a_plan_fits_the_function(home, mb, codecs):
    """The largest chunk, and the largest answer, that a plan calls for is not refused for its size."""
    function = Function("http://127.0.0.1:9/", memory_mb=mb)
    model = knowledge(function=function).model(store(), 0.0, calls=True).function
    config = function_config(["memory://limits"], keys=["me:" + "00" * 16], memory_mb=mb, environ={})
    layout = CallLayout((model.chunk_bytes,), np.dtype("u1"), (0,), codecs)
    sparse = CallChunk("c", 0, ((0, 1 << 20, model.chunk_bytes >> 20),))
    request = CallRequest.unpack(CallRequest("memory://limits", (layout,), (sparse,)).pack(), config.limits)
    (work,) = work_of(request, config.limits)
    assert work.memory_bytes <= config.work_bytes
    assert 2 * model.reply_bytes <= config.held_bytes
    assert model.reply_bytes <= config.limits.result_bytes
    assert model.read_bytes <= config.limits.read_bytes


# Measured, and learned


def test_profiles_are_found_by_the_address(home):
    save_profile(ADDRESS, MEASURED)
    known = knowledge()
    assert known.model(store(), 0.0, calls=False).profile == MEASURED
    assert known.model(store("s3://another"), 0.0, calls=False).profile.name == "s3"
    assert known.known(store("memory://x", "memory")) is None


def test_a_session_finds_them_too(home):
    save_profile("memory://x", MEASURED)
    with hs.Session() as session:
        assert session.model(store("memory://x", "memory")).profile.name == "memory"
        save_profile(ADDRESS, MEASURED)
        assert session.model(store()).profile == MEASURED


def test_a_file_that_cannot_be_used_is_told_once(home):
    save_profile(ADDRESS, MEASURED).write_text("{}")
    known = knowledge()
    with pytest.warns(RuntimeWarning, match="measure again"):
        assert known.model(store(), 0.0, calls=False).profile.name == "s3"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert knowledge().model(store(), 1.0, calls=False).profile.name == "s3"


def test_learning_moves_the_model(home):
    save_profile(ADDRESS, MEASURED)
    known = knowledge()
    before = known.model(store(), 0.0, calls=False)
    learn(known, 0.05)
    assert known.model(store(), 0.0, calls=False) is before  # as measured: plans can be kept
    learn(known, 0.2)
    after = known.model(store(), 0.0, calls=False)
    assert after.profile.latency_s == pytest.approx(0.2, rel=0.15)
    assert known.known(store()).profile == MEASURED  # as it was measured


def test_learning_of_the_function(home):
    save_profile(ADDRESS, MEASURED)
    known = knowledge(function=LOCAL)
    for _ in range(16):
        ran = read_of(9.0, requests=0, calls=2, function_gets=4, function_bytes=1000, function_s=3 * 0.024)
        known.observe(store(), plan_of(0, 2), ran)
    model = known.model(store(), 0.0, calls=True)
    assert model.function.profile.start_s == pytest.approx(0.03, rel=0.05)
    assert model.profile.latency_s == MEASURED.latency_s


@pytest.mark.parametrize(
    "counts",
    [
        {"lookups": 1}, {"retries": 1}, {"cache_hits": 1}, {"requests": 2}, {"requests": 0}, {"calls": 1},
    ],
)  # fmt: skip
def test_reads_that_went_otherwise_teach_nothing(home, counts):
    save_profile(ADDRESS, MEASURED)
    known = knowledge()
    for _ in range(40):
        known.observe(store(), plan_of(), read_of(5.0, **counts))
    assert known.model(store(), 0.0, calls=False).profile == MEASURED


def test_learning_can_be_turned_off(home):
    save_profile(ADDRESS, MEASURED)
    known = knowledge(learn=False)
    learn(known, 5.0)
    assert known.model(store(), 0.0, calls=False).profile == MEASURED
    known.save()
    assert find_known(ADDRESS).learner.drift() is None


def test_what_was_learned_is_kept(home):
    save_profile(ADDRESS, MEASURED, points=[("latency", 1, 1, 0.05)])
    known = knowledge()
    learn(known, 0.2)
    assert find_known(ADDRESS).learner.profile() == MEASURED
    known.save()
    kept = find_known(ADDRESS)
    assert kept.profile == MEASURED
    assert kept.points == (("latency", 1, 1, 0.05),)
    assert knowledge().model(store(), 0.0, calls=False).profile.latency_s == pytest.approx(0.2, rel=0.15)


def test_what_was_measured_again_meanwhile_is_not_overwritten(home):
    save_profile(ADDRESS, MEASURED)
    known = knowledge()
    learn(known, 0.2)
    newer = Profile("newer", 0.1, (1,), (1e8,), 4)
    save_profile(ADDRESS, newer)
    known.save()
    assert find_known(ADDRESS).learner.profile() == newer


def test_a_session_keeps_it_when_it_is_closed(home):
    save_profile(ADDRESS, MEASURED)
    with hs.Session() as session:
        session.model(store())
        for _ in range(16):
            session.observe(store(), plan_of(), read_of(0.2))
        with pytest.warns(DriftWarning):
            session.tell_news()
    assert find_known(ADDRESS).learner.drift() is not None


def test_nothing_learned_is_not_written(home):
    path = save_profile(ADDRESS, MEASURED)
    before = path.stat().st_mtime_ns
    with hs.Session() as session:
        session.model(store())
    assert path.stat().st_mtime_ns == before


def test_drift_is_told_once(home):
    save_profile(ADDRESS, MEASURED)
    known = knowledge()
    learn(known, 0.055)
    assert said_by(known) == []
    learn(known, 0.2)
    (text,) = said_by(known)
    assert text.startswith(ADDRESS)
    assert "slower than measured on 2026-11-16" in text
    learn(known, 0.5)
    assert said_by(known) == []


def test_a_child_does_not_wait_for_a_lock_of_its_parent(home):
    save_profile(ADDRESS, MEASURED)
    known = knowledge()
    with known._lock:
        known.after_fork()
        assert known.model(store(), 0.0, calls=False).profile == MEASURED
