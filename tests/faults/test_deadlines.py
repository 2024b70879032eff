"""A read that takes too long, is interrupted, or loses its session ends soon, with nothing left running."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from support.hostile import (
    array_at,
    bound_to,
    connections_to,
    encode,
    fast,
    left_behind,
    options_for,
    put,
    settled,
    wait_until,
)
from support.s3proxy import Rule

import hyperslab as hs
from hyperslab.errors import BudgetError, DeadlineError, HyperslabError, InvalidInputError, StoreError
from hyperslab.execute import local
from hyperslab.execute.clock import Clock
from hyperslab.layout.codecs import ChunkDecoder

DATA = np.arange(4096, dtype="i4").reshape(64, 64)
CHUNKS = (8, 8)
TESTS = Path(__file__).parents[1]
layouts = pytest.mark.parametrize("layout", ["plain", "zstd", "shards", "shards-zstd"])


@pytest.fixture(autouse=True)
def nothing_left():
    with left_behind():
        yield


def tasks_of(session: hs.Session) -> int:
    """How much still runs on the session's loop."""

    async def count() -> int:
        return len(asyncio.all_tasks()) - 1

    return session.wait(count)


def assert_quiet(proxy) -> None:
    """No request comes any more; what was on its way may still arrive."""
    assert settled(proxy.log)


def on_disk(folder: Path, data: np.ndarray, chunks: tuple[int, ...], layout: str) -> Path:
    for key, value in encode(data, chunks, layout).items():
        path = folder / "a" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(value)
    return folder / "a"


class Begun(list):
    """The keys of chunks whose decoding has begun; each takes that long."""

    takes_s = 0.05


@pytest.fixture
def slow_decode(monkeypatch):
    quick, begun = ChunkDecoder.decode, Begun()

    def decode(self, data, key):
        begun.append(key)
        time.sleep(begun.takes_s)
        return quick(self, data, key)

    monkeypatch.setattr(ChunkDecoder, "decode", decode)
    return begun


# Deadlines


@layouts
@pytest.mark.parametrize("rule", [Rule("stall"), Rule("stall_body", after_bytes=2)], ids=["headers", "body"])
def test_a_deadline_on_a_stalled_store(fake_s3, layout, rule):
    put(fake_s3, "a", DATA, CHUNKS, layout)
    with fast(timeout_s=60) as session:
        array = array_at(fake_s3, "a", session)
        array[0, 0]
        idle = connections_to(fake_s3.port)
        fake_s3.rules.append(rule)
        started = time.monotonic()
        with pytest.raises(DeadlineError, match=r"deadline of 0\.3 s"):
            array.read(deadline=0.3)
        assert 0.28 < time.monotonic() - started < 30  # and not the timeout of a request
        assert tasks_of(session) == 0
        assert wait_until(lambda: connections_to(fake_s3.port) <= idle)
        fake_s3.rules.clear()
        assert np.array_equal(array[...], DATA)


def test_a_deadline_holds_for_lookups_and_data_together(fake_s3):
    put(fake_s3, "a", DATA, CHUNKS, "shards")
    with fast() as session:
        array = array_at(fake_s3, "a", session)
        fake_s3.latency_s = 1.0
        # Enough for either of them.
        with pytest.raises(DeadlineError):
            array.read(np.s_[:1, :1], method="fetch", deadline=1.5)
        assert wait_until(lambda: fake_s3.log)


def test_a_deadline_holds_while_retrying(fake_s3):
    put(fake_s3, "a", DATA, CHUNKS)
    with fast(retries=50) as session:
        array = array_at(fake_s3, "a", session)
        fake_s3.rules.append(Rule("status", status=503, code="SlowDown"))
        started = time.monotonic()
        with pytest.raises(DeadlineError):
            array.read(deadline=0.5)
        assert time.monotonic() - started < 30  # its retries would take minutes
        assert_quiet(fake_s3)


def test_a_deadline_that_is_met(fake_s3):
    put(fake_s3, "a", DATA, CHUNKS)
    with fast() as session:
        assert np.array_equal(array_at(fake_s3, "a", session).read(deadline=30), DATA)


def test_a_deadline_while_decoding(fake_s3, slow_decode):
    put(fake_s3, "a", DATA, CHUNKS, "zstd")
    with fast() as session:
        array = array_at(fake_s3, "a", session)
        for slower in (1, 4, 16):
            slow_decode.takes_s = 0.05 * slower
            with pytest.raises(DeadlineError):
                array.read(deadline=0.2 * slower)
            if slow_decode:  # on a busy machine, nothing may have come before the first deadlines
                break
        seen = len(slow_decode)
        assert 0 < seen < 64
        time.sleep(0.15)
        assert len(slow_decode) == seen


