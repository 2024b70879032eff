"""Long answers are put in place while they arrive: right cells or a typed error, and all that came is counted."""

import asyncio

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.arrays import tries
from support.hostile import array_at, fast, options_for, sent
from support.s3proxy import Rule

import hyperslab as hs
from hyperslab.errors import ConflictError, IntegrityError, StoreError
from hyperslab.execute.run import Run
from hyperslab.store import locate

DATA = np.random.default_rng(6).integers(0, 1 << 30, (64, 1024)).astype("i4")
# 16 chunks of 16 KB, side by side in one object.
ROWS, KEY = 4, np.s_[6:58]


@pytest.fixture
def heard(monkeypatch):
    """How many bytes had arrived, each time that was told, and how many chunks then were put in place."""
    told: list[tuple[int, int]] = []
    real = Run.heard

    def heard(self, job, reply, nbytes):
        before = len(self._ahead.get((job.number, job.span), []))
        try:
            real(self, job, reply, nbytes)
        finally:
            told.append((nbytes, before - len(self._ahead.get((job.number, job.span), []))))

    monkeypatch.setattr(Run, "heard", heard)
    return told


def stored(proxy) -> str:
    hs.save(
        "s3://bucket/a", DATA, chunks=(ROWS, 1024), shards=DATA.shape, storage_options=options_for(proxy),
        overwrite=True,
    )  # fmt: skip
    return next(key for key in proxy.fake.objects if "/c/" in key)


def opened(proxy, session) -> hs.Array:
    """The array, once its shard's index is known."""
    array = array_at(proxy, "a", session)
    assert np.array_equal(array[:1], DATA[:1])
    proxy.log.clear()
    return array


def test_chunks_are_put_in_place_before_all_has_arrived(fake_s3, heard):
    stored(fake_s3)
    with fast(index_bytes=1 << 20) as session:
        array, before = opened(fake_s3, session), session.metrics.snapshot()
        assert np.array_equal(array.read(KEY, method="fetch"), DATA[KEY])
        metrics = session.metrics
        assert (metrics.requests - before.requests, metrics.bytes - before.bytes) == sent(fake_s3)
    assert 0 < sum(placed for _, placed in heard) < 14
    assert all(0 < arrived < sent(fake_s3)[1] for arrived, _ in heard)


@tries(60, soak=3000)
@given(st.integers(0, 63), st.integers(1, 64), st.integers(1, 3), st.integers(0, 1023), st.integers(1, 1024))
def test_cells_are_those_of_numpy(shared_array, start, count, step, low, width):
    key = np.s_[start : start + count : step, low : low + width]
    assert np.array_equal(shared_array[key], DATA[key])


@pytest.fixture(scope="module")
def shared_array():
    from support.s3proxy import S3Proxy

    with S3Proxy() as proxy, fast() as session:
        stored(proxy)
        yield opened(proxy, session)


@pytest.mark.parametrize("arrived", [0, 40_000, 100_000, 200_000])
def test_an_answer_that_breaks_off_is_asked_for_again(fake_s3, heard, arrived):
    key = stored(fake_s3)
    with fast(index_bytes=1 << 20) as session:
        array = opened(fake_s3, session)
        fake_s3.rules.append(Rule("truncate", key, times=1, after_bytes=arrived))
        assert np.array_equal(array.read(KEY, method="fetch"), DATA[KEY])
        assert session.metrics.retries == 1


