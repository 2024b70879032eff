"""Datasets: shape, storage, filters and fill values as h5py describes them."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.hdf5_files import LIBVERS, BytesFile, FileOf, file_bytes, opened, read_run

from hyperslab.errors import IntegrityError, MetadataError
from hyperslab.formats.hdf5.messages import ChunkIndexMessage, Compact, Contiguous, External, Virtual
from hyperslab.formats.hdf5.objects import Dataset, open_file

libvers = pytest.mark.parametrize("libver", LIBVERS, ids="-".join)


@st.composite
def datasets(draw: st.DrawFn) -> dict[str, Any]:
    """What h5py is told to make a dataset."""
    shape = tuple(draw(st.lists(st.integers(0, 6), max_size=4)))
    options: dict[str, Any] = {"shape": shape, "dtype": draw(st.sampled_from(["<i2", ">f8", "u1", "S3", "?"]))}
    if shape and draw(st.booleans()):
        options["maxshape"] = tuple(None if draw(st.booleans()) else n + draw(st.integers(0, 9)) for n in shape)
        options["maxshape"] = tuple(n if n is None else max(1, n) for n in options["maxshape"])
        options["chunks"] = tuple(draw(st.integers(1, 4 if n is None else min(4, n))) for n in options["maxshape"])
        options["shuffle"], options["fletcher32"] = draw(st.booleans()), draw(st.booleans())
        options["compression"] = draw(st.sampled_from([None, "gzip", "lzf"]))
    if draw(st.booleans()):
        options["fillvalue"] = {"S": b"ab", "b": True}.get(np.dtype(options["dtype"]).kind, 7)
    return options


@given(datasets(), st.sampled_from(LIBVERS), st.sampled_from([0, 1024]))
def test_any_dataset_is_as_h5py_describes_it(options: dict[str, Any], libver: tuple[str, str], userblock: int) -> None:
    def fill(file: h5py.File) -> None:
        file.create_dataset("x", **options)[...] = 1

    with FileOf(fill, libver=libver, userblock_size=userblock) as both:
        ours, theirs = both.ours.find("x"), both.theirs["x"]
        assert isinstance(ours, Dataset)
        assert (ours.shape, ours.maxshape, ours.datatype.dtype) == (theirs.shape, theirs.maxshape, theirs.dtype)
        assert (ours.fill, ours.fill.dtype, ours.fill.shape) == (theirs.fillvalue, theirs.dtype, ())
        plist = theirs.id.get_create_plist()
        filters = [plist.get_filter(number) for number in range(plist.get_nfilters())]
        assert [(each.id, each.optional, each.values) for each in ours.filters] == [
            (number, bool(flags & h5py.h5z.FLAG_OPTIONAL), values) for number, flags, values, _ in filters
        ]
        if theirs.chunks is None:
            assert isinstance(ours.storage, Contiguous)
            assert ours.storage.offset == (theirs.id.get_offset() if theirs.size else None)
            np.testing.assert_array_equal(read_run(ours, both.data), theirs[()])
        else:
            assert isinstance(ours.storage, ChunkIndexMessage)
            assert ours.storage.chunk_shape == theirs.chunks
            assert (ours.storage.filtered, ours.storage.element_nbytes) == (bool(filters), theirs.dtype.itemsize)


@libvers
@pytest.mark.parametrize("shape", [(), (3,), (0, 2)], ids=str)
def test_cells_within_the_header(shape: tuple[int, ...], libver: tuple[str, str]) -> None:
    cells = np.arange(int(np.prod(shape)), dtype=">i4").reshape(shape)

    def fill(file: h5py.File) -> None:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple(shape) if shape else h5py.h5s.create(h5py.h5s.SCALAR)
        h5py.h5d.create(file.id, b"x", h5py.h5t.STD_I32BE, space, plist).write(space, space, cells)

    data = file_bytes(fill, libver=libver, userblock_size=512)
    found = opened(data).find("x")
    assert isinstance(found.storage, Compact)
    np.testing.assert_array_equal(read_run(found, data), cells)


KINDS = {
    "single": {"shape": (4, 4), "chunks": (4, 4)},
    "fixed_array": {"shape": (9, 9), "chunks": (4, 4)},
    "extensible_array": {"shape": (9, 9), "chunks": (4, 4), "maxshape": (None, 9)},
    "btree2": {"shape": (9, 9), "chunks": (4, 4), "maxshape": (None, None)},
}


@pytest.mark.parametrize("libver", LIBVERS[2:], ids="-".join)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("filtered", [False, True], ids=["plain", "gzip"])
def test_kinds_of_chunk_index(kind: str, filtered: bool, libver: tuple[str, str]) -> None:
    options = KINDS[kind] | ({"compression": "gzip"} if filtered else {})
    cells = np.ones(options["shape"], "i4")
    with FileOf(lambda file: file.create_dataset("x", data=cells, **options), libver=libver) as both:
        found = both.ours.find("x").storage
        assert isinstance(found, ChunkIndexMessage)
        assert (found.kind, found.chunk_shape, found.element_nbytes, found.filtered) == (kind, (4, 4), 4, filtered)
        assert found.address is not None
        assert len(found.params) == {"extensible_array": 5, "btree2": 3}.get(kind, 0)
        info = both.theirs["x"].id.get_chunk_info(0)
        if kind == "single":
            assert found.address == info.byte_offset
            assert found.single_nbytes == (info.size if filtered else 0)


def test_chunks_that_are_allocated_at_once_need_no_index() -> None:
    def fill(file: h5py.File) -> None:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((2,))
        plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        h5py.h5d.create(file.id, b"x", h5py.h5t.STD_I32LE, h5py.h5s.create_simple((9,)), plist)

    with FileOf(fill, libver="latest") as both:
        found = both.ours.find("x").storage
        assert isinstance(found, ChunkIndexMessage)
        assert (found.kind, found.address) == ("implicit", both.theirs["x"].id.get_chunk_info(0).byte_offset)


@libvers
def test_nothing_written_and_no_cells(libver: tuple[str, str]) -> None:
    def fill(file: h5py.File) -> None:
        file.create_dataset("unwritten", (3, 4), "f4", fillvalue=2.5)
        file.create_dataset("null", data=h5py.Empty("f4"))
        file.create_dataset("chunks", (3, 4), "f4", chunks=(1, 2), maxshape=(None, None))

    file = opened(file_bytes(fill, libver=libver))
    assert file.find("unwritten").storage == Contiguous(None, 48)
    assert file.find("unwritten").fill == 2.5
    assert file.find("null").shape is None
    assert file.find("null").dims() is None
    assert file.find("chunks").storage.address is None


@pytest.mark.parametrize("when", ["default", "undefined", "defined"])
@libvers
def test_fill_values(when: str, libver: tuple[str, str]) -> None:
    dtype = np.dtype([("a", ">i4"), ("b", "<f8")])

    def fill(file: h5py.File) -> None:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        if when == "defined":
            plist.set_fill_value(np.array((3, 1.5), dtype))
        if when == "undefined":
            plist.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        h5py.h5d.create(file.id, b"x", h5py.h5t.py_create(dtype), h5py.h5s.create_simple((2,)), plist)

    found = opened(file_bytes(fill, libver=libver)).find("x").fill
    assert (found.dtype, found.tolist()) == (dtype, (3, 1.5) if when == "defined" else (0, 0.0))


def test_other_files(tmp_path: Path) -> None:
    def fill(file: h5py.File) -> None:
        file.create_dataset("ext", (4,), "i4", external=[("a.raw", 8, 12), ("b.raw", 0, h5py.h5f.UNLIMITED)])
        layout = h5py.VirtualLayout((4,), "i4")
        layout[:2] = h5py.VirtualSource("other.h5", "data", (2,))
        file.create_virtual_dataset("virtual", layout)

    file = opened(file_bytes(fill, libver="latest"))
    external = file.find("ext").storage
    assert isinstance(external, External)
    assert [(each.name, each.offset) for each in external.files] == [("a.raw", 8), ("b.raw", 0)]
    assert external.files[0].nbytes == 12
    assert isinstance(file.find("virtual").storage, Virtual)
    assert file.root.kinds() == {"ext": "array", "virtual": "array"}


def test_run_of_cells_that_is_cut_off() -> None:
    data = file_bytes(lambda file: file.create_dataset("x", data=np.arange(1000)), libver=("earliest", "v108"))
    cut = bytearray(data[:4000])
    cut[40:48] = len(cut).to_bytes(8, "little")
    with pytest.raises(IntegrityError, match="cut off"):
        opened(bytes(cut)).find("x")


def test_run_of_cells_that_is_too_short() -> None:
    data = file_bytes(lambda file: file.create_dataset("x", data=np.arange(1000)), libver=("earliest", "v108"))
    assert data.count((8000).to_bytes(8, "little")) == 1
    with pytest.raises(MetadataError, match="needs 8000 bytes and 7999 are stored"):
        opened(data.replace((8000).to_bytes(8, "little"), (7999).to_bytes(8, "little"))).find("x")


@libvers
def test_deep_path_in_a_small_file_takes_one_request(libver: tuple[str, str]) -> None:
    file = BytesFile(file_bytes(lambda file: file.create_dataset("a/b/c/d/e", data=[1]), libver=libver))
    found = open_file(file)
    assert found is not None
    assert found.find("a/b/c/d/e").shape == (1,)
    assert file.rounds == [1]


ELSEWHERE = sorted(Path(h5py.__file__).parent.glob("tests/data_files/*.h5"))


@pytest.mark.parametrize("path", ELSEWHERE, ids=lambda path: path.stem)
def test_files_of_other_machines_and_times(path: Path) -> None:
    file = opened(data := path.read_bytes())
    with h5py.File(path) as theirs:
        assert list(file.root.members()) == sorted(theirs)
        for name, dataset in theirs.items():
            found = file.find(name)
            assert found.datatype.result == dataset.dtype
            expected = dataset.asstr()[()] if h5py.check_string_dtype(dataset.dtype) else dataset[()]
            np.testing.assert_array_equal(read_run(found, data), expected)
