"""What a session allows at a time, over all its reads: requests in flight, bytes in memory."""

import asyncio
import threading
import time

import numpy as np
import psutil
import pytest
from support.faulty import FaultyStore
from support.hostile import CrowdProxy, array_at, bound_to, encode, fast, put, wait_until
from support.s3proxy import Rule

import hyperslab as hs
from hyperslab.errors import StoreError
from hyperslab.execute.remote import Gate
from hyperslab.store import locate, memory

DATA = np.arange(4096, dtype="i4").reshape(64, 64)
CHUNKS = (8, 8)


@pytest.fixture
def crowd():
    with CrowdProxy() as proxy:
        yield proxy


def in_threads(count, work):
    """Run a function in several threads at once; raise what one of them raised."""
    errors = []

    def one(number):
        try:
            work(number)
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    if errors:
        raise errors[0]


@pytest.mark.parametrize("layout", ["plain", "zstd", "shards-zstd"])
@pytest.mark.parametrize("limit", [1, 5])
def test_requests_in_flight_over_several_threads(crowd, layout, limit):
    put(crowd, "a", DATA, CHUNKS, layout)
    crowd.hold_s = 0.01
    with fast(concurrency=limit) as session:
        array = array_at(crowd, "a", session)
        if layout != "shards-zstd":
            crowd.crowd = limit

        def read(number):
            assert np.array_equal(array[8 * number : 8 * number + 16], DATA[8 * number : 8 * number + 16])

        in_threads(4, read)
        assert crowd.crowd <= crowd.most_in_flight <= limit


def test_two_arrays_share_the_limit(crowd):
    put(crowd, "a", DATA, CHUNKS)
    put(crowd, "b", DATA, CHUNKS)
    with fast(concurrency=6) as session:
        arrays = [array_at(crowd, name, session) for name in "ab"]
        crowd.crowd = 6
        in_threads(2, lambda number: arrays[number][...])
        assert crowd.most_in_flight == 6


def test_without_a_limit_given_each_kind_of_store_has_its_own(crowd):
    """A first read from memory, with its profile's few requests at a time, must not slow down S3."""
    put(crowd, "a", DATA, (8, 8), "zstd")
    for key, value in encode(DATA, CHUNKS, "zstd").items():
        memory("limits").put(f"a/{key}", value)
    with fast() as session:
        assert np.array_equal(hs.open("memory://limits/a", session=session)[...], DATA)
        array = array_at(crowd, "a", session)
        crowd.crowd = hs.Profile.named("memory").concurrency * 2 + 1
        assert np.array_equal(array[...], DATA)
        assert crowd.most_in_flight >= crowd.crowd


@pytest.mark.parametrize("layout", ["zstd", "plain"])
def test_a_slow_request_does_not_hold_up_the_others(crowd, layout):
    put(crowd, "a", DATA[:, :40], (8, 5), layout)
    crowd.hold_s = 0.0
    finished = []
    with fast(concurrency=10) as session:
        array = array_at(crowd, "a", session)
        # As slow as all the others together.
        last = Rule("run", key="c/0/0", run=lambda: finished.append(wait_until(lambda: len(crowd.log) == 63, 20)))
        crowd.rules.append(last)
        assert np.array_equal(array.read(method="get"), DATA[:, :40])
    assert len(crowd.log) == 64
    assert finished == [True]


def test_a_slow_read_does_not_hold_up_another(crowd):
    put(crowd, "slow", DATA, CHUNKS)
    put(crowd, "quick", DATA, CHUNKS)
    with fast(concurrency=80) as session:
        slow, quick = array_at(crowd, "slow", session), array_at(crowd, "quick", session)
        asked, others_done, seen = threading.Event(), threading.Event(), []
        hold = Rule("run", key="slow/c", run=lambda: (asked.set(), seen.append(others_done.wait(20))))
        crowd.rules.append(hold)
        reader = threading.Thread(target=lambda: slow.read(np.s_[0:8, 0:8]))
        reader.start()
        assert asked.wait(60)
        assert np.array_equal(quick[...], DATA)
        assert reader.is_alive()
        others_done.set()
        reader.join()
        assert seen == [True]


def test_bytes_in_flight_are_bounded(crowd):
    data = np.arange(12 << 20, dtype="u1").reshape(12, 1024, 1024)
    put(crowd, "a", data, (1, 1024, 1024))
    crowd.hold_s = 0.1
    with fast(memory_bytes=3 << 20, concurrency=64) as session:
        array = array_at(crowd, "a", session)
        assert np.array_equal(array[...], data)
        assert crowd.most_bytes_in_flight <= 3 << 20
        crowd.most_bytes_in_flight = 0
        in_threads(3, lambda number: array[4 * number : 4 * number + 4])
        assert crowd.most_bytes_in_flight <= 3 << 20


def test_a_request_larger_than_the_memory_goes_alone(crowd):
    data = np.random.default_rng(0).integers(0, 256, (4, 3 << 20), "u1")
    put(crowd, "a", data, (1, 3 << 20), "zstd")
    with fast(memory_bytes=1 << 20, concurrency=64, timeout_s=30) as session:
        assert np.array_equal(array_at(crowd, "a", session)[...], data)
        assert crowd.most_in_flight == 1


