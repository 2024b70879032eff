"""The manifest: one small document that says which segments make up a collection. Replacing it is every change.

    {"format": "hyperslab-collection", "version": 1, "uuid": …, "generation": 7, "columns": {"time": "float"},
     "segments": [{"name": …, "nbytes": …, "tail": …, "crc32c": …, "rows": …, "deleted": …, "data_bytes": …}, …],
     "recent": ["5d41402abc4b2a76", …], "crc32c": "1c291ca3"}

Segments are listed from the oldest on: of two entries of one name the later segment's counts. `tail` is where the
table of a segment's blocks begins, its `crc32c` is of that table. The manifest is only put over the version that was
read, so of two writers one has to look again; what both have written stays. `recent` are tokens of the last changes: a
writer whose answer was lost sees by them that it was heard, also if its segments were merged with others since.
"""

import json
import random
import re
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hyperslab.collections.columns import TYPES
from hyperslab.errors import ConflictError, FormatError, IntegrityError, MetadataError, NotFoundError, UnsupportedError
from hyperslab.execute.write import StoreWriter, versioned
from hyperslab.layout.checksums import crc32c

__all__ = ["Manifest", "SegmentRef", "change_manifest", "fetch_manifest", "join", "manifest_key", "new_manifest"]

FORMAT, VERSION = "hyperslab-collection", 1

_MAX_BYTES = 16 << 20
_MAX_SEGMENTS = 1 << 16
_MOST_RECENT = 64
_NAME = re.compile("[0-9a-f]{32}")
_TRIES = 200
_MOST_PAUSE_S = 0.5


@dataclass(frozen=True, slots=True)
class SegmentRef:
    """What the manifest says of a segment.

    `data_bytes` is what the arrays in it have in all, `deleted` how many rows only say that a name is gone.
    """

    name: str
    nbytes: int
    tail: int
    crc32c: int
    rows: int
    deleted: int
    data_bytes: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """A collection at one moment."""

    uuid: str
    generation: int = 0
    segments: tuple[SegmentRef, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    recent: tuple[str, ...] = ()

    def with_token(self, token: str) -> "Manifest":
        """Return the manifest that knows of one more change."""
        return replace(self, recent=(*self.recent, token)[-_MOST_RECENT:])

    def dump(self) -> bytes:
        """Return the manifest as it is stored."""
        document = self._document()
        return json.dumps({**document, "crc32c": _checksum(document)}, indent=1).encode("ascii")

    def _document(self) -> dict[str, Any]:
        names = SegmentRef.__slots__
        segments = [{name: getattr(segment, name) for name in names} for segment in self.segments]
        return {
            "format": FORMAT, "version": VERSION, "uuid": self.uuid, "generation": self.generation,
            "columns": dict(self.columns), "segments": segments, "recent": list(self.recent),
        }  # fmt: skip


def new_manifest() -> Manifest:
    """Return the manifest of a new collection, which holds nothing."""
    return Manifest(secrets.token_hex(16))


def join(path: str, name: str) -> str:
    """Return the key of something in a collection.

    >>> join("", "collection.json"), join("a/b", "index")
    ('collection.json', 'a/b/index')
    """
    return f"{path}/{name}" if path else name


def manifest_key(path: str) -> str:
    return join(path, "collection.json")


def parse_manifest(data: bytes, key: str) -> Manifest:
    """Return the manifest that these bytes are; raise a FormatError or IntegrityError for any others."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise MetadataError(f"{key!r} is not JSON: {error}") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise FormatError(f"{key!r} is not the manifest of a collection")
    if document.get("version") != VERSION:
        raise UnsupportedError(f"{key!r} is of version {document.get('version')!r:.40}; {VERSION} is supported")
    stored = document.pop("crc32c", None)
    if stored != (expected := _checksum(document)):
        raise IntegrityError(f"{key!r} is not as it was written: its crc32c is {expected}, stored was {stored!r:.40}")
    try:
        return _parsed(document)
    except (KeyError, TypeError, ValueError) as error:
        raise MetadataError(f"{key!r} contradicts itself: {error}") from None


def _parsed(document: dict[str, Any]) -> Manifest:
    uuid, columns = document["uuid"], document["columns"]
    if not isinstance(uuid, str) or not _NAME.fullmatch(uuid):
        raise ValueError("its uuid is none")
    if not isinstance(columns, dict) or not all(each == "str" or each in TYPES for each in columns.values()):
        raise ValueError("a column has no type")
    if not isinstance(document["segments"], list) or len(document["segments"]) > _MAX_SEGMENTS:
        raise ValueError("segments are listed")
    segments = tuple([_segment(each) for each in document["segments"]])
    if len({segment.name for segment in segments}) < len(segments):
        raise ValueError("a segment is listed twice")
    recent = document["recent"]
    if not isinstance(recent, list) or len(recent) > _MOST_RECENT or not all(isinstance(each, str) for each in recent):
        raise ValueError("the latest changes are listed by their tokens")
    return Manifest(uuid, _count(document["generation"]), segments, columns, tuple(recent))


def _segment(found: Any) -> SegmentRef:
    if not isinstance(found, dict) or not isinstance(found["name"], str) or not _NAME.fullmatch(found["name"]):
        raise ValueError("a segment has no name")
    numbers = {name: _count(found[name]) for name in SegmentRef.__slots__ if name != "name"}
    segment = SegmentRef(found["name"], **numbers)
    if not 0 < segment.tail < segment.nbytes or not 0 <= segment.deleted <= segment.rows:
        raise ValueError(f"segment {segment.name} has impossible sizes")
    return segment


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**62:
        raise ValueError(f"{value!r:.40} is no count")
    return value


def _checksum(document: Mapping[str, Any]) -> str:
    text = json.dumps(document, sort_keys=True, separators=(",", ":")).encode("ascii")
    return f"{crc32c(np.frombuffer(text, np.uint8)):08x}"


def fetch_manifest(writer: StoreWriter, path: str) -> tuple[Manifest, str | None] | None:
    """Return the manifest and its version, None if there is no collection."""
    key = manifest_key(path)
    reply = writer.get(key, limit_bytes=_MAX_BYTES, lookup=True)
    return None if reply is None else (parse_manifest(bytes(reply.data), key), reply.etag)


def change_manifest(
    writer: StoreWriter, path: str, uuid: str, edit: Callable[[Manifest], Manifest | None]
) -> Manifest | None:
    """Replace the manifest, as it is stored now, by what `edit` makes of it, and return that.

    What `edit` gets may be what an earlier try has stored, whose answer was lost: it must then give the same back. None
    leaves the collection as it is.
    """
    key = manifest_key(path)
    for attempt in range(_TRIES):
        reply = writer.get(key, limit_bytes=_MAX_BYTES, lookup=True)
        if reply is None:
            raise NotFoundError(f"{key!r} is gone; was the collection deleted?")
        found = parse_manifest(bytes(reply.data), key)
        if found.uuid != uuid:
            raise ConflictError(f"{key!r} is of another collection now; open it again")
        changed = edit(found)
        if changed is None or changed == found:
            return changed
        changed = replace(changed, generation=found.generation + 1)
        try:
            writer.put(key, changed.dump(), if_match=versioned(reply, key))
            return changed
        except ConflictError:
            time.sleep(random.uniform(0, min(_MOST_PAUSE_S, 0.002 * 2.0 ** min(attempt, 16))))
    raise ConflictError(f"{key!r} was changed by other writers {_TRIES} times meanwhile; try again later")
