"""Who is told of every read: recorders of the whole process, or of a store's own setting.

What a recorder is, and how one is opened for a path, is the business of the workload room: it says so when it is
imported. Nothing is opened before somebody asks for it.
"""

import atexit
import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

from hyperslab.errors import InternalError
from hyperslab.execute.ledger import Ledger
from hyperslab.execute.light import Described, Listed
from hyperslab.layout import Layout
from hyperslab.selection import Points, Selection

__all__ = [
    "SMALL_BYTES",
    "VARIABLE",
    "Recorder",
    "Row",
    "flush_all",
    "new_numbers",
    "recorders",
    "register",
    "start",
    "start_as_environment_says",
    "stop",
]

# A path to record all reads of a process to; it is looked for whenever a session is made.
VARIABLE = "HYPERSLAB_RECORD"

# Of a plan for several selections, of one that failed or that was not small: its number, which of its selections this
# is, the bytes needed for it alone, the name of the error.
More = tuple[int, int, int, str | None]
# One selection that was read, as it waits to be written. A tuple, as it is made for every read: the array's url and
# layout, the selection, what its plan cost and when that began, the method that was forced.
Row = tuple[str, Layout | Described, Selection | Points | Listed, Ledger, float, str | None, More | None]

# What a row holds on to that reads no more bytes than this is small, too.
SMALL_BYTES = 4096


class Recorder(Protocol):
    """Keeps what was read. Never raises, whatever becomes of its file.

    Who reads appends to `rows`, and calls `write` when `most` wait or `due_at` has passed, in seconds of `time.time`:
    a call for every read would cost more than all the rest of it.
    """

    rows: deque[Row]
    most: int
    due_at: float

    def write(self) -> None:
        """Write what waits, unless another thread is just doing that."""
        ...

    def flush(self) -> None:
        """Write what waits; another thread that is just writing is waited for."""
        ...

    def close(self) -> None:
        """Flush, and let nothing wait from now on."""
        ...

    def after_fork(self) -> None:
        """Forget what the parent will write."""
        ...


class _Several:
    """Several recorders that are told of the same reads."""

    def __init__(self, told: tuple[Recorder, ...]) -> None:
        self.told = told
        self.rows: deque[Row] = deque()
        self.most, self.due_at = 1, float("-inf")

    def write(self) -> None:
        self._pass_on()
        for recorder in self.told:
            recorder.write()

    def flush(self) -> None:
        self._pass_on()
        for recorder in self.told:
            recorder.flush()

    def close(self) -> None:
        self.flush()

    def after_fork(self) -> None:
        self.rows = deque()

    def _pass_on(self) -> None:
        while True:
            try:
                row = self.rows.popleft()
            except IndexError:
                return
            for recorder in self.told:
                recorder.rows.append(row)


Opener = Callable[[str], Recorder]

# Told of all reads of the process.
active: Recorder | None = None


class _Opened:
    """The recorders of this process by the path of their file: one for each file, however often it is asked for."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.opener: Opener | None = None
        self.by_path: dict[str, Recorder] = {}
        # Those that are told of all reads, with how many `start`s there were without their `stop`.
        self.started: dict[str, int] = {}
        # What the environment said, and was followed: a relative path is of the folder where it was first looked for.
        self.said: set[str] = set()
        # Those of stores, by the path as it was written. Never closed: nobody says which read of a store is the last.
        self.kept: dict[str, Recorder] = {}
        # A lock of its own: a recorder that is being closed numbers what it still writes.
        self.counting = threading.Lock()
        self.numbers = 0

    def get(self, path: str) -> Recorder:
        if self.opener is None:
            raise InternalError("hyperslab.workload was not imported; it says how a log is opened")
        if path not in self.by_path:
            self.by_path[path] = self.opener(path)
        return self.by_path[path]

    def choose(self) -> None:
        """Have all of those that were started told of all reads."""
        global active  # noqa: PLW0603 - every read looks at it: nothing is found faster
        before, told = active, tuple([self.by_path[path] for path in self.started])
        active = None if not told else told[0] if len(told) == 1 else _Several(told)
        if isinstance(before, _Several):
            before.flush()


_opened = _Opened()


def register(opener: Opener) -> None:
    """Say how the recorder for a path is opened."""
    _opened.opener = opener


def start(path: str) -> None:
    """Tell the recorder of this real path of all reads, until `stop` was called as often as this."""
    with _opened.lock:
        _opened.get(path)
        _opened.started[path] = _opened.started.get(path, 0) + 1
        _opened.choose()
    # Once, however often it is registered.
    atexit.unregister(flush_all)
    atexit.register(flush_all)


def stop(path: str) -> None:
    """End what `start` began, and write what waits."""
    with _opened.lock:
        recorder = _opened.by_path[path]
        _opened.started[path] -= 1
        if not _opened.started[path]:
            del _opened.started[path]
            _opened.choose()
            ended = recorder not in _opened.kept.values()
            if ended:
                del _opened.by_path[path]
        else:
            ended = False
    if ended:
        recorder.close()
    else:
        recorder.flush()


def start_as_environment_says() -> None:
    """Record to where the environment asks for it, from now on and until the process ends."""
    path = os.environ.get(VARIABLE)
    if not path or path in _opened.said:
        return
    _opened.said.add(path)
    if (full := os.path.realpath(os.path.expanduser(path))) not in _opened.started:
        start(full)


def recorders(path: str | None) -> tuple[Recorder, ...]:
    """Return those who are told of all reads, and the one of this path; each once."""
    now = active
    found = now.told if isinstance(now, _Several) else () if now is None else (now,)
    if path is None:
        return found
    recorder = _opened.kept.get(path) or _keep(path)
    return found if recorder in found else (*found, recorder)


def _keep(path: str) -> Recorder:
    with _opened.lock:
        # Two ways of writing a path are one file.
        recorder = _opened.kept[path] = _opened.get(os.path.realpath(path))
    atexit.unregister(flush_all)
    atexit.register(flush_all)
    return recorder


def new_numbers(count: int) -> int:
    """Return the first of so many numbers for plans; selections read by one plan share one, so that sums count once."""
    with _opened.counting:
        first = _opened.numbers
        _opened.numbers += count
        return first


def flush_all() -> None:
    """Write what all recorders still have in memory."""
    for recorder in (active, *_opened.by_path.values()):
        if recorder is not None:
            recorder.flush()


def at_exit_of_worker() -> None:
    """Have a worker process of `multiprocessing` flush at its end: those do without `atexit`."""
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        util.Finalize(None, flush_all, exitpriority=0)


def _after_fork() -> None:
    _opened.lock, _opened.counting = threading.Lock(), threading.Lock()
    for recorder in (active, *_opened.by_path.values()):
        if recorder is not None:
            recorder.after_fork()


os.register_at_fork(after_in_child=_after_fork)
