"""The search for a form: what it finds for reads whose best form is known, and what it never does."""

from functools import cache
from itertools import product
from math import inf, prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import SOAK, times

from hyperslab.formats.zarr.sizes import choose_sizes
from hyperslab.plan import CostModel, Prices, Profile
from hyperslab.plan.render import shown_text
from hyperslab.selection import parse
from hyperslab.tune import advice, several
from hyperslab.tune.advice import find_form
from hyperslab.tune.figures import figures_of
from hyperslab.tune.forms import Form, Shrink
from hyperslab.tune.reads import reads_of
from hyperslab.tune.search import Bounds, search
from hyperslab.tune.telling import report_of

SHAPE = (256, 128, 256)
HALF = Shrink(((1024, 0.6), (65536, 0.5)))


def _model(phi=0.0, profile="s3-internet"):
    return CostModel(Profile.named(profile), Prices.named("aws"), phi)


def _reads(sizes, count=80, seed=0, shape=SHAPE):
    rng = np.random.default_rng(seed)
    keys = []
    for _ in range(count):
        starts = [int(rng.integers(0, n - size + 1)) for n, size in zip(shape, sizes, strict=True)]
        keys.append(tuple(slice(at, at + size) for at, size in zip(starts, sizes, strict=True)))
    return reads_of(shape, [parse(key, shape) for key in keys])


@cache
def _best(sizes):
    """Return the form that is found for reads of that shape."""
    return search(_reads(sizes), 4, _model(), HALF)[0].form


def _cost(form, reads, model):
    return reads.mean(figures_of(form, reads, 4, model, HALF).cost)


def _default(shape):
    chunks, shards = choose_sizes(shape, 4)
    return Form(chunks, shards or chunks)


SIZES = [(256, 1, 1), (1, 128, 256), (8, 8, 8), (1, 128, 1), (64, 64, 64)]
# Each size with one price of a dollar in every run, with all of them in a soak run; each price with some size.
WEIGHED = (
    list(product(SIZES, [0.0, 100.0, inf])) if SOAK else list(zip(SIZES, [0.0, 100.0, inf, 0.0, 100.0], strict=True))
)


@pytest.mark.parametrize(("sizes", "phi"), WEIGHED)
def test_what_is_found_is_never_worse_than_the_default_or_what_there_is(sizes, phi):
    reads, model = _reads(sizes), _model(phi)
    now = Form((1, 128, 256), (1, 128, 256))
    best = search(reads, 4, model, HALF, also=[now])[0].form
    assert _cost(best, reads, model) <= 1.02 * min(_cost(form, reads, model) for form in (now, _default(SHAPE)))


def test_series_get_chunks_that_are_long_in_time_and_maps_flat_ones():
    series, maps = _best((256, 1, 1)), _best((1, 128, 256))
    assert series.chunks[0] >= 8 * max(series.chunks[1:]) or series.chunks[0] == 256
    assert maps.chunks[0] == 1
    assert prod(maps.chunks) >= 1024


def test_reads_at_recorded_places_get_chunks_that_lie_there():
    keys = [np.s_[100 * i : 100 * i + 100, 50 * j : 50 * j + 50] for i, j in product(range(20), range(20))]
    shape = (2000, 1000)
    reads = reads_of(shape, [parse(key, shape) for key in keys])
    form = search(reads, 8, _model(), Shrink())[0].form
    figures = figures_of(form, reads, 8, _model(), Shrink())
    assert reads.mean(figures.fetched_bytes - figures.lookups * (16 * form.chunks_per_object + 4)) == pytest.approx(
        100 * 50 * 8, rel=0.35
    )


