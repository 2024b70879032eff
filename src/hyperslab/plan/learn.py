"""Profiles that learn: what reads took, against what was predicted, moves the profile along. Pure.

Each read tells about what it mostly consisted of: waiting for answers (latency and the client's work), transfer, or
the function's time. Of each, the weighted median of the last ratios is kept: a read that took fifty times as long
moves nothing, a change that lasts moves it within a few reads.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isfinite, log
from typing import Any

from hyperslab.errors import InvalidInputError
from hyperslab.plan.cost import CostModel
from hyperslab.plan.prices import Prices
from hyperslab.plan.profile import Profile

__all__ = ["Learner", "Observation"]

# How much less each older read counts, how many are kept, and how many there must be before anything moves.
_DECAY, _KEPT, _LEAST = 0.9, 32, 8
# The profile stays as it is while the estimate is this near, so that plans can be kept.
_NEAR = 0.1
# What a ratio is at most, or at least its reciprocal: beyond, something else went wrong.
_FURTHEST = 50.0
_LEAST_S = 1e-9
# From here on a person is told.
_DRIFT = 1.5
_PARTS = ("answers", "transfer", "function")
_SLOWER = {"answers": "it answers", "transfer": "it transfers", "function": "the function runs"}


@dataclass(frozen=True, slots=True)
class Observation:
    """A finished read: so many requests, bytes of answers, bytes of the largest, and the seconds that it took.

    If there were calls: how many, the function's own GETs and the bytes that they read, the seconds it ran in all, the
    chunks that it cut and the bytes that it decoded for that.
    """

    requests: int
    nbytes: int
    largest: int
    seconds: float
    calls: int = 0
    chunks: int = 0
    read_bytes: int = 0
    function_s: float = 0.0
    cut_chunks: int = 0
    decoded_bytes: int = 0


class _Ratios:
    """The last ratios of measured to predicted, newest last, and the one that is in use."""

    def __init__(self) -> None:
        self.seen: deque[float] = deque(maxlen=_KEPT)
        self.used = 1.0

    def add(self, ratio: float) -> None:
        self.seen.append(min(max(ratio, 1 / _FURTHEST), _FURTHEST))
        if len(self.seen) < _LEAST:
            return
        estimate = _weighted_median(list(self.seen))
        if abs(log(estimate / self.used)) > log(1 + _NEAR):
            self.used = estimate


class Learner:
    """Learns how far a measured profile is off from what reads took.

    >>> learner = Learner(Profile.named("s3"))
    >>> for _ in range(16):
    ...     learner.observe(Observation(requests=1, nbytes=100, largest=100, seconds=0.06))
    >>> round(learner.profile().latency_s, 3)
    0.06
    """

    def __init__(self, base: Profile) -> None:
        self.base = base
        self._model = CostModel(base, Prices.named("free"))
        self._parts = {name: _Ratios() for name in _PARTS}
        self._profile = base
        # Whether there is something to keep.
        self.news = False

    def observe(self, seen: Observation) -> None:
        """Take in a finished read. One with calls tells only of the function: what it waited for is not told apart."""
        if seen.calls:
            self._observe_calls(seen)
        elif seen.requests >= 1 and isfinite(seen.seconds) and seen.seconds > 0:
            self._observe_requests(seen)

    def _observe_requests(self, seen: Observation) -> None:
        answers_s = float(self._model.seconds(seen.requests, 0, 0))
        transfer_s = float(self._model.seconds(seen.requests, seen.nbytes, seen.largest)) - answers_s
        answers, transfer = self._parts["answers"], self._parts["transfer"]
        # The other part, which is the smaller one, is taken as it is believed to be now.
        if answers_s >= transfer_s:
            self._add("answers", (seen.seconds - transfer.used * transfer_s) / max(answers_s, _LEAST_S))
        else:
            self._add("transfer", (seen.seconds - answers.used * answers_s) / transfer_s)

    def _observe_calls(self, seen: Observation) -> None:
        function = self.base.function
        work = (seen.read_bytes, seen.chunks, seen.calls, seen.cut_chunks, seen.decoded_bytes)
        expected_s = 0.0 if function is None else float(function.seconds(*work))
        if expected_s > 0 and isfinite(seen.function_s) and seen.function_s > 0:
            self._add("function", seen.function_s / expected_s)

    def _add(self, name: str, ratio: float) -> None:
        self.news = True
        part = self._parts[name]
        before = part.used
        part.add(ratio)
        if part.used != before:
            self._profile = self._scaled()

    def profile(self) -> Profile:
        """Return the profile as reads show it: the same one until something has moved by more than a tenth."""
        return self._profile

    def _scaled(self) -> Profile:
        base, (answers, transfer, running) = self.base, (self._parts[name].used for name in _PARTS)
        function, spread = base.function, base.spread_s
        return replace(
            base,
            latency_s=base.latency_s * answers,
            request_s=base.request_s * answers,
            bandwidth=tuple([rate / transfer for rate in base.bandwidth]),
            alone=tuple([(size, time * transfer) for size, time in base.alone]),
            spread_s=None if spread is None else (spread[0] * answers, spread[1] * answers),
            function=None
            if function is None
            else replace(
                function,
                start_s=function.start_s * running,
                byte_s=function.byte_s * running,
                chunk_s=function.chunk_s * running,
                cut_s=function.cut_s * running,
                decoded_byte_s=function.decoded_byte_s * running,
            ),
        )

    def drift(self, url: str = "URL") -> str | None:
        """Say how far the store has moved away from what was measured; None while that is not far.

        >>> learner = Learner(Profile("mine", 0.03, (1,), (1e8,), 8, measured_at="2026-11-16T10:00:00+00:00"))
        >>> for _ in range(16):
        ...     learner.observe(Observation(requests=1, nbytes=100, largest=100, seconds=0.06))
        >>> print(learner.drift("s3://bucket"))
        it answers 2.0 times slower than measured on 2026-11-16; `hyperslab measure s3://bucket` measures again
        """
        words = []
        for name, part in self._parts.items():
            if abs(log(part.used)) >= log(_DRIFT):
                factor, way = (part.used, "slower") if part.used > 1 else (1 / part.used, "faster")
                words.append(f"{_SLOWER[name]} {factor:.1f} times {way}")
        if not words:
            return None
        on = f" on {self.base.measured_at[:10]}" if self.base.measured_at else ""
        return f"{', '.join(words)} than measured{on}; `hyperslab measure {url}` measures again"

    def to_dict(self) -> dict[str, Any]:
        """Return what was learned, ready for JSON."""
        return {name: {"used": part.used, "seen": list(part.seen)} for name, part in self._parts.items()}

    @staticmethod
    def from_dict(base: Profile, learned: Mapping[str, Any]) -> "Learner":
        """Return a learner that knows what `to_dict` gave; refuses other values.

        >>> Learner.from_dict(Profile.named("s3"), Learner(Profile.named("s3")).to_dict()).drift() is None
        True
        """
        learner = Learner(base)
        try:
            for name, part in learner._parts.items():
                used, seen = float(learned[name]["used"]), [float(ratio) for ratio in learned[name]["seen"]]
                if len(seen) > _KEPT or not all(1 / _FURTHEST <= ratio <= _FURTHEST for ratio in (used, *seen)):
                    raise ValueError(f"ratios of {name} that cannot be")
                part.used = used
                part.seen.extend(seen)
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInputError(f"not what a profile has learned: {error}") from error
        if any(part.used != 1.0 for part in learner._parts.values()):
            learner._profile = learner._scaled()
        return learner


def _weighted_median(values: list[float]) -> float:
    """Return the value with half the weight on either side; the newest, which is last, weighs most.

    >>> _weighted_median([9.0, 9.0, 9.0, 1.0, 1.1, 1.2, 1.3, 50.0])
    1.3
    """
    weights = [_DECAY ** (len(values) - 1 - i) for i in range(len(values))]
    half, below = sum(weights) / 2, 0.0
    for value, weight in sorted(zip(values, weights, strict=True)):
        below += weight
        if below >= half:
            return value
    return values[-1]
