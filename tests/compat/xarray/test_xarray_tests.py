"""xarray's own tests of its backends, of which our engine opens what is written: which pass, and why others do not."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

xr = pytest.importorskip("xarray")
pytest.importorskip("netCDF4")
pytest.importorskip("dask")

HERE = Path(__file__).parent
# Tests that must be there and pass, so that this does not become empty unseen.
LEAST = {"TestNetCDF4": 75, "TestZarr": 150}
LISTED_VERSION = "2026.9."
# They write to parts of what is there, which only xarray's engine does; and many times over.
ONLY_WRITE = "not region and not append and not bad_chunks and not chunk_encoding and not compute_false"

pytestmark = pytest.mark.timeout(600)


def listed():
    """Return the tests that are not expected to pass, with the reasons."""
    found, reason = {}, ""
    for line in (HERE / "unsupported.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            reason = line.removeprefix("## ")
        elif line and not line.startswith("#"):
            assert line not in found, f"{line} is listed twice"
            found[line] = reason
    return found


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """How each test ended, run in a process of their own, with pytest as xarray sets it up."""
    folder = tmp_path_factory.mktemp("xarray")
    command = [
        sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", str(HERE), "-p", "opening",
        "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "ignore", "--tb=no", "-k", ONLY_WRITE,
        str(HERE / "reading.py"),
    ]  # fmt: skip
    environment = {
        **os.environ, "PYTHONPATH": str(HERE), "TMPDIR": str(folder),
        "XARRAY_TESTS_OUTCOMES": str(folder / "outcomes.json"),
    }  # fmt: skip
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=500, check=False
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stdout[-2000:] + done.stderr[-2000:]
    return json.loads((folder / "outcomes.json").read_text(encoding="utf-8"))


def test_enough_of_them_pass_and_are_of_our_engine(outcomes):
    counts = Counter((name.partition("::")[0], outcome) for name, outcome in outcomes.items())
    for group, least in LEAST.items():
        assert counts[group, "passed"] >= least, f"{group}: {counts}"


@pytest.mark.skipif(not xr.__version__.startswith(LISTED_VERSION), reason="the list is of another xarray's tests")
def test_those_that_fail_are_listed_with_reasons(outcomes):
    failed = {name for name, outcome in outcomes.items() if outcome == "failed"}
    known = listed()
    assert failed - known.keys() == set(), "these should pass, or be listed with a reason"
    assert known.keys() - failed == set(), "these pass by now, or are gone: take them off the list"
    assert all(known.values()), "a reason stands above each"
