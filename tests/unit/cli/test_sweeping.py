"""`hyperslab rechunk --in-place` and `hyperslab sweep`."""

import numpy as np
import pytest
from click.testing import CliRunner

import hyperslab as hs
from hyperslab.cli import command
from hyperslab.formats.zarr import array as zarr_array

VALUES = np.arange(400).reshape(20, 20)


@pytest.fixture
def run(monkeypatch):
    monkeypatch.setattr(zarr_array, "TRUST_S", 0.0)
    return lambda *arguments: CliRunner().invoke(command, [str(argument) for argument in arguments])


def test_in_place_and_sweep(run, tmp_path):
    hs.save(tmp_path / "a", VALUES, chunks=(5, 5), shards=(10, 10))
    done = run("rechunk", tmp_path / "a", "--in-place", "--chunks", "20,2", "--shards", "20,10")
    assert done.exit_code == 0, done.output
    assert "chunks (20, 2)" in done.output
    assert (tmp_path / "a/c/0/0").exists()
    assert "4 old objects deleted" in run("sweep", tmp_path / "a").output
    assert "nothing to sweep" in run("sweep", tmp_path / "a").output
    assert not (tmp_path / "a/c").exists()
    assert (hs.open(tmp_path / "a")[...] == VALUES).all()


def test_what_cannot_be_swept(run, tmp_path):
    np.save(tmp_path / "a.npy", VALUES)
    failed = run("sweep", tmp_path / "a.npy")
    assert failed.exit_code == 1
    assert "zarr3" in failed.output
    assert run("sweep", tmp_path / "nothing").exit_code == 1
