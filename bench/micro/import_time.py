"""How long `import hyperslab` takes once NumPy is there; each time in a fresh process."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import os
import statistics
import subprocess

from bench.figures import Figure, main
from bench.timing import seconds_text

PROGRAM = """
import time, numpy
started = time.perf_counter()
import {name}
print(time.perf_counter() - started)
"""
BAR_S = 0.3


def measure(quick: bool) -> list[Figure]:
    rounds = 4 if quick else 10
    seconds = {name: [] for name in ("hyperslab", "zarr", "tensorstore")}
    for _ in range(rounds):
        for name, all_s in seconds.items():
            all_s.append(_import_s(name))
    for name, all_s in seconds.items():
        print(f"  import {name}: {seconds_text(min(all_s))} (median {seconds_text(statistics.median(all_s))})")
    ours = min(seconds["hyperslab"])
    bar = f"≤ {seconds_text(BAR_S)}"
    return [Figure("import of hyperslab over NumPy's", bar, seconds_text(ours), ours <= BAR_S)]


def _import_s(name: str) -> float:
    command = [sys.executable, "-c", PROGRAM.format(name=name)]
    # As for a user: compiled modules are kept.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    return float(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout)


if __name__ == "__main__":
    main(measure)