@pytest.mark.parametrize("lanes", [False, True])
def test_a_deadline_on_local_files(tmp_path, slow_decode, lanes, monkeypatch):
    if lanes:
        monkeypatch.setattr(local, "_THREAD_BYTES", 1)
    path = on_disk(tmp_path, DATA, CHUNKS, "zstd")
    with fast() as session:
        array = hs.open(path, session=session)
        with pytest.raises(DeadlineError, match=r"deadline of 0\.2 s"):
            array.read(deadline=0.2)
        seen = len(slow_decode)
        assert seen < 64
        time.sleep(0.15)
        assert len(slow_decode) == seen


def test_a_deadline_on_mapped_files(tmp_path, monkeypatch):
    path = on_disk(tmp_path, DATA, CHUNKS, "plain")
    placed = local.place_chunk

    def place(*arguments):
        time.sleep(0.02)
        placed(*arguments)

    monkeypatch.setattr(local, "place_chunk", place)
    with fast() as session, pytest.raises(DeadlineError):
        hs.open(path, session=session).read(deadline=0.1)


def test_an_error_in_one_thread_stops_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(local, "_THREAD_BYTES", 1)
    path = on_disk(tmp_path, DATA, CHUNKS, "zstd")
    (path / "c/0/1").write_bytes(b"damaged")
    quick, stop, begun, stopped = ChunkDecoder.decode, Clock.stop, [], threading.Event()

    def decode(self, data, key):
        begun.append(key)
        # The others are at one chunk each when that one fails.
        assert "c/0/1" in key or stopped.wait(60)
        return quick(self, data, key)

    monkeypatch.setattr(ChunkDecoder, "decode", decode)
    monkeypatch.setattr(Clock, "stop", lambda self: (stop(self), stopped.set()))
    with fast() as session:
        array = hs.open(path, session=session)
        with pytest.raises(HyperslabError, match="c/0/1"):
            array[...]
        seen = len(begun)
        assert seen <= local._LANES
        time.sleep(0.15)
        assert len(begun) == seen


def test_the_seconds_of_a_budget_hold(fake_s3):
    put(fake_s3, "a", DATA, CHUNKS)
    profile = hs.Profile("instant", 0.0, (1,), (1e12,), 64)
    with fast(profile=profile) as session:
        array = array_at(fake_s3, "a", session)
        fake_s3.rules.append(Rule("stall"))
        with pytest.raises(BudgetError, match=r"seconds: 0\.3"):
            array.read(budget=hs.Budget(seconds=0.3))
        with pytest.raises(DeadlineError):
            array.read(budget=hs.Budget(seconds=9), deadline=0.2)
    with fast(profile=profile, budget=hs.Budget(seconds=0.3)) as session:
        fake_s3.clear()
        array = array_at(fake_s3, "a", session)
        fake_s3.rules.append(Rule("stall"))
        with pytest.raises(BudgetError, match="seconds"):
            array[...]


@pytest.mark.parametrize("timeout_s", [0.2, 1.0])
def test_the_timeout_of_a_request(fake_s3, timeout_s):
    put(fake_s3, "a", DATA, CHUNKS)
    with fast() as patient, fast(timeout_s=timeout_s, retries=0) as session:
        array = bound_to(session, array_at(fake_s3, "a", patient))
        fake_s3.rules.append(Rule("stall"))
        started = time.monotonic()
        with pytest.raises(StoreError, match="try again"):
            array[0, 0]
        assert timeout_s * 0.9 < time.monotonic() - started < timeout_s + 30


def test_a_request_that_stalls_once_is_sent_again(fake_s3):
    put(fake_s3, "a", DATA, CHUNKS)
    # Long enough for all the others, also on a busy machine.
    with fast() as patient, fast(timeout_s=4.0) as session:
        array = bound_to(session, array_at(fake_s3, "a", patient))
        fake_s3.rules.append(Rule("stall", times=1))
        assert np.array_equal(array[...], DATA)
        assert session.metrics.retries == 1


# Ctrl-C

PROGRAM = """
    import asyncio, sys, threading, time
    import hyperslab as hs
    from hyperslab.layout.codecs import ChunkDecoder

    quick, begun, words = ChunkDecoder.decode, [], iter(["decoding"])
    def decode(self, data, key):
        begun.append(key)
        for word in words:
            print(word, flush=True)
        time.sleep({decode_s})
        return quick(self, data, key)
    ChunkDecoder.decode = decode

    url, options, action = {url!r}, {options!r}, {action!r}
    session = hs.Session(timeout_s=60)
    try:
        print("begun", flush=True)
        array = hs.open(url, storage_options=options or None, session=session)
        print("opened", flush=True)
        if action in ("read", "local"):
            array[...]
        elif action == "aread":
            asyncio.run(array.aread())
        print("ended", flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        async def count():
            return len(asyncio.all_tasks()) - 1
        print("running", session.wait(count) if action != "local" else 0, flush=True)
        started = time.monotonic()
        session.close()
        quick_close = time.monotonic() - started < 20
        left = [thread.name for thread in threading.enumerate() if "hyperslab" in thread.name]
        print("left", left, quick_close, len(begun) < 64, flush=True)
"""


