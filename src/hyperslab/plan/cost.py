"""The cost model: the only place that knows what requests and bytes cost in seconds and dollars.

For one read of N requests, C of them calls of a function, S bytes of answers, the largest of them M bytes:

    seconds = max(S / BW, alone(M), calls + L / BW, early + R / BW) + latency × ceil(N / t) + client work × N
    calls   = error + start × ceil(C / a) + max(spread(per byte × F, r), spread(per GET × GETs inside, b))
              + spread(per chunk × chunks cut + per decoded byte × bytes decoded, b)
    spread(W, n) = max(W / min(C, n), the largest W of a call)
    dollars = (N - C) × price of a request + S × price of a byte
              + C × price of a call + GETs inside × price of a request + GB-seconds × their price
    cost    = seconds + phi × dollars          (phi = infinity: dollars, then seconds)

and for reads of small arrays that lie in packs, or in a key/value tier:

    seconds = pack × packs touched + key × keys + request × requests for keys

where t is the concurrency, BW the profile's bandwidth with min(N, t) in flight, alone(M) the time of one request by
itself, R the bytes of the calls' answers, F the bytes that the function reads beside the data, a how many calls wait at
once without slowing each other, r how many get bytes so, b how many work so: calls may share a line to the store; GETs,
decoding and cutting take processors, which the calls of one server share. The error of the function's measured time is
added once: of two plans that seem alike, the one that waits for fewer things that are not known well is taken. Numbers
and NumPy arrays both work.
"""

from dataclasses import dataclass
from math import inf, isinf
from typing import Any

import numpy as np

from hyperslab.errors import InternalError, InvalidInputError
from hyperslab.layout.wire import JOINED_BYTES
from hyperslab.plan.prices import FunctionPrices, Prices
from hyperslab.plan.profile import FunctionProfile, Profile

__all__ = ["AccessPrices", "Calls", "CostModel", "Estimate", "Fees", "FunctionModel"]


# What decoding takes on one processor of the client: for each chunk, and for each byte of its cells; and compressing a
# byte.
_CHUNK_S = 3e-5
_DECODED_BYTE_S = 1e-9
_ENCODED_BYTE_S = 2.5e-9
# What a store takes to find one more object, beyond a request for a range of one that it has just found: so long, or so
# much of its latency, if that is less.
_OBJECT_S, _OBJECT_SHARE = 4e-4, 0.02


@dataclass(frozen=True, slots=True)
class FunctionModel:
    """A function beside the data: how it behaves, what it bills, what one call may give.

    `reply_bytes` is the largest answer, `read_bytes` the most that one call may read, `chunk_bytes` the largest chunk
    that it decodes, and the most that it reads of a plain one.
    """

    profile: FunctionProfile
    prices: FunctionPrices
    memory_mb: int = 1769
    reply_bytes: int = 4 << 20
    read_bytes: int = 1 << 29
    chunk_bytes: int = 1 << 27

    @property
    def second_usd(self) -> float:
        """Dollars for a second that it runs."""
        return self.prices.second_usd(self.memory_mb)


@dataclass(frozen=True, slots=True, eq=False)
class Calls:
    """The calls of a plan, in figures: numbers, or arrays of them, one for each of several plans.

    `read_bytes` is what the function reads in all, by `gets` requests of its own, as near chunks are read together;
    `reply_bytes` is what it answers; it cuts `chunks`, of which those that are encoded have `decoded_bytes` when they
    are decoded. `largest_…` are the same of one call. `early_read` is the most that a call reads which has clearly less
    to read than the largest, `early_reply` what all such calls answer.
    """

    count: Any = 0
    read_bytes: Any = 0
    largest_read: Any = 0
    reply_bytes: Any = 0
    largest_reply: Any = 0
    gets: Any = 0
    largest_gets: Any = 0
    chunks: Any = 0
    largest_chunks: Any = 0
    decoded_bytes: Any = 0
    largest_decoded: Any = 0
    early_read: Any = 0
    early_reply: Any = 0


@dataclass(frozen=True, slots=True)
class Fees:
    """What a bill is made of, in dollars; `inside` is what the function's own requests to the store cost."""

    requests: float = 0.0
    transfer: float = 0.0
    calls: float = 0.0
    compute: float = 0.0
    inside: float = 0.0

    @property
    def total(self) -> float:
        return self.requests + self.transfer + self.calls + self.compute + self.inside


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a plan is predicted to take.

    `requests` and `fetched_bytes` are of the data; `lookups` and `lookup_bytes` of the indexes read before it. `calls`
    of a function are apart from requests; what they answer, `reply_bytes`, is part of `fetched_bytes`. The function
    itself reads `function_bytes` by `function_gets` requests, which takes it `function_s` over all calls.
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
    calls: int = 0
    reply_bytes: int = 0
    function_bytes: int = 0
    function_gets: int = 0
    function_s: float = 0.0

    @property
    def all_requests(self) -> int:
        """All that is sent: for data, for indexes, and calls."""
        return self.requests + self.lookups + self.calls

    @property
    def all_bytes(self) -> int:
        return self.fetched_bytes + self.lookup_bytes


