"""Changing the layout of a Zarr v3 array in place: readers and writers go on, and a kill at any moment does no harm.

The new objects are written beside the old ones, under other names. Meanwhile a mark in the metadata says so: own
writers add to it what they write. When all is moved, one conditional put of the metadata changes over to the new
layout. It fails if anybody wrote since the metadata were looked at last; then those cells are moved again. Other
programs do not know the mark: their writes are seen by listing the old objects with their versions, before and after;
one that falls between the last listing and the put, a moment later, is not seen.

Only one process does it at a time: the mark has its claim. One that was killed is followed by whoever asks for the same
change, and goes on where it was. One that was only held up finds out before it puts anything: every put is of an object
that was not there, or in the version that it had before the claim was last found to hold.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

from hyperslab.errors import ConflictError, HyperslabError, IntegrityError, InvalidInputError
from hyperslab.formats.copying import Place, Progress
from hyperslab.formats.source import ArraySource, join
from hyperslab.formats.zarr import claims
from hyperslab.formats.zarr.change import Change, change_of, layout_of, marked, same_layout
from hyperslab.formats.zarr.documents import dump, fetch_document
from hyperslab.formats.zarr.seal import Seal, check_seal, sealed
from hyperslab.rechunk.beside import BesideArray
from hyperslab.rechunk.listing import Listing, list_objects
from hyperslab.rechunk.moving import check_memory, move_cells
from hyperslab.rechunk.parents import update_parents
from hyperslab.rechunk.reading import Opened
from hyperslab.rechunk.taking import take_mark
from hyperslab.rechunk.targets import fetch_array, new_layout, source_of
from hyperslab.selection import Box

__all__ = ["LayoutChange", "rechunk_in_place"]

Document = dict[str, Any]
Coords = tuple[int, ...]

# How often the process says that it is alive: others take over when it has not for `claims.PATIENCE_S`.
_BEAT_S = 20.0
# How often cells are moved again because they were written meanwhile, and how often one move is tried.
_ROUNDS = 64
_TRIES = 16


def rechunk_in_place(
    place: Place,
    settings: Mapping[str, Any],
    *,
    memory_bytes: int,
    progress: Progress | None = None,
    verify: bool = True,
    scratch_dir: str | None = None,
) -> ArraySource:
    """Give the array at a place another layout (`chunks`, `shards`, `layout`), and return it.

    The old objects stay for those who have the array open, until `sweep`. Calling again after an interruption goes on
    where it was.
    """
    change = LayoutChange(place, settings, memory_bytes=memory_bytes, verify=verify, scratch_dir=scratch_dir)
    try:
        if change.begin():
            change.move(progress)
            change.end()
        update_parents(place)
    finally:
        change.close()
    return source_of(fetch_array(place.writer(), place)[0], place)


class LayoutChange:
    """One change of an array's layout, step by step: `begin`, `move`, `end`; and `close`, whatever happens."""

    def __init__(
        self,
        place: Place,
        settings: Mapping[str, Any],
        *,
        memory_bytes: int,
        verify: bool = True,
        scratch_dir: str | None = None,
    ) -> None:
        self.place, self.settings, self.writer = place, settings, place.writer()
        self.memory_bytes, self.verify, self.scratch_dir = memory_bytes, verify, scratch_dir
        self.key = join(place.path, "zarr.json")
        self.token = claims.new_claim()
        self._lost: HyperslabError | None = None
        # The number of the last write that was moved, and the old objects as they were before they were read last.
        self._moved, self._seen = 0, Listing({}, {})

    def begin(self) -> bool:
        """Put the mark; False if the array has that layout already."""
        self.old_document, _ = fetch_array(self.writer, self.place)
        self.old = source_of(self.old_document, self.place)
        self.target_layout = new_layout(self.old_document, self.old, self.settings)
        if self.target_layout == layout_of(self.old_document):
            _check_no_other(self.old_document, self.key, self.place.url)
            return False
        self.target = BesideArray(
            self.place, {**self.old_document, **self.target_layout}, check_seal(self.old_document, self.key),
            complete=self.old.layout.complete, verify=self.verify, check=self.check,
        )  # fmt: skip
        check_memory(
            Opened(self.old, self.place.store), self.target, memory_bytes=self.memory_bytes, verify=self.verify
        )
        self._seen = self._list()
        self._again = self._look_at_what_is_there(take_mark(self.writer, self.key, self._decide, url=self.place.url))
        return True

    def _decide(self, document: Document, seal: Seal | None, left: Change | None) -> Change:
        """Return the mark to put: a new one, or that of a process that is gone and was at the same."""
        url, new = self.place.url, Change(self.token, self.old.layout.shape, self.target_layout)
        if not same_layout(document, self.old_document) or document.get("shape") != list(new.shape):
            raise ConflictError(f"{url!r} was changed by another writer just now; call again")
        if seal is not None and seal.copying is not None:
            raise InvalidInputError(f"{url!r} is being copied to, or such a copy is unfinished; finish that first")
        if left is None:
            if self._seen.new:
                raise _sweep_first(url, self._seen)
            return new
        if left.target is None:
            raise InvalidInputError(f"sweeping old objects of {url!r} was interrupted; call hs.sweep(url) first")
        if left.shape != new.shape:  # nothing of it can be used; and what is not `seen` is deleted
            return new
        if left.target != new.target:
            raise _unfinished(url, left)
        return replace(left, token=self.token, closing=False)

    def _look_at_what_is_there(self, change: Change) -> list[Box]:
        """Return the boxes of cells that the new objects which are there perhaps do not hold as they are now."""
        self._seen, self._moved = self._list(), change.number
        if change.seen is None:
            self._delete(list(self._seen.new))
            self._seen = replace(self._seen, new={})
            self._edit_mark(lambda found: replace(found, seen=self._seen.summary()))
            boxes: list[Box] = []
        else:
            doubtful = self._seen.written_since(change.seen)
            everything = [Box((0,) * len(change.shape), change.shape)]
            boxes = everything if doubtful is None else [self._old_box(coords) for coords in doubtful]
            boxes += change.since(0)
            self._delete([coords for coords in self._seen.new if not _in_grid(self.target.source, coords)])
        self.target.known |= {coords for coords in self._seen.new if _in_grid(self.target.source, coords)}
        return boxes

    def move(self, progress: Progress | None = None) -> None:
        """Write all new objects that are not there."""
        total, done_bytes, lock = self.old.layout.nbytes, [0], threading.Lock()

        def tell(nbytes: int) -> None:
            with lock:
                done_bytes[0] = min(total, done_bytes[0] + nbytes)
                if progress is not None:
                    progress(done_bytes[0], total)

        tell(self._share_bytes(len(self.target.known)))
        self._move(done=set(self.target.known), tell=tell)
        if self._again:
            self._move(only=self._again)
        self._again = []

    def end(self) -> None:
        """Change over to the new layout, once all that was written meanwhile is moved, too."""
        try:
            for _ in range(_ROUNDS):
                if self._end_once():
                    return
        except BaseException:
            with suppress(HyperslabError):
                self._edit_mark(lambda found: replace(found, closing=False))
            raise
        raise ConflictError(
            f"{self.place.url!r} was written to again and again while its layout was being changed; let the other "
            "program pause, and call again: what is moved stays"
        )

    def _end_once(self) -> bool:
        """Move what was written since it was moved last; if there was nothing, change over."""
        document, etag = self._edit_mark(lambda found: replace(found, closing=True))
        if same_layout(document, self.target_layout):  # an answer was lost
            return True
        change = self._mark_of(document)
        if not self._claim_is_over(document):
            return False
        found = self._list()
        boxes = change.since(self._moved) + [self._old_box(coords) for coords in found.differing(self._seen)]
        boxes = [box for box in boxes if box.size]  # beyond the shape others may be preparing to append
        self._moved, self._seen = change.number, found
        complete = self._is_complete(document)
        if boxes:
            self._move(only=boxes)
            return False
        if self._missing(found, complete=complete):
            return False
        try:
            self.writer.put(self.key, dump(self._changed_over(document, complete=complete)), if_match=etag)
            return True
        except ConflictError:
            return False

    def close(self) -> None:
        """Let others go on."""
        claims.drop_claim(self.token)

    def check(self) -> None:
        """Raise ConflictError if this process must not go on."""
        if self._lost is not None:
            raise self._lost
        self._mark_of(self._fetch()[0])

    def _fetch(self) -> tuple[Document, str]:
        found = fetch_document(self.writer, self.key)
        if found is None:
            raise ConflictError(f"array {self.place.url!r} was deleted while its layout was being changed")
        return found

    def _mark_of(self, document: Document) -> Change:
        """Return the mark, which must be ours, of the array as it was."""
        change, url = change_of(document, self.key), self.place.url
        if change is None or not same_layout(document, self.old_document):
            raise ConflictError(
                f"the mark of the change of layout of {url!r} is gone: it was swept away, or another program has "
                "rewritten zarr.json; call hs.sweep(url), then begin again"
            )
        if change.token != self.token:
            raise ConflictError(f"process {change.token!r} has taken over the change of layout of {url!r}")
        if document.get("shape") != list(change.shape):
            raise ConflictError(
                f"{url!r} was given the shape {document.get('shape')} while its layout was being changed; call again"
            )
        return change

    def _edit_mark(self, edit: Callable[[Change], Change]) -> tuple[Document, str]:
        """Change the mark; return the document and its version. One that has changed over already stays as it is."""
        for attempt in range(_ROUNDS):
            document, etag = self._fetch()
            if change_of(document, self.key) is None and same_layout(document, self.target_layout):
                return document, etag
            change = self._mark_of(document)
            changed = edit(change)
            if changed == change:
                return document, etag
            seal, document = check_seal(document, self.key), marked(document, changed)
            document = document if seal is None else sealed(document, seal)
            try:
                put = self.writer.put(self.key, dump(document), if_match=etag)
                return (document, put) if put is not None else self._fetch()
            except ConflictError:
                time.sleep(min(0.2, 0.002 * 2.0**attempt))
        raise ConflictError(f"{self.key!r} was changed by other writers {_ROUNDS} times meanwhile; try again later")

    def _claim_is_over(self, document: Document) -> bool:
        """Wait for a writer that is changing the shape; False if there was one: all has to be looked at again."""
        seal = check_seal(document, self.key)
        if seal is None or seal.claim is None or claims.is_gone(seal.claim):
            return True
        until_s = time.monotonic() + claims.PATIENCE_S
        while time.monotonic() < until_s:
            time.sleep(0.01)
            found = check_seal(self._fetch()[0], self.key)
            if found is None or found.claim != seal.claim or claims.is_gone(seal.claim):
                return False
        return True

    def _is_complete(self, document: Document) -> bool:
        seal = check_seal(document, self.key)
        return seal is not None and seal.complete == self.old.layout.shape

    def _changed_over(self, document: Document, *, complete: bool) -> Document:
        """Return the document with the new layout, and without the mark."""
        seal = check_seal(document, self.key)
        changed = {**marked(document, None), **self.target_layout}
        if seal is None:
            return changed
        lengths = self.target.lengths if complete else None
        shape = self.old.layout.shape if complete else None
        return sealed(changed, Seal(complete=shape, copying=seal.copying, lengths=lengths))

    def _missing(self, found: Listing, *, complete: bool) -> bool:
        """Check that every new object is there; True if some had to be written, as the array became complete."""
        lost = sorted(self.target.known - found.new.keys())
        if lost:
            key = self.target.source.layout.keys.key(lost[0])
            raise IntegrityError(f"object {key!r} and {len(lost) - 1} more were written and are gone; call again")
        if not complete:
            return False
        grid = product(*[range(count) for count in self.target.source.layout.object_grid])
        empty = [coords for coords in grid if coords not in found.new]
        with self._alive():
            self.target.objects(self.target.writer()).fill(empty)
        return bool(empty)

    def _move(self, *, done: set[Coords] | None = None, only: Sequence[Box] | None = None, tell: Any = None) -> None:
        """Move cells; again, if what is read changes while it is read."""
        target, had = self.target, done or set()
        for attempt in range(_TRIES):
            target.stored.clear()
            try:
                with self._alive():
                    move_cells(
                        Opened(self.old, self.place.store), target, memory_bytes=self.memory_bytes, done=had,
                        tell=tell, verify=self.verify, only=only, scratch_dir=self.scratch_dir,
                    )  # fmt: skip
                return
            except ConflictError:
                self.check()
                if attempt == _TRIES - 1:
                    raise
                # Of puts that were given up with the others nobody knows whether they were stored.
                target.etags.clear()
                target.known |= {coords for coords in self._list().new if _in_grid(target.source, coords)}
            except HyperslabError:
                self.check()  # objects may be gone because the array was cut off
                raise
            if only is None:
                had |= target.stored
            time.sleep(min(0.5, 0.01 * 2.0**attempt))

    def _delete(self, doomed: list[Coords]) -> None:
        keys = self.target.source.layout.keys

        def one(coords: Coords) -> None:
            self.check()
            self.writer.delete(keys.key(coords))

        with self._alive():
            self.writer.each(doomed, one, held_bytes=1)

    def _list(self) -> Listing:
        """List the objects; where some were written just now, again, so that a later write has another date."""
        found = list_objects(self.writer, self.old, self.target.source)
        if found.young:
            time.sleep(found.step_ns / 1e9)
            found = list_objects(self.writer, self.old, self.target.source)
        return found

    def _old_box(self, coords: Coords) -> Box:
        layout = self.old.layout
        sides = list(zip(coords, layout.object_shape, layout.shape, strict=True))
        return Box(
            tuple([min(at * n, end) for at, n, end in sides]), tuple([min(at * n + n, end) for at, n, end in sides])
        )

    def _share_bytes(self, count: int) -> int:
        """Return about how many bytes so many new objects hold."""
        return self.old.layout.nbytes * count // max(1, prod(self.target.source.layout.object_grid))

    @contextmanager
    def _alive(self) -> Iterator[None]:
        """Say now and then that the process is alive, and look whether it may go on."""
        over = threading.Event()

        def beat() -> None:
            while not over.wait(_BEAT_S):
                try:
                    self._edit_mark(lambda found: replace(found, beat=found.beat + 1))
                except ConflictError as error:
                    self._lost = error
                    return
                except HyperslabError:
                    continue  # what is wrong with the store is told by those who move cells

        thread = threading.Thread(target=beat, name="hyperslab-change", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def _in_grid(source: ArraySource, coords: Coords) -> bool:
    return all([at < count for at, count in zip(coords, source.layout.object_grid, strict=True)])


def _check_no_other(document: Document, key: str, url: str) -> None:
    """Refuse to be done with an array of which another change is unfinished."""
    change = change_of(document, key)
    if change is not None and change.target is not None:
        raise _unfinished(url, change)


def _sweep_first(url: str, found: Listing) -> InvalidInputError:
    first = next(iter(found.new.values())).key
    return InvalidInputError(
        f"{url!r} has objects that are not of its layout ({first!r} and {len(found.new) - 1} more), left from an "
        "earlier change; when nobody reads them any more, delete them by hs.sweep(url)"
    )


def _unfinished(url: str, change: Change) -> InvalidInputError:
    target = change.target or {}
    return InvalidInputError(
        f"an unfinished change of the layout of {url!r} to {target.get('chunk_grid')} is there; finish it by the same "
        "arguments, or give it up by hs.sweep(url)"
    )
