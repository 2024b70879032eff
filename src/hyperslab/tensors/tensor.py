"""One tensor of a table: its shape and type, and its cells once they are asked for."""

from math import prod
from typing import Any

import numpy as np

from hyperslab.selection import Selection, Span
from hyperslab.tensors.forms import in_form
from hyperslab.tensors.heads import HEAD_COLUMNS
from hyperslab.tensors.place import Place
from hyperslab.tensors.reading import find_row, read_cells, select
from hyperslab.tensors.snapshot import Snapshot
from hyperslab.tensors.values import Header

__all__ = ["SPARSE", "Tensor"]

# The parameter that says whether a tensor was put as a sparse one.
SPARSE = "sparse"


class Tensor:
    """A tensor at one version of its table. Slices are read when they are taken: `tensor[key]`.

    `shape`, `dtype` and `layout` are as it was put, `id` is its name, `header` has all of these.
    """

    __slots__ = ("_place", "_snapshot", "header")

    def __init__(self, place: Place, snapshot: Snapshot, header: Header) -> None:
        self._place, self._snapshot, self.header = place, snapshot, header

    def __repr__(self) -> str:
        header = self.header
        return f"<hyperslab.Tensor {header.id!r} {header.shape} {header.dtype} as {header.layout}>"

    @property
    def id(self) -> str:
        return self.header.id

    @property
    def layout(self) -> str:
        return self.header.layout

    @property
    def shape(self) -> tuple[int, ...]:
        return self.header.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.header.dtype

    @property
    def ndim(self) -> int:
        return len(self.header.shape)

    @property
    def size(self) -> int:
        return prod(self.header.shape)

    @property
    def is_sparse(self) -> bool:
        """Whether it was put as a sparse tensor, and so is read as one."""
        return bool(self.header.parameters.get(SPARSE, False))

    @property
    def metadata(self) -> dict[str, Any]:
        """What was put with it, by name."""
        row = find_row(self._place, self._snapshot, self.id)
        return {name: value for name, value in row.items() if name not in HEAD_COLUMNS.names and value is not None}

    def __getitem__(self, key: Any) -> Any:
        """Return the cells of a basic selection, as NumPy would: an array, or a `Coo` if it was put as sparse."""
        return self.read(key=key)

    def read(self, form: str | None = None, key: Any = ...) -> Any:
        """Return cells, in a form: "numpy", "coo", "scipy", "sparse" (of pydata), "torch", "torch_sparse"."""
        header = self.header
        chosen = _all(header.shape) if key is ... else select(key, header)
        cells = read_cells(self._place, self._snapshot, header, chosen)
        made = in_form(cells, form or ("coo" if self.is_sparse else "numpy"))
        return made[()] if chosen.scalar and isinstance(made, np.ndarray) else made

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        cells = self.read("numpy")
        return cells if dtype is None else cells.astype(dtype, copy=False)

    def __len__(self) -> int:
        if not self.header.shape:
            raise TypeError("a tensor without axes has no length")
        return self.header.shape[0]


def _all(shape: tuple[int, ...]) -> Selection:
    return Selection(shape, tuple(Span(0, n) for n in shape), tuple(range(len(shape))))
