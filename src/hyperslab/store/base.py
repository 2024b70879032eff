"""What every store can do, and the names and ranges that may be asked of it."""

import re
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from hyperslab.errors import ConflictError, IntegrityError, InvalidInputError, StoreError

__all__ = [
    "CHILDREN_LIMIT",
    "Reply",
    "Span",
    "Store",
    "check_key",
    "check_limit",
    "check_prefix",
    "check_reply",
    "check_span",
    "strong_etag",
]

# None: the whole object; (start, stop): these bytes; -n: the last n bytes.
Span = tuple[int, int] | int | None

# A listing with more names than this is refused: nobody browses it, and it would not fit in memory.
CHILDREN_LIMIT = 1_000_000

# A segment that is empty, "." or ".." (so also a slash at either end), or a NUL.
_BAD_KEY = re.compile(r"(?:^|/)\.{0,2}(?:/|$)|\x00")


@dataclass(frozen=True, slots=True, eq=False)
class Reply:
    """The bytes of one answered request.

    `etag` is None when the store gives none, or a weak one: then versions cannot be told apart.
    `object_nbytes` is the size of the whole object, however little of it was asked for.
    """

    data: memoryview
    etag: str | None
    object_nbytes: int


@runtime_checkable
class Store(Protocol):
    """A flat space of named objects. One call sends at most one request; nothing is retried here.

    `address` names the store without secrets: caches and profiles are keyed by it.
    Stores pickle, and work in a forked child.
    """

    @property
    def address(self) -> str: ...

    @property
    def scheme(self) -> str: ...

    def get(
        self,
        key: str,
        span: Span = None,
        *,
        if_match: str | None = None,
        timeout_s: float | None = None,
        limit_bytes: int | None = None,
    ) -> Reply:
        """Return exactly the bytes asked for, of the version `if_match` where one is given.

        A whole object of more than `limit_bytes` is refused before its bytes are fetched.
        """
        ...

    async def aget(
        self,
        key: str,
        span: Span = None,
        *,
        if_match: str | None = None,
        timeout_s: float | None = None,
        limit_bytes: int | None = None,
    ) -> Reply:
        """The same as `get`, without blocking the running loop."""
        ...

    def head(self, key: str) -> tuple[int, str | None]:
        """Return an object's size and its ETag."""
        ...

    def children(self, prefix: str) -> list[str]:
        """Return the sorted names one level below `prefix`, of objects and of directories."""
        ...


def check_key(key: str) -> None:
    """Refuse a key that could name something else than one object below the root.

    >>> check_key("a/c/0/0")
    >>> check_key("a/../b")
    Traceback (most recent call last):
    ...
    hyperslab.errors.InvalidInputError: key 'a/../b' has an empty, '.' or '..' part; write it as 'name/name'
    """
    found = _BAD_KEY.search(key)
    if found is None:
        return
    if "\x00" in key:
        raise InvalidInputError(f"key {_short(key)} has a NUL character, which no store can name")
    raise InvalidInputError(f"key {_short(key)} has an empty, '.' or '..' part; write it as 'name/name'")


def check_prefix(prefix: str) -> str:
    """Return the prefix without a slash at its end; '' is the root."""
    prefix = prefix.removesuffix("/")
    if prefix:
        check_key(prefix)
    return prefix


def check_span(key: str, span: Span) -> None:
    """Refuse a range that holds no bytes."""
    if span is None:
        return
    if isinstance(span, tuple):
        start, stop = span
        if not 0 <= start < stop:
            raise InvalidInputError(f"range {start}..{stop} of {_short(key)} is empty; use 0 <= start < stop")
    elif span >= 0:
        raise InvalidInputError(f"span {span} of {_short(key)} is not a range; write -n for the last n bytes")


def strong_etag(etag: str | None) -> str | None:
    """Return the tag if it tells versions apart, else None.

    >>> strong_etag('"1f"'), strong_etag('W/"1f"'), strong_etag("")
    ('"1f"', None, None)
    """
    return etag if etag and not etag.startswith("W/") else None


def check_reply(name: str, span: Span, reply: Reply, if_match: str | None) -> Reply:
    """Return the reply if it is what was asked for: this many bytes, of this version."""
    size = reply.object_nbytes
    if isinstance(span, tuple):
        start, stop = span
        if stop > size:
            raise too_short(name, span, size)
        expected = stop - start
    else:
        expected = size if span is None else min(-span, size)
    if len(reply.data) != expected:
        raise IntegrityError(
            f"{name}: asked for {_bytes(span)}, expected {expected} bytes of an object of {size}, "
            f"got {len(reply.data)}; the store's answer contradicts itself"
        )
    if if_match is not None and reply.etag is not None and reply.etag != if_match:
        raise changed(name)
    return reply


def check_limit(name: str, span: Span, size: int, limit_bytes: int | None) -> None:
    """Refuse a whole object that is larger than its reader can use."""
    if span is None and limit_bytes is not None and size > limit_bytes:
        raise IntegrityError(
            f"{name} holds {size:,} bytes, at most {limit_bytes:,} were expected; is it the right object?"
        )


def too_short(name: str, span: Span, size: int | None) -> IntegrityError:
    """Return the error for an object that ends before the bytes asked for."""
    holds = "ends before that" if size is None else f"holds only {size}"
    return IntegrityError(
        f"{name}: asked for {_bytes(span)}, but the object {holds}; was it cut off, or the array's metadata rewritten?"
    )


def changed(name: str) -> ConflictError:
    """Return the error for an object that is no longer the version that was pinned."""
    return ConflictError(f"{name} changed while it was being read; call refresh() and read again")


def too_many(name: str) -> StoreError:
    """Return the error for a listing that nobody could look through."""
    return StoreError(f"{name} holds more than {CHILDREN_LIMIT} names; open what you need by its path")


def _bytes(span: Span) -> str:
    if span is None:
        return "all bytes"
    return f"bytes {span[0]}..{span[1]}" if isinstance(span, tuple) else f"the last {-span} bytes"


def _short(key: str) -> str:
    return repr(key if len(key) <= 200 else key[:200] + "…")
