"""Arrays that are created and written: what they are like, what they refuse, what others read of them."""

import json
import pickle
from typing import ClassVar

import numpy as np
import pytest
import zarr

import hyperslab as hs
from hyperslab.errors import ConflictError, InvalidInputError, NotFoundError, UnsupportedError
from hyperslab.execute import StoreReader
from hyperslab.execute.write import StoreWriter
from hyperslab.formats.zarr.store import ZarrStore
from hyperslab.store import LocalStore


def document(path) -> dict:
    return json.loads((path / "zarr.json").read_bytes())


def test_default_layout(tmp_path):
    array = hs.create(tmp_path / "a", (4096, 4096), "f8", dims=["y", "x"], attrs={"units": "m"}, fill_value=np.nan)
    found = document(tmp_path / "a")
    (sharding,) = found["codecs"]
    assert sharding["name"] == "sharding_indexed"
    assert sharding["configuration"]["index_location"] == "start"
    assert [codec["name"] for codec in sharding["configuration"]["index_codecs"]] == ["bytes", "crc32c"]
    inner = sharding["configuration"]["codecs"]
    assert [codec["name"] for codec in inner] == ["bytes", "zstd", "crc32c"]
    assert inner[0]["configuration"] == {"endian": "little"}
    assert (array.chunks, array.shards) == ((64, 64), (1024, 2048))
    assert (array.dims, array.attrs) == (("y", "x"), {"units": "m"})
    assert np.isnan(array.fill_value)
    assert np.isnan(array[5, 5])
    assert not array.source.layout.complete


def test_plain_layout_is_read_in_byte_ranges(tmp_path):
    values = np.arange(600, dtype="i4").reshape(20, 30)
    array = hs.save(tmp_path / "a", values, layout="plain", chunks=(10, 30))
    assert [codec["name"] for codec in document(tmp_path / "a")["codecs"]] == ["bytes"]
    assert (tmp_path / "a/c/0/0").read_bytes() == values[:10].tobytes()
    assert array.source.layout.plain
    with hs.Session() as session:
        again = hs.open(tmp_path / "a", session=session)
        before = session.metrics.bytes
        assert again.read((3, slice(4, 6)), method="fetch").tolist() == [94, 95]
        assert session.metrics.bytes - before == 8


def test_empty_chunks_are_written(tmp_path):
    hs.save(tmp_path / "a", np.zeros((10, 10)), chunks=(5, 5), shards=(5, 5))
    assert sorted(path.name for path in (tmp_path / "a/c").rglob("*/*")) == ["0", "0", "1", "1"]


def test_big_endian_and_aligned_types_are_stored_little_endian_and_packed(tmp_path):
    array = hs.save(tmp_path / "a", np.arange(5, dtype=">i4"))
    assert array.dtype == np.dtype("<i4")
    assert array[...].tolist() == list(range(5))
    aligned = np.dtype([("a", "i1"), ("b", ">f8")], align=True)
    values = np.zeros(3, aligned)
    values["b"] = [1, 2, 3]
    array = hs.save(tmp_path / "b", values)
    assert array.dtype == np.dtype([("a", "i1"), ("b", "<f8")])
    assert array["b"].tolist() == [1, 2, 3]


def test_things_like_arrays_are_saved(tmp_path):
    class Squares:
        shape, dtype = (50, 40), np.dtype("i8")
        asked: ClassVar[list] = []

        def __getitem__(self, key):
            self.asked.append(key)
            rows, columns = key
            return np.add.outer(np.arange(50)[rows] ** 2, np.arange(40)[columns])

    wanted = np.add.outer(np.arange(50) ** 2, np.arange(40))
    array = hs.save(tmp_path / "a", Squares(), chunks=(10, 10), shards=(20, 20))
    assert (array[...] == wanted).all()
    assert len(Squares.asked) == 6  # one for each object
    mapped = np.lib.format.open_memmap(tmp_path / "m.npy", "w+", "i8", (50, 40))
    mapped[...] = wanted
    assert (hs.save(tmp_path / "b", mapped)[...] == wanted).all()
    assert (hs.save(tmp_path / "c", array)[...] == wanted).all()
    assert (hs.save(tmp_path / "d", zarr.open_array(str(tmp_path / "a")))[...] == wanted).all()
    assert hs.save(tmp_path / "e", [[1, 2], [3, 4]])[...].tolist() == [[1, 2], [3, 4]]
    assert hs.save(tmp_path / "f", 7)[()] == 7


