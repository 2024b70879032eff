"""Snapshots and manifests: read as Icechunk wrote them; damaged in any way, a typed error in bounded memory."""

import contextlib
import tracemalloc

import numpy as np
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numcodecs import Zstd
from support.whole_reads import DirectoryReader

from hyperslab.errors import HyperslabError, MetadataError, UnsupportedError
from hyperslab.formats.icechunk.envelope import MAX_UNPACKED_BYTES, unwrap
from hyperslab.formats.icechunk.flatbuffer import Buffer, Vectors
from hyperslab.formats.icechunk.ids import name_of, parse_id
from hyperslab.formats.icechunk.manifest import Manifest, _unpacker
from hyperslab.formats.icechunk.repository import parse_revision, resolve
from hyperslab.formats.icechunk.snapshot import Snapshot

HEAD_BYTES = 39


def load(folder, revision="branch=main"):
    identity = resolve(DirectoryReader(folder), parse_revision(f"@{revision}"))
    return Snapshot((folder / "snapshots" / name_of(identity)).read_bytes(), identity, "snapshot")


def load_manifest(folder, identity):
    return Manifest((folder / "manifests" / name_of(identity)).read_bytes(), identity, "manifest")


def plain(data):
    """The same file, not compressed, to be damaged where it hurts."""
    return data[: HEAD_BYTES - 1] + b"\0" + bytes(Zstd().decode(data[HEAD_BYTES:]))


def test_the_tree_of_a_version(repository):
    snapshot = load(repository[0])
    assert snapshot.names_below("") == ["deep", "packed", "plain", "scalar", "sharded", "sparse", "unwritten"]
    assert snapshot.names_below("deep") == ["er"]
    assert snapshot.names_below("deep/er") == ["cube"]
    assert snapshot.node("").document["attributes"] == {"title": "second"}
    assert snapshot.node("tiny") is None
    assert load(repository[0], "tag=v1").node("tiny") is not None
    assert load(repository[0], "snapshot=1CECHNKREP0F1RSTCMT0").names_below("") == []


