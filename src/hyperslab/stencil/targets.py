"""Where outputs go: objects of a Zarr array, a dataset of an HDF5 file, an array in memory."""

import os
import threading
from collections.abc import Callable, Collection, Iterator
from math import prod
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from hyperslab.errors import HyperslabError, InvalidInputError, StoreError
from hyperslab.formats.zarr.array import ZarrArray
from hyperslab.formats.zarr.sizes import LONE_CHUNK_BYTES, choose_chunks
from hyperslab.rechunk.stages import Storing, Wanted
from hyperslab.selection import Box

__all__ = ["Hdf5File", "Hdf5Target", "HeldTarget", "StoredTarget", "hdf5_path"]

Cells = npt.NDArray[Any]
Shape = tuple[int, ...]
Tell = Callable[[int], None]

_SUFFIXES = (".h5", ".hdf5", ".hdf", ".he5", ".nc", ".nc4")
# A file that is being written has another name until it is done.
_DRAFT = ".unfinished"


class StoredTarget:
    """Objects of a Zarr array; those at the places `done` are there, and stay as they are."""

    def __init__(self, array: ZarrArray, done: Collection[Shape], tell: Tell) -> None:
        layout = array.source.layout
        self._wanted, self._shape = Wanted(layout, frozenset(done)), layout.shape
        itemsize = layout.dtype.itemsize
        self._storing = Storing(
            array.objects(array.writer()), self._wanted, tuple, _nothing, lambda count: tell(count * itemsize),
            leave_out=False, verify=False,
        )  # fmt: skip

    def wants(self, box: Box) -> bool:
        return self._wanted.trimmed(self._whole(box)) is not None

    def items(self, box: Box, cells: Cells) -> Iterator[Any]:
        yield from self._storing.items(self._whole(box), cells)

    def work(self, item: Any) -> None:
        self._storing.work(item)

    def _whole(self, box: Box) -> Box:
        """Return the box with the axes of what a cell holds."""
        more = self._shape[len(box.start) :]
        return Box((*box.start, *[0] * len(more)), (*box.stop, *more))


class HeldTarget:
    """An array in memory."""

    def __init__(self, array: Cells, tell: Tell) -> None:
        self._array, self._tell = array, tell

    def wants(self, box: Box) -> bool:
        return True

    def items(self, box: Box, cells: Cells) -> Iterator[tuple[Box, Cells]]:
        yield box, cells

    def work(self, item: tuple[Box, Cells]) -> None:
        box, cells = item
        self._array[box.slices] = cells
        self._tell(cells.nbytes)


def hdf5_path(url: str) -> tuple[str, str] | None:
    """Return the file and the name in it, if a path names a dataset of an HDF5 file.

    >>> hdf5_path("run/out.h5/fields/t"), hdf5_path("out.zarr"), hdf5_path("out.h5")
    (('run/out.h5', 'fields/t'), None, ('out.h5', 'data'))
    """
    path = url.removeprefix("file://") if url.startswith("file:///") else url
    if "://" in path:
        return None
    parts = path.split("/")
    for count, part in enumerate(parts, 1):
        if part.lower().endswith(_SUFFIXES):
            return "/".join(parts[:count]), "/".join(parts[count:]) or "data"
    return None


class Hdf5File:
    """A new HDF5 file, which appears under its name when all of it is written."""

    def __init__(self, path: str, *, overwrite: bool) -> None:
        import h5py

        if os.path.exists(path) and not overwrite:
            raise InvalidInputError(f"{path!r} is there already; pass overwrite=True to replace it with all it holds")
        self.path, self._draft = path, path + _DRAFT
        self._lock = threading.Lock()
        try:
            self._file = h5py.File(self._draft, "w", libver="latest")
        except OSError as error:
            raise StoreError(f"{path!r} cannot be written: {error}") from None

    def __enter__(self) -> "Hdf5File":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()
        if kind is None:
            os.replace(self._draft, self.path)
        else:
            os.remove(self._draft)

    def create(self, name: str, shape: Shape, dtype: np.dtype[Any], chunks: Shape, tell: Tell) -> "Hdf5Target":
        """Create a dataset and return what writes it."""
        try:
            sizes = chunks if prod(shape) else None
            return Hdf5Target(self._file.create_dataset(name, shape, dtype, chunks=sizes), self._lock, tell)
        except (ValueError, TypeError) as error:
            raise InvalidInputError(f"{self.path!r} cannot hold {name!r} of {dtype} {shape}: {error}") from None


def hdf5_chunks(shape: Shape, itemsize: int, given: Any) -> Shape:
    """Return the chunks of a dataset: those given, or about 2 MiB."""
    if given is None:
        return choose_chunks(shape, itemsize, LONE_CHUNK_BYTES)
    sizes = tuple(given) if not isinstance(given, int) else (given,)
    if len(sizes) != len(shape) or not all([isinstance(n, int) and n > 0 for n in sizes]):
        raise InvalidInputError(f"chunks are a length above 0 for each of {len(shape)} axes, not {given!r}")
    return tuple([max(1, min(n, length)) for n, length in zip(sizes, shape, strict=True)])


class Hdf5Target:
    """A dataset of an HDF5 file, which one thread at a time writes."""

    def __init__(self, dataset: Any, lock: threading.Lock, tell: Tell) -> None:
        self._dataset, self._lock, self._tell = dataset, lock, tell

    def wants(self, box: Box) -> bool:
        return True

    def items(self, box: Box, cells: Cells) -> Iterator[tuple[Box, Cells]]:
        yield box, cells

    def work(self, item: tuple[Box, Cells]) -> None:
        box, cells = item
        try:
            with self._lock:
                self._dataset[box.slices] = cells
        except HyperslabError:
            raise
        except OSError as error:
            raise StoreError(f"writing {self._dataset.name!r} failed: {error}; is the disk full?") from error
        self._tell(cells.nbytes)


def _nothing(box: Box, cells: Cells) -> None:
    """Do nothing: parts are made before they are stored."""
