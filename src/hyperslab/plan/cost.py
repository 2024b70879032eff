"""The cost model: the only place that knows what requests and bytes cost in seconds and dollars.

For one read of N requests, S bytes, the largest request M bytes:

    seconds = max(S / BW(min(N, t)), M / BW(1)) + latency × ceil(N / t) + client work × N
    dollars = N × price of a request + S × price of a byte
    cost    = seconds + phi × dollars          (phi = infinity: dollars, then seconds)

where t is the concurrency and BW the profile's bandwidth. Numbers and NumPy arrays both work.
"""

from dataclasses import dataclass
from math import inf, isinf
from typing import Any

import numpy as np

from hyperslab.plan.prices import Prices
from hyperslab.plan.profile import Profile

__all__ = ["CostModel", "Estimate"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a plan is predicted to take.

    `requests` and `fetched_bytes` are of the data; `lookups` and `lookup_bytes` of the indexes read before it.
    With `exact` false, bytes are an upper bound: the stored size of some chunk is not known beforehand.
    """

    requests: int = 0
    needed_bytes: int = 0
    fetched_bytes: int = 0
    lookups: int = 0
    lookup_bytes: int = 0
    seconds: float = 0.0
    usd: float = 0.0
    exact: bool = True

    @property
    def all_requests(self) -> int:
        return self.requests + self.lookups

    @property
    def all_bytes(self) -> int:
        return self.fetched_bytes + self.lookup_bytes


@dataclass(frozen=True, slots=True, eq=False)
class CostModel:
    """A profile, prices, and phi: how many seconds a dollar is worth.

    `end_requests` is how many requests it takes to read an object's end: its size may have to be asked for first.
    """

    profile: Profile
    prices: Prices
    phi: float = 0.0
    end_requests: int = 1

    def seconds(self, requests: Any, nbytes: Any, largest: Any = 0) -> Any:
        """Predicted seconds; `largest` is the bytes of the largest single request."""
        profile = self.profile
        shared, alone = nbytes / profile.rate_of(requests), largest / profile.stream_bandwidth
        transfer = max(shared, alone) if isinstance(requests, int) else np.maximum(shared, alone)
        waves = (requests + (profile.concurrency - 1)) // profile.concurrency
        return transfer + profile.latency_s * waves + profile.request_s * requests

    def usd(self, requests: Any, nbytes: Any) -> Any:
        """Dollars billed."""
        return requests * self.prices.request_usd + nbytes * self.prices.byte_usd

    def write_usd(self, puts: int) -> float:
        """Dollars billed for objects written; the bytes sent, and deleting, are free."""
        return puts * self.prices.put_usd

    def cost(self, requests: Any, nbytes: Any, largest: Any = 0) -> Any:
        """Seconds + phi × dollars. With phi = infinity: dollars alone (see `best` for ties)."""
        if isinf(self.phi):
            return self.usd(requests, nbytes)
        seconds = self.seconds(requests, nbytes, largest)
        return seconds + self.phi * self.usd(requests, nbytes) if self.phi else seconds

    def rank(self, requests: int, nbytes: int, largest: int = 0) -> tuple[float, float]:
        """Return what one plan is compared with others by: its cost; with phi = infinity, then its seconds."""
        cost = self.cost(requests, nbytes, largest)
        return cost, self.seconds(requests, nbytes, largest) if isinf(self.phi) else 0.0

    def best(self, requests: Any, nbytes: Any, largest: Any = 0) -> int:
        """Return the index of the cheapest of several plans; the first of equals.

        >>> model = CostModel(Profile.named("s3"), Prices.named("aws"), inf)
        >>> model.best(np.array([9, 1]), np.array([10, 10]))
        1
        """
        cost = self.cost(requests, nbytes, largest)
        if isinf(self.phi):
            # Equal dollars: the quicker one.
            cost = np.where(cost <= cost.min() * (1 + 1e-12), self.seconds(requests, nbytes, largest), inf)
        return int(cost.argmin())

    def gap_bytes(self) -> float:
        """How many unwanted bytes cost as much as one more request, with many in flight."""
        many = self.profile.concurrency
        byte_s = 1.0 / float(self.profile.bandwidth_at(many))
        if isinf(self.phi):
            return self.prices.request_usd / self.prices.byte_usd if self.prices.byte_usd else inf
        request = self.profile.latency_s / many + self.profile.request_s + self.phi * self.prices.request_usd
        return request / (byte_s + self.phi * self.prices.byte_usd)

    def widest_gap_bytes(self) -> float:
        """How many unwanted bytes are worth fetching at the very most to spare one request."""
        byte_s = 1.0 / max(self.profile.bandwidth)
        if isinf(self.phi):
            return self.prices.request_usd / self.prices.byte_usd if self.prices.byte_usd else inf
        request = self.profile.latency_s + self.profile.request_s + self.phi * self.prices.request_usd
        return request / (byte_s + self.phi * self.prices.byte_usd)

    def weigh(self, estimate: Estimate) -> float:
        """The cost of an estimate: seconds + phi × dollars, or dollars alone with phi = infinity."""
        return estimate.usd if isinf(self.phi) else estimate.seconds + self.phi * estimate.usd

    def estimate(
        self,
        *,
        requests: int,
        needed: int,
        fetched: int,
        largest: int,
        lookups: int = 0,
        lookup_bytes: int = 0,
        exact: bool = True,
    ) -> Estimate:
        """Price a plan: lookups first, then data."""
        seconds = float(self.seconds(requests, fetched, largest)) if requests else 0.0
        if lookups:
            seconds += float(self.seconds(lookups, lookup_bytes))
        usd = float(self.usd(requests + lookups, fetched + lookup_bytes))
        return Estimate(requests, needed, fetched, lookups, lookup_bytes, seconds, usd, exact)
