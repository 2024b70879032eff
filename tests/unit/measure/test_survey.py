"""The survey keeps to its time and its bytes, on any link, and says what it left out."""

from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from support.simulated_link import SimulatedLink, SimulatedProber, jitter

from hyperslab.measure.survey import LEVELS, SIZES, STEPS, survey


@settings(max_examples=30, deadline=None, phases=[Phase.generate])
@given(
    st.floats(0.0005, 0.5), st.floats(1e5, 2e9), st.floats(3.0, 120.0),
    st.integers(2_000_000, 400_000_000), st.integers(1 << 16, 1 << 25),
)  # fmt: skip
def test_time_and_bytes_hold_on_any_link(round_trip_s, rate, seconds, nbytes, object_bytes) -> None:
    link = SimulatedLink(round_trip_s=round_trip_s, bytes_per_s=rate, slow_start=False)
    prober = SimulatedProber(link, seconds=seconds, nbytes=nbytes, object_bytes=object_bytes, noise=jitter(1))
    left_out = survey(prober)
    assert prober.clock <= seconds
    assert prober.allowed_bytes >= 0
    assert all(isinstance(words, str) for words in left_out)
    assert len(prober.told) <= STEPS


def test_a_good_line_is_measured_in_full() -> None:
    prober = SimulatedProber(SimulatedLink(round_trip_s=0.05))
    assert survey(prober) == []
    assert {each.size_bytes for each in prober.seen("alone")} == set(SIZES)
    assert {each.requests for each in prober.seen("level")} == set(LEVELS)
    assert 0.7 * STEPS < len(prober.told) <= STEPS  # rounds that cost little end when there is no time


def test_a_slow_line_is_measured_with_less() -> None:
    prober = SimulatedProber(SimulatedLink(round_trip_s=0.1, bytes_per_s=5e5), object_bytes=1 << 21)
    left_out = survey(prober)
    assert left_out
    assert sum(each.nbytes for each in prober.timings) < 40_000_000
    assert len({each.requests for each in prober.seen("level")}) >= 4


def test_rounds_are_shuffled_and_the_second_of_each_pair_is_counted() -> None:
    orders = set()
    for _ in range(3):
        prober = SimulatedProber(SimulatedLink(round_trip_s=0.01))
        survey(prober)
        pairs = [each for each in prober.timings if each.kind not in ("connect", "answer")]
        for one, other in zip(pairs[::2], pairs[1::2], strict=True):
            assert (one.kind, one.requests, one.size_bytes) == (other.kind, other.requests, other.size_bytes)
            assert other.steady
            assert not one.steady or one.nbytes >= 1 << 21
        orders.add(tuple((each.kind, each.requests, each.size_bytes) for each in pairs))
    assert len(orders) > 1
