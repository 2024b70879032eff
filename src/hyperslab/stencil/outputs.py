"""Outputs of a job: arrays that are created or gone on with, filled, and then said to be whole."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from hyperslab.errors import InvalidInputError
from hyperslab.execute import Session
from hyperslab.execute.write import StoreWriter
from hyperslab.formats.copying import Place
from hyperslab.formats.source import ArraySource
from hyperslab.formats.zarr.array import ZarrArray
from hyperslab.formats.zarr.create import NewArray, describe_array
from hyperslab.formats.zarr.sizes import choose_sizes
from hyperslab.formats.zarr.v3 import parse_node
from hyperslab.layout import Layout
from hyperslab.plan.phrases import say_bytes
from hyperslab.selection import Box
from hyperslab.stencil.job import Held, Job, Outputs, Planned, common_objects, lane_bytes_of
from hyperslab.stencil.reducing import ReducingTarget, Reduction, block_shape
from hyperslab.stencil.resuming import Begun, begin, fingerprint
from hyperslab.stencil.targets import Hdf5File, HeldTarget, StoredTarget, hdf5_chunks, hdf5_path
from hyperslab.store import LocalStore, Store

__all__ = [
    "begin_arrays",
    "fill_arrays",
    "fill_hdf5",
    "fill_held",
    "new_arrays",
    "object_shape",
    "partials_of",
    "plan_of",
    "total_bytes",
]  # fmt: skip

Cells = npt.NDArray[Any]
Shape = tuple[int, ...]
Tell = Callable[[int], None]


def shapes_of(job: Job) -> list[tuple[Shape, np.dtype[Any]]]:
    """Return the shape and the type of each output."""
    grid = job.recipe.geometry.out_shape
    return [((*grid, *output.cell_shape), output.dtype) for output in job.recipe.kernel().outputs]


def total_bytes(job: Job) -> int:
    """Return the bytes of all outputs."""
    return sum([prod(shape) * dtype.itemsize for shape, dtype in shapes_of(job)])


def new_arrays(job: Job, settings: Mapping[str, Any]) -> list[NewArray]:
    """Return what the outputs are to be like, with the user's settings as for `hs.create`.

    Several outputs get chunks and shards that lie alike, so that each part consists of whole ones.
    """
    found = [NewArray(shape, dtype, **settings) for shape, dtype in shapes_of(job)]
    if len(found) == 1 or settings.get("chunks") is not None or settings.get("layout", "default") != "default":
        return found
    grid = job.recipe.geometry.out_shape
    largest = max([prod(new.shape[len(grid) :]) * new.dtype.itemsize for new in found])
    chunks, shards = choose_sizes(grid, largest, shards=settings.get("shards"))
    return [replace(new, **_with_more(new.shape[len(grid) :], chunks, shards)) for new in found]


def _with_more(more: Shape, chunks: Shape, shards: Shape | None) -> dict[str, Any]:
    """Return sizes with the axes of what a cell holds."""
    return {"chunks": (*chunks, *more), "shards": None if shards is None else (*shards, *more)}


def layouts_of(news: Iterable[NewArray]) -> list[Layout]:
    """Return where the cells of arrays would lie, without creating them."""
    sources = [parse_node(describe_array("output", new), "output", "") for new in news]
    return [source.layout for source in sources if isinstance(source, ArraySource)]


def object_shape(job: Job, layouts: Sequence[Layout]) -> Shape:
    """Return the cells that are stored together, over the axes of the inputs."""
    return common_objects([layout.object_shape for layout in layouts], len(job.recipe.shape))


def begin_arrays(job: Job, places: Sequence[Place], settings: Mapping[str, Any], *, overwrite: bool) -> list[Begun]:
    """Create the outputs, or go on with those that an earlier run of the same began."""
    recipe, news = job.recipe, new_arrays(job, settings)
    _check_count(len(places), len(news))
    _check_apart(job, places, overwrite)
    versions = [each.version if isinstance(each, Held) else _version_of(each.source) for each in job.sources]
    inputs = [(version, each.shape, str(each.dtype)) for version, each in zip(versions, job.sources, strict=True)]
    said: list[Any] = [recipe.boundaries, recipe.stride, recipe.strict and recipe.reach, sorted(settings.items())]
    marks = [fingerprint(recipe.function, inputs, [*said, number]) for number in range(len(news))]
    return [
        begin(place, new, mark, overwrite=overwrite) for place, new, mark in zip(places, news, marks, strict=True)
    ]  # fmt: skip


def _check_apart(job: Job, places: Sequence[Place], overwrite: bool) -> None:
    """Refuse to delete what is to be read, or to write two outputs to one place."""
    written = [_address(place.store, place.path) for place in places]
    read = [_address(each.store, each.source.path) for each in job.sources if not isinstance(each, Held)]
    if any([_within(one, other) for at, one in enumerate(written) for other in written[:at] + written[at + 1 :]]):
        raise InvalidInputError("several outputs have one place, or lie in each other; give each a place of its own")
    if overwrite and any([_within(one, other) for one in read for other in written]):
        raise InvalidInputError("an output lies where an input is, which would be lost; write to another place")


def _version_of(source: ArraySource) -> Any:
    """Return what tells an input from others; of one that is part of a file the file's version, too."""
    return source.url if source.part is None else (source.url, source.part.version)


