"""Putting arrays into a collection, and taking names out: packs first, then segments, then one manifest.

What a put has stored is not part of the collection until the manifest names its segments, all at once. A put that ends
before that leaves objects which nobody refers to; `sweep` deletes them. Memory is bounded: packs are stored as they
fill up, and a segment for every hundred thousand entries or so.
"""

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any

import numpy as np

from hyperslab.collections.blocks import DELETED, Row
from hyperslab.collections.columns import checked_attributes, join_type, type_of
from hyperslab.collections.kinds import checked_array, kind_text
from hyperslab.collections.manifest import Manifest, SegmentRef, change_manifest
from hyperslab.collections.names import encoded
from hyperslab.collections.packs import NO_PACK, Pack, pack_key
from hyperslab.collections.reading import ID_LIMIT
from hyperslab.collections.segment import PackedSegment, pack_segments, segment_key, text_bytes
from hyperslab.errors import InvalidInputError
from hyperslab.execute.write import StoreWriter
from hyperslab.layout.checksums import crc32c
from hyperslab.store import LocalStore

__all__ = ["Item", "Items", "Putting", "delete_names", "items_of", "store_segment"]

Item = tuple[str, Any, Mapping[str, Any] | None]
Items = Mapping[str, Any] | Iterable[tuple[str, Any] | tuple[str, Any, Mapping[str, Any] | None]]
Progress = Callable[[int, int], None]

# Rows that wait in memory to be sorted.
_SEGMENT_ROWS = 1 << 17
_SEGMENT_TEXT_BYTES = 128 << 20
# Packs on their way to a remote store at a time.
_LANES = 4
_GONE_KIND = kind_text(np.dtype(np.bool_), (0,))


def items_of(items: Any, attrs: Mapping[str, Mapping[str, Any]] | None) -> Iterator[Item]:
    """Yield name, array and attributes of what is to be put; those in `attrs` are added to an item's own."""
    if attrs is not None and not isinstance(attrs, Mapping):
        raise InvalidInputError(f"attrs is a mapping of names to attributes, not {type(attrs).__name__}")
    if not isinstance(items, Mapping) and not isinstance(items, Iterable):
        raise InvalidInputError(f"items are a mapping of names to arrays, or pairs of them, not {type(items).__name__}")
    for item in items.items() if isinstance(items, Mapping) else items:
        if not isinstance(item, tuple | list) or len(item) not in (2, 3):
            raise InvalidInputError("an item is (name, array) or (name, array, attributes)")
        name, array, own = item if len(item) == 3 else (*item, None)
        more = None if attrs is None or not isinstance(name, str) else attrs.get(name)
        yield name, array, own if more is None else {**(own or {}), **more}


class Putting:
    """One put, of however many arrays."""

    def __init__(self, writer: StoreWriter, path: str, columns: Mapping[str, str], pack_bytes: int) -> None:
        if type(pack_bytes) is not int or pack_bytes < 1:
            raise InvalidInputError(f"pack_bytes is how many bytes a pack may have, not {pack_bytes!r:.80}")
        self.writer, self.path, self.pack_bytes = writer, path, pack_bytes
        self.types = dict(columns)
        self.segments: list[SegmentRef] = []
        self.done_bytes = 0
        self._pack = Pack()
        self._sizes: dict[bytes, int] = {NO_PACK: 0}
        self._rows: list[Row] = []
        self._text_bytes = 0
        self._lanes = _Lanes(writer, pack_bytes)

    def run(self, items: Iterable[Item], tell: Progress | None, total: int) -> list[SegmentRef]:
        """Store packs and segments, which nobody refers to yet; return the segments."""
        with self._lanes:
            for item in items:
                self._add(*item)
                if tell is not None:
                    tell(self.done_bytes, max(total, self.done_bytes))
            self._close_segment()
        return self.segments

    def _add(self, name: str, value: Any, attrs: Mapping[str, Any] | None) -> None:
        text, array = encoded(name), checked_array(name, value)
        kind, plain = kind_text(array.dtype, array.shape), checked_attributes(name, attrs)
        for column, each in plain.items():
            join_type(self.types, column, type_of(each))
        if len(self._pack.data) and len(self._pack.data) + array.nbytes > self.pack_bytes:
            self._close_pack()
        pack, start = (self._pack.name, self._pack.add(_bytes_of(array))) if array.nbytes else (NO_PACK, 0)
        row = Row(text, 0, pack, 0, start, array.nbytes, kind, crc32c(array), 0, plain)
        self._rows.append(row)
        self._text_bytes += text_bytes(row)
        self.done_bytes += array.nbytes
        if len(self._rows) >= _SEGMENT_ROWS or self._text_bytes >= _SEGMENT_TEXT_BYTES:
            self._close_segment()

    def _close_pack(self) -> None:
        pack, self._pack = self._pack, Pack()
        self._sizes[pack.name] = len(pack.data)
        self._lanes.put(pack_key(self.path, pack.name.hex()), pack.data)

    def _close_segment(self) -> None:
        if len(self._pack.data):
            self._close_pack()
        rows, self._rows, self._text_bytes = self._rows, [], 0
        base, sizes = secrets.randbelow(ID_LIMIT - len(rows)), self._sizes
        # Of one name that was put twice the last counts.
        newest = {row.name: row._replace(id=base + at, pack_nbytes=sizes[row.pack]) for at, row in enumerate(rows)}
        for segment in pack_segments([newest[name] for name in sorted(newest)], _SEGMENT_ROWS):
            self.segments.append(store_segment(self.writer, self.path, segment))
        self._sizes = {NO_PACK: 0}

    def commit(self, uuid: str) -> Manifest | None:
        """Make what was stored part of the collection."""
        return append_segments(self.writer, self.path, uuid, self.segments, self.types)


