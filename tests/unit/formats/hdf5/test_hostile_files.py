"""Files made by hand to lead a reader astray: circles, giant counts, sizes that lie. Typed errors, little memory."""

import struct
import tracemalloc

import h5py
import pytest
from support.hdf5_files import BytesFile, file_bytes, opened, read_everything
from support.hdf5_images import CONTINUED, LAYOUT, NOWHERE, ROOT, Image, attribute, chunks, dataset, guarded, message

from hyperslab.errors import HyperslabError, MetadataError
from hyperslab.formats.hdf5.btree2 import read_btree2
from hyperslab.formats.hdf5.fractal import read_heap, read_objects
from hyperslab.formats.hdf5.header import read_header
from hyperslab.formats.hdf5.superblock import Superblock


def test_image_is_good_without_a_lie() -> None:
    image = Image().group().tree(1000, 0, 1600).symbols(1600, (8, 5000)).header(5000, (2, bytes(2) + b"\xff" * 16))
    file = image.open()
    assert list(file.root.members()) == ["name"]
    assert file.find("name").members() == {}
    assert read_everything(bytes(image.data)) == 2


@pytest.mark.parametrize(
    ("image", "text"),
    [
        (Image().header(ROOT, (CONTINUED, struct.pack("<QQ", 96, 64))), "continues in itself"),
        (Image().header(ROOT, (CONTINUED, struct.pack("<QQ", 400, 64)), count=9)
         .put(400, message(CONTINUED, struct.pack("<QQ", 400, 64))), "continues in itself"),
        (Image().header(ROOT, (CONTINUED, struct.pack("<QQ", 400, 64)), count=9)
         .put(400, message(CONTINUED, struct.pack("<QQ", 500, 64)))
         .put(500, message(CONTINUED, struct.pack("<QQ", 400, 64))), "continues in itself"),
        (Image().header(ROOT, (CONTINUED, struct.pack("<QQ", 400, 2**40))), "continues with"),
        (Image().header(ROOT, (CONTINUED, struct.pack("<QQ", 400, 3))), "continues with 3 bytes"),
        (Image().header(ROOT, (CONTINUED, struct.pack("<QQ", NOWHERE, 64))), "lacks an address"),
        (Image().header(ROOT, nbytes=2**32 - 1), "promises"),
        (Image().header(ROOT, (1, bytes(8))).put(ROOT + 18, b"\xff\xff"), "ends at byte"),
        (Image().header(ROOT), "neither group, dataset nor datatype"),
        (Image().put(ROOT, b"\x07"), "version 7"),
    ],
    ids=["header", "itself", "pair", "long", "short", "nowhere", "size", "message", "empty", "version"],
)  # fmt: skip
def test_object_headers(image: Image, text: str) -> None:
    with pytest.raises(MetadataError, match=text):
        image.open().find("x")


def test_many_continuations_are_read_and_no_more() -> None:
    image = Image()
    image.header(ROOT, (CONTINUED, struct.pack("<QQ", 1024, 24)), count=65535)
    for at in range(1024, 60_000, 24):
        image.put(at, message(CONTINUED, struct.pack("<QQ", at + 24, 24)))
    with pytest.raises(MetadataError, match="neither group"):
        image.open().find("x")


