"""Whatever is stored, asked for or answered: a typed error in one sentence that names the way out, soon."""

import json
import os
import socket
import time
from contextlib import contextmanager

import numpy as np
import pytest
from support.hostile import LAYOUTS, array_at, bound_to, encode, fast, options_for, put, wait_until
from support.s3proxy import Rule

import hyperslab as hs
from hyperslab.errors import (
    AccessError,
    ChunkSizeError,
    ConflictError,
    FormatError,
    HyperslabError,
    IntegrityError,
    InvalidInputError,
    MetadataError,
    NotFoundError,
    SelectionError,
    StoreError,
)

DATA = np.arange(64, dtype="i4").reshape(8, 8)
CHUNKS = (4, 4)
ANONYMOUS = {"anonymous": True, "endpoint": "http://127.0.0.1:9"}


@contextmanager
def refused(kind, words):
    """The block raises exactly that kind of error, in one line with these words, soon."""
    started = time.monotonic()
    with pytest.raises(HyperslabError, match=words) as caught:
        yield caught
    assert isinstance(caught.value, kind), repr(caught.value)
    text = str(caught.value)
    assert "\n" not in text
    assert 10 < len(text) < 500
    assert time.monotonic() - started < 30


@pytest.fixture
def session():
    with fast(retries=1) as made:
        yield made


@pytest.fixture(params=["s3", "file"])
def corrupt(request, fake_s3, tmp_path, session):
    """Store an array with some objects changed, on S3 or on disk, and open it."""

    def store(layout="plain", *, data=DATA, **changes):
        objects = encode(data, CHUNKS, layout)
        for key, change in changes.pop("objects").items():
            objects[key] = change(objects[key])
        if request.param == "s3":
            for key, value in objects.items():
                fake_s3.fake.objects[f"bucket/a/{key}"] = value
            return array_at(fake_s3, "a", session)
        for key, value in objects.items():
            path = tmp_path / "a" / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(value)
        return hs.open(tmp_path / "a", session=session)

    return store


# Where


@pytest.mark.parametrize(
    ("url", "kind", "words"),
    [
        ("", InvalidInputError, "empty"),
        ("s3://", InvalidInputError, "s3://bucket/path"),
        ("s3:/bucket/a", InvalidInputError, "s3://"),
        ("s3://bucket/../x", InvalidInputError, "write it as"),
        ("ftp://host/a", InvalidInputError, "not supported"),
        ("gs:/bucket/a", InvalidInputError, "gs://"),
        ("memory://no-such-store/a", NotFoundError, "looked for"),
        ("/no/such/place", NotFoundError, "no file or directory"),
        ("file://host/a", InvalidInputError, "file:///absolute"),
    ],
)
def test_a_wrong_url(url, kind, words, no_aws):
    with refused(kind, words):
        hs.open(url)


def test_a_server_that_is_not_there(session):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        closed = f"http://127.0.0.1:{free.getsockname()[1]}"
    with refused(StoreError, "check the endpoint and the network"):
        hs.open("s3://bucket/a", storage_options={**ANONYMOUS, "endpoint": closed}, session=session)


def test_a_bucket_that_is_not_there(fake_s3, session):
    with refused(NotFoundError, "there is no bucket s3://other"):
        hs.open("s3://other/a", storage_options=options_for(fake_s3), session=session)


def test_an_object_that_is_not_there(fake_s3, session, tmp_path):
    with refused(NotFoundError, "looked for a/zarr.json"):
        hs.open("s3://bucket/a", storage_options=options_for(fake_s3), session=session)
    (tmp_path / "empty").mkdir()
    with refused(NotFoundError, "looked for zarr.json"):
        hs.open(tmp_path / "empty", session=session)


# Who


def test_no_credentials(no_aws, session):
    with refused(AccessError, "AWS_ACCESS_KEY_ID.*anonymous=True"):
        hs.open("s3://bucket/a", session=session)


