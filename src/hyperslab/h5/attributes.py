"""`.attrs` of files, groups, datasets and named types."""

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

import h5py
import numpy as np

from hyperslab.errors import InvalidInputError, NotFoundError, UnsupportedError
from hyperslab.formats.hdf5.attributes import Unreadable
from hyperslab.h5.failures import ReadOnlyError, WrongKindError
from hyperslab.h5.nodes import Node, Tree

__all__ = ["AttributeManager", "text_of"]


class AttributeManager(MutableMapping[str, Any]):
    """The attributes of one object, by their names: numbers and arrays are NumPy's, texts are `str`.

    In a Zarr group each change is stored at once, and other programs see them as attributes. What JSON does not tell,
    such as that a number has 32 bits, is noted beside them.

    >>> import hyperslab.h5 as h5py
    >>> f = h5py.File("memory://attributes/doc.h5", "w")
    >>> f.attrs["scale"] = np.float32(0.5)
    >>> f.attrs["scale"].dtype, "offset" in f.attrs
    (dtype('float32'), False)
    """

    def __init__(self, tree: Tree, node: Node) -> None:
        self._tree, self._node = tree, node

    def __getitem__(self, name: str | bytes) -> Any:
        name, found = text_of(name), self._found()
        if name not in found:
            raise NotFoundError(f"there is no attribute {name!r}; there are {', '.join(map(repr, found)) or 'none'}")
        value = found[name]
        if isinstance(value, Unreadable):
            raise UnsupportedError(f"the attribute {name!r} cannot be read: {value.reason}")
        return value

    def __setitem__(self, name: str | bytes, value: Any) -> None:
        self.create(name, value)

    def __delitem__(self, name: str | bytes) -> None:
        name = text_of(name)
        if name not in self._found():
            raise NotFoundError(f"there is no attribute {name!r} that could be deleted")
        self._check()
        self._node.attrs.drop(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._found())

    def __reversed__(self) -> Iterator[str]:
        return reversed(list(self._found()))

    def __len__(self) -> int:
        return len(self._found())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str | bytes) and text_of(name) in self._found()

    def __repr__(self) -> str:
        return "<Attributes of closed HDF5 object>" if self._tree.closed else f"<Attributes of HDF5 object {id(self)}>"

    def create(self, name: str | bytes, data: Any, shape: Any = None, dtype: Any = None) -> None:
        """Set an attribute, in place of one that has its name; with a type or shape that its value gets."""
        self._check()
        if dtype is not None:
            dtype = np.dtype(dtype if isinstance(dtype, type) else getattr(dtype, "dtype", dtype))
        self._node.attrs.store(text_of(name), data, dtype, shape)

    def modify(self, name: str | bytes, value: Any) -> None:
        """Change an attribute's value, and keep its type and shape; one that is not there is created."""
        name = text_of(name)
        if name not in self:
            self.create(name, value)
            return
        old = self[name]
        if isinstance(old, h5py.Empty | str):
            self.create(name, value)
            return
        cells, dtype = np.asarray(value), np.asarray(old).dtype
        if cells.shape != np.shape(old) and not (cells.size == 1 == np.size(old)):
            raise WrongKindError(f"attribute {name!r} has the shape {np.shape(old)}, its new value {cells.shape}")
        self.create(name, value, shape=np.shape(old), dtype=None if dtype.kind == "O" else dtype)

    def get_id(self, name: str | bytes) -> Any:
        """Refuse: there is nothing below an attribute that HDF5's own functions could take."""
        self[name]
        raise UnsupportedError("attributes of Hyperslab have no HDF5 identifiers; use attrs[name]")

    def _found(self) -> Mapping[str, Any]:
        if self._tree.closed:
            raise InvalidInputError(f"{self._tree.url!r} was closed; open it again")
        return self._node.attrs.read()

    def _check(self) -> None:
        if not self._tree.writable:
            raise ReadOnlyError(
                f"{self._tree.url!r} cannot be written to: open it with mode 'r+', if it is a Zarr group"
            )


def text_of(name: Any) -> str:
    """Return a name, which may be given as bytes, as text."""
    if isinstance(name, bytes):
        return name.decode("utf-8", "surrogateescape")
    if not isinstance(name, str):
        raise WrongKindError(f"a name is a str or bytes, not {name!r:.80}")
    return name
