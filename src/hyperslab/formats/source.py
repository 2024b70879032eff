"""Sources: what is known of an array or a group once its metadata has been read."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt

from hyperslab.errors import InvalidInputError, MetadataError
from hyperslab.layout import ChunkTable, FileVersion, Layout, References
from hyperslab.layout.compression import DEFAULT, Compression
from hyperslab.plan import Pieces
from hyperslab.store import Reply, Span

__all__ = [
    "MAX_METADATA_BYTES",
    "ArraySource",
    "CellLookup",
    "ChunkLookup",
    "FilePart",
    "GroupSource",
    "MemberLookup",
    "MetadataReader",
    "StoredBytes",
    "check_name",
    "check_stored_name",
    "join",
    "load_document",
    "parse_document",
]

T = TypeVar("T")

# Larger metadata documents are refused; readers may refuse them before they fetch them.
MAX_METADATA_BYTES = 64 << 20
_MAX_DEPTH = 100


@dataclass(frozen=True, slots=True)
class FilePart:
    """An array or group inside of a stored file: the file's key and version, the path in it.

    `address` tells objects apart: in a file several paths can lead to one.
    """

    key: str
    path: str
    version: FileVersion
    address: int | None = None


class ChunkLookup(Protocol):
    """Finds out where an array's chunks lie, when that is needed for the first time."""

    def lookup(self, reader: "MetadataReader", wanted: Pieces) -> ChunkTable | References | None:
        """Return a table, or references, that hold for the chunks of a read alone; None if `table` is to be read."""
        ...

    def table(self, reader: "MetadataReader") -> ChunkTable:
        """Return the table of all chunks; asked for where `lookup` gives None."""
        ...


class MemberLookup(Protocol):
    """Knows the members of a group that is not laid out as keys of a store."""

    def names(self, reader: "MetadataReader") -> list[str]:
        """Return the names one level below the group, sorted."""
        ...

    def member(self, reader: "MetadataReader", group: "GroupSource", name: str) -> "ArraySource | GroupSource":
        """Return the member `name`, a checked path below the group."""
        ...


class CellLookup(Protocol):
    """Turns cells that only refer to others, elsewhere in the file, into these, of type `dtype`."""

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def resolve(self, reader: "MetadataReader", cells: npt.NDArray[Any]) -> npt.NDArray[Any]: ...


@dataclass(frozen=True, slots=True)
class ArraySource:
    """An opened array: its layout and what its metadata says besides.

    While `chunks` is there, the layout lacks its table. With `cells`, what is read are references. `compression` is how
    it is compressed if it is written anew and nothing else is said: as now, where that is known.
    """

    url: str
    path: str
    format: str
    layout: Layout
    attrs: Mapping[str, Any]
    dimension_names: tuple[str | None, ...] | None = None
    part: FilePart | None = None
    chunks: ChunkLookup | None = None
    cells: CellLookup | None = None
    compression: Compression | None = DEFAULT

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the cells that a user gets."""
        return self.layout.dtype if self.cells is None else self.cells.dtype

    def resolve(self, reader: "MetadataReader", cells: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return what the user gets for cells as they are stored."""
        return cells if self.cells is None else self.cells.resolve(reader, cells)


@dataclass(frozen=True, slots=True)
class GroupSource:
    """An opened group. `members` is its consolidated metadata, by path below it; None if it has none.

    With `inside`, what the store's keys say is not asked: that knows the members.
    """

    url: str
    path: str
    format: str
    attrs: Mapping[str, Any]
    members: Mapping[str, dict[str, Any]] | None = None
    part: FilePart | None = None
    inside: MemberLookup | None = None


class StoredBytes(Protocol):
    """One version of a stored file, read in parts."""

    @property
    def size(self) -> int: ...

    @property
    def etag(self) -> str | None: ...

    @property
    def version(self) -> FileVersion: ...

    @property
    def local(self) -> bool:
        """Whether a request costs next to nothing."""
        ...

    def read(self, start: int, nbytes: int) -> memoryview:
        """Return exactly these bytes."""
        ...

    def read_many(self, spans: Sequence[tuple[int, int]]) -> list[memoryview]:
        """Return the bytes of each (start, length), fetched together."""
        ...

    def passing(self) -> "StoredBytes":
        """Return the same file for parts that are not worth being held: what is made of them is remembered."""
        ...

    def recall(self, what: str, unpack: Callable[[bytes], T]) -> T | None:
        """Return what was remembered of this version of the file under that name, or None."""
        ...

    def remember(self, what: str, value: T, pack: Callable[[T], bytes]) -> None:
        """Keep something made out of the file, for whoever opens this version next."""
        ...

    def keep(self) -> None:
        """Keep what was fetched so far, for whoever opens this version next."""
        ...

    def held(self, what: str) -> Any:
        """Return what is held in memory of this version of the file under that name, or None."""
        ...

    def hold(self, what: str, value: Any, nbytes: int) -> None:
        """Hold something made out of the file in memory, as long as there is room for `nbytes`."""
        ...


