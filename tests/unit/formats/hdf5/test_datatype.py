"""Datatypes: what h5py writes comes back as h5py reads it; what NumPy has no type for is named."""

import struct
from contextlib import suppress
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.hdf5_files import LIBVERS, FileOf, read_run

from hyperslab.errors import HyperslabError, MetadataError, UnsupportedError
from hyperslab.formats.hdf5.cursor import Cursor
from hyperslab.formats.hdf5.datatype import Datatype, parse_datatype
from hyperslab.formats.hdf5.superblock import Superblock

SB = Superblock(3, 0, 8, 8, 1 << 20, 48)
PLAIN = [
    "i1", "u1", "<i2", ">i2", "<u4", ">u4", "<i8", ">i8", "<f2", ">f2", "<f4", ">f4", "<f8", ">f8", "<c8", ">c8",
    "<c16", ">c16", "?", "S1", "S7", "V3", "V16",
]  # fmt: skip
libvers = pytest.mark.parametrize("libver", LIBVERS, ids="-".join)


def dtypes(depth: int = 2) -> st.SearchStrategy[np.dtype]:
    """Types that h5py stores as they are: plain ones, compounds with gaps, arrays in compounds."""
    plain = st.sampled_from(PLAIN).map(np.dtype)
    if not depth:
        return plain
    inner = st.tuples(dtypes(depth - 1), st.lists(st.integers(1, 3), max_size=2)).map(
        lambda t: np.dtype((t[0], tuple(t[1])))
    )
    names = st.lists(st.text("abcéß _/.", min_size=1, max_size=12), min_size=1, max_size=4, unique=True)
    return plain | st.tuples(
        names, st.lists(inner, min_size=4, max_size=4), st.lists(st.integers(0, 5), min_size=5, max_size=5)
    ).map(lambda t: compound(*t))


def compound(names: list[str], parts: list[np.dtype], gaps: list[int]) -> np.dtype:
    offsets, at = [], 0
    for gap, part in zip(gaps, parts[: len(names)], strict=False):
        offsets.append(at + gap)
        at += gap + part.itemsize
    return np.dtype({"names": names, "formats": parts[: len(names)], "offsets": offsets, "itemsize": at + gaps[-1]})


def parsed(raw: bytes) -> Datatype:
    return parse_datatype(Cursor(memoryview(raw), what="a datatype"), SB)


def head(number: int, nbytes: int, bits: int = 0, version: int = 1) -> bytes:
    return bytes([version << 4 | number]) + bits.to_bytes(3, "little") + struct.pack("<I", nbytes)


def integer(nbytes: int = 4, *, offset: int = 0, precision: int | None = None) -> bytes:
    return head(0, nbytes, 8) + struct.pack("<HH", offset, 8 * nbytes if precision is None else precision)


