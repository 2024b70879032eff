"""Shards whose index is not known yet: look it up first, or fetch the shard whole?"""

from collections.abc import Mapping
from math import inf, prod

import numpy as np

from hyperslab.layout import Layout
from hyperslab.plan.cost import Calls, CostModel
from hyperslab.plan.ranges import Ints

__all__ = ["choose_wholes"]


def choose_wholes(layout: Layout, wanted: Mapping[int, int], model: CostModel, reply_bytes: int = 0) -> set[int]:
    """Return the shards that are cheaper fetched whole than by their index first.

    `wanted` says how many chunks of each shard are needed. Fetching whole saves the lookup and its round trip and
    costs the chunks that nobody wants; so shards with the most wanted go first, and one scan finds how many.
    Stored sizes are not known here: chunks count as if they were not compressed. A function beside the data can cut
    chunks once it is known where they lie: then `reply_bytes` are what it would answer for all of them.
    """
    if not wanted or layout.index is None:
        return set()
    shard_bytes = prod(layout.chunks_per_object) * layout.chunk_nbytes + layout.index.nbytes
    order = sorted(wanted, key=lambda number: -wanted[number])
    part_bytes = np.array([wanted[number] for number in order]) * layout.chunk_nbytes
    count = np.arange(len(order) + 1)
    rest = len(order) - count
    nbytes = count * shard_bytes + int(part_bytes.sum()) - np.concatenate([[0], np.cumsum(part_bytes)])
    asked = rest * (model.end_requests if layout.index.location == "end" else 1)
    lookups = model.cost(asked, rest * layout.index.nbytes)
    costs = lookups + model.cost(np.full(len(count), len(order)), nbytes)
    best = int(costs.argmin())
    if model.function is not None and lookups[0] + _call_cost(model, part_bytes, layout, reply_bytes) < costs[best]:
        return set()
    return set(order[:best])


def _call_cost(model: CostModel, part_bytes: Ints, layout: Layout, reply_bytes: int) -> float:
    """The cost of having all wanted chunks cut, by as many calls as run at once."""
    function = model.function
    if function is None:
        return inf
    chunks, read = int(part_bytes.sum()) // layout.chunk_nbytes, int(part_bytes.sum())
    count = max(1, -(-reply_bytes // function.reply_bytes), min(chunks, function.profile.at_once))
    each, chunks_each = -(-read // count), -(-chunks // count)
    decoded = (0, 0) if layout.plain else (read, each)
    calls = Calls(
        count, read, each, reply_bytes, -(-reply_bytes // count), chunks, chunks_each, chunks, chunks_each, *decoded
    )
    return float(model.cost(0, 0, 0, calls))
