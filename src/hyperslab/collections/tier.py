"""The key/value tier of a collection, as its reads use it: what the plan keeps there is asked for by one request.

Which arrays are keyed is part of the collection. All of them are in packs as well: the tier is a cache with a plan,
never the truth. A key is the collection's uuid and the array's id, which no other version of the array ever has; values
carry checksum and size. What the tier lacks is put back by those who read it, in small parts.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy.typing as npt

from hyperslab.collections.blocks import Entry
from hyperslab.errors import InvalidInputError
from hyperslab.store.keyvalue import Guard, KeyValue, Wanted, open_tier

__all__ = ["DEFAULT_TIER_BYTES", "KEY_BYTES", "Tier", "guard_of", "keyed_of"]

DEFAULT_TIER_BYTES = 256 << 20
# A uuid and an id.
KEY_BYTES = 24

# What one read puts back at most, and how long it lets itself be held up by that.
_PUT_BACK_BYTES = 1 << 20
_PUT_BACK_S = 1.0
# A tier that had no room is not offered anything for so long.
_FULL_S = 10.0


def guard_of(tier: Any, tier_bytes: int | None) -> Guard | None:
    """Return the tier that a user names by its URL, or has opened."""
    if tier is None:
        if tier_bytes is not None:
            raise InvalidInputError(
                "tier_bytes says what a tier may hold; name the tier, such as 'redis://host:6379/0'"
            )
        return None
    if isinstance(tier, KeyValue):
        if tier_bytes is not None:
            raise InvalidInputError("a tier that is open has its capacity already; leave tier_bytes out")
        return Guard(tier)
    return Guard(open_tier(tier, capacity_bytes=DEFAULT_TIER_BYTES if tier_bytes is None else tier_bytes))


def keyed_of(entries: Sequence[Entry]) -> dict[int, Entry]:
    """Return those that should be in the tier, by their ids."""
    return {entry.id: entry for entry in entries if entry.keyed and entry.stop > entry.start}


class Tier:
    """The tier of one collection, told by its uuid from others that use the same one."""

    def __init__(self, guard: Guard, uuid: str) -> None:
        self.guard, self._prefix = guard, bytes.fromhex(uuid)
        self._full_until = float("-inf")

    def key(self, number: int) -> bytes:
        """Return the key of the array with this id."""
        return self._prefix + number.to_bytes(8, "big")

    def keys(self) -> Iterator[bytes]:
        """Yield the keys of the collection that are there; raises StoreError if the tier fails."""
        found = self.guard.tier.keys()
        return (key for key in found if key.startswith(self._prefix))

    def get(self, keyed: dict[int, Entry], *, timeout_s: float | None = None) -> dict[int, memoryview]:
        """Return the bytes of those arrays that the tier has, whole and of this version, by their ids."""
        wanted = [Wanted(self.key(entry.id), entry.crc32c, entry.nbytes) for entry in keyed.values()]
        found = self.guard.get_many(wanted, timeout_s=timeout_s)
        return {number: data for number, data in zip(keyed, found, strict=True) if data is not None}

    def put(self, arrays: Iterable[tuple[Entry, npt.NDArray[Any]]], *, timeout_s: float | None = None) -> int:
        """Store arrays; return how many are there now."""
        items = {self.key(entry.id): (array.tobytes(), entry.crc32c) for entry, array in arrays}
        return len(self.guard.put_many(items, timeout_s=timeout_s))

    def put_back(self, arrays: Iterable[tuple[Entry, npt.NDArray[Any]]]) -> None:
        """Store some of what was missing, unless the tier has trouble or no room."""
        if self.guard.is_resting() or time.monotonic() < self._full_until:
            return
        chosen, room = list[tuple[Entry, npt.NDArray[Any]]](), _PUT_BACK_BYTES
        for entry, array in arrays:
            if entry.nbytes <= room:
                chosen.append((entry, array))
                room -= entry.nbytes
        if chosen and self.put(chosen, timeout_s=_PUT_BACK_S) < len(chosen) and not self.guard.is_resting():
            self._full_until = time.monotonic() + _FULL_S
