"""A lower bound of what chunk shapes cost: a tangent to the cost of a workload, and its least value in a box.

The cost of exponents y is f(y) = sum_j p_j prod_i t_ij(y_i) with t_ij(v) = 1 + A_ij / 2**v. Take any point y0 and let
w_j = p_j prod_i t_ij(y0_i) / f(y0), the share of shape j in the cost there. These sum up to 1, and for every y

    f(y) / f(y0)  =  sum_j w_j exp(sum_i [log t_ij(y_i) - log t_ij(y0_i)])
                 >=  exp(sum_i [h_i(y_i) - h_i(y0_i)])     with  h_i(v) = sum_j w_j log t_ij(v)

since exp is convex (Jensen). So log f has a lower bound that is a sum over axes and exact at y0: a tangent, but one
that keeps each axis as curved as it is. In place of prod_i t_ij(y0_i) any positive numbers may stand, one for each
shape.

With the step from v to v + 1 along axis i this bound falls by h_i(v) - h_i(v + 1). A point of a box that lies r steps
from its lowest corner is reached by r different ones of the box's steps. So in all of these points the bound is at
least what it is in the corner, less the r largest steps. (As h_i is convex, the r largest do lead to a point, and this
is the minimum; the proof does not need it.)
"""

import heapq
from dataclasses import dataclass
from math import log

import numpy as np

from hyperslab.tune.models import Floats, Ints

__all__ = ["Box", "Tangent", "Terms"]


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """For each axis a table of t_ij(v), a row for each exponent v and a column for each shape j, and its logarithms."""

    shares: Floats
    factors: list[Floats]
    logs: list[Floats]

    @classmethod
    def of(cls, adjusted: Floats, shares: Floats, tops: Ints) -> "Terms":
        above = [column / 2.0 ** np.arange(top + 1)[:, None] for column, top in zip(adjusted.T, tops, strict=True)]
        return cls(shares, [1 + table for table in above], [np.log1p(table) for table in above])

    def ordered(self, order: Ints) -> "Terms":
        return Terms(self.shares, [self.factors[i] for i in order], [self.logs[i] for i in order])

    def grouped(self, tangent: "Tangent", box: "Box", most: int) -> "Terms":
        """Return terms of at most so many shapes that cost no more than ours in any point.

        Each stands for a group of ours, whose cost it bounds as a tangent does that of all. The less the terms of a
        group differ in how they fall within the box, the closer it is.
        """
        if len(self.shares) <= most:
            return self
        parts = self.shares * np.exp(tangent.logs - tangent.logs.max())
        sides = zip(self.logs, box.lows, box.highs, strict=True)
        groups = _alike(np.stack([logs[low] - logs[high] for logs, low, high in sides]), parts, most)
        weights = np.zeros((len(parts), int(groups.max()) + 1))
        weights[np.arange(len(parts)), groups] = parts
        sums = weights.sum(axis=0)
        # What is too little to be a number may be left out of a lower bound.
        weights, sums = weights[:, sums > 0] / sums[sums > 0], sums[sums > 0]
        logs = [table @ weights for table in self.logs]
        return Terms(
            sums * np.exp(tangent.logs.max() - tangent.logs @ weights), [np.exp(table) for table in logs], logs
        )

    def products(self, points: Ints, first: int = 0) -> Floats:
        """Return prod_i t_ij(y_i) over the axes from `first` on for which `points` has columns: (points, shapes)."""
        products = np.ones((len(points), len(self.shares)))
        for axis, exponents in enumerate(points.T, first):
            products *= self.factors[axis][exponents]
        return products

    def costs(self, points: Ints) -> Floats:
        costs: Floats = self.products(points) @ self.shares
        return costs


@dataclass(frozen=True, slots=True, eq=False)
class Tangent:
    """A bound: log f(y) >= base + sum_i heights[i][y_i].

    It is taken where the products of the shapes' terms are exp(logs); `weights` are the shares w_j in the cost there.
    """

    base: float
    heights: list[Floats]
    logs: Floats
    weights: Floats

    @classmethod
    def at(cls, terms: Terms, logs: Floats) -> "Tangent":
        parts = terms.shares * np.exp(logs - logs.max())
        weights = parts / parts.sum()
        base = log(parts.sum()) + float(logs.max() - weights @ logs)
        return cls(base, [table @ weights for table in terms.logs], logs, weights)

    def ordered(self, order: Ints) -> "Tangent":
        return Tangent(self.base, [self.heights[i] for i in order], self.logs, self.weights)

    def along(self, points: Ints, first: int = 0) -> Floats:
        """Return the sum of the heights over the axes from `first` on for which `points` has columns."""
        heights = np.zeros(len(points))
        for axis, exponents in enumerate(points.T, first):
            heights += self.heights[axis][exponents]
        return heights


