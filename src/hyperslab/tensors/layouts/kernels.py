"""The inner loops over single cells, compiled by numba, which is imported with this module alone.

Blocks are streams of codes: for each cell one code for how far it lies from the one before and for its value together,
then the bits that the code leaves open. `prefix` tells what a code is, `bsgs` what the symbols mean.
"""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numpy as np

from hyperslab.errors import InvalidInputError

__all__ = ["CHECKSUM_TABLES", "checksums", "count_symbols", "cut_cells", "find_palette", "read_slabs", "write_blocks"]

P = ParamSpec("P")
R = TypeVar("R")

try:
    import numba
except ImportError as error:
    raise InvalidInputError("sparse tensors need numba: install the extra hyperslab[tensors]") from error


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function at its first call; what the compiler made is kept on disk for the next process."""
    made: Callable[P, R] = numba.njit(cache=True, nogil=True)(function)
    return made


@compiled
def _divided(number: Any, size: Any, inverse: Any) -> Any:
    """Return quotient and rest. A multiplication is faster than a division; above 2**51 it may be off."""
    # Half a cell more keeps multiples of `size`, which rounding would put below their quotient.
    quotient = np.int64((number + 0.5) * inverse)
    rest = number - quotient * size
    if rest < 0 or rest >= size:
        quotient = number // size
        rest = number - quotient * size
    return quotient, rest


@compiled
def cut_cells(coords: Any, codes: Any, slabs: Any, grid: Any, block: Any, strides: Any, value_bits: int) -> Any:
    """Bring cells into the order of blocks.

    Return places within blocks, values' codes, where each cell was, the numbers of blocks, and where each begins. Cells
    of one slab, those whose blocks have the same place along the first axis, are from `slabs[k]` to `slabs[k + 1]`.
    Where `value_bits` is above 0, codes ride in the lowest bits of what is sorted, and places are not kept.
    """
    axes, cells = coords.shape
    inverse = 1.0 / block
    volume, blocks_of_slab = np.int64(1), np.int64(1)
    for axis in range(axes):
        volume *= block[axis]
        blocks_of_slab *= grid[axis] if axis else 1
    high = value_bits
    while (blocks_of_slab * volume - 1) >> (high - value_bits):
        high += 1
    places, ordered = np.empty(cells, np.int64), np.empty(cells, np.uint16)
    order = np.empty(0 if value_bits else cells, np.int64)
    numbers, starts = np.empty(cells, np.int64), np.empty(cells + 1, np.int64)
    longest = 0
    for slab in range(len(slabs) - 1):
        longest = max(longest, slabs[slab + 1] - slabs[slab])
    buffer, other = np.empty(longest, np.int64), np.empty(longest, np.int64)
    blocks, inverse_volume = 0, 1.0 / volume
    for slab in range(len(slabs) - 1):
        low, stop = slabs[slab], slabs[slab + 1]
        keys = buffer[: stop - low]
        first = _divided(coords[0, low], block[0], inverse[0])[0] * blocks_of_slab
        for cell in range(low, stop):
            rest = _divided(coords[0, cell], block[0], inverse[0])[1]
            number, place = np.int64(0), rest * strides[0]
            for axis in range(1, axes):
                along, rest = _divided(coords[axis, cell], block[axis], inverse[axis])
                number = number * grid[axis] + along
                place += rest * strides[axis]
            key = number * volume + place
            keys[cell - low] = key << value_bits | codes[cell] if value_bits else key
        carried = np.arange(low, stop) if not value_bits else order
        keys, carried = sort_keys(keys, other[: stop - low], carried, value_bits, high)
        last = np.int64(-1)
        for cell in range(low, stop):
            key = keys[cell - low]
            number, places[cell] = _divided(key >> value_bits, volume, inverse_volume)
            if value_bits:
                ordered[cell] = key & ((1 << value_bits) - 1)
            else:
                order[cell] = carried[cell - low]
                ordered[cell] = codes[order[cell]]
            if number != last:
                numbers[blocks], starts[blocks] = first + number, cell
                blocks += 1
                last = number
    starts[blocks] = cells
    return places, ordered, order, numbers[:blocks].copy(), starts[: blocks + 1].copy()


@compiled
def sort_keys(keys: Any, other: Any, carried: Any, low: int, high: int) -> Any:
    """Return keys, and what they carry, by the bits from `low` to before `high`; equal ones stay in their order.

    Some bits at a time, from the lowest on: the numbers have few bits, so this takes fewer steps than comparing. What
    is returned is in `keys` or in `other`, which is as long.
    """
    cells = len(keys)
    rising = True
    for cell in range(1, cells):
        rising = rising and keys[cell - 1] < keys[cell]
    if rising:
        return keys, carried
    other_carried = np.empty_like(carried)
    rounds = max(1, (high - low + 10) // 11)
    width = (high - low + rounds - 1) // rounds
    for bit in range(low, high, width):
        mask = (1 << min(width, high - bit)) - 1
        starts = np.zeros(mask + 2, np.int64)
        for cell in range(cells):
            starts[((keys[cell] >> bit) & mask) + 1] += 1
        for digit in range(mask):
            starts[digit + 1] += starts[digit]
        for cell in range(cells):
            digit = (keys[cell] >> bit) & mask
            other[starts[digit]] = keys[cell]
            if len(carried):
                other_carried[starts[digit]] = carried[cell]
            starts[digit] += 1
        keys, other = other, keys
        carried, other_carried = other_carried, carried
    return keys, carried


@compiled
def find_palette(bits: Any, most: int) -> Any:
    """Return the different values, each value's number among them, and how often each occurs; none if above `most`."""
    slots = 1
    while slots < 4 * most:
        slots *= 2
    table = np.full(slots, -1, np.int64)
    palette = np.empty(most, bits.dtype)
    counts = np.zeros(most, np.int64)
    numbers = np.empty(len(bits), np.uint16)
    used = 0
    for cell in range(len(bits)):
        value = bits[cell]
        slot = (np.uint64(value) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(40)) & np.uint64(slots - 1)
        while table[slot] >= 0 and palette[table[slot]] != value:
            slot = (slot + np.uint64(1)) & np.uint64(slots - 1)
        if table[slot] < 0:
            if used == most:
                return palette[:0], numbers[:0], counts[:0]
            table[slot] = used
            palette[used] = value
            used += 1
        number = table[slot]
        numbers[cell] = number
        counts[number] += 1
    return palette[:used], numbers, counts[:used]


