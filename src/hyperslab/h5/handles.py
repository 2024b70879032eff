"""What all objects of a file have in common: a path, a file, attributes, and whether they are still open."""

from typing import Any

from hyperslab.errors import InvalidInputError, UnsupportedError
from hyperslab.h5.attributes import AttributeManager
from hyperslab.h5.failures import ReadOnlyError
from hyperslab.h5.nodes import Node, Tree

__all__ = ["Datatype", "Handle", "Identifier"]


class Identifier:
    """What stands for HDF5's identifier of an object: whether the object is open, and a way to close it."""

    def __init__(self, handle: "Handle") -> None:
        self._handle = handle

    @property
    def valid(self) -> bool:
        """Whether the object can be used."""
        return bool(self._handle)

    def __bool__(self) -> bool:
        return self.valid

    def close(self) -> None:
        """Close the object, not its file."""
        self._handle._released = True

    _close = close


class Handle:
    """An object of a file. Two handles of the same object are equal."""

    _node: Node

    def __init__(self, tree: Tree, node: Node | None = None) -> None:
        if node is None or not isinstance(getattr(tree, "url", None), str):
            raise InvalidInputError(f"objects are opened by their files, not made of {tree!r:.80}")
        self._tree, self._node, self._released = tree, node, False

    @property
    def name(self) -> str:
        """The path in the file."""
        return "/" + self._node.path

    @property
    def file(self) -> Any:
        """The file that the object is in."""
        return self._tree.file

    @property
    def parent(self) -> Any:
        """The group that the object is in; the root's is the root."""
        self._check_open()
        return self._tree.file["/" + self._node.path.rpartition("/")[0]]

    @property
    def attrs(self) -> AttributeManager:
        """The attributes."""
        return AttributeManager(self._tree, self._node)

    @property
    def id(self) -> Identifier:
        """What stands for HDF5's identifier of the object."""
        return Identifier(self)

    @property
    def ref(self) -> Any:
        """Refuse: references cannot be made."""
        raise UnsupportedError("references to objects are only read, in HDF5 files; keep the object's path instead")

    def __bool__(self) -> bool:
        return not (self._released or self._tree.closed)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Handle):
            return NotImplemented
        if not (self and other):
            return self is other
        return self._tree is other._tree and self._node.identity == other._node.identity

    def __hash__(self) -> int:
        return hash((id(self._tree), self._node.identity))

    def __reduce__(self) -> tuple[Any, ...]:
        # In the other process the file is opened anew, once for each object.
        self._check_open()
        return _found_in, (self._tree.file, self.name)

    def _check_open(self) -> None:
        if self._released or self._tree.closed:
            raise InvalidInputError(f"{self._tree.url!r} was closed; open it again")

    def _check_writable(self, what: str) -> None:
        self._check_open()
        if not self._tree.writable:
            raise ReadOnlyError(
                f"{what} cannot be changed: {self._tree.url!r} was opened to be read, or is no Zarr group; "
                "open a Zarr group with mode 'r+'"
            )


def _found_in(file: Any, name: str) -> Any:
    return file[name]


class Datatype(Handle):
    """A type that was given a name in a file."""

    @property
    def dtype(self) -> Any:
        """The type, as NumPy's."""
        self._check_open()
        return self._node.dtype  # type: ignore[union-attr]

    def __repr__(self) -> str:
        return f'<HDF5 named type "{self.name}" (dtype {self.dtype.str})>' if self else "<Closed HDF5 named type>"
