"""What recording adds to a read of a small box of a local plain array, writing the log included."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import contextlib
import tempfile
import time
from collections.abc import Callable

import numpy as np

import hyperslab as hs
from bench import data
from bench.figures import Figure, at_most, main
from bench.timing import no_collection, seconds_text
from hyperslab.execute import recording

SIDE = 21
# The first is written at once, then every 1,024: as many as leave nothing to be written when the clock has stopped.
READS = 1 + 1024
BAR_US = 3.0


def keys(count: int) -> list[tuple[slice, slice]]:
    corners = np.random.default_rng(3).integers(0, data.IMAGE_SHAPE[0] - SIDE, (count, 2)).tolist()
    return [(slice(y, y + SIDE), slice(x, x + SIDE)) for y, x in corners]


def one_read_s(read: Callable[[object], object], boxes: list[tuple[slice, slice]]) -> tuple[float, float]:
    """Return the seconds that a read takes: by the clock, and of the processor."""
    with no_collection():
        started, worked = time.perf_counter(), time.thread_time()
        for box in boxes:
            read(box)
        took, work = time.perf_counter() - started, time.thread_time() - worked
    return took / len(boxes), work / len(boxes)


def measure(quick: bool) -> list[Figure]:
    array, boxes, rounds = hs.open(data.image_zarr()), keys(READS), 20 if quick else 100
    without, recorded = [], []
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "w.hslog"
        one_read_s(array.__getitem__, boxes)
        for number in range(rounds):
            for records in (False, True) if number % 2 else (True, False):
                with hs.record(log) if records else contextlib.nullcontext():
                    (recorded if records else without).append(one_read_s(array.__getitem__, boxes))
                    if recording.active is not None and recording.active.rows:
                        raise AssertionError("some reads would be written outside of the time that is measured")
        found, nbytes = len(hs.Workload.load(log)), log.stat().st_size
    if found != rounds * READS:
        raise AssertionError(f"{found} of {rounds * READS} reads were recorded")
    (took, work), (took_more, work_more) = np.min(without, axis=0), np.min(recorded, axis=0)
    print(
        f"  a read: {seconds_text(took)}; recorded: {seconds_text(took_more)}; {nbytes / found:.1f} B of log for each"
    )
    print(f"  added, of the processor alone: {seconds_text(max(0.0, work_more - work))}")
    return [at_most("recording: added to a read", (took_more - took) * 1e6, BAR_US, " µs")]


if __name__ == "__main__":
    main(measure)
