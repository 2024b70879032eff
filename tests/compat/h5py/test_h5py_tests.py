"""h5py's own tests, out of its wheel, against `hyperslab.h5`: which pass, and for each that does not, why."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import h5py
import pytest

HERE = Path(__file__).parent
TESTS = Path(h5py.__file__).parent / "tests"
# Modules, and the share of their tests that must pass.
BARS = {
    "test_slicing.py": 0.8,
    "test_dataset_getitem.py": 0.8,
    "test_attrs.py": 0.6,
    "test_group.py": 0.5,
    "test_dataset.py": 0.5,
    "test_attrs_data.py": 0.4,
    "test_datatype.py": 1.0,
}
LISTED_VERSION = (3, 16)

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
    """How each of h5py's tests ended, run in a process of their own: the names in their modules are changed."""
    if not TESTS.is_dir():
        pytest.skip("this h5py was installed without its tests")
    folder = tmp_path_factory.mktemp("h5py")
    command = [
        sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", str(TESTS), "-p", "substitution",
        "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=no", *(str(TESTS / name) for name in BARS),
    ]  # fmt: skip
    environment = {
        **os.environ, "PYTHONPATH": str(HERE), "TMPDIR": str(folder),
        "H5PY_TESTS_OUTCOMES": str(folder / "outcomes.json"),
    }  # fmt: skip
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=500, check=False
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stdout[-2000:] + done.stderr[-2000:]
    return json.loads((folder / "outcomes.json").read_text(encoding="utf-8"))


def test_enough_of_them_pass(outcomes):
    counts = Counter((name.partition("::")[0], outcome) for name, outcome in outcomes.items())
    for module, bar in BARS.items():
        passed, failed = counts[module, "passed"], counts[module, "failed"]
        assert passed + failed > 0, f"no test of {module} was run"
        assert passed / (passed + failed) >= bar, f"{module}: {passed} of {passed + failed} passed"


@pytest.mark.skipif(h5py.version.version_tuple[:2] != LISTED_VERSION, reason="the list is of another h5py's tests")
def test_those_that_fail_are_listed_with_reasons(outcomes):
    failed = {name for name, outcome in outcomes.items() if outcome == "failed"}
    known = listed()
    assert failed - known.keys() == set(), "these should pass, or be listed with a reason"
    assert known.keys() - failed == set(), "these pass by now, or are gone: take them off the list"
    assert all(known.values()), "a reason stands above each"
