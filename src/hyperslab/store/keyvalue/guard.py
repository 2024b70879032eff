"""The guard around a tier: whatever happens to it, a read gets the right bytes or none, and soon.

A tier that fails or does not answer in time is left alone for a while, first shortly, then for longer each time. What
it holds is believed only if the checksum says so. Each kind of trouble is warned of once.
"""

import os
import threading
import time
import warnings
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from hyperslab.errors import HyperslabError, InvalidInputError
from hyperslab.store.keyvalue.base import KeyValue
from hyperslab.store.keyvalue.values import HEADER_BYTES, Doubt, sealed, unsealed

__all__ = ["Guard", "TierCounts", "TierWarning", "Wanted"]

_FIRST_REST_S = 1.0
_LONGEST_REST_S = 60.0
# Values that are not of this version may be larger than what was asked for; an answer may be this large in any case.
_LEAST_LIMIT_BYTES = 64 << 20
# What is asked for at once, within the time that a tier has for an answer.
_PART_KEYS = 4096
_PART_BYTES = 8 << 20


class TierWarning(UserWarning):
    """A key/value tier fails, lost what it held, or holds wrong bytes; reads go on without it."""


class Wanted(NamedTuple):
    """A value that the plan says is in the tier: its key, and the crc32c and size of the array's bytes."""

    key: bytes
    crc: int
    nbytes: int


@dataclass(slots=True)
class TierCounts:
    """What became of the values that were asked for, and how often the tier failed.

    skipped   not asked for, as the tier was left alone
    stale     of another version of the array
    wrong     not what was stored, by their checksum
    """

    hits: int = 0
    misses: int = 0
    stale: int = 0
    wrong: int = 0
    skipped: int = 0
    errors: int = 0


