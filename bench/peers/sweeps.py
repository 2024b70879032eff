"""One thing varied at a time, as in the paper's Figures 10 to 12: phi, the size of chunks, the line, the array's size.

    python -m bench.peers.sweeps phi --scale quick --preset same-region
    python -m bench.peers.sweeps chunks --size 64x128 --size 2048x2048 --system hyperslab --system zarrs
    python -m bench.peers.sweeps lines --bandwidth 20e6 --latency 0.15
    python -m bench.peers.sweeps planning

Rows are printed as lines of JSON, progress goes beside them to the error output.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from math import inf, prod
from pathlib import Path
from typing import Any

from bench import servers
from bench.lab import PRESETS, Lab
from bench.lab.presets import Line, Preset
from bench.peers.datasets import SCALES, dataset
from bench.peers.planning import planning
from bench.peers.running import ROOT, Bench, Failed
from bench.peers.systems import load
from bench.peers.systems.copies import ZARR_PLAIN
from bench.peers.workloads import workload

__all__ = ["chunk_sizes", "lines", "phi_sweep", "planning"]

Row = dict[str, Any]

LAYOUT = "same"
ROUNDS = 3
# A read that takes longer is ended.
LIMIT_S = 60.0

PHIS = (0.0, 1.0, 10.0, 100.0, 1e3, 1e4, 1e5, inf)

# 2 KB, 32 KB, 512 KB, 4 MB, 16 MB, 64 MB.
SIZES = ((16, 32), (64, 128), (256, 512), (1024, 1024), (2048, 2048), (4096, 4096))
SIZED_SYSTEMS = ("hyperslab", "zarr_python", "tensorstore", "zarrs", "tiledb")
SIZED_WORKLOADS, SIZED_QUERIES, WARM_UP_QUERY = ("horizontal", "vertical", "small box"), (0, 1), 2
# A quicker read is done twice: its first connections and instances of a function are then open.
ONCE_S = 5.0
# zarr-python needs minutes to write more chunks than this.
MANY_CHUNKS = 20_000
PUTS_AT_ONCE = 48

NEAREST = PRESETS["paper-50"]
BANDWIDTHS = (20e6, 50e6, NEAREST.outside.bytes_per_s)
LATENCIES = (NEAREST.outside.rtt_s, 0.090, 0.150)
FAR = (min(BANDWIDTHS), max(LATENCIES))
METHODS = (None, "get", "merge", "fetch", "call", "paper")


class _Progress:
    def __init__(self, what: str) -> None:
        self._what, self._started = what, time.monotonic()

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self._started:6.0f} s  {self._what}: {text}", file=sys.stderr, flush=True)


# phi


def phi_sweep(bench: Bench) -> list[Row]:
    """Return the rows of Figure 10: columns of the grid, which our worker of `bench` has open, read for each phi."""
    progress = _Progress(f"phi, {bench.lab.preset.name}")
    reads: dict[float, list[Row]] = {phi: [] for phi in PHIS}
    for turn in range(ROUNDS):
        for phi in _there_and_back(PHIS, turn):
            reads[phi].append(bench.read("hyperslab", "grid", LAYOUT, "vertical", 0, phi=phi))
        progress.say(f"round {turn + 1} of {ROUNDS}")
    return [_phi_row(phi, rows) for phi, rows in reads.items()]


def _phi_row(phi: float, reads: list[Row]) -> Row:
    done = [read for read in reads if not read["error"]]
    best = min(done, key=lambda read: read["seconds"]) if done else {}
    usd = statistics.median(read["usd"] for read in done) if done else None
    shown = {name: best.get(name) for name in ("seconds", "predicted_s", "requests", "calls", "bytes")}
    return {"preset": reads[0]["preset"], "phi": "inf" if phi == inf else phi, "usd": usd, **shown,
            "error": None if done else reads[0]["error"]}  # fmt: skip


# chunk sizes


def chunk_sizes(
    scale: str, home: Path, *, sizes: Sequence[tuple[int, int]] = SIZES, systems: Sequence[str] = SIZED_SYSTEMS
) -> list[Row]:
    """Return the rows of Figure 11: one grid in chunks of many sizes, read by several systems.

    `seconds` has one number for each query; requests, bytes and dollars are those of one query on average. A system
    that fails, or is too slow, is not asked for more of that size: its last row has the error. HSDS is not among them:
    it takes only some of the sizes.
    """
    progress, rows = _Progress("chunk sizes"), []
    with Bench("internet", scale, home=home / "internet", store=f"{scale}-chunks") as bench:
        _measure_once(bench, home / "internet")
        progress.say("store and function are measured")
        for chunks, system in product(sizes, systems):
            data = f"grid/{chunks[0]}x{chunks[1]}"
            (info,) = dataset(data, scale).arrays
            if any(c > n for c, n in zip(chunks, info.shape, strict=True)):
                continue
            for row in _sized(bench, system, data, progress):
                size = {"chunk_bytes": prod(chunks) * 4, "chunks": list(chunks)}
                rows.append({"preset": "internet", **size, "system": system, "method": None, **row})
                progress.say(f"{data}, {system}, {row['workload']}: {row['error'] or row['seconds']}")
    return rows


def _sized(bench: Bench, system: str, data: str, progress: _Progress) -> Iterator[Row]:
    """Give a row for each workload, up to the first that fails."""
    try:
        if seconds := _prepare(bench, system, data):
            progress.say(f"{data}, {system}: is stored after {seconds:.0f} s")
        bench.open(system, data, LAYOUT)
    except Failed as error:
        yield _sized_row(SIZED_WORKLOADS[0], [{"error": str(error)}])
        _close(bench, system, data)
        return
    warm_up = _read(bench, system, data, "small box", WARM_UP_QUERY)
    for name in SIZED_WORKLOADS:
        reads = [warm_up] if warm_up["error"] else []
        for query in SIZED_QUERIES:
            if not any(read["error"] for read in reads):
                reads.append(_quicker(bench, system, data, name, query))
        yield _sized_row(name, reads)
        if reads[-1]["error"]:
            break
    _close(bench, system, data)


def _quicker(bench: Bench, system: str, data: str, name: str, query: int) -> Row:
    """Return a read, or the quicker of two."""
    first = _read(bench, system, data, name, query)
    if first["error"] or first["seconds"] > ONCE_S:
        return first
    second = _read(bench, system, data, name, query)
    return second if second["error"] or second["seconds"] < first["seconds"] else first


def _sized_row(name: str, reads: list[Row]) -> Row:
    done = [read for read in reads if not read["error"]]
    mean = {key: statistics.fmean(read[key] for read in done) if done else None for key in ("requests", "bytes", "usd")}
    return {"workload": name, "seconds": [read["seconds"] for read in done], **mean, "error": reads[-1]["error"]}


def _prepare(bench: Bench, system: str, data: str) -> float:
    """Store a copy, unless it is there; many chunks are put by ourselves, at once and from memory."""
    wanted = dataset(data, bench.scale)
    (info,) = wanted.arrays
    if info.nbytes // (prod(info.chunks) * 4) <= MANY_CHUNKS or load(system).stored(wanted, LAYOUT) != ZARR_PLAIN:
        return bench.prepare(system, data, LAYOUT)
    started = time.monotonic()
    command = [sys.executable, "-m", "bench.peers.sweeps", "put", "--scale", bench.scale, "--data", data]
    done = bench.lab.run_at_store(command, cwd=ROOT)
    if done.returncode:
        raise Failed(f"{data} could not be stored (exit {done.returncode})")
    return time.monotonic() - started


def _put(scale: str, name: str) -> None:
    """Put plain Zarr chunks as zarr-python would write them; runs beside the store."""
    import zarr

    lab, data = Lab.here(), dataset(name, scale)
    if lab is None:
        raise SystemExit("this part runs inside of a lab")
    (info,) = data.arrays
    prefix = data.prefix(ZARR_PLAIN)
    bucket = servers.obstore_client(lab.endpoint, retries=5)
    done = f".done/{prefix}"
    with suppress(FileNotFoundError):
        bucket.head(done)
        return
    client = servers.obstore_client(lab.endpoint, f"{prefix}/{info.name}", retries=5)
    zarr.create_array(
        zarr.storage.ObjectStore(client), shape=info.shape, chunks=info.chunks, dtype=info.dtype, compressors=None,
        overwrite=True,
    )  # fmt: skip
    cells, (height, width) = data.truth(info.name), info.chunks
    chunks = (
        (f"c/{y // height}/{x // width}", cells[y : y + height, x : x + width].tobytes())
        for y, x in product(range(0, info.shape[0], height), range(0, info.shape[1], width))
    )
    asyncio.run(_put_all(client, chunks))
    bucket.put(done, b"")


async def _put_all(client: Any, chunks: Iterator[tuple[str, bytes]]) -> None:
    async def put() -> None:
        for name, cells in chunks:
            await client.put_async(name, cells)

    await asyncio.gather(*(put() for _ in range(PUTS_AT_ONCE)))


# lines


def lines(
    scale: str, home: Path, *, bandwidths: Sequence[float] = BANDWIDTHS, latencies: Sequence[float] = LATENCIES
) -> list[Row]:
    """Return the rows of Figure 12b and c: rows of the grid by each method, on narrower and on longer lines.

    Each line is measured before, as a person would. At the far end of each axis the method "stale" is the optimiser
    that knows only the nearest client's line: what it loses is what measuring again is worth.
    """
    progress, rows = _Progress("lines"), []
    read: dict[str, list[Row]] = {NEAREST.name: _on_line(NEAREST, scale, home, progress)}
    axes = {
        "bandwidth": [(value, _line(NEAREST.outside.rtt_s, value)) for value in bandwidths],
        "latency": [(value, _line(value, NEAREST.outside.bytes_per_s)) for value in latencies],
    }
    for axis, places in axes.items():
        for value, preset in places:
            if preset.name not in read:
                read[preset.name] = _on_line(preset, scale, home, progress)
                if value in FAR:
                    read[preset.name] += _by_methods(preset, scale, home / NEAREST.name, ("stale",), progress)
            rows += [{"axis": axis, "value": value, **row} for row in read[preset.name]]
    return rows


def _line(rtt_s: float, bytes_per_s: float) -> Preset:
    """Return the nearest client's preset, with another line."""
    if (rtt_s, bytes_per_s) == (NEAREST.outside.rtt_s, NEAREST.outside.bytes_per_s):
        return NEAREST
    name = f"paper-{rtt_s * 1e3:.0f}-{bytes_per_s / 1e6:.0f}MB"
    return replace(NEAREST, name=name, outside=Line(rtt_s, bytes_per_s))


