"""Copies of the arrays in the lab's store, each written by the library that lays it out so; made once and kept."""

import shutil
from pathlib import Path
from typing import Any

import h5py
import numpy as np

import hyperslab as hs
from bench.data import folder
from bench.lab import Lab
from bench.layouts.patterns import SHAPES, cells

__all__ = ["DEFAULT", "H5PY", "LOOSE", "ZARR", "kept", "put", "truth"]

DEFAULT, ZARR, H5PY, LOOSE = "default", "zarr", "h5py", "h5py's chunks as objects"
_NAMES = {DEFAULT: "default", ZARR: "zarr", H5PY: "h5py.h5", LOOSE: "loose"}


def kept() -> Path:
    """Return where all of it is kept."""
    path = folder() / "layouts"
    path.mkdir(exist_ok=True)
    return path


def truth(data: str) -> np.ndarray:
    """Return the cells of an array, mapped."""
    path = kept() / f"{data}-{'x'.join(map(str, SHAPES[data]))}.npy"
    if not path.exists():
        draft = path.with_suffix(".part")
        with draft.open("wb") as file:
            np.save(file, cells(data))
        draft.rename(path)
    return np.load(path, mmap_mode="r")


def put(lab: Lab, data: str, layout: str, form: dict[str, Any] | None = None) -> str:
    """Put an array into the lab's store in one layout, unless it is there; return its name in the bucket.

    Layouts are those of the libraries; any other is ours, with the chunks and shards of `form`.
    """
    shape = "x".join(map(str, SHAPES[data]))
    name = f"{data}-{shape}-{_NAMES[layout]}" if form is None else f"{data}-{shape}-{_named(form)}"
    done = kept() / f"{name}.there"
    if not done.exists():
        draft = kept() / f"{name}.part"
        _remove(draft)
        _write(draft, truth(data), layout, form)
        lab.upload(draft, name)
        _remove(draft)
        done.touch()
    return name + ("/a" if layout == H5PY else "")


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)


def _named(form: dict[str, Any]) -> str:
    return "x".join(map(str, form["chunks"])) + "-" + "x".join(map(str, form["shards"] or ["alone"]))


def _write(path: Path, whole: np.ndarray, layout: str, form: dict[str, Any] | None) -> None:
    if form is not None:
        hs.save(path, whole, chunks=tuple(form["chunks"]), shards=tuple(form["shards"]) if form["shards"] else False)
    elif layout == DEFAULT:
        hs.save(path, whole)
    elif layout == H5PY:
        with h5py.File(path, "w") as file:
            file.create_dataset("a", data=whole, chunks=True)
    else:
        import zarr

        chunks = "auto" if layout == ZARR else _chunks_of_h5py(whole)
        array: Any = zarr.create_array(path, shape=whole.shape, dtype=whole.dtype, chunks=chunks)
        array[...] = whole


def _chunks_of_h5py(whole: np.ndarray) -> Any:
    with h5py.File.in_memory() as file:
        return file.create_dataset("a", whole.shape, whole.dtype, chunks=True).chunks
