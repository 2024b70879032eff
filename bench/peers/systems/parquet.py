"""Cells as rows of Parquet, filtered by DuckDB: PushdownDB's way.

An array is a table with a column for each dimension (`d0`, `d1`, …) and one for the cell (`v`). A query is SQL with
conditions on the dimensions; the rows that come back, in any order, are put into a dense array. S3 Select, which
PushdownDB leaves the filtering to, is no longer offered, so the filter runs in the client: row groups that cannot have
a row are skipped by the least and the greatest of their dimensions.
"""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from bench.lab import Lab
from bench.peers.datasets import ArrayInfo, Dataset
from bench.peers.systems.copies import upload_from
from bench.peers.workloads import Part, Query

__all__ = ["System"]

# Each of DuckDB's threads has one request under way; its guide to tuning says to have more of them than cores for
# remote files. With 8 reads took twice as long, with 64 the same.
_THREADS = 32
_SETTINGS = {
    "threads": str(_THREADS),
    "memory_limit": "'4GB'",
    "enable_http_metadata_cache": "true",
    "parquet_metadata_cache": "true",
    "enable_external_file_cache": "false",
    "http_keep_alive": "true",
    "httpfs_connection_caching": "true",
    "autoinstall_known_extensions": "false",
    # So that row groups are skipped by the row numbers of a join.
    "dynamic_or_filter_threshold": "1000",
}
_SAMPLE_CELLS = 1 << 16
_BATCH_ROWS = 1_000_000


