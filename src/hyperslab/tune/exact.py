"""The best chunk shape of powers of two for a workload of whole shapes, found by branch and bound and proven.

From the greedy's answer, improved by exchanging single steps, tangents (`tangents.py` says why they are bounds) narrow
the values that each exponent can have in a better answer. Then shapes that are alike are taken together, such that no
point costs more than before, and exponents are fixed axis by axis, with a tangent of its own for every such beginning;
what cannot lead to a better answer is dropped. The last axes are not fixed one by one: what they can be is listed once,
and a product of two matrices gives the costs of all beginnings with all ends (`tree.py`). The few points that are left
are computed with the shapes as they are.

Costs fall in every exponent, so that among the best points is one with as many cells as are allowed, or as the limits
allow: only such are looked at.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log

import numpy as np
import numpy.typing as npt

from hyperslab.tune.greedy import qs_greedy
from hyperslab.tune.models import Ints, check_adjusted, most_exponents, shares_of
from hyperslab.tune.tangents import Box, Tangent, Terms
from hyperslab.tune.tree import Best, Tree

__all__ = ["Optimum", "qs_exact"]

# Tangents that narrow the box; as a rule few of them do.
_ROOT_TANGENTS = 24
# So many groups of shapes. Even for a thousand shapes without any order more were no closer, only slower.
_GROUPS = 64


@dataclass(frozen=True, slots=True)
class Optimum:
    """The best exponents and their cost; `terms` says how much was computed to prove it.

    `proven` is False if the search was ended by `most_terms`: then it is the best that was found.
    """

    exponents: tuple[int, ...]
    cost: float
    terms: int
    proven: bool


def qs_exact(
    adjusted: npt.ArrayLike,
    weights: npt.ArrayLike | None,
    log2_cells: int,
    limits: Sequence[int] | None = None,
    *,
    most_terms: float = inf,
) -> Optimum:
    """Return the chunk shape of powers of two, of at most 2**log2_cells cells, that touches the fewest chunks.

    `adjusted` is (n, k). No other shape costs less, but for a share of 1e-12; where several are best, any may come.
    `most_terms` bounds the work: a term is a shape in a point, and some 10 billion of them take a second.

    >>> best = qs_exact([(10, 8, 12), (12, 2, 456)], (0.647, 0.353), 9)
    >>> best.exponents, round(best.cost, 2), best.proven
    ((2, 1, 6), 36.39, True)
    """
    lengths = check_adjusted(adjusted)
    shares = shares_of(weights, len(lengths))
    greedy = qs_greedy(lengths, shares, log2_cells, limits)
    # Shapes that never come cost nothing; along an axis in which no shape is long nothing is gained.
    coming = lengths[shares > 0]
    tops = np.where((coming > 0).any(axis=0), most_exponents(log2_cells, limits, lengths.shape[1]), 0)
    distinct, places = np.unique(coming, axis=0, return_inverse=True)
    terms = Terms.of(distinct, np.bincount(places.reshape(-1), shares[shares > 0]).astype(np.float64), tops)
    best = Best(terms, np.array(greedy.exponents, np.int64), most_terms)
    _exchange(terms, tops, best)
    _search(terms, Box(np.zeros_like(tops), tops, min(log2_cells, int(tops.sum()))), best)
    cost = float((shares * (lengths / 2.0**best.point + 1).prod(axis=1)).sum())
    return Optimum(tuple(best.point.tolist()), cost, best.terms_done, best.proven)


def _exchange(terms: Terms, tops: Ints, best: Best) -> None:
    """Move single steps from one axis to another as long as that is better."""
    axes = np.arange(len(tops))
    better = True
    while better:
        point = best.point
        now = np.stack([table[y] for table, y in zip(terms.factors, point, strict=True)])
        # One step less doubles what is above 1, one step more halves it.
        less, more = (2 * now - 1) / now, (now + 1) / (2 * now)
        costs = (terms.shares * now.prod(axis=0) * less) @ more.T
        costs[(point == 0)[:, None] | (point == tops) | (axes[:, None] == axes)] = inf
        source, target = np.unravel_index(costs.argmin(), costs.shape)
        better = best.offer((point + (axes == target) - (axes == source))[None])


def _search(terms: Terms, box: Box, best: Best) -> None:
    """Find the best point of the box, if there is one that is better than the best so far."""
    box, root = _narrow(terms, box, best)
    if box.empty:
        return
    grouped = terms.grouped(root, box, _GROUPS)
    if grouped is not terms:
        box, root = _narrow(grouped, box, best)
    if not box.empty:
        Tree(grouped, box, root, best).search()


def _narrow(terms: Terms, box: Box, best: Best) -> tuple[Box, Tangent]:
    """Return the part of the box in which a better point may be, and the tangent that is highest in its least point."""
    logs = np.log(terms.products(best.point[None])[0])
    root, highest = Tangent.at(terms, logs), -inf
    for number in range(_ROOT_TANGENTS):
        tangent = Tangent.at(terms, logs)
        best.terms_done += len(logs) * sum(len(table) for table in terms.logs)
        box = box.narrowed(tangent, log(best.enough))
        if box.empty:
            break
        point = box.least(tangent.heights)
        least = tangent.base + float(tangent.along(point[None])[0])
        if least > highest:
            root, highest = tangent, least
        best.offer(point[None])
        # The next one is taken at the mean of the points in which earlier ones were least: it is higher there.
        logs = logs + (np.log(terms.products(point[None])[0]) - logs) / (number + 2)
    return box, root
