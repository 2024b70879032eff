"""A forked child gets a network runtime of its own, or a typed error; never a hang."""

import asyncio
import multiprocessing
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from support.forking import Child, in_child
from support.hostile import options_for
from support.s3proxy import Rule

from hyperslab.errors import ConflictError, ForkError, NotFoundError, StoreError
from hyperslab.store import locate, memory, runtime


@pytest.fixture
def store(fake_s3):
    """A store that the parent has already used."""
    fake_s3.fake.objects["bucket/a"] = b"0123456789"
    options = {"endpoint": fake_s3.endpoint, "key": "k", "secret": "s"}
    used, _ = locate("s3://bucket", options)
    assert read(used) == b"0123"
    return used


def read(store):
    return bytes(store.get("a", (0, 4)).data)


def test_a_child_reads(store):
    assert in_child(lambda: read(store)) == b"0123"
    assert read(store) == b"0123"


def test_a_child_reads_async(store):
    async def main():
        replies = await asyncio.gather(*(store.aget("a", (i, i + 1)) for i in range(10)))
        return b"".join(bytes(reply.data) for reply in replies)

    assert in_child(lambda: asyncio.run(main())) == b"0123456789"


def test_a_childs_child_reads(store):
    def child():
        return read(store), in_child(lambda: (read(store), in_child(lambda: read(store))))

    assert in_child(child) == (b"0123", (b"0123", b"0123"))


def test_a_child_of_a_child_that_did_not_read(store):
    assert in_child(lambda: in_child(lambda: read(store))) == b"0123"


def test_two_children_at_once(store):
    children = [Child(lambda: read(store)) for _ in range(2)]
    assert [child.result() for child in children] == [b"0123"] * 2


def test_threads_of_a_child(store):
    def child():
        with ThreadPoolExecutor(8) as pool:
            return list(pool.map(lambda _: read(store), range(32)))

    assert in_child(child) == [b"0123"] * 32


def test_a_fork_while_another_thread_holds_the_lock(store):
    entered, leave = threading.Event(), threading.Event()

    def hold():
        with runtime.guard():
            entered.set()
            leave.wait(20)

    holder = threading.Thread(target=hold)
    holder.start()
    entered.wait(20)
    try:
        assert in_child(lambda: read(store)) == b"0123"
    finally:
        leave.set()
        holder.join()


def test_errors_in_a_child_are_ours(store):
    with pytest.raises(NotFoundError, match="s3://bucket/nothing"):
        in_child(lambda: store.get("nothing"))
    with pytest.raises(ConflictError):
        in_child(lambda: store.get("a", if_match='"other"'))


def test_a_child_opens_anew(store, fake_s3):
    def child():
        other, _ = locate("s3://bucket", {"endpoint": fake_s3.endpoint, "key": "other", "secret": "s"})
        return read(other), other.children("")

    assert in_child(child) == (b"0123", ["a"])


def _put_result(store, results):
    results.put(read(store))


def test_multiprocessing_fork(store):
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    children = [context.Process(target=_put_result, args=(store, results)) for _ in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
        assert child.exitcode == 0, "the child hung or failed"
    assert [results.get() for _ in children] == [b"0123"] * 2


def test_nothing_is_left_behind(store, tmp_path, monkeypatch):
    before = set(sys.modules)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    in_child(lambda: read(store))
    assert not list(tmp_path.iterdir())

    def child():
        extension = sys.modules["obstore._obstore"]
        read(store)
        return set(sys.modules) - before, sys.modules["obstore._obstore"] is extension, len(sys.meta_path)

    new, same, finders = in_child(child)
    assert not [name for name in new if name.startswith("obstore")]
    assert same
    assert finders == len(sys.meta_path)


def test_without_a_copy_it_is_an_error(store, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(runtime.shutil, "copyfile", full)
    with pytest.raises(ForkError, match="TMPDIR"):
        in_child(lambda: read(store))  # where a hang is an error, too


def test_memory_does_not_follow_into_a_child():
    memory("forked").put("a", b"0123")
    store, _ = locate("memory://forked")
    assert read(store) == b"0123"
    with pytest.raises(ForkError, match="memory://forked"):
        in_child(lambda: read(store))

    def child():
        memory("made-in-the-child").put("a", b"4567")
        return read(locate("memory://made-in-the-child")[0])

    assert in_child(child) == b"4567"


SCRIPT = """
import os, sys
from hyperslab.store import locate
import obstore
obstore.put(obstore.store.MemoryStore(), "x", b"by somebody else")
store, _ = locate("s3://bucket", {{"endpoint": {endpoint!r}, "key": "k", "secret": "s"}})
if {used}:
    store.get("a")
pid = os.fork()
if pid == 0:
    assert bytes(store.get("a", (0, 4)).data) == b"0123"
    sys.exit(7)
assert os.waitpid(pid, 0)[1] == 7 << 8
assert bytes(store.get("a", (0, 4)).data) == b"0123"
"""


@pytest.mark.parametrize("used", [True, False])
def test_a_child_ends_like_any_program(store, fake_s3, used):
    """Also when only somebody else used obstore before the fork."""
    script = SCRIPT.format(endpoint=fake_s3.endpoint, used=used)
    subprocess.run([sys.executable, "-c", script], timeout=100, check=True)


def test_a_second_runtime_is_quick(store):
    def child():
        started = time.process_time()
        runtime.obstore_module()
        return time.process_time() - started

    assert min(in_child(child) for _ in range(3)) < 2


def test_the_end_of_a_program_waits_a_moment_after_a_request_was_cancelled(fake_s3, monkeypatch):
    """A thread of obstore's that comes back to Python while that ends would crash the program."""
    registered, slept = [], []
    monkeypatch.setattr(runtime, "atexit", SimpleNamespace(register=registered.append))
    monkeypatch.setattr(runtime._process, "cancelled_at", None)
    fake_s3.rules.append(Rule("stall"))
    store, path = locate("s3://bucket/a", options_for(fake_s3))
    began = time.monotonic()
    for _ in range(2):
        with pytest.raises(StoreError):
            asyncio.run(store.aget(path, timeout_s=0.05))
    assert registered == [runtime.let_threads_end]
    assert began < runtime._process.cancelled_at <= time.monotonic()
    with monkeypatch.context() as patched:
        # Not the module's own `sleep`: other threads sleep, too.
        patched.setattr(runtime, "time", SimpleNamespace(sleep=slept.append, monotonic=time.monotonic))
        runtime.let_threads_end()
        monkeypatch.setattr(runtime._process, "cancelled_at", began - 60)
        runtime.let_threads_end()
    assert 0 <= slept[0] <= runtime._ENDING_S
    assert slept[1] == 0


def test_a_listing_that_was_cancelled_is_noted(fake_s3, monkeypatch):
    monkeypatch.setattr(runtime._process, "cancelled_at", None)
    monkeypatch.setattr(runtime, "atexit", SimpleNamespace(register=lambda work: None))
    fake_s3.rules.append(Rule("stall"))
    store, _ = locate("s3://bucket/a", options_for(fake_s3))
    with pytest.raises(StoreError):
        asyncio.run(store.achildren("", timeout_s=0.05))
    assert runtime._process.cancelled_at is not None
