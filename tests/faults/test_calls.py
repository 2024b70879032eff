"""A function that is down, slow, refuses or lies: the cells come all the same, within budget and deadline."""

import asyncio
import gc
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from dataclasses import replace
from functools import cache

import numcodecs
import numpy as np
import pytest
from support.calling import KEY
from support.fake_function import FakeFunction, failing, header_of, repacked, with_header
from support.forking import in_child
from support.hostile import (
    array_at,
    bound_to,
    connections_to,
    fast,
    left_behind,
    options_for,
    put,
    sent,
    settled,
    wait_until,
)
from support.s3proxy import Rule, S3Proxy

import hyperslab as hs
from hyperslab.errors import AccessError, BudgetError, ConflictError, DeadlineError, IntegrityError, InvalidInputError
from hyperslab.execute import calling, retry
from hyperslab.execute.calling import FunctionWarning
from hyperslab.execute.profiles import find_known, save_profile
from hyperslab.layout.checksums import crc32c
from hyperslab.plan import FunctionProfile
from hyperslab.selection import parse_points
from hyperslab.store import locate

DATA = np.random.default_rng(5).integers(0, 1 << 30, (64, 64)).astype("i4")
CHUNKS = (16, 16)
BOX = np.s_[1:60:9, 2:63:11]
# Calls are best by far, two or three of them for all chunks: bytes are slow, and each request takes us 2 ms of work.
PROFILE = hs.Profile(
    "calls", 1e-3, (1,), (1e5,), 8, 2e-3, function=FunctionProfile(1e-5, 1e-9, at_once=3, chunk_s=1e-3)
)
LAYOUTS = ("plain", "zstd", "shards-zstd")
layouts = pytest.mark.parametrize("layout", LAYOUTS)
both_ways = pytest.mark.parametrize("method", [None, "call"])
# As it is, for those tests that want it.
CHECK = sys.modules["hyperslab.execute.read"]._check_function


@pytest.fixture(autouse=True)
def trusted(monkeypatch):
    """The request by which a function's first answer is held against the store is not counted; it has its own tests."""

    async def believed(*_: object) -> None:
        return None

    monkeypatch.setattr(sys.modules["hyperslab.execute.read"], "_check_function", believed)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(retry, "_FIRST_S", 0.002)


@pytest.fixture
def function(fake_s3):
    """A function that reads the same objects, by a way of its own: its requests are not in `fake_s3.log`."""
    with S3Proxy(fake=fake_s3.fake) as beside:
        store, _ = locate("s3://bucket", {"endpoint": beside.endpoint, "anonymous": True})
        with FakeFunction(store) as made:
            yield made


@pytest.fixture
def quiet():
    """What is said of a function that fails is looked at elsewhere."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FunctionWarning)
        yield


def session_of(fake, **settings):
    return fast(**{"function": fake.function, "profile": PROFILE, "prices": "aws", **settings})


def tasks_of(session: hs.Session) -> int:
    """How much still runs on the session's loop."""

    async def count() -> int:
        return len(asyncio.all_tasks()) - 1

    return session.wait(count)


# What can go wrong with one call


def _cut(function):
    function.close_server()


def _rule(*args, **options):
    return lambda function: function.rules.append(Rule(*args, method="POST", **options))


def _status(status, **headers):
    return lambda function: function.rules.append(failing(status, **headers))


def _lie(edit):
    return lambda function: function.lie(edit)


def _header(change):
    """Answers whose header is changed."""

    def edit(request, body):
        header, payload = header_of(body)
        change(header)
        return with_header(header, payload)

    return _lie(edit)


def _bomb(request, body):
    """Sizes and checksum hold; the cells would be 64 MB when unpacked."""
    header, _ = header_of(body)
    header |= {"zstd": True, "crc32c": int(crc32c(np.frombuffer(_zeros(), "u1")))}
    return with_header(header, _zeros())