def test_source_that_gives_too_little(tmp_path):
    class Wrong:
        shape, dtype = (5,), np.dtype("i8")

        def __getitem__(self, key):
            return np.zeros(3)

    with pytest.raises(InvalidInputError, match="shape"):
        hs.save(tmp_path / "a", Wrong())
    assert not hs.open(tmp_path / "a").source.layout.complete


def test_nothing_is_overwritten_unasked(tmp_path):
    hs.save(tmp_path / "a", np.arange(10), chunks=(2,), shards=(2,))
    (tmp_path / "a/notes.txt").write_text("keep")
    for make in (
        lambda: hs.save(tmp_path / "a", np.zeros(3)),
        lambda: hs.create(tmp_path / "a", (3,), "i4"),
        lambda: hs.create_group(tmp_path / "a"),
        lambda: hs.copy(hs.save(tmp_path / "other", np.zeros(3), overwrite=True), tmp_path / "a"),
    ):
        with pytest.raises(InvalidInputError, match="overwrite=True"):
            make()
    assert hs.open(tmp_path / "a")[9] == 9
    again = hs.save(tmp_path / "a", np.zeros((2, 2)), overwrite=True)
    assert again.shape == (2, 2)
    assert not (tmp_path / "a/c/4").exists()
    assert (tmp_path / "a/notes.txt").read_text() == "keep"


def test_overwriting_groups_and_version_2(tmp_path):
    zarr.create_array(str(tmp_path / "old"), shape=(4,), dtype="i4", chunks=(2,), zarr_format=2)[...] = 1
    with pytest.raises(InvalidInputError, match="overwrite"):
        hs.save(tmp_path / "old", np.arange(3))
    hs.save(tmp_path / "old", np.arange(3), overwrite=True)
    assert not (tmp_path / "old/.zarray").exists()
    assert zarr.open_array(str(tmp_path / "old"))[...].tolist() == [0, 1, 2]
    group = hs.create_group(tmp_path / "g")
    group.save("a/b", np.arange(3))
    assert list(hs.create_group(tmp_path / "g", overwrite=True)) == []
    assert not (tmp_path / "g/a").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((4,), object), "objects"),
        (((4,), "S"), "size"),
        (((4,), "no such type"), "not a dtype"),
        (((-1,), "i4"), "shape"),
        (("ab", "i4"), "shape"),
        (((2.5,), "i4"), "shape"),
        (((4,), [("a", "O")]), "objects"),
    ],
)
def test_arrays_that_cannot_be(tmp_path, arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        hs.create(tmp_path / "a", *arguments)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layout": "fancy"}, "layout"),
        ({"fill_value": "x"}, "fill_value"),
        ({"fill_value": 300}, "fill_value"),
        ({"dims": ["a", "b"]}, "dims"),
        ({"dims": [3]}, "dims"),
        ({"attrs": {"a": object()}}, "JSON"),
        ({"attrs": {3: 1}}, "string"),
        ({"attrs": [1]}, "mapping"),
        ({"chunks": (0,)}, "chunks"),
        ({"layout": "plain", "shards": (4,)}, "no shards"),
        ({"session": 3}, "session"),
    ],
)
def test_settings_that_cannot_be(tmp_path, settings, message):
    with pytest.raises(InvalidInputError, match=message):
        hs.create(tmp_path / "a", (8,), "u1", **settings)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("key", "values"),
    [
        (slice(0, 3), [1, 2]),
        (slice(0, 3), np.zeros((2, 3))),
        (0, "abc"),
        (0, 300),
        (slice(0, 2), [1, 300]),
        (..., None),
        (slice(0, 2), np.array(["a", "b"])),
    ],
)
def test_values_that_do_not_fit_change_nothing(tmp_path, key, values):
    array = hs.save(tmp_path / "a", np.arange(6, dtype="u1"), chunks=(2,))
    with pytest.raises(InvalidInputError, match="do not fit"):
        array[key] = values
    assert array.refresh()[...].tolist() == list(range(6))


def test_keys_that_do_not_fit(tmp_path):
    array = hs.save(tmp_path / "a", np.arange(6))
    for key in (7, "x", (0, 0), [9]):
        with pytest.raises(hs.errors.SelectionError):
            array[key] = 1


