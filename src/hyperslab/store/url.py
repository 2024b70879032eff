"""From what a person writes to a store and a path within it."""

import os
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from hyperslab.errors import InvalidInputError, NotFoundError
from hyperslab.store.base import Store, check_key
from hyperslab.store.local import LocalStore

__all__ = ["locate"]

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/(/?)")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_KNOWN = ("file", "memory", "s3")
_LATER = ("abfs", "abfss", "adl", "az", "azure", "gcs", "gs", "http", "https")


def locate(url: Any, storage_options: Mapping[str, Any] | None = None) -> tuple[Store, str]:
    """Return the store that a URL or local path lies in, and the path within it.

    Nothing is sent. A local directory is a store of its own; a local file lies in its directory's.

    >>> locate("memory://scratch/run/3/")
    (RemoteStore('memory://scratch'), 'run/3')
    """
    text = os.fspath(url) if isinstance(url, (str, os.PathLike)) else None
    if not isinstance(text, str):
        raise InvalidInputError(f"a URL or path is a string, got {type(url).__name__}")
    if not text or "\x00" in text:
        raise InvalidInputError("a URL or path must not be empty nor hold a NUL character")
    found = _SCHEME.match(text)
    if found is None or not isinstance(url, str):
        return _local(os.path.expanduser(text), storage_options)
    scheme, rest = found[1].lower(), text[found.end() :]
    if not found[2] and scheme != "file":
        if scheme in (*_KNOWN, *_LATER) and not os.path.exists(text):
            raise InvalidInputError(f"a URL of {scheme} starts with '{scheme}://', got '{scheme}:/'")
        return _local(text, storage_options)
    if scheme == "file":
        return _local(_file_path(text), storage_options)
    if scheme == "memory":
        return _memory(rest, storage_options)
    if scheme == "s3":
        return _s3(rest, storage_options)
    later = " yet" if scheme in _LATER else ""
    raise InvalidInputError(f"{scheme}:// is not supported{later}; use a path, file://, memory:// or s3://")


def _local(path: str, options: Mapping[str, Any] | None) -> tuple[Store, str]:
    _no_options("a local path", options)
    # abspath, not realpath: links lead where the person who made them wanted.
    full = os.path.abspath(path)
    if os.path.isdir(full):
        return LocalStore(full), ""
    if not os.path.exists(full):
        raise NotFoundError(f"there is no file or directory {full}")
    parent, name = os.path.split(full)
    return LocalStore(parent), name


def _file_path(text: str) -> str:
    host, slash, path = text.partition(":")[2].removeprefix("//").partition("/")
    if host not in ("", "localhost") or not slash:
        raise InvalidInputError("a file URL is 'file:///absolute/path'; write relative paths without 'file:'")
    path = unquote("/" + path, errors="surrogateescape")
    if "\x00" in path:
        raise InvalidInputError("a URL or path must not be empty nor hold a NUL character")
    return path


def _memory(rest: str, options: Mapping[str, Any] | None) -> tuple[Store, str]:
    from hyperslab.store.remote import memory_store

    _no_options("memory://", options)
    name, _, path = rest.partition("/")
    if not _BUCKET.fullmatch(name):
        raise InvalidInputError("a memory URL is 'memory://name/path', the name of letters, digits and ._-")
    return memory_store(name), _path(path)


def _s3(rest: str, options: Mapping[str, Any] | None) -> tuple[Store, str]:
    from hyperslab.store.remote import s3_store
    from hyperslab.store.s3 import read_settings

    bucket, _, path = rest.partition("/")
    if not _BUCKET.fullmatch(bucket):
        # Not shown: it may be a login.
        raise InvalidInputError("an S3 URL is 's3://bucket/path', credentials go into storage_options")
    inside = _path(path)
    return s3_store(read_settings(bucket, options)), inside


def _path(path: str) -> str:
    path = path.strip("/")
    if path:
        check_key(path)
    return path


def _no_options(place: str, options: Mapping[str, Any] | None) -> None:
    if options:
        names = ", ".join(map(repr, options))
        raise InvalidInputError(f"{place} takes no storage_options, got {names}; leave them out")
