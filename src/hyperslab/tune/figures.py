"""What reads would cost if the array had another form: the planner's choice, worked out for all reads at once.

The planner sees extents; here they are counted instead. The units of an object (cells of a plain chunk, chunks of a
shard) lie row-major. So a request takes the units from the first to the last that is wanted along some of the fastest
axes, and there is one for each unit that is wanted along the slower ones: the ways to cut a read into requests are as
many as there are axes. Each is priced by the cost model, for all reads in one go, and each read takes the cheapest.
"""

from dataclasses import dataclass
from math import isinf, prod
from typing import Any

import numpy as np

from hyperslab.plan import CostModel
from hyperslab.tune.forms import Form, Shrink
from hyperslab.tune.reads import Floats, Ints, Reads

__all__ = ["Figures", "Means", "figures_of"]

# Into how many parts requests may be cut, to use more connections, and what no part is smaller than.
_CUTS = (1, 2, 4, 16)
_LEAST_CUT_BYTES = 1 << 18
# Where not all units, or rows of them, that are neighbours share a request: so many do, or as many as it takes for all
# requests to be in flight at once.
_FEW = 4
# At how many moments of a session it is looked at what is known by then.
_MOMENTS = 16
# With no price on anything, seconds still tell plans apart.
_SECONDS_AS_USD = 1e-12


@dataclass(frozen=True, slots=True)
class Means:
    """What a read costs, on average."""

    chunks: float
    requests: float
    needed_bytes: float
    fetched_bytes: float
    seconds: float
    usd: float
    cost: float


@dataclass(frozen=True, slots=True, eq=False)
class Figures:
    """What each read would take: an entry for each. `lookups` are of indexes; `cost` is what a search makes small.

    `work_s` is the part of the seconds that plans do not count: decoding, finding objects, less what goes on beside.
    """

    chunks: Floats
    requests: Floats
    fetched_bytes: Floats
    lookups: Floats
    seconds: Floats
    usd: Floats
    cost: Floats
    work_s: Floats

    def means(self, reads: Reads, itemsize: int) -> Means:
        """Return the mean of everything over all reads."""
        columns = (self.chunks, self.requests + self.lookups, reads.cells * itemsize, self.fetched_bytes)
        return Means(*[reads.mean(column) for column in (*columns, self.seconds, self.usd, self.cost)])


def figures_of(
    form: Form,
    reads: Reads,
    itemsize: int,
    model: CostModel,
    shrink: Shrink,
    *,
    cold: float | None = None,
    told: bool | None = None,
) -> Figures:
    """Return what reads would cost in a form.

    `cold` is the share of shards whose index has to be read; without it, as many as are met for the first time when the
    reads are made one after the other in one session. It is read first unless the metadata have `told` what it says:
    then it is read at the same time as the chunks (default: if they would, had the array just been written).
    """
    if form.plain and model.mapped:
        return _mapped(form, reads, itemsize, model)
    ways = _ways(form, reads, itemsize, model, shrink)
    seconds, requests, nbytes = _cheapest(ways, model)
    chunks = _product([reads.reach(axis, size, 1).units for axis, size in enumerate(form.chunks)], len(reads))
    objects = _product([reads.reach(axis, size, 1).units for axis, size in enumerate(form.objects)], len(reads))
    usd = np.asarray(model.usd(requests, nbytes), np.float64)
    lookups = np.zeros(len(reads))
    if form.shards is not None:
        some, any_cold = _cold(form, reads, objects) if cold is None else (cold, np.full(len(reads), float(cold > 0)))
        lookups, index_bytes = some * objects, 16 * form.chunks_per_object + 4
        at_once = np.ceil(lookups / np.maximum(any_cold, 1e-9)).astype(np.int64)
        if not model.mapped and (form.told(reads.shape) if told is None else told):
            sent, all_bytes = requests.astype(np.int64), nbytes + at_once * index_bytes
            asked = model.seconds(sent + at_once, all_bytes) - model.seconds(sent, nbytes)
        else:
            asked = np.asarray(model.seconds(at_once, at_once * index_bytes), np.float64)
        seconds = seconds + any_cold * np.maximum(asked, 0.0)
        usd = usd + np.asarray(model.usd(lookups, lookups * index_bytes), np.float64)
        nbytes = nbytes + lookups * index_bytes
    decoded = (0.0 if form.plain else 1.0) * chunks
    work = model.work_seconds(
        requests.astype(np.int64), nbytes, objects, decoded, decoded * prod(form.chunks) * itemsize
    )
    seconds = seconds + work
    return Figures(chunks, requests, nbytes, lookups, seconds, usd, _weighed(model, seconds, usd), work)


def _mapped(form: Form, reads: Reads, itemsize: int, model: CostModel) -> Figures:
    """Return what reads of plain chunks in files would cost: one access for each chunk, exactly the needed bytes."""
    chunks = _product([reads.reach(axis, size, 1).units for axis, size in enumerate(form.chunks)], len(reads))
    nbytes, requests = reads.cells * float(itemsize), chunks.astype(np.int64)
    seconds = np.asarray(model.seconds(requests, nbytes, nbytes / np.maximum(requests, 1)), np.float64)
    usd = np.asarray(model.usd(requests, nbytes), np.float64)
    nothing = np.zeros(len(reads))
    return Figures(chunks, chunks, nbytes, nothing, seconds, usd, _weighed(model, seconds, usd), nothing)


