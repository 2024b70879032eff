"""In which order samples come: shuffled in each epoch, or by blocks of chunks; in windows that are read at once."""

from collections.abc import Iterable, Iterator
from itertools import islice

import numpy as np
import numpy.typing as npt
import torch.distributed
from torch.utils.data import Sampler

from hyperslab.errors import InvalidInputError
from hyperslab.torch.dataset import SlabDataset

__all__ = ["BlockSampler", "ShuffledSampler", "Windows", "cut_for_rank", "ranks"]

Ints = npt.NDArray[np.int64]
# What reading still more samples at once can gain is not worth the wait for the first of them.
_MOST_SAMPLES = 512


class ShuffledSampler(Sampler[int]):
    """Every sample once per epoch, in an order that the seed and the epoch decide."""

    def __init__(self, length: int, seed: int) -> None:
        self.length, self.seed, self.epoch = length, seed, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[int]:
        return iter(np.random.default_rng((self.seed, self.epoch)).permutation(self.length).tolist())


class BlockSampler(Sampler[int]):
    """Shuffles chunks, not samples: those that begin in one chunk come near each other, so that it is fetched once.

    In each epoch the chunks are shuffled and dealt into groups of `blocks`; within a group the samples are shuffled.
    Every sample comes once per epoch, and each is equally likely to come at any place of it. But a batch is no
    independent draw: its samples are of at most `blocks` chunks (two groups, where it lies across a border), so that
    they are as alike as neighbours in the array are, and the gradients of batches vary more. With more blocks that
    effect grows less, and a group takes more memory; with as many as the array has chunks it is a full shuffle. Where
    the order of samples in the array means nothing (rows that were shuffled when they were written), it costs nothing.

    dataset       the SlabDataset whose samples are drawn
    blocks        chunks in a group
    seed          decides the order, with the epoch (`set_epoch`, which SlabLoader calls)
    num_replicas, rank  how many ranks train together, and which this is (default: as torch.distributed says, if it is
                  in use); each gets a run of the order, all equally long: at the end some samples come twice, as with
                  DistributedSampler

    >>> import hyperslab as hs
    >>> cells = hs.save("memory://torch/cells", np.arange(12), chunks=(4,))
    >>> order = list(BlockSampler(SlabDataset(cells, range(12)), blocks=1, seed=3))
    >>> [sorted(order[start:start + 4]) for start in (0, 4, 8)]
    [[8, 9, 10, 11], [4, 5, 6, 7], [0, 1, 2, 3]]
    """

    def __init__(
        self,
        dataset: SlabDataset,
        *,
        blocks: int = 16,
        seed: int = 0,
        num_replicas: int | None = None,
        rank: int | None = None,
    ) -> None:
        if blocks < 1:
            raise InvalidInputError(f"a group has 1 block or more, not {blocks}")
        self.blocks, self.seed, self.epoch = blocks, seed, 0
        self.num_replicas, self.rank = ranks(num_replicas, rank)
        self._block_of = dataset.blocks()

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return (len(self._block_of) + self.num_replicas - 1) // self.num_replicas

    def __iter__(self) -> Iterator[int]:
        random = np.random.default_rng((self.seed, self.epoch))
        count = int(self._block_of.max()) + 1 if len(self._block_of) else 0
        groups = random.permutation(count)[self._block_of] // self.blocks
        order = np.lexsort((random.random(len(groups)), groups))
        return iter(cut_for_rank(order, self.num_replicas, self.rank).tolist())


def ranks(num_replicas: int | None, rank: int | None) -> tuple[int, int]:
    """Return how many processes train together, and which of them this is."""
    if (num_replicas is None) != (rank is None):
        raise InvalidInputError("num_replicas and rank are given together, or both left to torch.distributed")
    if num_replicas is None or rank is None:
        used = torch.distributed.is_available() and torch.distributed.is_initialized()
        return (torch.distributed.get_world_size(), torch.distributed.get_rank()) if used else (1, 0)
    if not 0 <= rank < num_replicas:
        raise InvalidInputError(f"rank is from 0 to {num_replicas - 1}, not {rank}")
    return num_replicas, rank


def cut_for_rank(order: Ints, num_replicas: int, rank: int) -> Ints:
    """Return the run of an order that is a rank's; samples from the start fill the last one up.

    >>> [cut_for_rank(np.arange(5), 2, rank).tolist() for rank in (0, 1)]
    [[0, 1, 2], [3, 4, 0]]
    """
    if not len(order):
        return order
    each = -(-len(order) // num_replicas)
    return np.resize(order, each * num_replicas)[rank * each : (rank + 1) * each]


class Windows(Sampler[list[list[int]]]):
    """Batches in windows, each of which is read by one plan: within a limit of bytes, the first ones small.

    A model waits for the first batch alone; later ones come many at a time. `skip` batches are left out: they were
    seen before training was broken off.

    >>> windows = Windows([[0, 1], [2, 3], [4, 5], [6]], np.full(7, 10), limit_bytes=40)
    >>> list(windows)
    [[[0, 1]], [[2, 3], [4, 5]], [[6]]]
    """

    def __init__(self, batches: Iterable[list[int]], nbytes: Ints, limit_bytes: int) -> None:
        self.batches, self.nbytes, self.limit_bytes = batches, nbytes, limit_bytes
        self.skip = 0

    def __iter__(self) -> Iterator[list[list[int]]]:
        window: list[list[int]] = []
        held, samples, most = 0, 0, 1
        for batch in islice(self.batches, self.skip, None):
            size = int(self.nbytes[batch].sum())
            full = held + size > self.limit_bytes or samples + len(batch) > _MOST_SAMPLES
            if window and (full or len(window) >= most):
                yield window
                window, held, samples, most = [], 0, 0, 2 * most
            window.append(batch)
            held, samples = held + size, samples + len(batch)
        if window:
            yield window
