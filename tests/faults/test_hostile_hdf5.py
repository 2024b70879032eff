"""HDF5 files after known attacks on readers, through the front door: typed errors, soon, in little memory."""

import struct
import time
import tracemalloc

import h5py
import numpy as np
import pytest
from support.hdf5_files import file_bytes, libhdf5
from support.hdf5_images import CONTINUED, LAYOUT, NOWHERE, ROOT, Image, attribute, chunks, dataset, guarded, message

import hyperslab as hs
from hyperslab.errors import HyperslabError, IntegrityError, UnsupportedError
from hyperslab.store import memory

# Of processor time: a busy machine does not count.
MOST_S, MOST_BYTES = 2.0, 256 << 20
INTEGER = struct.pack("<BBHIHH", 0x10, 8, 0, 4, 0, 32)


def nested(depth: int) -> bytes:
    """A compound of a compound of a compound …"""
    return b"".join(struct.pack("<BHBI", 0x36, 1, 0, 4) + b"a\0" + b"\0" for _ in range(depth)) + INTEGER


def arrays(depth: int) -> bytes:
    """Arrays of arrays, each of a billion cells."""
    return b"".join(struct.pack("<BBHIBI", 0x3A, 0, 0, 4, 1, 2**30) for _ in range(depth)) + INTEGER


def pipeline(number: int, *values: int, count: int = 1) -> tuple[int, bytes]:
    each = struct.pack(f"<HHHH{len(values)}I", number, 0, 0, len(values), *values) + bytes(4 * (len(values) % 2))
    return 0x0B, struct.pack("<BB6x", 1, count) + each * count


def chunk_tree(*entries: tuple[int, int, int], count: int | None = None, level: int = 0) -> bytes:
    """A B-tree of chunks of two axes: (bytes, first row, address) each."""
    used = len(entries) if count is None else count
    raw = b"TREE" + struct.pack("<BBHQQ", 1, level, used, NOWHERE, NOWHERE)
    return raw + b"".join(struct.pack("<IIQQQQ", n, 0, row, 0, 0, at) for n, row, at in entries)


def strings(cell: bytes, heap: bytes) -> Image:
    """A dataset of six strings of variable length; their heap is at byte 8000."""
    kind = struct.pack("<BBHI", 0x19, 1, 0, 16) + struct.pack("<BBHIHH", 0x10, 0, 0, 1, 0, 8)
    layout = (8, struct.pack("<BBQQ", 3, 1, 6000, 96))
    return dataset(layout, kind=kind).put(6000, cell * 6).put(8000, heap)


def collection(index: int, nbytes: int, size: int = 4096) -> bytes:
    return b"GCOL" + struct.pack("<B3xQ", 1, size) + struct.pack("<HH4xQ", index, 1, nbytes) + b"hello"


HEAP_CELL = struct.pack("<IQI", 5, 8000, 1)
FRACTAL = struct.pack("<HHBIQQQQQQQQQQQQHQQHHQH", 8, 0, 0, 0, *[0] * 12, 0, 0, 0, 0, 0, 8200, 0)