def append_segments(
    writer: StoreWriter, path: str, uuid: str, segments: list[SegmentRef], types: Mapping[str, str]
) -> Manifest | None:
    """Put segments on top of those of the collection, as it is now; return its new manifest."""
    token = secrets.token_hex(8)

    def edit(found: Manifest) -> Manifest:
        if token in found.recent:
            # Stored by a try whose answer was lost, before another writer came.
            return found
        columns = dict(found.columns)
        for column, type_ in types.items():
            join_type(columns, column, type_)
        return replace(found, segments=(*found.segments, *segments), columns=columns).with_token(token)

    return change_manifest(writer, path, uuid, edit)


def delete_names(writer: StoreWriter, path: str, uuid: str, names: Iterable[bytes]) -> Manifest | None:
    """Say of names that there are no arrays of them any more."""
    rows = [Row(name, 0, NO_PACK, 0, 0, 0, _GONE_KIND, 0, DELETED, {}) for name in sorted(set(names))]
    segments = [store_segment(writer, path, segment) for segment in pack_segments(rows, _SEGMENT_ROWS)]
    return append_segments(writer, path, uuid, segments, {})


def store_segment(writer: StoreWriter, path: str, segment: PackedSegment) -> SegmentRef:
    """Store a segment, which nobody refers to yet."""
    writer.put(segment_key(path, segment.ref.name), segment.data)
    return segment.ref


def _bytes_of(array: "np.ndarray[Any, Any]") -> memoryview:
    # A view as bytes: not every dtype shows its memory.
    return np.ndarray((array.nbytes,), np.uint8, array).data if array.nbytes else memoryview(b"")


class _Lanes:
    """Stores packs, several at a time where that helps; no more of them wait than there are lanes."""

    def __init__(self, writer: StoreWriter, pack_bytes: int) -> None:
        self.writer = writer
        local = isinstance(writer.store, LocalStore)
        self._count = 1 if local else max(1, min(_LANES, writer.session.memory_bytes // pack_bytes))
        self._pool: ThreadPoolExecutor | None = None
        self._running: set[Future[Any]] = set()

    def __enter__(self) -> "_Lanes":
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        try:
            if kind is None:
                self._wait_for(0)
        finally:
            if self._pool is not None:
                self._pool.shutdown(wait=True, cancel_futures=True)
                self._pool = None

    def put(self, key: str, data: bytearray) -> None:
        if self._count == 1:
            self.writer.put(key, data)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._count, thread_name_prefix="hyperslab-pack")
        self._wait_for(self._count - 1)
        self._running.add(self._pool.submit(self.writer.put, key, data))

    def _wait_for(self, most: int) -> None:
        """Wait until no more than so many are under way; raise what one of them has raised."""
        while len(self._running) > most:
            ended, self._running = wait(self._running, return_when=FIRST_COMPLETED)
            for future in ended:
                future.result()
