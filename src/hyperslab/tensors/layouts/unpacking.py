"""The inner loops of reading blocks: streams of bits become cells in row-major order.

`bsgs` tells what a stream is. Reading one is a chain in which each step waits for the one before, so two streams are
read at a time. A cell is at first its place in its block; then a key, which has its coordinates in the box side by side
in some bits each and the code of its value in the lowest; keys are sorted; and keys become coordinates and codes.
"""

from typing import Any

import numpy as np

from hyperslab.tensors.layouts.compiling import HAS_CRC, compiled, crc32c_word, entry_at, word_at
from hyperslab.tensors.layouts.kernels import sort_keys

__all__ = ["CHECKSUM_TABLES", "PADDING", "checksums", "in_order", "read_slabs", "split_keys"]

# So many bytes after the end of a stream may be looked at.
PADDING = 24
_ENDLESS = 1 << 62


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
def _with_word(crc: Any, word: Any, tables: Any) -> Any:
    """Go on with a checksum by eight bytes, the lowest first; `tables` is the address of tables."""
    if HAS_CRC:
        return crc32c_word(crc, word)
    word ^= crc
    # The tables do not wait for one another.
    crc = np.uint64(0)
    for byte in range(8):
        at = np.uint64(256 * (7 - byte)) + ((word >> np.uint64(8 * byte)) & np.uint64(255))
        crc ^= entry_at(tables, at)
    return crc


@compiled
def _with_words(crc: Any, address: Any, start: Any, stop: Any, tables: Any) -> Any:
    """Go on with a checksum by as many times eight bytes as there are."""
    while stop - start >= np.uint64(8):
        crc = _with_word(crc, word_at(address, start), tables)
        start += np.uint64(8)
    return crc


@compiled
def checksums(numbers: Any, data: Any, starts: Any, stops: Any, first: int, stop: int, tables: Any, found: Any) -> None:
    """Find the CRC-32C of some rows: of their whole numbers but the last, the checksum, then of their payloads."""
    address, table = np.uint64(data.ctypes.data), np.uint64(tables.ctypes.data)
    for row in range(first, stop):
        crc = np.uint64(0xFFFFFFFF)
        for column in range(numbers.shape[0] - 1):
            crc = _with_word(crc, np.uint64(numbers[column, row]), table)
        crc = _with_words(crc, address, np.uint64(starts[row]), np.uint64(stops[row]), table)
        for at in range(stops[row] - (stops[row] - starts[row]) % 8, stops[row]):
            crc = entry_at(table, (np.uint64(data[at]) ^ crc) & np.uint64(255)) ^ (crc >> np.uint64(8))
        found[row - first] = np.int64(crc ^ np.uint64(0xFFFFFFFF))


@compiled
def _bits_of(number: Any) -> Any:
    bits = 0
    while number >> bits:
        bits += 1
    return bits


@compiled
def in_order(numbers: Any, axes: int, first: int, stop: int) -> int:
    """Return the first of some rows whose block does not come after that of the row before, row-major; or -1."""
    for row in range(max(1, first), stop):
        axis = 0
        while axis < axes and numbers[axis, row] == numbers[axis, row - 1]:
            axis += 1
        if axis == axes or numbers[axis, row] < numbers[axis, row - 1]:
            return row
    return -1


