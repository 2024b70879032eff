"""The examples run to their end, and their models learn."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
EXAMPLES = Path(__file__).parents[3] / "examples"
pytestmark = pytest.mark.timeout(600)


def told_by(name):
    command = [sys.executable, str(EXAMPLES / name)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_crops():
    pytest.importorskip("matplotlib")
    told = told_by("crops.py")
    assert told.count("loss") == 3
    assert int(re.search(r"(\d+)% told apart", told)[1]) >= 80


def test_rows():
    told = told_by("rows.py")
    stopped, batches = map(int, re.search(r"stopped after (\d+) of (\d+) batches", told).groups())
    assert int(re.search(r"resumed for the other (\d+) batches", told)[1]) == batches - stopped
    first, last = map(float, re.search(r"loss at first ([\d.]+), at the end ([\d.]+)", told).groups())
    assert last < first - 1