DECODING = ("begun", "opened", "decoding")


def asked_for_chunks(proxy) -> bool:
    return any("/c/" in entry.path for entry in proxy.log)


def interrupted(url, options, action, *, ready=lambda: True, steps=("begun", "opened"), decode_s=0.0) -> float:
    """Run a program that reads, interrupt it after these steps and when `ready`, and return how long it took to end."""
    code = textwrap.dedent(PROGRAM).format(url=str(url), options=options, action=action, decode_s=decode_s)
    program = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert program.stdout is not None
        for step in steps:
            assert program.stdout.readline().strip() == step
        assert wait_until(ready)
        time.sleep(0.2)
        started = time.monotonic()
        program.send_signal(signal.SIGINT)
        out, error = program.communicate(timeout=50)
        took = time.monotonic() - started
    finally:
        program.kill()
        program.communicate()
    assert out == "interrupted\nrunning 0\nleft [] True True\n", (out, error)
    assert program.returncode == 0, error
    assert "Traceback" not in error
    assert "never awaited" not in error
    assert "never retrieved" not in error
    return took


@pytest.mark.parametrize("layout", ["plain", "zstd", "shards"])
@pytest.mark.parametrize("action", ["read", "aread"])
def test_an_interrupt_on_a_stalled_store(fake_s3, layout, action):
    put(fake_s3, "a", DATA, CHUNKS, layout)
    fake_s3.rules.append(Rule("stall", key="/c/"))
    assert interrupted("s3://bucket/a", options_for(fake_s3), action, ready=lambda: asked_for_chunks(fake_s3)) < 10
    assert_quiet(fake_s3)


def test_an_interrupt_on_a_slow_store(fake_s3):
    put(fake_s3, "a", DATA, (1, 8))
    fake_s3.rules.append(Rule("run", key="/c/", run=lambda: time.sleep(0.2)))
    assert interrupted("s3://bucket/a", options_for(fake_s3), "read", ready=lambda: asked_for_chunks(fake_s3)) < 10


def test_an_interrupt_while_opening(fake_s3):
    fake_s3.rules.append(Rule("stall"))
    assert interrupted("s3://bucket/a", options_for(fake_s3), "open", ready=lambda: fake_s3.log, steps=("begun",)) < 10


def test_an_interrupt_while_threads_decode(fake_s3):
    put(fake_s3, "a", DATA, CHUNKS, "zstd")
    assert interrupted("s3://bucket/a", options_for(fake_s3), "read", steps=DECODING, decode_s=1.0) < 10


def test_an_interrupt_while_local_files_are_decoded(tmp_path):
    data = np.arange(1 << 22, dtype="i4").reshape(1024, 4096)  # enough for several threads
    path = on_disk(tmp_path, data, (64, 1024), "zstd")
    assert interrupted(path, {}, "local", steps=DECODING, decode_s=1.0) < 10


# Closing


@layouts
def test_closing_the_session_under_a_read(fake_s3, layout):
    put(fake_s3, "a", DATA, CHUNKS, layout)
    session = hs.Session(timeout_s=60)
    array = array_at(fake_s3, "a", session)
    fake_s3.rules.append(Rule("stall"))
    errors = []

    def read():
        try:
            array[...]
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    assert wait_until(lambda: len(fake_s3.log) >= 3)
    started = time.monotonic()
    session.close()
    for reader in readers:
        reader.join(30)
    assert not any(reader.is_alive() for reader in readers)
    assert time.monotonic() - started < 30
    assert [type(error) for error in errors] == [InvalidInputError] * 3
    assert all("closed" in str(error) for error in errors)
    with pytest.raises(InvalidInputError, match="session is closed"):
        array[...]
    assert session.closed
    session.close()


def test_closing_the_session_under_an_aread(fake_s3):
    put(fake_s3, "a", DATA, CHUNKS)
    session = hs.Session(timeout_s=60)
    array = array_at(fake_s3, "a", session)
    fake_s3.rules.append(Rule("stall"))

    async def main():
        task = asyncio.create_task(array.aread())
        while not fake_s3.log:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(session.close)
        with pytest.raises(InvalidInputError, match="closed while"):
            await task
        assert not task.cancelled()

    asyncio.run(asyncio.wait_for(main(), 50))


