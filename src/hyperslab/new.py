"""New arrays and groups: created, saved, copied, written in another layout, sealed."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import numpy.typing as npt

from hyperslab.array import Array, Group, created, wrap
from hyperslab.errors import InvalidInputError
from hyperslab.execute import Session, check_kind, default_session
from hyperslab.formats.copying import Place, Readable, copy_tree, save_array, seal_tree, showing
from hyperslab.formats.zarr.array import Done, ZarrArray
from hyperslab.formats.zarr.compression import SAME
from hyperslab.formats.zarr.create import LayoutName, NewArray, shape_and_dtype
from hyperslab.layout.compression import DEFAULT
from hyperslab.opening import open
from hyperslab.rechunk import DEFAULT_BYTES, move_cells, move_on_cluster, parse_bytes, rechunk_in_place, sweep_tree
from hyperslab.store import LocalStore, locate
from hyperslab.tune.recorded import Wanted, form_for

__all__ = ["copy", "create", "create_group", "rechunk", "save", "seal", "sweep"]


def create(
    url: Any,
    shape: Any,
    dtype: npt.DTypeLike,
    *,
    chunks: Any = None,
    shards: Any = None,
    layout: LayoutName = "default",
    compressor: str | None = "zstd",
    shuffle: bool | None = None,
    fill_value: Any = 0,
    dims: Sequence[str | None] | None = None,
    attrs: Mapping[str, Any] | None = None,
    workload: Any = None,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    session: Session | None = None,
) -> Array:
    """Create a Zarr array at `url` that holds the fill value everywhere, and return it to be written.

    chunks      cells that are compressed, and read, together (default: about 32 KiB, see the guide on writing)
    shards      cells of one object, a multiple of `chunks` (default: about 16 MiB); False: each chunk is an object
    layout      "default": compressed and with checksums; "plain": neither, so that any part of a chunk can be read
    compressor  "zstd", "lz4", "gzip", "blosc", with a level as in "zstd:3"; None: checksums, but no compression
    shuffle     put the first bytes of all cells first, then the second ones, …: numbers often compress better so
                (default: `save` does it with zstd where a sample of cells in memory says that it is worth it)
    fill_value  what cells hold that were never written
    dims        names of the axes
    workload    what will be read, as for `hs.advise`: chunks and shards are cut for it
    overwrite   replace what is stored there, with all below it

    >>> import hyperslab as hs
    >>> a = hs.create("memory://doc/create", (1000, 1000), "i4", chunks=(100, 100), fill_value=-1)
    >>> a[10, 20:30] = 7
    >>> a[10, 18:22].tolist()
    [-1, -1, 7, 7]
    """
    place = _new_place(url, storage_options, session)
    new = NewArray(shape, dtype, chunks, shards, layout, fill_value, dims, attrs, compressor, shuffle)
    if workload is not None:
        new = _cut_for(new, workload, place)
    return created(place, place.create(new, overwrite=overwrite))


def _cut_for(new: NewArray, workload: Any, place: Place) -> NewArray:
    """Return the same array with chunks and shards that suit a workload."""
    if new.chunks is not None or new.shards is not None:
        raise InvalidInputError("chunks are chosen for the workload: give either it or chunks and shards")
    shape, dtype = shape_and_dtype(new)
    if not prod(shape):
        raise InvalidInputError(
            f"an array of shape {shape} has no cells to be read; give its chunks instead of a workload"
        )
    wanted = Wanted(place.url, shape, dtype)
    model = place.session.model(place.store)
    form = form_for(wanted, workload, model, plain=new.layout == "plain")
    return replace(new, chunks=form.chunks, shards=form.shards or (None if form.plain else False))


def save(
    url: Any,
    array: Any,
    *,
    chunks: Any = None,
    shards: Any = None,
    layout: LayoutName = "default",
    compressor: str | None = "zstd",
    shuffle: bool | None = None,
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

    >>> import numpy as np
    >>> import hyperslab as hs
    >>> hs.save("memory://doc/save", np.zeros((300, 400), "i4"), chunks=(100, 100), dims=["y", "x"])
    <hyperslab.Array 'memory://doc/save' int32 (300, 400) chunks (100, 100) zarr3>
    """
    settings = {
        "chunks": chunks, "shards": shards, "layout": layout, "fill_value": fill_value, "dims": dims, "attrs": attrs,
        "compressor": compressor, "shuffle": shuffle,
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
    """Create a Zarr group at `url`, and return it: `group.save` and `group.create` make members.

    >>> import hyperslab as hs
    >>> run = hs.create_group("memory://doc/create_group", attrs={"title": "run 3"})
    >>> run.create("counts", (5,), "i8").shape, list(run)
    ((5,), ['counts'])
    """
    place = _new_place(url, storage_options, session)
    return Group(place.create_group(attrs, overwrite=overwrite), place.store, place.session, writable=True)


def copy(
    source: Any,
    url: Any,
    *,
    chunks: Any = None,
    shards: Any = None,
    layout: LayoutName = "default",
    compressor: str | None = "zstd",
    shuffle: bool | None = None,
    overwrite: bool = False,
    progress: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    session: Session | None = None,
) -> Array | Group:
    """Copy an array, or a group with all below it, to a new Zarr store at `url`, and return that.

    `source` is opened already, or a URL; `chunks` to `shuffle` are as for `create`. Calling again after an interruption
    goes on where it was. `progress` is True for a bar on the terminal, or a function of (done_bytes, total_bytes).
    `storage_options` are for `url`.

    >>> import numpy as np
    >>> import hyperslab as hs
    >>> a = hs.save("memory://doc/copy", np.arange(6), attrs={"units": "m"})
    >>> b = hs.copy(a, "memory://doc/copied")
    >>> b[::2], b.attrs
    (array([0, 2, 4]), {'units': 'm'})
    """
    place = _new_place(url, storage_options, session)
    found = source if isinstance(source, (Array, Group)) else open(source, session=place.session)
    settings = {"chunks": chunks, "shards": shards, "layout": layout, **_packing(compressor, shuffle)}
    with showing(progress, f"copying to {place.url}") as tell:
        copied = copy_tree(found, place, settings, overwrite=overwrite, progress=tell)
    return wrap(copied, place.store, place.session, writable=True)


def rechunk(
    source: Any,
    url: Any = None,
    *,
    chunks: Any = None,
    shards: Any = None,
    layout: LayoutName = "default",
    compressor: str | None = SAME,
    shuffle: bool | None = None,
    memory_bytes: int | str = DEFAULT_BYTES,
    overwrite: bool = False,
    progress: Any = None,
    scheduler: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    session: Session | None = None,
) -> Array | Group:
    """Write an array anew at `url` in another layout, and return that; a group array by array.

    Without `url` the layout of a Zarr v3 array is changed in place: readers and writers go on, the old objects stay for
    handles that were opened before, until `sweep`.

    Where old and new chunks lie across each other, cells wait on the local disk (in the folder for temporary files),
    so that each chunk is read about once. Calling again after an interruption goes on where it was.

    source        an opened array of any format, or its URL; attributes, names of axes and the fill value are kept
    chunks, shards, layout, shuffle   as for `create`
    compressor    as for `create`; "same" is the one that the array has, where it is one of these
    memory_bytes  what the process may hold, all in all: a number, or text such as "2GB"
    progress      True for a bar on the terminal, or a function of (done_bytes, total_bytes)
    scheduler     a `dask.distributed.Client`, whose workers do it, each within `memory_bytes`
    storage_options   for `url`; without one, for `source`

    >>> import numpy as np
    >>> import hyperslab as hs
    >>> a = hs.save("memory://doc/rechunk", np.arange(120).reshape(30, 4), chunks=(10, 4), shards=False)
    >>> hs.rechunk(a, "memory://doc/rechunked", chunks=(30, 1)).chunks
    (30, 1)
    >>> hs.rechunk("memory://doc/rechunk", chunks=(15, 2), shards=False).chunks, hs.sweep("memory://doc/rechunk")
    ((15, 2), 3)
    """
    limit = parse_bytes(memory_bytes)
    settings = {"chunks": chunks, "shards": shards, "layout": layout, **_packing(compressor, shuffle)}
    if url is None:
        if scheduler is not None or overwrite:
            raise InvalidInputError("scheduler and overwrite are for another place; give its URL, or leave them out")
        place = _place_of(source, storage_options, session)
        with showing(progress, f"rechunking {place.url}") as tell:
            changed = rechunk_in_place(place, settings, memory_bytes=limit, progress=tell)
        return wrap(changed, place.store, place.session, writable=True)
    place = _new_place(url, storage_options, session)
    found = source if isinstance(source, (Array, Group)) else open(source, session=place.session)
    move = partial(_move, memory_bytes=limit, scheduler=scheduler)
    with showing(progress, f"rechunking to {place.url}") as tell:
        made = copy_tree(found, place, settings, overwrite=overwrite, progress=tell, move=move)
    return wrap(made, place.store, place.session, writable=True)


def _packing(compressor: str | None, shuffle: bool | None) -> dict[str, Any]:
    """Return what is to be said of compression; what is usual is not, so that copies begun without it go on."""
    said = {"compressor": compressor, "shuffle": shuffle}
    usual = {"compressor": DEFAULT.name, "shuffle": None}
    return {name: value for name, value in said.items() if value != usual[name]}


def _move(
    source: Readable, target: ZarrArray, done: set[tuple[int, ...]], tell: Done, *, memory_bytes: int, scheduler: Any
) -> int:
    if scheduler is None:
        return move_cells(source, target, memory_bytes=memory_bytes, done=done, tell=tell)
    return move_on_cluster(scheduler, source, target, memory_bytes=memory_bytes, done=done, tell=tell)


def seal(
    url: Any, *, storage_options: Mapping[str, Any] | None = None, session: Session | None = None
) -> Array | Group:
    """Sign the metadata of the array, or of the group and all below it, as it is stored now.

    Of arrays, chunks that were never written are written as fill values: from then on one that is gone is an error.

    >>> import hyperslab as hs
    >>> a = hs.create("memory://doc/seal", (4, 4), "i4", attrs={"units": "m"})
    >>> hs.seal("memory://doc/seal")[0].tolist()
    [0, 0, 0, 0]
    """
    place = _new_place(url, storage_options, session)
    return wrap(seal_tree(place), place.store, place.session, writable=True)


def sweep(source: Any, *, storage_options: Mapping[str, Any] | None = None, session: Session | None = None) -> int:
    """Delete what changes of layout in place left of the array at a URL, or of all below a group; return how much.

    These are the objects of old layouts, and those of a change that was not finished, which is given up. Handles that
    were opened before an array's last change must not be in use any more.
    """
    return sweep_tree(_place_of(source, storage_options, session))


def _place_of(source: Any, options: Mapping[str, Any] | None, session: Session | None) -> Place:
    """Return the place of something that is stored, opened already or not."""
    check_kind("session", session, Session)
    if isinstance(source, (Array, Group)):
        if not source.writable:
            raise InvalidInputError(f"{source.url!r} was opened to be read; open it with mode='r+' to change it")
        return Place(session or source.session, source.store, source.source.path, source.url)
    store, path = locate(source, options)
    return Place(default_session() if session is None else session, store, path, str(source))


def _new_place(url: Any, options: Mapping[str, Any] | None, session: Session | None) -> Place:
    check_kind("session", session, Session)
    store, path = locate(url, options, create=True)
    if isinstance(store, LocalStore) and path:
        raise InvalidInputError(f"{str(url)!r} is a file; arrays and groups are written as directories")
    return Place(default_session() if session is None else session, store, path, str(url))
