"""The files that LMDB has open in this process: each once, and none while the process forks.

LMDB forbids that a process opens a file twice, and a child must neither use nor close what its parent has open: closing
frees the places where the parent's readers are noted. So before a fork all files are closed, once nobody uses them, and
whoever comes next opens them anew: in the parent as in the child.
"""

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from hyperslab.errors import ForkError, StoreError

__all__ = ["OpenFile", "open_file"]

_FILE = "data.mdb"
_MOST_READERS = 1024
_ROOM_BYTES = 1 << 20
# A fork waits this long for those who read or write; longer ones are lost to the child.
_FORK_WAIT_S = 10.0


@dataclass(slots=True, weakref_slot=True)
class OpenFile:
    """A file that all tiers of this process share. It is closed when none of them has it any more."""

    path: str
    capacity_bytes: int
    env: Any = None
    lost: bool = False
    users: int = field(default=0, repr=False)

    @contextmanager
    def use(self) -> Iterator[Any]:
        """Give LMDB's environment, which stays open until the block ends."""
        process = _process
        with process.changed:
            while process.forking:
                process.changed.wait()
            if self.lost:
                raise ForkError(f"{self.path} was in use while this process was forked; open it in the child, or spawn")
            if self.env is None:
                self.env = _opened(self.path, self.capacity_bytes)
            self.users += 1
        try:
            yield self.env
        finally:
            with process.changed:
                self.users -= 1
                process.changed.notify_all()


class _Process:
    """All files of this process, and the lock around them."""

    def __init__(self) -> None:
        self.files: weakref.WeakValueDictionary[str, OpenFile] = weakref.WeakValueDictionary()
        self._start()

    def _start(self) -> None:
        self.changed, self.forking = threading.Condition(threading.Lock()), False

    def before_fork(self) -> None:
        with self.changed:
            self.forking = True
            files = list(self.files.values())
            self.changed.wait_for(lambda: not any([file.users for file in files]), _FORK_WAIT_S)
            for file in files:
                if file.env is not None and not file.users:
                    file.env.close()
                    file.env = None

    def after_in_parent(self) -> None:
        with self.changed:
            self.forking = False
            self.changed.notify_all()

    def after_in_child(self) -> None:
        # The lock is new: who held it may not exist here.
        self._start()
        for file in list(self.files.values()):
            file.lost, file.users = file.env is not None, 0


_process = _Process()
os.register_at_fork(
    before=_process.before_fork, after_in_parent=_process.after_in_parent, after_in_child=_process.after_in_child
)


def open_file(folder: str, capacity_bytes: int) -> OpenFile:
    """Return the file of a folder, which is made if it is not there; it is opened when it is first used."""
    os.makedirs(folder, exist_ok=True)
    path = os.path.realpath(folder)
    with _process.changed:
        file = _process.files.get(path)
        if file is None:
            _process.files[path] = file = OpenFile(path, capacity_bytes)
        if file.capacity_bytes != capacity_bytes:
            raise StoreError(
                f"{path} is open with a capacity of {file.capacity_bytes:,} bytes, not {capacity_bytes:,}; "
                "close that tier first, or give the same capacity"
            )
        return file


def _opened(path: str, capacity_bytes: int) -> Any:
    import lmdb

    file = os.path.join(path, _FILE)
    there = os.path.getsize(file) if os.path.exists(file) else 0
    # One that was filled by a larger capacity still needs room to delete.
    map_bytes = capacity_bytes if there <= capacity_bytes else there + _ROOM_BYTES
    env = lmdb.open(path, map_size=map_bytes, readahead=False, metasync=False, max_readers=_MOST_READERS)
    expected = (env.info()["last_pgno"] + 1) * env.stat()["psize"]
    found = os.path.getsize(file)
    # Reading beyond the end of a mapped file would end the process.
    if found < expected:
        env.close()
        raise StoreError(f"{path} is cut off: its file has {found:,} bytes of {expected:,}; delete the folder")
    # Those of processes that were killed would keep pages from being used again.
    env.reader_check()
    return env
