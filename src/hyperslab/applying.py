"""Applying a function to every cell and its neighbours, over arrays of any size: `hs.apply`."""

import inspect
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from hyperslab.array import Array, Group, wrap
from hyperslab.errors import InvalidInputError
from hyperslab.execute import Session, check_kind, default_session
from hyperslab.formats.copying import Place, showing
from hyperslab.formats.zarr.array import Done, ZarrArray
from hyperslab.opening import open
from hyperslab.stencil.cluster import fill_on_cluster, partials_on_cluster
from hyperslab.stencil.job import Held, Job, memory_limit, prepare
from hyperslab.stencil.memory import apply_in_memory
from hyperslab.stencil.outputs import (
    begin_arrays,
    fill_arrays,
    fill_hdf5,
    fill_held,
    layouts_of,
    new_arrays,
    new_held,
    object_shape,
    opened_arrays,
    partials_of,
    plan_of,
    shapes_of,
    total_bytes,
)
from hyperslab.stencil.ranks import check_ranks, share_of
from hyperslab.stencil.reducing import parse_reduction
from hyperslab.stencil.resuming import end_if_whole
from hyperslab.stencil.targets import hdf5_path
from hyperslab.stencil.telling import StencilPlan
from hyperslab.store import LocalStore, locate

__all__ = ["StencilPlan", "apply"]

Kinds = inspect.Parameter


def apply(
    function: Callable[..., Any],
    *arrays: Any,
    out: Any = None,
    boundary: Any = "nearest",
    stride: Any = None,
    halo: Any = None,
    reduce: Any = None,
    chunks: Any = None,
    output: Mapping[str, Any] | None = None,
    memory_bytes: int | str | None = None,
    overwrite: bool = False,
    progress: Any = None,
    scheduler: Any = None,
    rank: int | None = None,
    size: int | None = None,
    explain: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    session: Session | None = None,
) -> Any:
    """Call a function for every cell of arrays of one shape, and return what it gives: NumPy arrays, or those at `out`.

    The function gets a stencil for each array: `s(0, 0)` is the cell itself, `s(-1, 2)` the one a row above and two
    columns to the right. It is compiled, how far it reaches is found, and arrays that are stored are gone through part
    by part. After the arrays may follow where the result goes, as for `out`.

    arrays        opened arrays, URLs, NumPy arrays; as many as the function has parameters
    out           a URL (Zarr, or `file.h5/name`), an array opened for writing, a NumPy array; for several a tuple
    boundary      what lies beyond the edges: "nearest", "reflect", "periodic", a number, "shrink"; also one for each
                  axis, and a pair for its two sides
    stride        one call for each so many cells, a number or one for each axis
    halo          how far the function may reach; what reaches further is an error (default: it is found out)
    reduce        one value of all cells: "sum", "min", "max", ("histogram", edges), or two functions (of, combine)
    chunks        output cells that are made at a time (default: what reads fastest)
    output        how new Zarr arrays lie, as for `hs.create`: {"chunks": …, "shards": …, "layout": "plain", …}
    memory_bytes  what the process may hold, beside NumPy arrays given (default: 512 MB, or 256 MB more than now)
    progress      True for a bar on the terminal, or a function of (done_bytes, total_bytes)
    scheduler     a `dask.distributed.Client`, whose workers do it
    rank, size    which of how many processes this is: each makes its share of `out`
    explain       return how it would be done instead of doing it
    storage_options   for the stores of URLs

    A Zarr output that was interrupted is gone on with by calling again.

    >>> import hyperslab as hs
    >>> field = np.array([[0.0, 1.0, 4.0], [9.0, 16.0, 25.0]])
    >>> hs.apply(lambda s: s(0, 1) - s(0, 0), field, boundary="nearest")
    array([[1., 3., 0.],
           [7., 9., 0.]])
    >>> float(hs.apply(lambda s: s(0, 0), field, reduce="max"))
    25.0
    """
    check_kind("session", session, Session)
    session = default_session() if session is None else session
    given, target = _split_arrays(function, arrays, out)
    _check_together(target, reduce, scheduler, rank, size, overwrite=overwrite)
    if not explain and reduce is None and chunks is None and all([_held(each) for each in (*given, *(target or ()))]):
        held = None if target is None else target[0] if len(target) == 1 else tuple(target)
        return apply_in_memory(function, given, boundary=boundary, stride=stride, reach=halo, out=held)
    request = _Request(target, output or {}, overwrite, storage_options, session)
    sources = tuple([request.source(each) for each in given])
    recipe = prepare(function, sources, session, boundary=boundary, stride=stride, halo=halo)
    job = Job(recipe, sources, session, memory_limit(memory_bytes), _lengths(chunks, len(recipe.shape)))
    if explain:
        return _explained(job, request, reduce)
    with showing(progress, "applying") as show:
        tell = _Telling(show, total_bytes(job))
        if reduce is not None:
            return _reduced(job, reduce, scheduler, tell)
        return request.fill(job, scheduler, None if rank is None else (rank, size or 0), tell)


