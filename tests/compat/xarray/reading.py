"""xarray's own tests of its backends, of which what is written by xarray's engines is opened by ours.

It is run by `test_xarray_tests.py`, in a process of its own.
"""

import contextlib

import xarray as xr
from xarray import backends
from xarray.tests import test_backends as theirs
from xarray.tests.conftest import time_unit, use_dask  # noqa: F401
from xarray.tests.test_backends import default_zarr_format  # noqa: F401


class TestNetCDF4(theirs.NetCDF4Base):
    @contextlib.contextmanager
    def create_store(self):
        with theirs.create_tmp_file() as path, backends.NetCDF4DataStore.open(path, mode="w") as store:
            yield store

    @contextlib.contextmanager
    def open(self, path, **options):
        with xr.open_dataset(path, engine="hyperslab", **options) as dataset:
            yield dataset


class TestZarr(theirs.ZarrBase):
    @contextlib.contextmanager
    def create_zarr_target(self):
        with theirs.create_tmp_file(suffix=".zarr") as path:
            yield path

    @contextlib.contextmanager
    def open(self, path, *, backend_kwargs=None, **options):
        options = {**options, **(backend_kwargs or {})}
        # Whether metadata is consolidated, we find out.
        options.pop("consolidated", None)
        with xr.open_dataset(path, engine="hyperslab", **options) as dataset:
            yield dataset
