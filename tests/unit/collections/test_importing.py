"""Importing: directories, images, HDF5 files and Zarr groups as items, whatever lies in them."""

import os
import resource
import struct
import sys
import zlib

import h5py
import numpy as np
import pytest
import zarr

from hyperslab.collections import collection
from hyperslab.collections.importing import items_from
from hyperslab.errors import FormatError, IntegrityError, InvalidInputError, NotFoundError, UnsupportedError
from hyperslab.execute import Session
from hyperslab.store import memory


def found(url, **options):
    """Return the items by name, each once."""
    items = list(items_from(url, **options))
    assert len({name for name, *_ in items}) == len(items)
    return {name: (array, attrs) for name, array, attrs in items}


def arrays(url, **options):
    return {name: array for name, (array, _) in found(url, **options).items()}


def same(got, expected):
    assert got.keys() == expected.keys()
    for name, array in expected.items():
        assert got[name].dtype == array.dtype
        np.testing.assert_array_equal(got[name], array)


class TestDirectories:
    def test_npy_files_at_any_depth(self, tmp_path):
        expected = {
            "a.npy": np.arange(12, dtype=">i2").reshape(3, 4),
            "b/c.npy": np.array(5.0),
            "b/d/e.NPY": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
            "b/empty.npy": np.zeros((0, 3), "f4"),
            "z.npy": np.array(["2020-01-01"], "M8[D]"),
            "s.npy": np.array([(1, 2.5)], "i4,f8"),
            "é ü.npy": np.array(["x", "yz"]),
        }
        for name, array in expected.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "wb") as file:
                np.save(file, array)
        (tmp_path / "notes.txt").write_text("no array")
        (tmp_path / "folder.npy").mkdir()
        same(arrays(tmp_path), expected)
        assert [name for name, *_ in items_from(str(tmp_path))][:2] == ["a.npy", "s.npy"]

    def test_into_a_collection(self, tmp_path):
        (tmp_path / "in").mkdir()
        for n in range(50):
            np.save(tmp_path / "in" / f"{n:02}.npy", np.full((21, 21), n))
        c = collection(tmp_path / "c", "w-")
        c.put_many(items_from(tmp_path / "in"))
        assert len(c) == 50
        np.testing.assert_array_equal(c["07.npy"], np.full((21, 21), 7))

    def test_links_do_not_lead_out(self, tmp_path):
        inside, outside = tmp_path / "in", tmp_path / "in-secret"
        (inside / "sub").mkdir(parents=True)
        outside.mkdir()
        np.save(inside / "a.npy", np.arange(3))
        np.save(outside / "secret.npy", np.arange(9))
        os.symlink(outside / "secret.npy", inside / "file.npy")
        os.symlink(outside, inside / "folder")
        os.symlink("../../in-secret/secret.npy", inside / "sub" / "relative.npy")
        os.symlink(inside, inside / "sub" / "loop")
        os.symlink(inside / "nowhere.npy", inside / "dangling.npy")
        os.symlink("dangling2.npy", inside / "dangling2.npy")
        os.symlink(inside / "a.npy", inside / "sub" / "alias.npy")
        assert set(arrays(inside)) == {"a.npy", "sub/alias.npy"}
        # The directory itself may be a link.
        os.symlink(inside, tmp_path / "link")
        assert set(arrays(tmp_path / "link")) == {"a.npy", "sub/alias.npy"}

    def test_what_is_no_file(self, tmp_path):
        os.mkfifo(tmp_path / "pipe.npy")
        np.save(tmp_path / "a.npy", np.arange(3))
        assert set(arrays(tmp_path)) == {"a.npy"}

    def test_names_that_are_no_text(self, tmp_path):
        with open(os.fsencode(tmp_path) + b"/\xff.npy", "wb") as file:
            np.save(file, np.arange(3))
        ((name, array, _),) = items_from(tmp_path)
        assert name == "\\xff.npy"
        c = collection(tmp_path / "c", "w-")
        c.put_many([(name, array)])
        assert list(c) == [name]

    def test_hostile_npy_files(self, tmp_path):
        np.save(tmp_path / "a.npy", np.arange(1000))
        data = (tmp_path / "a.npy").read_bytes()
        (tmp_path / "a.npy").write_bytes(data[:-1])
        with pytest.raises(IntegrityError, match="cut off"):
            arrays(tmp_path)
        (tmp_path / "a.npy").write_bytes(data.replace(b"(1000,), }   ", b"(10**9999,), "[:13]))
        with pytest.raises(FormatError):
            arrays(tmp_path)
        np.save(tmp_path / "a.npy", np.array([{}], object), allow_pickle=True)
        with pytest.raises(UnsupportedError, match="pickled"):
            arrays(tmp_path)
        (tmp_path / "a.npy").write_bytes(b"junk")
        with pytest.raises((FormatError, NotFoundError)):
            arrays(tmp_path)

    def test_arrays_that_are_too_large(self, tmp_path):
        np.save(tmp_path / "a.npy", np.zeros(1000))
        assert arrays(tmp_path, most_bytes=8000)["a.npy"].shape == (1000,)
        with pytest.raises(UnsupportedError, match="8,000 bytes"):
            arrays(tmp_path, most_bytes=7999)

    def test_one_array_at_a_time(self, tmp_path):
        for n in range(3):
            np.save(tmp_path / f"{n}.npy", np.full(10, n))
        items = items_from(tmp_path)
        assert next(items)[0] == "0.npy"
        np.save(tmp_path / "1.npy", np.arange(4))
        (tmp_path / "2.npy").unlink()
        ((name, array, _),) = items
        assert name == "1.npy"
        np.testing.assert_array_equal(array, np.arange(4))


