"""Files are replaced whole: under readers, under other writers, and when the writer is killed."""

import errno
import fcntl
import itertools
import multiprocessing
import os
import stat
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.profiles import times

from hyperslab.errors import AccessError, ConflictError, HyperslabError, InvalidInputError, StoreError
from hyperslab.store import LocalStore, local, local_write, locate


@pytest.fixture
def store(tmp_path):
    return LocalStore(tmp_path / "root")


def test_the_root_is_made_by_the_first_put(tmp_path):
    store, path = locate(tmp_path / "new" / "a.zarr", create=True)
    assert path == ""
    assert not os.path.exists(store.root)
    store.put("zarr.json", b"{}")
    assert (tmp_path / "new" / "a.zarr" / "zarr.json").read_bytes() == b"{}"
    again, path = locate(tmp_path / "new" / "a.zarr", create=True)
    assert (again.address, path) == (store.address, "")


def test_a_directory_that_is_just_made_is_no_file(tmp_path, monkeypatch):
    """Several begin with one new table: whoever looks while another makes its directory must not take it for a file."""
    folder, real_stat = tmp_path / "new", os.stat

    def stat_just_before(path, *args, **options):
        try:
            return real_stat(path, *args, **options)
        except FileNotFoundError:
            os.makedirs(folder, exist_ok=True)
            raise

    monkeypatch.setattr(os, "stat", stat_just_before)
    store, path = locate(folder, create=True)
    assert folder.is_dir()
    assert (store.root, path) == (str(folder), "")


def test_every_put_is_another_version(store):
    tags = [store.put("a", b"same") for _ in range(300)]
    assert len(set(tags)) == 300
    assert store.head("a") == (4, tags[-1])


def test_times_only_grow(store):
    """Also where the clock was set back, and where a file came from the future."""
    store.put("a", b"x")
    path = os.path.join(store.root, "a")
    future_ns = time.time_ns() + 10**18
    os.utime(path, ns=(future_ns, future_ns))
    before = store.head("a")[1]
    assert store.put("a", b"y", if_match=before) != before
    assert os.stat(path).st_mtime_ns > future_ns


def test_a_file_system_that_keeps_seconds_only(store, monkeypatch):
    real = os.utime

    def coarse(fd, *, ns):
        whole = ns[0] // 2_000_000_000 * 2_000_000_000
        real(fd, ns=(whole, whole))

    monkeypatch.setattr(os, "utime", coarse)
    times = [store.put("a", b"x").split("-")[1] for _ in range(5)]
    assert len(set(times)) == 5


def test_readers_keep_what_they_have(store):
    store.put("a", b"first version")
    mapped = store.map("a").bytes
    reply = store.get("a", (0, 5))
    store.put("a", b"second")
    assert mapped.tobytes() == b"first version"
    assert bytes(reply.data) == b"first"
    assert bytes(store.get("a").data) == b"second"
    assert store.map("a").bytes.tobytes() == b"second"
    with pytest.raises(ConflictError):
        store.get("a", if_match=reply.etag)
    store.delete("a")
    assert mapped.tobytes() == b"first version"


def test_no_reader_sees_half_a_file(store):
    sizes, stop, wrong = (100, 3_000_000), threading.Event(), []
    store.put("a", b"\x00" * sizes[0])

    def read():
        while not stop.is_set():
            data = np.frombuffer(store.get("a").data, np.uint8)
            if len(data) not in sizes or data.min() != data.max():
                wrong.append(len(data))

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(40):
        store.put("a", bytes([number]) * sizes[number % 2])
    stop.set()
    for reader in readers:
        reader.join()
    assert wrong == []


def _write_forever(store, writing):
    for number in itertools.count():
        store.put("deep/er/a", bytes([number % 251]) * (1000 + 200_000 * (number % 7)))
        writing.set()


def test_killed_writers_leave_whole_files(store):
    context, leftovers, count = multiprocessing.get_context("fork"), 0, times(20, 400)
    for number in range(10 * count):
        # A few more where no kill came in the middle of a write yet.
        if number >= count and leftovers:
            break
        writing = context.Event()
        writer = context.Process(target=_write_forever, args=(store, writing))
        writer.start()
        try:
            assert writing.wait(60)
            time.sleep(0.028 * (number % count) / count)
        finally:
            writer.kill()
            writer.join()
        data = np.frombuffer(store.get("deep/er/a").data, np.uint8)
        assert data.min() == data.max()
        assert (len(data) - 1000) % 200_000 == 0
        assert store.children("deep/er") == ["a"]
        assert [key for key, _ in store.keys("")] == ["deep/er/a"]
        store.put("deep/er/a", bytes(1000), if_match=store.head("deep/er/a")[1])
        leftovers = len(os.listdir(os.path.join(store.root, "deep/er"))) - 1
    assert leftovers > 0, "no writer was killed while it wrote"


def test_what_dead_writers_left_is_swept(store):
    store.put("d/a", b"x")
    folder = os.path.join(store.root, "d")
    old, young = os.path.join(folder, ".hyperslab-1-old"), os.path.join(folder, ".hyperslab-1-young")
    for path, age_s in ((old, 3700), (young, 3500)):
        with open(path, "wb") as file:
            file.write(b"half")
        os.utime(path, (time.time() - age_s,) * 2)
    until = time.monotonic() + 60
    while os.path.exists(old) and time.monotonic() < until:
        time.sleep(0.02)  # the next sweep waits the longer, the longer the last one took
        store.put("d/a", b"y")
    assert sorted(os.listdir(folder)) == [".hyperslab-1-young", "a"]
    assert store.children("d") == ["a"]
    assert store.keys("d") == [("d/a", 1)]