class MetadataReader(Protocol):
    """Fetches the small objects that describe arrays. Keys are relative to the store's root."""

    def get(self, key: str) -> bytes | None:
        """Return the whole object, None if it is not there."""
        ...

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        """Return whole objects, fetched at the same time; None for each that is not there."""
        ...

    def get_range(self, key: str, start: int, stop: int) -> bytes | None:
        """Return the bytes from `start` to `stop`, fewer at the object's end; None if it is not there."""
        ...

    def size(self, key: str) -> int | None:
        """Return the object's size in bytes, None if it is not there."""
        ...

    def fetch_many(self, wanted: Sequence[tuple[str, Span, int]]) -> list[Reply | None]:
        """Fetch (name, span, bytes expected) of several objects together; None for those that are not there.

        A name is a key, or a URL that references may lead to. An object much larger than expected is refused.
        """
        ...

    def held(self, name: str, what: str) -> Any:
        """Return what is held in memory under that name of an object which does not change; or None."""
        ...

    def hold(self, name: str, what: str, value: Any, nbytes: int) -> None:
        """Hold something made of an object which does not change, as long as there is room for `nbytes`."""
        ...

    def file(self, key: str, version: FileVersion | None = None) -> StoredBytes | None:
        """Return a file to read in parts, None if it is not there; of that version, where one is given."""
        ...

    def children(self, prefix: str) -> list[str]:
        """Return the names one level below `prefix`, sorted."""
        ...


def join(*parts: str) -> str:
    """Join keys, leaving out empty ones.

    >>> join("", "a/b", "zarr.json")
    'a/b/zarr.json'
    """
    return "/".join(part for part in parts if part)


def load_document(reader: MetadataReader, key: str) -> dict[str, Any] | None:
    """Return the JSON object stored under `key`, None if nothing is."""
    data = reader.get(key)
    return None if data is None else parse_document(data, key)


def parse_document(data: bytes, key: str) -> dict[str, Any]:
    """Return the JSON object in `data`, within bounds of size and depth."""
    if len(data) > MAX_METADATA_BYTES:
        raise MetadataError(f"{key!r} has {len(data)} bytes; metadata is read up to {MAX_METADATA_BYTES}")
    try:
        document = json.loads(data)
    except RecursionError:
        raise MetadataError(f"{key!r} is nested deeper than {_MAX_DEPTH} levels") from None
    except ValueError as error:
        raise MetadataError(f"{key!r} is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise MetadataError(f"{key!r} holds a JSON {type(document).__name__}, expected an object")
    _check_depth(document, key)
    return document


def _check_depth(document: dict[str, Any], key: str) -> None:
    level: list[Any] = [document]
    for _ in range(_MAX_DEPTH):
        level = [
            child
            for node in level
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, dict | list)
        ]
        if not level:
            return
    raise MetadataError(f"{key!r} is nested deeper than {_MAX_DEPTH} levels")


def check_name(name: object) -> str:
    """Return `name`, a path inside of a group; raise InvalidInputError if it could lead out of it.

    >>> check_name("a/b")
    'a/b'
    """
    if not isinstance(name, str) or not name:
        raise InvalidInputError(f"a member's name is a non-empty string, not {name!r}")
    decoded = name
    for _ in range(4):  # percent signs may themselves be encoded
        parts = decoded.replace("\\", "/").split("/")
        if {"", ".", ".."}.intersection(parts) or "\0" in decoded or "\\" in decoded:
            raise InvalidInputError(f"{name!r} is no member's name; expected names joined by '/', none of them '..'")
        decoded, before = unquote(decoded), decoded
        if decoded == before:
            break
    else:
        raise InvalidInputError(f"{name!r} is no member's name: it is percent-encoded too many times")
    return name


def check_stored_name(name: str, key: str) -> None:
    """Raise MetadataError if `name`, found in the document `key`, could lead out of its group."""
    try:
        check_name(name)
    except InvalidInputError as error:
        raise MetadataError(f"{key!r} lists {name[:200]!r}, which is no member's name") from error
