"""Small boxes a second from SeaweedFS, one after another and together, against other libraries. No bar."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

import hyperslab as hs
from bench import data, libraries, servers
from bench.figures import Figure, main
from bench.micro.local_box import boxes
from bench.timing import check_equal, each_key, race


def measure(quick: bool) -> list[Figure]:
    keys = boxes(20)
    with servers.bucket() as bucket, hs.Session(cache_bytes=0) as session:
        url = bucket.upload(data.image_zarr(), "image.zarr")
        array = hs.open(url, storage_options=bucket.options, session=session)
        readers = {
            "hyperslab": array.__getitem__,
            "zarr-python over obstore": libraries.zarr_s3_reader(bucket.endpoint, "image.zarr"),
            "TensorStore": libraries.tensorstore_s3_reader(bucket.endpoint, "image.zarr"),
        }
        check_equal(readers, keys[:5], data.image())
        for key, cells in zip(keys, array.read_boxes(keys), strict=True):
            assert np.array_equal(cells, data.image()[key])
        calls = {name: each_key(read, keys) for name, read in readers.items()}
        timings = race(calls, rounds=4 if quick else 12, batch_s=0.05)
        together = race({"together": lambda: array.read_boxes(keys)}, rounds=4 if quick else 8, batch_s=0)["together"]
    print(*(f"  box from S3, {name}: {timing}" for name, timing in timings.items()), sep="\n")
    ours = timings["hyperslab"].best_s
    figures = [
        Figure(f"21×21 box from S3 on this machine: faster than {name}", "", f"{timing.best_s / ours:.3g}×")
        for name, timing in timings.items()
        if name != "hyperslab"
    ]
    figures.append(Figure("21×21 boxes from S3, one by one", "", f"{1 / ours:.0f} a second"))
    figures.append(Figure("21×21 boxes from S3, 20 in one plan", "", f"{len(keys) / together.best_s:.0f} a second"))
    return figures


if __name__ == "__main__":
    main(measure)
