"""The inner loops of writing blocks, over single cells; and sorting, which reading does, too.

Blocks are streams of codes: for each cell one code for how far it lies from the one before and for its value together,
then the bits that the code leaves open. `prefix` tells what a code is, `bsgs` what the symbols mean.
"""

from typing import Any

import numpy as np

from hyperslab.tensors.layouts.compiling import compiled

__all__ = ["count_symbols", "cut_cells", "divided", "find_palette", "sort_keys", "write_blocks"]


@compiled
def divided(number: Any, size: Any, inverse: Any) -> Any:
    """Return quotient and rest. A multiplication is faster than a division; above 2**51 it may be off."""
    # Half a cell more keeps multiples of `size`, which rounding would put below their quotient.
    quotient = np.int64((number + 0.5) * inverse)
    rest = number - quotient * size
    if rest < 0 or rest >= size:
        quotient = number // size
        rest = number - quotient * size
    return quotient, rest


@compiled
def cut_cells(
    coords: Any, codes: Any, slabs: Any, grid: Any, block: Any, strides: Any, value_bits: int,
    places: Any, ordered: Any, order: Any,
) -> Any:  # fmt: skip
    """Bring the cells of some slabs into the order of blocks; return the numbers of blocks, and where each begins.

    Filled are places within blocks, values' codes, and where each cell was. Cells of one slab, those whose blocks have
    the same place along the first axis, are from `slabs[k]` to `slabs[k + 1]`. Where `value_bits` is above 0, codes
    ride in the lowest bits of what is sorted, and `order` is not filled.
    """
    axes, cells = len(coords), slabs[-1] - slabs[0]
    inverse = 1.0 / block
    volume, blocks_of_slab = np.int64(1), np.int64(1)
    for axis in range(axes):
        volume *= block[axis]
        blocks_of_slab *= grid[axis] if axis else 1
    high = value_bits
    while (blocks_of_slab * volume - 1) >> (high - value_bits):
        high += 1
    numbers, starts = np.empty(cells, np.int64), np.empty(cells, np.int64)
    longest = 0
    for slab in range(len(slabs) - 1):
        longest = max(longest, slabs[slab + 1] - slabs[slab])
    buffer, other = np.empty(longest, np.int64), np.empty(longest, np.int64)
    blocks, inverse_volume = 0, 1.0 / volume
    for slab in range(len(slabs) - 1):
        low, stop = slabs[slab], slabs[slab + 1]
        keys = buffer[: stop - low]
        first = divided(coords[0, low], block[0], inverse[0])[0] * blocks_of_slab
        for cell in range(low, stop):
            rest = divided(coords[0, cell], block[0], inverse[0])[1]
            number, place = np.int64(0), rest * strides[0]
            for axis in range(1, axes):
                along, rest = divided(coords[axis, cell], block[axis], inverse[axis])
                number = number * grid[axis] + along
                place += rest * strides[axis]
            key = number * volume + place
            keys[cell - low] = key << value_bits | codes[cell] if value_bits else key
        carried = np.arange(low, stop) if not value_bits else np.empty(0, np.int64)
        keys, carried = sort_keys(keys, other[: stop - low], carried, value_bits, high)
        last = np.int64(-1)
        for cell in range(low, stop):
            key = keys[cell - low]
            number, places[cell] = divided(key >> value_bits, volume, inverse_volume)
            if value_bits:
                ordered[cell] = key & ((1 << value_bits) - 1)
            else:
                order[cell] = carried[cell - low]
                ordered[cell] = codes[order[cell]]
            if number != last:
                numbers[blocks], starts[blocks] = first + number, cell
                blocks += 1
                last = number
    return numbers[:blocks].copy(), starts[:blocks].copy()


@compiled
def sort_keys(keys: Any, other: Any, carried: Any, low: int, high: int) -> Any:
    """Return keys, and what they carry, by the bits from `low` to before `high`; equal ones stay in their order.

    Some bits at a time, from the lowest on: the numbers have few bits, so this takes fewer steps than comparing. What
    is returned is in `keys` or in `other`, which is as long.
    """
    cells = len(keys)
    rising = True
    if high <= low:
        return keys, carried
    for cell in range(1, cells):
        rising = rising and keys[cell - 1] < keys[cell]
    if rising:
        return keys, carried
    other_carried = np.empty_like(carried)
    # A round goes over the cells twice, and once over all that a digit can be.
    rounds, width = 1, high - low
    while width > 11 or (width > 4 and 2 * cells < 1 << width):
        rounds += 1
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