@pytest.mark.parametrize(
    ("image", "text"),
    [
        (Image().group().tree(1000, 1, 1000), "twice"),
        (Image().group().tree(1000, 2, 1200).tree(1200, 1, 1000), "twice"),
        (Image().group().tree(1000, 0, 1600, 1600).symbols(1600), "twice"),
        (Image().group().tree(1000, 255, 1200).tree(1200, 254, 1400), "levels"),
        (Image().group().tree(1000, 1, 1200).tree(1200, 7, 1400), "levels"),
        (Image().group().tree(1000, 0, 1600, count=65535), "65535 entries"),
        (Image().group().tree(1000, 0, NOWHERE), "lacks an address"),
        (Image().group().tree(1000, 0, 2**50), "points to byte"),
        (Image().group().tree(1000, 0, 1200), "should begin with b'SNOD'"),
        (Image().group().tree(1000, 0, 1600).symbols(1600, count=65535), "65535 symbols"),
        (Image().group().tree(1000, 0, 1600).symbols(1600, (8, NOWHERE)), "leads nowhere"),
        (Image().group().tree(1000, 0, 1600).symbols(1600, (2**40, 96)), "does not end"),
        (Image().group().tree(1000, 0, 1600).symbols(1600, (17, 96)).heap(2000, 2100, b"\0" * 16 + b"xxxx"),
         "does not end"),
        (Image().group().heap(2000, 2100, b"", nbytes=2**62), "says it has"),
        (Image().group().heap(2000, 2100, b"", nbytes=65536), "says it has"),
        (Image().group().put(2000, b"HEAQ"), "should begin with b'HEAP'"),
    ],
    ids=["self", "pair", "table-twice", "high", "levels", "count", "nowhere", "far", "no-table", "symbols", "no-header",
         "name", "endless", "heap", "heap-end", "no-heap"],
)  # fmt: skip
def test_old_groups(image: Image, text: str) -> None:
    with pytest.raises(MetadataError, match=text):
        image.open().root.members()


def test_list_of_free_blocks_does_not_matter() -> None:
    image = Image().group().tree(1000, 0, 1600).symbols(1600, (8, 96))
    image.heap(2000, 2100, b"\0" * 8 + b"name\0\0\0\0", free=2**63)
    assert list(image.open().root.members()) == ["name"]


def test_group_within_itself_ends() -> None:
    image = Image().group().tree(1000, 0, 1600).symbols(1600, (8, ROOT), (16, ROOT))
    file = image.open()
    assert file.find("name/o/name/o").address == ROOT
    assert file.root.kinds() == {"name": "group", "o": "group"}
    assert read_everything(bytes(image.data)) == 3


def test_soft_links_that_grow() -> None:
    def fill(file: h5py.File) -> None:
        file["a"] = h5py.SoftLink("/".join(["a"] * 2000))
        for number in range(100):
            file[f"chain{number}"] = h5py.SoftLink(f"/chain{number + 1}")

    file = opened(file_bytes(fill))
    for path in ("a", "chain0"):
        with pytest.raises(MetadataError, match="soft links"):
            file.find(path)
    assert set(file.root.kinds().values()) == {"link"}


def test_dataset_is_good_without_a_lie() -> None:
    file = dataset(LAYOUT, attribute((2,), struct.pack("<ii", 3, -4))).open()
    assert file.find("name").shape == (2, 3)
    assert file.find("name").attrs()["a"].tolist() == [3, -4]