@compiled
def _distance_symbol(distance: int) -> Any:
    """Return the symbol of a distance and how many bits it leaves open."""
    if distance < 8:
        return distance, 0
    power = 0
    while distance >> (power + 1):
        power += 1
    return 8 + (power - 3) * 4 + ((distance >> (power - 2)) & 3), power - 2


@compiled
def count_symbols(places: Any, codes: Any, starts: Any, tables: Any, direct: int, found: Any) -> None:
    """Count how often each symbol occurs in the blocks of each table."""
    for block in range(len(tables)):
        last = np.int64(-1)
        for cell in range(starts[block], starts[block + 1]):
            symbol, _ = _distance_symbol(places[cell] - last - 1)
            last = places[cell]
            found[tables[block], symbol * direct + min(np.int64(codes[cell]), direct - 1)] += 1


@compiled
def write_blocks(
    places: Any, codes: Any, planes: Any, starts: Any, tables: Any, direct: int, escape_bits: int,
    words: Any, lengths: Any, plane_words: Any, plane_lengths: Any, out: Any,
) -> Any:  # fmt: skip
    """Write the streams of all blocks into `out`, a block from a whole byte on; return where each ends, in bytes."""
    ends = np.zeros(len(tables) + 1, np.int64)
    at = 0
    for block in range(len(tables)):
        last = np.int64(-1)
        table = tables[block]
        for cell in range(starts[block], starts[block + 1]):
            distance = places[cell] - last - 1
            last = places[cell]
            symbol, open_bits = _distance_symbol(distance)
            value = min(np.int64(codes[cell]), direct - 1)
            symbol = symbol * direct + value
            length = lengths[table, symbol]
            rest = distance & ((1 << open_bits) - 1)
            at = _put(out, at, words[table, symbol] | rest << length, length + open_bits)
            if escape_bits and value == direct - 1:
                at = _put(out, at, np.int64(codes[cell]), escape_bits)
            for plane in range(planes.shape[1]):
                byte = planes[cell, plane]
                at = _put(out, at, plane_words[plane, byte], plane_lengths[plane, byte])
        at = (at + 7) & ~7
        ends[block + 1] = at >> 3
    return ends


@compiled
def _put(out: Any, at: Any, value: Any, bits: Any) -> Any:
    """Write bits from one place of a stream on; return the place after them."""
    word, bit = at >> 6, np.uint64(at & 63)
    out[word] |= np.uint64(value) << bit
    out[word + 1] |= np.uint64(value) >> np.uint64(1) >> (np.uint64(63) - bit)
    return at + bits


