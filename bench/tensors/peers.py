"""Ways to keep tensors: ours in every layout, and what people use else. Each writes, reads all, and reads slices.

Every read opens what it reads anew, as a program does that has just started; `opened` gives a reader that stays open.
Sparse tensors come back as coordinates and values in the system's own form, which is all that a slice may cost.
"""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import hyperslab as hs
from hyperslab.tensors import Coo

__all__ = ["Kept", "dense_systems", "sparse_systems", "tree_bytes"]

SPARSE_LAYOUTS = ("coo", "csr", "csc", "csf", "bsgs")


@dataclass(frozen=True, slots=True)
class Kept:
    """A tensor kept by one system at a path."""

    name: str
    path: str
    write: Callable[[], None]
    read: Callable[[], Any]
    cut: Callable[[Any], Any]
    opened: Callable[[], Callable[[Any], Any]] | None = None
    count: Callable[[Any], int] = len

    @property
    def nbytes(self) -> int:
        return tree_bytes(self.path)


def tree_bytes(path: str) -> int:
    """Return the bytes of a file, or of all files of a directory."""
    if os.path.isfile(path):
        return os.path.getsize(path)
    return sum(file.stat().st_size for file in Path(path).rglob("*") if file.is_file())


def ours(
    url: str, name: str, tensor: Any, layout: str, options: dict[str, Any] | None = None, **parameters: Any
) -> Kept:
    """Return a table with one tensor."""

    def write() -> None:
        if options is None:
            shutil.rmtree(url, ignore_errors=True)
        with hs.Session() as session:
            table = hs.tensor_table(url, storage_options=options, session=session)
            table.put(tensor, id="x", layout=layout, overwrite=True, **parameters)

    def opened() -> Callable[[Any], Any]:
        table = hs.tensor_table(url, "r", storage_options=options, session=hs.Session(cache_bytes=0))
        return lambda key: table["x"][key]

    def cut(key: Any) -> Any:
        with hs.Session() as session:
            return hs.tensor_table(url, "r", storage_options=options, session=session)["x"][key]

    return Kept(name, url, write, lambda: cut(...), cut, opened, lambda found: found.nnz)


def sparse_systems(folder: Path, tensor: Coo) -> dict[str, Kept]:
    """Return all systems that keep sparse tensors."""
    found = {f"hyperslab {layout}": ours(f"{folder}/{layout}", layout, tensor, layout) for layout in SPARSE_LAYOUTS}
    found["torch.save"] = _torch_sparse(folder / "x.pt", tensor)
    found["pydata/sparse"] = _pydata(folder / "x.npz", tensor)
    found["TileDB sparse"] = _tiledb(folder / "x.tiledb", tensor)
    return found


def torch_tensor(tensor: Coo) -> Any:
    """Return the tensor as torch has it: values as they are, indices of 64 bits."""
    import torch

    return torch.sparse_coo_tensor(
        torch.from_numpy(tensor.coords), torch.from_numpy(tensor.values), tensor.shape,
        is_coalesced=True, check_invariants=False,
    )  # fmt: skip


def torch_cut(found: Any, key: Any) -> Any:
    """Return a slice by one index along one axis, or all."""
    if key is ...:
        return found
    axis, at = one_index(key)
    return found[at] if axis == 0 else found.select(axis, at)


def one_index(key: Any) -> tuple[int, int]:
    """Return the axis and the index of a key that has one index and slices of everything before it."""
    parts = key if isinstance(key, tuple) else (key,)
    return len(parts) - 1, int(parts[-1])


def _torch_sparse(path: Path, tensor: Coo) -> Kept:
    import torch

    made = torch_tensor(tensor)

    def load() -> Any:
        return torch.load(path, weights_only=True)

    return Kept(
        "torch.save", str(path), lambda: torch.save(made, path), load, lambda key: torch_cut(load(), key),
        count=lambda found: int(found._nnz()),
    )  # fmt: skip


def _pydata(path: Path, tensor: Coo) -> Kept:
    import sparse

    made = sparse.COO(tensor.coords, tensor.values, shape=tensor.shape, has_duplicates=False, sorted=True)

    def load() -> Any:
        return sparse.load_npz(path)

    def write() -> None:
        sparse.save_npz(path, made, compressed=False)

    return Kept("pydata/sparse", str(path), write, load, lambda key: load()[key], count=lambda found: int(found.nnz))


def _tiledb(path: Path, tensor: Coo) -> Kept:
    import tiledb

    shape = tensor.shape
    tile = tuple(min(n, size) for n, size in zip(shape, (1, 24, 128, 128), strict=True))
    filters = tiledb.FilterList([tiledb.ZstdFilter(level=1)])

    def write() -> None:
        shutil.rmtree(path, ignore_errors=True)
        axes = [
            tiledb.Dim(f"d{axis}", domain=(0, n - 1), tile=size, dtype=np.int32, filters=filters)
            for axis, (n, size) in enumerate(zip(shape, tile, strict=True))
        ]
        cells = tiledb.Attr("value", dtype=tensor.dtype, filters=filters)
        schema = tiledb.ArraySchema(tiledb.Domain(*axes), [cells], sparse=True, capacity=10_000)
        tiledb.Array.create(str(path), schema)
        with tiledb.open(str(path), "w") as array:
            array[tuple(tensor.coords.astype(np.int32))] = tensor.values

    def cut(key: Any) -> Any:
        with tiledb.open(str(path)) as array:
            return array[:] if key is ... else array[key]

    return Kept("TileDB sparse", str(path), write, lambda: cut(...), cut, count=lambda found: len(found["value"]))


def dense_systems(folder: Path, images: np.ndarray) -> dict[str, Kept]:
    """Return all systems that keep dense tensors, an image to a chunk where there are chunks."""
    found = {
        "hyperslab ftsf": ours(f"{folder}/ftsf", "ftsf", images, "ftsf", chunk_dims=3, rows=1),
        "hyperslab ftsf, 4 MB chunks": ours(f"{folder}/ftsf4", "ftsf4", images, "ftsf"),
        "np.save": _npy(folder / "x.npy", images),
        "torch.save": _torch_dense(folder / "x.pt", images),
        "zarr": _zarr(folder / "x.zarr", images),
    }
    return {
        name: Kept(kept.name, kept.path, kept.write, kept.read, kept.cut, kept.opened) for name, kept in found.items()
    }


def _npy(path: Path, images: np.ndarray) -> Kept:
    return Kept(
        "np.save",
        str(path),
        lambda: np.save(path, images),
        lambda: np.load(path),
        lambda key: np.load(path)[key].copy(),
    )


def _torch_dense(path: Path, images: np.ndarray) -> Kept:
    import torch

    made = torch.from_numpy(images)

    def load() -> Any:
        return torch.load(path, weights_only=True)

    return Kept("torch.save", str(path), lambda: torch.save(made, path), load, lambda key: load()[key].clone())


def _zarr(path: Path, images: np.ndarray) -> Kept:
    """Plain chunks, as ours are: no codec is measured."""
    import zarr

    def write() -> None:
        shutil.rmtree(path, ignore_errors=True)
        array = zarr.create_array(
            str(path), shape=images.shape, chunks=(1, *images.shape[1:]), dtype=images.dtype, compressors=None
        )
        array[...] = images

    def opened() -> Callable[[Any], Any]:
        array = zarr.open_array(str(path), mode="r")
        return lambda key: array[key]

    return Kept(
        "zarr", str(path), write, lambda: zarr.open_array(str(path), mode="r")[...],
        lambda key: zarr.open_array(str(path), mode="r")[key], opened,
    )  # fmt: skip
