"""Which layout a tensor gets, and how it is cut: by the ten per cent rule, then by estimates on a sample.

A tensor of which more than a tenth is stored cells is dense. A sample of a sparse one is encoded in each layout, and
the layout with the lowest score gets it; where a workload is given it gets blocks, which are cut by the workload. A
score is made of sizes only: how many bytes are stored, and which share of them a read has to touch. What a read touches
counts by its logarithm: a read that is made twice as fast counts the same, whether it was fast before or slow. Where
nobody said which reads there will be, only slices of the first axis count so, those of the others by the share itself:
so none of them is made very fast at the cost of the rest.

A workload is the reads to come, as NumPy keys; without one, slices of the first axis are to be fast, and those of the
others are not to read most of the tensor.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log, prod
from typing import Any

import numpy as np
import numpy.typing as npt

from hyperslab.errors import InvalidInputError
from hyperslab.execute.threads import on_threads, processors
from hyperslab.selection import Box, Points, parse
from hyperslab.tensors import layouts
from hyperslab.tensors.layouts.axes import fold, folded_box
from hyperslab.tensors.layouts.blocks import SYMBOLS, densities
from hyperslab.tensors.layouts.bsgs import cut_cells
from hyperslab.tensors.layouts.ftsf import chunk_of
from hyperslab.tensors.values import Coo, bounding_box, coo_of_dense

__all__ = ["DENSE_SHARE", "choose", "choose_block"]

# Tensors with more stored cells than this share are dense, as in the paper.
DENSE_SHARE = 0.1
_SPARSE = ("bsgs", "csf", "csr", "coo")
_NUMBERS = "biufcmM"
# How many cells in a row are looked at for how they follow one another, and how many in all for where they are.
_RUN_CELLS = 3 << 13
_SPREAD_CELLS = 1 << 12
# What a row costs beside its cells, what a value costs about, and what a read costs beside its bytes.
_ROW_BITS, _VALUE_BITS = 72, 2
_READ_BYTES = 8 << 10
# How important it is, against a tensor's size, that a slice of another axis than the first touches little of it.
_SLICE_WEIGHT = 0.9
# So many times as important as one read is that the tensor is small.
_SIZE_WEIGHT = 10
_CELLS_OF_FIRST_BLOCKS = 256
_MOST_MOVES = 8
_SHORT_AXIS = 64
_MOST_VOLUME = 1 << 47

Array = npt.NDArray[Any]


def choose(tensor: Array | Coo, workload: Iterable[Any] | None = None) -> tuple[str, dict[str, Any]]:
    """Return a layout for a tensor and the layout's parameters.

    >>> choose(np.ones((1000, 3, 64, 64), "u1"))
    ('ftsf', {'chunk_dims': 3, 'rows': 341})
    >>> choose(np.ones((1000, 3, 64, 64), "u1"), workload=[np.s_[7], np.s_[8]])
    ('ftsf', {'chunk_dims': 3, 'rows': 1})
    """
    shape = tensor.shape
    reads = _boxes(workload, shape)
    if _is_dense(tensor):
        dims, rows = _chunk(shape, tensor.dtype.itemsize, reads)
        return "ftsf", {"chunk_dims": dims, "rows": rows}
    sparse = tensor if isinstance(tensor, Coo) else coo_of_dense(tensor)
    if not sparse.nnz:
        return "coo", {}
    block, inner = choose_block(fold(sparse), [folded_box(shape, box) for box in reads] if reads else None)
    if reads:
        # Blocks alone are cut along every axis, as the reads want it.
        return "bsgs", {"block": block, "inner": inner}
    sample = _first_part(sparse)
    wanted: dict[str, dict[str, Any]] = {"bsgs": {"block": block, "inner": inner}, "csf": {}, "csr": {}, "coo": {}}
    scores = {name: _score(sample, name, wanted[name]) for name in _SPARSE}
    best = min(scores, key=scores.__getitem__)
    return best, wanted[best]


def _boxes(workload: Iterable[Any] | None, shape: tuple[int, ...]) -> list[Box]:
    if workload is None:
        return []
    if isinstance(workload, str | bytes) or not isinstance(workload, Iterable):
        raise InvalidInputError(f"a workload is a list of keys such as np.s_[3, 10:20], not {workload!r:.60}")
    boxes = []
    for key in workload:
        read = parse(key, shape)
        if isinstance(read, Points):
            raise InvalidInputError(f"a workload is of slices and whole numbers, not of points: {key!r:.60}")
        boxes.append(bounding_box(read))
    return [box for box in boxes if box.size]


def _is_dense(tensor: Array | Coo) -> bool:
    if isinstance(tensor, Coo):
        few = prod(tensor.shape) * tensor.dtype.itemsize <= 1 << 30 and not tensor.fill
        return tensor.dtype.kind not in _NUMBERS or (few and tensor.density > DENSE_SHARE)
    if tensor.dtype.kind not in _NUMBERS or not tensor.size:
        return True
    return bool(np.count_nonzero(tensor) > DENSE_SHARE * tensor.size)


def _chunk(shape: tuple[int, ...], itemsize: int, reads: Sequence[Box]) -> tuple[int, int]:
    """Return the chunk of a dense tensor: of a good size, or the one of which the reads touch the fewest bytes."""
    found = chunk_of(shape, itemsize)
    if not reads or not shape:
        return found
    candidates = [found, *(chunk_of(shape, itemsize, 1 << bits) for bits in range(12, 24, 2))]
    candidates += [(dims, 1) for dims in range(len(shape)) if prod(shape[len(shape) - dims :]) * itemsize >= 1 << 10]

    def touched(chunk: tuple[int, int]) -> float:
        dims, rows = chunk
        cut = len(shape) - dims
        sizes = (*(1 for _ in range(cut - 1)), *([rows] if cut else []), *shape[cut:])
        return sum(_touched(box, sizes, itemsize) for box in reads)

    return min(candidates, key=touched)


def _touched(box: Box, sizes: Sequence[int], itemsize: int) -> float:
    """Return how many bytes the chunks that meet a box have, and what it costs to ask for them."""
    ends = zip(box.start, box.stop, sizes, strict=True)
    chunks = prod((high - 1) // size - low // size + 1 for low, high, size in ends)
    return chunks * (prod(sizes) * itemsize + 4096)


def _first_part(tensor: Coo) -> Coo:
    """Return the tensor with only a run of its cells."""
    if tensor.nnz <= _RUN_CELLS:
        return tensor
    low = (tensor.nnz - _RUN_CELLS) // 2
    run = slice(low, low + _RUN_CELLS)
    return Coo(tensor.shape, np.ascontiguousarray(tensor.coords[:, run]), tensor.values[run], tensor.fill)


def _score(sample: Coo, layout: str, parameters: dict[str, Any]) -> float:
    """Return how many bytes a sample takes in a layout, more for layouts that slices need more rows of."""
    encoded = layouts.encode(sample, layout, **parameters)
    stored = sum(table.nbytes for table in encoded.tables) + len(encoded.header("").to_json())
    if layout == "bsgs":
        return float(stored)
    # The others are in row-major order: all but slices of the first axis touch most of them. Parquet makes half of coo.
    return float(stored) * (1 + sample.ndim / _SIZE_WEIGHT) * (0.5 if layout == "coo" else 1.0)


@dataclass(frozen=True, slots=True)
class _Sample:
    """What is known of a tensor when blocks are chosen: a run of its cells, some of all, and its size."""

    shape: tuple[int, ...]
    run: npt.NDArray[np.int64]
    spread: npt.NDArray[np.int64]
    nnz: int
    reads: tuple[Box, ...]

    def bits(self, block: tuple[int, ...], inner: tuple[int, ...]) -> float:
        """Return how many bits a cell takes, without its value: the entropy of distances, and a share of its row."""
        from hyperslab.tensors.layouts import kernels

        codes = np.zeros(self.run.shape[1], np.uint16)
        places, codes, _, numbers, starts = cut_cells(self.shape, self.run, codes, block, inner, 1)
        _, table_of = np.unique(densities(prod(block), np.diff(starts), 2), return_inverse=True)
        counts = np.zeros((table_of.max() + 1, SYMBOLS), np.int64)
        kernels.count_symbols(places, codes, starts, table_of, 1, counts)
        tables, used = np.nonzero(counts)
        share = counts[tables, used] / counts.sum(axis=1)[tables]
        open_bits = np.maximum(0, (used - 8) // 4 + 1)
        total = (counts[tables, used] * (open_bits - np.log2(share))).sum() + _ROW_BITS * len(numbers)
        return float(total) / len(places) + _VALUE_BITS

    def share(self, block: tuple[int, ...], read: Box | int) -> float:
        """Return which share of the cells is in blocks that a read meets: a box, or a slice along an axis."""
        if isinstance(read, int):
            slabs = np.unique(self.spread[read] // block[read], return_counts=True)[1]
            return float((slabs / self.spread.shape[1]) @ (slabs / self.spread.shape[1]))
        low = np.array([a // b * b for a, b in zip(read.start, block, strict=True)])[:, None]
        high = np.array([-(-a // b) * b for a, b in zip(read.stop, block, strict=True)])[:, None]
        return float(((self.spread >= low) & (self.spread < high)).all(axis=0).mean())

    def score(self, block: tuple[int, ...], inner: tuple[int, ...]) -> float:
        stored = self.nnz * self.bits(block, inner) / 8
        least = _READ_BYTES / stored
        if self.reads:
            touched = [log(self.share(block, read) + least) for read in self.reads]
            return _SIZE_WEIGHT * log(stored) + sum(touched) * min(1, (len(self.shape) + 1) / len(touched))
        # Along the slowest axis of a block, a slice has read all of its cells when half of the block has been, about.
        slowest = next((axis for axis in inner if block[axis] > 1), None)
        others = sum(self.share(block, axis) / (2 if axis == slowest else 1) for axis in range(1, len(self.shape)))
        return _SIZE_WEIGHT * log(stored) + 2 * log(self.share(block, 0) + least) + _SLICE_WEIGHT * others


def choose_block(tensor: Coo, reads: Sequence[Box] | None = None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return a shape for the blocks of a sparse tensor, and the order in which their cells are counted.

    Starting from slabs of the first axis, one axis of the block is halved or doubled as long as that is better.

    >>> choose_block(Coo.of((64, 64), np.arange(64).reshape(1, -1).repeat(2, 0), np.ones(64)))[0]
    (32, 32)
    """
    shape = tensor.shape
    if not tensor.nnz:
        return tuple(max(1, n) for n in shape), tuple(range(len(shape)))
    low = max(0, (tensor.nnz - _RUN_CELLS) // 2)
    run = np.ascontiguousarray(tensor.coords[:, low : low + _RUN_CELLS])
    spread = tensor.coords[:, :: max(1, tensor.nnz // _SPREAD_CELLS)]
    sample = _Sample(shape, run, spread, tensor.nnz, tuple(reads or ()))
    block = _first_block(shape, tensor.nnz)
    axes = range(len(shape))
    if not _can_be_tried(shape, block):
        return block, tuple(axes)
    orders = [(*(k for k in axes if k != last), last) for last in axes]
    inner = min(orders, key=lambda order: (sample.bits(block, order), order))
    best = sample.score(block, inner)
    tried = {block}
    for _ in range(_MOST_MOVES):
        moves = [move for move in _moves(shape, block) if move not in tried]
        tried.update(moves)
        scores = on_threads(lambda move: sample.score(moves[move], inner), len(moves), processors())  # noqa: B023
        scored = [*zip(scores, moves, strict=True)]
        if not scored or min(scored)[0] >= best:
            break
        best, block = min(scored)
    return block, inner


def _first_block(shape: tuple[int, ...], nnz: int) -> tuple[int, ...]:
    """Return slabs of the first axis with some hundred cells each."""
    first = -(-_CELLS_OF_FIRST_BLOCKS * shape[0] // nnz)
    block = [min(shape[0], 1 << (first - 1).bit_length()), *shape[1:]]
    while prod(block) > _MOST_VOLUME:
        longest = max(range(len(block)), key=block.__getitem__)
        block[longest] = 1 << ((block[longest] - 1).bit_length() - 1)
    return tuple(block)


def _moves(shape: tuple[int, ...], block: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the blocks with one axis longer or shorter, also by far: cells may all be in one part of a long axis."""
    moves = []
    for axis, (n, b) in enumerate(zip(shape, block, strict=True)):
        sizes = {min(n, 2 * b), *(_shorter(n, b, parts) for parts in (2, 4, 8, 16))} - {b}
        moves += [(*block[:axis], size, *block[axis + 1 :]) for size in sorted(sizes)]
    return [move for move in moves if prod(move) <= _MOST_VOLUME and _can_be_tried(shape, move)]


def _can_be_tried(shape: tuple[int, ...], block: tuple[int, ...]) -> bool:
    """Whether the cells of all blocks can be counted by numbers that a bit is added to."""
    return prod(-(-n // b) * b for n, b in zip(shape, block, strict=True)) < 1 << 62


def _shorter(n: int, side: int, parts: int) -> int:
    """Return a part of a block's side: of a short axis an equal part, of a long one a power of two.

    >>> _shorter(24, 24, 2), _shorter(1140, 1140, 4)
    (12, 512)
    """
    part = max(1, -(-side // parts))
    return part if n <= _SHORT_AXIS else 1 << (part - 1).bit_length()
