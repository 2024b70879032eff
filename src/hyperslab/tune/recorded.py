"""From what was recorded, or given as keys, to the reads that a layout is sought for."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hyperslab.errors import InvalidInputError
from hyperslab.formats.zarr.sizes import Shape
from hyperslab.plan import CostModel
from hyperslab.tune.forms import Form, Shrink
from hyperslab.tune.reads import Reads, reads_of
from hyperslab.tune.search import search
from hyperslab.workload import ShapedArray, Workload

__all__ = ["Wanted", "form_for", "given_workload", "reads_in"]

# With fewer reads none is held out: there would be too few to learn from.
_LEAST_SPLIT = 10
# Reads that a session is taken to make where they are only written down: it is not known who will make them.
_SESSION_READS = 10


@dataclass(frozen=True, slots=True)
class Wanted:
    """An array that is yet to be written."""

    url: str
    shape: Shape
    dtype: np.dtype[Any]
    shards: Shape | None = None

    @property
    def chunks(self) -> Shape:
        """All of it, as long as nothing else is known."""
        return self.shape


def given_workload(array: ShapedArray, given: Any) -> Workload:
    """Return the reads of an array: of a workload, of a log, or made of keys."""
    if isinstance(given, str | os.PathLike):
        given = Workload.load(given)
    if isinstance(given, tuple):
        # As a list it would be read as several keys, one for each axis.
        raise InvalidInputError(f"{given!r} is one key; a workload is a list of keys, such as [np.s_[0], np.s_[:, 5]]")
    if not isinstance(given, Workload | Iterable) or isinstance(given, bytes):
        raise InvalidInputError(f"a workload is a log's path, a Workload or a list of keys, not {given!r}")
    found = given.of(array) if isinstance(given, Workload) else Workload.from_keys(array, given)
    if not len(found):
        raise InvalidInputError(f"the workload has no reads of {array.url!r}; record some, or give keys")
    return found


def reads_in(workload: Workload, shape: Shape, held_out: float = 0.0) -> tuple[Reads, Reads | None]:
    """Return the reads to learn from, and the share of them that is held out; of few, none is."""
    parts = [workload]
    if held_out and len(workload) >= _LEAST_SPLIT:
        parts = list(workload.split(1 - held_out))
    each = _reads_of_a_session(workload)
    reads = [reads_of(shape, part.selections(shape), len(part) / each) for part in parts]
    if not len(reads[0]):
        raise InvalidInputError("the reads of the workload take no cells")
    return reads[0], reads[1] if len(reads) > 1 and len(reads[1]) else None


def _reads_of_a_session(workload: Workload) -> float:
    records = workload.records
    who = np.unique(records.fixed["process"]).tolist()
    recorded = any(records.processes[place].host for place in who)
    return len(workload) / len(who) if recorded else min(len(workload), _SESSION_READS)


def form_for(array: ShapedArray, given: Any, model: CostModel, *, plain: bool) -> Form:
    """Return the form that an array which is yet to be written should have; nothing is known of how it compresses."""
    if not array.shape:
        raise InvalidInputError(f"{array.url!r} is of one cell: there is nothing to cut; leave the workload out")
    reads, _ = reads_in(given_workload(array, given), array.shape)
    found = search(reads, array.dtype.itemsize, model, Shrink(), plain=plain)
    if not found:
        raise InvalidInputError(
            f"no layout for {array.shape} cells of {array.dtype.itemsize} bytes was found; give chunks"
        )
    return found[0].form
