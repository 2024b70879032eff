"""Boxes: half-open n-d intervals of cells."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from hyperslab.errors import InvalidInputError

__all__ = ["Box", "boxes_of_run"]


@dataclass(frozen=True, slots=True)
class Box:
    """The cells `start <= cell < stop`, axis by axis.

    >>> Box((0, 2), (4, 6)).shape
    (4, 4)
    """

    start: tuple[int, ...]
    stop: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.start) != len(self.stop):
            raise InvalidInputError(f"box starts in {len(self.start)} axes and stops in {len(self.stop)}")

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(max(0, b - a) for a, b in zip(self.start, self.stop, strict=True))

    @property
    def size(self) -> int:
        """How many cells the box holds."""
        return prod(self.shape)

    @property
    def slices(self) -> tuple[slice, ...]:
        """The key that selects the box."""
        return tuple(slice(a, b) for a, b in zip(self.start, self.stop, strict=True))

    def intersect(self, other: "Box") -> "Box":
        """Return the cells in both boxes; empty if they do not meet.

        >>> Box((0, 0), (4, 4)).intersect(Box((2, 3), (9, 9)))
        Box(start=(2, 3), stop=(4, 4))
        """
        start = tuple(max(a, b) for a, b in zip(self.start, other.start, strict=True))
        stop = tuple(max(s, min(a, b)) for s, a, b in zip(start, self.stop, other.stop, strict=True))
        return Box(start, stop)

    def grow(self, halo: Sequence[int], within: Sequence[int]) -> "Box":
        """Return the box with `halo` more cells on both sides of each axis, cut at `within`.

        >>> Box((0, 5), (4, 9)).grow((1, 2), within=(8, 10))
        Box(start=(0, 3), stop=(5, 10))
        """
        start = tuple(max(0, a - h) for a, h in zip(self.start, halo, strict=True))
        stop = tuple(min(n, b + h) for b, h, n in zip(self.stop, halo, within, strict=True))
        return Box(start, stop)


def boxes_of_run(first: Sequence[int], last: Sequence[int], counts: Sequence[int]) -> list[tuple[slice, ...]]:
    """Cut a run of cells, row-major from `first` to `last` (included) in a grid of `counts`, into boxes.

    At most two boxes per axis and one more; they are given as keys, in no special order.

    >>> boxes_of_run((0, 2), (2, 1), (3, 4))  # doctest: +NORMALIZE_WHITESPACE
    [(slice(0, 1, None), slice(2, 4, None)),
     (slice(2, 3, None), slice(0, 2, None)),
     (slice(1, 2, None), slice(0, 4, None))]
    """
    if not counts:
        return [()]
    low, high, inner = first[0], last[0], counts[1:]
    if low == high:
        return [(slice(low, low + 1), *box) for box in boxes_of_run(first[1:], last[1:], inner)]
    boxes: list[tuple[slice, ...]] = []
    ends = tuple(n - 1 for n in inner)
    if any(first[1:]):
        boxes += [(slice(low, low + 1), *box) for box in boxes_of_run(first[1:], ends, inner)]
        low += 1
    if tuple(last[1:]) != ends:
        boxes += [(slice(high, high + 1), *box) for box in boxes_of_run((0,) * len(inner), last[1:], inner)]
        high -= 1
    if low <= high:
        boxes.append((slice(low, high + 1), *(slice(0, n) for n in inner)))
    return boxes