@cache
def _zeros() -> bytes:
    return numcodecs.Zstd(1).encode(bytes(64 << 20))


FAULTS = {
    "not there": _cut,
    "hangs": _rule("stall"),
    "hangs in its answer": _rule("stall_body", after_bytes=30),
    "breaks off": _rule("truncate", after_bytes=30),
    "breaks off before its answer": _rule("drop"),
    "no http": _rule("garbage"),
    "re-encoded": _rule("headers", headers={"Content-Encoding": "gzip"}),
    "400": _status(400),
    "401": _status(401),
    "403": _status(403),
    "404": _status(404),
    "409": _status(409),
    "413": _status(413),
    "422": _status(422),
    "429": _status(429, retry_after="7"),
    "500": _status(500),
    "502": _status(502),
    "503": _status(503),
    "503 for a while": _status(503, retry_after="7"),
    "504": _status(504),
    "redirect": _status(307, location="http://127.0.0.1:9/"),
    "other redirect": _status(301, location="/"),
    "one byte more": _lie(lambda request, body: body + b"x"),
    "a megabyte more": _lie(lambda request, body: body + bytes(1 << 20)),
    "one byte less": _lie(lambda request, body: body[:-1]),
    "nothing": _lie(lambda request, body: b""),
    "a page": _lie(lambda request, body: b"<html><body>Welcome!</body></html>"),
    "another byte": _lie(lambda request, body: body[:-1] + bytes([body[-1] ^ 1])),
    "another checksum": _header(lambda header: header.update(crc32c=7)),
    "longer chunks": _header(lambda header: header["chunks"][0].__setitem__(0, header["chunks"][0][0] + 1)),
    "fewer chunks": _header(lambda header: header["chunks"].pop()),
    "no chunks": _header(lambda header: header.update(chunks=None)),
    "header of another kind": _lie(lambda request, body: with_header([1, 2], b"")),
    "huge": _header(lambda header: header.update(payload_nbytes=1 << 60)),
    "not compressed": _header(lambda header: header.update(zstd=True)),
    "a bomb": _lie(_bomb),
    "not a number": _header(lambda header: header.update(seconds=float("nan"))),
    "tag of two lines": _header(lambda header: header["chunks"][0].__setitem__(1, "a\r\nb")),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.usefixtures("quiet")
def test_what_fails_is_fetched(fake_s3, function, fault):
    number = list(FAULTS).index(fault)
    layout, method = LAYOUTS[number % 3], (None, "call")[number % 2]
    put(fake_s3, "a", DATA, CHUNKS, layout)
    with session_of(function, timeout_s=4 if "hangs" in fault else 30) as session:
        array = array_at(fake_s3, "a", session)
        before = session.metrics.snapshot()
        FAULTS[fault](function)
        assert np.array_equal(array.read(BOX, method=method), DATA[BOX])
        after = session.metrics.snapshot()
        assert after.calls > 0
        # All that was sent is counted: what failed, and what came instead.
        assert function.calls() == after.calls or fault == "not there"
        requests, nbytes = sent(fake_s3)
        assert requests == after.requests + after.lookups - before.lookups
        assert nbytes == after.bytes - after.call_bytes - before.bytes
        # Failed calls are billed as well.
        assert after.function_gets > 0
        assert after.function_s > 0
        assert tasks_of(session) == 0


@pytest.mark.usefixtures("quiet")
def test_bytes_of_failed_answers_are_counted(fake_s3, function):
    put(fake_s3, "a", DATA, CHUNKS)
    with session_of(function) as session:
        array = array_at(fake_s3, "a", session)
        function.lie(lambda request, honest: honest[:-1] + bytes([honest[-1] ^ 1]))
        assert np.array_equal(array.read(BOX, method="call"), DATA[BOX])
        assert session.metrics.call_bytes == function.body_bytes()
        assert session.metrics.calls == function.calls()


@pytest.mark.parametrize("layout", ["plain", "zstd"])
@pytest.mark.usefixtures("quiet")
def test_some_calls_fail(fake_s3, function, layout):
    """Only what those were to bring is fetched."""
    put(fake_s3, "a", DATA, CHUNKS, layout)
    with session_of(function) as session:
        array = array_at(fake_s3, "a", session)
        planned = array.explain(BOX, method="call").plan
        assert len(planned.calls) > 1
        function.rules.append(failing(500, times=1))
        assert np.array_equal(array.read(BOX, method="call"), DATA[BOX])
        assert session.metrics.calls == len(planned.calls)
        data_keys = {each.key for each in fake_s3.gets() if each.status in (200, 206)}
        assert len(data_keys) in {len(call.owners) for call in planned.calls}


# Answers that cannot be told from honest ones by themselves


@both_ways
@layouts
def test_that_chunks_are_not_stored_is_not_believed(fake_s3, function, layout, method):
    put(fake_s3, "a", DATA, CHUNKS, layout)
    with session_of(function) as session:
        array = array_at(fake_s3, "a", session)
        function.lie(repacked(lambda reply: replace(reply, answers=[replace(a, data=None) for a in reply.answers])))
        assert np.array_equal(array.read(BOX, method=method), DATA[BOX])
        assert function.calls() == session.metrics.calls > 0


@both_ways
def test_chunks_that_are_not_stored(fake_s3, function, method):
    put(fake_s3, "a", DATA, CHUNKS)
    del fake_s3.fake.objects["bucket/a/c/0/1"]
    wanted = DATA.copy()
    wanted[:16, 16:32] = 77
    with session_of(function) as session:
        array = array_at(fake_s3, "a", session)
        assert np.array_equal(array.read(BOX, method=method), wanted[BOX])
        assert {each.key for each in fake_s3.gets()} == {"a/c/0/1"}


@both_ways
@pytest.mark.usefixtures("quiet")
def test_cells_of_another_version_are_not_taken(fake_s3, function, method):
    """The index says which version of the shard it belongs to."""
    put(fake_s3, "a", DATA, CHUNKS, "shards-zstd")
    with session_of(function) as session:
        array = array_at(fake_s3, "a", session)
        function.lie(repacked(lambda reply: replace(reply, answers=[replace(a, etag='"x"') for a in reply.answers])))
        assert np.array_equal(array.read(BOX, method=method), DATA[BOX])
        assert session.metrics.requests > 0


@pytest.mark.usefixtures("quiet")
def test_cells_of_other_shards_are_not_taken(fake_s3, function):
    put(fake_s3, "a", DATA, CHUNKS, "shards-zstd")
    with session_of(function) as session:
        array = array_at(fake_s3, "a", session)
        function.lie(repacked(lambda reply: replace(reply, answers=reply.answers[::-1])))
        assert np.array_equal(array.read(np.s_[::16, ::16], method="call"), DATA[::16, ::16])


def test_sizes_that_cannot_be_are_looked_up(fake_s3, function):
    put(fake_s3, "a", DATA, CHUNKS)
    with session_of(function) as session:
        array = array_at(fake_s3, "a", session)
        function.lie(
            repacked(lambda reply: replace(reply, answers=[replace(a, object_nbytes=9999) for a in reply.answers]))
        )
        assert np.array_equal(array.read(BOX, method="call"), DATA[BOX])
        assert session.metrics.requests == len(fake_s3.gets()) > 0


def test_an_object_that_changes_between_index_and_call(fake_s3, function):
    put(fake_s3, "a", DATA, CHUNKS, "shards-zstd")
    with session_of(function) as session:
        array = array_at(fake_s3, "a", session)
        change = Rule("run", method="POST", times=1, run=lambda: put(fake_s3, "a", DATA + 1, CHUNKS, "shards-zstd"))
        function.rules.append(change)
        with pytest.raises(ConflictError, match="refresh"):
            array.read(BOX, method="call")
        assert np.array_equal(array.refresh().read(BOX, method="call"), DATA[BOX] + 1)


def test_damaged_data_is_told_by_the_reader_itself(fake_s3, function):
    put(fake_s3, "a", DATA, CHUNKS, "crc")
    damaged = bytearray(fake_s3.fake.objects["bucket/a/c/0/0"])
    damaged[7] ^= 1
    fake_s3.fake.objects["bucket/a/c/0/0"] = bytes(damaged)
    with session_of(function) as session:
        array = array_at(fake_s3, "a", session)
        with pytest.raises(IntegrityError, match="c/0/0"):
            array.read(BOX, method="call")
        assert np.array_equal(array.read(np.s_[16:], method="call"), DATA[16:])
        assert not session.caller.is_resting()  # it was right


# Left alone for a while


class Time:
    """A clock that goes on when it is put forward, and only then."""

    def __init__(self) -> None:
        self.began_s, self.ahead_s = time.monotonic(), 0.0

    def monotonic(self) -> float:
        return self.began_s + self.ahead_s


@pytest.fixture
def clock(monkeypatch):
    made = Time()
    monkeypatch.setattr(calling, "time", made)
    return made


def reads(array, function, times=3):
    """Read some times; return the calls that were sent and what was warned of."""
    before = function.calls()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(times):
            assert np.array_equal(array[BOX], DATA[BOX])
    return function.calls() - before, [each.message for each in said if each.category is FunctionWarning]


def test_a_function_that_is_down_is_left_alone(fake_s3, function, clock):
    put(fake_s3, "a", DATA, CHUNKS)
    with session_of(function) as session:
        array = array_at(fake_s3, "a", session)
        assert reads(array, function)[0] > 0
        function.rules.append(failing(500))
        called, said = reads(array, function, 5)
        assert called >= 2
        assert len(said) == 1
        assert "answered 500" in str(said[0])
        assert "for 30 s" in str(said[0])
        assert reads(array, function, 5) == (0, [])
        assert not array.explain[BOX].plan.calls
        # Tried again when its rest is over; nothing new to tell.
        clock.ahead_s += 31
        called, said = reads(array, function, 5)
        assert called > 0
        assert not said
        clock.ahead_s += 31
        assert reads(array, function) == (0, [])  # twice as long now
        clock.ahead_s += 31
        function.rules.clear()
        called, said = reads(array, function)
        assert called >= 3
        assert not said
        # It was well again: the next failure is news.
        function.rules.append(failing(500))
        assert len(reads(array, function)[1]) == 1


def test_a_function_may_say_how_long(fake_s3, function, clock):
    put(fake_s3, "a", DATA, CHUNKS)
    with session_of(function, concurrency=1) as session:
        array = array_at(fake_s3, "a", session)
        function.rules.append(failing(503, retry_after="7"))
        called, said = reads(array, function)
        assert called == 1
        assert "for 7 s" in str(said[0])
        clock.ahead_s += 6
        assert reads(array, function) == (0, [])
        clock.ahead_s += 1.5
        function.rules.clear()
        assert reads(array, function)[0] >= 3


@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal_is_taken_for_what_it_is(fake_s3, function, clock, status):
    put(fake_s3, "a", DATA, CHUNKS)
    with session_of(function, concurrency=1) as session:
        array = array_at(fake_s3, "a", session)
        function.rules.append(failing(status))
        called, said = reads(array, function)
        assert (called, len(said)) == (1, 1)
        clock.ahead_s += 500
        assert reads(array, function) == (0, [])


def test_a_wrong_key_is_refused_by_the_real_handler(fake_s3, function):
    put(fake_s3, "a", DATA, CHUNKS)
    wrong = hs.Function(function.function.url, key=f"{KEY.id}:{'00' * 32}")
    with session_of(function, function=wrong) as session:
        array = array_at(fake_s3, "a", session)
        with pytest.warns(FunctionWarning, match="answered 401"):
            assert np.array_equal(array[BOX], DATA[BOX])
        assert "00" * 8 not in str(session.function)


def test_a_single_failure_is_forgiven(fake_s3, function):
    put(fake_s3, "a", DATA, CHUNKS)
    with session_of(function) as session:
        array = array_at(fake_s3, "a", session)
        for _ in range(3):
            function.rules.append(failing(500, times=1))
            called, said = reads(array, function, 2)
            assert called >= 2
            assert not said


@pytest.mark.usefixtures("quiet")
def test_forced_calls_are_sent_to_one_that_rests(fake_s3, function):
    put(fake_s3, "a", DATA, CHUNKS)
    with session_of(function) as session:
        array = array_at(fake_s3, "a", session)
        function.rules.append(failing(500))
        for _ in range(2):
            before = function.calls()
            assert np.array_equal(array.read(BOX, method="call"), DATA[BOX])
            assert function.calls() > before


@pytest.mark.filterwarnings("error")
def test_a_warning_does_not_stand_before_an_error(fake_s3, function):
    put(fake_s3, "a", DATA, CHUNKS)
    with session_of(function, retries=0) as session:
        array = array_at(fake_s3, "a", session)
        function.rules.append(failing(401))
        fake_s3.rules.append(Rule("status", status=403, code="AccessDenied"))
        with pytest.raises(AccessError):
            array[BOX]


# What is learned


@pytest.fixture
def measured(fake_s3, monkeypatch, tmp_path):
    """The store was measured, and is as it was: the address that sessions find it by."""
    monkeypatch.setenv("HYPERSLAB_HOME", str(tmp_path))
    put(fake_s3, "a", DATA, CHUNKS)
    address = locate("s3://bucket", options_for(fake_s3))[0].address
    save_profile(address, replace(PROFILE, function=FunctionProfile(0.0, 0.0, at_once=1, chunk_s=0.002, cut_s=0.0)))
    return address


def test_reads_that_fail_teach_nothing(fake_s3, function, measured):
    with session_of(function, profile=None, timeout_s=60) as session:
        array = array_at(fake_s3, "a", session)
        fake_s3.rules.append(Rule("stall"))
        for _ in range(10):
            with pytest.raises(DeadlineError):
                array.read(np.s_[0, 0], method="get", deadline=0.05)
    assert find_known(measured).learner.to_dict()["answers"]["seen"] == []


def test_what_is_billed_is_not_how_long_it_ran(fake_s3, function, measured):
    """A provider that bills a tenth of a second at least does not make the function slow."""
    azure = hs.Function(function.function.url, key=KEY, provider="azure")
    function.lie(repacked(lambda reply: replace(reply, seconds=0.002 * reply.gets)))
    with session_of(function, profile=None, function=azure) as session:
        array = array_at(fake_s3, "a", session)
        for _ in range(10):
            array.read(BOX, method="call")
        assert session.metrics.function_s == pytest.approx(0.1 * session.metrics.calls)
    seen = find_known(measured).learner.to_dict()["function"]["seen"]
    assert seen == pytest.approx([1.0] * 10)


# Budgets and deadlines


@pytest.mark.usefixtures("quiet")
@both_ways
@pytest.mark.parametrize("limit", ["requests", "bytes", "usd"])
def test_a_budget_that_does_not_hold_what_comes_instead(fake_s3, function, limit, method):
    put(fake_s3, "a", DATA, CHUNKS, "zstd")
    with session_of(function, budget=hs.Budget(requests=1000)) as session:
        array = array_at(fake_s3, "a", session)
        before = session.metrics.snapshot()
        estimate = array.explain(BOX, method=method).plan.estimate
        assert (estimate.requests, estimate.calls > 0) == (0, True)
        exact = {"requests": estimate.calls, "bytes": estimate.all_bytes + 4096, "usd": estimate.usd * 1.5}
        budget = hs.Budget(**{limit: exact[limit]})
        assert np.array_equal(array.read(BOX, method=method, budget=budget), DATA[BOX])
        function.rules.append(failing(500))
        with pytest.raises(BudgetError, match=limit):
            array.read(BOX, method=method, budget=budget)
        assert not fake_s3.log
        calls = session.metrics.calls - before.calls
        assert function.calls() == calls
        assert session.account.left().requests == 1000 - calls


def test_a_budget_is_refused_before_the_first_call(fake_s3, function):
    put(fake_s3, "a", DATA, CHUNKS)
    with session_of(function) as session:
        array = array_at(fake_s3, "a", session)
        calls = array.explain(BOX, method="call").plan.estimate.calls
        with pytest.raises(BudgetError):
            array.read(BOX, method="call", budget=hs.Budget(requests=calls - 1))
        assert not function.log


@both_ways
def test_a_deadline_shorter_than_the_function_hangs(fake_s3, function, method):
    put(fake_s3, "a", DATA, CHUNKS)
    with left_behind(), session_of(function, timeout_s=60) as session:
        array = array_at(fake_s3, "a", session)
        function.rules.append(Rule("stall", method="POST"))
        started = time.monotonic()
        with pytest.raises(DeadlineError, match=r"deadline of 0\.3 s"):
            array.read(BOX, method=method, deadline=0.3)
        assert time.monotonic() - started < 30
        assert not fake_s3.log
        assert tasks_of(session) == 0
        assert wait_until(lambda: connections_to(function.port) == 0)
        function.rules.clear()
        assert np.array_equal(array.read(BOX, method=method, deadline=60), DATA[BOX])


@pytest.mark.usefixtures("quiet")
def test_a_deadline_holds_for_calls_and_what_comes_instead(fake_s3, function):
    put(fake_s3, "a", DATA, CHUNKS)
    with fast() as patient, session_of(function, timeout_s=0.2, retries=1000) as session:
        array = bound_to(session, array_at(fake_s3, "a", patient))
        function.rules.append(Rule("stall", method="POST"))
        fake_s3.rules.append(Rule("stall"))
        started = time.monotonic()
        with pytest.raises(DeadlineError):
            array.read(BOX, method="call", deadline=2.0)
        assert time.monotonic() - started < 30
        assert fake_s3.log
        assert tasks_of(session) == 0


def test_an_error_of_the_store_ends_the_calls_too(fake_s3, function):
    """One plan, both ways: two reads of one encoded object are fetched, while the function hangs."""
    put(fake_s3, "a", DATA, CHUNKS, "zstd")
    with session_of(function, timeout_s=60, retries=0) as session:
        array = array_at(fake_s3, "a", session)
        function.rules.append(Rule("stall", method="POST"))
        fake_s3.rules.append(Rule("status", status=403, code="AccessDenied", run=lambda: wait_until(function.calls)))
        with pytest.raises(AccessError):
            hs.read_many([(array, np.s_[0, 0]), (array, np.s_[::5, ::5])], method="call")
        assert 0 < function.calls() <= session.metrics.calls
        assert tasks_of(session) == 0
        assert wait_until(lambda: connections_to(function.port) == 0)


# Interrupted, cancelled, closed, forked


def test_cancelling_an_aread_cancels_its_calls(fake_s3, function):
    put(fake_s3, "a", DATA, CHUNKS)
    with left_behind(), session_of(function, timeout_s=60) as session:
        array = array_at(fake_s3, "a", session)
        function.rules.append(Rule("stall", method="POST"))

        async def main():
            task = asyncio.create_task(array.aread(BOX, method="call"))
            while not function.log:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(asyncio.wait_for(main(), 50))
        assert wait_until(lambda: tasks_of(session) == 0)
        assert wait_until(lambda: connections_to(function.port) == 0)
        assert settled(function.log)
        assert not fake_s3.log
        function.rules.clear()
        assert np.array_equal(array.read(BOX, method="call"), DATA[BOX])


PROGRAM = """
    import asyncio, threading, time
    import numpy as np
    import hyperslab as hs

    session = hs.Session(timeout_s=60, cache_bytes=0)
    array = hs.open("s3://bucket/a", storage_options={options!r}, session=session)
    try:
        print("opened", flush=True)
        array.read(np.s_[1:60:5, 2:63:7], method="call")
        print("ended", flush=True)
    except KeyboardInterrupt:
        async def count():
            return len(asyncio.all_tasks()) - 1
        print("running", session.wait(count), flush=True)
        session.close()
        print("left", [thread.name for thread in threading.enumerate() if "hyperslab" in thread.name], flush=True)
"""


def test_an_interrupt_in_the_middle_of_a_call(fake_s3, function):
    """The function is named by the environment."""
    put(fake_s3, "a", DATA, CHUNKS)
    function.rules.append(Rule("stall", method="POST"))
    code = textwrap.dedent(PROGRAM).format(options=options_for(fake_s3))
    environment = {
        **os.environ, "HYPERSLAB_FUNCTION_URL": function.function.url, "HYPERSLAB_FUNCTION_KEY": KEY.text,
        "PYTHONWARNINGS": "error::ResourceWarning",
    }  # fmt: skip
    program = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        assert program.stdout.readline().strip() == "opened"
        assert wait_until(lambda: function.log)
        program.send_signal(signal.SIGINT)
        out, error = program.communicate(timeout=50)
    finally:
        program.kill()
        program.communicate()
    assert out == "running 0\nleft []\n", (out, error)
    assert not error
    assert program.returncode == 0


def test_closing_a_session_closes_its_connections(fake_s3, function):
    put(fake_s3, "a", DATA, CHUNKS)
    with left_behind():
        with session_of(function) as session:
            array = array_at(fake_s3, "a", session)
            assert np.array_equal(array.read(BOX, method="call"), DATA[BOX])
            assert connections_to(function.port) > 0
        assert wait_until(lambda: connections_to(function.port) == 0)
        session.close()
        gc.collect()


def test_a_session_that_is_dropped_closes_its_connections(fake_s3, function):
    put(fake_s3, "a", DATA, CHUNKS)
    with left_behind():
        session = hs.Session(function=function.function, profile=PROFILE)
        array = array_at(fake_s3, "a", session)
        assert np.array_equal(array.read(BOX, method="call"), DATA[BOX])
        del session, array
        gc.collect()
        assert wait_until(lambda: connections_to(function.port) == 0)
        gc.collect()


def test_closing_a_session_under_a_call(fake_s3, function):
    put(fake_s3, "a", DATA, CHUNKS)
    with left_behind(), session_of(function, timeout_s=60) as session:
        array = array_at(fake_s3, "a", session)
        function.rules.append(Rule("stall", method="POST"))

        async def main():
            task = asyncio.create_task(array.aread(BOX, method="call"))
            while not function.log:
                await asyncio.sleep(0.01)
            await asyncio.to_thread(session.close)
            with pytest.raises(InvalidInputError, match="closed"):
                await task

        asyncio.run(asyncio.wait_for(main(), 50))
        assert wait_until(lambda: connections_to(function.port) == 0)
        gc.collect()


@both_ways
def test_a_forked_child_calls(fake_s3, function, method):
    put(fake_s3, "a", DATA, CHUNKS)
    with session_of(function) as session:
        array = array_at(fake_s3, "a", session)
        assert np.array_equal(array.read(BOX, method=method), DATA[BOX])
        before = function.calls()

        def child():
            return array.read(BOX, method=method), session.metrics.calls, session.metrics.requests

        found, calls, requests = in_child(child)
        assert np.array_equal(found, DATA[BOX])
        assert (function.calls() - before, requests) == (calls, 0)
        assert calls > 0
        assert np.array_equal(array.read(BOX, method=method), DATA[BOX])  # its connections are as they were
        assert session.metrics.requests == 0


def test_a_child_forked_in_the_middle_of_a_call(fake_s3, function):
    put(fake_s3, "a", DATA, CHUNKS)
    with session_of(function, timeout_s=60) as session:
        array = array_at(fake_s3, "a", session)
        array.read(BOX, method="call")
        function.rules.append(Rule("run", method="POST", times=1, run=lambda: time.sleep(1)))
        seen, found = function.calls(), []
        reader = threading.Thread(target=lambda: found.append(array.read(BOX, method="call")))
        reader.start()
        assert wait_until(lambda: function.calls() > seen)
        assert np.array_equal(in_child(lambda: array.read(BOX, method="call")), DATA[BOX])
        reader.join()
        assert np.array_equal(found[0], DATA[BOX])


def test_a_pickled_session_calls(fake_s3, function):
    put(fake_s3, "a", DATA, CHUNKS)
    with session_of(function) as session:
        array = array_at(fake_s3, "a", session)
        with pickle.loads(pickle.dumps(session)) as copy:
            assert copy.function == session.function
            other = bound_to(copy, array)
            assert np.array_equal(other.read(BOX, method="call"), DATA[BOX])
            assert copy.metrics.calls == function.calls() > 0
        again = pickle.loads(pickle.dumps(array))
        assert np.array_equal(again.read(BOX, method="call"), DATA[BOX])
        again.session.close()


def test_a_function_beside_another_kind_of_store_is_not_called(fake_s3, function, tmp_path):
    np.save(tmp_path / "a.npy", DATA)
    with session_of(function) as session:
        assert np.array_equal(hs.open(tmp_path / "a.npy", session=session)[BOX], DATA[BOX])
        with pytest.raises(InvalidInputError, match="function"):
            hs.open(tmp_path / "a.npy", session=session).read(BOX, method="call")
    assert not function.log


# A function beside another bucket of the same name


@pytest.mark.parametrize("slow", ["function", "store"])
def test_versions_of_another_store_are_not_mixed_up_with_those_of_the_store(fake_s3, monkeypatch, slow):
    """One chunk is partly called for, partly fetched: whichever answer is first, the cells are the store's own."""
    monkeypatch.setattr(sys.modules["hyperslab.execute.read"], "_check_function", CHECK)
    data = np.random.default_rng(6).integers(0, 1 << 30, (256, 256)).astype("i4")
    put(fake_s3, "a", data, data.shape)
    # Only cutting the sparse box is worth the function's time.
    calls = FunctionProfile(1e-5, 1e-9, at_once=1, chunk_s=0.005)
    profile = hs.Profile("mixed", 1e-3, (1,), (1e5,), 8, 1e-5, function=calls)
    boxes = [np.s_[::16, ::16], np.s_[0:1, :]]
    with S3Proxy() as other:
        put(other, "a", data + 1, data.shape)
        store, _ = locate("s3://bucket", options_for(other))
        with FakeFunction(store) as function, session_of(function, profile=profile) as session:
            array = array_at(fake_s3, "a", session)
            (function if slow == "function" else fake_s3).latency_s = 0.03
            with pytest.warns(FunctionWarning, match="another object"):
                found = array.read_boxes(boxes)
            assert function.calls() == 1
            assert fake_s3.log
            for box, cells in zip(boxes, found, strict=True):
                assert np.array_equal(cells, data[box])
            # It is left alone from then on.
            assert np.array_equal(array[boxes[0]], data[boxes[0]])
            assert function.calls() == 1


@both_ways
def test_the_only_cell_of_an_array_without_axes(fake_s3, function, method):
    put(fake_s3, "a", np.array(5, "i4"), ())
    with session_of(function) as session:
        array = array_at(fake_s3, "a", session)
        assert array.read(method=method) == 5
        assert array.read(parse_points((), ()), method=method) == 5
