"""The two things that are done with cells on their way: kept on the disk for a while, and stored as objects."""

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from hyperslab.errors import IntegrityError
from hyperslab.formats.zarr.assignment import Assignment, assign_values
from hyperslab.formats.zarr.objects import box_of_chunk, chunks_of_object
from hyperslab.formats.zarr.write import ObjectEdit, Objects, edits_of
from hyperslab.layout import Layout
from hyperslab.rechunk.reading import CellSource, part_of
from hyperslab.rechunk.regions import Shape, cells_before, parts_meeting, parts_of
from hyperslab.rechunk.scratch import Scratch
from hyperslab.selection import Box, Selection, Span

__all__ = ["Keeping", "Kept", "Storing", "Wanted", "all_fill"]

Cells = npt.NDArray[Any]
Coords = tuple[int, ...]

# The places of at most so many objects are listed.
_MOST_TOUCHED = 1 << 17


@dataclass(frozen=True, slots=True, eq=False)
class Wanted:
    """The objects that are to be written: all, or those that `only` touches; but those that are `done`."""

    layout: Layout
    done: frozenset[Coords] = frozenset()
    only: tuple[Box, ...] | None = None
    # Both are asked for again and again: what is wanted of each region, and which objects the boxes touch.
    _trimmed: dict[Box, Box | None] = field(default_factory=dict, init=False)
    _touched: set[Coords] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        boxes = [self._out_to_objects(box) for box in self.only or ()]
        objects = prod(self.layout.object_shape)
        if self.only is not None and sum(box.size // objects for box in boxes) <= _MOST_TOUCHED:
            touched = {coords for box in boxes if box.size for coords in self._coords_in(box)}
            object.__setattr__(self, "_touched", touched)

    @property
    def domain(self) -> Box:
        """The smallest box of whole objects that holds all of them."""
        shape = self.layout.shape
        if self.only is None:
            return Box(tuple([0] * len(shape)), shape)
        return self._out_to_objects(bounding(self.only)) if self.only else Box(shape, shape)

    def trimmed(self, region: Box) -> Box | None:
        """Return the smallest box of whole objects with all that is wanted in a region; None if nothing is."""
        if not self.done and self.only is None:
            return region
        if region not in self._trimmed:
            found = [self.box_of(coords) for coords in self._coords_in(region) if self.has(coords)]
            self._trimmed[region] = bounding(found) if found else None
        return self._trimmed[region]

    def has(self, coords: Coords) -> bool:
        """Whether an object is wanted."""
        if coords in self.done:
            return False
        if self._touched is not None:
            return coords in self._touched
        box = self.box_of(coords)
        return self.only is None or any([box.intersect(each).size for each in self.only])

    def box_of(self, coords: Coords) -> Box:
        """Return the cells of an object."""
        sides = list(zip(coords, self.layout.object_shape, self.layout.shape, strict=True))
        return Box(tuple([at * n for at, n, _ in sides]), tuple([min(at * n + n, end) for at, n, end in sides]))

    def _coords_in(self, region: Box) -> Iterator[Coords]:
        sides = zip(region.start, region.stop, self.layout.object_shape, strict=True)
        return product(*[range(low // n, -(-high // n)) for low, high, n in sides])

    def _out_to_objects(self, box: Box) -> Box:
        sides = list(zip(box.start, box.stop, self.layout.object_shape, self.layout.shape, strict=True))
        start = tuple([low // n * n for low, _, n, _ in sides])
        return Box(start, tuple([min(-(-high // n) * n, end) for _, high, n, end in sides]))


def bounding(boxes: Iterable[Box]) -> Box:
    """Return the smallest box that holds all of some boxes."""
    found = list(boxes)
    starts, stops = zip(*[box.start for box in found], strict=True), zip(*[box.stop for box in found], strict=True)
    return Box(tuple([min(each) for each in starts]), tuple([max(each) for each in stops]))


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """Where cells are kept in a scratch file: region after region of `area`, each as the tiles that it came in.

    A tile is what a block of the source and a region have in common. Offsets follow from the two grids.
    """

    scratch: Scratch
    wanted: Wanted
    area: Box
    region: Shape
    blocks: Box
    block: Shape
    itemsize: int

    def regions(self) -> Iterator[Box]:
        """Yield the boxes that are to be stored."""
        found = (self.wanted.trimmed(region) for region in parts_of(self.area, self.region))
        return (region for region in found if region is not None)

    def tiles(self, block: Box) -> Iterator[tuple[Box, int]]:
        """Yield the tiles of a block, with their offsets in bytes."""
        inside = block.intersect(self.area)
        if not inside.size:
            return
        for region in parts_meeting(inside, self.area, self.region):
            trimmed = self.wanted.trimmed(region)
            tile = None if trimmed is None else block.intersect(trimmed)
            if trimmed is not None and tile is not None and tile.size:
                yield tile, self._offset(region, tile, trimmed)

    def fill(self, box: Box, cells: Cells) -> None:
        """Put the tiles of a trimmed region together."""
        region = next(parts_meeting(Box(box.start, tuple([low + 1 for low in box.start])), self.area, self.region))
        for block in parts_meeting(box, self.blocks, self.block):
            tile = block.intersect(box)
            self.scratch.read(self._offset(region, tile, box), part_of(cells, box, tile))

    def _offset(self, region: Box, tile: Box, trimmed: Box) -> int:
        return (cells_before(region, self.area) + cells_before(tile, trimmed)) * self.itemsize


class Keeping:
    """A stage: blocks of the source, each read once, are cut into tiles and kept."""

    def __init__(self, source: CellSource, kept: Kept) -> None:
        self.source, self.kept = source, kept

    def boxes(self) -> Iterator[Box]:
        for block in parts_of(self.kept.blocks, self.kept.block):
            tiles = [tile for tile, _ in self.kept.tiles(block)]
            if tiles:
                yield bounding(tiles)

    def fill(self, box: Box, cells: Cells) -> None:
        self.source.read_into(box, cells)

    def items(self, box: Box, cells: Cells) -> Iterator[tuple[int, Cells]]:
        for tile, offset in self.kept.tiles(box):
            yield offset, part_of(cells, box, tile)

    def work(self, item: tuple[int, Cells]) -> None:
        self.kept.scratch.write(*item)


@dataclass(frozen=True, slots=True, eq=False)
class _Piece:
    """An object's cells, and how they are assigned."""

    edit: ObjectEdit
    assignment: Assignment
    cells: Cells


@dataclass(slots=True, eq=False)
class Storing:
    """A stage: regions of whole objects are encoded and put.

    With `leave_out` objects that hold nothing but fill values are not stored; `left_out` counts them. With `verify`
    each object is read back and compared.
    """

    objects: Objects
    wanted: Wanted
    regions: Callable[[], Iterable[Box]]
    source: Callable[[Box, Cells], None]
    tell: Callable[[int], None]
    leave_out: bool
    verify: bool
    left_out: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def boxes(self) -> Iterable[Box]:
        return self.regions()

    def fill(self, box: Box, cells: Cells) -> None:
        self.source(box, cells)

    def items(self, box: Box, cells: Cells) -> Iterator[_Piece]:
        layout = self.wanted.layout
        spans = tuple([Span(start, count) for start, count in zip(box.start, box.shape, strict=True)])
        assignment = assign_values(layout, Selection(layout.shape, spans, tuple(range(len(spans)))), cells)
        for edit in edits_of(assignment):
            if self.wanted.has(edit.coords):
                yield _Piece(edit, assignment, part_of(cells, box, self.wanted.box_of(edit.coords)))

    def work(self, item: _Piece) -> None:
        if self.leave_out and all_fill(item.cells, self.wanted.layout.fill):
            with self._lock:
                self.left_out += 1
        else:
            self.objects.write(item.edit, item.assignment)
            if self.verify:
                self._check(item)
        self.tell(item.cells.size)

    def _check(self, item: _Piece) -> None:
        """Read an object back, and compare it with the cells that it was made of."""
        layout, coords = self.wanted.layout, item.edit.coords
        key, whole = layout.keys.key(coords), self.wanted.box_of(coords)
        reply = self.objects.writer.get(key)
        if reply is None:
            raise IntegrityError(f"object {key!r} is gone right after it was stored; nothing was changed over to it")
        same = 0
        for inner, chunk in chunks_of_object(layout, np.frombuffer(reply.data, np.uint8), key):
            sides = box_of_chunk(layout, coords, inner)
            box = Box(tuple([low for low, _ in sides]), tuple([high for _, high in sides]))
            inside = chunk[tuple(map(slice, box.shape))] if box.start else chunk
            if box.size and same_bytes(part_of(item.cells, whole, box), inside):
                same += box.size
        if same != whole.size:
            raise IntegrityError(
                f"object {key!r} does not hold the cells that were written to it; is another program writing there?"
            )


def same_bytes(one: Cells, other: Cells) -> bool:
    """Whether cells are the same to the bit: NaN equals itself, 0.0 is not -0.0.

    >>> same_bytes(np.array([np.nan]), np.array([np.nan])), same_bytes(np.array([0.0]), np.array([-0.0]))
    (True, False)
    """
    if one.dtype.names is not None:  # between fields there may be bytes that nobody cares about
        return all([same_bytes(one[name], other[name]) for name in one.dtype.names])
    first, second = (np.ascontiguousarray(each).reshape(-1).view(np.uint8) for each in (one, other))
    return bool(np.array_equal(first, second))


def all_fill(cells: Cells, fill: npt.NDArray[Any]) -> bool:
    """Whether every cell is the fill value, to the bit."""
    if not cells.size:
        return True
    # Most often the first cell, or the middle one, tells.
    for at in (0, cells.size // 2):
        one = cells[np.unravel_index(at, cells.shape)] if cells.ndim else cells[()]
        if not same_bytes(np.asarray(one, cells.dtype).reshape(1), np.asarray(fill, cells.dtype).reshape(1)):
            return False
    row = np.broadcast_to(fill, cells.shape[1:]) if cells.ndim else fill
    return all(same_bytes(each, row) for each in (cells if cells.ndim else (cells,)))
