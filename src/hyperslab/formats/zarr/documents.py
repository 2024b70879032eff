"""Metadata documents being changed: read with their version, edited, sealed, and put back only over that version."""

import json
import random
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from hyperslab.errors import ConflictError, InvalidInputError, NotFoundError
from hyperslab.execute.write import StoreWriter, versioned
from hyperslab.formats.source import MAX_METADATA_BYTES, join, parse_document
from hyperslab.formats.zarr.change import RESERVED, user_attributes
from hyperslab.formats.zarr.seal import Seal, check_seal, sealed, unsealed_attributes

__all__ = ["Attributes", "Edit", "change_attributes", "change_document", "dump", "fetch_document", "plain_attributes"]

Document = dict[str, Any]
# Takes a document and its seal, returns what it is to become; no seal stays no seal.
Edit = Callable[[Document, Seal | None], tuple[Document, Seal | None]]

_TRIES = 64
_MOST_PAUSE_S = 0.5


def fetch_document(writer: StoreWriter, key: str, *, checked: bool = True) -> tuple[Document, str] | None:
    """Return a document and its version, None if it is not there; its seal must hold."""
    reply = writer.get(key, limit_bytes=MAX_METADATA_BYTES, lookup=True)
    if reply is None:
        return None
    document = parse_document(bytes(reply.data), key)
    if checked:
        check_seal(document, key)
    return document, versioned(reply, key)


def change_document(writer: StoreWriter, key: str, edit: Edit, *, make: bool = False) -> Document:
    """Change a document as it is stored now, and return it; what others change meanwhile is kept.

    With `make`, one that is not there starts out empty.
    """
    for attempt in range(_TRIES):
        found = fetch_document(writer, key)
        if found is None and not make:
            raise NotFoundError(f"{key!r} is gone; was the array or group deleted?")
        document, etag = found if found is not None else ({}, None)
        seal = check_seal(document, key)
        changed, seal = edit(document, seal)
        if seal is not None:
            changed = sealed(changed, seal)
        text = dump(changed)
        if text == dump(document):  # to Python 1 and True are equal
            return document
        try:
            writer.put(key, text, if_match=etag, if_absent=etag is None)
            return changed
        except ConflictError:
            time.sleep(random.uniform(0, min(_MOST_PAUSE_S, 0.002 * 2.0**attempt)))
    raise ConflictError(f"{key!r} was changed by other writers {_TRIES} times meanwhile; try again later")


def dump(document: Mapping[str, Any]) -> bytes:
    """Return a document as it is stored."""
    try:
        return json.dumps(document, indent=2).encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"metadata must be JSON: {error}") from error


def plain_attributes(attrs: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return attributes as JSON has them: NumPy's numbers and arrays become Python's.

    >>> plain_attributes({"scale": np.float32(0.5), "at": (1, 2)})
    {'scale': 0.5, 'at': [1, 2]}
    """
    if attrs is None:
        return {}
    if not isinstance(attrs, Mapping):
        raise InvalidInputError(f"attributes must be a mapping of names to values, not {type(attrs).__name__}")
    return {_name(name): _plain(name, value, 0) for name, value in attrs.items()}


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise InvalidInputError(f"an attribute's name is a string, not {name!r}")
    if name in RESERVED:
        raise InvalidInputError(f"the attribute {name!r} is {RESERVED[name]}; choose another name")
    return name


def _plain(name: object, value: Any, depth: int) -> Any:
    if depth > 64:
        raise InvalidInputError(f"attribute {name!r} is nested deeper than 64 levels")
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(name, each, depth + 1) for each in value]
    if isinstance(value, Mapping) and all(isinstance(each, str) for each in value):
        return {each: _plain(name, inner, depth + 1) for each, inner in value.items()}
    raise InvalidInputError(f"attribute {name!r} holds a {type(value).__name__}, which JSON has no form for")


def change_attributes(
    writer: StoreWriter, path: str, form: str, sets: Mapping[str, Any], drops: Iterable[str]
) -> dict[str, Any]:
    """Set and drop attributes of an array or group; return all that it then has."""
    wanted, unwanted = plain_attributes(sets), set(drops) - RESERVED.keys()
    if form == "zarr2":
        return change_document(
            writer, join(path, ".zattrs"), lambda found, _: (_merged(found, wanted, unwanted), None), make=True
        )

    def edit(found: Document, seal: Seal | None) -> tuple[Document, Seal | None]:
        return {**found, "attributes": _merged(unsealed_attributes(found), wanted, unwanted)}, seal

    return user_attributes(change_document(writer, join(path, "zarr.json"), edit))


def _merged(found: Mapping[str, Any], sets: Mapping[str, Any], drops: set[str]) -> dict[str, Any]:
    return {**{name: value for name, value in found.items() if name not in drops}, **sets}


class Attributes(dict[str, Any]):
    """The user's attributes: a dictionary that is stored when it is changed.

    `change(sets, drops)` stores and returns all attributes. Changing a list inside of a value changes nothing stored.
    """

    def __init__(self, found: Mapping[str, Any], change: Callable[..., Mapping[str, Any]]) -> None:
        super().__init__(found)
        self._change = change

    def _store(self, sets: Mapping[str, Any], drops: Iterable[str] = ()) -> None:
        found = dict(self._change(sets, drops))
        super().clear()
        super().update(found)

    def __setitem__(self, name: str, value: Any) -> None:
        self._store({name: value})

    def __delitem__(self, name: str) -> None:
        if name not in self:
            raise KeyError(name)
        self._store({}, [name])

    def update(self, *args: Any, **more: Any) -> None:
        self._store(dict(*args, **more))

    def __ior__(self, other: Any) -> "Attributes":  # type: ignore[override,misc]
        self._store(dict(other))
        return self

    def clear(self) -> None:
        self._store({}, list(self))

    def setdefault(self, name: str, default: Any = None) -> Any:
        if name not in self:
            self[name] = default
        return self[name]

    def pop(self, name: str, *default: Any) -> Any:
        value = self.get(name, *default) if default else self[name]
        if name in self:
            del self[name]
        return value

    def popitem(self) -> tuple[str, Any]:
        if not self:
            raise KeyError("there are no attributes")
        name, value = next(reversed(self.items()))
        del self[name]
        return name, value

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)
