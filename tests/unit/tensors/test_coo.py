"""Sparse tensors as one row for each cell. Figure 5 of the Delta Tensor paper is among the examples."""

import numpy as np
import pyarrow as pa
import pytest
from support.tensor_rows import flipped, read_back, rows_of

from hyperslab.errors import IntegrityError, InvalidInputError
from hyperslab.selection import Box
from hyperslab.tensors.layouts import coo, prune
from hyperslab.tensors.values import Coo


def test_figure_5():
    x = Coo.of((3, 3, 3), np.array([[0, 0, 1], [1, 0, 0], [1, 1, 2], [2, 2, 2]]).T, np.array([1.0, 2.0, 3.0, 4.0]))
    header, rows = rows_of(x, "coo")
    assert rows.to_pydict() == {
        "i0": [0, 1, 1, 2],
        "i1": [0, 0, 1, 2],
        "i2": [1, 0, 2, 2],
        "value_real": [1.0, 2.0, 3.0, 4.0],
    }
    assert header.shape == (3, 3, 3)
    np.testing.assert_array_equal(read_back(header, rows), x.to_dense())


def test_unsigned_numbers_keep_their_bits():
    x = np.array([0, 2**64 - 1, 2**63], "u8")
    header, rows = rows_of(x, "coo")
    assert rows.column("value_int").to_pylist() == [-1, -(2**63)]
    np.testing.assert_array_equal(read_back(header, rows), x)


def test_complex_values_are_in_two_columns():
    header, rows = rows_of(np.array([0, 1 + 2j], "c8"), "coo")
    assert (rows.column("value_real").to_pylist(), rows.column("value_imag").to_pylist()) == ([1.0], [2.0])
    assert read_back(header, rows)[1] == np.complex64(1 + 2j)


def test_slice_asks_for_its_indices():
    header, _ = rows_of(np.eye(6), "coo")
    assert prune(header, Box((2, 1), (3, 5))) == [{"i0": (2, 2), "i1": (1, 4)}]


@pytest.mark.parametrize("change", [lambda rows: rows.slice(1), lambda rows: rows.take(pa.array([1, 0, 2, 3, 4, 5]))])
def test_rows_that_are_gone_or_moved_are_an_error(change):
    header, rows = rows_of(np.eye(6), "coo")
    with pytest.raises(IntegrityError):
        read_back(header, change(rows))


def test_index_outside_of_the_shape_is_an_error():
    header, rows = rows_of(np.eye(6), "coo")
    with pytest.raises(IntegrityError, match="outside"):
        read_back(header, flipped(rows, "i1", row=5, bit=64))


def test_values_without_a_column_are_refused():
    with pytest.raises(InvalidInputError, match="no column"):
        coo.encode(Coo.of((2,), [[0]], np.array([b"ab"]), b""))
    with pytest.raises(InvalidInputError, match="row group"):
        coo.encode(Coo.of((2,), [[0]], np.ones(1)), row_group_rows=0)