class Guard:
    """A tier as reads use it. Its methods do not raise what goes wrong with the tier."""

    def __init__(self, tier: KeyValue, *, first_rest_s: float = _FIRST_REST_S) -> None:
        self.tier, self.counts = tier, TierCounts()
        self._first_rest_s = first_rest_s
        self._said: set[str] = set()
        self._news: list[str] = []
        self._rests = 0
        self._rests_until = 0.0
        self._lock = threading.Lock()
        _guards.add(self)

    def get_many(self, wanted: Sequence[Wanted], *, timeout_s: float | None = None) -> list[memoryview | None]:
        """Return the bytes of each array, None where the tier does not have them whole and of this version."""
        if not wanted:
            return []
        ticket = self._ask()
        if ticket is None:
            with self._lock:
                self.counts.skipped += len(wanted)
            return [None] * len(wanted)
        try:
            values = self._values(wanted, timeout_s)
        except InvalidInputError:
            raise
        except (HyperslabError, OSError) as error:
            self._failed(ticket, error)
            return [None] * len(wanted)
        self._succeeded()
        return self._checked(wanted, values)

    def put_many(self, items: Mapping[bytes, tuple[bytes, int]], *, timeout_s: float | None = None) -> list[bytes]:
        """Store arrays' bytes, each with its crc32c; return the keys of those that are in the tier now."""
        ticket = self._ask() if items else None
        if ticket is None:
            return []
        try:
            values = {key: sealed(data, crc) for key, (data, crc) in items.items()}
            stored = self.tier.put_many(values, timeout_s=timeout_s)
        except InvalidInputError:
            raise
        except (HyperslabError, OSError) as error:
            self._failed(ticket, error)
            return []
        self._succeeded()
        return stored

    def delete_many(self, keys: Iterable[bytes]) -> bool:
        """Remove keys, and say whether that could be done: what stays costs room, nothing else."""
        ticket = self._ask()
        if ticket is None:
            return False
        try:
            self.tier.delete_many(keys)
        except InvalidInputError:
            raise
        except (HyperslabError, OSError) as error:
            self._failed(ticket, error)
            return False
        self._succeeded()
        return True

    def tell(self, stacklevel: int = 2) -> None:
        """Warn of what was not said yet; in the thread that reads, once it has its answer."""
        if not self._news:
            return
        with self._lock:
            news, self._news = self._news, []
        for text in news:
            warnings.warn(text, TierWarning, stacklevel=stacklevel + 1)

    def is_resting(self) -> bool:
        """Whether the tier is left alone."""
        return time.monotonic() < self._rests_until

    def close(self) -> None:
        """Close the tier."""
        self.tier.close()

    def __getstate__(self) -> dict[str, Any]:
        return {"tier": self.tier, "first_rest_s": self._first_rest_s}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["tier"], first_rest_s=state["first_rest_s"])  # type: ignore[misc]

    def _values(self, wanted: Sequence[Wanted], timeout_s: float | None) -> list[bytes | None]:
        """Ask for many in parts: a tier has its time for each, so that a long answer is none that does not come."""
        began, values = time.monotonic(), list[bytes | None]()
        for part in _parts(wanted):
            left = None if timeout_s is None else max(0.0, timeout_s - (time.monotonic() - began))
            limit_bytes = max(_LEAST_LIMIT_BYTES, 2 * sum([each.nbytes + HEADER_BYTES for each in part]))
            values += self.tier.get_many([each.key for each in part], timeout_s=left, limit_bytes=limit_bytes)
        return values

    def _checked(self, wanted: Sequence[Wanted], values: Sequence[bytes | None]) -> list[memoryview | None]:
        found: list[memoryview | None] = []
        missing = stale = wrong = 0
        for each, value in zip(wanted, values, strict=True):
            data = None if value is None else unsealed(value, each.crc, each.nbytes)
            missing += value is None
            stale += data is Doubt.STALE
            wrong += data is Doubt.WRONG
            found.append(None if isinstance(data, Doubt) else data)
        with self._lock:
            counts = self.counts
            counts.hits += len(wanted) - missing - stale - wrong
            counts.misses, counts.stale, counts.wrong = (
                counts.misses + missing, counts.stale + stale, counts.wrong + wrong,
            )  # fmt: skip
        of_all = f"of {len(wanted)} arrays"
        if missing:
            self._note("missing", f"lacks {missing} {of_all} that were put there; was it emptied?")
        if wrong:
            self._note("wrong", f"holds wrong bytes for {wrong} {of_all}; does somebody else write there?")
        return found

    def _ask(self) -> int | None:
        """Return how often the tier was left alone since it last worked, None if it is left alone now.

        After a rest, one thread tries it before all others do.
        """
        if not self._rests:
            return 0
        with self._lock:
            if self.is_resting():
                return None
            self._rests_until = time.monotonic() + self._first_rest_s
            return self._rests

    def _succeeded(self) -> None:
        if self._rests:
            with self._lock:
                self._rests, self._rests_until = 0, 0.0

    def _failed(self, ticket: int, error: Exception) -> None:
        """Leave the tier alone; of several calls that failed together, one counts."""
        with self._lock:
            self.counts.errors += 1
            if ticket == self._rests:
                rest_s = min(self._first_rest_s * 2 ** min(ticket, 30), _LONGEST_REST_S)
                self._rests, self._rests_until = ticket + 1, time.monotonic() + rest_s
        self._note("failed", f"fails: {error}.")

    def _note(self, kind: str, what: str) -> None:
        with self._lock:
            if kind not in self._said:
                self._said.add(kind)
                self._news.append(f"the tier {self.tier.address} {what} Arrays are read from their packs instead")


def _parts(wanted: Sequence[Wanted]) -> Iterator[Sequence[Wanted]]:
    """Cut what is wanted into parts that are asked for at once; nearly always there is one.

    >>> [len(part) for part in _parts([Wanted(b"k", 0, 3 << 20)] * 5)]
    [2, 2, 1]
    """
    start = nbytes = 0
    for at, each in enumerate(wanted):
        if at > start and (at - start == _PART_KEYS or nbytes + each.nbytes > _PART_BYTES):
            yield wanted[start:at]
            start, nbytes = at, 0
        nbytes += each.nbytes
    yield wanted[start:]


def _after_fork() -> None:
    """Forget the locks: threads that were not forked along may hold them."""
    for guard in list(_guards):
        guard._lock = threading.Lock()


_guards: weakref.WeakSet[Guard] = weakref.WeakSet()
os.register_at_fork(after_in_child=_after_fork)
