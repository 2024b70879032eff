"""Going through an array: blocks of input are read ahead, rows of output made of them, parts of output handed on.

    read ahead ──► block (rows carried over + new ones) ──► kernel ──► part of output ──► stored, in several threads

Blocks begin where chunks of the input do, parts where objects of the output do: a row of output is made as soon as the
input below it is there. So each chunk is read and decoded once, and each object written once, however they lie to each
other. Memory for blocks and parts is taken once and used again and again.
"""

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from hyperslab.errors import StencilError, StoreError
from hyperslab.rechunk.reading import CellSource
from hyperslab.selection import Box
from hyperslab.stencil.boundaries import Boundaries
from hyperslab.stencil.geometry import Geometry
from hyperslab.stencil.kernel import Kernel, Output
from hyperslab.stencil.reach import Reach
from hyperslab.stencil.splitting import Split, blocks_of, columns_of

__all__ = ["BlockReader", "Computing", "Target", "cell_bytes", "cut_outputs", "streaks_of"]

Cells = npt.NDArray[Any]
# Parts below each other, none left out.
Streak = tuple[Box, ...]

# How often one who waits looks whether all is to end.
_LOOK_S = 0.1
# What is done again with a wider halo is cut so that its input takes no more than this.
_AGAIN_BYTES = 8 << 20


class Target(Protocol):
    """Where the cells of one output go."""

    def wants(self, box: Box) -> bool:
        """Whether any of these cells is still to be made."""
        ...

    def items(self, box: Box, cells: Cells) -> Iterable[Any]:
        """Return what is to be done with a part, piece by piece."""
        ...

    def work(self, item: Any) -> None: ...


def streaks_of(domain: Box, split: Split, wants: Callable[[Box], bool]) -> Iterator[Streak]:
    """Yield the parts that are wanted, those together that lie below each other without a gap."""
    for column in columns_of(domain, split.part):
        found: list[Box] = []
        for part in column:
            if wants(part):
                found.append(part)
            elif found:
                yield tuple(found)
                found = []
        if found:
            yield tuple(found)


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """Rows of all inputs from `start` to `stop`, for the sides `sides` of a column."""

    cells: list[Cells]
    start: int
    stop: int
    sides: tuple[tuple[int, int], ...]
    buffers: list[Cells]


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """The arrays that are read, and what is seen beyond their edges."""

    sources: Sequence[CellSource]
    dtypes: Sequence[np.dtype[Any]]
    boundaries: Boundaries

    @property
    def shape(self) -> tuple[int, ...]:
        return self.sources[0].shape

    def read(self, number: int, box: Box, cells: Cells) -> None:
        """Read a box of one input, which may stick out of the array."""
        for piece in self.boundaries.source_boxes(self.shape, box):
            self.sources[number].read_into(piece.source, cells[piece.target.slices])
        self.boundaries.fill(cells, self.shape, box)


