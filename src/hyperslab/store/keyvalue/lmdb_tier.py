"""A tier in a folder of this machine: LMDB, a tree of pages in a mapped file, shared by all processes.

Read-ahead is off: values are read here and there, and what the kernel would read besides is not wanted. The map is as
large as the capacity, and the file never grows beyond it. LMDB never overwrites a page that is in use, so that it needs
free ones also to delete: a part of the map is not filled with values.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from hyperslab.errors import InvalidInputError, StoreError
from hyperslab.store.keyvalue.base import MOST_KEY_BYTES, batches, check_capacity, check_items, check_keys
from hyperslab.store.keyvalue.lmdb_files import OpenFile, open_file

__all__ = ["LmdbTier"]

T = TypeVar("T")

_MISSING = "a tier in a folder needs lmdb; install it with: pip install 'hyperslab[collections]'"
_LEAST_BYTES = 1 << 20
# Of the pages, one in so many is left free, and some in any case.
_SPARE_SHARE = 16
_LEAST_SPARE = 32
# The two pages that say where the tree begins.
_META_PAGES = 2
_PAGE_HEADER_BYTES = 16
_NODE_BYTES = 16
_KEYS_AT_ONCE = 4096
# Written only to be removed.
_TOUCHED = b"\0"
_Pairs = list[tuple[bytes, bytes]]


class LmdbTier:
    """Values in a folder, up to `capacity_bytes` of its file; see `KeyValue`."""

    def __init__(self, path: str | os.PathLike[str], *, capacity_bytes: int) -> None:
        self._path = os.path.abspath(os.path.expanduser(os.fspath(path)))
        self._capacity_bytes = check_capacity(capacity_bytes)
        if capacity_bytes < _LEAST_BYTES:
            raise InvalidInputError(f"a tier in a folder has {_LEAST_BYTES:,} bytes or more, not {capacity_bytes:,}")
        self._file: OpenFile | None = None

    @property
    def address(self) -> str:
        return f"lmdb://{self._path}"

    @property
    def capacity_bytes(self) -> int:
        return self._capacity_bytes

    def get_many(
        self, keys: Sequence[bytes], *, timeout_s: float | None = None, limit_bytes: int | None = None
    ) -> list[bytes | None]:
        wanted = check_keys(keys)

        def ask(env: Any) -> list[bytes | None]:
            with env.begin(buffers=True) as reading:
                views = list(map(reading.get, wanted))
                nbytes = sum([len(view) for view in views if view is not None])
                if limit_bytes is not None and nbytes > limit_bytes:
                    raise StoreError(
                        f"{self.address} holds {nbytes:,} bytes where {limit_bytes:,} are expected at most"
                    )
                return [None if view is None else bytes(view) for view in views]

        return self._run(ask)

    def put_many(self, items: Mapping[bytes, bytes], *, timeout_s: float | None = None) -> list[bytes]:
        stored: list[bytes] = []
        for batch in batches(check_items(items)):
            stored += self._run(partial(_put, batch, self._capacity_bytes))
        return stored

    def delete_many(self, keys: Iterable[bytes]) -> None:
        unwanted = check_keys(keys)
        for n in range(0, len(unwanted), _KEYS_AT_ONCE):
            self._run(partial(_delete, unwanted[n : n + _KEYS_AT_ONCE]))

    def keys(self) -> Iterator[bytes]:
        last: bytes | None = None
        while part := self._run(partial(_keys_after, last)):
            yield from part
            last = part[-1]

    def used_bytes(self) -> int:
        return self._run(lambda env: _used_pages(env.stat()) * _page_bytes(env))

    def price_bytes(self, key_nbytes: int, value_nbytes: int) -> int:
        return _price(self._run(_page_bytes), key_nbytes, value_nbytes)

    def close(self) -> None:
        self._file = None

    def __repr__(self) -> str:
        return f"LmdbTier({self._path!r}, capacity_bytes={self._capacity_bytes})"

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self._path, "capacity_bytes": self._capacity_bytes}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["path"], capacity_bytes=state["capacity_bytes"])  # type: ignore[misc]

    def _run(self, use: Callable[[Any], T]) -> T:
        """Return what `use` does with the environment; LMDB's errors become ours."""
        try:
            import lmdb
        except ImportError:
            raise InvalidInputError(_MISSING) from None
        try:
            if self._file is None:
                self._file = open_file(self._path, self._capacity_bytes)
            with self._file.use() as env:
                return use(env)
        except lmdb.MapResizedError:
            raise StoreError(
                f"{self.address} was given more room by another process; close this tier and open it so, too"
            ) from None
        except StoreError:
            raise
        except (lmdb.Error, OSError) as error:
            raise StoreError(f"{self.address}: {error}") from None


