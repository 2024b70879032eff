"""Moving cells from one array into another of any other layout: in bounded memory, each chunk read about once."""

import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from math import prod

from hyperslab.errors import InvalidInputError
from hyperslab.execute import Session
from hyperslab.formats.copying import Readable
from hyperslab.formats.zarr.array import ZarrArray
from hyperslab.rechunk.flow import Buffers, run_stage
from hyperslab.rechunk.memory import Needs, Room, room_for
from hyperslab.rechunk.reading import CellSource, Opened, cells_of
from hyperslab.rechunk.regions import Cut, Shape, best_cut, parts_of
from hyperslab.rechunk.scratch import Scratch, free_bytes, scratch_folder
from hyperslab.rechunk.stages import Keeping, Kept, Storing, Wanted
from hyperslab.selection import Box
from hyperslab.store import LocalStore

__all__ = ["Scheme", "check_memory", "move_cells", "scheme_for"]

Coords = tuple[int, ...]
Tell = Callable[[int], None]

# Chunks may be read this many times, on average, before cells rather take the way over the local disk.
_DIRECT = 1.25
# An object on its way: its cells gathered, encoded, and put together; read back once more to be verified.
_LANE_OBJECTS = 3
# Where it does no harm, parts are about this large: enough for all lanes, and little to wait for.
_ROOMY_BYTES = 32 << 20
_MOST_BUFFERS = 4
_LANES = max(2, os.cpu_count() or 1)
_REMOTE_LANES = 8
# Indexes of shards that are kept from part to part.
_INDEX_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Scheme:
    """How cells are moved: by regions of whole new objects, read straight from the source; or, with a `block`, by way
    of the disk, where `area` after `area` is kept.
    """

    region: Cut
    buffers: int
    block: Shape | None = None
    area: Cut | None = None

    @property
    def amplification(self) -> float:
        """How often a chunk of the source is read, on average."""
        return self.region.amplification if self.area is None else self.area.amplification


def move_cells(
    source: Readable | Opened,
    target: ZarrArray,
    *,
    memory_bytes: int,
    done: Collection[Coords] = frozenset(),
    tell: Tell | None = None,
    verify: bool = False,
    only: Sequence[Box] | None = None,
    scratch_dir: str | None = None,
    leave_out: bool | None = None,
) -> int:
    """Write every object of `target` with the cells of `source`; return how many were left out.

    memory_bytes  what the process may hold, with all that it holds already
    done          places of objects that are there, and stay as they are
    tell          is told the bytes of each object, as cells of the source, when it is stored
    verify        read each object back and compare it
    only          write the objects that these boxes touch
    scratch_dir   where cells are kept that have to wait (default: the folder for temporary files)

    Where the source is sparse and the target is, too, objects with nothing but fill values are left out; unless
    `leave_out` says otherwise not with `only`, as such an object may replace another one.
    """
    layout = target.source.layout
    if source.shape != layout.shape:
        raise InvalidInputError(f"cells of the shape {source.shape} cannot be moved into one of {layout.shape}")
    wanted = Wanted(layout, frozenset(done), None if only is None else tuple(only))
    if not wanted.domain.size:
        return 0
    cell_bytes = source.nbytes // max(1, prod(source.shape))
    with target.session.apart(index_bytes=_INDEX_BYTES) as session:
        cells = cells_of(source, session)
        storing = Storing(
            target.objects(target.writer()), wanted, tuple, cells.read_into,
            (lambda count: None) if tell is None else (lambda count: tell(count * cell_bytes)),
            leave_out=cells.sparse and not layout.complete and (only is None if leave_out is None else leave_out),
            verify=verify,
        )  # fmt: skip
        _Moving(cells, target, wanted, storing, session).run(memory_bytes, scratch_folder(scratch_dir))
    return storing.left_out


def check_memory(source: Readable | Opened, target: ZarrArray, *, memory_bytes: int, verify: bool = False) -> None:
    """Raise InvalidInputError if `move_cells` could not do with so much memory."""
    if prod(target.source.layout.shape):
        with target.session.apart(index_bytes=_INDEX_BYTES) as session:
            _room(cells_of(source, session), target, memory_bytes, verify=verify)


