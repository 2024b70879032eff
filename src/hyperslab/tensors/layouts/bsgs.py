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
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hyperslab.errors import InvalidInputError
from hyperslab.execute.threads import on_threads, processors
from hyperslab.tensors.layouts import prefix
from hyperslab.tensors.layouts.axes import fold
from hyperslab.tensors.layouts.block_reading import decode, even_parts, prune
from hyperslab.tensors.layouts.blocks import (
    MOST_DIRECT,
    MOST_PALETTE,
    MOST_VOLUME,
    SYMBOLS,
    Blocks,
    densities,
    inner_strides,
)
from hyperslab.tensors.layouts.encoded import Encoded, binary_column, row_checksums, schema_of
from hyperslab.tensors.values import Coo, checked_dtype

__all__ = ["cut_cells", "decode", "encode", "prune"]

# Below so many cells, several codes cost more than they save.
_CELLS_FOR_CODES = 1 << 16
_GROUP_BYTES = 128 << 10

Ints = npt.NDArray[np.int64]
Array = npt.NDArray[Any]


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
    if prod(block) >= MOST_VOLUME or prod(-(-n // b) * b for n, b in zip(folded.shape, block, strict=True)) >= 2**63:
        raise InvalidInputError(f"blocks of shape {block} are too large for this tensor; take fewer than 2**48 cells")
    return _encoded(tensor, folded, block, inner)


def _encoded(tensor: Coo, folded: Coo, block: tuple[int, ...], inner: tuple[int, ...]) -> Encoded:
    palette, codes, planes = _values(folded.values)
    places, codes, planes, numbers, starts = _sorted_cells(folded, block, inner, palette, codes, planes)
    octaves = 2 if folded.nnz >= _CELLS_FOR_CODES else 64
    direct = 1 if palette is None else min(MOST_DIRECT, len(palette))
    counts = np.diff(starts)
    tables, table_of = np.unique(densities(prod(block), counts, octaves), return_inverse=True)
    from hyperslab.tensors.layouts import kernels

    parts = even_parts(starts)

    def count(part: int) -> Ints:
        rows, found = slice(parts[part], parts[part + 1]), np.zeros((len(tables), SYMBOLS * direct), np.int64)
        kernels.count_symbols(places, codes, starts[rows.start : rows.stop + 1], table_of[rows], direct, found)
        return found

    counted = on_threads(count, len(parts) - 1, processors())
    frequencies = sum(counted, start=np.zeros((len(tables), SYMBOLS * direct), np.int64))
    lengths = np.array([prefix.lengths_of(row) for row in frequencies], np.int64).reshape(frequencies.shape)
    plane_lengths = np.array([_plane_lengths(planes[:, k]) for k in range(planes.shape[1])], np.int64).reshape(-1, 256)
    plan = Blocks(
        folded.shape, block, inner, folded.nnz, octaves, palette, direct,
        {int(table): prefix.lengths_to_text(row) for table, row in zip(tables, lengths, strict=True)},
        tuple(_plane_text(row, planes[:1, k].sum()) for k, row in enumerate(plane_lengths)),
    )  # fmt: skip
    words, plane_words = _words(lengths), _words(plane_lengths)

    def write(part: int) -> tuple[Any, Ints]:
        rows, edges = slice(parts[part], parts[part + 1]), starts[parts[part] : parts[part + 1] + 1]
        bits = _stream_bits(counted[part], lengths, plan, (int(edges[-1] - edges[0]), planes.shape[1]))
        out = np.zeros(bits // 64 + len(edges) + 1, np.uint64)
        ends = kernels.write_blocks(
            places, codes, planes, edges, table_of[rows], direct, plan.escape_bits,
            words, lengths, plane_words, plane_lengths, out,
        )  # fmt: skip
        return out.view(np.uint8)[: ends[-1]], np.diff(ends)

    written = on_threads(write, len(parts) - 1, processors())
    data = np.concatenate([np.empty(0, np.uint8), *(streams for streams, _ in written)])
    ends = np.cumsum(np.concatenate([np.zeros(1, np.int64), *(nbytes for _, nbytes in written)]))
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
        palette, numbers, counts = kernels.find_palette(bits, max(1, min(MOST_PALETTE, cells // 4)))
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
    if not folded.nnz:
        none = np.zeros(0, np.int64)
        return none, codes, planes, none, np.zeros(1, np.int64)
    grid = [-(-n // b) for n, b in zip(folded.shape, block, strict=True)]
    bits = 0 if palette is None else max(1, (len(palette) - 1).bit_length())
    bits = bits if (prod(grid) * prod(block) - 1).bit_length() + bits < 64 else 0
    places, codes, order, numbers, starts = cut_cells(folded.shape, folded.coords, codes, block, inner, bits)
    return places, codes, planes if palette is not None else planes[order], numbers, starts


def cut_cells(
    shape: tuple[int, ...], coords: Ints, codes: Any, block: tuple[int, ...], inner: tuple[int, ...], value_bits: int
) -> tuple[Ints, Any, Ints, Ints, Ints]:
    """Return places within blocks, codes of values and where each cell was, in the order of blocks; and the blocks.

    Of these, their numbers, where each begins, and where the last ends. With `value_bits`, the bits of a code, it is
    not told where cells were: codes are sorted along, which is faster.
    """
    from hyperslab.tensors.layouts import kernels

    cells, kept = coords.shape[1], 0 if value_bits else coords.shape[1]
    places, ordered, order = np.empty(cells, np.int64), np.empty(cells, np.uint16), np.empty(kept, np.int64)
    coords, slabs = np.ascontiguousarray(coords), slab_starts(coords[0], block[0])
    grid = np.array([-(-n // b) for n, b in zip(shape, block, strict=True)])
    strides, sides, parts = inner_strides(block, inner), np.array(block), even_parts(slabs)

    def cut(part: int) -> tuple[Ints, Ints]:
        some = slabs[parts[part] : parts[part + 1] + 1]
        found: tuple[Ints, Ints] = kernels.cut_cells(
            coords, codes, some, grid, sides, strides, value_bits, places, ordered, order
        )
        return found

    found = on_threads(cut, len(parts) - 1, processors())
    numbers, starts = (np.concatenate(each) for each in zip(*found, strict=True))
    return places, ordered, order, numbers, np.append(starts, cells)


def slab_starts(along: Ints, thickness: int) -> Ints:
    """Return where the cells of each slab begin, and where the last ends; `along` ascends.

    >>> slab_starts(np.array([0, 1, 1, 4, 5]), 2).tolist()
    [0, 3, 5]
    """
    slab = along if thickness == 1 else along // thickness
    return np.append(np.flatnonzero(np.diff(slab, prepend=-1)), len(along))


def _plane_lengths(plane: Array) -> Ints:
    found = np.bincount(plane, minlength=256)
    return prefix.lengths_of(found) if np.count_nonzero(found) > 1 else np.zeros(256, np.int64)


def _plane_text(lengths: Ints, byte: Any) -> str:
    return prefix.lengths_to_text(lengths) if lengths.any() else f"={int(byte):02x}"


def _stream_bits(frequencies: Ints, lengths: Ints, plan: Blocks, planes: tuple[int, int]) -> int:
    """Return how many bits all streams have at most, but for what fills up their last bytes."""
    symbols = np.arange(SYMBOLS).repeat(plan.direct)
    open_bits = np.maximum(0, (symbols - 8) // 4 + 1)
    return int((frequencies * (lengths + open_bits + plan.escape_bits)).sum()) + prefix.MOST_BITS * prod(planes)


def _words(lengths: Ints) -> Ints:
    return np.array([prefix.codes(row) for row in lengths], np.int64).reshape(lengths.shape)


def _tables(
    schema: pa.Schema, plan: Blocks, numbers: Ints, counts: Ints, data: Any, ends: Ints, group_rows: int
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


def _parameters(plan: Blocks) -> dict[str, Any]:
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
