"""What `hyperslab workload` prints, writes and draws."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

import hyperslab as hs
from hyperslab.cli.command import command


@pytest.fixture
def logs(tmp_path, monkeypatch):
    """Two logs, the second torn at its end."""
    monkeypatch.chdir(tmp_path)
    image = hs.save("image.zarr", np.zeros((1, 64, 64), "i4"), chunks=(1, 8, 8))
    line = hs.save("line.zarr", np.zeros(10, "f8"))
    with hs.record("1.hslog"):
        for row in range(6):
            image[0, row : row + 8, 10:30]
        image[0, :, 3]
    with hs.record("2.hslog"):
        line[2:5], line[[1, 4, 9]]
    with open("2.hslog", "ab") as file:
        file.write(b"\x93HSLOG\r\ntorn")
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(command, ["workload", *map(str, arguments)])


def test_show(logs):
    done = run("show", "1.hslog", "2.hslog")
    assert done.exit_code == 0, done.output
    for text in (
        str(logs / "image.zarr"), "<i4 (1, 64, 64)", "1×8×20", "85.7%", "1×64×1", "axis 1", "1 process on",
        str(logs / "line.zarr"), "1 damaged frame, 12 B",
    ):  # fmt: skip
        assert text in done.output
    assert max(map(len, done.output.splitlines())) <= max(100, len(str(logs)) + 20)
    assert done.output.index("image.zarr") < done.output.index("line.zarr")


def test_show_one_array_as_json(logs):
    done = run("show", "1.hslog", "2.hslog", "--array", "line.zarr", "--json")
    told = json.loads(done.output)
    assert [array["reads"] for array in told["arrays"]] == [2]
    assert told["arrays"][0]["needed_bytes"] == 6 * 8
    assert told["skipped_frames"] == 1


def test_plot(logs):
    done = run("show", "1.hslog", "--plot", "w.png")
    assert done.exit_code == 0, done.output
    assert (logs / "w.png").read_bytes().startswith(b"\x89PNG")
    assert run("show", "2.hslog", "--plot", "line.svg").exit_code == 0
    several = run("show", "1.hslog", "2.hslog", "--plot", "w2.png")
    assert several.exit_code == 1
    assert "--array" in several.output
    for wrong in ("w.nothing", "no/such/w.png"):
        assert run("show", "1.hslog", "--plot", wrong).exit_code == 1


def test_merge(logs):
    done = run("merge", "1.hslog", "2.hslog", "1.hslog", "-o", "all.parquet")
    assert done.exit_code == 0, done.output
    assert "9 reads of 2 arrays" in done.output
    assert "1 damaged frame" in done.output
    assert len(hs.Workload.load("all.parquet")) == 9
    assert run("show", "all.parquet").output == run("show", "1.hslog", "2.hslog").output
    assert run("merge", "1.hslog", "-o", "all.parquet").exit_code == 1
    assert run("merge", "1.hslog", "-o", "all.parquet", "--force").exit_code == 0
    assert run("merge", "1.hslog", "-o", "all.csv").exit_code == 1
    missing = run("show", "nothing.hslog")
    assert missing.exit_code == 1
    assert "there is no log" in missing.output
    with open("notes.txt", "w") as file:
        file.write("no log at all")
    other = run("show", "notes.txt")
    assert other.exit_code == 1
    assert "is not a log" in other.output
