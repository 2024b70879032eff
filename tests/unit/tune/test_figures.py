"""What reads would cost in another form, against the planner's own plans."""

from math import inf

import numpy as np
import pytest

from hyperslab.plan import CostModel, Prices, Profile, direct_plan, pieces_of
from hyperslab.selection import parse
from hyperslab.tune.figures import figures_of
from hyperslab.tune.forms import Form, Shrink, form_of, layout_of
from hyperslab.tune.planned import planned
from hyperslab.tune.reads import reads_of

SHAPE = (200, 24, 90, 180)
FORMS = {
    "planes": Form((1, 24, 90, 180), (1, 24, 90, 180), plain=True),
    "plain blocks": Form((50, 6, 18, 36), (50, 6, 18, 36), plain=True),
    "flat shards": Form((4, 4, 15, 30), (16, 12, 90, 60)),
    "long shards": Form((20, 6, 10, 20), (100, 12, 30, 40)),
    "encoded blocks": Form((50, 2, 20, 20), (50, 2, 20, 20)),
}
# (cells along each axis; 0 stands for a random number of them)
PATTERNS = {
    "series": (200, 1, 1, 1),
    "map": (1, 1, 90, 180),
    "profile": (1, 24, 1, 1),
    "box": (10, 5, 12, 12),
    "anything": (0, 0, 0, 0),
}


def _selections(pattern, count=40, seed=0):
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        sizes = [
            n or int(rng.integers(1, max(2, whole // 3))) for n, whole in zip(PATTERNS[pattern], SHAPE, strict=True)
        ]
        starts = [int(rng.integers(0, whole - n + 1)) for n, whole in zip(sizes, SHAPE, strict=True)]
        found.append(parse(tuple(slice(a, a + n) for a, n in zip(starts, sizes, strict=True)), SHAPE))
    return found


@pytest.mark.parametrize("profile", ["s3", "s3-internet"])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_seconds_are_those_of_the_planner_within_a_tenth(pattern, form, profile):
    model = CostModel(Profile.named(profile), Prices.named("aws"), 0.0)
    selections = _selections(pattern)
    reads = reads_of(SHAPE, selections)
    figures = figures_of(form, reads, 4, model, Shrink(), cold=0.0)
    plans = planned(form, SHAPE, 4, selections, model, Shrink())
    ours = reads.mean(figures.seconds - figures.work_s)
    assert ours == pytest.approx(np.mean([plan.seconds for plan in plans]), rel=0.1)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_dollars_are_those_of_the_planner_within_a_tenth_where_they_count(pattern, form):
    model = CostModel(Profile.named("s3-internet"), Prices.named("aws"), inf)
    selections = _selections(pattern)
    reads = reads_of(SHAPE, selections)
    figures = figures_of(form, reads, 4, model, Shrink(), cold=0.0)
    plans = planned(form, SHAPE, 4, selections, model, Shrink())
    assert reads.mean(figures.usd) == pytest.approx(np.mean([plan.usd for plan in plans]), rel=0.1)


@pytest.mark.parametrize("form", ["planes", "plain blocks"])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_plain_chunks_in_files_cost_what_is_needed_of_them(pattern, form):
    form, selections = FORMS[form], _selections(pattern)
    model = CostModel(Profile.named("local"), Prices.named("free"), mapped=True)
    reads = reads_of(SHAPE, selections)
    figures = figures_of(form, reads, 4, model, Shrink())
    layout = layout_of(form, SHAPE, 4)
    plans = [direct_plan([pieces_of(layout, each)], model).estimate for each in selections]
    assert reads.mean(figures.seconds) == pytest.approx(np.mean([plan.seconds for plan in plans]), rel=0.01)
    assert reads.mean(figures.fetched_bytes) == pytest.approx(np.mean([plan.fetched_bytes for plan in plans]))
    assert reads.mean(figures.requests) == pytest.approx(np.mean([plan.requests for plan in plans]))


def test_lists_of_rows_cost_what_the_planner_says():
    shape, rng = (100_000, 64), np.random.default_rng(1)
    selections = [parse((np.sort(rng.choice(100_000, 200, replace=False)),), shape) for _ in range(10)]
    reads = reads_of(shape, selections)
    model = CostModel(Profile.named("s3"), Prices.named("aws"), 0.0)
    for form in (Form((4096, 64), (4096, 64), plain=True), Form((16, 64), (16384, 64)), Form((256, 64), (16384, 64))):
        figures = figures_of(form, reads, 4, model, Shrink(), cold=0.0)
        plans = planned(form, shape, 4, selections, model, Shrink())
        ours = reads.mean(figures.seconds - figures.work_s)
        assert ours == pytest.approx(np.mean([plan.seconds for plan in plans]), rel=0.1)


def test_chunks_are_counted_exactly():
    selections = _selections("anything", 30)
    reads = reads_of(SHAPE, selections)
    form = FORMS["long shards"]
    counted = [
        np.prod(
            [
                len({cell // size for cell in axis.indices().tolist()})
                for axis, size in zip(each.axes, form.chunks, strict=True)
            ]
        )
        for each in selections
    ]
    model = CostModel(Profile.named("s3"), Prices.named("aws"), 0.0)
    assert figures_of(form, reads, 4, model, Shrink()).chunks.tolist() == counted


def test_an_index_that_is_not_known_costs_a_round_more():
    model = CostModel(Profile.named("s3"), Prices.named("aws"), 0.0)
    reads, form = reads_of(SHAPE, _selections("box")), FORMS["flat shards"]
    warm, cold = (figures_of(form, reads, 4, model, Shrink(), cold=share, told=False) for share in (0.0, 1.0))
    assert ((cold.seconds - warm.seconds) >= model.profile.latency_s).all()
    assert cold.lookups.min() >= 1
    assert warm.lookups.max() == 0


def test_an_index_of_which_the_metadata_tell_costs_a_request_but_no_round():
    model = CostModel(Profile.named("s3"), Prices.named("aws"), 0.0)
    reads, form = reads_of(SHAPE, _selections("box")), FORMS["flat shards"]
    warm, told, cold = (
        figures_of(form, reads, 4, model, Shrink(), cold=share, told=told)
        for share, told in ((0.0, True), (1.0, True), (1.0, False))
    )
    assert (told.lookups == cold.lookups).all()
    assert np.allclose(told.usd, cold.usd)
    assert (told.seconds >= warm.seconds).all()
    assert ((cold.seconds - told.seconds) >= model.profile.latency_s / 2).all()


def test_indexes_are_learned_by_and_by():
    model = CostModel(Profile.named("s3"), Prices.named("aws"), 0.0)
    form = FORMS["flat shards"]
    few, many = (figures_of(form, reads_of(SHAPE, _selections("box", n)), 4, model, Shrink()) for n in (5, 2000))
    assert few.lookups.mean() > 3 * many.lookups.mean() > 0


def test_compressed_chunks_are_fetched_in_fewer_bytes():
    model = CostModel(Profile.named("s3"), Prices.named("aws"), 0.0)
    reads, form = reads_of(SHAPE, _selections("map")), FORMS["flat shards"]
    full, half = (figures_of(form, reads, 4, model, Shrink(((1, share),)), cold=0.0) for share in (1.0, 0.5))
    assert reads.mean(half.fetched_bytes) == pytest.approx(reads.mean(full.fetched_bytes) / 2, rel=0.2)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_form_is_that_of_its_layout(form):
    layout = layout_of(form, SHAPE, 4)
    assert form_of(layout) == form
    assert layout.shape == SHAPE
    assert layout.stored.itemsize == 4
