"""Shards whose index is not known yet: look it up first, or fetch the shard whole?"""

from collections.abc import Mapping
from math import prod

import numpy as np

from hyperslab.layout import Layout
from hyperslab.plan.cost import CostModel

__all__ = ["choose_wholes"]


def choose_wholes(layout: Layout, wanted: Mapping[int, int], model: CostModel) -> set[int]:
    """Return the shards that are cheaper fetched whole than by their index first.

    `wanted` says how many chunks of each shard are needed. Fetching whole saves the lookup and its round trip and
    costs the chunks that nobody wants; so shards with the most wanted go first, and one scan finds how many.
    Stored sizes are not known here: chunks count as if they were not compressed.
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
    best = int((lookups + model.cost(np.full(len(count), len(order)), nbytes)).argmin())
    return set(order[:best])