def test_values_may_be_other_arrays(tmp_path):
    array = hs.save(tmp_path / "a", np.arange(6))
    other = hs.save(tmp_path / "b", np.arange(6, 12))
    array[:] = other
    assert array[...].tolist() == list(range(6, 12))
    array[::2] = other.lazy[3:]
    assert array[...].tolist() == [9, 7, 10, 9, 11, 11]


def test_handle_and_pickle(tmp_path):
    array = hs.create(tmp_path / "a", (6,), "i4", chunks=(2,))
    array[...] = 1
    assert array.source.layout.complete
    again = pickle.loads(pickle.dumps(array))
    again[0] = 5
    again.append(np.array([7]))
    assert array.refresh()[...].tolist() == [5, 1, 1, 1, 1, 1, 7]
    assert array.refresh().writable
    assert not hs.open(tmp_path / "a").writable


def test_groups(tmp_path):
    group = hs.create_group(tmp_path / "g", attrs={"title": "t"})
    group.create("x", (4,), "i4", chunks=2, dims=["t"])
    group.save("deep/down/y", np.arange(3), attrs={"n": np.int64(3)})
    group.create_group("deep/other", attrs={"k": 1})
    assert sorted(group) == ["deep", "x"]
    assert sorted(group["deep"]) == ["down", "other"]
    again = hs.open(tmp_path / "g", mode="r+")
    again["x"][1:3] = 7
    assert again["x"][...].tolist() == [0, 7, 7, 0]
    assert again["deep/down/y"].attrs == {"n": 3}
    theirs = zarr.open_group(str(tmp_path / "g"))
    assert theirs["deep/down/y"][...].tolist() == [0, 1, 2]
    assert theirs["deep/other"].attrs["k"] == 1
    reader = hs.open(tmp_path / "g")
    for change in (
        lambda: reader.create("z", (1,), "i4"),
        lambda: reader.save("z", [1]),
        lambda: reader.create_group("z"),
    ):
        with pytest.raises(InvalidInputError, match="r\\+"):
            change()
    for name in ("../z", "", "a//b", "/z", "%2e%2e/z"):
        with pytest.raises(InvalidInputError):
            group.save(name, [1])


def test_groups_of_version_2(tmp_path):
    group = zarr.create_group(str(tmp_path / "g"), zarr_format=2)
    group.create_array("a", shape=(4,), dtype="i4", chunks=(2,))
    ours = hs.open(tmp_path / "g", mode="r+")
    with pytest.raises(UnsupportedError, match="v3"):
        ours.create("b", (4,), "i4")
    ours.attrs["k"] = 1
    ours["a"].attrs["n"] = [1, 2]
    ours["a"][1] = 5
    theirs = zarr.open_group(str(tmp_path / "g"))
    assert theirs.attrs["k"] == 1
    assert theirs["a"].attrs["n"] == [1, 2]
    assert theirs["a"][...].tolist() == [0, 5, 0, 0]


def test_attributes_are_a_dictionary(tmp_path):
    array = hs.create(tmp_path / "a", (1,), "i4", attrs={"a": 1})
    attrs = array.attrs
    attrs["b"] = np.arange(2)
    attrs.update(c="x", d=None)
    attrs |= {"e": {"f": (1, 2)}}
    assert attrs.setdefault("a", 5) == 1
    assert attrs.setdefault("g", 5) == 5
    assert attrs.pop("g") == 5
    assert attrs.pop("g", 6) == 6
    del attrs["d"]
    wanted = {"a": 1, "b": [0, 1], "c": "x", "e": {"f": [1, 2]}}
    assert attrs == array.attrs == array.refresh().attrs == wanted
    assert json.loads(json.dumps(attrs)) == wanted
    assert zarr.open_array(str(tmp_path / "a")).attrs["e"] == {"f": [1, 2]}
    with pytest.raises(KeyError):
        del attrs["z"]
    with pytest.raises(KeyError):
        attrs.pop("z")
    with pytest.raises(InvalidInputError, match="JSON"):
        attrs["bad"] = {1, 2}
    attrs.popitem()
    attrs.clear()
    assert array.refresh().attrs == {}


