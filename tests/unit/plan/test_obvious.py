"""Plans that leave nothing to choose are those that the whole search would find."""

from math import inf, prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.brute import rows_of
from support.profiles import times

from hyperslab.layout import ChunkKeys, ChunkTable, Layout, ShardIndex
from hyperslab.layout.codecs import chunk_decoder
from hyperslab.layout.compressors import Zstd
from hyperslab.plan import CostModel, Prices, Profile, make_plan, pieces_of
from hyperslab.plan import plan as planner
from hyperslab.plan.cost import FunctionModel
from hyperslab.plan.obvious import obvious
from hyperslab.plan.prices import FunctionPrices
from hyperslab.plan.profile import FunctionProfile
from hyperslab.selection import parse

I4 = np.dtype("<i4")
S3 = CostModel(Profile.named("s3"), Prices.named("aws"))
FUNCTION = FunctionModel(FunctionProfile(0.001, 1e-10), FunctionPrices(2e-7, 1.6e-5))


def sharded(name, shape, chunks, shard) -> Layout:
    count, order = prod([s // c for s, c in zip(shard, chunks, strict=True)]), tuple(range(len(shape)))
    return Layout(
        shape, I4, chunks, ChunkKeys(f"{name}/", "/", "c"), np.zeros((), I4), I4, order,
        chunk_decoder([Zstd()], chunks=chunks, stored=I4, order=order),
        object_shape=shard, index=ShardIndex(count, "end", True),
    )  # fmt: skip


def read(layout, key=...):
    return pieces_of(layout, parse(key, layout.shape))


@st.composite
def reads_and_tables(draw):
    """Some reads of arrays in shards, and where the chunks of these lie: in order, apart, elsewhere, or nowhere."""
    reads, tables = [], {}
    for number in range(draw(st.integers(1, 3))):
        layout = sharded(draw(st.sampled_from([f"a{number}", "shared"])), (12, 12), (3, 3), (6, 12))
        start, stop = sorted(draw(st.tuples(st.integers(0, 11), st.integers(1, 12))))
        columns = draw(st.sampled_from([slice(0, 12), slice(2, 7), slice(0, 3), slice(1, 12, 5)]))
        reads.append(read(layout, (slice(start, stop), columns)))
        for row in range(2):
            tables[layout.keys.key((row, 0))] = draw(table(8))
    return reads, tables


def table(count):
    sizes = st.lists(st.sampled_from([1, 40, 3000, 700_000]), min_size=count, max_size=count)
    gaps = st.lists(st.sampled_from([0, 0, 0, 0, 0, 7, 100_000]), min_size=count, max_size=count)
    order = st.one_of(st.just(list(range(count))), st.permutations(range(count)))
    return st.builds(_table, sizes, gaps, order, st.sampled_from([None, None, None, 1]))


def _table(sizes, gaps, order, gone):
    offsets, lengths, at = np.full(len(sizes), -1), np.full(len(sizes), -1), 0
    for chunk in order:
        offsets[chunk], lengths[chunk] = at + gaps[chunk], sizes[chunk]
        at += gaps[chunk] + sizes[chunk]
    if gone is not None:
        offsets[gone] = lengths[gone] = -1
    return ChunkTable(offsets.astype(np.int64), lengths.astype(np.int64))


def facts(plan):
    needs = plan.needs
    columns = (needs.objects, needs.owners, needs.starts, needs.stops)
    return {
        "requests": rows_of(plan.requests),
        "spans": plan.row_spans(),
        "rows": list(zip(*[column.tolist() for column in columns], strict=True)),
        "whole": needs.whole(np.arange(len(needs))).tolist(),
        "calls": plan.calls,
        "parts": (plan.keys, plan.bases, plan.estimate, plan.piece_count, plan.method),
        "rest": (plan.wholes, plan.lookups, plan.absent, plan.cached, plan.inline, plan.confirmed),
    }


@settings(max_examples=times(150))
@given(reads_and_tables(), st.sampled_from([0.0, 1e3, inf]), st.sampled_from([None, FUNCTION]))
def test_it_is_the_plan_of_the_whole_search(drawn, phi, function):
    reads, tables = drawn
    model = CostModel(S3.profile, S3.prices, phi, function=function)
    quick = make_plan(reads, model, tables=tables)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planner, "_plan_obvious", lambda *parts: None)
        assert facts(quick) == facts(make_plan(reads, model, tables=tables))


def in_order(count, nbytes=40):
    return ChunkTable(np.arange(count) * nbytes, np.full(count, nbytes))


def test_chunks_side_by_side_in_several_shards_are_one_request_each():
    one, other = sharded("a", (12, 12), (3, 3), (6, 12)), sharded("b", (12, 12), (3, 3), (6, 12))
    tables = {"a/c/0/0": in_order(8), "a/c/1/0": in_order(8), "b/c/0/0": in_order(8)}
    reads = [read(one, (slice(2, 9), slice(0, 12))), read(other, (slice(0, 3), slice(4, 8)))]
    found = obvious(reads, S3, tables, (), None)
    assert found is not None
    assert found.keys == ["a/c/0/0", "a/c/1/0", "b/c/0/0"]
    assert rows_of(found.requests) == [(0, 0, 320), (1, 0, 160), (2, 40, 120)]
    assert found.needs.owners.tolist() == list(range(14))
    assert (found.estimate.requests, found.estimate.needed_bytes) == (3, 4 * (7 * 12 + 3 * 4))


@pytest.mark.parametrize(
    "why",
    ["gap", "one place", "not stored", "no bytes", "unknown", "told", "cached", "one object twice", "large", "many"],
)
def test_what_leaves_a_choice_is_for_the_search(why):
    layout = sharded("a", (12, 12), (3, 3), (6, 12))
    places = in_order(8, 10 << 20 if why == "large" else 40)
    offsets, lengths = places.offsets.copy(), places.lengths.copy()
    if why == "gap":
        offsets[1:] += 1
    elif why == "one place":
        offsets[1] = offsets[0]
    elif why == "not stored":
        offsets[1] = lengths[1] = -1
    elif why == "no bytes":
        lengths[0] = 0
    tables = {} if why == "unknown" else {"a/c/0/0": ChunkTable(offsets, lengths)}
    reads = [read(layout, (slice(0, 6), slice(0, 12)))] * (
        2 if why == "one object twice" else 17 if why == "many" else 1
    )
    told = ["a/c/0/0"] if why == "told" else []
    is_cached = (lambda layout, key, inner: inner == 5) if why == "cached" else None
    assert obvious(reads, S3, tables, told, is_cached) is None


def test_one_chunk_is_not_cut_however_large_it_is():
    layout = sharded("a", (12, 12), (3, 3), (6, 12))
    found = obvious([read(layout, (0, 0))], S3, {"a/c/0/0": in_order(8, 1 << 30)}, (), None)
    assert found is not None
    assert rows_of(found.requests) == [(0, 0, 1 << 30)]
