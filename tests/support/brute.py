"""Slow, plain ways to find what the planner finds quickly: bytes one by one, requests in every combination."""

from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from math import inf, isinf

import numpy as np

from hyperslab.layout import Layout
from hyperslab.plan import CostModel, Needs, Ranges, Units

__all__ = [
    "Row",
    "best_by_count",
    "best_of_all",
    "cell_bytes",
    "fewest_bytes",
    "ledger_of",
    "needs_of",
    "rank",
    "rows_of",
    "spelled_out",
]

# (object, start, stop)
Row = tuple[int, int, int]
# What a plan is compared by: cost, then seconds.
Rank = tuple[float, float]


def needs_of(rows: Sequence[Row], align: int | Sequence[int] = 1) -> Needs:
    """Needs whose rows are chunks of their own."""
    objects, starts, stops = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    each = np.arange(len(rows))
    aligns = align if isinstance(align, int) else np.array(align, np.int64)
    return Needs.sorted(Units(objects, starts, stops), each, each, starts, stops, aligns, overlapping=False)


def rows_of(ranges: Ranges) -> list[Row]:
    return list(zip(ranges.objects.tolist(), ranges.starts.tolist(), ranges.stops.tolist(), strict=True))


def spelled_out(model: CostModel, requests: int, nbytes: int, largest: int) -> tuple[float, float]:
    """Return the seconds and dollars of a plan, in as many words as the cost model's text has."""
    profile, prices = model.profile, model.prices

    def bandwidth(in_flight: int) -> float:
        points = list(zip(profile.in_flight, profile.bandwidth, strict=True))
        for (n0, b0), (n1, b1) in pairwise(points):
            if n0 <= in_flight <= n1:
                return b0 + (b1 - b0) * (in_flight - n0) / (n1 - n0)
        return points[-1][1]

    waves = 0
    while waves * profile.concurrency < requests:
        waves += 1
    seconds = max(nbytes / bandwidth(min(requests, profile.concurrency)), largest / bandwidth(1))
    seconds += profile.latency_s * waves + profile.request_s * requests
    return seconds, requests * prices.request_usd + nbytes * prices.byte_usd


def rank(model: CostModel, requests: int, nbytes: int, largest: int) -> Rank:
    seconds, usd = spelled_out(model, requests, nbytes, largest)
    # Dollars are told apart only where they differ by more than rounding.
    return (float(f"{usd:.12e}"), seconds) if isinf(model.phi) else (seconds + model.phi * usd, 0.0)


def ledger_of(plan: Ranges) -> tuple[int, int, int]:
    """Return how many requests there are, their bytes, and the largest."""
    sizes = [stop - start for _, start, stop in rows_of(plan)]
    return len(sizes), sum(sizes), max(sizes)


def groupings(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Yield every way to join neighbouring rows of one object."""
    joinable = [a[0] == b[0] for a, b in pairwise(rows)]
    for joined in product(*[(False, True) if can else (False,) for can in joinable]):
        groups = [rows[0]]
        for (obj, start, stop), join in zip(rows[1:], joined, strict=True):
            if join:
                groups[-1] = (obj, groups[-1][1], stop)
            else:
                groups.append((obj, start, stop))
        yield groups


def best_of_all(rows: Sequence[Row], model: CostModel) -> Rank:
    """Return the rank of the best of all groupings."""
    best = (inf, inf)
    for groups in groupings(rows):
        sizes = [stop - start for _, start, stop in groups]
        best = min(best, rank(model, len(sizes), sum(sizes), max(sizes)))
    return best


def fewest_bytes(rows: Sequence[Row]) -> dict[int, int]:
    """Return for each possible number of requests the fewest bytes that they fetch: object by object, then over all."""
    total = {0: 0}
    for obj in sorted({row[0] for row in rows}):
        mine = _fewest_in_one([row for row in rows if row[0] == obj])
        sums: dict[int, int] = {}
        for (n, a), (m, b) in product(total.items(), mine.items()):
            sums[n + m] = min(sums.get(n + m, a + b), a + b)
        total = sums
    return total


def _fewest_in_one(rows: Sequence[Row]) -> dict[int, int]:
    # fewest[j][n]: bytes for the first j rows by n requests.
    fewest: list[dict[int, int]] = [{0: 0}]
    for j in range(1, len(rows) + 1):
        here: dict[int, int] = {}
        for i in range(j):
            for n, nbytes in fewest[i].items():
                value = nbytes + rows[j - 1][2] - rows[i][1]
                here[n + 1] = min(here.get(n + 1, value), value)
        fewest.append(here)
    return fewest[-1]


def best_by_count(rows: Sequence[Row], model: CostModel) -> Rank:
    """Return the rank of the best plan if the largest request did not matter."""
    return min(rank(model, n, nbytes, 0) for n, nbytes in fewest_bytes(rows).items())


def cell_bytes(layout: Layout, cells: Sequence[Sequence[int]]) -> dict[tuple[int, ...], set[int]]:
    """Return for each chunk touched the bytes of the selected cells, each counted from its chunk's start."""
    wanted: dict[tuple[int, ...], set[int]] = {}
    size = layout.stored.itemsize
    for cell in product(*cells):
        chunk = tuple(c // n for c, n in zip(cell, layout.chunks, strict=True))
        offset = 0
        for axis in layout.order:
            offset = offset * layout.chunks[axis] + cell[axis] % layout.chunks[axis]
        wanted.setdefault(chunk, set()).update(range(offset * size, offset * size + size))
    return wanted
