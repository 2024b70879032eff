"""How a server that speaks the Redis protocol is reached: its URL, and a password that is shown nowhere."""

import os
import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from hyperslab.errors import InvalidInputError

__all__ = ["RedisSettings", "read_settings"]

_SCHEMES = {"redis": False, "valkey": False, "rediss": True, "valkeys": True}
_PORT = 6379
_NAMESPACE = re.compile(r"[A-Za-z0-9._-]{1,64}")
_WRITTEN = "a server's URL is 'redis://host:port/database', 'rediss://…' with TLS, or 'valkey://…'"


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """All that is needed to ask a server. `password` is None where the environment says it, in each process anew."""

    scheme: str
    host: str
    port: int
    database: int
    namespace: str
    ca_file: str | None = None
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)

    @property
    def tls(self) -> bool:
        return _SCHEMES[self.scheme]

    @property
    def address(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}/{self.database}"

    @property
    def login(self) -> tuple[str | None, str | None]:
        """The user's name and password; without one of its own, that of the variable that redis-cli reads, too."""
        return self.username, self.password or os.environ.get("REDISCLI_AUTH") or None


def read_settings(
    url: str, *, namespace: Any, username: Any = None, password: Any = None, ca_file: Any = None
) -> RedisSettings:
    """Gather the settings for a server.

    >>> read_settings("rediss://me:hush@cache.example/3", namespace="a")
    RedisSettings(scheme='rediss', host='cache.example', port=6379, database=3, namespace='a', ca_file=None)
    """
    if not isinstance(namespace, str) or not _NAMESPACE.fullmatch(namespace):
        raise InvalidInputError("a namespace has 1 to 64 letters, digits and ._-")
    for name, value in (("username", username), ("password", password), ("ca_file", ca_file)):
        if value is not None and (not isinstance(value, str) or not value or "\x00" in value):
            raise InvalidInputError(f"{name} must be a string that is not empty")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or _PORT
    except ValueError:
        raise InvalidInputError(_WRITTEN) from None
    # The URL is not shown: it may hold a password.
    if parts.scheme not in _SCHEMES or not host or parts.query or parts.fragment:
        raise InvalidInputError(f"{_WRITTEN}; options are given by name")
    return RedisSettings(
        parts.scheme, host, port, _database(parts.path), namespace, ca_file,
        username or _text(parts.username), password or _text(parts.password),
    )  # fmt: skip


def _database(path: str) -> int:
    number = path.strip("/")
    if not re.fullmatch(r"[0-9]{0,5}", number):
        raise InvalidInputError(f"{_WRITTEN}, and a database is a number")
    return int(number or 0)


def _text(part: Any) -> str | None:
    return unquote(part) if part else None
