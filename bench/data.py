"""The arrays that are measured, made once and kept in `bench/out/` (or `HYPERSLAB_BENCH_DATA`)."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np

__all__ = [
    "GIB_SHAPE",
    "IMAGE_CHUNKS",
    "IMAGE_SHAPE",
    "MANY_SHAPE",
    "gib",
    "gib_part",
    "image",
    "image_h5",
    "image_h5_gzip",
    "image_tiledb",
    "image_zarr",
    "many_cells",
    "many_chunks_h5",
]

IMAGE_SHAPE, IMAGE_CHUNKS = (8192, 8192), (2048, 2048)
# 1 GiB of int32: 64 chunks of 16 MiB.
GIB_SHAPE, GIB_CHUNKS = (16384, 16384), (2048, 2048)
# 400 × 250 chunks.
MANY_SHAPE, MANY_CHUNKS = (12800, 8000), (32, 32)


def folder() -> Path:
    """Return where the arrays are kept."""
    path = Path(os.environ.get("HYPERSLAB_BENCH_DATA", Path(__file__).parent / "out"))
    path.mkdir(parents=True, exist_ok=True)
    return path


def image() -> np.ndarray:
    """Return the array of most measurements, mapped: 8192² int32, a smooth field with noise."""

    def write(path: Path) -> None:
        cells = np.lib.format.open_memmap(path, "w+", np.int32, IMAGE_SHAPE)
        for row in range(0, IMAGE_SHAPE[0], 2048):
            cells[row : row + 2048] = _field(row, 2048, IMAGE_SHAPE[1])

    return np.load(_kept("image.npy", write), mmap_mode="r")


def image_zarr() -> Path:
    """Return the array as plain Zarr v3."""
    return _kept("image.zarr", lambda path: _write_zarr(path, image(), IMAGE_CHUNKS, None))


def image_h5() -> Path:
    """Return the array as HDF5 with the same chunks, not compressed."""
    import h5py

    def write(path: Path) -> None:
        with h5py.File(path, "w") as file:
            file.create_dataset("a", data=image(), chunks=IMAGE_CHUNKS)

    return _kept("image.h5", write)


def image_h5_gzip() -> Path:
    """Return the array as HDF5, chunks of 1 MiB compressed by gzip after shuffling, as many files have it."""
    import h5py

    def write(path: Path) -> None:
        with h5py.File(path, "w") as file:
            file.create_dataset("a", data=image(), chunks=(512, 512), compression="gzip", shuffle=True)

    return _kept("image-gzip.h5", write)


def many_chunks_h5() -> Path:
    """Return an HDF5 file with 100,000 chunks of 4 KiB, written one after another: its index lies all over the file."""
    import h5py

    def write(path: Path) -> None:
        with h5py.File(path, "w") as file:
            dataset = file.create_dataset("a", MANY_SHAPE, "i4", chunks=MANY_CHUNKS)
            for row in range(0, MANY_SHAPE[0], MANY_CHUNKS[0]):
                rows = slice(row, row + MANY_CHUNKS[0])
                dataset[rows] = many_cells(rows, slice(0, MANY_SHAPE[1]))

    return _kept("many-chunks.h5", write)


def many_cells(rows: slice, columns: slice) -> np.ndarray:
    """Return a part of that array, as NumPy makes it: cells count up."""
    y, x = np.arange(rows.start, rows.stop, dtype=np.int32), np.arange(columns.start, columns.stop, dtype=np.int32)
    return y[:, None] * np.int32(MANY_SHAPE[1]) + x


def image_tiledb() -> Path:
    """Return the array as a dense TileDB array with tiles of the same shape and no filters."""
    import tiledb

    def write(path: Path) -> None:
        dims = [
            tiledb.Dim(f"d{i}", domain=(0, n - 1), tile=c, dtype=np.int32)
            for i, (n, c) in enumerate(zip(IMAGE_SHAPE, IMAGE_CHUNKS, strict=True))
        ]
        schema = tiledb.ArraySchema(tiledb.Domain(*dims), [tiledb.Attr("", dtype=np.int32, filters=None)])
        tiledb.Array.create(str(path), schema)
        with tiledb.open(str(path), "w") as array:
            array[:] = np.asarray(image())

    return _kept("image.tiledb", write)


def gib(compressed: bool) -> Path:
    """Return a Zarr array of 1 GiB: plain, or its chunks compressed by Zstandard."""
    import zarr

    def write(path: Path) -> None:
        codec = zarr.codecs.ZstdCodec(level=3) if compressed else None
        array = _create_zarr(path, GIB_SHAPE, GIB_CHUNKS, codec)
        for row in range(0, GIB_SHAPE[0], GIB_CHUNKS[0]):
            array[row : row + GIB_CHUNKS[0]] = gib_part(row, GIB_CHUNKS[0])

    return _kept("gib-zstd.zarr" if compressed else "gib.zarr", write)


def gib_part(row: int, rows: int) -> np.ndarray:
    """Return some rows of that array, as NumPy makes them."""
    return _field(row, rows, GIB_SHAPE[1])


def _field(row: int, rows: int, columns: int) -> np.ndarray:
    """A smooth field with six bits of noise: it compresses about as real images do."""
    y = np.arange(row, row + rows, dtype=np.float32)[:, None]
    x = np.arange(columns, dtype=np.float32)[None, :]
    noise = np.random.default_rng(row).integers(0, 64, (rows, columns), np.int32)
    return (1e6 * np.sin(y / 700) * np.cos(x / 900)).astype(np.int32) + noise


def _write_zarr(path: Path, cells: np.ndarray, chunks: tuple[int, ...], codec: object) -> None:
    array = _create_zarr(path, cells.shape, chunks, codec)
    for row in range(0, cells.shape[0], chunks[0]):
        array[row : row + chunks[0]] = cells[row : row + chunks[0]]


def _create_zarr(path: Path, shape: tuple[int, ...], chunks: tuple[int, ...], codec: object):
    import zarr

    return zarr.create_array(str(path), shape=shape, chunks=chunks, dtype="int32", compressors=codec)


def _kept(name: str, write: Callable[[Path], object]) -> Path:
    """Return the file or directory `name`; it appears only when it has been written to the end."""
    path = folder() / name
    if not path.exists():
        print(f"making {path} (once)", flush=True)
        draft = path.with_name(f"draft-{os.getpid()}-{name}")
        write(draft)
        try:
            draft.rename(path)
        except OSError:  # another process was faster
            shutil.rmtree(draft, ignore_errors=True)
    return path
