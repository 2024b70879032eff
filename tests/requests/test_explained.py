"""What `explain` predicts is what is sent: exactly where it says so, else at most that."""

from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.arrays import (
    METHODS,
    PLAIN,
    PROFILES,
    catalogue,
    copied,
    keys,
    open_logged,
    pointwise,
    sent,
    sessions,
    small_requests,
    stored,
    tries,
)
from support.profiles import times

import hyperslab as hs
from hyperslab.store import locate

CASES = catalogue(times(150, 600))
# Every object of these is there, and nothing needs to be looked up.
EXACT = [
    case for case in CASES if case.layout in PLAIN and not case.layout.startswith("shards") and case.written == "all"
]
profiles = st.sampled_from(sorted(PROFILES))


@pytest.fixture(scope="module")
def logged():
    """Open an array with a profile; returns it with its log, the same ones each time."""
    known = {}
    with sessions() as made:

        def open_(case, profile):
            if (case, profile) not in known:
                known[case, profile] = open_logged(copied(case), made.get(profile))
            sent(known[case, profile][1])
            return known[case, profile]

        yield open_


@cache
def is_stored(case) -> bool:
    """Whether every chunk is an object: zarr leaves out chunks that hold nothing but fill values."""
    layout = hs.open(copied(case)).source.layout
    store, _ = locate(copied(case))
    for at in np.ndindex(*layout.grid):
        try:
            store.head(layout.keys.key(at))
        except KeyError:
            return False
    return True


def measured(array, log, read) -> tuple[int, int, list]:
    """Return requests and bytes by the session's own count, and what the store was asked for."""
    before = array.session.metrics.snapshot()
    read()
    after = array.session.metrics.snapshot()
    requests = after.requests + after.lookups - before.requests - before.lookups
    return requests, after.bytes - before.bytes, sent(log)


def asked_bytes(asked, array) -> int:
    """Return how many bytes were asked for, where whole objects are chunks that are not encoded."""
    whole = array.source.layout.chunk_nbytes
    return sum(whole if span is None else span[1] - span[0] for _, span, _ in asked)


@tries(280, soak=50_000)
@given(st.data(), st.sampled_from(EXACT), profiles, st.sampled_from(METHODS), st.booleans())
def test_exact_plans_are_exact(logged, data, case, profile, method, cut):
    array, log = logged(case, profile)
    if not is_stored(case):
        return
    key = data.draw(keys(case.shape))
    with small_requests(*(2, 11) if cut else (1 << 19, 64 << 20)):
        predicted = array.explain(key, method=method).plan.estimate
        assert sent(log) == []
        requests, nbytes, asked = measured(array, log, lambda: array.read(key, method=method))
    assert predicted.exact
    assert predicted.lookups == 0
    assert requests == len(asked) == predicted.requests
    assert nbytes == asked_bytes(asked, array) == predicted.fetched_bytes
    assert predicted.needed_bytes <= predicted.fetched_bytes
    if method == "fetch":
        assert predicted.needed_bytes == predicted.fetched_bytes


@tries(100, soak=15_000)
@given(st.data(), st.sampled_from(EXACT), profiles)
def test_exact_plans_of_points_are_exact(logged, data, case, profile):
    array, log = logged(case, profile)
    if not is_stored(case):
        return
    index = data.draw(pointwise(case.shape))
    predicted = array.explain.points[index].plan.estimate
    requests, nbytes, asked = measured(array, log, lambda: array.points[index])
    assert requests == len(asked) == predicted.requests
    assert nbytes == predicted.fetched_bytes


@tries(280, soak=50_000)
@given(st.data(), st.sampled_from(CASES), profiles, st.sampled_from(METHODS), st.booleans())
def test_other_plans_are_bounds(logged, data, case, profile, method, cut):
    """Codecs may make a chunk larger, shards hold their chunks in any order: the bounds allow for both."""
    array, log = logged(case, profile)
    key = data.draw(keys(case.shape))
    with small_requests(*(2, 11) if cut else (1 << 19, 64 << 20)):
        predicted = array.explain(key, method=method).plan.estimate
        assert sent(log) == []
        requests, nbytes, asked = measured(array, log, lambda: array.read(key, method=method))
    assert requests == len(asked) <= predicted.all_requests
    assert nbytes <= predicted.all_bytes


@tries(100, soak=15_000)
@given(st.data(), st.sampled_from(CASES), profiles)
def test_what_is_not_needed_is_not_fetched_twice(logged, data, case, profile):
    """No two requests of one read overlap, whatever the selections."""
    array, log = logged(case, profile)
    wanted = data.draw(st.lists(keys(case.shape), min_size=1, max_size=4))
    array.read_boxes(wanted)
    asked = sent(log)
    ranges = sorted((key, *span) for key, span, _ in asked if isinstance(span, tuple))
    for (key, _, stop), (next_key, start, _) in pairwise(ranges):
        assert key != next_key or start >= stop
    wholes = [key for key, span, _ in asked if span is None]
    assert len(wholes) == len(set(wholes))


def test_cells_that_are_read_are_as_explained(logged):
    """`analyze` reads once, and its figures are the store's."""
    case = next(case for case in EXACT if case.shape == (12, 10))
    array, log = logged(case, "s3")
    analysis = array.explain[2:9, ::3].analyze()
    asked = sent(log)
    assert analysis.measured.requests == len(asked)
    assert analysis.measured.bytes == sum(span[1] - span[0] for _, span, _ in asked)
    assert np.array_equal(array[2:9, ::3], stored(case)[1][2:9, ::3])
