"""Messages that no current library writes any more, made by hand; and those of others in all versions."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperslab.errors import HyperslabError, MetadataError
from hyperslab.formats.hdf5.header import Message
from hyperslab.formats.hdf5.messages import (
    ChunkIndexMessage,
    Compact,
    Contiguous,
    Dataspace,
    FilterMessage,
    Virtual,
    parse_dataspace,
    parse_external_files,
    parse_fill,
    parse_filters,
    parse_layout,
)
from hyperslab.formats.hdf5.shared import SharedPlace, parse_shared
from hyperslab.formats.hdf5.superblock import Superblock

SB = Superblock(2, 100, 8, 8, 1 << 20, 48)
NOWHERE = 2**64 - 1


def body(kind: int, raw: bytes) -> Message:
    return Message(kind, 0, memoryview(raw), 1000)


@pytest.mark.parametrize("version", [1, 2])
def test_old_layouts(version: int) -> None:
    def head(ndim: int, kind: int) -> bytes:
        return struct.pack("<BBB5x", version, ndim, kind)

    def parsed(raw: bytes) -> object:
        return parse_layout(body(8, raw), SB, filtered=True)

    contiguous = head(3, 1) + struct.pack("<QIII", 500, 4, 5, 8)
    assert parsed(contiguous) == Contiguous(600, 0)
    assert parsed(head(1, 1) + struct.pack("<QI", NOWHERE, 8)) == Contiguous(None, 0)
    chunked = head(3, 2) + struct.pack("<QIII", 500, 4, 5, 8)
    assert parsed(chunked) == ChunkIndexMessage("btree1", 600, (4, 5), 8, True)
    compact = head(2, 0) + struct.pack("<III", 4, 8, 3) + b"abc"
    assert parsed(compact) == Compact(1000 + len(compact) - 3, 3)
    for wrong in (head(1, 2) + bytes(12), head(40, 2) + bytes(200), head(2, 3) + bytes(40), compact[:-1]):
        with pytest.raises(MetadataError):
            parsed(wrong)


def test_new_layouts() -> None:
    def parsed(raw: bytes, *, filtered: bool = False) -> object:
        return parse_layout(body(8, raw), SB, filtered=filtered)

    lead = struct.pack("<BBBBBHHH", 4, 2, 1, 3, 2, 4, 5, 8)
    assert parsed(lead + b"\x02" + struct.pack("<Q", 500)) == ChunkIndexMessage(
        "implicit", 600, (4, 5), 8, False, skip_partial_edges=True, version=4
    )
    single = struct.pack("<BBBBBHHH", 4, 2, 2, 3, 2, 4, 5, 8) + b"\x01" + struct.pack("<QIQ", 77, 6, 500)
    assert parsed(single, filtered=True) == ChunkIndexMessage(
        "single", 600, (4, 5), 8, True, single_nbytes=77, single_mask=6, version=4
    )
    assert parsed(struct.pack("<BBQI", 4, 3, 500, 7)) == Virtual(600, 7)
    with pytest.raises(HyperslabError, match="index of kind 9"):
        parsed(lead + b"\x09" + struct.pack("<Q", 500))
    with pytest.raises(MetadataError, match="unknown class 3"):
        parsed(struct.pack("<BBQI", 3, 3, 500, 7))


def test_dataspaces() -> None:
    def parsed(raw: bytes) -> Dataspace:
        return parse_dataspace(body(1, raw), SB)

    assert parsed(struct.pack("<BBB5x", 1, 0, 0)) == Dataspace((), ())
    assert parsed(struct.pack("<BBB5x4Q", 1, 2, 1, 3, 4, NOWHERE, 9)) == Dataspace((3, 4), (None, 9))
    assert parsed(struct.pack("<BBBB", 2, 0, 0, 0)) == Dataspace((), ())
    assert parsed(struct.pack("<BBBBQ", 2, 1, 0, 1, 5)) == Dataspace((5,), (5,))
    assert parsed(struct.pack("<BBBB", 2, 0, 0, 2)) == Dataspace(None, None)
    assert parsed(struct.pack("<BBBB", 2, 0, 0, 2)).ncells == 0
    for wrong in (
        struct.pack("<BBBB", 2, 0, 0, 3),
        struct.pack("<BBBBQ", 2, 1, 0, 0, 5),
        struct.pack("<BBBBQQ", 2, 1, 1, 1, 5, 4),
        struct.pack("<BBBB33Q", 2, 33, 0, 1, *[1] * 33),
        struct.pack("<BBBB", 3, 0, 0, 0),
        struct.pack("<BBBBI", 2, 1, 0, 1, 5),
    ):
        with pytest.raises(MetadataError):
            parsed(wrong)


def test_fill_values() -> None:
    def parsed(kind: int, raw: bytes) -> bytes | None:
        found = parse_fill(body(kind, raw))
        return None if found is None else bytes(found)

    assert parsed(4, struct.pack("<I", 3) + b"abc") == b"abc"
    assert parsed(4, struct.pack("<I", 0)) is None
    assert parsed(5, struct.pack("<BBBBI", 1, 2, 0, 1, 3) + b"abc") == b"abc"
    assert parsed(5, struct.pack("<BBBB", 2, 2, 0, 0)) is None
    assert parsed(5, struct.pack("<BBBBI", 2, 2, 0, 1, 3) + b"abc") == b"abc"
    assert parsed(5, struct.pack("<BBBBi", 2, 2, 0, 1, -1)) is None
    assert parsed(5, struct.pack("<BBI", 3, 0x20, 3) + b"abc") == b"abc"
    assert parsed(5, struct.pack("<BB", 3, 0x10)) is None


def test_filters() -> None:
    old = struct.pack("<BB6x", 1, 2) + struct.pack("<HHHH", 1, 8, 1, 1) + b"deflate\0" + struct.pack("<II", 6, 0)
    old += struct.pack("<HHHH", 32000, 3, 0, 2) + b"lzf\0\0\0\0\0" + struct.pack("<II", 4, 261)
    new = struct.pack("<BB", 2, 2) + struct.pack("<HHHI", 1, 1, 1, 6)
    new += struct.pack("<HHHH", 32000, 4, 0, 2) + b"lzf\0" + struct.pack("<II", 4, 261)
    lzf = FilterMessage(32000, "lzf", False, (4, 261))
    assert parse_filters(body(11, old)) == (FilterMessage(1, "deflate", True, (6,)), lzf)
    assert parse_filters(body(11, new)) == (FilterMessage(1, "", True, (6,)), lzf)


def test_places_of_shared_messages() -> None:
    def parsed(raw: bytes) -> SharedPlace:
        return parse_shared(body(3, raw).cursor("a shared message"), SB)

    assert parsed(struct.pack("<BB6xQQ", 1, 0, 8, 500)) == SharedPlace(600, None)
    assert parsed(struct.pack("<BB6xQ", 1, 0, 500)) == SharedPlace(600, None)
    assert parsed(struct.pack("<BBQ", 2, 2, 500)) == SharedPlace(600, None)
    assert parsed(struct.pack("<BBQ", 3, 2, 500)) == SharedPlace(600, None)
    assert parsed(struct.pack("<BB", 3, 1) + b"12345678") == SharedPlace(None, b"12345678")


@given(st.binary(max_size=120), st.integers(0, 5))
def test_any_bytes_give_a_message_or_a_typed_error(raw: bytes, version: int) -> None:
    raw = bytes([version]) + raw
    for parse in (
        lambda: parse_dataspace(body(1, raw), SB),
        lambda: parse_layout(body(8, raw), SB, filtered=True),
        lambda: parse_fill(body(5, raw)),
        lambda: parse_filters(body(11, raw)),
        lambda: parse_external_files(body(7, raw), SB),
        lambda: parse_shared(body(3, raw).cursor("a shared message"), SB),
    ):
        try:
            parse()
        except HyperslabError:
            continue
