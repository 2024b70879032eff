"""The array in its new layout while that is being built: objects beside those that are read, put with care."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hyperslab.execute import Snapshot
from hyperslab.execute.write import StoreWriter, versioned
from hyperslab.formats.copying import Place
from hyperslab.formats.zarr.array import ZarrArray, coords_of
from hyperslab.formats.zarr.seal import Seal, sealed
from hyperslab.layout import ChunkKeys
from hyperslab.rechunk.targets import source_of
from hyperslab.store import Reply, Span

__all__ = ["BesideArray"]

Document = dict[str, Any]
Coords = tuple[int, ...]


class BesideArray(ZarrArray):
    """An array in a layout that its stored metadata do not have yet.

    `check` raises if this process must not go on. `known` are the objects that are there, `stored` those that were put
    since it was cleared, and read back if they are to be verified.
    """

    def __init__(
        self, place: Place, document: Document, seal: Seal | None, *, complete: bool, verify: bool,
        check: Callable[[], None],
    ) -> None:  # fmt: skip
        if seal is not None:
            document = sealed(document, replace(seal, complete=None))
        source = source_of(document, place)
        source = replace(source, layout=replace(source.layout, complete=complete))
        super().__init__(place.session, place.store, source, Snapshot(), document)
        self.verify, self.check = verify, check
        self.known: set[Coords] = set()
        self.stored: set[Coords] = set()
        # The versions of objects that were put here.
        self.etags: dict[str, str | None] = {}

    def writer(self) -> StoreWriter:
        """Return what puts objects only while this process may go on."""
        return _BesideWriter(self)

    def coords(self, key: str) -> Coords | None:
        """Return the place of an object, None if the key names none of the new layout."""
        layout = self.source.layout
        assert isinstance(layout.keys, ChunkKeys)
        return coords_of(layout.keys, key, len(layout.shape))


class _BesideWriter(StoreWriter):
    def __init__(self, array: BesideArray) -> None:
        super().__init__(array.session, array.store)
        self.array = array

    def put(self, key: str, data: Any, *, if_match: str | None = None, if_absent: bool = False) -> str | None:
        """Store an object where none is, or over the version that was there before it was seen that we may."""
        array, coords = self.array, self.array.coords(key)
        assert coords is not None
        if if_match is None and not if_absent:
            if_match = self._version(key, coords)
        array.check()
        array.stored.discard(coords)
        etag = array.etags[key] = super().put(key, data, if_match=if_match, if_absent=if_match is None)
        array.known.add(coords)
        if not array.verify:
            array.stored.add(coords)
        return etag

    def get(self, key: str, span: Span = None, *, limit_bytes: int | None = None, lookup: bool = False) -> Reply | None:
        """Return an object, or a range of it; that a whole one could be read is noted."""
        reply = super().get(key, span, limit_bytes=limit_bytes, lookup=lookup)
        coords = self.array.coords(key)
        if reply is not None and span is None and coords is not None:
            self.array.stored.add(coords)
        return reply

    def _version(self, key: str, coords: Coords) -> str | None:
        if coords not in self.array.known:
            return None
        etag = self.array.etags.get(key)
        if etag is None:
            reply = super().get(key, -1, lookup=True)
            etag = None if reply is None else versioned(reply, key)
        return etag
