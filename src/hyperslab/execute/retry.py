"""How long to wait before a failed request is sent again."""

import random

__all__ = ["backoff_s"]

_FIRST_S, _MAX_S = 0.1, 5.0


def backoff_s(attempt: int) -> float:
    """Return the pause after the given attempt (from 0): doubling, with jitter so that clients do not fall into step.

    >>> 0.05 <= backoff_s(0) <= 0.15 and backoff_s(60) <= 7.5
    True
    """
    return min(_MAX_S, _FIRST_S * 2.0 ** min(attempt, 16)) * random.uniform(0.5, 1.5)