@pytest.mark.parametrize("layout", ["plain", "zstd"])
def test_closing_the_session_under_a_local_read(tmp_path, layout, slow_decode, monkeypatch):
    monkeypatch.setattr(local, "_THREAD_BYTES", 1)
    monkeypatch.setattr(local, "_LANES", 16)  # more than there are threads: some wait for their turn
    placed = local.place_chunk
    monkeypatch.setattr(local, "place_chunk", lambda *arguments: (time.sleep(0.02), placed(*arguments)))
    path = on_disk(tmp_path, DATA, CHUNKS, layout)
    session = hs.Session(cache_bytes=0)
    array = hs.open(path, session=session)
    outcome = []

    def read():
        try:
            outcome.append(array[...])
        except Exception as error:  # noqa: BLE001
            outcome.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    time.sleep(0.1)
    session.close()
    reader.join(60)
    assert not reader.is_alive()
    (found,) = outcome
    if isinstance(found, Exception):
        assert isinstance(found, InvalidInputError)
    else:
        assert np.array_equal(found, DATA)


def test_closing_while_others_begin_to_read(fake_s3):
    put(fake_s3, "a", DATA, CHUNKS)
    for _ in range(5):
        session = hs.Session()
        array = array_at(fake_s3, "a", session)
        outcomes = []

        def read(array=array, outcomes=outcomes):
            for _ in range(200):
                try:
                    outcomes.append(bool(np.array_equal(array[0:9, 0:9], DATA[0:9, 0:9])))
                except InvalidInputError as error:
                    outcomes.append("closed" in str(error))
                    return

        readers = [threading.Thread(target=read) for _ in range(4)]
        for reader in readers:
            reader.start()
        time.sleep(0.05)
        session.close()
        for reader in readers:
            reader.join(60)
            assert not reader.is_alive()
        assert outcomes
        assert all(outcomes)


def test_a_forgotten_session_ends_its_threads(fake_s3):
    put(fake_s3, "a", DATA, CHUNKS, "zstd")
    array = array_at(fake_s3, "a", hs.Session())
    assert np.array_equal(array[...], DATA)
    del array  # `nothing_left` looks for the threads


def test_reading_and_closing_many_sessions_leaves_nothing(fake_s3):
    put(fake_s3, "a", DATA, CHUNKS, "zstd")
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    threads = threading.active_count()  # other tests may have left some
    for _ in range(20):
        with hs.Session() as session:
            assert np.array_equal(array_at(fake_s3, "a", session)[...], DATA)
    # Connections end in threads of the network's runtime and of the server, a moment later.
    if before:
        assert wait_until(lambda: len(os.listdir("/proc/self/fd")) < before + 20)
    assert wait_until(lambda: threading.active_count() < threads + 20)


# Cancelling


@pytest.mark.parametrize("layout", ["plain", "zstd", "shards"])
def test_cancelling_an_aread_cancels_its_requests(fake_s3, layout):
    put(fake_s3, "a", DATA, CHUNKS, layout)
    with fast(timeout_s=60) as session:
        array = array_at(fake_s3, "a", session)
        fake_s3.rules.append(Rule("stall"))

        async def main():
            task = asyncio.create_task(array.aread())
            while len(fake_s3.log) < 8:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        # The one by which it was opened is kept; whether a request takes that one is left to chance.
        idle = connections_to(fake_s3.port)
        asyncio.run(asyncio.wait_for(main(), 50))
        assert wait_until(lambda: tasks_of(session) == 0)
        assert wait_until(lambda: connections_to(fake_s3.port) <= idle)
        assert_quiet(fake_s3)
        fake_s3.rules.clear()
        assert np.array_equal(array[...], DATA)


def test_cancelling_a_local_aread_stops_it(tmp_path, slow_decode):
    path = on_disk(tmp_path, DATA, CHUNKS, "zstd")
    slow_decode.takes_s = 0.2
    with fast() as session:
        array = hs.open(path, session=session)

        async def main():
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(array.aread(), 0.2)

        asyncio.run(main())
        assert settled(slow_decode, 0.6)
        assert len(slow_decode) < 64


def test_a_cancelled_read_writes_no_more(fake_s3, slow_decode):
    put(fake_s3, "a", DATA, CHUNKS, "zstd")
    out = np.zeros_like(DATA)
    with fast() as session:
        array = array_at(fake_s3, "a", session)
        with pytest.raises(DeadlineError):
            array.read(out=out, deadline=0.2)
        out[...] = 7
        time.sleep(0.2)
        assert (out == 7).all()
