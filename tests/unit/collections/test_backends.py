"""Backends: by one interface, each gives back what was put."""

import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hyperslab.collections.backends import BACKENDS, open_backend
from hyperslab.errors import FormatError, HyperslabError, InvalidInputError, NotFoundError, UnsupportedError

each = pytest.mark.parametrize("kind", BACKENDS)


@pytest.fixture(autouse=True)
def needs(request):
    if "tiledb" in str(request.node.name):
        pytest.importorskip("tiledb")


def same(got, expected):
    assert len(got) == len(expected)
    for one, other in zip(got, expected, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        np.testing.assert_array_equal(one, other)


ARRAYS = {
    "a": np.arange(12, dtype="f4").reshape(3, 4),
    "b/1": np.array(5),
    "b/2": np.arange(12, 24, dtype="f4").reshape(3, 4),
    "b/empty": np.zeros((0, 3), "f8"),
    "c": np.array([True, False]),
    "d": np.arange(24, dtype="c8").reshape(2, 3, 4),
    "e": np.arange(12, dtype="f4").reshape(4, 3),
}


@each
def test_what_is_put_comes_back(tmp_path, kind):
    backend = open_backend(kind, tmp_path / "place", "a")
    backend.put_many(ARRAYS)
    same(backend.read_many(ARRAYS), list(ARRAYS.values()))
    order = ["e", "a", "a", "b/2", "e"]
    same(backend.read_many(order), [ARRAYS[name] for name in order])
    assert list(backend.names()) == sorted(ARRAYS)
    assert list(backend.names("b/")) == ["b/1", "b/2", "b/empty"]
    assert backend.read_many([]) == []


@each
def test_later_ones_replace_and_add(tmp_path, kind):
    backend = open_backend(kind, tmp_path / "place", "a")
    backend.put_many(ARRAYS)
    more = {"a": np.full((3, 4), 7, "f4"), "b/1": np.arange(3), "new": np.full((3, 4), 8, "f4")}
    backend.put_many((name, array, {"time": 3}) for name, array in more.items())
    expected = ARRAYS | more
    same(backend.read_many(expected), list(expected.values()))
    if hasattr(backend, "close"):
        backend.close()
    again = open_backend(kind, tmp_path / "place")
    same(again.read_many(expected), list(expected.values()))
    assert list(again.names()) == sorted(expected)


@each
def test_results_are_the_readers_own(tmp_path, kind):
    backend = open_backend(kind, tmp_path / "place", "a")
    backend.put_many({"a": np.zeros(3)})
    first, second = backend.read_many(["a", "a"])
    first[:] = 7
    same([second, *backend.read_many(["a"])], [np.zeros(3), np.zeros(3)])


@each
def test_names_are_data(tmp_path, kind):
    names = ["", ".", "..", "/", "/abs", "a/../../b", "a\0b", "emoji 🎈", "x" * 5000, "%2F", "n", "a//b", "names.json"]
    backend = open_backend(kind, tmp_path / "in" / "place" if kind != "hdf5" else tmp_path / "place", "a")
    backend.put_many({name: np.full(3, n) for n, name in enumerate(names)})
    same(backend.read_many(names), [np.full(3, n) for n in range(len(names))])
    assert list(backend.names()) == sorted(names)
    assert {path.name for path in tmp_path.iterdir()} <= {"in", "place"}


@each
def test_what_is_not_there(tmp_path, kind):
    with pytest.raises(NotFoundError):
        open_backend(kind, tmp_path / "place")
    backend = open_backend(kind, tmp_path / "place", "a")
    backend.put_many({"a": np.zeros(3)})
    with pytest.raises(NotFoundError, match="'b'"):
        backend.read_many(["a", "b"])


@each
@pytest.mark.parametrize(
    "wrong", [{"half \ud800": np.zeros(3)}, {3: np.zeros(3)}, {"a": np.array([{}], object)}, [("a",)]]
)
def test_wrong_items(tmp_path, kind, wrong):
    backend = open_backend(kind, tmp_path / "place", "a")
    with pytest.raises(HyperslabError):
        backend.put_many(wrong)


@pytest.mark.parametrize("kind", ["tiledb", "tiledb-each"])
@pytest.mark.parametrize("dtype", [">i4", "U3", "i4,f8", "m8[s]"])
def test_cells_that_tiledb_has_not(tmp_path, kind, dtype):
    with pytest.raises(UnsupportedError, match="not stored in TileDB"):
        open_backend(kind, tmp_path / "place", "a").put_many({"a": np.zeros(3, dtype)})


@pytest.mark.parametrize("dtype", ["U3", "M8[s]"])
def test_cells_that_hdf5_has_not(tmp_path, dtype):
    with pytest.raises(UnsupportedError, match="HDF5"):
        open_backend("hdf5", tmp_path / "place", "a").put_many({"a": np.zeros(3, dtype)})


@pytest.mark.parametrize("pack_arrays", [1, 7, 1000])
def test_tiles_of_merged_arrays_hold_several(tmp_path, pack_arrays):
    tiledb = pytest.importorskip("tiledb")
    backend = open_backend("tiledb", tmp_path / "place", "a", pack_arrays=pack_arrays)
    arrays = {f"{n:03}": np.full((4, 5), n, "f4") for n in range(50)}
    backend.put_many(list(arrays.items())[:20])
    backend.put_many(list(arrays.items())[20:])
    same(backend.read_many(arrays), list(arrays.values()))
    (place,) = (tmp_path / "place").glob("kind-*")
    with tiledb.open(str(place)) as merged:
        assert [axis.tile for axis in merged.domain] == [4 * pack_arrays, 5]


@pytest.mark.parametrize("junk", [b"", b"[]", b"{}", b'{"kinds": ["x"], "rows": [], "places": {}}', b"\xff"])
def test_a_file_of_names_that_is_none(tmp_path, junk):
    pytest.importorskip("tiledb")
    (tmp_path / "names.json").write_bytes(junk)
    with pytest.raises(FormatError):
        open_backend("tiledb", tmp_path)


def test_a_file_that_is_no_hdf5(tmp_path):
    (tmp_path / "a.h5").write_bytes(b"junk")
    with pytest.raises(FormatError):
        open_backend("hdf5", tmp_path / "a.h5")


def test_wrong_arguments(tmp_path):
    for kind, mode in (("other", "r"), ("hdf5", "w")):
        with pytest.raises(InvalidInputError, match="a backend is one of"):
            open_backend(kind, tmp_path, mode)
    with pytest.raises(InvalidInputError, match="pack_arrays"):
        open_backend("tiledb", tmp_path / "t", "a", pack_arrays=0)


def test_without_tiledb_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tiledb", None)
    with pytest.raises(InvalidInputError, match=r"hyperslab\[collections\]"):
        open_backend("tiledb", tmp_path)


@pytest.mark.parametrize("kind", ["hdf5", "tiledb"])
@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[*settings().suppress_health_check, HealthCheck.function_scoped_fixture],
)
@given(
    arrays=st.dictionaries(
        st.text(st.characters(codec="utf-8"), max_size=8),
        hnp.arrays(
            st.sampled_from(["f4", "i8", "u1", "?", "c16"]), hnp.array_shapes(min_dims=0, max_dims=3, max_side=4)
        ),
        max_size=6,
    ),
    data=st.data(),
)
def test_any_arrays(tmp_path_factory, kind, arrays, data):
    backend = open_backend(kind, tmp_path_factory.mktemp("b") / "place", "a")
    backend.put_many(arrays)
    order = data.draw(st.lists(st.sampled_from(sorted(arrays)))) if arrays else []
    same(backend.read_many(order), [arrays[name] for name in order])
