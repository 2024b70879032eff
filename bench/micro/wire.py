"""The requests and bytes that a 21×21 box costs over the wire, by the log of the server's side.

A proxy in front of SeaweedFS hands every request on unchanged and notes what was asked and how many bytes of
body went back.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

import hyperslab as hs
from bench import data, libraries, servers
from bench.figures import Figure, main

SIDE = 21
BOXES = {
    "in one chunk": (slice(3000, 3021), slice(5000, 5021)),
    "over four chunks": (slice(2040, 2061), slice(4090, 4111)),
}
NEEDED_BYTES = SIDE * SIDE * 4


def measure(quick: bool) -> list[Figure]:
    servers.use_test_support()
    from support.s3proxy import S3Proxy

    figures = []
    with servers.bucket() as bucket, S3Proxy(bucket.host) as proxy:
        url = bucket.upload(data.image_zarr(), "image.zarr")
        with hs.Session(cache_bytes=0) as session:
            array = hs.open(url, storage_options=servers.options_at(proxy.endpoint), session=session)
            for where, key in BOXES.items():
                figures.append(_fetched(array, key, where, proxy))
                figures.append(_planned(array, key, where, proxy))
        peers = {"zarr-python": libraries.zarr_s3_reader, "TensorStore": libraries.tensorstore_s3_reader}
        for name, reader in peers.items():
            figures.append(_peer(name, reader(proxy.endpoint, "image.zarr"), proxy))
    return figures


def _fetched(array: hs.Array, key: tuple[slice, ...], where: str, proxy) -> Figure:
    """With `fetch`, exactly the needed bytes come, each run of them by one request."""
    proxy.clear()
    assert np.array_equal(array.read(key, method="fetch"), data.image()[key])
    requests, nbytes = len(proxy.log), sum(entry.body_bytes for entry in proxy.log)
    runs = _runs(key)
    return Figure(
        f"wire: box {where}, fetch", f"{runs} requests, {NEEDED_BYTES} B", f"{requests} requests, {nbytes} B",
        (requests, nbytes) == (runs, NEEDED_BYTES) and all(entry.status == 206 for entry in proxy.log),
    )  # fmt: skip


def _planned(array: hs.Array, key: tuple[slice, ...], where: str, proxy) -> Figure:
    """By the optimiser, the very ranges go over the wire that `explain` named, and `explain` sends nothing."""
    proxy.clear()
    plan = array.explain[key].plan
    silent = not proxy.log
    ranges = plan.requests
    said = sorted(
        (plan.keys[number], f"bytes={start}-{stop - 1}", stop - start)
        for number, start, stop in zip(
            ranges.objects.tolist(), ranges.starts.tolist(), ranges.stops.tolist(), strict=True
        )
    )
    assert np.array_equal(array[key], data.image()[key])
    sent = sorted((entry.key, entry.range, entry.body_bytes) for entry in proxy.log)
    asked = plan.estimate
    same = sent == said and (len(said), sum(n for *_, n in said)) == (asked.all_requests, asked.all_bytes)
    return Figure(
        f"wire: box {where}, optimiser",
        f"as explained: {asked.all_requests} requests, {asked.all_bytes} B",
        f"{len(sent)} requests, {sum(n for *_, n in sent)} B",
        silent and same,
    )


def _runs(key: tuple[slice, slice]) -> int:
    rows, columns = key
    chunk = data.IMAGE_CHUNKS[1]
    return (rows.stop - rows.start) * ((columns.stop - 1) // chunk - columns.start // chunk + 1)


def _peer(name: str, read, proxy) -> Figure:
    key = BOXES["in one chunk"]
    proxy.clear()
    assert np.array_equal(read(key), data.image()[key])
    requests, nbytes = len(proxy.log), sum(entry.body_bytes for entry in proxy.log)
    return Figure(f"wire: box in one chunk, {name}", "", f"{requests} requests, {nbytes} B")


if __name__ == "__main__":
    main(measure)
