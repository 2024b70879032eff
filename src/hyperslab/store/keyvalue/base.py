"""What every key/value store can do, and the keys and values that it takes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from hyperslab.errors import InvalidInputError

__all__ = [
    "MOST_KEY_BYTES",
    "MOST_VALUE_BYTES",
    "KeyValue",
    "batches",
    "check_capacity",
    "check_items",
    "check_keys",
]

# LMDB takes keys of 511 bytes, and a server's carry a namespace as well.
MOST_KEY_BYTES = 256
# These are small arrays; a larger one gains nothing from being fetched by a key.
MOST_VALUE_BYTES = 64 << 20

# One request, or one transaction, puts or deletes so much at most: a server does nothing else meanwhile.
_BATCH_KEYS = 512
_BATCH_BYTES = 4 << 20


@runtime_checkable
class KeyValue(Protocol):
    """A store of bytes by key, up to `capacity_bytes` of its own memory or disk, which it never goes beyond.

    Methods raise StoreError when the store fails. They may be called by any thread, and in a forked child. Tiers
    pickle: the copy connects by itself.
    """

    @property
    def address(self) -> str:
        """Name the store without secrets."""
        ...

    @property
    def capacity_bytes(self) -> int: ...

    def get_many(
        self, keys: Sequence[bytes], *, timeout_s: float | None = None, limit_bytes: int | None = None
    ) -> list[bytes | None]:
        """Return the value of each key, None for those that are not there.

        All of it takes at most `timeout_s`, where a store can wait, and answers of more than `limit_bytes` are refused.
        """
        ...

    def put_many(self, items: Mapping[bytes, bytes], *, timeout_s: float | None = None) -> list[bytes]:
        """Store values, in their order, and return the keys of those that there was room for.

        Each part that is stored at once takes at most `timeout_s`, where a store can wait.
        """
        ...

    def delete_many(self, keys: Iterable[bytes]) -> None:
        """Remove keys; that one is not there is no error."""
        ...

    def keys(self) -> Iterator[bytes]:
        """Return the keys that are there, in no order; those that change meanwhile may be missed."""
        ...

    def used_bytes(self) -> int:
        """Return what the values take, as the store itself counts its memory or its pages."""
        ...

    def price_bytes(self, key_nbytes: int, value_nbytes: int) -> int:
        """Return about what a value of that size will take of the capacity, its key included."""
        ...

    def close(self) -> None:
        """Let go of connections and files. The next call opens them anew."""
        ...


def check_capacity(capacity_bytes: Any) -> int:
    """Return the capacity if it is a number of bytes."""
    if isinstance(capacity_bytes, bool) or not isinstance(capacity_bytes, int) or capacity_bytes < 0:
        raise InvalidInputError(f"capacity_bytes is a whole number of bytes from 0 on, not {capacity_bytes!r}")
    return capacity_bytes


def check_keys(keys: Iterable[bytes]) -> list[bytes]:
    """Return the keys if a store can have them.

    >>> check_keys([b"a", b""])
    Traceback (most recent call last):
    ...
    hyperslab.errors.InvalidInputError: a key has 1 to 256 bytes, got 0
    """
    found = list(keys)
    for key in found:
        if type(key) is not bytes:
            raise InvalidInputError(f"a key is bytes, got {type(key).__name__}")
        if not 0 < len(key) <= MOST_KEY_BYTES:
            raise InvalidInputError(f"a key has 1 to {MOST_KEY_BYTES} bytes, got {len(key)}")
    return found


def check_items(items: Mapping[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    """Return the pairs to store, without those that are too large for any tier."""
    check_keys(items)
    return [(key, value) for key, value in items.items() if len(value) <= MOST_VALUE_BYTES]


def batches(items: Sequence[tuple[bytes, bytes]]) -> Iterator[list[tuple[bytes, bytes]]]:
    """Cut pairs into parts that are stored at once, in their order.

    >>> [len(part) for part in batches([(b"k", bytes(3 << 20))] * 2 + [(b"k", b"")] * 600)]
    [1, 512, 89]
    """
    batch: list[tuple[bytes, bytes]] = []
    nbytes = 0
    for pair in items:
        if batch and (len(batch) == _BATCH_KEYS or nbytes + len(pair[1]) > _BATCH_BYTES):
            yield batch
            batch, nbytes = [], 0
        batch.append(pair)
        nbytes += len(pair[1])
    if batch:
        yield batch
