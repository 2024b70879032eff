"""Recording: reads wait in memory, and are written to a log by the hundred."""

import os
import secrets
import threading
import time
import warnings
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from hyperslab.errors import InvalidInputError
from hyperslab.execute import recording
from hyperslab.execute.light import MOST_LISTED, Listed
from hyperslab.execute.recording import Row
from hyperslab.selection import Points, Selection, Span
from hyperslab.workload.columns import encode
from hyperslab.workload.frames import append, begins_like_a_log, frame
from hyperslab.workload.records import Process

__all__ = ["Log", "record"]

# A frame holds at most so many reads, and while there are reads they wait this long at most.
_MOST_WAITING = 1024
_WRITE_S = 1.0
# At the end, another thread that is just writing is waited for.
_LAST_WAIT_S = 5.0


@contextmanager
def record(path: str | os.PathLike[str]) -> Iterator[None]:
    """Record every read of this process to the log at `path`, in all threads, until the `with` block ends.

    What is there already is kept: a log grows, also by several processes at once. Children that are forked inside of
    the block record, too. `Workload.load` reads it.

    >>> import tempfile, numpy as np, hyperslab as hs
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(folder + "/a.npy", np.arange(12).reshape(3, 4))
    ...     with hs.record(folder + "/w.hslog"):
    ...         row = hs.open(folder + "/a.npy")[1]
    ...     len(hs.Workload.load(folder + "/w.hslog"))
    1
    """
    full = _checked(path)
    recording.start(full)
    try:
        yield
    finally:
        recording.stop(full)


def _checked(path: Any) -> str:
    """Return the absolute path of a log that can be written; it is there from now on."""
    given = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(given, str) or not given or "\0" in given:
        raise InvalidInputError(f"a log is recorded to a path, got {type(path).__name__}")
    full = os.path.realpath(os.path.expanduser(given))
    try:
        append(full, b"")
        good = begins_like_a_log(full)
    except OSError as error:
        raise InvalidInputError(
            f"{given!r} cannot be recorded to: {error.strerror}; choose a file in a folder that can be written"
        ) from None
    if not good:
        raise InvalidInputError(f"{given!r} is not a log; choose another file, or delete it")
    return full


class Log:
    """The recorder of one file. It never raises: a log that cannot be written is warned of, once."""

    def __init__(self, path: str) -> None:
        self.path, self.most = path, _MOST_WAITING
        self._warned = self._refused = False
        self._start()

    def _start(self) -> None:
        # Threads add without a lock, which a signal's handler or a destructor that reads could wait for forever.
        self.rows: deque[Row] = deque()
        # So that the first read is written at once.
        self.due_at = float("-inf")
        self._lock = threading.Lock()
        self._process: Process | None = None

    def write(self) -> None:
        """Write what waits, unless another thread is just doing that."""
        if self._lock.acquire(blocking=False):
            self._write_and_release()

    def flush(self) -> None:
        """Write what waits; another thread that is just writing is waited for."""
        if self.rows and self._lock.acquire(timeout=_LAST_WAIT_S):
            self._write_and_release()

    def close(self) -> None:
        """Flush. What another thread still reads is written at once."""
        self.most = 1
        self.flush()

    def after_fork(self) -> None:
        """Forget what the parent will write, and its lock, which one of its threads may hold."""
        self._start()

    def _write_and_release(self) -> None:
        try:
            self.due_at = time.time() + _WRITE_S
            if self._process is None:
                self._process = _this_process(os.getpid())
                recording.at_exit_of_worker()
                self._refused = not _is_log(self.path)
            if self._refused:
                self.rows.clear()
                raise InvalidInputError("it is not a log; choose another file, or delete it")
            while self.rows:
                for batch in _batches(self.rows):
                    payload = encode(batch, self._process, recording.new_numbers(len(batch)))
                    append(self.path, frame(payload))
        except Exception as error:  # noqa: BLE001 - a log must not spoil a read
            self._warn(error)
        finally:
            self._lock.release()

    def _warn(self, error: Exception) -> None:
        if self._warned:
            return
        self._warned = True
        why = f"{type(error).__name__}: {error}"
        if isinstance(error, OSError) and error.strerror:
            why = error.strerror
        elif isinstance(error, InvalidInputError):
            why = str(error)
        try:
            warnings.warn(f"reads are not recorded to {self.path!r}: {why}", RuntimeWarning, stacklevel=2)
        except Warning:
            return  # where warnings are errors, this one still is none of the read's


def _is_log(path: str) -> bool:
    """Whether frames may be appended: not to a file of another kind, which a setting may name by mistake."""
    try:
        return begins_like_a_log(path)
    except OSError:
        return True  # not there yet; or what is wrong with it is said by appending


@cache
def _this_process(pid: int) -> Process:
    """Return who this process is: the same in all of its logs, another in a forked child."""
    return Process(os.uname().nodename, pid, secrets.token_hex(8))


def _batches(rows: "deque[Row]") -> Iterator[list[Row]]:
    """Take rows off for one frame, or more if they hold long lists. Others may add meanwhile; nobody else takes."""
    take = rows.popleft
    taken = [take() for _ in range(min(len(rows), _MOST_WAITING))]
    # A list that waits in a plain selection is short.
    if sum([_cells_in(row[2]) for row in taken if type(row[2]) is not Selection]) <= MOST_LISTED // 2:
        yield taken
        return
    batch: list[Row] = []
    cells = 0
    for row in taken:
        more = _cells_in(row[2])
        if batch and cells + more > MOST_LISTED:
            yield batch
            batch, cells = [], 0
        batch.append(row)
        cells += more
    yield batch


def _cells_in(selection: Selection | Points | Listed) -> int:
    """Return how many cells the lists of a selection hold."""
    if isinstance(selection, Points):
        return selection.size * len(selection.coords)
    lists = [axis.cells for axis in selection.axes if not isinstance(axis, Span)]
    return sum(map(len, lists))
