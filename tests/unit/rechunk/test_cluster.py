"""Rechunking by the workers of a cluster: the same cells, told as they are done, with typed errors."""

import numpy as np
import pytest

import hyperslab as hs
from hyperslab.rechunk import cluster

distributed = pytest.importorskip("distributed")

CELLS = np.random.default_rng(3).normal(size=(24, 30, 40)).astype("f4")


@pytest.fixture(scope="module")
def client():
    """Two workers, each a process, on this machine alone."""
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address="127.0.0.1:0"
        ) as made,
        distributed.Client(made) as client,
    ):
        yield client


def test_workers_write_all_of_it(client, tmp_path):
    source = hs.save(tmp_path / "a", CELLS, chunks=(1, 30, 40), shards=(1, 30, 40), attrs={"units": "K"})
    told = []
    made = hs.rechunk(
        source, tmp_path / "b", chunks=(24, 5, 5), shards=(24, 10, 10), scheduler=client,
        progress=lambda *each: told.append(each),
    )  # fmt: skip
    assert np.array_equal(made[...], CELLS)
    assert made.source.layout.complete
    assert dict(made.attrs) == {"units": "K"}
    assert told[-1] == (CELLS.nbytes, CELLS.nbytes)
    assert len(told) >= 2


def test_going_on_where_it_was(client, tmp_path):
    source = hs.save(tmp_path / "a", CELLS, chunks=(1, 30, 40), shards=(1, 30, 40))
    file = tmp_path / "a/c/20/0/0"
    whole = file.read_bytes()
    file.write_bytes(whole[:-30] + bytes(30))
    with pytest.raises(hs.errors.IntegrityError):
        hs.rechunk(source, tmp_path / "b", chunks=(4, 30, 40), shards=(4, 30, 40), scheduler=client)
    assert not hs.open(tmp_path / "b").source.layout.complete
    file.write_bytes(whole)
    again = hs.rechunk(
        hs.open(tmp_path / "a"), tmp_path / "b", chunks=(4, 30, 40), shards=(4, 30, 40), scheduler=client
    )
    assert np.array_equal(again[...], CELLS)


def test_a_sparse_array_stays_sparse(client, tmp_path):
    source = hs.create(tmp_path / "a", (40, 40), "i4", chunks=(1, 40), shards=(1, 40))
    source[7] = 5
    made = hs.rechunk(source, tmp_path / "b", chunks=(10, 10), shards=(10, 10), scheduler=client)
    assert np.array_equal(made[...], source[...])
    assert len(list((tmp_path / "b/c").glob("*/*"))) == 4


def test_what_workers_cannot_do(client, tmp_path, monkeypatch):
    source = hs.save("memory://cluster/a", CELLS)
    with pytest.raises(hs.errors.UnsupportedError, match="memory://"):
        hs.rechunk(source, tmp_path / "b", scheduler=client)
    local = hs.save(tmp_path / "a", CELLS)
    with pytest.raises(hs.errors.InvalidInputError, match="Client"):
        hs.rechunk(local, tmp_path / "c", scheduler="threads")

    def dies(part):
        raise RuntimeError("lost")

    monkeypatch.setattr(cluster, "_move_part", dies)
    with pytest.raises(hs.errors.StoreError, match="call again"):
        hs.rechunk(local, tmp_path / "d", scheduler=client)
