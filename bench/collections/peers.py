"""What others keep many small arrays in, each read by its own library as well as it can: twenty by name, warm, local.

A function of a peer stores the arrays once, below a folder, and returns a reader of lists of names. Arrays are of one
dtype and shape, and what is read belongs to the caller.
"""

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

__all__ = [
    "PEERS",
    "Items",
    "Reader",
    "h5py_datasets",
    "kept",
    "lmdb_values",
    "sample_queries",
    "tiledb_each",
    "tiledb_merged",
    "zarr_shard",
]

Reader = Callable[[Sequence[str]], list[np.ndarray]]
# Gives the arrays anew each time it is called, and not all at once.
Items = Callable[[], Iterable[tuple[str, np.ndarray]]]

# Inner chunks of a shard: one array each.
_SHARD_ARRAYS = 1024
_BATCH = 1024


def h5py_datasets(items: Items, folder: Path) -> Reader:
    """One HDF5 file, each array a dataset, contiguous; the file stays open."""
    import h5py

    def write(path: Path) -> None:
        with h5py.File(path, "w", libver="latest") as file:
            for name, array in items():
                file.create_dataset(name, data=array)

    file = h5py.File(kept(folder / "arrays.h5", write), "r", libver="latest")
    return lambda names: [file[name][()] for name in names]


def lmdb_values(items: Items, folder: Path) -> Reader:
    """LMDB, each array a value; one transaction for each list, bytes copied out once. No checksums are verified."""
    import lmdb

    def write(path: Path) -> None:
        with lmdb.open(str(path), map_size=1 << 40) as env:
            for batch in _batches(items()):
                with env.begin(write=True) as writing:
                    for name, array in batch:
                        writing.put(name.encode(), array.tobytes())

    _, first = next(iter(items()))
    dtype, shape = first.dtype, first.shape
    env = lmdb.open(str(kept(folder / "arrays.lmdb", write)), readonly=True, readahead=False, max_spare_txns=4)

    def read(names: Sequence[str]) -> list[np.ndarray]:
        with env.begin(buffers=True) as reading:
            get = reading.get
            return [np.frombuffer(get(name.encode()), dtype).reshape(shape).copy() for name in names]

    return read


def zarr_shard(items: Items, folder: Path) -> Reader:
    """zarr-python 3: arrays as inner chunks of shards, not compressed; a list of them is one orthogonal selection."""
    import zarr

    rows: dict[str, int] = {name: row for row, (name, _) in enumerate(items())}
    _, first = next(iter(items()))

    def write(path: Path) -> None:
        stored = zarr.create_array(
            path, shape=(len(rows), *first.shape), dtype=first.dtype, chunks=(1, *first.shape),
            shards=(_SHARD_ARRAYS, *first.shape), compressors=None, filters=None,
        )  # fmt: skip
        for n, batch in enumerate(_batches(items())):
            stored[n * _BATCH : n * _BATCH + len(batch)] = np.stack([array for _, array in batch])

    stored = zarr.open_array(kept(folder / "arrays.zarr", write), mode="r")

    def read(names: Sequence[str]) -> list[np.ndarray]:
        return list(stored.oindex[np.array([rows[name] for name in names])])

    return read


def tiledb_each(items: Items, folder: Path) -> Reader:
    """One TileDB array for each small array, opened for each read; for some thousands of them at most."""
    return _backend("tiledb-each", items, folder / "each.tiledb")


def tiledb_merged(items: Items, folder: Path) -> Reader:
    """One TileDB array of all, 100 small arrays in a tile, as in the paper; a list of them is one query."""
    return _backend("tiledb", items, folder / "merged.tiledb")


PEERS: Mapping[str, Callable[[Items, Path], Reader]] = {
    "h5py datasets in one file": h5py_datasets,
    "LMDB": lmdb_values,
    "a Zarr shard": zarr_shard,
    "one TileDB array per small array": tiledb_each,
    "one TileDB array of all": tiledb_merged,
}


def sample_queries(
    names: Sequence[str], count: int, size: int = 20, *, near: bool = False, seed: int = 1
) -> list[list[str]]:
    """Return lists of names to read together: anywhere, or side by side in the order in which they were stored."""
    random = np.random.default_rng(seed)
    if near:
        starts = random.integers(0, max(1, len(names) - size), count)
        return [list(names[start : start + size]) for start in starts]
    return [[names[n] for n in random.integers(0, len(names), size)] for _ in range(count)]


def _backend(kind: str, items: Items, path: Path) -> Reader:
    from hyperslab.collections.backends import open_backend

    kept(path, lambda made: open_backend(kind, made, "a").put_many(items()))
    return open_backend(kind, path).read_many


def _batches(items: Iterable[tuple[str, Any]]) -> Iterator[list[tuple[str, Any]]]:
    batch = []
    for item in items:
        batch.append(item)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def kept(path: Path, write: Callable[[Path], object]) -> Path:
    """Return what is at `path`; if nothing is, it is written beside and moved there whole."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name("new-" + path.name)
        if new.is_dir():
            shutil.rmtree(new)
        new.unlink(missing_ok=True)
        write(new)
        new.rename(path)
    return path
