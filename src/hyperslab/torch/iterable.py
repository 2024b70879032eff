"""Whole epochs: all samples of a dataset in the order in which their chunks lie, each chunk read once.

Chunks are read in windows. What a window has of a sample is put in place, and a sample comes out when its last
chunk has been seen; so no chunk need be held, only samples that lie across windows.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import IterableDataset, get_worker_info

from hyperslab.array import Array, read_many
from hyperslab.errors import InvalidInputError
from hyperslab.torch.dataset import SlabDataset
from hyperslab.torch.samplers import cut_for_rank, ranks

__all__ = ["SlabIterable"]

Ints = npt.NDArray[np.int64]


class SlabIterable(IterableDataset[Any]):
    """All samples of a SlabDataset, once per epoch, chunk after chunk: for PyTorch's own DataLoader.

    dataset         a SlabDataset whose boxes are of neighbouring cells (no steps, no lists)
    shuffle_buffer  samples among which the next one is drawn (default 0: none). The order stays local: a sample comes
                    about `shuffle_buffer` places from where its chunk lies in the array, hardly ever much further, so
                    the start of an epoch is always of the array's start. For more randomness take a SlabLoader with
                    shuffle="blocks"
    memory_bytes    what is read at a time, and read ahead; samples that wait for another chunk come on top
    num_replicas, rank  how many ranks train together, and which this is (default: as torch.distributed says, if it is
                    in use); each gets a run of samples, all equally many: at the end some come twice, as with
                    DistributedSampler

    Every chunk that a sample needs is fetched and decoded once per epoch. The samples are cut into runs for ranks and
    for the workers of the DataLoader: a chunk where two runs meet is read for both.

    >>> import hyperslab as hs
    >>> from torch.utils.data import DataLoader
    >>> cells = hs.save("memory://torch/epoch", np.arange(8), chunks=(4,))
    >>> samples = SlabDataset(cells, np.array([[[4, 6]], [[0, 2]], [[3, 5]]]))
    >>> [batch.tolist() for batch in DataLoader(SlabIterable(samples), batch_size=2)]
    [[[0, 1], [3, 4]], [[4, 5]]]
    """

    def __init__(
        self,
        dataset: SlabDataset,
        *,
        shuffle_buffer: int = 0,
        memory_bytes: int = 64 << 20,
        num_replicas: int | None = None,
        rank: int | None = None,
    ) -> None:
        if not isinstance(dataset, SlabDataset):
            raise InvalidInputError(f"a SlabIterable is of a SlabDataset, not {type(dataset).__name__}")
        if shuffle_buffer < 0 or memory_bytes < 1:
            raise InvalidInputError(f"shuffle_buffer is 0 or more, not {shuffle_buffer}; memory_bytes above 0")
        self.dataset, self.shuffle_buffer, self.memory_bytes = dataset, shuffle_buffer, memory_bytes
        self.num_replicas, self.rank = ranks(num_replicas, rank)
        self._epochs = 0

    def __len__(self) -> int:
        return (len(self.dataset) + self.num_replicas - 1) // self.num_replicas

    def __iter__(self) -> Iterator[Any]:
        self.dataset.take_share()
        order = np.argsort(self.dataset.blocks(), kind="stable")
        order = cut_for_rank(order, self.num_replicas, self.rank)
        info = get_worker_info()
        if info is not None:
            order = np.array_split(order, info.num_workers)[info.id]
        seed = info.seed if info is not None else int(torch.randint(1 << 62, ()).item())
        self._epochs += 1
        found = _Sweep(self.dataset, order, self.memory_bytes).samples()
        return _shuffled(found, self.shuffle_buffer, np.random.default_rng((seed, self._epochs)))


@dataclass(slots=True)
class _Open:
    """A sample that waits for chunks: the cells of its parts, views to put them in place, and how many are missing."""

    cells: list[npt.NDArray[Any]]
    views: list[npt.NDArray[Any]]
    missing: int


@dataclass(frozen=True, slots=True, eq=False)
class _Pieces:
    """What samples have of the chunks of one array: a row for each pair that meets, by chunk."""

    array: int
    samples: Ints  # places in the order
    chunks: Ints
    lows: Ints
    highs: Ints


class _Sweep:
    """One pass over samples in an order."""

    def __init__(self, dataset: SlabDataset, order: Ints, memory_bytes: int) -> None:
        self.dataset, self.order, self.memory_bytes = dataset, order, memory_bytes
        self.pieces = [each for array in range(len(dataset.arrays)) if (each := self._pieces_of(array)) is not None]
        self.missing = np.zeros(len(order), np.int64)
        for each in self.pieces:
            np.add.at(self.missing, each.samples, 1)
        self.open: dict[int, _Open] = {}

    def samples(self) -> Iterator[Any]:
        """Give each sample when its last chunk has been read."""
        for place in np.flatnonzero(self.missing == 0).tolist():
            yield self._finished(place, self._opened(place))
        with ThreadPoolExecutor(1, thread_name_prefix="hyperslab-epoch") as pool:
            windows = self._windows()
            reading = self._ahead(pool, windows)
            while reading is not None:
                window, values = reading[0], reading[1].result()
                reading = self._ahead(pool, windows)
                for (pieces, rows), cells in zip(window, values, strict=True):
                    yield from self._placed(pieces, rows, cells)

    def _ahead(self, pool: ThreadPoolExecutor, windows: Iterator[Any]) -> tuple[Any, Future[list[Any]]] | None:
        window = next(windows, None)
        return None if window is None else (window, pool.submit(self._read, window))

    def _read(self, window: list[tuple[_Pieces, Ints]]) -> list[Any]:
        """Read, by one plan, of each chunk the box around all that is wanted of it."""
        pairs = []
        for pieces, rows in window:
            lows, highs = pieces.lows[rows].min(axis=0), pieces.highs[rows].max(axis=0)
            key = tuple([slice(low, high) for low, high in zip(lows.tolist(), highs.tolist(), strict=True)])
            pairs.append((self.dataset.arrays[pieces.array], key))
        return read_many(pairs)

    def _placed(self, pieces: _Pieces, rows: Ints, cells: npt.NDArray[Any]) -> Iterator[Any]:
        """Put a chunk's cells into the samples that want them; give those that are complete."""
        origin = pieces.lows[rows].min(axis=0)
        for row in rows.tolist():
            place = int(pieces.samples[row])
            part, at = self._part_of(place, pieces.array)
            sample = self.open.get(place) or self._opened(place)
            low, high = pieces.lows[row], pieces.highs[row]
            first = self.dataset.parts[pieces.array].lows[at]
            sample.views[part][_slices(low - first, high - first)] = cells[_slices(low - origin, high - origin)]
            sample.missing -= 1
            if not sample.missing:
                yield self._finished(place, sample)

    def _part_of(self, place: int, array: int) -> tuple[int, int]:
        """Return which part of a sample is of an array, and its place among the boxes of that array."""
        places = self.dataset.places(int(self.order[place]))
        part = [each for each, _ in places].index(array)
        return part, places[part][1]

    def _opened(self, place: int) -> _Open:
        parts = self.dataset.selections(int(self.order[place]))
        cells = [np.empty(selection.result_shape, self.dataset.arrays[array].dtype) for array, selection in parts]
        views = [selection.target(each) for (_, selection), each in zip(parts, cells, strict=True)]
        self.open[place] = _Open(cells, views, int(self.missing[place]))
        return self.open[place]

    def _finished(self, place: int, sample: _Open) -> Any:
        del self.open[place]
        number = int(self.order[place])
        scalars = [selection.scalar for _, selection in self.dataset.selections(number)]
        cells = [each[()] if scalar else each for each, scalar in zip(sample.cells, scalars, strict=True)]
        return self.dataset.finish([number], [self.dataset.assemble(cells)])[0]

    def _windows(self) -> Iterator[list[tuple[_Pieces, Ints]]]:
        """Give chunks, in the order in which samples first want them, as many at a time as half the memory holds."""
        chunks = []
        for pieces in self.pieces:
            by_chunk = np.lexsort((pieces.samples, pieces.chunks))
            ends = np.flatnonzero(np.diff(pieces.chunks[by_chunk])) + 1
            chunks += [(int(pieces.samples[rows[0]]), pieces, rows) for rows in np.split(by_chunk, ends)]
        chunks.sort(key=lambda chunk: chunk[0])
        window: list[tuple[_Pieces, Ints]] = []
        held = 0
        for _, pieces, rows in chunks:
            array = self.dataset.arrays[pieces.array]
            nbytes = int(np.prod(array.chunks, dtype=np.int64)) * array.dtype.itemsize
            if window and held + nbytes > self.memory_bytes // 2:
                yield window
                window, held = [], 0
            window.append((pieces, rows))
            held += nbytes
        if window:
            yield window

    def _pieces_of(self, array: int) -> _Pieces | None:
        """Return what the samples have of the chunks of an array, None if they have nothing of it."""
        boxes = self.dataset.parts[array]
        places, rows = self.dataset.boxes_in(array, self.order)
        if not boxes.whole(rows):
            raise InvalidInputError(
                "a SlabIterable takes boxes of neighbouring cells; read keys with steps, lists or masks by a SlabLoader"
            )
        filled = (boxes.counts[rows] > 0).all(axis=1)
        places, rows = places[filled], rows[filled]
        return _cut(array, self.dataset.arrays[array], places, boxes.lows[rows], boxes.counts[rows])