@dataclass(frozen=True, slots=True, eq=False)
class CostModel:
    """A profile, prices, and phi: how many seconds a dollar is worth.

    `end_requests` is how many requests it takes to read an object's end: its size may have to be asked for first.
    `mapped` objects are files: of plain chunks the needed bytes are read, and no others.
    """

    profile: Profile
    prices: Prices
    phi: float = 0.0
    end_requests: int = 1
    function: FunctionModel | None = None
    mapped: bool = False

    def seconds(self, requests: Any, nbytes: Any, largest: Any = 0, calls: Calls | None = None) -> Any:
        """Predicted seconds of some requests, and calls beside them; `largest` is the bytes of the largest request."""
        profile = self.profile
        if calls is not None:
            return self._seconds_with(requests, nbytes, largest, calls)
        transfer = self.transfer_seconds(requests, nbytes, largest)
        waves = (requests + (profile.concurrency - 1)) // profile.concurrency
        return transfer + profile.latency_s * waves + profile.request_s * requests

    def transfer_seconds(self, requests: Any, nbytes: Any, largest: Any = 0) -> Any:
        """Predicted seconds that the bytes of some requests take on their way."""
        shared, alone = nbytes / self.profile.rate_of(requests), self.profile.alone_s(largest)
        return max(shared, alone) if isinstance(requests, int) else np.maximum(shared, alone)

    def _seconds_with(self, requests: Any, nbytes: Any, largest: Any, calls: Calls) -> Any:
        profile, plain = self.profile, isinstance(requests, int) and isinstance(calls.count, int)
        larger = max if plain else np.maximum
        everything = requests + calls.count
        rate = profile.rate_of(everything)
        answers = larger((calls.reply_bytes - calls.early_reply) / rate, profile.alone_s(calls.largest_reply))
        ends = self.call_seconds(calls)
        called = larger(ends + answers, ends - self._early_seconds(calls) + calls.reply_bytes / rate)
        if not plain:
            called = np.where(np.asarray(calls.count) > 0, called, 0.0)
        elif not calls.count:
            called = 0.0
        transfer = larger(larger((nbytes + calls.reply_bytes) / rate, profile.alone_s(largest)), called)
        waves = (everything + (profile.concurrency - 1)) // profile.concurrency
        return transfer + profile.latency_s * waves + profile.request_s * everything

    def call_seconds(self, calls: Calls) -> Any:
        """How long the calls take beside the data, all together."""
        function, plain = self._function().profile, isinstance(calls.count, int)
        larger, smaller = (max, min) if plain else (np.maximum, np.minimum)
        at_once = larger(1, smaller(calls.count, min(function.at_once, self.profile.concurrency)))
        waves, busy = -(-calls.count // at_once), smaller(at_once, function.busy_at_once)
        cut = larger(
            function.cut_seconds(calls.chunks, calls.decoded_bytes) / busy,
            function.cut_seconds(calls.largest_chunks, calls.largest_decoded),
        )
        reading = larger(self._read_seconds(calls, at_once), self._asked_seconds(calls, at_once))
        return function.error_s + function.start_s * waves + reading + cut

    def _read_seconds(self, calls: Calls, at_once: Any) -> Any:
        """How long bytes arrive that calls read."""
        function, plain = self._function().profile, isinstance(calls.count, int)
        larger, smaller = (max, min) if plain else (np.maximum, np.minimum)
        shared = calls.read_bytes / smaller(at_once, function.reading_at_once)
        return function.byte_s * larger(shared, calls.largest_read)

    def _asked_seconds(self, calls: Calls, at_once: Any) -> Any:
        """How long calls wait for their own requests."""
        function, plain = self._function().profile, isinstance(calls.count, int)
        larger, smaller = (max, min) if plain else (np.maximum, np.minimum)
        return function.chunk_s * larger(calls.gets / smaller(at_once, function.busy_at_once), calls.largest_gets)

    def _early_seconds(self, calls: Calls) -> Any:
        """How long before the last call those have ended that have less to read; they shared the line with it."""
        function, plain = self._function().profile, isinstance(calls.count, int)
        larger, smaller = (max, min) if plain else (np.maximum, np.minimum)
        at_once = larger(1, smaller(calls.count, min(function.at_once, self.profile.concurrency)))
        share = at_once / smaller(at_once, function.reading_at_once)
        waited = larger(function.byte_s * calls.early_read * share, self._asked_seconds(calls, at_once))
        return larger(0.0, self._read_seconds(calls, at_once) - waited)

    def decode_seconds(self, chunks: Any, nbytes: Any) -> Any:
        """How long the client takes to decode so many chunks, of so many bytes in all.

        No plan of a read can change that, so plans do not count it; another layout can.
        """
        return chunks * _CHUNK_S + nbytes * _DECODED_BYTE_S

    def work_seconds(self, requests: Any, nbytes: Any, objects: Any, chunks: Any, decoded_bytes: Any) -> Any:
        """What the work for a read adds to the seconds of its plan; less than nothing, where it goes on beside.

        Finding different objects (profiles are measured on ranges of one), sending requests and decoding go on while
        bytes of other requests are under way; what is done for the last of them does not. Plans count only requests,
        and those as if nothing went on beside. No plan can change the rest; another layout can.
        """
        decoding = self.decode_seconds(chunks, decoded_bytes)
        if self.mapped:
            return decoding
        sending = requests * self.profile.request_s
        finding = (objects - 1) * min(_OBJECT_S, _OBJECT_SHARE * self.profile.latency_s)
        work, last = decoding + finding + sending, 1.0 / np.maximum(requests, 1)
        beside = (1.0 - last) * nbytes / self.profile.rate_of(requests)
        return np.maximum(last * work, work - beside) - sending

    def encode_seconds(self, nbytes: Any) -> Any:
        """How long the client takes to compress so many bytes."""
        return nbytes * _ENCODED_BYTE_S

    def least_with_call(self, nbytes: int, read_bytes: int, decoded_bytes: int = 0) -> float:
        """Return what no plan with a call can cost less than, that brings so many bytes.

        `read_bytes` and `decoded_bytes` are the least that one chunk takes inside.
        """
        calls = Calls(1, read_bytes, read_bytes, 0, 0, 1, 1, 1, 1, decoded_bytes, decoded_bytes)
        prices = self.prices
        usd = nbytes * min(prices.byte_usd, prices.reply_byte_usd) + float(self.usd(0, 0, calls))
        if isinf(self.phi):
            return usd
        transfer = max(nbytes / max(self.profile.bandwidth), self.call_seconds(calls))
        return float(transfer + self.profile.latency_s + self.profile.request_s + self.phi * usd)

    def function_seconds(self, calls: Calls) -> Any:
        """How long the calls run, one added to the other: what is billed."""
        function = self._function()
        ran = function.profile.seconds(calls.read_bytes, calls.gets, calls.count, calls.chunks, calls.decoded_bytes)
        least = function.prices.least_s * calls.count
        return max(ran, least) if isinstance(calls.count, int) else np.maximum(ran, least)

    def usd(self, requests: Any, nbytes: Any, calls: Calls | None = None) -> Any:
        """Dollars billed."""
        direct = requests * self.prices.request_usd + nbytes * self.prices.byte_usd
        if calls is None:
            return direct
        seconds = self.function_seconds(calls)
        return direct + self.call_usd(calls.count, seconds, calls.gets, calls.read_bytes, calls.reply_bytes)

    def call_usd(self, count: Any, seconds: Any, gets: Any, read_bytes: Any, reply_bytes: Any) -> Any:
        """Dollars billed for calls: themselves, the seconds they ran, what they read inside, what they answered."""
        function, prices = self._function(), self.prices
        inside = gets * prices.request_usd + read_bytes * prices.inside_byte_usd
        called = count * function.prices.call_usd + seconds * function.second_usd
        return called + inside + reply_bytes * prices.reply_byte_usd

    def extra_usd(self, estimate: Estimate) -> float:
        """Dollars that an estimate's calls cost beyond what as many requests and bytes would; negative if less."""
        if not estimate.calls:
            return 0.0
        gets, read, reply = estimate.function_gets, estimate.function_bytes, estimate.reply_bytes
        called = self.call_usd(estimate.calls, estimate.function_s, gets, read, reply)
        return float(called - self.usd(estimate.calls, reply))

    def fees(self, estimate: Estimate) -> Fees:
        """Split the dollars of an estimate by what they are for."""
        prices, direct_bytes = self.prices, estimate.all_bytes - estimate.reply_bytes
        requests = (estimate.requests + estimate.lookups) * prices.request_usd
        transfer = direct_bytes * prices.byte_usd + estimate.reply_bytes * prices.reply_byte_usd
        if not estimate.calls:
            return Fees(requests, transfer)
        function = self._function()
        inside = estimate.function_gets * prices.request_usd + estimate.function_bytes * prices.inside_byte_usd
        calls, compute = estimate.calls * function.prices.call_usd, estimate.function_s * function.second_usd
        return Fees(requests, transfer, calls, compute, inside)

    def _function(self) -> FunctionModel:
        if self.function is None:
            raise InternalError("a call, without a function to be called")
        return self.function

    def write_usd(self, puts: int) -> float:
        """Dollars billed for objects written; the bytes sent, and deleting, are free."""
        return puts * self.prices.put_usd

    def cost(self, requests: Any, nbytes: Any, largest: Any = 0, calls: Calls | None = None) -> Any:
        """Seconds + phi × dollars. With phi = infinity: dollars alone (see `best` for ties)."""
        if isinf(self.phi):
            return self.usd(requests, nbytes, calls)
        seconds = self.seconds(requests, nbytes, largest, calls)
        return seconds + self.phi * self.usd(requests, nbytes, calls) if self.phi else seconds

    def rank(self, requests: int, nbytes: int, largest: int = 0, calls: Calls | None = None) -> tuple[float, float]:
        """Return what one plan is compared with others by: its cost; with phi = infinity, then its seconds."""
        cost = self.cost(requests, nbytes, largest, calls)
        if not isinf(self.phi):
            return cost, 0.0
        # Dollars are sums of tiny parts: those that differ by rounding alone are equal.
        return float(f"{cost:.12e}"), self.seconds(requests, nbytes, largest, calls)

    def best(self, requests: Any, nbytes: Any, largest: Any = 0, calls: Calls | None = None) -> int:
        """Return the index of the cheapest of several plans; the first of equals.

        >>> model = CostModel(Profile.named("s3"), Prices.named("aws"), inf)
        >>> model.best(np.array([9, 1]), np.array([10, 10]))
        1
        """
        cost = self.cost(requests, nbytes, largest, calls)
        if isinf(self.phi):
            # Equal dollars: the quicker one.
            cost = np.where(cost <= cost.min() * (1 + 1e-12), self.seconds(requests, nbytes, largest, calls), inf)
        return int(cost.argmin())

    def gap_bytes(self) -> float:
        """How many unwanted bytes cost as much as one more request, with many in flight."""
        many = self.profile.concurrency
        byte_s = 1.0 / float(self.profile.bandwidth_at(many))
        if isinf(self.phi):
            return self.prices.request_usd / self.prices.byte_usd if self.prices.byte_usd else inf
        request = self.profile.latency_s / many + self.profile.request_s + self.phi * self.prices.request_usd
        return request / (byte_s + self.phi * self.prices.byte_usd)

    def inside_gap_bytes(self) -> int:
        """How many unwanted bytes a function may as well read to spare one of its own requests."""
        function, prices = self._function(), self.prices
        time, phi = (0.0, 1.0) if isinf(self.phi) else (1.0, self.phi)
        second = time + phi * function.second_usd
        request = function.profile.chunk_s * second + phi * prices.request_usd
        byte = function.profile.byte_s * second + phi * prices.inside_byte_usd
        return int(min(request / byte, JOINED_BYTES)) if byte else JOINED_BYTES

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
        first: bool = True,
        exact: bool = True,
        calls: Calls | None = None,
    ) -> Estimate:
        """Price a plan; `fetched` is without what calls answer.

        Lookups come first, then data; or, if they are not `first`, all at the same time.
        """
        asked, nbytes = (requests, fetched) if first else (requests + lookups, fetched + lookup_bytes)
        seconds = float(self.seconds(asked, nbytes, largest, calls)) if asked or calls is not None else 0.0
        if lookups and first:
            seconds += float(self.seconds(lookups, lookup_bytes))
        usd = float(self.usd(requests + lookups, fetched + lookup_bytes, calls))
        if calls is None:
            return Estimate(requests, needed, fetched, lookups, lookup_bytes, seconds, usd, exact)
        return Estimate(
            requests, needed, fetched + calls.reply_bytes, lookups, lookup_bytes, seconds, usd, exact,
            calls.count, calls.reply_bytes, calls.read_bytes, calls.gets, float(self.function_seconds(calls)),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class AccessPrices:
    """Seconds of an access to a pack, of a key, and of a request for keys (0 where each key is its own request).

    Where keys are asked for by one request (MGET), a key's price is what one more of them costs.

    >>> AccessPrices(pack_s=10.0, key_s=1.0).seconds(touches=2, keys=12, requests=0)
    32.0
    """

    pack_s: float
    key_s: float
    request_s: float = 0.0

    def __post_init__(self) -> None:
        if not (self.pack_s > 0 and self.key_s >= 0 and self.request_s >= 0):
            raise InvalidInputError(f"prices are seconds, that of a pack more than 0: {self}")

    def seconds(self, touches: Any, keys: Any, requests: Any) -> Any:
        """Return what so many accesses to packs, keys and requests for keys take."""
        return self.pack_s * touches + self.key_s * keys + self.request_s * requests
