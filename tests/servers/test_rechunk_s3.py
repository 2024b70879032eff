"""Layouts changed in place on a real S3 server, while others write, and after kills."""

import os
import random
import signal
import time
import uuid

import numpy as np
import pytest
import zarr
from support.forking import Child
from support.profiles import times

import hyperslab as hs
from hyperslab.formats.zarr import array as zarr_array

VALUES = np.arange(60 * 40, dtype="i4").reshape(60, 40)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(zarr_array, "TRUST_S", 0.0)


@pytest.fixture
def url(s3):
    return s3.url(f"rechunk/{uuid.uuid4().hex}")


def change(url: str, options: dict, chunks: tuple[int, ...]) -> tuple[int, ...]:
    with hs.Session() as session:
        return hs.rechunk(url, chunks=chunks, shards=chunks, storage_options=options, session=session).chunks


def write(url: str, options: dict, rounds: int) -> int:
    with hs.Session() as session:
        array = hs.open(url, mode="r+", storage_options=options, session=session)
        for n in range(1, rounds + 1):
            array[n % 60, n % 40] = -n
        return rounds


def test_while_others_write(s3, url):
    options = s3.storage_options
    hs.save(url, VALUES, chunks=(10, 10), shards=(20, 20), storage_options=options)
    old, values = hs.open(url, storage_options=options), VALUES.copy()
    changer = Child(lambda: change(url, options, (60, 5)))
    writer = Child(lambda: write(url, options, 30))
    assert changer.result(60) == (60, 5)
    writer.result(60)
    for n in range(1, 31):
        values[n % 60, n % 40] = -n
    assert (hs.open(url, storage_options=options)[...] == values).all()
    assert old[...].shape == values.shape
    with hs.Session() as session:
        assert hs.sweep(url, storage_options=options, session=session) == 6
        assert (hs.open(url, storage_options=options, session=session)[...] == values).all()


def test_killed_and_called_again(s3, url):
    options, chance = s3.storage_options, random.Random(5)
    hs.save(url, VALUES, chunks=(10, 10), shards=(20, 20), storage_options=options)
    for n in range(times(3, 30)):
        chunks = ((60, 5), (6, 40), (10, 10))[n % 3]
        pid = os.fork()
        if pid == 0:
            try:
                change(url, options, chunks)
            finally:
                os._exit(0)
        time.sleep(chance.uniform(0.05, 0.4))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        with hs.Session() as session:
            where = {"storage_options": options, "session": session}
            assert (hs.open(url, **where)[...] == VALUES).all()
            changed = hs.rechunk(url, chunks=chunks, shards=chunks, **where)
            assert (changed[...] == VALUES).all()
            hs.sweep(url, **where)
            assert (hs.open(url, **where)[...] == VALUES).all()
            hs.copy(hs.open(url, **where), f"memory://rechunk-s3/{n}", session=session)


def test_zarr_python_reads_it(s3, url, tmp_path):
    options = s3.storage_options
    hs.save(url, VALUES, chunks=(10, 10), shards=(20, 20), storage_options=options)
    changed = hs.rechunk(url, chunks=(60, 5), layout="plain", storage_options=options)
    lead = changed.source.path
    for key, _ in changed.store.keys(lead):
        path = tmp_path / "a" / key.removeprefix(lead).lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(changed.store.get(key).data))
    assert (zarr.open_array(str(tmp_path / "a"))[...] == VALUES).all()
