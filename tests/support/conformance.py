"""What every store must do. A test module subclasses `StoreConformance` and gives it a `place`."""

import asyncio
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from hyperslab.errors import ConflictError, IntegrityError, InvalidInputError, NotFoundError
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


@pytest.mark.parametrize("get", [sync_get, async_get], ids=["get", "aget"])
class StoreConformance:
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

    def test_children(self, place, get):
        for key in ("tree/zarr.json", "tree/b/zarr.json", "tree/b/c/0/0", "tree/a/zarr.json", "tree/a.txt"):
            place.put(key, b"x")
        assert place.store.children("tree") == ["a", "a.txt", "b", "zarr.json"]
        assert place.store.children("tree/") == ["a", "a.txt", "b", "zarr.json"]
        assert place.store.children("tree/b/c") == ["0"]
        assert place.store.children("tree/nothing") == []
        assert place.store.children("tre") == []
        assert "tree" in place.store.children("")
        with pytest.raises(InvalidInputError):
            place.store.children("tree/../x")

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