def _file_of(source: ArraySource) -> str:
    return source.path if source.part is None else source.part.key


def _within(one: str, other: str) -> bool:
    """Say whether an address is another one, or lies in it."""
    return (one + "/").startswith(other + "/")


def _address(store: Store, path: str) -> str:
    if isinstance(store, LocalStore):  # of which links lead to the same place
        return os.path.realpath(os.path.join(store.root, path))
    return f"{store.address}/{path}"


def opened_arrays(job: Job, arrays: Sequence[ZarrArray]) -> list[Begun]:
    """Return arrays that are there as outputs, if they have the right shape; all of their cells are written."""
    made = shapes_of(job)
    _check_count(len(arrays), len(made))
    _check_apart(job, [Place(each.session, each.store, each.source.path, each.source.url) for each in arrays], True)
    for array, (shape, dtype) in zip(arrays, made, strict=True):
        layout = array.source.layout
        if layout.shape != shape or not np.can_cast(dtype, layout.dtype, "same_kind"):
            raise InvalidInputError(
                f"{array.source.url!r} is {layout.dtype} of shape {layout.shape}; the function gives {dtype} of {shape}"
            )
    return [Begun(array, frozenset()) for array in arrays]


def _check_count(given: int, made: int) -> None:
    if given != made:
        raise InvalidInputError(f"the function gives {made} outputs, but {given} were named; give out= as many")


def fill_arrays(job: Job, begun: Sequence[Begun], domain: Box, tell: Tell) -> None:
    """Make all objects in a domain that are not there."""
    job.run(domain, array_outputs(job, [each.array for each in begun], [each.done for each in begun], tell))


def array_outputs(job: Job, arrays: Sequence[ZarrArray], done: Sequence[Iterable[Shape]], tell: Tell) -> Outputs:
    """Return Zarr arrays as outputs, of which some objects are there."""
    pairs = zip(arrays, done, strict=True)
    targets = tuple([StoredTarget(array, frozenset(places), tell) for array, places in pairs])
    objects = object_shape(job, [array.source.layout for array in arrays])
    return Outputs(targets, objects, arrays[0].writer(), lane_bytes_of([array.source.layout for array in arrays]))


def fill_held(job: Job, arrays: Sequence[Cells], tell: Tell) -> None:
    """Make all cells of outputs in memory."""
    expected = [(shape, dtype) for shape, dtype in shapes_of(job)]
    _check_count(len(arrays), len(expected))
    for array, (shape, dtype) in zip(arrays, expected, strict=True):
        if not array.flags.writeable:
            raise InvalidInputError("the array to fill may not be written to; give another one")
        if array.shape != shape or not np.can_cast(dtype, array.dtype, "same_kind"):
            raise InvalidInputError(
                f"out is {array.dtype} of shape {array.shape}; the function gives {dtype} of shape {shape}"
            )
    made = [np.empty(array.shape, array.dtype) if _is_read(array, job) else array for array in arrays]
    taken = sum([one.nbytes for one, array in zip(made, arrays, strict=True) if one is not array])
    targets = tuple([HeldTarget(array, tell) for array in made])
    job = replace(job, memory_bytes=job.memory_bytes - taken)
    job.run(job.domain, Outputs(targets, (1,) * len(job.recipe.shape), _no_writer(job.session)))
    for one, array in zip(made, arrays, strict=True):
        if one is not array:
            array[...] = one


