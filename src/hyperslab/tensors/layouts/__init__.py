"""The layouts of tensor tables: each makes rows of a tensor, and of rows the cells of a box.

`ftsf` holds dense tensors, the others sparse ones. Every layout gives three functions: `encode` makes rows of a tensor,
`prune` tells what is true of the rows that a box needs, `decode` makes the cells of a box of those rows.
"""

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hyperslab.errors import InvalidInputError, UnsupportedError
from hyperslab.selection import Box
from hyperslab.tensors.layouts import bsgs, coo, csc, csf, csr, ftsf
from hyperslab.tensors.layouts.encoded import COLUMNS, Bounds, Encoded, Rows, rows_of
from hyperslab.tensors.values import Coo, Header, coo_of_dense

__all__ = ["COLUMNS", "LAYOUTS", "Bounds", "Encoded", "Rows", "decode", "encode", "prune", "rows_of"]

LAYOUTS: dict[str, ModuleType] = {
    "ftsf": ftsf,
    "coo": coo,
    "csr": csr,
    "csc": csc,
    "csf": csf,
    "bsgs": bsgs,
}


def encode(tensor: npt.NDArray[Any] | Coo, layout: str, **parameters: Any) -> Encoded:
    """Make rows of a tensor, dense or sparse, in one of the layouts.

    >>> encode(np.eye(3), "ftsf", chunk_dims=1).header("eye").parameters
    {'chunk_dims': 1, 'rows': 1}
    """
    made = LAYOUTS.get(layout.lower())
    if made is None:
        raise InvalidInputError(f"there is no layout {layout!r}; choose one of {', '.join(LAYOUTS)}")
    if layout.lower() == "ftsf":
        encoded: Encoded = made.encode(tensor.to_dense() if isinstance(tensor, Coo) else tensor, **parameters)
    else:
        encoded = made.encode(tensor if isinstance(tensor, Coo) else coo_of_dense(np.asarray(tensor)), **parameters)
    return encoded


def prune(header: Header, box: Box) -> list[Bounds]:
    """Return bounds of the index columns: every row that a box needs is within one of these, if it needs any."""
    found: list[Bounds] = _layout_of(header).prune(header, box)
    return found


def decode(header: Header, table: pa.Table | Sequence[Rows], box: Box) -> npt.NDArray[Any] | Coo:
    """Return the cells of a box, counted from its start: an array for `ftsf`, else a `Coo`.

    `table` holds the rows within the bounds that `prune` gave, in the order in which they are stored; more do no harm.
    Those of a layout with payloads may also be given as `Rows`, for each file apart.
    """
    found: npt.NDArray[Any] | Coo = _layout_of(header).decode(header, table, box)
    return found


def _layout_of(header: Header) -> ModuleType:
    if header.layout not in LAYOUTS:
        raise UnsupportedError(f"tensor {header.id!r} has the layout {header.layout!r}, which this version cannot read")
    return LAYOUTS[header.layout]
