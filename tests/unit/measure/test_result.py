"""A measurement in words, as JSON and as a picture; what is known of a store in words."""

import json
from datetime import UTC, datetime

import pytest
from support.simulated_link import SimulatedLink, SimulatedProber

from hyperslab.execute.profiles import Known
from hyperslab.measure.calls import CallTiming, fit_function
from hyperslab.measure.fit import fit_profile
from hyperslab.measure.result import Measurement, known_report
from hyperslab.measure.survey import survey
from hyperslab.plan import FunctionProfile, Profile
from hyperslab.plan.learn import Learner, Observation
from hyperslab.plan.render import plain_text

LATENCY_S, REQUEST_S = 0.03, 1e-4


def calls(start_s=0.02, chunk_s=0.004, byte_s=1e-8, at_once=4, cold_s=0.5) -> list[CallTiming]:
    """Calls of a function that takes exactly this long."""

    def took(n: int, chunks: int, nbytes: int) -> float:
        waves = max(1.0, n / at_once)
        return LATENCY_S + n * REQUEST_S + waves * (start_s + chunks * chunk_s + nbytes * byte_s)

    reads = [(1, 1 << 16), (1, 1 << 20), (16, 1 << 20), (1, 1 << 24)]
    first = CallTiming("cold", 1, 1, 1 << 16, took(1, 1, 1 << 16) + cold_s, 0.1)
    warm = [CallTiming("warm", 1, chunks, nbytes, took(1, chunks, nbytes), 0.1) for chunks, nbytes in reads * 3]
    many = [CallTiming("at once", n, 1, 1 << 20, took(n, 1, 1 << 20), 0.1) for n in (1, 2, 4, 8, 16, 32)]
    return [first, *warm, *many]


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
    names = ("start_s", "byte_s", "at_once", "cold_s", "error_s", "chunk_s")
    return {name: getattr(function, name) for name in names}


def test_the_function_is_fitted_exactly_where_it_is_exact() -> None:
    profile = Profile("p", LATENCY_S, (1,), (1e8,), 8, REQUEST_S)
    found = fit_function(calls(), profile)
    assert found is not None
    assert (found.start_s, found.chunk_s, found.byte_s) == pytest.approx((0.02, 0.004, 1e-8), rel=1e-6)
    assert found.at_once == 4
    assert found.cold_s == pytest.approx(0.5)
    assert found.error_s < 1e-9


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
