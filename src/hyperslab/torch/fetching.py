"""Windows of batches on their way: read ahead by threads of this process, or by worker processes.

By threads, only the reading is done ahead: transforms and collate functions run in the thread that asks, as without
workers they do in PyTorch.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from hyperslab.errors import HyperslabError
from hyperslab.torch.dataset import SlabDataset
from hyperslab.torch.shares import Shares
from hyperslab.torch.tensors import pinned

__all__ = ["Fetcher", "ThreadFetcher", "Window", "WorkerFetcher"]

Window = list[list[int]]
Collate = Callable[[Sequence[Any]], Any]
# Windows that are on their way for each thread or worker: one is being read while another waits to be taken.
AHEAD = 2
_THREADS = 2


@dataclass(frozen=True, slots=True)
class Fetcher:
    """Turns windows into batches."""

    dataset: SlabDataset
    collate: Collate
    pin_memory: bool

    def windows_held(self) -> int:
        """How many windows are in memory at a time, at most; one of them is being used up."""
        raise NotImplementedError

    def batches(self, windows: Iterable[Window]) -> Generator[Any, None, None]:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class ThreadFetcher(Fetcher):
    """Reads windows in threads of this process."""

    def windows_held(self) -> int:
        return AHEAD + 1

    def batches(self, windows: Iterable[Window]) -> Generator[Any, None, None]:
        source, waiting = iter(windows), deque[tuple[Window, Future[list[Any]]]]()
        pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="hyperslab-loader")
        try:
            self._fill(waiting, source, pool)
            while waiting:
                window, reading = waiting.popleft()
                self._fill(waiting, source, pool)
                read = reading.result()
                # So that the samples can go as soon as their batch has been made.
                del reading
                yield from self._made(window, read)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _fill(
        self, waiting: deque[tuple[Window, Future[list[Any]]]], source: Iterator[Window], pool: ThreadPoolExecutor
    ) -> None:
        """Have as many windows on their way as there may be."""
        while len(waiting) < AHEAD and (window := next(source, None)) is not None:
            samples = [sample for batch in window for sample in batch]
            waiting.append((window, pool.submit(self.dataset.read, samples)))

    def _made(self, window: Window, read: list[Any]) -> Iterator[Any]:
        pins = self.pin_memory and torch.accelerator.is_available()
        for batch in collated(self.dataset, self.collate, window, read):
            yield pinned(batch) if pins else batch


@dataclass(frozen=True, slots=True)
class WorkerFetcher(Fetcher):
    """Reads windows in worker processes of a DataLoader; `options` are that one's."""

    workers: int
    options: dict[str, Any]
    # What lasts from epoch to epoch, if workers do.
    _kept: list[tuple[DataLoader[Any], Shares]]

    def windows_held(self) -> int:
        return AHEAD * self.workers + 1

    def batches(self, windows: Iterable[Window]) -> Generator[Any, None, None]:
        loader, shares = self._kept[0] if self._kept else self._started(windows)
        shares.hand_out()
        try:
            with closing(_answers(loader, shares)) as answers:
                for window in answers:
                    while window:
                        yield window.pop(0)
        finally:
            shares.settle()

    def _started(self, windows: Iterable[Window]) -> tuple[DataLoader[Any], Shares]:
        shares = Shares(self.dataset.session, self.workers)
        loader: DataLoader[Any] = DataLoader(
            WindowReader(self.dataset, self.collate, shares), sampler=windows, batch_size=None, collate_fn=_as_it_is,
            num_workers=self.workers, prefetch_factor=AHEAD, pin_memory=self.pin_memory, **self.options,
        )  # fmt: skip
        if self.options.get("persistent_workers"):
            self._kept.append((loader, shares))
        return loader, shares


@dataclass(frozen=True, slots=True)
class WindowReader(Dataset[Any]):
    """What a worker has: a dataset whose items are windows, read by one plan each."""

    dataset: SlabDataset
    collate: Collate
    shares: Shares

    def __getitem__(self, window: Window) -> Any:
        session = self.dataset.session
        try:
            self.shares.enter(session)
            read = self.dataset.read([sample for batch in window for sample in batch])
            return list(collated(self.dataset, self.collate, window, read))
        except HyperslabError as error:
            # PyTorch would make another error of it, with the message alone.
            return Failure(_without_tracebacks(error))
        finally:
            self.shares.leave(session)


@dataclass(frozen=True, slots=True)
class Failure:
    """An error on its way out of a worker."""

    error: HyperslabError


def _without_tracebacks(error: HyperslabError) -> HyperslabError:
    """Return an error that leads to no frame, nor does what it came of.

    Where Dask is imported, errors take their tracebacks along to other processes, and these lead to the frames of
    whoever unpickles them: the workers would outlive their loader.
    """
    each: BaseException | None = error
    while each is not None:
        each.__traceback__ = None
        each = each.__cause__ or each.__context__
    return error


def collated(dataset: SlabDataset, collate: Collate, window: Window, read: list[Any]) -> Iterator[Any]:
    """Make the batches of a window out of its samples, which are given up one by one."""
    at = 0
    for batch in window:
        samples, read[at : at + len(batch)] = read[at : at + len(batch)], [None] * len(batch)
        at += len(batch)
        yield collate(dataset.finish(batch, samples))


def _answers(loader: DataLoader[Any], shares: Shares) -> Generator[list[Any], None, None]:
    """Give the windows as they come; when this ends, the workers have (unless they last)."""
    for answer in loader:
        shares.count()
        if isinstance(answer, Failure):
            try:
                raise answer.error
            finally:
                # An error whose traceback leads back to it waits for the garbage collector, and with it the workers,
                # which PyTorch cannot tell to end from there: it would wait five seconds for each.
                del answer
        yield answer


def _as_it_is(window: Any) -> Any:
    return window