@dataclass(frozen=True, slots=True, eq=False)
class _Ways:
    """Ways to send requests, (ways, reads): how many, their bytes, the largest, into how many parts it can be cut."""

    requests: Ints
    nbytes: Floats
    largest: Floats
    parts: Floats


def _ways(form: Form, reads: Reads, itemsize: int, model: CostModel, shrink: Shrink) -> _Ways:
    unit, unit_bytes = _unit(form, itemsize, shrink)
    per_object = [whole // part for whole, part in zip(form.objects, unit, strict=True)]
    strides = [prod(per_object[axis + 1 :]) for axis in range(len(per_object))]
    gap_bytes = min(model.gap_bytes(), 2.0**40)
    gaps = [int(gap_bytes / (stride * unit_bytes)) for stride in strides]
    # Gaps are told apart coarsely, so that a cut of an axis that was worked out serves many forms.
    gaps = [1 << gap.bit_length() >> 1 for gap in gaps]
    reach = [reads.reach(axis, *cut) for axis, cut in enumerate(zip(unit, per_object, gaps, strict=True))]
    in_flight, count = model.profile.concurrency, len(reads)
    listed = [bool(np.any(each.runs != each.objects)) for each in reach]
    rows: list[tuple[Floats, Floats, Floats]] = []
    inner, widest, across = np.ones(count), np.ones(count), np.ones(count)
    outers = [np.ones(count)]
    for each in reach:
        outers.append(outers[-1] * each.units)
    for axis in range(len(reach) - 1, -1, -1):
        each, stride = reach[axis], strides[axis]
        if listed[axis]:
            runs = outers[axis] * each.runs * across
            length = each.run_units / each.runs
            rows.append((runs, inner + (length - 1) * stride, widest + (length - 1) * stride))
        mean = each.span / each.objects
        if (mean > 2).any():
            each_alone = outers[axis] * each.span * across
            for shared in (_FEW, np.ceil(each_alone / in_flight)):
                parts = np.minimum(np.ceil(mean / np.clip(shared, 1, mean)), mean)
                further = (mean / parts - 1) * stride
                rows.append((outers[axis] * parts * each.objects * across, inner + further, widest + further))
        across = across * each.objects
        inner = inner + (each.span / each.objects - 1) * stride
        widest = widest + (each.widest - 1) * stride
        rows.append((outers[axis] * across, inner, widest))
    if not rows:
        rows.append((np.ones(count), np.ones(count), np.ones(count)))
    requests = np.stack([np.minimum(row[0], 2.0**40) for row in rows])
    spans, largest = np.stack([row[1] for row in rows]), np.stack([row[2] for row in rows])
    return _Ways(requests.astype(np.int64), requests * spans * unit_bytes, largest * unit_bytes, largest)


def _unit(form: Form, itemsize: int, shrink: Shrink) -> tuple[tuple[int, ...], float]:
    """Return the cells of what can be read alone, and its bytes as it is stored."""
    if form.plain and form.shards is None:
        return (1,) * len(form.chunks), float(itemsize)
    nbytes = prod(form.chunks) * itemsize
    return form.chunks, float(nbytes) if form.plain else nbytes * shrink.of(nbytes)


def _cheapest(ways: _Ways, model: CostModel) -> tuple[Floats, Floats, Floats]:
    """Return the seconds of each read by its cheapest way, and that way's requests and bytes."""
    columns = np.arange(ways.requests.shape[1])
    best: Floats | None = None
    for cut in _CUTS:
        requests, largest = ways.requests, ways.largest
        if cut > 1:
            most = np.minimum(largest // _LEAST_CUT_BYTES, ways.parts)
            if not (most >= 2).any():
                break
            parts = np.clip(most, 1, cut).astype(np.int64)
            requests, largest = requests * parts, largest / parts
        seconds = model.seconds(requests, ways.nbytes, largest)
        cost = _weighed(model, seconds, model.usd(requests, ways.nbytes))
        at = cost.argmin(axis=0)
        found = np.stack([cost[at, columns], seconds[at, columns], requests[at, columns], ways.nbytes[at, columns]])
        best = found if best is None else np.where(found[0] < best[0], found, best)
    assert best is not None
    return best[1], best[2], best[3]


def _weighed(model: CostModel, seconds: Any, usd: Any) -> Any:
    """Return what is to be small; where only dollars count, seconds still tell apart what costs the same."""
    return usd + _SECONDS_AS_USD * seconds if isinf(model.phi) else seconds + model.phi * usd


def _cold(form: Form, reads: Reads, objects: Floats) -> tuple[float, Floats]:
    """Return what share of shards is met for the first time, and for each read how likely it is that one is.

    Shards are met as if all that reads go to were equally likely; early in a session most are new, later few.
    """
    there, touched = reads.variety(form.objects), reads.mean(objects)
    moments = (np.arange(_MOMENTS) + 0.5) / _MOMENTS * reads.total / reads.sessions
    new = np.exp(-moments * touched / there)
    return float(new.mean()), (1 - (1 - new[:, None]) ** objects).mean(axis=0)


def _product(columns: list[Ints], count: int) -> Floats:
    total = np.ones(count)
    for column in columns:
        total = total * column
    return total
