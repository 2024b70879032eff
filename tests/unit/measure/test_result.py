"""A measurement in words, as JSON and as a picture; what is known of a store in words."""

import json
from dataclasses import fields
from datetime import UTC, datetime

import pytest
from support.simulated_link import SimulatedLink, SimulatedProber

from hyperslab.execute.profiles import Known
from hyperslab.measure.calls_fit import CallTiming, fit_function
from hyperslab.measure.fit import fit_profile
from hyperslab.measure.result import Measurement, known_report
from hyperslab.measure.survey import survey
from hyperslab.plan import FunctionProfile, Profile
from hyperslab.plan.learn import Learner, Observation
from hyperslab.plan.render import plain_text

LATENCY_S, REQUEST_S = 0.03, 1e-4


def calls(
    start_s=0.02, chunk_s=5e-4, byte_s=1e-8, at_once=4, cold_s=0.5, work_at_once=4.0, read_at_once=1000.0
) -> list[CallTiming]:
    """Calls of a function that takes exactly this long; it cuts a chunk in 40 µs, and decodes a byte in 2 ns."""

    def took(kind: str, n: int, gets: int, nbytes: int, chunks: int = 1, decoded: int = 0) -> CallTiming:
        asked, cut = gets * chunk_s, (chunks > 1) * chunks * 4e-5 + decoded * 2e-9
        busy = max(1.0, n / work_at_once)
        if kind == "at once":  # what reads much waits for nothing else, but perhaps for the line that calls share
            each = max(1.0, n / at_once) * start_s + max(1.0, n / at_once, n / read_at_once) * nbytes * byte_s
        else:
            each = start_s + max(nbytes * byte_s, (gets > 1) * asked * busy) + cut * busy
        seconds = LATENCY_S + n * REQUEST_S + each + cold_s * (kind == "cold")
        return CallTiming(kind, n, gets, nbytes, seconds, 0.1, chunks, decoded)

    reads = [(1, 1 << 16), (1, 1 << 20), (16, 1 << 20, 16), (1, 1 << 24)]
    cuts = [(1, 1 << 17, 256), (64, 1 << 18, 64), (1, 1 << 19, 128, 1 << 23)]
    many = [took("at once", n, 1, 1 << 20) for n in (1, 2, 4, 8, 16, 32)]
    work = [took("work", 4, 32, 1 << 18, 32, 1 << 21), took("work", 16, 8, 1 << 16, 8, 1 << 19)]
    warm = [took("warm", 1, *each) for each in (reads + cuts) * 3]
    return [took("cold", 1, 1, 1 << 16), *warm, *work, *many]


def measured(*, function: bool = False) -> Measurement:
    prober = SimulatedProber(SimulatedLink(round_trip_s=LATENCY_S, request_s=REQUEST_S))
    survey(prober)
    profile = fit_profile(prober.timings, name="measured", measured_at="2026-11-16T10:00:00+00:00")
    seen = calls() if function else []
    values = {**profile.to_dict(), "function": None}
    profile = Profile.from_dict(values)
    if function:
        found = fit_function(seen, profile)
        profile = Profile.from_dict({**values, "function": {**_plain(found)}})
    return Measurement(
        "s3://bucket/x", "s3://bucket", profile, tuple(prober.timings), tuple(seen), 12.0, 290_000_000, 0.02,
        ("something was cut short",),
    )  # fmt: skip


def _plain(function: FunctionProfile | None) -> dict:
    assert function is not None
    return {each.name: getattr(function, each.name) for each in fields(function)}


def test_the_function_is_fitted_exactly_where_it_is_exact() -> None:
    profile = Profile("p", LATENCY_S, (1,), (1e8,), 8, REQUEST_S)
    found = fit_function(calls(), profile)
    assert found is not None
    assert (found.start_s, found.chunk_s, found.byte_s) == pytest.approx((0.02, 5e-4, 1e-8), rel=1e-6)
    assert (found.cut_s, found.decoded_byte_s) == pytest.approx((4e-5, 2e-9), rel=1e-6)
    assert found.at_once == 4
    # Of 4 calls none slowed another, of 16 all did.
    assert found.work_at_once == pytest.approx(4.0)
    assert found.cold_s == pytest.approx(0.5)
    assert found.error_s < 1e-3


