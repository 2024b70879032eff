"""Icechunk repositories, written by Icechunk itself: several versions, branches and tags, every kind of chunk."""

import contextlib
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.codecs import BytesCodec

# Whoever imports this is skipped where it is not installed.
icechunk = pytest.importorskip("icechunk")

__all__ = [
    "GRID", "SPEC_VERSIONS", "History", "create", "icechunk", "opened_by_icechunk", "version2", "write_history",
    "write_virtual",
]  # fmt: skip

# Icechunk 2 writes both versions of the format, Icechunk 1 the first.
SPEC_VERSIONS = (1,) if icechunk.__version__.startswith("1.") else (1, 2)

GRID = np.arange(60 * 44, dtype="<i4").reshape(60, 44)
# Past this, a chunk is an object of its own.
INLINE_BYTES = 512


@dataclass
class History:
    """A repository, and what each of its versions holds: `versions[revision][path]` are cells."""

    storage: Any
    versions: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)


def _quiet() -> None:
    with contextlib.suppress(AttributeError):
        icechunk.set_logs_filter("error")


def _split_config(rows: int | None) -> Any:
    config = icechunk.RepositoryConfig.default()
    config.inline_chunk_threshold_bytes = INLINE_BYTES
    if rows is not None:
        sizes = {icechunk.ManifestSplitCondition.AnyArray(): {icechunk.ManifestSplitDimCondition.Axis(0): rows}}
        config.manifest = icechunk.ManifestConfig(splitting=icechunk.ManifestSplittingConfig.from_dict(sizes))
    return config


def create(storage: Any, spec: int = 1, *, split: int | None = None, **options: Any) -> Any:
    """Create a repository; with `split`, a manifest holds so many rows of chunks."""
    _quiet()
    versioned = {} if SPEC_VERSIONS == (1,) else {"spec_version": spec}
    return icechunk.Repository.create(storage, config=_split_config(split), **versioned, **options)


def _first(session: Any) -> dict[str, np.ndarray]:
    root = zarr.create_group(session.store, attributes={"title": "first"})
    cells: dict[str, np.ndarray] = {}

    def put(path: str, data: np.ndarray, **options: Any) -> None:
        array = zarr.create_array(session.store, name=path, data=data, **options)
        cells[path] = np.asarray(array[...])

    put("plain", GRID, chunks=(20, 11), compressors=None)
    put("packed", GRID * 7919.0 % 1009 / 7, chunks=(20, 11), dimension_names=("y", "x"), attributes={"units": "m"})
    put("tiny", np.arange(10, dtype="i2"), chunks=(4,))
    put("sharded", GRID, chunks=(5, 11), shards=(20, 22))
    put("scalar", np.array(7.5))
    root.create_group("deep").create_group("er")
    put("deep/er/cube", np.arange(600.0).reshape(2, 3, 100), chunks=(1, 2, 100), compressors=None)
    sparse = zarr.create_array(
        session.store, name="sparse", shape=(60, 44), chunks=(20, 11), dtype="i4", fill_value=-5, compressors=None
    )
    sparse[20:40, :11] = GRID[20:40, :11]
    cells["sparse"] = np.asarray(sparse[...])
    zarr.create_array(session.store, name="unwritten", shape=(9, 4), chunks=(3, 4), dtype="f4", fill_value=1.5)
    cells["unwritten"] = np.full((9, 4), 1.5, "f4")
    return cells


def write_history(storage: Any, spec: int = 1, *, split: int | None = None) -> History:
    """Write a repository of several commits, with branches and tags, one of them deleted."""
    repository, history = create(storage, spec, split=split), History(storage)
    start = repository.lookup_branch("main")
    history.versions[f"snapshot={start}"] = {}
    session = repository.writable_session("main")
    cells = _first(session)
    first = session.commit("first")
    history.versions[f"snapshot={first}"] = history.versions["tag=v1"] = dict(cells)
    repository.create_tag("v1", first)
    repository.create_tag("gone", first)
    repository.delete_tag("gone")
    repository.create_branch("dev", first)

    session = repository.writable_session("main")
    root = zarr.open_group(session.store)
    root.attrs["title"] = "second"
    plain: Any = root["plain"]
    plain.resize((70, 44))
    plain[10:30, 5:20] = -1
    packed: Any = root["packed"]
    packed.resize((30, 44))
    sharded: Any = root["sharded"]
    sharded[:20] = 0
    del root["tiny"]
    second = session.commit("second")
    names = [name for name in cells if name != "tiny"]
    latest = {name: np.asarray(zarr.open_array(session.store, path=name, mode="r")[...]) for name in names}
    history.versions["branch=main"] = history.versions[f"snapshot={second}"] = latest

    session = repository.writable_session("dev")
    dev: Any = zarr.open_group(session.store)
    dev["tiny"][2:5] = 99
    session.commit("on the side")
    history.versions["branch=dev"] = cells | {"tiny": np.asarray(dev["tiny"][...])}
    return history


def opened_by_icechunk(storage: Any, revision: str, **options: Any) -> Any:
    """Return the root group of a version, as zarr-python reads it through Icechunk."""
    kind, _, name = revision.partition("=")
    repository = icechunk.Repository.open(storage, **options)
    session = repository.readonly_session(**{"snapshot_id" if kind == "snapshot" else kind: name})
    return zarr.open_group(session.store, mode="r")


def write_virtual(storage: Any, folder: Path, spec: int = 1, *, etags: bool = False, **extra: Any) -> np.ndarray:
    """Write a repository whose array `v` refers to two files in a folder; return the cells."""
    container = icechunk.VirtualChunkContainer(f"file://{folder}/", icechunk.local_filesystem_store(str(folder)))
    config = _split_config(None)
    config.set_virtual_chunk_container(container)
    _quiet()
    versioned = {} if SPEC_VERSIONS == (1,) else {"spec_version": spec}
    repository = icechunk.Repository.create(storage, config=config, **versioned)
    session = repository.writable_session("main")
    zarr.create_group(session.store)
    zarr.create_array(
        session.store, name="v", shape=(8, 10), chunks=(2, 10), dtype="i4", fill_value=0,
        serializer=BytesCodec(), compressors=None,
    )  # fmt: skip
    data = np.arange(80, dtype="<i4").reshape(8, 10)
    (folder / "a.bin").write_bytes(b"head" + data[:4].tobytes())
    (folder / "b.bin").write_bytes(data[4:6].tobytes())
    refs = [([0, 0], "a.bin", 4), ([1, 0], "a.bin", 84), ([2, 0], "b.bin", 0)]
    chunks = [
        icechunk.VirtualChunkSpec(index, f"file://{folder}/{name}", offset, 80, **extra) for index, name, offset in refs
    ]
    session.store.set_virtual_refs("v", chunks)
    session.commit("virtual")
    data[6:] = 0
    return data


def version2(folder: Path) -> Path:
    """Return a directory with repositories that Icechunk 2.3 wrote in version 2 of the format.

    `history` is what `write_history` writes, two rows of chunks in a manifest. The array `v` of `virtual` refers to
    1,500 chunks of four bytes in as many files, by locations that are compressed: chunk n is at byte 100 n + 8 of
    `s3://bucket/run/{n % 7}/file-{n:05}.nc`, whose ETag is n in hexadecimal digits.
    """
    with zipfile.ZipFile(Path(__file__).with_name("icechunk_version2.zip")) as packed:
        packed.extractall(folder)
    return folder
