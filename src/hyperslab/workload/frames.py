"""Frames: what a log is made of. Several processes append to one file; a damaged part does not spoil the others.

A frame is a magic of 8 bytes, the CRC-32C of what follows, the length of the payload, and the payload; numbers are
little-endian.
"""

import errno
import fcntl
import os
import stat
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hyperslab.errors import IntegrityError, InvalidInputError
from hyperslab.layout.checksums import crc32c

__all__ = ["MAGIC", "MOST_PAYLOAD_BYTES", "Skipped", "append", "begins_like_a_log", "frame", "payloads"]

MAGIC = b"\x93HSLOG\r\n"
# A reader holds one payload in memory, however long a damaged frame says that it is.
MOST_PAYLOAD_BYTES = 16 << 20

_HEAD = struct.Struct("<8sII")
_BLOCK_BYTES = 1 << 20
# Another process writes for microseconds; one that was stopped in the middle of it must not stop the reads of others.
_LOCK_TRIES, _LOCK_WAIT_S = 20, 0.001


@dataclass(slots=True)
class Skipped:
    """What of a log could not be used: torn or damaged frames, and all bytes that are in no good frame."""

    frames: int = 0
    bytes: int = 0


def frame(payload: bytes) -> bytes:
    """Wrap a payload.

    >>> len(frame(b"12345")) - 5, frame(b"12345")[:8] == MAGIC
    (16, True)
    """
    return _HEAD.pack(MAGIC, _checksum(payload), len(payload)) + payload


def _checksum(payload: bytes) -> int:
    return crc32c(np.frombuffer(len(payload).to_bytes(4, "little") + payload, np.uint8))


def append(path: str, data: bytes) -> None:
    """Write whole frames at the end of the file, by one write; raises OSError if not all of them got there."""
    # Opened each time: a forked child shares neither descriptor nor lock, and a log that was moved away is made anew.
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
    try:
        _lock(fd)
        if os.write(fd, data) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
    finally:
        os.close(fd)


def _lock(fd: int) -> None:
    """Wait a moment for the lock. Without it, as on a file system that has none, an append is whole on local disks."""
    for _ in range(_LOCK_TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_LOCK_WAIT_S)
        except OSError:
            return
        else:
            return


def begins_like_a_log(path: str) -> bool:
    """Whether the file is empty, or begins as logs do: nothing is appended to a file of another kind."""
    fd = _open(path)
    try:
        return stat.S_ISREG(os.fstat(fd).st_mode) and MAGIC.startswith(os.pread(fd, len(MAGIC), 0))
    finally:
        os.close(fd)


def _open(path: str) -> int:
    # Not blocking: a pipe that nobody writes to would be waited for.
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)


def payloads(path: str, skipped: Skipped) -> Iterator[bytes]:
    """Yield the payload of each good frame; count into `skipped` what lies between them.

    A frame that is torn or damaged is given up at its magic, not at the length that it claims: the next may begin
    anywhere after it.
    """
    fd = _open(path)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise InvalidInputError(f"{path!r} is not a file; give the file of a log")
        size, at, wasted = status.st_size, 0, 0
        while (found := _find(fd, at, size)) is not None:
            skipped.bytes += found - at
            payload, tried = _payload(fd, found, size)
            if payload is not None:
                yield payload
                at = found + _HEAD.size + len(payload)
                continue
            wasted += tried
            # Frames that overlap one another would be summed up again and again.
            if wasted > 4 * size + 4 * MOST_PAYLOAD_BYTES:
                raise IntegrityError(f"{path!r} is damaged all over, or was never a log; restore it, or leave it out")
            skipped.frames += 1
            skipped.bytes += 1
            at = found + 1
        skipped.bytes += max(0, size - at)
    finally:
        os.close(fd)


def _find(fd: int, at: int, size: int) -> int | None:
    """Return where the next magic is."""
    # In a good log it is right here.
    if os.pread(fd, len(MAGIC), at) == MAGIC:
        return at
    while at < size:
        block = os.pread(fd, _BLOCK_BYTES, at)
        place = block.find(MAGIC)
        if place >= 0:
            return at + place
        if len(block) < _BLOCK_BYTES:
            return None
        at += len(block) - len(MAGIC) + 1
    return None


def _payload(fd: int, at: int, size: int) -> tuple[bytes | None, int]:
    """Return the payload of the frame at this place, None if it is not whole; and how many bytes were summed up."""
    head = os.pread(fd, _HEAD.size, at)
    if len(head) < _HEAD.size:
        return None, 0
    _, expected, length = _HEAD.unpack(head)
    if length > MOST_PAYLOAD_BYTES or at + _HEAD.size + length > size:
        return None, 0
    payload = os.pread(fd, length, at + _HEAD.size)
    if len(payload) < length or _checksum(payload) != expected:
        return None, length
    return payload, length
