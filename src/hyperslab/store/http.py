"""How a web server is reached: its address from the URL, a login from the storage options."""

import base64
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from hyperslab.errors import InvalidInputError
from hyperslab.store.base import check_key
from hyperslab.store.options import Names, read_options

__all__ = ["LOGIN", "HttpSettings", "read_settings"]

LOGIN = "pass storage_options with token, username and password, or headers"

_NAMES = Names(
    "a web server",
    texts=("token", "username", "password"),
    flags=(),
    aliases={"bearer_token": "token", "user": "username"},
    mappings=("headers",),
)
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
# Requests are framed and ranged by us.
_OURS = frozenset({"range", "if-match", "host", "content-length", "transfer-encoding", "connection", "accept-encoding"})


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """A web server, and what is sent with every request to it: headers, and what the URL has after its '?'.

    Both may be secrets (a signed URL is one), so neither is shown.
    """

    server: str
    query: str = field(default="", repr=False)
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @property
    def address(self) -> str:
        if not self.query:
            return self.server
        # Two queries may name two objects under one path, so they are told apart, without being told.
        return f"{self.server}?query={hashlib.sha256(self.query.encode()).hexdigest()[:16]}"

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not appear in any message."""
        return (*([self.query] if self.query else []), *(value for _, value in self.headers))


def read_settings(url: str, options: Mapping[str, Any] | None = None) -> tuple[HttpSettings, str]:
    """Return the server of a URL and the path on it.

    >>> read_settings("https://host/a%20b/c.nc?signature=hush")
    (HttpSettings(server='https://host'), 'a b/c.nc')
    """
    parts = _split(url)
    given = read_options(_NAMES, options)
    path = parts.path.strip("/")
    if re.search(r"%(2f|5c)", path, re.IGNORECASE):
        raise InvalidInputError("a web URL whose path holds an encoded slash cannot be opened; it names no plain path")
    try:
        path = unquote(path, errors="strict")
    except UnicodeDecodeError:
        raise InvalidInputError("a web URL's path must be UTF-8, percent-encoded") from None
    if path:
        check_key(path)
    return HttpSettings(f"{parts.scheme}://{parts.netloc.lower()}", parts.query, _headers(given)), path


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        good = parts.hostname and "@" not in parts.netloc and not re.search(r"[\s\\\x00-\x1f]", url)
        _ = parts.port
    except ValueError:
        good = False
    if not good:
        # Not shown: it may be a login.
        raise InvalidInputError("a web URL is 'https://host/path'; a login goes into storage_options")
    return parts


def _headers(given: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    headers = dict(given.get("headers", ()))
    for name in headers:
        if name.lower() in _OURS:
            raise InvalidInputError(f"header {name!r} is set by Hyperslab; leave it out of storage_options")
    if ("username" in given) != ("password" in given):
        raise InvalidInputError("storage options username and password go together; give both")
    if "token" in given and "username" in given:
        raise InvalidInputError("storage options token and username are two ways to log in; give one")
    login = ""
    if "token" in given:
        login = f"Bearer {given['token']}"
    if "username" in given:
        login = "Basic " + base64.b64encode(f"{given['username']}:{given['password']}".encode()).decode()
    if login and any(name.lower() == "authorization" for name in headers):
        raise InvalidInputError("storage option headers holds an Authorization already; give one login")
    if login:
        headers["Authorization"] = login
    for name, value in headers.items():
        if not _HEADER.fullmatch(name) or not value.isascii() or not value.isprintable():
            raise InvalidInputError(f"header {name!r} cannot be sent: it holds characters that headers may not have")
    return tuple(sorted(headers.items()))
