"""Deleting what changes of layout leave behind: objects of old layouts, and those of a change that is given up."""

import time
from dataclasses import replace
from typing import Any

from hyperslab.errors import ConflictError
from hyperslab.execute import StoreReader
from hyperslab.execute.write import StoreWriter
from hyperslab.formats import member_names
from hyperslab.formats.copying import Place
from hyperslab.formats.source import ArraySource, join
from hyperslab.formats.zarr import array as zarr_array
from hyperslab.formats.zarr import claims
from hyperslab.formats.zarr.change import MARK, Change, change_of, marked, same_layout
from hyperslab.formats.zarr.documents import change_document
from hyperslab.formats.zarr.seal import Seal
from hyperslab.formats.zarr.v3 import parse_node
from hyperslab.rechunk.parents import update_parents
from hyperslab.rechunk.taking import take_mark
from hyperslab.rechunk.targets import fetch_array, is_left_over

__all__ = ["sweep_tree"]

Document = dict[str, Any]


def sweep_tree(place: Place) -> int:
    """Delete old objects of the array here, or of all arrays below the group here; return how many there were."""
    document, _ = fetch_array(place.writer(), place)
    source = parse_node(document, place.url, place.path)
    if isinstance(source, ArraySource):
        return _Sweep(place, document, source).run()
    names = member_names(StoreReader(place.session, place.store), replace(source, members=None))
    return sum(sweep_tree(place.member(name)) for name in names)


class _Sweep:
    """One sweep. As its deletions cannot be made conditional, a mark says that it is on: nobody builds a new layout."""

    def __init__(self, place: Place, document: Document, source: ArraySource) -> None:
        self.place, self.document, self.source, self.writer = place, document, source, place.writer()
        self.key = join(place.path, "zarr.json")
        self.token = claims.new_claim()
        self._trusted_until_s = 0.0

    def run(self) -> int:
        """Bring metadata in order first, so that nothing half deleted can be read; then delete."""
        try:
            update_parents(self.place)
            attributes = self.document.get("attributes")
            if not self._doomed() and not (isinstance(attributes, dict) and MARK in attributes):
                return 0
            take_mark(self.writer, self.key, self._decide, url=self.place.url)
            doomed = self._doomed()
            if doomed:
                # Those who trust what they saw of the metadata before have looked again, or are done, by then.
                time.sleep(2 * zarr_array.TRUST_S)
            StoreWriter(self.place.session, self.place.store).each(doomed, self._delete, held_bytes=1)
            change_document(self.writer, self.key, self._without_mark)
            return len(doomed)
        finally:
            claims.drop_claim(self.token)

    def _doomed(self) -> list[str]:
        return [key for key, _ in self.writer.keys(self.place.path) if is_left_over(self.source, key)]

    def _decide(self, document: Document, seal: Seal | None, left: Change | None) -> Change:
        self._check_layout(document)
        return Change(self.token, self.source.layout.shape)

    def _without_mark(self, document: Document, seal: Seal | None) -> tuple[Document, Seal | None]:
        self._check(document)
        return marked(document, None), seal

    def _delete(self, key: str) -> None:
        if time.monotonic() > self._trusted_until_s:
            at_s = time.monotonic()
            self._check(fetch_array(self.writer, self.place)[0])
            self._trusted_until_s = at_s + zarr_array.TRUST_S
        self.writer.delete(key)

    def _check(self, document: Document) -> None:
        self._check_layout(document)
        change = change_of(document, self.key)
        if change is None or change.token != self.token:
            raise ConflictError(f"another process has taken over {self.place.url!r} meanwhile; sweep it again")

    def _check_layout(self, document: Document) -> None:
        if not same_layout(document, self.document):
            raise ConflictError(f"{self.place.url!r} was given another layout meanwhile; sweep it again")