@compiled
def _find_tests(
    numbers: Any, first: int, stop: int, table_of_density: Any, octaves: int, sides: Any, steps: Any, varied: Any,
    low: Any, high: Any, tests: Any,
) -> None:  # fmt: skip
    """Find out how to tell which cells of blocks are in the box: plus, factor and width; the last place, and the table.

    `(place + plus) * factor` is below `width` for places that are in it: along the first axis that the box cuts the
    block along, the fastest first. Modulo 2**64 the product tells how far a place is from where the axis begins anew,
    exactly as long as places have 31 bits. After the last place, that of the box's last corner, a block has nothing
    more for it; it is counted with `plus`, too.
    """
    axes, volume = len(sides), np.int64(1)
    factors = np.zeros(axes, np.uint64)
    for axis in range(axes):
        volume *= sides[axis]
        period = np.uint64(steps[axis] * sides[axis])
        factors[axis] = np.uint64(0xFFFFFFFFFFFFFFFF) // period + np.uint64(1)
    for row in range(first, stop):
        plus, factor, width, last = np.int64(0), np.uint64(0), np.uint64(1), np.int64(0)
        for k in range(len(varied) - 1, -1, -1):
            axis = varied[k]
            origin = numbers[axis, row] * sides[axis]
            least, most = max(np.int64(0), low[axis] - origin), min(sides[axis], high[axis] - origin)
            last += (most - 1) * steps[axis]
            if most - least < sides[axis]:
                plus, factor = (sides[axis] - least) * steps[axis], factors[axis]
                width = np.uint64((most - least) * steps[axis]) * factor
        density = _bits_of(max(volume // numbers[axes, row], 1)) // octaves
        test = tests[row - first]
        test[0], test[1], test[2] = np.uint64(plus), factor, width
        test[3], test[4] = np.uint64(last + plus), np.uint64(4096 * table_of_density[density])


@compiled
def _next_cell(address: Any, at: Any, place: Any, table: Any, escape: Any, escape_bits: Any) -> Any:
    """Return where the next code of a stream begins, the place of the cell whose code begins here, and its value."""
    one = np.uint64(1)
    held = word_at(address, at >> np.uint64(3)) >> (at & np.uint64(7))
    entry = entry_at(table, held & np.uint64(4095))
    at += entry & np.uint64(63)
    open_bits = (entry >> np.uint64(10)) & np.uint64(63)
    rest = (held >> ((entry >> np.uint64(6)) & np.uint64(15))) & ((one << open_bits) - one)
    place += ((entry >> np.uint64(21)) << open_bits | rest) + one
    value = (entry >> np.uint64(16)) & np.uint64(31)
    if value == escape:
        value = (word_at(address, at >> np.uint64(3)) >> (at & np.uint64(7))) & ((one << escape_bits) - one)
        at += escape_bits
    return at, place, value


@compiled
def _is_damaged(at: Any, end: Any, left: Any, place: Any, volume: Any) -> Any:
    """Whether a stream that was left here is not that of a block's cells.

    At its end no whole byte is left; and after the last place of a block there are no more cells.
    """
    if at > end or place >= volume:
        return True
    return end - at >= np.uint64(8) if left == 0 else place + np.uint64(1) >= volume


@compiled
def _read_streams(
    data: Any, starts: Any, stops: Any, counts: Any, first: int, stop: int, tables: Any, escape: Any, escape_bits: Any,
    volume: Any, value_bits: Any, tests: Any, buffer: Any, reserved: Any, found: Any,
) -> int:  # fmt: skip
    """Read the streams of blocks, two at a time; return -1, or the number of one that is damaged.

    Cells that the first cut of a block leaves go into the buffer, from where `reserved` says on: place and code.
    """
    address, table, one = np.uint64(data.ctypes.data), np.uint64(tables.ctypes.data), np.uint64(1)
    # A stream of nothing, which takes the place of one where none is left: each cell is one place on, and not wanted.
    nothing = table + np.uint64(4 * (len(tables) - 4096))
    following, running = first, 2
    endless: Any = _ENDLESS
    spare: Any = len(buffer) - 1
    # What each of the two has in registers; in arrays it would take longer.
    a, a_at, a_end, a_left, a_to, a_table = -1, np.uint64(0), np.uint64(0), np.int64(0), np.int64(0), nothing
    b, b_at, b_end, b_left, b_to, b_table = -1, np.uint64(0), np.uint64(0), np.int64(0), np.int64(0), nothing
    a_place, a_last, a_factor, a_width = np.uint64(0), np.uint64(0), np.uint64(0), np.uint64(0)
    b_place, b_last, b_factor, b_width = np.uint64(0), np.uint64(0), np.uint64(0), np.uint64(0)
    while True:
        if a_left == 0 or a_place >= a_last or a_at > a_end:
            if a >= 0:
                if _is_damaged(a_at, a_end, a_left, a_place - tests[a - first, 0], volume):
                    return a
                a_to -= a_place > a_last and a_place * a_factor < a_width
                found[a - first] = a_to - reserved[a - first]
            a, a_left, a_to, a_table, a_at, a_end = -1, endless, spare, nothing, np.uint64(0), np.uint64(8)
            a_place, a_last, a_factor, a_width = np.uint64(0), np.uint64(_ENDLESS), np.uint64(0), np.uint64(0)
            if following < stop:
                a, test = following, tests[following - first]
                a_left, a_to, a_table = counts[a], reserved[a - first], table + np.uint64(4) * test[4]
                a_at, a_end = np.uint64(starts[a] * 8), np.uint64(stops[a] * 8)
                a_place, a_last, a_factor, a_width = test[0] - one, test[3], test[1], test[2]
                following += 1
            else:
                running -= 1
        if b_left == 0 or b_place >= b_last or b_at > b_end:
            if b >= 0:
                if _is_damaged(b_at, b_end, b_left, b_place - tests[b - first, 0], volume):
                    return b
                b_to -= b_place > b_last and b_place * b_factor < b_width
                found[b - first] = b_to - reserved[b - first]
            b, b_left, b_to, b_table, b_at, b_end = -1, endless, spare, nothing, np.uint64(0), np.uint64(8)
            b_place, b_last, b_factor, b_width = np.uint64(0), np.uint64(_ENDLESS), np.uint64(0), np.uint64(0)
            if following < stop:
                b, test = following, tests[following - first]
                b_left, b_to, b_table = counts[b], reserved[b - first], table + np.uint64(4) * test[4]
                b_at, b_end = np.uint64(starts[b] * 8), np.uint64(stops[b] * 8)
                b_place, b_last, b_factor, b_width = test[0] - one, test[3], test[1], test[2]
                following += 1
            else:
                running -= 1
        if running <= 0:
            return -1
        most, done = min(a_left, b_left), np.int64(0)
        going: Any = True
        while going:
            a_at, a_place, a_value = _next_cell(address, a_at, a_place, a_table, escape, escape_bits)
            b_at, b_place, b_value = _next_cell(address, b_at, b_place, b_table, escape, escape_bits)
            buffer[np.uint64(a_to)] = np.int64(a_place << value_bits | a_value)
            buffer[np.uint64(b_to)] = np.int64(b_place << value_bits | b_value)
            a_to += a_place * a_factor < a_width
            b_to += b_place * b_factor < b_width
            done += 1
            going = done < most and a_place < a_last and b_place < b_last and a_at <= a_end and b_at <= b_end
        a_left -= done
        b_left -= done


@compiled
def _make_keys(
    buffer: Any, reserved: Any, found: Any, numbers: Any, first: int, stop: int, sides: Any, varied: Any, low: Any,
    high: Any, shifts: Any, value_bits: int, tests: Any,
) -> int:  # fmt: skip
    """Turn the cells of blocks in the buffer into keys, one after the other from its start on; return their number."""
    axes, mask = len(sides), (np.int64(1) << value_bits) - 1
    least, most = np.zeros(axes, np.int64), np.zeros(axes, np.int64)
    inverses, powers = np.zeros(axes, np.uint64), np.zeros(axes, np.uint64)
    for axis in range(axes):
        # Exact for numbers of 31 bits.
        side, powers[axis] = np.uint64(sides[axis]), np.uint64(31 + _bits_of(sides[axis] - 1))
        inverses[axis] = ((np.uint64(1) << powers[axis]) + side - np.uint64(1)) // side
    slowest = varied[len(varied) - 1] if len(varied) else 0
    to = 0
    for row in range(first, stop):
        base, plus = np.int64(0), np.int64(tests[row - first, 0])
        for axis in range(axes):
            origin = numbers[axis, row] * sides[axis]
            base += (origin - low[axis]) << shifts[axis]
            least[axis], most[axis] = low[axis] - origin, high[axis] - origin
        at = reserved[row - first]
        for cell in range(at, at + found[row - first]):
            rest, key = (buffer[cell] >> value_bits) - plus, base + (buffer[cell] & mask)
            wanted = True
            for k in range(len(varied) - 1):
                axis = varied[k]
                quotient = np.int64(np.uint64(rest) * inverses[axis] >> powers[axis])
                along = rest - quotient * sides[axis]
                key += along << shifts[axis]
                wanted &= (least[axis] <= along) & (along < most[axis])
                rest = quotient
            key += rest << shifts[slowest]
            wanted &= (least[slowest] <= rest) & (rest < most[slowest])
            buffer[to] = key
            to += wanted
    return to


@compiled
def read_slabs(
    data: Any, starts: Any, stops: Any, numbers: Any, slabs: Any, tables: Any, table_of_density: Any, octaves: int,
    escape: Any, escape_bits: Any, sides: Any, steps: Any, varied: Any, low: Any, high: Any, shifts: Any,
    value_bits: int, checksum_tables: Any, keys: Any,
) -> int:  # fmt: skip
    """Read the blocks of a box, slab by slab along the first axis; return how many cells there are, or -1 - row.

    This is the row of a block that is damaged or not in its place. Cells become keys, in row-major order.
    """
    axes, counts = len(sides), numbers[len(sides)]
    volume = np.uint64(1)
    for axis in range(axes):
        volume *= np.uint64(sides[axis])
    longest, most_rows = np.int64(0), np.int64(0)
    for slab in range(len(slabs) - 1):
        longest = max(longest, counts[slabs[slab] : slabs[slab + 1]].sum())
        most_rows = max(most_rows, slabs[slab + 1] - slabs[slab])
    buffer, other = np.empty(longest + 1, np.int64), np.empty(longest, np.int64)
    reserved, found = np.zeros(most_rows, np.int64), np.zeros(most_rows, np.int64)
    tests, sums = np.zeros((most_rows, 5), np.uint64), np.zeros(most_rows, np.int64)
    # Cells of one line along the last axis are in order already, whichever blocks they are of.
    least_bit = shifts[axes - 2] if axes > 1 else 63
    nothing, total = np.empty(0, np.int64), 0
    for slab in range(len(slabs) - 1):
        first, stop = slabs[slab], slabs[slab + 1]
        damaged = in_order(numbers, axes, first, stop)
        checksums(numbers, data, starts, stops, first, stop, checksum_tables, sums)
        cells = np.int64(0)
        for row in range(first, stop):
            reserved[row - first] = cells
            cells += counts[row]
            if sums[row - first] != numbers[axes + 2, row]:
                damaged = row
        if damaged >= 0:
            return -1 - damaged
        found[: stop - first] = 0
        _find_tests(numbers, first, stop, table_of_density, octaves, sides, steps, varied, low, high, tests)
        damaged = _read_streams(
            data, starts, stops, counts, first, stop, tables, escape, escape_bits, volume, np.uint64(value_bits),
            tests, buffer, reserved, found,
        )  # fmt: skip
        if damaged >= 0:
            return -1 - damaged
        to = _make_keys(
            buffer, reserved, found, numbers, first, stop, sides, varied, low, high, shifts, value_bits, tests
        )
        bits = _bits_that_differ(buffer[:to], least_bit)
        ordered, _ = sort_keys(buffer[:to], other[:to], nothing, least_bit, bits)
        keys[total : total + to] = ordered
        total += to
    return total


@compiled
def _bits_that_differ(keys: Any, least: Any) -> Any:
    """Return from which bit on all keys are the same; at least the lowest that counts."""
    differing = np.int64(0)
    for cell in range(len(keys)):
        differing |= keys[cell] ^ keys[0]
    return max(least, _bits_of(differing))


@compiled
def split_keys(keys: Any, shifts: Any, value_bits: int, coords: Any, codes: Any) -> None:
    """Turn keys into coordinates in the box and codes of values."""
    for axis in range(len(shifts)):
        before = shifts[axis - 1] if axis else 63
        mask = (np.int64(1) << (before - shifts[axis])) - 1
        for cell in range(len(keys)):
            coords[axis, cell] = keys[cell] >> shifts[axis] & mask
    mask = (np.int64(1) << value_bits) - 1
    for cell in range(len(keys)):
        codes[cell] = keys[cell] & mask
