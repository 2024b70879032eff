"""BSGS: a sparse tensor as blocks, each with its cells packed into some bits apiece.

A block is one row. Its cells are counted along `inner`, the axes from the slowest to the fastest, and written in this
order as a stream of bits: how many cells lie between a cell and the one before, and its value.

    i0 … i7      place of the block in the grid of blocks
    count        how many cells are stored
    nbytes, crc, payload

The payload has for each cell, in this order (see `prefix` for codes and the order of bits):

1.  a code of the symbol `distance * direct + value`. A distance below 8 is its own symbol. Above, four symbols share a
    power of two: distance `4 + m` (m = 0 … 3) times 2**n plus a rest of n bits has symbol `8 + 4 * (n - 1) + m`;
2.  the rest, n bits;
3.  where `value` is `direct - 1` and the palette has more than `direct` values: the value's place in the palette, in as
    few bits as hold the last place;
4.  where there is no palette: the value's bytes, lowest first, each with the code of its plane.

Codes are the tensor's, not the block's, so a block may be small; there is one for each density of blocks, which `count`
tells. So a block of a few hundred cells costs its cells and some twenty bytes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hyperslab.errors import IntegrityError, InvalidInputError, MetadataError
from hyperslab.execute.threads import on_threads, processors
from hyperslab.selection import Box
from hyperslab.tensors.layouts import prefix
from hyperslab.tensors.layouts.axes import fold, folded_box, folded_shape, unfold
from hyperslab.tensors.layouts.encoded import (
    INDEX_COLUMNS,
    Bounds,
    Encoded,
    Rows,
    binary_column,
    check_rows,
    row_checksums,
    rows_of,
    schema_of,
)
from hyperslab.tensors.values import Coo, Header, checked_dtype

__all__ = ["SYMBOLS", "decode", "densities", "encode", "inner_strides", "prune", "slab_starts"]

# A place within a block is below this, so that 46 bits are left open at most.
_MOST_VOLUME = 1 << 48
_MOST_PALETTE = 1024
_MOST_DIRECT = 8
# Below so many cells, several codes cost more than they save.
_CELLS_FOR_CODES = 1 << 16
_GROUP_BYTES = 128 << 10
# Starting a thread takes as long as reading about so many cells.
_CELLS_FOR_THREADS = 1 << 15
# Distances have so many symbols.
SYMBOLS = 8 + 4 * 46

Ints = npt.NDArray[np.int64]
Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class _Plan:
    """How a tensor is cut, and how its symbols are written. All of it is in the header."""

    shape: tuple[int, ...]
    block: tuple[int, ...]
    inner: tuple[int, ...]
    nnz: int
    octaves: int
    palette: Array | None
    direct: int
    codes: dict[int, str]
    planes: tuple[str, ...]

    @property
    def volume(self) -> int:
        return prod(self.block)

    @property
    def grid(self) -> tuple[int, ...]:
        return tuple(-(-n // b) for n, b in zip(self.shape, self.block, strict=True))

    @property
    def columns(self) -> tuple[str, ...]:
        return (*INDEX_COLUMNS[: len(self.shape)], "count", "nbytes")

    @property
    def escape_bits(self) -> int:
        used = 0 if self.palette is None else len(self.palette)
        return (used - 1).bit_length() if used > self.direct else 0

    @property
    def value_bits(self) -> int:
        return 0 if self.palette is None else max(1, (len(self.palette) - 1).bit_length())


def encode(tensor: Coo, *, block: tuple[int, ...] | None = None, inner: tuple[int, ...] | None = None) -> Encoded:
    """Cut a sparse tensor into blocks. `block` is their shape, `inner` the axes from the slowest to the fastest.

    >>> x = Coo.of((4, 6), [[0, 1, 3], [0, 2, 5]], np.array([7, 8, 9]))
    >>> rows = next(encode(x, block=(2, 3)).tables)
    >>> [rows.column(name).to_pylist() for name in ("i0", "i1", "count")]
    [[0, 1], [0, 1], [2, 1]]
    """
    checked_dtype(tensor.dtype)
    folded = fold(tensor)
    if block is None:
        from hyperslab.tensors.choosing import choose_block

        block, found_inner = choose_block(folded)
        inner = inner or found_inner
    elif len(block) != folded.ndim:
        raise InvalidInputError(f"blocks of a tensor with {folded.ndim} axes cannot have the shape {tuple(block)}")
    inner = tuple(range(folded.ndim)) if inner is None else tuple(inner)
    block = tuple(max(1, min(int(b), n)) for b, n in zip(block, folded.shape, strict=True))
    if sorted(inner) != list(range(folded.ndim)):
        raise InvalidInputError(f"`inner` names each of {folded.ndim} axes once, not {inner}")
    if prod(block) >= _MOST_VOLUME or prod(-(-n // b) * b for n, b in zip(folded.shape, block, strict=True)) >= 2**63:
        raise InvalidInputError(f"blocks of shape {block} are too large for this tensor; take fewer than 2**48 cells")
    return _encoded(tensor, folded, block, inner)


def _encoded(tensor: Coo, folded: Coo, block: tuple[int, ...], inner: tuple[int, ...]) -> Encoded:
    palette, codes, planes = _values(folded.values)
    places, codes, planes, numbers, starts = _sorted_cells(folded, block, inner, palette, codes, planes)
    octaves = 2 if folded.nnz >= _CELLS_FOR_CODES else 64
    direct = 1 if palette is None else min(_MOST_DIRECT, len(palette))
    counts = np.diff(starts)
    tables, table_of = np.unique(densities(prod(block), counts, octaves), return_inverse=True)
    from hyperslab.tensors.layouts import kernels

    frequencies = np.zeros((len(tables), SYMBOLS * direct), np.int64)
    kernels.count_symbols(places, codes, starts, table_of, direct, frequencies)
    lengths = np.array([prefix.lengths_of(row) for row in frequencies], np.int64).reshape(frequencies.shape)
    plane_lengths = np.array([_plane_lengths(planes[:, k]) for k in range(planes.shape[1])], np.int64).reshape(-1, 256)
    plan = _Plan(
        folded.shape, block, inner, folded.nnz, octaves, palette, direct,
        {int(table): prefix.lengths_to_text(row) for table, row in zip(tables, lengths, strict=True)},
        tuple(_plane_text(row, planes[:1, k].sum()) for k, row in enumerate(plane_lengths)),
    )  # fmt: skip
    words = _words(lengths)
    out = np.zeros(_stream_bits(frequencies, lengths, plan, planes.shape) // 64 + len(counts) + 2, np.uint64)
    ends = kernels.write_blocks(
        places, codes, planes, starts, table_of, direct, plan.escape_bits,
        words, lengths, _words(plane_lengths), plane_lengths, out,
    )  # fmt: skip
    data = out.view(np.uint8)[: ends[-1]]
    schema = schema_of(*plan.columns, "crc", "payload")
    group_rows = max(1, _GROUP_BYTES * len(counts) // max(1, int(ends[-1])))
    names = [*plan.columns, "crc"]
    return Encoded(
        "bsgs", tensor.shape, tensor.dtype, tensor.fill, _parameters(plan), schema,
        _tables(schema, plan, numbers, counts, data, ends, group_rows),
        row_group_rows=group_rows, index=plan.columns[:-2],
        encodings={**dict.fromkeys(names, "DELTA_BINARY_PACKED"), "payload": "DELTA_LENGTH_BYTE_ARRAY"},
        compression={**dict.fromkeys(names, "ZSTD"), "payload": "NONE"},
    )  # fmt: skip


def _values(values: Array) -> tuple[Array | None, npt.NDArray[np.uint16], npt.NDArray[np.uint8]]:
    """Return a palette, most frequent value first, and each cell's place in it; or none, and each cell's bytes."""
    from hyperslab.tensors.layouts import kernels

    width, cells = values.dtype.itemsize, len(values)
    no_planes = np.empty((cells, 0), np.uint8)
    if width in (1, 2, 4, 8):
        bits = np.ascontiguousarray(values).view(f"u{width}")
        palette, numbers, counts = kernels.find_palette(bits, max(1, min(_MOST_PALETTE, cells // 4)))
        if len(palette):
            order = np.argsort(-counts, kind="stable")
            ranks = np.empty(len(order), np.uint16)
            ranks[order] = np.arange(len(order), dtype=np.uint16)
            return palette[order].view(values.dtype), ranks[numbers], no_planes
    planes = np.ascontiguousarray(values).view(np.uint8).reshape(cells, width)
    return None, np.zeros(cells, np.uint16), planes


def _sorted_cells(
    folded: Coo, block: tuple[int, ...], inner: tuple[int, ...], palette: Array | None, codes: Any, planes: Any
) -> tuple[Ints, Any, Any, Ints, Ints]:
    """Return places within blocks, values and blocks' numbers, all in the order of blocks; and where each begins."""
    from hyperslab.tensors.layouts import kernels

    grid = [-(-n // b) for n, b in zip(folded.shape, block, strict=True)]
    if not folded.nnz:
        none = np.zeros(0, np.int64)
        return none, codes, planes, none, np.zeros(1, np.int64)
    bits = 0 if palette is None else max(1, (len(palette) - 1).bit_length())
    bits = bits if (prod(grid) * prod(block) - 1).bit_length() + bits < 64 else 0
    places, codes, order, numbers, starts = kernels.cut_cells(
        np.ascontiguousarray(folded.coords), codes, slab_starts(folded.coords[0], block[0]), np.array(grid),
        np.array(block), inner_strides(block, inner), bits,
    )  # fmt: skip
    return places, codes, planes if palette is not None else planes[order], numbers, starts


def slab_starts(along: Ints, thickness: int) -> Ints:
    """Return where the cells of each slab begin, and where the last ends; `along` ascends.

    >>> slab_starts(np.array([0, 1, 1, 4, 5]), 2).tolist()
    [0, 3, 5]
    """
    slab = along if thickness == 1 else along // thickness
    return np.append(np.flatnonzero(np.diff(slab, prepend=-1)), len(along))


def inner_strides(block: tuple[int, ...], inner: tuple[int, ...]) -> Ints:
    """Return by how many places one step along each axis of a block moves on.

    >>> inner_strides((2, 3, 4), (0, 2, 1)).tolist()
    [12, 1, 3]
    """
    strides = np.zeros(len(block), np.int64)
    for place, axis in enumerate(inner):
        strides[axis] = prod(block[later] for later in inner[place + 1 :])
    return strides


def densities(volume: int, counts: Ints, octaves: int) -> Ints:
    """Return which of the tensor's codes blocks have: by how many cells there are for each that is stored."""
    ratio = np.maximum(volume // np.maximum(counts, 1), 1)
    return np.asarray(np.frexp(ratio.astype(np.float64))[1] // octaves, np.int64)


def _plane_lengths(plane: Array) -> Ints:
    found = np.bincount(plane, minlength=256)
    return prefix.lengths_of(found) if np.count_nonzero(found) > 1 else np.zeros(256, np.int64)


def _plane_text(lengths: Ints, byte: Any) -> str:
    return prefix.lengths_to_text(lengths) if lengths.any() else f"={int(byte):02x}"


def _stream_bits(frequencies: Ints, lengths: Ints, plan: _Plan, planes: tuple[int, int]) -> int:
    """Return how many bits all streams have at most, but for what fills up their last bytes."""
    symbols = np.arange(SYMBOLS).repeat(plan.direct)
    open_bits = np.maximum(0, (symbols - 8) // 4 + 1)
    return int((frequencies * (lengths + open_bits + plan.escape_bits)).sum()) + prefix.MOST_BITS * prod(planes)


def _words(lengths: Ints) -> Ints:
    return np.array([prefix.codes(row) for row in lengths], np.int64).reshape(lengths.shape)


def _tables(
    schema: pa.Schema, plan: _Plan, numbers: Ints, counts: Ints, data: Any, ends: Ints, group_rows: int
) -> Iterator[pa.Table]:
    places = [np.asarray(place, np.int64) for place in np.unravel_index(numbers, plan.grid)] if len(numbers) else []
    # Offsets of a column of bytes have 32 bits.
    step = group_rows * max(1, (1 << 30) // max(1, _GROUP_BYTES * 2))
    for low in range(0, len(numbers), step):
        rows = slice(low, low + step)
        edges = ends[low : low + step + 1]
        held = data[edges[0] : edges[-1]]
        whole = [*(place[rows] for place in places), counts[rows], np.diff(edges)]
        crc = row_checksums(whole, held, edges[:-1] - edges[0], edges[1:] - edges[0])
        yield pa.table([*whole, crc, binary_column(held, edges - edges[0])], schema)


def _parameters(plan: _Plan) -> dict[str, Any]:
    return {
        "block": list(plan.block),
        "inner": list(plan.inner),
        "nnz": plan.nnz,
        "octaves": plan.octaves,
        "direct": plan.direct,
        "palette": None if plan.palette is None else plan.palette.tobytes().hex(),
        "codes": {str(table): text for table, text in plan.codes.items()},
        "planes": list(plan.planes),
    }


def _plan_of(header: Header) -> _Plan:
    plan: _Plan | None = header.derived.get("plan")
    if plan is None:
        plan = header.derived["plan"] = _parsed_plan(header)
    return plan


def _parsed_plan(header: Header) -> _Plan:
    given, shape = header.parameters, folded_shape(header.shape)
    try:
        palette = given["palette"]
        plan = _Plan(
            shape,
            tuple(int(n) for n in given["block"]),
            tuple(int(n) for n in given["inner"]),
            int(given["nnz"]),
            int(given["octaves"]),
            None if palette is None else np.frombuffer(bytes.fromhex(palette), header.dtype),
            int(given["direct"]),
            {int(table): str(text) for table, text in given["codes"].items()},
            tuple(str(text) for text in given["planes"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MetadataError(f"the header of tensor {header.id!r} does not describe blocks: {error}") from error
    planes = 0 if plan.palette is not None else header.dtype.itemsize
    if (
        sorted(plan.inner) != list(range(len(shape)))
        or len(plan.block) != len(shape)
        or min(plan.block) < 1
        or not 0 < plan.volume < _MOST_VOLUME
        or not 1 <= plan.direct <= _MOST_DIRECT
        or (plan.palette is not None and not plan.direct <= len(plan.palette) <= _MOST_PALETTE)
        or len(plan.planes) != planes
        or plan.octaves < 1
    ):
        raise MetadataError(f"the header of tensor {header.id!r} describes blocks that cannot be")
    return plan


def prune(header: Header, box: Box) -> list[Bounds]:
    """Return what is true of the places of all blocks that meet a box.

    >>> header = encode(Coo.of((4, 6), [[0], [0]], np.array([7])), block=(2, 3)).header("a")
    >>> prune(header, Box((1, 4), (4, 5)))
    [{'i0': (0, 1), 'i1': (1, 1)}]
    """
    if not box.size:
        return []
    plan, folded = _plan_of(header), folded_box(header.shape, box)
    ends = zip(folded.start, folded.stop, plan.block, strict=True)
    return [{name: (low // b, (high - 1) // b) for name, (low, high, b) in zip(INDEX_COLUMNS, ends, strict=False)}]


def decode(header: Header, table: Any, box: Box) -> Coo:
    """Return the cells of a box; blocks that it cuts are cut. The table holds what `prune` asks for, or more."""
    plan = _plan_of(header)
    folded = folded_box(header.shape, box) if box.size else box
    bounds = prune(header, box)
    if not bounds or not plan.nnz:
        empty = np.empty((len(box.shape), 0), np.int64)
        return Coo(box.shape, empty, np.empty(0, header.dtype), header.fill)
    rows = Rows.joined([part.within(bounds[0]) for part in rows_of(table)])
    *places, counts, _ = check_rows(header, rows, plan.columns)
    if folded.shape == plan.shape and counts.sum() != plan.nnz:
        raise IntegrityError(f"tensor {header.id!r} has {plan.nnz} cells, but its rows hold {counts.sum()}")
    found = _cells(header, plan, folded, np.array(places).T, counts, rows)
    return unfold(found, header.shape, folded, box)


def _cells(header: Header, plan: _Plan, box: Box, places: Ints, counts: Ints, rows: Rows) -> Coo:
    from hyperslab.tensors.layouts import kernels

    if ((counts < 1) | (counts > np.minimum(plan.volume, 8 * (rows.stops - rows.starts)))).any():
        raise IntegrityError(f"blocks of tensor {header.id!r} cannot have as many cells as their rows say")
    origins = np.ascontiguousarray(places * np.array(plan.block))
    low, high = np.array(box.start), np.array(box.stop)
    inside = ((origins >= low) & (origins + np.array(plan.block) <= high)).all(axis=1)
    strides = inner_strides(plan.block, plan.inner)
    # After the place of the box's last corner a block has nothing more for it.
    corners = np.minimum(high, origins + np.array(plan.block)) - 1 - origins
    last = np.where(inside, plan.volume, corners @ strides)
    # Axes along which blocks have more than one cell, the fastest first; and those along which the box cuts blocks.
    varied = np.array([axis for axis in reversed(plan.inner) if plan.block[axis] > 1], np.int64)
    cuts = varied[((low > 0) | (high < np.array(plan.shape)))[varied]]
    sides = np.array(plan.block, np.int64)
    tables, table_of = _read_tables(header, plan, counts)
    plane_tables = _plane_tables(plan)
    bits = plan.value_bits if (box.size << plan.value_bits) < 2**63 else 0
    total = int(counts.sum())
    coords = np.empty((len(box.shape), total), np.int64)
    codes = np.empty(total, np.uint16)
    planes = np.empty((total, len(plan.planes)), np.uint8)
    first, stop = int(rows.starts.min(initial=0)), int(rows.stops.max(initial=0))
    words = np.empty((stop - first) // 8 + 3, np.uint64)
    words[-3:] = 0
    words.view(np.uint8)[: stop - first] = rows.data[first:stop]
    slabs = np.append(np.flatnonzero(np.diff(places[:, 0], prepend=-1)), len(counts))
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    parts = _even_parts(before[slabs])

    def read(part: int) -> int:
        """Read some slabs; their cells go to where they would be if all of those before were in the box."""
        edges = slabs[parts[part] : parts[part + 1] + 1]
        rows_of_part, to = slice(edges[0], edges[-1]), slice(before[edges[0]], before[edges[-1]])
        found = kernels.read_slabs(
            words, (rows.starts - first)[rows_of_part], (rows.stops - first)[rows_of_part],
            counts[rows_of_part].copy(), edges - edges[0], origins[rows_of_part], inside[rows_of_part],
            last[rows_of_part], tables, table_of[rows_of_part], plan.direct - 1 if plan.escape_bits else -1,
            plan.escape_bits, plane_tables, sides, strides, varied, cuts, low, high, np.array(box.shape), plan.volume,
            bits, coords[:, to], codes[to], planes[to],
        )  # fmt: skip
        return int(found if found >= 0 else found - edges[0])

    founds = on_threads(read, len(parts) - 1, processors())
    damaged = next((found for found in founds if found < 0), None)
    if damaged is not None:
        place = tuple(places[-1 - damaged].tolist())
        raise IntegrityError(f"the block of tensor {header.id!r} at {place} is not a stream of its cells")
    kept = [slice(at, at + found) for at, found in zip(before[slabs[parts[:-1]]].tolist(), founds, strict=True)]
    found = sum(founds)
    if found < total:
        coords = np.concatenate([coords[:, each] for each in kept], axis=1)
        codes, planes = (np.concatenate([column[each] for each in kept]) for column in (codes, planes))
    if plan.palette is None:
        return Coo(box.shape, coords, planes.view(header.dtype).reshape(-1), header.fill)
    if int(codes.max(initial=0)) >= len(plan.palette):
        raise IntegrityError(f"a block of tensor {header.id!r} names a value that is not in its palette")
    return Coo(box.shape, coords, plan.palette.take(codes), header.fill)


def _even_parts(before: Ints) -> Ints:
    """Return where parts of slabs begin and where the last ends: one for each processor, of about as many cells.

    `before` says how many cells lie before each slab, and how many there are.
    """
    cells, slabs = int(before[-1]), len(before) - 1
    parts = max(1, min(processors(), slabs, cells // _CELLS_FOR_THREADS))
    edges = np.searchsorted(before, cells * np.arange(1, parts) // parts)
    return np.unique(np.concatenate([[0], edges, [slabs]]))


def _read_tables(header: Header, plan: _Plan, counts: Ints) -> tuple[npt.NDArray[np.uint32], Ints]:
    """Return the tables of the codes that blocks have, and which each block has."""
    kinds, table_of = np.unique(densities(plan.volume, counts, plan.octaves), return_inverse=True)
    missing = [int(kind) for kind in kinds if int(kind) not in plan.codes]
    if missing:
        raise IntegrityError(f"tensor {header.id!r} has no code for blocks of density {missing[0]}")
    rows = [_split_symbols(plan.codes[int(kind)], plan.direct) for kind in kinds]
    return np.array(rows, np.uint32).reshape(len(rows), 1 << prefix.MOST_BITS), table_of


@lru_cache(maxsize=256)
def _split_symbols(text: str, direct: int) -> npt.NDArray[np.uint32]:
    """Return a table with the parts of each symbol apart: length, open bits, value, and what stands before those."""
    entries = prefix.decode_table(text)
    distance, value = np.divmod(entries >> 4, direct)
    near = distance < 8
    open_bits, lead = np.where(near, 0, (distance - 8) // 4 + 1), np.where(near, distance, 4 | distance % 4)
    if len(open_bits) and open_bits.max() > 46:
        raise MetadataError(f"{text!r:.60} are the lengths of a code with more symbols than there are")
    return np.asarray(entries & 15 | open_bits << 4 | value << 10 | lead << 15, np.uint32)


def _plane_tables(plan: _Plan) -> Ints:
    rows = []
    for text in plan.planes:
        if text.startswith("="):
            # Always the same byte: no bit is read.
            rows.append(np.full(1 << prefix.MOST_BITS, int(text[1:], 16) << 4, np.int64))
        else:
            rows.append(prefix.decode_table(text))
    return np.array(rows, np.int64).reshape(len(rows), 1 << prefix.MOST_BITS)
