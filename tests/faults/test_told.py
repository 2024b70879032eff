"""Shards that have changed since the metadata told how long their chunks are: always what is stored now."""

import asyncio
from itertools import count

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from support.arrays import copy_to_memory, open_logged, sent, tries

import hyperslab as hs
from hyperslab.errors import IntegrityError
from hyperslab.layout import ShardIndex
from hyperslab.layout.checksums import crc32c
from hyperslab.layout.encode import split_shard
from hyperslab.store import memory

# Noise: chunks that cannot be compressed have one length, so that any of them may be taken for another.
CELLS = np.random.default_rng(1).integers(0, 256, (512, 384), np.uint8)
INDEX = ShardIndex(16, "start", checksum=True)
# Of few chunks: of many, shards are fetched whole, and nothing has to be told.
BOX = np.s_[3:100, 70:100]
NUMBERS = count()


@pytest.fixture
def name():
    name = f"told-{next(NUMBERS)}"
    hs.save(f"memory://{name}/a", CELLS, chunks=(64, 64), shards=(256, 256))
    return name


@pytest.fixture
def session():
    with hs.Session(profile="s3") as session:
        yield session


def lies_elsewhere(name: str, *, order=None, keep: bool = False, cells: np.ndarray | None = None) -> None:
    """Store the shards anew, chunks in another order; with `keep`, behind what was there, which stays."""
    store = memory(name)
    others = f"{name}-cells"
    if cells is not None:
        hs.save(f"memory://{others}/a", cells, chunks=(64, 64), shards=(256, 256), overwrite=True)
    for y in range(2):
        for x in range(2):
            key = f"a/c/{y}/{x}"
            old = np.frombuffer(bytes(store.get(key).bytes()), np.uint8)
            new = old if cells is None else np.frombuffer(bytes(memory(others).get(key).bytes()), np.uint8)
            parts = split_shard(INDEX, new, key)
            first = old.nbytes if keep else INDEX.nbytes
            table, body = np.full((16, 2), 2**64 - 1, "<u8"), []
            for inner in order or range(16):
                if parts[inner] is not None:
                    table[inner] = first, parts[inner].nbytes
                    first += parts[inner].nbytes
                    body.append(parts[inner])
            flat = table.reshape(-1).view(np.uint8)
            kept = [old[INDEX.nbytes :]] if keep else []
            seal = np.array([crc32c(flat)], "<u4").view(np.uint8)
            store.put(key, np.concatenate([flat, seal, *kept, *body]).tobytes())


def check(array: hs.Array, cells: np.ndarray) -> None:
    """Read twice, so that what was kept of the first read is seen, too."""
    for _ in range(2):
        assert np.array_equal(array[BOX], cells[BOX])
        assert np.array_equal(array[...], cells)


def test_chunks_and_indexes_are_asked_for_at_the_same_time(name, session):
    array, store = open_logged(f"memory://{name}/a", session)
    sent(store)
    store.latency_s = 0.5  # all are on their way before the first is answered
    explained = array.explain(BOX)
    assert explained.plan.confirmed
    assert np.array_equal(array[BOX], CELLS[BOX])
    asked = sent(store)
    assert ("a/c/0/0", (0, INDEX.nbytes), False) in asked
    assert len(asked) == 1 + explained.plan.estimate.requests == explained.plan.estimate.all_requests
    assert store.most_in_flight == len(asked)
    store.latency_s = 0.0
    array[BOX]
    assert sent(store) == []
    array[80:90, 150:170]  # of the same shard, whose index is known now
    assert [span for _, span, _ in sent(store) if span == (0, INDEX.nbytes)] == []


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("changed", [False, True])
def test_shards_that_other_programs_have_stored_anew(name, session, keep, changed):
    array = hs.open(f"memory://{name}/a", session=session)
    assert array.source.layout.told is not None
    cells = CELLS[::-1].copy() if changed else CELLS
    lies_elsewhere(name, order=range(15, -1, -1), keep=keep, cells=cells if changed else None)
    check(array, cells)


@pytest.mark.parametrize("late", ["the index", "the chunks"])
def test_whatever_comes_first(name, session, late, monkeypatch):
    array, store = open_logged(f"memory://{name}/a", session)
    lies_elsewhere(name, order=[*range(8, 16), *range(8)])
    ask = store.aget

    async def slowly(key, span=None, **options):
        if (span == (0, INDEX.nbytes)) == (late == "the index"):
            await asyncio.sleep(0.05)
        return await ask(key, span, **options)

    monkeypatch.setattr(store, "aget", slowly)
    check(array, CELLS)


def test_zarr_python_writes_in_between(tmp_path, session):
    hs.save(tmp_path / "b", CELLS, chunks=(64, 64), shards=(256, 256))
    name = f"told-{next(NUMBERS)}"
    copy_to_memory(tmp_path / "b", name)
    array = hs.open(f"memory://{name}/b", session=session)
    assert array.source.layout.told is not None
    cells = CELLS.copy()
    cells[7:320, 72:160] = 1
    zarr.open_array(str(tmp_path / "b"), mode="r+")[7:320, 72:160] = 1
    copy_to_memory(tmp_path / "b", name)
    check(array, cells)


def test_a_shard_that_is_cut_off_or_gone_is_an_error(name, session):
    array = hs.open(f"memory://{name}/a", session=session)
    store = memory(name)
    store.put("a/c/0/0", bytes(store.get("a/c/0/0").bytes())[:9000])
    with pytest.raises(IntegrityError):
        array[BOX]
    store.delete("a/c/0/0")
    with pytest.raises(IntegrityError, match="is gone"):
        array[BOX]


def test_what_is_written_through_a_handle_is_not_told_any_more(name, session):
    array = hs.open(f"memory://{name}/a", mode="r+", session=session)
    array[4, 4] = 7
    cells = CELLS.copy()
    cells[4, 4] = 7
    assert array.source.layout.told is None
    assert hs.open(f"memory://{name}/a", session=session).source.layout.told is None
    check(array, cells)


@tries(25)
@given(st.permutations(range(16)), st.booleans(), st.booleans(), st.booleans())
def test_any_order_in_any_state_of_the_caches(order, keep, changed, warm):
    name = f"told-{next(NUMBERS)}"
    hs.save(f"memory://{name}/a", CELLS, chunks=(64, 64), shards=(256, 256))
    with hs.Session(profile="s3", cache_bytes=1 << 20 if warm else 0) as session:
        array = hs.open(f"memory://{name}/a", session=session)
        cells = np.roll(CELLS, 5, axis=1) if changed else CELLS
        lies_elsewhere(name, order=order, keep=keep, cells=cells if changed else None)
        check(array, cells)
