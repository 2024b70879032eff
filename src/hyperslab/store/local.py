"""Files as objects: read by pread or mapped, with handles and mappings kept open and checked at every use."""

import errno
import mmap
import os
import resource
import stat
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar
from urllib.parse import quote
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from hyperslab.errors import AccessError, HyperslabError, InvalidInputError, NotFoundError, StoreError
from hyperslab.store.base import (
    CHILDREN_LIMIT,
    PARTIAL,
    Data,
    Heard,
    Listed,
    Reply,
    Span,
    changed,
    check_data,
    check_key,
    check_limit,
    check_new_key,
    check_prefix,
    check_span,
    too_many,
    too_short,
)
from hyperslab.store.local_write import file_etag, remove_file, replace_file
from hyperslab.store.targets import Targets

__all__ = ["LocalStore", "Mapped", "OpenFiles"]

_MISSING = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP})
_CROWDED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
# The kernel reads at most this many bytes at once.
_READ_LIMIT = 0x7FFFF000

T = TypeVar("T")
V = TypeVar("V", bound="_Version")


@dataclass(frozen=True, slots=True, eq=False)
class Mapped:
    """A file's bytes as a read-only array that shares memory with the file."""

    bytes: npt.NDArray[np.uint8]
    etag: str
    nbytes: int
    source: mmap.mmap | None = None

    def release(self) -> None:
        """Let go of the pages: they no longer count as this process's memory until they are touched again."""
        if self.source is not None:
            self.source.madvise(mmap.MADV_DONTNEED)


class _Version:
    """What a kept handle or mapping is of; a stat of the path tells whether that is still there."""

    __slots__ = ("etag", "inode", "mtime_ns", "nbytes")

    def __init__(self, found: os.stat_result) -> None:
        self.inode, self.mtime_ns, self.nbytes = found.st_ino, found.st_mtime_ns, found.st_size
        self.etag = file_etag(found)

    def holds(self, found: os.stat_result) -> bool:
        return (found.st_mtime_ns, found.st_size, found.st_ino) == (self.mtime_ns, self.nbytes, self.inode)


class _Handle(_Version):
    """An open file. It closes when the last reader lets go of it, so never under a reader."""

    __slots__ = ("fd",)

    def __init__(self, path: str) -> None:
        self.fd = -1
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        self.fd = fd
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EISDIR, "not a regular file")
        super().__init__(found)

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)


class _Mapping(_Version):
    __slots__ = ("mapped",)

    def __init__(self, path: str) -> None:
        handle = _Handle(path)
        self.inode, self.mtime_ns, self.nbytes = handle.inode, handle.mtime_ns, handle.nbytes
        self.etag = handle.etag
        self.mapped = _map(handle)


class _Recent(Generic[V]):
    """The most recently used versions by path, limited in number and in bytes.

    Looking up takes no lock; what falls out stays valid for those who still hold it.
    """

    def __init__(self, limit: int, limit_bytes: int) -> None:
        self.limit, self.limit_bytes = limit, limit_bytes
        self.clear()

    def clear(self) -> None:
        """Forget all; also the lock, which a thread that was not forked along may hold."""
        self.entries: OrderedDict[str, V] = OrderedDict()
        self.held_bytes = 0
        self.lock = threading.Lock()

    def put(self, path: str, version: V) -> None:
        with self.lock:
            self._drop(path)
            if version.nbytes > self.limit_bytes:
                return
            self.entries[path] = version
            self.held_bytes += version.nbytes
            while len(self.entries) > self.limit or self.held_bytes > self.limit_bytes:
                # Not by an iterator: a look-up by another thread, which moves what it finds, would break it.
                _, old = self.entries.popitem(last=False)
                self.held_bytes -= old.nbytes

    def drop(self, path: str) -> None:
        with self.lock:
            self._drop(path)

    def _drop(self, path: str) -> None:
        old = self.entries.pop(path, None)
        if old is not None:
            self.held_bytes -= old.nbytes


class OpenFiles:
    """The handles and mappings that a process keeps open, shared by its local stores.

    Each costs a file descriptor, so their number also stays below a quarter of the process's limit.
    """

    def __init__(self, *, mappings: int = 256, mapped_bytes: int = 1 << 30, handles: int = 128) -> None:
        allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        most = allowed // 4 if allowed > 0 else mappings
        self.mappings: _Recent[_Mapping] = _Recent(min(mappings, most), mapped_bytes)
        self.handles: _Recent[_Handle] = _Recent(min(handles, most), sys.maxsize)
        _ALL_FILES.add(self)

    def clear(self) -> None:
        """Let go of every handle and mapping that no reader holds."""
        self.mappings.clear()
        self.handles.clear()


