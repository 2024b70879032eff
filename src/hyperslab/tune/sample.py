"""How well cells compress, by the size of chunks: measured on a sample of them."""

from itertools import product
from math import prod
from typing import Any

import numpy.typing as npt

from hyperslab.formats.zarr.create import LEVEL
from hyperslab.formats.zarr.sizes import choose_chunks
from hyperslab.layout.encode import ChunkEncoder
from hyperslab.tune.forms import Shape, Shrink

__all__ = ["SAMPLE_BYTES", "measure_shrink", "sample_boxes"]

# What is read of an array at most, in so many boxes.
SAMPLE_BYTES = 8 << 20
_BOXES = 4
_SIZES = (1 << 10, 1 << 13, 1 << 16, 1 << 19, 1 << 21)
# Chunks of each size that are compressed, at most.
_MOST_CHUNKS = 64


def sample_boxes(shape: Shape, chunks: Shape, itemsize: int) -> list[tuple[slice, ...]]:
    """Return boxes of an array to be looked at: spread over it, as far as can be of whole chunks.

    >>> sample_boxes((100, 100), (10, 10), 8)
    [(slice(0, 100, None), slice(0, 100, None))]
    """
    if prod(shape) * itemsize <= SAMPLE_BYTES:
        return [tuple(slice(0, length) for length in shape)]
    sizes = choose_chunks(shape, itemsize, SAMPLE_BYTES // _BOXES)
    sizes = tuple(
        [min(n, -(-size // c) * c) if n > c else size for size, c, n in zip(sizes, chunks, shape, strict=True)]
    )
    if prod(sizes) * itemsize > 2 * SAMPLE_BYTES // _BOXES:
        sizes = choose_chunks(shape, itemsize, SAMPLE_BYTES // _BOXES)
    # From near one corner to near the other, so that no axis is looked at in one place alone.
    starts = [[(n - size) * at // (_BOXES - 1) // c * c for at in range(_BOXES)]
              for n, size, c in zip(shape, sizes, chunks, strict=True)]  # fmt: skip
    return [
        tuple([slice(row[at], min(row[at] + size, n)) for row, size, n in zip(starts, sizes, shape, strict=True)])
        for at in range(_BOXES)
    ]


def measure_shrink(blocks: list[npt.NDArray[Any]]) -> Shrink:
    """Return how well blocks of cells compress when they are cut into chunks of several sizes.

    >>> import numpy as np
    >>> measure_shrink([np.zeros((64, 64), np.int64)]).of(1 << 15) < 0.01
    True
    """
    filled = [block for block in blocks if block.size]
    if not filled:
        return Shrink()
    points = [(nbytes, _share(filled, nbytes)) for nbytes in _SIZES if nbytes <= filled[0].nbytes]
    return Shrink(tuple(points) or ((1, _share(filled, filled[0].nbytes)),))


def _share(blocks: list[npt.NDArray[Any]], nbytes: int) -> float:
    """Return what share of their bytes chunks of about that size have when they are stored."""
    before = after = 0
    for block in blocks:
        encoder = ChunkEncoder(block.dtype, tuple(range(block.ndim)), LEVEL, checksum=True)
        sizes = choose_chunks(block.shape, block.dtype.itemsize, nbytes)
        corners = list(product(*[range(0, n, size) for n, size in zip(block.shape, sizes, strict=True)]))
        step = -(-len(corners) * len(blocks) // _MOST_CHUNKS)
        for corner in corners[::step]:
            chunk = block[tuple([slice(at, at + size) for at, size in zip(corner, sizes, strict=True)])]
            before, after = before + chunk.nbytes, after + encoder.encode(chunk).nbytes
    return after / before