def _split_arrays(function: Callable[..., Any], arrays: Sequence[Any], out: Any) -> tuple[list[Any], list[Any] | None]:
    """Return the inputs, and the outputs if any are named."""
    if not callable(function):
        raise InvalidInputError(f"the first argument is a function of stencils, not {function!r}")
    wanted = _parameters(function)
    given = list(arrays)
    if out is None and wanted is not None and len(given) > wanted:
        given, out = given[:wanted], given[wanted:]
        out = out[0] if len(out) == 1 else tuple(out)
    if not given or (wanted is not None and len(given) != wanted):
        raise InvalidInputError(f"the function takes {wanted or 1} arrays, {len(given)} were given")
    if out is None:
        return given, None
    return given, list(out) if isinstance(out, tuple | list) else [out]


def _parameters(function: Callable[..., Any]) -> int | None:
    """Return how many arrays a function takes; None if any number."""
    try:
        found = inspect.signature(getattr(function, "py_func", function)).parameters.values()
    except (ValueError, TypeError):
        return None
    if any(each.kind is Kinds.VAR_POSITIONAL for each in found):
        return None
    kinds = (Kinds.POSITIONAL_ONLY, Kinds.POSITIONAL_OR_KEYWORD)
    return sum(each.kind in kinds and each.default is Kinds.empty for each in found)


def _lengths(chunks: Any, ndim: int) -> tuple[int, ...] | None:
    if chunks is None:
        return None
    sizes = (chunks,) * ndim if isinstance(chunks, int) else chunks
    if not isinstance(sizes, Sequence) or len(sizes) != ndim or not all([isinstance(n, int) and n > 0 for n in sizes]):
        raise InvalidInputError(f"chunks are a length above 0 for each of {ndim} axes, not {chunks!r}")
    return tuple(sizes)


def _check_together(
    target: list[Any] | None, reduce: Any, scheduler: Any, rank: Any, size: Any, *, overwrite: bool
) -> None:
    """Refuse arguments that do not go together."""
    if reduce is not None and target is not None:
        raise InvalidInputError("a reduction returns its value; leave out= away, or reduce=")
    if (rank is None) != (size is None):
        raise InvalidInputError("rank and size go together: which of how many processes this is")
    if rank is not None:
        check_ranks(rank, size)
        if scheduler is not None or reduce is not None or overwrite:
            raise InvalidInputError("with rank= there is no scheduler=, reduce= or overwrite=: ranks do not wait")
    kinds = (str, os.PathLike) if rank is not None else (str, os.PathLike, Array)
    stored = target is not None and all([isinstance(each, kinds) for each in target])
    if (rank is not None or (scheduler is not None and reduce is None)) and not stored:
        raise InvalidInputError("other processes cannot write into this one's memory; give out= a URL of a Zarr array")


class _Telling:
    """Adds up what was done, for whoever wants to be told."""

    def __init__(self, show: Callable[[int, int], None] | None, total: int) -> None:
        self._show, self._total, self._done, self._lock = show, total, 0, threading.Lock()

    def __call__(self, nbytes: int) -> None:
        if self._show is not None and nbytes:
            with self._lock:
                self._done += nbytes
                self._show(self._done, self._total)


def _reduced(job: Job, reduce: Any, scheduler: Any, tell: Done) -> Any:
    outputs = job.recipe.kernel().outputs
    wanted = reduce if isinstance(reduce, list) else [reduce] * len(outputs)
    reductions = [parse_reduction(each) for each in wanted]
    if scheduler is None:
        partials = partials_of(job, reductions, job.domain, tell)
    else:
        partials = partials_on_cluster(scheduler, job, reductions, tell)
    values = [each.finish(found) for each, found in zip(reductions, partials, strict=True)]
    return values[0] if len(values) == 1 else tuple(values)


def _explained(job: Job, request: "_Request", reduce: Any) -> StencilPlan:
    names = None if request.target is None else [str(each) for each in request.target if not _held(each)]
    planned = plan_of(job, names, request.settings, reduced=reduce is not None)
    stored = next((each.store for each in job.sources if not isinstance(each, Held)), LocalStore(os.sep))
    return StencilPlan(job, planned, profile=job.session.model(stored).profile)


def _held(value: Any) -> bool:
    return isinstance(value, np.ndarray)