def test_a_failed_put_leaves_nothing(store, monkeypatch):
    store.put("a", b"old")

    def full(fd, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(StoreError, match="No space left"):
        store.put("a", b"new")
    monkeypatch.undo()
    with pytest.raises(ConflictError):
        store.put("a", b"new", if_absent=True)
    assert os.listdir(store.root) == ["a"]
    assert bytes(store.get("a").data) == b"old"


def test_large_writes_go_in_parts(store, monkeypatch):
    monkeypatch.setattr(local_write, "_WRITE_LIMIT", 7)
    store.put("a", bytes(range(100)))
    assert bytes(store.get("a").data) == bytes(range(100))


@pytest.mark.parametrize("conditions", [{}, {"if_absent": True}, {"if_match": '"1-2-3"'}], ids=str)
def test_names_of_directories_and_below_files(store, conditions):
    store.put("folder/file", b"x")
    for key in ("folder", "folder/file/below", "folder/file/below/deep"):
        with pytest.raises(StoreError, match="cannot be a file"):
            store.put(key, b"y", **conditions)
    store.delete("folder/file/below")
    with pytest.raises(StoreError):
        store.delete("folder")
    assert store.keys("") == [("folder/file", 1)]
    for key in ("n" * 300, "a/" + "n" * 300):
        with pytest.raises(InvalidInputError):
            store.put(key, b"y", **conditions)


def test_permissions(store):
    store.put("a", b"x")
    path = os.path.join(store.root, "a")
    os.chmod(path, 0o600)
    store.put("a", b"y")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    if os.geteuid() != 0:
        os.chmod(store.root, 0o500)
        try:
            with pytest.raises(AccessError, match="written"):
                store.put("a", b"z")
        finally:
            os.chmod(store.root, 0o700)


def test_a_directory_that_may_not_be_written(store, monkeypatch):
    store.put("a", b"x")
    real = os.open

    def refused(path, flags, *args, **kwargs):
        if flags & os.O_CREAT:
            raise OSError(errno.EROFS, "Read-only file system")
        return real(path, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(AccessError, match="permissions"):
        store.put("a", b"y")


def test_empty_directories_go_but_never_the_root(store):
    store.put("a/b/c/d", b"x")
    store.put("a/e", b"x")
    store.delete("a/b/c/d")
    assert os.listdir(os.path.join(store.root, "a")) == ["e"]
    store.delete("a/e")
    assert os.listdir(store.root) == []
    store.put("f", b"x")
    store.delete("f")
    assert os.path.isdir(store.root)


def test_a_directory_that_vanishes_between(store):
    """Deleting prunes directories while others put into them: neither fails."""
    failed = []

    def churn(number):
        try:
            for _ in range(60):
                store.put(f"x/y/{number}", b"x")
                store.delete(f"x/y/{number}")
        except HyperslabError as error:
            failed.append(error)

    threads = [threading.Thread(target=churn, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert store.keys("") == []


def test_a_lock_that_is_held(store):
    store.put("a", b"x")
    held = os.open(store.root, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(StoreError, match="holds the lock") as caught:
            store.put("a", b"y", timeout_s=0.05)
        assert caught.value.transient
        assert os.listdir(store.root) == ["a"]
    finally:
        os.close(held)
    store.put("a", b"y", timeout_s=20)


def test_a_file_system_without_locks(store, monkeypatch):
    def none(fd, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none)
    tag = store.put("a", b"x")
    with pytest.raises(StoreError, match="no locks") as caught:
        store.put("a", b"y", if_match=tag)
    assert not caught.value.transient
    with pytest.raises(StoreError, match="no locks"):
        store.put("b", b"y", if_absent=True)
    assert store.keys("") == [("a", 1)]


def test_links(store, tmp_path):
    """A link to a file is replaced, one to a directory is followed, and a loop ends."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_bytes(b"outside")
    store.put("a/inner", b"x")
    os.symlink(outside / "file", os.path.join(store.root, "link"))
    os.symlink(outside, os.path.join(store.root, "folder"))
    os.symlink(store.root, os.path.join(store.root, "a", "loop"))
    os.symlink("nowhere", os.path.join(store.root, "broken"))
    assert store.keys("") == [("a/inner", 1), ("folder/file", 7), ("link", 7)]
    store.put("link", b"new")
    assert (outside / "file").read_bytes() == b"outside"
    assert bytes(store.get("link").data) == b"new"


def test_too_many_keys(store, monkeypatch):
    for number in range(5):
        store.put(f"{number}/a", b"x")
    monkeypatch.setattr(local, "CHILDREN_LIMIT", 9)
    with pytest.raises(StoreError, match="more than"):
        store.keys("")


def test_names_that_are_not_utf8(store):
    """Files may have them, in Python's way to write other bytes; half a character is none of these."""
    store.put("a\udcff", b"x")
    assert os.listdir(os.fsencode(store.root)) == [b"a\xff"]
    assert store.keys("") == [("a\udcff", 1)]
    for call in (store.get, store.head, store.delete, store.map, lambda key: store.put(key, b"")):
        with pytest.raises(InvalidInputError, match="half a character"):
            call("a\ud800")


@given(st.text(st.characters(exclude_categories=[]) | st.sampled_from("./\\%\x00\ud800\udcff"), max_size=30))
def test_no_name_leaves_the_root(tmp_path_factory, name):
    folder = tmp_path_factory.mktemp("names")
    store = LocalStore(folder / "root")
    os.mkdir(store.root)
    try:
        store.put(name, b"x")
    except HyperslabError:
        assert os.listdir(store.root) == []
    else:
        assert store.keys("") == [(name, 1)]
        store.delete(name)
        assert store.keys("") == []
    assert os.listdir(folder) == ["root"]
