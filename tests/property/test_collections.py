"""Whatever is put under whatever names comes back the same, in every order, from files and as over a network."""

import itertools
import os
import tempfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from support.faulty import FaultyStore
from support.plans import random_plan
from support.profiles import times

import hyperslab as hs
from hyperslab.collections import collection, index, segment, writing
from hyperslab.collections.collection import open_at
from hyperslab.store import LocalStore
from hyperslab.store.keyvalue import Guard, open_tier

pytest.importorskip("lmdb")

_numbers = itertools.count()

names = st.one_of(
    st.text(max_size=6),
    st.sampled_from(["", "a", "a/", "a/b", "..", "/", "\x00", "🌀", "ÿ", "\U0010ffff", "a" * 300]),
)
dtypes = st.one_of(
    arrays_of.scalar_dtypes(),
    arrays_of.unicode_string_dtypes(max_len=3),
    arrays_of.byte_string_dtypes(max_len=3),
    st.just(np.dtype([("a", "i2"), ("b", "f4", (2,)), ("c", "M8[s]")])),
)
cells = dtypes.flatmap(
    lambda dtype: arrays_of.arrays(dtype, arrays_of.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
)
attributes = st.fixed_dictionaries(
    {},
    optional={
        "time": st.none() | st.integers(-3, 3) | st.floats(-3, 3),
        "kind": st.sampled_from(["", "a", "é", None]),
        "ok": st.booleans(),
    },
)
puts = st.lists(st.lists(st.tuples(names, cells, attributes), min_size=1, max_size=8), min_size=1, max_size=4)


@pytest.fixture(scope="module", autouse=True)
def small():
    """Blocks and segments of few rows, so that there are several."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment, "_BLOCK_ROWS", 3)
        patch.setattr(segment, "_BLOCK_TEXT_BYTES", 200)
        patch.setattr(writing, "_SEGMENT_ROWS", 5)
        patch.setattr(index, "_SMALL_BYTES", 0)
        yield


@pytest.fixture(scope="module")
def session():
    with hs.Session() as made:
        yield made


@pytest.fixture(scope="module")
def folder():
    with tempfile.TemporaryDirectory() as made:
        yield made


def same(found, expected):
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert found.tobytes() == np.ascontiguousarray(expected).tobytes()


@given(puts=puts, order=st.randoms(use_true_random=False), pack_bytes=st.sampled_from([1, 40, 1 << 20]), data=st.data())
@settings(max_examples=times(60))
def test_what_is_put_comes_back(puts, order, pack_bytes, data, session, folder):
    path = os.path.join(folder, str(next(_numbers)))
    c = collection(path, "w-", session=session)
    model, attrs = {}, {}
    for items in puts:
        c.put_many(items, pack_bytes=pack_bytes)
        for name, array, own in items:
            model[name], attrs[name] = array, own
    if data.draw(st.booleans(), "compacted"):
        c.compact()
    for handle in (c, collection(path, session=session), open_at(path, FaultyStore(LocalStore(path)), "", session)):
        assert list(handle) == sorted(model)
        assert len(handle) == len(model)
        asked = [order.choice(sorted(model)) for _ in range(2 * len(model))]
        for name, found in zip(asked, handle.read_many(asked), strict=True):
            same(found, model[name])
        prefix = data.draw(names, "prefix")
        assert list(handle.names(prefix)) == [name for name in sorted(model) if name.startswith(prefix)]
        check_attributes(handle, attrs)


@given(
    puts=puts,
    later=st.lists(st.tuples(names, cells, attributes), max_size=4),
    gone=st.lists(names, max_size=3),
    seed=st.integers(0, 2**32),
    most=st.integers(1, 8),
    share=st.sampled_from([0.0, 0.5, 1.0]),
    pack_bytes=st.sampled_from([1, 40, 1 << 20]),
)
@settings(max_examples=times(40))
def test_any_plan_gives_the_same_arrays(puts, later, gone, seed, most, share, pack_bytes, session, folder):
    """Whatever was put or deleted between a plan and its change; with a tier and without, and as over a network."""
    path = os.path.join(folder, str(next(_numbers)))
    c = collection(path, "w-", session=session)
    model, attrs = {}, {}
    for items in puts:
        c.put_many(items, pack_bytes=pack_bytes)
        model |= {name: array for name, array, _ in items}
        attrs |= {name: own for name, _, own in items}
    plan = random_plan(c, np.random.default_rng(seed), most, share)
    if later:
        c.put_many(later)
        model |= {name: array for name, array, _ in later}
        attrs |= {name: own for name, _, own in later}
    c.delete_many(name for name in set(gone) if name in model)
    for name in gone:
        model.pop(name, None)
        attrs.pop(name, None)
    guard = Guard(open_tier(os.path.join(folder, "tier"), capacity_bytes=8 << 20))
    tiered = open_at(path, LocalStore(path), "", session, "r+", guard)
    tiered.apply(plan)
    network = open_at(path, FaultyStore(LocalStore(path)), "", session, "r", guard)
    for handle in (tiered, c.refresh(), network):
        assert list(handle) == sorted(model)
        for name, found in zip(model, handle.read_many(list(model)), strict=True):
            same(found, model[name])
        check_attributes(handle, attrs)
    guard.tier.delete_many(list(guard.tier.keys()))
    assert guard.counts.misses == guard.counts.wrong == guard.counts.stale == guard.counts.errors == 0


def check_attributes(handle, attrs):
    columns = handle.manifest.columns
    for column in columns:
        values = {name: own.get(column) for name, own in attrs.items() if own.get(column) is not None}
        for value in set(values.values()):
            assert handle.select(**{column: value}) == sorted(n for n in values if values[n] == value)
            assert handle.select(**{column: (value, None)}) == sorted(n for n in values if values[n] >= value)
            assert handle.select(**{column: (None, value)}) == sorted(n for n in values if values[n] < value)
        found = handle.attributes(sorted(attrs), [column])[column]
        expected = [attrs[name].get(column) for name in sorted(attrs)]
        assert found.tolist() == expected