@libvers
@pytest.mark.parametrize("code", PLAIN)
def test_plain_types(code: str, libver: tuple[str, str]) -> None:
    cells = np.frombuffer(bytes(range(1, 97)), np.uint8).astype(np.uint8)
    dtype = np.dtype(code)
    cells = (cells % 2).view(bool) if code == "?" else cells[: 96 // dtype.itemsize * dtype.itemsize].view(dtype)
    with FileOf(lambda file: file.create_dataset("x", data=cells), libver=libver) as both:
        found = both.ours.find("x")
        assert found.datatype.dtype == both.theirs["x"].dtype == dtype
        np.testing.assert_array_equal(read_run(found, both.data), cells)


@given(dtypes(), st.sampled_from(LIBVERS))
def test_any_type_is_as_h5py_reads_it(dtype: np.dtype, libver: tuple[str, str]) -> None:
    raw = np.random.default_rng(1).integers(0, 2, 3 * dtype.itemsize, np.uint8)
    cells = raw.view(dtype)
    with FileOf(lambda file: file.create_dataset("x", data=cells, dtype=dtype), libver=libver) as both:
        found = both.ours.find("x")
        assert found.datatype.dtype == dtype
        ours, theirs = read_run(found, both.data), both.theirs["x"][()]
        # As text: what is no number equals nothing, not itself either.
        assert repr(ours.tolist()) == repr(theirs.tolist())


@libvers
def test_longest_floats(libver: tuple[str, str]) -> None:
    if np.finfo(np.longdouble).nmant != 63 or np.longdouble().itemsize != 16:
        pytest.skip("this machine's longest floats are not those of x86")
    cells = np.array([1, np.pi, -np.inf], np.longdouble)
    with FileOf(lambda file: file.create_dataset("x", data=cells), libver=libver) as both:
        assert read_run(both.ours.find("x"), both.data).tolist() == both.theirs["x"][()].tolist() == cells.tolist()


@libvers
def test_enums_keep_their_names(libver: tuple[str, str]) -> None:
    members = {"RED": -3, "grün": 7, "a name of more than eight": 0}
    dtype = h5py.enum_dtype(members, ">i2")
    with FileOf(
        lambda file: file.create_dataset("x", data=np.array([7, -3], dtype), dtype=dtype), libver=libver
    ) as both:
        found = both.ours.find("x")
        assert found.datatype.kind == "enum"
        assert found.datatype.dtype == np.dtype(">i2")
        assert dict(found.datatype.members) == members == h5py.check_enum_dtype(both.theirs["x"].dtype)
        assert read_run(found, both.data).tolist() == [7, -3]


@libvers
@pytest.mark.parametrize("shape", [(), (2, 2)], ids=["scalar", "grid"])
def test_cells_that_are_arrays(shape: tuple[int, ...], libver: tuple[str, str]) -> None:
    def fill(file: h5py.File) -> None:
        space = h5py.h5s.create_simple(shape) if shape else h5py.h5s.create(h5py.h5s.SCALAR)
        inner = h5py.h5t.array_create(h5py.h5t.STD_I16BE, (3, 2))
        data = h5py.h5d.create(file.id, b"x", h5py.h5t.array_create(inner, (2,)), space)
        data.write(
            h5py.h5s.ALL, h5py.h5s.ALL, np.arange(12 * max(1, int(np.prod(shape))), dtype=">i2"), data.get_type()
        )

    with FileOf(fill, libver=libver) as both:
        found = both.ours.find("x")
        assert found.datatype.kind == "array"
        assert found.datatype.nbytes == 24
        np.testing.assert_array_equal(
            read_run(found, both.data), np.arange(12 * max(1, int(np.prod(shape)))).reshape(*shape, 2, 3, 2)
        )


@pytest.mark.parametrize("code", ["<M8[ns]", ">M8[D]", "<m8[25s]"])
def test_times_that_h5py_keeps_as_opaque(code: str) -> None:
    cells = np.arange(4).astype(code)
    with FileOf(lambda file: file.create_dataset("x", data=cells.astype(h5py.opaque_dtype(cells.dtype)))) as both:
        found = both.ours.find("x")
        assert found.datatype.dtype == cells.dtype
        np.testing.assert_array_equal(read_run(found, both.data), cells)


def test_tag_of_opaque_cells() -> None:
    def fill(file: h5py.File) -> None:
        kind = h5py.h5t.create(h5py.h5t.OPAQUE, 5)
        kind.set_tag(b"a tag of mine")
        h5py.h5d.create(file.id, b"x", kind, h5py.h5s.create_simple((2,)))

    with FileOf(fill) as both:
        found = both.ours.find("x").datatype
        assert (found.kind, found.dtype, found.tag) == ("opaque", np.dtype("V5"), "a tag of mine")


def with_type(kind: Any) -> Any:
    return lambda file: h5py.h5d.create(file.id, b"x", kind, h5py.h5s.create_simple((2,)))


@libvers
@pytest.mark.parametrize(("name", "code"), [("F32LE", "<c8"), ("F32BE", ">c8"), ("F64LE", "<c16"), ("F64BE", ">c16")])
def test_complex_numbers_of_hdf5_itself(name: str, code: str, libver: tuple[str, str]) -> None:
    if libver[1] != "latest" or not hasattr(h5py.h5t, f"COMPLEX_IEEE_{name}"):
        return
    with FileOf(with_type(getattr(h5py.h5t, f"COMPLEX_IEEE_{name}")), libver=libver) as both:
        assert both.ours.find("x").datatype.dtype == np.dtype(code) == both.theirs["x"].dtype


@pytest.mark.parametrize(("name", "code"), [("B8LE", "u1"), ("B16BE", ">u2"), ("B64LE", "<u8")])
def test_bitfields_are_unsigned(name: str, code: str) -> None:
    with FileOf(with_type(getattr(h5py.h5t, f"STD_{name}"))) as both:
        found = both.ours.find("x").datatype
        assert (found.kind, found.dtype) == ("bitfield", np.dtype(code))


def odd_integer() -> Any:
    kind = h5py.h5t.STD_I32LE.copy()
    kind.set_precision(20)
    return kind


def odd_float() -> Any:
    kind = h5py.h5t.IEEE_F32LE.copy()
    kind.set_fields(15, 7, 8, 0, 7)
    kind.set_precision(16)
    kind.set_size(2)
    return kind


def three_bytes() -> Any:
    kind = h5py.h5t.STD_I32LE.copy()
    kind.set_precision(24)
    kind.set_size(3)
    return kind


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        (odd_integer, "integers of 20 bits"),
        (three_bytes, "3 bytes"),
        (odd_float, "floats of 2 bytes with 8 bits of exponent, 7"),
        (lambda: h5py.h5t.UNIX_D32LE, "time"),
        (lambda: h5py.h5t.STD_REF_DSETREG, "references to regions"),
    ],
    ids=["bits", "width", "bfloat", "time", "region"],
)
def test_what_numpy_has_no_type_for_is_named(kind: Any, named: str) -> None:
    with FileOf(with_type(kind())) as both:
        assert both.ours.root.kinds() == {"x": "array"}
        with pytest.raises(UnsupportedError, match=named):
            both.ours.find("x")


