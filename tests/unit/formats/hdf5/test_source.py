"""HDF5 files through the front door: strings, arrays in cells, links, dimensions, what is refused by name."""

import pickle

import h5py
import numpy as np
import pytest

import hyperslab as hs
from hyperslab.errors import InvalidInputError, NotFoundError, UnsupportedError
from hyperslab.store import memory


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.h5"


def everywhere(path, name="a"):
    """The dataset from the file, and from memory as a remote store."""
    memory("hdf5-source").put(path.name, path.read_bytes())
    return [hs.open(f"{path}/{name}"), hs.open(f"memory://hdf5-source/{path.name}/{name}")]


TEXTS = ["", "a", "Čáslav", "x" * 5000, "é" * 3]


@pytest.mark.parametrize("chunks", [None, (2, 2)])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_strings_of_any_length(path, chunks, encoding):
    texts = np.array([TEXTS, TEXTS[::-1]] if encoding == "utf-8" else [list("abcde"), list("vwxyz")], object)
    with h5py.File(path, "w") as file:
        file.create_dataset("a", data=texts, dtype=h5py.string_dtype(encoding), chunks=chunks)
    for array in everywhere(path):
        assert (array.shape, array.dtype) == ((2, 5), object)
        assert array[...].tolist() == texts.tolist()
        assert array[1, ::-2].tolist() == texts[1, ::-2].tolist()
        assert array[0, 3] == texts[0, 3]
        assert array.points[[0, 1], [2, 4]].tolist() == texts[[0, 1], [2, 4]].tolist()
        out = np.empty((2,), object)
        array.read(np.s_[:, 1], out=out)
        assert out.tolist() == texts[:, 1].tolist()


async def _aread(array):
    return await array.aread(np.s_[0])


def test_strings_without_blocking_the_loop(path):
    import asyncio

    with h5py.File(path, "w") as file:
        file.create_dataset("a", data=[TEXTS], chunks=(1, 2))
    for array in everywhere(path):
        assert asyncio.run(_aread(array)).tolist() == TEXTS


def test_strings_never_written(path):
    with h5py.File(path, "w") as file:
        file.create_dataset("a", (4,), h5py.string_dtype(), chunks=(2,))[0] = "x"
        file.create_dataset("b", (4,), h5py.string_dtype(), chunks=(2,), fillvalue="none")[0] = "x"
        before = [file[name][...].tolist() for name in "ab"]
    for name, expected in zip("ab", before, strict=True):
        for array in everywhere(path, name):
            assert [text.encode() for text in array[...]] == expected


def test_sequences_of_any_length(path):
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("a", (3,), h5py.vlen_dtype(np.int16))
        dataset[0], dataset[2] = [1, 2, 3], [-5]
    for array in everywhere(path):
        assert [cell.tolist() for cell in array[...]] == [[1, 2, 3], [], [-5]]
        assert array[0].dtype == np.int16


def test_strings_among_other_fields(path):
    dtype = np.dtype([("id", "<i4"), ("name", h5py.string_dtype())])
    with h5py.File(path, "w") as file:
        file.create_dataset("a", data=np.array([(1, "one"), (2, "zwölf")], dtype), dtype=dtype)
    for array in everywhere(path):
        assert array["name"].tolist() == ["one", "zwölf"]
        assert array[1]["id"] == 2


@pytest.mark.parametrize("filters", [{}, {"compression": "gzip", "shuffle": True}])
def test_cells_that_are_arrays(path, filters):
    data = np.arange(5 * 4 * 2 * 3, dtype="<i4").reshape(5, 4, 2, 3)
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("a", (5, 4), np.dtype(("<i4", (2, 3))), chunks=(2, 3), **filters)
        dataset[...] = data
    for array in everywhere(path):
        assert (array.shape, array.dtype) == (data.shape, data.dtype)
        assert np.array_equal(array[1:5:2, 3, :, ::-1], data[1:5:2, 3, :, ::-1])


@pytest.mark.parametrize("padding", [h5py.h5t.STR_NULLTERM, h5py.h5t.STR_NULLPAD, h5py.h5t.STR_SPACEPAD])
def test_fixed_strings_of_every_padding(path, padding):
    kind = h5py.h5t.C_S1.copy()
    kind.set_size(6)
    kind.set_strpad(padding)
    with h5py.File(path, "w") as file:
        space = h5py.h5s.create_simple((3,))
        dataset = h5py.h5d.create(file.id, b"a", kind, space)
        dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, np.array([b"ab", b"", b"hello"], "S6"))
    for array in everywhere(path):
        assert array[...].tolist() == [b"ab", b"", b"hello"]


