"""Tensors through a layout and back, without a table."""

import numpy as np
import pyarrow as pa

from hyperslab.selection import Box
from hyperslab.tensors import layouts
from hyperslab.tensors.values import Coo


def rows_of(tensor, layout, **parameters):
    """Return a tensor's header and all of its rows."""
    encoded = layouts.encode(tensor, layout, **parameters)
    return encoded.header("x"), pa.concat_tables([encoded.schema.empty_table(), *encoded.tables])


def whole(header):
    return Box((0,) * len(header.shape), header.shape)


def read_back(header, rows, box=None):
    """Return the cells of a box, or of all, as an array."""
    found = layouts.decode(header, rows, whole(header) if box is None else box)
    return found.to_dense() if isinstance(found, Coo) else found


def flipped(rows, column, row=0, byte=0, bit=1):
    """Return rows with one bit of one value changed."""
    at = rows.schema.get_field_index(column)
    values = rows.column(column).to_pylist()
    if isinstance(values[row], bytes):
        held = bytearray(values[row])
        held[byte] ^= bit
        values[row] = bytes(held)
    else:
        values[row] ^= bit
    return rows.set_column(at, rows.schema.field(column), pa.array(values, rows.schema.field(column).type))


def speckled(shape, cells, dtype="f4", seed=0):
    """Return a dense array of which so many cells are small whole numbers, the others 0."""
    rng = np.random.default_rng(seed)
    x = np.zeros(shape, dtype)
    x.reshape(-1)[rng.choice(x.size, cells, replace=False)] = rng.integers(1, 5, cells)
    return x
