"""The network runtime of this process: obstore, or in a forked child a copy of it that works there.

obstore's threads start at its first call and do not survive a fork: in the child every call would
wait for them forever. So a child that was forked from a process with obstore in it loads the
extension a second time, from a copy of the file (the dynamic linker would give the old one for the
old file), and never touches the first.
"""

import atexit
import gc
import importlib
import importlib.machinery
import importlib.util
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from hyperslab.errors import ForkError, StoreError

__all__ = ["guard", "keep_forever", "let_threads_end", "note_cancelled", "obstore_module"]

_EXTENSION = "obstore._obstore"
_PARTS = ("obstore", "obstore.store", "obstore.exceptions")
# So long after a request was cancelled obstore's threads may still be at it, and look at Python's objects.
_ENDING_S = 0.1


class _Process:
    """What there is once in a process. The lock is new in a child, where its holder may not exist."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.module: Any = None
        self.module_pid = 0
        self.forked_with_obstore = False
        # When a request was last cancelled.
        self.cancelled_at: float | None = None
        # Objects of a parent's runtime: ending them could wait for its threads, so they are never ended.
        self.inherited: list[object] = []

    def note_fork(self) -> None:
        self.lock = threading.RLock()
        self.forked_with_obstore = self.forked_with_obstore or _EXTENSION in sys.modules
        if self.forked_with_obstore:
            # Garbage of the parent's may hold parts of its runtime: collecting it could wait for threads not forked.
            gc.freeze()


_process = _Process()
os.register_at_fork(after_in_child=_process.note_fork)


def obstore_module() -> Any:
    """Return the obstore that works in this process; raises ForkError if there is none."""
    if _process.module_pid == os.getpid():
        return _process.module
    with _process.lock:
        if _process.module_pid != os.getpid():
            keep_forever(_process.module)
            _process.module = _copied() if _process.forked_with_obstore else _imported()
            _process.module_pid = os.getpid()
        return _process.module


def guard() -> threading.RLock:
    """Return the lock for what this room makes once per process."""
    return _process.lock


def keep_forever(inherited: object) -> None:
    """Keep an object of the parent's runtime from being ended in this process."""
    _process.inherited.append(inherited)


def note_cancelled() -> None:
    """Take note that a request was cancelled, for the end of the program to wait a moment.

    A thread of obstore's that comes back to Python while that ends would crash the program.
    """
    if _process.cancelled_at is None:
        atexit.register(let_threads_end)
    _process.cancelled_at = time.monotonic()


def let_threads_end() -> None:
    """Wait until what works at a request that was just cancelled has noticed."""
    if _process.cancelled_at is not None:
        time.sleep(max(0.0, _process.cancelled_at + _ENDING_S - time.monotonic()))


def _imported() -> ModuleType:
    try:
        importlib.import_module("obstore.store")
        return importlib.import_module("obstore")
    except ImportError as error:
        raise StoreError(f"obstore cannot be imported ({error}); run `pip install obstore`") from error


def _copied() -> ModuleType:
    """Import obstore once more, its extension from a copy, and leave `sys.modules` as it was."""
    source = getattr(sys.modules.get(_EXTENSION), "__file__", None)
    try:
        if source is None:
            raise ImportError("its file is not known")
        with tempfile.TemporaryDirectory(prefix="hyperslab-") as folder:
            copy = shutil.copyfile(source, os.path.join(folder, os.path.basename(source)))
            with _loading_from(copy):
                module = importlib.import_module(_PARTS[0])
                for part in _PARTS[1:]:
                    importlib.import_module(part)
    except (OSError, ImportError) as error:
        raise ForkError(
            f"a forked process needs its own copy of obstore, which could not be loaded ({error}); "
            "set TMPDIR to a writable directory that allows libraries, or start processes with 'spawn'"
        ) from error
    return module


@contextmanager
def _loading_from(copy: str) -> Iterator[None]:
    class Finder:
        @staticmethod
        def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
            if name != _EXTENSION:
                return None
            loader = importlib.machinery.ExtensionFileLoader(name, copy)
            return importlib.util.spec_from_file_location(name, copy, loader=loader)

    inherited = _take_modules()
    keep_forever(inherited)
    sys.meta_path.insert(0, Finder)
    try:
        yield
    finally:
        sys.meta_path.remove(Finder)
        _take_modules()
        sys.modules.update(inherited)


def _take_modules() -> dict[str, ModuleType]:
    names = [name for name in sys.modules if name == "obstore" or name.startswith("obstore.")]
    return {name: sys.modules.pop(name) for name in names}
