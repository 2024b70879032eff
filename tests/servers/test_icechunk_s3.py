"""Icechunk repositories on a real S3 server, written there by Icechunk: their cells, their wire, files that change."""

import datetime
import itertools

import numpy as np
import pytest
import zarr
from support.hostile import fast, sent
from support.icechunk_repos import SPEC_VERSIONS, icechunk, opened_by_icechunk, write_history
from support.seaweed import ACCESS_KEY_ID, SECRET_ACCESS_KEY, options_for

import hyperslab as hs
from hyperslab.errors import AccessError, ConflictError, IntegrityError

_numbers = itertools.count()


def storage(s3, prefix):
    return icechunk.s3_storage(
        bucket=s3.bucket, prefix=prefix, endpoint_url=s3.endpoint, allow_http=True, region="us-east-1",
        access_key_id=ACCESS_KEY_ID, secret_access_key=SECRET_ACCESS_KEY, force_path_style=True,
    )  # fmt: skip


@pytest.fixture(scope="module", params=SPEC_VERSIONS, ids=lambda spec: f"v{spec}")
def history(request, s3):
    prefix = f"icechunk/history-{request.param}"
    return prefix, write_history(storage(s3, prefix), request.param, split=2)


@pytest.fixture
def session():
    with fast() as made:
        yield made


def test_every_version_is_as_icechunk_reads_it(s3, history, session):
    prefix, found = history
    for revision, arrays in found.versions.items():
        group = hs.open(s3.url(f"{prefix}@{revision}"), storage_options=s3.storage_options, session=session)
        theirs = opened_by_icechunk(found.storage, revision) if arrays else {}
        for path, cells in arrays.items():
            assert np.array_equal(group[path][...], cells)
            assert np.array_equal(group[path][...], theirs[path][...])


def test_the_wire_agrees_with_the_ledger(s3, s3_proxy, history, session):
    prefix, found = history
    url, options = s3.url(f"{prefix}@tag=v1"), options_for(s3_proxy.endpoint)
    group = hs.open(url, storage_options=options, session=session)
    for path in ("plain", "packed", "sharded", "deep/er/cube"):
        cells = found.versions["tag=v1"][path]
        assert np.array_equal(group[path][1:, 2:7], cells[1:, 2:7])
    ledger = session.metrics.snapshot()
    assert (ledger.requests + ledger.lookups, ledger.bytes) == sent(s3_proxy)


def refer(s3, prefix, name, **checksums):
    """Write a repository whose array refers to three chunks of an object; return its URL and the cells."""
    cells = np.arange(120, dtype="<i4").reshape(6, 20)
    s3.put(name, b"head" + cells.tobytes())
    place = f"s3://{s3.bucket}/"
    config = icechunk.RepositoryConfig.default()
    store = icechunk.s3_store(region="us-east-1", endpoint_url=s3.endpoint, allow_http=True, force_path_style=True)
    config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(place, store))
    repository = icechunk.Repository.create(storage(s3, prefix), config=config)
    writing = repository.writable_session("main")
    zarr.create_array(writing.store, name="v", shape=(6, 20), chunks=(2, 20), dtype="<i4", compressors=None)
    chunks = [icechunk.VirtualChunkSpec([n, 0], place + name, 4 + 160 * n, 160, **checksums) for n in range(3)]
    writing.store.set_virtual_refs("v", chunks)
    writing.commit("virtual")
    return s3.url(f"{prefix}@branch=main/v"), cells


def tag_of(s3, name):
    """The ETag of an object, as the server says it."""
    return hs.store.locate(s3.url(name), s3.storage_options)[0].head(name)[1]


@pytest.mark.parametrize("quoted", [True, False])
def test_an_object_that_changed_is_an_error_and_never_other_numbers(s3, session, quoted):
    prefix, name = f"icechunk/etag-{next(_numbers)}", f"files/etag-{next(_numbers)}.bin"
    s3.put(name, b"head" + np.arange(120, dtype="<i4").tobytes())
    etag = tag_of(s3, name)
    url, cells = refer(s3, prefix, name, etag_checksum=etag if quoted else etag.strip('"'))
    array = hs.open(url, storage_options=s3.storage_options, session=session)
    assert np.array_equal(array[1:5], cells[1:5])  # the bucket is the repository's own
    s3.put(name, b"HEAD" + np.zeros(120, "<i4").tobytes())
    for found in (array, hs.open(url, storage_options=s3.storage_options, session=session)):
        with pytest.raises(ConflictError):
            found[2:4]


def test_an_object_written_later_than_noted_is_an_error(s3, session):
    prefix, name = f"icechunk/time-{next(_numbers)}", f"files/time-{next(_numbers)}.bin"
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=60)
    url, cells = refer(s3, prefix, name, last_updated_at_checksum=later)
    array = hs.open(url, storage_options=s3.storage_options, session=session)
    assert np.array_equal(array[1:5], cells[1:5])
    s3.put(name, b"HEAD" + np.zeros(120, "<i4").tobytes())
    with pytest.raises(ConflictError):  # as written within that minute, but not what the handle has seen
        array[2:4]
    earlier = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=3600)
    url, _ = refer(s3, f"{prefix}-again", name, last_updated_at_checksum=earlier)
    with pytest.raises(ConflictError, match="changed since it was referred to"):
        hs.open(url, storage_options=s3.storage_options, session=session)[2:4]


def test_an_object_that_is_gone_or_elsewhere(s3, session, tmp_path):
    prefix, name = f"icechunk/gone-{next(_numbers)}", f"files/gone-{next(_numbers)}.bin"
    url, cells = refer(s3, prefix, name)
    array = hs.open(url, storage_options=s3.storage_options, session=session)
    assert np.array_equal(array[...], cells)
    hs.store.locate(s3.url(name), s3.storage_options)[0].delete(name)
    with pytest.raises(IntegrityError, match="not there"):
        hs.open(url, storage_options=s3.storage_options, session=session)[...]
    config = icechunk.RepositoryConfig.default()
    other = icechunk.local_filesystem_store(str(tmp_path))
    config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(f"file://{tmp_path}/", other))
    repository = icechunk.Repository.create(storage(s3, f"{prefix}-file"), config=config)
    writing = repository.writable_session("main")
    zarr.create_array(writing.store, name="v", shape=(4,), chunks=(4,), dtype="<i4", compressors=None)
    (tmp_path / "x.bin").write_bytes(np.arange(4, dtype="<i4").tobytes())
    writing.store.set_virtual_ref("v/c/0", f"file://{tmp_path}/x.bin", offset=0, length=16)
    writing.commit("a file of this machine")
    url = s3.url(f"{prefix}-file@branch=main/v")
    with pytest.raises(AccessError, match="targets"):
        hs.open(url, storage_options=s3.storage_options, session=session)[...]
    options = {**s3.storage_options, "targets": [str(tmp_path)]}
    assert hs.open(url, storage_options=options, session=session)[...].tolist() == [0, 1, 2, 3]
