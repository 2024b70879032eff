"""25 scattered reads in one object over a link of 20 ms and 1 Gbit/s, against fixed gaps of 0, 4 KiB and 1 MiB.

A fixed gap is what other clients do: neighbours share a request if at most so many unwanted bytes lie between them.
Here it stands in the place of our optimiser, so that all else (executor, connections, limits) is the same. obstore's
own `get_ranges` with the same gaps is run beside it, for information.
"""

import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from collections.abc import Callable
from unittest.mock import patch

import numpy as np

import hyperslab as hs
from bench.cloud import BUCKET, CELLS, Cloud
from bench.figures import Figure, main
from bench.timing import Timing, race, seconds_text
from hyperslab.plan import CostModel, Needs, Ranges

READS, READ_CELLS = 25, 1000
LATENCY_S, BYTES_PER_S = 0.020, 125e6
GAPS = {"0": 0, "4 KiB": 4 << 10, "1 MiB": 1 << 20}
MB = 250_000  # cells

# Requests and bytes.
Sent = tuple[int, int]


def spreads() -> dict[str, list[int]]:
    """Return the first cells of the reads: for each of the fixed gaps there is a spread that it does well in."""
    rng = np.random.default_rng(3)
    near = READ_CELLS + rng.integers(300, 900, READS).cumsum() + np.arange(READS) * READ_CELLS
    clusters = (near.reshape(5, 5) + np.arange(5)[:, None] * 30 * MB).ravel()
    chains = np.arange(READS) * (READ_CELLS + 5_000) + (np.arange(READS) // 9) * 80 * MB
    steps = np.arange(READS) * (READ_CELLS + 200_000)
    half = np.concatenate([near[:12], 40 * MB + steps[:13]])
    return {
        "over 1 MB": _scatter(rng, MB),
        "over 10 MB": _scatter(rng, 10 * MB),
        "over 100 MB": _scatter(rng, 100 * MB),
        "over 1 GB": _scatter(rng, CELLS - READ_CELLS),
        "5 tight clusters": clusters.tolist(),
        "3 chains, 20 KB apart": chains.tolist(),
        "chain, 800 KB apart": steps.tolist(),
        "half tight, half 800 KB apart": half.tolist(),
    }


def _scatter(rng: np.random.Generator, cells: int) -> list[int]:
    """Return that many starts in no order, none closer to another than the length of a read."""
    slots = rng.choice(cells // READ_CELLS // 2, READS, replace=False)
    return (slots * 2 * READ_CELLS + rng.integers(0, READ_CELLS, READS)).tolist()


def fixed_gap(gap_bytes: int) -> Callable[..., Ranges]:
    """Return a planner that closes every gap of at most `gap_bytes` and no other."""

    def group(needs: Needs, model: CostModel, **_: int) -> Ranges:
        ranges = needs.merged()
        first = np.ones(len(ranges), np.bool_)
        first[1:] = (ranges.starts[1:] - ranges.stops[:-1] > gap_bytes) | (np.diff(ranges.objects) != 0)
        heads = np.flatnonzero(first)
        tails = np.append(heads[1:], len(ranges)) - 1
        return Ranges(ranges.objects[heads], ranges.starts[heads], ranges.stops[tails])

    return group


def measured_profile(cloud: Cloud, concurrency: int) -> hs.Profile:
    """Return the link's profile, measured by reads through Hyperslab itself."""
    flat = hs.Profile("cloud", LATENCY_S, (1,), (BYTES_PER_S,), concurrency)
    with hs.Session(profile=flat, cache_bytes=0, memory_bytes=1 << 30) as session:
        array = hs.open(cloud.url, storage_options=cloud.options, session=session)
        few = [slice(i * MB, i * MB + 1) for i in range(concurrency)]
        timings = race(
            {
                "one": lambda: array.read(slice(0, 1), method="fetch"),
                "few": lambda: array.read_boxes(few, method="fetch"),
                "large": lambda: array.read(slice(0, 16 * MB), method="fetch"),
            },
            rounds=7,
            batch_s=0,
        )
    one, large = timings["one"].best_s, timings["large"].best_s
    request_s = max(0.0, timings["few"].best_s - one) / (concurrency - 1)
    bandwidth = 4 * 16 * MB / (large - one)
    return hs.Profile(
        "cloud", one - request_s, (1, 4), (bandwidth, max(bandwidth, BYTES_PER_S)), concurrency, request_s
    )


def measure(quick: bool) -> list[Figure]:
    figures = []
    with Cloud(latency_s=LATENCY_S, bytes_per_s=BYTES_PER_S) as cloud:
        for concurrency in (8, 64):
            figures += _at(cloud, concurrency, quick)
    return figures


def _at(cloud: Cloud, concurrency: int, quick: bool) -> list[Figure]:
    profile = measured_profile(cloud, concurrency)
    print(
        f"  {concurrency} at a time: latency {seconds_text(profile.latency_s)}, "
        f"{profile.bandwidth[0] / 1e6:.0f} MB/s a connection, {seconds_text(profile.request_s)} a request"
    )
    worst, figures = 0.0, []
    with hs.Session(profile=profile, prices="free", cache_bytes=0, memory_bytes=1 << 30) as session:
        array = hs.open(cloud.url, storage_options=cloud.options, session=session)
        for spread, starts in spreads().items():
            calls = _calls(array, starts)
            sent = {name: _checked(name, call, array, starts) for name, call in calls.items()}
            timings = race(calls, rounds=5 if quick else 40, batch_s=0)
            if concurrency <= 10:  # obstore sends ten at a time, whatever one says
                timings |= race(_obstore_calls(cloud, starts), rounds=3, batch_s=0)
            ratio, line = _compare(timings, sent)
            worst = max(worst, ratio)
            print(f"    {spread}: {line}")
    bar = "≤ 1.05× the best gap"
    figures.append(Figure(f"25 scattered reads, {concurrency} at a time", bar, f"{worst:.3f}× at worst", worst <= 1.05))
    return figures


def _calls(array: hs.Array, starts: list[int]) -> dict[str, Callable[[], list[np.ndarray]]]:
    keys = [slice(start, start + READ_CELLS) for start in starts]

    def optimised() -> list[np.ndarray]:
        return array.read_boxes(keys)

    def by_gap(gap_bytes: int) -> Callable[[], list[np.ndarray]]:
        planner = fixed_gap(gap_bytes)

        def read() -> list[np.ndarray]:
            with patch("hyperslab.plan.plan.optimise", planner):
                return array.read_boxes(keys)

        return read

    calls = {"optimiser": optimised}
    calls |= {f"gap {name}": by_gap(gap_bytes) for name, gap_bytes in GAPS.items()}
    return calls


def _checked(name: str, call: Callable[[], list[np.ndarray]], array: hs.Array, starts: list[int]) -> Sent:
    """Compare a call's answer with NumPy's; return how many requests it sent, and the bytes that came back."""
    before = array.session.metrics.snapshot()
    _check(name, starts, call())
    after = array.session.metrics.snapshot()
    sent = after.requests - before.requests
    if name.startswith("gap"):  # the planner was indeed replaced
        assert sent == _groups(starts, GAPS[name.removeprefix("gap ")]), f"{name} sent {sent} requests"
    return sent, after.bytes - before.bytes


def _check(name: str, starts: list[int], results: list[np.ndarray]) -> None:
    for start, cells in zip(starts, results, strict=True):
        assert np.array_equal(cells, np.arange(start, start + READ_CELLS, dtype=np.int32)), name


def _groups(starts: list[int], gap_bytes: int) -> int:
    """Return how many requests a fixed gap makes of the reads."""
    gaps = 4 * (np.diff(np.sort(starts)) - READ_CELLS)
    return 1 + int((gaps > gap_bytes).sum())


def _obstore_calls(cloud: Cloud, starts: list[int]) -> dict[str, Callable[[], list[np.ndarray]]]:
    calls = {f"obstore {name}": _obstore_call(cloud, starts, gap_bytes) for name, gap_bytes in GAPS.items()}
    for name, call in calls.items():
        _check(name, starts, call())
    return calls


def _obstore_call(cloud: Cloud, starts: list[int], gap_bytes: int) -> Callable[[], list[np.ndarray]]:
    import obstore

    client = obstore.store.S3Store(
        BUCKET,
        config={"endpoint": cloud.endpoint, "skip_signature": True, "region": "us-east-1"},
        client_options={"allow_http": True},
    )
    head = 128
    firsts = [head + 4 * start for start in starts]
    ends = [first + 4 * READ_CELLS for first in firsts]

    def read() -> list[np.ndarray]:
        parts = obstore.get_ranges(client, "ramp.npy", starts=firsts, ends=ends, coalesce=gap_bytes)
        return [np.frombuffer(part, np.int32) for part in parts]

    return read


def _compare(timings: dict[str, Timing], sent: dict[str, Sent]) -> tuple[float, str]:
    """Return our time against that of the best fixed gap, and all times and requests as a line.

    Times are medians. Planners that send the same requests do the same: their times are put together, so that the
    best of several is not merely the luckiest.
    """
    alike: dict[Sent, list[float]] = {}
    for name, traffic in sent.items():
        alike.setdefault(traffic, []).append(timings[name].median_s)
    pooled = {name: statistics.mean(alike[traffic]) for name, traffic in sent.items()}
    fixed = {name: seconds for name, seconds in pooled.items() if name.startswith("gap")}
    ratio = pooled["optimiser"] / min(fixed.values())
    times = [
        f"{name} {seconds_text(timing.median_s)}" + (f" by {sent[name][0]}" if name in sent else "")
        for name, timing in timings.items()
    ]
    return ratio, f"{ratio:.3f}× {min(fixed, key=fixed.get)} ({', '.join(times)})"


if __name__ == "__main__":
    main(measure)
