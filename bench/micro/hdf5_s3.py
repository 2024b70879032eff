"""A small box of an HDF5 file at the end of a link of 20 ms, in a new process, against h5py over a file object.

h5py's wheel has no S3 driver; it reads through the file object of `obstore.fsspec`. Times are from opening the file to
the cells, without Python's start and imports; bytes are those that the server sent.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import json
import subprocess
import time
from collections.abc import Callable

import numpy as np

from bench import data
from bench.cloud import BUCKET, Cloud
from bench.figures import Figure, at_least, main

LATENCY_S, BYTES_PER_S = 0.02, 125e6
KEY = (slice(3000, 3021), slice(5000, 5021))

Read = Callable[[str, str], np.ndarray]


def measure(quick: bool) -> list[Figure]:
    figures = []
    files = {"plain": data.image_h5(), "gzip": data.image_h5_gzip(), "100,000 chunks": data.many_chunks_h5()}
    for kind, path in files.items():
        with Cloud(latency_s=LATENCY_S, bytes_per_s=BYTES_PER_S, file=path) as cloud:
            found = {system: [_read(system, cloud) for _ in range(1 if quick else 3)] for system in SYSTEMS}
        best = {system: min(runs) for system, runs in found.items()}
        for system, (seconds, requests, nbytes) in best.items():
            print(f"  {kind}, {system}: {seconds * 1e3:.0f} ms, {requests} requests, {nbytes:,} bytes")
        ours = best["hyperslab"]
        for system in [system for system in SYSTEMS if system != "hyperslab"]:
            theirs = best[system]
            figures.append(at_least(f"box of HDF5 ({kind}) at 20 ms: faster than {system}", theirs[0] / ours[0], 5))
            figures.append(
                at_least(f"box of HDF5 ({kind}) at 20 ms: fewer bytes than {system}", theirs[2] / ours[2], 10)
            )
    return figures


def _read(system: str, cloud: Cloud) -> tuple[float, int, int]:
    before = cloud.counts()
    command = [sys.executable, __file__, "--read", system, cloud.endpoint, cloud.name]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    after = cloud.counts()
    return json.loads(done.stdout), after[0] - before[0], after[1] - before[1]


def hyperslab_reader() -> Read:
    # What `import hyperslab` leaves for later: the other side has all of its imports done, too.
    import obstore  # noqa: F401

    import hyperslab as hs
    import hyperslab.execute.remote
    import hyperslab.formats.hdf5.source
    import hyperslab.store.backends

    def read(endpoint: str, name: str) -> np.ndarray:
        return hs.open(f"s3://{BUCKET}/{name}/a", storage_options={"endpoint": endpoint, "anonymous": True})[KEY]

    return read


def fsspec_reader() -> Read:
    import h5py
    from obstore.fsspec import FsspecStore

    def read(endpoint: str, name: str) -> np.ndarray:
        files = FsspecStore("s3", **_client_settings(endpoint))
        with files.open(f"{BUCKET}/{name}", "rb") as file, h5py.File(file, "r") as opened:
            return opened["a"][KEY]

    return read


def _client_settings(endpoint: str) -> dict[str, object]:
    config = {"endpoint": endpoint, "region": "us-east-1", "skip_signature": True}
    return {"config": config, "client_options": {"allow_http": True}}


SYSTEMS = {
    "hyperslab": hyperslab_reader,
    "h5py over obstore.fsspec": fsspec_reader,
}


def read_once(system: str, endpoint: str, name: str) -> None:
    """Read in this process and print the seconds."""
    read = SYSTEMS[system]()
    started = time.perf_counter()
    cells = read(endpoint, name)
    seconds = time.perf_counter() - started
    assert np.array_equal(cells, data.image()[KEY] if name.startswith("image") else data.many_cells(*KEY))
    print(json.dumps(seconds))


if __name__ == "__main__":
    if "--read" in sys.argv:
        read_once(*sys.argv[2:5])
    else:
        main(measure)
