"""The objects of an HDF5 file: found by path, described by their headers."""

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hyperslab.errors import HyperslabError, IntegrityError, MetadataError, NotFoundError, UnsupportedError
from hyperslab.formats.hdf5.attributes import read_attributes, user_attrs
from hyperslab.formats.hdf5.cursor import FileBytes
from hyperslab.formats.hdf5.datatype import Datatype, read_datatype
from hyperslab.formats.hdf5.dimensions import read_dimensions
from hyperslab.formats.hdf5.groups import Link, kind_of, read_members
from hyperslab.formats.hdf5.header import Message, ObjectHeader
from hyperslab.formats.hdf5.heaps import read_local_heap
from hyperslab.formats.hdf5.messages import (
    ChunkIndexMessage,
    Compact,
    Contiguous,
    Dataspace,
    External,
    ExternalFile,
    FilterMessage,
    Storage,
    parse_dataspace,
    parse_external_files,
    parse_fill,
    parse_filters,
    parse_layout,
)
from hyperslab.formats.hdf5.opened import HeadBytes, Opened, open_superblock
from hyperslab.formats.hdf5.superblock import Superblock, find_superblock
from hyperslab.formats.hdf5.vlen import resolve

__all__ = ["Dataset", "Group", "HdfFile", "NamedType", "open_file", "user_attrs"]

DATASPACE, DATATYPE, OLD_FILL, FILL, EXTERNAL, LAYOUT, FILTERS = 0x01, 0x03, 0x04, 0x05, 0x07, 0x08, 0x0B
_MOST_SOFT_LINKS = 64
_MOST_STEPS = 4096
# Of the groups that were looked at last, so many links are kept; a group itself counts as one.
_MOST_LINKS_KEPT = 1 << 17
_NAMES_SHOWN = 20
_PLACEHOLDER = "This is a netCDF dimension but not a netCDF variable"


def open_file(file: FileBytes) -> "HdfFile | None":
    """Return the HDF5 file in some bytes, None if it is none. Most need one request for all that is at their start."""
    head = HeadBytes(file)
    superblock = find_superblock(head)
    return None if superblock is None else HdfFile(open_superblock(head, superblock))


class HdfFile:
    """An opened file and the members of its groups that were looked at."""

    def __init__(self, opened: Opened) -> None:
        self.opened = opened
        self._members: OrderedDict[int, dict[str, Link]] = OrderedDict()
        self._links = 0

    @property
    def superblock(self) -> Superblock:
        """What the whole file has in common."""
        return self.opened.superblock

    @property
    def root(self) -> "Group":
        """The group from which all paths start."""
        return Group(self, self.superblock.root, ())

    def members(self, address: int) -> dict[str, Link]:
        """Return the links of the group whose header is at `address`."""
        if (found := self._members.get(address)) is None:
            found = read_members(self.opened.file, self.superblock, self.opened.header(address))
            self._members[address] = found
            self._links += 1 + len(found)
            while self._links > _MOST_LINKS_KEPT and len(self._members) > 1:
                self._links -= 1 + len(self._members.popitem(last=False)[1])
        return found

    def find(self, path: str) -> "Group | Dataset | NamedType":
        """Return what is at `path`, soft links followed. NotFoundError says what there is instead."""
        address, parents = self.walk(path)
        header = self.opened.header(address)
        match kind_of(header):
            case "group":
                return Group(self, address, parents)
            case "array":
                return Dataset(self, header, path, parents)
        return NamedType(self, header)

    def walk(self, path: str, above: Sequence[int] = ()) -> tuple[int, tuple[int, ...]]:
        """Return the address of the object at `path`, and those of the groups that lead to it, the nearest last.

        `above` is where to start: the addresses of the groups from the root on. Nothing stands for the root.
        """
        todo, links, steps = deque(_parts(path)), 0, 0
        *parents, address = above or [self.superblock.root]
        if path.startswith("/"):
            parents, address = [], self.superblock.root
        while todo:
            name, steps = todo.popleft(), steps + 1
            link = self._member(address, name, path)
            if link.kind == "hard" and link.address is not None:
                parents.append(address)
                address = link.address
                continue
            links += 1
            if link.kind != "soft":
                place = f"{link.path!r} of the file {link.file!r}" if link.kind == "external" else link.path
                raise UnsupportedError(
                    f"{name!r} in {path!r} is a link to {place}, which is not followed; open it there"
                )
            todo.extendleft(reversed(_parts(link.path)))
            if links > _MOST_SOFT_LINKS or steps + len(todo) > _MOST_STEPS:
                raise MetadataError(
                    f"{path!r} leads through more than {links - 1} soft links, at last to {link.path[:200]!r}"
                )
            if link.path.startswith("/"):
                address, parents = self.superblock.root, []
        return address, tuple(parents)

    def _member(self, address: int, name: str, path: str) -> Link:
        # What has been looked into is a group: deep paths are walked again and again.
        if (members := self._members.get(address)) is None:
            if kind_of(self.opened.header(address)) != "group":
                raise NotFoundError(f"{path!r} was not found: what should hold {name!r} is no group")
            members = self.members(address)
        if name not in members:
            shown = ", ".join(map(repr, list(members)[:_NAMES_SHOWN])) or "nothing"
            more = f" and {len(members) - _NAMES_SHOWN} more" if len(members) > _NAMES_SHOWN else ""
            raise NotFoundError(f"{path!r} was not found: where {name!r} should be there is {shown}{more}")
        return members[name]


