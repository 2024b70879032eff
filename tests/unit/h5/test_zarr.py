"""Files that are made: Zarr groups, with what Zarr has no words for noted beside."""

import pickle

import h5py
import numpy as np
import pytest
import zarr

import hyperslab as hs
import hyperslab.h5
from hyperslab.errors import InvalidInputError, UnsupportedError
from hyperslab.h5.notes import NOTES


@pytest.fixture(params=["disk", "memory"])
def url(request, tmp_path):
    name = request.node.name.translate({ord("["): "-", ord("]"): None})
    return str(tmp_path / "file.h5") if request.param == "disk" else f"memory://h5-zarr/{name}/file.h5"


@pytest.fixture
def file(url):
    with hyperslab.h5.File(url, "w") as opened:
        yield opened


def again(file):
    """Return the same file, opened anew."""
    return hyperslab.h5.File(file.filename)


class TestModes:
    def test_what_is_not_there(self, url):
        for mode in ("r", "r+"):
            with pytest.raises(FileNotFoundError):
                hyperslab.h5.File(url, mode)
        assert not hyperslab.h5.is_hdf5(url)
        with pytest.raises(ValueError, match="mode"):
            hyperslab.h5.File(url, "rw")

    @pytest.mark.parametrize("mode", ["w", "w-", "x", "a"])
    def test_made_then_opened(self, url, mode):
        with hyperslab.h5.File(url, mode) as made:
            made["x"] = [1, 2]
            assert made.mode == "r+"
        assert hyperslab.h5.is_hdf5(url)
        for other in ("w-", "x"):
            with pytest.raises(FileExistsError):
                hyperslab.h5.File(url, other)
        with hyperslab.h5.File(url, "a") as more:
            more["y"] = 3
        with hyperslab.h5.File(url) as read:
            assert (list(read), read.mode, read.filename) == (["x", "y"], "r", url)
            for change in (
                lambda: read.create_group("z"), lambda: read["x"].__setitem__(0, 5), lambda: read.attrs.create("a", 1),
                lambda: read.__delitem__("x"),
            ):  # fmt: skip
                with pytest.raises(ValueError, match="r\\+"):
                    change()
        with hyperslab.h5.File(url, "w") as new:
            assert list(new) == []

    def test_only_paths_and_urls_are_opened(self):
        with pytest.raises(TypeError, match="path or URL"):
            hyperslab.h5.File(open)
        hs.save("memory://h5-zarr/array", np.arange(3), overwrite=True)
        with pytest.raises(UnsupportedError, match="array"):
            hyperslab.h5.File("memory://h5-zarr/array")


CELLS = {
    "numbers": np.arange(12, dtype="i2").reshape(3, 4),
    "flags": np.array([True, False]),
    "complex": np.array([1 + 2j]),
    "half": np.ones(3, "f2"),
    "bytes": np.array([b"ab", b"c"]),
    "rows": np.array([(1, 2.5), (3, 4.5)], dtype=[("a", "i4"), ("b", "f8")]),
    "enum": np.array([1, 2], dtype=h5py.enum_dtype({"A": 1, "B": 2}, "i4")),
    "times": np.array(["2024-05-01"], "M8[s]").astype(h5py.opaque_dtype("M8[s]")),
    "nothing": np.zeros((0, 3), "f4"),
    "one": np.array(7),
}


@pytest.mark.parametrize("name", CELLS)
def test_cells_come_back(file, name):
    file[name] = CELLS[name]
    for found in (file[name], again(file)[name]):
        assert found.dtype == CELLS[name].dtype
        assert h5py.check_enum_dtype(found.dtype) == h5py.check_enum_dtype(CELLS[name].dtype)
        assert np.array_equal(found[()], CELLS[name])
        assert found[()].dtype == CELLS[name].dtype


