"""Every measurement in bench/ is run by `make bench` and described in its README."""

import re
from pathlib import Path

BENCH = Path(__file__).parents[2] / "bench"


def test_every_measurement_is_run_and_described() -> None:
    files = {path.stem for path in (BENCH / "micro").glob("*.py")} - {"__init__"}
    names = re.search(r"^NAMES = \((.*?)^\)", (BENCH / "run.py").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    rows = re.findall(r"^\| `(\w+)\.py` \|", (BENCH / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert names is not None
    assert set(re.findall(r'"(\w+)"', names[1])) == files
    assert sorted(rows) == sorted(files)