_ALL_FILES: WeakSet[OpenFiles] = WeakSet()
_PROCESS_FILES = OpenFiles()


def _forget_after_fork() -> None:
    # Another thread of the parent may have been in the middle of a change.
    for files in list(_ALL_FILES):
        files.clear()


os.register_at_fork(after_in_child=_forget_after_fork)


class LocalStore:
    """The files below one directory."""

    scheme = "file"
    has_suffix = True

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        files: OpenFiles | None = None,
        record: str | None = None,
        targets: Targets | None = None,
    ) -> None:
        self.root = os.path.abspath(os.fspath(root))
        self.address = "file://" + quote(os.fsencode(self.root))
        self._base = self.root.rstrip("/") + "/"
        # The log that reads of this store are recorded to.
        self.record = record
        # Where else references that are stored here may lead.
        self.targets = targets
        self._files = _PROCESS_FILES if files is None else files
        self._mappings, self._handles = self._files.mappings, self._files.handles

    def __repr__(self) -> str:
        return f"LocalStore({self.root!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (partial(LocalStore, record=self.record, targets=self.targets), (self.root,))

    def map(self, key: str) -> Mapped:
        """Return the file's bytes without copying them, as of now.

        A file that is truncated later ends the process that touches the lost pages: keep what is
        returned only as long as needed, and call again for the next read.
        """
        return self._current(key, self._mappings, _Mapping).mapped

    def nbytes(self, key: str) -> int:
        """Return the size of a file; it is kept open for what is read of it next."""
        return self._current(key, self._handles, _Handle).nbytes

    def read_into(self, key: str, start: int, buffer: memoryview, *, if_match: str | None = None) -> str:
        """Fill `buffer` with the file's bytes from `start` on, and return the ETag of the file."""
        return self._read(key, self._current(key, self._handles, _Handle), start, buffer, if_match)

    def get(
        self,
        key: str,
        span: Span = None,
        *,
        if_match: str | None = None,
        timeout_s: float | None = None,
        limit_bytes: int | None = None,
    ) -> Reply:
        check_span(key, span)
        handle = self._current(key, self._handles, _Handle)
        size = handle.nbytes
        if isinstance(span, tuple):
            start, stop = span
        else:
            start, stop = (0 if span is None else max(0, size + span)), size
        check_limit(self._name(key), span, size, limit_bytes)
        if stop > size:  # before memory is taken for it
            raise too_short(self._name(key), span, size)
        data = np.empty(stop - start, np.uint8).data
        etag = self._read(key, handle, start, data, if_match)
        return Reply(data.toreadonly(), etag, size, modified_ns=handle.mtime_ns)

    async def aget(
        self,
        key: str,
        span: Span = None,
        *,
        if_match: str | None = None,
        timeout_s: float | None = None,
        limit_bytes: int | None = None,
        heard: Heard | None = None,
    ) -> Reply:
        return await _in_thread(self.get, key, span, if_match=if_match, limit_bytes=limit_bytes)

    def head(self, key: str, *, timeout_s: float | None = None) -> tuple[int, str | None]:
        check_key(key)
        try:
            found = os.stat(self._base + key)
        except OSError as error:
            raise self._failed(key, error) from None
        if not stat.S_ISREG(found.st_mode):
            raise self._failed(key, OSError(errno.EISDIR, "not a regular file"))
        version = _Version(found)
        return version.nbytes, version.etag

    async def ahead(self, key: str, *, timeout_s: float | None = None) -> tuple[int, str | None]:
        return await _in_thread(self.head, key)

    def children(self, prefix: str, *, timeout_s: float | None = None) -> list[str]:
        prefix = check_prefix(prefix)
        names: list[str] = []
        with self._listing(prefix):
            for entry in _entries(self._base + prefix):
                names.append(entry.name)
                if len(names) > CHILDREN_LIMIT:
                    raise too_many(self._name(prefix))
        return sorted(names)

    async def achildren(self, prefix: str, *, timeout_s: float | None = None) -> list[str]:
        return await _in_thread(self.children, prefix)

    def keys(self, prefix: str, *, timeout_s: float | None = None) -> list[tuple[str, int]]:
        return sorted((key, about.st_size) for key, about in self._files_below(prefix))

    async def akeys(self, prefix: str, *, timeout_s: float | None = None) -> list[tuple[str, int]]:
        return await _in_thread(self.keys, prefix)

    def listing(self, prefix: str, *, timeout_s: float | None = None) -> list[Listed]:
        found = self._files_below(prefix)
        # The time of an inode's last change cannot be set, as that of its contents can.
        listed = [(key, about, f"{file_etag(about)}-{about.st_ctime_ns:x}") for key, about in sorted(found)]
        return [Listed(key, about.st_size, version, about.st_ctime_ns) for key, about, version in listed]

    async def alisting(self, prefix: str, *, timeout_s: float | None = None) -> list[Listed]:
        return await _in_thread(self.listing, prefix)

    def put(
        self,
        key: str,
        data: Data,
        *,
        if_match: str | None = None,
        if_absent: bool = False,
        timeout_s: float | None = None,
    ) -> str | None:
        """As the protocol says. A link under this name is replaced, not followed."""
        view = check_data(key, data, if_match, if_absent)
        path = self._base + key
        try:
            return replace_file(path, view, if_match=if_match, if_absent=if_absent, timeout_s=timeout_s)
        except OSError as error:
            raise self._unwritten(key, error) from None

    async def aput(
        self,
        key: str,
        data: Data,
        *,
        if_match: str | None = None,
        if_absent: bool = False,
        timeout_s: float | None = None,
    ) -> str | None:
        return await _in_thread(self.put, key, data, if_match=if_match, if_absent=if_absent, timeout_s=timeout_s)

    def delete(self, key: str, *, timeout_s: float | None = None) -> None:
        """As the protocol says. Directories that this leaves empty go too, but never the root."""
        check_new_key(key)
        try:
            remove_file(self._base + key, self.root, timeout_s=timeout_s)
        except OSError as error:
            raise self._unwritten(key, error) from None

    async def adelete(self, key: str, *, timeout_s: float | None = None) -> None:
        await _in_thread(self.delete, key, timeout_s=timeout_s)

    def _files_below(self, prefix: str) -> list[tuple[str, os.stat_result]]:
        prefix = check_prefix(prefix)
        found: list[tuple[str, os.stat_result]] = []
        with self._listing(prefix):
            for seen, (path, about) in enumerate(_walk(self._base + prefix)):
                if seen >= CHILDREN_LIMIT:
                    raise too_many(self._name(prefix))
                if about is not None:
                    found.append((path[len(self._base) :], about))
        return found

    def _read(self, key: str, handle: _Handle, start: int, buffer: memoryview, if_match: str | None) -> str:
        if if_match is not None and if_match != handle.etag:
            raise changed(self._name(key))
        if start < 0:
            raise InvalidInputError(f"{self._name(key)}: cannot read from byte {start}; start at 0 or later")
        stop = start + buffer.nbytes
        if stop > handle.nbytes:
            raise too_short(self._name(key), (start, stop), handle.nbytes)
        try:
            done = _read_fully(handle.fd, start, buffer)
            after = os.fstat(handle.fd)
        except OSError as error:
            raise self._failed(key, error) from None
        if done < buffer.nbytes:
            raise too_short(self._name(key), (start, stop), start + done)
        if not handle.holds(after):  # written to in place, perhaps between two reads of ours
            raise changed(self._name(key))
        return handle.etag

    def _current(self, key: str, kept: _Recent[V], kind: type[V]) -> V:
        """Return the file's version as of now, from those kept open if it is among them."""
        path = self._base + key
        entry = kept.entries.get(path)
        if entry is not None:
            try:
                found = os.stat(path)
                if (  # spelled out: this is the way of every small read
                    found.st_mtime_ns == entry.mtime_ns
                    and found.st_size == entry.nbytes
                    and found.st_ino == entry.inode
                ):
                    kept.entries.move_to_end(path)
                    return entry
            except KeyError:  # another thread let it fall out meanwhile; it is still good
                return entry
            except OSError as error:
                kept.drop(path)
                raise self._failed(key, error) from None
        return self._opened(key, path, kept, kind)

    def _opened(self, key: str, path: str, kept: _Recent[V], kind: type[V]) -> V:
        """Open a file that is not kept open, or not in this version, and keep it."""
        check_key(key)
        try:
            try:
                version = kind(path)  # type: ignore[arg-type]
            except OSError as error:
                if error.errno not in _CROWDED:
                    raise
                self._files.clear()
                version = kind(path)  # type: ignore[arg-type]
        except OSError as error:
            raise self._failed(key, error) from None
        kept.put(path, version)
        return version

    def _name(self, key: str) -> str:
        return self._base + key

    @contextmanager
    def _listing(self, prefix: str) -> Iterator[None]:
        """Translate what goes wrong while a directory is read; that it is not there is an empty listing."""
        try:
            yield
        except OSError as error:
            if isinstance(error, HyperslabError):
                raise
            if error.errno not in _MISSING:
                raise self._failed(prefix, error) from None

    def _unwritten(self, key: str, error: OSError) -> HyperslabError:
        """Return the error for a file that could not be stored or removed."""
        name = self._name(key)
        if isinstance(error, HyperslabError):
            return error
        if error.errno in (errno.EISDIR, errno.ENOTDIR, errno.EEXIST):
            return StoreError(f"{name} cannot be a file, as a directory has its name or a file that of its directory")
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            return AccessError(f"{name} may not be written by this user; change the permissions of its directory")
        if error.errno in (errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL, errno.EILSEQ):
            return InvalidInputError(f"{name} is not a name that a file can have here ({error.strerror})")
        failure = StoreError(f"{name} could not be written ({error.strerror}); check the disk and try again")
        failure.transient = error.errno in (errno.EIO, errno.ESTALE, errno.EAGAIN, errno.EINTR, *_CROWDED)
        return failure

    def _failed(self, key: str, error: OSError) -> HyperslabError:
        name = self._name(key)
        if error.errno in _MISSING or isinstance(error, FileNotFoundError):
            return NotFoundError(f"there is no file {name}")
        if error.errno in (errno.EACCES, errno.EPERM):
            return AccessError(f"{name} may not be read by this user; change its permissions")
        failure = StoreError(f"{name} could not be read ({error.strerror}); check the disk and try again")
        failure.transient = error.errno in (errno.EIO, errno.ESTALE, errno.EAGAIN, errno.EINTR, *_CROWDED)
        return failure


