"""Profiles: how a store behaves, as values. Measured ones come later; these are typical."""

from dataclasses import dataclass, field
from functools import lru_cache
from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt

from hyperslab.errors import InvalidInputError

__all__ = ["Profile"]

# A curve that goes further is a mistake: no client keeps so many requests in flight.
_MOST_IN_FLIGHT = 1 << 20


@dataclass(frozen=True, slots=True)
class Profile:
    """Latency of a request, and bandwidth against the number of requests in flight.

    `in_flight` and `bandwidth` (bytes per second, over all connections) are points of one curve; between
    them it is straight. `concurrency` is how many requests are kept in flight; `request_s` is the work
    of the client for each, which nothing overlaps.

    >>> s3 = Profile.named("s3")
    >>> s3.latency_s, s3.n_min
    (0.03, 16)
    """

    name: str
    latency_s: float
    in_flight: tuple[int, ...]
    bandwidth: tuple[float, ...]
    concurrency: int
    request_s: float = 0.0
    # What `rate_of` gives for 0, 1, 2 … requests, until it stays the same.
    _rates: npt.NDArray[np.float64] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ascending = all(a < b for a, b in zip(self.in_flight, self.in_flight[1:], strict=False))
        if not self.in_flight or len(self.in_flight) != len(self.bandwidth) or not ascending:
            raise InvalidInputError("a profile needs as many bandwidths as ascending numbers of requests in flight")
        if (
            self.in_flight[0] != 1
            or self.in_flight[-1] > _MOST_IN_FLIGHT
            or not all(rate > 0 and isfinite(rate) for rate in self.bandwidth)
            or not all(time >= 0 and isfinite(time) for time in (self.latency_s, self.request_s))
            or self.concurrency < 1
        ):
            raise InvalidInputError(
                f"a profile has from 1 to at most {_MOST_IN_FLIGHT:,} requests in flight, bandwidths above 0, "
                "finite times from 0 on, concurrency from 1 on"
            )
        rates = np.interp(np.arange(self.most_in_flight + 1), self.in_flight, self.bandwidth)
        object.__setattr__(self, "_rates", rates)

    @property
    def stream_bandwidth(self) -> float:
        """Bytes per second of one connection."""
        return self.bandwidth[0]

    @property
    def most_in_flight(self) -> int:
        """How many requests in flight make a difference to the bandwidth."""
        return min(self.in_flight[-1], self.concurrency)

    @property
    def n_min(self) -> int:
        """The fewest requests in flight that reach 90% of the best bandwidth."""
        return next(n for n, b in zip(self.in_flight, self.bandwidth, strict=True) if b >= 0.9 * max(self.bandwidth))

    @property
    def n_max(self) -> int:
        """The most requests in flight that still reach 90% of the best bandwidth."""
        points = zip(reversed(self.in_flight), reversed(self.bandwidth), strict=True)
        return next(n for n, b in points if b >= 0.9 * max(self.bandwidth))

    def bandwidth_at(self, requests: Any) -> Any:
        """Bytes per second with that many requests in flight; takes a number or an array."""
        return np.interp(requests, self.in_flight, self.bandwidth)

    def rate_of(self, requests: Any) -> Any:
        """Bytes per second when that many requests are to be sent; takes an int or an array of them."""
        if isinstance(requests, int):
            return self._rates.item(min(requests, len(self._rates) - 1))
        return self._rates.take(requests, mode="clip")

    @staticmethod
    def named(name: str) -> "Profile":
        """Return a built-in profile: a typical figure until the store has been measured."""
        try:
            return _built_in()[name]
        except KeyError:
            known = ", ".join(sorted(_built_in()))
            raise InvalidInputError(f"no profile named {name!r}; built in are {known}") from None


@lru_cache(maxsize=1)
def _built_in() -> dict[str, Profile]:
    mb = 1e6
    profiles = (
        # Page cache or NVMe: most of a small read is our own work.
        Profile("local", 2.5e-5, (1, 2, 4), (2500 * mb, 4000 * mb, 4500 * mb), 4, 1e-6),
        Profile("memory", 2e-5, (1, 4), (4000 * mb, 4000 * mb), 4, 1e-4),
        # A client in the bucket's region: about 30 ms to the first byte, 85 MB/s a connection.
        Profile("s3", 0.03, (1, 4, 16, 64, 128), (85 * mb, 330 * mb, 1150 * mb, 1250 * mb, 1250 * mb), 64, 2e-4),
        # The same from outside, over a line of 1 Gbit/s.
        Profile("s3-internet", 0.09, (1, 4, 16, 64), (25 * mb, 90 * mb, 117 * mb, 119 * mb), 64, 2e-4),
    )
    return {profile.name: profile for profile in profiles}
