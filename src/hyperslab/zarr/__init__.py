"""A store for zarr-python on everything that Hyperslab reaches: its requests are planned, kept and metered as ours.

>>> import numpy as np
>>> import zarr
>>> from hyperslab.zarr import HyperslabStore
>>> store = HyperslabStore("memory://zarr-python/a.zarr")
>>> _ = zarr.create_array(store, data=np.arange(6).reshape(2, 3), chunks=(1, 3))
>>> zarr.open_array(store, mode="r")[1]
array([3, 4, 5])
"""

from hyperslab.zarr.store import HyperslabStore

__all__ = ["HyperslabStore"]
