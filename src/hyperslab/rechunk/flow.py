"""Reading ahead: while some cells are worked on, the next ones are fetched into memory that was taken once."""

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from hyperslab.execute.write import StoreWriter
from hyperslab.selection import Box

__all__ = ["Buffers", "Stage", "run_stage"]

Cells = npt.NDArray[Any]
ByteArray = npt.NDArray[np.uint8]

# How often one who waits looks whether all is to end.
_LOOK_S = 0.1


class Stage(Protocol):
    """What is done with boxes of cells: `fill` fetches one, `items` says what there is to do, `work` does it."""

    def boxes(self) -> Iterable[Box]: ...

    def fill(self, box: Box, cells: Cells) -> None: ...

    def items(self, box: Box, cells: Cells) -> Iterable[Any]: ...

    def work(self, item: Any) -> None: ...


@dataclass(frozen=True, slots=True)
class Buffers:
    """Memory for boxes of cells. With `reuse` it is taken once; else anew for each box."""

    count: int
    nbytes: int
    reuse: bool = True

    def after(self, used: ByteArray) -> ByteArray:
        """Return the memory that takes the place of some that was used."""
        return used if self.reuse else np.empty(self.nbytes, np.uint8)


def run_stage(
    writer: StoreWriter, stage: Stage, dtype: np.dtype[Any], buffers: Buffers, lanes: int, stop: Callable[[], None]
) -> None:
    """Go through all boxes: one thread fetches them, `lanes` others work; the first error ends all.

    `stop` is called then, so that nobody waits for a box that is being fetched.
    """
    ahead = _Ahead(writer, stage, dtype, buffers)
    try:
        held_bytes = max(1, writer.session.memory_bytes // lanes)
        writer.each(ahead.jobs(), lambda job: job(), held_bytes=held_bytes)
    except BaseException:
        stop()
        raise
    finally:
        ahead.close()


@dataclass(slots=True, eq=False)
class _Held:
    """A buffer in use: by who hands its items out, and by those that are worked on."""

    box: Box
    buffer: ByteArray
    cells: Cells
    users: int = 1


class _Ahead:
    def __init__(self, writer: StoreWriter, stage: Stage, dtype: np.dtype[Any], buffers: Buffers) -> None:
        self.writer, self.stage, self.dtype, self.buffers = writer, stage, dtype, buffers
        self._free: queue.SimpleQueue[ByteArray] = queue.SimpleQueue()
        self._ready: queue.SimpleQueue[_Held | BaseException | None] = queue.SimpleQueue()
        self._lock, self._closed = threading.Lock(), False
        for _ in range(buffers.count):
            self._free.put(np.empty(buffers.nbytes, np.uint8))
        self._thread = threading.Thread(target=self._fetch, name="hyperslab-ahead", daemon=True)

    def jobs(self) -> Iterator[Callable[[], None]]:
        """Yield what is to be done, box by box."""
        # Two are taken before the first is done; the second may be of a box that waits for the first one's buffer.
        yield from (_nothing, _nothing)
        self._thread.start()
        while (held := self._next()) is not None:
            for item in self.stage.items(held.box, held.cells):
                with self._lock:
                    held.users += 1
                yield partial(self._work, held, item)
            self._let_go(held)

    def close(self) -> None:
        """Let the fetching thread end, and wait for it."""
        self._closed = True
        if self._thread.ident is not None:
            self._thread.join()

    def _work(self, held: _Held, item: Any) -> None:
        try:
            self.stage.work(item)
        finally:
            self._let_go(held)

    def _next(self) -> _Held | None:
        """Return the next box that was fetched, None after the last; raise what fetching it raised."""
        while not self.writer.stopping:
            try:
                found = self._ready.get(timeout=_LOOK_S)
            except queue.Empty:
                continue
            if isinstance(found, BaseException):
                raise found
            return found
        return None

    def _fetch(self) -> None:
        try:
            for box in self.stage.boxes():
                buffer = self._take()
                if buffer is None:
                    return
                cells = buffer[: box.size * self.dtype.itemsize].view(self.dtype).reshape(box.shape)
                self.stage.fill(box, cells)
                self._ready.put(_Held(box, buffer, cells))
            self._ready.put(None)
        except BaseException as error:  # noqa: BLE001 - it is raised where the work is done
            self._ready.put(error)

    def _take(self) -> ByteArray | None:
        while not (self._closed or self.writer.stopping):
            try:
                return self._free.get(timeout=_LOOK_S)
            except queue.Empty:
                continue
        return None

    def _let_go(self, held: _Held) -> None:
        with self._lock:
            held.users -= 1
            free = not held.users
        if free:
            self._free.put(self.buffers.after(held.buffer))


def _nothing() -> None:
    """Do nothing."""
