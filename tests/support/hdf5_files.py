"""HDF5 files in memory: written by h5py, read through the parser, and looked at in every part."""

import ctypes
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from hyperslab.errors import IntegrityError
from hyperslab.formats.hdf5.messages import Compact, Contiguous
from hyperslab.formats.hdf5.objects import Dataset, Group, HdfFile, open_file

__all__ = [
    "LIBVERS",
    "BytesFile",
    "FileOf",
    "file_bytes",
    "libhdf5",
    "opened",
    "read_everything",
    "read_run",
    "special_bytes",
]

# The versions of the file format that h5py can be asked for; HDF5 2.0's comes last.
LIBVERS = [("earliest", "v108"), ("v108", "v108"), ("v110", "v110"), ("latest", "latest")]


class BytesFile:
    """Bytes as a file; remembers what was asked for."""

    etag = None

    def __init__(self, data: bytes) -> None:
        self.data = memoryview(data)
        self.size = len(data)
        self.rounds: list[int] = []
        self.nbytes = 0

    def read(self, start: int, nbytes: int) -> memoryview:
        return self.read_many([(start, nbytes)])[0]

    def read_many(self, spans: Sequence[tuple[int, int]]) -> list[memoryview]:
        self.rounds.append(len(spans))
        for start, nbytes in spans:
            if start < 0 or nbytes < 0 or start + nbytes > self.size:
                raise IntegrityError(f"{nbytes} bytes at {start} of a file of {self.size}: it is cut off")
            self.nbytes += nbytes
        return [self.data[start : start + nbytes] for start, nbytes in spans]


def file_bytes(fill: Callable[[h5py.File], Any], **options: Any) -> bytes:
    """Return the bytes of a file that `fill` has written to."""
    target = io.BytesIO()
    with h5py.File(target, "w", **options) as file:
        fill(file)
    return target.getvalue()


def special_bytes(
    fill: Callable[[h5py.File], Any], change: Callable[[h5py.h5p.PropFCID], Any], libver: tuple[str, str]
) -> bytes:
    """Return the bytes of a file whose creation properties `change` has set: h5py's lower layer knows more of them."""
    names = {"earliest": h5py.h5f.LIBVER_EARLIEST, "v108": h5py.h5f.LIBVER_V18, "latest": h5py.h5f.LIBVER_LATEST}
    plist, access = h5py.h5p.create(h5py.h5p.FILE_CREATE), h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    change(plist)
    access.set_fapl_core(backing_store=False)
    access.set_libver_bounds(names[libver[0]], names[libver[1]])
    number = h5py.h5f.create(b"in-memory", h5py.h5f.ACC_TRUNC, fcpl=plist, fapl=access)
    with h5py.File(number) as file:
        fill(file)
        file.flush()
        return bytes(number.get_file_image())


def libhdf5() -> ctypes.CDLL | None:
    """Return the C library that h5py runs on, None where it cannot be found: for what h5py does not offer."""
    found = sorted(Path(h5py.__file__).parent.parent.glob("h5py.libs/libhdf5-*.so*"))
    return ctypes.CDLL(str(found[0])) if found else None


def opened(data: bytes) -> HdfFile:
    """Return a file that must be HDF5."""
    found = open_file(BytesFile(data))
    assert found is not None
    return found


class FileOf:
    """The same file twice: `ours` and `theirs`, which is h5py's."""

    def __init__(self, fill: Callable[[h5py.File], Any], **options: Any) -> None:
        self.data = file_bytes(fill, **options)
        self.bytes = BytesFile(self.data)
        found = open_file(self.bytes)
        assert found is not None
        self.ours = found
        self.theirs = h5py.File(io.BytesIO(self.data), "r")

    def __enter__(self) -> "FileOf":
        return self

    def __exit__(self, *_: Any) -> None:
        self.theirs.close()


def read_run(dataset: Dataset, data: bytes | memoryview) -> np.ndarray:
    """Return all cells of a dataset that is stored in one run."""
    storage = dataset.storage
    assert isinstance(storage, Compact | Contiguous)
    assert dataset.shape is not None
    dtype = dataset.datatype.dtype
    base, inner = (dtype, ()) if dtype.subdtype is None else dtype.subdtype
    count = int(np.prod(dataset.shape, dtype=object))
    if storage.offset is None:
        cells = np.broadcast_to(dataset.fill, (*dataset.shape, *inner))
    else:
        raw = data[storage.offset : storage.offset + count * dtype.itemsize]
        cells = np.frombuffer(raw, base).reshape((*dataset.shape, *inner))
    return dataset.resolve(cells)


def read_everything(data: bytes, *, most_objects: int = 200) -> int:
    """Look at every object of a file in every way; return how many there were. Only typed errors may come out."""
    file = open_file(BytesFile(data))
    if file is None:
        return 0
    todo, seen = [""], 0
    addresses: set[int] = set()
    while todo and seen < most_objects:
        path = todo.pop()
        node = file.find(path)
        seen += 1
        node.attrs()
        if isinstance(node, Group):
            if node.address not in addresses:
                addresses.add(node.address)
                kinds = node.kinds()
                todo += [f"{path}/{name}" for name, kind in kinds.items() if kind != "link" and "/" not in name]
        elif isinstance(node, Dataset):
            assert node.fill.dtype is not None
            node.dims()
            count = int(np.prod(node.shape or (), dtype=object))
            if isinstance(node.storage, Compact | Contiguous) and node.shape is not None and count <= 10_000:
                read_run(node, data)
        else:
            assert node.datatype.nbytes
    return seen
