"""The fit against links whose true times are known: simulated ones, with slow start, jitter and outliers."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from support.simulated_link import SimulatedLink, SimulatedProber, jitter

from hyperslab.errors import InvalidInputError
from hyperslab.measure.fit import fit_profile, off_by
from hyperslab.measure.probes import Timing
from hyperslab.measure.survey import survey
from hyperslab.plan import CostModel, Prices, Profile

READS = [(n, (1 << power) // n) for power in range(16, 27) for n in (1, 3, 4, 16, 24, 64, 100, 256)]


def fitted(prober: SimulatedProber) -> Profile:
    survey(prober)
    return fit_profile(prober.timings, name="simulated", measured_at="2026-11-16T00:00:00+00:00")


def errors(profile: Profile, link: SimulatedLink) -> np.ndarray:
    """How far off reads of 64 KB to 64 MB by 1 to 256 requests are, all of them sent at once."""
    model = CostModel(replace(profile, concurrency=256), Prices.named("free"))
    pairs = [(link.seconds(n, size), float(model.seconds(n, n * size, size))) for n, size in READS]
    return np.array([abs(predicted - real) / real for real, predicted in pairs])


@pytest.mark.parametrize("slow_start", [True, False], ids=["slow start", "full speed"])
@pytest.mark.parametrize("round_trip_s", [0.001, 0.02, 0.05, 0.15])
def test_reads_are_predicted_over_near_and_far_links(round_trip_s, slow_start) -> None:
    link = SimulatedLink(round_trip_s=round_trip_s, slow_start=slow_start)
    found = errors(fitted(SimulatedProber(link, noise=jitter(7))), link)
    assert np.median(found) <= 0.1
    assert np.percentile(found, 80) <= 0.25


# Always the same ones, and no search for the simplest: each takes a moment.
@settings(max_examples=12, deadline=None, derandomize=True, phases=[Phase.generate])
@given(
    st.floats(0.001, 0.15), st.floats(2e7, 1e9), st.floats(3e5, 1e7), st.floats(1e-5, 1e-3),
    st.booleans(), st.integers(0, 10_000),
)  # fmt: skip
def test_any_link_is_fitted_within_the_bar(round_trip_s, rate, window, request_s, slow_start, seed) -> None:
    link = SimulatedLink(
        round_trip_s=round_trip_s, bytes_per_s=rate, window_bytes=window, request_s=request_s,
        slow_start=slow_start,
    )  # fmt: skip
    assert np.median(errors(fitted(SimulatedProber(link, noise=jitter(seed))), link)) <= 0.2


def test_the_figures_are_the_links() -> None:
    link = SimulatedLink(round_trip_s=0.03, bytes_per_s=100e6, window_bytes=1.5e6, request_s=1e-4, slow_start=False)
    profile = fitted(SimulatedProber(link))
    assert profile.latency_s == pytest.approx(0.03, rel=0.05)
    assert profile.stream_bandwidth == pytest.approx(50e6, rel=0.1)
    assert max(profile.bandwidth) == pytest.approx(100e6, rel=0.1)
    assert profile.n_min == 2
    assert profile.n_max == 256
    assert profile.spread_s == pytest.approx((0.0301, 0.0301), rel=0.01)
    assert np.median(off_by(profile, SimulatedProber(link).timings or [Timing("alone", 1, 1 << 20, 0.0511)])) < 0.1


def test_outliers_do_not_bend_the_fit() -> None:
    link = SimulatedLink(round_trip_s=0.05)
    found = errors(fitted(SimulatedProber(link, noise=jitter(3, share=0.02, outliers=0.12))), link)
    assert np.median(found) <= 0.1


def test_a_store_that_chokes_has_fewer_in_flight_at_best() -> None:
    class Choking(SimulatedLink):
        def seconds(self, requests: int, size_bytes: int) -> float:
            crowd = max(1.0, requests / 32)
            return super().seconds(requests, size_bytes) * crowd

    profile = fitted(SimulatedProber(Choking(round_trip_s=0.02, window_bytes=2e5, slow_start=False)))
    assert profile.n_max <= 64
    assert profile.n_min <= profile.concurrency <= 64


def test_nothing_is_fitted_to_probes_that_open_connections() -> None:
    link = SimulatedLink(round_trip_s=0.01)
    prober = SimulatedProber(link)
    survey(prober)
    slow = [each if each.steady else replace(each, seconds=99.0) for each in prober.timings]
    one, other = (fit_profile(timings, name="a", measured_at="") for timings in (prober.timings, slow))
    assert one == other


def test_a_survey_that_ended_in_its_first_round_is_fitted_all_the_same() -> None:
    link = SimulatedLink(round_trip_s=0.01, slow_start=False)
    prober = SimulatedProber(link)
    survey(prober)
    first = [each for each in prober.timings if not each.steady or each.kind == "answer"]
    assert np.median(errors(fit_profile(first, name="a", measured_at=""), link)) <= 0.2


def test_too_little_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="nothing was answered"):
        fit_profile([], name="a", measured_at="")
    with pytest.raises(InvalidInputError, match="allow more"):
        fit_profile([Timing("answer", 1, 1024, 0.1)], name="a", measured_at="")