def test_links_lead_to_what_they_name(path):
    with h5py.File(path, "w") as file:
        file["g/data"] = np.arange(6)
        file["hard"] = file["g/data"]
        file["soft"] = h5py.SoftLink("/g/data")
        file["far/soft"] = h5py.SoftLink("/g")
        file["lost"] = h5py.SoftLink("/nowhere")
        file["outside"] = h5py.ExternalLink("other.h5", "/x")
        file["loop"] = h5py.SoftLink("/loop")
    group = hs.open(path)
    assert sorted(group) == ["far", "g", "hard", "soft"]
    for name in ("hard", "soft", "g/data", "far/soft/data"):
        assert group[name][2:4].tolist() == [2, 3]
    with pytest.raises(UnsupportedError, match=r"'/x' of the file 'other\.h5'"):
        group["outside"]
    with pytest.raises(NotFoundError, match="nowhere"):
        group["lost"]
    with pytest.raises(hs.errors.HyperslabError, match="soft links"):
        group["loop"]


def test_attributes_and_dimensions(path):
    with h5py.File(path, "w") as file:
        file.attrs["title"] = "an example"
        file["time"] = np.arange(4.0)
        file["time"].make_scale("time")
        data = file.create_dataset("a", data=np.zeros((4, 2)))
        data.dims[0].attach_scale(file["time"])
        data.attrs.update({"units": "K", "range": [0.5, 2.5], "n": np.int16(3)})
    group = hs.open(path)
    assert dict(group.attrs) == {"title": "an example"}
    assert set(group["a"].attrs) == {"units", "range", "n"}
    assert (group["a"].dims, group["time"].dims) == (("time", None), ("time",))


def test_what_is_not_read_is_named(path, tmp_path):
    with h5py.File(tmp_path / "part.h5", "w") as file:
        file["x"] = np.arange(4)
    with h5py.File(path, "w") as file:
        layout = h5py.VirtualLayout((4,), "i8")
        layout[:] = h5py.VirtualSource(str(tmp_path / "part.h5"), "x", (4,))
        file.create_virtual_dataset("virtual", layout)
        file.create_dataset("external", (4,), "i4", external=[(str(tmp_path / "raw"), 0, 16)])
        file["nothing"] = h5py.Empty("f4")
        file["regions"] = np.array([file["virtual"].regionref[1:2]], h5py.regionref_dtype)
    group = hs.open(path)
    for name, words in (
        ("virtual", "virtual dataset"), ("external", "raw"), ("nothing", "no cells"), ("regions", "region"),
    ):  # fmt: skip
        with pytest.raises(UnsupportedError, match=words):
            group[name]


def test_a_dataset_pickles_and_is_read_only(path):
    with h5py.File(path, "w") as file:
        file.create_dataset("a", data=np.arange(30), chunks=(7,))
    array = hs.open(f"{path}/a")
    assert pickle.loads(pickle.dumps(array))[5:9].tolist() == [5, 6, 7, 8]
    array[0]
    assert pickle.loads(pickle.dumps(array))[5:9].tolist() == [5, 6, 7, 8]
    with pytest.raises((InvalidInputError, UnsupportedError), match="only read"):
        hs.open(f"{path}/a", mode="r+")[0] = 1


@pytest.mark.parametrize("name", ["data.h5", "data.NC", "granule", "no.suffix.at.all"])
def test_files_of_any_name(tmp_path, name):
    with h5py.File(tmp_path / name, "w") as file:
        file["g/a"] = np.arange(5)
    memory("hdf5-source").put(name, (tmp_path / name).read_bytes())
    for url in (tmp_path / name, f"memory://hdf5-source/{name}"):
        assert hs.open(url)["g/a"][1] == 1
        assert hs.open(url).refresh()["g"]["a"].refresh()[4] == 4
    with pytest.raises(NotFoundError, match="'h' should be there is 'g'"):
        hs.open(tmp_path / name)["h"]


def test_hdf5_in_the_middle_of_a_path_that_is_none(tmp_path):
    (tmp_path / "a.h5").write_bytes(b"CDF\x01 not at all")
    with pytest.raises(UnsupportedError, match="NetCDF 3"):
        hs.open(tmp_path / "a.h5")
    with pytest.raises(hs.errors.HyperslabError):
        hs.open(f"{tmp_path}/a.h5/b")
