"""Groups: names and what they lead to, with everything that creates, finds, copies and deletes it."""

from collections.abc import Callable, ItemsView, Iterator, KeysView, MutableMapping, ValuesView
from typing import Any

import h5py
import numpy as np

from hyperslab.errors import HyperslabError, InvalidInputError, NotFoundError, UnsupportedError
from hyperslab.formats.hdf5.attributes import Reference
from hyperslab.h5.attributes import text_of
from hyperslab.h5.copying import copy_into
from hyperslab.h5.dataset import Dataset
from hyperslab.h5.failures import WrongKindError
from hyperslab.h5.handles import Datatype, Handle
from hyperslab.h5.hdf5_tree import Hdf5Tree
from hyperslab.h5.links import as_h5py, find, from_h5py, holder
from hyperslab.h5.making import recipe_of, shape_of
from hyperslab.h5.nodes import ArrayNode, GroupNode, Node, Tree, TypeNode, join, split
from hyperslab.h5.walking import visit_links, visit_objects
from hyperslab.h5.zarr_tree import ZarrTree

__all__ = ["Group"]


class Group(Handle, MutableMapping[str, Any]):
    """A group: a mapping of names to groups, datasets and named types. A name may be a path, 'a/b'.

    >>> import hyperslab.h5 as h5py
    >>> f = h5py.File("memory://groups/doc.h5", "w")
    >>> run = f.create_group("2024/run1")
    >>> run["speed"] = [1.5, 2.5]
    >>> list(f), list(run), f["2024/run1/speed"][:]
    (['2024'], ['speed'], array([1.5, 2.5]))
    >>> f.visititems(lambda name, found: print(name, found))
    2024 <HDF5 group "/2024" (1 members)>
    2024/run1 <HDF5 group "/2024/run1" (1 members)>
    2024/run1/speed <HDF5 dataset "speed": shape (2,), type "<f8">
    """

    _node: GroupNode

    def __init__(self, tree: Tree, node: GroupNode | None = None) -> None:
        super().__init__(tree, node)
        if not isinstance(node, GroupNode):
            raise InvalidInputError(f"{self.name!r} is no group")

    # Finding

    def __getitem__(self, name: Any) -> Any:
        self._check_open()
        if isinstance(name, Reference | h5py.Reference):
            return self._referenced(name)
        return _handle(*find(self._tree, self._path(name)))

    def get(
        self, name: Any, default: Any = None, getclass: bool = False, getlink: bool = False, **elink: Any
    ) -> Any:  # fmt: skip
        """Return what has a name, or `default`; its class with `getclass`; the link to it with `getlink`."""
        self._check_open()
        if not (getclass or getlink):
            try:
                return self[name]
            except KeyError:
                return default
        try:
            tree, path = holder(self._tree, self._path(name))
            link = tree.link(path)
        except NotFoundError:
            return default
        if link is None:
            return default
        if getlink:
            found = as_h5py(link)
            return type(found) if getclass else found
        try:
            return type(self[name])
        except KeyError:
            return default

    def __contains__(self, name: object) -> bool:
        if not self or not isinstance(name, str | bytes) or not name:
            return False
        path = self._path(name)
        try:
            tree, place = holder(self._tree, path) if path else (self._tree, path)
            return not place or tree.link(place) is not None
        except (HyperslabError, ValueError):
            return False

    def __iter__(self) -> Iterator[str]:
        self._check_open()
        return iter(self._tree.names(self._node.path))

    def __reversed__(self) -> Iterator[str]:
        self._check_open()
        return reversed(self._tree.names(self._node.path))

    def __len__(self) -> int:
        self._check_open()
        return len(self._tree.names(self._node.path))

    def __bool__(self) -> bool:
        return Handle.__bool__(self)

    def keys(self) -> KeysView[str]:
        return _Keys(self)

    def values(self) -> ValuesView[Any]:
        return _Values(self)

    def items(self) -> ItemsView[str, Any]:
        return _Items(self)

    def visit(self, func: Callable[[str], Any]) -> Any:
        """Call a function with the name of everything below; stop and return what it returns, if that is not None."""
        return self.visititems(lambda name, _: func(name))

    def visititems(self, func: Callable[[str, Any], Any]) -> Any:
        """Call a function with name and object of everything below, each once; links are not followed."""
        self._check_open()
        return visit_objects(self._tree, self._node, lambda name, node: func(name, _handle(self._tree, node)))

    def visit_links(self, func: Callable[[str], Any]) -> Any:
        """Call a function with the name of everything below, links included."""
        return self.visititems_links(lambda name, _: func(name))

    def visititems_links(self, func: Callable[[str, Any], Any]) -> Any:
        """Call a function with name and link of everything below."""
        self._check_open()
        return visit_links(self._tree, self._node, lambda name, link: func(name, as_h5py(link)))

    # Changing

    def create_group(self, name: Any, track_order: bool | None = None, **options: Any) -> "Group":
        """Create a group, with the groups that its name goes through."""
        tree, path = self._new_place(name)
        return Group(tree, tree.create_group(path, ordered=bool(track_order)))  # type: ignore[arg-type]

    def require_group(self, name: Any) -> "Group":
        """Return a group, created if it is not there."""
        found = self.get(name)
        if found is None:
            return self.create_group(name)
        if not isinstance(found, Group):
            raise WrongKindError(f"{name!r} is a {type(found).__name__.lower()}, no group")
        return found

    def create_dataset(self, name: Any, shape: Any = None, dtype: Any = None, data: Any = None, **kwds: Any) -> Dataset:
        """Create a dataset, with the groups that its name goes through.

        shape, dtype, data  at least one of them; without cells the dataset is Empty
        chunks              cells that are compressed, and read, together (default: chosen)
        maxshape            how far it may grow later, None for axes without limit
        fillvalue           what cells hold that were never written
        compression, shuffle, fletcher32 and the like are checked and change nothing: arrays are compressed by zstd and
        have checksums anyway
        """
        if name is None:
            raise WrongKindError("a dataset needs a name: what has none could never be found again in a Zarr group")
        recipe = recipe_of(shape, dtype, data, kwds)
        tree, path = self._new_place(name)
        made = tree.create_array(path, recipe.shape, recipe.type, recipe.values, recipe.notes, **recipe.settings)
        return Dataset(tree, made)

    def require_dataset(self, name: Any, shape: Any, dtype: Any, exact: bool = False, **kwds: Any) -> Dataset:
        """Return a dataset, created if it is not there; its shape must be that, its type able to hold `dtype`."""
        found = self.get(name)
        if found is None:
            return self.create_dataset(name, shape=shape, dtype=dtype, **kwds)
        if not isinstance(found, Dataset):
            raise WrongKindError(f"{name!r} is a {type(found).__name__.lower()}, no dataset")
        if "maxshape" in kwds and kwds["maxshape"] is not None:
            if found.maxshape != tuple(kwds["maxshape"]):
                raise WrongKindError(f"{name!r} may grow to {found.maxshape}, not to {kwds['maxshape']}")
        elif found.shape != shape_of(shape):
            raise WrongKindError(f"{name!r} has the shape {found.shape}, not {shape}")
        wanted = np.dtype(dtype)
        fits = found.dtype == wanted if exact else np.can_cast(wanted, found.dtype)
        if not fits:
            raise WrongKindError(f"{name!r} holds {found.dtype}, which cannot stand for {wanted}")
        return found

    def create_dataset_like(self, name: Any, other: Dataset, **kwds: Any) -> Dataset:
        """Create a dataset with the shape, type and settings of another, where no others are given."""
        same = {"shape": other.shape, "dtype": other.dtype, "maxshape": other.maxshape, "chunks": other.chunks}
        return self.create_dataset(name, **{**same, "fillvalue": other.fillvalue, **kwds})

    def __setitem__(self, name: Any, obj: Any) -> None:
        if isinstance(obj, h5py.SoftLink | h5py.ExternalLink):
            tree, path = self._new_place(name, groups=True)
            tree.set_link(path, from_h5py(obj))
        elif isinstance(obj, Handle):
            raise UnsupportedError(
                f"{obj.name!r} cannot get a second name: a Zarr array or group has one place; use SoftLink, or copy"
            )
        elif isinstance(obj, np.dtype):
            tree, path = self._new_place(name)
            tree.create_group(path, dtype=obj)
        else:
            self.create_dataset(name, data=_data(name, obj))

    def __delitem__(self, name: Any) -> None:
        path = self._path(name)
        if name not in self:
            raise NotFoundError(f"there is no {path!r} in {self.name!r} that could be deleted")
        self._check_writable(path)
        tree, place = holder(self._tree, path)
        _zarr(tree).delete(place)

    def copy(
        self, source: Any, dest: Any, name: str | None = None, shallow: bool = False, expand_soft: bool = False,
        expand_external: bool = False, expand_refs: bool = False, without_attrs: bool = False,
    ) -> None:  # fmt: skip
        """Copy an object, given by itself or its name, to a name in this group or into another group.

        shallow        of a group, only what is directly in it
        expand_soft, expand_external   what links lead to is copied instead of the links
        without_attrs  attributes stay behind
        """
        found = source if isinstance(source, Handle) else self[source]
        named = isinstance(dest, str | bytes)
        into = self if named else dest
        place = text_of(dest) if named else name or _last(found.name if isinstance(source, Handle) else text_of(source))
        tree, path = into._new_place(place, groups=True)
        if tree is found._tree:
            _check_apart(found._node.path, path)
        expands = {"soft": expand_soft, "external": expand_external}
        copy_into(tree, path, found._tree, found._node, shallow=shallow, expands=expands, attrs=not without_attrs)

    def move(self, source: Any, dest: Any) -> None:
        """Give something another name. In a Zarr group its objects are copied and then deleted."""
        old, new = self._path(source), self._path(dest)
        self._check_writable(old)
        if old == new:
            return
        _check_apart(old, new)
        tree, place = holder(self._tree, old)
        link = tree.link(place)
        if link is None:
            raise NotFoundError(f"there is no {old!r} in {self._tree.url!r} that could be moved")
        target, path = self._new_place(dest, groups=True)
        if link.kind != "hard":
            target.set_link(path, link)
        else:
            copy_into(target, path, tree, tree.open(place), shallow=False, expands={}, attrs=True)
        _zarr(tree).delete(place)

    def __repr__(self) -> str:
        return f'<HDF5 group "{self.name}" ({len(self)} members)>' if self else "<Closed HDF5 group>"

    def _path(self, name: Any) -> str:
        """Return a path from the root for a name, which may be given as bytes and begin at the root."""
        text = text_of(name)
        return join(text) if text.startswith("/") else join(self._node.path, text)

    def _new_place(self, name: Any, *, groups: bool = False) -> tuple[ZarrTree, str]:
        """Return where something new is to be; with `groups`, those that its name goes through are made."""
        path = self._path(name)
        self._check_writable(path or self.name)
        if not path or path in self._tree.file:
            raise InvalidInputError(f"{self._tree.url!r} has something at {path!r} already (name already exists)")
        place, inside = self._through_links(path)
        if not place.writable:
            raise InvalidInputError(f"{path!r} leads into {place.url!r}, which was opened to be read")
        above = split(inside)[0]
        if groups and above and place.link(above) is None:
            _zarr(place).create_group(above)
        return _zarr(place), inside

    def _through_links(self, path: str) -> tuple[Tree, str]:
        """Return where a path leads that is not there: from the nearest group on that is, links before it followed."""
        above, rest = split(path)
        while True:
            try:
                place, node = find(self._tree, above)
                return place, join(node.path, rest)
            except NotFoundError:
                if above in self._tree.file:
                    raise  # a link that leads nowhere
            above, name = split(above)
            rest = join(name, rest)

    def _referenced(self, reference: Any) -> Any:
        if not isinstance(self._tree, Hdf5Tree) or not isinstance(reference, Reference):
            raise InvalidInputError("only references that were read from attributes of this HDF5 file lead anywhere")
        return self["/" + self._tree.path_of(reference)]