@pytest.mark.parametrize("code", ["AccessDenied", "InvalidAccessKeyId", "ExpiredToken"])
def test_a_refused_permission(fake_s3, session, code):
    fake_s3.rules.append(Rule("status", status=403, code=code))
    with refused(AccessError, f"refused .403 {code}.*anonymous=True"):
        hs.open("s3://bucket/a", storage_options=options_for(fake_s3), session=session)
    assert len(fake_s3.log) == 1
    fake_s3.clear()
    put(fake_s3, "a", DATA, CHUNKS)
    array = array_at(fake_s3, "a", session)
    fake_s3.rules.append(Rule("status", status=403, code=code, key="c/1/1"))
    with refused(AccessError, f"refused .403 {code}"):
        array[...]
    assert [entry.status for entry in fake_s3.gets()].count(403) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_that_may_not_be_read(tmp_path, session):
    np.save(tmp_path / "a.npy", DATA)
    array = hs.open(tmp_path / "a.npy", session=session)
    (tmp_path / "a.npy").chmod(0)
    with refused(AccessError, "change its permissions"):
        array[...]


# What is stored


def cut(data: bytes) -> bytes:
    return data[:-3]


def lengthen(data: bytes) -> bytes:
    return data + b"xyz"


def flip(data: bytes) -> bytes:
    return data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]


def nothing(data: bytes) -> bytes:
    return b""


@pytest.mark.parametrize("change", [cut, lengthen, nothing])
@pytest.mark.parametrize("method", [None, "get", "merge", "fetch", "paper"])
@pytest.mark.parametrize("key", [np.s_[...], np.s_[:2, :2], np.s_[::3, 1]])
def test_a_plain_chunk_of_another_size(corrupt, change, method, key):
    array = corrupt("plain", objects={"c/0/0": change})
    with refused((ChunkSizeError, IntegrityError), "rewritten|cut off"):
        array.read(key, method=method)
    assert np.array_equal(array.read(np.s_[4:], method=method), DATA[4:])


@pytest.mark.parametrize(
    ("layout", "change"),
    # zstd allows bytes after its frame.
    [
        ("zstd", cut),
        ("zstd", nothing),
        ("zstd", flip),
        ("crc", cut),
        ("crc", lengthen),
        ("crc", nothing),
        ("crc", flip),
    ],
)
def test_an_encoded_chunk_that_is_damaged(corrupt, layout, change):
    array = corrupt(layout, objects={"c/0/0": change})
    with refused((FormatError, IntegrityError), "c/0/0"):
        array[...]
    assert np.array_equal(array[4:], DATA[4:])


@pytest.mark.parametrize("layout", ["shards", "shards-start", "shards-zstd"])
@pytest.mark.parametrize("change", [cut, lengthen, nothing])
@pytest.mark.parametrize("method", [None, "fetch"])
def test_a_shard_of_another_size(corrupt, layout, change, method):
    data = np.arange(256, dtype="i4").reshape(16, 16)
    array = corrupt(layout, data=data, objects={"c/0/0": change})
    if layout == "shards-start" and change is lengthen:
        assert np.array_equal(array.read(method=method), data)  # what the index does not name is not looked at
        return
    with refused(IntegrityError, "c/0/0"):
        array.read(method=method)
    with refused(IntegrityError, "c/0/0"):
        array.read(np.s_[:1, :1], method=method)
    assert np.array_equal(array.read(np.s_[8:], method=method), data[8:])


def indexed(edit, *, location="end", checksum=True):
    """Change a shard's index of four chunks, and let its checksum agree."""

    def change(data: bytes) -> bytes:
        import google_crc32c

        size = 4 * 16
        at = 0 if location == "start" else len(data) - size - 4
        table = np.frombuffer(data[at : at + size], "<u8").reshape(4, 2).copy()
        edit(table)
        raw = table.tobytes()
        sealed = (
            raw + google_crc32c.value(raw).to_bytes(4, "little") if checksum else raw + data[at + size : at + size + 4]
        )
        return data[:at] + sealed + data[at + size + 4 :]

    return change


def far(table):
    table[0, 0] = 2**40


def long(table):
    table[0, 1] = 2**40


def wrapping(table):
    table[0] = 2**64 - 8, 16


def half(table):
    table[0, 0] = 2**64 - 1


def negative(table):
    table[0, 0] = 2**63


def short(table):
    table[0, 1] -= 4


