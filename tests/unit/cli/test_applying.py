"""`hyperslab apply`: functions of modules over arrays, what it says and refuses."""

import sys

import numpy as np
import pytest
from click.testing import CliRunner

import hyperslab as hs
from hyperslab.cli import command

CELLS = np.arange(48, dtype="f4").reshape(6, 8)


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "somestencils.py").write_text("def right(s):\n    return s(0, 1) - s(0, 0)\n\nnumber = 5\n")
    hs.save("in.zarr", CELLS, chunks=(3, 4))
    yield lambda *arguments: CliRunner().invoke(command, ["apply", *[str(argument) for argument in arguments]])
    sys.modules.pop("somestencils", None)


def test_a_function_of_a_module(run):
    done = run(
        "somestencils:right", "in.zarr", "out.zarr", "--boundary", "nearest", "--boundary", "0", "--chunks", "2,2"
    )
    assert done.exit_code == 0, done.output
    assert "float32 (6, 8) chunks (2, 2)" in done.stderr
    assert np.array_equal(hs.open("out.zarr")[...], np.diff(CELLS, append=0))
    again = run("somestencils:right", "in.zarr", "out.zarr")
    assert (again.exit_code, "overwrite" in again.stderr) == (1, True)


def test_what_it_would_do(run, tmp_path):
    done = run("somestencils:right", "in.zarr", "out.zarr", "--explain", "--memory", "16GB", "--stride", "2,2")
    assert done.exit_code == 0, done.output
    assert "read twice" in done.stdout
    assert "float32 3×4" in done.stdout
    assert not (tmp_path / "out.zarr").exists()


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("right", "module:function"),
        ("nosuchmodule:right", "cannot be imported"),
        ("somestencils:left", "no function"),
        ("somestencils:number", "no function"),
    ],
)
def test_what_is_no_function(run, name, word):
    wrong = run(name, "in.zarr", "out.zarr")
    assert wrong.exit_code == 1
    assert word in wrong.stderr