class TestTexts:
    @pytest.mark.parametrize(
        "given", ["alone", ["a", "bcé"], [["a"], ["b"]], [b"x", b"yz"], np.array(["a", "b"], object)]
    )
    def test_they_come_back(self, file, given):
        file["texts"] = given
        with h5py.File.in_memory() as oracle:
            oracle["texts"] = given
            for found in (file["texts"], again(file)["texts"]):
                assert h5py.check_string_dtype(found.dtype) == h5py.check_string_dtype(oracle["texts"].dtype)
                assert np.array_equal(found[()], oracle["texts"][()])
                assert np.array_equal(found.asstr()[()], oracle["texts"].asstr()[()])
                assert type(found[()]) is type(oracle["texts"][()])

    def test_longer_ones_get_room(self, file):
        texts = file.create_dataset("texts", (3,), h5py.string_dtype())
        beside = file["texts"]
        texts[0] = "short"
        texts.attrs["kept"] = 1
        texts[1:] = ["x" * 500, "é" * 200]
        assert list(file) == ["texts"]
        for found in (texts, beside, again(file)["texts"]):
            assert list(found.asstr()[:]) == ["short", "x" * 500, "é" * 200]
            assert dict(found.attrs) == {"kept": 1}

    def test_in_fields(self, file):
        dtype = np.dtype([("n", "i4"), ("t", h5py.string_dtype())])
        rows = file.create_dataset("rows", (2,), dtype)
        rows[0] = (1, "x" * 99)
        rows["n", 1] = 5
        found = again(file)["rows"]
        assert found.dtype == dtype
        assert found[0].item() == (1, b"x" * 99)
        assert list(found["t"]) == [b"x" * 99, b""]
        assert list(found["n"]) == [1, 5]
        assert found.fields("t")[0] == b"x" * 99

    def test_what_is_no_text_is_refused(self, file):
        texts = file.create_dataset("texts", (3,), h5py.string_dtype("ascii"))
        with pytest.raises(UnicodeEncodeError):
            texts[0] = "é"
        for value in (5, np.array(["a"]), "a\0b", None):
            with pytest.raises(TypeError):
                texts[0] = value
        with pytest.raises(TypeError):
            file["wide"] = np.array(["a"])
        assert texts[0] == b""


class TestCellsThatAreArrays:
    def test_they_are_further_axes(self, file):
        cells = file.create_dataset("cells", (4, 2), "(3,)f4")
        cells[1, 0] = [1, 2, 3]
        cells[2:] = np.arange(12).reshape(2, 2, 3)
        found = again(file)["cells"]
        assert (found.shape, found.dtype, found.ndim, found.maxshape) == ((4, 2), np.dtype("(3,)f4"), 2, (4, 2))
        assert found[...].shape == (4, 2, 3)
        assert list(found[1, 0]) == [1, 2, 3]
        mask = np.zeros((4, 2), bool)
        mask[1, 0] = True
        cells[mask] = [[7, 8, 9]]
        assert np.array_equal(found.array.refresh()[1, 0], [7, 8, 9])
        with pytest.raises(TypeError):
            cells[...] = 42


