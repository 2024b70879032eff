"""`hyperslab rechunk`: what it makes, says and refuses."""

import numpy as np
import pytest
from click.testing import CliRunner

import hyperslab as hs
from hyperslab.cli import command
from hyperslab.layout.compression import Compression


@pytest.fixture
def run():
    return lambda *arguments: CliRunner().invoke(command, [str(argument) for argument in arguments])


def test_to_another_place(run, tmp_path):
    np.save(tmp_path / "a.npy", np.arange(60).reshape(6, 10))
    done = run("rechunk", tmp_path / "a.npy", tmp_path / "b", "--chunks", "6,2", "--shards", "6,4", "--memory", "1GB")
    assert done.exit_code == 0, done.output
    assert "int64 (6, 10) chunks (6, 2)" in done.stderr
    assert (hs.open(tmp_path / "b")[...] == np.arange(60).reshape(6, 10)).all()
    again = run("rechunk", tmp_path / "a.npy", tmp_path / "b")
    assert (again.exit_code, "overwrite" in again.stderr) == (1, True)
    assert run("rechunk", tmp_path / "a.npy", tmp_path / "b", "--overwrite", "--layout", "plain").exit_code == 0


def test_in_place(run, tmp_path):
    hs.save(tmp_path / "a", np.arange(60).reshape(6, 10), chunks=(1, 10))
    done = run("rechunk", tmp_path / "a", "--in-place", "--chunks", "6,2")
    assert done.exit_code == 0, done.output
    assert hs.open(tmp_path / "a").chunks == (6, 2)


def test_the_compressor_stays_unless_another_is_named(run, tmp_path):
    hs.save(tmp_path / "a", np.arange(60).reshape(6, 10), compressor="gzip:2")
    assert run("rechunk", tmp_path / "a", "--in-place", "--chunks", "6,2").exit_code == 0
    assert hs.open(tmp_path / "a").source.compression == Compression("gzip", 2)
    assert run("rechunk", tmp_path / "a", "--in-place", "--compressor", "zstd", "--shuffle").exit_code == 0
    assert hs.open(tmp_path / "a").source.compression == Compression("blosc", 1, "zstd", "shuffle", 8)


def test_what_makes_no_sense(run, tmp_path):
    hs.save(tmp_path / "a", np.arange(6))
    for arguments in ([tmp_path / "a"], [tmp_path / "a", tmp_path / "b", "--in-place"]):
        wrong = run("rechunk", *arguments)
        assert (wrong.exit_code, "--in-place" in wrong.stderr) == (1, True)
    wrong = run("rechunk", tmp_path / "a", tmp_path / "b", "--memory", "much")
    assert (wrong.exit_code, "memory_bytes" in wrong.stderr) == (1, True)
    assert not (tmp_path / "b").exists()
