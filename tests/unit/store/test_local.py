"""Files as objects: zero-copy, re-validated at every use, safe under threads, fork and replacement."""

import os
import pickle
import threading
import time

import numpy as np
import pytest
from support.forking import in_child

from hyperslab.errors import (
    AccessError,
    ConflictError,
    IntegrityError,
    InvalidInputError,
    NotFoundError,
    StoreError,
)
from hyperslab.store import LocalStore, OpenFiles, local


@pytest.fixture
def store(tmp_path):
    (tmp_path / "a").write_bytes(bytes(range(100)))
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    return LocalStore(tmp_path)


def replace(path, data):
    beside = path.with_name("beside")
    beside.write_bytes(data)
    beside.replace(path)


class TestMap:
    def test_is_the_file_and_cannot_be_written(self, store):
        mapped = store.map("a")
        assert mapped.bytes.tobytes() == bytes(range(100))
        assert mapped.bytes.dtype == np.uint8
        assert mapped.nbytes == 100
        assert mapped.etag == store.head("a")[1]
        with pytest.raises(ValueError, match="read-only"):
            mapped.bytes[0] = 1
        assert store.map("a") is mapped

    def test_an_empty_file(self, store):
        mapped = store.map("empty")
        assert mapped.bytes.shape == (0,)
        assert not mapped.bytes.flags.writeable
        assert store.map("empty") is mapped

    def test_sees_a_replaced_a_truncated_and_a_removed_file(self, store, tmp_path):
        first = store.map("a")
        replace(tmp_path / "a", b"other" * 20)
        second = store.map("a")
        assert second.bytes.tobytes() == b"other" * 20
        assert second.etag != first.etag
        assert first.bytes.tobytes() == bytes(range(100))  # the old file, as long as it is held
        os.truncate(tmp_path / "a", 7)
        assert store.map("a").nbytes == 7
        (tmp_path / "a").unlink()
        with pytest.raises(NotFoundError, match="/a"):
            store.map("a")
        (tmp_path / "a").write_bytes(b"again")
        assert store.map("a").bytes.tobytes() == b"again"

    def test_refuses_what_is_not_a_file_below_the_root(self, store, tmp_path):
        (tmp_path.parent / "outside").write_bytes(b"secret")
        for key in ("../outside", "folder/../../outside", str(tmp_path / "a"), "", "a/"):
            for read in (
                store.map,
                store.get,
                store.head,
                lambda k: store.read_into(k, 0, memoryview(bytearray(1))),
            ):
                with pytest.raises(InvalidInputError):
                    read(key)
        for key in ("folder", "nothing", "a/b"):
            with pytest.raises(NotFoundError):
                store.map(key)

    def test_keeps_few_and_the_recent(self, tmp_path):
        for i in range(6):
            (tmp_path / str(i)).write_bytes(bytes([i]) * 10)
        files = OpenFiles(mappings=3, mapped_bytes=1000, handles=2)
        store = LocalStore(tmp_path, files=files)
        first = store.map("0")
        for i in range(1, 6):
            store.map(str(i))
            assert store.map("0") is first  # used all the time
            assert len(files.mappings.entries) <= 3
        assert files.mappings.held_bytes == 30
        buffer = memoryview(bytearray(4))
        for i in range(6):
            store.read_into(str(i), 0, buffer)
        assert len(files.handles.entries) == 2

    def test_keeps_within_its_bytes(self, tmp_path):
        for i in range(4):
            (tmp_path / str(i)).write_bytes(bytes(400))
        (tmp_path / "large").write_bytes(bytes(2000))
        files = OpenFiles(mapped_bytes=1000)
        store = LocalStore(tmp_path, files=files)
        for i in range(4):
            store.map(str(i))
        assert files.mappings.held_bytes == 800
        assert store.map("large").nbytes == 2000
        assert files.mappings.held_bytes == 800

    def test_descriptors_are_given_back(self, tmp_path):
        for i in range(50):
            (tmp_path / str(i)).write_bytes(bytes(10))
        before = len(os.listdir("/dev/fd"))
        store = LocalStore(tmp_path, files=OpenFiles(mappings=4, handles=4))
        for i in range(50):
            store.map(str(i))
            store.get(str(i))
        assert len(os.listdir("/dev/fd")) <= before + 8

    def test_a_hit_is_cheap(self, store, tmp_path):
        """Little more than the stat it needs."""
        path = str(tmp_path / "a")

        def seconds(function, *args):
            started = time.perf_counter()
            for _ in range(200):
                function(*args)
            return time.perf_counter() - started

        store.map("a")
        hit_s = stat_s = float("inf")
        # In turn, and for as long as it takes to catch both at a moment when nobody else is at work.
        for turn in range(5000):
            hit_s, stat_s = min(hit_s, seconds(store.map, "a")), min(stat_s, seconds(os.stat, path))
            if turn >= 20 and hit_s < 2.5 * stat_s:
                break
        assert hit_s < 2.5 * stat_s


