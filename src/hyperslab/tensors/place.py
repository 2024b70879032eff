"""Where a table lies: its store and path, the session that reads it, and the options that it was opened with.

Data files and the log are read through the session. delta-rs has connections of its own, and what it moves for its
commits is not in the session's metrics: `Place.delta` counts these calls apart.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from hyperslab.errors import InvalidInputError, UnsupportedError
from hyperslab.execute import Session
from hyperslab.store import LocalStore, Store, locate

__all__ = ["DeltaCalls", "Place", "file_name", "locate_table"]


@dataclass(slots=True)
class DeltaCalls:
    """How often delta-rs was asked to do something, how often it failed, and how long all that took."""

    calls: int = 0
    failures: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """A table's place. It pickles, with the session."""

    url: str
    store: Store
    path: str
    session: Session
    options: Mapping[str, Any] | None = None
    delta: DeltaCalls = field(default_factory=DeltaCalls)

    def key(self, name: str) -> str:
        """Return the key of an object of the table."""
        return f"{self.path}/{name}" if self.path else name


def locate_table(url: Any, options: Mapping[str, Any] | None, session: Session) -> Place:
    """Return the place that a URL or path names; nothing is sent."""
    store, path = locate(url, options, create=True)
    if isinstance(store, LocalStore) and path:
        raise InvalidInputError(f"a tensor table is a directory, and {os.fspath(url)!r} is a file")
    return Place(os.fspath(url), store, path, session, options)


def file_name(path: str) -> str:
    """Return the name of a file as it is stored: the log escapes percent signs and the like.

    >>> file_name("data/a%20b.parquet")
    'data/a b.parquet'
    """
    if "://" in path or path.startswith("/") or ".." in path.split("/"):
        raise UnsupportedError(f"the table refers to {path!r}, a file outside of it; only its own files are read")
    return unquote(path)
