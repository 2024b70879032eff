"""The points of a box, grown axis by axis, as far as they may be better than the best known."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from math import inf, log, prod

import numpy as np
import numpy.typing as npt

from hyperslab.tune.models import Floats, Ints
from hyperslab.tune.tangents import Box, Tangent, Terms

__all__ = ["Best", "Tree", "blocks"]

# What is better by less than this share is not looked for: costs are sums of rounded numbers.
_CLOSE = 1e-12
# Numbers in a table of points by shapes; beginnings that grow at the same time; ends that are listed, and how many of
# them are put to beginnings at the same time.
_TABLE = 1 << 18
_BLOCK = 4096
_MOST_ENDS = 1 << 18
_SOME_ENDS = 1024


class Best:
    """The best point so far; and how many terms (a shape in a point) were computed, of how many."""

    def __init__(self, terms: Terms, point: Ints, most_terms: float = inf) -> None:
        self._terms, self.point = terms, point
        self.cost = float(terms.costs(point[None])[0])
        self.terms_done, self._most_terms = 0, most_terms
        self.proven = True

    @property
    def enough(self) -> float:
        """The cost below which a point is better."""
        return self.cost * (1 - _CLOSE)

    def give_up(self) -> bool:
        """Has all work been done that may be? Then what is left undone leaves the best point without a proof."""
        self.proven = self.proven and self.terms_done <= self._most_terms
        return not self.proven

    def offer(self, points: Ints) -> bool:
        """Take the best of these points if it is better."""
        before = self.cost
        for block in blocks(points, len(self._terms.shares)):
            costs = self._terms.costs(block)
            self.terms_done += len(self._terms.shares) * block.size
            first = int(costs.argmin())
            if costs[first] < self.enough:
                self.cost, self.point = float(costs[first]), block[first]
        return self.cost < before


def blocks(points: Ints, shapes: int) -> Iterator[Ints]:
    """Yield points in blocks, such that a table of them by so many shapes stays small."""
    size = max(1, _TABLE // shapes)
    for first in range(0, len(points), size):
        yield points[first : first + size]


@dataclass(frozen=True, slots=True, eq=False)
class _Tail:
    """How beginnings with the same sum go on best, by the root's tangent: at `point`, whose heights sum up to `height`.

    `products` are the shapes' terms there; `taken` says which steps of the tail's box lead there.
    """

    point: Ints
    height: float
    products: Floats
    taken: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class _Ends:
    """All ways in which beginnings with the same sum can end, the one where the root's tangent is least first."""

    points: Ints
    heights: Floats
    products: Floats


