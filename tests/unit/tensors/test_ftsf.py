"""Dense tensors as chunks. Figures 1, 2 and 3 of the Delta Tensor paper are among the examples."""

import numpy as np
import pytest
from support.tensor_rows import flipped, read_back, rows_of

from hyperslab.errors import IntegrityError, InvalidInputError, MetadataError
from hyperslab.selection import Box
from hyperslab.tensors.layouts import ftsf, prune
from hyperslab.tensors.values import Header


def test_figure_2_frames_are_a_row_each():
    frames = np.random.default_rng(0).integers(0, 256, (24, 3, 64, 64), np.uint8)
    header, rows = rows_of(frames, "ftsf", chunk_dims=3)
    assert header.parameters == {"chunk_dims": 3, "rows": 1}
    assert rows.column("i0").to_pylist() == list(range(24))
    assert rows.column("payload")[5].as_py() == frames[5].tobytes()


def test_figure_3_planes_are_a_row_each():
    frames = np.arange(24 * 3 * 4 * 4, dtype="u2").reshape(24, 3, 4, 4)
    _, rows = rows_of(frames, "ftsf", chunk_dims=2)
    assert rows.num_rows == 72
    place = rows.column("i0").to_pylist().index(7) + 2
    assert (rows.column("i0")[place].as_py(), rows.column("i1")[place].as_py()) == (7, 2)
    assert rows.column("payload")[place].as_py() == frames[7, 2].tobytes()


def test_chunks_are_not_copied():
    x = np.zeros((8, 1000))
    encoded = ftsf.encode(x, chunk_dims=1)
    _, _, data = next(encoded.tables).column("payload").chunk(0).buffers()
    assert data.address == x.ctypes.data


@pytest.mark.parametrize("x", [np.float32(3), np.zeros((0, 3)), np.array(["ab", "c"]), np.array([b"x", b"yz"])])
def test_tensors_without_axes_or_cells_and_texts(x):
    x = np.asarray(x)
    header, rows = rows_of(x, "ftsf")
    found = read_back(header, rows)
    assert found.dtype == x.dtype
    np.testing.assert_array_equal(found, x)


def test_only_chunks_that_meet_the_box_are_asked_for():
    x = np.arange(20 * 6).reshape(20, 6)
    header, rows = rows_of(x, "ftsf", chunk_dims=1, rows=3)
    box = Box((4, 1), (8, 3))
    assert prune(header, box) == [{"i0": (1, 2)}]
    np.testing.assert_array_equal(read_back(header, rows.slice(1, 2), box), x[4:8, 1:3])
    assert prune(header, Box((4, 1), (4, 3))) == []


def test_missing_chunk_is_an_error():
    header, rows = rows_of(np.arange(20), "ftsf", chunk_dims=0, rows=5)
    with pytest.raises(IntegrityError, match="lacks 1 of 4"):
        read_back(header, rows.slice(1))


@pytest.mark.parametrize("column", ["i0", "nbytes", "crc", "payload"])
def test_flipped_bit_is_an_error(column):
    header, rows = rows_of(np.arange(20), "ftsf", chunk_dims=0, rows=5)
    with pytest.raises(IntegrityError):
        read_back(header, flipped(rows, column, row=2))


@pytest.mark.parametrize("wrong", [{"chunk_dims": 3}, {"chunk_dims": -1}, {"rows": 0}])
def test_chunks_that_cannot_be_are_refused(wrong):
    with pytest.raises(InvalidInputError):
        ftsf.encode(np.zeros((4, 4)), **wrong)


def test_objects_are_refused():
    with pytest.raises(InvalidInputError, match="not stored"):
        ftsf.encode(np.array([object()]))


def test_header_that_lies_is_an_error():
    header, rows = rows_of(np.arange(20), "ftsf")
    wrong = Header("x", "ftsf", header.shape, header.dtype, header.fill, {"chunk_dims": 9, "rows": 1})
    with pytest.raises(MetadataError):
        read_back(wrong, rows)
