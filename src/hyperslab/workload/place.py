"""What arrays are called in a log: without secrets, and the same wherever one stands."""

import os
import re
from urllib.parse import unquote

__all__ = ["clean_url"]

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def clean_url(url: str) -> str:
    """Return a URL without login and query, a local path as an absolute one.

    >>> clean_url("https://me:hush@host/a.zarr?signature=hush"), clean_url("file:///data/my%20a.npy")
    ('https://host/a.zarr', '/data/my a.npy')
    """
    if url.startswith("/"):
        return os.path.normpath(url)
    if not _SCHEME.match(url):
        return _absolute(url.removeprefix("file:"))
    scheme, _, rest = url.partition("://")
    if scheme.lower() == "file":
        return _absolute(unquote("/" + rest.partition("/")[2]))
    rest = re.split(r"[?#]" if scheme.lower() in ("http", "https") else r"\?", rest, maxsplit=1)[0]
    place, slash, path = rest.partition("/")
    login, at, host = place.rpartition("@")
    # In Azure's URLs a container stands before the '@', never a colon.
    if at and (":" in login or scheme.lower() in ("http", "https")):
        place = host
    return f"{scheme.lower()}://{place}{slash}{path.rstrip('/')}"


def _absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))