class TestDatasets:
    def test_empty(self, file):
        file.create_dataset("a", dtype="S5")
        file["b"] = h5py.Empty("f4")
        for found in (file, again(file)):
            assert found["a"][()] == h5py.Empty("S5")
            assert found["b"][...] == h5py.Empty("f4")
            assert (found["a"].shape, found["a"].size, found["a"].maxshape, found["a"].nbytes) == (None, None, None, 0)
            with pytest.raises(ValueError, match="no cells"):
                found["a"][0]

    def test_growing(self, file):
        grows = file.create_dataset("grows", (2, 3), "i4", maxshape=(None, 6), chunks=(2, 3), fillvalue=7)
        beside = file["grows"]
        grows[:] = 1
        grows.resize(4, axis=0)
        grows.resize((4, 5))
        assert beside.shape == again(file)["grows"].shape == (4, 5)
        assert again(file)["grows"].maxshape == (None, 6)
        expected = np.full((4, 5), 7)
        expected[:2, :3] = 1
        assert np.array_equal(beside[...], expected)
        for wrong in ((4, 7), (4,), (4, 5, 6)):
            with pytest.raises(TypeError):
                grows.resize(wrong)
        with pytest.raises(TypeError):
            file.create_dataset("stays", (2,), "i4").resize((3,))

    def test_arrays_of_others_may_grow(self, file, url):
        hs.create_group(url, overwrite=True).save("theirs", np.arange(3))
        with hyperslab.h5.File(url, "r+") as opened:
            opened["theirs"].resize((5,))
            assert list(opened["theirs"]) == [0, 1, 2, 0, 0]

    def test_wrong_wishes_are_refused(self, file):
        for error, settings in [
            (TypeError, {}),
            (TypeError, {"shape": (2,), "dtype": "i4", "unheard": 1}),
            (ValueError, {"shape": (2,), "data": [1, 2, 3]}),
            (ValueError, {"shape": (2,), "dtype": "i4", "chunks": (3,)}),
            (ValueError, {"shape": (2,), "dtype": "i4", "compression": "best"}),
            (ValueError, {"shape": (2,), "dtype": "i4", "compression": "gzip", "compression_opts": 10}),
            (ValueError, {"shape": (2,), "dtype": "i4", "maxshape": (1,)}),
            (TypeError, {"shape": (), "dtype": "i4", "chunks": (1,)}),
            (TypeError, {"shape": (2,), "dtype": h5py.vlen_dtype("i4")}),
            (TypeError, {"data": object()}),
        ]:
            with pytest.raises(error):
                file.create_dataset("wrong", **settings)
        assert list(file) == []

    def test_required(self, file):
        made = file.require_dataset("a/b", (3,), "f8")
        assert file.require_dataset("a/b", (3,), "f4") == made
        for shape, dtype, exact in (((4,), "f8", False), ((3,), "c16", False), ((3,), "f4", True)):
            with pytest.raises(TypeError):
                file.require_dataset("a/b", shape, dtype, exact=exact)
        with pytest.raises(TypeError):
            file.require_group("a/b")
        with pytest.raises(TypeError):
            file.require_dataset("a", (3,), "f8")
        like = file.create_dataset_like("c", file.create_dataset("d", (2,), "i4", maxshape=(5,), fillvalue=3))
        assert (like.shape, like.maxshape, like.dtype, list(like)) == ((2,), (5,), np.dtype("i4"), [3, 3])


