"""Writing files so that no reader ever sees half of one: a file beside it, then a rename, under a lock."""

import contextlib
import errno
import fcntl
import os
import stat
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator

from hyperslab.errors import StoreError
from hyperslab.store.base import PARTIAL, exists, gone, rewritten
from hyperslab.store.failures import transient

__all__ = ["file_etag", "remove_file", "replace_file"]

# How long to wait for another writer of the directory, who needs far less than a millisecond.
LOCK_S = 60.0
# A file beside another one that is older than this belongs to no living writer.
STALE_S = 3600.0

_WRITE_LIMIT = 0x7FFFF000
_TRIES = 100
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL})


def file_etag(found: os.stat_result) -> str:
    """Return what tells this version of a file from all others under its name."""
    return f'"{found.st_ino:x}-{found.st_mtime_ns:x}-{found.st_size:x}"'


def replace_file(path: str, data: memoryview, *, if_match: str | None, if_absent: bool, timeout_s: float | None) -> str:
    """Store the bytes under this path, whole or not at all, and return the new version.

    The file of an old version stays as it is for those who have it open. Raises OSError, or
    ConflictError where a condition does not hold.
    """
    folder, name = os.path.split(path)
    with _partial(folder, data) as (directory, fd, partial):
        with _locked(directory, path, must=if_absent or if_match is not None, timeout_s=timeout_s):
            old = _stat(name, directory)
            _check(path, old, if_match, if_absent)
            found = _later_than(old, fd)
            os.rename(partial, name, src_dir_fd=directory, dst_dir_fd=directory)
        _sweeps.sweep(folder, directory)
    return file_etag(found)


def remove_file(path: str, root: str, *, timeout_s: float | None) -> None:
    """Remove a file if it is there, and the directories below `root` that this leaves empty."""
    folder, name = os.path.split(path)
    try:
        directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        with _locked(directory, path, must=False, timeout_s=timeout_s), contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=directory)
    finally:
        os.close(directory)
    with contextlib.suppress(OSError):
        while len(folder) > len(root.rstrip("/")):
            os.rmdir(folder)  # fails when it still holds something
            folder = os.path.dirname(folder)


@contextlib.contextmanager
def _partial(folder: str, data: memoryview) -> Iterator[tuple[int, int, str]]:
    """Write the bytes to a new file in the folder; gives the folder's and the file's handle, and its name."""
    directory, fd, name = _opened(folder)
    try:
        try:
            done = 0
            while done < len(data):
                done += os.write(fd, data[done : done + _WRITE_LIMIT])
            yield directory, fd, name
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=directory)
            raise
        finally:
            os.close(fd)
    finally:
        os.close(directory)


def _opened(folder: str) -> tuple[int, int, str]:
    """Open the folder, made where it is not there, and a new file in it, which keeps it from being removed."""
    name = f"{PARTIAL}{os.getpid()}-{os.urandom(8).hex()}"
    for _ in range(_TRIES):
        # Whoever deletes the last file of a folder removes it, perhaps between these steps.
        with contextlib.suppress(FileNotFoundError, FileExistsError):
            return _opened_once(folder, name)
    return _opened_once(folder, name)


def _opened_once(folder: str, name: str) -> tuple[int, int, str]:
    try:
        directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        os.makedirs(folder, exist_ok=True)
        directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=directory)
    except BaseException:
        os.close(directory)
        raise
    return directory, fd, name


@contextlib.contextmanager
def _locked(directory: int, path: str, *, must: bool, timeout_s: float | None) -> Iterator[None]:
    """Hold the directory's lock against other writers. It ends with its handle, so also with the process."""
    limit_s = LOCK_S if timeout_s is None else timeout_s
    deadline, pause_s = time.monotonic() + limit_s, 0.0001
    while True:
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise transient(
                    f"{path} could not be written within {limit_s} s, as another process holds the lock of "
                    "its directory; is that process stopped?"
                ) from None
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, 0.01)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            if must:
                raise StoreError(
                    f"{path} cannot be changed safely, as its file system has no locks; write to another one"
                ) from None
            break
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            fcntl.flock(directory, fcntl.LOCK_UN)


def _stat(name: str, directory: int) -> os.stat_result | None:
    try:
        found = os.stat(name, dir_fd=directory)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, "not a regular file")
    return found


def _check(path: str, old: os.stat_result | None, if_match: str | None, if_absent: bool) -> None:
    if if_absent and old is not None:
        raise exists(path)
    if if_match is not None and old is None:
        raise gone(path)
    if if_match is not None and old is not None and file_etag(old) != if_match:
        raise rewritten(path)


def _later_than(old: os.stat_result | None, fd: int) -> os.stat_result:
    """Give the new file a time that no version before it has had: an inode's number may come again."""
    stamp_ns = _clock.next_ns()
    if old is not None:
        os.fchmod(fd, stat.S_IMODE(old.st_mode))
        stamp_ns = max(stamp_ns, old.st_mtime_ns + 1)
    for coarse_ns in (0, 1_000_000_000, 2_000_000_000):  # some file systems keep whole, or even, seconds only
        os.utime(fd, ns=(stamp_ns + coarse_ns, stamp_ns + coarse_ns))
        found = os.fstat(fd)
        if old is None or found.st_mtime_ns > old.st_mtime_ns:
            break
    return found


class _Clock:
    """Times in nanoseconds, each given out once in this process."""

    def __init__(self) -> None:
        self._last_ns = 0
        self._lock = threading.Lock()

    def next_ns(self) -> int:
        with self._lock:
            self._last_ns = max(time.time_ns(), self._last_ns + 1)
            return self._last_ns


class _Sweeps:
    """Removes what dead writers left in a directory, in at most a tenth of the time spent on writing there."""

    def __init__(self, *, folders: int = 1024) -> None:
        self._folders = folders
        self._next: OrderedDict[str, float] = OrderedDict()
        self._lock = threading.Lock()

    def sweep(self, folder: str, directory: int) -> None:
        began = time.monotonic()
        if began < self._next.get(folder, 0.0):
            return
        with contextlib.suppress(OSError), os.scandir(directory) as entries:
            for entry in entries:
                if (
                    entry.name.startswith(PARTIAL)
                    and entry.stat(follow_symlinks=False).st_mtime < time.time() - STALE_S
                ):
                    os.unlink(entry.name, dir_fd=directory)
        ended = time.monotonic()
        with self._lock:
            self._next[folder] = ended + 10 * (ended - began)
            self._next.move_to_end(folder)
            while len(self._next) > self._folders:
                self._next.popitem(last=False)


_clock = _Clock()
_sweeps = _Sweeps()


def _after_fork() -> None:
    # Another thread of the parent may hold a lock.
    _clock.__init__()  # type: ignore[misc]
    _sweeps.__init__()  # type: ignore[misc]


os.register_at_fork(after_in_child=_after_fork)