def png(width, height, rows=b""):
    """Return a PNG of 8-bit grey whose header says its size, whatever its data holds."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


class TestImages:
    @pytest.fixture(autouse=True)
    def pillow(self):
        return pytest.importorskip("PIL.Image")

    @pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "LA", "1", "I;16"])
    def test_modes(self, tmp_path, pillow, mode):
        cells = np.arange(4 * 6 * 4, dtype=np.uint8).reshape(4, 6, 4)
        wide = mode == "I;16"
        image = pillow.fromarray(cells[..., 0].astype("u2") * 300) if wide else pillow.fromarray(cells).convert(mode)
        image.save(tmp_path / "a.png")
        same(arrays(tmp_path), {"a.png": np.asarray(image)})

    def test_kinds_of_files(self, tmp_path, pillow):
        cells = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
        for suffix in ("png", "bmp", "tiff", "ppm"):
            pillow.fromarray(cells).save(tmp_path / f"a.{suffix}")
        pillow.fromarray(cells).save(tmp_path / "b.JPG")
        got = arrays(tmp_path)
        assert set(got) == {"a.png", "a.bmp", "a.tiff", "a.ppm", "b.JPG"}
        same({name: got[name] for name in got if name != "b.JPG"}, {n: cells for n in got if n != "b.JPG"})
        assert got["b.JPG"].shape == (4, 4, 3)
        assert arrays(tmp_path, images=False) == {}

    def test_palettes_become_colours(self, tmp_path, pillow):
        cells = np.zeros((2, 2, 3), np.uint8)
        cells[0, 0] = (255, 0, 0)
        pillow.fromarray(cells).convert("P").save(tmp_path / "a.gif")
        assert arrays(tmp_path)["a.gif"].shape[:2] == (2, 2)
        np.testing.assert_array_equal(arrays(tmp_path)["a.gif"][0, 0, :3], (255, 0, 0))

    @pytest.mark.filterwarnings("ignore:Image size")
    @pytest.mark.parametrize(("width", "height"), [(20_000, 20_000), (2**31 - 1, 2**31 - 1), (10_000, 9_000)])
    def test_decompression_bombs(self, tmp_path, width, height):
        (tmp_path / "a.png").write_bytes(png(width, height, bytes(1000)))
        with pytest.raises((UnsupportedError, IntegrityError)):
            arrays(tmp_path, most_bytes=64 << 20)

    def test_a_bomb_takes_no_memory(self, tmp_path):
        (tmp_path / "a.png").write_bytes(png(9_000, 9_000, bytes(9_001 * 9_000)))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(UnsupportedError, match="81,000,000"):
            arrays(tmp_path, most_bytes=32 << 20)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 << 10

    @pytest.mark.parametrize(
        "data", [b"", b"junk", png(10, 10, b"")[:40], png(10, 10, b"1"), b"%!PS-Adobe-3.0 EPSF-3.0\n"]
    )
    def test_what_is_no_image(self, tmp_path, data):
        (tmp_path / "a.png").write_bytes(data)
        with pytest.raises(IntegrityError, match="no image"):
            arrays(tmp_path)

    def test_without_pillow_it_says_what_to_install(self, tmp_path, monkeypatch):
        (tmp_path / "a.png").write_bytes(png(1, 1, b"\0\0"))
        monkeypatch.setitem(sys.modules, "PIL", None)
        with pytest.raises(InvalidInputError, match=r"hyperslab\[collections\]"):
            arrays(tmp_path)


class TestHdf5:
    @pytest.fixture
    def path(self, tmp_path):
        return tmp_path / "a.h5"

    def test_every_dataset(self, path):
        expected = {
            "a": np.arange(10, dtype="f4"),
            "g/b": np.arange(600, dtype=">i4").reshape(20, 30),
            "g/h/c": np.array(3),
            "g/h/odd name.é": np.zeros((0, 4)),
        }
        with h5py.File(path, "w") as file:
            for name, array in expected.items():
                file[name] = array
            del file["g/b"]
            file.create_dataset("g/b", data=expected["g/b"], chunks=(7, 8), compression="gzip", shuffle=True)
            file.create_group("empty")
        same(arrays(path), expected)
        same(arrays(f"{path}/g"), {"b": expected["g/b"], "h/c": expected["g/h/c"], "h/odd name.é": np.zeros((0, 4))})
        same(arrays(f"{path}/g/b"), {"b": expected["g/b"]})

    def test_attributes_that_are_single_values(self, path):
        with h5py.File(path, "w") as file:
            file["a"] = np.arange(3)
            file["a"].attrs.update(
                {"time": 5, "x": np.float32(1.5), "one": np.array([7]), "units": "m", "b": np.bytes_(b"raw"),
                 "list": [1, 2, 3], "flag": np.bool_(True), "big": np.uint64(2**63)}
            )  # fmt: skip
        ((_, attrs),) = found(path).values()
        assert attrs == {"time": 5, "x": 1.5, "one": 7, "units": "m", "b": "raw", "flag": True}
        assert [type(attrs[name]) for name in ("time", "x", "flag")] == [int, float, bool]
        ((_, attrs),) = found(path, columns=["time", "list"]).values()
        assert attrs == {"time": 5}

    def test_strings(self, path):
        with h5py.File(path, "w") as file:
            file["texts"] = ["a", "bcd", "é"]
            file["fixed"] = np.array([b"ab", b"c"])
            file["none"] = np.array([], h5py.string_dtype())
        got = arrays(path)
        assert got["texts"].tolist() == ["a", "bcd", "é"]
        assert got["texts"].dtype == "U3"
        assert got["fixed"].dtype == "S2"
        assert got["none"].shape == (0,)
        with h5py.File(path, "w") as file:
            file.create_dataset("lists", (2,), h5py.vlen_dtype(np.int32))[0] = [1, 2]
        with pytest.raises(UnsupportedError, match="variable length"):
            arrays(path)

    def test_links_that_lead_back(self, path):
        with h5py.File(path, "w") as file:
            file["g/a"] = np.arange(3)
            file["g/up"] = file["/"]
            file["g/self"] = file["g"]
            file["soft"] = h5py.SoftLink("/g")
            file["alias"] = file["g/a"]
        got = arrays(path)
        assert {"alias", "g/a"} <= set(got)
        assert len(got) <= 3

    def test_deep_groups(self, path):
        with h5py.File(path, "w") as file:
            file["/".join("g" * 30) + "/a"] = np.arange(3)
        assert list(arrays(path)) == ["g/" * 30 + "a"]
        with h5py.File(path, "w") as file:
            file["/".join("g" * 80) + "/a"] = np.arange(3)
        with pytest.raises(UnsupportedError, match="deep"):
            arrays(path)

    def test_datasets_that_are_too_large_are_not_read(self, path):
        with h5py.File(path, "w") as file:
            file.create_dataset("a", (10**6, 10**6), "f8", chunks=(100, 100))
        with pytest.raises(UnsupportedError, match="at most are imported"):
            arrays(path)

    def test_damaged_files(self, path):
        with h5py.File(path, "w") as file:
            file["a"] = np.arange(100_000)
        data = path.read_bytes()
        path.write_bytes(data[: len(data) // 2])
        with pytest.raises((FormatError, IntegrityError)):
            arrays(path)


class TestZarr:
    @pytest.mark.parametrize("version", [2, 3])
    @pytest.mark.parametrize("consolidated", [False, True])
    def test_groups(self, tmp_path, version, consolidated):
        root = zarr.create_group(tmp_path / "g.zarr", zarr_format=version)
        root.create_array("a", data=np.arange(10), chunks=(3,)).attrs.update({"time": 3, "list": [1]})
        root.create_array("sub/b", data=np.eye(4, dtype="f4"), chunks=(2, 2))
        if consolidated:
            zarr.consolidate_metadata(str(tmp_path / "g.zarr"))
        same(arrays(tmp_path / "g.zarr"), {"a": np.arange(10), "sub/b": np.eye(4, dtype="f4")})
        assert found(tmp_path / "g.zarr")["a"][1] == {"time": 3}
        same(arrays(f"{tmp_path}/g.zarr/sub/b"), {"b": np.eye(4, dtype="f4")})

    def test_on_a_store_far_away(self, tmp_path):
        root = zarr.create_group(tmp_path / "g", zarr_format=3)
        for n in range(5):
            root.create_array(f"{n}", data=np.full(7, n))
        store = memory("importing-test")
        for path in (tmp_path / "g").rglob("*"):
            if path.is_file():
                store.put("g/" + str(path.relative_to(tmp_path / "g")), path.read_bytes())
        with Session() as session:
            got = arrays("memory://importing-test/g", session=session)
        same(got, {f"{n}": np.full(7, n) for n in range(5)})


def test_wrong_arguments(tmp_path):
    with pytest.raises(NotFoundError):
        list(items_from(tmp_path / "nothing"))
    for wrong in (0, 1.5, True, None):
        with pytest.raises(InvalidInputError, match="most_bytes"):
            items_from(tmp_path, most_bytes=wrong)
    with pytest.raises(InvalidInputError):
        items_from(3)


def test_a_collection_takes_all_of_a_source(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for number in range(3):
            file[f"deep/set{number}"] = np.full((2, 3), number)
            file[f"deep/set{number}"].attrs["number"] = number
    c = collection(tmp_path / "c", "w-")
    c.import_from(tmp_path / "a.h5", columns=["number"])
    assert sorted(c) == ["deep/set0", "deep/set1", "deep/set2"]
    assert c.select(number=2) == ["deep/set2"]
    assert np.array_equal(c["deep/set1"], np.ones((2, 3)))
