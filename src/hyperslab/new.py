"""New arrays and groups: created, saved, copied, sealed."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy.typing as npt

from hyperslab.array import Array, Group, created, open, wrap
from hyperslab.errors import InvalidInputError
from hyperslab.execute import Session, check_kind, default_session
from hyperslab.formats.copying import Place, copy_tree, save_array, seal_tree, showing
from hyperslab.formats.zarr.create import LayoutName, NewArray
from hyperslab.store import LocalStore, locate

__all__ = ["copy", "create", "create_group", "save", "seal"]


def create(
    url: Any,
    shape: Any,
    dtype: npt.DTypeLike,
    *,
    chunks: Any = None,
    shards: Any = None,
    layout: LayoutName = "default",
    fill_value: Any = 0,
    dims: Sequence[str | None] | None = None,
    attrs: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    session: Session | None = None,
) -> Array:
    """Create a Zarr array at `url` that holds the fill value everywhere, and return it to be written.

    chunks      cells that are compressed, and read, together (default: about 64 KiB, see the guide on writing)
    shards      cells of one object, a multiple of `chunks` (default: about 16 MiB)
    layout      "default": compressed and with checksums; "plain": neither, so that any part of a chunk can be read
    fill_value  what cells hold that were never written
    dims        names of the axes
    overwrite   replace what is stored there, with all below it
    """
    place = _new_place(url, storage_options, session)
    new = NewArray(shape, dtype, chunks, shards, layout, fill_value, dims, attrs)
    return created(place, place.create(new, overwrite=overwrite))


def save(
    url: Any,
    array: Any,
    *,
    chunks: Any = None,
    shards: Any = None,
    layout: LayoutName = "default",
    fill_value: Any = 0,
    dims: Sequence[str | None] | None = None,
    attrs: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    session: Session | None = None,
) -> Array:
    """Write an array as a Zarr array at `url`, and return that; arguments as for `create`.

    `array` is anything like a NumPy array, also one that is larger than memory (a memory map, an opened array, an h5py
    dataset): it is written part by part. Once all of it is stored, an object that is lost is noticed.
    """
    settings = {
        "chunks": chunks, "shards": shards, "layout": layout, "fill_value": fill_value, "dims": dims, "attrs": attrs,
    }  # fmt: skip
    place = _new_place(url, storage_options, session)
    return created(place, save_array(place, array, settings, overwrite=overwrite, threads=isinstance(array, Array)))


def create_group(
    url: Any,
    *,
    attrs: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    session: Session | None = None,
) -> Group:
    """Create a Zarr group at `url`."""
    place = _new_place(url, storage_options, session)
    return Group(place.create_group(attrs, overwrite=overwrite), place.store, place.session, writable=True)


def copy(
    source: Any,
    url: Any,
    *,
    chunks: Any = None,
    shards: Any = None,
    layout: LayoutName = "default",
    overwrite: bool = False,
    progress: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    session: Session | None = None,
) -> Array | Group:
    """Copy an array, or a group with all below it, to a new Zarr store at `url`, and return that.

    `source` is opened already, or a URL. Calling again after an interruption goes on where it was. `progress` is True
    for a bar on the terminal, or a function of (done_bytes, total_bytes). `storage_options` are for `url`.
    """
    place = _new_place(url, storage_options, session)
    found = source if isinstance(source, (Array, Group)) else open(source, session=place.session)
    settings = {"chunks": chunks, "shards": shards, "layout": layout}
    with showing(progress, f"copying to {place.url}") as tell:
        copied = copy_tree(found, place, settings, overwrite=overwrite, progress=tell)
    return wrap(copied, place.store, place.session, writable=True)


def seal(
    url: Any, *, storage_options: Mapping[str, Any] | None = None, session: Session | None = None
) -> Array | Group:
    """Sign the metadata of the array, or of the group and all below it, as it is stored now.

    Of arrays, chunks that were never written are written as fill values: from then on one that is gone is an error.
    """
    place = _new_place(url, storage_options, session)
    return wrap(seal_tree(place), place.store, place.session, writable=True)


def _new_place(url: Any, options: Mapping[str, Any] | None, session: Session | None) -> Place:
    check_kind("session", session, Session)
    store, path = locate(url, options, create=True)
    if isinstance(store, LocalStore) and path:
        raise InvalidInputError(f"{str(url)!r} is a file; arrays and groups are written as directories")
    return Place(default_session() if session is None else session, store, path, str(url))
