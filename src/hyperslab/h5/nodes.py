"""What a file holds, one kind for each: groups, arrays and named types, whatever they are stored as.

A tree gives nodes by their paths. A node is shared by all handles to it, so that what is changed through one is seen
through the others.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from hyperslab.errors import NotFoundError
from hyperslab.h5.celltypes import CellType

__all__ = ["ArrayNode", "Attrs", "Cells", "GroupNode", "Kept", "Link", "Node", "Tree", "TypeNode", "join", "split"]

Shape = tuple[int, ...]

# So many nodes are held for whoever asks next; others only as long as a handle has them.
_MOST_KEPT = 1024


class Cells(Protocol):
    """An array below a dataset: an opened `hyperslab.Array`, or an array of a collection."""

    @property
    def shape(self) -> Shape: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def __getitem__(self, key: Any) -> Any: ...

    def read(self, key: Any = ..., *, out: npt.NDArray[Any] | None = None) -> Any: ...


class Attrs(Protocol):
    """The attributes of a node, as h5py gives them."""

    def read(self) -> Mapping[str, Any]:
        """Return all of them, in the order in which they are listed."""
        ...

    def store(self, name: str, value: Any, dtype: Any = None, shape: Any = None) -> None: ...

    def drop(self, name: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Link:
    """What a name in a group is: "hard" is the thing itself, "soft" another path, "external" one of another file."""

    kind: str = "hard"
    path: str = ""
    file: str = ""


@dataclass(slots=True, weakref_slot=True, eq=False)
class GroupNode:
    """A group. `identity` tells nodes apart where several paths lead to one."""

    path: str
    attrs: Attrs
    identity: object = None


@dataclass(slots=True, weakref_slot=True, eq=False)
class TypeNode:
    """A type that was given a name."""

    path: str
    attrs: Attrs
    dtype: np.dtype[Any]
    identity: object = None


@dataclass(slots=True, weakref_slot=True, eq=False)
class ArrayNode:
    """A dataset: its cells, their type, and what else is known of it."""

    path: str
    attrs: Attrs
    cells: Cells
    type: CellType
    identity: object = None
    maxshape: tuple[int | None, ...] | None = None
    empty: bool = False
    chunks: Shape | None = None
    fill: Any = 0
    filters: Mapping[str, Any] = field(default_factory=dict)
    dims: tuple[str | None, ...] = ()
    is_scale: bool = False
    # For each axis the paths of the scales attached to it, found out when they are asked for.
    scales: Callable[[], tuple[tuple[str, ...], ...]] | None = None

    @property
    def shape(self) -> Shape:
        """The dataset's own axes, without those of cells that are arrays."""
        shape = self.cells.shape
        return shape[: len(shape) - len(self.type.inner)] if self.type.inner else shape


Node = GroupNode | ArrayNode | TypeNode


class Tree(Protocol):
    """What is behind an opened file. Paths are as in 'a/b', '' is the root."""

    url: str
    writable: bool
    closed: bool
    file: Any

    def open(self, path: str) -> Node:
        """Return what is stored at a path; NotFoundError if nothing is. Links are not followed."""
        ...

    def names(self, path: str) -> list[str]:
        """Return the names in a group, links included, sorted."""
        ...

    def link(self, path: str) -> Link | None:
        """Return what the last name of a path is in its group; None if it is not there."""
        ...


class Kept:
    """Nodes by path: those that a handle has, and those that were asked for last."""

    def __init__(self) -> None:
        self._all: WeakValueDictionary[str, Node] = WeakValueDictionary()
        self._last: OrderedDict[str, Node] = OrderedDict()

    def get(self, path: str) -> Node | None:
        return self._all.get(path)

    def put(self, path: str, node: Node) -> Node:
        self._all[path] = self._last[path] = node
        while len(self._last) > _MOST_KEPT:
            self._last.popitem(last=False)
        return node

    def drop(self, path: str) -> None:
        """Forget a path and all below it, which was deleted: handles that are left read nothing any more."""
        for each in [each for each in list(self._all) if not path or each == path or each.startswith(path + "/")]:
            node = self._all.pop(each, None)
            self._last.pop(each, None)
            if isinstance(node, ArrayNode):
                node.cells = Gone(each, node.cells)


class Gone:
    """The cells of an array that was deleted. Chunks that are not there would read as fill values."""

    def __init__(self, path: str, cells: Cells) -> None:
        self._path, self.shape, self.dtype = path, cells.shape, cells.dtype

    def __getitem__(self, key: Any) -> Any:
        raise NotFoundError(f"{self._path!r} was deleted or moved; open it where it is")

    def read(self, key: Any = ..., *, out: npt.NDArray[Any] | None = None) -> Any:
        """Refuse."""
        return self[key]


def join(*parts: str) -> str:
    """Return a path from its parts, without empty ones and dots.

    >>> join("a", "./b//c/")
    'a/b/c'
    """
    return "/".join(name for part in parts for name in part.split("/") if name not in ("", "."))


def split(path: str) -> tuple[str, str]:
    """Return the path of the group that something is in, and its name there."""
    above, _, name = path.rpartition("/")
    return above, name
