"""A loader that reads ahead: the next batches are on their way while a model works on this one."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any, Literal

import numpy as np
import torch
from torch.utils.data import BatchSampler, Sampler, SequentialSampler

from hyperslab.errors import InvalidInputError
from hyperslab.torch.dataset import SlabDataset
from hyperslab.torch.fetching import AHEAD, Fetcher, ThreadFetcher, WorkerFetcher
from hyperslab.torch.samplers import BlockSampler, ShuffledSampler, Windows
from hyperslab.torch.tensors import stack

__all__ = ["SlabLoader"]

# Without a wish of the user's; and then at least one batch for each worker.
_PREFETCH_BYTES = 256 << 20
Shuffle = bool | Literal["blocks"]


class SlabLoader:
    """Batches of a SlabDataset, read ahead within a limit of memory; arguments are those of PyTorch's DataLoader.

    dataset         a SlabDataset
    batch_size      samples in a batch
    shuffle         True: all samples, anew in each epoch. "blocks": chunks are shuffled, and samples within groups of
                    them, so that a chunk is fetched once; what that does to randomness, BlockSampler tells
    sampler         gives the order instead, e.g. a DistributedSampler or a BlockSampler; or give a `batch_sampler`
    num_workers     processes that read, transform and collate. With 0 threads read ahead, and the rest is done by the
                    thread that iterates: often enough, as reading is waiting
    collate_fn      makes a batch of samples (default: `stack`); for boxes of different shapes `pad` or `as_list`
    prefetch_bytes  what may be in memory of samples that were read and not yet handed out, counted as they are stored
                    (default: 256 MiB, but at least one batch for each worker). Every worker also has a cache and
                    buffers, as the arrays' session says
    seed            decides the order, with the epoch (default: drawn from PyTorch's generator)
    drop_last, pin_memory, timeout, worker_init_fn, multiprocessing_context, persistent_workers  as for DataLoader

    Several batches at a time are read by one plan (a window), so chunks that they share are fetched and decoded once.
    Workers may be started by fork, spawn or forkserver. They get equal shares of the session's budget; what they used
    and did is added to the session's account and metrics. An error in a worker arrives as it was raised.

    The loader counts epochs and tells its sampler (`set_epoch`). `state_dict` says which epoch it is and how many
    batches of it were handed out; a loader of the same dataset that gets it by `load_state_dict` goes on with the next
    batch. A sampler of your own must give the same order for the same epoch, or have a torch.Generator as `generator`.

    >>> import hyperslab as hs
    >>> cells = hs.save("memory://torch/loaded", np.arange(6), chunks=(2,))
    >>> loader = SlabLoader(SlabDataset(cells, range(6)), batch_size=2)
    >>> batches = iter(loader)
    >>> next(batches)
    tensor([0, 1])
    >>> resumed = SlabLoader(SlabDataset(cells, range(6)), batch_size=2)
    >>> resumed.load_state_dict(loader.state_dict())
    >>> list(resumed)
    [tensor([2, 3]), tensor([4, 5])]
    """

    def __init__(
        self,
        dataset: SlabDataset,
        batch_size: int = 1,
        shuffle: Shuffle = False,
        sampler: Sampler[int] | Iterable[int] | None = None,
        batch_sampler: Sampler[list[int]] | Iterable[list[int]] | None = None,
        *,
        num_workers: int = 0,
        collate_fn: Callable[[Sequence[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        prefetch_bytes: int | None = None,
        seed: int | None = None,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        persistent_workers: bool = False,
    ) -> None:
        _check(dataset, shuffle, sampler, batch_sampler, num_workers)
        self.dataset, self.batch_size, self.num_workers = dataset, batch_size, num_workers
        self.seed = _drawn_seed() if seed is None else seed
        self.sampler: Any = sampler if sampler is not None else self._own_sampler(shuffle)
        self.batch_sampler: Any = batch_sampler
        if batch_sampler is None:
            self.batch_sampler = BatchSampler(self.sampler, batch_size, drop_last)
        else:
            self.sampler = getattr(batch_sampler, "sampler", batch_sampler)
        options = {
            "timeout": timeout, "worker_init_fn": worker_init_fn, "multiprocessing_context": multiprocessing_context,
            "persistent_workers": persistent_workers,
        }  # fmt: skip
        collate = stack if collate_fn is None else collate_fn
        self._fetcher: Fetcher = (
            WorkerFetcher(dataset, collate, pin_memory, num_workers, options, [])
            if num_workers
            else ThreadFetcher(dataset, collate, pin_memory)
        )
        self._windows = Windows(self.batch_sampler, dataset.nbytes, self._window_bytes(prefetch_bytes))
        self._epoch, self._given, self._resumes = 0, 0, False
        self._told_epoch = getattr(self.sampler, "epoch", None)
        self._order = _order_of(self.sampler)

    def __len__(self) -> int:
        """The batches of an epoch."""
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator[Any]:
        self._windows.skip = self._given = self._begin()
        return self._batches()

    def set_epoch(self, epoch: int) -> None:
        """Go on with the start of this epoch."""
        self._epoch, self._given, self._resumes = epoch, 0, False

    def state_dict(self) -> dict[str, Any]:
        """Return where the loader is: plain values, to be saved with the model."""
        return {
            "epoch": self._epoch, "batches": self._given, "seed": self.seed, "samples": len(self.dataset),
            "batch_size": self.batch_size, "order": self._order,
        }  # fmt: skip

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where another loader was, which must have had as many samples in batches of the same size."""
        for name, here in (("samples", len(self.dataset)), ("batch_size", self.batch_size)):
            if state.get(name) != here:
                raise InvalidInputError(f"the state is of a loader with {name} {state.get(name)}, this one has {here}")
        self.seed, self._epoch, self._given = state["seed"], state["epoch"], state["batches"]
        if isinstance(self.sampler, (ShuffledSampler, BlockSampler)):
            self.sampler.seed = self.seed
        if state["order"] is not None:
            self.sampler.generator.set_state(state["order"])
        self._resumes = True

    def _begin(self) -> int:
        """Turn to the next epoch, or on with the one that was resumed; return how many batches of it to leave out."""
        skip = self._given if self._resumes else 0
        if self._given and not self._resumes:
            self._epoch += 1  # the last one was broken off
        self._resumes = False
        told = getattr(self.sampler, "epoch", None)
        if told not in (None, self._told_epoch, self._epoch):
            self._epoch, skip = told, 0  # by the user, as is usual with DistributedSampler
        if hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(self._epoch)
            self._told_epoch = self._epoch
        self._order = _order_of(self.sampler)
        return skip

    def _batches(self) -> Iterator[Any]:
        with closing(self._fetcher.batches(self._windows)) as batches:
            for batch in batches:
                self._given += 1
                yield batch
        self._epoch, self._given = self._epoch + 1, 0

    def _own_sampler(self, shuffle: Shuffle) -> Sampler[int]:
        if shuffle == "blocks":
            return BlockSampler(self.dataset, seed=self.seed, num_replicas=1, rank=0)
        return ShuffledSampler(len(self.dataset), self.seed) if shuffle else SequentialSampler(self.dataset)

    def _window_bytes(self, prefetch_bytes: int | None) -> int:
        """Return how large a window may be: so many at a time that all of them fit."""
        held = self._fetcher.windows_held()
        limit = (_PREFETCH_BYTES if prefetch_bytes is None else prefetch_bytes) // held
        largest = self._largest_batch()
        if prefetch_bytes is not None and largest > limit:
            raise InvalidInputError(
                f"a batch may have {largest:,} bytes, of which {held} are in memory ({AHEAD} on their way for each "
                f"worker, and one in use): prefetch_bytes must be {largest * held:,} or more, not {prefetch_bytes:,}; "
                "or take smaller batches or fewer workers"
            )
        return limit

    def _largest_batch(self) -> int:
        """Return the bytes that no batch goes over; of a user's own batches nothing is known but their samples."""
        nbytes = self.dataset.nbytes
        if not isinstance(self.batch_sampler, BatchSampler):
            return int(nbytes.max(initial=0))
        size = min(self.batch_sampler.batch_size, len(nbytes))
        return int(np.partition(nbytes, len(nbytes) - size)[len(nbytes) - size :].sum()) if size else 0


def _check(dataset: object, shuffle: object, sampler: object, batch_sampler: object, num_workers: object) -> None:
    if not isinstance(dataset, SlabDataset):
        raise InvalidInputError(
            f"a SlabLoader is of a SlabDataset, not {type(dataset).__name__}; PyTorch's DataLoader takes others, "
            "a SlabIterable among them"
        )
    if shuffle not in (True, False, "blocks"):
        raise InvalidInputError(f"shuffle is True, False or 'blocks', not {shuffle!r}")
    if [bool(shuffle), sampler is not None, batch_sampler is not None].count(True) > 1:
        raise InvalidInputError("give one of shuffle, sampler and batch_sampler: each decides the order")
    if not isinstance(num_workers, int) or num_workers < 0:
        raise InvalidInputError(f"num_workers is 0 or more, not {num_workers!r}")


def _drawn_seed() -> int:
    return int(torch.randint(1 << 62, ()).item())


def _order_of(sampler: object) -> torch.Tensor | None:
    """Return the state of the generator that a sampler draws its order from, if it has one."""
    generator = getattr(sampler, "generator", None)
    return generator.get_state() if isinstance(generator, torch.Generator) else None
