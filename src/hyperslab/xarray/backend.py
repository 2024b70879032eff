"""The engine "hyperslab": what xarray calls to open a dataset, or a tree of them."""

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import xarray as xr
from xarray.backends import BackendEntrypoint
from xarray.backends.store import StoreBackendEntrypoint

from hyperslab.array import Array, Group
from hyperslab.errors import InvalidInputError, NotFoundError
from hyperslab.execute import Session
from hyperslab.opening import open
from hyperslab.xarray.datastore import HyperslabDataStore

__all__ = ["HyperslabBackend"]

# Places that other engines reach only by the way of a file system for Python.
_SCHEMES = ("s3://", "gs://", "gcs://", "az://", "azure://", "abfs://", "abfss://", "memory://")


class HyperslabBackend(BackendEntrypoint):
    """Opens Zarr, HDF5, NetCDF-4 and NumPy files, on disk and on object stores, for xarray.

    group            the path of a group inside of what is opened
    storage_options  for the store, as for `hs.open`
    session          a Session, whose settings, cache and budget hold for all that is read
    use_zarr_fill_value_as_mask   whether cells that hold the fill value of a Zarr array are missing (default: in
                     version 2 they are, in version 3 only those of the attribute `_FillValue`)
    """

    description = "Plan every read of Zarr, HDF5 and NetCDF-4, on disk or in the cloud"
    supports_groups = True

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Say that this is for us, where no other engine says so first: URLs of object stores."""
        return isinstance(filename_or_obj, str) and filename_or_obj.lower().startswith(_SCHEMES)

    def open_dataset(
        self,
        filename_or_obj: Any,
        *,
        mask_and_scale: bool | None = True,
        decode_times: Any = True,
        concat_characters: bool | None = True,
        decode_coords: Any = True,
        drop_variables: str | Iterable[str] | None = None,
        use_cftime: bool | None = None,
        decode_timedelta: Any = None,
        group: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
        session: Session | None = None,
        use_zarr_fill_value_as_mask: bool | None = None,
    ) -> xr.Dataset:
        """Return the arrays of a group, or one array alone, as a dataset."""
        found = _open(filename_or_obj, group, storage_options, session)
        dropped = [drop_variables] if isinstance(drop_variables, str) else list(drop_variables or ())
        store = HyperslabDataStore(found, dropped=dropped, fill_is_missing=use_zarr_fill_value_as_mask)
        dataset = StoreBackendEntrypoint().open_dataset(
            store,
            mask_and_scale=mask_and_scale,
            decode_times=decode_times,
            concat_characters=concat_characters,
            decode_coords=decode_coords,
            drop_variables=drop_variables,
            use_cftime=use_cftime,
            decode_timedelta=decode_timedelta,
        )
        dataset.encoding["source"] = _name(filename_or_obj)
        return dataset

    def open_datatree(self, filename_or_obj: Any, **options: Any) -> Any:
        """Return a group with all groups below it as a tree of datasets."""
        return xr.DataTree.from_dict(self.open_groups_as_dict(filename_or_obj, **options))

    def open_groups_as_dict(
        self,
        filename_or_obj: Any,
        *,
        group: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
        session: Session | None = None,
        **options: Any,
    ) -> dict[str, xr.Dataset]:
        """Return the dataset of a group and of each group below it, by their paths."""
        top = _open(filename_or_obj, group, storage_options, session)
        return {path: self.open_dataset(found, **options) for path, found in _groups(top)}


def _open(
    source: Any, group: str | None, storage_options: Mapping[str, Any] | None, session: Session | None
) -> Array | Group:
    if isinstance(source, Array | Group):
        found = source
    elif isinstance(source, str | os.PathLike):
        found = open(source, storage_options=storage_options, session=session)
    else:
        raise InvalidInputError(
            f"the engine 'hyperslab' opens URLs, paths and opened arrays or groups, got {type(source).__name__}; "
            "use engine='h5netcdf' for file objects"
        )
    path = (group or "").strip("/")
    if not path:
        return found
    inside = found.get(path) if isinstance(found, Group) else None
    if not isinstance(inside, Group):
        raise NotFoundError(f"there is no group {path!r} in {found.url!r}")
    return inside


def _groups(top: Array | Group) -> Iterator[tuple[str, Array | Group]]:
    """Yield what is opened and all groups below it, each after the one that it is in."""
    waiting: list[tuple[str, Array | Group]] = [("/", top)]
    while waiting:
        path, found = waiting.pop(0)
        yield path, found
        if isinstance(found, Group):
            store = HyperslabDataStore(found)
            waiting += [(path.rstrip("/") + "/" + name, inner) for name, inner in store.groups().items()]


def _name(source: Any) -> str:
    return source.url if isinstance(source, Array | Group) else os.fspath(source)
