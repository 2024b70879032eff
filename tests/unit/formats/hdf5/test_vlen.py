"""Cells of variable length and padded strings: as h5py reads them, in few requests, and heaps that lie."""

import struct
from dataclasses import replace
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.hdf5_files import LIBVERS, BytesFile, FileOf, file_bytes, opened, read_run

from hyperslab.errors import IntegrityError, MetadataError
from hyperslab.formats.hdf5.datatype import Datatype
from hyperslab.formats.hdf5.heaps import Collections
from hyperslab.formats.hdf5.superblock import Superblock
from hyperslab.formats.hdf5.vlen import resolve

libvers = pytest.mark.parametrize("libver", LIBVERS, ids="-".join)
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=50)
TEXT = Datatype("vlen_string", np.dtype("V16"), np.dtype(object))
BYTES = Datatype("vlen", np.dtype("V16"), np.dtype(object), base=Datatype("number", np.dtype("<i2"), np.dtype("<i2")))


def made(dtype: np.dtype, cells: Any, shape: tuple[int, ...] | None = None) -> Any:
    def fill(file: h5py.File) -> None:
        data = file.create_dataset("x", (len(cells),) if shape is None else shape, dtype)
        for at, cell in zip(np.ndindex(data.shape), cells, strict=False):
            if cell is not None:
                data[at] = cell

    return fill


@given(st.lists(texts, min_size=1, max_size=30), st.sampled_from(["ascii", "utf-8"]), st.sampled_from(LIBVERS))
def test_any_strings(cells: list[str], charset: str, libver: tuple[str, str]) -> None:
    if charset == "ascii":
        cells = [cell.encode("ascii", "ignore").decode() for cell in cells]
    fill = lambda file: file.create_dataset("x", data=cells, dtype=h5py.string_dtype(charset))  # noqa: E731
    with FileOf(fill, libver=libver) as both:
        found = both.ours.find("x")
        assert (found.datatype.kind, found.datatype.charset, found.datatype.plain) == ("vlen_string", charset, False)
        ours = read_run(found, both.data)
        assert ours.dtype == object
        assert ours.tolist() == both.theirs["x"].asstr(errors="surrogateescape")[()].tolist() == cells


@given(
    st.lists(st.lists(st.integers(-99, 99), max_size=9), min_size=1, max_size=9), st.sampled_from(["<i2", ">f8", "?"])
)
def test_any_sequences(cells: list[list[int]], code: str) -> None:
    expected = [np.array(cell, code) for cell in cells]
    with FileOf(made(h5py.vlen_dtype(np.dtype(code)), expected)) as both:
        ours = read_run(both.ours.find("x"), both.data)
        assert [(each.dtype, each.tolist()) for each in ours] == [(each.dtype, each.tolist()) for each in expected]


@libvers
def test_sequences_of_strings_and_of_compounds(libver: tuple[str, str]) -> None:
    pair = np.dtype([("n", "<i4"), ("v", "<f8")])
    words = [np.array(["a", "bc"], object), np.array([], object), np.array(["", "ü"], object)]
    pairs = [np.array([(1, 2.5)], pair), np.zeros(0, pair), np.zeros(3, pair)]

    def fill(file: h5py.File) -> None:
        made(h5py.vlen_dtype(h5py.string_dtype()), words)(file)
        file.move("x", "words")
        made(h5py.vlen_dtype(pair), pairs)(file)

    file = opened(data := file_bytes(fill, libver=libver))
    assert [each.tolist() for each in read_run(file.find("words"), data)] == [each.tolist() for each in words]
    assert [each.tolist() for each in read_run(file.find("x"), data)] == [each.tolist() for each in pairs]


@libvers
def test_compounds_and_arrays_with_strings(libver: tuple[str, str]) -> None:
    dtype = np.dtype([("name", h5py.string_dtype()), ("n", "<i4"), ("two", h5py.string_dtype(), (2,))])
    cells = np.array([("eins", 1, ("a", "b")), ("", 2, ("c", "")), ("drei", 3, ("", ""))], dtype)
    with FileOf(lambda file: file.create_dataset("x", data=cells, dtype=dtype), libver=libver) as both:
        found = both.ours.find("x")
        ours = read_run(found, both.data)
        assert ours.dtype == found.datatype.result
        assert ours["name"].tolist() == ["eins", "", "drei"]
        assert ours["n"].tolist() == [1, 2, 3]
        assert ours["two"].tolist() == [["a", "b"], ["c", ""], ["", ""]]


