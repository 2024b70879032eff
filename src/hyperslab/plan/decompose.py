"""Selection → byte ranges within plain chunks, for all chunks at once."""

from collections.abc import Sequence
from math import prod

import numpy as np

from hyperslab.layout import Layout
from hyperslab.plan.ranges import Ints
from hyperslab.selection import AxisParts

__all__ = ["decompose", "stored_strides"]


def stored_strides(layout: Layout) -> list[int]:
    """Return for each axis how many bytes its next cell is away in a stored chunk.

    The axes of `layout.order` run from slowest to fastest.
    """
    strides = [0] * len(layout.chunks)
    step = layout.stored.itemsize
    for axis in reversed(layout.order):
        strides[axis] = step
        step *= layout.chunks[axis]
    return strides


def decompose(layout: Layout, parts: Sequence[AxisParts]) -> tuple[Ints, Ints, Ints]:
    """Return (piece, start, stop) of every contiguous run of cells, `start` counted from its chunk's start.

    A piece is what one chunk gives; pieces are numbered row-major over `parts`. Where a chunk's fastest
    axes are wanted whole, the runs go over them, so that a chunk wanted whole is one run.
    """
    if not layout.chunks:
        zero = np.zeros(1, np.int64)
        return zero, zero, zero + layout.stored.itemsize
    if not all(part.chunks for part in parts):
        none = np.zeros(0, np.int64)
        return none, none, none
    strides = stored_strides(layout)
    piece_strides = [prod(len(p) for p in parts[axis + 1 :]) for axis in range(len(parts))]
    blocks = []
    whole: dict[int, Ints] = {}
    for level in range(len(layout.order) - 1, -1, -1):
        axis = layout.order[level]
        full, cut = _full_parts(parts[axis], layout.chunks[axis])
        if level == 0:
            cut = list(range(len(parts[axis])))
        if cut:
            blocks.append(_block(layout.order, level, parts, cut, whole, strides, piece_strides))
        if not full:
            break
        whole[axis] = np.array(full, np.int64)
    if len(blocks) == 1:
        return blocks[0]
    pieces, starts, stops = (np.concatenate(columns) for columns in zip(*blocks, strict=True))
    return pieces, starts, stops


def _full_parts(part: AxisParts, size: int) -> tuple[list[int], list[int]]:
    """Split the parts of an axis into those that take whole chunks and the others."""
    full: list[int] = []
    cut: list[int] = []
    for i, count in enumerate(part.counts):
        (full if count == size else cut).append(i)
    return full, cut


def _block(
    order: Sequence[int],
    level: int,
    parts: Sequence[AxisParts],
    cut: list[int],
    whole: dict[int, Ints],
    strides: list[int],
    piece_strides: list[int],
) -> tuple[Ints, Ints, Ints]:
    """Enumerate the runs along axis `order[level]`, over all cells of slower axes and `whole` parts of faster ones."""
    start = piece = np.zeros((), np.int64)
    for axis in order[:level]:
        offsets, owners = _cells(parts[axis])
        start = np.add.outer(start, offsets * strides[axis])
        if piece_strides[axis] and len(parts[axis]) > 1:
            piece = np.add.outer(piece, owners * piece_strides[axis])
        else:
            piece = np.expand_dims(piece, -1)
    axis = order[level]
    offsets, lengths, owners = _runs(parts[axis], cut)
    start = np.add.outer(start, offsets * strides[axis])
    piece = np.add.outer(piece, owners * piece_strides[axis])
    stop = start + lengths * strides[axis]
    for axis in order[level + 1 :]:
        start, stop = np.expand_dims(start, -1), np.expand_dims(stop, -1)
        piece = np.add.outer(piece, whole[axis] * piece_strides[axis])
    if piece.shape != start.shape:
        start, stop, piece = np.broadcast_arrays(start, stop, piece)
    return piece.reshape(-1), start.reshape(-1), stop.reshape(-1)


def _cells(part: AxisParts) -> tuple[Ints, Ints]:
    """Return every selected cell of an axis (counted from its chunk's start) and the part that it is in."""
    if part.picks is not None:
        return part.picks, np.repeat(np.arange(len(part)), part.counts)
    if len(part) == 1:
        low, count = part.lows[0], part.counts[0]
        return np.arange(low, low + count * part.step, part.step), np.zeros(1, np.int64)
    counts = np.array(part.counts)
    owners = np.repeat(np.arange(len(part)), counts)
    total = part.places[-1] + part.counts[-1] if part.places else 0
    bases = np.array(part.lows) - np.array(part.places) * part.step
    return np.repeat(bases, counts) + np.arange(total) * part.step, owners


def _runs(part: AxisParts, which: list[int]) -> tuple[Ints, Ints, Ints]:
    """Return (first cell, cells, part) of each run of neighbouring cells in the parts `which`."""
    if part.picks is None and part.step == 1:
        if len(which) == len(part):
            return np.array(part.lows), np.array(part.counts), np.arange(len(part))
        chosen = np.array(which)
        return np.array(part.lows)[chosen], np.array(part.counts)[chosen], chosen
    offsets, owners = _cells(part)
    if len(part) == 1:
        owners = np.zeros(len(offsets), np.int64)
    if len(which) != len(part):
        keep = np.isin(owners, which)
        offsets, owners = offsets[keep], owners[keep]
    if part.picks is None:
        return offsets, np.ones(len(offsets), np.int64), owners
    first = np.ones(len(offsets), np.bool_)
    first[1:] = (np.diff(offsets) != 1) | (np.diff(owners) != 0)
    heads = np.flatnonzero(first)
    return offsets[heads], np.diff(heads, append=len(offsets)), owners[heads]