IMAGES = {
    "continuation over the end": Image().header(ROOT, (CONTINUED, struct.pack("<QQ", 65528, 4096))),
    "continuations in a circle": Image()
    .header(ROOT, (CONTINUED, struct.pack("<QQ", 400, 64)), count=9)
    .put(400, message(CONTINUED, struct.pack("<QQ", 400, 64))),
    "node of 65535 symbols": Image().group().tree(1000, 0, 1600, count=65535),
    "table of 65535 symbols": Image().group().tree(1000, 0, 1600).symbols(1600, (8, 5000), count=65535),
    "tree in a circle": Image().group().tree(1000, 1, 1000),
    "names without an end": Image().group().heap(2000, 2100, b"x" * 32).tree(1000, 0, 1600).symbols(1600, (8, 5000)),
    "name outside of its heap": Image().group().tree(1000, 0, 1600).symbols(1600, (2**40, 5000)),
    "header at the end": Image().group().tree(1000, 0, 1600).symbols(1600, (8, 65535)),
    "fill value of 2 GiB": dataset(LAYOUT, (5, struct.pack("<BBBBI", 2, 2, 0, 1, 2**31 - 1))),
    "old fill value": dataset(LAYOUT, (4, struct.pack("<I", 2**32 - 1))),
    "compound of compounds": dataset(LAYOUT, kind=nested(3000)),
    "arrays of arrays": dataset(LAYOUT, kind=arrays(40)),
    "axes that overflow": dataset(LAYOUT, shape=(2**63, 2)),
    "attribute that overflows": dataset(LAYOUT, attribute((2**61, 8), bytes(8))),
    "attribute of 65535 bytes": dataset(LAYOUT, (0x0C, struct.pack("<BxHHH", 1, 65535, 65535, 65535))),
    "33 filters": dataset(chunks(2, 3, 4), pipeline(1, 9, count=33)),
    "chunks of no rows": dataset(chunks(0, 3, 4)),
    "chunks of 33 axes": dataset((8, struct.pack("<BBBQ34I", 3, 2, 34, 6000, *[1] * 34))),
    "chunk of 4 GiB": dataset(chunks(2, 3, 4)).put(6000, chunk_tree((2**32 - 1, 0, 7000))),
    "chunk outside of the file": dataset(chunks(2, 3, 4)).put(6000, chunk_tree((24, 0, 2**62))),
    "two chunks in one place": dataset(chunks(1, 3, 4)).put(6000, chunk_tree((12, 0, 7000), (12, 1, 7000))),
    "one chunk twice": dataset(chunks(2, 3, 4)).put(6000, chunk_tree((24, 0, 7000), (24, 0, 7100))),
    "node of 65535 chunks": dataset(chunks(2, 3, 4)).put(6000, chunk_tree((24, 0, 7000), count=65535)),
    "chunk index in a circle": dataset(chunks(2, 3, 4)).put(6000, chunk_tree((24, 0, 6000), level=1)),
    "chunk index 255 levels deep": dataset(chunks(2, 3, 4)).put(6000, chunk_tree((24, 0, 6500), level=255)),
    "scale-offset without values": dataset(chunks(2, 3, 4), pipeline(6)).put(6000, chunk_tree((64, 0, 7000))),
    "scale-offset of odd values": dataset(chunks(2, 3, 4), pipeline(6, *[2**32 - 1] * 20)).put(
        6000, chunk_tree((64, 0, 7000))
    ),
    "scale-offset of 2**32 bits": dataset(
        chunks(2, 3, 4), pipeline(6, 2, 0, 6, 0, 4, 0, 0, 0, *[0] * 12)
    ).put(6000, chunk_tree((64, 0, 7000))).put(7000, b"\xff" * 64),
    "n-bit of odd values": dataset(chunks(2, 3, 4), pipeline(5, *[2**32 - 1] * 8)).put(
        6000, chunk_tree((64, 0, 7000))
    ),
    "shuffle of giant cells": dataset(chunks(2, 3, 4), pipeline(2, 2**32 - 1), pipeline(1, 9)).put(
        6000, chunk_tree((64, 0, 7000))
    ),
    "unknown filter": dataset(chunks(2, 3, 4), pipeline(65535)).put(6000, chunk_tree((64, 0, 7000))),
    "type shared with itself": Image().group().tree(1000, 0, 1600).symbols(1600, (8, 5000)).header(
        5000, (1, struct.pack("<BBB5xQ", 1, 1, 0, 3)), (3, struct.pack("<BBQ", 2, 0, 5000)), LAYOUT
    ).put(5000 + 16 + 24 + 4, b"\x02"),
    "heap object of 2**63 bytes": strings(HEAP_CELL, collection(1, 2**63)),
    "heap object that is not there": strings(HEAP_CELL, collection(65535, 5)),
    "heap of nothing": strings(HEAP_CELL, collection(1, 5, size=0)),
    "heap of 2**40 bytes": strings(HEAP_CELL, collection(1, 5, size=2**40)),
    "heap that is none": strings(HEAP_CELL, bytes(16)),
    "blocks of no bytes": dataset(LAYOUT, (0x15, struct.pack("<BBQQ", 0, 0, 8000, 9000)))
    .put(8000, guarded(b"FRHP\0" + FRACTAL))
    .put(9000, guarded(b"BTHD" + struct.pack("<BBIHHBBQHQ", 0, 8, 512, 17, 0, 98, 40, 9200, 1, 1)))
    .put(9200, guarded(b"BTLF\0\x08" + bytes(17))),
}  # fmt: skip


def look(url: str) -> list[str]:
    """Open a file, show its tree, read every member; return which errors there were."""
    found, began = [], time.process_time()
    with hs.Session(cache_bytes=1 << 20) as session:
        try:
            group = hs.open(url, session=session)
            found += ["cannot be read"] * ("cannot be read" in group.tree())
            for name in group:
                group[name][...]
        except HyperslabError as error:
            found.append(type(error).__name__)
    assert time.process_time() - began < MOST_S
    return found


@pytest.fixture(params=["local", "remote"])
def place(request, tmp_path):
    """Where files are put: a function from bytes to a URL."""

    def put(data: bytes) -> str:
        if request.param == "local":
            (tmp_path / "a.h5").write_bytes(data)
            return str(tmp_path / "a.h5")
        memory("hostile-hdf5").put("a.h5", data)
        return "memory://hostile-hdf5/a.h5"

    return put


@pytest.mark.parametrize("name", IMAGES)
def test_lies(place, name):
    url = place(bytes(IMAGES[name].data))
    tracemalloc.start()
    try:
        assert look(url)
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    finally:
        tracemalloc.stop()


