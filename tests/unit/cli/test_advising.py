"""`hyperslab advise`: what it prints, draws and changes."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

import hyperslab as hs
from hyperslab.cli import command

CELLS = np.random.default_rng(0).integers(0, 9, (256, 32, 32), dtype="i2")


@pytest.fixture
def run():
    return lambda *arguments: CliRunner().invoke(command, [str(argument) for argument in arguments])


@pytest.fixture
def recorded(tmp_path):
    array = hs.save(tmp_path / "a.zarr", CELLS, chunks=(1, 32, 32), shards=False)
    with hs.record(tmp_path / "w.hslog"):
        for place in range(30):
            array[:, place, place]
    return tmp_path / "a.zarr", tmp_path / "w.hslog"


def test_advice_is_printed_drawn_and_applied(run, recorded, tmp_path):
    url, log = recorded
    choices = ("--profile", "s3-internet", "--prices", "aws")
    told = run("advise", url, log, *choices)
    assert told.exit_code == 0, told.output
    assert "advised" in told.stdout
    values = json.loads(run("advise", url, log, "--json", *choices).stdout)
    assert not values["keep"]
    assert hs.open(url).chunks == (1, 32, 32)
    done = run("advise", url, log, "--apply", "--plot", tmp_path / "p.png", *choices)
    assert done.exit_code == 0, done.output
    assert (tmp_path / "p.png").stat().st_size > 10_000
    changed = hs.open(url)
    assert list(changed.chunks) == values["best"]["chunks"]
    assert np.array_equal(changed[...], CELLS)


def test_what_is_wrong_is_said(run, recorded, tmp_path):
    url, log = recorded
    assert run("advise", url, tmp_path / "none.hslog").exit_code == 1
    assert run("advise", url).exit_code == 2
    picture = run("advise", url, log, "--plot", tmp_path / "p.xyz")
    assert picture.exit_code == 1
    assert "ends in one of" in picture.stderr
    assert "cannot be drawn to" in run("advise", url, log, "--plot", tmp_path / "no" / "p.png").stderr
    (tmp_path / "notes.txt").write_text("no log at all")
    other = run("advise", url, tmp_path / "notes.txt")
    assert other.exit_code == 1
    assert "is not a log" in other.stderr


def test_what_is_damaged_in_a_log_is_told(run, recorded):
    url, log = recorded
    with open(log, "ab") as file:
        file.write(b"\x93HSLOG\r\ntorn")
    told = run("advise", url, log)
    assert told.exit_code == 0
    assert "1 damaged frame, 12 B" in told.stderr
    assert "skipped" not in told.stdout