def test_cells_never_written_are_empty() -> None:
    data = file_bytes(made(h5py.string_dtype(), ["a", None, "c"], (2, 3)))
    assert read_run(opened(data).find("x"), data).tolist() == [["a", "", "c"], ["", "", ""]]
    data = file_bytes(lambda file: file.create_dataset("x", (2,), h5py.string_dtype(), fillvalue="none"))
    assert read_run(opened(data).find("x"), data).tolist() == ["none", "none"]


def test_many_strings_take_few_rounds() -> None:
    cells = [f"text number {number}" * 3 for number in range(5000)]
    file = BytesFile(file_bytes(lambda file: file.create_dataset("x", data=cells, dtype=h5py.string_dtype())))
    found = opened(bytes(file.data)).find("x")
    raw = np.frombuffer(file.data[found.storage.offset :][: found.storage.nbytes], found.datatype.dtype)
    collections = Collections()
    ours = resolve(file, found.file.superblock, raw, found.datatype, collections)
    assert ours.tolist() == cells
    assert len(file.rounds) == 2
    # And they are kept.
    assert resolve(file, found.file.superblock, raw[::-7], found.datatype, collections).tolist() == cells[::-7]
    assert len(file.rounds) == 2


def test_large_strings_and_little_memory_for_them() -> None:
    cells = [f"{number}" * 100_000 for number in range(9)]
    file = BytesFile(file_bytes(lambda file: file.create_dataset("x", data=cells, dtype=h5py.string_dtype())))
    found = opened(bytes(file.data)).find("x")
    raw = np.frombuffer(file.data[found.storage.offset :][: found.storage.nbytes], found.datatype.dtype)
    collections = Collections(most_bytes=250_000)
    assert resolve(file, found.file.superblock, raw, found.datatype, collections).tolist() == cells
    assert len(file.rounds) == 2
    assert sum(kept[0] for kept in collections._kept.values()) <= 250_000


@pytest.mark.parametrize(
    ("padding", "expected"), [("null-terminated", [b"ab", b"a", b""]), ("null-padded", [b"ab", b"a\0b", b"\0  "]),
                              ("space-padded", [b"ab", b"a\0b", b""])]
)  # fmt: skip
def test_fixed_strings_lose_their_padding(padding: str, expected: list[bytes]) -> None:
    cells = (
        np.array([b"ab", b"a\0b", b"\0  "], "S5")
        if padding != "space-padded"
        else np.array([b"ab   ", b"a\0b  ", b"\0    "])
    )
    kind = Datatype("string", np.dtype("S5"), np.dtype("S5"), padding=padding)
    sb = Superblock(3, 0, 8, 8, 0, 0)
    assert resolve(BytesFile(b""), sb, cells, kind).tolist() == expected
    assert kind.plain == (padding == "null-padded")


def heap(*objects: tuple[int, bytes | tuple[int, bytes]], nbytes: int | None = None, version: int = 1) -> bytes:
    """Return a global heap collection; an object may lie about its size."""
    body = b""
    for index, data in objects:
        size, data = data if isinstance(data, tuple) else (len(data), data)
        body += struct.pack("<HHIQ", index, 1, 0, size) + data + bytes(-len(data) % 8)
    return b"GCOL" + struct.pack("<B3xQ", version, 16 + len(body) if nbytes is None else nbytes) + body


def cell(count: int, address: int, index: int) -> bytes:
    return struct.pack("<IQI", count, address, index)


def read(file: bytes, cells: bytes, kind: Datatype = TEXT) -> list[Any]:
    sb = Superblock(3, 0, 8, 8, len(file), 0)
    return resolve(BytesFile(file), sb, np.frombuffer(cells, "V16"), kind).tolist()


def test_heap_by_hand() -> None:
    file = bytes(8) + heap((1, b"one"), (3, b"three"), (0, b""))
    assert read(file, cell(3, 8, 1) + cell(0, 8, 9) + cell(5, 8, 3) + cell(7, 0, 0)) == ["one", "", "three", ""]
    assert read(file, cell(1, 8, 1), BYTES)[0].tolist() == [int.from_bytes(b"on", "little")]


