"""What it costs to touch a pack and to ask for a key, measured on the store and the tier that there are.

A touch is measured by reading one array of each of several packs, with nothing at hand. How it grows with the size of
packs, and what it bills, says the cost model: arrays that lie near one another are fetched by one request, which spans
the pack at most; of mapped files only what is wanted is read. A key's price is what one more costs in a request for
many (MGET), apart from the price of the request.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from math import isinf

import numpy as np

from hyperslab.collections.catalog import Catalog, Ints
from hyperslab.collections.reading import PackReader
from hyperslab.collections.tier import KEY_BYTES
from hyperslab.execute import Session
from hyperslab.layout.checksums import crc32c
from hyperslab.plan import CostModel, Estimate
from hyperslab.store import LocalStore, Store
from hyperslab.store.keyvalue import HEADER_BYTES, KeyValue
from hyperslab.store.keyvalue.base import MOST_VALUE_BYTES
from hyperslab.store.keyvalue.values import sealed, unsealed

__all__ = ["KeyPrices", "Touches", "measure_keys", "measure_touches", "tier_weights"]

# Packs that are touched to see what that costs: of files, and over a network.
_FILES, _REMOTE = 64, 12
_INDEX_BYTES = 1 << 20
_PROBES, _ROUNDS = 64, 7
# Of large values fewer are stored to see what they cost.
_PROBE_BYTES = 16 << 20
# Nothing is so cheap that a clock cannot tell.
_LEAST_S = 1e-7
# More sizes than these are rounded, to so many bits.
_MOST_SIZES, _SIZE_BITS = 64, 4


@dataclass(frozen=True, slots=True)
class Touches:
    """What a touch of a pack took when `sample_nbytes` were read of it, and the model that says how that grows."""

    seconds: float
    sample_nbytes: int
    mapped: bool
    model: CostModel

    @property
    def in_dollars(self) -> bool:
        """Whether costs are dollars: only these count, and the store bills. Where nothing is billed, time decides."""
        return isinf(self.model.phi) and float(self.model.usd(1, self.sample_nbytes)) > 0

    def cost(self, pack_nbytes: float) -> float:
        """Return the cost of touching a pack of that size, as the model weighs seconds and dollars."""
        model, nbytes = self.model, max(float(self.sample_nbytes), float(pack_nbytes))
        grown = 0.0
        if not self.mapped:
            grown = float(model.seconds(1, nbytes, nbytes)) - float(model.seconds(1, self.sample_nbytes))
        touch = Estimate(seconds=self.seconds + max(0.0, grown), usd=float(model.usd(1, nbytes)))
        return touch.seconds if isinf(model.phi) and not self.in_dollars else model.weigh(touch)


def measure_touches(session: Session, store: Store, path: str, catalog: Catalog, phi: float | None = None) -> Touches:
    """Read one array each of some packs, as if for the first time."""
    mapped = isinstance(store, LocalStore)
    model = session.model(store, phi)
    chosen = _spread(catalog, _FILES if mapped else _REMOTE)
    taken = []
    with session.apart(index_bytes=_INDEX_BYTES) as apart:
        for at in chosen:
            reader, entry = PackReader(apart, store, path, path, lambda: False), catalog.entry(at)
            began = time.perf_counter()
            reader.read_packs([entry])
            once = time.perf_counter()
            if mapped:
                # The pack is at hand now: what a second read takes is no touch.
                reader.read_packs([entry])
                once -= time.perf_counter() - once
            taken.append(once - began)
    sample = int(np.median(catalog.nbytes[chosen]))
    return Touches(max(_LEAST_S, float(np.median(taken))), sample, mapped, model)


def _spread(catalog: Catalog, most: int) -> list[int]:
    """Return places of arrays in as many different packs as there are; if these are few, several of each."""
    places = np.flatnonzero(catalog.nbytes > 0)
    _, firsts = np.unique(catalog.pack[places], return_index=True)
    one_each: Ints = places[firsts]
    if len(one_each) < 3:
        one_each = places[np.linspace(0, len(places) - 1, min(most, len(places))).astype(np.int64)]
    chosen: list[int] = one_each[:: -(-len(one_each) // most)].tolist()
    return chosen


@dataclass(frozen=True, slots=True)
class KeyPrices:
    """Seconds of one more key in a request for many, and of the request."""

    key_s: float
    request_s: float


def measure_keys(tier: KeyValue, nbytes: int) -> KeyPrices | None:
    """Ask the tier for one value of a size and for many, as reads do; None if it has room for none."""
    data = os.urandom(max(1, min(nbytes, MOST_VALUE_BYTES - HEADER_BYTES)))
    crc = crc32c(np.frombuffer(data, np.uint8))
    probes = [os.urandom(KEY_BYTES) for _ in range(max(2, min(_PROBES, _PROBE_BYTES // len(data))))]
    stored = tier.put_many(dict.fromkeys(probes, sealed(data, crc)))
    keys = stored if len(stored) > 1 else list(islice(tier.keys(), _PROBES))
    if len(keys) < 2:
        return None

    def ask(some: list[bytes]) -> None:
        for value in tier.get_many(some):
            unsealed(value or b"", crc, len(data))

    try:
        one, many = _least(lambda: ask(keys[:1])), _least(lambda: ask(keys))
    finally:
        tier.delete_many(probes)
    key_s = max(_LEAST_S, (many - one) / (len(keys) - 1))
    return KeyPrices(key_s, max(0.0, one - key_s))


def _least(ask: Callable[[], None]) -> float:
    ask()
    taken = []
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        ask()
        taken.append(time.perf_counter() - began)
    return min(taken)


def tier_weights(tier: KeyValue, nbytes: Ints) -> Ints:
    """Return what arrays of these sizes take of the tier's capacity, as it counts, and never less.

    The tier is asked for each size; if they are many, they are rounded up to fewer. What no tier takes has no room.
    """
    sizes, which = np.unique(nbytes, return_inverse=True)
    if len(sizes) > _MOST_SIZES:
        _, exponents = np.frexp(nbytes.astype(np.float64))
        step = np.exp2(np.maximum(exponents - _SIZE_BITS, 0))
        sizes, which = np.unique((np.ceil(nbytes / step) * step).astype(np.int64), return_inverse=True)
    prices = [
        tier.price_bytes(KEY_BYTES, HEADER_BYTES + size) if HEADER_BYTES + size <= MOST_VALUE_BYTES
        else max(size, tier.capacity_bytes + 1)
        for size in sizes.tolist()
    ]  # fmt: skip
    return np.maximum(1, np.array(prices, np.int64))[which]
