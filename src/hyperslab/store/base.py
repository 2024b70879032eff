"""What every store can do, and the names and ranges that may be asked of it."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from hyperslab.errors import ConflictError, IntegrityError, InvalidInputError, StoreError

__all__ = [
    "CHILDREN_LIMIT",
    "PARTIAL",
    "Data",
    "Heard",
    "Listed",
    "Reply",
    "Span",
    "Store",
    "check_data",
    "check_key",
    "check_limit",
    "check_new_key",
    "check_prefix",
    "check_reply",
    "check_span",
    "exists",
    "gone",
    "rewritten",
    "strong_etag",
    "unlike",
]

# None: the whole object; (start, stop): these bytes; -n: the last n bytes.
Span = tuple[int, int] | int | None

# What can be stored: bytes, or anything that shows its memory as contiguous bytes, such as an array.
Data = Any

# Files that are being written start with this, in the directory of the one they will become.
PARTIAL = ".hyperslab-"

# A listing with more names than this is refused: nobody browses it, and it would not fit in memory.
CHILDREN_LIMIT = 1_000_000

# A segment that is empty, "." or ".." (so also a slash at either end), a NUL, or what neither UTF-8 nor Python's way
# to write other bytes of a file's name can hold.
_BAD_KEY = re.compile(r"(?:^|/)\.{0,2}(?:/|$)|[\x00\ud800-\udc7f\udd00-\udfff]")


@dataclass(frozen=True, slots=True, eq=False)
class Reply:
    """The bytes of one answered request.

    `etag` is None when the store gives none, or a weak one: then versions cannot be told apart.
    `object_nbytes` is the size of the whole object, however little of it was asked for.
    `requests` is how many were sent for it: two where a store must be asked for the size first.
    `modified_ns` is when the object was written, by the store's clock, 0 where that is not known.
    """

    data: memoryview
    etag: str | None
    object_nbytes: int
    requests: int = 1
    modified_ns: int = 0


# Takes an answer of which so many bytes have arrived.
Heard = Callable[[Reply, int], None]


@dataclass(frozen=True, slots=True)
class Listed:
    """One object of a listing.

    `version` is another one whenever the object was written anew; it is not an ETag. `modified_ns` is when that was, by
    the store's clock, which may count in whole seconds.
    """

    key: str
    nbytes: int
    version: str
    modified_ns: int


@runtime_checkable
class Store(Protocol):
    """A flat space of named objects. One call sends at most one request; nothing is retried here.

    `address` names the store without secrets: caches and profiles are keyed by it.
    `record` is the log that its reads are recorded to, None for none.
    Stores pickle, and work in a forked child. Where `has_suffix` is False, the last n bytes of an
    object take two requests, one for its size: the reply says so.
    """

    @property
    def address(self) -> str: ...

    @property
    def scheme(self) -> str: ...

    @property
    def has_suffix(self) -> bool: ...

    @property
    def record(self) -> str | None: ...

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
        heard: Heard | None = None,
    ) -> Reply:
        """The same as `get`, without blocking the running loop.

        `heard` may be called while the bytes arrive, and must not raise; what arrives is not yet known to be all.
        """
        ...

    def head(self, key: str, *, timeout_s: float | None = None) -> tuple[int, str | None]:
        """Return an object's size and its ETag."""
        ...

    async def ahead(self, key: str, *, timeout_s: float | None = None) -> tuple[int, str | None]:
        """The same as `head`, without blocking the running loop."""
        ...

    def children(self, prefix: str, *, timeout_s: float | None = None) -> list[str]:
        """Return the sorted names one level below `prefix`, of objects and of directories."""
        ...

    async def achildren(self, prefix: str, *, timeout_s: float | None = None) -> list[str]:
        """The same as `children`, without blocking the running loop."""
        ...

    def keys(self, prefix: str, *, timeout_s: float | None = None) -> list[tuple[str, int]]:
        """Return all keys below `prefix`, sorted, at whatever depth, each with its object's size."""
        ...

    async def akeys(self, prefix: str, *, timeout_s: float | None = None) -> list[tuple[str, int]]:
        """The same as `keys`, without blocking the running loop."""
        ...

    def listing(self, prefix: str, *, timeout_s: float | None = None) -> list[Listed]:
        """Return what `keys` does, with the version of each object."""
        ...

    async def alisting(self, prefix: str, *, timeout_s: float | None = None) -> list[Listed]:
        """The same as `listing`, without blocking the running loop."""
        ...

    def put(
        self,
        key: str,
        data: Data,
        *,
        if_match: str | None = None,
        if_absent: bool = False,
        timeout_s: float | None = None,
    ) -> str | None:
        """Store the bytes as one object, whole or not at all, and return its ETag.

        With `if_match` only over that version, with `if_absent` only where nothing is; else it
        raises ConflictError, which names the object. A request that failed without an answer may
        nevertheless have stored them.
        """
        ...

    async def aput(
        self,
        key: str,
        data: Data,
        *,
        if_match: str | None = None,
        if_absent: bool = False,
        timeout_s: float | None = None,
    ) -> str | None:
        """The same as `put`, without blocking the running loop."""
        ...

    def delete(self, key: str, *, timeout_s: float | None = None) -> None:
        """Remove an object; that it is not there is no error."""
        ...

    async def adelete(self, key: str, *, timeout_s: float | None = None) -> None:
        """The same as `delete`, without blocking the running loop."""
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
    if found[0] >= "\ud800":
        raise InvalidInputError(f"key {_short(key)} has half a character, which no store can name")
    raise InvalidInputError(f"key {_short(key)} has an empty, '.' or '..' part; write it as 'name/name'")