def test_shapes_that_cannot_be(tmp_path):
    array = hs.save(tmp_path / "a", np.zeros((4, 3)))
    for shape in ((4,), (4, -1), (4, 2.5), "ab", (1, 2, 3)):
        with pytest.raises(InvalidInputError, match="shape"):
            array.resize(shape)
    for values, axis in ((np.zeros((2, 2)), 0), (np.zeros(3), 0), (np.zeros((2, 3)), 1), (np.zeros((2, 3)), 2)):
        with pytest.raises(InvalidInputError, match="append"):
            array.append(values, axis)
    assert "claim" not in (tmp_path / "a/zarr.json").read_text()
    array.append(np.ones((4, 2)), -1)
    assert array.shape == (4, 5)
    hs.save(tmp_path / "s", 3).resize(())
    with pytest.raises(InvalidInputError, match="append"):
        hs.open(tmp_path / "s", mode="r+").append(1)


def test_arrays_that_are_gone(tmp_path):
    array = hs.save(tmp_path / "a", np.zeros((4, 3)))
    reader = hs.open(tmp_path / "a", mode="r+")
    (tmp_path / "a/zarr.json").unlink()
    for change in (
        lambda: array.attrs.update(a=1),
        lambda: array.resize((1, 1)),
        lambda: array.append(np.zeros((1, 3))),
    ):
        with pytest.raises(NotFoundError, match="gone"):
            change()
    with pytest.raises(NotFoundError, match="gone"):
        reader[0, 0] = 1


def test_store_for_zarr_python(tmp_path):
    """zarr-python works on our store as on its own, and what it writes is sealed."""
    with hs.Session() as session:
        store = ZarrStore(StoreWriter(session, LocalStore(tmp_path)), "root")
        group = zarr.create_group(store)
        array = group.create_array("a", shape=(10, 10), chunks=(5, 5), shards=(10, 10), dtype="i4")
        array[2:4, 3] = 7
        array.attrs["n"] = 3
        array.resize((10, 12))
        assert array[2, 3] == 7
        assert sorted(zarr.open_group(store, mode="r").keys()) == ["a"]
        ours = hs.open(tmp_path / "root/a")
        assert ours[3, 3] == 7
        assert ours.attrs == {"n": 3}
        assert "_hyperslab" in document(tmp_path / "root/a")["attributes"]
        del group["a"]
        assert list(group.keys()) == []
        assert session.metrics.puts > 3
        assert store == ZarrStore(StoreWriter(session, LocalStore(tmp_path)), "root")
        assert store != ZarrStore(StoreWriter(session, LocalStore(tmp_path)), "other")
        with pytest.raises(ValueError, match="read-only"):
            zarr.create_group(store.with_read_only(True), path="x")


def test_conflict_at_creation_is_told(tmp_path, monkeypatch):
    from hyperslab.formats.zarr import create as zarr_create

    hs.create(tmp_path / "a", (1,), "i4")
    monkeypatch.setattr(zarr_create, "clear_place", lambda *args, **kwargs: None)
    with pytest.raises((ConflictError, InvalidInputError), match=r"another writer|exists"):
        hs.create(tmp_path / "a", (1,), "i4")


TYPES = ("?", "i1", "u2", "i4", "u8", "f4", "f8", "c8", "c16")


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("layout", ["default", "plain"])
def test_tensorstore_reads_what_we_write(tmp_path, dtype, layout):
    tensorstore = pytest.importorskip("tensorstore")
    values = (np.arange(7 * 9).reshape(7, 9) % 100).astype(dtype)
    shards = {"shards": (4, 6)} if layout == "default" else {}
    array = hs.save(tmp_path / "a", values, chunks=(2, 3), layout=layout, attrs={"a": 1}, dims=["x", None], **shards)
    array[1, ::2] = 1
    array.append(values[:3])
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(tmp_path / "a") + "/"}}
    found = tensorstore.open(spec).result().read().result()
    assert (found == array[...]).all()
    assert found.dtype == values.dtype


def test_reader_of_a_group_sees_new_members(tmp_path):
    group = hs.create_group(tmp_path / "g")
    with hs.Session() as session:
        reader = hs.open(tmp_path / "g", session=session)
        assert list(reader) == []
        group.save("a", [1, 2])
        assert list(reader) == ["a"]
        assert StoreReader(session, reader.store).get("a/zarr.json") is not None
