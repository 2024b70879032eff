"""Repositories as users open them: versions, refreshing, pickling, what is missing or must not be followed."""

import datetime
import pickle
import shutil

import numpy as np
import pytest
import zarr
from click.testing import CliRunner
from support.icechunk_repos import GRID, create, icechunk, version2, write_history, write_virtual

import hyperslab as hs
from hyperslab.cli import command
from hyperslab.errors import (
    AccessError,
    ConflictError,
    HyperslabError,
    IntegrityError,
    InvalidInputError,
    MetadataError,
    NotFoundError,
    UnsupportedError,
)
from hyperslab.execute import StoreReader
from hyperslab.formats.icechunk.ids import name_of
from hyperslab.formats.icechunk.manifest import ChunkRef, Manifest
from hyperslab.formats.icechunk.versions import pin_versions
from hyperslab.store import locate


@pytest.fixture
def written(tmp_path):
    """A repository of version 1 that a test may damage."""
    return tmp_path / "repo", write_history(icechunk.local_filesystem_storage(str(tmp_path / "repo")))


def test_what_is_opened_says_what_it_is(repository):
    folder, history = repository
    group = hs.open(folder)
    assert (group.source.format, dict(group.attrs)) == ("icechunk", {"title": "second"})
    packed = group["packed"]
    assert (packed.shape, packed.chunks, packed.shards, packed.dims) == ((30, 44), (20, 11), None, ("y", "x"))
    assert dict(packed.attrs) == {"units": "m"}
    assert group["sharded"].shards == (20, 22)
    assert group["unwritten"].fill_value == 1.5
    assert group.tree().splitlines()[:3] == ["deep/", "  er/", "    cube  float64 (2, 3, 100)"]
    assert hs.open(f"{folder}/deep/er/cube")[1, 2, 3] == history.versions["branch=main"]["deep/er/cube"][1, 2, 3]
    assert "tiny" not in group
    assert "tiny" in hs.open(f"{folder}@tag=v1")


def test_a_handle_stays_at_its_version_until_it_is_refreshed(written):
    folder, history = written
    before, fixed = hs.open(f"{folder}/plain"), hs.open(f"{folder}@tag=v1/plain")
    root = hs.open(folder)
    repository = icechunk.Repository.open(history.storage)
    session = repository.writable_session("main")
    zarr.open_array(session.store, path="plain", mode="r+")[:5] = 12345
    zarr.create_array(session.store, name="new", shape=(3,), dtype="i4")
    session.commit("third")
    assert before[0, 0] == 0
    assert before.refresh()[0, 0] == 12345
    assert fixed.refresh()[0, 0] == 0
    assert "new" not in root
    assert "new" in root.refresh()
    repository.delete_branch("dev")
    with pytest.raises(NotFoundError, match="branch 'dev'"):
        hs.open(f"{folder}@branch=dev")


def test_handles_pickle(repository):
    folder, history = repository
    group = pickle.loads(pickle.dumps(hs.open(f"{folder}@tag=v1")))
    assert np.array_equal(group["sharded"][3:30], GRID[3:30])
    array = hs.open(f"{folder}@tag=v1/packed")
    array[0]
    packed = pickle.dumps(array)
    assert len(packed) < 20_000  # no manifests
    assert np.array_equal(pickle.loads(packed)[1:5], history.versions["tag=v1"]["packed"][1:5])


def test_an_empty_repository_is_an_empty_group(tmp_path):
    create(icechunk.local_filesystem_storage(str(tmp_path)))
    group = hs.open(tmp_path)
    assert (list(group), dict(group.attrs)) == ([], {})
    with pytest.raises(NotFoundError, match="no 'a'"):
        group["a"]


def test_an_array_at_the_root(tmp_path):
    session = create(icechunk.local_filesystem_storage(str(tmp_path))).writable_session("main")
    zarr.create_array(session.store, data=GRID, chunks=(60, 44))
    session.commit("one array")
    assert np.array_equal(hs.open(tmp_path)[7:9], GRID[7:9])


@pytest.mark.parametrize(
    ("inside", "error"),
    [
        ("@tag=gone", NotFoundError), ("@branch=none", NotFoundError), ("/nothing", NotFoundError),
        ("@snapshot=00000000000000000000", NotFoundError), ("@snapshot=head", InvalidInputError),
        ("@tag=v1/plain/x", NotFoundError),
    ],
)  # fmt: skip
def test_what_is_not_there(repository, inside, error):
    with pytest.raises(error):
        hs.open(f"{repository[0]}{inside}")


def test_it_is_only_read(repository):
    folder, _ = repository
    with pytest.raises(UnsupportedError, match="only read"):
        hs.open(f"{folder}@branch=main/plain", "r+")
    copied = hs.copy(f"{folder}@tag=v1/plain", "memory://icechunk-copied/a", overwrite=True)
    assert np.array_equal(copied[...], GRID)


