"""From what a person writes to a store and a path within it."""

import os
import re
import stat
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from hyperslab.errors import InvalidInputError, NotFoundError
from hyperslab.store.base import Store, check_key
from hyperslab.store.local import LocalStore
from hyperslab.store.targets import Targets, take_targets

if TYPE_CHECKING:
    from hyperslab.store import backends

__all__ = ["REFERENCE_FOLDERS", "locate"]

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/(/?)")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_CONTAINER = re.compile(r"\$?[A-Za-z0-9][A-Za-z0-9-]{0,62}")
# An account's host in Azure, and in its separate clouds: only these are sent a login.
_AZURE_HOST = re.compile(
    r"([a-z0-9]{3,24})\.(?:dfs|blob)\.(core\.(?:windows\.net|chinacloudapi\.cn|usgovcloudapi\.net|cloudapi\.de))"
)
_REVISION = re.compile(r"(.*?)/?@(?:branch|tag|snapshot)=")
_KNOWN = ("file", "memory", "s3", "az", "azure", "abfs", "abfss", "adl", "gs", "gcs", "http", "https")
# What directories of references in Parquet files are called.
REFERENCE_FOLDERS = (".parq", ".parquet")
_SHOWN = ("file://", "memory://", "s3://", "az://", "gs://", "https://")


def locate(url: Any, storage_options: Mapping[str, Any] | None = None, *, create: bool = False) -> tuple[Store, str]:
    """Return the store that a URL or local path lies in, and the path within it.

    Nothing is sent. A local directory is a store of its own; a local file lies in its directory's.
    With `create`, so is a directory that is not there yet: the first put makes it. Two options are of every kind of
    store: `record` is the file that reads are recorded to, `targets` are the other places that references may lead to.

    >>> locate("memory://scratch/run/3/")
    (RemoteStore('memory://scratch'), 'run/3')
    """
    text = os.fspath(url) if isinstance(url, (str, os.PathLike)) else None
    if not isinstance(text, str):
        raise InvalidInputError(f"a URL or path is a string, got {type(url).__name__}")
    if not text or "\x00" in text:
        raise InvalidInputError("a URL or path must not be empty nor hold a NUL character")
    options, record = _take_record(storage_options)
    options, targets = take_targets(options)
    store, path = _locate(url, text, options, create, record)
    if targets is not None:
        store = _with_targets(store, targets)
    return store, path


def _with_targets(store: Store, targets: Targets) -> Store:
    """Return the same store, from which references may lead to other places."""
    if isinstance(store, LocalStore):
        return LocalStore(store.root, record=store.record, targets=targets)
    from hyperslab.store.remote import RemoteStore

    return store.with_targets(targets) if isinstance(store, RemoteStore) else store


def _locate(
    url: Any, text: str, options: Mapping[str, Any] | None, create: bool, record: str | None
) -> tuple[Store, str]:
    found = _SCHEME.match(text)
    if found is None or not isinstance(url, str):
        return _local(os.path.expanduser(text), options, create, record)
    scheme, rest = found[1].lower(), text[found.end() :]
    if not found[2] and scheme != "file":
        if scheme in _KNOWN and not os.path.exists(text):
            raise InvalidInputError(f"a URL of {scheme} starts with '{scheme}://', got '{scheme}:/'")
        return _local(text, options, create, record)
    if scheme == "file":
        return _local(_file_path(text), options, create, record)
    if scheme not in _KNOWN:
        raise InvalidInputError(f"{scheme}:// is not supported; use a path, or {', '.join(_SHOWN)}")
    return _remote(scheme, text, rest, options, record)


def _take_record(options: Mapping[str, Any] | None) -> tuple[Mapping[str, Any] | None, str | None]:
    """Return the options of the kind of store, and the path that its reads are recorded to, checked."""
    if not isinstance(options, Mapping) or "record" not in options:
        return options, None
    given = options["record"]
    path = os.fspath(given) if isinstance(given, (str, os.PathLike)) else None
    if not isinstance(path, str) or not path or "\x00" in path:
        raise InvalidInputError(f"storage option 'record' is the path of a log, got {type(given).__name__}")
    path = os.path.abspath(os.path.expanduser(path))
    folder = os.path.dirname(path)
    if os.path.isdir(path) or not os.access(path if os.path.exists(path) else folder, os.W_OK):
        raise InvalidInputError(f"storage option 'record': {path!r} is no file that can be written; choose another")
    return {name: value for name, value in options.items() if name != "record"}, path


def _local(path: str, options: Mapping[str, Any] | None, create: bool, record: str | None) -> tuple[Store, str]:
    _no_options("a local path", options)
    # abspath, not realpath: links lead where the person who made them wanted.
    full = os.path.abspath(path)
    if (beside := _beside_references(full)) is not None:
        return LocalStore(beside, record=record), os.path.relpath(full, beside)
    is_directory = _is_directory(full)
    if is_directory or (create and is_directory is None and not os.path.islink(full)):
        return LocalStore(full, record=record), ""
    if is_directory is None:
        above = _repository_above(full)
        if above is not None:
            return LocalStore(above, record=record), full[len(above) :].strip("/")
        file = _file_above(full)
        if file is None:
            raise NotFoundError(f"there is no file or directory {full}")
        parent = os.path.dirname(file)
        return LocalStore(parent, record=record), os.path.relpath(full, parent)
    parent, name = os.path.split(full)
    return LocalStore(parent, record=record), name


