"""What a session knows of the stores that it reads: how they behave, what they bill, the function beside their data."""

import threading
import warnings
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from hyperslab.errors import InvalidInputError
from hyperslab.execute.ledger import Ledger
from hyperslab.execute.own_prices import find_prices, prices_for
from hyperslab.execute.profiles import Known, find_known, save_known
from hyperslab.plan import CostModel, FunctionModel, FunctionProfile, Plan, Prices, Profile
from hyperslab.plan.learn import Observation
from hyperslab.plan.prices import LOCATIONS, FunctionPrices
from hyperslab.store.call import CallLimits

if TYPE_CHECKING:
    from hyperslab.store import Store
    from hyperslab.store.function import Function

__all__ = ["DriftWarning", "Knowledge", "check_location"]

# A function that was not measured: about what providers' guides and the field report for a small one.
_TYPICAL_FUNCTION = FunctionProfile(start_s=0.02, byte_s=1 / 80e6, at_once=100, cold_s=0.5, chunk_s=0.002)
# The calls of a server of one's own share its processors; those of a provider's function each have their own.
_TYPICAL_SERVER = replace(_TYPICAL_FUNCTION, work_at_once=4.0)
# A server of one's own bills nothing and answers whatever fits in its memory.
_OWN_SERVER = FunctionPrices(0.0, 0.0)
_OWN_REPLY_BYTES = 32 << 20
# Cost models are kept for so many stores and values of phi.
_MOST_MODELS = 256


class DriftWarning(UserWarning):
    """A store behaves otherwise than when it was measured; plans follow what is seen."""


