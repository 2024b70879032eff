"""Sparse tensors as trees of fibres. Figure 6 of the Delta Tensor paper is among the examples."""

import numpy as np
import pytest
from support.tensor_rows import flipped, read_back, rows_of, speckled

from hyperslab.errors import IntegrityError, InvalidInputError
from hyperslab.selection import Box
from hyperslab.tensors.layouts import csf, prune
from hyperslab.tensors.values import Coo

# Seven cells of a tensor of four axes, of which fibres share indices on every level.
FIGURE_6 = np.array(
    [[0, 0, 0, 1], [0, 0, 0, 2], [0, 1, 0, 0], [0, 1, 0, 2], [1, 0, 1, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
).T


def test_figure_6_indices_are_stored_once():
    indices, children = csf.fibres_of(FIGURE_6)
    assert [level.tolist() for level in indices] == [
        [0, 1],
        [0, 1, 0, 1],
        [0, 0, 1, 1],
        [1, 2, 0, 2, 0, 0, 1],
    ]
    assert [level.tolist() for level in children] == [[2, 2], [1, 1, 1, 1], [2, 2, 1, 2]]
    pointers = [np.append(0, np.cumsum(level)).tolist() for level in children]
    assert pointers == [[0, 2, 4], [0, 1, 2, 3, 4], [0, 2, 4, 5, 7]]
    np.testing.assert_array_equal(csf.cells_of(indices, children), FIGURE_6)


def test_figure_6_is_read_back():
    x = Coo.of((2, 2, 2, 3), FIGURE_6, np.arange(1.0, 8.0))
    header, rows = rows_of(x, "csf")
    np.testing.assert_array_equal(read_back(header, rows), x.to_dense())


def test_slice_along_the_first_level_needs_few_segments():
    x = speckled((40, 10, 10), 2000)
    header, rows = rows_of(x, "csf", axes=(2, 0, 1), cells=50)
    box = Box((0, 0, 3), (40, 10, 4))
    (bounds,) = prune(header, box)
    first, last = rows.column("i0").to_numpy(), rows.column("i1").to_numpy()
    met = (first <= bounds["i0"][1]) & (last >= bounds["i1"][0])
    assert 4 <= met.sum() <= 7
    np.testing.assert_array_equal(read_back(header, rows, box), x[box.slices])


@pytest.mark.parametrize("column", ["i0", "i1", "count", "nbytes", "crc", "payload"])
def test_flipped_bit_is_an_error(column):
    header, rows = rows_of(speckled((30, 40), 200), "csf", cells=64)
    with pytest.raises(IntegrityError):
        read_back(header, flipped(rows, column, row=1))


def test_levels_that_do_not_name_each_axis_are_refused():
    with pytest.raises(InvalidInputError):
        rows_of(np.eye(3), "csf", axes=(0, 0))
