"""Sparse tensors as matrices, by rows and by columns."""

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse
from support.tensor_rows import flipped, read_back, rows_of, speckled

from hyperslab.errors import IntegrityError, InvalidInputError, MetadataError
from hyperslab.selection import Box
from hyperslab.tensors.layouts import csr, prune
from hyperslab.tensors.layouts.streams import pack_numbers, pack_values, unpack_numbers, unpack_values
from hyperslab.tensors.values import Header, coo_of_dense


@pytest.mark.parametrize(("layout", "made"), [("csr", scipy.sparse.csr_array), ("csc", scipy.sparse.csc_array)])
def test_streams_are_scipys_arrays(layout, made):
    x = speckled((30, 40), 200)
    _, rows = rows_of(x, layout)
    payload = np.frombuffer(rows.column("payload")[0].as_py(), np.uint8)
    lines, at = unpack_numbers(payload, 0)
    counts, at = unpack_numbers(payload, at)
    distances, at = unpack_numbers(payload, at)
    values, at = unpack_values(payload, at, np.dtype("f4"))
    oracle = made(x)
    used = np.cumsum(lines)
    pointers = np.zeros(len(oracle.indptr), int)
    pointers[used + 1] = counts
    assert at == len(payload)
    np.testing.assert_array_equal(np.cumsum(pointers), oracle.indptr)
    np.testing.assert_array_equal(csr.restarted(distances, counts), oracle.indices)
    np.testing.assert_array_equal(values, oracle.data)


def test_tensors_are_flattened():
    header, rows = rows_of(speckled((4, 5, 6), 30), "csr", row_axes=1)
    assert header.parameters["flattened_shape"] == [4, 30]
    np.testing.assert_array_equal(read_back(header, rows), speckled((4, 5, 6), 30))


@pytest.mark.parametrize(("layout", "axis"), [("csr", 0), ("csc", 2)])
def test_slices_along_lines_need_few_segments(layout, axis):
    x = speckled((50, 6, 50), 3000)
    header, rows = rows_of(x, layout, cells=100, row_axes=2)
    start, stop = [0, 0, 0], list(x.shape)
    start[axis], stop[axis] = 20, 21
    box = Box(tuple(start), tuple(stop))
    (bounds,) = prune(header, box)
    met = np.ones(rows.num_rows, bool)
    for name, (low, high) in bounds.items():
        met &= (rows.column(name).to_numpy() >= low) & (rows.column(name).to_numpy() <= high)
    assert met.sum() <= 3
    np.testing.assert_array_equal(read_back(header, rows.filter(pa.array(met)), box), x[box.slices])


@pytest.mark.parametrize("column", ["i0", "i1", "count", "nbytes", "crc", "payload"])
def test_flipped_bit_is_an_error(column):
    header, rows = rows_of(speckled((30, 40), 200), "csr", cells=64)
    with pytest.raises(IntegrityError):
        read_back(header, flipped(rows, column, row=1))


def test_missing_segment_is_an_error():
    header, rows = rows_of(speckled((30, 40), 200), "csr", cells=64)
    with pytest.raises(IntegrityError, match="200 cells"):
        read_back(header, rows.slice(1))


def test_wrong_arguments_are_refused():
    with pytest.raises(InvalidInputError):
        csr.encode(coo_of_dense(np.eye(3)), row_axes=3)
    with pytest.raises(InvalidInputError):
        csr.encode(coo_of_dense(np.eye(3)), cells=0)


@pytest.mark.parametrize("wrong", [{"axes": [0, 0]}, {"axes": None}, {"nnz": "3"}, {"row_axes": 7}])
def test_header_that_lies_is_an_error(wrong):
    header, rows = rows_of(np.eye(3), "csr")
    lying = Header("x", "csr", header.shape, header.dtype, header.fill, {**header.parameters, **wrong})
    with pytest.raises(MetadataError):
        read_back(lying, rows)


@pytest.mark.parametrize("numbers", [[], [0, 0], [255], [256, 1], [2**32], [7] * 500, [2**63 - 1]])
def test_numbers_survive_a_stream(numbers):
    packed = np.frombuffer(pack_numbers(np.array(numbers, np.int64)), np.uint8)
    found, at = unpack_numbers(packed, 0)
    assert (found.tolist(), at) == (numbers, len(packed))


@pytest.mark.parametrize("damage", [lambda s: s[:5], lambda s: s[:-1], lambda s: b"\x03" + s[1:], lambda s: s[:9]])
def test_damaged_stream_is_an_error(damage):
    with pytest.raises(IntegrityError):
        unpack_numbers(np.frombuffer(damage(pack_numbers(np.arange(300))), np.uint8), 0)


def test_values_of_another_width_are_an_error():
    with pytest.raises(IntegrityError, match="4 bytes"):
        unpack_values(np.frombuffer(pack_values(np.ones(3, "f4")), np.uint8), 0, np.dtype("f8"))
