"""A warm call on loopback: 1 MB cut out of a 16 MB plain chunk, against a plain GET of the whole chunk.

Store: SeaweedFS; function: `hyperslab serve-function` in a process of its own. Both reads go through `array.read`: the
call by `method="call"`, the GET by `method="get"`. obstore's own GET of the object stands beside them.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from collections.abc import Iterator
from functools import partial

import numpy as np

import hyperslab as hs
from bench import servers
from bench.figures import Figure, main
from bench.timing import check_equal, race

SIDE, COLUMNS = 2048, 128


def measure(quick: bool) -> Iterator[Figure]:
    servers.use_test_support()
    from support.function import FunctionServer

    cells = np.random.default_rng(2).random((SIDE, SIDE), np.float32)
    key = np.s_[:, 700 : 700 + COLUMNS]
    with servers.bucket() as bucket:
        url = "s3://bench/call.zarr"
        hs.save(url, cells, chunks=(SIDE, SIDE), layout="plain", overwrite=True, storage_options=bucket.options)
        running = FunctionServer("s3://bench", bucket.options)
        try:
            with hs.Session(function=running.function, cache_bytes=0) as session:
                array = hs.open(url, storage_options=bucket.options, session=session)
                client = servers.obstore_client(bucket.endpoint)
                calls = {
                    "call": lambda: array.read(key, method="call"),
                    "get": lambda: array.read(key, method="get"),
                    "obstore": lambda: client.get("call.zarr/c/0/0").bytes(),
                }
                for method in ("call", "get"):
                    check_equal({method: partial(array.read, method=method)}, [key], cells)
                timings = race(calls, rounds=15 if quick else 60, batch_s=0.0)
        finally:
            running.stop()
    for name, timing in timings.items():
        print(f"  {name:8} {timing}")
    plain = min(timings["get"].median_s, timings["obstore"].median_s)
    ratio = timings["call"].median_s / plain
    yield Figure("warm call, 1 MB of a 16 MB chunk, against a GET of it", "1.5×", f"{ratio:.2f}×", ratio <= 1.5)


if __name__ == "__main__":
    main(measure)
