"""The published greedy for whole shapes: double the chunk where it saves most."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
import numpy.typing as npt

from hyperslab.tune.models import check_adjusted, most_exponents, shares_of

__all__ = ["Greedy", "qs_greedy"]


@dataclass(frozen=True, slots=True)
class Greedy:
    """A chunk shape of powers of two, its cost, and the steps on the way: exponents and cost after each."""

    exponents: tuple[int, ...]
    cost: float
    trace: tuple[tuple[tuple[int, ...], float], ...]


def qs_greedy(
    adjusted: npt.ArrayLike, weights: npt.ArrayLike | None, log2_cells: int, limits: Sequence[int] | None = None
) -> Greedy:
    """Double the chunk along the axis where it saves most, until it has 2**log2_cells cells (Algorithm 1, QS).

    `adjusted` is (n, k). An axis along which nothing is gained is not doubled. Contrary to the paper's Theorem C.2 this
    is not always the best shape: what an axis saves depends on the others, so that an early step may be wrong in the
    end. `qs_exact` finds the best.

    >>> qs_greedy([(10, 8, 12), (12, 2, 456)], (0.647, 0.353), 9).exponents
    (3, 1, 5)
    """
    lengths = check_adjusted(adjusted)
    shares = shares_of(weights, len(lengths))
    tops = most_exponents(log2_cells, limits, lengths.shape[1])
    exponents = np.zeros(len(tops), np.int64)
    trace: list[tuple[tuple[int, ...], float]] = []
    while True:
        now = lengths / 2.0**exponents + 1
        terms = shares * now.prod(axis=1)
        trace.append((tuple(exponents.tolist()), float(terms.sum())))
        # Doubling takes away half of what is above 1.
        after = np.where(exponents < tops, terms @ ((now + 1) / (2 * now)), inf)
        best = int(after.argmin())
        if exponents.sum() == log2_cells or not after[best] < trace[-1][1]:
            return Greedy(*trace[-1], tuple(trace))
        exponents[best] += 1