@compiled
def _peeked(words: Any, at: int) -> Any:
    """Return the 64 bits from one place of a stream on."""
    # Unsigned throughout: signed places would be looked at for being negative, each time.
    word, bit = np.uint64(at) >> np.uint64(6), np.uint64(at) & np.uint64(63)
    return words[word] >> bit | words[word + np.uint64(1)] << np.uint64(1) << (np.uint64(63) - bit)


@compiled
def _shift_of(side: int) -> int:
    """Return the power of two that a number is, or -1."""
    shift = 0
    while side >> (shift + 1):
        shift += 1
    return shift if side == 1 << shift else -1


@compiled
def read_blocks(  # noqa: C901 - a call for each cell would take longer than all the rest
    words: Any, starts: Any, stops: Any, counts: Any, origins: Any, inside: Any, last: Any, tables: Any, table_of: Any,
    escape: int, escape_bits: int, plane_tables: Any, sides: Any, steps: Any, varied: Any, cuts: Any,
    low: Any, high: Any, strides: Any, volume: int, value_bits: int, keys: Any, codes: Any, planes: Any,
) -> int:  # fmt: skip
    """Read the streams of blocks; return how many of their cells are in the box, or -1 - block for one that is damaged.

    A cell that is in the box gives its place in the box, and its value as a code or as the bytes of its planes. Where
    `value_bits` is above 0, the code is the lowest bits of the place, else it is apart.
    """
    found = 0
    inverse = 1.0 / sides
    one = np.uint64(1)
    least, most = np.zeros(len(cuts), np.int64), np.zeros(len(cuts), np.int64)
    # After so many places, cells begin anew along an axis.
    period = np.array([steps[axis] * sides[axis] for axis in cuts], np.int64)
    inverse_period = 1.0 / period
    shifts = np.array([_shift_of(sides[axis]) for axis in varied])
    for block in range(len(counts)):
        at, stop = starts[block] * 8, stops[block] * 8
        place = np.int64(-1)
        table = tables[table_of[block]]
        base = np.int64(0)
        whole = inside[block]
        for k in range(len(cuts)):
            least[k] = (low[cuts[k]] - origins[block, cuts[k]]) * steps[cuts[k]]
            most[k] = (high[cuts[k]] - origins[block, cuts[k]]) * steps[cuts[k]]
        for axis in range(origins.shape[1]):
            base += (origins[block, axis] - low[axis]) * strides[axis]
        for _ in range(counts[block]):
            if at >= stop:
                return -1 - block
            held = _peeked(words, at)
            entry = np.int64(table[held & np.uint64(4095)])
            length, open_bits = entry & 15, (entry >> 4) & 63
            value, lead = (entry >> 10) & 31, entry >> 15
            rest = np.int64((held >> np.uint64(length)) & ((one << np.uint64(open_bits)) - one))
            place += (lead << open_bits | rest) + 1
            at += length + open_bits
            if value == escape:
                value = np.int64(_peeked(words, at) & ((one << np.uint64(escape_bits)) - one))
                at += escape_bits
            for plane in range(planes.shape[1]):
                entry = plane_tables[plane, _peeked(words, at) & np.uint64(4095)]
                planes[found, plane] = entry >> 4
                at += entry & 15
            if length == 0 or place >= volume or at > stop:
                return -1 - block
            if place > last[block]:
                at = stop
                break
            wanted = True
            if not whole:
                # Most cells are not wanted: one axis tells, and the others are not looked at.
                for k in range(len(cuts)):
                    along = _divided(place, period[k], inverse_period[k])[1] if period[k] < volume else place
                    wanted = wanted and least[k] <= along < most[k]
            if wanted:
                key, rest = base, place
                for k in range(len(varied)):
                    axis = varied[k]
                    if shifts[k] >= 0:
                        along = rest & (sides[axis] - 1)
                        rest >>= shifts[k]
                    else:
                        rest, along = _divided(rest, sides[axis], inverse[axis])
                    key += along * strides[axis]
                keys[found] = key << value_bits | (value if value_bits else 0)
                if not value_bits:
                    codes[found] = value
                found += 1
        if stop - at >= 8:
            return -1 - block
    return found


@compiled
def _split_keys(keys: Any, value_bits: int, shape: Any, coords: Any, codes: Any) -> None:
    """Turn places in a box into coordinates, and the lowest `value_bits` of their keys into the codes of values."""
    axes = len(shape)
    inverse = 1.0 / shape
    mask = (1 << value_bits) - 1
    for cell in range(len(keys)):
        rest = keys[cell] >> value_bits
        if value_bits:
            codes[cell] = keys[cell] & mask
        for axis in range(axes - 1, 0, -1):
            rest, along = _divided(rest, shape[axis], inverse[axis])
            coords[axis, cell] = along
        coords[0, cell] = rest


