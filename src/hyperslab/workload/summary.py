"""Summaries: how much was read of each array, in which shapes, where, and at what cost."""

from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hyperslab.plan.phrases import say_bytes, say_count, say_seconds, say_usd
from hyperslab.plan.render import Facts, Report, Table, printable, shown_text
from hyperslab.workload.records import KnownArray

if TYPE_CHECKING:
    from hyperslab.workload.workload import Workload

__all__ = ["ArraySummary", "ShapeShare", "Summary", "regions_of", "summarise"]

# How many shapes are told, and into how many parts an axis is cut to show where it was read.
_MOST_SHAPES = 8
_PARTS = 32
_BARS = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class ShapeShare:
    """How many reads had a shape: as many cells along each axis, however far apart."""

    shape: tuple[int, ...]
    reads: int
    share: float


@dataclass(frozen=True, slots=True)
class ArraySummary:
    """The reads of one array. What a plan for several selections cost is counted once.

    `regions` has, for each axis, the share of reads that touched each of (at most) 32 equal parts of it.
    """

    array: KnownArray
    reads: int
    failed: int
    thinned: int
    shapes: tuple[ShapeShare, ...]
    other_shapes: int
    regions: tuple[tuple[float, ...], ...]
    needed_bytes: int
    fetched_bytes: int
    requests: int
    lookups: int
    calls: int
    cache_hits: int
    seconds: float
    usd: float
    hosts: tuple[str, ...]
    processes: int

    def report(self) -> Report:
        """Return it as a person reads it."""
        rows = [("×".join(map(str, s.shape)) or "one cell", f"{s.reads:,}", f"{s.share:.1%}") for s in self.shapes]
        if self.other_shapes:
            rows.append((say_count(self.other_shapes, "other shape"), "", ""))
        parts: list[Facts | Table] = [Facts(tuple(self._facts()))]
        if rows:
            parts.append(Table(("shape of the read", "reads", "share"), tuple(rows)))
        bars = [(f"axis {axis}", _bars(shares)) for axis, shares in enumerate(self.regions) if shares]
        if bars:
            parts.append(Facts((("read most", "the higher, the more reads touched that part of an axis"), *bars)))
        return Report(printable(self.array.url), tuple(parts))

    def _facts(self) -> list[tuple[str, str]]:
        array = self.array
        shards = "" if array.shards is None else f", shards {array.shards}"
        failed = f", {self.failed:,} failed" if self.failed else ""
        thinned = f", {self.thinned:,} with thinned lists" if self.thinned else ""
        counts = ((self.requests, "request"), (self.lookups, "lookup"), (self.calls, "call"))
        sent = ", ".join(say_count(count, what) for count, what in counts)
        return [
            ("array", f"{printable(array.dtype)} {array.shape}, chunks {array.chunks}{shards}"),
            ("reads", f"{self.reads:,}{failed}{thinned}"),
            ("needed", say_bytes(self.needed_bytes)),
            ("fetched", f"{say_bytes(self.fetched_bytes)} by {sent}; {say_count(self.cache_hits, 'cache hit')}"),
            ("took", f"{say_seconds(self.seconds)}, {say_usd(self.usd)}"),
            (
                "read by",
                f"{say_count(self.processes, 'process', 'processes')} on {', '.join(map(printable, self.hosts))}",
            ),
        ]


@dataclass(frozen=True, slots=True)
class Summary:
    """All arrays of a workload, those with most reads first; and how much of the logs was damaged."""

    arrays: tuple[ArraySummary, ...]
    skipped_frames: int = 0
    skipped_bytes: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return it for programs: numbers, texts, lists and dicts."""
        return asdict(self)

    def __str__(self) -> str:
        texts = [shown_text(array.report()) for array in self.arrays] or ["no read was recorded"]
        if self.skipped_bytes:
            what = f"{say_count(self.skipped_frames, 'damaged frame')}, {say_bytes(self.skipped_bytes)}"
            texts.append(f"skipped in the logs: {what}")
        return "\n\n".join(texts)


def summarise(workload: "Workload") -> Summary:
    """Return what was read, array by array."""
    found = [_summary(workload.only(url)) for url in workload.arrays]
    found.sort(key=lambda each: (-each.reads, each.array.url))
    return Summary(tuple(found), workload.skipped_frames, workload.skipped_bytes)


def _summary(reads: "Workload") -> ArraySummary:
    records, array = reads.records, reads.array
    fixed, once = records.fixed, records.once()
    shapes = _shapes(reads)
    common = shapes.most_common(_MOST_SHAPES)
    who = [records.processes[place] for place in np.unique(fixed["process"]).tolist()]
    failed = np.array([name is not None for name in records.errors], bool)[fixed["error"]]
    whole = {
        name: int(fixed[name][once].sum())
        for name in ("fetched_bytes", "requests", "lookups", "calls", "cache_hits")
    }  # fmt: skip
    return ArraySummary(
        array, len(reads), int(failed.sum()), int(reads.thinned.sum()),
        tuple([ShapeShare(shape, count, count / len(reads)) for shape, count in common]), len(shapes) - len(common),
        tuple([tuple(shares.tolist()) for shares in regions_of(reads)]), int(fixed["needed_bytes"].sum()),
        **whole, seconds=float(fixed["seconds"][once].sum()), usd=float(fixed["usd"][once].sum()),
        hosts=tuple(sorted({process.host for process in who})), processes=len(who),
    )  # fmt: skip


def _shapes(reads: "Workload") -> Counter[tuple[int, ...]]:
    """Count the shapes of reads; points are as many reads of one cell each would be, but count once."""
    axes = len(reads.array.shape)
    counts = reads.records.count.reshape(len(reads), axes).copy()
    counts[reads.records.fixed["points"] != 0] = 1
    return Counter(map(tuple, counts.tolist()))


def regions_of(reads: "Workload", parts: int = _PARTS) -> list[npt.NDArray[np.float64]]:
    """Return, for each axis, the share of reads whose box touches each of `parts` equal parts of it."""
    starts, counts = reads.boxes()
    some = (counts > 0).all(axis=1)
    found = []
    for axis, size in enumerate(reads.array.shape):
        cut = min(parts, size)
        touched = np.zeros(cut + 1)
        if cut and some.any():
            first, last = starts[some, axis], starts[some, axis] + counts[some, axis] - 1
            # In floats: whole numbers would overflow where an axis is very long.
            low, high = (np.minimum(cut - 1, (cells / size * cut).astype(np.int64)) for cells in (first, last))
            np.add.at(touched, low, 1)
            np.add.at(touched, high + 1, -1)
        found.append(np.cumsum(touched)[:cut] / max(1, int(some.sum())))
    return found


def _bars(shares: tuple[float, ...]) -> str:
    """Draw shares as bars; what was never read is blank, within the two ends.

    >>> _bars((0.0, 0.01, 0.5, 1.0))
    '| ▁▄█|'
    """
    most = max(shares) or 1.0
    steps = [0 if not share else max(1, round(share / most * (len(_BARS) - 1))) for share in shares]
    return "|" + "".join(_BARS[step] for step in steps) + "|"
