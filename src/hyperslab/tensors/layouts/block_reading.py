"""Blocks of a sparse tensor become the cells of a box. `bsgs` tells what a block is."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from hyperslab.errors import IntegrityError, MetadataError
from hyperslab.execute.threads import on_threads, processors
from hyperslab.selection import Box
from hyperslab.tensors.layouts import prefix
from hyperslab.tensors.layouts.axes import folded_box, unfold
from hyperslab.tensors.layouts.blocks import Blocks, blocks_of, inner_strides
from hyperslab.tensors.layouts.encoded import INDEX_COLUMNS, Bounds, Rows, check_rows, rows_of
from hyperslab.tensors.values import Coo, Header

__all__ = ["Reader", "decode", "even_parts", "padded", "prune"]

# Starting a thread takes as long as reading about so many cells.
_CELLS_FOR_THREADS = 1 << 15
# Places in blocks of more cells do not fit into keys.
_MOST_VOLUME = 1 << 31
_TABLE = 1 << prefix.MOST_BITS
# What leads out of every block: here no code begins.
_NO_CODE = 8 << 21 | 48 << 10
# A value that is never the one for which more bits follow.
_NO_VALUE = 31

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint32]


def prune(header: Header, box: Box) -> list[Bounds]:
    """Return what is true of the places of all blocks that meet a box.

    >>> from hyperslab.tensors.layouts.bsgs import encode
    >>> header = encode(Coo.of((4, 6), [[0], [0]], np.array([7])), block=(2, 3)).header("a")
    >>> prune(header, Box((1, 4), (4, 5)))
    [{'i0': (0, 1), 'i1': (1, 1)}]
    """
    if not box.size:
        return []
    blocks, folded = blocks_of(header), folded_box(header.shape, box)
    ends = zip(folded.start, folded.stop, blocks.block, strict=True)
    return [{name: (low // b, (high - 1) // b) for name, (low, high, b) in zip(INDEX_COLUMNS, ends, strict=False)}]


def decode(header: Header, table: Any, box: Box) -> Coo:
    """Return the cells of a box; blocks that it cuts are cut. The table holds what `prune` asks for, or more."""
    blocks, bounds = blocks_of(header), prune(header, box)
    nothing = Coo(box.shape, np.empty((len(box.shape), 0), np.int64), np.empty(0, header.dtype), header.fill)
    if not bounds or not blocks.nnz:
        return nothing
    folded = folded_box(header.shape, box)
    rows = Rows.joined([part.within(bounds[0]) for part in rows_of(table)])
    numbers = np.array([rows.column(name) for name in (*blocks.columns, "crc")], np.int64)
    counts, nbytes = numbers[-3], numbers[-2]
    most = np.minimum(blocks.volume, 8 * nbytes)
    if ((rows.stops - rows.starts) != nbytes).any() or (counts < 1).any() or (counts > most).any():
        check_rows(header, rows, blocks.columns)
        raise IntegrityError(f"blocks of tensor {header.id!r} cannot have as many cells as their rows say")
    total = int(counts.sum())
    if folded.shape == blocks.shape and total != blocks.nnz:
        raise IntegrityError(f"tensor {header.id!r} has {blocks.nnz} cells, but its rows hold {total}")
    if not total:
        return nothing
    shifts = _key_shifts(folded.shape, blocks.value_bits)
    if blocks.palette is None or shifts is None or blocks.volume > _MOST_VOLUME:
        from hyperslab.tensors.layouts.apart import cells_apart

        found = cells_apart(header, blocks, folded, rows)
    else:
        found = _cells(header, blocks, folded, rows, numbers, shifts)
    return unfold(found, header.shape, folded, box)


def _key_shifts(shape: tuple[int, ...], value_bits: int) -> Ints | None:
    """Return at which bit of a key each coordinate begins; None where not all of them find room.

    >>> _key_shifts((3, 4, 100), 5).tolist()
    [14, 12, 5]
    """
    shifts, at = [], value_bits
    for n in reversed(shape):
        shifts.append(at)
        at += (n - 1).bit_length()
    return np.array(shifts[::-1], np.int64) if at < 64 else None


@dataclass(frozen=True, slots=True, eq=False)
class Reader:
    """What reads of a tensor have in common."""

    tables: Words
    table_of_density: Ints
    escape: np.uint64
    escape_bits: np.uint64
    sides: Ints
    steps: Ints
    # Axes along which blocks have more than one cell, the fastest first.
    varied: Ints

    @classmethod
    def of(cls, header: Header) -> "Reader":
        known: Reader | None = header.derived.get("reader")
        if known is None:
            known = header.derived["reader"] = cls._made(blocks_of(header))
        return known

    @classmethod
    def _made(cls, blocks: Blocks) -> "Reader":
        # After the tables one without codes, for densities that have none, and one for a stream of nothing.
        tables = [split_symbols(text, blocks.direct) for text in blocks.codes.values()]
        tables += [np.full(_TABLE, _NO_CODE, np.uint32), np.full(_TABLE, _NO_VALUE << 16, np.uint32)]
        table_of_density = np.full(64, len(blocks.codes), np.int64)
        for at, density in enumerate(blocks.codes):
            if 0 <= density < 64:
                table_of_density[density] = at
        return cls(
            np.concatenate(tables),
            table_of_density,
            np.uint64(blocks.direct - 1 if blocks.escape_bits else 2**63),
            np.uint64(blocks.escape_bits),
            np.array(blocks.block, np.int64),
            inner_strides(blocks.block, blocks.inner),
            np.array([axis for axis in reversed(blocks.inner) if blocks.block[axis] > 1], np.int64),
        )


def _cells(header: Header, blocks: Blocks, box: Box, rows: Rows, numbers: Ints, shifts: Ints) -> Coo:
    """Return the cells of a box whose values are in a palette."""
    from hyperslab.tensors.layouts import unpacking

    reader, data = Reader.of(header), padded(rows, unpacking.PADDING)
    slabs = np.append(np.flatnonzero(np.diff(numbers[0], prepend=-1)), len(rows))
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(numbers[-3])])
    parts = even_parts(before[slabs])
    keys = np.empty(before[-1], np.int64)
    low, high = np.array(box.start, np.int64), np.array(box.stop, np.int64)

    def read(part: int) -> int:
        """Read some slabs; their keys go to where they would be if all of those before were in the box."""
        edges = slabs[parts[part] : parts[part + 1] + 1]
        return unpacking.read_slabs(
            data, rows.starts, rows.stops, numbers, edges, reader.tables, reader.table_of_density, blocks.octaves,
            reader.escape, reader.escape_bits, reader.sides, reader.steps, reader.varied, low, high, shifts,
            blocks.value_bits, unpacking.CHECKSUM_TABLES, keys[before[edges[0]] : before[edges[-1]]],
        )  # fmt: skip

    founds = on_threads(read, len(parts) - 1, processors())
    if min(founds) < 0:
        check_rows(header, rows, blocks.columns)
        place = tuple(numbers[:-3, -1 - min(founds)].tolist())
        raise IntegrityError(f"the block of tensor {header.id!r} at {place} is not in order, or no stream of its cells")
    ends = np.cumsum([0, *founds])
    coords, codes = np.empty((len(shifts), ends[-1]), np.int64), np.empty(ends[-1], np.uint16)

    def split(part: int) -> None:
        first, to = before[slabs[parts[part]]], slice(ends[part], ends[part + 1])
        unpacking.split_keys(keys[first : first + founds[part]], shifts, blocks.value_bits, coords[:, to], codes[to])

    on_threads(split, len(founds), processors())
    return Coo(box.shape, coords, blocks.values_of(codes, header.id), header.fill)


def padded(rows: Rows, nbytes: int) -> npt.NDArray[np.uint8]:
    """Return what the payloads of rows lie in, with some bytes more after the last."""
    data = rows.data.view()
    if int(rows.stops.max(initial=0)) + nbytes > len(data):
        data = np.concatenate([data, np.zeros(nbytes, np.uint8)])
    # Compiled functions are made for arrays that may be written to, or for ones that may not.
    data.flags.writeable = False
    return data


def even_parts(before: Ints) -> Ints:
    """Return where parts of slabs begin and where the last ends: one for each processor, of about as many cells.

    `before` says how many cells lie before each slab, and how many there are.
    """
    cells, slabs = int(before[-1]), len(before) - 1
    parts = max(1, min(processors(), slabs, cells // _CELLS_FOR_THREADS))
    edges = np.searchsorted(before, cells * np.arange(1, parts) // parts)
    return np.unique(np.concatenate([[0], edges, [slabs]]))


@lru_cache(maxsize=256)
def split_symbols(text: str, direct: int) -> Words:
    """Return a table with the parts of each symbol apart.

    From the lowest bit on: how many bits code and rest have, the code alone, the rest alone; the value, and what stands
    before the rest.
    """
    entries = prefix.decode_table(text)
    distance, value = np.divmod(entries >> 4, direct)
    near = distance < 8
    open_bits, lead = np.where(near, 0, (distance - 8) // 4 + 1), np.where(near, distance, 4 | distance % 4)
    if len(open_bits) and open_bits.max() > 46:
        raise MetadataError(f"{text!r:.60} are the lengths of a code with more symbols than there are")
    length = entries & 15
    found = (length + open_bits) | length << 6 | open_bits << 10 | value << 16 | lead << 21
    return np.asarray(np.where(entries == 0, _NO_CODE, found), np.uint32)
