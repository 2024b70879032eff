"""The demo runs to its end in a narrow terminal, and all that it compares is equal."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(600)
def test_demo(tmp_path: Path) -> None:
    environment = {**os.environ, "COLUMNS": "80", "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, str(ROOT / "examples" / "demo.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    told = done.stdout
    assert not [line for line in told.splitlines() if "NO" in line.split() or "nothing was noticed" in line]
    assert told.count("IntegrityError:") == 2
    assert told.count("BudgetError:") == 1
    assert not list(tmp_path.iterdir())
