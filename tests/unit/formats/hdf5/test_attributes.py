"""Attributes: values as h5py gives them, few and many, small and large; those that cannot be read are named."""

from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from support.hdf5_files import LIBVERS, BytesFile, FileOf, file_bytes, opened

from hyperslab.errors import HyperslabError
from hyperslab.formats.hdf5.attributes import Reference, Unreadable
from hyperslab.formats.hdf5.objects import open_file, user_attrs

libvers = pytest.mark.parametrize("libver", LIBVERS, ids="-".join)
tracked = pytest.mark.parametrize("track_order", [False, True], ids=["by-name", "by-time"])
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)
numbers = st.sampled_from(["?", "i1", ">u2", "<i4", "<u8", "<f2", ">f4", "<f8", "<c8", ">c16"]).map(np.dtype)
values = (
    texts
    | st.integers(-(2**60), 2**60)
    | st.floats()
    | hnp.arrays(numbers, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
    | st.lists(texts, min_size=1, max_size=5)
)


def same(ours: Any, theirs: Any) -> bool:
    if isinstance(theirs, str):
        return isinstance(ours, str) and ours == theirs
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    return ours.dtype == theirs.dtype and repr(ours.tolist()) == repr(theirs.tolist())


@given(st.dictionaries(texts.filter(bool), values, max_size=12), st.sampled_from(LIBVERS), st.booleans())
def test_any_values_are_as_h5py_reads_them(attrs: dict[str, Any], libver: tuple[str, str], track_order: bool) -> None:
    def fill(file: h5py.File) -> None:
        for target in (file, file.create_dataset("x", (2,), "f4", track_order=track_order)):
            for name, value in attrs.items():
                target.attrs[name] = value

    with FileOf(fill, libver=libver, track_order=track_order) as both:
        for path in ("/", "x"):
            found, expected = both.ours.find(path).attrs(), dict(both.theirs[path].attrs)
            assert found.keys() == expected.keys()
            for name, value in expected.items():
                assert same(found[name], value), name


@libvers
@tracked
@pytest.mark.parametrize("count", [1, 8, 9, 500])
def test_any_number(count: int, libver: tuple[str, str], track_order: bool) -> None:
    def fill(file: h5py.File) -> None:
        for number in range(count):
            file.attrs[f"a{number}"] = f"text {number}" if number % 2 else np.arange(number)

    with FileOf(fill, libver=libver, track_order=track_order) as both:
        found = both.ours.root.attrs()
        assert found.keys() == set(both.theirs.attrs)
        assert all(same(found[name], value) for name, value in both.theirs.attrs.items())
        if track_order:
            assert list(found) == list(both.theirs.attrs)
        # However many texts there are, their heaps come together.
        assert len(both.bytes.rounds) <= 8


@pytest.mark.parametrize("count", [1, 20])
@pytest.mark.parametrize("nbytes", [5000, 70_000, 1_000_000])
def test_large_values(nbytes: int, count: int) -> None:
    value = np.random.default_rng(1).integers(0, 256, nbytes, np.uint8)

    def fill(file: h5py.File) -> None:
        for number in range(count):
            file.attrs[f"big{number}"] = value + np.uint8(number)

    with FileOf(fill, libver="latest") as both:
        found = both.ours.root.attrs()
        assert all(np.array_equal(found[f"big{number}"], value + np.uint8(number)) for number in range(count))


@libvers
def test_kinds_of_text(libver: tuple[str, str]) -> None:
    def fill(file: h5py.File) -> None:
        file.attrs["fixed"] = np.bytes_(b"fixed")
        file.attrs["several"] = np.array([b"a", b"bcd"])
        file.attrs["bytes"] = b"from bytes"
        file.attrs.create("ascii", "plain", dtype=h5py.string_dtype("ascii"))
        file.attrs.create("utf8", "grün".encode(), dtype=h5py.string_dtype("utf-8", 10))
        file.attrs["none"] = h5py.Empty("S1")
        file.attrs["nothing"] = h5py.Empty("f4")
        file.attrs["lone"] = b"\xff\xfe no UTF-8"
        for name, padding in (("ended", h5py.h5t.STR_NULLTERM), ("blank", h5py.h5t.STR_SPACEPAD)):
            kind = h5py.h5t.C_S1.copy()
            kind.set_size(6)
            kind.set_strpad(padding)
            made = h5py.h5a.create(file.id, name.encode(), kind, h5py.h5s.create(h5py.h5s.SCALAR))
            made.write(np.array(b"ab  \0x" if name == "ended" else b"ab    ", "S6"), kind)

    found = opened(file_bytes(fill, libver=libver)).root.attrs()
    assert found.pop("several").tolist() == ["a", "bcd"]
    nothing = found.pop("nothing")
    assert (nothing.shape, nothing.dtype) == ((0,), np.dtype("f4"))
    assert found == {
        "fixed": "fixed", "bytes": "from bytes", "ascii": "plain", "utf8": "grün", "none": "", "ended": "ab  ",
        "blank": "ab", "lone": "\udcff\udcfe no UTF-8",
    }  # fmt: skip


@libvers
def test_structured_and_variable_length_values(libver: tuple[str, str]) -> None:
    record = np.array([(1, b"ab", [1.5, 2.5])], [("n", "<i4"), ("s", "S3"), ("v", "<f8", (2,))])
    mixed = np.dtype([("name", h5py.string_dtype()), ("n", "i4")])

    def fill(file: h5py.File) -> None:
        file.attrs["record"] = record
        file.attrs["enum"] = np.array(5, h5py.enum_dtype({"A": 1, "B": 5}, "i2"))
        file.attrs.create(
            "ragged", np.array([np.arange(3), np.arange(0), np.arange(2)], object), dtype=h5py.vlen_dtype("i4")
        )
        file.attrs.create("mixed", np.array([("eins", 1), ("", 2)], mixed), dtype=mixed)

    found = opened(file_bytes(fill, libver=libver)).root.attrs()
    assert found["record"].tolist()[0][:2] == (1, b"ab")
    assert found["record"]["v"].tolist() == [[1.5, 2.5]]
    assert (found["enum"], found["enum"].dtype) == (5, np.dtype("i2"))
    assert [each.tolist() for each in found["ragged"]] == [[0, 1, 2], [], [0, 1]]
    assert found["mixed"]["name"].tolist() == ["eins", ""]
    assert found["mixed"]["n"].tolist() == [1, 2]


@libvers
def test_references_and_what_cannot_be_read(libver: tuple[str, str]) -> None:
    def fill(file: h5py.File) -> None:
        data = file.create_dataset("x", data=[1, 2])
        file.attrs["object"] = data.ref
        file.attrs.create("several", [data.ref, h5py.Reference()], dtype=h5py.ref_dtype)
        file.attrs["region"] = data.regionref[:1]
        file.attrs["units"] = "m"

    file = opened(file_bytes(fill, libver=libver))
    found = file.root.attrs()
    here = Reference(file.find("x").address)
    assert found["object"] == here
    assert found["several"].tolist() == [here, Reference(None)]
    assert isinstance(found["region"], Unreadable)
    assert "regions" in found["region"].reason
    assert found["units"] == "m"


def test_housekeeping_is_hidden() -> None:
    attrs = {"units": "K", "CLASS": "DIMENSION_SCALE", "NAME": "x", "_NCProperties": "", "DIMENSION_LIST": []}
    assert user_attrs(attrs) == {"units": "K"}


def test_committed_type_has_attributes() -> None:
    def fill(file: h5py.File) -> None:
        file["kind"] = np.dtype("i4,f8")
        file["kind"].attrs["what"] = "a pair"

    found = opened(file_bytes(fill)).find("kind")
    assert found.attrs() == {"what": "a pair"}
    assert found.datatype.dtype == np.dtype("i4,f8")


@pytest.mark.parametrize("count", [3, 30])
def test_every_damaged_byte_of_guarded_attributes_is_seen(count: int) -> None:
    def fill(file: h5py.File) -> None:
        for number in range(count):
            file.attrs[f"a{number}"] = number

    data = file_bytes(fill, libver="latest")
    expected = opened(data).root.attrs()
    for at in range(48, len(data), 11):
        damaged = bytearray(data)
        damaged[at] ^= 0x10
        try:
            found = open_file(BytesFile(bytes(damaged))).root.attrs()
        except HyperslabError:
            continue
        # Some bytes are of no use to a reader: padding, and what only writers need.
        assert found == expected