def test_fields_of_version_1_may_be_arrays() -> None:
    field = b"ab\0" + bytes(5) + struct.pack("<IB11x4I", 4, 2, 2, 3, 0, 0) + integer(2)
    found = parsed(head(6, 16, 1) + field)
    assert found.dtype == np.dtype({"names": ["ab"], "formats": [("<i2", (2, 3))], "offsets": [4], "itemsize": 16})


def nested(depth: int) -> bytes:
    # From the inside out: each is an array of one of the next.
    return b"".join(head(10, 4, version=3) + b"\x01" + struct.pack("<I", 1) for _ in range(depth)) + integer()


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (nested(10_000), "nested deeper"),
        (head(6, 8, 65535), "never ends"),
        (head(6, 8, 0), "compound whose fields are"),
        (head(6, 8, 2, 3) + (b"a\0\0" + integer()) * 2, "unlike names"),
        (head(6, 8, 1, 3) + b"a\0\x06" + integer(), "reaches out of its cell"),
        (head(0, 0), "cells of 0 bytes"),
        (head(5, 2**32 - 1), "4294967295 bytes"),
        (head(10, 4, version=3) + b"\x20" + bytes(128) + integer(), "array of shape"),
        (head(10, 4, version=3) + b"\x02" + b"\xff" * 8 + integer(), "array of shape"),
        (head(10, 9, version=3) + b"\x01\x02\0\0\0" + integer(), "says it has 9"),
        (head(10, 4, version=3) + b"\x21", "array of 33 axes"),
        (head(9, 15) + integer(), "variable length"),
        (head(8, 4, 3) + integer() + b"a\0", "ends at byte"),
        (head(12, 4), "unknown class 12"),
        (head(0, 4, version=9), "version 9"),
    ],
    ids=["deep", "count", "empty", "twice", "outside", "nothing", "huge", "zero-axis", "wide", "size", "axes", "vlen",
         "enum", "class", "version"],
)  # fmt: skip
def test_types_that_lie(raw: bytes, message: str) -> None:
    with pytest.raises(MetadataError, match=message):
        parsed(raw)


def test_enums_over_anything_but_integers_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="enums of 4 bytes over string"):
        parsed(head(8, 4, 1) + head(3, 4) + b"a" + bytes(7) + bytes(4))


@given(st.binary(max_size=200))
def test_any_bytes_give_a_type_or_a_typed_error(raw: bytes) -> None:
    with suppress(HyperslabError):
        assert parsed(raw).nbytes > 0


@given(st.sampled_from([6, 8, 9, 10, 11]), st.integers(1, 3), st.binary(max_size=80), st.data())
def test_any_nested_bytes_give_a_type_or_a_typed_error(
    number: int, version: int, raw: bytes, data: st.DataObject
) -> None:
    raw = head(number, data.draw(st.integers(1, 64)), data.draw(st.integers(0, 4)), version) + raw + integer()
    test_any_bytes_give_a_type_or_a_typed_error.hypothesis.inner_test(raw)