class Tree:
    """Looks for better points in a box. A beginning is a row of exponents of the first axes.

    What `terms` say a point costs may be too little: only the best point knows what is better. `root` is a tangent to
    them that is high in the whole box; every beginning gets a closer one of its own.
    """

    def __init__(self, terms: Terms, box: Box, root: Tangent, best: Best) -> None:
        # The axes along which shapes differ most are fixed first: tangents to what is left are close.
        order = np.argsort(-_spreads(terms, box, root), kind="stable")
        self._back = np.argsort(order)
        self._terms, self._box, self._root = terms.ordered(order), box.ordered(order), root.ordered(order)
        self._best = best
        self._sides = [np.arange(low, high + 1) for low, high in zip(self._box.lows, self._box.highs, strict=True)]
        # So many axes are fixed one by one that the ends are not too many; at least one axis is left for them.
        counts = np.cumprod([float(len(side)) for side in self._sides[::-1]])[::-1]
        self._split = min(len(counts) - 1, int((counts > _MOST_ENDS).sum()))
        self._ends = self._list_ends()
        # Rows of what the logarithms of the terms fall with each step of the box, axis after axis.
        tables = zip(self._terms.logs, self._sides, strict=True)
        self._steps = np.concatenate([-np.diff(logs[side], axis=0) for logs, side in tables])
        self._tail = cache(self._make_tail)

    def search(self) -> None:
        """Offer points of the box until none of it is better than the best."""
        self._grow(np.zeros((1, 0), np.int64))

    def _grow(self, beginnings: Ints) -> None:
        if beginnings.shape[1] == self._split:
            self._finish(beginnings)
            return
        # Blocks one after another, each to its end: memory stays bounded however many beginnings there are.
        for first in range(0, len(beginnings), _BLOCK):
            if self._best.give_up():
                return
            self._grow(self._longer(beginnings[first : first + _BLOCK]))

    def _longer(self, beginnings: Ints) -> Ints:
        """Fix one axis more; keep what may become better than the best, the most hopeful first."""
        depth = beginnings.shape[1] + 1
        side = self._sides[depth - 1]
        longer = np.column_stack([np.repeat(beginnings, len(side), axis=0), np.tile(side, len(beginnings))])
        kept, bounds = [longer[:0]], [np.zeros(0)]
        for rest, group in self._by_rest(longer):
            tail = self._tail(depth, rest)
            if tail is None:
                continue
            coarse = self._root.base + self._root.along(group) + tail.height
            for block in blocks(group[coarse < log(self._best.enough)], len(self._terms.shares)):
                kept.append(block)
                bounds.append(self._bound(block, tail))
        bound = np.concatenate(bounds)
        order = np.argsort(bound, kind="stable")
        return np.concatenate(kept)[order[: np.searchsorted(bound[order], log(self._best.enough))]]

    def _bound(self, beginnings: Ints, tail: _Tail) -> Floats:
        """Return the least value of a tangent for each beginning, taken where it goes on with the tail's point."""
        parts = self._terms.products(beginnings) * (self._terms.shares * tail.products)
        costs = parts.sum(axis=1)
        first = int(costs.argmin())
        if costs[first] < self._best.enough:
            self._offer(beginnings[first : first + 1], tail.point[None])
        steps = (parts / costs[:, None]) @ self._steps[len(self._steps) - len(tail.taken) :].T
        self._best.terms_done += steps.size * parts.shape[1]
        bounds: Floats = np.log(costs) + steps[:, tail.taken].sum(axis=1) - _largest(steps, int(tail.taken.sum()))
        return bounds

    def _finish(self, beginnings: Ints) -> None:
        """Go through all points that start with these beginnings and in which the root's tangent is low enough."""
        for rest, group in self._by_rest(beginnings):
            ends = self._ends.get(rest)
            if ends is None:
                continue
            # Those of about the same height together: the ends that come into question differ little among them.
            heights = self._root.base + self._root.along(group)
            order = np.argsort(heights, kind="stable")
            for rows in blocks(order, _SOME_ENDS):
                count = int(np.searchsorted(ends.heights, log(self._best.enough) - heights[rows[0]]))
                block = group[rows]
                parts = self._terms.products(block) * self._terms.shares
                for first in range(0, count, _SOME_ENDS):
                    if self._best.give_up():
                        return
                    some = slice(first, min(count, first + _SOME_ENDS))
                    costs = parts @ ends.products[some].T
                    self._best.terms_done += costs.size * parts.shape[1]
                    rows, columns = np.nonzero(costs < self._best.enough)
                    self._offer(block[rows], ends.points[some][columns])

    def _offer(self, beginnings: Ints, ends: Ints) -> None:
        self._best.offer(np.concatenate([beginnings, ends], axis=1)[:, self._back])

    def _by_rest(self, beginnings: Ints) -> Iterator[tuple[int, Ints]]:
        """Yield beginnings by what is left for the other axes."""
        rests = self._box.total - beginnings.sum(axis=1)
        for rest in np.unique(rests).tolist():
            yield rest, beginnings[rests == rest]

    def _make_tail(self, depth: int, rest: int) -> _Tail | None:
        box = self._box.tail(depth, rest)
        if box.empty:
            return None
        point = box.least(self._root.heights[depth:])
        sides = zip(self._sides[depth:], point, strict=True)
        taken = np.concatenate([np.zeros(0, np.bool_), *[side[1:] <= exponent for side, exponent in sides]])
        height = float(self._root.along(point[None], depth)[0])
        return _Tail(point, height, self._terms.products(point[None], depth)[0], taken)

    def _list_ends(self) -> dict[int, _Ends]:
        """Return the ends by their sums, without those that are too high with any beginning."""
        sizes = [len(side) for side in self._sides[self._split :]]
        points = self._box.lows[self._split :] + np.stack(np.unravel_index(np.arange(prod(sizes)), sizes), axis=1)
        heights, sums = self._root.along(points, self._split), points.sum(axis=1)
        order = np.argsort(heights, kind="stable")
        ends = {}
        for rest in np.unique(sums).tolist():
            head = self._box.head(self._split, self._box.total - rest)
            if head.empty:
                continue
            lowest = self._root.base + float(self._root.along(head.least(self._root.heights[: self._split])[None])[0])
            same = order[(sums[order] == rest) & (heights[order] < log(self._best.enough) - lowest)]
            ends[rest] = _Ends(points[same], heights[same], self._terms.products(points[same], self._split))
        return ends


def _spreads(terms: Terms, box: Box, tangent: Tangent) -> Floats:
    """Return for each axis how differently the terms of the shapes fall from one side of the box to the other."""
    sides = zip(terms.logs, box.lows, box.highs, strict=True)
    falls = np.stack([logs[low] - logs[high] for logs, low, high in sides])
    spreads: Floats = (falls - (falls @ tangent.weights)[:, None]) ** 2 @ tangent.weights
    return spreads


def _largest(steps: Floats, count: int) -> Floats:
    """Return the sum of the `count` largest numbers of each row."""
    if not 0 < count < steps.shape[1]:
        none_or_all: Floats = steps[:, :count].sum(axis=1)
        return none_or_all
    cut = steps.shape[1] - count
    largest: Floats = np.partition(steps, cut, axis=1)[:, cut:].sum(axis=1)
    return largest