def _parts(path: str) -> list[str]:
    """Return the names of a path. HDF5 has no '..': it is a name like others."""
    return [name for name in path.split("/") if name not in ("", ".")]


class _Object:
    """What all objects have: an address and attributes."""

    def __init__(self, file: HdfFile, header: ObjectHeader) -> None:
        self.file = file
        self.header = header

    @property
    def address(self) -> int:
        """Where the object's header is."""
        return self.header.address

    def attrs(self) -> dict[str, Any]:
        """Return the attributes, those that libraries write for themselves included (see `user_attrs`)."""
        return read_attributes(self.file.opened, self.header)


class NamedType(_Object):
    """A datatype that was given a name, so that others can share it."""

    @property
    def datatype(self) -> Datatype:
        """The type."""
        return _datatype(self.file.opened, self.header)


class Group(_Object):
    """A group."""

    def __init__(self, file: HdfFile, address: int, parents: tuple[int, ...]) -> None:
        super().__init__(file, file.opened.header(address))
        self.parents = parents

    def members(self) -> dict[str, Link]:
        """Return the links by name, sorted."""
        return self.file.members(self.address)

    def kinds(self, names: Iterable[str] | None = None) -> dict[str, str]:
        """Return for members, by default all, what they are: array, group, type, a link that cannot be followed.

        An array that only stands for a dimension of a NetCDF-4 file is a "dimension".
        """
        members = self.members()
        chosen = {name: members[name] for name in (members if names is None else names) if name in members}
        places = {name: link.address for name, link in chosen.items() if link.address is not None}
        for name, link in chosen.items():
            if link.kind == "soft" and (target := self._target(link)) is not None:
                places[name] = target
        headers = self.file.opened.headers(list(places.values()))
        kinds = {name: self._kind(header) for name, header in zip(places, headers, strict=True)}
        return {name: kinds.get(name, "link") for name in chosen}

    def _kind(self, header: ObjectHeader) -> str:
        kind = kind_of(header)
        return "dimension" if kind == "array" and _is_placeholder(self.file.opened, header) else kind

    def _target(self, link: Link) -> int | None:
        try:
            return self.file.walk(link.path, (*self.parents, self.address))[0]
        except HyperslabError:
            return None