def test_without_a_lie_there_is_no_error(place):
    assert look(place(bytes(dataset(LAYOUT).data))) == []
    assert look(place(bytes(dataset(chunks(2, 3, 4)).put(6000, chunk_tree((24, 0, 7000))).data))) == []
    assert look(place(bytes(strings(HEAP_CELL, collection(1, 5)).data))) == []


def test_groups_that_hold_themselves_are_told_of_once(place):
    def fill(file):
        file.create_group("a/b")["up"] = file["/"]
        file["a/soft"] = h5py.SoftLink("/a")
        inner = file["a/b"]
        for _ in range(30):  # 2**30 paths
            left = inner.create_group("left")
            inner["right"] = left
            inner = left

    lines = hs.open(place(file_bytes(fill))).tree().splitlines()
    assert lines[:4] == ["a/", "  b/", "    left/", "      left/"]
    assert sum("told of above" in line for line in lines) == 32
    assert len(lines) == 64


def test_groups_deeper_than_python_calls(place):
    def fill(file):
        group = file
        for _ in range(1200):
            group = group.create_group("g")
        group["x"] = 5

    url = place(file_bytes(fill))
    assert hs.open(url).tree().count("g/") == 1200
    assert hs.open(url + "/g" * 1200 + "/x")[()] == 5


def test_a_group_of_many_members_is_parsed_once(place):
    """Per member there is one header to look at, not the whole group again."""

    def fill(file):
        for number in range(600):
            file.create_dataset(f"d{number}", data=number)

    with hs.Session() as session:
        group = hs.open(place(file_bytes(fill)), session=session)
        began = session.metrics.lookups
        assert sum(int(group[name][()]) for name in group) == 600 * 599 // 2
        assert session.metrics.lookups - began < 2500


def test_a_file_whose_writer_never_closed_it(place):
    data = bytearray(file_bytes(lambda file: file.create_dataset("x", data=[1, 2]), libver="latest"))
    data[11] |= 1
    data[44:48] = guarded(bytes(data[:44]))[-4:]
    with pytest.raises(IntegrityError, match="never closed"):
        hs.open(place(bytes(data)))
    # One that is written so that it can be read meanwhile.
    data[11] |= 4
    data[44:48] = guarded(bytes(data[:44]))[-4:]
    assert hs.open(place(bytes(data)) + "/x")[...].tolist() == [1, 2]


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_a_file_that_is_one_of_two(tmp_path, libver):
    with h5py.File(tmp_path / "a", "w", driver="split", meta_ext=b".h5", raw_ext=b".raw", libver=libver) as file:
        file["x"] = np.arange(5)
    with pytest.raises(UnsupportedError, match="split or multi driver"):
        hs.open(str(tmp_path / "a.h5"))


def test_a_file_with_an_image_of_its_writers_cache(tmp_path):
    library = libhdf5()
    if library is None:
        pytest.skip("needs the C library of h5py")
    import ctypes

    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    access.set_libver_bounds(h5py.h5f.LIBVER_LATEST, h5py.h5f.LIBVER_LATEST)
    # Version 1, to be made, not resized, of entries of any age.
    library.H5Pset_mdc_image_config(ctypes.c_int64(access.id), struct.pack("<i??xxi", 1, True, False, -1))
    with h5py.File(h5py.h5f.create(str(tmp_path / "a.h5").encode(), fapl=access)) as file:
        file["x"] = np.arange(5)
    with pytest.raises(UnsupportedError, match="image of its writer's cache"):
        hs.open(str(tmp_path / "a.h5"))


@pytest.mark.parametrize("sizes", [(4, 4), (8, 4), (4, 8)], ids=str)
def test_strings_of_files_with_narrow_lengths(tmp_path, sizes):
    create = h5py.h5p.create(h5py.h5p.FILE_CREATE)
    create.set_sizes(*sizes)
    words = ["hello", "", "wörld", "a longer one"]
    with h5py.File(h5py.h5f.create(str(tmp_path / "a.h5").encode(), fcpl=create)) as file:
        file["s"], file.attrs["t"] = words, words
    group = hs.open(str(tmp_path / "a.h5"))
    assert group["s"][...].tolist() == words
    assert group.attrs["t"].tolist() == words


def test_a_damaged_attribute_does_not_hide_the_other_members(place):
    image = dataset(LAYOUT, (0x0C, struct.pack("<BxHHH", 1, 65535, 65535, 65535)))
    image.symbols(1600, (8, 5000), (16, 9000)).header(
        9000, (1, struct.pack("<BBB5xQ", 1, 1, 0, 3)), (3, INTEGER), LAYOUT
    )
    group = hs.open(place(bytes(image.data)))
    assert list(group) == ["name", "o"]
    assert group["o"].shape == (3,)
    assert "name  cannot be read" in group.tree()