class TestGroups:
    def test_links(self, file):
        file["g/x"] = [1, 2, 3]
        file["soft"], file["g/near"], file["dead"] = h5py.SoftLink("/g/x"), h5py.SoftLink("x"), h5py.SoftLink("/no")
        for found in (file, again(file)):
            assert list(found["soft"][:]) == list(found["g/near"][:]) == [1, 2, 3]
            assert list(found) == ["dead", "g", "soft"]
            assert found.get("soft", getlink=True).path == "/g/x"
            assert "dead" in found
            assert found.get("dead") is None
            with pytest.raises(KeyError):
                found["dead"]
        file["round"], file["about"] = h5py.SoftLink("/about"), h5py.SoftLink("/round")
        with pytest.raises(KeyError, match="links"):
            file["round"]
        del file["soft"]
        assert "soft" not in file
        assert "g/x" in file
        file["group"] = h5py.SoftLink("g")
        file["group/new"] = 5
        assert file["g/new"][()] == 5

    def test_external_links(self, file, url):
        with hyperslab.h5.File(url.replace("file.h5", "other.h5"), "w") as other:
            other["a/b"] = [5]
        file["out"] = h5py.ExternalLink("other.h5", "/a")
        file["lost"] = h5py.ExternalLink("gone.h5", "/a")
        assert list(again(file)["out/b"][:]) == [5]
        assert "lost" in file
        with pytest.raises(KeyError):
            file["lost"]

    def test_links_stay_in_their_store(self, tmp_path):
        hs.save("memory://h5-other/x/y", np.arange(3), overwrite=True)
        with hyperslab.h5.File("memory://h5-zarr/links/a.h5", "w") as file:
            for number, name in enumerate(
                ["/etc/x.h5", "s3://b/x.h5", "memory://h5-other/x", "../../../x.h5", "file:///x"]
            ):
                file[str(number)] = h5py.ExternalLink(name, "/y")
                with pytest.raises(KeyError, match="store"):
                    file[str(number)]
        with hyperslab.h5.File(tmp_path / "a.h5", "w") as file:
            file["out"] = h5py.ExternalLink("memory://h5-other/x", "/y")
            with pytest.raises(KeyError, match="store"):
                file["out"]

    def test_what_was_deleted_reads_as_nothing(self, file):
        part = file.create_dataset("g/part", (4,), "i4")
        part[1] = 5
        del file["g"]
        with pytest.raises(KeyError, match="deleted"):
            part[:]
        with pytest.raises(KeyError, match="deleted"):
            part[0] = 1
        assert "g" not in file
        file["g/part"] = [7]
        assert list(file["g/part"]) == [7]

    def test_an_opened_group_as_a_file(self, file):
        file["x"] = [1, 2]
        opened = hs.open(file.filename, "r+")
        with hyperslab.h5.File(opened) as read, pytest.raises(ValueError, match="read"):
            read["y"] = 1
        with hyperslab.h5.File(opened, "r+") as written:
            written["y"] = 1
        assert list(again(file)) == ["x", "y"]
        for mode in ("w", "x"):
            with pytest.raises(ValueError, match="URL"):
                hyperslab.h5.File(opened, mode)

    def test_a_second_name_is_refused(self, file):
        file["x"] = 1
        with pytest.raises(UnsupportedError, match="SoftLink"):
            file["y"] = file["x"]

    def test_deleting_moving_copying(self, file):
        file["g/x"] = [1, 2, 3]
        file["g/x"].attrs["units"] = "m"
        file["g/texts"] = ["a", "b"]
        file.move("g", "deep/h")
        assert "g" not in file
        file.copy("deep/h", "k")
        file.copy(file["deep/h/x"], file["k"], name="y")
        del file["deep"]
        found = again(file)
        assert list(found) == ["k"]
        assert list(found["k"]) == ["texts", "x", "y"]
        assert list(found["k/texts"].asstr()[:]) == ["a", "b"]
        assert found["k/y"].attrs["units"] == "m"
        with pytest.raises(KeyError):
            del file["deep"]
        with pytest.raises(ValueError, match="exists"):
            file.create_group("k/x")

    def test_nothing_is_put_into_itself(self, file):
        file["g/x"] = [1]
        for put in (file.move, file.copy):
            for into in ("g/new", "g/deep/new"):
                with pytest.raises(ValueError, match="itself"):
                    put("g", into)
        with pytest.raises(ValueError, match="itself"):
            file.copy("/", "all")
        assert file["g/x"][0] == 1

    def test_copies_keep_chunks_and_fill_values(self, file):
        old = file.create_dataset("old", (4, 4), "i4", chunks=(2, 3), maxshape=(None, 4), fillvalue=7)
        old[0] = 1
        file.copy("old", "new")
        new = file["new"]
        assert (new.chunks, new.fillvalue, new.maxshape) == ((2, 3), 7, (None, 4))
        new.resize(5, axis=0)
        assert new[:, 0].tolist() == [1, 7, 7, 7, 7]

    def test_new_paths_through_links(self, file):
        file.create_group("g")
        file["link"], file["dead"] = h5py.SoftLink("/g"), h5py.SoftLink("/no")
        file["link/deep/x"] = [1]
        file.create_group("link/deeper/y")
        file["link/soft/s"] = h5py.SoftLink("/g/deep/x")
        assert sorted(file["g"]) == ["deep", "deeper", "soft"]
        assert file["g/soft/s"][0] == file["link/deep/x"][0] == 1
        with pytest.raises(KeyError):
            file["dead/x"] = 1
        assert list(again(file)) == ["dead", "g", "link"]

    def test_from_an_hdf5_file(self, file, tmp_path):
        with h5py.File(tmp_path / "source.h5", "w") as source:
            source["g/texts"], source["g/x"] = ["a", "bcd"], np.arange(6).reshape(2, 3)
            source["g"].attrs["title"] = "t"
            source["g/x"].attrs["scale"] = np.float32(2)
            source["g/hours"] = np.arange(2)
            source["g/hours"].make_scale("hours")
            source["g/x"].dims[0].attach_scale(source["g/hours"])
            source["g/big"] = np.arange(3, dtype=">i4")
        with hyperslab.h5.File(tmp_path / "source.h5") as source:
            source.copy("g", file)
        found = again(file)["g"]
        assert list(found["texts"].asstr()[:]) == ["a", "bcd"]
        assert np.array_equal(found["x"][...], np.arange(6).reshape(2, 3))
        assert (found.attrs["title"], dict(found["x"].attrs)) == ("t", {"scale": np.float32(2)})
        assert list(found["big"]) == [0, 1, 2]

    def test_named_types(self, file):
        file["type"] = np.dtype([("a", "i4"), ("b", "S3")])
        found = again(file)["type"]
        assert isinstance(found, hyperslab.h5.Datatype)
        assert found.dtype == np.dtype([("a", "i4"), ("b", "S3")])
        assert file.create_dataset("x", (2,), file["type"]).dtype == found.dtype

    def test_as_a_mapping(self, file):
        file.update({"a": [1], "b": [2]})
        assert {name: found[0] for name, found in file.items()} == {"a": 1, "b": 2}
        assert file.pop("a") is not None
        assert file.setdefault("b") == file["b"]
        file.clear()
        assert len(file) == 0
        for name in ("", None, 5):
            assert name not in file
        assert "/" in file
        assert file["/"] == file["."] == file == file["/"].parent


