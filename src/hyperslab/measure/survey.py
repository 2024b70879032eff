"""Which probes are sent, in which order and how large, so that time and bytes suffice.

First the latency, then rounds of probes: one request by itself of each size, small and large ones at once by each
number. Connections remember what went over them before (how many bytes may be under way, how fast they should go). So
rounds are shuffled, and each probe is sent twice: of small ones the second is counted, a read like the read before it,
as they come in loops over an array.
"""

import random
from statistics import median

from hyperslab.measure.probes import Prober, SpentError, Timing
from hyperslab.plan.phrases import say_bytes

__all__ = ["LEVELS", "SIZES", "STEPS", "TINY_BYTES", "survey"]

# So little fits in one packet: what it takes is the latency.
TINY_BYTES = 1 << 10
# One request by itself.
SIZES = (1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24)
# Requests at once.
LEVELS = (2, 4, 8, 16, 32, 64, 128, 256)
# Small requests at once, for the work that each makes.
_SMALL_LEVELS = (16, 64, 256)

# So many answers are waited for; on a slow line fewer, once that has taken so long.
_ANSWERS, _LEAST_ANSWERS, _ANSWERS_S = 24, 12, 2.0
# What each round takes of the bytes of large probes: all rounds have small ones, of which many cost little.
_ROUNDS = (0.2, 0.3, 0.5, 0.0, 0.0, 0.0)
_LARGE_ROUNDS = sum(part > 0 for part in _ROUNDS)
_TWICE = 2
# Rounds of small probes alone begin until so much of the time is over.
_MORE_SHARE = 0.6
# Sizes by themselves from here on, and levels of more bytes in all, are large.
_LARGE_BYTES, _SMALL_LEVEL_BYTES = 1 << 21, 1 << 18
# What is kept back of the bytes for what comes afterwards, and what one size by itself may take of them in all.
_KEPT_SHARE, _SIZE_SHARE = 0.04, 0.22
# Most probes are short: one may take so many times its share of the time.
_GREED = 8.0
_LEAST_BYTES = TINY_BYTES
_SMALL_ROUNDS = len(_ROUNDS) - _LARGE_ROUNDS
STEPS = (
    1
    + len(_ROUNDS) * sum(size < _LARGE_BYTES for size in SIZES)
    + (_LARGE_ROUNDS - 1) * sum(size >= _LARGE_BYTES for size in SIZES)
    + (1 + _SMALL_ROUNDS) * (len(LEVELS) + len(_SMALL_LEVELS))
    + _LARGE_ROUNDS * len(LEVELS)
)
_WORDS = {"small": "many small requests", "alone": "one request by itself", "level": "many requests at once"}


def survey(prober: Prober) -> list[str]:
    """Send the probes; return what was left out for want of time or bytes."""
    total_s, kept_bytes = prober.left_s(), _KEPT_SHARE * prober.left_bytes()
    allowed_bytes = prober.left_bytes() - kept_bytes - (_ANSWERS + 1) * TINY_BYTES
    sizes = [size for size in SIZES if size <= prober.target.nbytes and 3 * size <= _SIZE_SHARE * allowed_bytes]
    large = sum(size for size in sizes if size >= _LARGE_BYTES) * (_LARGE_ROUNDS - 1)
    small = len(_ROUNDS) * sum(size for size in sizes if size < _LARGE_BYTES)
    at_once = (1 + _SMALL_ROUNDS) * (len(LEVELS) * _SMALL_LEVEL_BYTES + sum(_SMALL_LEVELS) * TINY_BYTES)
    level_bytes = (allowed_bytes / _TWICE - large - small - at_once) / len(LEVELS)
    left_out: dict[str, None] = {}
    try:
        _answers(prober, prober.now() + 0.2 * total_s)
        for number, part in enumerate(_ROUNDS):
            if not part and prober.left_s() < (1 - _MORE_SHARE) * total_s:
                break
            # What is left is shared by the rounds that are left: half of it evenly, half by their bytes.
            parts = [1 / _LARGE_ROUNDS + each for each in _ROUNDS[number:] if each or not part]
            end = prober.now() + prober.left_s() * parts[0] / sum(parts)
            for name in _round(prober, sizes, part * level_bytes, kept_bytes, end, first=number == 0):
                left_out[name] = None
    except SpentError:
        left_out["the last probes"] = None
    return list(left_out)


def _answers(prober: Prober, end: float) -> None:
    prober.tell("latency")
    prober.probe("connect", 1, TINY_BYTES, steady=False)
    enough = prober.now() + _ANSWERS_S
    for done in range(_ANSWERS):
        if done >= _LEAST_ANSWERS and prober.now() > enough:
            break
        prober.probe("answer", 1, TINY_BYTES)
        if prober.now() > end:
            raise SpentError


def _round(
    prober: Prober, sizes: list[int], level_bytes: float, kept_bytes: float, end: float, *, first: bool
) -> list[str]:
    """Send a pair of probes of each kind; return which were left out."""
    large = level_bytes > 0
    kinds = [
        *[("alone", 1, size) for size in sizes if size < _LARGE_BYTES or (large and not first)],
        *[("level", level, _SMALL_LEVEL_BYTES // level) for level in LEVELS if first or not large],
        *[("level", level, int(level_bytes / level)) for level in LEVELS if large],
        *[("small", level, TINY_BYTES) for level in _SMALL_LEVELS if first or not large],
    ]
    if not first:
        # In the first round from small to large: what one took tells what the next will take.
        random.shuffle(kinds)
    left_out = []
    for done, (kind, requests, size) in enumerate(kinds):
        prober.tell(_WORDS[kind])
        share_s = _GREED * (end - prober.now()) / (len(kinds) - done)
        if kind == "level":
            size = max(_LEAST_BYTES, min(size, int(share_s / _TWICE * _rate(prober.timings) / requests)))
        too_long = _expected_s(prober, requests * size) > max(share_s / _TWICE, _least_s(prober, requests))
        if too_long or _TWICE * requests * size > prober.left_bytes() - kept_bytes:
            left_out.append(_WORDS[kind] if requests > 1 else f"requests of {say_bytes(size)}")
        else:
            for last in (False, True):
                prober.probe(kind, requests, size, steady=last or (not first and requests * size >= _LARGE_BYTES))
    return left_out


def _expected_s(prober: Prober, nbytes: int) -> float:
    """How long a probe of so many bytes takes at the best rate seen so far; larger ones have higher rates."""
    return _answer_s(prober) + nbytes / _rate(prober.timings)


def _least_s(prober: Prober, requests: int) -> float:
    """How long the shortest probe of so many requests may take, whatever its share of the time is."""
    return 2 * _answer_s(prober) + _expected_s(prober, requests * _LEAST_BYTES)


def _answer_s(prober: Prober) -> float:
    return median([each.seconds for each in prober.seen("answer")])


def _rate(timings: list[Timing]) -> float:
    """Return the best bytes per second seen so far, latency included: what is certainly possible."""
    return max(each.nbytes / each.seconds for each in timings)
