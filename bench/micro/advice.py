"""The search for a layout for 1,000 recorded boxes in 4-D: how long it takes; its figures against the planner's own.

Several workloads, profiles and weights of money; the slowest search is shown. Then the forms that were found, with the
default one, are held against plans of the planner: the mean cost of 100 of the reads, indexes of shards at hand.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import time
from collections.abc import Iterator
from math import inf

import numpy as np

from bench.figures import Figure, at_most, main
from bench.timing import no_collection, seconds_text
from hyperslab.formats.zarr.sizes import choose_sizes
from hyperslab.plan import CostModel, Prices, Profile
from hyperslab.selection import Selection, parse
from hyperslab.tune.figures import figures_of
from hyperslab.tune.forms import Form, Shrink
from hyperslab.tune.planned import planned
from hyperslab.tune.reads import reads_of
from hyperslab.tune.search import search

SHAPE, ITEMSIZE = (2000, 40, 360, 720), 4
BOXES, PLANNED = 1000, 100
BAR_S, BAR_PERCENT = 10.0, 10.0
SHRINK = Shrink(((4096, 0.6), (65536, 0.5), (1 << 22, 0.45)))


def workloads() -> Iterator[tuple[str, list[Selection]]]:
    rng, all_of = np.random.default_rng(4), np.array(SHAPE)
    small = rng.integers(1, np.minimum(all_of, 40), (BOXES, 4))
    wide = np.exp(rng.random((BOXES, 4)) * np.log(all_of)).astype(np.int64)
    series = np.where(np.arange(4) == 0, all_of, rng.integers(1, 4, (BOXES, 4)))
    maps = np.where(np.arange(4) >= 2, all_of, 1)
    mixed = np.where((np.arange(BOXES) % 2 == 0)[:, None], series, maps)
    for name, counts in (("small boxes", small), ("boxes of any size", wide), ("series and maps", mixed)):
        starts = (rng.random((BOXES, 4)) * (all_of - counts + 1)).astype(np.int64)
        stops = starts + counts
        boxes = zip(starts.tolist(), stops.tolist(), strict=True)
        yield name, [parse(tuple(map(slice, start, stop)), SHAPE) for start, stop in boxes]


def models() -> Iterator[CostModel]:
    for profile, phi in (("s3", 0.0), ("s3-internet", 0.0), ("s3-internet", 100.0), ("s3-internet", inf)):
        yield CostModel(Profile.named(profile), Prices.named("aws"), phi)


def error_percent(form: Form, selections: list[Selection], model: CostModel) -> float:
    """Return how far the mean cost is from that of the planner's plans. What decoding and finding take is in no plan.

    Of compressed chunks that are objects of their own the planner does not know the sizes: there, both take them whole.
    """
    reads, shrink = reads_of(SHAPE, selections), SHRINK if form.shards or form.plain else Shrink()
    figures = figures_of(form, reads, ITEMSIZE, model, shrink, cold=0.0)
    seconds = figures.seconds - figures.work_s
    plans = planned(form, SHAPE, ITEMSIZE, selections, model, shrink)
    if model.phi == inf:
        ours, theirs = reads.mean(figures.usd), np.mean([plan.usd for plan in plans])
    else:
        ours = reads.mean(seconds + model.phi * figures.usd)
        theirs = np.mean([plan.seconds + model.phi * plan.usd for plan in plans])
    return 100 * abs(ours / float(theirs) - 1)


def measure(quick: bool) -> list[Figure]:
    chunks, shards = choose_sizes(SHAPE, ITEMSIZE)
    default = Form(chunks, shards or chunks)
    longest, errors = 0.0, []
    for name, selections in workloads():
        for model in list(models())[: 2 if quick else None]:
            reads = reads_of(SHAPE, selections)
            with no_collection():
                started = time.perf_counter()
                found = search(reads, ITEMSIZE, model, SHRINK)
                took = time.perf_counter() - started
            longest = max(longest, took)
            off = [error_percent(form, selections[:PLANNED], model) for form in (found[0].form, default)]
            errors += off
            said = f"{name}, {model.profile.name}, phi {model.phi:g}: {seconds_text(took)}, {found[0].form}"
            print(f"  {said}; off by {off[0]:.1f}%, default {off[1]:.1f}%")
    print(f"  predicted against planned cost: off by {np.mean(errors):.1f}% on average")
    return [
        at_most("layout for 1,000 boxes in 4-D: the slowest search", longest, BAR_S, " s"),
        at_most("its predicted cost against the planner's, the farthest off", max(errors), BAR_PERCENT, "%"),
    ]


if __name__ == "__main__":
    main(measure)
