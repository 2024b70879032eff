"""Whatever array is written anew in whatever layout, within however little memory: NumPy has the same cells."""

import math
import shutil
import warnings
from itertools import count

import numpy as np
import pytest
import zarr
from hypothesis import assume, given
from hypothesis import strategies as st
from support.arrays import assert_same, catalogue, dtype_of, folder, stored, tries
from support.profiles import times

import hyperslab as hs
from hyperslab.execute import write
from hyperslab.rechunk import memory, moving, reading
from hyperslab.rechunk.moving import scheme_for
from hyperslab.rechunk.regions import best_cut, cells_before, parts_meeting, parts_of, visits_of
from hyperslab.selection import Box

# zarr-python can make no array of these.
CASES = [case for case in catalogue(times(150, 600)) if case.dtype not in ("grid", "big")]
numbers = count()


@pytest.fixture(scope="module", autouse=True)
def little_memory():
    """Count only what is taken for cells, read ahead and write in several threads, however small the arrays are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "resident_bytes", lambda: 0)
        patch.setattr(memory, "_SPARE_BYTES", 0)
        patch.setattr(memory, "_LEAST_BYTES", 0)
        patch.setattr(moving, "_ROOMY_BYTES", 64)
        patch.setattr(write, "_LOCAL_LANES", 3)
        patch.setattr(reading, "_LOCAL_RUN_BYTES", 16)
        patch.setattr(reading, "_REMOTE_RUN_BYTES", 32)
        patch.setattr(reading, "_MAPPED_BYTES", 64)
        yield


@pytest.fixture(scope="module")
def session():
    with hs.Session(cache_bytes=1 << 20, retries=0) as made:
        yield made


@st.composite
def sizes(draw, shape, dtype):
    chunks = tuple(draw(st.integers(1, max(1, n + 1))) for n in shape)
    layout = draw(st.sampled_from(["default", "default", "plain"]))
    shards = tuple(chunk * draw(st.integers(1, 3)) for chunk in chunks)
    sharded = layout == "default" and shape and dtype.kind != "V" and draw(st.booleans())
    return {"chunks": chunks, "shards": shards if sharded else None, "layout": layout}


@tries(120)
@given(data=st.data(), case=st.sampled_from(CASES), memory_bytes=st.integers(200, 20_000), remote=st.booleans())
def test_any_array_in_any_layout(session, data, case, memory_bytes, remote):
    path, cells = stored(case)
    wanted = data.draw(sizes(case.shape, dtype_of(case.dtype)))
    name = f"moved-{next(numbers)}"
    url = f"memory://rechunk-{name}/a" if remote else f"{folder()}/{name}"
    source = hs.open(path, session=session)
    told = []
    try:
        made = hs.rechunk(
            source, url, **wanted, memory_bytes=memory_bytes, progress=lambda *each: told.append(each), session=session
        )
    except hs.errors.InvalidInputError as error:
        assume("memory_bytes" not in str(error))
        raise
    assert made.chunks == wanted["chunks"]
    expected = cells.astype(cells.dtype.newbyteorder("="))
    assert_same(np.asarray(made[...]).astype(expected.dtype), expected)
    assert_same(np.asarray(made.fill_value, made.dtype), np.asarray(source.fill_value, made.dtype))
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    if cells.size:
        assert told[-1] == (source.nbytes, source.nbytes)
    if not remote:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert_same(np.asarray(zarr.open_array(url, mode="r")[...], made.dtype), made.read(...))
        shutil.rmtree(url)


axes = st.tuples(st.integers(0, 30), st.integers(0, 40), st.integers(1, 12), st.integers(1, 12))


@given(axes)
def test_visits_are_those_that_one_counts(axis):
    start, length, part, other = axis
    pairs = {
        (n, cell // other)
        for n, low in enumerate(range(start, start + length, part))
        for cell in range(low, min(low + part, start + length))
    }
    assert visits_of(start, length, part, other) == len(pairs)


@given(st.lists(axes, min_size=1, max_size=3), st.integers(1, 4000))
def test_the_cut_is_the_best_of_all_that_fit(sides, most_cells):
    unit, other = tuple(side[2] for side in sides), tuple(side[3] for side in sides)
    start = tuple(side[0] * n for side, n in zip(sides, unit, strict=True))
    box = Box(start, tuple(low + max(1, side[1]) for low, side in zip(start, sides, strict=True)))
    cut = best_cut(box, unit=unit, other=other, most_cells=most_cells)
    visits = [visits_of(*each) for each in zip(start, box.shape, cut.shape, other, strict=True)]
    assert cut.visits == math.prod(visits)
    assert all(n % u == 0 or n == whole for n, u, whole in zip(cut.shape, unit, box.shape, strict=True))
    smallest = tuple(min(n, u) for n, u in zip(box.shape, unit, strict=True))
    if math.prod(smallest) > most_cells:
        assert cut.shape == smallest
        return
    assert cut.cells <= most_cells
    ranges = [range(u, n + u, u) for n, u in zip(box.shape, unit, strict=True)]
    for lengths in _products(ranges):
        part = tuple(min(n, whole) for n, whole in zip(lengths, box.shape, strict=True))
        if math.prod(part) <= most_cells:
            found = math.prod(visits_of(*each) for each in zip(start, box.shape, part, other, strict=True))
            assert cut.visits <= found


def _products(ranges):
    return [()] if not ranges else [(n, *rest) for n in ranges[0] for rest in _products(ranges[1:])]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 14), st.integers(1, 6)), min_size=1, max_size=3), st.data())
def test_parts_lie_one_after_the_other(sides, data):
    whole = Box(tuple(low for low, _, _ in sides), tuple(low + n for low, n, _ in sides))
    shape = tuple(part for _, _, part in sides)
    parts = list(parts_of(whole, shape))
    before = 0
    for part in parts:
        assert cells_before(part, whole) == before
        before += part.size
    assert before == whole.size
    low = tuple(data.draw(st.integers(a, b - 1)) for a, b in zip(whole.start, whole.stop, strict=True))
    inside = Box(low, tuple(data.draw(st.integers(a + 1, b)) for a, b in zip(low, whole.stop, strict=True)))
    assert list(parts_meeting(inside, whole, shape)) == [part for part in parts if part.intersect(inside).size]


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=3),
       st.integers(1, 1 << 14), st.integers(0, 1 << 16))  # fmt: skip
def test_schemes_fit_into_memory_and_disk(sides, room_bytes, free_bytes):
    shape = tuple(n for n, _, _ in sides)
    objects, unit = tuple(o for _, o, _ in sides), tuple(min(u, n) for n, _, u in sides)
    domain = Box((0,) * len(shape), shape)
    found = scheme_for(domain, objects, unit, 4, room_bytes=room_bytes, free_bytes=free_bytes)
    least = max(math.prod(objects), math.prod(unit))
    parts = max(found.region.cells, math.prod(found.block or ()))
    assert parts * found.buffers * 4 <= max(room_bytes, least * 4)
    if found.area is not None:
        assert found.area.cells * 4 <= free_bytes
        assert found.amplification <= found.region.amplification
