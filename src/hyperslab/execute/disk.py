"""Stored chunks kept on the local disk, up to a limit in bytes, shared by processes.

An entry is a file named after a hash of the store, the object's key, its ETag and the chunk; it holds a checksum and
the chunk's stored bytes. A second small file remembers the ETag last seen of an object, so that another process can
ask the store whether that is still the one. A damaged entry counts as not there.
"""

import os
import tempfile
import threading
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

import numpy as np

from hyperslab.errors import InvalidInputError
from hyperslab.layout.checksums import crc32c

__all__ = ["DiskCache"]

# A sweep leaves this part of the limit free, at least.
_ROOM = 16


class DiskCache:
    """A folder of chunks. Safe to use from several threads and processes at a time."""

    def __init__(self, folder: str | os.PathLike[str], limit_bytes: int) -> None:
        self.folder, self.limit_bytes = Path(folder).expanduser().absolute(), limit_bytes
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidInputError(
                f"the disk cache cannot be kept in {str(folder)!r} ({error.strerror}); name another folder"
            ) from None
        # What may still be written before the folder's size is looked at again.
        self._room_bytes = 0
        self._lock = threading.Lock()

    def after_fork(self) -> None:
        """Forget the lock: a thread that was not forked along may hold it."""
        self._lock = threading.Lock()

    def get(self, address: str, key: str, etag: str, inner: int | str) -> bytes | None:
        """Return a chunk's stored bytes, or None."""
        path = self._path(address, key, etag, str(inner))
        try:
            data = path.read_bytes()
            os.utime(path)
        except OSError:
            return None
        return data[4:] if len(data) > 4 and _checksum(memoryview(data)[4:]) == data[:4] else None

    def has(self, address: str, key: str, etag: str, inner: int | str) -> bool:
        """Say whether a chunk is there, damaged or not."""
        return self._path(address, key, etag, str(inner)).exists()

    def put(self, address: str, key: str, etag: str, inner: int | str, data: memoryview) -> None:
        """Keep a chunk's stored bytes, unless it is a large part of the cache. A full disk is no error."""
        if data.nbytes * 4 > self.limit_bytes:
            return
        try:
            self._write(self._path(address, key, etag, str(inner)), _checksum(data), data)
            self._write(self._path(address, key), etag.encode())
        except OSError:
            return
        with self._lock:
            self._room_bytes -= data.nbytes + 4 + len(etag)
            if self._room_bytes < 0:
                self.sweep()

    def last_etag(self, address: str, key: str) -> str | None:
        """Return the ETag that the object had when a chunk of it was last kept."""
        try:
            return self._path(address, key).read_text()
        except (OSError, UnicodeDecodeError):
            return None

    def sweep(self) -> None:
        """Remove the least recently used entries until there is room again."""
        entries = []
        with suppress(OSError):
            for entry in os.scandir(self.folder):
                with suppress(OSError):  # another process sweeps, too
                    found = entry.stat()
                    entries.append((found.st_mtime, found.st_size, entry.path))
        total = sum(size for _, size, _ in entries)
        if total > self.limit_bytes - self.limit_bytes // _ROOM:
            for _, size, path in sorted(entries):
                with suppress(OSError):
                    os.unlink(path)
                total -= size
                if total <= self.limit_bytes - 2 * (self.limit_bytes // _ROOM):
                    break
        # Half of it: other processes write as well.
        self._room_bytes = (self.limit_bytes - total) // 2

    def _path(self, *parts: str) -> Path:
        return self.folder / blake2b("\0".join(parts).encode(), digest_size=20).hexdigest()

    def _write(self, path: Path, *data: bytes | memoryview) -> None:
        """Write a file so that others see all of it or nothing."""
        handle, name = tempfile.mkstemp(dir=self.folder)
        try:
            with os.fdopen(handle, "wb") as file:
                for part in data:
                    file.write(part)
            Path(name).replace(path)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise


def _checksum(data: memoryview) -> bytes:
    return crc32c(np.frombuffer(data, np.uint8)).to_bytes(4, "little")
