"""Growing and shrinking Zarr arrays so that a reader, also after a crash, sees the old array or the new one.

An array that grows gets its new objects, and new cells in old objects, before its metadata says so; one that shrinks
loses its objects after its metadata says so. Cells that are left over outside of the shape never come back: they are
overwritten when the array grows over them.

Only one writer at a time may do that. A sealed array says in its metadata who it is: its claim. Whoever finds another's
claim waits, and takes over when that writer is gone; one that was only slow then gets a ConflictError. It cannot
spoil what the other writes: it replaces an object only in the version that it saw before it last found its claim
still there. Arrays of others have no place for a claim: they are given their new shape first, as a reservation.
"""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from hyperslab.errors import ConflictError, InvalidInputError
from hyperslab.formats.zarr.array import ZarrArray, stored_objects
from hyperslab.formats.zarr.assignment import Assignment, assign_values
from hyperslab.formats.zarr.claims import PATIENCE_S, drop_claim, new_claim
from hyperslab.formats.zarr.claims import is_gone as _is_gone
from hyperslab.formats.zarr.create import check_size
from hyperslab.formats.zarr.documents import change_document
from hyperslab.formats.zarr.seal import Seal, check_seal
from hyperslab.formats.zarr.write import check_count
from hyperslab.layout import Layout
from hyperslab.selection import Selection, Span

__all__ = ["append", "resize"]

# How long a claim that was found to hold is trusted when objects are deleted.
_TRUST_S = 2.0

Shape = tuple[int, ...]
Document = dict[str, Any]


def append(array: ZarrArray, values: Any, axis: Any = 0) -> None:
    """Add cells at the end of an axis, wherever that is by now."""
    added = np.asarray(values)
    ndim = len(array.source.layout.shape)
    if not isinstance(axis, int | np.integer) or not -ndim <= axis < ndim:
        raise InvalidInputError(f"axis {axis!r} of an array with {ndim} axes; append along one of them")
    axis = int(axis) % ndim

    def grown(shape: Shape) -> Shape:
        wanted = (*shape[:axis], added.shape[axis] if added.ndim == ndim else 0, *shape[axis + 1 :])
        if added.shape != wanted:
            raise InvalidInputError(f"cells to append to {shape} along axis {axis} have the shape {added.shape}")
        return (*shape[:axis], shape[axis] + added.shape[axis], *shape[axis + 1 :])

    def new_cells(layout: Layout, old: Shape) -> Assignment:
        spans = [Span(0, length) for length in layout.shape]
        spans[axis] = Span(old[axis], layout.shape[axis] - old[axis])
        return assign_values(layout, Selection(layout.shape, tuple(spans), tuple(range(ndim))), added)

    _grow(array, grown, new_cells)


def resize(array: ZarrArray, shape: Any) -> None:
    """Give the array another shape; new cells hold the fill value."""
    wanted = _checked(shape, len(array.source.layout.shape))
    old = array.source.layout.shape
    array.check_shape(array.fetch(), old)
    least = tuple([min(pair) for pair in zip(old, wanted, strict=True)])
    if array.source.layout.complete and 0 not in least:
        check_count(replace(array.source.layout, shape=wanted), least)
    if least != old:
        _shrink(array, old, least)
    if wanted != least:

        def grown(found: Shape) -> Shape:
            if found != least:
                raise ConflictError(f"{array.source.url!r} was given another shape meanwhile; refresh() and try again")
            return wanted

        _grow(array, grown, None)


def _checked(shape: Any, ndim: int) -> Shape:
    items = shape if isinstance(shape, Sequence | np.ndarray) else (shape,)
    if len(items) != ndim or not all(isinstance(n, int | np.integer) and 0 <= n < 2**63 for n in items):
        raise InvalidInputError(f"a new shape is {ndim} whole numbers from 0 on, not {shape!r}")
    wanted = tuple(int(n) for n in items)
    check_size(wanted)
    return wanted


NewCells = Callable[[Layout, Shape], Assignment]