def _is_read(array: Cells, job: Job) -> bool:
    """Say whether an output lies in the memory of an input, which must not change before all of it is read."""
    held = [each.array for each in job.sources if isinstance(each, Held)]
    return any([isinstance(each, np.ndarray) and np.may_share_memory(each, array) for each in held])


def new_held(job: Job) -> list[Cells]:
    """Return arrays for all outputs, if there is memory for them."""
    needed = total_bytes(job)
    if needed >= job.memory_bytes:
        raise InvalidInputError(
            f"the result has {say_bytes(needed)}, memory_bytes is {say_bytes(job.memory_bytes)}; give out= a URL to "
            "write it to, or allow more"
        )
    return [np.empty(shape, dtype) for shape, dtype in shapes_of(job)]


def fill_hdf5(
    job: Job, places: Sequence[tuple[str, str]], settings: Mapping[str, Any], tell: Tell, *, overwrite: bool
) -> None:
    """Make all cells of datasets of new HDF5 files; those in one file are written together."""
    made = shapes_of(job)
    _check_count(len(places), len(made))
    if len(set(places)) < len(places):
        raise InvalidInputError("outputs in one HDF5 file need names of their own, such as 'out.h5/u' and 'out.h5/v'")
    read = [_address(each.store, _file_of(each.source)) for each in job.sources if not isinstance(each, Held)]
    if any([os.path.realpath(path) in read for path, _ in places]):
        raise InvalidInputError("an output lies in a file that is read, which would be lost; write to another file")
    unknown = set(settings) - {"chunks"}
    if unknown:
        raise InvalidInputError(f"an HDF5 output takes chunks, but no {', '.join(sorted(unknown))}")
    chunks = [hdf5_chunks(shape, dtype.itemsize, settings.get("chunks")) for shape, dtype in made]
    with ExitStack() as stack:
        paths = dict.fromkeys([path for path, _ in places])
        files = {path: stack.enter_context(Hdf5File(path, overwrite=overwrite)) for path in paths}
        targets = tuple([
            files[path].create(name, shape, dtype, sizes, tell)
            for (path, name), (shape, dtype), sizes in zip(places, made, chunks, strict=True)
        ])  # fmt: skip
        objects = common_objects(chunks, len(job.recipe.shape))
        job.run(job.domain, Outputs(targets, objects, _no_writer(job.session)))


def partials_of(job: Job, reductions: Sequence[Reduction], domain: Box, tell: Tell) -> list[dict[Shape, Any]]:
    """Return the values of all blocks in a domain, for each output."""
    made = shapes_of(job)
    _check_count(len(reductions), len(made))
    blocks = blocks_for(job)
    targets = tuple([ReducingTarget(reduction, blocks, tell) for reduction in reductions])
    job.run(domain, Outputs(targets, blocks, _no_writer(job.session)))
    return [target.partials for target in targets]


def blocks_for(job: Job) -> Shape:
    """Return the blocks that reductions are made of."""
    largest = max([output.dtype.itemsize * prod(output.cell_shape) for output in job.recipe.kernel().outputs])
    return block_shape(job.recipe.geometry.out_shape, largest)


def _no_writer(session: Session) -> StoreWriter:
    """Return what gives threads to work with, where nothing is put into a store."""
    return StoreWriter(session, LocalStore(os.sep))


def plan_of(job: Job, urls: Sequence[str] | None, settings: Mapping[str, Any], *, reduced: bool) -> Planned:
    """Return how a job would be done, with outputs at these URLs (None: in memory); nothing is created."""
    ndim = len(job.recipe.shape)
    if reduced:
        return job.plan(job.domain, blocks_for(job), 0)
    if not urls:
        return job.plan(job.domain, (1,) * ndim, 0)
    if hdf5_path(urls[0]) is not None:
        chunks = [hdf5_chunks(shape, dtype.itemsize, settings.get("chunks")) for shape, dtype in shapes_of(job)]
        return job.plan(job.domain, common_objects(chunks, ndim), 0)
    layouts = layouts_of(new_arrays(job, settings))
    local = "://" not in urls[0] or urls[0].startswith("file:")
    return job.plan(job.domain, object_shape(job, layouts), lane_bytes_of(layouts), local=local)
