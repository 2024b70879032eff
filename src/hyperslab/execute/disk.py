"""Stored chunks kept on the local disk, up to a limit in bytes, shared by processes.

An entry is a file named after a hash of the store, the object's key, its ETag and the chunk; it holds a checksum and
the chunk's stored bytes. A second small file remembers the ETag last seen of an object, so that another process can
ask the store whether that is still the one. A damaged entry counts as not there.
"""

import os
import tempfile
import threading
from hashlib import blake2b
from pathlib import Path

import numpy as np

from hyperslab.layout.checksums import crc32c

__all__ = ["DiskCache"]

# After this many entries the folder's size is looked at again.
_SWEEP_EVERY = 64


class DiskCache:
    """A folder of chunks. Safe to use from several threads and processes at a time."""

    def __init__(self, folder: str | os.PathLike[str], limit_bytes: int) -> None:
        self.folder, self.limit_bytes = Path(folder).expanduser().absolute(), limit_bytes
        self.folder.mkdir(parents=True, exist_ok=True)
        self._puts = 0
        self._lock = threading.Lock()

    def get(self, address: str, key: str, etag: str, inner: int) -> bytes | None:
        """Return a chunk's stored bytes, or None."""
        path = self._path(address, key, etag, str(inner))
        try:
            data = path.read_bytes()
            os.utime(path)
        except OSError:
            return None
        return data[4:] if len(data) > 4 and _checksum(memoryview(data)[4:]) == data[:4] else None

    def put(self, address: str, key: str, etag: str, inner: int, data: memoryview) -> None:
        """Keep a chunk's stored bytes. A full disk is no error: nothing is kept then."""
        try:
            self._write(self._path(address, key, etag, str(inner)), _checksum(data), data)
            self._write(self._path(address, key), etag.encode())
        except OSError:
            return
        with self._lock:
            self._puts += 1
            sweep = self._puts % _SWEEP_EVERY == 1
        if sweep:
            self.sweep()

    def last_etag(self, address: str, key: str) -> str | None:
        """Return the ETag that the object had when a chunk of it was last kept."""
        try:
            return self._path(address, key).read_text()
        except (OSError, UnicodeDecodeError):
            return None

    def sweep(self) -> None:
        """Remove the least recently used entries until the rest fit the limit."""
        entries = []
        for entry in os.scandir(self.folder):
            try:
                found = entry.stat()
            except OSError:
                continue
            entries.append((found.st_mtime, found.st_size, entry.path))
        total = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries):
            if total <= self.limit_bytes:
                return
            Path(path).unlink(missing_ok=True)
            total -= size

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
