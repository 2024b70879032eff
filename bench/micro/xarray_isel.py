"""A small box by `isel` of a NetCDF-4 file behind a link of 20 ms, in a new process, against h5netcdf over fsspec.

Both go through xarray: the file is opened, with its coordinates and times, and one box of one variable is read. Times
are from opening to the cells, without Python's start and imports; bytes are those that the server sent.
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
SHAPE, CHUNKS = (365, 360, 720), (8, 60, 120)
BOX = {"time": slice(100, 104), "lat": slice(200, 220), "lon": slice(300, 320)}

Read = Callable[[str, str], np.ndarray]


def weather() -> Path:
    """Return a year of two fields, 180 MB each before they are compressed, with their coordinates."""
    path = data.folder() / "weather.nc"
    if not path.exists():
        part = path.with_suffix(".part")
        _write(part)
        part.rename(path)
    return path


def _write(path: Path) -> None:
    import h5py

    with h5py.File(path, "w") as file:
        for name, n in zip(BOX, SHAPE, strict=True):
            file[name] = np.arange(n, dtype="i8") if name == "time" else np.linspace(-90, 90, n)
            file[name].make_scale(name)
        file["time"].attrs["units"] = "days since 2001-01-01"
        for number, name in enumerate(("temperature", "wind")):
            field = file.create_dataset(name, SHAPE, "i2", chunks=CHUNKS, compression="gzip", compression_opts=1)
            for start in range(0, SHAPE[0], CHUNKS[0]):
                field[start : start + CHUNKS[0]] = cells(number, start, min(CHUNKS[0], SHAPE[0] - start))
            field.attrs["scale_factor"] = 0.01
            for axis, scale in enumerate(BOX):
                field.dims[axis].attach_scale(file[scale])


def cells(number: int, start: int, count: int) -> np.ndarray:
    """Return some days of a field: waves with noise."""
    rng = np.random.default_rng([number, start])
    day, row, column = np.ogrid[start : start + count, : SHAPE[1], : SHAPE[2]]
    waves = 2000 * np.sin(row / 40 + day / 30) + 1000 * np.cos(column / 60 + number)
    return (waves + rng.normal(0, 60, (count, *SHAPE[1:]))).astype("i2")


def measure(quick: bool) -> list[Figure]:
    with Cloud(latency_s=LATENCY_S, bytes_per_s=BYTES_PER_S, file=weather()) as cloud:
        found = {system: [_read(system, cloud) for _ in range(1 if quick else 3)] for system in SYSTEMS}
    best = {system: min(runs) for system, runs in found.items()}
    for system, (seconds, requests, nbytes) in best.items():
        print(f"  {system}: {seconds * 1e3:.0f} ms, {requests} requests, {nbytes:,} bytes")
    ours, theirs = best["hyperslab"], best["h5netcdf over fsspec"]
    return [
        at_least("isel of NetCDF-4 at 20 ms by xarray: faster than h5netcdf over fsspec", theirs[0] / ours[0], 5),
        at_least("isel of NetCDF-4 at 20 ms by xarray: fewer bytes than h5netcdf", theirs[2] / ours[2], 10),
    ]


def _read(system: str, cloud: Cloud) -> tuple[float, int, int]:
    before = cloud.counts()
    command = [sys.executable, __file__, "--read", system, cloud.endpoint, cloud.name]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    after = cloud.counts()
    return json.loads(done.stdout), after[0] - before[0], after[1] - before[1]


def hyperslab_reader() -> Read:
    # What is otherwise imported when it is first needed: the other side has all of its imports done, too.
    import obstore  # noqa: F401
    import xarray as xr

    import hyperslab.execute.remote
    import hyperslab.formats.hdf5.source
    import hyperslab.store.backends
    import hyperslab.xarray  # noqa: F401

    _let_xarray_import()

    def read(endpoint: str, name: str) -> np.ndarray:
        options = {"endpoint": endpoint, "anonymous": True}
        opened = xr.open_dataset(f"s3://{BUCKET}/{name}", engine="hyperslab", storage_options=options)
        return opened["temperature"].isel(BOX).values

    return read


def h5netcdf_reader() -> Read:
    import h5netcdf  # noqa: F401
    import xarray as xr
    from obstore.fsspec import FsspecStore

    _let_xarray_import()

    def read(endpoint: str, name: str) -> np.ndarray:
        config = {"endpoint": endpoint, "region": "us-east-1", "skip_signature": True}
        files = FsspecStore("s3", config=config, client_options={"allow_http": True})
        with files.open(f"{BUCKET}/{name}", "rb") as file:
            return xr.open_dataset(file, engine="h5netcdf")["temperature"].isel(BOX).values

    return read


def _let_xarray_import() -> None:
    """Have xarray find its engines, and import what it looks for when it decodes times: numba, Dask, where they are."""
    import xarray as xr

    xr.backends.list_engines()
    times = xr.Variable("time", np.arange(2), {"units": "days since 2001-01-01"})
    xr.decode_cf(xr.Dataset({"time": times})).load()


SYSTEMS = {"hyperslab": hyperslab_reader, "h5netcdf over fsspec": h5netcdf_reader}


def read_once(system: str, endpoint: str, name: str) -> None:
    """Read in this process and print the seconds."""
    read = SYSTEMS[system]()
    started = time.perf_counter()
    found = read(endpoint, name)
    seconds = time.perf_counter() - started
    first = BOX["time"].start // CHUNKS[0] * CHUNKS[0]
    days = cells(0, first, CHUNKS[0])[BOX["time"].start - first : BOX["time"].stop - first]
    assert np.allclose(found, days[:, BOX["lat"], BOX["lon"]] * 0.01)
    print(json.dumps(seconds))


if __name__ == "__main__":
    if "--read" in sys.argv:
        read_once(*sys.argv[2:5])
    else:
        main(measure)