async def _in_thread(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    import asyncio

    return await asyncio.to_thread(function, *args, **kwargs)


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    """The entries of a directory, without the files that are just being written."""
    with os.scandir(folder) as entries:
        yield from (entry for entry in entries if not entry.name.startswith(PARTIAL))


def _walk(folder: str) -> Iterator[tuple[str, os.stat_result | None]]:
    """The files below a directory with what is known of them, and the directories with None; links are followed."""
    todo = [(folder.rstrip("/"), frozenset[tuple[int, int]]())]
    while todo:
        here, above = todo.pop()
        try:
            found, entries = os.stat(here), list(_entries(here))
        except (FileNotFoundError, NotADirectoryError):  # removed meanwhile
            continue
        inside = above | {(found.st_dev, found.st_ino)}
        if len(inside) == len(above):  # a link that leads back up
            continue
        for entry in entries:
            try:
                about = entry.stat()
            except FileNotFoundError:  # removed meanwhile, or a link to nothing
                continue
            regular = stat.S_ISREG(about.st_mode)
            if stat.S_ISDIR(about.st_mode):
                todo.append((entry.path, inside))
            if regular or stat.S_ISDIR(about.st_mode):
                yield entry.path, about if regular else None


def _map(handle: _Handle) -> Mapped:
    if handle.nbytes == 0:  # nothing to map
        empty = np.empty(0, np.uint8)
        empty.flags.writeable = False
        return Mapped(empty, handle.etag, 0)
    source = mmap.mmap(handle.fd, handle.nbytes, access=mmap.ACCESS_READ)
    return Mapped(np.frombuffer(source, np.uint8), handle.etag, handle.nbytes, source)


def _read_fully(fd: int, start: int, buffer: memoryview) -> int:
    """Read until the buffer is full or the file ends; return how many bytes came."""
    flat = buffer if buffer.format == "B" and buffer.ndim == 1 else buffer.cast("B")
    done, total = 0, len(flat)
    while done < total:
        got = os.preadv(fd, [flat[done : done + _READ_LIMIT]], start + done)
        if got == 0:
            break
        done += got
    return done
