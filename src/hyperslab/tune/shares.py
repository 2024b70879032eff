"""How often ranges and shapes come in a workload, under independent ranges and under whole shapes (Tables 3 and 4)."""

from collections.abc import Iterator
from itertools import product
from math import prod

import numpy as np
import numpy.typing as npt

from hyperslab.tune.models import adjusted_shapes, shares_of

__all__ = ["iar_shapes", "qs_shapes", "range_shares"]


def range_shares(shapes: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> list[dict[int, float]]:
    """Return for each axis how often each length comes (Table 3).

    >>> range_shares([(2, 3), (3, 4), (4, 3), (2, 3)])
    [{2: 0.5, 3: 0.25, 4: 0.25}, {3: 0.75, 4: 0.25}]
    """
    lengths = adjusted_shapes(shapes) + 1
    shares = shares_of(weights, len(lengths))
    axes = [np.unique(column, return_inverse=True) for column in lengths.T]
    return [
        {int(length): float(share) for length, share in zip(values, np.bincount(places, shares), strict=True)}
        for values, places in axes
    ]


def qs_shapes(shapes: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> dict[tuple[int, ...], float]:
    """Return how often each whole shape comes (Table 4, model QS)."""
    lengths = adjusted_shapes(shapes) + 1
    values, places = np.unique(lengths, axis=0, return_inverse=True)
    shares = np.bincount(places.reshape(-1), shares_of(weights, len(lengths)))
    return {tuple(int(a) for a in shape): float(share) for shape, share in zip(values, shares, strict=True)}


def iar_shapes(shapes: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> Iterator[tuple[tuple[int, ...], float]]:
    """Yield every shape that independent ranges allow, seen or not, with its probability (Table 4, model IAR).

    There are as many as the product of the numbers of different lengths: they are made one by one.
    """
    axes = range_shares(shapes, weights)
    for ranges in product(*(shares.items() for shares in axes)):
        yield tuple(length for length, _ in ranges), prod(share for _, share in ranges)
