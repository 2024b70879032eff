"""Attributes come back as h5py gives them, of whatever type they are."""

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from support.profiles import times

import hyperslab.h5

VALUES = [
    5, 2.5, True, "text", "é", b"bytes", 1j, [1, 2], [1.5, 2], ["a", "b"], [b"a"], [[1, 2], [3, 4]], [], (1, 2),
    np.float32(2), np.uint64(2**64 - 1), np.int8(-3), np.bool_(False), np.bytes_(b"xy"), np.array([b"abc", b"d"]),
    np.array([["a"], ["b"]], object), np.ones((2, 3), "f4"), np.zeros((0, 2), "i2"),
    np.ones(2, [("a", "i4"), ("b", "f8")]),
    np.array([float("nan"), float("inf")]), np.void(b"ab"), h5py.Empty("f4"), h5py.Empty("S3"), np.array(5, ">i4"),
    np.array([1], h5py.enum_dtype({"A": 1}, "i2")),
]  # fmt: skip


@pytest.fixture(scope="module")
def both():
    with h5py.File.in_memory() as theirs, hyperslab.h5.File("memory://h5-attributes/file", "w") as ours:
        yield theirs, ours


def check(both, value):
    theirs, ours = both
    theirs.attrs["a"] = value
    ours.attrs["a"] = value
    one = theirs.attrs["a"]
    for other in (ours.attrs["a"], hyperslab.h5.File(ours.filename).attrs["a"]):
        assert type(one) is type(other)
        assert getattr(one, "dtype", None) == getattr(other, "dtype", None)
        assert np.shape(one) == np.shape(other)
        if isinstance(one, np.ndarray | np.generic) and one.dtype.kind in "fc":
            assert np.array_equal(one, other, equal_nan=True)
        else:
            assert np.all(one == other)


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_come_back(both, value):
    check(both, value)


@settings(max_examples=times(60))
@given(
    value=st.text(st.characters(exclude_characters="\0", codec="utf-8"))
    | hnp.arrays(
        st.sampled_from(["i1", "u2", "i4", "u8", "f2", "f4", "f8", "c8", "?", "S3"]),
        hnp.array_shapes(min_dims=0, max_dims=2),
    )
)
def test_any_value_comes_back(both, value):
    check(both, value)


@pytest.mark.parametrize(
    "value",
    [None, {}, np.array(["a"]), [1, "a"], np.datetime64("2020-01-01"), object()],
    ids=["None", "dict", "text", "mixed", "time", "object"],
)
def test_what_h5py_refuses_is_refused(both, value):
    for file in both:
        with pytest.raises(TypeError):
            file.attrs["refused"] = value
        assert "refused" not in file.attrs


def test_types_and_shapes_can_be_asked_for(both):
    for file in both:
        file.attrs.create("t", [1, 2, 3, 4], shape=(2, 2), dtype="f4")
        assert (file.attrs["t"].dtype, file.attrs["t"].shape) == (np.dtype("f4"), (2, 2))
        file.attrs.modify("t", [[5, 6], [7, 8]])
        assert file.attrs["t"].dtype == np.dtype("f4")
        with pytest.raises(TypeError):
            file.attrs.modify("t", [1, 2, 3])
        file.attrs["t"] = "now a text"
        assert file.attrs["t"] == "now a text"


def test_as_a_mapping(both):
    for file in both:
        group = file.require_group("mapping")
        group.attrs.update({"b": 1, "a": 2})
        assert (list(group.attrs), len(group.attrs), dict(group.attrs.items())) == (["a", "b"], 2, {"a": 2, "b": 1})
        assert group.attrs.pop("a") == 2
        assert group.attrs.get("a", 7) == 7
        del group.attrs["b"]
        assert not list(group.attrs)
        with pytest.raises(KeyError):
            del group.attrs["b"]


def test_order_is_kept_where_it_is_asked_for(both):
    for file in both:
        group = file.create_group("ordered", track_order=True)
        group.attrs["b"], group.attrs["a"] = 1, 2
        assert list(group.attrs) == ["b", "a"]


def test_attributes_of_foreign_zarr_arrays(both):
    import hyperslab as hs

    attrs = {"plain": 5, "deep": {"a": [1, {"b": 2}]}, "mixed": [1, [2]], "none": None}
    hs.create_group("memory://h5-attributes/foreign", attrs=attrs)
    found = hyperslab.h5.File("memory://h5-attributes/foreign").attrs
    assert dict(found) == attrs
    assert type(found["plain"]) is np.int64
