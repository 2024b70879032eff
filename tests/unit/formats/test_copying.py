"""Copies: the same cells, attributes and names; interrupted ones go on, others are not mixed up with them."""

import numpy as np
import pytest
import zarr
from support.faulty import Fault, FaultyStore

import hyperslab as hs
from hyperslab.errors import InvalidInputError, StoreError
from hyperslab.formats import copying


@pytest.fixture
def source(tmp_path):
    values = np.arange(40 * 30, dtype="f4").reshape(40, 30)
    settings = {"chunks": (10, 10), "dims": ["y", "x"], "attrs": {"units": "K"}, "fill_value": -1}
    return hs.save(tmp_path / "source", values, **settings)


def test_array_with_all_that_it_has(tmp_path, source):
    copied = hs.copy(tmp_path / "source", tmp_path / "copy", chunks=(7, 7), shards=(14, 14))
    assert (copied[...] == source[...]).all()
    assert (copied.dims, copied.attrs, copied.fill_value) == (("y", "x"), {"units": "K"}, -1)
    assert (copied.chunks, copied.shards) == ((7, 7), (14, 14))
    assert copied.source.layout.complete
    assert "copying" not in (tmp_path / "copy/zarr.json").read_text()
    assert copied.writable


def test_other_formats(tmp_path):
    values = np.arange(60).reshape(6, 10)
    np.save(tmp_path / "a.npy", values)
    assert (hs.copy(tmp_path / "a.npy", tmp_path / "n")[...] == values).all()
    zarr.create_array(str(tmp_path / "v2"), shape=(6, 10), dtype="i8", chunks=(4, 4), zarr_format=2)[...] = values
    copied = hs.copy(tmp_path / "v2", "memory://copies/v3", layout="plain")
    assert (copied[...] == values).all()
    assert copied.source.format == "zarr3"


def test_hdf5_with_strings_and_odd_attributes(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["n/x"] = np.arange(12).reshape(3, 4)
        file["n/x"].attrs.update({"scale": np.float32(0.5), "raw": np.bytes_(b"abc"), "list": np.arange(3)})
        file["words"] = ["a", "bcd", "é" * 5]
        file["none"] = np.array([], h5py.string_dtype())
    copied = hs.copy(tmp_path / "a.h5", tmp_path / "z")
    assert copied["n/x"][...].tolist() == np.arange(12).reshape(3, 4).tolist()
    assert copied["n/x"].attrs == {"scale": 0.5, "raw": "abc", "list": [0, 1, 2]}
    assert copied["words"].dtype == np.dtype("U5")
    assert copied["words"][...].tolist() == ["a", "bcd", "é" * 5]
    assert copied["none"].shape == (0,)


def test_tree(tmp_path):
    group = hs.create_group(tmp_path / "g", attrs={"t": 1})
    group.save("a", np.arange(5))
    group.save("in/b", np.arange(6.0), attrs={"k": "v"})
    group["in"].create("c", (3,), "i2", fill_value=9)
    copied = hs.copy(group, tmp_path / "copy")
    assert copied.tree() == group.tree()
    assert copied.attrs == {"t": 1}
    assert copied["in/b"].attrs == {"k": "v"}
    assert copied["in/c"][...].tolist() == [9, 9, 9]
    assert "copying" not in (tmp_path / "copy/zarr.json").read_text()
    with pytest.raises(InvalidInputError, match="overwrite"):
        hs.copy(group, tmp_path / "copy")
    group.save("d", [1])
    assert sorted(hs.copy(group, tmp_path / "copy", overwrite=True)) == ["a", "d", "in"]


def interrupted(place: copying.Place, source, puts: int, settings: dict) -> FaultyStore:
    """Copy until so many objects have been put, then fail."""
    store = FaultyStore(place.store)
    store.faults.append(Fault("c/", on="put", skip=puts, times=None, error=StoreError("the disk is full")))
    broken = copying.Place(place.session, store, place.path, place.url)
    with pytest.raises(StoreError, match="full"):
        copying.copy_tree(source, broken, settings)
    return store


def test_interrupted_copy_goes_on(tmp_path, source):
    settings = {"chunks": (5, 5), "shards": (10, 10), "layout": "default"}
    with hs.Session(memory_bytes=1 << 20) as session:
        target = hs.create_group("memory://copies/resumed", session=session, overwrite=True)
        place = copying.Place(session, target.store, "resumed/a", "memory://copies/resumed/a")
        interrupted(place, source, 5, settings)
        begun = hs.open(place.url, session=session)
        assert not begun.source.layout.complete
        store = FaultyStore(place.store)
        told = []
        copying.copy_tree(
            source,
            copying.Place(session, store, place.path, place.url),
            settings,
            progress=lambda done, total: told.append((done, total)),
        )
        written = [put.key for put in store.puts if "/c/" in put.key]
        assert len(written) == 12 - 5
        assert len(set(written)) == len(written)
        assert told[-1] == (source.nbytes, source.nbytes)
        copied = hs.open(place.url, session=session)
        assert copied.source.layout.complete
        assert (copied[...] == source[...]).all()


def test_interrupted_tree_goes_on(tmp_path):
    group = hs.create_group(tmp_path / "g")
    for name in "uvw":
        group.save(name, np.arange(40), chunks=(10,), shards=(10,))
    settings = {"chunks": (10,), "shards": (10,), "layout": "default"}
    with hs.Session(memory_bytes=1 << 20) as session:
        target = hs.create_group(tmp_path / "t", session=session)
        place = copying.Place(session, target.store, "copy", str(tmp_path / "t/copy"))
        interrupted(place, group, 6, settings)
        store = FaultyStore(place.store)
        copying.copy_tree(group, copying.Place(session, store, place.path, place.url), settings)
        assert len([put.key for put in store.puts if "/c/" in put.key]) == 12 - 6
        found = hs.open(place.url, session=session)
        assert all((found[name][...] == np.arange(40)).all() for name in "uvw")


def test_copy_of_something_else_is_not_gone_on_with(tmp_path, source):
    settings = {"chunks": (5, 5), "shards": (10, 10), "layout": "default"}
    other = hs.save(tmp_path / "other", np.zeros((40, 30), "f4"))
    with hs.Session() as session:
        target = hs.create_group(tmp_path / "t", session=session)
        place = copying.Place(session, target.store, "a", str(tmp_path / "t/a"))
        interrupted(place, source, 5, settings)
        with pytest.raises(InvalidInputError, match="unfinished copy"):
            copying.copy_tree(other, place, settings)
        with pytest.raises(InvalidInputError, match="unfinished copy"):
            copying.copy_tree(source, place, {**settings, "chunks": (10, 10)})
        copying.copy_tree(other, place, settings, overwrite=True)
        assert not hs.open(place.url)[...].any()


def test_progress(tmp_path, source, capsys):
    told = []
    hs.copy(source, tmp_path / "a", chunks=(10, 10), shards=(10, 10), progress=lambda *at: told.append(at))
    assert len(told) == 12
    assert told[-1] == (4800, 4800)
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    hs.copy(source, tmp_path / "b", progress=True)
    assert "copying to" in capsys.readouterr().err
    with pytest.raises(InvalidInputError, match="progress"):
        hs.copy(source, tmp_path / "c", progress=3)
