"""What is to be placed, how often packs and keys are read then, and what fits (the paper's sections 5.1 and 5.2).

A placement gives each array a pack, or the key/value tier. A query touches each pack that it wants something of once,
however many arrays that are, and each key. What that costs, `plan.cost.AccessPrices` knows.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from hyperslab.errors import InvalidInputError
from hyperslab.plan import AccessPrices

__all__ = ["KEYED", "Cost", "Placement", "Problem", "Queries", "cost_of", "enough_packs", "fits"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# Instead of a pack's number: the array is in the key/value tier.
KEYED = -1


@dataclass(frozen=True, slots=True, eq=False)
class Queries:
    """Which of `arrays` arrays each query reads: `indices[indptr[q] : indptr[q + 1]]`, ascending, none twice.

    `times` is how often each query ran.
    """

    indptr: Ints
    indices: Ints
    times: Floats
    arrays: int

    @classmethod
    def of(cls, queries: Iterable[npt.ArrayLike], arrays: int) -> "Queries":
        """Gather queries, each a list of array numbers; equal ones become one that ran more often.

        >>> log = Queries.of([[2, 0], [1], [0, 2, 2]], 3)
        >>> log.indptr.tolist(), log.indices.tolist(), log.times.tolist()
        ([0, 2, 3], [0, 2, 1], [2.0, 1.0])
        """
        counted: dict[bytes, int] = {}
        for query in queries:
            key = np.unique(np.asarray(query, np.int64)).tobytes()
            counted[key] = counted.get(key, 0) + 1
        counted.pop(b"", None)
        indptr = np.zeros(len(counted) + 1, np.int64)
        np.cumsum([len(key) // 8 for key in counted], out=indptr[1:])
        indices = np.frombuffer(b"".join(counted), np.int64)
        if len(indices) and not 0 <= indices.min() <= indices.max() < arrays:
            raise InvalidInputError(f"queries read arrays {indices.min()} to {indices.max()}; there are {arrays}")
        return cls(indptr, indices, np.array(list(counted.values()), np.float64), arrays)

    @classmethod
    def of_csr(cls, indptr: npt.ArrayLike, indices: npt.ArrayLike, arrays: int) -> "Queries":
        """Gather queries that stand one after another in `indices`, cut at `indptr`."""
        cuts, flat = np.asarray(indptr, np.int64), np.asarray(indices, np.int64)
        if not len(cuts) or cuts[0] != 0 or cuts[-1] != len(flat) or (np.diff(cuts) < 0).any():
            raise InvalidInputError(f"indptr must rise from 0 to the {len(flat)} indices that there are")
        return cls.of(np.split(flat, cuts[1:-1]) if len(cuts) > 1 else (), arrays)

    def __len__(self) -> int:
        return len(self.times)

    @property
    def lengths(self) -> Ints:
        return np.diff(self.indptr)

    @property
    def rows(self) -> Ints:
        """Return the query of each of `indices`."""
        return np.repeat(np.arange(len(self)), self.lengths)

    def only(self, chosen: npt.NDArray[Any]) -> "Queries":
        """Return some of the queries, by their numbers or by a mask."""
        rows = np.flatnonzero(chosen) if chosen.dtype == np.bool_ else np.asarray(chosen, np.int64)
        lengths = self.lengths[rows]
        indptr = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(lengths, out=indptr[1:])
        at = np.repeat(self.indptr[rows] - indptr[:-1], lengths) + np.arange(indptr[-1])
        return Queries(indptr, self.indices[at], self.times[rows], self.arrays)

    def read_by(self) -> Floats:
        """Return how often each array is read."""
        return np.bincount(self.indices, self.times[self.rows], self.arrays).astype(np.float64, copy=False)


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """Arrays of some weight each (1, or bytes), what holds them, and how they are read.

    `pack` is what a pack holds and `keys` what the key/value tier holds, in the unit of `weights`; an array that is
    heavier than a pack is one by itself. At most `packs` packs are made; by default enough for them to be half empty,
    as to fill them all costs touches.
    """

    queries: Queries
    weights: Ints
    pack: int
    keys: int
    prices: AccessPrices
    packs: int

    @classmethod
    def of(
        cls,
        queries: Queries,
        pack: int,
        prices: AccessPrices,
        *,
        keys: int = 0,
        weights: npt.ArrayLike | None = None,
        packs: int | None = None,
    ) -> "Problem":
        """Check and complete what is given: by default all arrays weigh 1."""
        each = np.ones(queries.arrays, np.int64) if weights is None else np.asarray(weights, np.int64)
        if each.shape != (queries.arrays,) or (each < 1).any():
            raise InvalidInputError(f"there must be a weight of 1 or more for each of the {queries.arrays} arrays")
        if pack < 1 or keys < 0:
            raise InvalidInputError(f"a pack must hold 1 or more and the tier 0 or more, not {pack} and {keys}")
        # One more, as those that are read and the others do not fill theirs to the end.
        most = enough_packs(each, pack) + 1 if packs is None else int(packs)
        return cls(queries, each, int(pack), int(keys), prices, most)

    def reading(self, queries: Queries) -> "Problem":
        """Return the same problem with other queries."""
        return replace(self, queries=queries)


def enough_packs(weights: Ints, pack: int) -> int:
    """Return how many packs hold arrays of these weights in any case: of two, at most one is less than half full.

    >>> enough_packs(np.array([3, 3, 3]), 5)
    5
    """
    return 2 * -(-int(np.minimum(weights, pack).sum()) // pack) + 1


@dataclass(frozen=True, slots=True)
class Cost:
    """What all queries of a problem do: packs touched, keys read, requests for keys; and the seconds of it."""

    touches: float
    keys: float
    requests: float
    seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """Each array's pack, or KEYED; what the queries cost with it; `by` what it was found.

    `bound_s` is what no placement costs less than, where that was asked for.
    """

    pack_of: Ints
    cost: Cost
    by: str
    bound_s: float | None = None

    @classmethod
    def of(cls, problem: Problem, pack_of: npt.NDArray[Any], by: str, bound_s: float | None = None) -> "Placement":
        """Number the packs anew, without gaps, and say what they cost."""
        numbers = pack_of.astype(np.int64)
        packed = numbers != KEYED
        numbers[packed] = np.unique(numbers[packed], return_inverse=True)[1]
        return cls(numbers, cost_of(problem, numbers), by, bound_s)


def cost_of(problem: Problem, pack_of: npt.NDArray[Any]) -> Cost:
    """Return what the queries cost, by the definition.

    >>> log = Queries.of([[0, 1, 2], [2, 3]], 4)
    >>> cost_of(Problem.of(log, 2, AccessPrices(10, 1)), np.array([0, 0, -1, 1]))
    Cost(touches=2.0, keys=2.0, requests=2.0, seconds=22.0)
    """
    queries, prices = problem.queries, problem.prices
    rows, packs = queries.rows, pack_of[queries.indices].astype(np.int64)
    keyed = packs == KEYED
    many = int(packs.max(initial=0)) + 1
    touched = np.unique(rows[~keyed] * many + packs[~keyed]) // many
    touches = float(queries.times[touched].sum())
    keys = float(queries.times[rows[keyed]].sum())
    requests = float(queries.times[np.unique(rows[keyed])].sum())
    return Cost(touches, keys, requests, prices.seconds(touches, keys, requests))


def fits(problem: Problem, pack_of: npt.NDArray[Any]) -> bool:
    """Return whether a placement holds all limits: of each pack, of the tier, and of the number of packs."""
    if len(pack_of) != len(problem.weights) or pack_of.min(initial=0) < KEYED:
        return False
    keyed = pack_of == KEYED
    packs, members = np.unique(pack_of[~keyed], return_counts=True)
    loads = np.bincount(pack_of[~keyed], problem.weights[~keyed])[packs] if len(packs) else np.zeros(0)
    return bool(
        ((loads <= problem.pack) | (members == 1)).all()
        and problem.weights[keyed].sum() <= problem.keys
        and len(packs) <= problem.packs
    )