def _page_bytes(env: Any) -> int:
    return int(env.stat()["psize"])


def _used_pages(stat: Mapping[str, int]) -> int:
    return stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"] + _META_PAGES


def _price(page: int, key_nbytes: int, value_nbytes: int) -> int:
    """Return what a value takes: whole pages of its own if it is large, else its share of a page that is half full.

    >>> _price(4096, 24, 8416), _price(4096, 24, 100)
    (12368, 280)
    """
    node = key_nbytes + _NODE_BYTES
    if node + value_nbytes <= (page - _PAGE_HEADER_BYTES) // 2 - MOST_KEY_BYTES:
        return 2 * (node + value_nbytes)
    return -(-(value_nbytes + _PAGE_HEADER_BYTES) // page) * page + 2 * node


def _put(pairs: _Pairs, capacity_bytes: int, env: Any) -> list[bytes]:
    """Store those of the pairs that there is room for, and return their keys."""
    chosen = _fitting(pairs, capacity_bytes, env)
    if len(chosen) < len(pairs):
        # What is to be replaced makes room.
        with env.begin(buffers=True) as reading:
            replaced = [key for key, _ in pairs if reading.get(key) is not None]
        if replaced:
            _delete(replaced, env)
        chosen = _fitting(pairs, capacity_bytes, env)
    return _write(chosen, env) if chosen else []


def _fitting(pairs: _Pairs, capacity_bytes: int, env: Any) -> _Pairs:
    """Return the pairs that fit, in their order."""
    page, stat = _page_bytes(env), env.stat()
    pages = capacity_bytes // page
    spare = max(_LEAST_SPARE, pages // _SPARE_SHARE)
    # A change copies a page of each level of the tree, and of the list of free ones.
    free = (pages - spare - _used_pages(stat) - 2 * stat["depth"]) * page
    chosen: _Pairs = []
    for key, value in pairs:
        price = _price(page, len(key), len(value))
        if price <= free:
            chosen.append((key, value))
            free -= price
    return chosen


def _write(pairs: _Pairs, env: Any) -> list[bytes]:
    """Store pairs in one transaction, or halves of them: a reader may keep pages from being used again."""
    import lmdb

    try:
        with env.begin(write=True) as writing:
            for key, value in pairs:
                writing.put(key, value)
    except lmdb.MapFullError:
        if len(pairs) == 1:
            return []
        half = len(pairs) // 2
        return _write(pairs[:half], env) + _write(pairs[half:], env)
    return [key for key, _ in pairs]


def _delete(keys: list[bytes], env: Any) -> None:
    """Remove keys in one transaction, or halves of them: each page that changes takes a free one."""
    import lmdb

    try:
        with env.begin(write=True) as writing:
            for key in keys:
                writing.delete(key)
        # Pages that one transaction has freed are there for the one after the next.
        with env.begin(write=True) as writing:
            writing.put(_TOUCHED, b"")
            writing.delete(_TOUCHED)
    except lmdb.MapFullError:
        if len(keys) <= 1:
            raise
        _delete(keys[: len(keys) // 2], env)
        _delete(keys[len(keys) // 2 :], env)


def _keys_after(last: bytes | None, env: Any) -> list[bytes]:
    with env.begin() as reading, reading.cursor() as cursor:
        found = cursor.first() if last is None else cursor.set_range(last + b"\0")
        return list(islice(cursor.iternext(values=False), _KEYS_AT_ONCE)) if found else []
