"""Sparse tensors in one form, and headers that survive their way through a text."""

import json

import numpy as np
import pytest

from hyperslab.errors import InvalidInputError, MetadataError, UnsupportedError
from hyperslab.selection import Box, parse
from hyperslab.tensors.values import Coo, Header, bounding_box, coo_of_dense


def test_cells_are_sorted_summed_and_without_fill():
    x = Coo.of((2, 3), [[1, 0, 1, 0, 1], [2, 1, 2, 0, 0]], np.array([4, 5, 6, 0, 7]))
    assert x.coords.tolist() == [[0, 1, 1], [1, 0, 2]]
    assert x.values.tolist() == [5, 7, 10]
    assert x.nnz == 3


def test_cells_that_cancel_out_are_gone():
    assert Coo.of((2,), [[1, 1]], np.array([3.0, -3.0])).nnz == 0


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("f2", np.float16(5)), ("?", np.True_), ("u1", np.uint8(5)), ("c8", np.complex64(5)), (">i4", 5)],
)
def test_sums_keep_the_dtype(dtype, expected):
    x = Coo.of((4,), [[2, 2]], np.array([2, 3]).astype(dtype))
    assert x.dtype == np.dtype(dtype)
    assert x.values[0] == expected


def test_times_are_summed_in_their_unit():
    x = Coo.of((4,), [[2, 2]], np.array([2, 3], "m8[s]"))
    assert x.values.tolist() == np.array([5], "m8[s]").tolist()


def test_negative_zero_is_a_value_and_nan_may_be_the_fill():
    assert coo_of_dense(np.array([0.0, -0.0])).coords.tolist() == [[1]]
    x = np.array([np.nan, 1.0, np.nan])
    sparse = coo_of_dense(x, fill=np.nan)
    assert sparse.nnz == 1
    np.testing.assert_array_equal(sparse.to_dense(), x)


def test_fill_that_is_not_zero():
    x = Coo.of((3,), [[1]], np.array([5], "i2"), fill=7)
    assert x.to_dense().tolist() == [7, 5, 7]
    assert x.cut(Box((1,), (3,))).to_dense().tolist() == [5, 7]


@pytest.mark.parametrize(
    ("shape", "coords", "values"),
    [
        ((2, 2), [[0], [2]], [1]),
        ((2, 2), [[0], [-1]], [1]),
        ((2, 2), [[0]], [1]),
        ((2, 2), [[0.5], [1]], [1]),
        ((2,), [[0, 1]], [[1, 2]]),
        ((-1,), [[]], []),
        ((2**40, 2**40), [[0], [0]], [1]),
    ],
)
def test_cells_that_cannot_be_are_refused(shape, coords, values):
    with pytest.raises(InvalidInputError):
        Coo.of(shape, coords, np.array(values))


@pytest.mark.parametrize(("fill", "dtype"), [(300, "u1"), (0.5, "i4"), ("x", "f8"), ([1, 2], "f8")])
def test_fill_that_the_dtype_does_not_hold_is_refused(fill, dtype):
    with pytest.raises(InvalidInputError, match="fill value"):
        Coo.of((2,), [[0]], np.ones(1, dtype), fill)


def test_texts_given_twice_cannot_be_summed():
    with pytest.raises(InvalidInputError, match="cannot be summed"):
        Coo.of((2,), [[0, 0]], np.array(["a", "b"]), "")


def test_whole_selection_is_not_copied():
    x = Coo.of((4, 5), [[0, 3], [1, 2]], np.array([1, 2]))
    assert x.select(parse(..., x.shape)) is x


def test_lists_of_indices_are_refused():
    x = Coo.of((4, 5), [[0, 3], [1, 2]], np.array([1, 2]))
    chosen = parse(([2, 0],), x.shape)
    with pytest.raises(UnsupportedError):
        x.cut(bounding_box(chosen)).select(chosen)


def test_density_of_nothing_is_one():
    assert Coo.of((0, 3), np.empty((2, 0), int), np.empty(0)).density == 1.0


@pytest.mark.parametrize("fill", [np.float64("nan"), np.float64(-0.0), np.float64(1e300)])
def test_header_keeps_the_bytes_of_the_fill(fill):
    back = Header.from_json(Header("a", "coo", (3,), np.dtype("f8"), fill, {"nnz": 0}).to_json())
    assert np.asarray(back.fill).tobytes() == np.asarray(fill).tobytes()


@pytest.mark.parametrize("dtype", ["f2", ">f4", "?", "u8", "c16", "M8[ms]", "S3", "U2"])
def test_header_keeps_the_dtype(dtype):
    header = Header("ä", "ftsf", (), np.dtype(dtype), np.zeros((), dtype)[()], {})
    back = Header.from_json(header.to_json())
    assert (back.dtype, back.shape, back.id) == (header.dtype, (), "ä")


@pytest.mark.parametrize(
    ("field", "value"),
    [("dtype", "O"), ("dtype", 7), ("shape", [-1]), ("shape", "x"), ("fill", "zz"), ("fill", ""), ("parameters", 3)],
)
def test_header_that_cannot_be_is_an_error(field, value):
    described = json.loads(Header("a", "coo", (3,), np.dtype("f4"), np.float32(0), {}).to_json())
    with pytest.raises(MetadataError):
        Header.from_json(json.dumps({**described, field: value}))


@pytest.mark.parametrize("text", ["", "[]", "null", "{}", "{" * 9000])
def test_text_that_is_no_header_is_an_error(text):
    with pytest.raises(MetadataError):
        Header.from_json(text)