def _cut(number: int, array: Array, places: Ints, lows: Ints, counts: Ints) -> _Pieces | None:
    """Cut boxes at the borders of an array's chunks."""
    if not len(places):
        return None
    sizes, highs = np.array(array.chunks, np.int64), lows + counts
    firsts = lows // sizes
    grid = (highs - 1) // sizes - firsts + 1
    each = grid.prod(axis=1)
    boxes = np.repeat(np.arange(len(places)), each)
    # Count through the chunks of each box, the last axis first.
    rest = np.arange(len(boxes)) - np.repeat(each.cumsum() - each, each)
    chunks = np.empty((len(boxes), len(sizes)), np.int64)
    for axis in reversed(range(len(sizes))):
        rest, chunks[:, axis] = np.divmod(rest, grid[boxes, axis])
    chunks += firsts[boxes]
    numbers = np.zeros(len(boxes), np.int64)
    for axis, size in enumerate(sizes.tolist()):
        numbers = numbers * -(-array.shape[axis] // size) + chunks[:, axis]
    starts, stops = np.maximum(lows[boxes], chunks * sizes), np.minimum(highs[boxes], (chunks + 1) * sizes)
    return _Pieces(number, places[boxes], numbers, starts, stops)


def _slices(lows: Ints, highs: Ints) -> tuple[slice, ...]:
    return tuple([slice(low, high) for low, high in zip(lows.tolist(), highs.tolist(), strict=True)])


def _shuffled(samples: Iterator[Any], buffer: int, random: np.random.Generator) -> Iterator[Any]:
    """Draw each next sample among `buffer` of them."""
    held: list[Any] = []
    for sample in samples:
        held.append(sample)
        if len(held) > buffer:
            at = int(random.integers(len(held)))
            held[at], held[-1] = held[-1], held[at]
            yield held.pop()
    random.shuffle(held)
    yield from held
