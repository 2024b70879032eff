"""An HDF5 file as a file: read in place, wherever it lies."""

from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from hyperslab.array import Array, Group
from hyperslab.errors import ConflictError, HyperslabError, InternalError, NotFoundError
from hyperslab.execute import StoreReader
from hyperslab.formats.hdf5.attributes import Reference
from hyperslab.formats.hdf5.messages import ChunkIndexMessage
from hyperslab.formats.hdf5.objects import Dataset, HdfFile, NamedType, open_file
from hyperslab.formats.hdf5.objects import Group as HdfGroup
from hyperslab.h5.celltypes import CellType, hdf5_type
from hyperslab.h5.failures import ReadOnlyError
from hyperslab.h5.nodes import ArrayNode, GroupNode, Kept, Link, Node, TypeNode, join, split

__all__ = ["Hdf5Attrs", "Hdf5Tree"]

# Filters by their numbers; what compresses has the name that h5py gives it.
_FILTERS = {1: "gzip", 2: "shuffle", 3: "fletcher32", 4: "szip", 5: "nbit", 6: "scaleoffset", 32000: "lzf"}


class Hdf5Tree:
    """The groups, datasets and named types of an HDF5 file."""

    writable = False

    def __init__(self, root: Group) -> None:
        part = root.source.part
        assert part is not None
        self.root, self.url = root, root.url
        self.closed, self.file = False, None
        self._below = part.path
        self._kept = Kept()
        stored = StoreReader(root.session, root.store).file(part.key, part.version)
        opened = None if stored is None else open_file(stored)
        if opened is None:
            raise ConflictError(f"{root.url!r} is no HDF5 file any more; open it again")
        self._file: HdfFile = opened

    def open(self, path: str) -> Node:
        """Return what is at a path, soft links on the way followed."""
        return self._kept.get(path) or self._kept.put(path, self._node(path))

    def names(self, path: str) -> list[str]:
        """Return the names in a group."""
        return sorted(self._group(path).members())

    def link(self, path: str) -> Link | None:
        """Return what the last name of a path is in its group."""
        above, name = split(path)
        try:
            found = self._group(above).members().get(name)
        except HyperslabError:
            return None
        if found is None:
            return None
        return Link() if found.kind == "hard" else Link(found.kind, found.path, found.file)

    def path_of(self, reference: Reference) -> str:
        """Return the path of the object that a reference is to."""
        if reference.address is None:
            raise NotFoundError("the reference is to nothing")
        return self._path(reference.address, "")

    def _group(self, path: str) -> HdfGroup:
        found = self._file.find(join(self._below, path))
        if not isinstance(found, HdfGroup):
            raise NotFoundError(f"{path!r} of {self.url!r} is no group, and holds nothing")
        return found

    def _node(self, path: str) -> Node:
        found = self._file.find(join(self._below, path))
        attrs = Hdf5Attrs(found.attrs, self.url)
        if isinstance(found, HdfGroup):
            return GroupNode(path, attrs, found.address)
        if isinstance(found, NamedType):
            return TypeNode(path, attrs, hdf5_type(found.datatype, found.datatype.result).dtype, found.address)
        if found.shape is None:
            kind = hdf5_type(found.datatype, found.datatype.result)
            return ArrayNode(path, attrs, NoCells(kind), kind, found.address, empty=True)
        array = self.root[path]
        if not isinstance(array, Array):
            raise InternalError(f"{array.url!r} is a dataset and a group at once")
        return self._dataset(path, attrs, found, array)

    def _dataset(self, path: str, attrs: "Hdf5Attrs", found: Dataset, array: Array) -> ArrayNode:
        chunked = isinstance(found.storage, ChunkIndexMessage)
        node = ArrayNode(path, attrs, array, hdf5_type(found.datatype, array.dtype), found.address)
        node.maxshape = found.maxshape or node.shape
        node.chunks = array.chunks[: len(node.shape)] if chunked else None
        node.fill = array.source.resolve(StoreReader(array.session, array.store), array.source.layout.fill)[()]
        node.filters = {_FILTERS.get(each.id, str(each.id)): each.values for each in found.filters}
        labels = np.asarray(attrs.raw().get("DIMENSION_LABELS", ()))
        node.dims = tuple(labels.tolist()) if labels.shape == (len(node.shape),) else ()
        node.scales = lambda: self._scales(path, attrs.read().get("DIMENSION_LIST"), len(node.shape))
        node.is_scale = attrs.raw().get("CLASS") in ("DIMENSION_SCALE", b"DIMENSION_SCALE")
        return node

    def _scales(self, path: str, value: Any, ndim: int) -> tuple[tuple[str, ...], ...]:
        """Return for each axis the paths of the scales that a dataset's attribute refers to."""
        if not isinstance(value, np.ndarray) or value.shape != (ndim,):
            return ((),) * ndim
        base = self._file.superblock.base
        return tuple(tuple(self._path(int(each) + base, path) for each in np.atleast_1d(axis)) for axis in value)

    def _path(self, address: int, near: str) -> str:
        """Return a path that leads to an object: looked for in the groups above another one first."""
        if address == self._file.superblock.root:
            return ""
        above, seen = near, set[int]()
        groups = []
        while above:
            above = split(above)[0]
            groups.append(above)
        groups = groups or [""]
        while groups:
            below = []
            for group in groups:
                found = self._group(group)
                seen.add(found.address)
                members = {name: link.address for name, link in found.members().items() if link.address is not None}
                for name, place in members.items():
                    if place == address:
                        return join(group, name)
                kinds = found.kinds(list(members))
                below += [join(group, n) for n, kind in kinds.items() if kind == "group" and members[n] not in seen]
            groups = below
        raise NotFoundError(f"nothing in {self.url!r} leads to the object at byte {address}")


class Hdf5Attrs:
    """The attributes of an object in an HDF5 file."""

    def __init__(self, fetch: Any, url: str) -> None:
        self._fetch, self._url = fetch, url
        self._found: dict[str, Any] | None = None

    def raw(self) -> dict[str, Any]:
        """Return all of them, as they were read first."""
        if self._found is None:
            self._found = self._fetch()
        return self._found

    def read(self) -> Mapping[str, Any]:
        """Return all that can be read, sorted; what cannot says why when it is asked for."""
        return dict(sorted(self.raw().items()))

    def store(self, name: str, value: Any, dtype: Any = None, shape: Any = None) -> NoReturn:
        raise ReadOnlyError(f"{self._url!r} is an HDF5 file, which is only read; {name!r} was not stored")

    def drop(self, name: str) -> NoReturn:
        raise ReadOnlyError(f"{self._url!r} is an HDF5 file, which is only read; {name!r} was not deleted")


class NoCells:
    """The cells of a dataset that has none."""

    shape: tuple[int, ...] = ()

    def __init__(self, kind: CellType) -> None:
        self.dtype = kind.stored

    def __getitem__(self, key: Any) -> Any:
        raise NotFoundError("the dataset has no cells (an HDF5 null dataspace)")

    def read(self, key: Any = ..., *, out: Any = None) -> Any:
        """Refuse."""
        return self[key]
