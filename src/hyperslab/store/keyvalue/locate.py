"""Where a tier is: a server by its URL, or a folder of this machine."""

import os
from typing import Any

from hyperslab.errors import InvalidInputError
from hyperslab.store.keyvalue.base import KeyValue

__all__ = ["open_tier"]

_SERVERS = ("redis", "rediss", "valkey", "valkeys")


def open_tier(url: Any, *, capacity_bytes: int, **options: Any) -> KeyValue:
    """Return the tier at a URL (`redis://host:port/0`, `valkey://…`, `rediss://…`) or in a folder (`lmdb:path`).

    Nothing is opened or sent yet. `options` are those of `RedisTier` or of `LmdbTier`.

    >>> open_tier("redis://localhost:6379", capacity_bytes=1 << 30)
    RedisTier('redis://localhost:6379/0', capacity_bytes=1073741824)
    """
    text = os.fspath(url) if isinstance(url, (str, os.PathLike)) else None
    if not isinstance(text, str) or not text or "\x00" in text:
        raise InvalidInputError("a tier is a URL such as 'redis://host:6379/0', or the path of a folder")
    scheme, sign, rest = text.partition("://")
    if sign and scheme.lower() in _SERVERS:
        from hyperslab.store.keyvalue.redis_tier import RedisTier

        return RedisTier(text, capacity_bytes=capacity_bytes, **options)
    if sign and scheme.lower() != "lmdb":
        raise InvalidInputError(f"{scheme}:// is no tier; use redis://, rediss://, valkey://, lmdb:// or a path")
    from hyperslab.store.keyvalue.lmdb_tier import LmdbTier

    if not sign and text.lower().startswith("lmdb:"):
        sign, rest = ":", text[len("lmdb:") :]
    if sign and not rest:
        raise InvalidInputError("a tier in a folder is named by its path: 'lmdb:path'")
    return LmdbTier(rest if sign else text, capacity_bytes=capacity_bytes, **options)