@compiled
def read_slabs(
    words: Any, starts: Any, stops: Any, counts: Any, slabs: Any, origins: Any, inside: Any, last: Any, tables: Any,
    table_of: Any, escape: int, escape_bits: int, plane_tables: Any, sides: Any, steps: Any, varied: Any, cuts: Any,
    low: Any, high: Any, shape: Any, volume: int, value_bits: int, coords: Any, codes: Any, planes: Any,
) -> Any:  # fmt: skip
    """Read the blocks of a box, slab by slab along the first axis, and bring their cells into row-major order.

    Return how many there are, or -1 - block for a block that is damaged.
    """
    axes_of_box = len(shape)
    strides = np.ones(axes_of_box, np.int64)
    for axis in range(axes_of_box - 1, 0, -1):
        strides[axis - 1] = strides[axis] * shape[axis]
    longest = 0
    for slab in range(len(slabs) - 1):
        longest = max(longest, counts[slabs[slab] : slabs[slab + 1]].sum())
    buffer, other = np.empty(longest, np.int64), np.empty(longest, np.int64)
    apart = np.empty(0 if value_bits else longest, np.uint16)
    bytes_apart = np.empty((longest, planes.shape[1]), np.uint8)
    total = 0
    for slab in range(len(slabs) - 1):
        first, stop = slabs[slab], slabs[slab + 1]
        found = read_blocks(
            words, starts[first:stop], stops[first:stop], counts[first:stop], origins[first:stop], inside[first:stop],
            last[first:stop], tables, table_of[first:stop], escape, escape_bits, plane_tables,
            sides, steps, varied, cuts, low, high, strides, volume, value_bits, buffer, apart, bytes_apart,
        )  # fmt: skip
        if found < 0:
            return found - first
        carried = np.arange(0 if value_bits else found)
        bits = _bits_of_slab(buffer[:found], value_bits)
        keys, carried = sort_keys(buffer[:found], other[:found], carried, value_bits, bits)
        stop = total + found
        _split_keys(keys, value_bits, shape, coords[:, total:stop], codes[total:stop])
        for cell in range(len(carried)):
            codes[total + cell] = apart[carried[cell]]
            for plane in range(planes.shape[1]):
                planes[total + cell, plane] = bytes_apart[carried[cell], plane]
        total += found
    return total


@compiled
def _bits_of_slab(keys: Any, least: int) -> int:
    """Return from which bit on all keys are the same."""
    differing = np.int64(0)
    for cell in range(1, len(keys)):
        differing |= keys[cell] ^ keys[0]
    bits = least
    while differing >> bits:
        bits += 1
    return bits


def _checksum_tables() -> Any:
    """Return what CRC-32C makes of each byte that is followed by none to seven others."""
    tables = np.zeros((8, 256), np.uint32)
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        tables[0, byte] = value
    for further in range(1, 8):
        before = tables[further - 1]
        tables[further] = before >> 8 ^ tables[0][before & 255]
    return tables


CHECKSUM_TABLES = _checksum_tables()


@compiled
def checksums(heads: Any, data: Any, starts: Any, stops: Any, tables: Any) -> Any:
    """Return the CRC-32C of each row: of its head's bytes, then of its payload's."""
    rows = len(starts)
    found = np.empty(rows, np.int64)
    for row in range(rows):
        crc = np.uint32(0xFFFFFFFF)
        crc = _extended(crc, heads[row], 0, heads.shape[1], tables)
        found[row] = np.int64(_extended(crc, data, starts[row], stops[row], tables) ^ np.uint32(0xFFFFFFFF))
    return found


@compiled
def _extended(crc: Any, data: Any, at: int, stop: int, tables: Any) -> Any:
    """Go on with a checksum, eight bytes at a time: their tables do not wait for one another."""
    while stop - at >= 8:
        crc = (
            tables[7, data[at] ^ (crc & 255)]
            ^ tables[6, data[at + 1] ^ ((crc >> 8) & 255)]
            ^ tables[5, data[at + 2] ^ ((crc >> 16) & 255)]
            ^ tables[4, data[at + 3] ^ (crc >> 24)]
            ^ tables[3, data[at + 4]]
            ^ tables[2, data[at + 5]]
            ^ tables[1, data[at + 6]]
            ^ tables[0, data[at + 7]]
        )
        at += 8
    while at < stop:
        crc = tables[0, data[at] ^ (crc & 255)] ^ (crc >> 8)
        at += 1
    return np.uint32(crc)
