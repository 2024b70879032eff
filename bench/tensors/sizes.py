"""How large each layout is beside a PT file: ours, and the paper's tables as the paper has them.

    python -m bench.tensors.sizes [--data FILE.npz]

`--data` takes another tensor: an archive with `gaps` (between row-major places), `counts` and `shape`.
"""

import argparse
import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.tensors.generators import PICKUPS_SHAPE, pickups
from hyperslab.tensors import layouts
from hyperslab.tensors.values import Coo

__all__ = ["bsgs_as_paper", "coo_as_paper", "pt_bytes", "stored_bytes"]

PAPER_BLOCK = (4, 24, 8, 8)


def pt_bytes(nnz: int, axes: int, value_bytes: int) -> int:
    """Return the size of what `torch.save` writes of a sparse tensor: indices of 64 bits, values, and a head."""
    return nnz * (8 * axes + value_bytes) + 1800


def stored_bytes(encoded: layouts.Encoded) -> int:
    """Return the size of the Parquet file of a tensor in one of our layouts, its header included."""
    sink = io.BytesIO()
    compressed = {name: 1 for name, kind in encoded.compression.items() if kind == "ZSTD"}
    with pq.ParquetWriter(
        sink, encoded.schema, compression=dict(encoded.compression), compression_level=compressed or None,
        use_dictionary=False, column_encoding=dict(encoded.encodings), write_statistics=list(encoded.index),
        data_page_size=1 << 30, write_page_checksum=True, store_schema=False,
    ) as writer:  # fmt: skip
        for table in encoded.tables:
            writer.write_table(table, row_group_size=encoded.row_group_rows)
    return len(sink.getvalue()) + len(encoded.header("tensor").to_json())


def _repeated(value: Any, rows: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([value]))


def _lists(rows: np.ndarray, kind: pa.DataType) -> pa.ListArray:
    count, each = rows.shape
    return pa.ListArray.from_arrays(
        pa.array(np.arange(0, (count + 1) * each, each, np.int32)), pa.array(rows.reshape(-1), kind)
    )


def _written(columns: dict[str, Any]) -> int:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink, compression="snappy")
    return len(sink.getvalue())


def coo_as_paper(coords: np.ndarray, values: np.ndarray, shape: tuple[int, ...]) -> int:
    """Return the size of the paper's COO table: a row for each cell, with lists, Parquet's defaults."""
    rows = len(values)
    shapes = np.tile(np.array(shape, np.int32), (rows, 1))
    return _written(
        {
            "id": _repeated("0" * 32, rows),
            "layout": _repeated("COO", rows),
            "dense_shape": _lists(shapes, pa.int32()),
            "indices": _lists(coords.T.astype(np.int32), pa.int32()),
            "value": values.astype(np.float64),
        }
    )


def bsgs_as_paper(coords: np.ndarray, values: np.ndarray, shape: tuple[int, ...], block: tuple[int, ...]) -> int:
    """Return the size of the paper's BSGS table: a row for each block, dense, with lists, Parquet's defaults."""
    sides = np.array(block)[:, None]
    grid = tuple(-(-n // b) for n, b in zip(shape, block, strict=True))
    numbers = np.ravel_multi_index(tuple(coords // sides), grid)
    places = np.ravel_multi_index(tuple(coords % sides), block)
    order = np.argsort(numbers, kind="stable")
    used, starts = np.unique(numbers[order], return_index=True)
    # A hundred thousand blocks at a time: all of them, dense, are more than memory holds.
    sink = io.BytesIO()
    writer = None
    for low in range(0, len(used), 100_000):
        here = used[low : low + 100_000]
        stop = starts[low + len(here)] if low + len(here) < len(used) else len(order)
        cells = order[starts[low] : stop]
        dense = np.zeros((len(here), int(np.prod(block))))
        dense[np.searchsorted(here, numbers[cells]), places[cells]] = values[cells]
        table = pa.table(
            {
                "id": _repeated("0" * 32, len(here)),
                "dense_shape": _lists(np.tile(np.array(shape, np.int32), (len(here), 1)), pa.int32()),
                "block_shape": _lists(np.tile(np.array(block, np.int32), (len(here), 1)), pa.int32()),
                "indices": _lists(np.array(np.unravel_index(here, grid), np.int32).T, pa.int32()),
                "values": _lists(dense, pa.float64()),
            }
        )
        writer = writer or pq.ParquetWriter(sink, table.schema, compression="snappy")
        writer.write_table(table)
    if writer is not None:
        writer.close()
    return len(sink.getvalue())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="another tensor, as an archive of gaps, counts and shape")
    asked = parser.parse_args()
    if asked.data:
        archive = np.load(asked.data, allow_pickle=False)
        shape = tuple(archive["shape"].tolist())
        coords = np.array(np.unravel_index(np.cumsum(archive["gaps"].astype(np.int64)), shape))
        counts = archive["counts"].astype(np.int64)
    else:
        shape = PICKUPS_SHAPE
        coords, counts = pickups()
    nnz = len(counts)
    wide, narrow = pt_bytes(nnz, len(shape), 8), pt_bytes(nnz, len(shape), 4)
    print(f"{nnz:,} non-zeros of {shape}; PT: {wide:,} bytes with float64, {narrow:,} with float32")
    for name, size in (
        ("COO as the paper", coo_as_paper(coords, counts, shape)),
        (f"BSGS as the paper, {PAPER_BLOCK}", bsgs_as_paper(coords, counts, shape, PAPER_BLOCK)),
    ):
        print(f"{name:32} {size:12,} bytes  {size / wide:7.2%} of PT with float64", flush=True)
    tensor = Coo.of(shape, coords, counts.astype(np.float32))
    for layout in ("coo", "csr", "csc", "csf", "bsgs"):
        size = stored_bytes(layouts.encode(tensor, layout))
        print(f"{layout:32} {size:12,} bytes  {size / narrow:7.2%} of PT with float32", flush=True)


if __name__ == "__main__":
    main()
