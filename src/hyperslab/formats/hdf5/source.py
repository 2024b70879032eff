"""Datasets and groups of HDF5 files as sources: where their cells lie, and what remains to be read of that."""

from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from hyperslab.errors import ConflictError, MetadataError, NotFoundError, UnsupportedError
from hyperslab.formats.hdf5.chunks import chunk_table
from hyperslab.formats.hdf5.filters import hdf5_decoder
from hyperslab.formats.hdf5.messages import ChunkIndexMessage, Compact, Contiguous, External, Virtual
from hyperslab.formats.hdf5.objects import Dataset, Group, HdfFile, NamedType, open_file, user_attrs
from hyperslab.formats.hdf5.superblock import Superblock
from hyperslab.formats.source import ArraySource, FilePart, GroupSource, MetadataReader, StoredBytes, join
from hyperslab.layout import ChunkTable, Layout, SingleKey
from hyperslab.plan import Pieces

__all__ = ["FORMAT", "member_names", "open_hdf5", "open_member"]

FORMAT = "hdf5"

# Up to so many chunks are looked up by themselves, in an index of at least so many, so many times.
_FEW_CHUNKS = 64
_LONG_INDEX = 4096
_FEW_LOOKUPS = 8
# The name under which a file's objects are held, and what they take of the cache at most.
_PARSED = "parsed"
_PARSED_BYTES = 2 << 20


def open_hdf5(reader: MetadataReader, url: str, key: str, path: str = "") -> ArraySource | GroupSource | None:
    """Return the dataset or group at `path` of the file `key`; None if there is no such file or it is no HDF5."""
    opened = _parsed(reader.file(key))
    if opened is None:
        return None
    file, found = opened
    return _source(found, file, url, FilePart(key, path, file.version))


def open_member(reader: MetadataReader, group: GroupSource, name: str) -> ArraySource | GroupSource:
    """Return the member `name` of a group."""
    part = _part(group)
    file, found = _reopen(reader, part)
    inside = replace(part, path=join(part.path, name))
    return _source(found, file, group.url.rstrip("/") + "/" + name, inside)


def member_names(reader: MetadataReader, group: GroupSource) -> list[str]:
    """Return the names of a group's datasets and groups, sorted; what cannot be opened as either is left out."""
    part = _part(group)
    file, found = _reopen(reader, part)
    node = found.find(part.path)
    if not isinstance(node, Group):
        raise MetadataError(f"{group.url!r} is not a group any more")
    kinds = node.kinds(list(node.members()))
    file.keep()
    return sorted(name for name, kind in kinds.items() if kind in ("array", "group"))


