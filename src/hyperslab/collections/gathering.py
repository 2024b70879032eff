"""Gathering the bytes of many arrays at once, as changes and fillings do: what lies together is one piece of a plan.

To plan for each array by itself would take longer than to fetch it, where there are hundreds of thousands.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

from hyperslab.collections.blocks import Entry
from hyperslab.collections.packs import pack_key
from hyperslab.collections.reading import Bytes, PackReader, check_whole
from hyperslab.execute import Options, read
from hyperslab.store import LocalStore

__all__ = ["gather"]


def gather(reader: PackReader, entries: Sequence[Entry]) -> dict[int, Bytes]:
    """Return the bytes of arrays by their ids, each held to its checksum. Nothing of it is recorded.

    Memory is at most twice what the arrays have.
    """
    if isinstance(reader.store, LocalStore):
        return {entry.id: array for entry, array in zip(entries, reader.read_packs(entries), strict=True)}
    runs = list(_runs(entries))
    targets = [np.empty(run[-1].stop - run[0].start, np.uint8) for run in runs]
    tasks = [
        reader.task(pack_key(reader.path, run[0].pack), run[0].pack_nbytes, run[0].start, target)
        for run, target in zip(runs, targets, strict=True)
    ]
    if tasks:
        read(reader.session, tasks, Options(recorded=False))
    found = {}
    for run, target in zip(runs, targets, strict=True):
        for entry in run:
            cells = target[entry.start - run[0].start : entry.stop - run[0].start]
            check_whole(entry, cells)
            found[entry.id] = cells
    return found


def _runs(entries: Iterable[Entry]) -> Iterable[list[Entry]]:
    """Yield arrays of one pack that lie together: between two is no more than the second of them is long."""
    ordered = sorted(entries, key=lambda entry: (entry.pack, entry.start))
    cuts = [
        at
        for at, (one, other) in enumerate(pairwise(ordered), 1)
        if one.pack != other.pack or not 0 <= other.start - one.stop <= other.nbytes
    ]
    for low, high in pairwise([0, *cuts, len(ordered)]):
        if high > low:
            yield ordered[low:high]
