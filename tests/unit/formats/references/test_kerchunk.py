"""Reference files that kerchunk wrote: the same cells as h5py, scipy, and xarray by way of fsspec."""

import json
import pickle

import h5py
import numpy as np
import pytest
from support.arrays import copy_to_memory, logging_store, sent

import hyperslab as hs
from hyperslab.errors import ConflictError, NotFoundError, UnsupportedError
from hyperslab.store import memory

xr = pytest.importorskip("xarray")
pytest.importorskip("fastparquet")
MultiZarrToZarr = pytest.importorskip("kerchunk.combine").MultiZarrToZarr
refs_to_dataframe = pytest.importorskip("kerchunk.df").refs_to_dataframe
SingleHdf5ToZarr = pytest.importorskip("kerchunk.hdf").SingleHdf5ToZarr
NetCDF3ToZarr = pytest.importorskip("kerchunk.netCDF3").NetCDF3ToZarr

CELLS = np.random.default_rng(4).integers(-900, 900, (8, 9, 10)).astype("i2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two NetCDF 4 files, one NetCDF 3 file, and references to them: of one, of both, in Parquet."""
    made = tmp_path_factory.mktemp("kerchunk")
    for number, part in enumerate((CELLS[:4], CELLS[4:])):
        with h5py.File(made / f"{number}.h5", "w") as file:
            file.attrs["title"] = "two files"
            for name, length in (("time", 4), ("y", 9), ("x", 10)):
                file[name] = np.arange(length) + 4.0 * number * (name == "time")
                file[name].make_scale(name)
            packed = file.create_dataset(
                "t", data=part, chunks=(2, 9, 5), compression="gzip", shuffle=True, fillvalue=-1
            )
            plain = file.create_dataset("plain", data=part * 2)
            for each in (packed, plain):
                for axis, name in enumerate(("time", "y", "x")):
                    each.dims[axis].attach_scale(file[name])
            packed.attrs["units"] = "K"
            sparse = file.create_dataset("g/sparse", (6, 6), "<f4", chunks=(2, 3), fillvalue=np.nan)
            sparse[:2, :3] = number
    each = [SingleHdf5ToZarr(str(made / f"{n}.h5"), inline_threshold=0).translate() for n in range(2)]
    (made / "one.json").write_text(json.dumps(each[0]))
    both = MultiZarrToZarr(
        each, concat_dims=["time"], identical_dims=["x", "y"], preprocess=_without_group, inline_threshold=100
    ).translate()
    (made / "both.json").write_text(json.dumps(both))
    refs_to_dataframe(both, str(made / "both.parq"), record_size=3)
    data = xr.Dataset({"v": (("time", "x"), CELLS[0].astype("f4")[:, :8])})
    data.to_netcdf(made / "old.nc", format="NETCDF3_CLASSIC", engine="scipy", unlimited_dims=["time"])
    old = NetCDF3ToZarr(str(made / "old.nc"), inline_threshold=0).translate()
    (made / "old.json").write_text(json.dumps(old))
    return made


def _without_group(refs):
    return {name: ref for name, ref in refs.items() if not name.startswith("g/")}


def test_one_file_reads_as_h5py_reads_it(folder):
    group = hs.open(folder / "one.json")
    assert list(group) == ["g", "plain", "t", "time", "x", "y"]
    assert group.attrs["title"] == "two files"
    assert list(group["g"]) == ["sparse"]
    with h5py.File(folder / "0.h5") as file:
        for name in ("t", "plain", "time", "g/sparse"):
            assert np.array_equal(group[name][...], file[name][...], equal_nan=name == "g/sparse")
    array = hs.open(f"{folder}/one.json/t")
    assert (array.dims, array.attrs["units"], array.fill_value) == (("time", "y", "x"), "K", -1)
    assert np.array_equal(array[1:, ::-3, [9, 0]], CELLS[1:4, ::-3][:, :, [9, 0]])


@pytest.mark.parametrize("name", ["both.json", "both.parq"])
def test_several_files_read_as_one_array(folder, name):
    assert np.array_equal(hs.open(folder / name / "t")[...], CELLS)
    assert np.array_equal(hs.open(folder / name)["plain"][3:5, 2], CELLS[3:5, 2] * 2)
    assert np.array_equal(hs.open(folder / name)["time"][...], np.arange(8.0))


@pytest.mark.parametrize("name", ["both.json", "both.parq", "one.json", "old.json"])
def test_xarray_finds_what_it_finds_by_fsspec(folder, name):
    ours = xr.open_dataset(folder / name, engine="hyperslab").load()
    options = {"fo": str(folder / name)} | ({"lazy": True, "remote_protocol": "file"} if name.endswith("parq") else {})
    theirs = xr.open_dataset(
        "reference://", engine="zarr", backend_kwargs={"consolidated": False, "storage_options": options}
    )
    xr.testing.assert_identical(ours, theirs.load())


def test_netcdf_3_by_references(folder):
    array = hs.open(folder / "old.json" / "v")
    assert np.array_equal(array[2:5, ::3], CELLS[0].astype("f4")[2:5, :8:3])


def test_only_the_files_of_a_selection_are_read(folder):
    copy_to_memory(folder, "kerchunk-lazy")
    # A copy refers to what lies beside it, by relative paths.
    document = json.loads((folder / "both.parq" / ".zmetadata").read_text())
    assert document["record_size"] == 3
    with logging_store() as made:
        array = hs.open(f"memory://kerchunk-lazy/{folder.name}/both.parq/t")
    assert [key.rpartition("/")[2] for key, _, _ in sent(made[0])] == [".zmetadata"]
    array.source.chunks.lookup(*_wanted(array, np.s_[0, 0, 0]))
    assert [key.rpartition("/")[2] for key, _, _ in sent(made[0])] == ["refs.0.parq"]
    array.source.chunks.lookup(*_wanted(array, np.s_[7, 0, 9]))
    assert [key.rpartition("/")[2] for key, _, _ in sent(made[0])] == ["refs.2.parq"]
    array.source.chunks.lookup(*_wanted(array, np.s_[6:, :, 0]))
    assert sent(made[0]) == []


def _wanted(array, key):
    from hyperslab.execute import StoreReader
    from hyperslab.plan import pieces_of
    from hyperslab.selection import parse

    return StoreReader(array.session, array.store), pieces_of(array.source.layout, parse(key, array.shape))


@pytest.mark.parametrize("name", ["both.json", "both.parq"])
def test_handles_pickle_without_what_they_hold(folder, name):
    array = hs.open(folder / name / "t")
    array[0]
    packed = pickle.dumps(array)
    assert len(packed) < 4000
    assert np.array_equal(pickle.loads(packed)[...], CELLS)


def test_references_that_changed_meanwhile_are_a_conflict(folder, tmp_path):
    text = (folder / "one.json").read_text()
    (tmp_path / "one.json").write_text(text)
    packed = pickle.dumps(hs.open(tmp_path / "one.json" / "t"))
    (tmp_path / "one.json").write_text(text + " ")
    with pytest.raises(ConflictError, match="open them again"):
        pickle.loads(packed)[0]


def test_copies_and_other_layouts_are_made_of_references(folder, tmp_path):
    copy = hs.copy(folder / "both.json", tmp_path / "copy.zarr")
    assert np.array_equal(copy["t"][...], CELLS)
    hs.rechunk(hs.open(folder / "both.parq" / "t"), tmp_path / "turned.zarr", chunks=(8, 3, 3))
    assert np.array_equal(hs.open(tmp_path / "turned.zarr")[...], CELLS)
    with pytest.raises(UnsupportedError, match="only read"):
        hs.open(folder / "both.json", mode="r+")


def test_names_that_are_not_there(folder):
    for name in ("one.json/nothing", "both.parq/nothing", "one.json/t/0.0.0"):
        with pytest.raises(NotFoundError):
            hs.open(folder / name)


def test_a_file_that_is_not_called_json(folder, tmp_path):
    (tmp_path / "index").write_text((folder / "one.json").read_text().replace(str(folder), str(tmp_path)))
    (tmp_path / "0.h5").write_bytes((folder / "0.h5").read_bytes())
    assert np.array_equal(hs.open(tmp_path / "index")["t"][...], CELLS[:4])


def test_paths_are_relative_to_the_reference_file():
    memory("relative").put("runs/data/x", np.arange(4, dtype="<i4").tobytes())
    zarray = {"zarr_format": 2, "shape": [4], "chunks": [2], "dtype": "<i4", "order": "C", "fill_value": 0,
              "filters": None, "compressor": None}  # fmt: skip
    refs = {"a/.zarray": json.dumps(zarray), "a/0": ["data/x", 0, 8], "a/1": ["./data/x", 8, 8], "a/2": ["x", 0, 1]}
    memory("relative").put("runs/refs.json", json.dumps({"version": 1, "refs": refs}).encode())
    with logging_store() as made:
        array = hs.open("memory://relative/runs/refs.json/a", session=hs.Session(profile="s3"))
    assert np.array_equal(array[...], np.arange(4))
    assert sent(made[0]) == [("runs/data/x", (0, 16), False), ("runs/refs.json", None, False)]


def test_templates_are_filled_in():
    memory("templates").put("d/x", np.arange(2, dtype="<i4").tobytes())
    zarray = {"zarr_format": 2, "shape": [2], "chunks": [2], "dtype": "<i4", "order": "C", "fill_value": None}
    refs = {"a/.zarray": zarray, "a/0": ["{{ u }}/{{n}}"]}
    document = {"version": 1, "templates": {"u": "memory://templates/d", "n": "x"}, "refs": refs}
    memory("templates").put("refs.json", json.dumps(document).encode())
    assert np.array_equal(hs.open("memory://templates/refs.json/a")[...], [0, 1])
