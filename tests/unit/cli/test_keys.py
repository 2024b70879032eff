"""Keys as text: the same as between NumPy's brackets, and never run."""

import time
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperslab.cli.keys import parse_key
from hyperslab.errors import SelectionError
from hyperslab.plan.phrases import say_key
from hyperslab.selection import parse


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("3", 3),
        ("-1", -1),
        ("- 1", -1),
        (" 3 , ", (3,)),
        ("...", ...),
        (":", slice(None)),
        ("3, 10:40, ::2", np.s_[3, 10:40, ::2]),
        ("::-1, -5:-2", np.s_[::-1, -5:-2]),
        ("None:5", slice(None, 5)),
        ("None, 4", (None, 4)),
        ("[1, 5, 9]", [1, 5, 9]),
        ("[], 2", ([], 2)),
        ("[True, False]", [True, False]),
        ("[[True], [False]]", [[True], [False]]),
        ('"field", 0:5', np.s_["field", 0:5]),
        ("['a', 'b']", ["a", "b"]),
        ("0x10, 1_000", (16, 1000)),
        ("(1, 2)", (1, 2)),
        ("3,\n 4", (3, 4)),
    ],
)
def test_keys(text, key):
    assert parse_key(text) == key


@pytest.mark.parametrize(
    "text",
    [
        "", "   ", "foo", "foo()", "__import__('os').system('true')", "1.5", "1 + 1", "3:x", "[1, None]", "[3:5]",
        "0] + _[0", "0]; import os; _[0", "0 # ", "lambda: 0", "{1}", "b'x'", "f'{1}'", "*a", "a := 1", "--1", "~1",
        "True", "1j", "[x for x in y]", "(1, (2, 3))", "[1, [2, 'a', (3,)]]", "'a' 'b'[0]", "\0", "\ud800", "9" * 5000,
        "(" * 5000, "[" * 90 + "]" * 90, "-" * 5000 + "1",
    ],
)  # fmt: skip
def test_what_is_not_a_key_gets_one_clear_line(text):
    with pytest.raises(SelectionError) as refused:
        parse_key(text)
    assert len(str(refused.value)) < 400
    assert "\n" not in repr(str(refused.value))


@pytest.mark.parametrize("text", ["x" * 10**6, "[" + "1," * 49_000 + "]", "1," * 49_000, "-" * 99_000, "[" * 99_000])
def test_long_texts_are_refused_or_read_in_bounded_time(text):
    started = time.perf_counter()
    with suppress(SelectionError):
        parse_key(text)
    assert time.perf_counter() - started < 30


def test_many_indices_are_read():
    assert parse_key(str(list(range(10_000)))) == list(range(10_000))


SHAPE = (7, 30, 12)


@st.composite
def keys(draw):
    bound = st.none() | st.integers(-40, 40)
    step = st.none() | st.integers(-4, 4).filter(bool)
    items = []
    for n in SHAPE[: draw(st.integers(0, 3))]:
        items += [None] * draw(st.integers(0, 1))
        items.append(
            draw(
                st.integers(-n, n - 1)
                | st.builds(slice, bound, bound, step)
                | st.lists(st.integers(-n, n - 1), min_size=1, max_size=5)
            )
        )
    return tuple(items)


@given(keys())
def test_what_explain_shows_can_be_typed_back(key):
    cells = np.arange(np.prod(SHAPE)).reshape(SHAPE)
    selection = parse(key, SHAPE)
    again = parse(parse_key(say_key(selection)), SHAPE)
    one, two = (s.finish(cells[np.ix_(*(axis.indices() for axis in s.axes))]) for s in (selection, again))
    assert np.array_equal(one, two)
