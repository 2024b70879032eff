"""Packs by Mt-KaHyPar, the strongest partitioner of hypergraphs we know: how much better than METIS any plan may be.

What it makes small, the connectivity, is what queries touch beyond one pack each. It balances parts: so it is asked for
some more of them than would just do, by several numbers, and the best is taken.
"""

import os
from math import ceil

import numpy as np

from hyperslab.tune.placement.problem import KEYED, Problem, cost_of, fits

__all__ = ["by_mt_kahypar"]

SLACKS = (1.02, 1.1, 1.2)
PRESETS = ("QUALITY", "HIGHEST_QUALITY")


def by_mt_kahypar(problem: Problem) -> float | None:
    """Return the least cost of its placements that keep the limits, without keys; None where it is not installed."""
    try:
        import mtkahypar
    except ImportError:
        return None
    library = mtkahypar.initialize(len(os.sched_getaffinity(0)))
    queries = problem.queries
    read = queries.read_by() > 0
    unit_of = np.cumsum(read) - 1
    edges = np.split(unit_of[queries.indices], queries.indptr[1:-1])
    weights, times = problem.weights[read], [int(n) for n in queries.times]
    least = None
    for preset in PRESETS:
        for slack in SLACKS:
            context = library.context_from_preset(getattr(mtkahypar.PresetType, preset))
            parts = ceil(slack * int(weights.sum()) / problem.pack)
            allowed = problem.pack * parts / int(weights.sum()) - 1
            context.set_partitioning_parameters(parts, allowed, mtkahypar.Objective.KM1)
            context.logging = False
            graph = library.create_hypergraph(
                context, len(weights), len(edges), [edge.tolist() for edge in edges], weights.tolist(), times
            )
            pack_of = np.full(queries.arrays, KEYED, np.int64)
            pack_of[read] = graph.partition(context).get_partition()
            pack_of[~read] = parts + np.arange(int((~read).sum())) // problem.pack
            if fits(problem, pack_of):
                seconds = cost_of(problem, pack_of).seconds
                least = seconds if least is None else min(least, seconds)
    return least