def _on_line(preset: Preset, scale: str, home: Path, progress: _Progress) -> list[Row]:
    return _by_methods(preset, scale, home / preset.name, METHODS, progress)


def _by_methods(
    preset: Preset, scale: str, home: Path, methods: Sequence[str | None], progress: _Progress
) -> list[Row]:
    """Read by turns; the line is measured, unless `home` knows one."""
    with Bench(preset, scale, home=home) as bench:
        bench.prepare("hyperslab", "grid", LAYOUT)
        _measure_once(bench, home)
        progress.say(f"{preset.name}: the lab is up, the line known from {home.name}")
        bench.open("hyperslab", "grid", LAYOUT)
        for method in (None, "call"):  # connections are opened, and instances started
            _read(bench, "hyperslab", "grid", "horizontal", 0, method=method)
        reads: dict[str | None, list[Row]] = {method: [] for method in methods}
        for turn in range(ROUNDS):
            for method in _there_and_back(methods, turn):
                if not any(read["error"] for read in reads[method]):
                    forced = None if method == "stale" else method
                    reads[method].append(_read(bench, "hyperslab", "grid", "horizontal", 0, method=forced))
    for method, found in reads.items():
        progress.say(f"{preset.name}, {method or 'optimiser'}: {[round(each['seconds'], 3) for each in found]}")
    needed = workload("horizontal", scale).needed_bytes(0)
    return [_line_row(method, found, needed) for method, found in reads.items()]


