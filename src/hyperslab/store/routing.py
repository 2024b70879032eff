"""From names in references to stores: only where they may lead. A store that is several."""

import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, cast

from hyperslab.errors import AccessError, InvalidInputError, MetadataError
from hyperslab.store.base import Heard, Reply, Span, Store, check_key
from hyperslab.store.local import LocalStore
from hyperslab.store.targets import Spot, Targets, parse_spot, take_targets
from hyperslab.store.url import locate

__all__ = ["RoutedStore", "place_of", "route", "virtual_store"]


def place_of(store: Store, name: str) -> tuple[Store, str]:
    """Return the store and the key that a name in references leads to.

    A name is a key of the store that holds the references, or a URL: of that store, or of one that its `targets`
    allow. Anything else raises AccessError, whatever there is.
    """
    spot = parse_spot(name)
    if spot is None:
        return store, _own_key(name)
    own = _inside(store, spot)
    if own is not None:
        return store, own
    targets: Targets | None = getattr(store, "targets", None)
    for number, (allowed, _) in enumerate(() if targets is None else targets.allowed):
        below = parse_spot(allowed)
        if targets is not None and below is not None and below.holds(spot):
            if spot.kind == "file":
                return LocalStore("/" + below.path), spot.path[len(below.path) :].strip("/")
            return _opened(targets, number, store.scheme), spot.path
    root = "/".join([f"{spot.kind}://{spot.root}", spot.path.rpartition("/")[0]])
    raise AccessError(
        f"a reference leads to {name[:200]!r}, out of {store.address.partition('?')[0]}, and is not followed; if you "
        f"trust it, open with storage_options={{'targets': [{root[:200]!r}]}}"
    )


def route(store: Store, names: tuple[str, ...]) -> tuple[Store, list[str]]:
    """Return one store that has all objects that references name, and their keys in it."""
    places = [place_of(store, name) for name in names]
    stores = list({id(each): each for each, _ in places}.values())
    roots = [each.root for each in stores if isinstance(each, LocalStore)]
    if len(stores) <= 1:
        return (stores or [store])[0], [key for _, key in places]
    if len(roots) == len(stores):
        # Files, wherever they are, lie below one directory.
        common = os.path.commonpath(roots)
        record = stores[0].record
        keys = [os.path.relpath(os.path.join(_root(each), key), common) for each, key in places]
        return LocalStore(common, record=record), keys
    named = [f"{each.address.partition('?')[0]}/{key}" for each, key in places]
    if len(set(named)) < len(set(zip(map(id, [each for each, _ in places]), [key for _, key in places], strict=True))):
        named = [f"{stores.index(each)}: {name}" for (each, _), name in zip(places, named, strict=True)]
    return cast("Store", RoutedStore(store, dict(zip(named, places, strict=True)))), named


class RoutedStore:
    """Objects of several stores under one roof, which can be read and nothing else.

    Plans take it for the first of them that is far away.
    """

    has_suffix = True

    def __init__(self, home: Store, places: Mapping[str, tuple[Store, str]]) -> None:
        self._places, self.record = places, home.record
        far = [each for each, _ in places.values() if not isinstance(each, LocalStore)]
        main = next((each for each in far if each.scheme != "memory"), far[0] if far else home)
        self.address, self.scheme = main.address, main.scheme

    def __repr__(self) -> str:
        return f"RoutedStore({sorted({each.address for each, _ in self._places.values()})!r})"

    async def aget(
        self,
        key: str,
        span: Span = None,
        *,
        if_match: str | None = None,
        timeout_s: float | None = None,
        limit_bytes: int | None = None,
        heard: Heard | None = None,
    ) -> Reply:
        """Get the object from the store that has it."""
        store, inside = self._places[key]
        return await store.aget(
            inside, span, if_match=if_match, timeout_s=timeout_s, limit_bytes=limit_bytes, heard=heard
        )


def virtual_store(storage_options: Mapping[str, Any] | None) -> Store:
    """Return the store of what has no place of its own: it is empty, and all that it leads to are its targets.

    Options beside `targets` are for those in a cloud that have none of their own.
    """
    rest, targets = take_targets(storage_options)
    allowed = () if targets is None else targets.allowed
    pairs = [(url, rest if own is None and _kind(url) in ("s3", "gs", "az") else own) for url, own in allowed]
    return locate("memory://virtual", {"targets": dict(pairs)})[0]


def _kind(url: str) -> str:
    spot = parse_spot(url)
    return "" if spot is None else spot.kind


def _own_key(name: str) -> str:
    try:
        check_key(name)
    except InvalidInputError as error:
        raise MetadataError(f"a reference cannot be followed: {error}") from None
    return name


def _inside(store: Store, spot: Spot) -> str | None:
    """Return the key of a place within a store, None if it is not there."""
    if isinstance(store, LocalStore):
        root = Spot("file", "", store.root.strip("/"))
        return spot.path[len(root.path) :].strip("/") if root.holds(spot) and spot != root else None
    address, _, query = store.address.partition("?")
    home = parse_spot(address)
    if home is None:
        return None
    if spot.kind == "az" and home.kind == "az":
        container, _, account = spot.root.partition("@")
        same = container == home.root and (not account or f"account={account}" in query.split("&"))
        return spot.path if same and spot.path else None
    # What is behind the '?' of a web address names one object there, perhaps with a login.
    if query and home.kind in ("http", "https"):
        return None
    return spot.path if home.holds(spot) and spot.path else None


@lru_cache(maxsize=64)
def _opened(targets: Targets, number: int, own_kind: str) -> Store:
    url = targets.allowed[number][0]
    return locate(url, targets.options_for(number, _kind(url), own_kind))[0]


def _root(store: Store) -> str:
    return store.root if isinstance(store, LocalStore) else ""