@pytest.mark.parametrize(
    ("file", "cells", "error", "message"),
    [
        (heap((1, b"one")), cell(3, 8, 2), MetadataError, "no such object"),
        (heap((1, b"one")), cell(4, 8, 1), MetadataError, "needs 4 bytes"),
        (heap((1, b"one")), cell(2**32 - 1, 8, 1), MetadataError, "needs 4294967295 bytes"),
        (heap((1, (2**40, b"one"))), cell(3, 8, 1), MetadataError, "ends at byte"),
        (heap((1, (2**63, b"one"))), cell(3, 8, 1), MetadataError, "ends at byte"),
        (heap((1, b"one"), nbytes=2**50), cell(3, 8, 1), MetadataError, "at most"),
        (heap((1, b"one"), nbytes=4000), cell(3, 8, 1), IntegrityError, "cut off"),
        (heap((1, b"one"), nbytes=3), cell(3, 8, 1), MetadataError, "says it has 3 bytes"),
        (heap((1, b"one"), version=2), cell(3, 8, 1), MetadataError, "version 2"),
        (b"GCOX" + bytes(40), cell(3, 8, 1), MetadataError, "should begin with b'GCOL'"),
        (heap((1, b"one")), cell(3, 2**63, 1), MetadataError, "outside of the file"),
        (heap((1, b"one")), cell(3, 2**64 - 1, 1), MetadataError, "outside of the file"),
        (heap((1, b"one")), cell(3, 45, 1), MetadataError, "ends at byte"),
    ],
    ids=["index", "count", "most", "size", "huge", "collection", "cut", "short", "version", "signature", "far", "none",
         "end"],
)  # fmt: skip
def test_heaps_that_lie(file: bytes, cells: bytes, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        read(bytes(8) + file, cells)


def test_cells_that_share_an_object_share_its_memory() -> None:
    file = bytes(8) + heap((1, b"x" * 50_000))
    found = read(file, cell(50_000, 8, 1) * 20_000)
    assert len({id(each) for each in found}) == 1


def test_cells_that_refer_to_one_another_end() -> None:
    # Each object refers a hundred times to the next, the last to the first: read out, that would never end.
    kind = BYTES
    for _ in range(12):
        kind = Datatype("vlen", np.dtype("V16"), np.dtype(object), base=kind)
    file = bytes(8) + heap(
        *[(index, b"".join(cell(count, 8, index % 12 + 1) for count in range(1, 101))) for index in range(1, 13)]
    )
    with pytest.raises(MetadataError, match="refer to more than the"):
        read(file, cell(100, 8, 1), kind)


def test_cells_of_many_lengths_that_share_an_object_end() -> None:
    file = bytes(8) + heap((1, b"x" * 50_000))
    with pytest.raises(MetadataError, match="refer to more than the"):
        read(file, b"".join(cell(count, 8, 1) for count in range(1, 50_000)))


@libvers
def test_sequences_of_arrays(libver: tuple[str, str]) -> None:
    cells = [np.arange(6).reshape(2, 3).astype("<i2"), np.arange(3).reshape(1, 3).astype("<i2")]

    def fill(file: h5py.File) -> None:
        kind = h5py.h5t.vlen_create(h5py.h5t.array_create(h5py.h5t.STD_I16LE, (3,)))
        h5py.h5d.create(file.id, b"x", kind, h5py.h5s.create_simple((2,)))

    data = bytearray(file_bytes(fill, libver=libver))
    found = opened(bytes(data)).find("x")
    # h5py does not write these; the heap goes behind the file.
    at = len(data)
    data += heap((1, cells[0].tobytes()), (2, cells[1].tobytes()))
    raw = np.frombuffer(cell(2, at, 1) + cell(1, at, 2), "V16")
    ours = resolve(BytesFile(bytes(data)), replace(found.file.superblock, size=len(data)), raw, found.datatype)
    assert [each.tolist() for each in ours] == [each.tolist() for each in cells]


@given(st.binary(max_size=120), st.lists(st.binary(min_size=16, max_size=16), min_size=1, max_size=4))
def test_any_heap_gives_values_or_a_typed_error(body: bytes, cells: list[bytes]) -> None:
    file = bytes(8) + b"GCOL" + struct.pack("<B3xQ", 1, 16 + len(body)) + body
    near = cell(1, 8, cells[0][0] % 4)
    for kind in (TEXT, BYTES):
        try:
            read(file, b"".join([near, *cells]), kind)
        except (MetadataError, IntegrityError):
            continue
