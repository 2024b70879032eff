"""What VirtualiZarr made of files that are read by nothing else here: NetCDF 3, FITS, TIFF."""

import pickle
import warnings

import numpy as np
import pytest

import hyperslab as hs
from hyperslab.errors import AccessError, InvalidInputError, NotFoundError, UnsupportedError

tifffile = pytest.importorskip("tifffile")
xr = pytest.importorskip("xarray")
fits = pytest.importorskip("astropy.io.fits")
netcdf_file = pytest.importorskip("scipy.io").netcdf_file
open_virtual_dataset = pytest.importorskip("virtualizarr").open_virtual_dataset
parsers = pytest.importorskip("virtualizarr.parsers")
VirtualTIFF = pytest.importorskip("virtual_tiff").VirtualTIFF
ObjectStoreRegistry = pytest.importorskip("obspec_utils.registry").ObjectStoreRegistry
LocalStore = pytest.importorskip("obstore.store").LocalStore

CELLS = np.random.default_rng(2).normal(0, 9, (5, 6, 8)).astype(">f4")
IMAGE = np.random.default_rng(2).integers(0, 9999, (64, 96)).astype("u2")


@pytest.fixture(scope="module")
def registry():
    return ObjectStoreRegistry({"file://": LocalStore()})


@pytest.fixture(scope="module")
def old(tmp_path_factory, registry):
    """A NetCDF 3 file with an axis without end, and its ManifestStore."""
    path = tmp_path_factory.mktemp("virtual") / "old.nc"
    with netcdf_file(path, "w") as file:
        file.title = "old"
        for name, length in (("time", None), ("y", 6), ("x", 8)):
            file.createDimension(name, length)
        file.createVariable("t", ">f4", ("time", "y", "x"))[:] = CELLS
        file.variables["t"].units = "K"
        file.createVariable("x", ">i4", ("x",))[:] = np.arange(8)
    return path, parsers.NetCDF3Parser()(url=str(path), registry=registry)


def test_netcdf_3_is_read_in_part(old):
    path, store = old
    group = hs.open(store, storage_options={"targets": [path.parent]})
    assert (list(group), group.attrs["title"]) == (["t", "x"], b"old") or group.attrs["title"] == "old"
    array = group["t"]
    assert (array.shape, array.dims, array.source.format) == (CELLS.shape, ("time", "y", "x"), "virtualizarr")
    assert np.array_equal(array[1:4, ::-2, 3], CELLS[1:4, ::-2, 3])
    assert np.array_equal(group["x"][...], np.arange(8))
    assert array.explain[2, 1, :].plan.estimate.fetched_bytes == 32
    with netcdf_file(path, mmap=False) as file:
        assert np.array_equal(array[...], file.variables["t"][:])


def test_datasets_and_their_parts_are_read_too(old, registry):
    path, store = old
    options = {"targets": str(path.parent)}
    dataset = open_virtual_dataset(
        f"file://{path}", registry=registry, parser=parsers.NetCDF3Parser(), loadable_variables=["x"]
    )
    for given in (dataset, store.to_virtual_datatree(), store._group):
        assert np.array_equal(hs.open(given, storage_options=options)["t"][3], CELLS[3])
    assert np.array_equal(hs.open(dataset)["x"][2:5], [2, 3, 4])
    for given in (dataset["t"], dataset["t"].variable, dataset["t"].data):
        assert np.array_equal(hs.open(given, storage_options=options)[3], CELLS[3])
    joined = xr.concat([dataset, dataset], "time", coords="minimal", compat="override", join="override")
    assert np.array_equal(hs.open(joined, storage_options=options)["t"][4:6], CELLS[[4, 0]])
    assert hs.open(joined["t"], storage_options=options).attrs["units"] in ("K", b"K")


def test_nothing_is_followed_that_was_not_named(old):
    path, store = old
    array = hs.open(store)["t"]
    with pytest.raises(AccessError, match="'targets'"):
        array[0]
    with pytest.raises(AccessError):
        hs.open(store, storage_options={"targets": ["s3://other"]})["t"][0]
    with pytest.raises(NotFoundError):
        hs.open(store)["nothing"]
    with pytest.raises(UnsupportedError, match="only read"):
        hs.open(store, mode="r+")
    with pytest.raises(InvalidInputError, match="string"):
        hs.open(3)
    assert path.is_file()


def test_handles_pickle_and_refresh(old):
    path, store = old
    array = hs.open(store, storage_options={"targets": [path.parent]})["t"]
    assert np.array_equal(pickle.loads(pickle.dumps(array))[0], CELLS[0])
    assert np.array_equal(array.refresh()[0], CELLS[0])


def test_xarray_and_copies(old, tmp_path):
    path, store = old
    array = hs.open(store, storage_options={"targets": [path.parent]})["t"]
    assert np.array_equal(hs.copy(array, tmp_path / "new.zarr")[...], CELLS)
    assert np.array_equal(array.to_dask()[1].compute(), CELLS[1])


def test_hdf5_by_manifests_is_what_the_file_holds(tmp_path, registry):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("a", data=IMAGE, chunks=(10, 20), compression="gzip", shuffle=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        store = parsers.HDFParser()(url=f"file://{tmp_path}/a.h5", registry=registry)
        array = hs.open(store, storage_options={"targets": [tmp_path]})["a"]
    assert np.array_equal(array[5:33, 90:], IMAGE[5:33, 90:])


def test_fits_is_read_in_part(tmp_path, registry):
    fits.PrimaryHDU(IMAGE.astype(">i2")).writeto(tmp_path / "a.fits")
    array = hs.open(
        parsers.FITSParser()(url=str(tmp_path / "a.fits"), registry=registry), storage_options={"targets": [tmp_path]}
    )["PRIMARY"]
    assert np.array_equal(array[7:9, ::5], fits.getdata(tmp_path / "a.fits")[7:9, ::5])
    assert array.explain[7].plan.estimate.fetched_bytes == 192


@pytest.mark.parametrize("compression", [None, "zlib", "zstd", "lzw"])
@pytest.mark.parametrize("how", [{"tile": (32, 32)}, {"rowsperstrip": 16}])
def test_tiff_is_read_by_tiles_and_strips(tmp_path, registry, compression, how):
    tifffile.imwrite(tmp_path / "a.tif", IMAGE, compression=compression, **how)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        store = VirtualTIFF(ifd=0)(url=f"file://{tmp_path}/a.tif", registry=registry)
        group = hs.open(store, storage_options={"targets": [tmp_path]})
        if compression == "lzw":
            with pytest.raises(UnsupportedError, match="lzw"):
                group["0"]
            return
        array = group["0"]
    assert np.array_equal(array[5:40, 3:90:2], IMAGE[5:40, 3:90:2])