class Dataset(_Object):
    """A dataset: the type, the shape and the place of its cells."""

    def __init__(self, file: HdfFile, header: ObjectHeader, path: str, parents: tuple[int, ...]) -> None:
        super().__init__(file, header)
        opened = file.opened
        self.path = path
        self.parents = parents
        self.datatype: Datatype = _datatype(opened, header)
        self._space = parse_dataspace(_message(opened, header, DATASPACE), opened.superblock)
        pipeline = header.first(FILTERS)
        self.filters: tuple[FilterMessage, ...] = () if pipeline is None else parse_filters(opened.plain(pipeline))
        self.storage: Storage = _storage(opened, header, self._space, self.datatype, filtered=bool(self.filters))

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape, None if the dataset has no cells by its nature."""
        return self._space.shape

    @property
    def maxshape(self) -> tuple[int | None, ...] | None:
        """How far each axis can grow, None without limit."""
        return self._space.maxshape

    @property
    def fill(self) -> npt.NDArray[Any]:
        """The value of cells that were never written, as it lies in the file."""
        message = self.header.first(FILL) or self.header.first(OLD_FILL)
        raw = None if message is None else parse_fill(self.file.opened.plain(message))
        dtype = self.datatype.dtype
        base, inner = (dtype, ()) if dtype.subdtype is None else dtype.subdtype
        if raw is None:
            return np.zeros(inner, base)
        if len(raw) != dtype.itemsize:
            raise MetadataError(f"{self.path!r} has a fill value of {len(raw)} bytes, its cells have {dtype.itemsize}")
        return np.frombuffer(bytearray(raw), base).reshape(inner)

    @property
    def cell_type(self) -> Datatype:
        """The type of one cell, where the axes of cells that are arrays count as the dataset's."""
        return self.datatype.base if self.datatype.kind == "array" and self.datatype.base else self.datatype

    def resolve(self, cells: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return cells as a user sees them, from cells as they lie in the file; the same ones if the type is plain."""
        opened = self.file.opened
        return resolve(opened.file, opened.superblock, cells, self.cell_type, opened.collections)

    def dims(self) -> tuple[str | None, ...] | None:
        """Return the names of the axes where dimension scales or labels give any, else None."""
        return read_dimensions(self)


def _is_placeholder(opened: Opened, header: ObjectHeader) -> bool:
    """Whether a dataset only stands for a dimension of a NetCDF-4 file, and holds nothing."""
    try:
        name = read_attributes(opened, header, ["NAME"]).get("NAME")
    except HyperslabError:
        # Whoever opens it gets to know; the other members of its group can still be listed.
        return False
    return isinstance(name, str) and name.startswith(_PLACEHOLDER)


def _datatype(opened: Opened, header: ObjectHeader) -> Datatype:
    return read_datatype(_message(opened, header, DATATYPE), opened.superblock)


def _message(opened: Opened, header: ObjectHeader, kind: int) -> Message:
    if (message := header.first(kind)) is None:
        raise MetadataError(f"the object at byte {header.address} lacks a message of type {kind}; the file is damaged")
    return opened.plain(message)


def _storage(opened: Opened, header: ObjectHeader, space: Dataspace, datatype: Datatype, *, filtered: bool) -> Storage:
    """Return where the cells lie, checked against how many there are and the size of the file."""
    needed = space.ncells * datatype.nbytes
    if (message := header.first(EXTERNAL)) is not None:
        return _external(opened, parse_external_files(opened.plain(message), opened.superblock))
    found = parse_layout(_message(opened, header, LAYOUT), opened.superblock, filtered=filtered)
    match found:
        case ChunkIndexMessage(chunk_shape=chunks, element_nbytes=nbytes):
            if len(chunks) != len(space.shape or ()) or nbytes != datatype.nbytes:
                raise MetadataError(
                    f"the dataset at byte {header.address} has the shape {space.shape} and cells of {datatype.nbytes} "
                    f"bytes, its chunks {chunks} and {nbytes}; the file is damaged"
                )
        case Contiguous(offset, nbytes):
            found = Contiguous(offset if needed else None, nbytes or needed)
    if isinstance(found, Compact | Contiguous):
        _check_run(header, found, needed, opened.superblock.size)
    return found


def _check_run(header: ObjectHeader, run: Compact | Contiguous, needed: int, size: int) -> None:
    if run.nbytes < needed:
        raise MetadataError(
            f"the dataset at byte {header.address} needs {needed} bytes and {run.nbytes} are stored; it is damaged"
        )
    if run.offset is not None and run.offset + needed > size:
        raise IntegrityError(
            f"the dataset at byte {header.address} has {needed} bytes from {run.offset} on, "
            f"and the file ends at {size}: it is cut off"
        )


def _external(opened: Opened, found: External) -> External:
    heap = read_local_heap(opened.file, opened.superblock, found.heap)
    files = tuple(
        ExternalFile(each.name_at, each.offset, each.nbytes, heap.name(each.name_at).decode("utf-8", "replace"))
        for each in found.files
    )
    return External(found.heap, files)