@pytest.mark.parametrize(
    ("image", "text"),
    [
        (dataset(LAYOUT, shape=(2**40, 2**40)), "more cells than can be counted"),
        (dataset(LAYOUT, shape=(2**30, 2**30)), "needs"),
        (dataset(LAYOUT, shape=(2, 4)), "needs 32 bytes and 24 are stored"),
        (dataset(), "lacks a message of type 8"),
        (dataset((8, struct.pack("<BBQQ", 3, 1, 2**60, 24))), "points to byte"),
        (dataset((8, struct.pack("<BB", 3, 9))), "unknown class 9"),
        (dataset((8, struct.pack("<BBH", 3, 0, 65535))), "ends at byte"),
        (dataset(chunks(2, 3, 0)), "expected lengths from 1"),
        (dataset(chunks(2**31, 2**31, 4)), "expected lengths from 1"),
        (dataset(chunks(2, 4)), r"its chunks \(2,\)"),
        (dataset(chunks(2, 3, 8)), "its chunks"),
        (dataset((8, struct.pack("<BBB", 3, 2, 255))), "255 axes"),
        (dataset((8, struct.pack("<BBBB", 4, 2, 0, 255))), "255 axes"),
        (dataset((8, struct.pack("<BBBBB", 4, 2, 0, 3, 9))), "lengths of 9 bytes"),
        (dataset(LAYOUT, (0x0B, struct.pack("<BB6x", 1, 255))), "255 filters"),
        (dataset(LAYOUT, (0x0B, struct.pack("<BB6xHHHH", 1, 1, 1, 0, 0, 65535))), "ends at byte"),
        (dataset(LAYOUT, (1, b"")).put(5000 + 16 + 8, b"\x01\xff"), "has 255 axes"),
        (dataset(LAYOUT, kind=struct.pack("<BBHI", 0x35, 0, 0, 2**31)), "2147483648 bytes"),
        (dataset(LAYOUT, attribute((2**60,), bytes(8))), "needs 4611686018427387904 bytes"),
        (dataset(LAYOUT, attribute((2**31, 2**31), bytes(8))), "needs"),
        (dataset(LAYOUT, attribute((2**32, 2**32), bytes(8))), "more cells than can be counted"),
        (dataset(LAYOUT, (0x0C, struct.pack("<BxHHH", 1, 65535, 65535, 65535))), "ends at byte"),
        (dataset(LAYOUT, (0x0C, struct.pack("<BxHHH", 9, 1, 1, 1))), "version 9"),
        (dataset(LAYOUT, (5, struct.pack("<BBBBI", 2, 2, 0, 1, 2**31))), "ends at byte"),
        (dataset(LAYOUT, (5, struct.pack("<BBBBIQ", 2, 2, 0, 1, 8, 1))), "fill value of 8 bytes"),
        (dataset(LAYOUT, (7, struct.pack("<B5xHQ", 1, 65535, 2**50))), "points to byte"),
    ],
    ids=["count", "cells", "short", "no-layout", "far", "class", "compact", "zero", "overflow", "axes", "cell",
         "chunk-axes", "new-axes", "width", "filters", "values", "space", "type", "attribute", "wide",
         "attribute-count", "attribute-parts", "attribute-version", "fill", "fill-size", "external"],
)  # fmt: skip
def test_datasets_and_attributes(image: Image, text: str) -> None:
    with pytest.raises(MetadataError, match=text):
        read_everything(bytes(image.data))


def test_type_nested_ten_thousand_deep() -> None:
    inner = b"".join(struct.pack("<BBHI", 0x39, 0, 0, 16) for _ in range(10_000))
    with pytest.raises(MetadataError, match=r"nested deeper|ends at byte"):
        dataset(LAYOUT, kind=inner[:60_000]).open().find("name")


SB = Superblock(3, 0, 8, 8, 1 << 20, 48)


def tree2(node: int, record: int, depth: int, root: int, count: int, total: int, kind: int = 5) -> bytes:
    return guarded(b"BTHD" + struct.pack("<BBIHHBBQHQ", 0, kind, node, record, depth, 98, 40, root, count, total))


def node2(signature: bytes, body: bytes, kind: int = 5) -> bytes:
    return guarded(signature + bytes([0, kind]) + body)


def inner2(*children: int) -> bytes:
    """Return a node of one record, its children leaves of one record each."""
    return node2(b"BTIN", bytes(11) + b"".join(struct.pack("<QB", child, 1) for child in children))


def in_file(**parts: bytes) -> BytesFile:
    data = bytearray(SB.size)
    for name, raw in parts.items():
        at = int(name.removeprefix("at"))
        data[at : at + len(raw)] = raw
    return BytesFile(bytes(data))