def _room(cells: CellSource, target: ZarrArray, memory_bytes: int, *, verify: bool) -> Room:
    layout = target.source.layout
    object_bytes = prod(layout.object_shape) * layout.dtype.itemsize
    lanes = _LANES if isinstance(target.store, LocalStore) else _REMOTE_LANES
    lane_bytes = (_LANE_OBJECTS + verify) * object_bytes + layout.chunk_nbytes
    part_bytes = max(object_bytes, prod(cells.unit) * layout.dtype.itemsize)
    needs = Needs(part_bytes, lane_bytes, cells.reserve(memory_bytes))
    return room_for(memory_bytes, needs, lanes)


@dataclass(frozen=True, slots=True, eq=False)
class _Moving:
    source: CellSource
    target: ZarrArray
    wanted: Wanted
    storing: Storing
    session: Session

    def run(self, memory_bytes: int, folder: str) -> None:
        layout = self.wanted.layout
        room = _room(self.source, self.target, memory_bytes, verify=self.storing.verify)
        scheme = scheme_for(
            self.wanted.domain, layout.object_shape, self.source.unit, layout.dtype.itemsize,
            room_bytes=room.part_bytes, free_bytes=free_bytes(folder),
        )  # fmt: skip
        if scheme.area is None:
            self._direct(scheme, room)
        else:
            with Scratch(folder) as scratch:
                self._staged(scheme, scheme.area, room, scratch)

    def _direct(self, scheme: Scheme, room: Room) -> None:
        found = (self.wanted.trimmed(region) for region in parts_of(self.wanted.domain, scheme.region.shape))
        self.storing.regions = lambda: (region for region in found if region is not None)
        self._store(scheme, room)

    def _staged(self, scheme: Scheme, areas: Cut, room: Room, scratch: Scratch) -> None:
        assert scheme.block is not None
        dtype = self.wanted.layout.dtype
        for area in parts_of(self.wanted.domain, areas.shape):
            blocks = _out_to(area, self.source.unit)
            kept = Kept(scratch, self.wanted, area, scheme.region.shape, blocks, scheme.block, dtype.itemsize)
            keeping, writer = Keeping(self.source, kept), self.target.writer()
            run_stage(writer, keeping, dtype, self._buffers(scheme), _LANES, self.session.close)
            self.storing.regions, self.storing.source = kept.regions, kept.fill
            self._store(scheme, room)
            scratch.clear()

    def _store(self, scheme: Scheme, room: Room) -> None:
        # A remote store may still look at the bytes of a put that was given up; plain cells are sent as they lie here.
        buffers = self._buffers(scheme, reuse=isinstance(self.target.store, LocalStore))
        writer, dtype = self.storing.objects.writer, self.wanted.layout.dtype
        run_stage(writer, self.storing, dtype, buffers, room.lanes, self.session.close)

    def _buffers(self, scheme: Scheme, *, reuse: bool = True) -> Buffers:
        cells = max(scheme.region.cells, prod(scheme.block or ()))
        return Buffers(scheme.buffers, cells * self.wanted.layout.dtype.itemsize, reuse)


def scheme_for(domain: Box, objects: Shape, unit: Shape, itemsize: int, *, room_bytes: int, free_bytes: int) -> Scheme:
    """Return how to move the cells of a domain, of whole `objects`, from a source that is read by `unit`s.

    Rather two parts in memory than one twice as large, so that one can be read while the other is written.
    """
    most_cells, roomy = max(1, room_bytes // max(1, itemsize)), _ROOMY_BYTES // max(1, itemsize)
    direct = {
        count: best_cut(domain, unit=objects, other=unit, most_cells=most_cells // count, roomy_cells=roomy)
        for count in (2, 1)
    }
    for count, region in direct.items():
        if region.amplification <= _DIRECT and count * region.cells <= max(most_cells, region.cells):
            return Scheme(region, max(count, min(_MOST_BUFFERS, most_cells // max(1, region.cells))))
    half, free_cells = most_cells // 2, free_bytes // max(1, itemsize)
    region = best_cut(domain, unit=objects, other=unit, most_cells=half)
    area = best_cut(domain, unit=region.shape, other=unit, most_cells=free_cells)
    if area.cells > free_cells or area.amplification >= direct[1].amplification:
        return Scheme(direct[1], 1)
    blocks = _out_to(domain, unit)
    block = best_cut(blocks, unit=unit, other=region.shape, most_cells=half, origin=domain.start)
    fitting = 2 * max(region.cells, block.cells) <= most_cells
    return Scheme(region, 2 if fitting else 1, block.shape, area)


def _out_to(box: Box, unit: Shape) -> Box:
    """Return the box with its start moved to the border of a unit."""
    return Box(tuple([low // n * n for low, n in zip(box.start, unit, strict=True)]), box.stop)
