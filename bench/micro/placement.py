"""Placing small arrays: how long a plan takes, what it costs beside those of the paper, and with new queries.

`python -m bench.collections --part grid --full` plans all mixes, grids, sizes of packs and of the tier.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from collections.abc import Iterator

from bench.collections.plans import QUICK, SOME, against_the_paper, compiled_once, held_out, times
from bench.collections.workloads import vortices
from bench.figures import Figure, main


def measure(quick: bool) -> Iterator[Figure]:
    flow = vortices()
    compiled_once(flow)
    yield from times(flow, quick)
    yield from against_the_paper(flow, QUICK if quick else SOME)
    yield from held_out(flow, splits=2 if quick else 10)


if __name__ == "__main__":
    main(measure)
