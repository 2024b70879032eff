"""Units and keys in words."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperslab.plan.phrases import say_bytes, say_key, say_seconds, say_usd
from hyperslab.selection import parse, parse_points


@given(st.floats(1e-9, 1e9))
def test_dollars_are_near(usd):
    text = say_usd(usd)
    assert "e" not in text
    assert float(text.lstrip("<$").replace(",", "")) == pytest.approx(usd, rel=0.06)


@given(st.integers(0, 10**20))
def test_bytes_are_near(nbytes):
    number, unit = say_bytes(nbytes).split()
    scale = {"B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "PB": 1e15, "EB": 1e18}[unit]
    assert float(number.replace(",", "")) * scale == pytest.approx(nbytes, rel=0.006)


@given(st.floats(1e-7, 1e7))
def test_seconds_are_near(seconds):
    number, unit = say_seconds(seconds).split()
    scale = {"µs": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600}[unit]
    assert float(number.replace(",", "")) * scale == pytest.approx(seconds, rel=0.06, abs=6e-9)


SHAPE = (8, 50, 9)
NAMES = ("a", "b")


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (np.s_[...], ":, :, :"),
        (np.s_[3, 10:40, ::2], "3, 10:40, ::2"),
        (np.s_[-1], "7, :, :"),
        (np.s_[::-1, ::-2, 7:2:-3], "::-1, ::-2, 7:3:-3"),
        (np.s_[5:2:-1], "5:2:-1, :, :"),
        (np.s_[:, None, 4:5], ":, None, 4:5, :"),
        (np.s_[[1, 5, 6]], "[1, 5, 6], :, :"),
        (np.s_[[5, 1]], "[5, 1], :, :"),
        (np.s_[:, [*range(0, 40, 5), 49]], ":, [9 indices], :"),
        (np.s_[:, [0, 10, 20, 30]], ":, 0:31:10, :"),
        (np.s_["a", 0:5], "'a', 0:5, :, :"),
        (np.s_[["a", "b"]], "['a', 'b'], :, :, :"),
        (np.s_[4:4], "0:0, :, :"),
        (np.s_[1, 2, 3], "1, 2, 3"),
    ],
)
def test_keys_as_typed(key, text):
    assert say_key(parse(key, SHAPE, NAMES)) == text


def test_keys_of_points_and_scalars():
    assert say_key(parse_points(([1, 2], [3, 4], [5, 6]), SHAPE)) == "2 points"
    assert say_key(parse(np.ones((2, 3), bool), (2, 3))) == "6 points"
    assert say_key(parse((), ())) == "()"
    assert say_key(parse(..., ())) == "..."
    assert say_key(parse(0, (1,))) == "0"
    assert say_key(parse(slice(None), (1,))) == ":"
