"""Changes of layout in place, killed (−9) at random moments: is the array whole at once, and does the next call end it?

Fifty processes change the layout of an array on local files, and as many while another process writes cells without a
pause. Each is killed while it is at it. After each kill all is read, the change is called again and ends, and the old
objects are swept away. Every write that was acknowledged must be there.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import multiprocessing
import tempfile
import time
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from bench.figures import Figure, main

KILLS = 50
SHAPE = (512, 512)
# One layout in turn with the other; some of these changes read each chunk once, some go by way of the disk.
LAYOUTS = (
    {"chunks": (512, 16), "shards": (512, 32)},
    {"chunks": (16, 512), "shards": (32, 512)},
    {"chunks": (64, 64), "shards": (128, 128)},
    {"chunks": (128, 128), "layout": "plain"},
)


def measure(quick: bool) -> list[Figure]:
    kills = 5 if quick else KILLS
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["bench.micro.rechunk_kills", "hyperslab", "zarr"])
    with tempfile.TemporaryDirectory() as folder:
        return [
            figure
            for name, busy in (("quiet", False), ("written to meanwhile", True))
            for figure in _figures(name, f"{folder}/{busy}.zarr", kills, context, busy=busy)
        ]


def _figures(name: str, url: str, kills: int, context: Any, *, busy: bool) -> list[Figure]:
    import hyperslab as hs

    values = np.arange(np.prod(SHAPE), dtype=np.int32).reshape(SHAPE)
    hs.save(url, values, chunks=(64, 64), shards=(128, 128))
    rng, whole, ended, cut = np.random.default_rng(1), 0, 0, 0
    longest_s = _longest_s(url)
    writer = _Writer(url, context) if busy else None
    for number in range(kills):
        layout = LAYOUTS[number % len(LAYOUTS)]
        heard, told = context.Pipe(duplex=False)
        child = context.Process(target=change, args=(url, layout, told), daemon=True)
        child.start()
        heard.recv()
        time.sleep(float(rng.uniform(0.0, longest_s)))
        child.kill()
        child.join()
        cut += "_hyperslab_change" in Path(url, "zarr.json").read_text()
        whole += _is_right(url, values, writer)
        hs.rechunk(url, **layout)
        hs.sweep(url)
        ended += hs.open(url).chunks == layout["chunks"] and _is_right(url, values, writer)
    lost = 0 if writer is None else writer.lost()
    print(f"  {name}: {kills} kills, {cut} in the middle of a change" + ("" if writer is None else f", {writer}"))
    figures = [
        Figure(f"arrays whole and right after {kills} kills, {name}", str(kills), str(whole), whole == kills),
        Figure(f"changes then ended by the next call, {name}", str(kills), str(ended), ended == kills),
    ]
    if writer is not None:
        figures.append(Figure("acknowledged writes that were lost", "0", str(lost), lost == 0))
    return figures


def _longest_s(url: str) -> float:
    """Return how long a change takes, and a little more."""
    import hyperslab as hs

    started = time.perf_counter()
    hs.rechunk(url, **LAYOUTS[-1])
    took_s = time.perf_counter() - started
    hs.sweep(url)
    return 1.5 * took_s


def change(url: str, layout: dict[str, Any], told: Connection) -> None:
    """Change the layout."""
    import hyperslab as hs

    told.send(0)
    hs.rechunk(url, **layout)


def write(url: str, told: Connection) -> None:
    """Write into rows in turn until killed, each time another number, and tell of it once it is stored."""
    import hyperslab as hs

    array = hs.open(url, mode="r+")
    for number in range(1, 1_000_000):
        array[number % 16, :64] = -number
        told.send(number)


class _Writer:
    """A process that writes while layouts are changed."""

    def __init__(self, url: str, context: Any) -> None:
        self.url, self.last = url, 0
        self._heard, told = context.Pipe(duplex=False)
        self._child = context.Process(target=write, args=(url, told), daemon=True)
        self._child.start()
        told.close()
        self.last = self._heard.recv()

    def acknowledged(self) -> int:
        while self._heard.poll():
            try:
                self.last = self._heard.recv()
            except EOFError:
                break
        return self.last

    def lost(self) -> int:
        """End the writer; return how many rows do not hold what was written to them last."""
        import hyperslab as hs

        self._child.kill()
        self._child.join()
        last = self.acknowledged()
        cells = hs.open(self.url)[:16, :64]
        rows = {number % 16: number for number in range(max(1, last - 15), last + 1)}
        # The next one may be there, too: the writer was killed before it could tell.
        allowed = {row: {-number, -(last + 1)} if row == (last + 1) % 16 else {-number} for row, number in rows.items()}
        return sum(not set(np.unique(cells[row]).tolist()) <= allowed[row] for row in rows)

    def __str__(self) -> str:
        return f"{self.last} writes acknowledged"


def _is_right(url: str, values: Any, writer: _Writer | None) -> bool:
    """Read all; where a process writes, a row holds what was acknowledged before, or something later."""
    import hyperslab as hs

    last = 0 if writer is None else writer.acknowledged()
    with hs.Session(cache_bytes=0) as session:
        try:
            cells = hs.open(url, session=session)[...]
        except hs.errors.HyperslabError as error:
            print(f"  not read: {error}")
            return False
    if writer is None:
        return bool((cells == values).all())
    rest = cells.copy()
    rest[:16, :64] = values[:16, :64]
    newest = [-int(cells[number % 16, :64].max()) for number in range(max(1, last - 15), last + 1)]
    wanted = range(max(1, last - 15), last + 1)
    return bool((rest == values).all()) and all(found >= number for found, number in zip(newest, wanted, strict=True))


if __name__ == "__main__":
    main(measure)
