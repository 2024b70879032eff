"""The loops of reading many small arrays at once, compiled by numba, which is imported with this module alone.

Blocks of the index and packs are mapped files, known by their addresses. What a block says is checked before it is
used, as `blocks` does: where it contradicts itself, the loop says that it does not know, and Python finds out why.
"""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numba
import numpy as np

from hyperslab.collections.blocks import DELETED, HEAD_BYTES, ROW_BYTES
from hyperslab.layout.instructions import (
    crc32c_byte,
    crc32c_word,
    load_byte,
    load_half,
    load_int,
    load_word,
    store_byte,
    store_word,
)

__all__ = ["ABSENT", "BLOCK", "FOUND", "NOT_HELD", "copy_arrays", "find_arrays"]

P = ParamSpec("P")
R = TypeVar("R")

# What is known of a block: its address (0 if it is not held), rows, mask of slots, where ends, slots and names begin in
# it, the bytes of names, and where its packs and kinds are listed, each with its number and bytes, and how many.
BLOCK = 11
# What is found of an array: pack, start, bytes, kind, crc32c, id.
FOUND = 6
# Instead of a pack: nobody knows the name, or the block with this number is to be had first.
ABSENT, NOT_HELD = -1, -2


def _crc32_table() -> Any:
    """Return what CRC-32, by which slots are found, makes of each byte."""
    table: Any = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = (table >> 1) ^ np.where(table & 1, np.uint32(0xEDB88320), np.uint32(0))
    return table