def _line_row(method: str | None, reads: list[Row], needed_bytes: int) -> Row:
    last, done = reads[-1], [read for read in reads if not read["error"]]
    shown = {name: last[name] for name in ("bytes", "requests", "calls", "predicted_s", "error")}
    return {"workload": "horizontal", "method": method, "seconds": [read["seconds"] for read in done], **shown,
            "needed_bytes": needed_bytes}  # fmt: skip


# what they share


def _there_and_back(values: Sequence[Any], turn: int) -> Sequence[Any]:
    """Return the values, in every other turn from the last, so that none always follows another."""
    return values[:: -1 if turn % 2 else 1]


def _measure_once(bench: Bench, home: Path) -> None:
    """Measure store and function, unless that was done in the same preset before."""
    if not (home / "profiles").exists():
        bench.measure()


def _read(bench: Bench, system: str, data: str, name: str, query: int, **settings: Any) -> Row:
    """Let a worker read; where one took too long, another takes its place."""
    if not bench.is_open(system, data, LAYOUT):
        with suppress(Failed):  # which the read will tell
            bench.open(system, data, LAYOUT)
    return bench.read(system, data, LAYOUT, name, query, limit_s=LIMIT_S, **settings)


def _close(bench: Bench, system: str, data: str) -> None:
    bench.close([(system, data, LAYOUT)])


