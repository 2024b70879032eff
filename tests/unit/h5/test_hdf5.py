"""HDF5 files, opened in place: the same as h5py gives of them."""

import h5py
import numpy as np
import pytest

import hyperslab as hs
import hyperslab.h5
from hyperslab.errors import InvalidInputError, NotFoundError, UnsupportedError

ABOUT = (
    "name", "shape", "dtype", "maxshape", "chunks", "compression", "compression_opts", "shuffle", "fletcher32",
    "size", "nbytes", "ndim", "is_scale",
)  # fmt: skip


def fill(file):
    file["numbers"] = np.arange(60).reshape(3, 4, 5)
    file["scalar"] = 5.5
    settings = {"compression": "gzip", "compression_opts": 5, "shuffle": True, "fletcher32": True}
    file.create_dataset("g/packed", data=np.eye(10), chunks=(3, 4), maxshape=(None, 10), **settings)
    file.create_dataset("lzf", data=np.arange(10), compression="lzf", chunks=(5,))
    file["texts"], file["bytes"] = ["a", "bcd", "é"], [b"x", b"yz"]
    file["text"], file["fixed"] = "alone", np.array([b"ab", b"c"])
    file.create_dataset("utf8", data=np.array(["é".encode()], dtype=h5py.string_dtype("utf-8", 5)))
    file["enum"] = np.array([1, 2], dtype=h5py.enum_dtype({"A": 1, "B": 2}, "i4"))
    file["flags"] = np.array([True, False])
    file.create_dataset("cells", (4,), "(3,)f4")[1] = [1, 2, 3]
    file["rows"] = np.array([(1, b"x", 2.5)], dtype=[("a", "i4"), ("b", "S3"), ("c", "f8")])
    file["texts_in_rows"] = np.array([(1, "xx")], dtype=[("a", "i4"), ("t", h5py.string_dtype())])
    lists = file.create_dataset("lists", (2,), h5py.vlen_dtype("i4"))
    lists[0], lists[1] = [1, 2], [3]
    file["none"], file["complex"], file["big"] = np.zeros((0, 3)), np.array([1j]), np.arange(3, dtype=">i4")
    file.create_dataset("empty", dtype="f4")
    file["type"] = np.dtype("S10")
    file["soft"], file["dead"] = h5py.SoftLink("/g/packed"), h5py.SoftLink("/nothing")
    file["outside"], file["lost"] = h5py.ExternalLink("other.h5", "/q"), h5py.ExternalLink("gone.h5", "/q")
    file["again"], file["g/loop"] = file["g/packed"], file["g"]
    file["hours"] = np.arange(10)
    file["hours"].make_scale("time")
    file["g/packed"].dims[0].attach_scale(file["hours"])
    file["g/packed"].dims[1].label = "x"
    attrs = {
        "i": 5, "f": 2.5, "s": "text", "b": b"by", "list": [1, 2], "words": ["a", "b"], "flag": True, "c": 1j,
        "f4": np.float32(1), "rows": np.ones(2, [("a", "i4")]), "grid": np.eye(2),
    }  # fmt: skip
    file.attrs.update(attrs)
    file["numbers"].attrs["to"] = file["scalar"].ref


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hdf5")
    with h5py.File(folder / "all.h5", "w") as file:
        fill(file)
    with h5py.File(folder / "other.h5", "w") as file:
        file["q"] = [7]
    with h5py.File(folder / "all.h5") as theirs, hyperslab.h5.File(folder / "all.h5") as ours:
        yield theirs, ours


def same(one, other):
    if isinstance(one, h5py.Empty):
        return one == other
    if type(one) is not type(other) or getattr(one, "dtype", None) != getattr(other, "dtype", None):
        return False
    pairs = zip(np.ravel(one), np.ravel(other), strict=True)
    return np.shape(one) == np.shape(other) and all(np.array_equal(a, b) for a, b in pairs)


def test_names_and_links(files):
    seen = []
    for file in files:
        names, links = [], []
        file.visit(names.append)
        file.visititems_links(
            lambda name, link, links=links: links.append((name, type(link), getattr(link, "path", "")))
        )
        seen.append((names, links, list(file), len(file), list(reversed(file)), list(file["g"])))
    assert seen[0] == seen[1]
    assert "g/loop" not in seen[1][0]


def test_datasets(files):
    theirs, ours = files
    found = []

    def compare(name, dataset):
        if not isinstance(dataset, h5py.Dataset):
            return
        found.append(name)
        mine = ours[name]
        assert {each: getattr(dataset, each) for each in ABOUT} == {each: getattr(mine, each) for each in ABOUT}
        assert h5py.check_string_dtype(dataset.dtype) == h5py.check_string_dtype(mine.dtype)
        assert h5py.check_enum_dtype(dataset.dtype) == h5py.check_enum_dtype(mine.dtype)
        for key in ((), ...):
            assert same(dataset[key], mine[key]), name
        if dataset.shape:
            assert all(same(a, b) for a, b in zip(dataset, mine, strict=True))

    theirs.visititems(compare)
    assert len(found) == 20