class TestReadInto:
    def test_fills_any_buffer(self, store):
        out = np.zeros((5, 2), "<u2")
        etag = store.read_into("a", 10, memoryview(out))
        assert etag == store.head("a")[1]
        assert out.tobytes() == bytes(range(10, 30))

    def test_never_less_than_asked(self, store):
        for start, count in ((95, 6), (100, 1), (10**12, 1)):
            with pytest.raises(IntegrityError, match="holds only 100"):
                store.read_into("a", start, memoryview(bytearray(count)))
        with pytest.raises(InvalidInputError):
            store.read_into("a", -1, memoryview(bytearray(2)))
        with pytest.raises(ConflictError):
            store.read_into("a", 0, memoryview(bytearray(2)), if_match='"other"')

    def test_sees_a_replaced_file(self, store, tmp_path):
        buffer = bytearray(3)
        first = store.read_into("a", 0, memoryview(buffer))
        replace(tmp_path / "a", b"xyz")
        assert store.read_into("a", 0, memoryview(buffer)) != first
        assert bytes(buffer) == b"xyz"

    def test_a_file_written_to_while_it_is_read(self, store, tmp_path, monkeypatch):
        read = local._read_fully

        def slow(fd, start, buffer):
            done = read(fd, start, buffer)
            (tmp_path / "a").write_bytes(b"longer than before" * 10)
            return done

        monkeypatch.setattr(local, "_read_fully", slow)
        with pytest.raises(ConflictError):
            store.get("a")

    def test_a_file_cut_off_while_it_is_read(self, store, tmp_path, monkeypatch):
        read = local._read_fully

        def cut(fd, start, buffer):
            os.truncate(tmp_path / "a", 50)
            return read(fd, start, buffer)

        monkeypatch.setattr(local, "_read_fully", cut)
        with pytest.raises(IntegrityError, match="holds only 50"):
            store.get("a")

    def test_short_reads_of_the_kernel_are_continued(self, store, monkeypatch):
        monkeypatch.setattr(local, "_READ_LIMIT", 7)
        assert bytes(store.get("a").data) == bytes(range(100))


def test_errors_say_what_to_do(store, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        with pytest.raises(AccessError, match="permissions"):
            store.get("a")

    def broken(*_):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "preadv", broken)
        with pytest.raises(StoreError, match="Input/output error") as caught:
            store.get("a")
    assert caught.value.transient


def test_a_pipe_does_not_hang(store, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(NotFoundError):
        store.get("pipe")
    with pytest.raises(NotFoundError):
        store.map("pipe")


def test_too_many_open_files_lets_go_of_kept_ones(tmp_path, monkeypatch):
    for i in range(5):
        (tmp_path / str(i)).write_bytes(b"x")
    files = OpenFiles()
    store = LocalStore(tmp_path, files=files)
    store.get("0")
    opened = os.open

    def crowded(*args, **kwargs):
        if files.handles.entries:
            raise OSError(24, "Too many open files")
        return opened(*args, **kwargs)

    monkeypatch.setattr(os, "open", crowded)
    assert bytes(store.get("1").data) == b"x"


def test_a_listing_is_bounded(store, monkeypatch):
    monkeypatch.setattr(local, "CHILDREN_LIMIT", 2)
    with pytest.raises(StoreError, match="more than"):
        store.children("")


def test_pickles_without_handles(store):
    store.map("a")
    again = pickle.loads(pickle.dumps(store))
    assert again.root == store.root
    assert again.map("a").bytes.tobytes() == bytes(range(100))


def test_the_address_is_a_url(tmp_path):
    assert LocalStore("/data/my array.zarr").address == "file:///data/my%20array.zarr"
    assert LocalStore("/").address == "file:///"


def test_a_fork_in_the_middle_of_a_change(store):
    store.map("a")
    store.get("a")
    with store._mappings.lock, store._handles.lock:
        child = in_child(lambda: (bytes(store.get("a", (0, 3)).data), store.map("a").bytes[:3].tobytes()))
    assert child == (b"\x00\x01\x02", b"\x00\x01\x02")


def test_threads_while_files_come_and_go(tmp_path):
    """Every read is one version whole, however little is kept open."""
    names = [str(i) for i in range(6)]
    for name in names:
        replace(tmp_path / name, b"\x00" * 4096)
    store = LocalStore(tmp_path, files=OpenFiles(mappings=2, handles=2))
    stop, wrong = threading.Event(), []

    def reader(seed):
        generator = np.random.default_rng(seed)
        while not stop.is_set():
            name = names[generator.integers(6)]
            try:
                if len(set(store.get(name).data)) != 1 or len(set(store.map(name).bytes.tobytes())) != 1:
                    wrong.append(name)
            except ConflictError:
                pass
            except Exception as error:  # noqa: BLE001
                wrong.append(repr(error))

    threads = [threading.Thread(target=reader, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for version in range(1, 60):
        for name in names:
            beside = tmp_path / "beside"
            beside.write_bytes(bytes([version]) * 4096)
            beside.replace(tmp_path / name)
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong
