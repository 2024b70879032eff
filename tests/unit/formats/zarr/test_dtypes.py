"""Types and fill values in the forms that other writers than zarr-python have."""

import numpy as np
import pytest

from hyperslab.formats.zarr.dtypes import parse_dtype_v2, parse_dtype_v3, parse_fill


@pytest.mark.parametrize(
    ("spec", "dtype"),
    [
        ("r8", "V1"), ("r24", "V3"), ({"name": "int16"}, "i2"), ({"name": "bool", "configuration": {}}, "?"),
        ({"name": "raw_bytes", "configuration": {"length_bytes": 4}}, "V4"),
        ({"name": "fixed_length_ascii", "configuration": {"length_bits": 24}}, "S3"),
        ({"name": "fixed_length_ucs4", "configuration": {"length_bits": 64}}, "U2"),
        ({"name": "numpy.timedelta64", "configuration": {"unit": "generic", "scale_factor": 1}}, "m8"),
        ({"name": "numpy.datetime64", "configuration": {"unit": "μs", "scale_factor": 2}}, "M8[2us]"),
        ({"name": "struct", "configuration": {"fields": [{"name": "a", "data_type": "int8"}]}},
        [("a", "i1")]),
        (
            {"name": "structured", "configuration": {"fields": [["a", "r16"], ["b", {"name": "structured",
             "configuration": {"fields": [["c", "float32"]]}}]]}},
            [("a", "V2"), ("b", [("c", "f4")])],
        ),
    ],
    ids=str,
)  # fmt: skip
def test_v3_types(spec, dtype):
    assert parse_dtype_v3(spec) == np.dtype(dtype)


@pytest.mark.parametrize(
    ("spec", "dtype"),
    [
        ("<i4", "<i4"), (">f8", ">f8"), ("|b1", "?"), ("|S12", "S12"), (">U3", ">U3"), ("|V5", "V5"),
        ("<M8", "M8"),
        ("<M8[25s]", "M8[25s]"), (">m8[ns]", ">m8[ns]"),
        ([["a", ">i2"], ["b", [["c", "<f4"], ["d", "|S2"]]]],
        [("a", ">i2"), ("b", [("c", "<f4"), ("d", "S2")])]),
        ([["a", "<f4", [2, 3]], ["b", "|u1", 2]], [("a", "<f4", (2, 3)), ("b", "u1", (2,))]),
    ],
    ids=str,
)  # fmt: skip
def test_v2_types(spec, dtype):
    assert parse_dtype_v2(spec) == np.dtype(dtype)


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (7, "i4", 7), (7.0, "i4", 7), ("7", "i4", 7), (0, "?", False), (1, "?", True), (True, "?", True),
        (5, "f8", 5.0), ("1.5", "f4", 1.5), ("Infinity", "f4", np.inf), ("-Infinity", "f2", -np.inf),
        ("0x3fc00000", "f4", 1.5), ("0x3ff8000000000000", "f8", 1.5), ("0x3e00", "f2", 1.5),
        ("0x3fc00000", "f8", 1.5),
        (1e300, "f4", np.inf), ([1, "Infinity"], "c16", complex(1, np.inf)), (3, "c8", 3),
        (["0x3fc00000", 0], "c8", 1.5),
        ("NaT", "M8[s]", "NaT"), (10, ">M8[s]", np.datetime64(10, "s")), (-(2**63), "m8[s]", "NaT"),
        ("YWI=", "S2", b"ab"), ("YWJj", "S2", b"ab"), ("", "S2", b""), (0, "S2", b""),
        ("añbc", "U3", "añb"), (0, "U3", ""),
        (0, "V2", b"\0\0"), ([1, 2], "V2", b"\1\2"), ("AQI=", "V2", b"\1\2"), (None, "i4", 0),
        (None, ">M8[s]", "NaT"),
        ("AQAAAAAAgD8=", [("a", "<i4"), ("b", "<f4")], (1, 1.0)),
        ({"a": 1, "b": "NaN"}, [("a", "<i4"), ("b", ">f4")], None),
        (0, [("a", "<i4")], (0,)), (None, [("a", "<i4")], (0,)),
        ({"b": {"c": 3}}, [("b", [("c", "<i4")])], ((3,),)),
    ],
    ids=str,
)  # fmt: skip
def test_fill_values(value, dtype, expected):
    dtype = np.dtype(dtype)
    fill = parse_fill(value, dtype)
    assert (fill.shape, fill.dtype) == ((), dtype)
    assert not fill.flags.writeable
    if expected is None:
        assert fill["a"] == 1
        assert np.isnan(fill["b"])
    else:
        np.testing.assert_array_equal(fill, np.array(expected, dtype))


def test_the_bits_of_a_nan_are_kept():
    assert parse_fill("0x7fc00123", np.dtype("f4")).view("u4") == 0x7FC00123
    assert parse_fill("0x7ff8000000000abc", np.dtype(">f8")).tobytes().hex() == "7ff8000000000abc"
