"""Blocks and segments of the index: every row is found, by all ways, and nothing else."""

import random
from zlib import crc32

import pytest

from hyperslab.collections.blocks import DELETED, KEYED, Block, Row, pack_block
from hyperslab.collections.compaction import crowded
from hyperslab.collections.manifest import SegmentRef
from hyperslab.collections.segment import Table, pack_segments

PACK = bytes(range(16))


def rows(names, flags=lambda at: 0):
    return [
        Row(name, 100 + at, PACK, 10_000, 8 * at, 8, b'["<f8",[1]]', at, flags(at), {"x": at} if at % 2 else {})
        for at, name in enumerate(sorted(names))
    ]


@pytest.mark.parametrize("count", [1, 2, 3, 100, 256])
def test_every_name_is_found_and_no_other(count):
    made = rows([b"n/%d" % i for i in range(count)], flags=lambda at: (0, KEYED, DELETED)[at % 3])
    block = Block(memoryview(pack_block(made)), "here")
    assert block.names() == [row.name for row in made]
    assert list(block.iter_rows()) == made
    for at, row in enumerate(made):
        assert block.find(row.name) == at
        assert block.name(at) == row.name
        assert block.is_deleted(at) == block.deleted()[at] == bool(row.flags & DELETED)
        entry, taken = block.entry(at, "name"), block.take(row.name, "name")
        assert taken == (None if row.flags & DELETED else entry)
        assert (entry.id, entry.start, entry.nbytes, entry.crc32c) == (row.id, row.start, row.nbytes, row.crc32c)
        assert (entry.pack, entry.keyed) == (PACK.hex(), bool(row.flags & KEYED))
    for name in (b"", b"n/", b"n/%d" % count, b"o"):
        assert block.find(name) == -1
        assert block.take(name, "name") is None


def test_names_with_one_hash_are_told_apart():
    # All are at one slot of eight.
    names = [name for name in (b"%d" % i for i in range(1000)) if crc32(name) & 7 == 3][:4]
    made = rows(names)
    block = Block(memoryview(pack_block(made)), "here")
    assert [block.find(row.name) for row in made] == [0, 1, 2, 3]
    assert [block.take(row.name, "n").id for row in made] == [100, 101, 102, 103]


def test_a_table_leads_to_the_block_of_every_name():
    chance = random.Random(3)
    names = {bytes(chance.choices(range(256), k=chance.randrange(1, 6))) for _ in range(3000)}
    names |= {b"long" * 20_000 + b"%d" % i for i in range(20)}
    made = rows(names)
    segments = list(pack_segments(made, 1000))
    assert [segment.ref.rows for segment in segments] == [1000] * (len(made) // 1000) + [len(made) % 1000]
    found = []
    for packed in segments:
        table = Table(memoryview(packed.data)[packed.ref.tail :], packed.ref, "here")
        for number in range(table.blocks):
            low, high = table.span(number)
            block = Block(memoryview(packed.data)[low:high], "here")
            assert {table.block_of(name) for name in block.names()} == {number}
            found += block.iter_rows()
        assert table.block_of(b"") == -1
        assert table.block_of(b"\xff" * 9) == -1
    assert found == made


def test_an_entry_is_rewritten_about_once_for_each_tier():
    segments, written, most = (), 0, 0
    for i in range(20_000):
        segments += (SegmentRef(f"{i:032x}", 99, 50, 0, 1, 0, 8),)
        while merged := crowded(segments):
            total = sum(segment.rows for segment in merged)
            written += total
            segments = (*segments[: -len(merged)], SegmentRef(f"{i:031x}m", 99, 50, 0, total, 0, 8))
        most = max(most, len(segments))
    assert most < 32
    assert written < 10 * 20_000
