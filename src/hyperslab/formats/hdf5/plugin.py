"""HDF5's own filters and its plugins, undone in processes of their own: a chunk made to crash one harms nobody."""

import atexit
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hyperslab.errors import IntegrityError, UnsupportedError
from hyperslab.formats.hdf5 import plugin_child
from hyperslab.formats.hdf5.plugin_child import ANSWER, DECODED, HEAD, MISSING, READY, receive
from hyperslab.formats.hdf5.plugin_image import image_head
from hyperslab.layout.codecs import ByteArray, Size

__all__ = ["PluginFilter"]

_START_TIMEOUT_S = 60
# A filter slower than this is one that never ends.
_LEAST_BYTES_PER_S = 1 << 20
_LEAST_TIMEOUT_S = 20
# How a process ended that did not end by itself.
_SILENT = "no answer"
# HDF5 takes larger chunks only in files of another version.
_MOST_BYTES = (1 << 32) - 1
_MOST_CHILDREN = min(4, os.cpu_count() or 1)
# Filters that HDF5 or h5py bring along; the others are plugins.
_BUILT_IN = frozenset({4, 5, 6, 32000})


@dataclass(frozen=True, slots=True)
class PluginFilter:
    """A filter that only the HDF5 library can undo, by its number and its values in the file."""

    id: int
    name: str
    values: tuple[int, ...]

    def encoded(self, size: Size) -> Size:
        return Size(2 * size.nbytes + (64 << 10), exact=False)

    def decode(self, data: ByteArray, size: Size, key: str) -> ByteArray:
        if max(size.nbytes, data.nbytes) > _MOST_BYTES:
            raise UnsupportedError(f"chunk {key!r} has over 4 GiB, which filter {self.name} is not given")
        status, found = _children.undo(self, data, size.nbytes, key)
        if status == MISSING:
            raise UnsupportedError(self._missing())
        if status != DECODED:
            reason = found.decode("utf-8", "replace")
            raise IntegrityError(f"chunk {key!r} is damaged: {self.name} cannot decode it ({reason})")
        size.check(len(found), key)
        return np.frombuffer(found, np.uint8)

    def _missing(self) -> str:
        if self.id in _BUILT_IN:
            return f"filter {self.id} ({self.name}): the installed h5py was built without it"
        return (
            f"filter {self.id} ({self.name}) needs a plugin of HDF5 that is not installed: pip install hdf5plugin, "
            "or set HDF5_PLUGIN_PATH to where the plugin is"
        )


class _Child:
    """A process that undoes filters, and the line to it."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        # What can be imported here can be there.
        paths = os.pathsep.join([path for path in sys.path if path])
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-P", str(Path(plugin_child.__file__))],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=os.environ | {"PYTHONPATH": paths},
                start_new_session=True,
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        self.channel = ours
        self.channel.settimeout(_START_TIMEOUT_S)
        try:
            status, _ = ANSWER.unpack(receive(ours, ANSWER.size))
        except (OSError, EOFError):
            status = None
        if status != READY:
            raise ChildProcessError(f"it ended with {self.close()}")

    def ask(self, codec: PluginFilter, data: ByteArray, most_nbytes: int, timeout_s: int) -> tuple[int, bytearray]:
        """Send a chunk and wait for what comes of it; EOFError, TimeoutError or OSError where nothing does."""
        head = image_head(codec.id, codec.values, most_nbytes, data.nbytes)
        self.channel.settimeout(timeout_s + 1)
        self.channel.sendall(HEAD.pack(codec.id, most_nbytes, len(head) + data.nbytes, timeout_s) + head)
        self.channel.sendall(data.data)
        status, nbytes = ANSWER.unpack(receive(self.channel, ANSWER.size))
        # A longer answer than was asked for can only come from a process that lost its senses.
        if nbytes > max(most_nbytes, 1 << 16):
            raise EOFError
        return status, receive(self.channel, nbytes)

    def close(self) -> str:
        """End the process; return how it ended, in words."""
        self.channel.close()
        try:
            # One that crashed is given a moment to say so, any other to see that nobody is there.
            code = self.process.wait(0.5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
            return _SILENT
        if code == -signal.SIGALRM:
            return _SILENT
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    def abandon(self) -> None:
        """Forget a process that belongs to the parent of a fork."""
        self.channel.close()
        self.process.returncode = 0


class _Children:
    """The processes of this process: started when all others are busy, up to a few, and kept."""

    def __init__(self) -> None:
        self._prepared = False
        self._forget()

    def _forget(self) -> None:
        self._free = threading.Semaphore(_MOST_CHILDREN)
        self._idle: list[_Child] = []
        self._all: set[_Child] = set()

    def undo(self, codec: PluginFilter, data: ByteArray, most_nbytes: int, key: str) -> tuple[int, bytearray]:
        """Have a child answer. If it ends over it, another one tries once more: it may have been killed."""
        timeout_s = _LEAST_TIMEOUT_S + (most_nbytes + data.nbytes) // _LEAST_BYTES_PER_S
        ended = ""
        with self._free:
            for _ in range(2):
                child = self._take(codec.name)
                keep = False
                try:
                    status, found = child.ask(codec, data, most_nbytes, timeout_s)
                    # What a damaged chunk left in its memory shall not touch the next one.
                    keep = status in (DECODED, MISSING)
                    return status, found
                except (OSError, EOFError):
                    pass
                finally:
                    ended = self._put(child, keep=keep)
                if ended == _SILENT:
                    break
        raise IntegrityError(
            f"chunk {key!r} is damaged: {codec.name} ended the process that decodes it ({ended} within {timeout_s} s)"
        )

    def _take(self, name: str) -> _Child:
        with suppress(IndexError):
            return self._idle.pop()
        if not self._prepared:
            self._prepared = True
            atexit.register(self.close)
            os.register_at_fork(after_in_child=self._forked)
        try:
            child = _Child()
        except OSError as error:
            raise UnsupportedError(
                f"filter {name} is decoded in a process of its own, which could not start ({error}); "
                f"does `{sys.executable} -c 'import h5py'` run?"
            ) from error
        self._all.add(child)
        return child

    def _put(self, child: _Child, *, keep: bool) -> str:
        if keep:
            self._idle.append(child)
            return ""
        self._all.discard(child)
        return child.close()

    def close(self) -> None:
        """End all processes, also those at work."""
        for child in list(self._all):
            child.process.kill()
            child.close()
        self._all.clear()
        self._idle.clear()

    def _forked(self) -> None:
        """In a forked process: the parent's children stay the parent's."""
        for child in self._all:
            child.abandon()
        self._forget()


_children = _Children()
