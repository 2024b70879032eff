"""The engine "hyperslab": the same datasets as xarray's own engines open, lazily, by few requests."""

import asyncio
import copy
import pickle
import warnings

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import times

import hyperslab as hs
from hyperslab.errors import BudgetError, InvalidInputError, NotFoundError
from hyperslab.store import memory

xr = pytest.importorskip("xarray")
netCDF4 = pytest.importorskip("netCDF4")
pytest.importorskip("h5netcdf")

ENGINES = {"a.nc": "h5netcdf", "a2.zarr": "zarr", "a3.zarr": "zarr"}
rng = np.random.default_rng(5)


def dataset():
    return xr.Dataset(
        {
            "t": (("time", "y", "x"), rng.random((4, 6, 8), np.float32), {"units": "K"}),
            "packed": (("y",), np.array([0.0, 0.1, np.nan, 0.3, 0.4, 0.5])),
            "names": (("x",), np.array(["a", "bb", "", "d", "e", "f", "g", "hé"], object)),
            "flag": ((), True),
        },
        coords={"time": np.datetime64("2020-01-01", "ns") + np.arange(4) * np.timedelta64(1, "D"),
                "x": np.arange(8), "y": np.linspace(-1, 1, 6), "area": (("y", "x"), rng.random((6, 8)))},
        attrs={"title": "hi", "number": 3, "several": [1, 2, 3]},
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One dataset as NetCDF-4 and as both versions of Zarr, written by xarray."""
    place, data = tmp_path_factory.mktemp("datasets"), dataset()
    packing = {"dtype": "i2", "scale_factor": 0.1, "_FillValue": -9}
    data.to_netcdf(place / "a.nc", engine="netcdf4", encoding={"packed": packing, "t": {"chunksizes": (1, 3, 4)}})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for version in (2, 3):
            encoding = {"packed": packing, "t": {"chunks": (1, 3, 4)}}
            data.to_zarr(place / f"a{version}.zarr", zarr_format=version, encoding=encoding)
    return place


def ours(url, **options):
    return xr.open_dataset(url, engine="hyperslab", **options)


@pytest.mark.parametrize("name", ENGINES)
def test_it_is_what_the_usual_engine_opens(folder, name):
    with ours(folder / name) as opened, xr.open_dataset(folder / name, engine=ENGINES[name]) as usual:
        xr.testing.assert_identical(opened.load(), usual.load())


@pytest.mark.parametrize("name", ENGINES)
def test_undecoded_it_is_the_same_too(folder, name):
    with ours(folder / name, decode_cf=False) as opened:
        assert opened["packed"].dtype == np.int16
        assert opened["packed"].attrs["_FillValue"] == -9
        assert opened["packed"].values[2] == -9


@st.composite
def selections(draw):
    """Draw a selection: of each axis a place, a slice, a list, or one of points that several axes share."""
    found = {}
    count = draw(st.integers(1, 3))
    for name, n in {"time": 4, "y": 6, "x": 8}.items():
        place = st.integers(-n, n - 1)
        kind = draw(st.sampled_from(["all", "place", "slice", "list", "points"]))
        if kind == "place":
            found[name] = draw(place)
        elif kind == "slice":
            found[name] = draw(st.slices(n))
        elif kind == "list":
            found[name] = draw(st.lists(place, max_size=4))
        elif kind == "points":
            found[name] = xr.DataArray(draw(st.lists(place, min_size=count, max_size=count)), dims="point")
    return found


@given(name=st.sampled_from(sorted(ENGINES)), selection=selections())
@settings(max_examples=times(60))
def test_every_selection_is_as_in_memory(folder, name, selection):
    with ours(folder / name) as opened:
        expected = opened["t"].copy(data=opened["t"].values).isel(selection)
    with ours(folder / name) as opened:
        xr.testing.assert_identical(opened["t"].isel(selection).load(), expected)


def test_points_beyond_the_limit_are_cut_out_of_the_box_around_them(folder, monkeypatch):
    monkeypatch.setattr("hyperslab.xarray.variables._MOST_POINTS", 2)
    rows, columns = xr.DataArray([5, 0, 2], dims="p"), xr.DataArray([7, 7, 1], dims="p")
    with ours(folder / "a3.zarr") as opened:
        found = opened["t"].isel(y=rows, x=columns).values
        assert np.array_equal(found, opened["t"].values[:, [5, 0, 2], [7, 7, 1]])


def test_chunks_are_those_that_are_stored_and_shards_where_there_are_any(folder):
    with ours(folder / "a.nc", chunks={}) as opened:
        assert opened["t"].chunks == ((1, 1, 1, 1), (3, 3), (4, 4))
    hs.save("memory://xarray-tests/shards", np.zeros((8, 8)), chunks=(2, 2), shards=(4, 8), dims=("y", "x"))
    with ours("memory://xarray-tests/shards", chunks={}) as opened:
        assert opened["shards"].chunks == ((4, 4), (8,))


@pytest.mark.parametrize("chunks", [None, {}])
def test_it_pickles_and_copies(folder, chunks):
    with ours(folder / "a.nc", chunks=chunks) as opened:
        for again in pickle.loads(pickle.dumps(opened)), copy.deepcopy(opened):
            xr.testing.assert_identical(again.load(), opened.compute())


def test_loading_does_not_block_the_loop(folder):
    with ours(folder / "a.nc") as opened, ours(folder / "a.nc") as other:
        # xarray itself has no such way for booleans.
        part = other.drop_vars("flag").isel(y=[4, 0])
        xr.testing.assert_identical(asyncio.run(part.load_async()), opened.load().drop_vars("flag").isel(y=[4, 0]))


def test_groups_and_trees(tmp_path):
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("x", 2)
        inner = file.createGroup("one/two")
        inner.createVariable("v", "i4", ("x",))[:] = [3, 4]
    with ours(tmp_path / "a.nc", group="/one/two") as opened:
        assert opened["v"].values.tolist() == [3, 4]
    tree = xr.open_datatree(tmp_path / "a.nc", engine="hyperslab")
    assert [node.path for node in tree.subtree] == ["/", "/one", "/one/two"]
    assert tree["one/two/v"].dims == ("x",)
    with pytest.raises(NotFoundError, match="no group 'three'"):
        ours(tmp_path / "a.nc", group="three")


def test_variables_that_were_written_less_far_are_filled_up(tmp_path):
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("t", None)
        file.createVariable("long", "i4", ("t",))[:] = np.arange(5)
        file.createVariable("short", "i4", ("t",), fill_value=-1)[:3] = np.arange(3)
    with ours(tmp_path / "a.nc", mask_and_scale=False) as opened:
        assert opened.encoding["unlimited_dims"] == {"t"}
        assert opened["short"].values.tolist() == [0, 1, 2, -1, -1]
        assert opened["short"][::-2].values.tolist() == [-1, 2, 0]
        assert opened["short"][4].item() == -1


def test_axes_without_names_get_some(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["square"], file["row"] = np.zeros((3, 3)), np.zeros(3)
    with ours(tmp_path / "a.h5") as opened:
        assert opened["row"].dims == ("phony_dim_0",)
        assert opened["square"].dims == ("phony_dim_0", "phony_dim_1")


def test_what_cannot_be_read_is_left_out_with_a_warning(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["good"], file["nothing"] = np.arange(3), h5py.Empty("f4")
        file["good"].attrs["to"] = file["good"].ref
    with pytest.warns(UserWarning, match="'nothing' .* is left out: .* no cells"):
        opened = ours(tmp_path / "a.h5")
    assert list(opened) == ["good"]
    assert opened["good"].attrs == {}
    with ours(tmp_path / "a.h5", drop_variables="nothing") as opened:
        assert list(opened) == ["good"]


def test_one_array_is_a_dataset_too(tmp_path):
    np.save(tmp_path / "cells.npy", np.arange(6).reshape(2, 3))
    with ours(tmp_path / "cells.npy") as opened:
        assert opened["cells"].values.tolist() == [[0, 1, 2], [3, 4, 5]]
    with xr.open_dataset(hs.open(tmp_path / "cells.npy"), engine="hyperslab") as opened:
        assert opened["cells"].shape == (2, 3)


def test_opening_reads_coordinates_by_one_plan_and_no_other_cells(folder):
    memory("xarray-tests").put("a.nc", (folder / "a.nc").read_bytes())
    with hs.Session(cache_bytes=0, index_bytes=1 << 20) as session:
        opened = ours("memory://xarray-tests/a.nc", session=session)
        before = session.metrics.requests
        assert before <= 2  # time, x and y lie near each other
        assert opened["t"].isel(time=0, y=0, x=0).values.shape == ()
        assert session.metrics.requests == before + 1


def test_the_sessions_budget_holds(folder):
    memory("xarray-tests").put("b.nc", (folder / "a.nc").read_bytes())
    with hs.Session(budget=hs.Budget(requests=0)) as session, pytest.raises(BudgetError):
        ours("memory://xarray-tests/b.nc", session=session).load()


def test_what_is_no_url_is_refused():
    with pytest.raises(InvalidInputError, match="opens URLs, paths and opened arrays"):
        ours(3)


def test_it_guesses_only_where_others_do_not():
    engine = xr.backends.list_engines()["hyperslab"]
    assert engine.guess_can_open("s3://bucket/a.nc")
    assert not engine.guess_can_open("a.nc")
    assert not engine.guess_can_open(3)