def test_the_search_comes_near_the_best_of_all_powers_of_two():
    shape, model = (64, 64, 64), _model()
    reads = _reads((12, 3, 30), 60, shape=shape)
    bounds = Bounds(least_object_bytes=1 << 12, least_lone_bytes=1 << 10)
    found = search(reads, 4, model, HALF, bounds=bounds)[0].form
    best = inf
    for exponents in product(range(7), repeat=3):
        chunks = tuple(2**e for e in exponents)
        for counts in product((1, 4, 64), repeat=3):
            form = Form(chunks, tuple(c * min(n, 64 // c) for c, n in zip(chunks, counts, strict=True)))
            held = bounds.hold(form, shape, 4) and (form.shards is not None or prod(chunks) * 4 >= 1 << 10)
            best = min(best, _cost(form, reads, model)) if held else best
    assert _cost(found, reads, model) <= 1.03 * best


def test_plain_forms_have_no_shards():
    found = search(_reads((1, 128, 256)), 4, _model(), Shrink(), plain=True)
    assert found
    assert all(each.form.plain and each.form.shards is None for each in found)


@settings(max_examples=times(5, 100), deadline=None)
@given(st.data())
def test_forms_are_within_bounds_whatever_the_array_and_the_reads(data):
    shape = tuple(data.draw(st.lists(st.integers(1, 3000), min_size=1, max_size=4)))
    itemsize = data.draw(st.sampled_from([1, 2, 8, 24]))
    spans = [data.draw(st.tuples(st.integers(0, n - 1), st.integers(1, n)).map(sorted)) for n in shape]
    key = tuple(slice(low, max(high, low + 1)) for low, high in spans)
    reads, bounds = reads_of(shape, [parse(key, shape)]), Bounds()
    for plain in (False, True):
        for each in search(reads, itemsize, _model(), Shrink(), plain=plain)[:5]:
            form = each.form
            assert all(o % c == 0 for o, c in zip(form.objects, form.chunks, strict=True))
            assert all(1 <= c <= n for c, n in zip(form.chunks, shape, strict=True))
            assert prod(form.objects) * itemsize <= max(bounds.most_object_bytes, itemsize)
            assert form.chunks_per_object <= bounds.most_chunks


def test_the_same_reads_give_the_same_form():
    again = search(_reads((256, 1, 1)), 4, _model(), HALF)[0].form
    assert again == _best((256, 1, 1))


def test_advice_says_when_it_has_paid():
    reads, later = _reads((256, 1, 1)), _reads((256, 1, 1), seed=9)
    now = Form((1, 128, 256), (1, 128, 256))
    found = find_form(reads, later, now, 4, _model(), HALF)
    assert not found.keep
    assert found.held_out.times > 2
    spared = found.held_out.now.cost - found.held_out.best.cost
    assert found.pays_after_reads == pytest.approx(found.change.seconds / spared)
    assert found.change.objects == found.best.object_count(SHAPE)
    assert found.change.written_bytes < found.change.read_bytes * 2


def test_an_array_that_lies_well_stays_as_it_is():
    reads = _reads((1, 128, 256))
    best = _best((1, 128, 256))
    found = find_form(reads, _reads((1, 128, 256), seed=5), best, 4, _model(), HALF)
    assert found.keep
    assert found.change.seconds == 0
    assert found.pays_after_reads == inf


def test_advice_that_does_not_hold_for_other_reads_is_not_given():
    found = find_form(
        _reads((256, 1, 1), 20), _reads((1, 128, 256), 20), Form((1, 128, 256), (1, 128, 256)), 4, _model(), HALF
    )
    assert found.keep


@pytest.fixture
def searched_once(monkeypatch):
    """Let a search for the same reads be made once: they take seconds, and find the same each time."""
    known = {}

    def once(reads, *args, **options):
        key = reads.counts.tobytes(), repr(options)
        if key not in known:
            known[key] = search(reads, *args, **options)
        return known[key]

    monkeypatch.setattr(advice, "search", once)
    monkeypatch.setattr(several, "search", once)


def test_two_forms_serve_two_kinds_of_reads_better_than_one(searched_once):
    shape, rng = (4000, 500, 1000), np.random.default_rng(0)
    keys = [np.s_[:, int(rng.integers(500)), int(rng.integers(1000))] for _ in range(40)]
    keys += [np.s_[int(rng.integers(4000))] for _ in range(40)]
    reads = reads_of(shape, [parse(key, shape) for key in keys])
    now, model = _default(shape), _model()
    found = find_form(reads, None, now, 4, model, HALF, copies=2)
    both = found.several
    assert both is not None
    assert both.spared_seconds == pytest.approx(both.cost * (both.times - 1))  # as phi is 0
    assert 0 < both.more_bytes < both.stored_bytes
    assert "1,000 reads take" in shown_text(report_of(found, "memory://a/b", 80, 0))
    assert len(both.forms) == 2
    assert both.times > 1.3
    assert sum(both.shares) == pytest.approx(1)
    assert find_form(reads, None, now, 4, model, HALF, copies=2, storage_bytes=prod(shape) * 4 * 0.7).several is None