def damage(folder, kind, change):
    for path in (folder / kind).iterdir():
        change(path)


def test_what_is_lost_is_an_error_and_never_fill_values(written, tmp_path):
    folder, _ = written
    array, shards = hs.open(f"{folder}/plain"), hs.open(f"{folder}/sharded")
    array[0]
    damage(folder, "chunks", lambda path: path.unlink())
    for found in (array, hs.open(f"{folder}/packed"), shards):
        with pytest.raises(IntegrityError, match="not there"):
            found[...]
    damage(folder, "manifests", lambda path: path.unlink())
    with hs.Session() as session, pytest.raises(IntegrityError, match=r"manifest .* is not there"):
        hs.open(f"{folder}/packed", session=session)[0]


def test_damaged_files_are_typed_errors(written):
    folder, _ = written
    damage(folder, "manifests", lambda path: path.write_bytes(path.read_bytes()[:-9]))
    with hs.Session() as session, pytest.raises(MetadataError):
        hs.open(f"{folder}/plain", session=session)[0]
    damage(folder, "manifests", lambda path: path.write_bytes(path.read_bytes() * 9000))
    with hs.Session() as session, pytest.raises(HyperslabError):
        hs.open(f"{folder}/plain", session=session)[0]
    damage(folder, "snapshots", lambda path: path.write_bytes(b"nothing of the kind"))
    with hs.Session() as session, pytest.raises(MetadataError, match="does not start like"):
        hs.open(folder, session=session)


def test_a_later_version_of_the_format_is_named(written):
    folder, _ = written

    def later(path):
        data = bytearray(path.read_bytes())
        data[36] = 3
        path.write_bytes(data)

    damage(folder, "snapshots", later)
    with hs.Session() as session, pytest.raises(UnsupportedError, match="version 3 of Icechunk's format"):
        hs.open(folder, session=session)


@pytest.fixture
def virtual(tmp_path):
    files = tmp_path / "files"
    files.mkdir()

    def write(**extra):
        folder = tmp_path / "repo"
        shutil.rmtree(folder, ignore_errors=True)
        return folder, files, write_virtual(icechunk.local_filesystem_storage(str(folder)), files, **extra)

    return write


def test_virtual_chunks_are_followed_only_where_allowed(virtual, tmp_path):
    folder, files, cells = virtual()
    with pytest.raises(AccessError, match="targets"):
        hs.open(f"{folder}/v")[0]
    with pytest.raises(AccessError):
        hs.open(f"{folder}/v", storage_options={"targets": [str(files / "b.bin")]})[0]
    array = hs.open(f"{folder}/v", storage_options={"targets": [str(files)]})
    assert np.array_equal(array[...], cells)
    assert np.array_equal(array[1:7, ::3], cells[1:7, ::3])


def test_a_file_that_was_written_since_is_refused(virtual):
    now = datetime.datetime.now(datetime.UTC)
    folder, files, cells = virtual(last_updated_at_checksum=now + datetime.timedelta(seconds=3600))
    options = {"targets": [str(files)]}
    array = hs.open(f"{folder}/v", storage_options=options)
    assert np.array_equal(array[...], cells)
    folder, files, cells = virtual(last_updated_at_checksum=now - datetime.timedelta(seconds=3600))
    with pytest.raises(ConflictError, match="changed since it was referred to"):
        hs.open(f"{folder}/v", storage_options=options)[0]


def test_a_file_of_another_etag_is_refused(virtual):
    for etag, error in [("12-34-56", ConflictError), ('W/"weak"', UnsupportedError), ("nonsense", ConflictError)]:
        folder, files, _ = virtual(etag_checksum=etag)
        with hs.Session() as session, pytest.raises(error):
            hs.open(f"{folder}/v", storage_options={"targets": [str(files)]}, session=session)[0]


def test_shards_in_files_elsewhere(tmp_path):
    folder, files = tmp_path / "repo", tmp_path / "files"
    plain = hs.create(files / "a.zarr", shape=(8, 8), chunks=(2, 8), shards=(8, 8), dtype="i4")
    plain[...] = np.arange(64).reshape(8, 8)
    shard = next(path for path in files.rglob("*") if path.parent.name == "0" and path.is_file())
    container = icechunk.VirtualChunkContainer(f"file://{files}/", icechunk.local_filesystem_store(str(files)))
    config = icechunk.RepositoryConfig.default()
    config.set_virtual_chunk_container(container)
    session = icechunk.Repository.create(
        icechunk.local_filesystem_storage(str(folder)), config=config
    ).writable_session("main")
    document = zarr.open_array(str(files / "a.zarr")).metadata
    zarr.create_array(
        session.store, name="v", shape=(8, 8), dtype="i4", chunks=(8, 8), serializer=document.codecs[0],
        compressors=None,
    )  # fmt: skip
    session.store.set_virtual_ref("v/c/0/0", f"file://{shard}", offset=0, length=shard.stat().st_size)
    session.commit("a shard elsewhere")
    array = hs.open(f"{folder}/v", storage_options={"targets": [str(files)]})
    assert array[3:5, 2].tolist() == [26, 34]
    plain[...] = 7
    assert array.refresh()[3:5, 2].tolist() == [7, 7]  # nobody noted which version was meant