def _handle(tree: Tree, node: Node) -> Any:
    if isinstance(node, ArrayNode):
        return Dataset(tree, node)
    if isinstance(node, TypeNode):
        return Datatype(tree, node)
    return Group(tree, node)


def _last(path: str) -> str:
    return split(path.rstrip("/"))[1]


def _check_apart(old: str, new: str) -> None:
    if not old or new.startswith(old + "/"):
        raise InvalidInputError(
            f"{new!r} lies inside of {old!r}, which cannot be put into itself; choose another place"
        )


def _zarr(tree: Tree) -> ZarrTree:
    if not isinstance(tree, ZarrTree):
        raise InvalidInputError(f"{tree.url!r} is no Zarr group, and is only read")
    return tree


def _data(name: Any, obj: Any) -> Any:
    if obj is None:
        raise WrongKindError(f"None cannot be stored as {name!r}; h5py.Empty(dtype) stands for no cells")
    return obj


class _Keys(KeysView[str]):
    _mapping: Group

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._mapping)


class _Values(ValuesView[Any]):
    """Values; None for a link that leads nowhere."""

    _mapping: Group

    def __contains__(self, value: object) -> bool:
        return any(value == found for found in self)

    def __iter__(self) -> Iterator[Any]:
        return (self._mapping.get(name) for name in self._mapping)

    def __reversed__(self) -> Iterator[Any]:
        return (self._mapping.get(name) for name in reversed(self._mapping))


class _Items(ItemsView[str, Any]):
    _mapping: Group

    def __contains__(self, item: object) -> bool:
        return any(item == found for found in self)

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return ((name, self._mapping.get(name)) for name in self._mapping)

    def __reversed__(self) -> Iterator[tuple[str, Any]]:
        return ((name, self._mapping.get(name)) for name in reversed(self._mapping))
