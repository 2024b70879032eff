"""Names of axes: HDF5's dimension scales, NetCDF-4's dimensions, labels, and scales that lead nowhere."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from support.hdf5_files import LIBVERS, BytesFile, file_bytes, opened

from hyperslab.formats.hdf5.objects import HdfFile, open_file, user_attrs

libvers = pytest.mark.parametrize("libver", LIBVERS, ids="-".join)


def scaled(file: h5py.File) -> None:
    file["t"] = np.arange(3)
    file["deep/x"] = np.arange(4)
    file["deep/er/data"] = np.zeros((3, 4, 5))
    file["deep/er/bare"] = np.zeros((3, 4))
    file["aside/scale"] = np.arange(5)
    file["t"].make_scale("time of day")
    file["deep/x"].make_scale()
    file["aside/scale"].make_scale()
    data = file["deep/er/data"]
    for axis, name in enumerate(["/t", "/deep/x", "/aside/scale"]):
        data.dims[axis].attach_scale(file[name])
    file["deep/er/bare"].dims[1].label = "label"
    file["none"] = np.zeros((2, 2))
    file["scalar"] = 1


@libvers
def test_scales_and_labels(libver: tuple[str, str]) -> None:
    file = opened(file_bytes(scaled, libver=libver))
    assert file.find("deep/er/data").dims() == ("t", "x", "scale")
    assert file.find("t").dims() == ("t",)
    assert file.find("deep/er/bare").dims() == (None, "label")
    assert file.find("none").dims() is None
    assert file.find("scalar").dims() is None


def test_scale_found_by_a_soft_link_has_a_name() -> None:
    def fill(file: h5py.File) -> None:
        scaled(file)
        file["short"] = h5py.SoftLink("/deep/er/data")

    assert opened(file_bytes(fill)).find("short").dims() == ("t", "x", "scale")


def test_scale_without_a_name_gives_none() -> None:
    def fill(file: h5py.File) -> None:
        scaled(file)
        del file["t"]

    assert opened(file_bytes(fill)).find("deep/er/data").dims() == (None, "x", "scale")


@pytest.mark.parametrize(
    "value",
    [3, "text", np.zeros(3), np.zeros((3, 3), "u8"), np.array(["a", "b"], object), np.array([b"a", b"b", b"c"])],
    ids=["number", "text", "floats", "grid", "few", "bytes"],
)  # fmt: skip
def test_scales_of_a_wrong_type_are_none(value: Any) -> None:
    def fill(file: h5py.File) -> None:
        file["x"] = np.zeros((1, 2, 3))
        file["x"].attrs["DIMENSION_LIST"] = value
        file["x"].attrs["_Netcdf4Coordinates"] = value

    assert opened(file_bytes(fill)).find("x").dims() is None


def netcdf(path: Path) -> HdfFile:
    found = open_file(BytesFile(path.read_bytes()))
    assert found is not None
    return found


def test_netcdf4(tmp_path: Path) -> None:
    netCDF4 = pytest.importorskip("netCDF4")
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as data:
        data.title = "a title"
        for name, length in {"time": None, "lat": 3, "lon": 4, "nchar": 8}.items():
            data.createDimension(name, length)
        data.createVariable("time", "f8", ("time",)).units = "days since 2000-01-01"
        data.createVariable("lat", "f4", ("lat",))[:] = [1, 2, 3]
        air = data.createVariable("air", "f4", ("time", "lat", "lon"), zlib=True, fill_value=-9)
        air[:] = np.zeros((2, 3, 4))
        air.units = "K"
        data.createVariable("lon", "S1", ("lon", "nchar"))
        inner = data.createGroup("inner")
        inner.createDimension("depth", 2)
        inner.createVariable("water", "i2", ("depth", "lat"))[:] = 0
        inner.createVariable("name", str, ("depth",))[:] = np.array(["a", "b"], object)

    file = netcdf(tmp_path / "a.nc")
    assert user_attrs(file.root.attrs()) == {"title": "a title"}
    air = file.find("air")
    assert (air.shape, air.maxshape, air.dims()) == ((2, 3, 4), (None, 3, 4), ("time", "lat", "lon"))
    assert air.fill == np.float32(-9)
    assert user_attrs(air.attrs()) == {"units": "K", "_FillValue": np.float32(-9)}
    assert file.find("time").dims() == ("time",)
    assert file.find("lat").dims() == ("lat",)
    assert file.find("lon").dims() == ("lon", "nchar")
    assert file.find("inner/water").dims() == ("depth", "lat")
    assert file.find("inner/name").dims() == ("depth",)
    assert user_attrs(file.find("lat").attrs()) == {}
    assert [name for name, kind in file.root.kinds().items() if kind == "dimension"] == ["nchar"]


def test_h5netcdf(tmp_path: Path) -> None:
    h5netcdf = pytest.importorskip("h5netcdf")
    with h5netcdf.File(tmp_path / "a.nc", "w") as data:
        data.dimensions = {"x": 5, "y": 2}
        data.create_variable("v", ("y", "x"), float)[...] = 1
        data.create_variable("/grp/x", ("x",), "i4")[:] = range(5)
        data["v"].attrs["units"] = "m"

    file = netcdf(tmp_path / "a.nc")
    assert file.find("v").dims() == ("y", "x")
    assert file.find("grp/x").dims() == ("x",)
    assert user_attrs(file.find("v").attrs()) == {"units": "m"}
