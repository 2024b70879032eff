"""Jobs on the workers of a Dask cluster: each reads its own boxes with their halo, and writes whole objects.

Nothing is exchanged between workers. A task whose worker is lost is done again by another one; as every object is
written whole, from the same inputs, by the same function, it gets the same bits.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hyperslab.errors import ConflictError, HyperslabError, InvalidInputError, StoreError, UnsupportedError
from hyperslab.execute import Session, Snapshot, StoreReader
from hyperslab.formats import reopen
from hyperslab.formats.source import ArraySource
from hyperslab.formats.zarr.array import ZarrArray
from hyperslab.rechunk.reading import Opened
from hyperslab.selection import Box
from hyperslab.stencil.job import Job, Recipe, stored_inputs
from hyperslab.stencil.outputs import array_outputs, blocks_for, object_shape, partials_of
from hyperslab.stencil.ranks import shares_for_workers
from hyperslab.stencil.reducing import Reduction
from hyperslab.stencil.resuming import Begun
from hyperslab.store import Store

__all__ = ["fill_on_cluster", "partials_on_cluster"]

Shape = tuple[int, ...]
Tell = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class _Stored:
    """An array that any process can open."""

    source: ArraySource
    store: Store


@dataclass(frozen=True, slots=True)
class _Share:
    """What a worker needs to know: what to do with which arrays, and its box. It holds no connection."""

    recipe: Recipe
    inputs: tuple[_Stored, ...]
    outputs: tuple[_Stored, ...]
    done: tuple[tuple[Shape, ...], ...]
    reductions: tuple[Reduction, ...]
    box: Box
    chunks: Shape | None
    memory_bytes: int
    at_once: int
    session: Session


def fill_on_cluster(client: Any, job: Job, begun: Sequence[Begun], tell: Tell) -> None:
    """Make all objects that are not there by the workers of a `dask.distributed.Client`."""
    arrays = [each.array for each in begun]
    outputs = tuple([_Stored(array.source, array.store) for array in arrays])
    objects = object_shape(job, [array.source.layout for array in arrays])
    done = tuple([tuple(sorted(each.done)) for each in begun])
    for nbytes, _ in _results(client, _shares(client, job, objects, outputs=outputs, done=done)):
        tell(nbytes)


def partials_on_cluster(client: Any, job: Job, reductions: Sequence[Reduction], tell: Tell) -> list[dict[Shape, Any]]:
    """Return the values of all blocks, for each output."""
    found: list[dict[Shape, Any]] = [{} for _ in reductions]
    for nbytes, partials in _results(client, _shares(client, job, blocks_for(job), reductions=tuple(reductions))):
        for all_of_it, some in zip(found, partials, strict=True):
            all_of_it.update(some)
        tell(nbytes)
    return found


def _shares(
    client: Any, job: Job, objects: Shape, *, outputs: tuple[_Stored, ...] = (),
    done: tuple[tuple[Shape, ...], ...] = (), reductions: tuple[Reduction, ...] = (),
) -> list[_Share]:  # fmt: skip
    workers = _workers(client)
    inputs = tuple([_Stored(each.source, each.store) for each in stored_inputs(job.sources)])
    if "memory" in [each.store.scheme for each in (*inputs, *outputs)]:
        raise UnsupportedError("workers cannot see what is in this process's memory://; use another store")
    limits = [worker["memory_limit"] for worker in workers.values() if worker.get("memory_limit")]
    threads = max([int(worker.get("nthreads", 1)) for worker in workers.values()])
    limit = int(min([job.memory_bytes, *limits]))
    boxes = shares_for_workers(job.domain, objects, job.units(), len(workers) * threads)
    sessions = job.session.share(max(1, len(boxes)))
    return [
        _Share(job.recipe, inputs, outputs, done, reductions, box, job.chunks, limit, threads, session)
        for box, session in zip(boxes, sessions, strict=False)
    ]


def _distributed() -> Any:
    try:
        import distributed
    except ImportError:
        raise UnsupportedError("a cluster needs Dask: pip install 'hyperslab[dask]'") from None
    return distributed


def _workers(client: Any) -> dict[str, Any]:
    distributed = _distributed()
    if not isinstance(client, distributed.Client):
        raise InvalidInputError(f"scheduler must be a dask.distributed.Client, not {client!r}")
    workers: dict[str, Any] = client.scheduler_info(n_workers=-1)["workers"]
    if not workers:
        raise StoreError(f"the cluster at {client.scheduler.address} has no workers; start some and call again")
    return workers


def _results(client: Any, shares: Sequence[_Share]) -> Iterator[tuple[int, list[dict[Shape, Any]]]]:
    futures = [client.submit(_do_share, share, pure=False) for share in shares]
    try:
        for future in _distributed().as_completed(futures):
            yield _result(future)
    finally:
        # Those that are not done are given up; those that run are told so by the scheduler.
        client.cancel(futures)


def _result(future: Any) -> tuple[int, list[dict[Shape, Any]]]:
    """Return what a worker did; raise its error, or a typed one where workers were lost again and again."""
    try:
        found: tuple[int, list[dict[Shape, Any]]] = future.result()
    except HyperslabError:
        raise
    except Exception as error:  # what Dask raises: a worker was killed, the cluster is closed, nothing can be sent
        raise StoreError(
            f"a worker of the cluster failed: {type(error).__name__}: {error}; call again to go on where it was"
        ) from error
    return found


def _do_share(share: _Share) -> tuple[int, list[dict[Shape, Any]]]:
    """Do a worker's share; return the bytes of output that it made, and the values of its blocks."""
    told, lock = [0], threading.Lock()

    def tell(nbytes: int) -> None:
        with lock:
            told[0] += nbytes

    with share.session as session:
        sources = tuple([_opened(each, session) for each in share.inputs])
        job = Job(share.recipe, sources, session, share.memory_bytes, share.chunks, 1, share.at_once)
        if share.reductions:
            partials = partials_of(job, share.reductions, share.box, tell)
            return told[0], partials
        arrays = [ZarrArray(session, each.store, each.source, Snapshot()) for each in share.outputs]
        job.run(share.box, array_outputs(job, arrays, share.done, tell))
    return told[0], []


def _opened(stored: _Stored, session: Session) -> Opened:
    found = reopen(StoreReader(session, stored.store), stored.source)
    if not isinstance(found, ArraySource):
        raise ConflictError(f"{stored.source.url!r} is not an array any more; open it again")
    return Opened(found, stored.store)
