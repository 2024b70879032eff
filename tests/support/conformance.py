"""What every store must do. A test module subclasses `ReadConformance` and `WriteConformance`, with a `place`."""

import asyncio
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import unquote

import numpy as np
import pytest
from hypothesis import strategies as st

from hyperslab.errors import ConflictError, HyperslabError, IntegrityError, InvalidInputError, NotFoundError
from hyperslab.store import Reply, Store

DIGITS = b"0123456789"


@dataclass
class Place:
    """A store under test, and a way to put objects there without it."""

    store: Store
    put: Callable[[str, bytes], object]


def sync_get(store: Store, *args, **kwargs) -> Reply:
    return store.get(*args, **kwargs)


def async_get(store: Store, *args, **kwargs) -> Reply:
    return asyncio.run(store.aget(*args, **kwargs))


class Calls:
    """The methods of a store, all of one kind: those that block, or their async twins."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __getattr__(self, name: str):
        if self.kind == "sync":
            return lambda store, *args, **kwargs: getattr(store, name)(*args, **kwargs)
        return lambda store, *args, **kwargs: asyncio.run(getattr(store, "a" + name)(*args, **kwargs))


@pytest.mark.parametrize("get", [sync_get, async_get], ids=["get", "aget"])
class ReadConformance:
    """What every store must do to be read from."""

    @pytest.fixture
    def place(self) -> Place:
        raise NotImplementedError

    @pytest.mark.parametrize(
        ("span", "expected"),
        [
            (None, DIGITS),
            ((0, 10), DIGITS),
            ((2, 5), b"234"),
            ((9, 10), b"9"),
            (-3, b"789"),
            (-10, DIGITS),
            (-11, DIGITS),
            (-(10**9), DIGITS),
        ],
    )
    def test_gives_the_bytes_asked_for(self, place, get, span, expected):
        place.put("a/b", DIGITS)
        reply = get(place.store, "a/b", span)
        assert bytes(reply.data) == expected
        assert reply.object_nbytes == 10
        assert reply.data.readonly
        assert reply.data.format == "B"
        assert reply.data.ndim == 1

    @pytest.mark.parametrize("span", [(8, 11), (10, 12), (20, 25), (0, 10**15)])
    def test_a_range_past_the_end_is_never_shortened(self, place, get, span):
        place.put("a", DIGITS)
        with pytest.raises(IntegrityError, match=f"bytes {span[0]}..{span[1]}") as caught:
            get(place.store, "a", span)
        assert "/a" in str(caught.value)

    @pytest.mark.parametrize("span", [(3, 3), (5, 2), (-1, 4), 0, 7])
    def test_a_range_without_bytes_is_refused(self, place, get, span):
        place.put("a", DIGITS)
        with pytest.raises(InvalidInputError):
            get(place.store, "a", span)

    def test_an_empty_object(self, place, get):
        place.put("empty", b"")
        assert bytes(get(place.store, "empty").data) == b""
        assert get(place.store, "empty").object_nbytes == 0
        assert bytes(get(place.store, "empty", -8).data) == b""
        with pytest.raises(IntegrityError):
            get(place.store, "empty", (0, 1))

    def test_what_is_not_there(self, place, get):
        place.put("folder/object", b"x")
        for key in ("nothing", "folder/nothing", "folder/object/below", "folder", "n" * 300):
            with pytest.raises(NotFoundError, match=key):
                get(place.store, key)
            with pytest.raises(NotFoundError):
                place.store.head(key)

    def test_a_version_is_pinned(self, place, get):
        place.put("v", b"first")
        first = get(place.store, "v")
        assert first.etag
        assert get(place.store, "v", (0, 2), if_match=first.etag).etag == first.etag
        place.put("v", b"second")
        for span in (None, (0, 2), -2):
            with pytest.raises(ConflictError, match="refresh"):
                get(place.store, "v", span, if_match=first.etag)
        assert bytes(get(place.store, "v").data) == b"second"
        assert get(place.store, "v").etag != first.etag

    def test_head_agrees_with_get(self, place, get):
        place.put("h", DIGITS)
        reply = get(place.store, "h", (0, 1))
        assert place.store.head("h") == (10, reply.etag)

    @pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", ".", "..", "a/../b", "../a", "a/./b", "a\x00b"])
    def test_names_that_could_lead_elsewhere_are_refused(self, place, get, key):
        place.put("a", b"x")
        with pytest.raises(InvalidInputError):
            get(place.store, key)
        with pytest.raises(InvalidInputError):
            place.store.head(key)

    @pytest.mark.parametrize(
        "key", ["a b", "ü/日本", "100%", "a%20b", "a#b", "a?b", "a+b", "a&b=c", "it's", "...", "c/0/0"]
    )
    def test_names_are_taken_literally(self, place, get, key):
        place.put(key, key.encode())
        assert bytes(get(place.store, key).data) == key.encode()
        assert place.store.head(key)[0] == len(key.encode())

    def test_is_a_store_that_pickles(self, place, get):
        place.put("p", DIGITS)
        assert isinstance(place.store, Store)
        again = pickle.loads(pickle.dumps(place.store))
        assert again.address == place.store.address
        assert again.scheme == place.store.scheme
        assert bytes(get(again, "p", (1, 3)).data) == b"12"

    def test_many_threads(self, place, get):
        for i in range(8):
            place.put(f"t/{i}", bytes([i]) * 100)
        with ThreadPoolExecutor(8) as pool:
            replies = list(pool.map(lambda i: get(place.store, f"t/{i % 8}", (10, 20)), range(64)))
        assert [bytes(reply.data) for reply in replies] == [bytes([i % 8]) * 10 for i in range(64)]


@pytest.mark.parametrize("call", [Calls("sync"), Calls("async")], ids=["sync", "async"])
class WriteConformance:
    """What every store must do to be listed and written to."""

    @pytest.fixture
    def place(self) -> Place:
        raise NotImplementedError

    def test_children(self, place, call):
        for key in ("tree/zarr.json", "tree/b/zarr.json", "tree/b/c/0/0", "tree/a/zarr.json", "tree/a.txt"):
            place.put(key, b"x")
        assert call.children(place.store, "tree") == ["a", "a.txt", "b", "zarr.json"]
        assert call.children(place.store, "tree/") == ["a", "a.txt", "b", "zarr.json"]
        assert call.children(place.store, "tree/b/c") == ["0"]
        assert call.children(place.store, "tree/nothing") == []
        assert call.children(place.store, "tre") == []
        assert "tree" in call.children(place.store, "")
        with pytest.raises(InvalidInputError):
            call.children(place.store, "tree/../x")

    def test_keys(self, place, call):
        sizes = {"tree/b/c/0/0": 3, "tree/a.txt": 1, "tree/b/zarr.json": 2, "tree-2/x": 5, "tree/zarr.json": 0}
        for key, nbytes in sizes.items():
            place.put(key, b"x" * nbytes)
        below = sorted((key, nbytes) for key, nbytes in sizes.items() if key.startswith("tree/"))
        assert call.keys(place.store, "tree") == below
        assert call.keys(place.store, "tree/") == below
        assert call.keys(place.store, "tree/b") == below[1:3]
        assert call.keys(place.store, "tree/a.txt") == []
        assert call.keys(place.store, "tre") == []
        assert set(sizes.items()) <= set(call.keys(place.store, ""))
        with pytest.raises(InvalidInputError):
            call.keys(place.store, "tree/../x")

    def test_listing(self, place, call):
        """It tells when an object was written again, with other bytes."""
        for key in ("list/a", "list/b/c"):
            place.put(key, b"x" * 3)
        before = call.listing(place.store, "list")
        assert [(listed.key, listed.nbytes) for listed in before] == [("list/a", 3), ("list/b/c", 3)]
        assert call.listing(place.store, "list") == before
        place.put("list/b/c", b"y" * 3)
        after = call.listing(place.store, "list")
        assert after[0] == before[0]
        assert after[1].version != before[1].version
        assert after[1].modified_ns >= before[1].modified_ns
        assert call.listing(place.store, "lis") == []

    def test_head(self, place, call):
        place.put("h", DIGITS)
        assert call.head(place.store, "h") == (10, place.store.get("h").etag)
        with pytest.raises(NotFoundError):
            call.head(place.store, "h2")

    @pytest.mark.parametrize(
        "data",
        [
            b"bytes",
            b"",
            bytearray(b"more"),
            memoryview(b"0123456789")[3:7],
            np.arange(200, dtype=np.uint8),
            np.arange(12, dtype="<f8").reshape(3, 4),
            np.empty((0, 3)),
        ],
        ids=["bytes", "empty", "bytearray", "memoryview", "array", "array-2d", "array-empty"],
    )
    def test_what_is_put_is_there(self, place, call, data):
        etag = call.put(place.store, "new/deep/object", data)
        reply = place.store.get("new/deep/object")
        assert bytes(reply.data) == bytes(data)
        assert etag
        assert reply.etag == etag
        assert place.store.keys("new") == [("new/deep/object", memoryview(data).nbytes)]

    @pytest.mark.parametrize("data", ["text", None, 3, np.arange(10)[::2]], ids=["str", "None", "int", "strided"])
    def test_what_is_not_bytes_is_refused(self, place, call, data):
        with pytest.raises(InvalidInputError):
            call.put(place.store, "new", data)
        assert place.store.keys("") == []

    def test_put_replaces(self, place, call):
        first = call.put(place.store, "a", b"first")
        second = call.put(place.store, "a", b"a longer second")
        assert bytes(place.store.get("a").data) == b"a longer second"
        assert place.store.get("a").etag == second != first

    def test_put_over_the_version_that_was_read(self, place, call):
        place.put("v", b"first")
        first = place.store.get("v").etag
        second = call.put(place.store, "v", b"second", if_match=first)
        assert place.store.get("v", if_match=second).etag == second
        with pytest.raises(ConflictError, match="/v was changed"):
            call.put(place.store, "v", b"third", if_match=first)
        assert bytes(place.store.get("v").data) == b"second"
        call.delete(place.store, "v")
        with pytest.raises(ConflictError, match=r"/v was (removed|changed)"):
            call.put(place.store, "v", b"third", if_match=second)
        assert place.store.keys("") == []

    def test_put_what_must_be_new(self, place, call):
        call.put(place.store, "n/ew", b"first", if_absent=True)
        with pytest.raises(ConflictError, match="/n/ew exists"):
            call.put(place.store, "n/ew", b"second", if_absent=True)
        assert bytes(place.store.get("n/ew").data) == b"first"
        with pytest.raises(InvalidInputError, match="exclude"):
            call.put(place.store, "n/ew", b"", if_absent=True, if_match="x")

    def test_the_same_bytes_twice(self, place, call):
        """What is put again is a success for the version it was put over, and a conflict for another."""
        first = call.put(place.store, "same", b"x")
        again = call.put(place.store, "same", b"x", if_match=first)
        assert place.store.get("same").etag == again

    def test_of_many_who_create_one_wins(self, place, call):
        def create(i: int) -> bool:
            try:
                call.put(place.store, "race", b"%d" % i, if_absent=True)
            except ConflictError:
                return False
            return True

        with ThreadPoolExecutor(16) as pool:
            won = list(pool.map(create, range(16)))
        assert won.count(True) == 1
        assert bytes(place.store.get("race").data) == b"%d" % won.index(True)

    def test_of_many_who_count_none_is_lost(self, place, call):
        place.put("count", b"0")
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda _: count_up(place.store, call, 2), range(16)))
        assert bytes(place.store.get("count").data) == b"32"

    def test_delete(self, place, call):
        place.put("d/a/b", b"x")
        place.put("d/c", b"x")
        call.delete(place.store, "d/a/b")
        assert place.store.keys("") == [("d/c", 1)]
        assert "c" in call.children(place.store, "d")
        with pytest.raises(NotFoundError):
            place.store.get("d/a/b")
        for key in ("d/a/b", "nothing", "no/thing/at/all", "d/c/below"):
            call.delete(place.store, key)
        assert place.store.keys("") == [("d/c", 1)]

    @pytest.mark.parametrize(
        "key",
        [
            "",
            "/a",
            "a/",
            "a//b",
            ".",
            "..",
            "a/../b",
            "../a",
            "a/./b",
            "a\x00b",
            "..\x00",
            ".hyperslab-1",
            "a/.hyperslab-",
            "a\\..\\b",
            "..\\x",
        ],
    )
    def test_names_that_could_lead_elsewhere_are_refused(self, place, call, key):
        with pytest.raises(InvalidInputError):
            call.put(place.store, key, b"x")
        with pytest.raises(InvalidInputError):
            call.delete(place.store, key)
        assert place.store.keys("") == []

    @pytest.mark.parametrize(
        "key",
        [
            "a b",
            "ü/日本",
            "100%",
            "a%20b",
            "a#b",
            "a?b",
            "a+b",
            "it's",
            "...",
            "%2e%2e/x",
            "a/%2E%2e/b",
            "%2f",
        ],
    )
    def test_names_are_taken_literally(self, place, call, key):
        call.put(place.store, key, key.encode())
        assert place.store.keys("") == [(key, len(key.encode()))]
        assert key.partition("/")[0] in place.store.children("")
        assert bytes(place.store.get(key).data) == key.encode()
        assert call.head(place.store, key)[0] == len(key.encode())
        call.delete(place.store, key)
        assert place.store.keys("") == []


def count_up(store: Store, call: Calls, times: int) -> None:
    """Add one to the number in "count", so often, each time over the version that was read."""
    for _ in range(times):
        while True:
            reply = store.get("count")
            try:
                call.put(store, "count", b"%d" % (int(bytes(reply.data)) + 1), if_match=reply.etag)
                break
            except ConflictError:
                continue


# Names from all characters, the dangerous ones often.
hostile_names = st.text(st.characters(exclude_categories=[]) | st.sampled_from("./\\%2e\x00\ud800\udcff"), max_size=20)


def check_wire_names(store: Store, log: list, root: str, name: str) -> None:
    """Whatever a name is, it is refused, or what goes over the wire is that name below the root."""
    for call in (store.get, store.head, store.delete, lambda key: store.put(key, b"x")):
        log.clear()
        with suppress(HyperslabError):
            call(name)
        for entry in log:
            bulk = entry.method == "POST"  # a deletion, with the names in its body
            assert bulk or unquote(entry.path) == root + name
            assert not {".", ".."} & set(unquote(entry.path).split("/"))
