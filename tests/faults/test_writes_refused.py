"""Writes that would spoil something: refused by name before anything is changed; deletions that were cut short."""

import os

import numpy as np
import pytest
import zarr
from support.faulty import Fault, FaultyStore

import hyperslab as hs
from hyperslab.errors import IntegrityError, InvalidInputError, StoreError, UnsupportedError
from hyperslab.formats.copying import Place, copy_tree
from hyperslab.formats.zarr import shape as zarr_shape
from hyperslab.store import locate


@pytest.fixture
def array(tmp_path):
    return hs.save(tmp_path / "a", np.arange(40), chunks=(10,), shards=(10,))


# What is being read is not written


def test_saving_or_copying_onto_itself(tmp_path, array):
    os.symlink(tmp_path / "a", tmp_path / "link")
    for place in ("a", "link", "a/inside"):
        for write in (
            lambda at: hs.save(at, array, overwrite=True),
            lambda at: hs.save(at, array.lazy[3:], overwrite=True),
            lambda at: hs.copy(array, at, overwrite=True),
            lambda at: hs.copy(array, at),
        ):
            with pytest.raises(InvalidInputError, match="another place"):
                write(tmp_path / place)
    assert hs.open(array.url)[...].tolist() == list(range(40))


@pytest.mark.parametrize("root", ["local", "memory"])
def test_copying_a_group_into_itself_or_over_itself(tmp_path, root):
    url = str(tmp_path / "g") if root == "local" else "memory://refused/g"
    group = hs.create_group(url)
    group.save("in/a", np.arange(4))
    for source, place in ((group, "/copy"), (group, ""), (group["in"], ""), (group["in/a"], "/in")):
        with pytest.raises(InvalidInputError, match="another place"):
            hs.copy(source, url + place, overwrite=True)
    assert hs.open(url + "/in/a")[...].tolist() == [0, 1, 2, 3]
    assert hs.copy(group["in/a"], url + "/b")[...].tolist() == [0, 1, 2, 3]
    assert hs.copy(group, url + "2")["in/a"].shape == (4,)


