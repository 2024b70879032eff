"""Rows as bytes: what was read and what it cost, 8 bytes for each figure, so that NumPy sees columns in them."""

import struct
from collections.abc import Sequence
from functools import cache
from itertools import chain
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from hyperslab.execute.light import Thinned, listed
from hyperslab.execute.recording import Row

__all__ = ["FLOATS", "WHOLE", "packed", "unpacked"]

# What is packed of a read before start, count and step of its axes.
FLOATS = ("started_at", "seconds", "usd")
WHOLE = ("needed_bytes", "fetched_bytes", "requests", "lookups", "calls", "cache_hits")

Ints = npt.NDArray[np.int64]

_SPAN = attrgetter("start", "count", "step")


@cache
def _packer(axes: int) -> Any:
    return struct.Struct(f"={len(FLOATS)}d{len(WHOLE) + 3 * axes}q").pack


def packed(rows: Sequence[Row]) -> tuple[list[bytes], list[Ints]]:
    """Return the figures of each row, and the cells of all axes that are lists."""
    found: list[bytes] = []
    lists: list[Ints] = []
    two = _packer(2)
    for _, _, selection, ledger, started_at, _, more in rows:
        needed = ledger.needed_bytes if more is None else more[2]
        # Half of what recording costs: attributes are written out, and the commonest case comes first.
        try:
            axes: Any = selection.axes  # type: ignore[union-attr]
            if len(axes) == 2:
                y, x = axes
                found.append(two(
                    started_at, ledger.seconds, ledger.usd, needed, ledger.bytes, ledger.requests, ledger.lookups,
                    ledger.calls, ledger.cache_hits, y.start, y.count, y.step, x.start, x.count, x.step,
                ))  # fmt: skip
                continue
            figures = tuple(chain.from_iterable(map(_SPAN, axes)))
        except AttributeError:
            # Lists have no start, points no axes.
            chosen = listed(selection)
            figures = tuple(chain.from_iterable(map(_figures, chosen.axes)))
            lists += [axis.cells for axis in chosen.axes if isinstance(axis, Thinned)]
        found.append(_packer(len(figures) // 3)(
            started_at, ledger.seconds, ledger.usd, needed, ledger.bytes, ledger.requests, ledger.lookups,
            ledger.calls, ledger.cache_hits, *figures,
        ))  # fmt: skip
    return found, lists


def _figures(axis: Any) -> tuple[int, int, int]:
    """Return start, count and step; of a list the step says, below 0, how much it was thinned."""
    return (0, len(axis.cells), -axis.every) if isinstance(axis, Thinned) else _SPAN(axis)


def unpacked(found: Sequence[bytes]) -> tuple[npt.NDArray[np.float64], Ints, Ints]:
    """Return what was packed as columns: the floats, the whole numbers, and start, count and step of all axes."""
    words = np.frombuffer(b"".join(found), np.int64)
    sizes = list(map(len, found))
    fixed = len(FLOATS) + len(WHOLE)
    if sizes.count(sizes[0]) == len(sizes):
        table = words.reshape(len(sizes), -1)
        first, axes = table[:, :fixed], table[:, fixed:].reshape(-1, 3)
    else:
        lengths = np.array(sizes) // 8
        places = (np.cumsum(lengths) - lengths)[:, None] + np.arange(fixed)
        first = words[places]
        axes = np.delete(words, places.reshape(-1)).reshape(-1, 3)
    columns = np.ascontiguousarray(first.T)
    return columns[: len(FLOATS)].view(np.float64), columns[len(FLOATS) :], np.array(axes.T, order="C")
