import itertools
import multiprocessing

import pytest
from support.conformance import Calls, Place, ReadConformance, WriteConformance, count_up

from hyperslab.errors import ConflictError
from hyperslab.store import locate, memory

_names = (f"conformance-{number}" for number in itertools.count())


@pytest.fixture
def local(tmp_path):
    root = tmp_path / "root"
    root.mkdir()

    def put(key, data):
        path = root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        # Replaced as a careful writer would: two writes in place within a clock tick look alike.
        beside = path.with_name(path.name + ".partial")
        beside.write_bytes(data)
        beside.replace(path)

    yield Place(locate(root)[0], put)
    assert [path.name for path in tmp_path.iterdir()] == ["root"]


@pytest.fixture
def in_memory():
    name = next(_names)
    return Place(locate(f"memory://{name}")[0], lambda key, data: memory(name).put(key, data))


class TestReadLocal(ReadConformance):
    @pytest.fixture
    def place(self, local):
        return local


class TestWriteLocal(WriteConformance):
    @pytest.fixture
    def place(self, local):
        return local


class TestReadMemory(ReadConformance):
    @pytest.fixture
    def place(self, in_memory):
        return in_memory


class TestWriteMemory(WriteConformance):
    @pytest.fixture
    def place(self, in_memory):
        return in_memory


def _count_in_child(store, ready):
    ready.wait()
    count_up(store, Calls("sync"), 2)


def _create_in_child(store, ready, won):
    ready.wait()
    try:
        store.put("race", b"x", if_absent=True)
        won.put(True)
    except ConflictError:
        won.put(False)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_that_write_the_same_file(local, method):
    """Twelve processes of each kind where they start fast, two where they do not."""
    count = 12 if method == "fork" else 2
    context = multiprocessing.get_context(method)
    ready, won = context.Event(), context.Queue()
    local.put("count", b"0")
    children = [context.Process(target=_count_in_child, args=(local.store, ready)) for _ in range(count)]
    children += [context.Process(target=_create_in_child, args=(local.store, ready, won)) for _ in range(count)]
    for child in children:
        child.start()
    try:
        ready.set()
        assert sorted(won.get(timeout=60) for _ in range(count)) == [False] * (count - 1) + [True]
        for child in children:
            child.join(60)
        assert [child.exitcode for child in children] == [0] * len(children)
    finally:
        for child in children:
            child.kill()
            child.join()
    assert bytes(local.store.get("count").data) == b"%d" % (2 * count)
    assert local.store.children("") == ["count", "race"]