@pytest.mark.parametrize("edit", [far, long, wrapping, half, negative])
@pytest.mark.parametrize("layout", ["shards", "shards-start", "shards-zstd"])
@pytest.mark.parametrize("method", [None, "fetch"])
def test_a_corrupt_shard_index(corrupt, edit, layout, method):
    location = "start" if layout == "shards-start" else "end"
    array = corrupt(layout, objects={"c/0/0": indexed(edit, location=location)})
    with refused(IntegrityError, "the index of shard"):
        array.read(method=method)
    with refused(IntegrityError, "the index of shard"):
        array.read((0, 0), method=method)


@pytest.mark.parametrize("layout", ["shards", "shards-zstd"])
def test_a_shard_entry_of_another_length(corrupt, layout):
    array = corrupt(layout, objects={"c/0/0": indexed(short)})
    with refused((IntegrityError, ChunkSizeError), "c/0/0"):
        array[...]


def test_a_shard_index_whose_checksum_does_not_hold(corrupt):
    array = corrupt("shards", objects={"c/0/0": indexed(far, checksum=False)})
    with refused(IntegrityError, "crc32c"):
        array[...]


def shape_to(shape, chunks=None):
    def change(document: bytes) -> bytes:
        node = json.loads(document)
        node["shape"] = shape
        if chunks is not None:
            node["chunk_grid"]["configuration"]["chunk_shape"] = chunks
        return json.dumps(node).encode()

    return change


@pytest.mark.parametrize("layout", ["plain", "zstd", "crc"])
@pytest.mark.parametrize("chunks", [[2, 4], [4, 8], [4096, 4096]])
def test_metadata_that_lies_about_chunks(corrupt, layout, chunks):
    array = corrupt(layout, objects={"zarr.json": shape_to([8, 8], chunks)})
    with refused((ChunkSizeError, IntegrityError), "c/0/0"):
        array[0, 0]


def test_a_zstd_chunk_that_claims_to_be_huge(corrupt):
    import numcodecs

    bomb = numcodecs.Zstd().encode(bytes(256 << 20))
    array = corrupt("zstd", objects={"c/0/0": lambda _: bomb})
    with refused((ChunkSizeError, IntegrityError), "c/0/0"):
        array[0, 0]


def test_a_huge_object_is_not_fetched(corrupt, fake_s3):
    array = corrupt("zstd", objects={"c/0/0": lambda _: bytes(64 << 20)})
    with refused(IntegrityError, "is it the right object"):
        array[0, 0]


def test_metadata_that_is_huge(fake_s3, session):
    fake_s3.fake.objects["bucket/a/zarr.json"] = b"{" + b" " * (70 << 20)
    with refused((IntegrityError, MetadataError), "zarr.json"):
        hs.open("s3://bucket/a", storage_options=options_for(fake_s3), session=session)


@pytest.mark.parametrize(
    "document",
    [b"", b"{", b"[]", b"null", b"{}", b"\xff\xfe", b'{"zarr_format": 3}', b'{"zarr_format": 9, "node_type": "array"}'],
)
def test_metadata_that_is_none(corrupt, document):
    with refused(FormatError, "zarr.json|version|zarr_format"):
        corrupt(objects={"zarr.json": lambda _: document})


# What is asked for


@pytest.mark.parametrize(
    "key", ["field", 8, (0, 0, 0), 1.5, (slice(0, 2, 0),), [[0, 1], [1, 2]], {"a": 1}, [True] * 3, (..., ...), object()]
)
def test_a_key_that_does_not_parse(corrupt, fake_s3, key):
    array = corrupt(objects={})
    with refused(SelectionError, "."):
        array[key]
    assert not fake_s3.log


@pytest.mark.parametrize(
    "options",
    [{"method": "fastest"}, {"phi": -1}, {"phi": float("nan")}, {"deadline": 0}, {"deadline": -1.0}, {"out": [1]}],
)
def test_an_option_that_cannot_be(corrupt, fake_s3, options):
    array = corrupt(objects={})
    with refused(InvalidInputError, "."):
        array.read(..., **options)
    assert not fake_s3.log


@pytest.mark.parametrize(
    "settings",
    [
        {"concurrency": 0},
        {"memory_bytes": 10},
        {"cache_bytes": -1},
        {"phi": -2},
        {"retries": -1},
        {"timeout_s": 0},
        {"profile": "moon"},
        {"prices": "moon"},
        {"disk_cache": "/proc/nowhere"},
        {"disk_cache": os.devnull},
    ],
)
def test_a_setting_that_cannot_be(settings):
    with refused(InvalidInputError, "."):
        hs.Session(**settings)


# What is answered


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_store_that_ignores_range(fake_s3, session, layout):
    put(fake_s3, "a", DATA, CHUNKS, layout)
    array = array_at(fake_s3, "a", session)
    fake_s3.rules.append(Rule("ignore_range"))
    ranged = LAYOUTS[layout].get("sharded") or layout == "plain"
    if not ranged:
        assert np.array_equal(array[...], DATA)
        return
    with refused(StoreError, "ignores byte ranges.*method='get'"):
        array.read((0, 0), method="fetch")


def test_the_way_out_of_an_ignored_range(fake_s3, session):
    """The message says `method='get'`; that must work."""
    put(fake_s3, "a", DATA, CHUNKS)
    array = array_at(fake_s3, "a", session)
    fake_s3.rules.append(Rule("ignore_range"))
    assert np.array_equal(array.read(method="get"), DATA)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("rule", [Rule("stall"), Rule("stall_body", after_bytes=2)], ids=["before headers", "mid-body"])
def test_a_stalled_connection(fake_s3, layout, rule):
    put(fake_s3, "a", DATA, CHUNKS, layout)
    with fast() as patient, fast(timeout_s=0.3, retries=1) as session:
        opened = array_at(fake_s3, "a", patient)
        array = bound_to(session, opened)
        fake_s3.rules.append(rule)
        with refused(StoreError, "try again"):
            array[0, 0]
        assert wait_until(lambda: len(fake_s3.log) >= 2)  # a busy server hears of them later
        assert len(fake_s3.log) == 2
        fake_s3.rules.clear()
        assert opened[5, 5] == DATA[5, 5]


@pytest.mark.parametrize("rule", [Rule("stall"), Rule("stall_body", after_bytes=2)], ids=["before headers", "mid-body"])
def test_a_stalled_connection_while_opening(fake_s3, rule):
    put(fake_s3, "a", DATA, CHUNKS)
    fake_s3.rules.append(rule)
    with fast(timeout_s=0.3, retries=1) as session, refused(StoreError, "try again"):
        hs.open("s3://bucket/a", storage_options=options_for(fake_s3), session=session)


def test_a_group_on_a_stalled_server_can_be_listed_in_time(fake_s3, monkeypatch):
    from hyperslab.store import remote

    fake_s3.fake.objects["bucket/g/zarr.json"] = b'{"zarr_format": 3, "node_type": "group", "attributes": {}}'
    with fast(retries=0) as session:
        group = hs.open("s3://bucket/g", storage_options=options_for(fake_s3), session=session)
        monkeypatch.setattr(remote, "LIST_S", 0.3)
        fake_s3.rules.append(Rule("stall"))
        with refused(StoreError, "open by path"):
            list(group)


@pytest.mark.parametrize("action", ["garbage", "drop"])
def test_answers_that_are_none(fake_s3, session, action):
    put(fake_s3, "a", DATA, CHUNKS)
    array = array_at(fake_s3, "a", session)
    fake_s3.rules.append(Rule(action))
    with refused(StoreError, "try again"):
        array[...]
    fake_s3.rules.clear()
    assert np.array_equal(array[...], DATA)


def test_a_bucket_that_is_removed_is_not_fill_values(fake_s3, session):
    put(fake_s3, "a", DATA, CHUNKS)
    array = array_at(fake_s3, "a", session)
    fake_s3.fake.buckets.clear()
    with refused((NotFoundError, StoreError), "there is no bucket"):
        array[...]


def test_a_directory_that_is_removed_is_not_fill_values(tmp_path, session):
    import shutil

    for layout in ("plain", "zstd", "shards"):
        for key, value in encode(DATA, CHUNKS, layout).items():
            path = tmp_path / layout / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(value)
        array = hs.open(tmp_path / layout, session=session)
        assert np.array_equal(array[...], DATA)
        shutil.rmtree(tmp_path / layout)
        with refused((NotFoundError, ConflictError), "no directory|vanished"):
            array[...]
