"""Chunks in bands, for more calls than chunks: the same cells, the same bytes, each once."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.arrays import tries

from hyperslab.layout import ChunkKeys, Layout
from hyperslab.plan import CostModel, FunctionModel, FunctionProfile, Prices, Profile, make_plan, pieces_of
from hyperslab.plan.breakdown import Way, breakdown
from hyperslab.plan.prices import FunctionPrices
from hyperslab.selection import parse

MIB = 1 << 20


def layout_of(shape, chunks, order=None):
    dtype = np.dtype("u1")
    order = tuple(range(len(shape)) if order is None else order)
    return Layout(shape, dtype, chunks, ChunkKeys("a/", "/", "c"), np.zeros((), dtype), dtype, order)


def with_function(at_once: int, *, phi: float = 0.0) -> CostModel:
    """A store some way off, and a function whose instances read 75 MB/s."""
    function = FunctionProfile(start_s=0.06, byte_s=1 / 75e6, at_once=at_once, chunk_s=1e-3)
    profile = Profile("far", 0.048, (1, 64), (30e6, 31e6), 64, function=function)
    return CostModel(profile, Prices.of("aws"), phi, function=FunctionModel(function, FunctionPrices(2e-7, 1.7e-5)))


@st.composite
def boxes(draw):
    shape = draw(st.lists(st.integers(1, 12), min_size=1, max_size=3))
    chunks = [draw(st.integers(1, n)) for n in shape]
    key = []
    for n in shape:
        start = draw(st.integers(0, n - 1))
        key.append(slice(start, draw(st.integers(start + 1, n)), draw(st.integers(1, 3))))
        if draw(st.booleans()) and not any(isinstance(each, list) for each in key):
            key[-1] = sorted(draw(st.sets(st.integers(0, n - 1), min_size=1)))
    return layout_of(tuple(shape), tuple(chunks), draw(st.permutations(range(len(shape))))), tuple(key)


@tries(200)
@given(boxes(), st.integers(2, 30))
def test_bands_are_the_same_cells_each_once(drawn, bands):
    layout, key = drawn
    whole = pieces_of(layout, parse(key, layout.shape))
    divided = whole.in_bands(bands)
    assert len(divided) >= len(whole)
    seen = np.zeros(whole.counts, int)
    # What each cell of the result is, by its chunk and its place there.
    of = {name: np.zeros((*whole.counts, 2 * len(layout.shape)), int) for name in ("whole", "divided")}
    for name, pieces in (("whole", whole), ("divided", divided)):
        for piece, chunk in enumerate(pieces.chunks()):
            places = np.stack(np.meshgrid(*map(np.arange, layout.chunks), indexing="ij"), axis=-1)
            inside = places[pieces.source(piece)]
            of[name][pieces.target(piece)] = np.concatenate([np.broadcast_to(chunk, inside.shape), inside], axis=-1)
            if pieces is divided:
                seen[pieces.target(piece)] += 1
    assert (seen == 1).all()
    np.testing.assert_array_equal(of["whole"], of["divided"])
    assert _bytes_of(whole) == _bytes_of(divided)


def _bytes_of(pieces) -> list[tuple[tuple[int, ...], int]]:
    chunks = list(pieces.chunks())
    return sorted(
        (chunks[piece], byte)
        for piece, start, stop in zip(*map(np.ndarray.tolist, pieces.runs()), strict=True)
        for byte in range(start, stop)
    )


@pytest.fixture
def picture():
    """A box of a picture: one chunk of 16 MiB."""
    layout = layout_of((3, 2880, 3840), (3, 1440, 3840))
    return pieces_of(layout, parse((slice(0, 3), slice(100, 1000), slice(500, 1500)), layout.shape))


def test_a_lone_chunk_is_cut_by_as_many_calls_as_go_at_once(picture):
    one, many = (make_plan([picture], with_function(at_once), "call") for at_once in (1, 6))
    assert [len(plan.calls) for plan in (one, many)] == [1, 6]
    assert many.estimate.seconds < one.estimate.seconds / 1.5
    assert many.estimate.function_bytes < one.estimate.function_bytes
    assert (one.chunk_count, many.chunk_count) == (1, 1)
    assert [(line.way, line.chunks) for line in breakdown(many)] == [(Way.CALL, 1)]


def test_with_bands_the_optimiser_finds_nothing_worse(picture):
    for phi in (0.0, 100.0, float("inf")):
        model = with_function(6, phi=phi)
        alone = replace(model, function=replace(model.function, profile=replace(model.function.profile, at_once=1)))
        with_bands, without = make_plan([picture], model), make_plan([picture], alone)
        # A band more in a call costs it some bytes.
        assert model.weigh(with_bands.estimate) <= 1.001 * model.weigh(without.estimate)


@pytest.mark.parametrize("phi", [0.0, float("inf")])
def test_what_does_not_fit_into_one_answer_comes_by_several(phi):
    layout = layout_of((3, 2880, 3840), (3, 1440, 3840))
    most_of_it = pieces_of(layout, parse((slice(0, 3), slice(0, 1400), slice(0, 1900)), layout.shape))
    model = with_function(1, phi=phi)
    plan = make_plan([most_of_it], model, "call")
    assert not len(plan.requests)
    assert all(call.reply_bytes <= model.function.reply_bytes for call in plan.calls)
    assert make_plan([most_of_it], model).calls


def test_small_reads_and_many_chunks_stay_as_they_are(picture):
    model, layout = with_function(6), picture.layout
    small = pieces_of(layout, parse((0, slice(0, 21), slice(0, 21)), layout.shape))
    assert make_plan([small], model, "call").piece_count == 1
    grid = layout_of((8 * MIB, 8), (MIB, 8))
    assert make_plan([pieces_of(grid, parse((slice(None), 3), grid.shape))], model, "call").piece_count == 8
