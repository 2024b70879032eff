"""h5py's interface over everything that Hyperslab reads and writes: `import hyperslab.h5 as h5py`.

Files, groups, datasets and attributes are Hyperslab's. Types, links, `Empty` and whatever else does not touch a file
are h5py's own.

>>> import numpy as np
>>> import hyperslab.h5 as h5py
>>> with h5py.File("memory://h5/weather.h5", "w") as f:
...     wind = f.create_dataset("wind", data=np.arange(6.0).reshape(2, 3), chunks=(1, 3))
...     wind.attrs["units"] = "m/s"
>>> f = h5py.File("memory://h5/weather.h5")
>>> f["wind"][1, :2], dict(f["wind"].attrs)
(array([3., 4.]), {'units': 'm/s'})
"""

from typing import Any

import h5py as _h5py
from h5py import (
    Empty,
    ExternalLink,
    HardLink,
    MultiBlockSlice,
    Reference,
    RegionReference,
    SoftLink,
    check_dtype,
    check_enum_dtype,
    check_opaque_dtype,
    check_ref_dtype,
    check_string_dtype,
    check_vlen_dtype,
    enum_dtype,
    opaque_dtype,
    ref_dtype,
    regionref_dtype,
    special_dtype,
    string_dtype,
    vlen_dtype,
)

from hyperslab.h5.attributes import AttributeManager
from hyperslab.h5.dataset import Dataset
from hyperslab.h5.dims import DimensionManager, DimensionProxy
from hyperslab.h5.file import File, is_hdf5
from hyperslab.h5.group import Group
from hyperslab.h5.handles import Datatype

__all__ = [
    "AttributeManager",
    "Dataset",
    "Datatype",
    "DimensionManager",
    "DimensionProxy",
    "Empty",
    "ExternalLink",
    "File",
    "Group",
    "HardLink",
    "MultiBlockSlice",
    "Reference",
    "RegionReference",
    "SoftLink",
    "check_dtype",
    "check_enum_dtype",
    "check_opaque_dtype",
    "check_ref_dtype",
    "check_string_dtype",
    "check_vlen_dtype",
    "enum_dtype",
    "is_hdf5",
    "opaque_dtype",
    "ref_dtype",
    "regionref_dtype",
    "special_dtype",
    "string_dtype",
    "vlen_dtype",
]


def __getattr__(name: str) -> Any:
    """Return what only h5py has: constants, versions, functions of its lower level."""
    if name.startswith("__"):
        raise AttributeError(f"module 'hyperslab.h5' has no attribute {name!r}")
    return getattr(_h5py, name)