@pytest.mark.parametrize("chunk", [2, 4, 6])
def test_damage_in_a_long_answer_is_seen_and_paid_for(fake_s3, heard, chunk):
    key = stored(fake_s3)
    damaged = bytearray(fake_s3.fake.objects[key])
    damaged[len(damaged) * chunk // 16 + 5000] ^= 1
    fake_s3.fake.objects[key] = bytes(damaged)
    with fast(index_bytes=1 << 20) as session:
        array, before = opened(fake_s3, session), session.metrics.snapshot()
        with pytest.raises(IntegrityError):
            array.read(np.s_[6:30], method="fetch")
        used = session.metrics.requests - before.requests, session.metrics.bytes - before.bytes
    assert used == sent(fake_s3)
    assert used[0] == 1
    assert used[1] > 100_000
    assert heard


def test_what_breaks_off_for_good_is_not_kept(fake_s3, heard):
    key = stored(fake_s3)
    with fast(cache_bytes=1 << 20, retries=0) as session:
        array = opened(fake_s3, session)
        fake_s3.rules.append(Rule("truncate", key, times=1, after_bytes=100_000))
        with pytest.raises(StoreError):
            array.read(KEY, method="fetch")
        assert any(placed for _, placed in heard)
        assert np.array_equal(array.read(KEY, method="fetch"), DATA[KEY])
        assert session.metrics.cache_hits == 0
        # What came whole is.
        assert np.array_equal(array.read(KEY, method="fetch"), DATA[KEY])
        assert session.metrics.cache_hits == 14


def test_nothing_is_put_in_place_early_where_versions_cannot_be_told_apart(fake_s3, heard):
    key = stored(fake_s3)
    fake_s3.rules.append(Rule("headers", key, headers={"ETag": None}))
    with fast(index_bytes=1 << 20) as session:
        assert np.array_equal(array_at(fake_s3, "a", session).read(KEY, method="fetch"), DATA[KEY])
    assert not any(placed for _, placed in heard)


def test_an_object_that_changed_is_a_conflict(fake_s3, heard):
    key = stored(fake_s3)
    with fast(index_bytes=1 << 20) as session:
        array = opened(fake_s3, session)
        fake_s3.rules.append(Rule("headers", key, headers={"ETag": '"another"'}))
        with pytest.raises(ConflictError):
            array.read(KEY, method="fetch")
    assert not any(placed for _, placed in heard)


class Answer:
    """What obstore gives of an answer, in parts."""

    def __init__(self, *parts: int) -> None:
        self.parts = parts

    async def stream(self, min_chunk_size):
        for nbytes in self.parts:
            yield bytes(nbytes)


@pytest.mark.parametrize("parts", [(100_001,), (50_000, 50_001), (99_999, 2), (100_000, 1)])
def test_more_than_was_asked_for_is_refused_before_it_is_held(parts):
    store, arrived = locate("s3://bucket", {"anonymous": True})[0], []
    telling = store._in_parts(Answer(*parts), "a", (0, 100_000), {"e_tag": '"x"', "size": 1 << 20},
                              lambda reply, nbytes: arrived.append(nbytes))  # fmt: skip
    with pytest.raises(IntegrityError, match="got more"):
        asyncio.run(telling)
    assert all(nbytes < 100_000 for nbytes in arrived)


@pytest.mark.parametrize("parts", [(), (99_999,), (50_000, 40_000)])
def test_less_than_was_asked_for_is_not_made_up(parts):
    store = locate("s3://bucket", {"anonymous": True})[0]
    meta = {"e_tag": '"x"', "size": 1 << 20}
    data = asyncio.run(store._in_parts(Answer(*parts), "a", (0, 100_000), meta, lambda reply, nbytes: None))
    assert len(data) == sum(parts)


def test_what_was_heard_is_what_comes(fake_s3):
    data = np.random.default_rng(7).bytes(500_000)
    fake_s3.fake.objects["bucket/a"] = data
    store = locate("s3://bucket", options_for(fake_s3))[0]
    seen: list[tuple[bytes, int]] = []

    def heard(reply, nbytes):
        seen.append((bytes(reply.data[:nbytes]), len(reply.data)))
        assert reply.data.readonly
        assert (reply.object_nbytes, reply.etag is None) == (500_000, False)

    reply = asyncio.run(store.aget("a", (1000, 301_000), heard=heard))
    assert bytes(reply.data) == data[1000:301_000]
    assert seen
    for part, whole in seen:
        assert whole == 300_000
        assert 0 < len(part) < 300_000
        assert part == data[1000 : 1000 + len(part)]
    # Short ones come at once, without a word.
    seen.clear()
    assert bytes(asyncio.run(store.aget("a", (0, 60_000), heard=heard)).data) == data[:60_000]
    assert not seen
