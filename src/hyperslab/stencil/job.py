"""A job: what is made of which arrays, within how much memory; planned before anything is read or written."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from math import lcm, prod
from typing import Any, cast
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from hyperslab.errors import InvalidInputError
from hyperslab.execute import Session
from hyperslab.execute.write import StoreWriter
from hyperslab.layout import Layout
from hyperslab.layout.checksums import crc32c
from hyperslab.plan.phrases import say_bytes
from hyperslab.rechunk import memory
from hyperslab.rechunk.flow import Buffers, run_stage
from hyperslab.rechunk.reading import CellSource, Opened, StoredCells, cells_of
from hyperslab.selection import Box
from hyperslab.stencil.boundaries import Boundaries
from hyperslab.stencil.flow import BlockReader, Computing, Inputs, Target, cell_bytes, streaks_of
from hyperslab.stencil.geometry import Geometry, stride_of
from hyperslab.stencil.kernel import Kernel, compile_kernel
from hyperslab.stencil.reach import Reach
from hyperslab.stencil.splitting import Input, Problem, Split, choose_split
from hyperslab.store import LocalStore

__all__ = ["DEFAULT_MEMORY", "Held", "Job", "Outputs", "Planned", "Recipe", "memory_limit", "prepare"]

Cells = npt.NDArray[Any]
Shape = tuple[int, ...]

# Without a limit a process may hold this much, or this much more than it does already.
DEFAULT_MEMORY = 512_000_000
_MORE_MEMORY = 256_000_000
# Kept free for what allocators, compressors and Python itself take on the way.
_SPARE_BYTES = 24_000_000
# An object on its way: its cells gathered, encoded, and put together.
_LANE_OBJECTS = 3
_LANES = max(2, os.cpu_count() or 1)
_REMOTE_LANES = 8
# Indexes of shards that are kept from part to part.
_INDEX_BYTES = 8 << 20
# Arrays in memory are known again by the checksums of slabs of about so many bytes.
_HASHED_BYTES = 16 << 20
_PAGE_BYTES = 4096
# Of inputs a box of about so many cells is looked at to find how far a function reaches.
_SAMPLE_CELLS = 4096


class Held:
    """An array in memory, or anything that is indexed like one, as an input."""

    def __init__(self, array: Any) -> None:
        self.array, self.shape, self.dtype = array, tuple(array.shape), np.dtype(array.dtype)
        self.url = f"<{type(array).__name__} {self.shape}>"
        self.unit, self.sparse = tuple([1] * len(self.shape)), False

    @property
    def nbytes(self) -> int:
        """What it takes of the process's memory."""
        return int(self.array.nbytes) if isinstance(self.array, np.ndarray) else 0

    @property
    def version(self) -> str:
        """What tells the cells from others; of what is no NumPy array nobody knows, so it is never the same."""
        if not isinstance(self.array, np.ndarray):
            return uuid4().hex
        rows = max(1, _HASHED_BYTES // max(1, self.array.nbytes // max(1, len(self.array))))
        slabs = (np.ascontiguousarray(self.array[low : low + rows]) for low in range(0, len(self.array), rows))
        return "-".join([f"{crc32c(slab.reshape(-1).view(np.uint8)):08x}" for slab in slabs])

    def reserve(self, memory_bytes: int) -> int:
        return 0

    def read_into(self, box: Box, out: Cells) -> None:
        out[...] = self.array[box.slices]


@dataclass(frozen=True, slots=True)
class Recipe:
    """What is done to each cell, for arrays of one shape. It pickles if the function does."""

    function: Callable[..., Any]
    dtypes: tuple[np.dtype[Any], ...]
    boundaries: Boundaries
    shape: Shape
    stride: Shape
    reach: Reach
    strict: bool
    # Some cells of each input: what the function is tried on.
    samples: tuple[Cells, ...] = field(default=(), compare=False)
    # What the function is run by; None where it is to be made again, in another process.
    made: Kernel | None = field(default=None, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        names = [each.name for each in fields(self) if each.name != "made"]
        return Recipe, tuple([getattr(self, name) for name in names])

    def kernel(self, reach: Reach | None = None) -> Kernel:
        """Return the function made ready to run, with a wider halo if one is given."""
        if reach is None and self.made is not None:
            return self.made
        wanted = self.reach if reach is None else reach
        return compile_kernel(
            self.function, self.dtypes, len(self.shape), reach=wanted, strict=self.strict, stride=self.stride,
            samples=self.samples,
        )  # fmt: skip

    @property
    def geometry(self) -> Geometry:
        """Which cells of the inputs an output cell is made of."""
        out_shape = self.boundaries.out_shape(self.shape, self.reach, self.stride)
        return Geometry(self.shape, out_shape, self.boundaries.first(self.reach), self.stride, self.reach)


def prepare(
    function: Callable[..., Any], sources: Sequence[Any], session: Session, *, boundary: Any, stride: Any, halo: Any
) -> Recipe:
    """Find out how far a function reaches and what it gives, for some inputs."""
    shape, ndim = tuple(sources[0].shape), len(sources[0].shape)
    for each in sources:
        if tuple(each.shape) != shape:
            raise InvalidInputError(f"the inputs have shapes {shape} and {tuple(each.shape)}; they must be alike")
        if each.dtype.kind not in "biufc":
            raise InvalidInputError(f"{each.url!r} holds {each.dtype}; a function over neighbours takes numbers")
    if not ndim:
        raise InvalidInputError("an array without axes has no neighbours; give one with at least one axis")
    dtypes = tuple([np.dtype(each.dtype).newbyteorder("=") for each in sources])
    boundaries = Boundaries.of(boundary, ndim)
    boundaries.check_values(dtypes)
    steps = stride_of(stride, ndim)
    reach = None if halo is None else Reach.of(halo, ndim)
    samples = _samples(sources, dtypes, session) if prod(shape) else []
    kernel = compile_kernel(
        function, dtypes, ndim, reach=reach, strict=reach is not None, stride=steps, samples=samples
    )
    return Recipe(function, dtypes, boundaries, shape, steps, kernel.reach, reach is not None, tuple(samples), kernel)


def _samples(sources: Sequence[Any], dtypes: Sequence[np.dtype[Any]], session: Session) -> list[Cells]:
    """Read some cells from the middle of the inputs."""
    shape = sources[0].shape
    side = max(1, round(_SAMPLE_CELLS ** (1 / len(shape))))
    start = tuple([max(0, (n - side) // 2) for n in shape])
    box = Box(start, tuple([min(low + side, n) for low, n in zip(start, shape, strict=True)]))
    found = []
    for each, dtype in zip(sources, dtypes, strict=True):
        cells = np.empty(box.shape, dtype)
        _source_of(each, session).read_into(box, cells)
        found.append(cells)
    return found


def _source_of(source: Any, session: Session) -> CellSource:
    return source if isinstance(source, Held) else cells_of(source, session)


@dataclass(frozen=True, slots=True, eq=False)
class Outputs:
    """Where a job's outputs go: one target each, what writes, and what that takes.

    `objects` are the cells that are stored together, over the axes that inputs have.
    """

    targets: tuple[Target, ...]
    objects: Shape
    writer: StoreWriter
    lane_bytes: int = 0

    @property
    def local(self) -> bool:
        return isinstance(self.writer.store, LocalStore)


def common_objects(shapes: Sequence[Shape], ndim: int) -> Shape:
    """Return the smallest shape of whole objects of all outputs."""
    return tuple([lcm(*[shape[axis] for shape in shapes]) for axis in range(ndim)])


def lane_bytes_of(layouts: Sequence[Layout]) -> int:
    """Return what a thread needs that encodes and puts objects of arrays that lie like this."""
    return max([
        _LANE_OBJECTS * prod(layout.object_shape) * layout.dtype.itemsize + layout.chunk_nbytes for layout in layouts
    ])  # fmt: skip


def memory_limit(given: Any) -> int:
    """Return how many bytes the process may hold."""
    if given is None:
        return max(DEFAULT_MEMORY, memory.resident_bytes() + _MORE_MEMORY)
    return memory.parse_bytes(given)


@dataclass(frozen=True, slots=True)
class Planned:
    """How a job will be done: the splits that were compared, the best one first, and where memory goes."""

    splits: tuple[Split, ...]
    problem: Problem
    memory_bytes: int
    held_bytes: int
    read_bytes: int
    lane_bytes: int
    lanes: int
    spare_bytes: int

    @property
    def split(self) -> Split:
        """The split that is taken."""
        return self.splits[0]


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """A recipe, the arrays it is applied to, and how much memory that may take.

    `chunks` are parts as the user wants them. `at_once` is how many jobs share the memory of this process.
    """

    recipe: Recipe
    sources: tuple[Any, ...]
    session: Session
    memory_bytes: int
    chunks: Shape | None = None
    threads: int = _LANES
    at_once: int = 1

    @property
    def domain(self) -> Box:
        """All cells of the output."""
        shape = self.recipe.geometry.out_shape
        return Box((0,) * len(shape), shape)

    def units(self) -> Shape:
        """Return the output cells whose inputs are read together."""
        with self._reading() as sources:
            lengths = [max(each) for each in zip(*[source.unit for source in sources], strict=True)]
        return tuple([max(1, n // step) for n, step in zip(lengths, self.recipe.stride, strict=True)])

    def plan(self, domain: Box, objects: Shape, lane_bytes: int, *, local: bool = True) -> Planned:
        """Decide how the output cells of a domain are made; raise InvalidInputError where memory is too short."""
        with self._reading() as sources:
            return self._plan(sources, domain, objects, lane_bytes, local=local)

    def run(self, domain: Box, outputs: Outputs) -> None:
        """Make all output cells of a domain that are wanted."""
        if not domain.size:
            return
        recipe, kernel = self.recipe, self.recipe.kernel()
        with self._reading() as sources:
            planned = self._plan(sources, domain, outputs.objects, outputs.lane_bytes, local=outputs.local)
            split, geometry = planned.split, planned.problem.geometry
            streaks = list(streaks_of(domain, split, lambda box: any([each.wants(box) for each in outputs.targets])))
            inputs = Inputs(sources, recipe.dtypes, recipe.boundaries)
            reader = BlockReader(inputs, geometry, split, streaks)
            stage = Computing(
                kernel, inputs, geometry, reader, outputs.targets, widen=recipe.kernel, threads=self.threads
            )
            # A remote store may still look at the bytes of a put that was given up.
            nbytes = prod(split.part) * planned.problem.out_bytes
            buffers = Buffers(split.depth, nbytes, reuse=outputs.local)
            part = np.dtype((np.void, planned.problem.out_bytes))

            def stop() -> None:
                reader.stop()
                _close(sources)

            with _claiming(planned):
                try:
                    run_stage(outputs.writer, stage, part, buffers, planned.lanes, stop)
                finally:
                    reader.close()

    @contextmanager
    def _reading(self) -> Iterator[list[CellSource]]:
        """Give what reads the inputs, in a session that keeps no chunk."""
        with self.session.apart(index_bytes=_INDEX_BYTES) as session:
            yield [_source_of(each, session) for each in self.sources]

    def _plan(
        self, sources: Sequence[CellSource], domain: Box, objects: Shape, lane_bytes: int, *, local: bool
    ) -> Planned:
        kernel, limit = self.recipe.kernel(), self.memory_bytes
        # What the user holds is not the job's.
        given = sum([each.nbytes for each in self.sources if isinstance(each, Held)])
        held, spare = max(0, memory.resident_bytes() - given - sum(_claimed.values())), _SPARE_BYTES
        read_bytes = max([each.reserve(limit) for each in sources])
        # Another process may have found that it reaches further than it did here.
        geometry = replace(self.recipe.geometry, reach=kernel.reach)
        inputs = tuple([_input(each, dtype) for each, dtype in zip(sources, self.recipe.dtypes, strict=True)])
        problem = Problem(geometry, domain, inputs, objects, cell_bytes(kernel.outputs))
        free = (limit - held - spare) // self.at_once - read_bytes
        if free < lane_bytes:
            raise _refused(limit, held, spare + read_bytes + lane_bytes)
        lanes = max(1, min(_LANES if local else _REMOTE_LANES, (free // 2) // max(1, lane_bytes)))
        splits = choose_split(problem, free - lanes * lane_bytes, self._times(sources), self.chunks)
        return Planned(splits, problem, limit, held, read_bytes, lane_bytes, lanes, spare)

    def _times(self, sources: Sequence[CellSource]) -> Any:
        """Return what predicts how long reading takes, by the store of the first input that is stored."""
        stored = [each for each in sources if isinstance(each, StoredCells)]
        return self.session.model(stored[0].store if stored else LocalStore(os.sep))


# What jobs that run have taken, or will: another one in this process must not take it for somebody else's.
_claimed: dict[int, int] = {}


@contextmanager
def _claiming(planned: Planned) -> Iterator[None]:
    _claimed[id(planned)] = planned.split.buffer_bytes + planned.lanes * planned.lane_bytes + planned.read_bytes
    try:
        yield
    finally:
        del _claimed[id(planned)]


def _input(source: CellSource, dtype: np.dtype[Any]) -> Input:
    encoded = isinstance(source, StoredCells) and not source.source.layout.plain
    unit = [max(1, n) for n in source.unit]
    if isinstance(source, StoredCells) and source.mapped:
        # Of a plain file any part can be read; the disk gives pages.
        cells = max(1, _PAGE_BYTES // dtype.itemsize)
        for axis in reversed(source.source.layout.order or range(len(unit))):
            unit[axis] = min(unit[axis], cells)
            cells = max(1, cells // unit[axis])
    return Input(tuple(unit), dtype.itemsize, encoded)


def _close(sources: Sequence[CellSource]) -> None:
    """Let nobody wait for a block that is being read."""
    for each in sources:
        if isinstance(each, StoredCells):
            each.session.close()


def _refused(limit: int, held: int, needed: int) -> InvalidInputError:
    return InvalidInputError(
        f"memory_bytes is {say_bytes(limit)}; the process holds {say_bytes(held)} already, and reading and writing "
        f"take {say_bytes(needed)} beside the parts that are worked on; allow more, or choose smaller chunks or shards"
    )


def stored_inputs(sources: Sequence[Any]) -> list[Opened]:
    """Return the inputs as what other processes can open; raise InvalidInputError for those that are in memory."""
    for each in sources:
        if isinstance(each, Held):
            raise InvalidInputError(f"{each.url} is in this process's memory; save it, so that others can read it")
    return [Opened(cast(Any, each).source, cast(Any, each).store) for each in sources]
