"""Selection → byte ranges within plain chunks, for all chunks at once."""

from collections.abc import Sequence
from math import prod

import numpy as np

from hyperslab.layout import Layout
from hyperslab.plan.ranges import Ints
from hyperslab.selection import AxisParts

__all__ = ["count_runs", "decompose", "decompose_coarsely", "stored_strides"]


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

    A piece is what one chunk gives; pieces are numbered row-major over `parts`. Runs come piece by piece, each
    piece's in ascending order. Where a chunk's fastest axes are wanted whole, the runs go over them, so that a
    chunk wanted whole is one run.
    """
    if not layout.chunks:
        zero = np.zeros(1, np.int64)
        return zero, zero, zero + layout.stored.itemsize
    if not all([part.chunks for part in parts]):
        none = np.zeros(0, np.int64)
        return none, none, none
    strides = stored_strides(layout)
    single = all([len(part.chunks) == 1 for part in parts])
    blocks = []
    whole: dict[int, list[int]] = {}
    for level in range(len(parts) - 1, -1, -1):
        axis = layout.order[level]
        full, cut = _full_parts(parts[axis], layout.chunks[axis])
        if level == 0:
            cut = list(range(len(parts[axis])))
        if cut:
            blocks.append(_block(layout.order, level, parts, cut, whole, strides))
        if not full:
            break
        whole[axis] = full
    pieces, starts, stops = blocks[0]
    if len(blocks) > 1:
        pieces, starts, stops = (np.concatenate(columns) for columns in zip(*blocks, strict=True))
    if single or (pieces[1:] >= pieces[:-1]).all():
        return pieces, starts, stops
    by_piece = pieces.argsort(kind="stable")
    return pieces[by_piece], starts[by_piece], stops[by_piece]


def count_runs(layout: Layout, parts: Sequence[AxisParts]) -> int:
    """Return how many runs `decompose` gives at most, before any is listed.

    An axis multiplies them unless all faster axes are wanted whole.
    """
    total, whole = 0, 1
    cells = prod([sum(part.counts) for part in parts])
    for axis in reversed(layout.order):
        part = parts[axis]
        full, cut = _full_parts(part, layout.chunks[axis])
        cells //= max(1, sum(part.counts))
        runs = len(cut) if part.step == 1 and part.picks is None else sum([part.counts[i] for i in cut])
        if axis == layout.order[0]:
            runs += len(full)
        total += cells * runs * whole
        if not full:
            break
        whole *= len(full)
    return total if parts else 1


def decompose_coarsely(layout: Layout, parts: Sequence[AxisParts], most: int) -> tuple[Ints, Ints, Ints]:
    """Return (piece, start, stop) as `decompose`, but at most `most` of them, or one for each piece.

    A run goes from the first wanted cell of some fastest axes to the last, over cells that nobody wants.
    """
    order, strides = layout.order, stored_strides(layout)
    level = len(order) - 1
    while level > 0 and _coarse_count(order, level, parts) > most:
        level -= 1
    slower, inner = order[:level], order[level:]
    lows = [np.array(parts[a].lows) * strides[a] for a in inner]
    reach = [(_lasts(parts[a]) - np.array(parts[a].lows)) * strides[a] for a in inner]
    nbytes = _outer(reach) + layout.stored.itemsize
    starts = _outer([*[_cells(parts[a]) * strides[a] for a in slower], *lows])
    stops = (starts.reshape(-1, len(nbytes)) + nbytes).reshape(-1)
    places = [*[_owners(parts[a]) for a in slower], *[np.arange(len(parts[a])) for a in inner]]
    piece_strides = [prod([len(part) for part in parts[a + 1 :]]) for a in order]
    pieces = _outer([place * stride for place, stride in zip(places, piece_strides, strict=True)])
    by_piece = pieces.argsort(kind="stable")
    return pieces[by_piece], starts[by_piece], stops[by_piece]


def _coarse_count(order: Sequence[int], level: int, parts: Sequence[AxisParts]) -> int:
    cells = prod([sum(parts[a].counts) for a in order[:level]])
    return cells * prod([len(parts[a]) for a in order[level:]])


def _lasts(part: AxisParts) -> Ints:
    """Return the last selected cell of each part, counted from its chunk's start."""
    counts = np.array(part.counts)
    if part.picks is not None:
        lasts: Ints = part.picks[np.array(part.places) + counts - 1]
    else:
        lasts = np.array(part.lows) + (counts - 1) * part.step
    return lasts


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
    whole: dict[int, list[int]],
    strides: list[int],
) -> tuple[Ints, Ints, Ints]:
    """Enumerate the runs along axis `order[level]`, over all cells of slower axes and `whole` parts of faster ones."""
    slower, axis, faster = order[:level], order[level], order[level + 1 :]
    firsts, nbytes, owners = _runs(parts[axis], cut, strides[axis])
    starts = _outer([*[_cells(parts[a]) * strides[a] for a in slower], firsts])
    stops = starts + nbytes if len(nbytes) == 1 else (starts.reshape(-1, len(nbytes)) + nbytes).reshape(-1)
    if all([len(part.chunks) == 1 for part in parts]):
        return np.zeros(len(starts), np.int64), starts, stops
    places = [*[_owners(parts[a]) for a in slower], owners, *[np.array(whole[a]) for a in faster]]
    strides = [prod([len(part) for part in parts[a + 1 :]]) for a in order]
    pieces = _outer([place * stride for place, stride in zip(places, strides, strict=True)])
    repeats = len(pieces) // len(starts)
    return (pieces, starts.repeat(repeats), stops.repeat(repeats)) if repeats > 1 else (pieces, starts, stops)


def _outer(columns: Sequence[Ints]) -> Ints:
    """Add up one entry of each column in every way, those of the last column changing fastest."""
    total = columns[0]
    for column in columns[1:]:
        total = (total[:, None] + column).reshape(-1) if len(column) > 1 else total + column
    return total


def _cells(part: AxisParts) -> Ints:
    """Return every selected cell of an axis, counted from its chunk's start."""
    if part.picks is not None:
        return part.picks
    if len(part.chunks) == 1:
        low = part.lows[0]
        return np.arange(low, low + part.counts[0] * part.step, part.step)
    owners = _owners(part)
    firsts = np.array(part.lows) - np.array(part.places) * part.step
    cells: Ints = firsts[owners] + np.arange(len(owners)) * part.step
    return cells


def _owners(part: AxisParts) -> Ints:
    """Return for every selected cell of an axis the part that it is in."""
    return np.arange(len(part)).repeat(part.counts)


def _runs(part: AxisParts, which: list[int], stride: int) -> tuple[Ints, Ints, Ints]:
    """Return (first byte, bytes, part) of each run of neighbouring cells in the parts `which`."""
    if part.picks is None and part.step == 1:
        firsts, nbytes = [part.lows[i] * stride for i in which], [part.counts[i] * stride for i in which]
        return np.array(firsts), np.array(nbytes), np.array(which)
    cells, owners = _cells(part), _owners(part)
    if len(which) != len(part):
        keep = np.isin(owners, which)
        cells, owners = cells[keep], owners[keep]
    first = np.ones(len(cells), np.bool_)
    first[1:] = (np.diff(cells) != 1) | (np.diff(owners) != 0)
    heads = np.flatnonzero(first)
    return cells[heads] * stride, np.diff(heads, append=len(cells)) * stride, owners[heads]