@dataclass(frozen=True, slots=True, eq=False)
class Box:
    """The points from `lows` to `highs`, both included, whose exponents sum up to `total`."""

    lows: Ints
    highs: Ints
    total: int

    @property
    def empty(self) -> bool:
        return bool((self.lows > self.highs).any()) or not self.lows.sum() <= self.total <= self.highs.sum()

    @property
    def spare(self) -> int:
        """How many steps a point is from the lowest corner."""
        return self.total - int(self.lows.sum())

    def ordered(self, order: Ints) -> "Box":
        return Box(self.lows[order], self.highs[order], self.total)

    def tail(self, first: int, total: int) -> "Box":
        """Return the box of the axes from `first` on, with a total of their own."""
        return Box(self.lows[first:], self.highs[first:], total)

    def head(self, count: int, total: int) -> "Box":
        """Return the box of the first `count` axes, with a total of their own."""
        return Box(self.lows[:count], self.highs[:count], total)

    def least(self, heights: list[Floats]) -> Ints:
        """Return the point in which the sum of the heights is least."""
        steps, axes = self._steps(heights)
        taken = np.argsort(-steps, kind="stable")[: self.spare]
        point: Ints = self.lows + np.bincount(axes[taken], minlength=len(self.lows))
        return point

    def narrowed(self, tangent: Tangent, ceiling: float) -> "Box":
        """Return the box without the values of each exponent with which the tangent is nowhere below `ceiling`."""
        steps, axes = self._steps(tangent.heights)
        corner = [table[low] for table, low in zip(tangent.heights, self.lows, strict=True)]
        lows, highs = self.lows.copy(), self.highs.copy()
        for axis, heights in enumerate(tangent.heights):
            # How far the other axes can make the tangent fall with 0, 1, 2 … steps.
            others = np.concatenate([[0.0], np.cumsum(np.sort(steps[axes != axis])[::-1])])
            values = np.arange(self.lows[axis], self.highs[axis] + 1)
            left = self.spare - (values - self.lows[axis])
            falls = others[left.clip(0, len(others) - 1)]
            least = tangent.base + sum(corner) - corner[axis] + heights[values] - falls
            kept = values[(left >= 0) & (left < len(others)) & (least < ceiling)]
            lows[axis], highs[axis] = (kept[0], kept[-1]) if len(kept) else (1, 0)
        return Box(lows, highs, self.total)

    def _steps(self, heights: list[Floats]) -> tuple[Floats, Ints]:
        """Return how far every step in the box falls, and along which axis each of them is."""
        steps = [
            -np.diff(table[low : high + 1]) for table, low, high in zip(heights, self.lows, self.highs, strict=True)
        ]
        return np.concatenate([np.zeros(0), *steps]), np.repeat(np.arange(len(steps)), self.highs - self.lows)


def _alike(falls: Floats, weights: Floats, most: int) -> Ints:
    """Part shapes, which are columns of `falls`, into at most so many groups; return the group of each.

    Again and again the group that differs most is cut at its mean, along the axis in which it differs most.
    """
    groups = np.zeros(falls.shape[1], np.int64)
    heap = [_difference(falls, weights, groups, 0)]
    for number in range(1, most):
        difference, group, axis, mean = heapq.heappop(heap)
        if not difference:
            break
        groups[(groups == group) & (falls[axis] > mean)] = number
        for part in (group, number):
            heapq.heappush(heap, _difference(falls, weights, groups, part))
    return groups


def _difference(falls: Floats, weights: Floats, groups: Ints, group: int) -> tuple[float, int, int, float]:
    """Return how much a group differs (negative: the least comes first), its number, and along which axis and mean."""
    members = np.flatnonzero(groups == group)
    shares, inside = weights[members], falls[:, members]
    means = inside @ shares / max(shares.sum(), np.finfo(np.float64).tiny)
    squares = (inside - means[:, None]) ** 2 @ shares
    axis = int(squares.argmax())
    parted = inside[axis].min() <= means[axis] < inside[axis].max()
    return (-float(squares[axis]) if parted else 0.0), group, axis, float(means[axis])