class BlockReader:
    """Reads the blocks of streaks one after the other, in a thread of its own, as far ahead as there are buffers."""

    def __init__(self, inputs: Inputs, geometry: Geometry, split: Split, streaks: Sequence[Streak]) -> None:
        self.inputs, self.geometry, self.split, self.streaks = inputs, geometry, split, streaks
        self._free: queue.SimpleQueue[list[Cells]] = queue.SimpleQueue()
        self._ready: queue.SimpleQueue[_Block | BaseException] = queue.SimpleQueue()
        self._closed = False
        width = prod(geometry.padded_shape(split.part)[1:])
        rows = split.rows + 2 * geometry.carried
        for _ in range(split.depth):
            self._free.put([np.empty(rows * width, dtype) for dtype in inputs.dtypes])
        self._carried = [np.empty(geometry.carried * width, dtype) for dtype in inputs.dtypes]
        self._thread = threading.Thread(target=self._run, name="hyperslab-blocks", daemon=True)
        self._thread.start()

    def next(self) -> _Block:
        """Return the next block; raise what reading it raised."""
        while not self._closed:
            try:
                found = self._ready.get(timeout=_LOOK_S)
            except queue.Empty:
                continue
            if isinstance(found, BaseException):
                raise found
            return found
        raise StoreError("reading was ended")

    def free(self, block: _Block) -> None:
        """Let the memory of a block be used again."""
        self._free.put(block.buffers)

    def stop(self) -> None:
        """Read no further block."""
        self._closed = True

    def close(self) -> None:
        """Read no further block, and wait until the thread has ended."""
        self.stop()
        self._thread.join()

    def _run(self) -> None:
        try:
            for streak in self.streaks:
                for block in self._blocks(streak):
                    self._ready.put(block)
        except _ClosedError:
            pass
        except BaseException as error:  # noqa: BLE001 - it is raised where blocks are asked for
            self._ready.put(error)

    def _blocks(self, streak: Streak) -> Iterator[_Block]:
        whole = self.geometry.padded(Box(streak[0].start, streak[-1].stop))
        sides = tuple(zip(whole.start[1:], whole.stop[1:], strict=True))
        edge, width = self.geometry.carried, whole.shape[1:]
        for low, high in blocks_of(whole.start[0], whole.stop[0], self.inputs.shape[0], self.split.rows):
            kept = min(edge, low - whole.start[0])
            box = Box((low, *whole.start[1:]), (high, *whole.stop[1:]))
            buffers, found = self._take(), []
            for number, (buffer, carried) in enumerate(zip(buffers, self._carried, strict=True)):
                cells = _shaped(buffer, (kept + high - low, *width))
                cells[:kept] = _shaped(carried, (kept, *width))
                self.inputs.read(number, box, cells[kept:])
                again = cells[max(0, len(cells) - edge) :]
                _shaped(carried, again.shape)[...] = again
                found.append(cells)
            yield _Block(found, low - kept, high, sides, buffers)

    def _take(self) -> list[Cells]:
        while not self._closed:
            try:
                return self._free.get(timeout=_LOOK_S)
            except queue.Empty:
                continue
        raise _ClosedError


class _ClosedError(Exception):
    """No further block is wanted."""


def _shaped(buffer: Cells, shape: tuple[int, ...]) -> Cells:
    return buffer[: prod(shape)].reshape(shape)


def cell_bytes(outputs: Sequence[Output]) -> int:
    """Return the bytes of one cell, over all outputs."""
    return sum([output.dtype.itemsize * prod(output.cell_shape) for output in outputs])


def cut_outputs(cells: Cells, outputs: Sequence[Output]) -> list[Cells]:
    """Return the cells of each output of a part: they lie one after the other in its memory.

    Those of larger types come first, so that all of them are aligned.
    """
    flat, shape, at = cells.reshape(-1).view(np.uint8), cells.shape, 0
    found: dict[int, Cells] = {}
    for number in sorted(range(len(outputs)), key=lambda n: -outputs[n].dtype.itemsize):
        output = outputs[number]
        nbytes = prod(shape) * prod(output.cell_shape) * output.dtype.itemsize
        found[number] = flat[at : at + nbytes].view(output.dtype).reshape((*shape, *output.cell_shape))
        at += nbytes
    return [found[number] for number in range(len(outputs))]


