"""`hyperslab copy` and `hyperslab seal`: what they make, say and refuse."""

import numpy as np
import pytest
import zarr
from click.testing import CliRunner

import hyperslab as hs
from hyperslab.cli import command
from hyperslab.layout.compression import Compression


@pytest.fixture
def run():
    return lambda *arguments, **more: CliRunner().invoke(command, [str(argument) for argument in arguments], **more)


def test_copying_an_array(run, tmp_path):
    np.save(tmp_path / "a.npy", np.arange(60).reshape(6, 10))
    done = run("copy", tmp_path / "a.npy", tmp_path / "b", "--chunks", "3,5", "--shards", "6,5")
    assert done.exit_code == 0, done.output
    assert "int64 (6, 10) chunks (3, 5)" in done.stderr
    copied = hs.open(tmp_path / "b")
    assert (copied.shards, copied[5, 9]) == ((6, 5), 59)
    again = run("copy", tmp_path / "a.npy", tmp_path / "b")
    assert again.exit_code == 1
    assert "overwrite" in again.stderr
    plain = run("copy", tmp_path / "a.npy", tmp_path / "b", "--overwrite", "--layout", "plain")
    assert plain.exit_code == 0
    assert hs.open(tmp_path / "b").source.layout.plain


def test_copying_with_another_compressor(run, tmp_path):
    np.save(tmp_path / "a.npy", np.arange(60).reshape(6, 10))
    done = run("copy", tmp_path / "a.npy", tmp_path / "b", "--compressor", "lz4:3", "--shuffle")
    assert done.exit_code == 0, done.output
    assert hs.open(tmp_path / "b").source.compression == Compression("blosc", 3, "lz4", "shuffle", 8)
    assert run("copy", tmp_path / "a.npy", tmp_path / "c", "--compressor", "none").exit_code == 0
    assert hs.open(tmp_path / "c").source.compression is None
    wrong = run("copy", tmp_path / "a.npy", tmp_path / "d", "--compressor", "zip")
    assert (wrong.exit_code, "'zstd', 'lz4', 'gzip', 'blosc'" in wrong.stderr) == (1, True)


def test_copying_a_group(run, tmp_path):
    hs.create_group(tmp_path / "g").save("x/y", np.arange(3))
    done = run("copy", tmp_path / "g", tmp_path / "h", "-S", "region=here")
    assert done.exit_code == 0, done.output
    assert "group of 1" in done.stderr
    assert hs.open(tmp_path / "h")["x/y"][...].tolist() == [0, 1, 2]


def test_copying_what_is_not_there_or_with_nonsense(run, tmp_path):
    assert run("copy", tmp_path / "none", tmp_path / "b").exit_code == 1
    np.save(tmp_path / "a.npy", np.arange(6))
    wrong = run("copy", tmp_path / "a.npy", tmp_path / "b", "--chunks", "3;5")
    assert (wrong.exit_code, "--chunks" in wrong.stderr) == (1, True)
    assert not (tmp_path / "b").exists()


def test_sealing_after_another_program(run, tmp_path):
    hs.save(tmp_path / "a", np.arange(6), attrs={"units": "m"})
    assert "holds" in run("seal", tmp_path / "a", "--yes").stdout
    zarr.open_array(str(tmp_path / "a")).attrs["more"] = "\x1b[31mred"
    assert run("info", tmp_path / "a").exit_code == 1
    unasked = run("seal", tmp_path / "a")
    assert unasked.exit_code == 1
    assert "--yes" in unasked.stderr
    assert "is not as it was written" in unasked.stdout
    assert "@more" in unasked.stdout
    assert "\x1b" not in unasked.stdout
    assert run("info", tmp_path / "a").exit_code == 1
    done = run("seal", tmp_path / "a", "-y")
    assert done.exit_code == 0, done.output
    assert run("info", tmp_path / "a").exit_code == 0


def test_sealing_groups_and_arrays_of_others(run, tmp_path):
    zarr.create_group(str(tmp_path / "g")).create_array("a", shape=(4,), dtype="i4")
    done = run("seal", tmp_path / "g", "--yes")
    assert done.exit_code == 0, done.output
    assert "another program" in done.stdout
    assert hs.open(tmp_path / "g/a").source.layout.complete
    missing = run("seal", tmp_path, "--yes")
    assert missing.exit_code == 1
    assert "Zarr v3" in missing.stderr