def test_every_chunk_is_where_its_manifest_says(repository):
    folder, history = repository
    for revision, cells in history.versions.items():
        snapshot = load(folder, revision)
        for path in ("plain", "sparse", "deep/er/cube"):
            if path not in cells:
                continue
            node = snapshot.node(path)
            chunks = tuple(node.document["chunk_grid"]["configuration"]["chunk_shape"])
            found = np.full(cells[path].shape, node.document["fill_value"], cells[path].dtype)
            places = np.argwhere(np.ones([-(-n // c) for n, c in zip(found.shape, chunks, strict=True)]))
            for number, rows in node.manifests.covering(places):
                refs = load_manifest(folder, node.manifests.ids[number]).refs(node.manifests.node, found.ndim)
                numbers = refs.find(places[rows])
                stored = numbers >= 0
                for place, ref in zip(places[rows][stored], refs.read(numbers[stored]), strict=True):
                    data = (folder / "chunks" / name_of(ref.chunk)).read_bytes()[ref.offset : ref.offset + ref.length]
                    box = tuple(slice(p * c, p * c + c) for p, c in zip(place, chunks, strict=True))
                    kept = tuple(slice(0, n) for n in found[box].shape)
                    found[box] = np.frombuffer(data, found.dtype).reshape(chunks)[kept]
            assert np.array_equal(found, cells[path]), (revision, path)


def test_sizes_of_manifests_are_those_of_their_files(repository):
    manifests = load(repository[0]).node("plain").manifests
    files = [repository[0] / "manifests" / name_of(identity) for identity in manifests.ids]
    assert [file.stat().st_size for file in files] == list(manifests.sizes)


def test_manifests_that_a_box_does_not_touch_are_left_alone(repository):
    node = load(repository[0], "tag=v1").node("plain")
    assert len(node.manifests.ids) == 2  # two rows of chunks in each
    assert len(node.manifests.covering(np.array([[0, 0], [1, 3]]))) == 1
    assert [rows.tolist() for _, rows in node.manifests.covering(np.array([[2, 1], [0, 0]]))] == [[1], [0]]
    assert node.manifests.covering(np.array([[9, 9]])) == []


@pytest.fixture(scope="module")
def files(repository):
    """A snapshot and a manifest, not compressed, each with its id and a function that reads all of it."""
    folder, _ = repository
    identity = resolve(DirectoryReader(folder), parse_revision("@tag=v1"))
    data = plain((folder / "snapshots" / name_of(identity)).read_bytes())
    node = load(folder, "tag=v1").node("plain").manifests
    manifest = plain((folder / "manifests" / name_of(node.ids[0])).read_bytes())

    def read_snapshot(changed):
        snapshot = Snapshot(changed, identity, "snapshot")
        for path in list(snapshot._rows):
            snapshot.node(path)

    def read_manifest(changed):
        refs = Manifest(changed, node.ids[0], "manifest").refs(node.node, 2)
        if refs is not None:
            refs.read(np.arange(len(refs)))

    return [(data, read_snapshot), (manifest, read_manifest)]


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[*settings().suppress_health_check, HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_damage_anywhere_is_a_typed_error_or_none(files, data):
    original, read = data.draw(st.sampled_from(files))
    changed = bytearray(original)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(HEAD_BYTES, len(changed) - 4)) // 4 * 4
        value = data.draw(
            st.sampled_from([0, 1, 4, 2**16, 2**31 - 1, 2**31, 2**32 - 4, len(changed)]) | st.integers(0, 2**32 - 1)
        )
        changed[at : at + 4] = value.to_bytes(4, "little")
    stop = data.draw(st.just(len(changed)) | st.integers(0, len(changed)))
    with contextlib.suppress(HyperslabError):
        read(bytes(changed[:stop]))


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=300))
def test_bytes_at_random_are_a_typed_error(data):
    with contextlib.suppress(MetadataError):
        tables = Buffer(data, "random").root()
        for field in range(4):
            tables.places(field), tables.octets(field), tables.words(field), tables.longs(field), tables.texts(field)
            tables.lists(field)


def test_headers_that_are_wrong(files):
    data, read = files[0]
    for changed, error, what in [
        (b"", MetadataError, "does not start like"),
        (data[:20], MetadataError, "does not start like"),
        (b"X" + data[1:], MetadataError, "does not start like"),
        (data[:36] + b"\x03" + data[37:], UnsupportedError, "version 3 of Icechunk's format"),
        (data[:37] + b"\x04" + data[38:], MetadataError, "of kind 4, expected 1"),
        (data[:38] + b"\x07" + data[39:], UnsupportedError, "compressed in the way 7"),
        (data[:38] + b"\x01" + data[39:], MetadataError, "cannot be unpacked"),
        (data[:39], MetadataError, "damaged"),
    ]:
        with pytest.raises(error, match=what):
            read(changed)


def test_a_file_under_another_name_is_refused(files):
    data, _ = files[0]
    with pytest.raises(MetadataError, match="another snapshot than its name says"):
        Snapshot(data, parse_id("1CECHNKREP0F1RSTCMT0"), "snapshot")


def test_a_bomb_is_not_unpacked(files):
    # A frame that does not state its size: many blocks, each a run of one byte.
    block = (128 << 10 << 3 | 1 << 1).to_bytes(3, "little") + b"\0"
    count = MAX_UNPACKED_BYTES // (128 << 10) + 1
    frame = b"\x28\xb5\x2f\xfd\x00\x58" + block * count + (1).to_bytes(3, "little")
    stated = bytes(Zstd().encode(b"\0" * 100))
    assert stated[4] == 0x20  # one byte for the size
    lie = stated[:4] + bytes([0xE0]) + (1 << 40).to_bytes(8, "little") + stated[6:]
    tracemalloc.start()
    try:
        for bomb in (frame, lie):
            with pytest.raises(MetadataError, match="may unpack to"):
                unwrap(files[0][0][: HEAD_BYTES - 1] + b"\x01" + bomb, "snapshot", "bomb")
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_bytes_that_overlap_are_refused():
    data = np.zeros(1 << 16, np.uint8)
    data[:4].view("<u4")[:] = 60_000
    vectors = Vectors(Buffer(data.tobytes(), "heap"), np.arange(4, 400), np.full(396, 60_000), 1)
    with pytest.raises(MetadataError, match="overlap"):
        vectors.raws()
    shared = Vectors(vectors.buffer, np.full(396, 4), np.full(396, 60_000), 1).raws()
    assert len({id(each) for each in shared}) == 1


def test_locations_that_state_a_size_beyond_all_measure():
    samples = [f"s3://bucket/run/{n}/file.nc".encode() for n in range(2000)]
    dictionary = zstandard.train_dictionary(1024, samples)
    unpack = _unpacker(dictionary.as_bytes(), Buffer(b"", "manifest"))
    packed = zstandard.ZstdCompressor(dict_data=dictionary).compress(samples[7])
    assert unpack(packed) == samples[7].decode()
    large = zstandard.ZstdCompressor(dict_data=dictionary).compress(b"x" * (1 << 20))
    for bad in (large, packed[:-3], b"", b"no frame at all"):
        with pytest.raises(MetadataError, match="location"):
            unpack(bad)


def test_more_tables_than_there_can_be(files):
    # A root whose fields are one vector that claims to list as many tables as it has bytes, all of them the root.
    words = np.zeros(1 << 18, "<u4")
    words[0] = 16
    words[1:3] = 12 | 8 << 16, 4 | 4 << 16  # the vtable: 12 bytes, two fields at 4
    words[4:6] = 12, 4
    words[6] = len(words) - 7
    buffer = Buffer(words.tobytes(), "crowd")
    with pytest.raises(MetadataError, match="more tables than there can be"):
        buffer.root().lists(0)
