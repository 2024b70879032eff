"""How many cases the tests try: few in every run, many with `make soak`.

`load()` is called once, in `tests/conftest.py`. Tests that loop by themselves (kills, loads, races)
scale their counts with `times`, so that one switch governs all.
"""

import os

from hypothesis import HealthCheck, settings

__all__ = ["SOAK", "load", "times"]

SOAK = os.environ.get("HYPERSLAB_SOAK", "") not in ("", "0")


def load() -> None:
    """Choose Hypothesis's profile: `soak` if HYPERSLAB_SOAK is set, else `ci`."""
    # No deadlines per case: the two cores of a CI machine are shared, pytest-timeout bounds the whole test.
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
    # The same cases each time: a case that is found by chance is for a soak run, not for somebody else's change.
    settings.register_profile("ci", max_examples=100, deadline=None, derandomize=True, suppress_health_check=slow)
    settings.register_profile("soak", settings.get_profile("ci"), max_examples=10_000, derandomize=False)
    settings.load_profile("soak" if SOAK else "ci")


def times(usual: int, soak: int | None = None) -> int:
    """Return how often to do something: `usual`, or in a soak run `soak` (by default 100 times as often).

    A test that sets its own `max_examples` wraps the number in this too.
    """
    if not SOAK:
        return usual
    return 100 * usual if soak is None else soak
