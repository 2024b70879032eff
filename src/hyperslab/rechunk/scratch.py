"""Cells on the local disk for a while: written in any order, read in another, gone with the process."""

import os
import tempfile
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from hyperslab.errors import StoreError
from hyperslab.plan.phrases import say_bytes

__all__ = ["Scratch", "free_bytes", "scratch_folder"]

Cells = npt.NDArray[Any]

# Cells that do not lie side by side are gathered in pieces that stay in the processor's cache.
_PIECE_BYTES = 1 << 20
# Of the free space so much is left to others.
_SPARE_SHARE = 0.1


def scratch_folder(folder: str | None = None) -> str:
    """Return where scratch files go: the folder given, or that for temporary files (TMPDIR)."""
    return tempfile.gettempdir() if folder is None else folder


def free_bytes(folder: str) -> int:
    """Return how much may be written to the disk that a folder is on."""
    try:
        found = os.statvfs(folder)
    except OSError as error:
        raise StoreError(f"there is no room for scratch files in {folder}: {error.strerror}; set TMPDIR") from None
    return int(found.f_bavail * found.f_frsize * (1 - _SPARE_SHARE))


class Scratch:
    """A file without a name: the system removes it with its last handle, also if the process is killed.

    Cells are read and written by calls rather than mapped, so that they do not count as the process's memory.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        try:
            self._fd = _nameless(folder)
        except OSError as error:
            raise self._failed(error) from None

    def __enter__(self) -> "Scratch":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._fd)

    def write(self, offset: int, cells: Cells) -> None:
        """Write cells from byte `offset` on, row by row."""
        for piece in _pieces(cells):
            self._put(offset, _flat(np.ascontiguousarray(piece)))
            offset += piece.nbytes

    def read(self, offset: int, cells: Cells) -> None:
        """Fill `cells` with what was written from byte `offset` on."""
        for piece in _pieces(cells):
            target = piece if piece.flags.c_contiguous else np.empty(piece.shape, piece.dtype)
            self._get(offset, _flat(target))
            if target is not piece:
                piece[...] = target
            offset += piece.nbytes

    def clear(self) -> None:
        """Give the space back."""
        os.ftruncate(self._fd, 0)

    def _put(self, offset: int, data: memoryview) -> None:
        done = 0
        try:
            while done < len(data):
                done += os.pwrite(self._fd, data[done:], offset + done)
        except OSError as error:
            raise self._failed(error) from None

    def _get(self, offset: int, data: memoryview) -> None:
        done = 0
        try:
            while done < len(data):
                got = os.preadv(self._fd, [data[done:]], offset + done)
                if not got:
                    raise StoreError(f"the scratch file in {self.folder} ends at byte {offset + done}; try again")
                done += got
        except StoreError:
            raise
        except OSError as error:
            raise self._failed(error) from None

    def _failed(self, error: OSError) -> StoreError:
        return StoreError(
            f"the scratch file in {self.folder} failed: {error.strerror} ({say_bytes(free_bytes(self.folder))} are "
            "free); set TMPDIR to a folder on a disk with more room"
        )


def _nameless(folder: str) -> int:
    if hasattr(os, "O_TMPFILE"):
        try:
            return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError:
            pass  # some file systems have no files without a name
    fd, path = tempfile.mkstemp(prefix="hyperslab-", dir=folder)
    os.unlink(path)
    return fd


def _pieces(cells: Cells) -> Iterator[Cells]:
    """Cut cells along their first axes into views of limited size; those that lie side by side stay together."""
    if cells.flags.c_contiguous or cells.nbytes <= _PIECE_BYTES or not cells.ndim:
        yield cells
        return
    row_bytes = cells.nbytes // len(cells)
    if row_bytes > _PIECE_BYTES:
        for row in cells:
            yield from _pieces(row)
        return
    rows = max(1, _PIECE_BYTES // row_bytes)
    for low in range(0, len(cells), rows):
        yield cells[low : low + rows]


def _flat(cells: Cells) -> memoryview:
    return cells.reshape(-1).view(np.uint8).data
