"""Cells are shuffled where nobody says whether, and a sample says that it is worth it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nst

import hyperslab as hs
from hyperslab.formats.zarr.create import NewArray
from hyperslab.formats.zarr.shuffling import as_sample_says

RANDOM = np.random.default_rng(1)
IDS = RANDOM.zipf(1.3, (400, 512)).clip(max=30521)
SMOOTH = np.cumsum(RANDOM.normal(size=100_000)).astype("f4")


def said(values: np.ndarray, **settings) -> bool | None:
    return as_sample_says(NewArray(values.shape, values.dtype, **settings), values).shuffle


@pytest.mark.parametrize(
    "values",
    [IDS.astype("i4"), IDS.astype(">i4"), SMOOTH, SMOOTH.astype("c8"), np.arange(9000).astype("M8[s]"),
     RANDOM.integers(97, 123, (900, 8), "i4").view("U8")],
    ids=["ids", "big-endian", "floats", "complex", "times", "strings"],
)  # fmt: skip
def test_it_is_worth_it(values):
    assert said(values) is True
    # What was asked for is done.
    assert said(values, shuffle=False) is False
    assert said(values, layout="plain") is None
    assert said(values, compressor=None) is None
    assert said(values, compressor="gzip") is None
    assert said(values, compressor="zstd:15") is None


@pytest.mark.parametrize(
    "values",
    [RANDOM.integers(0, 2**31, (300, 300), "i4"), np.zeros((300, 300), "i4"), np.ones(99, "u1"), np.zeros((), "i4"),
     np.zeros((3, 0, 4), "f8"), np.round(SMOOTH.astype("f8"), 2), (RANDOM.random((300, 300)) > 0.999).astype("i4"),
     np.zeros(40, [("a", "i4"), ("b", "f8")])],
    ids=["random", "zeros", "bytes", "scalar", "empty", "decimal", "mask", "structure"],
)  # fmt: skip
def test_it_is_not_worth_it(values):
    assert said(values) is None


def test_a_sample_is_of_the_whole_array():
    """What the first cells would say is outvoted by the rest."""
    values = np.zeros((3000, 64), "i4")
    assert said(values) is None
    values[1000:] = IDS.reshape(-1, 64)[:2000]
    assert said(values) is True


def test_what_is_saved(tmp_path):
    saved = hs.save(str(tmp_path / "ids"), IDS.astype("i4"))
    codecs = saved.source.layout.decoder.names
    assert codecs == ("blosc", "crc32c")
    np.testing.assert_array_equal(hs.open(str(tmp_path / "ids"))[...], IDS)
    asis = hs.save(str(tmp_path / "asis"), IDS.astype("i4"), shuffle=False)
    assert asis.source.layout.decoder.names == ("zstd", "crc32c")
    sizes = [sum(f.stat().st_size for f in (tmp_path / name).rglob("*") if f.is_file()) for name in ("ids", "asis")]
    assert sizes[0] < 0.8 * sizes[1]


@given(
    nst.arrays(nst.scalar_dtypes() | nst.unicode_string_dtypes(), nst.array_shapes(min_dims=0, min_side=0)), st.data()
)
def test_any_array_can_be_looked_at(values, data):
    repeats = data.draw(st.integers(1, 2000))
    values = np.tile(values, (repeats, *[1] * (values.ndim - 1))) if values.ndim else values
    if values.dtype.kind in "mM" and np.datetime_data(values.dtype)[0] == "generic":
        return  # refused by name when they are stored
    if values.dtype.itemsize:  # likewise
        assert said(values) in (None, True)