class Computing:
    """A stage: parts are made of blocks of input, and given to the targets of all outputs.

    Where the function reaches further than it was known to, those rows are done again with a wider halo; `widen` gives
    the kernel for one.
    """

    def __init__(
        self, kernel: Kernel, inputs: Inputs, geometry: Geometry, reader: BlockReader, targets: Sequence[Target], *,
        widen: Callable[[Reach], Kernel], threads: int,
    ) -> None:  # fmt: skip
        self.kernel, self.inputs, self.geometry, self.reader = kernel, inputs, geometry, reader
        self.targets, self.widen, self.threads = targets, widen, threads
        self._block: _Block | None = None

    def boxes(self) -> Iterator[Box]:
        for streak in self.reader.streaks:
            yield from streak

    def fill(self, box: Box, cells: Cells) -> None:
        """Make the cells of a part."""
        outs, row = cut_outputs(cells, self.kernel.outputs), box.start[0]
        while row < box.stop[0]:
            block = self._block_for(box, row)
            stop = min(box.stop[0], self.geometry.ready(block.stop))
            rows = Box((row, *box.start[1:]), (stop, *box.stop[1:]))
            self._compute(block, rows, [out[row - box.start[0] : stop - box.start[0]] for out in outs])
            row = stop

    def items(self, box: Box, cells: Cells) -> Iterator[tuple[Target, Any]]:
        for target, made in zip(self.targets, cut_outputs(cells, self.kernel.outputs), strict=True):
            for item in target.items(box, made):
                yield target, item

    def work(self, item: tuple[Target, Any]) -> None:
        target, piece = item
        target.work(piece)

    def _block_for(self, box: Box, row: int) -> _Block:
        """Return the block that a row of output can be made of."""
        padded = self.geometry.padded(box)
        sides = tuple(zip(padded.start[1:], padded.stop[1:], strict=True))
        block = self._block
        while block is None or block.sides != sides or self.geometry.ready(block.stop) <= row:
            if block is not None:
                self.reader.free(block)
            block = self._block = self.reader.next()
        return block

    def _compute(self, block: _Block, rows: Box, outs: list[Cells]) -> None:
        needed = self.geometry.padded(rows)
        part = slice(needed.start[0] - block.start, needed.stop[0] - block.start)
        wider = self.kernel.compute([cells[part] for cells in block.cells], outs, rows.start, threads=self.threads)
        if wider is not None:
            self._check_shape(rows, wider)
            self._compute_alone(rows, outs, self.kernel.reach.union(wider))

    def _check_shape(self, rows: Box, wider: Reach) -> None:
        """Refuse a wider reach where the output, which is there already, would have another shape with it."""
        geometry = self.geometry
        boundaries = self.inputs.boundaries
        grown = boundaries.out_shape(geometry.shape, wider, geometry.stride) != geometry.out_shape
        if grown or boundaries.first(wider) != geometry.first:
            halo = list(zip(wider.before, wider.after, strict=True))
            raise StencilError(
                f"near cell {rows.start} the function reaches further than it was found to, and where an axis shrinks "
                f"the shape of the output depends on that; call again with halo={halo}, or another boundary",
                rows.start,
            )

    def _compute_alone(self, box: Box, outs: list[Cells], reach: Reach) -> None:
        """Make some cells with a wider halo, which is read for them alone."""
        kernel = self.widen(reach)
        geometry = replace(self.geometry, reach=kernel.reach)
        padded = geometry.padded(box)
        if padded.size * sum([dtype.itemsize for dtype in self.inputs.dtypes]) > _AGAIN_BYTES and box.size > 1:
            for half in _halves(box):
                key = tuple([slice(a - low, b - low) for a, b, low in _ends(half, box)])
                self._compute_alone(half, [out[key] for out in outs], reach)
            return
        buffers = [np.empty(padded.shape, dtype) for dtype in self.inputs.dtypes]
        for number, buffer in enumerate(buffers):
            self.inputs.read(number, padded, buffer)
        made = [np.empty(out.shape, out.dtype) for out in outs]
        wider = kernel.compute(buffers, made, box.start, threads=self.threads)
        if wider is not None:
            self._check_shape(box, wider)
            self._compute_alone(box, outs, kernel.reach.union(wider))
            return
        for out, cells in zip(outs, made, strict=True):
            out[...] = cells


def _ends(inner: Box, outer: Box) -> Iterator[tuple[int, int, int]]:
    return zip(inner.start, inner.stop, outer.start, strict=True)


def _halves(box: Box) -> tuple[Box, Box]:
    """Cut a box in two along its longest axis."""
    axis = max(range(len(box.shape)), key=lambda each: box.shape[each])
    middle = (box.start[axis] + box.stop[axis]) // 2
    stop = (*box.stop[:axis], middle, *box.stop[axis + 1 :])
    return Box(box.start, stop), Box((*box.start[:axis], middle, *box.start[axis + 1 :]), box.stop)