@pytest.mark.parametrize("processors", [1.0, 2.5, 7.0])
def test_calls_that_share_processors_are_seen(processors) -> None:
    profile = Profile("p", LATENCY_S, (1,), (1e8,), 8, REQUEST_S)
    found = fit_function(calls(work_at_once=processors), profile)
    assert found is not None
    assert found.work_at_once == pytest.approx(processors, rel=0.02)
    apart = fit_function(calls(work_at_once=1000.0), profile)
    assert apart is not None
    assert apart.work_at_once is None


@pytest.mark.parametrize("lines", [1.0, 3.3, 20.0])
def test_calls_that_share_a_line_to_the_store_are_seen(lines) -> None:
    profile = Profile("p", LATENCY_S, (1,), (1e8,), 8, REQUEST_S)
    found = fit_function(calls(at_once=1000, read_at_once=lines), profile)
    assert found is not None
    assert found.read_at_once == pytest.approx(lines, rel=0.02)
    apart = fit_function(calls(at_once=1000), profile)
    assert apart is not None
    assert apart.read_at_once is None


def test_what_was_not_tried_has_typical_figures() -> None:
    profile = Profile("p", LATENCY_S, (1,), (1e8,), 8, REQUEST_S)
    read = [each for each in calls() if each.chunks == 1 and each.kind != "at once"]
    found = fit_function(read, profile)
    assert found is not None
    assert found.read_at_once is None
    typical = FunctionProfile(0.0, 0.0)
    assert (found.cut_s, found.decoded_byte_s, found.work_at_once) == (typical.cut_s, typical.decoded_byte_s, None)


def test_no_figure_of_a_function_is_below_0() -> None:
    profile = Profile("p", 0.05, (1,), (1e8,), 8)  # a latency that is too long
    found = fit_function(calls(start_s=0.0, chunk_s=0.0, cold_s=-0.01), profile)
    assert found is not None
    assert min(found.start_s, found.chunk_s, found.byte_s, found.cold_s) >= 0


def test_too_few_calls_give_no_function() -> None:
    profile = Profile("p", LATENCY_S, (1,), (1e8,), 8)
    assert fit_function([], profile) is None
    assert fit_function(calls()[:2], profile) is None


def test_it_is_told_in_words() -> None:
    text = str(measured(function=True))
    for words in ("12.0 s, 290 MB moved", "latency", "in flight reach 90%", "calls at once", "something was cut short"):
        assert words in text
    assert all(len(line) <= 100 for line in text.splitlines())
    assert "<table>" in measured()._repr_html_()


def test_it_goes_into_json() -> None:
    found = measured(function=True)
    values = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert Profile.from_dict(values["profile"]) == found.profile
    assert len(values["points"]) == len(found.points)
    assert 0 <= values["error"] < 0.2


@pytest.mark.parametrize("function", [False, True])
def test_it_is_drawn(function, tmp_path) -> None:
    pytest.importorskip("matplotlib").use("agg")
    from matplotlib import pyplot

    axes = measured(function=function).plot()
    assert len(axes) == 2 + function
    assert "90% of the best from" in axes[0].get_title(loc="left")
    axes[0].figure.savefig(tmp_path / "curves.png")
    pyplot.close("all")
    alone = pyplot.figure().subplots()
    assert measured(function=function).plot(alone) is alone
    pyplot.close("all")


def test_what_is_known_is_told_with_its_age_and_drift() -> None:
    found = measured()
    learner = Learner(found.profile)
    now = datetime(2026, 11, 19, 11, tzinfo=UTC)
    text = plain_text(known_report(Known("s3://bucket?endpoint=x", learner), now))
    assert "2026-11-16 10:00 UTC, 3 days ago" in text
    assert "nothing read since" in text
    for _ in range(16):
        learner.observe(Observation(1, 100, 100, 0.2))
    text = " ".join(plain_text(known_report(Known("s3://bucket?endpoint=x", learner), now)).split())
    assert "times slower than measured on 2026-11-16; `hyperslab measure s3://bucket` measures again" in text
