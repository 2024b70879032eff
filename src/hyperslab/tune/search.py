"""The search for the form in which reads cost least: chunks and objects together, by descent from many starts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from math import log2, prod

import numpy as np

from hyperslab.formats.zarr.sizes import OBJECT_BYTES, choose_sizes
from hyperslab.plan import CostModel
from hyperslab.tune.figures import Figures, figures_of
from hyperslab.tune.forms import Form, Shape, Shrink
from hyperslab.tune.models import iar_real
from hyperslab.tune.reads import Reads

__all__ = ["Bounds", "Found", "search"]

# Descents are made on so many reads; the best forms are then compared on all of them.
_SOME_READS = 256
_MOST_READS = 4096
_FINALISTS = 24
# Chunks that descents start from have so many bytes.
_START_BYTES = (1 << 12, 1 << 15, 1 << 18, 1 << 21)
# Shapes of reads, the commonest first, that descents start from one by one.
_START_SHAPES = 3
# How many forms are priced at most.
_MOST_TRIED = 3000
# Of two forms that are nearly as good, the one with objects of the usual size: each halving or doubling counts so much.
_UNUSUAL = 0.002


@dataclass(frozen=True, slots=True)
class Bounds:
    """What forms are considered: bytes of objects and of chunks, decoded, and how many chunks an object may hold.

    A chunk that is an object of its own, and must be read whole, may be smaller than other objects: `least_lone_bytes`,
    or less, but not below `few_lone_bytes`, where that makes no more than `few_objects` of the array.
    """

    least_object_bytes: int = 1 << 20
    most_object_bytes: int = 32 << 20
    least_chunk_bytes: int = 1 << 10
    most_chunk_bytes: int = 16 << 20
    least_lone_bytes: int = 1 << 17
    few_lone_bytes: int = 1 << 14
    few_objects: int = 1 << 14
    most_chunks: int = 4096
    most_objects: int = 1 << 20

    def least_of_lone(self, nbytes: int) -> int:
        """Return the least size of chunks that are objects of their own, in an array of so many bytes."""
        return min(self.least_lone_bytes, max(self.few_lone_bytes, nbytes // self.few_objects))

    def hold(self, form: Form, shape: Shape, itemsize: int) -> bool:
        """Whether a form is within the bounds; what they ask of objects, a small array need not fulfil."""
        whole = prod([-(-length // size) * size for length, size in zip(shape, form.chunks, strict=True)]) * itemsize
        chunk_bytes, object_bytes = prod(form.chunks) * itemsize, prod(form.objects) * itemsize
        return (
            min(self.least_chunk_bytes, whole) <= chunk_bytes <= max(self.most_chunk_bytes, itemsize)
            and min(self.least_object_bytes, whole) <= object_bytes <= max(self.most_object_bytes, itemsize)
            and form.chunks_per_object <= self.most_chunks
            and form.object_count(shape) <= self.most_objects
        )


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """A form and what the reads cost in it."""

    form: Form
    figures: Figures
    cost: float


def search(
    reads: Reads,
    itemsize: int,
    model: CostModel,
    shrink: Shrink,
    *,
    plain: bool = False,
    bounds: Bounds | None = None,
    also: Sequence[Form] = (),
) -> list[Found]:
    """Return forms for an array that is read so, the best first; those in `also` are among what it starts from.

    Chunks are put into shards, or objects of their own; `plain` ones always are.
    """
    bounds, some_reads = bounds or Bounds(), reads.sample(_SOME_READS)
    least = bounds.least_object_bytes if plain else bounds.least_of_lone(prod(reads.shape) * itemsize)
    alone = replace(
        bounds, least_object_bytes=least, least_chunk_bytes=least, most_chunk_bytes=bounds.most_object_bytes
    )
    spaces = [_Search(some_reads, itemsize, model, shrink, alone, lone=True, plain=plain)]
    if not plain:
        spaces.append(_Search(some_reads, itemsize, model, shrink, bounds, lone=False, plain=False))
    tried: dict[Form, float] = {}
    for space in spaces:
        for start in dict.fromkeys([*_starts(space), *[form for form in also if space.allows(form)]]):
            space.descend(start)
        tried |= space.tried
    best = sorted(tried, key=tried.__getitem__)[:_FINALISTS]
    everything = reads.sample(_MOST_READS)
    found = []
    for form in best:
        figures = figures_of(form, everything, itemsize, model, shrink)
        found.append(Found(form, figures, everything.mean(figures.cost) * _handicap(form, itemsize)))
    return sorted(found, key=lambda each: each.cost)


def _handicap(form: Form, itemsize: int) -> float:
    return 1 + _UNUSUAL * abs(log2(prod(form.objects) * itemsize / OBJECT_BYTES))


@dataclass(slots=True, eq=False)
class _Search:
    """Forms that were priced, on some of the reads."""

    reads: Reads
    itemsize: int
    model: CostModel
    shrink: Shrink
    bounds: Bounds
    lone: bool
    plain: bool
    tried: dict[Form, float] = field(default_factory=dict)
    lengths: list[list[int]] = field(init=False)

    def __post_init__(self) -> None:
        self.lengths = [_lengths(n, self.reads.counts[:, axis]) for axis, n in enumerate(self.reads.shape)]

    def allows(self, form: Form) -> bool:
        fits = form.plain == self.plain and (form.shards is None or not self.lone)
        return fits and self.bounds.hold(form, self.reads.shape, self.itemsize)

    def price(self, form: Form) -> float:
        if form not in self.tried:
            figures = figures_of(form, self.reads, self.itemsize, self.model, self.shrink)
            self.tried[form] = self.reads.mean(figures.cost) * _handicap(form, self.itemsize)
        return self.tried[form]

    def descend(self, form: Form) -> None:
        """Go to the best neighbour as long as one is better."""
        cost = self.price(form)
        while len(self.tried) < _MOST_TRIED:
            near = [each for each in dict.fromkeys(self.near(form)) if self.allows(each)]
            best = min(near, key=self.price, default=form)
            if self.price(best) >= cost * (1 - 1e-6):
                return
            form, cost = best, self.price(best)

    def near(self, form: Form) -> Iterator[Form]:
        """Yield forms with chunks a little longer or shorter along an axis or two, and objects likewise."""
        axes = range(len(form.chunks))
        for axis in axes:
            for step in (1, -1, 3, -3):
                if (chunks := self._moved(form.chunks, axis, step)) is not None:
                    yield self._with_chunks(form, chunks)
        for longer, shorter in permutations(axes, 2):
            chunks = self._moved(form.chunks, longer, 2)
            if chunks is not None and (chunks := self._moved(chunks, shorter, -2)) is not None:
                yield self._with_chunks(form, chunks)
        if not self.lone:
            yield from self._near_objects(form)

    def _moved(self, chunks: Shape, axis: int, step: int) -> Shape | None:
        lengths = self.lengths[axis]
        at = int(np.searchsorted(lengths, chunks[axis]))
        if step < 0 and (at >= len(lengths) or lengths[at] != chunks[axis]):
            at += 1
        at = min(max(at + step, 0), len(lengths) - 1) if len(lengths) > 1 else 0
        return None if lengths[at] == chunks[axis] else (*chunks[:axis], lengths[at], *chunks[axis + 1 :])

    def _with_chunks(self, form: Form, chunks: Shape) -> Form:
        """Return the form with other chunks, and objects of about the size that they had."""
        if self.lone:
            return Form(chunks, chunks, self.plain)
        counts = [max(1, round(whole / part)) for whole, part in zip(form.objects, chunks, strict=True)]
        return self._form(chunks, counts)

    def _form(self, chunks: Shape, counts: Sequence[int]) -> Form:
        grid = [-(-length // size) for length, size in zip(self.reads.shape, chunks, strict=True)]
        sizes = [size * min(count, most) for size, count, most in zip(chunks, counts, grid, strict=True)]
        return Form(chunks, tuple(sizes), self.plain)

    def _near_objects(self, form: Form) -> Iterator[Form]:
        counts = [whole // part for whole, part in zip(form.objects, form.chunks, strict=True)]
        axes = range(len(counts))
        for axis in axes:
            for count in (2 * counts[axis], -(-counts[axis] // 2), 1):
                yield self._form(form.chunks, [*counts[:axis], count, *counts[axis + 1 :]])
        for longer, shorter in permutations(axes, 2):
            changed = list(counts)
            changed[longer], changed[shorter] = 2 * changed[longer], -(-changed[shorter] // 2)
            yield self._form(form.chunks, changed)


def _lengths(length: int, counts: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> list[int]:
    """Return the lengths that chunks may have along an axis: about three to a doubling, even parts, those of reads."""
    length = max(1, length)
    found = {1, length}
    size = 1
    while size < length:
        found |= {size, size + size // 4, size + size // 2}
        size *= 2
    found |= {-(-length // parts) for parts in range(2, 9)}
    values, often = np.unique(counts, return_counts=True)
    found |= set(values[np.argsort(-often)][:8].tolist())
    return sorted(n for n in found if 1 <= n <= length)


def _starts(space: _Search) -> Iterator[Form]:
    """Yield forms to start from: the default, chunks shaped like the mean read, chunks shaped like the commonest."""
    reads, itemsize = space.reads, space.itemsize
    chunks, shards = choose_sizes(reads.shape, itemsize, lone_bytes=OBJECT_BYTES if space.lone else None)
    yield from _allowed(space, chunks, shards)
    for reach in _shapes_of(reads):
        for nbytes in _START_BYTES if not space.lone else (1 << 20, 1 << 22, 1 << 24):
            cells = max(1, nbytes // itemsize)
            sizes = iar_real(np.maximum(reach - 1, 1e-3), min(cells, prod(reads.shape)), limits=reads.shape)
            chunks = tuple([int(min(max(1, round(size)), n)) for size, n in zip(sizes, reads.shape, strict=True)])
            yield from _allowed(
                space, chunks, None if space.lone else choose_sizes(reads.shape, itemsize, chunks=chunks)[1]
            )


def _allowed(space: _Search, chunks: Shape, shards: Shape | None) -> Iterator[Form]:
    form = Form(chunks, shards or chunks, space.plain)
    if space.allows(form):
        yield form


def _shapes_of(reads: Reads) -> list[np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
    """Return the mean shape of reads, and the commonest shapes."""
    counts = reads.counts.astype(np.float64)
    shapes, which = np.unique(counts, axis=0, return_inverse=True)
    weights = np.bincount(which.reshape(-1), reads.weights)
    return [reads.weights @ counts, *shapes[np.argsort(-weights)][:_START_SHAPES]]