@dataclass(frozen=True, slots=True, eq=False)
class _Request:
    """Where results go, and how stores are reached."""

    target: list[Any] | None
    settings: Mapping[str, Any]
    overwrite: bool
    options: Mapping[str, Any] | None
    session: Session

    def source(self, value: Any) -> Any:
        """Return an input: an opened array, or what holds its cells."""
        if isinstance(value, str | os.PathLike):
            value = open(value, storage_options=self._options(value), session=self.session)
        if isinstance(value, Group):
            raise InvalidInputError(f"{value.url!r} is a group; name one of its arrays: {', '.join(list(value)[:9])}")
        if isinstance(value, Array):
            return value
        if hasattr(value, "shape") and hasattr(value, "dtype") and hasattr(value, "__getitem__"):
            return Held(value)
        return Held(np.asarray(value))

    def fill(self, job: Job, scheduler: Any, ranks: tuple[int, int] | None, tell: _Telling) -> Any:
        """Do the job, and return what it made."""
        target = self.target
        if target is None or all([_held(each) for each in target]):
            arrays: list[npt.NDArray[Any]] = new_held(job) if target is None else target
            taken = total_bytes(job) if target is None else 0
            fill_held(replace(job, memory_bytes=job.memory_bytes - taken), arrays, tell)
            return arrays[0] if len(arrays) == 1 else tuple(arrays)
        if all([isinstance(each, Array) for each in target]):
            return self._fill_opened(job, target, scheduler, tell)
        if not all([isinstance(each, str | os.PathLike) for each in target]):
            raise InvalidInputError(f"out is a URL, an array, or a tuple of either; not {target!r}")
        files = [hdf5_path(os.fspath(each)) for each in target]
        if any(files):
            return self._fill_hdf5(job, [each for each in files if each is not None], scheduler, ranks, tell)
        return self._fill_zarr(job, [self._place(each) for each in target], scheduler, ranks, tell)

    def _fill_hdf5(self, job: Job, files: list[tuple[str, str]], scheduler: Any, ranks: Any, tell: _Telling) -> Any:
        if len(files) != len(self.target or ()):
            raise InvalidInputError("some outputs are HDF5 and some are not; choose one kind for all of them")
        if scheduler is not None or ranks is not None:
            raise InvalidInputError("an HDF5 file is written by one process; give out= a URL of a Zarr array")
        fill_hdf5(job, files, self.settings, tell, overwrite=self.overwrite)
        made = [open(f"{path}/{name}", session=self.session) for path, name in files]
        return made[0] if len(made) == 1 else tuple(made)

    def _fill_opened(self, job: Job, targets: list[Array], scheduler: Any, tell: _Telling) -> Any:
        for each in targets:
            if not each.writable:
                raise InvalidInputError(f"{each.url!r} was opened to be read; open it with mode='r+' for out=")
        arrays = [ZarrArray(each.session, each.store, each.source, each.snapshot) for each in targets]
        begun = opened_arrays(job, arrays)
        if scheduler is None:
            fill_arrays(job, begun, job.domain, tell)
        else:
            fill_on_cluster(scheduler, job, begun, tell)
        for each, made in zip(targets, begun, strict=True):
            if made.array.seal is not None:
                made.array.mark_complete()
            each.source = made.array.source
        return targets[0] if len(targets) == 1 else tuple(targets)

    def _fill_zarr(self, job: Job, places: list[Place], scheduler: Any, ranks: Any, tell: _Telling) -> Any:
        settings = self._settings(job)
        # Refused, if it is, before anything is created.
        plan_of(job, [place.url for place in places], settings, reduced=False)
        try:
            begun = begin_arrays(job, places, settings, overwrite=self.overwrite)
        except InvalidInputError:
            # With few objects a rank may have none to make, and come when the others are done.
            objects = object_shape(job, layouts_of(new_arrays(job, settings)))
            if ranks is None or share_of(job.domain, objects, job.units(), *ranks):
                raise
            return self._opened(places, shapes_of(job))
        tell(sum([each.done_bytes for each in begun]))
        if scheduler is not None:
            fill_on_cluster(scheduler, job, begun, tell)
        elif ranks is not None:
            objects = object_shape(job, [each.array.source.layout for each in begun])
            for box in share_of(job.domain, objects, job.units(), *ranks):
                fill_arrays(job, begun, box, tell)
        else:
            fill_arrays(job, begun, job.domain, tell)
        for each in begun:
            if ranks is None:
                each.array.mark_complete()
            else:
                end_if_whole(each.array)
        made = [wrap(each.array.source, each.array.store, self.session, writable=True) for each in begun]
        return made[0] if len(made) == 1 else tuple(made)

    def _opened(self, places: list[Place], expected: list[tuple[tuple[int, ...], np.dtype[Any]]]) -> Any:
        """Return outputs that others have made, if they are what is expected."""
        made = [open(each.url, storage_options=self._options(each.url), session=self.session) for each in places]
        if [(each.shape, each.dtype) for each in made if isinstance(each, Array)] != expected:
            raise InvalidInputError(f"something else is stored at {', '.join([each.url for each in places])}")
        return made[0] if len(made) == 1 else tuple(made)

    def _settings(self, job: Job) -> dict[str, Any]:
        """Return how outputs lie; the names of axes are those of the first input, if it has any."""
        dims = getattr(job.sources[0], "dims", None)
        vectors = any([each.cell_shape for each in job.recipe.kernel().outputs])
        return {**({} if dims is None or vectors else {"dims": dims}), **self.settings}

    def _place(self, url: Any) -> Place:
        store, path = locate(url, self._options(url), create=True)
        if isinstance(store, LocalStore) and path:
            raise InvalidInputError(f"{str(url)!r} is a file; arrays are written as directories, or as 'file.h5/name'")
        return Place(self.session, store, path, str(url))

    def _options(self, url: Any) -> Mapping[str, Any] | None:
        """Return the options for a store, if a URL names one that takes any."""
        text = str(url)
        return None if "://" not in text or text.startswith(("file:", "memory:")) else self.options
