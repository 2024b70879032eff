"""Writers killed (−9) at random moments: is every object still whole, old or new, and none a mixture?

Forty processes overwrite one chunk again and again, forty append, on local files and on SeaweedFS; each is killed while
it is at it. After each kill all objects are read: a chunk that was overwritten must hold one value everywhere, and an
array that was appended to only whole appended blocks.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import multiprocessing
import os
import signal
import tempfile
import time
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from bench import servers
from bench.figures import Figure, main

KILLS = 40
CHUNKS, ROWS = (64, 64), 16


def measure(quick: bool) -> list[Figure]:
    kills = 5 if quick else KILLS
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["bench.micro.kills", "hyperslab", "zarr"])
    with tempfile.TemporaryDirectory() as folder, servers.bucket() as bucket:
        places = (
            ("local files", folder, None),
            ("SeaweedFS", f"s3://{servers.BUCKET}/kills-{os.getpid()}", bucket.options),
        )
        return [
            _figure(f"{what} on {name}", work, f"{where}/{what}.zarr", options, kills, context)
            for name, where, options in places
            for what, work in (("overwriting", overwrite), ("appending", append))
        ]


def _figure(what: str, work: Any, url: str, options: Any, kills: int, context: Any) -> Figure:
    import hyperslab as hs

    first = np.zeros((128, 128) if work is overwrite else (ROWS, 128), np.int32)
    hs.save(url, first, chunks=CHUNKS, storage_options=options)
    rng, bad, writes = np.random.default_rng(1), 0, 0
    for number in range(1, kills + 1):
        heard, told = context.Pipe(duplex=False)
        child = context.Process(target=work, args=(url, options, number, told), daemon=True)
        child.start()
        heard.recv()
        time.sleep(float(rng.uniform(0.0, 0.08)))
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        while heard.poll():
            try:
                writes += heard.recv()
            except EOFError:
                break
        bad += not _is_whole(url, options, appended=work is append)
    print(f"  {what}: {kills} kills, {writes} writes had ended before")
    return Figure(f"unreadable or mixed after {kills} kills, {what}", "0", str(bad), bad == 0)


def overwrite(url: str, options: Any, number: int, told: Connection) -> None:
    """Overwrite one chunk until killed, each time with another value."""
    import hyperslab as hs

    array = hs.open(url, mode="r+", storage_options=options)
    told.send(0)
    for turn in range(1_000_000):
        array[64:, :64] = number * 1_000_000 + turn
        told.send(1)


def append(url: str, options: Any, number: int, told: Connection) -> None:
    """Append rows until killed, each time of another value."""
    import hyperslab as hs

    array = hs.open(url, mode="r+", storage_options=options)
    told.send(0)
    for turn in range(1_000_000):
        array.append(np.full((ROWS, 128), number * 1_000_000 + turn, np.int32))
        told.send(1)


def _is_whole(url: str, options: Any, *, appended: bool) -> bool:
    """Read all; say whether every part is of one write."""
    import hyperslab as hs

    with hs.Session(cache_bytes=0) as session:
        try:
            cells = hs.open(url, storage_options=options, session=session)[...]
        except hs.errors.HyperslabError as error:
            print(f"  not read: {error}")
            return False
    if appended:
        parts = np.split(cells, len(cells) // ROWS) if len(cells) % ROWS == 0 else []
        return bool(parts) and all((part == part[0, 0]).all() for part in parts)
    rest = cells.copy()
    rest[64:, :64] = 0
    return bool((cells[64:, :64] == cells[64, 0]).all() and not rest.any())


if __name__ == "__main__":
    main(measure)
