"""A program that undoes one HDF5 filter at a time, so that a filter that crashes takes nobody with it.

It speaks with the process that started it over its standard input, a socket, in frames: a head, then as many
bytes as the head says. What it gets are small HDF5 files of one chunk each. It ends when the other side does.
`plugin.py` is the other side. Nothing of the package is imported here: it would take longer to start.
"""

import ctypes
import io
import signal
import socket
import struct
import sys
from pathlib import Path
from typing import Any

__all__ = ["ANSWER", "DECODED", "FAILED", "HEAD", "MISSING", "READY", "TAP", "receive"]

# A request: filter, most bytes to give, bytes of the file that follows, seconds it may take.
HEAD = struct.Struct("<IQQI")
# An answer: what it is, and bytes that follow.
ANSWER = struct.Struct("<BQ")
READY, DECODED, MISSING, FAILED = range(4)
# Our own filter, by a number that HDF5 keeps free for tests: it takes what the filter before it gave.
TAP = 511

# What a filter may use beside what it reads and gives.
_SPARE_BYTES = 256 << 20


def receive(channel: socket.socket, nbytes: int) -> bytearray:
    """Return exactly `nbytes` bytes; EOFError where the other side ends before."""
    found = bytearray(nbytes)
    view, at = memoryview(found), 0
    while at < nbytes:
        got = channel.recv_into(view[at:])
        if not got:
            raise EOFError
        at += got
    return found


_FILTER = ctypes.CFUNCTYPE(
    ctypes.c_size_t,
    ctypes.c_uint,
    ctypes.c_size_t,
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_void_p),
)


class _FilterClass(ctypes.Structure):
    """How HDF5 describes a filter."""

    _fields_ = (
        ("version", ctypes.c_int),
        ("id", ctypes.c_int),
        ("encoder", ctypes.c_uint),
        ("decoder", ctypes.c_uint),
        ("name", ctypes.c_char_p),
        ("can_apply", ctypes.c_void_p),
        ("set_local", ctypes.c_void_p),
        ("filter", _FILTER),
    )


class _Tap:
    """Our own filter: keeps what reaches it, then lets the read fail, so that HDF5 copies nothing further."""

    def __init__(self) -> None:
        import h5py

        self.most_nbytes = 0
        self.found: bytes | None = None
        self.got = -1
        self._class = _FilterClass(1, TAP, 1, 1, b"tap", None, None, _FILTER(self._take))
        h5py.h5z.register_filter(ctypes.addressof(self._class))

    def _take(self, flags: int, count: int, values: int, nbytes: int, room: int, data: Any) -> int:
        self.got = nbytes
        if nbytes <= self.most_nbytes:
            self.found = ctypes.string_at(data[0], nbytes)
        return 0

    def _forget(self, most_nbytes: int) -> None:
        self.most_nbytes, self.found, self.got = most_nbytes, None, -1

    def answer(self, number: int, most_nbytes: int, file: bytearray) -> tuple[int, bytes]:
        """Return what filter `number` makes of the chunk in `file`."""
        if not _available(number):
            return MISSING, b""
        self._forget(most_nbytes)
        reason = "it was not asked"
        try:
            _read(file)
        except (OSError, RuntimeError, KeyError, ValueError) as error:
            reason = str(error)
        if self.found is not None:
            return DECODED, self.found
        if self.got >= 0:
            reason = f"it gives {self.got} bytes, expected at most {most_nbytes}"
        return FAILED, reason.encode(errors="replace")[: 1 << 12]


def _read(file: bytearray) -> None:
    """Read one cell, for which HDF5 undoes all filters of the chunk."""
    import h5py
    import numpy as np

    # As a file object: the library copies less than from an image of a file.
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    access.set_fileobj_driver(h5py.h5fd.fileobj_driver, io.BytesIO(file))
    opened = h5py.h5f.open(b"chunk", h5py.h5f.ACC_RDONLY, fapl=access)
    try:
        dataset = h5py.h5d.open(opened, b"a")
        one, space = h5py.h5s.create_simple((1,)), dataset.get_space()
        space.select_hyperslab((0,), (1,))
        dataset.read(one, space, np.empty(1, np.uint8))
    finally:
        opened.close()


def _available(number: int) -> bool:
    import h5py

    if h5py.h5z.filter_avail(number):
        return True
    try:
        import hdf5plugin  # type: ignore[import-not-found,import-untyped,unused-ignore]  # noqa: F401
    except ImportError:
        return False
    return bool(h5py.h5z.filter_avail(number))


def _limit(nbytes: int, timeout_s: int) -> None:
    """Bound the time and memory that the next chunk may take: past the time, the system ends this process."""
    signal.alarm(timeout_s)
    import resource

    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    soft = pages * resource.getpagesize() + _SPARE_BYTES + 8 * nbytes
    resource.setrlimit(resource.RLIMIT_AS, (soft, resource.getrlimit(resource.RLIMIT_AS)[1]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main() -> None:
    """Undo filters until the other side is gone."""
    channel = socket.socket(fileno=sys.stdin.fileno())
    tap = _Tap()
    limited = sys.platform == "linux"
    channel.sendall(ANSWER.pack(READY, 0))
    while True:
        try:
            number, most_nbytes, nbytes, timeout_s = HEAD.unpack(receive(channel, HEAD.size))
            file = receive(channel, nbytes)
        except EOFError:
            return
        if limited:
            _limit(most_nbytes + nbytes, timeout_s)
        try:
            status, found = tap.answer(number, most_nbytes, file)
        except MemoryError:
            status, found = FAILED, b"it needs more memory than the chunk's size allows"
        if limited:
            signal.alarm(0)
        channel.sendall(ANSWER.pack(status, len(found)))
        channel.sendall(found)


if __name__ == "__main__":
    main()