def test_links_that_lead_round_and_round(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["g/up"] = h5py.SoftLink("/")
        file["g/also"] = file["/"]
    for progress in (None, lambda done, total: None):
        with pytest.raises(UnsupportedError, match="groups deep"):
            hs.copy(tmp_path / "a.h5", tmp_path / "z", overwrite=True, progress=progress)


# Deletions that were cut short


@pytest.mark.parametrize("shape", [(40,), ()])
def test_chunks_without_metadata_do_not_become_part_of_a_new_array(tmp_path, shape):
    settings = {"chunks": (10,), "shards": (10,)} if shape else {}
    hs.save(tmp_path / "a", np.ones(shape, "i4"), **settings)
    os.unlink(tmp_path / "a/zarr.json")
    with pytest.raises(InvalidInputError, match="overwrite=True"):
        hs.create(tmp_path / "a", shape, "i4", **settings)
    assert not (tmp_path / "a/zarr.json").exists()
    assert not hs.create(tmp_path / "a", shape, "i4", overwrite=True, **settings)[...].any()


def test_what_lies_beside_is_left_alone(tmp_path):
    hs.save(tmp_path / "g/c", np.arange(3))
    hs.save(tmp_path / "g/b", np.arange(4))
    hs.create(tmp_path / "g", (2, 2), "i4", overwrite=True)
    assert hs.open(tmp_path / "g/c")[...].tolist() == [0, 1, 2]
    assert hs.open(tmp_path / "g/b").shape == (4,)


def test_copy_over_another_group_that_fails_anywhere(tmp_path):
    """Deleting the old and writing the new, cut short after any number of steps: a repeated copy is right."""
    source = hs.create_group(tmp_path / "source")
    for name in ("a", "in/b"):
        source.save(name, np.arange(20), chunks=(5,), shards=(5,))
    settings, refused = {"chunks": (5,), "shards": (5,)}, 0
    for steps in range(60):
        url = str(tmp_path / f"copy{steps}")
        old = hs.create_group(url)
        for name in ("a", "in/b"):
            old.save(name, np.full(20, -1), **settings)
        store = FaultyStore(locate(url, create=True)[0], faults=[_dead_after(steps)])
        with hs.Session(retries=0) as session:
            try:
                copy_tree(source, Place(session, store, "", url), settings, overwrite=True)
            except StoreError:
                pass
            else:
                break
        for _ in range(2):  # what the first of them leaves must not be taken for a copy by the second
            try:
                hs.copy(source, url, **settings)
                break
            except InvalidInputError:
                refused += 1
        else:
            hs.copy(source, url, overwrite=True, **settings)
        for name in ("a", "in/b"):
            found = hs.open(url)[name]
            assert found[...].tolist() == list(range(20))
            assert found.source.layout.complete
    else:
        pytest.fail("the copy never came to its end")
    assert refused > 4
    assert steps > 20


def _dead_after(steps: int) -> Fault:
    return Fault("", on="put", skip=steps, times=None, error=StoreError("the line is dead"))


def test_member_of_another_kind_is_not_taken_for_a_copy(tmp_path):
    source = hs.create_group(tmp_path / "source")
    source.save("a", np.arange(20))
    source.create_group("b")
    url = str(tmp_path / "copy")
    for name, make in {"a": lambda g: g.create_group("a"), "b": lambda g: g.save("b", np.arange(3))}.items():
        store = FaultyStore(locate(url, create=True)[0], faults=[Fault(name + "/", on="put", error=StoreError("dead"))])
        with hs.Session(retries=0) as session, pytest.raises(StoreError):
            copy_tree(source, Place(session, store, "", url), {"chunks": None}, overwrite=True)
        make(hs.open(url, mode="r+"))
        with pytest.raises(InvalidInputError, match="unfinished"):
            copy_tree(source, Place(hs.Session(), locate(url)[0], "", url), {"chunks": None})


# Shapes, types and names


def test_shapes_that_could_not_be_opened_again(tmp_path, array):
    for wanted in ((2**62, 2**62), (1,) * 65):
        with pytest.raises(InvalidInputError, match="at most"):
            hs.create(tmp_path / "b", wanted, "i4")
    assert not (tmp_path / "b").exists()
    made = hs.create(tmp_path / "c", (4, 4), "i4")
    with pytest.raises(InvalidInputError, match="at most"):
        made.resize((2**62, 2**62))
    assert hs.open(made.url).shape == (4, 4)
    for wanted in (3.5, None, "ab", (1, 2), (-1,), {"a": 1}):
        with pytest.raises(InvalidInputError, match="shape"):
            array.resize(wanted)
    for axis in ("x", None, 1.0, 1, -2):
        with pytest.raises(InvalidInputError, match="axis"):
            array.append([1], axis=axis)
    assert hs.open(array.url).shape == (40,)


def test_fill_values_in_more_objects_than_can_be_listed(tmp_path, array):
    with pytest.raises(InvalidInputError, match="objects"):
        array.resize((2**60,))
    assert hs.open(array.url)[...].tolist() == list(range(40))
    large = hs.create(tmp_path / "large", (2**60,), "i4")
    with pytest.raises(InvalidInputError, match="objects"):
        large.seal()
    large[2**59] = 5
    assert large[2**59 - 1 : 2**59 + 2].tolist() == [0, 5, 0]


@pytest.mark.parametrize("dtype", [[("a", "i2", (2,))], [("a", [("b", "f4", 3)])], "M8", "m8", [("t", "M8")]])
def test_types_that_zarr_has_no_form_for(tmp_path, dtype):
    with pytest.raises(InvalidInputError, match="have no"):
        hs.create(tmp_path / "a", (3,), dtype)
    assert not (tmp_path / "a").exists()


def test_what_numpy_makes_no_array_of(tmp_path):
    with pytest.raises(InvalidInputError, match="NumPy"):
        hs.save(tmp_path / "a", [[1], [2, 3]])


@pytest.mark.parametrize("name", ["zarr.json", "in/.zarray", ".zattrs", "a/c/0", "a/b"])
def test_names_of_documents_and_members_of_arrays(tmp_path, name):
    group = hs.create_group(tmp_path / "g")
    group.save("a", np.arange(3))
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    for make in (lambda: group.create(name, (1,), "i4"), lambda: group.create_group(name)):
        with pytest.raises(InvalidInputError):
            make()
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before


# What is known of arrays


def test_array_that_starts_empty_misses_what_was_appended(tmp_path):
    array = hs.create(tmp_path / "a", (0, 2), "i4", chunks=(2, 2), shards=(2, 2))
    array.append(np.ones((6, 2)))
    os.unlink(tmp_path / "a/c/1/0")
    with pytest.raises(IntegrityError, match="c/1/0"):
        hs.open(array.url)[...]
    # Nothing was written into this one: it is as if it had been created so.
    other = hs.create(tmp_path / "b", (0, 2), "i4", chunks=(2, 2), shards=(2, 2))
    other.resize((10**6, 2))
    assert [path.name for path in (tmp_path / "b").iterdir()] == ["zarr.json"]
    assert not other.refresh()[-1].any()


def test_attribute_that_is_equal_but_of_another_type_is_stored(tmp_path):
    zarr.create_array(str(tmp_path / "a"), shape=(3,), dtype="i4", attributes={"n": 1})
    hs.open(tmp_path / "a", mode="r+").attrs["n"] = True
    assert hs.open(tmp_path / "a").attrs["n"] is True
    with pytest.raises(KeyError):
        hs.save(tmp_path / "b", np.arange(3)).attrs.popitem()


@pytest.mark.parametrize("pid", ["", "x", "²", "-1", "99999999999999999999"])
def test_claims_of_odd_processes_are_respected(pid):
    assert not zarr_shape._is_gone(f"{os.uname().nodename}:{pid}:00")