class Knowledge:
    """Gives the cost model of each store: what was given, measured, or is typical, in that order.

    Profiles that were measured, and are found by the store's address, go on learning from what is read.
    """

    def __init__(
        self,
        *,
        profile: Profile | None,
        prices: Prices | None,
        location: str | None,
        concurrency: int | None,
        function: "Function | None",
        learn: bool,
    ) -> None:
        self.profile, self.prices, self.location = profile, prices, location
        self.concurrency, self.function, self.learn = concurrency, function, learn
        self._lock = threading.Lock()
        self._known: dict[str, Known | None] = {}
        self._models: dict[tuple[str, float, bool], CostModel] = {}
        self._said: set[str] = set()
        self._news: list[str] = []

    def model(self, store: "Store", phi: float, *, calls: bool) -> CostModel:
        """Return the cost model of a store; `calls` says whether the function may be called."""
        key = (store.address, phi, calls)
        model = self._models.get(key)
        if model is None:
            if len(self._models) > _MOST_MODELS:
                self._models = {}
            model = self._models[key] = self._model(store, phi, calls and self.function is not None)
        return model

    def _model(self, store: "Store", phi: float, calls: bool) -> CostModel:
        profile = self._profile(store)
        if self.concurrency is not None and self.concurrency != profile.concurrency:
            profile = profile.with_concurrency(self.concurrency)
        prices = self.prices or prices_for(store.scheme, region=None, location=self.location, name=None)
        function = self._function_model(profile, prices) if calls else None
        return _cached_model(profile, prices, phi, 1 if store.has_suffix else 2, function, store.scheme == "file")

    def _profile(self, store: "Store") -> Profile:
        if self.profile is not None:
            return self.profile
        known = self.known(store)
        return known.learner.profile() if known is not None else _typical_profile(store.scheme)

    def known(self, store: "Store") -> Known | None:
        """Return what was measured of a store, looked for once."""
        if self.profile is not None or store.scheme in ("file", "memory"):
            return None
        with self._lock:
            if store.address not in self._known:
                self._known[store.address] = find_known(store.address)
            return self._known[store.address]

    def _function_model(self, profile: Profile, prices: Prices) -> FunctionModel:
        function = self.function
        if function is None:
            raise InvalidInputError("there is no function to be called: Session(function=…)")
        behaves = profile.function or (_TYPICAL_SERVER if function.provider == "local" else _TYPICAL_FUNCTION)
        limits, free_bytes = CallLimits(), _free_bytes(function)
        # All that one call reads is held beside what is cut out of it. Of the memory, a half is for chunks that are
        # being decoded, when one is there four times and more, and three tenths for answers, which are there twice.
        read = min(free_bytes // 3, limits.read_bytes)
        chunk, reply = min(free_bytes // 9, limits.chunk_bytes), min(free_bytes * 3 // 20, _OWN_REPLY_BYTES)
        if function.provider == "local":
            return FunctionModel(behaves, _OWN_SERVER, function.memory_mb, reply, read, chunk)
        billed = prices.function if prices.provider == function.provider else find_prices(function.provider).function
        billed = billed or _OWN_SERVER
        # What is not cells: the header, with a line for each chunk.
        reply = min(reply, (billed.answer_bytes or _OWN_REPLY_BYTES) - (64 << 10))
        return FunctionModel(behaves, billed, function.memory_mb, reply, read, chunk)

    def observe(self, store: "Store", plan: Plan, ledger: Ledger, ran_s: float | None = None) -> None:
        """Learn from a read that went as it was planned; the function ran `ran_s`, if that is not what is billed."""
        known = self.known(store) if self.learn else None
        # Lookups, retries and chunks at hand take time that the formula does not put here.
        if known is None or ledger.lookups or ledger.retries or ledger.cache_hits or not ledger.all_requests:
            return
        if (ledger.requests, ledger.calls) != (plan.estimate.requests, plan.estimate.calls):
            return
        largest = min(plan.largest_bytes, ledger.bytes)
        seen = Observation(
            ledger.requests, ledger.bytes, largest, ledger.seconds, ledger.calls, ledger.function_gets,
            ledger.function_bytes, ledger.function_s if ran_s is None else ran_s,
            sum([len(call.owners) for call in plan.calls]), sum([call.decoded_bytes for call in plan.calls]),
        )  # fmt: skip
        with self._lock:
            before = known.learner.profile()
            known.learner.observe(seen)
            if known.learner.profile() is not before:
                self._models = {}
            drift = known.learner.drift(store.address.partition("?")[0])
            if drift is not None and store.address not in self._said:
                self._said.add(store.address)
                self._news.append(f"{store.address}: {drift}")

    def tell(self) -> None:
        """Warn of a store that has changed; in the thread that reads."""
        if not self._news:
            return
        with self._lock:
            news, self._news = self._news, []
        for text in news:
            warnings.warn(text, DriftWarning, stacklevel=5)

    def save(self) -> None:
        """Keep what was learned for later sessions."""
        for known in [known for known in self._known.values() if known is not None and known.learner.news]:
            save_known(known)
            known.learner.news = False

    def after_fork(self) -> None:
        """Forget the lock: a thread that was not forked along may hold it."""
        self._lock = threading.Lock()


def check_location(location: str | None) -> None:
    """Refuse a place that no price book knows."""
    if location is not None and location not in LOCATIONS:
        raise InvalidInputError(f"location must be one of {', '.join(LOCATIONS)}, not {location!r}")


def _free_bytes(function: "Function") -> int:
    """The memory that a function has beside what its runtime takes."""
    return max(16, function.memory_mb - 256) << 20


@lru_cache(maxsize=8)
def _typical_profile(scheme: str) -> Profile:
    # Azure's and Google's blobs behave much like S3's.
    return Profile.named({"file": "local", "memory": "memory", "http": "s3-internet"}.get(scheme, "s3"))


@lru_cache(maxsize=64)
def _cached_model(
    profile: Profile, prices: Prices, phi: float, end_requests: int, function: FunctionModel | None, mapped: bool
) -> CostModel:
    return CostModel(profile, prices, phi, end_requests, function, mapped)