_CRC32 = _crc32_table()


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function at its first call; what the compiler made is kept on disk for the next process."""
    made: Callable[P, R] = numba.njit(cache=True)(function)
    return made


@compiled
def find_arrays(
    names: Any, parts: Any, edges: Any, blocks: Any, seen: Any, since: float, marks: Any, mark: int, found: Any
) -> Any:
    """Find arrays by their names, which are parted by zeros; return how many are lacking, and in how many packs.

    The k-th block is the one for names from the k-th of `parts` on, which are parted at `edges`. An array whose pack
    was not seen since some time is lacking. -1 if there are not as many names as rows of `found`. Packs are counted by
    marks that no call before has left.
    """
    count = len(found)
    starts = np.empty(count + 1, np.int64)
    if _split(names, starts) != count:
        return -1, 0
    slots = np.empty(count, np.int64)
    # In three rounds, so that a name does not wait for the memory that the one before is at.
    for name in range(count):
        low, high = starts[name], starts[name + 1] - 1
        found[name, 0], slots[name] = _block_of(names, low, high, parts, edges), _crc32_of(names, low, high)
    for name in range(count):
        block = found[name, 0]
        if block >= 0 and blocks[block, 0]:
            slots[name] = _row_of(names, starts[name], starts[name + 1] - 1, blocks[block], slots[name])
        else:
            slots[name] = -1
    lacking = packs = 0
    for name in range(count):
        block, row = found[name, 0], slots[name]
        if block >= 0 and not blocks[block, 0]:
            found[name, 0] = NOT_HELD - block
        elif row < 0 or not _take(blocks[block], row, found[name]):
            found[name, 0] = ABSENT
        pack = found[name, 0]
        if pack < 0 or pack >= len(seen) or (found[name, 2] > 0 and seen[pack] <= since):
            lacking += 1
        elif found[name, 2] > 0 and marks[pack] != mark:
            marks[pack] = mark
            packs += 1
    return lacking, packs


@compiled
def _split(names: Any, starts: Any) -> Any:
    """Find where each name begins, and the end; return how many there are, which may be too many."""
    count = 1
    starts[0] = 0
    for at in range(len(names)):
        if names[at] == 0:
            if count < len(starts):
                starts[count] = at + 1
            count += 1
    if count < len(starts):
        starts[count] = len(names) + 1
    return count


@compiled
def _crc32_of(names: Any, low: Any, high: Any) -> Any:
    crc = np.uint32(0xFFFFFFFF)
    for at in range(low, high):
        crc = _CRC32[(crc ^ names[at]) & np.uint32(255)] ^ (crc >> np.uint32(8))
    return np.int64(crc ^ np.uint32(0xFFFFFFFF))


@compiled
def _block_of(names: Any, low: Any, high: Any, parts: Any, edges: Any) -> Any:
    """Return the last block whose first name is not above a name, -1 if there is none."""
    first, stop = 0, len(edges) - 1
    while first < stop:
        middle = (first + stop) >> 1
        at, end = edges[middle], edges[middle + 1]
        here = low
        while here < high and at < end and names[here] == parts[at]:
            here += 1
            at += 1
        above = at < end and (here == high or parts[at] > names[here])
        if above:
            stop = middle
        else:
            first = middle + 1
    return first - 1


@compiled
def _row_of(names: Any, low: Any, high: Any, block: Any, crc: Any) -> Any:
    """Return the row of a name in a block, -1 if it is not there."""
    address, rows, mask = block[0], block[1], block[2]
    ends, slots, texts = address + block[3], address + block[4], address + block[5]
    for step in range(mask + 1):
        row = np.int64(load_half(slots + 2 * ((crc + step) & mask))) - 1
        if row < 0 or row >= rows:
            return -1
        start = np.int64(load_int(ends + 4 * (row - 1))) if row else 0
        stop = np.int64(load_int(ends + 4 * row))
        if stop - start == high - low and stop <= block[6]:
            at = 0
            while at < high - low and names[low + at] == load_byte(texts + start + at):
                at += 1
            if at == high - low:
                return row
    return -1


@compiled
def _take(block: Any, row: int, found: Any) -> bool:
    """Take what a row says of its array; say whether there is one, and whether that can be."""
    at = block[0] + HEAD_BYTES + ROW_BYTES * row
    number, start, nbytes = np.int64(load_word(at)), np.int64(load_word(at + 8)), np.int64(load_word(at + 16))
    pack, kind = np.int64(load_int(at + 24)), np.int64(load_int(at + 28))
    crc, flags = np.int64(load_int(at + 32)), load_byte(at + 36)
    if flags & DELETED or pack >= block[8] or kind >= block[10]:
        return False
    packs, kinds = block[7] + 16 * pack, block[9] + 16 * kind
    pack_nbytes, kind_nbytes = np.int64(load_word(packs + 8)), np.int64(load_word(kinds + 8))
    if number < 0 or start < 0 or nbytes < 0 or nbytes != kind_nbytes or start > pack_nbytes - nbytes:
        return False
    found[0], found[3] = np.int64(load_word(packs)), np.int64(load_word(kinds))
    found[1], found[2], found[4], found[5] = start, nbytes, crc, number
    return True


@compiled
def copy_arrays(found: Any, addresses: Any, places: Any, target: Any) -> Any:
    """Copy arrays out of packs, each to its place in `target`, and check what was copied.

    Return -1 if all is well, else the number of an array that is damaged, or whose pack is not at hand. Several are
    copied side by side: a step of a checksum has to wait for the one before, but not for those of other arrays.
    """
    count, into = len(found), np.int64(target.ctypes.data)
    for at in range(count):
        if found[at, 2] and (found[at, 0] >= len(addresses) or not addresses[found[at, 0]]):
            return at
    at, bad = 0, -1
    while at < count and bad < 0:
        nbytes = found[at, 2]
        four = at + 4 <= count and found[at + 1, 2] == nbytes and found[at + 2, 2] == nbytes
        if nbytes == 0:
            bad = at if found[at, 4] else -1
            at += 1
        elif four and found[at + 3, 2] == nbytes:
            bad = _copy_four(found, addresses, places, into, at)
            at += 4
        else:
            bad = _copy_one(found, addresses, places, into, at)
            at += 1
    return bad


@compiled
def _copy_one(found: Any, addresses: Any, places: Any, into: Any, at: Any) -> Any:
    source, target = addresses[found[at, 0]] + found[at, 1], into + places[at]
    nbytes = found[at, 2]
    crc = np.uint64(0xFFFFFFFF)
    for byte in range(0, nbytes - 7, 8):
        word = load_word(source + byte)
        store_word(target + byte, word)
        crc = crc32c_word(crc, word)
    return at if _ended(source, target, nbytes, crc) != found[at, 4] else -1


@compiled
def _copy_four(found: Any, addresses: Any, places: Any, into: Any, at: Any) -> Any:
    source_0, target_0 = addresses[found[at, 0]] + found[at, 1], into + places[at]
    source_1, target_1 = addresses[found[at + 1, 0]] + found[at + 1, 1], into + places[at + 1]
    source_2, target_2 = addresses[found[at + 2, 0]] + found[at + 2, 1], into + places[at + 2]
    source_3, target_3 = addresses[found[at + 3, 0]] + found[at + 3, 1], into + places[at + 3]
    nbytes = found[at, 2]
    crc_0 = crc_1 = crc_2 = crc_3 = np.uint64(0xFFFFFFFF)
    for byte in range(0, nbytes - 7, 8):
        word_0, word_1 = load_word(source_0 + byte), load_word(source_1 + byte)
        word_2, word_3 = load_word(source_2 + byte), load_word(source_3 + byte)
        store_word(target_0 + byte, word_0)
        store_word(target_1 + byte, word_1)
        store_word(target_2 + byte, word_2)
        store_word(target_3 + byte, word_3)
        crc_0, crc_1 = crc32c_word(crc_0, word_0), crc32c_word(crc_1, word_1)
        crc_2, crc_3 = crc32c_word(crc_2, word_2), crc32c_word(crc_3, word_3)
    if _ended(source_0, target_0, nbytes, crc_0) != found[at, 4]:
        return at
    if _ended(source_1, target_1, nbytes, crc_1) != found[at + 1, 4]:
        return at + 1
    if _ended(source_2, target_2, nbytes, crc_2) != found[at + 2, 4]:
        return at + 2
    if _ended(source_3, target_3, nbytes, crc_3) != found[at + 3, 4]:
        return at + 3
    return -1


@compiled
def _ended(source: Any, target: Any, nbytes: Any, crc: Any) -> Any:
    """Copy the last bytes, fewer than eight, and return the checksum of all."""
    last = np.uint32(crc)
    for byte in range(nbytes & ~7, nbytes):
        value = load_byte(source + byte)
        store_byte(target + byte, value)
        last = crc32c_byte(last, value)
    return np.int64(last ^ np.uint32(0xFFFFFFFF))
