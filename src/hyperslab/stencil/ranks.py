"""Ranks: processes of one launch (MPI, or any that numbers them), each of which makes a share of the output.

Nothing is exchanged: every rank works out the same shares from the same layouts, reads its own boxes with their halo,
and writes whole objects of its own. The array is said to be whole by the rank that finds all objects there.
"""

from math import ceil
from typing import Any

from hyperslab.errors import InvalidInputError
from hyperslab.rechunk.regions import parts_of
from hyperslab.selection import Box

__all__ = ["check_ranks", "share_of", "shares_for_workers", "shares_of"]

Shape = tuple[int, ...]

# Shares for each worker, where there are enough objects: who is faster does more of them.
_SHARES_EACH = 4


def check_ranks(rank: Any, size: Any) -> None:
    """Raise InvalidInputError unless these name one of several processes."""
    numbers = all([isinstance(n, int) and not isinstance(n, bool) for n in (rank, size)])
    if not numbers or not 0 <= rank < size:
        raise InvalidInputError(f"rank and size are numbers, rank from 0 to below size; not {rank!r} and {size!r}")


def shares_of(domain: Box, objects: Shape, units: Shape, count: int) -> list[Box]:
    """Cut a domain into about `count` boxes of whole objects, all of about one size.

    `units` are the output cells whose inputs are read together. Cuts are made along the first axis, so that each share
    can be gone through from its top; along others where there are too few objects, or units would be cut through.

    >>> [share.stop for share in shares_of(Box((0, 0), (10, 8)), (2, 8), (1, 8), 2)]
    [(6, 8), (10, 8)]
    >>> [share.stop for share in shares_of(Box((0, 0), (10, 8)), (2, 2), (10, 1), 2)]
    [(10, 4), (10, 8)]
    """
    if not domain.size:
        return []
    shape, left = list(domain.shape), max(1, count)
    parallel = [min(count, ceil(n / unit)) for n, unit in zip(shape, units, strict=True)]
    for axis in sorted(range(len(shape)), key=lambda each: (-parallel[each], each)):
        length, unit = domain.shape[axis], objects[axis]
        whole = ceil(length / unit)
        shape[axis] = min(length, ceil(whole / min(left, whole)) * unit)
        left = ceil(left / ceil(length / shape[axis]))
    return list(parts_of(domain, tuple(shape)))


def share_of(domain: Box, objects: Shape, units: Shape, rank: int, size: int) -> list[Box]:
    """Return the boxes of one rank: those that follow each other, so that the ranks have about equal numbers."""
    shares = shares_of(domain, objects, units, size)
    return shares[rank * len(shares) // size : (rank + 1) * len(shares) // size]


def shares_for_workers(domain: Box, objects: Shape, units: Shape, workers: int) -> list[Box]:
    """Return shares for workers that take the next one when they are done."""
    return shares_of(domain, objects, units, _SHARES_EACH * workers)