def _is_directory(path: str) -> bool | None:
    """Return whether a path is a directory, None if nothing is there.

    By one look: asked twice, a directory that somebody makes in between was neither, and so taken for a file.
    """
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except (OSError, ValueError):  # a name that no file can have
        return None


def _beside_references(path: str) -> str | None:
    """Return the directory that holds the one of Parquet references that a path leads into, None if it leads into none.

    What they refer to lies beside them, so that the store must reach that.
    """
    while path.rstrip("/"):
        parent, name = os.path.split(path)
        if name.lower().endswith(REFERENCE_FOLDERS) and os.path.isfile(os.path.join(path, ".zmetadata")):
            return parent
        path = parent
    return None


def _repository_above(path: str) -> str | None:
    """Return the directory of the Icechunk repository that a path leads into, None if it leads into none.

    What is in it has no files of its name. A version of it may be named behind an '@'.
    """
    named = _REVISION.match(path)
    if named is not None and os.path.isdir(named[1]):
        return named[1]
    while path and not os.path.exists(path):
        path = os.path.dirname(path)
    return path if os.path.isdir(os.path.join(path, "snapshots")) else None


def _file_above(path: str) -> str | None:
    """Return the file that a path leads into (`data.h5` of `data.h5/group/array`), None if it leads nowhere."""
    while path and not os.path.exists(path):
        path, name = os.path.split(path)
        if not name:
            return None
    return path if os.path.isfile(path) else None


def _file_path(text: str) -> str:
    host, slash, path = text.partition(":")[2].removeprefix("//").partition("/")
    if host not in ("", "localhost") or not slash:
        raise InvalidInputError("a file URL is 'file:///absolute/path'; write relative paths without 'file:'")
    path = unquote("/" + path, errors="surrogateescape")
    if "\x00" in path:
        raise InvalidInputError("a URL or path must not be empty nor hold a NUL character")
    return path


def _remote(
    scheme: str, url: str, rest: str, options: Mapping[str, Any] | None, record: str | None
) -> tuple[Store, str]:
    from hyperslab.store import backends, remote

    name, _, path = rest.partition("/")
    backend: backends.Backend
    if scheme in ("http", "https"):
        from hyperslab.store import http

        settings, inside = http.read_settings(url, options)
        return remote.remote_store(backends.HttpBackend(settings), record), inside
    inside = _path(path)
    if scheme == "memory":
        backend = _memory(name, options)
    elif scheme == "s3":
        backend = _s3(name, options)
    elif scheme in ("gs", "gcs"):
        backend = _google(name, options)
    else:
        backend = _azure(name, options)
    return remote.remote_store(backend, record), inside


def _memory(name: str, options: Mapping[str, Any] | None) -> "backends.Backend":
    from hyperslab.store.backends import MemoryBackend

    _no_options("memory://", options)
    if not _BUCKET.fullmatch(name):
        raise InvalidInputError("a memory URL is 'memory://name/path', the name of letters, digits and ._-")
    return MemoryBackend(name)


def _s3(bucket: str, options: Mapping[str, Any] | None) -> "backends.Backend":
    from hyperslab.store.backends import S3Backend
    from hyperslab.store.s3 import read_settings

    if not _BUCKET.fullmatch(bucket):
        # Not shown: it may be a login.
        raise InvalidInputError("an S3 URL is 's3://bucket/path', credentials go into storage_options")
    return S3Backend(read_settings(bucket, options))


def _google(bucket: str, options: Mapping[str, Any] | None) -> "backends.Backend":
    from hyperslab.store.backends import GoogleBackend
    from hyperslab.store.google import read_settings

    if not _BUCKET.fullmatch(bucket):
        raise InvalidInputError("a Google URL is 'gs://bucket/path', credentials go into storage_options")
    return GoogleBackend(read_settings(bucket, options))


def _azure(name: str, options: Mapping[str, Any] | None) -> "backends.Backend":
    from hyperslab.store.azure import read_settings
    from hyperslab.store.backends import AzureBackend

    container, at, host = name.partition("@")
    found = _AZURE_HOST.fullmatch(host)
    if not _CONTAINER.fullmatch(container) or (at and found is None):
        raise InvalidInputError(
            "an Azure URL is 'az://container/path' or 'abfss://container@account.dfs.core.windows.net/path', "
            "credentials and other endpoints go into storage_options"
        )
    if found is None:
        return AzureBackend(read_settings(container, options))
    endpoint = f"https://{found[1]}.blob.{found[2]}"
    return AzureBackend(read_settings(container, options, account=found[1], endpoint=endpoint))


def _path(path: str) -> str:
    path = path.strip("/")
    if path:
        check_key(path)
    return path


def _no_options(place: str, options: Mapping[str, Any] | None) -> None:
    if options:
        names = ", ".join(map(repr, options))
        raise InvalidInputError(f"{place} takes no storage_options, got {names}; leave them out")
