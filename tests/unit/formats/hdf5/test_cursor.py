"""The cursor: fields come out as they went in, and it never runs over."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperslab.errors import MetadataError
from hyperslab.formats.hdf5.cursor import Cursor


@given(st.lists(st.tuples(st.integers(1, 8), st.integers(0)), max_size=20))
def test_integers_come_back(fields: list[tuple[int, int]]) -> None:
    fields = [(width, value % (1 << 8 * width)) for width, value in fields]
    cursor = Cursor(memoryview(b"".join(value.to_bytes(width, "little") for width, value in fields)))
    assert [cursor.uint(width) for width, _ in fields] == [value for _, value in fields]
    assert cursor.left == 0


@given(st.binary(max_size=20), st.integers(-5, 2**70))
def test_takes_what_there_is_or_refuses(data: bytes, nbytes: int) -> None:
    cursor = Cursor(memoryview(data), origin=100, what="a thing")
    if 0 <= nbytes <= len(data):
        assert bytes(cursor.take(nbytes)) == data[:nbytes]
        assert cursor.place == 100 + nbytes
    else:
        with pytest.raises(MetadataError, match="a thing ends at byte"):
            cursor.take(nbytes)
        assert cursor.at == 0


@given(st.binary(max_size=300), st.binary(max_size=5))
def test_names_end_at_a_zero(before: bytes, behind: bytes) -> None:
    before = before.replace(b"\0", b"x")
    cursor = Cursor(memoryview(before + b"\0" + behind))
    assert cursor.until_nul() == before
    assert bytes(cursor.rest()) == behind
    with pytest.raises(MetadataError, match="never ends"):
        Cursor(memoryview(before)).until_nul()


def test_alignment_signature_and_version() -> None:
    cursor = Cursor(memoryview(b"abc\0\0\0\0\0TREE\x03"), what="a thing")
    cursor.skip(3)
    cursor.align(8)
    cursor.expect(b"TREE")
    with pytest.raises(MetadataError, match="version 3, expected 1 or 2"):
        cursor.version(1, 2)
    with pytest.raises(MetadataError, match=r"should begin with b'SNOD' and begins with b'abc"):
        Cursor(memoryview(b"abc\0"), what="a thing").expect(b"SNOD")
