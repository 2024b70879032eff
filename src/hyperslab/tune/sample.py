"""How well cells compress, by the size of chunks: measured on a sample of them."""

from itertools import product
from math import prod
from typing import Any

import numpy.typing as npt

from hyperslab.formats.zarr.sizes import choose_chunks
from hyperslab.layout.compression import DEFAULT, Compression
from hyperslab.layout.encode import ChunkEncoder
from hyperslab.tune.forms import Shape, Shrink

__all__ = ["SAMPLE_BYTES", "measure_shrink", "sample_boxes"]

# What is read of an array at most, in so many boxes.
SAMPLE_BYTES = 8 << 20
_BOXES = 4
# Chunks that lie across a box are fetched whole: so many times its bytes at most, if they are smaller than it.
_MOST_FETCHED = 4
_SIZES = (1 << 10, 1 << 13, 1 << 16, 1 << 19, 1 << 21)
# Chunks of each size that are compressed, at most.
_MOST_CHUNKS = 64


def sample_boxes(shape: Shape, chunks: Shape, itemsize: int, most_chunks: int = 1 << 14) -> list[tuple[slice, ...]]:
    """Return boxes of an array to be looked at: spread over it, as far as can be of whole chunks, and of few of them.

    >>> sample_boxes((100, 100), (10, 10), 8)
    [(slice(0, 100, None), slice(0, 100, None))]
    """
    grid = tuple([-(-length // size) for length, size in zip(shape, chunks, strict=True)])
    if prod(shape) * itemsize <= SAMPLE_BYTES and prod(grid) <= most_chunks:
        return [tuple(slice(0, length) for length in shape)]
    sizes = _box_sizes(shape, chunks, grid, itemsize, most_chunks // _BOXES)
    # Boxes begin with chunks; within one, if they are parts of chunks.
    inside = all(size <= c for size, c in zip(sizes, chunks, strict=True))
    # From near one corner to near the other, so that no axis is looked at in one place alone.
    starts = [[_start((n - size) * at // (_BOXES - 1), c, c - size if inside else 0) for at in range(_BOXES)]
              for n, size, c in zip(shape, sizes, chunks, strict=True)]  # fmt: skip
    return [
        tuple([slice(row[at], min(row[at] + size, n)) for row, size, n in zip(starts, sizes, shape, strict=True)])
        for at in range(_BOXES)
    ]


def _box_sizes(shape: Shape, chunks: Shape, grid: Shape, itemsize: int, most_chunks: int) -> Shape:
    """Return the cells of a box: as far along all axes, or, where that takes too many chunks, of whole ones or one."""
    nbytes = SAMPLE_BYTES // _BOXES
    even = choose_chunks(shape, itemsize, nbytes)
    whole = tuple(
        [min(n, -(-size // c) * c) if n > c else size for size, c, n in zip(even, chunks, shape, strict=True)]
    )
    sizes = whole if prod(whole) * itemsize <= 2 * nbytes else even
    one = tuple([min(n, c) for n, c in zip(shape, chunks, strict=True)])
    touched = prod([-(-size // c) for size, c in zip(sizes, chunks, strict=True)])
    if touched <= most_chunks and touched * prod(one) * itemsize <= _MOST_FETCHED * nbytes:
        return sizes
    fitting = nbytes // (prod(one) * itemsize)
    if not fitting:
        return choose_chunks(one, itemsize, nbytes)
    counts = choose_chunks(grid, 1, min(most_chunks, fitting))
    return tuple([min(n, count * c) for count, c, n in zip(counts, chunks, shape, strict=True)])


def _start(cell: int, chunk: int, most: int) -> int:
    """Return where a box begins that should begin at a cell: with its chunk, or at most so many cells further."""
    return cell // chunk * chunk + min(cell % chunk, most)


def measure_shrink(blocks: list[npt.NDArray[Any]], compression: Compression | None = DEFAULT) -> Shrink:
    """Return how well blocks of cells compress when they are cut into chunks of several sizes.

    >>> import numpy as np
    >>> measure_shrink([np.zeros((64, 64), np.int64)]).of(1 << 15) < 0.01
    True
    """
    filled = [block for block in blocks if block.size]
    if not filled:
        return Shrink()
    points = [(nbytes, _share(filled, nbytes, compression)) for nbytes in _SIZES if nbytes <= filled[0].nbytes]
    return Shrink(tuple(points) or ((1, _share(filled, filled[0].nbytes, compression)),))


def _share(blocks: list[npt.NDArray[Any]], nbytes: int, compression: Compression | None) -> float:
    """Return what share of their bytes chunks of about that size have when they are stored."""
    before = after = 0
    for block in blocks:
        encoder = ChunkEncoder(block.dtype, tuple(range(block.ndim)), compression, checksum=True)
        sizes = choose_chunks(block.shape, block.dtype.itemsize, nbytes)
        corners = list(product(*[range(0, n, size) for n, size in zip(block.shape, sizes, strict=True)]))
        step = -(-len(corners) * len(blocks) // _MOST_CHUNKS)
        for corner in corners[::step]:
            chunk = block[tuple([slice(at, at + size) for at, size in zip(corner, sizes, strict=True)])]
            before, after = before + chunk.nbytes, after + encoder.encode(chunk).nbytes
    return after / before
