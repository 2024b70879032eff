"""Filling the key/value tier with the arrays that the plan keeps there, and taking others of the collection out."""

import warnings
from contextlib import suppress

import numpy as np

from hyperslab.collections.catalog import read_catalog
from hyperslab.collections.gathering import gather
from hyperslab.collections.index import Index
from hyperslab.collections.manifest import Manifest
from hyperslab.collections.moving import Progress, batches
from hyperslab.collections.reading import PackReader
from hyperslab.collections.tier import Tier
from hyperslab.errors import StoreError
from hyperslab.execute import Session
from hyperslab.plan.phrases import say_count
from hyperslab.store import Store
from hyperslab.store.keyvalue import TierWarning

__all__ = ["empty_tier", "fill_tier"]

_INDEX_BYTES = 16 << 20
_BATCH_BYTES = 16 << 20
_DELETED_AT_ONCE = 4096


def fill_tier(
    session: Session, store: Store, path: str, manifest: Manifest, tier: Tier, tell: Progress | None = None
) -> int:
    """Put all keyed arrays into the tier that are not there; return how many are missing still.

    That costs reads time, not correctness, and is warned of.
    """
    with session.apart(index_bytes=_INDEX_BYTES) as apart:
        missing = _Filling(apart, store, path, manifest, tier).run(tell)
    tier.guard.tell(stacklevel=3)
    if missing and not tier.guard.is_resting():
        address = tier.guard.tier.address
        warnings.warn(
            f"the tier {address} has no room for {say_count(missing, 'array')} of the plan; give it more tier_bytes, "
            "or ask for advice with fewer key_bytes",
            TierWarning,
            stacklevel=3,
        )
    return missing


def empty_tier(tier: Tier) -> None:
    """Take all arrays of a collection out of its tier; if that fails they stay, and cost room."""
    with suppress(StoreError):
        _take_out(tier, list(tier.keys()))
    tier.guard.tell(stacklevel=4)


def _take_out(tier: Tier, unwanted: list[bytes]) -> None:
    for first in range(0, len(unwanted), _DELETED_AT_ONCE):
        tier.guard.delete_many(unwanted[first : first + _DELETED_AT_ONCE])


class _Filling:
    def __init__(self, session: Session, store: Store, path: str, manifest: Manifest, tier: Tier) -> None:
        self.session, self.tier = session, tier
        self.catalog = read_catalog(Index(session, store, path, manifest))
        self.reader = PackReader(session, store, path, path, lambda: False)

    def run(self, tell: Progress | None) -> int:
        catalog, tier = self.catalog, self.tier
        keyed = np.flatnonzero(catalog.keyed & (catalog.nbytes > 0))
        keys = {tier.key(number): at for number, at in zip(catalog.id[keyed].tolist(), keyed.tolist(), strict=True)}
        try:
            there = set(tier.keys())
        except StoreError:
            # The guard says what is wrong, and leaves the tier alone.
            there = set()
        _take_out(tier, sorted(there - keys.keys()))
        left = [at for key, at in keys.items() if key not in there]
        sizes = catalog.nbytes[left].tolist() if left else []
        stored, done, total = 0, 0, sum(sizes)
        for batch in batches(left, sizes, min(_BATCH_BYTES, self.session.memory_bytes // 2)):
            entries = [catalog.entry(at) for at in batch]
            found = gather(self.reader, entries)
            stored += tier.put((entry, found[entry.id]) for entry in entries)
            done += sum(entry.nbytes for entry in entries)
            if tier.guard.is_resting():
                break
            if tell is not None:
                tell(done, total)
        return len(left) - stored
