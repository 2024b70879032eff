"""Damaged and wilfully wrong manifests, segments and packs: a typed error, in bounded memory; never other cells."""

import json
import random
import struct
import tracemalloc

import numpy as np
import pytest
from support.faulty import FaultyStore
from support.profiles import times

import hyperslab as hs
from hyperslab.collections import blocks, collection, kinds, manifest, segment
from hyperslab.collections.blocks import Row, pack_block
from hyperslab.collections.collection import open_at
from hyperslab.collections.manifest import Manifest, SegmentRef
from hyperslab.errors import FormatError, HyperslabError, IntegrityError, MetadataError, UnsupportedError
from hyperslab.layout.checksums import crc32c
from hyperslab.store import LocalStore

PACK = bytes(range(16))
ARRAYS = {f"n/{i}": np.full((3, 4), i, "i4") for i in range(20)}


@pytest.fixture
def session():
    with hs.Session(retries=0) as made:
        yield made


@pytest.fixture
def folder(tmp_path, session):
    c = collection(tmp_path / "c", "w-", session=session)
    c.put_many(ARRAYS, {name: {"x": i, "kind": "k"} for i, name in enumerate(ARRAYS)})
    return tmp_path / "c"


def file_of(folder, kind):
    return next(path for path in folder.rglob(f"*{kind}"))


def opened(folder, session, how):
    """Open a collection of files as such, to be read one by one or by compiled loops, or as over a network."""
    if how != "asked":
        c = collection(folder, session=session)
        c._reader._mapped_s = float("inf") if how == "at once" else -float("inf")
        return c
    return open_at(str(folder), FaultyStore(LocalStore(folder)), "", session)


def everything(c):
    """Read all that there is, in all ways."""
    names = list(c.names())
    found = dict(zip(names, c.read_many(names), strict=True))
    c.select(x=(0, None))
    c.attributes()
    return found


@pytest.mark.parametrize("how", ["mapped", "at once", "asked"])
@pytest.mark.parametrize("kind", ["collection.json", ".seg", ".pack"])
def test_a_changed_byte_is_noticed_wherever_it_is(folder, session, kind, how):
    path = file_of(folder, kind)
    data, chance = path.read_bytes(), random.Random(kind)
    places = range(len(data)) if len(data) < times(60) else sorted(chance.sample(range(len(data)), times(60)))
    for at in places:
        path.unlink()
        path.write_bytes(data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :])
        try:
            found = everything(opened(folder, session, how))
        except (FormatError, IntegrityError):
            continue
        # A space of the JSON, or the magic before the first block: nothing that is used.
        assert {name: array.tobytes() for name, array in found.items()} == {
            name: array.tobytes() for name, array in ARRAYS.items()
        }


@pytest.mark.parametrize("how", ["mapped", "at once", "asked"])
@pytest.mark.parametrize("kind", ["collection.json", ".seg", ".pack"])
def test_what_is_cut_off_is_noticed(folder, session, kind, how):
    path = file_of(folder, kind)
    data = path.read_bytes()
    for size in (0, 1, len(data) // 2, len(data) - 1):
        path.unlink()
        path.write_bytes(data[:size])
        with pytest.raises((FormatError, IntegrityError)):
            everything(opened(folder, session, how))


def valid(**changes):
    ref = {"name": "0" * 32, "nbytes": 90, "tail": 50, "crc32c": 0, "rows": 1, "deleted": 0, "data_bytes": 8}
    document = json.loads(Manifest("a" * 32, 3, (SegmentRef(**ref),), {"x": "int"}).dump())
    document.update(changes)
    document.pop("crc32c")
    return json.dumps({**document, "crc32c": manifest._checksum(document)}).encode()


def test_the_manifest_that_the_others_differ_from_is_good():
    assert manifest.parse_manifest(valid(), "m").generation == 3


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff" * 9,
        b"[" * 100_000,
        valid(format="zarr"),
        valid(version=2),
        valid(uuid=3),
        valid(uuid="../../x"),
        valid(generation=-1),
        valid(generation=1.5),
        valid(columns=[]),
        valid(columns={"x": "object"}),
        valid(segments={}),
        valid(segments=[3]),
        valid(segments=[{"name": "../../../etc/passwd"}]),
        valid(segments=[{"name": "0" * 32, "nbytes": 1}]),
        valid(recent=3),
        valid(recent=["x"] * 1000),
        valid().replace(b'"generation": 3', b'"generation": 4'),
    ],
)
def test_manifests_that_are_none(data):
    with pytest.raises((FormatError, IntegrityError)):
        manifest.parse_manifest(data, "m")


def test_a_version_that_is_not_known_is_said_to_be():
    with pytest.raises(UnsupportedError, match="version"):
        manifest.parse_manifest(valid(version=99), "m")


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"3",
        b'["<f4"]',
        b'["|O",[1]]',
        b'["O",[1]]',
        b'["<f4",[-1]]',
        b'["<f4",[1.5]]',
        b'["<f4",[4611686018427387904]]',
        b'["<f4",' + b"[" * 5000,
        b'["<f4",[' + b"1," * 99 + b"1]]",
        b'["<f4",[2147483648,2147483648,8]]',
        b'["<f8",[0,4611686018427387903]]',
        b'["<f4",[0,2147483648,2147483648]]',
        b'[[["a","<f4"],["a","<f4"]],[1]]',
        b'[[["a",3]],[1]]',
        b'["import os",[1]]',
        b'["<f4",[1]]' + b" " * 100_000,
    ],
)
def test_kinds_that_are_none(text):
    with pytest.raises(FormatError):
        kinds.kind_of(text)