def test_tree_by_hand() -> None:
    records = bytes(range(33))
    child = struct.pack("<QB", 800, 1)
    file = in_file(
        at100=tree2(64, 11, 1, 200, 1, 3), at200=node2(b"BTIN", records[:11] + struct.pack("<QB", 400, 1) + child),
        at400=node2(b"BTLF", records[11:22]), at800=node2(b"BTLF", records[22:]),
    )  # fmt: skip
    found = read_btree2(file, SB, 100, 5, 10)
    assert b"".join(each.tobytes() for each in found) == records
    assert file.rounds == [1, 1, 2]
    with pytest.raises(MetadataError, match="at most 2"):
        read_btree2(file, SB, 100, 5, 2)
    with pytest.raises(MetadataError, match="is of type 5"):
        read_btree2(file, SB, 100, 8, 10)


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ({"at100": tree2(64, 11, 0, 200, 1, 2**40)}, "at most 1000"),
        ({"at100": tree2(64, 11, 65535, 200, 1, 1)}, "depth 65535"),
        ({"at100": tree2(2**32 - 1, 11, 0, 200, 1, 1)}, "nodes of 4294967295 bytes"),
        ({"at100": tree2(64, 0, 0, 200, 1, 1)}, "records of 0"),
        ({"at100": tree2(16, 11, 0, 200, 1, 1)}, "would hold 0 records"),
        ({"at100": tree2(32, 11, 3, 200, 1, 1)}, "hold no records"),
        ({"at100": tree2(64, 11, 0, 200, 6, 6)}, "node of 6 records"),
        ({"at100": tree2(64, 11, 0, 2**20 - 8, 1, 1)}, "reaches over the end"),
        ({"at100": tree2(64, 11, 0, 200, 1, 1)}, "does not begin with"),
        ({"at100": tree2(64, 11, 0, 200, 1, 2), "at200": node2(b"BTLF", bytes(11))}, "has 1 records and says it has 2"),
        ({"at100": tree2(64, 11, 1, 200, 1, 3), "at200": inner2(200, 200)}, "twice"),
        ({"at100": tree2(64, 11, 1, 200, 1, 3), "at200": inner2(400, 2**60)}, "has a node at byte"),
    ],
    ids=["total", "depth", "node", "record", "leaf", "inner", "records", "end", "signature", "count", "circle", "far"],
)  # fmt: skip
def test_trees_that_lie(parts: dict[str, bytes], text: str) -> None:
    with pytest.raises(MetadataError, match=text):
        read_btree2(in_file(**parts), SB, 100, 5, 1000)


def fractal(
    width: int = 4, start: int = 512, most: int = 1024, bits: int = 32, root: int = 400, rows: int = 0, ids: int = 7
) -> bytes:  # fmt: skip
    raw = b"FRHP" + struct.pack("<BHHBI", 0, ids, 0, 0, 4096) + struct.pack("<QQ", 0, NOWHERE)
    raw += struct.pack("<QQ8Q", 0, NOWHERE, *[0] * 8) + struct.pack("<HQQHHQH", width, start, most, bits, 1, root, rows)
    return guarded(raw)


def managed(offset: int, nbytes: int) -> bytes:
    return b"\0" + struct.pack("<IH", offset, nbytes)


DIRECT = b"FHDB\0" + struct.pack("<QI", 100, 0)


def test_heap_by_hand() -> None:
    # The first row of the table has 4 blocks of 512 bytes, the third starts at 4096 with blocks of 1024.
    table = struct.pack("<16Q", 1000, NOWHERE, *[NOWHERE] * 6, 5000, *[NOWHERE] * 7)
    file = in_file(
        at100=fractal(rows=4), at400=guarded(b"FHIB\0" + struct.pack("<QI", 100, 0) + table),
        at1000=DIRECT + b"first", at5000=DIRECT + bytes(100) + b"ninth",
    )  # fmt: skip
    heap = read_heap(file, SB, 100)
    found = read_objects(file, SB, heap, [managed(17, 5), managed(4096 + 117, 5), b"\x21abc\0\0\0"])
    assert [bytes(each) for each in found] == [b"first", b"ninth", b"ab"]
    with pytest.raises(MetadataError, match="no block for offset"):
        read_objects(file, SB, heap, [managed(600, 5)])
    with pytest.raises(MetadataError, match="leaves its block"):
        read_objects(file, SB, heap, [managed(500, 50)])


