"""Targets: the places, other than the store itself, that references in it may lead to."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from hyperslab.errors import InvalidInputError, MetadataError
from hyperslab.store.base import check_key

__all__ = ["Spot", "Targets", "parse_spot", "take_targets"]

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)/?(.*)", re.DOTALL)
_KINDS = {
    "s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "az": "az", "azure": "az", "abfs": "az", "abfss": "az",
    "adl": "az", "memory": "memory", "http": "http", "https": "https", "file": "file", "local": "file",
}  # fmt: skip
# Percent signs may themselves be encoded, but nobody does that often.
_MOST_ENCODED = 4


@dataclass(frozen=True, slots=True)
class Spot:
    """A place by its kind of store, the name of its bucket or server, and the path there, without slashes around it."""

    kind: str
    root: str
    path: str

    def holds(self, other: "Spot") -> bool:
        """Whether another place is this one, or below it."""
        if (self.kind, self.root) != (other.kind, other.root):
            return False
        return not self.path or other.path == self.path or other.path.startswith(self.path + "/")


@dataclass(frozen=True, slots=True)
class Targets:
    """The places that a caller allows references to lead to, each with the options of its store.

    `own` are the options of the store that holds the references; a place of the same kind that has none is opened by
    them, but never a web server: a login for one is not for another.
    """

    allowed: tuple[tuple[str, Mapping[str, Any] | None], ...]
    own: Mapping[str, Any] = field(repr=False)

    def __hash__(self) -> int:
        return hash(tuple([url for url, _ in self.allowed]))

    def options_for(self, number: int, kind: str, own_kind: str) -> Mapping[str, Any] | None:
        """Return the options that the store of an allowed place is opened by."""
        given = self.allowed[number][1]
        if given is not None or kind != own_kind or kind in ("http", "https", "file", "memory"):
            return given
        return self.own


def take_targets(options: Mapping[str, Any] | None) -> tuple[Mapping[str, Any] | None, Targets | None]:
    """Return the other options, and the allowed places, checked; None if none are given.

    >>> take_targets({"targets": ["s3://noaa/goes"], "anonymous": True})[1].allowed
    (('s3://noaa/goes', None),)
    """
    if not isinstance(options, Mapping) or "targets" not in options:
        return options, None
    given = options["targets"]
    rest = {name: value for name, value in options.items() if name != "targets"}
    if isinstance(given, str):
        given = given.split(",")
    pairs = list(given.items()) if isinstance(given, Mapping) else [(each, None) for each in _listed(given)]
    return rest, Targets(tuple([(_allowed(url), _checked(each)) for url, each in pairs]), rest)


def parse_spot(url: str) -> Spot | None:
    """Return the place that a URL or an absolute path names; None if it has no scheme and is relative.

    >>> parse_spot("s3://bucket/a/b.nc")
    Spot(kind='s3', root='bucket', path='a/b.nc')
    """
    if url.startswith("/"):
        return Spot("file", "", _path(url.strip("/"), url))
    found = _URL.fullmatch(url)
    if found is None:
        if "://" in url or url.startswith("file:"):
            raise MetadataError(f"{_shown(url)} is no URL that can be followed; expected 'scheme://bucket/path'")
        return None
    scheme, root, path = found[1].lower(), found[2], found[3]
    kind = _KINDS.get(scheme)
    if kind is None:
        raise MetadataError(f"{_shown(url)} is of a kind that cannot be followed; known are {', '.join(_KINDS)}")
    if kind == "file":
        if root not in ("", "localhost"):
            raise MetadataError(f"{_shown(url)} is no file of this machine; expected 'file:///path'")
        return Spot(kind, "", _path(unquote(path, errors="surrogateescape").strip("/"), url))
    if kind in ("http", "https"):
        return _web(kind, url)
    if kind == "az":
        root = re.sub(r"@([^.@]+)\.(?:dfs|blob)\.core\.windows\.net", r"@\1", root)
    return Spot(kind, root, _path(path.strip("/"), url))


def _web(kind: str, url: str) -> Spot:
    try:
        parts = urlsplit(url)
        good = parts.hostname and "@" not in parts.netloc and not re.search(r"[\s\\\x00-\x1f]", url)
        _ = parts.port
    except ValueError:
        good = False
    if not good or parts.query or parts.fragment:
        raise MetadataError(
            f"{kind}://… is no web address that can be followed: expected no login, no query, no blanks"
        )
    if re.search(r"%(2f|5c)", parts.path, re.IGNORECASE):
        raise MetadataError(f"{_shown(url)} has an encoded slash, which names no plain path")
    return Spot(kind, parts.netloc.lower(), _path(unquote(parts.path).strip("/"), url))


def _path(path: str, url: str) -> str:
    """Return a path none of whose parts, however encoded, is empty or leads upwards."""
    decoded = path
    try:
        for _ in range(_MOST_ENCODED):
            if decoded:
                check_key(decoded)
            decoded, before = unquote(decoded, errors="surrogateescape"), decoded
            if decoded == before:
                return path
    except InvalidInputError as error:
        raise MetadataError(f"{_shown(url)} cannot be followed: {error}") from None
    raise MetadataError(f"{_shown(url)} cannot be followed: it is percent-encoded too many times")


def _allowed(url: Any) -> str:
    text = os.fspath(url) if isinstance(url, (str, os.PathLike)) else None
    if not isinstance(text, str) or not text.strip():
        raise InvalidInputError(f"storage option 'targets' has URLs, not {type(url).__name__}")
    text = text.strip()
    if "://" not in text:
        text = os.path.abspath(os.path.expanduser(text))
    try:
        spot = parse_spot(text)
    except MetadataError as error:
        raise InvalidInputError(f"storage option 'targets': {error}") from None
    if spot is None or (spot.kind != "file" and not spot.root):
        raise InvalidInputError(f"storage option 'targets' has {_shown(text)}; name a bucket, a server or a folder")
    return text


def _listed(given: Any) -> list[Any]:
    if not isinstance(given, (list, tuple, set, frozenset)):
        raise InvalidInputError(
            f"storage option 'targets' is a list of URLs, or a mapping of URLs to options, not {type(given).__name__}"
        )
    return list(given)


def _checked(options: Any) -> Mapping[str, Any] | None:
    if options is not None and not isinstance(options, Mapping):
        raise InvalidInputError(f"options of a target are a mapping, not {type(options).__name__}")
    return options


def _shown(url: str) -> str:
    return repr(url if len(url) <= 200 else url[:200] + "…")
