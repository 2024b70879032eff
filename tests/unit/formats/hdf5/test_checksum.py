"""Jenkins' lookup3: against its author's own examples, and the two versions against each other."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hyperslab.formats.hdf5.checksum import lookup3, lookup3_each, lookup3_many


@pytest.mark.parametrize(
    ("data", "expected"), [(b"", 0xDEADBEEF), (b"Four score and seven years ago", 0x17770551)], ids=["empty", "text"]
)
def test_known_answers(data: bytes, expected: int) -> None:
    assert lookup3(data) == expected
    assert lookup3_many(np.frombuffer(data, np.uint8)[None]).tolist() == [expected]


@given(hnp.arrays(np.uint8, st.tuples(st.integers(0, 5), st.integers(0, 80))))
def test_many_rows_are_as_one_by_one(rows: np.ndarray) -> None:
    assert lookup3_many(rows).tolist() == [lookup3(row.tobytes()) for row in rows]


@given(st.lists(st.binary(max_size=3), max_size=40))
def test_buffers_of_any_sizes_are_as_one_by_one(buffers: list[bytes]) -> None:
    assert lookup3_each(buffers) == [lookup3(each) for each in buffers]


@given(st.binary(min_size=1, max_size=100), st.data())
def test_one_flipped_bit_is_seen(data: bytes, draw: st.DataObject) -> None:
    bit = draw.draw(st.integers(0, 8 * len(data) - 1))
    flipped = bytearray(data)
    flipped[bit // 8] ^= 1 << bit % 8
    assert lookup3(bytes(flipped)) != lookup3(data)