def test_attributes(files):
    theirs, ours = files
    assert list(theirs.attrs) == list(ours.attrs)
    for name, value in theirs.attrs.items():
        assert same(value, ours.attrs[name]), name
    assert ours[ours["numbers"].attrs["to"]] == ours["scalar"]
    with pytest.raises(KeyError):
        ours.attrs["none"]
    with pytest.raises(ValueError, match="open it with mode"):
        ours.attrs["new"] = 1


def test_links(files):
    theirs, ours = files
    assert ours["soft"][0, 0] == 1
    assert ours["again"] == ours["g/packed"] == ours["g/loop/loop/packed"]
    assert list(ours["outside"][:]) == [7]
    assert ours["outside"].file.filename.endswith("other.h5")
    for name in ("dead", "lost", "nothing", "g/nothing"):
        assert (name in theirs) == (name in ours)
        assert ours.get(name) is None
        with pytest.raises(KeyError):
            ours[name]
    for name in ("soft", "outside", "g"):
        one, other = theirs.get(name, getlink=True), ours.get(name, getlink=True)
        assert (type(one), vars(one)) == (type(other), vars(other))
    assert ours["type"].dtype == theirs["type"].dtype


def test_dimension_scales_are_read(files):
    for file in files:
        dims = file["g/packed"].dims
        assert [(each.label, len(each), list(each.keys())) for each in dims] == [("", 1, ["time"]), ("x", 0, [])]
        assert list(dims[0][0][:3]) == list(dims[0]["time"][:3]) == [0, 1, 2]
        assert dims[0].values()[0].name == "/hours"
    with pytest.raises(TypeError):
        dims[1].attach_scale(file["hours"])
    with pytest.raises(TypeError):
        dims[1].label = "y"


def test_views(files):
    theirs, ours = files
    assert same(theirs["texts"].asstr()[:], ours["texts"].asstr()[:])
    assert ours["text"].asstr()[()] == "alone"
    assert same(theirs["numbers"].astype("f4")[1], ours["numbers"].astype("f4")[1])
    assert same(theirs["rows"].fields(["a", "c"])[:], ours["rows"].fields(["a", "c"])[:])
    assert same(theirs["rows"].fields("b")[0], ours["rows"].fields("b")[0])
    packed = ours["g/packed"]
    assert list(packed.iter_chunks(np.s_[2:5, 3])) == list(theirs["g/packed"].iter_chunks(np.s_[2:5, 3]))
    out = np.zeros((10, 10))
    packed.read_direct(out)
    packed.read_direct(out, np.s_[3, :5], np.s_[0, 5:])
    assert np.array_equal(out[1:], np.eye(10)[1:])
    assert list(out[0]) == [1, 0, 0, 0, 0, 0, 0, 0, 1, 0]
    assert np.array_equal(np.asarray(packed), np.eye(10))


def test_what_is_read_goes_through_a_session(files):
    path = files[1].filename
    with hs.Session() as session, hyperslab.h5.File(path, session=session) as file:
        assert file["g/packed"].array.explain[0].plan.requests
        file["g/packed"][4]
        assert session.metrics.snapshot().bytes > 0


def test_an_hdf5_file_is_never_written(files):
    path, ours = files[1].filename, files[1]
    for mode in ("r+",):
        with pytest.raises(UnsupportedError, match="only read"):
            hyperslab.h5.File(path, mode)
    for mode in ("w", "w-", "x"):
        with pytest.raises(FileExistsError):
            hyperslab.h5.File(path, mode)
    assert hyperslab.h5.File(path, "a").mode == "r"
    for change in (
        lambda: ours.create_group("new"),
        lambda: ours.create_dataset("new", data=[1]),
        lambda: ours.__delitem__("numbers"),
        lambda: ours["numbers"].__setitem__(0, 1),
        lambda: ours["numbers"].resize(3),
    ):
        with pytest.raises((InvalidInputError, NotFoundError)):
            change()


def test_closed_files_say_so(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = [1]
    file = hyperslab.h5.File(tmp_path / "a.h5")
    dataset = file["x"]
    file.close()
    assert not file
    assert not dataset
    assert "x" not in file
    assert repr(dataset) == "<Closed HDF5 dataset>"
    for use in (
        lambda: file["x"],
        lambda: dataset[0],
        lambda: dataset.shape,
        lambda: list(file),
        lambda: dict(file.attrs),
    ):
        with pytest.raises(ValueError, match="closed"):
            use()
