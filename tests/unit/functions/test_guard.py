"""Memory is shared in turn, places and nonces are bounded."""

import asyncio

import pytest

from hyperslab.functions.guard import Memory, Nonces, OverloadError, ReplayError, Share


def test_memory_is_never_exceeded_and_given_in_turn():
    async def work(memory, number, nbytes, held, order):
        async with memory.taken(nbytes):
            order.append(number)
            held.append(nbytes)
            assert sum(held) <= 10
            await asyncio.sleep(0)
            held.remove(nbytes)

    async def main():
        memory, held, order = Memory(10), [], []
        await asyncio.gather(*[work(memory, n, 1 + 7 * n % 10, held, order) for n in range(100)])
        assert order == list(range(100))
        async with asyncio.timeout(30), memory.taken(10):
            pass

    asyncio.run(main())


@pytest.mark.parametrize("when", ["waiting", "woken"])
def test_who_stops_waiting_takes_nothing(when):
    async def main():
        memory = Memory(10)
        first = memory.taken(10)
        await first.__aenter__()

        async def wait():
            async with memory.taken(10):
                pass

        waiting = [asyncio.create_task(wait()) for _ in range(3)]
        await asyncio.sleep(0)
        if when == "waiting":
            waiting[0].cancel()
            await first.__aexit__(None, None, None)
        else:
            await first.__aexit__(None, None, None)
            waiting[0].cancel()
        async with asyncio.timeout(30):
            await asyncio.wait(waiting)
            assert [task.cancelled() for task in waiting] == [True, False, False]
            async with memory.taken(10):
                pass

    asyncio.run(main())


def test_a_share_is_given_at_once_or_not_at_all():
    share = Share(10, 1)
    share.enter()
    with pytest.raises(OverloadError):
        share.enter()
    share.leave()
    share.enter()
    share.take(10)
    with pytest.raises(OverloadError):
        share.take(1)
    share.give(10)
    share.take(10)


def test_nonces_are_kept_until_they_expire():
    nonces = Nonces(3)
    nonces.use("a", "1", expires=60, now=0)
    nonces.use("b", "1", expires=60, now=0)
    nonces.use("a", "2", expires=50, now=0)
    for now in (0, 59, 60):
        with pytest.raises(ReplayError):
            nonces.use("a", "1", expires=60, now=now)
    nonces.use("a", "3", expires=90, now=55)
    with pytest.raises(OverloadError):
        nonces.use("a", "4", expires=90, now=56)
    nonces.use("a", "4", expires=90, now=61)
    nonces.use("a", "1", expires=90, now=61)
