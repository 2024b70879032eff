"""Reading blocks whose cells do not fit into keys: values as bytes, or coordinates with too many bits.

Slower than `unpacking`: one stream at a time, and what belongs to a cell is moved apart from its place.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from hyperslab.errors import IntegrityError
from hyperslab.execute.threads import on_threads, processors
from hyperslab.selection import Box
from hyperslab.tensors.layouts import prefix
from hyperslab.tensors.layouts.block_reading import Reader, even_parts, padded
from hyperslab.tensors.layouts.blocks import Blocks, densities
from hyperslab.tensors.layouts.compiling import compiled, word_at
from hyperslab.tensors.layouts.encoded import Rows, check_rows
from hyperslab.tensors.layouts.kernels import divided, sort_keys
from hyperslab.tensors.layouts.unpacking import PADDING, in_order
from hyperslab.tensors.values import Coo, Header

__all__ = ["cells_apart"]

Ints = npt.NDArray[np.int64]


def cells_apart(header: Header, blocks: Blocks, box: Box, rows: Rows) -> Coo:
    """Return the cells of a box."""
    *columns, counts, _ = check_rows(header, rows, blocks.columns)
    places, reader = np.array(columns).T, Reader.of(header)
    if (wrong := in_order(np.array(columns), len(columns), 0, len(counts))) >= 0:
        raise IntegrityError(f"the block of tensor {header.id!r} at {tuple(places[wrong].tolist())} is not in order")
    origins = np.ascontiguousarray(places * reader.sides)
    low, high = np.array(box.start), np.array(box.stop)
    # Not `origins + sides`, which is beyond the largest number where a tensor reaches that far.
    inside = ((origins >= low) & (reader.sides <= high - origins)).all(axis=1)
    # After the place of the box's last corner a block has nothing more for it.
    corners = np.minimum(high - origins, reader.sides) - 1
    last = np.where(inside, blocks.volume, corners @ reader.steps)
    table_of = reader.table_of_density[densities(blocks.volume, counts, blocks.octaves)] << prefix.MOST_BITS
    plane_tables = _plane_tables(blocks)
    total = int(counts.sum())
    coords, codes = np.empty((len(box.shape), total), np.int64), np.empty(total, np.uint16)
    planes = np.empty((total, len(blocks.planes)), np.uint8)
    data = padded(rows, PADDING)
    slabs = np.append(np.flatnonzero(np.diff(places[:, 0], prepend=-1)), len(counts))
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    parts = even_parts(before[slabs])

    def read(part: int) -> int:
        """Read some slabs; their cells go to where they would be if all of those before were in the box."""
        edges = slabs[parts[part] : parts[part + 1] + 1]
        to = slice(before[edges[0]], before[edges[-1]])
        found: int = _read_slabs(
            data, rows.starts, rows.stops, counts, edges, origins, inside, last, reader.tables, table_of,
            reader.escape, reader.escape_bits, plane_tables, reader.sides, reader.steps, reader.varied, low, high,
            np.array(box.shape), blocks.volume, coords[:, to], codes[to], planes[to],
        )  # fmt: skip
        return found

    founds = on_threads(read, len(parts) - 1, processors())
    if min(founds) < 0:
        place = tuple(places[-1 - min(founds)].tolist())
        raise IntegrityError(f"the block of tensor {header.id!r} at {place} is not a stream of its cells")
    kept = [slice(at, at + found) for at, found in zip(before[slabs[parts[:-1]]].tolist(), founds, strict=True)]
    if sum(founds) < total:
        coords = np.concatenate([coords[:, each] for each in kept], axis=1)
        codes, planes = (np.concatenate([column[each] for each in kept]) for column in (codes, planes))
    if blocks.palette is None:
        return Coo(box.shape, coords, planes.view(header.dtype).reshape(-1), header.fill)
    return Coo(box.shape, coords, blocks.values_of(codes, header.id), header.fill)


def _plane_tables(blocks: Blocks) -> Ints:
    rows = []
    for text in blocks.planes:
        if text.startswith("="):
            # Always the same byte: no bit is read.
            rows.append(np.full(1 << prefix.MOST_BITS, int(text[1:], 16) << 4, np.int64))
        else:
            rows.append(prefix.decode_table(text))
    return np.array(rows, np.int64).reshape(len(rows), 1 << prefix.MOST_BITS)


@compiled
def _read_blocks(
    data: Any, starts: Any, stops: Any, counts: Any, first: int, stop: int, origins: Any, inside: Any, last: Any,
    tables: Any, table_of: Any, escape: Any, escape_bits: Any, plane_tables: Any, sides: Any, steps: Any, varied: Any,
    low: Any, high: Any, strides: Any, volume: int, keys: Any, codes: Any, planes: Any,
) -> int:  # fmt: skip
    """Read the streams of blocks; return how many of their cells are in the box, or -1 - block for one that is damaged.

    A cell that is in the box gives its place in the box, and its value as a code and as the bytes of its planes.
    """
    found, one, inverse, address = 0, np.uint64(1), 1.0 / sides, np.uint64(data.ctypes.data)
    for block in range(first, stop):
        at, end, place = np.uint64(starts[block] * 8), np.uint64(stops[block] * 8), np.int64(-1)
        base = np.int64(0)
        for axis in range(origins.shape[1]):
            base += (origins[block, axis] - low[axis]) * strides[axis]
        for _ in range(counts[block]):
            held = word_at(address, at >> np.uint64(3)) >> (at & np.uint64(7))
            entry = np.uint64(tables[np.uint64(table_of[block]) + (held & np.uint64(4095))])
            open_bits = (entry >> np.uint64(10)) & np.uint64(63)
            rest = (held >> ((entry >> np.uint64(6)) & np.uint64(15))) & ((one << open_bits) - one)
            place += np.int64((entry >> np.uint64(21)) << open_bits | rest) + 1
            at += entry & np.uint64(63)
            value = (entry >> np.uint64(16)) & np.uint64(31)
            if value == escape:
                held = word_at(address, at >> np.uint64(3)) >> (at & np.uint64(7))
                value = held & ((one << escape_bits) - one)
                at += escape_bits
            for plane in range(planes.shape[1]):
                if at > end:
                    return -1 - block
                held = word_at(address, at >> np.uint64(3)) >> (at & np.uint64(7))
                byte = plane_tables[plane, held & np.uint64(4095)]
                planes[found, plane] = byte >> 4
                at += np.uint64(byte & 15)
            if place >= volume or at > end:
                return -1 - block
            if place > last[block]:
                at = end
                break
            key, rest_of_place, wanted = base, place, True
            for axis in varied:
                rest_of_place, along = divided(rest_of_place, sides[axis], inverse[axis])
                key += along * strides[axis]
                wanted &= low[axis] <= origins[block, axis] + along < high[axis]
            if wanted or inside[block]:
                keys[found], codes[found] = key, value
                found += 1
        if end - at >= np.uint64(8):
            return -1 - block
    return found


@compiled
def _read_slabs(
    data: Any, starts: Any, stops: Any, counts: Any, slabs: Any, origins: Any, inside: Any, last: Any, tables: Any,
    table_of: Any, escape: Any, escape_bits: Any, plane_tables: Any, sides: Any, steps: Any, varied: Any,
    low: Any, high: Any, shape: Any, volume: int, coords: Any, codes: Any, planes: Any,
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
    apart, bytes_apart = np.empty(longest, np.uint16), np.empty((longest, planes.shape[1]), np.uint8)
    total = 0
    for slab in range(len(slabs) - 1):
        found = _read_blocks(
            data, starts, stops, counts, slabs[slab], slabs[slab + 1], origins, inside, last, tables, table_of,
            escape, escape_bits, plane_tables, sides, steps, varied, low, high, strides, volume,
            buffer, apart, bytes_apart,
        )  # fmt: skip
        if found < 0:
            return found
        keys, carried = sort_keys(buffer[:found], other[:found], np.arange(found), 0, _bits_of_slab(buffer[:found]))
        _split_keys(keys, shape, coords[:, total : total + found])
        for cell in range(found):
            codes[total + cell] = apart[carried[cell]]
            for plane in range(planes.shape[1]):
                planes[total + cell, plane] = bytes_apart[carried[cell], plane]
        total += found
    return total


@compiled
def _split_keys(keys: Any, shape: Any, coords: Any) -> None:
    """Turn places in a box into coordinates."""
    inverse = 1.0 / shape
    for cell in range(len(keys)):
        rest = keys[cell]
        for axis in range(len(shape) - 1, 0, -1):
            rest, along = divided(rest, shape[axis], inverse[axis])
            coords[axis, cell] = along
        coords[0, cell] = rest


@compiled
def _bits_of_slab(keys: Any) -> int:
    """Return from which bit on all keys are the same."""
    differing, bits = np.int64(0), 0
    for cell in range(1, len(keys)):
        differing |= keys[cell] ^ keys[0]
    while differing >> bits:
        bits += 1
    return bits