class System:
    """Parts of one array are one query; queries of several arrays run side by side."""

    title = "Parquet + DuckDB"
    packages = ("duckdb", "pyarrow")
    layouts: ClassVar[dict[str, str]] = {
        "same": "a row group for each 16 MB chunk, not compressed, a file for each array",
        "best": "zstd, in row groups of 122,500 (tiles of the grid), 262,000 (tiles of pictures) or 490,000 rows "
        "(whole rows of tables): DuckDB's guide to file formats recommends 100,000 to 1,000,000 rows, in an order by "
        "which row groups can be skipped",
    }

    def __init__(self) -> None:
        self._database: Any = None
        self._files: dict[str, str] = {}
        self._infos: dict[str, ArrayInfo] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._local = threading.local()

    def stored(self, data: Dataset, layout: str) -> str:
        return f"parquet-{layout}"

    def prepare(self, data: Dataset, layout: str, lab: Lab) -> None:
        def write(folder: Path, info: ArrayInfo) -> None:
            tile = info.chunks if layout == "same" else _best_tile(info)
            _write(folder / f"{info.name}.parquet", info, data.truth(info.name), tile, plain=layout == "same")

        upload_from(data, self.stored(data, layout), lab, write)

    def open(self, data: Dataset, layout: str, lab: Lab) -> None:
        self._database = _connect(lab)
        at = lab.url(data.prefix(self.stored(data, layout)))
        self._files = {info.name: f"{at}/{info.name}.parquet" for info in data.arrays}
        self._infos = {info.name: info for info in data.arrays}
        self._threads = ThreadPoolExecutor(8)
        # Reads the footers, which stay.
        list(self._threads.map(lambda name: self._run(f"SELECT v FROM '{self._files[name]}' LIMIT 0"), self._files))

    def read(self, query: Query, **settings: Any) -> list[np.ndarray]:
        if self._threads is None:
            raise RuntimeError("nothing is open")
        by_array: dict[str, list[int]] = {}
        for number, part in enumerate(query.parts):
            by_array.setdefault(part.array, []).append(number)
        asked = [[query.parts[number] for number in numbers] for numbers in by_array.values()]
        found: dict[int, np.ndarray] = {}
        for numbers, cells in zip(by_array.values(), self._threads.map(self._read, asked), strict=True):
            found.update(zip(numbers, cells, strict=True))
        return [found[number] for number in range(len(query.parts))]

    def _read(self, parts: Sequence[Part]) -> Sequence[np.ndarray]:
        """Return the cells of parts of one array."""
        if len(parts) > 1:
            return self._boxes(parts)
        (part,) = parts
        return [self._box(part) if isinstance(part.key[0], slice) else self._rows(part)]

    def _box(self, part: Part) -> np.ndarray:
        info, shape = self._infos[part.array], _shape(part.key)
        place = _place([f"d{axis} - {item.start}" for axis, item in enumerate(part.key)], shape)
        sql = f"SELECT {place} AS p, v FROM '{self._files[info.name]}' WHERE {_within(part.key)}"
        return self._placed(sql, prod(shape), info.dtype).reshape(shape)

    def _rows(self, part: Part) -> np.ndarray:
        """Return the cells of row numbers: by a join, which DuckDB does in less time than a long IN."""
        info, shape = self._infos[part.array], _shape(part.key)
        wanted = {"d0": part.key[0].astype(_index_type(info)), "row": np.arange(shape[0], dtype=np.int32)}
        place = _place(["row", *_dims(len(shape))[1:]], shape)
        sql = f"SELECT {place} AS p, v FROM '{self._files[info.name]}' JOIN wanted USING (d0)"
        return self._placed(sql, prod(shape), info.dtype, wanted).reshape(shape)

    def _boxes(self, parts: Sequence[Part]) -> list[np.ndarray]:
        """Return the cells of several boxes by one join with their places, so that no row group is read twice.

        A long OR takes DuckDB seconds, as it looks at every row once for each box.
        """
        info, shapes = self._infos[parts[0].array], [_shape(part.key) for part in parts]
        dims, index = _dims(len(info.shape)), _index_type(info)
        corners = [np.array([[item.start] for item in part.key], index) for part in parts]
        boxes = [np.indices(shape, index).reshape(len(shape), -1) for shape in shapes]
        at = np.concatenate([corner + box for corner, box in zip(corners, boxes, strict=True)], axis=1)
        wanted = {**dict(zip(dims, at, strict=True)), "p": np.arange(at.shape[1], dtype=np.int32)}
        sql = f"SELECT p, v FROM '{self._files[info.name]}' JOIN wanted USING ({', '.join(dims)})"
        flat = self._placed(sql, at.shape[1], info.dtype, wanted)
        ends = np.cumsum([prod(shape) for shape in shapes])[:-1]
        return [cells.reshape(shape) for cells, shape in zip(np.split(flat, ends), shapes, strict=True)]

    def _placed(self, sql: str, size: int, dtype: str, wanted: dict[str, np.ndarray] | None = None) -> np.ndarray:
        """Run a query for places and values, and put each value at its place."""
        out = np.empty(size, dtype)
        for rows in self._run(sql, wanted).to_arrow_reader(_BATCH_ROWS):
            out[rows["p"].to_numpy()] = rows["v"].to_numpy()
        return out

    def _run(self, sql: str, wanted: dict[str, np.ndarray] | None = None) -> Any:
        cursor = getattr(self._local, "cursor", None)
        if cursor is None:
            cursor = self._local.cursor = self._database.cursor()
            # Threads that read do not wait for the one that takes the rows.
            cursor.execute("SET streaming_buffer_size='256MB'")
        if wanted is not None:
            cursor.register("wanted", wanted)
        return cursor.execute(sql)

    def told(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown()
        if self._database is not None:
            self._database.close()


def _connect(lab: Lab) -> Any:
    import duckdb
    from duckdb_extensions import import_extension

    from bench.servers import options_at

    database = duckdb.connect()
    # From the installed package; nothing is downloaded.
    import_extension("httpfs", con=database)
    database.execute("LOAD httpfs")
    for name, value in _SETTINGS.items():
        database.execute(f"SET GLOBAL {name}={value}")
    options = options_at(lab.endpoint)
    database.execute(
        f"CREATE SECRET (TYPE s3, KEY_ID '{options['access_key_id']}', SECRET '{options['secret_access_key']}', "
        f"ENDPOINT '{lab.endpoint.removeprefix('http://')}', REGION 'us-east-1', URL_STYLE 'path', USE_SSL false)"
    )
    return database


def _dims(count: int) -> list[str]:
    return [f"d{axis}" for axis in range(count)]


def _index_type(info: ArrayInfo) -> np.dtype:
    return np.dtype(np.int16 if max(info.shape) < 1 << 15 else np.int32)


def _shape(key: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(item.stop - item.start if isinstance(item, slice) else len(item) for item in key)


def _place(numbers: Sequence[str], shape: tuple[int, ...]) -> str:
    """Return SQL for a cell's place in a flat result, from its numbers along the axes.

    >>> _place(["d0 - 2", "d1 - 7"], (3, 9))
    '((d0 - 2)::INTEGER) * 9 + (d1 - 7)'
    """
    place = f"(({numbers[0]})::INTEGER)"
    for number, length in zip(numbers[1:], shape[1:], strict=True):
        place = f"{place} * {length} + ({number})"
        place = place if number == numbers[-1] else f"({place})"
    return place


def _within(key: tuple[slice, ...]) -> str:
    """Return a box as SQL.

    >>> _within((slice(2, 5), slice(0, 9)))
    'd0 BETWEEN 2 AND 4 AND d1 BETWEEN 0 AND 8'
    """
    return " AND ".join(f"d{axis} BETWEEN {item.start} AND {item.stop - 1}" for axis, item in enumerate(key))


def _best_tile(info: ArrayInfo) -> tuple[int, ...]:
    """Return a row group's box: whole rows of tables, squares of the grid, all planes of squares of a picture.

    Tried: 122,880 and 262,144 rows for all, 1,000,000 for pictures, 491,520 and 1,000,000 for tables. Larger ones help
    random rows of tables, and hurt runs of rows and boxes.
    """
    if len(info.shape) == 3:
        return (info.shape[0], 296, 296)
    if info.chunks[1:] == info.shape[1:]:
        return (max(1, 491_520 // prod(info.shape[1:])), *info.shape[1:])
    return (350, 350)


def _tiles(shape: tuple[int, ...], tile: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    ranges = [range(0, n, step) for n, step in zip(shape, tile, strict=True)]
    for corner in product(*ranges):
        yield tuple(slice(c, min(c + step, n)) for c, step, n in zip(corner, tile, shape, strict=True))


def _write(path: Path, info: ArrayInfo, truth: np.ndarray, tile: tuple[int, ...], *, plain: bool) -> None:
    """Write a tile's cells as a row group, one after another."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    dims, index = _dims(truth.ndim), _index_type(info)
    types = [*(index for _ in dims), truth.dtype]
    schema = pa.schema([(name, pa.from_numpy_dtype(each)) for name, each in zip([*dims, "v"], types, strict=True)])
    # The last dimension goes up by one from row to row, so its differences need no space; the others hardly change.
    encoded = dims[:-1] + ["v"] * _has_few_values(truth, plain=plain)
    with pq.ParquetWriter(
        path, schema, compression="none" if plain else "zstd", use_dictionary=encoded,
        column_encoding={dims[-1]: "DELTA_BINARY_PACKED"}, write_statistics=dims,
    ) as writer:  # fmt: skip
        for box in _tiles(truth.shape, tile):
            cells = truth[box]
            columns = [_column(axis, item, cells.shape, index) for axis, item in enumerate(box)]
            rows = [pa.array(column) for column in [*columns, cells.ravel()]]
            writer.write_table(pa.Table.from_arrays(rows, schema=schema), row_group_size=cells.size)


def _column(axis: int, item: slice, shape: tuple[int, ...], index: np.dtype) -> np.ndarray:
    """Return the places of a tile's cells along one axis."""
    places = np.arange(item.start, item.stop, dtype=index)
    places = places.reshape([-1 if each == axis else 1 for each in range(len(shape))])
    return np.broadcast_to(places, shape).ravel()


def _has_few_values(truth: np.ndarray, *, plain: bool) -> bool:
    """Tell if cells are kept by a dictionary of values.

    Without one, a cell of one byte takes four, as Parquet has no shorter type; so bytes have one in any layout.
    """
    if plain or truth.itemsize == 1:
        return truth.itemsize == 1
    sample = truth.reshape(-1)[:_SAMPLE_CELLS]
    return len(np.unique(sample)) < sample.size // 2