def check_new_key(key: str) -> None:
    """Refuse a key that no object may be stored under, though one could be read from there."""
    check_key(key)
    if "\\" in key:
        raise InvalidInputError(f"key {_short(key)} has a backslash, which some stores take for '/'; leave it out")
    if key.startswith(PARTIAL) or "/" + PARTIAL in key:
        raise InvalidInputError(f"key {_short(key)} has a part that starts with {PARTIAL!r}; choose another name")


def check_data(key: str, data: Data, if_match: str | None, if_absent: bool) -> memoryview:
    """Return the bytes to store, not copied."""
    check_new_key(key)
    if if_absent and if_match is not None:
        raise InvalidInputError(f"{_short(key)}: if_match and if_absent exclude each other; give one of them")
    try:
        view = memoryview(data)
    except TypeError:
        raise InvalidInputError(f"{_short(key)}: bytes are stored, got {type(data).__name__}; encode it") from None
    if not view.c_contiguous:
        raise InvalidInputError(f"{_short(key)}: only contiguous memory is stored; copy the array first")
    return view.cast("B") if view.nbytes else memoryview(b"")


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
        raise unlike(name, span, size, str(len(reply.data)), expected)
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


def unlike(name: str, span: Span, size: int, got: str, expected: int) -> IntegrityError:
    """Return the error for an answer of another length than was asked for."""
    return IntegrityError(
        f"{name}: asked for {_bytes(span)}, expected {expected} bytes of an object of {size}, got {got}; "
        "the store's answer contradicts itself"
    )


def changed(name: str) -> ConflictError:
    """Return the error for an object that is no longer the version that was pinned."""
    return ConflictError(f"{name} changed while it was being read; call refresh() and read again")


def rewritten(name: str) -> ConflictError:
    """Return the error for an object that is no longer the version that was to be replaced."""
    return ConflictError(f"{name} was changed by another writer; read it again, then write")


def gone(name: str) -> ConflictError:
    """Return the error for an object that is no longer there to be replaced."""
    return ConflictError(f"{name} was removed by another writer; read it again, then write")


def exists(name: str) -> ConflictError:
    """Return the error for an object that was to be new."""
    return ConflictError(f"{name} exists already; read it and write over that version, or choose another name")


def too_many(name: str) -> StoreError:
    """Return the error for a listing that nobody could look through."""
    return StoreError(f"{name} holds more than {CHILDREN_LIMIT} names; open what you need by its path")


def _bytes(span: Span) -> str:
    if span is None:
        return "all bytes"
    return f"bytes {span[0]}..{span[1]}" if isinstance(span, tuple) else f"the last {-span} bytes"


def _short(key: str) -> str:
    return repr(key if len(key) <= 200 else key[:200] + "…")
