"""The axes of a dataset: labels and dimension scales, read and not changed."""

from collections.abc import Iterator
from typing import Any, NoReturn

from hyperslab.errors import NotFoundError
from hyperslab.h5.failures import WrongKindError
from hyperslab.h5.nodes import ArrayNode, Tree

__all__ = ["DimensionManager", "DimensionProxy"]


class DimensionManager:
    """The axes of a dataset, by number: `dataset.dims[0].label`."""

    def __init__(self, tree: Tree, node: ArrayNode) -> None:
        self._tree, self._node = tree, node

    def __len__(self) -> int:
        return len(self._node.shape)

    def __iter__(self) -> Iterator["DimensionProxy"]:
        return (self[axis] for axis in range(len(self)))

    def __getitem__(self, axis: int) -> "DimensionProxy":
        if not 0 <= axis < len(self):
            raise IndexError(f"the dataset has {len(self)} axes, and no axis {axis}")
        return DimensionProxy(self._tree, self._node, axis)

    def __repr__(self) -> str:
        return f"<Dimensions of HDF5 object {self._node.path!r}>"


class DimensionProxy:
    """One axis: its label, and the scales attached to it by number or by name.

    Of a Zarr array the label is the name of the axis, and a scale is the array of one axis that has this name and lies
    beside it.
    """

    def __init__(self, tree: Tree, node: ArrayNode, axis: int) -> None:
        self._tree, self._node, self._axis = tree, node, axis

    @property
    def label(self) -> str:
        """What the axis is called; empty if it has no name."""
        return (self._node.dims[self._axis] if self._node.dims else None) or ""

    @label.setter
    def label(self, name: str) -> None:
        raise WrongKindError(f"the axis cannot be called {name!r}: axes are named when an array is created (`dims=`)")

    def __len__(self) -> int:
        return len(self._paths())

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def keys(self) -> list[str]:
        """Return the names of the scales."""
        scales = [(path, self._tree.open(path).attrs.read().get("NAME")) for path in self._paths()]
        return [name if isinstance(name, str) else path.rpartition("/")[2] for path, name in scales]

    def values(self) -> list[Any]:
        """Return the scales, which are datasets."""
        return [self._tree.file["/" + path] for path in self._paths()]

    def items(self) -> list[tuple[str, Any]]:
        """Return names and scales."""
        return list(zip(self.keys(), self.values(), strict=True))

    def __getitem__(self, scale: int | str) -> Any:
        if isinstance(scale, int):
            return self.values()[scale]
        for name, dataset in self.items():
            if name == scale:
                return dataset
        raise NotFoundError(f"no scale called {scale!r} is attached to axis {self._axis}; there are {self.keys()}")

    def attach_scale(self, scale: Any) -> NoReturn:
        """Refuse: scales are only read."""
        raise WrongKindError("scales cannot be attached; name the axes of the array when it is created")

    detach_scale = attach_scale

    def __repr__(self) -> str:
        return f'<"{self.label}" dimension {self._axis} of HDF5 dataset "{self._node.path}">'

    def _paths(self) -> tuple[str, ...]:
        if self._node.scales is not None:
            return self._node.scales()[self._axis]
        if not self.label:
            return ()
        above = self._node.path.rpartition("/")[0]
        path = f"{above}/{self.label}" if above else self.label
        try:
            found = self._tree.open(path)
        except NotFoundError:
            return ()
        return (path,) if isinstance(found, ArrayNode) and len(found.shape) == 1 else ()
