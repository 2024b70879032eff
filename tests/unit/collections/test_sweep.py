"""Orphans are deleted only after a grace time, by the store's clock; what is referred to, never."""

import itertools
import os
import time

import numpy as np
import pytest

import hyperslab as hs
from hyperslab.collections import collection
from hyperslab.collections.writing import Putting, items_of
from hyperslab.errors import ConflictError, InvalidInputError, NotFoundError
from hyperslab.execute.write import StoreWriter
from hyperslab.store import locate

_numbers = itertools.count()


@pytest.fixture(params=["file", "memory"])
def url(request, tmp_path):
    return str(tmp_path / "c") if request.param == "file" else f"memory://sweeps-{os.getpid()}-{next(_numbers)}/c"


@pytest.fixture
def session():
    with hs.Session() as made:
        yield made


def objects(url):
    store, path = locate(url)
    return [key.removeprefix(path).lstrip("/") for key, _ in store.keys(path)]


def abandoned(c, names):
    """Put arrays, and end before they are part of the collection."""
    putting = Putting(StoreWriter(c.session, c.store), c.path, {}, 100)
    putting.run(items_of({name: np.arange(9.0) for name in names}, None), None, 0)
    return putting


def test_orphans_go_after_the_grace_time(url, session):
    c = collection(url, "w-", session=session)
    c.put_many({"a": np.arange(3)})
    abandoned(c, "xyz")
    whole = [key for key in objects(url) if not key.startswith("orphans")]
    assert len(whole) == 3 + 4
    assert c.sweep() == 0
    assert c.sweep(grace_s=60) == 0
    assert [key for key in objects(url) if not key.startswith("orphans")] == whole
    time.sleep(1.1)
    assert c.sweep(grace_s=1) == 4
    assert len(objects(url)) == 3
    assert c.sweep(grace_s=1) == 0
    assert (collection(url, session=session)["a"] == [0, 1, 2]).all()


def test_what_a_collection_has_not_made_is_left_alone(url, session):
    store, path = locate(url, create=True)
    others = ["packs/mine.pack", "packs/deep/own.txt", "index/index.html", "orphans/packs-mine.txt", "orphans/notes"]
    for name in others:
        store.put(f"{path}/{name}".lstrip("/"), b"not ours")
    c = collection(url, "w-", session=session)
    c.put_many({"a": np.arange(3)})
    abandoned(c, "x")
    assert c.sweep() == 0
    assert c.sweep(grace_s=0) == 2
    assert sorted(objects(url))[1:] == sorted([*others, *[each for each in objects(url) if each.endswith(".seg")],
                                               f"packs/{c.entry('a').pack}.pack"])  # fmt: skip


def test_a_put_that_ends_late_takes_its_objects_back(url, session):
    c = collection(url, "w-", session=session)
    putting = abandoned(c, "xyz")
    assert c.sweep() == 0
    assert len([key for key in objects(url) if key.startswith("orphans")]) == 4
    putting.commit(c.manifest.uuid)
    time.sleep(1.1)
    assert c.sweep(grace_s=1) == 0
    assert not [key for key in objects(url) if key.startswith("orphans")]
    assert list(c.refresh()) == ["x", "y", "z"]


def test_merged_segments_stay_for_those_who_read_them(url, session):
    c = collection(url, "w-", session=session)
    for i in range(4):
        c[f"{i}"] = np.array(i)
    time.sleep(1.1)
    with hs.Session() as other:
        old = collection(url, session=other)
        c.compact()
        assert c.sweep(grace_s=1) == 0
        assert list(old) == ["0", "1", "2", "3"]
        assert c.sweep(grace_s=0) == 4
        with hs.Session() as third:
            assert list(collection(url, session=third)) == ["0", "1", "2", "3"]


def test_a_handle_that_is_too_old_says_so(url, session):
    c = collection(url, "w-", session=session)
    c.put_many({"a": np.arange(3)})
    with hs.Session() as other:
        old = collection(url, session=other)
        collection(url, "w", session=session).sweep(grace_s=0)
        with pytest.raises(ConflictError, match="refresh"):
            old["a"]
        with pytest.raises(NotFoundError):
            old.refresh()["a"]


def test_a_pack_that_is_gone_is_an_error(url, session):
    c = collection(url, "w-", session=session)
    c.put_many({"a": np.arange(3)})
    store, path = locate(url)
    store.delete(next(key for key, _ in store.keys(path) if key.endswith("pack")))
    with pytest.raises(hs.errors.IntegrityError, match="gone"):
        c["a"]


def test_a_grace_time_is_a_number_of_seconds(url, session):
    c = collection(url, "w-", session=session)
    for wrong in (-1, float("nan"), "1d", None):
        with pytest.raises(InvalidInputError, match="grace_s"):
            c.sweep(grace_s=wrong)
