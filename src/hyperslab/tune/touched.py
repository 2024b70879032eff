"""How many chunks boxes touch: those of recorded boxes, counted, and the exact mean of a box in a finite array."""

import numpy as np
import numpy.typing as npt

from hyperslab.errors import InvalidInputError

__all__ = ["chunks_touched", "expected_touched"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def chunks_touched(starts: npt.ArrayLike, counts: npt.ArrayLike, chunks: npt.ArrayLike) -> Ints:
    """Return how many chunks each box touches; `starts` and `counts` are (n, k). A box without cells touches none.

    >>> chunks_touched([(0, 0), (3, 3), (4, 0)], [(4, 4), (2, 2), (9, 0)], (4, 4)).tolist()
    [1, 4, 0]
    """
    first, lengths = np.asarray(starts, np.int64), np.asarray(counts, np.int64)
    if first.shape != lengths.shape or first.ndim != 2 or (first < 0).any() or (lengths < 0).any():
        raise InvalidInputError(
            "expected starts and counts as two arrays (boxes, axes) of equal shape without negative entries, "
            f"found shapes {first.shape} and {lengths.shape}"
        )
    sides = _sides(chunks, first.shape[1])
    along = (first + lengths - 1) // sides - first // sides + 1
    touched: Ints = np.where((lengths > 0).all(axis=1), along.prod(axis=1), 0)
    return touched


def expected_touched(shape: npt.ArrayLike, counts: npt.ArrayLike, chunks: npt.ArrayLike) -> Floats:
    """Return the mean number of chunks that each box touches over all its places in an array of `shape`.

    `counts` is (n, k): the lengths of n boxes. Along an axis of N cells a box of A cells has N - A + 1 places, all
    equally likely. Unlike `expected_chunks` this is exact for small arrays, too, and for any chunk length.

    >>> expected_touched((9,), [(2,), (9,)], (4,)).tolist()  # 2 cells lie in 2 chunks at 3 and at 7, of 8 places
    [1.25, 3.0]
    """
    cells, lengths = np.asarray(shape, np.int64), np.asarray(counts, np.int64)
    if cells.ndim != 1 or lengths.ndim != 2 or lengths.shape[1] != cells.size:
        raise InvalidInputError(f"expected boxes (n, {cells.size}), found an array of shape {lengths.shape}")
    if (lengths < 0).any() or (lengths > cells).any():
        raise InvalidInputError(f"every box must fit into the array of shape {tuple(cells.tolist())}")
    sides = _sides(chunks, cells.size)
    # A box that begins at s ends (A - 1) // c chunks further, and one more if s % c is among the last (A - 1) % c
    # cells of its chunk: of the N - A + 1 places we count those.
    further, last = np.divmod(np.maximum(lengths - 1, 0), sides)
    places = cells - lengths + 1
    rounds, rest = np.divmod(places, sides)
    one_more = rounds * last + np.maximum(0, rest - (sides - last))
    means: Floats = (1 + further + one_more / places).prod(axis=1)
    return np.where((lengths > 0).all(axis=1), means, 0.0)


def _sides(chunks: npt.ArrayLike, ndim: int) -> Ints:
    sides = np.asarray(chunks, np.int64)
    if sides.shape != (ndim,) or (sides < 1).any():
        raise InvalidInputError(f"expected a positive chunk length for each of {ndim} axes, found {sides.tolist()}")
    return sides