def _phi_alone(scale: str, preset: str, home: Path) -> list[Row]:
    with Bench(preset, scale, home=home) as bench:
        bench.prepare("hyperslab", "grid", LAYOUT)
        bench.measure()
        bench.open("hyperslab", "grid", LAYOUT)
        return phi_sweep(bench)


def _size(text: str) -> tuple[int, int]:
    height, width = map(int, text.split("x"))
    return height, width


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("phi", "chunks", "lines", "planning", "put"))
    parser.add_argument("--scale", default="tiny", choices=list(SCALES))
    parser.add_argument("--preset", default="internet", choices=list(PRESETS))
    parser.add_argument("--size", action="append", type=_size, help="of chunks, as 64x128")
    parser.add_argument("--system", action="append", choices=SIZED_SYSTEMS)
    parser.add_argument("--bandwidth", action="append", type=float, help="bytes per second")
    parser.add_argument("--latency", action="append", type=float, help="seconds")
    parser.add_argument("--data", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.what == "put":
        _put(chosen.scale, chosen.data)
        return
    with tempfile.TemporaryDirectory(prefix="hyperslab-sweeps-") as text:
        home = Path(text)
        if chosen.what == "phi":
            rows = _phi_alone(chosen.scale, chosen.preset, home)
        elif chosen.what == "chunks":
            rows = chunk_sizes(chosen.scale, home, sizes=chosen.size or SIZES, systems=chosen.system or SIZED_SYSTEMS)
        elif chosen.what == "lines":
            some = chosen.bandwidth or chosen.latency
            rows = lines(
                chosen.scale, home,
                bandwidths=chosen.bandwidth or (() if some else BANDWIDTHS),
                latencies=chosen.latency or (() if some else LATENCIES),
            )  # fmt: skip
        else:
            rows = planning()
    for row in rows:
        print(json.dumps(row))


if __name__ == "__main__":
    main()