def _grow(array: ZarrArray, grown: Callable[[Shape], Shape], new_cells: NewCells | None) -> None:
    grown(array.source.layout.shape)  # refuses what can never be right before anything is sent
    if array.seal is None:
        _grow_reserved(array, grown, new_cells)
        return
    with _Claim(array) as claim:
        old, shape = claim.shape, grown(claim.shape)
        array.take(claim.document)
        layout = replace(array.parsed(claim.document).layout, shape=shape)
        if new_cells is None and 0 in old:
            # Nothing was ever written, as in an array that is created with this shape.
            layout = replace(layout, complete=False)
        _write_new(array, layout, old, new_cells, claim.check)
        array.take(claim.end(shape, Seal(complete=shape if layout.complete else None)))


def _grow_reserved(array: ZarrArray, grown: Callable[[Shape], Shape], new_cells: NewCells | None) -> None:
    """Grow an array of somebody else's: what is left over is cleared, the shape is reserved, then cells are written."""
    while True:
        document = array.fetch()
        array.take(document)
        old = array.source.layout.shape
        shape = grown(old)
        layout = replace(array.source.layout, shape=shape)
        try:
            _write_new(array, layout, old, None, lambda old=old: _check_reserved(array, old))  # type: ignore[misc]
            array.take(change_document(array.writer(), array.key, _reservation(old, shape)))
            break
        except _OvertakenError:
            continue
    if new_cells is not None:
        array.write(new_cells(array.source.layout, old))


def _reservation(old: Shape, shape: Shape) -> Callable[[Document, Seal | None], tuple[Document, Seal | None]]:
    def edit(document: Document, seal: Seal | None) -> tuple[Document, Seal | None]:
        if document.get("shape") != list(old):
            raise _OvertakenError
        return {**document, "shape": list(shape)}, seal

    return edit


def _check_reserved(array: ZarrArray, old: Shape) -> None:
    if array.fetch().get("shape") != list(old):
        raise _OvertakenError


def _write_new(
    array: ZarrArray, layout: Layout, old: Shape, new_cells: NewCells | None, guard: Callable[[], None]
) -> None:
    """Write the objects in which an array of shape `old` grows to the layout's."""
    writer = array.writer()
    objects = array.objects(writer, layout, guard=guard, old_shape=old)
    if new_cells is not None:
        objects.assign(new_cells(layout, old))
    elif layout.complete:
        objects.fill(_outside(layout, old))
    else:
        there = stored_objects(writer, array.source)
        objects.fill(coords for coords in sorted(there) if _reaches(layout, coords, old))


def _outside(layout: Layout, old: Shape) -> Iterator[Shape]:
    """Yield the places of objects with cells that the array did not have when its shape was `old`."""
    grid = layout.object_grid
    for coords in product(*[range(count) for count in grid]):
        if _reaches(layout, coords, old):
            yield coords


def _reaches(layout: Layout, coords: Shape, old: Shape) -> bool:
    """Whether an object has cells in the shape, of which some lie outside of `old`."""
    sides = list(zip(coords, layout.object_shape, layout.shape, old, strict=True))
    inside = all([at * whole < length for at, whole, length, _ in sides])
    return inside and any([min((at + 1) * whole, length) > before for at, whole, length, before in sides])


def _shrink(array: ZarrArray, old: Shape, shape: Shape) -> None:
    """Cut the array off: its metadata first, then the objects that lie outside."""
    if array.seal is None:
        try:
            array.take(change_document(array.writer(), array.key, _reservation(old, shape)))
        except _OvertakenError:
            raise ConflictError(f"{array.source.url!r} was given another shape meanwhile; refresh() it") from None
        _delete_outside(array, shape, lambda: None)
        return
    with _Claim(array) as claim:
        if claim.shape != old:
            raise ConflictError(f"{array.source.url!r} was given another shape meanwhile; refresh() and try again")
        complete = shape if array.parsed(claim.document).layout.complete else None
        array.take(claim.end(shape, Seal(complete=complete, claim=claim.name)))
        _delete_outside(array, shape, claim.check_sometimes)
        array.take(claim.end(shape, Seal(complete=complete)))


