"""Arrays whose plans are kept as texts: written once, in memory and on disk."""

import numpy as np
import pytest
import zarr
from support.arrays import copy_to_memory

import hyperslab as hs

PLACE = "plans"


@pytest.fixture(scope="session")
def written(tmp_path_factory):
    """The folder that holds the arrays; `memory://plans` holds them, too."""
    folder = tmp_path_factory.mktemp("arrays")
    cells = np.arange(400 * 600, dtype="i4").reshape(400, 600)
    plain = {"compressors": None, "filters": None}
    zarr.create_array(folder / "plain.zarr", data=cells, chunks=(100, 200), **plain)
    zarr.create_array(folder / "zstd.zarr", data=cells, chunks=(100, 200))
    zarr.create_array(folder / "shards.zarr", data=cells, chunks=(10, 600), shards=(400, 600))
    zarr.create_array(folder / "sparse.zarr", shape=(400, 600), dtype="i4", chunks=(50, 50), shards=(200, 200))
    sparse = zarr.open_array(folder / "sparse.zarr")
    sparse[:50, :50] = 1
    zarr.create_array(folder / "huge.zarr", shape=(10**6, 10**6), dtype="i2", chunks=(1000, 1000), **plain)
    zarr.create_array(folder / "cube.zarr", data=np.zeros((40, 60, 80), "f4"), chunks=(10, 10, 10), **plain)
    np.save(folder / "line.npy", np.arange(10_000.0))
    np.save(folder / "fields.npy", np.zeros((30, 40), [("a", "i4"), ("b", "f8")]))
    for path in folder.iterdir():
        copy_to_memory(path, PLACE)
    return folder


@pytest.fixture
def cloud(written):
    """Open an array as if it lay in S3: typical figures, and list prices."""
    with hs.Session(profile="s3", prices="aws") as session:
        yield lambda name: hs.open(f"memory://{PLACE}/{name}", session=session)


@pytest.fixture
def disk(written, monkeypatch):
    """Open an array on disk, by a path that is the same on every machine."""
    monkeypatch.chdir(written)
    with hs.Session() as session:
        yield lambda name: hs.open(name, session=session)
