"""Profiles: how a store, and a function beside its data, behave; as values, measured or typical."""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from itertools import pairwise
from math import isfinite
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from hyperslab.errors import InvalidInputError

__all__ = ["FunctionProfile", "Profile"]

# A curve that goes further is a mistake: no client keeps so many requests in flight.
_MOST_IN_FLIGHT = 1 << 20
# More points do not make a curve better; a file with a million of them is damaged.
_MOST_POINTS = 1 << 10
# What may be under way: so many times what fills the line, and at least so many bytes and requests.
_FLIGHTS, _LEAST_FLIGHT_BYTES, _LEAST_FLIGHT_REQUESTS = 4, 4 << 20, 16
# What a chunk takes to be cut out of what was read, and a byte to be decoded (zstd), where that was not measured.
TYPICAL_CUT_S, TYPICAL_DECODED_BYTE_S = 5e-5, 1e-9


@dataclass(frozen=True, slots=True)
class FunctionProfile:
    """How a function beside the data behaves: what a call takes there, beyond the request's own latency.

    A call that reads n bytes by g GETs, and cuts c chunks out of them that have d bytes when they are decoded, takes
    `start_s` + max(n × `byte_s`, g × `chunk_s`) + c × `cut_s` + d × `decoded_byte_s`. GETs go on beside each other, so
    that either the line is full or answers are waited for; chunks that lie near each other are read by one GET. Plain
    chunks are cut, not decoded. `at_once` calls run side by side without slowing each other while they wait;
    `read_at_once` while bytes arrive, as they may share a line to the store; `work_at_once` while they send GETs,
    decode and cut, which takes processors that they may share (None: as many). The first call of an instance
    takes `cold_s` more. `error_s` is how far the fit was off, on average.

    >>> FunctionProfile(0.02, 1e-6, chunk_s=0.25, cut_s=0.01, decoded_byte_s=0.0).seconds(1_000_000, 2, chunks=3)
    1.05
    """

    start_s: float
    byte_s: float
    at_once: int = 100
    cold_s: float = 0.0
    error_s: float = 0.0
    chunk_s: float = 0.0
    cut_s: float = TYPICAL_CUT_S
    decoded_byte_s: float = TYPICAL_DECODED_BYTE_S
    work_at_once: float | None = None
    read_at_once: float | None = None

    def __post_init__(self) -> None:
        times = (self.start_s, self.byte_s, self.cold_s, self.error_s, self.chunk_s, self.cut_s, self.decoded_byte_s)
        counts = (self.at_once, self.busy_at_once, self.reading_at_once)
        if not all(isfinite(time) and time >= 0 for time in times) or not all(
            1 <= n <= _MOST_IN_FLIGHT for n in counts
        ):
            raise InvalidInputError("a function's profile has finite times from 0 on, and runs from 1 call on at once")

    @property
    def busy_at_once(self) -> float:
        """How many calls side by side send GETs, decode and cut without slowing each other."""
        return self.at_once if self.work_at_once is None else self.work_at_once

    @property
    def reading_at_once(self) -> float:
        """How many calls side by side get bytes from the store without slowing each other."""
        return self.at_once if self.read_at_once is None else self.read_at_once

    def cut_seconds(self, chunks: Any, decoded_bytes: Any) -> Any:
        """How long cutting so many chunks takes one call, with so many bytes that are decoded for it."""
        return self.cut_s * chunks + self.decoded_byte_s * decoded_bytes

    def seconds(self, nbytes: Any, gets: Any = 1, calls: Any = 1, chunks: Any = 0, decoded_bytes: Any = 0) -> Any:
        """How long warm calls run, all added up, that read so many bytes by so many GETs and cut so many chunks.

        Calls that have to share processors, or the line to the store, run longer.
        """
        larger, smaller = (max, min) if isinstance(nbytes, (int, float)) else (np.maximum, np.minimum)
        beside = smaller(calls, self.at_once)
        crowd, queue = larger(1.0, beside / self.busy_at_once), larger(1.0, beside / self.reading_at_once)
        busy = self.cut_seconds(chunks, decoded_bytes) * crowd
        return self.start_s * calls + larger(self.byte_s * nbytes * queue, self.chunk_s * gets * crowd) + busy