def row(name=b"a", **changes):
    plain = Row(name, 5, PACK, 100, 0, 8, b'["<f8",[1]]', 0, 0, {"x": 1})
    return plain._replace(**changes)


@pytest.mark.parametrize(
    "wrong",
    [
        {"start": -1},
        {"start": 93},
        {"nbytes": 9},
        {"nbytes": -8},
        {"id": -1},
        {"pack_nbytes": 7},
        {"pack_nbytes": -1},
        {"kind": b'["|O",[1]]'},
        {"kind": b"nonsense"},
        {"start": 2**62},
    ],
)
def test_entries_that_contradict_themselves(wrong):
    block = blocks.Block(memoryview(pack_block([row(**wrong)])), "here")
    assert block.find(b"a") == 0
    with pytest.raises(FormatError):
        block.entry(0, "a")


def test_blocks_of_noise_give_errors_in_bounded_memory():
    """Whatever bytes of a good block are changed, with a checksum that holds: an error, or some answer; no more."""
    good = pack_block([row(b"n%d" % i, attrs={"x": i, "kind": "text"}) for i in range(50)])
    chance = random.Random(7)
    tracemalloc.start()
    try:
        for _ in range(times(400)):
            data = bytearray(good)
            for _ in range(chance.choice([1, 1, 2, 8])):
                at = chance.choice([chance.randrange(32), chance.randrange(len(data))])
                data[at] = chance.choice([0, 255, chance.randrange(256)])
            try:
                block = blocks.Block(memoryview(bytes(data)), "here")
                found = block.find(b"n7")
                if found >= 0:
                    block.entry(found, "n7")
                block.find(b"missing")
                list(block.iter_rows())
                block.columns()
                block.names()
                block.deleted()
                block.packs()
            except FormatError:
                continue
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_tables_of_noise_give_errors():
    packed = next(segment.pack_segments([row(b"n%03d" % i) for i in range(600)], 1000))
    tail = bytearray(packed.data[packed.ref.tail :])
    chance = random.Random(8)
    for _ in range(times(400)):
        data = bytearray(tail)
        for _ in range(chance.choice([1, 2, 8])):
            data[chance.choice([chance.randrange(16), chance.randrange(len(data))])] = chance.choice([0, 255, 7])
        checksum = crc32c(np.frombuffer(data, np.uint8))
        ref = SegmentRef("0" * 32, packed.ref.nbytes, packed.ref.tail, checksum, 600, 0, 0)
        try:
            table = segment.Table(memoryview(bytes(data)), ref, "here")
        except FormatError:
            continue
        assert -1 <= table.block_of(b"n300") < table.blocks


@pytest.mark.parametrize("how", ["mapped", "asked"])
@pytest.mark.parametrize("nbytes", [1 << 40, 1 << 61])
def test_sizes_that_no_pack_has_take_no_memory(tmp_path, session, nbytes, how):
    """The index promises an array of terabytes."""
    kind = json.dumps(["|u1", [nbytes]]).encode()
    huge = row(pack_nbytes=nbytes, nbytes=nbytes, kind=kind)
    packed = next(segment.pack_segments([huge], 9))
    (tmp_path / "index").mkdir()
    (tmp_path / "packs").mkdir()
    (tmp_path / "index" / f"{packed.ref.name}.seg").write_bytes(packed.data)
    (tmp_path / "packs" / f"{PACK.hex()}.pack").write_bytes(bytes(100))
    (tmp_path / "collection.json").write_bytes(Manifest("a" * 32, 1, (packed.ref,)).dump())
    c = opened(tmp_path, session, how)
    tracemalloc.start()
    try:
        with pytest.raises(IntegrityError):
            c["a"]
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_a_table_that_is_too_long_is_not_fetched(tmp_path, session):
    ref = SegmentRef("0" * 32, 1 << 40, 50, 0, 1, 0, 8)
    (tmp_path / "collection.json").write_bytes(Manifest("a" * 32, 1, (ref,)).dump())
    with pytest.raises(FormatError, match="table"):
        opened(tmp_path, session, "asked")["a"]


def test_names_that_are_not_utf8_are_an_error(tmp_path, session):
    packed = next(segment.pack_segments([row(b"\xff\xfe")], 9))
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / f"{packed.ref.name}.seg").write_bytes(packed.data)
    (tmp_path / "collection.json").write_bytes(Manifest("a" * 32, 1, (packed.ref,)).dump())
    with pytest.raises(FormatError, match="UTF-8"):
        list(opened(tmp_path, session, "mapped"))


def test_slots_that_lead_round_and_round_end():
    data = bytearray(pack_block([row(b"n%d" % i) for i in range(3)]))
    at = 32 + 40 * 3 + 4 * 3
    slots = struct.unpack_from("<I", data, 8)[0]
    struct.pack_into(f"<{slots}H", data, at, *[1] * slots)
    block = blocks.Block(memoryview(bytes(data)), "here")
    assert block.find(b"missing") == -1
    struct.pack_into(f"<{slots}H", data, at, *[60_000] * slots)
    with pytest.raises(FormatError):
        blocks.Block(memoryview(bytes(data)), "here").find(b"missing")


def test_something_else_that_is_there_is_no_collection(tmp_path, session):
    (tmp_path / "collection.json").write_text('{"zarr_format": 3}')
    with pytest.raises(FormatError, match="not the manifest"):
        collection(tmp_path, session=session)
    with pytest.raises(HyperslabError):
        collection(tmp_path, "a", session=session)
    assert issubclass(MetadataError, FormatError)
