"""Whatever tensor is encoded in whatever layout, every box of it is decoded to what NumPy has there."""

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from support.profiles import times

from hyperslab.selection import Box, parse
from hyperslab.tensors import layouts
from hyperslab.tensors.choosing import choose
from hyperslab.tensors.values import Coo, Header, bounding_box, coo_of_dense

SPARSE = ["coo", "csr", "csc", "csf", "bsgs"]
DTYPES = ["?", "i1", "u1", "i2", "<u4", ">i4", "i8", "u8", "f2", "f4", ">f8", "f8", "c8", "c16", "m8[s]", "M8[ns]"]

shapes = st.one_of(
    arrays_of.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=9),
    st.sampled_from([(1,) * 10, (2,) * 9, (1, 2) * 5, (40, 30), (300,), (3, 0, 2)]),
)


@st.composite
def tensors(draw):
    """A dense array with a share of cells that are not zero, of few values or of many."""
    shape, dtype = draw(shapes), np.dtype(draw(st.sampled_from(DTYPES)))
    density, few = draw(st.sampled_from([0.0, 0.02, 0.2, 0.7, 1.0])), draw(st.booleans())
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    cells = int(np.prod(shape))
    raw = rng.integers(0, 256, (cells, dtype.itemsize), np.uint8)
    raw = raw[rng.integers(0, min(3, cells), cells)] if few and cells else raw
    if dtype.kind == "b":
        raw &= 1
    raw[rng.random(cells) >= density] = 0
    return np.ascontiguousarray(raw).reshape(-1).view(dtype).reshape(shape)


@st.composite
def boxes(draw, shape):
    ends = [sorted(draw(st.tuples(st.integers(0, n), st.integers(0, n)))) for n in shape]
    return Box(tuple(low for low, _ in ends), tuple(high for _, high in ends))


@st.composite
def cut_tensors(draw):
    x = draw(tensors())
    return x, draw(st.one_of(boxes(x.shape), st.just(Box((0,) * x.ndim, x.shape)))), draw(st.data())


def parameters_for(layout, shape, data):
    sides = min(max(len(shape), 1), 8)
    if layout == "bsgs":
        return {
            "block": tuple(data.draw(st.integers(1, 7)) for _ in range(sides)),
            "inner": tuple(data.draw(st.permutations(range(sides)))),
        }
    if layout == "csf":
        return {"axes": data.draw(st.permutations(range(sides))), "cells": data.draw(st.integers(1, 40))}
    if layout in ("csr", "csc"):
        return {"row_axes": data.draw(st.integers(0, sides)), "cells": data.draw(st.integers(1, 40))}
    if layout == "ftsf":
        return {"chunk_dims": data.draw(st.integers(0, len(shape))), "rows": data.draw(st.integers(1, 4))}
    return {"row_group_rows": data.draw(st.integers(1, 9))}


def rows_within(table, alternatives):
    """Return the rows that meet one of the bounds: what a reader that prunes as sharply as it may would bring."""
    kept = np.zeros(table.num_rows, bool)
    for bounds in alternatives:
        met = np.ones(table.num_rows, bool)
        for name, (low, high) in bounds.items():
            column = table.column(name).to_numpy()
            met &= (column >= low) & (column <= high)
        kept |= met
    return table.filter(pa.array(kept))


def same_bytes(found, expected):
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert found.tobytes() == np.ascontiguousarray(expected).tobytes()


def quiet_nans(x):
    """COO has values as doubles, and a processor makes signalling NaNs quiet when it converts them."""
    with np.errstate(invalid="ignore"):
        if x.dtype.kind == "f":
            return x.astype("f8").astype(x.dtype)
        if x.dtype.kind == "c":
            wide = x.astype("c16")
            return wide.astype(x.dtype)
    return x


@given(st.sampled_from(["ftsf", *SPARSE]), cut_tensors())
@settings(max_examples=times(150), deadline=None)
def test_every_box_is_what_numpy_has_there(layout, case):
    x, box, data = case
    if layout == "coo":
        x = quiet_nans(x)
    encoded = layouts.encode(x, layout, **parameters_for(layout, x.shape, data))
    table = pa.concat_tables([encoded.schema.empty_table(), *encoded.tables])
    header = Header.from_json(encoded.header("x").to_json())
    pruned = rows_within(table, layouts.prune(header, box))
    found = layouts.decode(header, pruned, box)
    if layout != "ftsf":
        assert isinstance(found, Coo)
        again = Coo.of(found.shape, found.coords, found.values, found.fill)
        assert again.nnz == found.nnz
        assert (again.coords == found.coords).all()
        found = found.to_dense()
    same_bytes(found, x[(*box.slices, ...)])


@given(tensors(), st.data())
@settings(max_examples=times(40), deadline=None)
def test_chosen_layout_reads_back_whole(x, data):
    reads = [tuple(data.draw(st.integers(0, n - 1)) for n in x.shape[:1])] if x.size else []
    layout, parameters = choose(x, data.draw(st.sampled_from([None, reads])))
    if layout == "coo":
        x = quiet_nans(x)
    encoded = layouts.encode(x, layout, **parameters)
    table = pa.concat_tables([encoded.schema.empty_table(), *encoded.tables])
    found = layouts.decode(encoded.header("x"), table, Box((0,) * x.ndim, x.shape))
    same_bytes(found.to_dense() if isinstance(found, Coo) else found, x)


@given(tensors(), st.data())
@settings(max_examples=times(60), deadline=None)
def test_selection_of_sparse_cells_is_what_numpy_selects(x, data):
    key = data.draw(arrays_of.basic_indices(x.shape, allow_newaxis=True))
    chosen = parse(key, x.shape)
    found = coo_of_dense(x).cut(bounding_box(chosen)).select(chosen)
    # A single cell of NumPy's is in the machine's order of bytes.
    same_bytes(found.to_dense(), np.asarray(x[key], x.dtype))
    assert (np.diff(np.ravel_multi_index(tuple(found.coords), found.shape)) > 0).all() if found.ndim else True


@given(tensors(), st.integers(0, 3), st.data())
@settings(max_examples=times(40), deadline=None)
def test_cells_in_any_order_and_number_are_summed(x, copies, data):
    if x.dtype.kind not in "iu":
        x = np.zeros(x.shape, "i4") + (x != np.zeros((), x.dtype))
    at = np.array(np.nonzero(x.reshape(x.shape or (1,))))[: x.ndim].repeat(copies + 1, axis=1)
    values = x[x != 0].repeat(copies + 1)
    order = np.array(data.draw(st.permutations(range(len(values)))), int)
    found = Coo.of(x.shape, at[:, order], values[order])
    with np.errstate(over="ignore"):
        same_bytes(found.to_dense(), np.asarray(x * x.dtype.type(copies + 1)).astype(x.dtype))
