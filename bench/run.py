"""Runs every measurement, each in a process of its own, and prints one table.

python bench/run.py                   all (arrays are made at the first run)
python bench/run.py --quick           fewer rounds: is everything still in its place?
python bench/run.py --only wire       one of them, or several: --only wire --only memory
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import servers
from bench.figures import Figure, parse_marked, print_table

# In the order of the table; the last two have no bar.
NAMES = (
    "local_box", "full_rows", "planning", "three_ways", "shapes", "advice", "placement", "stencil", "wire",
    "scattered", "hdf5_local", "hdf5_index", "hdf5_s3", "h5_overhead", "xarray_isel", "write", "recording", "damage",
    "kills", "rechunk_kills", "memory", "call", "import_time", "full_read", "s3_boxes",
)  # fmt: skip
NEED_S3 = {"call", "kills", "wire", "memory", "s3_boxes"}
LIMIT_S = 600


def main() -> int:
    """Print the table; return 1 if a bar was missed or a measurement failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=NAMES, help="run this measurement only; may be repeated")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    options = parser.parse_args()
    chosen = [name for name in NAMES if name in (options.only or NAMES)]
    started = time.monotonic()
    if NEED_S3.isdisjoint(chosen):
        figures = [figure for name in chosen for figure in _run(name, options.quick, {})]
    else:
        with servers.bucket() as bucket:
            environment = {servers.ENDPOINT: bucket.endpoint}
            figures = [figure for name in chosen for figure in _run(name, options.quick, environment)]
    print()
    print_table(figures)
    held = [figure.passed for figure in figures if figure.passed is not None]
    print(f"\n{sum(held)} of {len(held)} bars held, {time.monotonic() - started:.0f} s")
    return 0 if all(held) else 1


def _run(name: str, quick: bool, environment: dict[str, str]) -> list[Figure]:
    """Run one measurement; show what it prints; return its figures."""
    print(f"» {name}", flush=True)
    command = [sys.executable, "-u", str(Path(__file__).parent / "micro" / f"{name}.py"), "--mark"]
    command += ["--quick"] if quick else []
    try:
        done = subprocess.run(
            command, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return [Figure(name, "", f"not done after {LIMIT_S} s", False)]
    figures = parse_marked(done.stdout)
    print(*(line for line in done.stdout.splitlines() if not line.startswith("figures: ")), sep="\n", flush=True)
    return figures if done.returncode == 0 else [Figure(name, "", f"failed (exit {done.returncode})", False)]


if __name__ == "__main__":
    sys.exit(main())
