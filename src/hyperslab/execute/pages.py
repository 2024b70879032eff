"""Memory that was just allocated: its pages are had before cells are put there, as each takes the system a while."""

import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from mmap import PAGESIZE
from typing import Any

import numpy.typing as npt

__all__ = ["had"]

# What is done in one step, and at most for one array: what is longer takes longer to arrive than its pages take.
_STEP_BYTES = 1 << 20
_MOST_BYTES = 64 << 20
# Linux's number, from 5.14 on. It leaves what is in memory as it is, whoever writes there meanwhile.
_POPULATE_WRITE = 23


def had(array: npt.NDArray[Any]) -> Iterator[None]:
    """Have the pages of an array, some in each step; nothing in it changes. Where the system cannot do that, no step.

    >>> import numpy as np
    >>> cells = np.ones((1 << 18, 3), np.float32)
    >>> sum(1 for step in had(cells)), float(cells.min())
    (3, 1.0)
    """
    populate = _populate()
    if populate is None or not array.flags.c_contiguous:
        return
    start = array.__array_interface__["data"][0]
    low, high = -(-start // PAGESIZE) * PAGESIZE, (start + min(array.nbytes, _MOST_BYTES)) // PAGESIZE * PAGESIZE
    for at in range(low, high, _STEP_BYTES):
        if populate(at, min(_STEP_BYTES, high - at), _POPULATE_WRITE):
            return
        yield


@lru_cache(maxsize=1)
def _populate() -> Callable[[int, int, int], int] | None:
    """Return Linux's `madvise`, which lets other threads run; None elsewhere."""
    if sys.platform != "linux":
        return None
    from ctypes import CDLL, c_int, c_size_t, c_void_p

    madvise = CDLL(None).madvise
    madvise.argtypes, madvise.restype = (c_void_p, c_size_t, c_int), c_int
    return madvise
