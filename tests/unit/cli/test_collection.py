"""`hyperslab collection`: what it imports, says, reads, advises and changes."""

import json
import warnings

import numpy as np
import pytest
from click.testing import CliRunner

import hyperslab as hs
from hyperslab.cli import command

NAMES = [f"{group}/{at}.npy" for group in "abcdef" for at in range(10)]


@pytest.fixture
def run():
    return lambda *arguments: CliRunner().invoke(command, ["collection", *map(str, arguments)])


@pytest.fixture
def url(tmp_path, run):
    for at, name in enumerate(NAMES):
        (tmp_path / "files" / name).parent.mkdir(parents=True, exist_ok=True)
        np.save(tmp_path / "files" / name, np.full((4, 5), at))
    done = run("import", tmp_path / "c", tmp_path / "files", "--pack-bytes", "1600")
    assert done.exit_code == 0, done.output
    assert "60 arrays" in done.stderr
    return tmp_path / "c"


@pytest.fixture
def log(url, tmp_path):
    c = hs.collection(url)
    with hs.record(tmp_path / "w.hslog"):
        for _ in range(4):
            for at in range(10):
                c.read_many(NAMES[at::10])
    return tmp_path / "w.hslog"


def test_info(run, url):
    told = run("info", url)
    assert told.exit_code == 0, told.output
    assert "60, 9,600 B as they were put" in told.stdout
    assert "'a/0.npy', 'a/1.npy', 'a/2.npy', …" in told.stdout
    values = json.loads(run("info", url, "--json").stdout)
    assert (values["arrays"], values["columns"], values["tier"]) == (60, {}, None)


def test_names_are_no_commands_to_a_terminal(run, tmp_path):
    hs.collection(tmp_path / "c", "w-").put_many({"\x1b[31m": np.zeros(1), "x" * 500: np.zeros(1)})
    told = run("info", tmp_path / "c")
    assert "\x1b" not in told.stdout
    assert "x" * 81 not in told.stdout


def test_read(run, url, tmp_path):
    assert run("read", url, NAMES[3]).stdout == f"{np.full((4, 5), 3)}\n"
    assert run("read", url, NAMES[3], NAMES[1]).stdout.splitlines()[0] == NAMES[3]
    done = run("read", url, *NAMES[:7], "-o", tmp_path / "some.npy")
    assert done.exit_code == 0, done.output
    found = np.load(tmp_path / "some.npy")
    assert found.shape == (7, 4, 5)
    assert found[:, 0, 0].tolist() == list(range(7))
    assert run("read", url, NAMES[0], "-o", tmp_path / "some.npy").exit_code == 1
    assert run("read", url, NAMES[9], "-o", tmp_path / "some.npy", "--force").exit_code == 0
    assert np.load(tmp_path / "some.npy").shape == (4, 5)


def test_what_cannot_be_read_is_said(run, url, tmp_path):
    assert "no array 'none'" in run("read", url, "none").stderr
    c = hs.collection(url, "r+")
    c.put_many({"large": np.zeros(10_001), "other": np.zeros(2)})
    assert "at most 10,000 are printed" in run("read", url, "large").stderr
    assert "different dtypes or shapes" in run("read", url, "large", "other", "-o", tmp_path / "x.npy").stderr
    assert not (tmp_path / "x.npy").exists()
    assert run("read", url).exit_code == 2
    assert run("info", tmp_path / "none").exit_code == 1
    (tmp_path / "empty").mkdir()
    assert "no collection" in run("info", tmp_path / "empty").stderr


def test_advice_is_printed_and_applied(run, url, log):
    pytest.importorskip("numba")
    told = run("advise", url, log, "--pack-bytes", "960")
    assert told.exit_code == 0, told.output
    assert "60 in 6 packs" in told.stdout
    before = hs.collection(url).manifest
    values = json.loads(run("advise", url, log, "--pack-bytes", "960", "--json").stdout)
    assert (values["keep"], values["best"]["packs"]) == (False, 1.0)
    assert hs.collection(url).manifest == before
    done = run("advise", url, log, "--pack-bytes", "960", "--apply")
    assert done.exit_code == 0, done.output
    c = hs.collection(url)
    assert all(len({entry.pack for entry in c.entries(NAMES[at::10])}) == 1 for at in range(10))
    assert [int(array[0, 0]) for array in c.read_many(NAMES)] == list(range(60))
    assert "stays as it is" in run("advise", url, log, "--pack-bytes", "960", "--apply").stderr


def test_a_plan_is_written_and_applied_with_a_tier(run, url, log, tmp_path):
    pytest.importorskip("numba")
    pytest.importorskip("lmdb")
    tier = ("--tier", f"lmdb:{tmp_path}/tier", "--tier-bytes", "2MiB")
    done = run("advise", url, log, *tier, "--key-bytes", "4000", "--pack-bytes", "960", "-o", tmp_path / "plan.npz")
    assert done.exit_code == 0, done.output
    assert "a key takes" in done.stdout
    for _ in range(2):
        done = run("apply", url, tmp_path / "plan.npz", *tier)
        assert done.exit_code == 0, done.output
        assert "is packed as planned" in done.stderr
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run("read", url, NAMES[3], *tier).stdout == f"{np.full((4, 5), 3)}\n"
    assert "no plan" in run("apply", url, log).stderr
    assert "--tier-bytes is a number of bytes" in run("apply", url, tmp_path / "plan.npz", "--tier-bytes", "x").stderr
