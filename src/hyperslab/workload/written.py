"""Selections as records: reads that were written down, not recorded."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hyperslab.execute.ledger import Ledger
from hyperslab.execute.light import Described
from hyperslab.execute.recording import Row
from hyperslab.selection import Points, Selection
from hyperslab.workload.columns import decode, encode
from hyperslab.workload.records import KnownArray, Process, Records, joined

__all__ = ["records_of"]

_NOBODY = Process("", 0, "keys")
_AT_ONCE = 256


def records_of(array: KnownArray, chosen: Sequence[Selection | Points]) -> Records:
    """Return records of reads of one array that cost nothing, in this order."""
    cells = np.dtype((np.void, array.itemsize))
    layout = Described(
        array.shape, cells, array.chunks, cells, array.shards or array.chunks, None if array.shards is None else True
    )
    rows: list[Row] = []
    for number, selection in enumerate(chosen):
        size = len(selection.coords[0]) if isinstance(selection, Points) and selection.coords else selection.size
        more = (number, 0, size * array.itemsize, None)
        rows.append((array.url, layout, selection, Ledger(), float(number), None, more))
    parts = [decode(encode(rows[at : at + _AT_ONCE], _NOBODY, 0)) for at in range(0, len(rows), _AT_ONCE)]
    return replace(joined(parts), arrays=(array,))
