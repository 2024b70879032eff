"""From what was recorded to queries: which arrays were read together, as places in the catalog.

A recording of a collection lists the ids of each read. A query is one read, or, as in section 6.1 of the Henosis paper,
all that one process has read. Logs of many processes are put together by `Workload.load`, each read once.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from hyperslab.collections.catalog import Catalog, Ints
from hyperslab.collections.names import encoded, unknown
from hyperslab.collections.reading import ID_LIMIT
from hyperslab.errors import InvalidInputError
from hyperslab.workload import Workload

__all__ = ["By", "Log", "read_log"]

By = Literal["read", "process"]
_BYTE = np.dtype(np.uint8)


@dataclass(frozen=True, slots=True, eq=False)
class Log:
    """Queries, each an array of places in the catalog; and how many arrays were read that are not there any more."""

    queries: list[Ints]
    lost: int


@dataclass(frozen=True, slots=True)
class _Line:
    """A collection as a log knows it: a line of ids."""

    url: str
    shape: tuple[int, ...] = (ID_LIMIT,)
    dtype: np.dtype[Any] = _BYTE
    chunks: tuple[int, ...] = (1,)
    shards: None = None


def read_log(given: Any, url: str, catalog: Catalog, by: By = "read") -> Log:
    """Return the queries of a workload, of a log's file, or of lists of names."""
    if by not in ("read", "process"):
        raise InvalidInputError(f"a query is what one 'read' or one 'process' has read, not {by!r:.40}")
    if isinstance(given, str | os.PathLike):
        given = Workload.load(given)
    if isinstance(given, Workload):
        log = _recorded(given.of(_Line(url)), catalog, by)
    elif isinstance(given, Iterable) and not isinstance(given, bytes):
        log = _named(given, catalog)
    else:
        raise InvalidInputError(f"a workload is a log's path, a Workload or lists of names, not {given!r:.80}")
    if not log.queries:
        raise InvalidInputError(f"nothing was read of {url!r} that is still there; record reads of it as it is now")
    return log


def _recorded(workload: Workload, catalog: Catalog, by: By) -> Log:
    if workload.array.shape != (ID_LIMIT,):
        raise InvalidInputError(f"what was recorded of {workload.array.url!r} are reads of an array, not a collection")
    records = workload.records
    starts, counts, listed = records.start.tolist(), records.count.tolist(), (records.step < 0).tolist()
    places = catalog.find(records.cells)
    numbers = records.fixed["read"] if by == "read" else np.zeros(len(records), np.int64)
    who = zip(records.fixed["process"].tolist(), numbers.tolist(), strict=True)
    together: dict[tuple[int, int], list[Ints]] = {}
    for at, query in enumerate(who):
        # Whoever wrote a log may have written a range.
        found = (
            places[starts[at] : starts[at] + counts[at]]
            if listed[at]
            else np.flatnonzero((catalog.id >= starts[at]) & (catalog.id < starts[at] + counts[at]))
        )
        together.setdefault(query, []).append(found)
    queries = [np.unique(np.concatenate(parts)) for parts in together.values()]
    lost = sum(int((parts < 0).sum()) for all_parts in together.values() for parts in all_parts)
    there = [query[query >= 0] for query in queries]
    return Log([query for query in there if len(query)], lost)


def _named(given: Iterable[Any], catalog: Catalog) -> Log:
    places = {name: at for at, name in enumerate(catalog.names)}
    queries = []
    for names in given:
        if isinstance(names, str) or not isinstance(names, Iterable):
            raise InvalidInputError(f"a query is a list of names, not {names!r:.80}")
        found = []
        for name in names:
            if (at := places.get(encoded(name))) is None:
                raise unknown(name)
            found.append(at)
        if found:
            queries.append(np.unique(np.array(found, np.int64)))
    return Log(queries, 0)