def test_versions_of_files_as_others_write_them(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(b"abcd")
    store = locate(tmp_path)[0]
    with hs.Session() as session:
        reader = StoreReader(session, store)
        found = path.stat()
        # As object stores of Rust write the version of a file, which is in microseconds.
        right = f"{found.st_ino:x}-{found.st_mtime_ns // 1000:x}-{found.st_size:x}"
        ref = ChunkRef(location=f"file://{path}", length=4, etag=right)
        assert pin_versions(reader, [ref], {}) == {ref.location: store.head("a.bin")[1]}
        assert pin_versions(reader, [ChunkRef(location=ref.location, length=4)], {}) == {}


def test_locations_that_are_compressed(tmp_path):
    folder = version2(tmp_path) / "virtual"
    node = hs.open(f"{folder}/v").source.chunks.manifests
    data = (folder / "manifests" / name_of(node.ids[0])).read_bytes()
    refs = Manifest(data, node.ids[0], "manifest").refs(node.node, 1)
    found = refs.read(refs.find(np.array([[0], [711], [1499]])))
    assert [(ref.location, ref.offset, ref.length, ref.etag) for ref in found] == [
        (f"s3://bucket/run/{n % 7}/file-{n:05}.nc", 100 * n + 8, 4, f'"{n:x}"') for n in (0, 711, 1499)
    ]
    with pytest.raises(AccessError, match="s3://bucket/run/4"):
        hs.open(f"{folder}/v")[711]


def test_locations_that_lead_nowhere_known():
    for location, error in [
        ("vcc://name/x", UnsupportedError),
        ("../x", MetadataError),
        ("/etc/passwd", MetadataError),
    ]:
        with pytest.raises(error):
            pin_versions(None, [ChunkRef(location=location, length=4)], {})
    same = [ChunkRef(location="s3://b/x", length=4, etag=etag) for etag in ("a", "b")]
    with pytest.raises(ConflictError, match="several versions"):
        pin_versions(None, same, {})


def test_the_command_line(repository):
    folder, _ = repository

    def says(*arguments):
        result = CliRunner().invoke(command, list(arguments))
        assert result.exit_code == 0, result.output
        return result.output

    assert "icechunk" in says("info", f"{folder}@tag=v1")
    assert "shards" in says("info", f"{folder}@tag=v1/sharded")
    assert "tiny" in says("ls", f"{folder}@tag=v1")
    assert "cube" in says("ls", "--depth", "3", str(folder))
    assert "45" in says("read", f"{folder}@tag=v1/plain", "1, 1:3")
    assert "RANGE" in says("explain", f"{folder}@tag=v1/packed", "1, 1:3")


def test_xarray_reads_what_xarray_wrote(tmp_path):
    xarray = pytest.importorskip("xarray")
    names = np.array(["Ahrensburg", "Bad Oldesloe", "Čáslav", "x" * 900], dtype=object)
    written = xarray.Dataset(
        {"wind": (("time", "station"), np.arange(24.0, dtype="f4").reshape(6, 4), {"units": "m/s", "_FillValue": 7.0})},
        coords={"time": np.datetime64("2026-01-01", "ns") + np.arange(6) * np.timedelta64(1, "h"), "station": names},
    )
    session = create(icechunk.local_filesystem_storage(str(tmp_path))).writable_session("main")
    written.to_zarr(session.store, consolidated=False, zarr_format=3, encoding={"station": {"chunks": (2,)}})
    session.commit("by xarray")
    with (
        xarray.open_dataset(tmp_path, engine="hyperslab") as found,
        xarray.open_zarr(session.store, consolidated=False) as theirs,
    ):
        xarray.testing.assert_identical(found.load(), theirs.load())
        assert found["station"].values.tolist() == names.tolist()
        assert int(found["wind"].isnull().sum()) == 1


def test_xarray_opens_versions(repository):
    xarray = pytest.importorskip("xarray")
    folder, history = repository
    cells = history.versions["tag=v1"]["packed"]
    with xarray.open_dataset(f"{folder}@tag=v1", engine="hyperslab") as dataset:
        assert dataset["packed"].dims == ("y", "x")
        assert np.array_equal(dataset["packed"][3:9, ::2].values, cells[3:9, ::2])
        assert dataset["packed"].attrs["units"] == "m"
    with xarray.open_dataset(str(folder), engine="hyperslab", group="deep/er") as dataset:
        assert dataset["cube"].shape == (2, 3, 100)
