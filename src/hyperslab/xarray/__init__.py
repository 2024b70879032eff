"""xarray over everything that Hyperslab opens: `xr.open_dataset(url, engine="hyperslab")`.

Variables are lazy: what is selected is planned and read, and nothing else. xarray itself applies the CF conventions.

>>> import numpy as np
>>> import xarray as xr
>>> import hyperslab as hs
>>> weather = hs.create_group("memory://xarray/weather")
>>> _ = weather.save("wind", np.arange(6.0).reshape(2, 3), dims=("time", "x"), attrs={"units": "m/s"})
>>> _ = weather.save("x", np.array([10, 20, 30]), dims=("x",))
>>> dataset = xr.open_dataset("memory://xarray/weather", engine="hyperslab")
>>> dataset["wind"].sel(x=20).values, dataset["wind"].attrs
(array([1., 4.]), {'units': 'm/s'})
"""

try:
    import xarray as _xarray  # noqa: F401
except ImportError as error:
    raise ImportError("hyperslab.xarray needs xarray: pip install 'hyperslab[xarray]'") from error

from hyperslab.xarray.backend import HyperslabBackend
from hyperslab.xarray.datastore import HyperslabDataStore
from hyperslab.xarray.variables import StoredVariable

__all__ = ["HyperslabBackend", "HyperslabDataStore", "StoredVariable"]
