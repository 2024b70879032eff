"""Opening an HDF5 file of 100,000 chunks and reading its index: local, and at the end of a link of 50 ms.

Every opening has a process of its own; what counts is the time from `hs.open` to the first cells of a small box,
without Python's start and imports. The second time, from afar, the index is on the local disk.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import json
import subprocess
import tempfile

from bench import data
from bench.cloud import Cloud
from bench.figures import Figure, at_most, main

LATENCY_S, BYTES_PER_S = 0.05, 125e6
KEY = (slice(5000, 5021), slice(3000, 3021))


def measure(quick: bool) -> list[Figure]:
    path, rounds = data.many_chunks_h5(), 1 if quick else 3
    figures = []
    local = min(_open(str(path), {}, None)["seconds"] for _ in range(rounds))
    figures.append(at_most("HDF5 of 100,000 chunks: open, index and a box, local", local, 2, " s"))
    with Cloud(latency_s=LATENCY_S, bytes_per_s=BYTES_PER_S, file=path) as cloud:
        found = []
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as folder:
                found.append([_open(cloud.url, cloud.options, folder) for _ in range(2)])
    for number, (what, bar) in enumerate((("first time", 5), ("next time", 0.3))):
        best = min((pair[number] for pair in found), key=lambda each: each["seconds"])
        note = f" ({best['requests']} requests, {best['bytes'] / 1e6:.2f} MB)"
        figures.append(at_most(f"the same at 50 ms, {what}", best["seconds"], bar, " s", note))
    return figures


def _open(url: str, options: dict[str, object], disk_cache: str | None) -> dict[str, float]:
    command = [sys.executable, __file__, "--open", url, json.dumps(options), json.dumps(disk_cache)]
    found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    print(f"  {url.partition(':')[0]}: {found}")
    return found


def open_once(url: str, options: dict[str, object], disk_cache: str | None) -> None:
    """Open the file in this process, read a box, and print what that took."""
    import time

    import numpy as np

    # What `import hyperslab` leaves for later, with the rest.
    import obstore  # noqa: F401

    import hyperslab as hs
    import hyperslab.execute.remote
    import hyperslab.formats.hdf5.source
    import hyperslab.store.backends

    with hs.Session(disk_cache=disk_cache) as session:
        started = time.perf_counter()
        array = hs.open(url, storage_options=options or None, session=session)["a"]
        # A plan that needs all of the index: for a single box, only what leads there would be read.
        array.explain[::32, :40]
        box = array[KEY]
        seconds = time.perf_counter() - started
        sent = session.metrics.snapshot()
    assert np.array_equal(box, data.many_cells(*KEY))
    print(json.dumps({"seconds": seconds, "requests": sent.requests + sent.lookups, "bytes": sent.bytes}))


if __name__ == "__main__":
    if "--open" in sys.argv:
        open_once(sys.argv[2], json.loads(sys.argv[3]), json.loads(sys.argv[4]))
    else:
        main(measure)