@pytest.mark.parametrize(
    ("heap", "name", "text"),
    [
        (fractal(width=3), managed(0, 1), "powers of two"),
        (fractal(width=0), managed(0, 1), "powers of two"),
        (fractal(start=0), managed(0, 1), "powers of two"),
        (fractal(most=2**62), managed(0, 1), "blocks of 512"),
        (fractal(start=2048), managed(0, 1), "blocks of 2048"),
        (fractal(bits=65535), managed(0, 1), "spans"),
        (fractal(rows=65535), managed(0, 1), "spans"),
        (fractal(root=NOWHERE), managed(0, 1), "is empty"),
        (fractal(root=2**20 - 4), managed(0, 1), "reaches out of the file"),
        (fractal(rows=60, width=2**15), managed(0, 1), "reaches out of the file"),
        (fractal(), managed(0, 1), "should begin with b'FHDB'"),
        (fractal(rows=1), managed(0, 1), "should begin with b'FHIB'"),
        (fractal(), b"\x10" + bytes(6), "no tree for its huge objects"),
        (fractal(), b"\x30" + bytes(6), "of kind 3"),
        (fractal(), b"\x40" + bytes(6), "version 1"),
        (fractal(), b"\x2f" + bytes(6), "ends at byte"),
        (fractal(ids=40), b"\x10" + struct.pack("<QQ", 400, 2**50), "huge objects of over"),
        (fractal(ids=40), b"\x10" + struct.pack("<QQ", 400, 2**20), "reaches out of the file"),
    ],
    ids=["width", "no-width", "start", "most", "order", "bits", "rows", "empty", "end", "table", "direct", "indirect",
         "huge", "kind", "version", "tiny", "huge-size", "huge-end"],
)  # fmt: skip
def test_heaps_that_lie(heap: bytes, name: bytes, text: str) -> None:
    file = in_file(at100=heap)
    with pytest.raises(MetadataError, match=text):
        read_objects(file, SB, read_heap(file, SB, 100), [name])


def test_blocks_within_blocks_end() -> None:
    # A block of blocks that holds itself: one level less each time, until none is left.
    table = struct.pack("<80Q", *[400] * 80)
    file = in_file(at100=fractal(rows=20), at400=guarded(b"FHIB\0" + struct.pack("<QI", 100, 0) + table))
    with pytest.raises(HyperslabError):
        read_objects(file, SB, read_heap(file, SB, 100), [managed(2**32 - 1, 1), managed(2**31, 9)])


def test_giant_promises_take_no_memory() -> None:
    images = [
        dataset(LAYOUT, shape=(2**31, 2**30)),
        dataset(chunks(2**20, 2**20, 4), shape=(2**20, 2**20)),
        dataset(LAYOUT, attribute((2**40,), bytes(8))),
        Image().header(ROOT, nbytes=2**31),
        Image().group().heap(2000, 2100, b"", nbytes=2**31),
    ]
    tracemalloc.start()
    for image in images:
        try:
            read_everything(bytes(image.data))
        except HyperslabError:
            continue
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 4 << 20


def test_header_of_too_many_messages_is_refused() -> None:
    body = bytes(4) * 110_000
    raw = b"OHDR" + struct.pack("<BBI", 2, 2, len(body)) + body
    sb = Superblock(3, 0, 8, 8, 1 << 20, 48)
    with pytest.raises(MetadataError, match="more than 100000 messages"):
        read_header(in_file(at100=guarded(raw)), sb, 100)


def test_members_that_share_a_damaged_object_do_not_spoil_the_list() -> None:
    image = (
        Image()
        .group()
        .tree(1000, 0, 1600)
        .symbols(1600, (8, 5000), (16, 9000))
        .header(5000, (2, bytes(2) + b"\xff" * 16))
    )
    file = image.open()
    assert list(file.root.members()) == ["name", "o"]
    assert file.root.kinds(["name"]) == {"name": "group"}
    with pytest.raises(MetadataError):
        file.find("o")