def test_objects_pickle(tmp_path):
    with hyperslab.h5.File(tmp_path / "f.h5", "w") as file:
        file["g/x"] = [1, 2, 3]
        for found in (file, file["g"], file["g/x"]):
            copy = pickle.loads(pickle.dumps(found))
            assert (type(copy), copy.name, copy.file.mode) == (type(found), found.name, "r+")
        copy[1] = 7
    assert list(hyperslab.h5.File(tmp_path / "f.h5")["g/x"]) == [1, 7, 3]
    with pytest.raises(ValueError, match="closed"):
        pickle.dumps(file)


def test_other_programs_see_arrays_and_attributes(tmp_path):
    with hyperslab.h5.File(tmp_path / "f.h5", "w") as file:
        file.create_dataset("g/x", data=np.arange(6.0), chunks=(2,))
        file["g/x"].attrs.update({"units": "m", "scale": np.float32(0.5), "range": [1, 2]})
        file["g/texts"] = ["ab", "c"]
    group = zarr.open_group(str(tmp_path / "f.h5"), mode="r")
    assert list(group["g/x"][:]) == [0, 1, 2, 3, 4, 5]
    assert {k: v for k, v in group["g/x"].attrs.items() if not k.startswith("_")} == {
        "units": "m", "scale": 0.5, "range": [1, 2],
    }  # fmt: skip
    assert list(group["g/texts"][:]) == [b"ab", b"c"]
    assert hs.open(str(tmp_path / "f.h5/g/x")).chunks == (2,)


def test_notes_that_are_damaged_are_typed_errors(url):
    notes = [
        5, {"form": 5}, {"form": {"enum": 5}}, {"form": {"enum": {"A": "x"}}}, {"form": {"string": "utf-8"}},
        {"form": {"cell": [2]}}, {"form": {"cell": [3, 3]}}, {"maxshape": [1, 2, 3]}, {"maxshape": ["a"]},
        {"values": []},
    ]  # fmt: skip
    group = hs.create_group(url, overwrite=True)
    for number, note in enumerate(notes):
        group.save(str(number), np.arange(3), attrs={NOTES: note})
    kinds = {"a": {"dtype": "S900000000"}, "b": {"raw": {"descr": "O"}, "shape": [1]}, "c": 5, "d": {"dtype": "none"}}
    group.save(
        "attrs", np.arange(3), attrs={"a": ["x"] * 9, "b": "AAAA", "c": 1, "d": 1, "good": 1, NOTES: {"values": kinds}}
    )
    group.create_group("links", attrs={NOTES: {"links": {"a": 5, "b": ["hard", "/", ""], "c": ["soft", "/", 1]}}})
    group.create_group("wrong", attrs={NOTES: {"links": []}})
    group.create_group("type", attrs={NOTES: {"datatype": {"descr": [1]}}})
    with hyperslab.h5.File(url) as file:
        for name in [*map(str, range(len(notes))), "links/a", "links/b", "links/c", "wrong", "type"]:
            with pytest.raises(hs.errors.MetadataError):
                file[name]
        assert (len(file["attrs"].attrs), file["attrs"].attrs["good"]) == (5, 1)
        for name in kinds:
            with pytest.raises(hs.errors.FormatError, match=r"noted|understood"):
                file["attrs"].attrs[name]
    with pytest.raises(InvalidInputError, match="notes"):
        hyperslab.h5.File(url, "a").attrs[NOTES] = 1
