"""Chunk indexes of every kind: the same chunks that h5py finds, and typed errors for all that is damaged."""

import ctypes
import io
import struct
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.hdf5_files import BytesFile, libhdf5
from support.profiles import times

from hyperslab.errors import HyperslabError, IntegrityError, MetadataError, UnsupportedError
from hyperslab.formats.hdf5.checksum import lookup3
from hyperslab.formats.hdf5.chunks import chunk_table
from hyperslab.formats.hdf5.messages import ChunkIndexMessage
from hyperslab.formats.hdf5.objects import Dataset, open_file
from hyperslab.formats.hdf5.superblock import Superblock
from hyperslab.layout.table import ChunkTable

OLD, V110, NEW = ("earliest", "v108"), ("v110", "v110"), ("latest", "latest")


def written(fill: Callable[[h5py.File], Any], libver: Any = NEW, **options: Any) -> bytes:
    """Return the bytes of a file that `fill` wrote; unlike a file object, the core driver keeps holes."""
    with h5py.File("in-memory", "w", driver="core", backing_store=False, libver=libver, **options) as file:
        fill(file)
        file.flush()
        return bytes(file.id.get_file_image())


@dataclass
class Case:
    """A dataset "a" in a file: what our parser and h5py know of it."""

    raw: bytes
    message: ChunkIndexMessage
    superblock: Superblock
    shape: tuple[int, ...]
    maxshape: tuple[int | None, ...]

    @classmethod
    def of(cls, raw: bytes) -> "Case":
        found = open_file(BytesFile(raw))
        dataset = found.find("a")
        assert isinstance(dataset, Dataset)
        assert isinstance(dataset.storage, ChunkIndexMessage)
        return cls(raw, dataset.storage, found.superblock, dataset.shape, dataset.maxshape)

    @property
    def grid(self) -> tuple[int, ...]:
        return tuple(-(-n // c) for n, c in zip(self.shape, self.message.chunk_shape, strict=True))

    def table(self, raw: bytes | None = None, file: BytesFile | None = None) -> ChunkTable:
        file = file or BytesFile(self.raw if raw is None else raw)
        return chunk_table(file, self.superblock, self.message, self.shape, self.maxshape)

    def spans(self) -> list[tuple[int, int]]:
        """Return all parts of the file that the index is read from."""
        found: list[tuple[int, int]] = []

        class Noting(BytesFile):
            def read_many(self, spans: Sequence[tuple[int, int]]) -> list[memoryview]:
                found.extend(spans)
                return super().read_many(spans)

        self.table(file=Noting(self.raw))
        return found

    def check(self, places: Sequence[tuple[int, ...]] | None = None) -> ChunkTable:
        """Compare with what h5py finds: its direct reads, as its iteration over chunks is wrong for swapped axes."""
        table = self.table()
        assert table.offsets.size == table.lengths.size == prod(self.grid)
        with h5py.File(io.BytesIO(self.raw), "r") as file:
            data = file["a"]
            assert data.id.get_num_chunks() == np.count_nonzero(table.offsets >= 0)
            for place in np.ndindex(*self.grid) if places is None else places:
                at = int(np.ravel_multi_index(place, self.grid))
                start, nbytes = int(table.offsets[at]), int(table.lengths[at])
                mask = 0 if table.masks is None else int(table.masks[at])
                try:
                    if not data.id.get_num_chunks():
                        # Of a single chunk that is not there, h5py takes any number for its size.
                        raise OSError
                    expected = data.id.read_direct_chunk(
                        tuple(int(p) * c for p, c in zip(place, self.message.chunk_shape, strict=True))
                    )
                except (OSError, RuntimeError):
                    assert (start, nbytes, mask) == (-1, -1, 0)
                    continue
                if mask == 0xFFFFFFFF:
                    mask = expected[0]
                    assert nbytes == prod(self.message.chunk_shape) * self.message.element_nbytes
                assert (mask, self.raw[start : start + nbytes]) == expected
        return table


def make(
    shape: tuple[int, ...],
    chunks: tuple[int, ...],
    *,
    libver: Any = NEW,
    write: Callable[[h5py.Dataset], Any] | None = None,
    file_options: dict[str, Any] | None = None,
    **options: Any,
) -> Case:
    def fill(file: h5py.File) -> None:
        data = file.create_dataset("a", shape, chunks=chunks, **{"dtype": "<u2", **options})
        if write is None:
            data[...] = np.arange(data.size, dtype=data.dtype).reshape(shape)
        else:
            write(data)

    return Case.of(written(fill, libver, **(file_options or {})))


GZIP = {"compression": "gzip", "compression_opts": 1}
EVERY_KIND = [
    pytest.param(libver, maxshape, chunks, options, kind, id=f"{kind}-{'gzip' if options else 'raw'}-{number}")
    for options in ({}, GZIP)
    for number, (libver, maxshape, chunks, kind) in enumerate(
        [
            (OLD, None, (7, 9), "btree1"),
            (OLD, (None, None), (7, 9), "btree1"),
            (NEW, None, (60, 50), "single"),
            (NEW, None, (7, 9), "fixed_array"),
            (NEW, (100, 90), (7, 9), "fixed_array"),
            (NEW, (None, 50), (7, 9), "extensible_array"),
            (NEW, (60, None), (7, 9), "extensible_array"),
            (NEW, (200, None), (7, 9), "extensible_array"),
            (NEW, (None, None), (7, 9), "btree2"),
        ]
    )
]
every_kind = pytest.mark.parametrize(("libver", "maxshape", "chunks", "options", "kind"), EVERY_KIND)


@every_kind
def test_finds_what_h5py_finds(libver, maxshape, chunks, options, kind):
    case = make((60, 50), chunks, libver=libver, maxshape=maxshape, **options)
    assert case.message.kind == kind
    case.check()


@every_kind
def test_chunks_that_were_not_written_are_not_there(libver, maxshape, chunks, options, kind):
    def write(data: h5py.Dataset) -> None:
        if kind != "single":
            data[0, 0] = data[20:40, 30] = data[59, 49] = 1

    case = make((60, 50), chunks, libver=libver, maxshape=maxshape, write=write, **options)
    table = case.check()
    assert (table.offsets < 0).any()


@pytest.mark.parametrize(
    ("libver", "maxshape", "chunks", "options", "kind"), [each for each in EVERY_KIND if each.values[1] is not None]
)
def test_after_a_dataset_shrank_and_grew(libver, maxshape, chunks, options, kind):
    def write(data: h5py.Dataset) -> None:
        data[...] = 3
        data.resize((30, 20))
        data.resize((50, 41))
        data[45:, 30:] = 4

    case = make((60, 50), chunks, libver=libver, maxshape=maxshape, write=write, **options)
    assert case.message.kind == kind
    case.check()


@pytest.mark.parametrize("maxshape", [None, (100, 90)])
def test_implicit(maxshape):
    def fill(file: h5py.File) -> None:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((7, 9))
        plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        space = h5py.h5s.create_simple((60, 50), maxshape or (60, 50))
        h5py.h5d.create(file.id, b"a", h5py.h5t.STD_U16LE, space, dcpl=plist)
        file["a"][...] = np.arange(3000).reshape(60, 50)

    case = Case.of(written(fill))
    assert case.message.kind == "implicit"
    assert case.spans() == []
    assert (case.check().offsets >= 0).all()


@pytest.mark.parametrize("options", [{}, GZIP])
def test_fixed_array_in_pages(options):
    case = make((5000,), (1,), write=lambda data: data.__setitem__(slice(1000, 1100), 7), **options)
    assert case.message.kind == "fixed_array"
    # Only pages that were written are read: after the header and the list of pages, the first and second of five.
    file = BytesFile(case.raw)
    case.table(file=file)
    assert file.rounds == [1, 1, 2]
    case.check([(i,) for i in (0, 999, 1000, 1023, 1024, 1099, 1100, 2048, 4999)])


@pytest.mark.parametrize("options", [{}, GZIP])
def test_extensible_array_in_pages(options):
    some = [0, 3, 4, 100, 5000, 131000, 131055, 131056, 131072, 132000, 140000, 199999, 262143, 262144, 279999]

    def write(data: h5py.Dataset) -> None:
        for i in some:
            data[i] = i % 9999

    case = make((280_000,), (1,), maxshape=(None,), write=write, **options)
    assert case.message.kind == "extensible_array"
    assert len(case.spans()) < 100
    case.check([(i + off,) for i in some[:-1] for off in (0, 1)] + [(279_999,), (250_000,)])


@pytest.mark.parametrize(("libver", "kind"), [(OLD, "btree1"), (NEW, "btree2")])
def test_trees_are_read_level_by_level(libver, kind):
    case = make((150, 150), (1, 1), libver=libver, maxshape=(None, None), dtype="u1")
    assert case.message.kind == kind
    file = BytesFile(case.raw)
    table = case.table(file=file)
    assert (table.offsets >= 0).all()
    # Three levels, and the header of the newer tree.
    assert len(file.rounds) <= 4
    assert file.nbytes < 4_000_000
    case.check([(0, 0), (3, 149), (149, 0), (149, 149), (77, 78)])


@pytest.mark.parametrize("k", [2, 5, 64, 300])
def test_nodes_of_another_size(k):
    library = libhdf5()
    if library is None:
        pytest.skip("the library of h5py was not found")
    plist, access = h5py.h5p.create(h5py.h5p.FILE_CREATE), h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    assert library.H5Pset_istore_k(ctypes.c_int64(plist.id), ctypes.c_uint(k)) >= 0
    access.set_fapl_core(backing_store=False)
    number = h5py.h5f.create(b"in-memory", h5py.h5f.ACC_TRUNC, fcpl=plist, fapl=access)
    with h5py.File(number) as file:
        file.create_dataset("a", data=np.arange(900, dtype="u1").reshape(30, 30), chunks=(1, 1))
        file.flush()
        case = Case.of(bytes(number.get_file_image()))
    expected = case.check()
    # Also where the superblock was not asked.
    usual = replace(case.superblock, chunk_k=32)
    found = chunk_table(BytesFile(case.raw), usual, case.message, case.shape)
    np.testing.assert_array_equal(found.offsets, expected.offsets)


@pytest.mark.parametrize("width", [4, 8])
@pytest.mark.parametrize("options", [{}, GZIP])
@pytest.mark.parametrize(
    ("libver", "maxshape"), [(OLD, None), (NEW, None), (NEW, (None, 50)), (NEW, (None, None))], ids=str
)
def test_short_addresses_behind_a_user_block(libver, maxshape, options, width):
    plist, access = h5py.h5p.create(h5py.h5p.FILE_CREATE), h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    plist.set_sizes(width, width)
    plist.set_userblock(1024)
    access.set_fapl_core(backing_store=False)
    low = h5py.h5f.LIBVER_EARLIEST if libver is OLD else h5py.h5f.LIBVER_LATEST
    access.set_libver_bounds(low, h5py.h5f.LIBVER_LATEST)
    number = h5py.h5f.create(b"in-memory", h5py.h5f.ACC_TRUNC, fcpl=plist, fapl=access)
    cells = np.arange(3000, dtype="<u2").reshape(60, 50)
    with h5py.File(number) as file:
        file.create_dataset("a", data=cells, chunks=(7, 9), maxshape=maxshape, **options)
        file.flush()
        image = bytes(number.get_file_image())
    # The image of a file is without its user block.
    raw = image if image[:4] != b"\x89HDF" else bytes(1024) + image
    case = Case.of(raw)
    assert (case.superblock.base, case.superblock.offset_size) == (1024, width)
    table = case.table()
    assert (table.offsets >= 1024).all()
    if not options:
        first = np.frombuffer(raw, "<u2", 63, int(table.offsets[7])).reshape(7, 9)
        np.testing.assert_array_equal(first, cells[7:14, 9:18])


@pytest.mark.parametrize("maxshape", [None, (None, 50), (60, None), (None, None)], ids=str)
def test_edges_that_are_not_filtered(maxshape):
    library = libhdf5()
    if library is None:
        pytest.skip("the library of h5py was not found")

    def fill(file: h5py.File) -> None:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((7, 10))
        plist.set_deflate(4)
        assert library.H5Pset_chunk_opts(ctypes.c_int64(plist.id), ctypes.c_uint(2)) >= 0
        limits = tuple(h5py.h5s.UNLIMITED if n is None else n for n in maxshape or (60, 50))
        h5py.h5d.create(file.id, b"a", h5py.h5t.STD_U16LE, h5py.h5s.create_simple((60, 50), limits), dcpl=plist)
        file["a"][...] = np.arange(3000).reshape(60, 50)

    case = Case.of(written(fill))
    assert case.message.skip_partial_edges
    masks = case.check().masks.reshape(case.grid)
    assert (masks[-1] == 0xFFFFFFFF).all()
    assert not masks[:-1].any()


def test_masks_of_single_chunks():
    def write(data: h5py.Dataset) -> None:
        for at in range(8):
            data.id.write_direct_chunk((10 * at,), bytes([at]) * (20 + at), filter_mask=at)

    for libver, maxshape in ((OLD, None), (NEW, None), (NEW, (None,))):
        case = make((80,), (10,), libver=libver, maxshape=maxshape, shuffle=True, fletcher32=True, write=write, **GZIP)
        assert case.check().masks.tolist() == list(range(8))


def test_axes_without_cells():
    for maxshape in ((None, 5), (None, None)):
        case = make((0, 5), (2, 3), maxshape=maxshape)
        assert case.table().offsets.size == 0
    assert make((4, 6), (2, 3), write=lambda data: None).table().offsets.tolist() == [-1] * 4


@settings(max_examples=times(150), deadline=None)
@given(data=st.data())
def test_any_dataset(data):
    ndim = data.draw(st.integers(1, 4))
    small = st.integers(1, 6)
    shape = tuple(data.draw(st.integers(1, 14)) for _ in range(ndim))
    chunks = tuple(min(data.draw(small), n) for n in shape)
    maxshape = tuple(data.draw(st.sampled_from([n, n + 5, None])) for n in shape)
    filtered = data.draw(st.booleans())
    options = {"dtype": data.draw(st.sampled_from(["u1", "<i4", "S3"])), **(GZIP if filtered else {})}
    nbytes = prod(chunks) * np.dtype(options["dtype"]).itemsize
    grid = [-(-n // c) for n, c in zip(shape, chunks, strict=True)]
    places = data.draw(st.lists(st.tuples(*[st.integers(0, n - 1) for n in grid]), max_size=30, unique=True))
    sizes = [data.draw(st.integers(1, 2 * nbytes)) if filtered else nbytes for _ in places]
    masks = [data.draw(st.integers(0, 1)) if filtered else 0 for _ in places]
    sizes = [nbytes if mask else size for size, mask in zip(sizes, masks, strict=True)]

    def write(target: h5py.Dataset) -> None:
        for place, size, mask in zip(places, sizes, masks, strict=True):
            corner = tuple(p * c for p, c in zip(place, chunks, strict=True))
            target.id.write_direct_chunk(corner, bytes(size), filter_mask=mask)

    case = make(
        shape, chunks, libver=data.draw(st.sampled_from([OLD, V110, NEW])), maxshape=maxshape, write=write, **options
    )
    table = case.check()
    assert np.count_nonzero(table.offsets >= 0) == len(places)


# What is damaged.

SMALL = [
    pytest.param(libver, maxshape, options, id=f"{kind}-{'gzip' if options else 'raw'}")
    for options in ({}, GZIP)
    for libver, maxshape, kind in [
        (OLD, None, "btree1"),
        (NEW, None, "fixed_array"),
        (NEW, (None, 20), "extensible_array"),
        (NEW, (None, None), "btree2"),
    ]
]
_made: dict[str, tuple[Case, ChunkTable, list[tuple[int, int]]]] = {}


def small(libver: Any, maxshape: Any, options: dict[str, Any]) -> tuple[Case, ChunkTable, list[tuple[int, int]]]:
    key = repr((libver, maxshape, options))
    if key not in _made:
        case = make((40, 20), (2, 3), libver=libver, maxshape=maxshape, **options)
        _made[key] = case, case.table(), case.spans()
    return _made[key]


@pytest.mark.parametrize(("libver", "maxshape", "options"), SMALL)
@settings(max_examples=times(120), deadline=None)
@given(data=st.data())
def test_damaged_indexes(libver, maxshape, options, data):
    case, good, spans = small(libver, maxshape, options)
    raw = bytearray(case.raw)
    for _ in range(data.draw(st.integers(1, 4))):
        start, nbytes = data.draw(st.sampled_from(spans))
        at = start + data.draw(st.integers(0, nbytes - 1) | st.integers(0, min(nbytes, 60) - 1))
        raw[at] = data.draw(st.sampled_from([0, 1, 127, 128, 255]) | st.integers(0, 255))
    if case.message.kind not in ("btree1", "btree2") and data.draw(st.booleans()):
        for start, nbytes in spans:  # as one would who means harm: all checksums hold
            raw[start + nbytes - 4 : start + nbytes] = lookup3(bytes(raw[start : start + nbytes - 4])).to_bytes(
                4, "little"
            )
        intact = False
    else:
        intact = case.message.kind != "btree1"
    try:
        found = case.table(bytes(raw))
    except HyperslabError:
        return
    stored = found.offsets >= 0
    assert found.offsets.size == good.offsets.size
    assert (found.offsets[stored] + found.lengths[stored] <= len(raw)).all()
    assert (found.lengths[stored] > 0).all()
    if intact:  # checksums see everything but what lies between the parts
        np.testing.assert_array_equal(found.offsets, good.offsets)
        np.testing.assert_array_equal(found.lengths, good.lengths)


@pytest.mark.parametrize(("libver", "maxshape", "options"), SMALL)
def test_truncated_files(libver, maxshape, options):
    case, good, spans = small(libver, maxshape, options)
    ends = {start + 20 for start, _ in spans} | {int((good.offsets + good.lengths).max()) - 1}
    if case.message.kind in ("fixed_array", "extensible_array"):  # the nodes of trees have room for more than they hold
        ends |= {start + nbytes - 1 for start, nbytes in spans}
    for end in sorted(ends):
        with pytest.raises((IntegrityError, MetadataError)):
            case.table(case.raw[:end])


def node(level: int, entries: list[tuple[int, int, tuple[int, ...], int]]) -> bytes:
    """Return a node of a B-tree of entries (bytes, mask, corner, address)."""
    found = b"TREE" + struct.pack("<BBHQQ", 1, level, len(entries), 2**64 - 1, 2**64 - 1)
    for nbytes, mask, corner, address in entries:
        found += struct.pack(f"<II{len(corner) + 1}QQ", nbytes, mask, *corner, 0, address)
    return found


def by_hand(*nodes: bytes, size: int = 100_000, filtered: bool = True, chunk: tuple[int, ...] = (4,)) -> Any:
    """Return a call that reads the tree of these nodes, 4096 bytes apart from byte 4096 on, root first."""
    raw = bytearray(size)
    for number, each in enumerate(nodes):
        raw[4096 * (number + 1) : 4096 * (number + 1) + len(each)] = each
    sb = Superblock(0, 0, 8, 8, size, 96)
    message = ChunkIndexMessage("btree1", 4096, chunk, 1, filtered)
    return lambda shape=(40,): chunk_table(BytesFile(bytes(raw)), sb, message, shape)


def test_a_tree_by_hand():
    table = by_hand(node(1, [(0, 0, (0,), 8192)]), node(0, [(5, 0, (8,), 50_000), (6, 1, (400,), 60_000)]))()
    assert table.offsets.tolist() == [-1, -1, 50_000] + [-1] * 7
    assert table.masks is None  # the other chunk lies outside of the array


@pytest.mark.parametrize(
    ("read", "says"),
    [
        (by_hand(node(1, [(0, 0, (0,), 4096)])), "no node of level 0"),
        (by_hand(node(2, [(0, 0, (0,), 8192)]), node(1, [(0, 0, (0,), 4096)])), "no node of level 0"),
        (by_hand(node(1, [(0, 0, (0,), 8192), (0, 0, (4,), 8192)]), node(0, [(5, 0, (8,), 50_000)])), "one another"),
        (by_hand(node(0, [(5, 0, (8,), 50_000), (5, 0, (8,), 60_000)])), "twice"),
        (by_hand(node(0, [(5, 0, (8,), 50_000), (5, 0, (12,), 50_004)])), "over one another"),
        (by_hand(node(0, [(5, 0, (9,), 50_000)])), "no multiple"),
        (by_hand(node(0, [(5, 0, (8,), 99_996)])), "cut off"),
        (by_hand(node(0, [(5, 0, (8,), 2**64 - 1)])), "cut off"),
        (by_hand(node(0, [(5, 0, (8,), 2**64 - 3)])), "cut off"),
        (by_hand(node(0, [(0, 0, (8,), 50_000)])), "puts 0 bytes"),
        (by_hand(node(0, [(5, 0, (8,), 50_000)]), filtered=False), "5 bytes, expected 4"),
        (by_hand(node(1, [])), "no children"),
        (by_hand(node(200, [(0, 0, (0,), 8192)])), "level 200"),
        (by_hand(b"TREX" + node(0, [])[4:]), "no node"),
        (by_hand(node(0, [])[:6] + b"\xff\xff" + node(0, [])[8:]), "the end"),
        (by_hand(node(1, [(0, 0, (0,), 2**63)])), "the file has"),
    ],
    ids=lambda value: value if isinstance(value, str) else "tree",
)
def test_trees_that_are_wrong(read, says):
    with pytest.raises(IntegrityError, match=says):
        read()


def test_a_node_that_lists_many_again_and_again_is_bounded():
    children = [(0, 0, (0,), 96 + 24 * i) for i in range(4000)]
    raw = bytearray(400_000)
    first = node(1, children)
    raw[200_000 : 200_000 + len(first)] = first
    for at in range(96, 96 + 24 * 4000, 24):
        raw[at : at + 8] = b"TREE" + struct.pack("<BBH", 1, 0, 60_000)
    sb = Superblock(0, 0, 8, 8, len(raw), 96)
    tracemalloc.start()
    with pytest.raises(IntegrityError):
        chunk_table(BytesFile(bytes(raw)), sb, ChunkIndexMessage("btree1", 200_000, (4,), 1, True), (40,))
    assert tracemalloc.get_traced_memory()[1] < 8_000_000
    tracemalloc.stop()


def message(kind: str = "btree1", chunk: tuple[int, ...] = (4,), **options: Any) -> ChunkIndexMessage:
    return ChunkIndexMessage(
        kind, 96, chunk, options.pop("element_nbytes", 1), options.pop("filtered", False), **options
    )


@pytest.mark.parametrize(
    ("wrong", "shape", "maxshape", "error"),
    [
        (message(), (2**40,), None, UnsupportedError),
        (message(), (4, 4), None, MetadataError),
        (message(chunk=()), (), None, MetadataError),
        (message(chunk=(0,)), (4,), None, MetadataError),
        (message(chunk=(2**61,)), (4,), None, MetadataError),
        (message(element_nbytes=0), (4,), None, MetadataError),
        (message("single"), (5,), None, MetadataError),
        (message("single", filtered=True), (4,), None, IntegrityError),
        (message("single", filtered=True, single_nbytes=2**63), (4,), None, IntegrityError),
        (message("single", chunk=(2000,)), (4,), None, IntegrityError),
        (message("implicit", filtered=True), (8,), None, MetadataError),
        (message("implicit"), (2000,), None, IntegrityError),
        (message("implicit"), (8,), (None,), MetadataError),
        (message("implicit", (1, 1)), (8, 8), (8, 2**62), UnsupportedError),
        (message("implicit"), (8,), (4,), MetadataError),
        (message("fixed_array"), (8,), None, HyperslabError),
        (message("fixed_array"), (8,), (None,), MetadataError),
        (message("extensible_array"), (8,), None, MetadataError),
        (message("extensible_array"), (8,), (None,), HyperslabError),
        (message("btree2"), (8,), None, HyperslabError),
        (message("another"), (8,), None, UnsupportedError),
    ],
    ids=lambda value: value.kind if isinstance(value, ChunkIndexMessage) else "",
)
def test_messages_that_are_wrong(wrong, shape, maxshape, error):
    with pytest.raises(error):
        chunk_table(BytesFile(bytes(1000)), Superblock(0, 0, 8, 8, 1000, 96), wrong, shape, maxshape)
