"""Instances of the lab's function, and the bill."""

import asyncio
import json

import pytest

from bench.lab import Billed, Counts, Provider, Reading, bill
from bench.lab.function import LabFunction
from bench.lab.presets import PRESETS, preset_named
from hyperslab.plan import Prices


class Calls:
    """A function that answers when it is told to."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.running = 0

    async def __call__(self, scope, receive, send) -> None:
        self.running += 1
        await self.may_end.wait()
        self.running -= 1
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})


async def call(app, method: str = "POST", path: str = "/") -> tuple[int, dict[bytes, bytes], bytes]:
    sent = []

    async def send(message) -> None:
        sent.append(message)

    await app({"type": "http", "method": method, "path": path}, None, send)
    return sent[0]["status"], dict(sent[0]["headers"]), sent[1]["body"]


def test_instances_are_cold_then_warm_then_there_are_no_more():
    async def check() -> None:
        calls = Calls()
        app = LabFunction(calls, Provider(cold_s=0.01, instances=2))
        first, second = asyncio.create_task(call(app)), asyncio.create_task(call(app))
        while calls.running < 2:
            await asyncio.sleep(0.001)
        status, headers, body = await call(app)
        assert (status, headers[b"retry-after"], json.loads(body)["error"]) == (429, b"1", "throttled")
        calls.may_end.set()
        assert [(await task)[0] for task in (first, second)] == [200, 200]
        assert (await call(app))[0] == 200
        seen = json.loads((await call(app, "GET", "/lab/instances"))[2])
        assert seen.pop("seconds") >= 0.02
        assert seen == {"cold": 2, "warm": 1, "refused": 1, "most_at_once": 2}
        await call(app, "DELETE", "/lab/instances")
        await call(app)
        assert app.instances.billed.cold == 3

    asyncio.run(check())


def test_an_idle_instance_is_let_go():
    async def check() -> None:
        calls = Calls()
        calls.may_end.set()
        app = LabFunction(calls, Provider(cold_s=0.0, idle_s=0.0))
        await call(app)
        await call(app)
        assert (app.instances.billed.cold, app.instances.billed.warm) == (2, 0)

    asyncio.run(check())


def test_an_instance_whose_call_fails_is_given_back_and_billed():
    async def fails(scope, receive, send) -> None:
        raise ValueError

    async def check() -> None:
        app = LabFunction(fails, Provider(cold_s=0.0, instances=1))
        for _ in range(2):
            with pytest.raises(ValueError):
                await call(app)
        assert app.instances.billed.calls == 2
        assert app.instances.billed.seconds > 0

    asyncio.run(check())


def test_a_bill_is_counts_times_prices():
    prices = Prices.named("aws")
    used = Reading(
        {
            ("client", "s3"): Counts(get=1000, head=1000, put=10, response_bytes=10**9),
            ("client", "function"): Counts(post=10**6, response_bytes=10**9),
            ("function", "s3"): Counts(get=10**6, response_bytes=10**12),
        }
    )
    found = bill(used, prices, Billed(warm=10**6, seconds=1000.0), memory_mb=1024)
    assert found.requests_usd == pytest.approx(2 * 0.0004 + 10 * prices.put_usd)
    assert found.bytes_usd == pytest.approx(2 * 0.09)
    assert found.inside_usd == pytest.approx(0.4)
    assert found.calls_usd == pytest.approx(0.20)
    assert found.compute_usd == pytest.approx(1000 * prices.function.gb_second_usd)
    parts = (found.requests_usd, found.bytes_usd, found.inside_usd, found.calls_usd, found.compute_usd)
    assert found.total_usd == pytest.approx(sum(parts))


def test_without_a_function_nothing_is_billed_for_one():
    found = bill(Reading({("client", "s3"): Counts(get=1)}), Prices.named("free"))
    assert found.total_usd == 0


def test_presets_are_the_papers_and_two_more():
    assert [preset_named(f"paper-{ms}").latency_s for ms in (50, 90, 150)] == [0.05, 0.09, 0.15]
    assert {"same-region", "internet"} < set(PRESETS)
    assert all(preset.outside.bytes_per_s <= 125e6 for preset in PRESETS.values())
    with pytest.raises(SystemExit, match="paper-50"):
        preset_named("moon")