@dataclass(frozen=True, slots=True)
class Profile:
    """Latency of a request, and bandwidth against the number of requests in flight.

    `in_flight` and `bandwidth` (bytes per second, over all connections) are points of one curve; between
    them it is straight. `concurrency` is how many requests are kept in flight; `request_s` is the work
    of the client for each, which nothing overlaps. `alone` has points (bytes, seconds) of one request by itself,
    beyond its latency: connections start slowly, so that a small answer takes longer than its share of the bandwidth.
    `spread_s` is the 10th and the 90th percentile of the latency, `measured_at` when it was measured (UTC, ISO 8601).

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
    alone: tuple[tuple[int, float], ...] = ()
    spread_s: tuple[float, float] | None = None
    measured_at: str | None = None
    function: FunctionProfile | None = None
    # What `rate_of` gives for 0, 1, 2 … requests, until it stays the same.
    _rates: npt.NDArray[np.float64] = field(init=False, repr=False, compare=False)
    _curve: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]] = field(init=False, repr=False, compare=False)
    # How many bytes may be asked for at a time: several times what is under way on a full line. More would not come
    # sooner, but could find no room on their way, and be lost: a read then takes seconds.
    flight_bytes: int = field(init=False, repr=False, compare=False)
    # How many requests may be under way however large they are: more than fill the line, as each begins slowly.
    flight_requests: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ascending = all(a < b for a, b in pairwise(self.in_flight))
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
        self._check_alone()
        rates = np.interp(np.arange(self.most_in_flight + 1), self.in_flight, self.bandwidth)
        object.__setattr__(self, "_rates", rates)
        curve = np.array(self.alone, np.float64).reshape(-1, 2).T
        object.__setattr__(self, "_curve", (curve[0], curve[1]))
        flight_bytes = max(_LEAST_FLIGHT_BYTES, int(_FLIGHTS * max(self.bandwidth) * self.latency_s))
        object.__setattr__(self, "flight_bytes", flight_bytes)
        object.__setattr__(self, "flight_requests", max(_LEAST_FLIGHT_REQUESTS, 2 * self.n_min))

    def _check_alone(self) -> None:
        sizes, times = [size for size, _ in self.alone], [time for _, time in self.alone]
        rising = all(a < b for a, b in pairwise(sizes)) and all(a <= b for a, b in pairwise(times))
        if sizes and not (rising and sizes[0] >= 0 and times[0] >= 0 and isfinite(times[-1])):
            raise InvalidInputError("a profile's times of one request alone must rise with its bytes")
        if max(len(sizes), len(self.in_flight)) > _MOST_POINTS:
            raise InvalidInputError(f"a profile has at most {_MOST_POINTS:,} points of a curve")

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

    def with_concurrency(self, concurrency: int) -> "Profile":
        """Return the same profile with so many requests kept in flight."""
        given = {each.name: getattr(self, each.name) for each in fields(self) if each.init}
        return Profile(**(given | {"concurrency": concurrency}))

    def alone_s(self, nbytes: Any) -> Any:
        """Seconds, beyond the latency, that one request of so many bytes takes by itself; a number or an array.

        >>> Profile("slow start", 0.1, (1,), (1e6,), 1, alone=((1000, 0.25), (2000, 0.75))).alone_s(1500)
        0.5
        """
        if not self.alone:
            return nbytes / self.stream_bandwidth
        if isinstance(nbytes, int):
            return self._alone_of_one(nbytes)
        sizes, times = self._curve
        beyond = np.maximum(nbytes - sizes[-1], 0) / self.stream_bandwidth
        found = np.interp(nbytes, sizes, times) + beyond
        return found if isinstance(nbytes, np.ndarray) else float(found)

    def _alone_of_one(self, nbytes: int) -> float:
        """The same for one number, without an array: it is asked for a hundred times in one plan."""
        at = bisect_right(self.alone, nbytes, key=itemgetter(0))
        if at == 0:
            return float(self.alone[0][1])
        low, low_s = self.alone[at - 1]
        if at == len(self.alone):
            return float(low_s + (nbytes - low) / self.stream_bandwidth)
        high, high_s = self.alone[at]
        return float(low_s + (high_s - low_s) * (nbytes - low) / (high - low))

    def to_dict(self) -> dict[str, Any]:
        """Return the profile as plain values, ready for JSON."""
        plain = {each.name: getattr(self, each.name) for each in fields(self) if each.init and each.name != "function"}
        plain["function"] = None if self.function is None else _values_of(self.function)
        return plain

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> "Profile":
        """Return the profile that `to_dict` gave the values of; refuses others.

        >>> Profile.from_dict(Profile.named("s3").to_dict()) == Profile.named("s3")
        True
        """
        try:
            given = dict(values)
            function = given.pop("function", None)
            for name in ("in_flight", "bandwidth"):
                given[name] = tuple(_numbers(given[name]))
            given["alone"] = tuple([(int(size), float(time)) for size, time in given.get("alone") or ()])
            if (spread := given.get("spread_s")) is not None:
                low, high = _numbers(spread)
                given["spread_s"] = (low, high)
            given["function"] = None if function is None else FunctionProfile(**_checked(function))
            return Profile(**_checked(given))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidInputError(f"not the values of a profile: {error}") from error

    @staticmethod
    def named(name: str) -> "Profile":
        """Return a built-in profile: a typical figure until the store has been measured."""
        try:
            return _built_in()[name]
        except KeyError:
            known = ", ".join(sorted(_built_in()))
            raise InvalidInputError(f"no profile named {name!r}; built in are {known}") from None


def _values_of(value: Any) -> dict[str, Any]:
    return {each.name: getattr(value, each.name) for each in fields(value)}


def _numbers(values: Any) -> list[Any]:
    if not all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values):
        raise TypeError("expected numbers")
    return list(values)


def _checked(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a dataclass, each of the kind that it must be."""
    texts, wholes = ("name", "measured_at"), ("concurrency", "at_once")
    for name, value in values.items():
        if name in texts:
            good = isinstance(value, str) or (value is None and name == "measured_at")
        else:
            kinds = (int,) if name in wholes else (int, float, tuple, FunctionProfile, type(None))
            good = isinstance(value, kinds) and not isinstance(value, bool)
        if not good:
            raise TypeError(f"{name} is {value!r}")
    return dict(values)


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
