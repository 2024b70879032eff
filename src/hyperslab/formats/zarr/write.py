"""Writing cells: a selection and its values become objects, each read, changed, encoded and put on its own."""

import random
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby, islice, product
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from hyperslab.errors import ConflictError, FormatError, IntegrityError, InvalidInputError
from hyperslab.execute import Snapshot
from hyperslab.execute.write import StoreWriter, versioned
from hyperslab.formats.zarr.assignment import Assignment
from hyperslab.formats.zarr.noted import Noted
from hyperslab.formats.zarr.objects import ObjectCodec, box_of_chunk
from hyperslab.layout import Layout
from hyperslab.plan import BoxPieces, PointPieces
from hyperslab.selection import Box
from hyperslab.store.base import CHILDREN_LIMIT

__all__ = ["ObjectEdit", "Objects", "boxes_of", "check_count", "edits_of"]

# How often a change is tried again because another writer was faster, and the longest pause before that.
_TRIES = 64
_MOST_PAUSE_S = 0.5
# Objects that are named one by one when it is said what was written.
_MOST_BOXES = 64


@dataclass(frozen=True, slots=True, eq=False)
class ObjectEdit:
    """The part of an assignment that falls into one object: which of its chunks, and the numbers of their pieces."""

    coords: tuple[int, ...]
    pieces: dict[int, int]


def edits_of(assignment: Assignment) -> Iterator[ObjectEdit]:
    """Cut an assignment at the borders of objects."""
    pieces, layout = assignment.pieces, assignment.pieces.layout
    if isinstance(pieces, PointPieces):
        found: dict[tuple[int, ...], dict[int, int]] = {}
        for piece, chunk in enumerate(pieces.chunks()):
            found.setdefault(layout.object_of(chunk), {})[layout.inner_of(chunk)] = piece
        yield from (ObjectEdit(coords, chunks) for coords, chunks in found.items())
    elif isinstance(pieces, BoxPieces):
        yield from _box_edits(pieces, layout)


