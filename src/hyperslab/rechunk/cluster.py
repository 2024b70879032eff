"""Moving cells by the workers of a Dask cluster: each writes a part of the new array on its own."""

import threading
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from hyperslab.errors import ConflictError, HyperslabError, InvalidInputError, StoreError, UnsupportedError
from hyperslab.execute import Session, Snapshot, StoreReader
from hyperslab.formats import reopen
from hyperslab.formats.copying import Readable
from hyperslab.formats.source import ArraySource
from hyperslab.formats.zarr.array import Done, ZarrArray
from hyperslab.rechunk.moving import move_cells
from hyperslab.rechunk.reading import Opened, StoredCells
from hyperslab.rechunk.regions import Cut, best_cut, parts_of
from hyperslab.rechunk.stages import Wanted
from hyperslab.selection import Box
from hyperslab.store import Store

__all__ = ["move_on_cluster"]

Coords = tuple[int, ...]

# Parts for each worker, where chunks are not read much more often for that: who is faster does more of them.
_PARTS_EACH = 4
_DIRECT = 1.25


@dataclass(frozen=True, slots=True)
class _Part:
    """What a worker needs to know: where both arrays are, and its part of the work. It holds no connection."""

    source: ArraySource
    source_store: Store
    target: ArraySource
    target_store: Store
    box: Box
    done: tuple[Coords, ...]
    memory_bytes: int
    session: Session


def move_on_cluster(
    client: Any,
    source: Readable,
    target: ZarrArray,
    *,
    memory_bytes: int,
    done: Collection[Coords] = frozenset(),
    tell: Done | None = None,
) -> int:
    """Do what `move_cells` does on the workers of a `dask.distributed.Client`; return how many objects were left out.

    Workers share no disk, so each reads what its part of the new array needs: chunks that lie across all parts are
    read by each of them. Every worker holds to `memory_bytes`, or to its own limit where that is less.
    """
    distributed = _distributed()
    if not isinstance(client, distributed.Client):
        raise InvalidInputError(f"scheduler must be a dask.distributed.Client, not {client!r}")
    workers = client.scheduler_info(n_workers=-1)["workers"]
    if not workers:
        raise StoreError(f"the cluster at {client.scheduler.address} has no workers; start some and call again")
    parts = list(_parts(source, target, frozenset(done), workers, memory_bytes))
    futures = [client.submit(_move_part, part, pure=False) for part in parts]
    left_out = 0
    try:
        for future in distributed.as_completed(futures):
            nbytes, absent = _result(future)
            left_out += absent
            if tell is not None:
                tell(nbytes)
    finally:
        # Those that are not done are given up; those that run are told so by the scheduler.
        client.cancel(futures)
    return left_out


def _parts(
    source: Readable, target: ZarrArray, done: frozenset[Coords], workers: dict[str, Any], memory_bytes: int
) -> Iterator[_Part]:
    inner, store = getattr(source, "source", None), getattr(source, "store", None)
    if not isinstance(inner, ArraySource) or store is None:
        raise UnsupportedError(f"{source.url!r} is not stored where workers could read it; rechunk without a scheduler")
    if "memory" in (store.scheme, target.store.scheme):
        raise UnsupportedError("workers cannot see what is in this process's memory://; use another store")
    wanted = Wanted(target.source.layout, done)
    cut = _cut(StoredCells(inner, store, target.session), wanted, len(workers))
    boxes = [box for box in parts_of(wanted.domain, cut.shape) if wanted.trimmed(box) is not None]
    share = _share(memory_bytes, workers, len(boxes))
    for box, session in zip(boxes, target.session.share(max(1, len(boxes))), strict=False):
        inside = tuple([coords for coords in done if wanted.box_of(coords).intersect(box).size])
        yield _Part(inner, store, target.source, target.store, box, inside, share, session)


def _share(memory_bytes: int, workers: dict[str, Any], parts: int) -> int:
    """Return the memory for one part: a worker with several threads may do several at a time."""
    limits = [worker["memory_limit"] for worker in workers.values() if worker.get("memory_limit")]
    threads = max(int(worker.get("nthreads", 1)) for worker in workers.values())
    return int(min([memory_bytes, *limits]) // min(threads, max(1, -(-parts // len(workers)))))


def _cut(cells: StoredCells, wanted: Wanted, workers: int) -> Cut:
    """Cut the array so that every worker has something to do, and chunks are read by as few of them as can be."""
    domain, unit = wanted.domain, wanted.layout.object_shape
    cuts = []
    for count in (workers * _PARTS_EACH, workers):
        cuts.append(best_cut(domain, unit=unit, other=cells.unit, most_cells=max(1, -(-domain.size // count))))
        if cuts[-1].amplification <= _DIRECT:
            break
    return cuts[-1]


def _move_part(part: _Part) -> tuple[int, int]:
    """Do a worker's part; return how many bytes it told of, and how many objects it left out."""
    told, lock = [0], threading.Lock()

    def tell(nbytes: int) -> None:
        with lock:
            told[0] += nbytes

    with part.session as session:
        found = reopen(StoreReader(session, part.source_store), part.source)
        if not isinstance(found, ArraySource):
            raise ConflictError(f"{part.source.url!r} is not an array any more; open it again")
        opened = Opened(found, part.source_store)
        target = ZarrArray(session, part.target_store, part.target, Snapshot())
        left_out = move_cells(
            opened, target,
            memory_bytes=part.memory_bytes, done=part.done, tell=tell, only=(part.box,), leave_out=True,
        )  # fmt: skip
    return told[0], left_out


def _result(future: Any) -> tuple[int, int]:
    """Return what a worker did; raise its error, or a typed one where the worker itself was lost."""
    try:
        found: tuple[int, int] = future.result()
    except HyperslabError:
        raise
    except Exception as error:  # what Dask raises: a worker was killed, the cluster is closed, nothing can be sent
        raise StoreError(
            f"a worker of the cluster failed: {type(error).__name__}: {error}; call again to go on where it was"
        ) from error
    return found


def _distributed() -> Any:
    try:
        import distributed
    except ImportError:
        raise UnsupportedError(
            "rechunking on a cluster needs Dask: pip install 'hyperslab[dask]', or leave out `scheduler`"
        ) from None
    return distributed
