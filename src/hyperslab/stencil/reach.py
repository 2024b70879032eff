"""How far a function reads around its cell: the halo that a chunk needs, per axis and side."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hyperslab.errors import InvalidInputError

__all__ = ["Reach"]


@dataclass(frozen=True, slots=True)
class Reach:
    """Cells needed before and after a cell, axis by axis; never negative.

    >>> Reach.of_offsets([(0, -1), (0, 2), (1, 0)], ndim=2)
    Reach(before=(0, 1), after=(1, 2))
    """

    before: tuple[int, ...]
    after: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.before) != len(self.after):
            raise InvalidInputError(f"a reach of {len(self.before)} axes before and {len(self.after)} after a cell")
        if any(n < 0 for n in (*self.before, *self.after)):
            raise InvalidInputError(f"a reach counts cells, so not {self.before} before and {self.after} after one")

    @classmethod
    def zero(cls, ndim: int) -> "Reach":
        """Return the reach of a function that reads its own cell only."""
        return cls((0,) * ndim, (0,) * ndim)

    @classmethod
    def of_offsets(cls, offsets: Iterable[Sequence[int]], ndim: int) -> "Reach":
        """Return the least reach that holds all `offsets`."""
        before, after = [0] * ndim, [0] * ndim
        for offset in offsets:
            for axis, step in enumerate(offset):
                before[axis], after[axis] = max(before[axis], -step), max(after[axis], step)
        return cls(tuple(before), tuple(after))

    @classmethod
    def of(cls, given: Any, ndim: int) -> "Reach":
        """Return the reach that a user wrote: a number for all sides, or per axis a number or a pair (before, after).

        >>> Reach.of((1, (0, 2)), 2)
        Reach(before=(1, 0), after=(1, 2))
        """
        if isinstance(given, Reach):
            if given.ndim != ndim:
                raise InvalidInputError(f"the halo has {given.ndim} axes, the array {ndim}")
            return given
        sides = list(given) if isinstance(given, Sequence) else [given] * ndim
        pairs = [tuple(side) if isinstance(side, Sequence) else (side, side) for side in sides]
        counts = all(isinstance(n, int | np.integer) for pair in pairs for n in pair)
        if len(pairs) != ndim or not counts or any(len(pair) != 2 for pair in pairs):
            raise InvalidInputError(
                f"expected a halo as one number, or for each of {ndim} axes a number or a pair (before, after), "
                f"got {given!r}"
            )
        return cls(tuple(int(pair[0]) for pair in pairs), tuple(int(pair[1]) for pair in pairs))

    @property
    def ndim(self) -> int:
        return len(self.before)

    def union(self, other: "Reach") -> "Reach":
        """Return the least reach that covers both.

        >>> Reach((0, 1), (0, 1)).union(Reach((2, 0), (0, 3)))
        Reach(before=(2, 1), after=(0, 3))
        """
        before = tuple(max(a, b) for a, b in zip(self.before, other.before, strict=True))
        return Reach(before, tuple(max(a, b) for a, b in zip(self.after, other.after, strict=True)))

    def covers(self, other: "Reach") -> bool:
        """Say whether a halo of this reach is enough for a function of the other."""
        return self.union(other) == self

    def holds(self, offset: Sequence[int]) -> bool:
        """Say whether the cell at `offset` lies in the reach."""
        return all(-b <= step <= a for b, step, a in zip(self.before, offset, self.after, strict=True))

    def padded(self, shape: Sequence[int], stride: Sequence[int] | None = None) -> tuple[int, ...]:
        """Return the shape of the input that `shape` cells of output need.

        >>> Reach((1, 0), (1, 3)).padded((4, 5), stride=(1, 2))
        (6, 12)
        """
        steps = stride or (1,) * len(shape)
        sides = zip(shape, steps, self.before, self.after, strict=True)
        return tuple((n - 1) * step + 1 + b + a if n else 0 for n, step, b, a in sides)