def _box_edits(pieces: BoxPieces, layout: Layout) -> Iterator[ObjectEdit]:
    per_object = layout.chunks_per_object
    rows = [
        [(at, list(run)) for at, run in groupby(enumerate(part.chunks), key=lambda each, n=n: each[1] // n)]  # type: ignore[misc]
        for part, n in zip(pieces.parts, per_object, strict=True)
    ]
    counts = [len(part) for part in pieces.parts]
    for chosen in product(*rows):
        inside: dict[int, int] = {}
        for places in product(*[run for _, run in chosen]):
            inner = piece = 0
            for (place, chunk), n, count in zip(places, per_object, counts, strict=True):
                inner, piece = inner * n + chunk % n, piece * count + place
            inside[inner] = piece
        yield ObjectEdit(tuple([at for at, _ in chosen]), inside)


def boxes_of(assignment: Assignment) -> list[Box]:
    """Return boxes that hold all assigned cells: one for each object, or one around them if there are many."""
    layout = assignment.pieces.layout
    coords = [edit.coords for edit in islice(edits_of(assignment), _MOST_BOXES + 1)]
    if len(coords) <= _MOST_BOXES:
        return [_object_box(layout, each, each) for each in coords]
    pieces = assignment.pieces
    if isinstance(pieces, PointPieces):
        ends = [(int(axis.min()), int(axis.max())) for axis in pieces.grid_coords]
    else:
        assert isinstance(pieces, BoxPieces)
        ends = [(min(part.chunks), max(part.chunks)) for part in pieces.parts]
    low, high = (layout.object_of(tuple([each[end] for each in ends])) for end in (0, 1))
    return [_object_box(layout, low, high)]


def _object_box(layout: Layout, first: tuple[int, ...], last: tuple[int, ...]) -> Box:
    """Return the cells from one object to another, cut at the shape."""
    stops = zip(last, layout.object_shape, layout.shape, strict=True)
    return Box(
        tuple([at * whole for at, whole in zip(first, layout.object_shape, strict=True)]),
        tuple([min((at + 1) * whole, length) for at, whole, length in stops]),
    )


def check_count(layout: Layout, old: tuple[int, ...] | None = None) -> None:
    """Refuse to write fill values into more objects than could be listed; those of the shape `old` are not written."""
    held = replace(layout, shape=tuple([0] * len(layout.shape)) if old is None else old)
    count = prod(layout.object_grid) - prod(held.object_grid)
    if count > CHILDREN_LIMIT:
        raise InvalidInputError(
            f"fill values would be written into {count} objects, at most {CHILDREN_LIMIT} are; "
            "an array of hs.create() that was not sealed needs none for what is not written"
        )


class Objects:
    """Writes the objects of one array.

    `guard`, where given, is called after an object was read and before it is replaced: it raises if this writer must
    not go on. `fresh` is called before every put: it raises if the array has another layout by now. `old_shape` is what
    the array had before it grew: what stored chunks hold outside of that is left over from before, and not taken for
    cells. `noted` takes the lengths of the chunks of each shard that is put.
    """

    def __init__(
        self,
        writer: StoreWriter,
        layout: Layout,
        snapshot: Snapshot,
        codec: ObjectCodec,
        *,
        guard: Callable[[], None] | None = None,
        fresh: Callable[[], None] | None = None,
        old_shape: tuple[int, ...] | None = None,
        noted: Noted | None = None,
    ) -> None:
        self.writer, self.layout, self.snapshot, self.codec = writer, layout, snapshot, codec
        self.guard, self.fresh, self.old_shape, self.noted = guard, fresh, old_shape, noted
        self._nbytes = prod(layout.object_shape) * layout.dtype.itemsize

    def assign(
        self,
        assignment: Assignment,
        edits: Iterable[ObjectEdit] | None = None,
        done: Callable[[int], None] | None = None,
    ) -> None:
        """Write all objects that an assignment touches, or those in `edits`; `done` is told the bytes of each."""

        def one(edit: ObjectEdit) -> None:
            self.write(edit, assignment)
            if done is not None:
                done(self._cell_bytes(edit.coords))

        self.writer.each(edits_of(assignment) if edits is None else edits, one, held_bytes=2 * self._nbytes)

    def fill(self, grid: Iterable[tuple[int, ...]], done: Callable[[int], None] | None = None) -> None:
        """Write objects of which no cell is assigned: what they held, or fill values."""

        def one(coords: tuple[int, ...]) -> None:
            self.write(ObjectEdit(coords, {}), None)
            if done is not None:
                done(self._cell_bytes(coords))

        self.writer.each(grid, one, held_bytes=2 * self._nbytes)

    def write(self, edit: ObjectEdit, assignment: Assignment | None) -> None:
        """Write one object."""
        key = self.layout.keys.key(edit.coords)
        edits = self._chunk_edits(edit, assignment)
        covered = self._covers(edit, assignment)
        if covered and self._whole(edit.coords) and self.guard is None:
            self._put(edit.coords, self.codec.build(edit.coords, edits, None, key))
            return
        if (covered and not self.layout.complete) or self._is_new(edit.coords):
            # Most often nothing is there yet. What is there may hold cells that another writer has added meanwhile.
            try:
                self._put(edit.coords, self.codec.build(edit.coords, edits, None, key), if_absent=True)
                return
            except ConflictError:
                pass
        self._change(edit, edits, key, covered=covered)

    def _change(self, edit: ObjectEdit, edits: dict[int, Any], key: str, *, covered: bool) -> None:
        for attempt in range(_TRIES):
            old = self.writer.get(key, limit_bytes=self._limit_bytes)
            if old is None and self.layout.complete and not (covered or self._is_new(edit.coords)):
                raise IntegrityError(
                    f"object {key!r} is gone; write all of its cells, not only some, to have it again; if another "
                    "program left it out because it is empty, `hyperslab seal URL` writes it"
                )
            if self.guard is not None:
                self.guard()
            data = None if old is None or self._is_new(edit.coords) else np.frombuffer(old.data, np.uint8)
            try:
                built = self.codec.build(edit.coords, edits, data, key)
            except (IntegrityError, FormatError):
                if not covered:
                    raise
                # Damaged, but none of its cells is needed any more.
                built = self.codec.build(edit.coords, edits, None, key)
            try:
                if old is None:
                    self._put(edit.coords, built, if_absent=True)
                else:
                    self._put(edit.coords, built, if_match=versioned(old, key))
                return
            except ConflictError:
                time.sleep(random.uniform(0, min(_MOST_PAUSE_S, 0.002 * 2.0**attempt)))
        raise ConflictError(
            f"chunk object {key!r} was changed by other writers {_TRIES} times while it was written; try again later"
        )

    def _put(self, coords: tuple[int, ...], data: npt.NDArray[np.uint8], **conditions: Any) -> None:
        key = self.layout.keys.key(coords)
        if self.fresh is not None:
            self.fresh()
        try:
            self.writer.put(key, data, **conditions)
        finally:
            # Also after a failure: nobody knows whether it was stored.
            self.snapshot.etags.pop(key, None)
        if self.noted is not None:
            self.noted.take(coords, data)

    def _chunk_edits(self, edit: ObjectEdit, assignment: Assignment | None) -> dict[int, Any]:
        """Return what becomes of each chunk that changes."""
        found: dict[int, Any] = {}
        block = assignment.load(edit.pieces.values()) if assignment is not None and edit.pieces else None
        for inner, piece in edit.pieces.items():
            if assignment is not None and block is not None:
                found[inner] = _Assigned(self, edit.coords, inner, assignment.piece(piece, block))
        if self.old_shape is not None and not self._is_new(edit.coords):
            for inner in range(prod(self.layout.chunks_per_object)):
                if inner not in found and self._left_over(edit.coords, inner):
                    found[inner] = _Cleared(self, edit.coords, inner)
        return found

    def _left_over(self, coords: tuple[int, ...], inner: int) -> bool:
        """Whether a chunk has cells that have just been taken into the shape."""
        box = box_of_chunk(self.layout, coords, inner)
        inside = all([start < stop for start, stop in box])
        return inside and any([stop > old for (_, stop), old in zip(box, self.old_shape or (), strict=True)])

    def clear(self, coords: tuple[int, ...], inner: int, chunk: npt.NDArray[Any]) -> None:
        """Put fill values where a stored chunk holds what is left over from before the array grew."""
        for axis, (start, _) in enumerate(box_of_chunk(self.layout, coords, inner)):
            keep = max(0, (self.old_shape or self.layout.shape)[axis] - start)
            if keep < chunk.shape[axis]:
                chunk[(slice(None),) * axis + (slice(keep, None),)] = self.layout.fill

    def is_left_over(self, coords: tuple[int, ...], inner: int) -> bool:
        """Whether all of a stored chunk is left over from before the array grew."""
        if self.old_shape is None:
            return False
        box = box_of_chunk(self.layout, coords, inner)
        return any([start >= old for (start, _), old in zip(box, self.old_shape, strict=True)])

    def _covers(self, edit: ObjectEdit, assignment: Assignment | None) -> bool:
        """Whether all cells of an object that lie in the shape are assigned."""
        if assignment is None or assignment.fields is not None:
            return False
        cells = sum([assignment.count(piece) for piece in edit.pieces.values()])
        return cells == self._cells(edit.coords)

    def _cells(self, coords: tuple[int, ...]) -> int:
        sides = zip(coords, self.layout.object_shape, self.layout.shape, strict=True)
        return prod([min(whole, length - at * whole) for at, whole, length in sides])

    def _cell_bytes(self, coords: tuple[int, ...]) -> int:
        return self._cells(coords) * self.layout.dtype.itemsize

    def _whole(self, coords: tuple[int, ...]) -> bool:
        """Whether an object lies in the shape with all of its cells."""
        return self._cells(coords) == prod(self.layout.object_shape)

    def _is_new(self, coords: tuple[int, ...]) -> bool:
        """Whether an object lies outside of the shape that the array had before it grew."""
        if self.old_shape is None:
            return False
        sides = zip(coords, self.layout.object_shape, self.old_shape, strict=True)
        return any([at * whole >= old for at, whole, old in sides])

    @property
    def _limit_bytes(self) -> int:
        count = prod(self.layout.chunks_per_object)
        index = self.layout.index.nbytes if self.layout.index is not None else 0
        return count * self.layout.stored_size.nbytes + index + (1 << 20)


class _Assigned:
    """A chunk some or all of whose cells are assigned."""

    def __init__(self, objects: Objects, coords: tuple[int, ...], inner: int, piece: Any) -> None:
        self.objects, self.coords, self.inner, self.piece = objects, coords, inner, piece

    @property
    def replaces(self) -> bool:
        return self.objects.is_left_over(self.coords, self.inner)

    def block(self) -> npt.NDArray[Any] | None:
        block: npt.NDArray[Any] | None = self.piece.block(self.objects.layout.chunks)
        return block

    def apply(self, chunk: npt.NDArray[Any]) -> None:
        if self.objects.old_shape is not None:
            self.objects.clear(self.coords, self.inner, chunk)
        self.piece.apply(chunk)


class _Cleared:
    """A chunk that is taken into the shape with no cell assigned."""

    def __init__(self, objects: Objects, coords: tuple[int, ...], inner: int) -> None:
        self.objects, self.coords, self.inner = objects, coords, inner

    @property
    def replaces(self) -> bool:
        return self.objects.is_left_over(self.coords, self.inner)

    def block(self) -> npt.NDArray[Any] | None:
        return None

    def apply(self, chunk: npt.NDArray[Any]) -> None:
        self.objects.clear(self.coords, self.inner, chunk)
