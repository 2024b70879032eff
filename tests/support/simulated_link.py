"""A store at the end of a simulated link: connections that start slowly and share one rate, in a time of its own.

Each connection may have twice as many bytes under way after every round trip, up to a limit; all of them together get
the link's rate, in equal shares. So a survey of it takes no time, and what reads really take is known.
"""

import random
from collections.abc import Callable

import numpy as np

from hyperslab.measure.probes import Prober, SpentError, Target, Timing

__all__ = ["SimulatedLink", "SimulatedProber"]

_FIRST_BYTES = 14_480
_STEPS_PER_ROUND = 16


class SimulatedLink:
    """Answers how long requests of the same size take that are sent at once."""

    def __init__(
        self,
        *,
        round_trip_s: float,
        bytes_per_s: float = 125e6,
        window_bytes: float = 4e6,
        request_s: float = 2e-4,
        slow_start: bool = True,
    ) -> None:
        self.round_trip_s, self.bytes_per_s, self.window_bytes = round_trip_s, bytes_per_s, window_bytes
        self.request_s, self.slow_start = request_s, slow_start

    def seconds(self, requests: int, size_bytes: int) -> float:
        # They are alike, and so they get the same share and end together; each was sent a little later than the one
        # before it, which the client's work for the last one stands for.
        step_s = self.round_trip_s / _STEPS_PER_ROUND
        left, passed, window = float(size_bytes), 0.0, _FIRST_BYTES if self.slow_start else self.window_bytes
        while True:
            rate = min(window / self.round_trip_s, self.bytes_per_s / requests)
            if left <= rate * step_s or window >= min(self.window_bytes, rate * self.round_trip_s * 2):
                # It ends within this step, or goes on at this rate.
                return self.round_trip_s + requests * self.request_s + passed + left / rate
            left, passed = left - rate * step_s, passed + step_s
            window = min(self.window_bytes, window * 2 ** (1 / _STEPS_PER_ROUND))


class SimulatedProber(Prober):
    """Probes the simulated link; what goes wrong is up to `noise`, a function that gives a factor for each probe."""

    def __init__(
        self,
        link: SimulatedLink,
        *,
        seconds: float = 60.0,
        nbytes: int = 300_000_000,
        object_bytes: int = 32 << 20,
        noise: Callable[[], float] = lambda: 1.0,
    ) -> None:
        self.link, self.noise = link, noise
        self.clock, self.end, self.allowed_bytes = 0.0, seconds, nbytes
        self.target, self.timings, self.failures = Target("probe", object_bytes, None), [], 0
        self.told: list[str] = []
        self.tell = self.told.append

    def now(self) -> float:
        return self.clock

    def rest(self, seconds: float) -> None:
        self.clock += seconds

    def left_bytes(self) -> int:
        return self.allowed_bytes

    def probe(self, kind: str, requests: int, size_bytes: int, *, steady: bool = True) -> Timing | None:
        size_bytes = min(size_bytes, self.target.nbytes)
        if not self.fits(requests * size_bytes, 0.0):
            raise SpentError
        seconds = self.link.seconds(requests, size_bytes) * self.noise()
        self.clock += seconds
        if self.clock > self.end:
            self.clock = self.end
            raise SpentError
        self.allowed_bytes -= requests * size_bytes
        self.timings.append(Timing(kind, requests, size_bytes, seconds, steady))
        return self.timings[-1]


def jitter(seed: int, share: float = 0.05, outliers: float = 0.02) -> Callable[[], float]:
    """Return a noise: a few percent up or down, and now and then a probe that takes several times as long."""
    chance, normal = random.Random(seed), np.random.default_rng(seed)

    def factor() -> float:
        slow = chance.uniform(2, 8) if chance.random() < outliers else 1.0
        return slow * float(np.exp(normal.normal(0, share)))

    return factor