def test_memory_of_a_large_read(crowd):
    data = np.zeros((24, 1 << 20), "u1")
    put(crowd, "a", data, (1, 1 << 20), "zstd")
    crowd.hold_s = 0.0
    process = psutil.Process()
    with fast(memory_bytes=4 << 20) as session:
        array = array_at(crowd, "a", session)
        array[:2]
        out = np.ones_like(data)
        before, most, going = process.memory_info().rss, 0, True

        def watch():
            nonlocal most
            while going:
                most = max(most, process.memory_info().rss)
                time.sleep(0.002)

        watcher = threading.Thread(target=watch)
        watcher.start()
        array.read(out=out)
        going = False
        watcher.join()
    assert not out.any()
    assert most - before < 20 << 20


def test_a_failed_read_gives_its_memory_back(crowd):
    data = np.zeros((16, 1 << 20), "u1")
    put(crowd, "a", data, (1, 1 << 20))
    crowd.hold_s = 0.0
    with fast(memory_bytes=2 << 20, retries=0, concurrency=8) as session:
        array = array_at(crowd, "a", session)
        for attempt in range(6):
            crowd.rules.append(Rule("status", key=f"c/{attempt}/0", status=500))
            with pytest.raises(StoreError):
                array[...]
            crowd.rules.clear()
        assert not array.read(deadline=20).any()

        async def used() -> int:
            return session.limits(array.store, session.model(array.store)).memory.used_bytes

        assert session.wait(used) == 0


# The gate


def test_the_gate_lets_in_by_turns():
    async def main():
        gate, order = Gate(100), []

        async def pass_through(name, nbytes, hold_s):
            await gate.enter(nbytes)
            order.append(name)
            await asyncio.sleep(hold_s)
            gate.leave(nbytes)

        async with asyncio.TaskGroup() as group:
            for name, nbytes in [("first", 60), ("large", 100), ("small", 10), ("smaller", 5)]:
                group.create_task(pass_through(name, nbytes, 0.02))
        assert order == ["first", "large", "small", "smaller"]
        assert gate.used_bytes == 0

    asyncio.run(main())


def test_the_gate_holds_against_cancelling():
    rng = np.random.default_rng(3)

    async def main():
        gate, inside = Gate(100), 0

        async def pass_through(nbytes):
            nonlocal inside
            await gate.enter(nbytes)
            try:
                inside += nbytes
                assert inside <= 100 or inside == nbytes
                await asyncio.sleep(0)
            finally:
                inside -= nbytes
                gate.leave(nbytes)

        for _ in range(300):
            tasks = [asyncio.create_task(pass_through(int(n))) for n in rng.integers(1, 140, 12)]
            for _ in range(int(rng.integers(0, 6))):
                await asyncio.sleep(0)
            for task in tasks:
                if rng.random() < 0.5:
                    task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert gate.used_bytes == 0
        await asyncio.wait_for(gate.enter(100), 1)

    asyncio.run(main())


# Many at once


def test_eight_threads_on_one_array(fake_s3):
    put(fake_s3, "a", DATA, CHUNKS, "shards-zstd")
    with fast(cache_bytes=1 << 20) as session:
        array = array_at(fake_s3, "a", session)

        def read(number):
            rng = np.random.default_rng(number)
            for _ in range(12):
                (a, b), (c, d) = np.sort(rng.integers(0, 65, (2, 2)))
                assert np.array_equal(array[a:b, c:d], DATA[a:b, c:d])

        in_threads(8, read)
        assert session.metrics.reads == 8 * 12


def test_twenty_areads_together(fake_s3):
    put(fake_s3, "a", DATA, CHUNKS)
    with fast() as session:
        array = array_at(fake_s3, "a", session)

        async def main():
            boxes = [np.s_[n : n + 20, 2 * n : 2 * n + 9] for n in range(20)]
            for box, found in zip(boxes, await asyncio.gather(*(array.aread(box) for box in boxes)), strict=True):
                assert np.array_equal(found, DATA[box])
            assert np.array_equal(array[...], DATA)  # also the blocking way, in a running loop

        for _ in range(3):  # each in a loop of its own
            asyncio.run(main())
        in_threads(3, lambda _: asyncio.run(main()))


def test_a_loop_goes_on_while_an_aread_waits(crowd, tmp_path):
    put(crowd, "a", DATA, CHUNKS)
    asked, went_on, seen = threading.Event(), threading.Event(), []
    with fast() as session:
        array = array_at(crowd, "a", session)
        crowd.rules.append(Rule("run", times=1, run=lambda: (asked.set(), seen.append(went_on.wait(20)))))

        async def main():
            async def tick():
                ticks = 0
                while ticks < 5:
                    await asyncio.sleep(0.01)
                    ticks += asked.is_set()
                went_on.set()

            ticking = asyncio.create_task(tick())
            assert np.array_equal(await array.aread(), DATA)
            await ticking

        asyncio.run(main())
        assert seen == [True]


def test_the_faulty_store_sees_the_limit():
    for key, value in encode(DATA, CHUNKS).items():
        memory("crowded").put(f"a/{key}", value)
    with fast(concurrency=3) as session:
        store = FaultyStore(locate("memory://crowded")[0], latency_s=0.005)
        array = bound_to(session, hs.open("memory://crowded/a", session=session), store)
        in_threads(3, lambda _: array.read(method="get"))
        assert store.most_in_flight == 3
        assert len(store.log) == 3 * 64
