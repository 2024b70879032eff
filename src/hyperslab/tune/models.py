"""What a chunk shape costs in chunks touched, by the models of Otoo, Rotem and Seshadri (optimal chunking).

A workload is a list of box shapes with weights, of which only the ratios matter. A box that may lie anywhere in a large
array touches (A - 1) / c + 1 chunks along an axis, if it is A cells long there and chunks are c: what counts is its
"adjusted" length A - 1. Two models take the shapes apart differently: "query shapes" (QS) keeps them whole,
"independent ranges" (IAR) knows each axis alone and has its best shape in closed form. The older model of Sarawagi and
Stonebraker (SS) is there to compare.

`limits` are the lengths of the array: no chunk is longer along an axis, or, where lengths are powers of two, than the
first of these that reaches the array's end.
"""

from collections.abc import Sequence
from math import inf, log2

import numpy as np
import numpy.typing as npt

from hyperslab.errors import InvalidInputError

__all__ = [
    "adjusted_shapes",
    "check_adjusted",
    "check_chunks",
    "expected_chunks",
    "iar_cost",
    "iar_powers",
    "iar_real",
    "mean_adjusted",
    "most_exponents",
    "qs_cost",
    "shares_of",
    "ss_cost",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def expected_chunks(boxes: npt.ArrayLike, chunks: npt.ArrayLike) -> Floats:
    """Return how many chunks each box touches on average, wherever it lies in an array much larger than it (Lemma 5.1).

    `boxes` is (n, k), the lengths of n boxes; the answer is (n,).

    >>> expected_chunks([[40, 60, 120]], (8, 16, 32)).round(2).tolist()
    [129.95]
    """
    adjusted = adjusted_shapes(boxes)
    means: Floats = (adjusted / check_chunks(chunks, adjusted.shape[1]) + 1).prod(axis=1)
    return means


def qs_cost(shapes: npt.ArrayLike, weights: npt.ArrayLike | None, chunks: npt.ArrayLike) -> float:
    """Return the mean number of chunks of a workload of shapes (equation 4.2)."""
    means = expected_chunks(shapes, chunks)
    return float(shares_of(weights, len(means)) @ means)


def ss_cost(shapes: npt.ArrayLike, weights: npt.ArrayLike | None, chunks: npt.ArrayLike) -> float:
    """Return what Sarawagi and Stonebraker count: boxes as if all of them began where a chunk does (equation 4.1)."""
    lengths = adjusted_shapes(shapes) + 1
    counts = np.ceil(lengths / check_chunks(chunks, lengths.shape[1])).prod(axis=1)
    return float(shares_of(weights, len(counts)) @ counts)


def iar_cost(adjusted: npt.ArrayLike, chunks: npt.ArrayLike) -> float:
    """Return the mean number of chunks if the lengths along the axes are independent (Lemma 5.2).

    `adjusted` has the mean adjusted length along each axis, as `mean_adjusted` gives it.
    """
    means = np.asarray(adjusted, np.float64)
    return float((means / check_chunks(chunks, means.size) + 1).prod())


def mean_adjusted(shapes: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> Floats:
    """Return the mean of A - 1 along each axis.

    >>> mean_adjusted([(2, 3), (3, 4), (4, 3), (2, 3)]).tolist()
    [1.75, 2.25]
    """
    adjusted = adjusted_shapes(shapes)
    means: Floats = shares_of(weights, len(adjusted)) @ adjusted
    return means


def iar_real(adjusted: npt.ArrayLike, cells: float, limits: Sequence[int] | None = None) -> Floats:
    """Return the real chunk lengths with the least `iar_cost` of all with at most `cells` cells (Theorem 5.1).

    They are in proportion to the adjusted lengths. An axis that would get less than 1 or more than its limit gets just
    that, and the others share the rest. An axis of adjusted length 0 gets 1: longer chunks gain nothing there.

    >>> iar_real([5.7, 9.4, 12.5, 24.9, 30.2], 8192).round(3).tolist()
    [2.501, 4.125, 5.485, 10.926, 13.251]
    """
    lengths = check_adjusted(np.asarray(adjusted, np.float64)[None])[0]
    if not 1 <= cells < inf:
        raise InvalidInputError(f"a chunk must have one cell or more, asked for {cells}")
    tops = np.full(lengths.size, inf) if limits is None else np.maximum(1.0, _checked_limits(limits, lengths.size))
    chunks = np.ones(lengths.size)
    used = lengths > 0
    if used.any():
        chunks[used] = 2 ** _level(np.log2(lengths[used]), np.log2(tops[used]), log2(cells))
    return chunks


def _level(logs: Floats, tops: Floats, total: float) -> Floats:
    """Return clip(logs + t, 0, tops) with the t at which they sum up to `total`, or `tops` if that is not reached.

    To minimise sum(log(1 + 2**(a - y))) over y, the slope must be the same along all axes that are not at a bound. It
    depends on y - a only and falls, so that y = a + t there, and what is at a bound is what a + t would have crossed.
    """
    if tops.sum() <= total:
        return tops
    bends = np.sort(np.concatenate([-logs, tops - logs]))
    bends = bends[np.isfinite(bends)]
    sums = np.clip(logs + bends[:, None], 0, tops).sum(axis=1)
    # Between two bends the sum is linear; after the last, only the axes without a limit go on.
    if total <= sums[-1]:
        shift = float(np.interp(total, sums, bends))
    else:
        shift = bends[-1] + (total - sums[-1]) / np.isinf(tops).sum()
    levels: Floats = np.clip(logs + shift, 0, tops)
    return levels


def iar_powers(adjusted: npt.ArrayLike, log2_cells: int, limits: Sequence[int] | None = None) -> tuple[int, ...]:
    """Return the exponents of the best chunk shape of powers of two for independent ranges.

    The real solution is rounded down, then up again where its fractions were largest, until all cells are used.

    >>> iar_powers([5.7, 9.4, 12.5, 24.9, 30.2], 13)
    (1, 2, 3, 3, 4)
    """
    lengths = np.asarray(adjusted, np.float64)
    tops = most_exponents(log2_cells, limits, lengths.size)
    exact = np.log2(iar_real(lengths, 2.0**log2_cells, [1 << top for top in tops.tolist()]))
    floors = np.floor(exact)
    fractions = exact - floors
    # The fractions sum up to an integer, but for rounding.
    up = np.argsort(-fractions, kind="stable")[: round(float(fractions.sum()))]
    floors[up] += 1
    return tuple(int(y) for y in floors)


def adjusted_shapes(shapes: npt.ArrayLike) -> Floats:
    """Return box shapes (n, k) with each length less by one; refuse boxes without cells, which touch no chunk."""
    lengths = np.asarray(shapes, np.float64)
    if lengths.ndim != 2 or 0 in lengths.shape:
        raise InvalidInputError(f"expected box shapes as an array (boxes, axes), found one of shape {lengths.shape}")
    if not (np.isfinite(lengths) & (lengths >= 1)).all():
        raise InvalidInputError("every box must have a cell or more along every axis; leave out boxes without cells")
    return lengths - 1


def check_adjusted(adjusted: npt.ArrayLike) -> Floats:
    """Return adjusted lengths (n, k); refuse what is none, or so long that a product of them is no number."""
    lengths = np.asarray(adjusted, np.float64)
    if lengths.ndim != 2 or 0 in lengths.shape:
        raise InvalidInputError(f"expected adjusted shapes as an array (shapes, axes), found shape {lengths.shape}")
    if not (lengths >= 0).all() or not np.log2(lengths + 1).sum(axis=1).max() < 1000:
        raise InvalidInputError(
            "adjusted lengths (cells less one) must be 0 or more, and the boxes below 2**1000 cells"
        )
    return lengths


def shares_of(weights: npt.ArrayLike | None, count: int) -> Floats:
    """Return weights as shares of their sum; without weights, all shapes come equally often."""
    if weights is None:
        return np.full(count, 1 / count)
    given = np.asarray(weights, np.float64)
    if given.shape != (count,):
        raise InvalidInputError(f"expected a weight for each of {count} shapes, found an array of shape {given.shape}")
    if not (np.isfinite(given) & (given >= 0)).all() or not given.sum() > 0:
        raise InvalidInputError("weights must be finite, not negative and not all zero")
    shares: Floats = given / given.sum()
    return shares


def check_chunks(chunks: npt.ArrayLike, ndim: int) -> Floats:
    """Return chunk lengths as floats; refuse those that are no chunk of `ndim` axes."""
    lengths = np.asarray(chunks, np.float64)
    if lengths.shape != (ndim,):
        raise InvalidInputError(f"expected a chunk length for each of {ndim} axes, found {np.asarray(chunks).tolist()}")
    if not (lengths > 0).all():
        raise InvalidInputError(f"chunk lengths must be positive, found {lengths.tolist()}")
    return lengths


def most_exponents(log2_cells: int, limits: Sequence[int] | None, ndim: int) -> Ints:
    """Return the largest exponent for each axis: that of all cells, or of the first power to reach the limit."""
    if not 0 <= log2_cells <= 62:
        raise InvalidInputError(f"a chunk must have 2**0 to 2**62 cells, asked for 2**{log2_cells}")
    if limits is None:
        return np.full(ndim, log2_cells)
    lengths = _checked_limits(limits, ndim).tolist()
    return np.array([min(log2_cells, max(0, length - 1).bit_length()) for length in lengths], np.int64)


def _checked_limits(limits: Sequence[int], ndim: int) -> Ints:
    if len(limits) != ndim:
        raise InvalidInputError(f"expected the array's length along each of {ndim} axes, found {tuple(limits)}")
    return np.asarray(limits, np.int64)