@dataclass(frozen=True, slots=True)
class DatasetChunks:
    """A dataset's chunk index that has not been read yet."""

    part: FilePart
    superblock: Superblock
    message: ChunkIndexMessage
    shape: tuple[int, ...]
    maxshape: tuple[int | None, ...]

    def lookup(self, reader: MetadataReader, wanted: Pieces) -> ChunkTable | None:
        """Return a table that holds for the chunks of a read alone; None if it is better to read all of it.

        Of a long index far away only what leads to few chunks is fetched, a few times; who keeps asking gets all of it.
        """
        counts = [-(-n // c) for n, c in zip(self.shape, self.message.chunk_shape, strict=True)]
        if self.message.kind != "btree1" or len(wanted) > _FEW_CHUNKS or prod(counts) < _LONG_INDEX:
            return None
        file = self._file(reader)
        times = file.recall(f"lookups of {self.message.address}", int) or 0
        if file.local or times >= _FEW_LOOKUPS or file.recall(self._name, ChunkTable.unpack) is not None:
            return None
        places = np.array(list(wanted.chunks()), np.int64).reshape(len(wanted), len(wanted.layout.chunks))
        numbers = np.sort(np.ravel_multi_index(tuple(places.T[: len(counts)]), counts)).astype(np.int64)
        table = chunk_table(file, self.superblock, self.message, self.shape, self.maxshape, numbers)
        file.remember(f"lookups of {self.message.address}", times + 1, lambda n: str(n).encode())
        file.keep()
        return table

    def table(self, reader: MetadataReader) -> ChunkTable:
        """Read the index, or recall it if this version of the file was seen before."""
        file = self._file(reader)
        table = file.recall(self._name, ChunkTable.unpack)
        if table is None:
            table = chunk_table(file.passing(), self.superblock, self.message, self.shape, self.maxshape)
            file.remember(self._name, table, ChunkTable.pack)
        return table

    @property
    def _name(self) -> str:
        return f"chunks of {self.message.kind} at {self.message.address}, {self.shape}"

    def _file(self, reader: MetadataReader) -> StoredBytes:
        file = reader.file(self.part.key, self.part.version)
        if file is None:
            raise ConflictError(f"file {self.part.key!r} vanished meanwhile; open it again")
        return file


@dataclass(frozen=True, slots=True)
class DatasetCells:
    """Cells that are not yet what the user gets: strings to be trimmed, places in the file's heaps."""

    part: FilePart
    dtype: np.dtype[Any]

    def resolve(self, reader: MetadataReader, cells: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the strings, or arrays, that the cells refer to."""
        file, found = _reopen(reader, self.part)
        dataset = found.find(self.part.path)
        if not isinstance(dataset, Dataset):
            raise ConflictError(f"{self.part.path!r} of {self.part.key!r} is no dataset any more; open it again")
        resolved = dataset.resolve(cells)
        file.keep()
        return resolved


def _part(group: GroupSource) -> FilePart:
    if group.part is None:
        raise MetadataError(f"{group.url!r} is no group of an HDF5 file")
    return group.part


def _reopen(reader: MetadataReader, part: FilePart) -> tuple[StoredBytes, HdfFile]:
    opened = _parsed(reader.file(part.key, part.version))
    if opened is None:
        raise ConflictError(f"file {part.key!r} changed meanwhile; open it again")
    return opened


def _parsed(file: StoredBytes | None) -> tuple[StoredBytes, HdfFile] | None:
    """Return a file and what is known of its objects; None if it is no HDF5.

    It is held for whoever opens this version next: a group of thousands of members is parsed once, not for each.
    """
    if file is None:
        return None
    opened: tuple[StoredBytes, HdfFile] | None = file.held(_PARSED)
    if opened is None:
        if (found := open_file(file)) is None:
            return None
        opened = file, found
        file.hold(_PARSED, opened, min(file.size, _PARSED_BYTES))
    return opened


def _source(found: HdfFile, file: StoredBytes, url: str, part: FilePart) -> ArraySource | GroupSource:
    node = found.find(part.path)
    part = replace(part, address=node.address)
    if isinstance(node, NamedType):
        raise NotFoundError(f"{url!r} is a datatype that others refer to, neither an array nor a group")
    path = join(part.key, part.path)
    if isinstance(node, Group):
        source: ArraySource | GroupSource = GroupSource(url, path, FORMAT, user_attrs(node.attrs()), part=part)
    else:
        source = _array(node, url, path, part, found.superblock)
    file.keep()
    return source


def _array(dataset: Dataset, url: str, path: str, part: FilePart, sb: Superblock) -> ArraySource:
    if dataset.shape is None:
        raise UnsupportedError(f"{url!r} has no cells at all (an HDF5 null dataspace); there is nothing to read")
    unread, kind = None, dataset.cell_type
    if isinstance(dataset.storage, ChunkIndexMessage):
        unread = DatasetChunks(part, sb, dataset.storage, dataset.shape, dataset.maxshape or dataset.shape)
    return ArraySource(
        url, path, FORMAT, _layout(dataset, dataset.shape, url, part), user_attrs(dataset.attrs()), dataset.dims(),
        part=part, chunks=unread, cells=None if kind.plain else DatasetCells(part, kind.result),
    )  # fmt: skip


def _layout(dataset: Dataset, shape: tuple[int, ...], url: str, part: FilePart) -> Layout:
    storage, dtype, inner = dataset.storage, dataset.datatype.dtype, ()
    if dtype.subdtype is not None:
        # Cells that are arrays: their axes come after the dataset's own.
        dtype, inner = dtype.subdtype
    # An empty axis still needs chunks of some length; they are never read.
    chunks, base, table, decoder = tuple(max(1, length) for length in (*shape, *inner)), 0, None, None
    match storage:
        case ChunkIndexMessage():
            chunks = (*storage.chunk_shape, *inner)
            decoder = hdf5_decoder(dataset.filters, chunks, dtype) if dataset.filters else None
        case Compact() | Contiguous():
            base = storage.offset or 0
            if storage.offset is None:
                table = ChunkTable(np.full(1, -1, np.int64), np.full(1, -1, np.int64))
        case Virtual():
            raise UnsupportedError(f"{url!r} is a virtual dataset, made of parts of others; open those instead")
        case External():
            names = ", ".join(repr(file.name) for file in storage.files[:4])
            raise UnsupportedError(f"the cells of {url!r} lie in other files ({names}); open those instead")
    return Layout(
        shape=(*shape, *inner),
        dtype=dtype,
        chunks=chunks,
        keys=SingleKey(part.key),
        fill=_fill(dataset.fill, url),
        stored=dtype,
        order=tuple(range(len(chunks))),
        decoder=decoder,
        base=base,
        sparse=isinstance(storage, ChunkIndexMessage) or table is not None,
        table=table,
        file=part.version,
    )


def _fill(fill: npt.NDArray[Any], url: str) -> npt.NDArray[Any]:
    """Return the one value that cells have which were never written."""
    first = fill.reshape(-1)[:1].reshape(())
    if fill.ndim and fill.tobytes() != first.tobytes() * fill.size:
        raise UnsupportedError(f"{url!r} has cells that are arrays, and a fill value of several; that is not supported")
    return first
