"""The memory that reading 1 GiB takes beside the result: from plain and compressed files, and from S3.

Each read has a process of its own. What counts is the peak of its resident memory (also of mapped file pages) during
the read, less what it had when the array was open, less the result.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import json
import subprocess

from bench import data, servers
from bench.figures import Figure, main

CHUNK_BYTES = 2048 * 2048 * 4
LIMIT_BYTES = max(256 << 20, 2 * CHUNK_BYTES)
MIB = 1 << 20


def measure(quick: bool) -> list[Figure]:
    figures = [
        _figure("local plain", str(data.gib(compressed=False)), {}),
        _figure("local zstd", str(data.gib(compressed=True)), {}),
    ]
    with servers.bucket() as bucket:
        url = bucket.upload(data.gib(compressed=False), "gib.zarr")
        figures.append(_figure("S3 plain", url, bucket.options))
        url = bucket.upload(data.gib(compressed=True), "gib-zstd.zarr")
        figures.append(_figure("S3 zstd", url, bucket.options))
    return figures


def _figure(what: str, url: str, options: dict[str, str]) -> Figure:
    command = [sys.executable, __file__, "--read", url, json.dumps(options)]
    found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    extra = found["peak"] - found["before"] - found["result"]
    print(
        f"  {what}: {found['seconds']:.2f} s, before {found['before'] / MIB:.0f} MiB, "
        f"result {found['result'] / MIB:.0f} MiB, peak {found['peak'] / MIB:.0f} MiB"
    )
    return Figure(
        f"memory beside a result of 1 GiB, {what}", f"≤ {LIMIT_BYTES / MIB:.0f} MiB", f"{extra / MIB:.0f} MiB",
        extra <= LIMIT_BYTES,
    )  # fmt: skip


def read_once(url: str, options: dict[str, str]) -> None:
    """Read all of an array in this process and print what that took."""
    import time

    import numpy as np

    import hyperslab as hs

    array = hs.open(url, storage_options=options or None)
    array[0, :1]
    forget_peak()
    before = resident("VmRSS")
    started = time.perf_counter()
    cells = array[...]
    seconds = time.perf_counter() - started
    peak = resident("VmHWM")
    assert np.array_equal(cells[2047], data.gib_part(0, 2048)[-1])
    assert np.array_equal(cells[-1], data.gib_part(data.GIB_SHAPE[0] - 2048, 2048)[-1])
    print(json.dumps({"seconds": seconds, "before": before, "result": cells.nbytes, "peak": peak}))


def forget_peak() -> None:
    """Start the count of the peak anew; `ru_maxrss` could not, and starts with the parent's."""
    Path("/proc/self/clear_refs").write_text("5")


def resident(field: str) -> int:
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith(field))


if __name__ == "__main__":
    if "--read" in sys.argv:
        read_once(sys.argv[2], json.loads(sys.argv[3]))
    else:
        main(measure)
