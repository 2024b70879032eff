"""`hs.open`: the array or group at a URL."""

from collections.abc import Mapping
from typing import Any, Literal

from hyperslab.array import Array, Group, wrap
from hyperslab.errors import InvalidInputError
from hyperslab.execute import Session, StoreReader, check_kind, default_session
from hyperslab.formats import open_source, virtual_source
from hyperslab.formats.zarr.array import check_format
from hyperslab.store import locate
from hyperslab.store.routing import virtual_store

__all__ = ["open"]

Mode = Literal["r", "r+"]


def open(
    url: Any,
    mode: Mode = "r",
    *,
    storage_options: Mapping[str, Any] | None = None,
    session: Session | None = None,
) -> Array | Group:
    """Open the array or group at `url`; its format is found out. Mode "r+" allows to change it.

    `url` is a local path, `file://`, `memory://name/…`, `s3://bucket/…`, `az://container/…`, `gs://bucket/…` or
    `https://host/…`; a path may go on inside (`store.zarr/group/array`, `file.h5/group/dataset`, `refs.json/array`,
    `repository@tag=v1/array` of Icechunk; also `@branch=` and `@snapshot=`, by default the branch `main`).
    `storage_options` are for the store: `endpoint`, `anonymous`, credentials and more; `targets` are the other places
    that references may lead to. Only metadata is read. Without a `session` the default one is used. Only Zarr can be
    changed. Instead of a URL it may be what VirtualiZarr made: a ManifestStore, or a dataset.

    >>> import tempfile
    >>> import numpy as np
    >>> import hyperslab as hs
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(folder + "/a.npy", np.arange(12).reshape(3, 4))
    ...     a = hs.open(folder + "/a.npy")
    ...     a[1, ::-1]
    array([7, 6, 5, 4])
    """
    if mode not in ("r", "r+"):
        raise InvalidInputError(f"mode is 'r' or 'r+', not {mode!r}; hs.create and hs.save make new arrays")
    check_kind("session", session, Session)
    session = default_session() if session is None else session
    if (virtual := virtual_source(url)) is not None:
        if mode == "r+":
            check_format(virtual.format, virtual.url)
        return wrap(virtual, virtual_store(storage_options), session)
    store, path = locate(url, storage_options)
    # A signature behind the path of a web address is kept by the store: names of arrays are printed and logged.
    name = str(url).partition("?")[0] if store.scheme == "http" else str(url)
    source = open_source(StoreReader(session, store), name, path)
    if mode == "r+":
        check_format(source.format, source.url)
    return wrap(source, store, session, writable=mode == "r+")