def _delete_outside(array: ZarrArray, shape: Shape, check: Callable[[], None]) -> None:
    writer, layout = array.writer(), array.source.layout
    there = stored_objects(writer, array.source)
    sizes = layout.object_shape
    doomed = [c for c in there if any([at * n >= end for at, n, end in zip(c, sizes, shape, strict=True)])]

    def one(coords: Shape) -> None:
        check()
        writer.delete(layout.keys.key(coords))
        array.snapshot.etags.pop(layout.keys.key(coords), None)

    writer.each(sorted(doomed), one, held_bytes=1)


class _OvertakenError(Exception):
    """Another writer changed the shape first."""


class _ClaimedError(Exception):
    """Another writer has a claim."""

    def __init__(self, claim: str) -> None:
        super().__init__(claim)
        self.claim = claim


class _Claim:
    """The right to change an array's shape."""

    def __init__(self, array: ZarrArray) -> None:
        self.array = array
        self.name = new_claim()
        self._trusted_until = 0.0
        self.document: Document = {}
        self.shape: Shape = ()

    def __enter__(self) -> "_Claim":
        try:
            self.document = self._wait()
            self.shape = tuple(self.document["shape"])
        except BaseException:
            drop_claim(self.name)
            raise
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self._give_up()
        drop_claim(self.name)

    def check(self) -> None:
        """Raise ConflictError if another writer has taken over."""
        self._check(self.array.fetch())

    def check_sometimes(self) -> None:
        """The same, without asking the store again within a moment."""
        if time.monotonic() > self._trusted_until:
            self.check()
            self._trusted_until = time.monotonic() + _TRUST_S

    def end(self, shape: Shape, seal: Seal) -> Document:
        """Store the new shape and what the seal is to say."""
        sent = False

        def edit(document: Document, _: Seal | None) -> tuple[Document, Seal | None]:
            nonlocal sent
            try:
                self._check(document)
            except ConflictError:
                if not sent:
                    raise
                # The answer may have been lost, and others have gone on from there since.
                raise ConflictError(
                    f"another writer has taken over {self.array.source.url!r} while this change was being ended: "
                    "whether it was stored is not known; refresh() and look before you try again"
                ) from None
            sent = True
            return {**document, "shape": list(shape)}, seal

        self.document = change_document(self.array.writer(), self.array.key, edit)
        self.shape = shape
        return self.document

    def _give_up(self) -> None:
        """Let others go on; the array stays as it is."""

        def edit(document: Document, seal: Seal | None) -> tuple[Document, Seal | None]:
            self._check(document)
            return document, replace(seal or Seal(), claim=None)

        try:
            self.array.take(change_document(self.array.writer(), self.array.key, edit))
        except Exception:  # noqa: BLE001 - it ends by itself: others take over, and what went wrong is already told
            return

    def _check(self, document: Document) -> None:
        seal = check_seal(document, self.array.key)
        if seal is None or seal.claim != self.name or document.get("shape") != list(self.shape):
            raise ConflictError(
                f"another writer has taken over {self.array.source.url!r} meanwhile; refresh() and try again"
            )

    def _wait(self) -> Document:
        """Claim the array, once nobody else has a claim that is respected."""
        seen, until, overruled = "", 0.0, ""
        pause_s = 0.005

        def edit(document: Document, seal: Seal | None) -> tuple[Document, Seal | None]:
            seal = seal or Seal()
            if seal.claim not in (None, overruled):
                raise _ClaimedError(seal.claim or "")
            return document, replace(seal, claim=self.name)

        while True:
            try:
                return change_document(self.array.writer(), self.array.key, edit)
            except _ClaimedError as found:
                if found.claim != seen:
                    seen, until = found.claim, time.monotonic() + PATIENCE_S
                if _is_gone(seen) or time.monotonic() > until:
                    overruled = seen
                    continue
            time.sleep(random.uniform(0, pause_s))
            pause_s = min(0.25, 1.5 * pause_s)
