"""Stored bytes damaged one bit at a time, and cut off: how often does a library return wrong cells without a word?

The same array is stored by each library as it does by default (zarr-python also as TensorStore reads it). A bit of a
random byte of all that is stored, metadata included, is flipped, or a file is cut off somewhere; then all cells and
attributes are read. Wrong, or different, without an error or warning counts as silent.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import multiprocessing
import shutil
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.figures import Figure, main

FLIPS, CUTS = 300, 100
SHAPE = (300, 400)
ATTRS = {"units": "counts", "scale": 0.25}


@dataclass(frozen=True, slots=True)
class Library:
    """How a library stores the array, and reads it."""

    write: Callable[[Path, np.ndarray], Any]
    read: Callable[[Path], tuple[np.ndarray, dict[str, Any]]]


def measure(quick: bool) -> list[Figure]:
    cells = np.random.default_rng(5).integers(0, 1000, SHAPE, np.int32)
    figures = []
    for name, library in LIBRARIES.items():
        with tempfile.TemporaryDirectory() as folder:
            flips = _silent(library, cells, Path(folder), FLIPS // (10 if quick else 1), _flip)
            cuts = _silent(library, cells, Path(folder), CUTS // (10 if quick else 1), _cut)
        tried = f"{FLIPS // (10 if quick else 1)} flips, {CUTS // (10 if quick else 1)} cuts"
        bar, passed = ("0", not flips and not cuts) if name == "hyperslab" else ("", None)
        figures.append(Figure(f"silently wrong after damage, {name}: {tried}", bar, f"{flips} and {cuts}", passed))
    return figures


def _silent(library: Library, cells: np.ndarray, folder: Path, count: int, damage: Callable[..., None]) -> int:
    """Return how often damage went unseen."""
    path = folder / "a"
    library.write(path, cells)
    keep = folder / "keep"
    path.rename(keep)
    silent = 0
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=None) as pool:
        for number in range(count):
            _restore(keep, path)
            damage(path, np.random.default_rng(number))
            # A library may crash or hang on damaged files; that is not silent.
            try:
                silent += pool.apply_async(_is_wrong, (_name_of(library), str(path), cells)).get(60)
            except multiprocessing.TimeoutError:
                continue
    _remove(keep)
    _remove(path)
    return silent


def _name_of(library: Library) -> str:
    return next(name for name, each in LIBRARIES.items() if each is library)


def _is_wrong(name: str, path: str, cells: np.ndarray) -> bool:
    """Say whether a read gives something else than was written, without a word."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            found, attrs = LIBRARIES[name].read(Path(path))
        except Exception:  # noqa: BLE001  (any word will do)
            return False
    return found.dtype != cells.dtype or not np.array_equal(found, cells) or (bool(attrs) and attrs != ATTRS)


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())


def _restore(keep: Path, path: Path) -> None:
    _remove(path)
    if keep.is_file():
        shutil.copy(keep, path)
    else:
        shutil.copytree(keep, path)


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def _flip(path: Path, rng: np.random.Generator) -> None:
    files = _files(path)
    sizes = [file.stat().st_size for file in files]
    at = int(rng.integers(sum(sizes)))
    number = int(np.searchsorted(np.cumsum(sizes), at, side="right"))
    data = bytearray(files[number].read_bytes())
    data[at - sum(sizes[:number])] ^= 1 << int(rng.integers(8))
    files[number].write_bytes(data)


def _cut(path: Path, rng: np.random.Generator) -> None:
    files = [file for file in _files(path) if file.stat().st_size]
    file = files[int(rng.integers(len(files)))]
    file.write_bytes(file.read_bytes()[: int(rng.integers(file.stat().st_size))])


def _write_hyperslab(path: Path, cells: np.ndarray) -> None:
    import hyperslab as hs

    hs.save(path, cells, chunks=(50, 100), shards=(100, 200), attrs=ATTRS)


def _read_hyperslab(path: Path) -> tuple[np.ndarray, dict[str, Any]]:
    import hyperslab as hs

    with hs.Session(cache_bytes=0) as session:
        array = hs.open(path, session=session)
        return array[...], dict(array.attrs)


def _write_zarr(path: Path, cells: np.ndarray) -> None:
    import zarr

    array = zarr.create_array(str(path), data=cells, chunks=(100, 200), attributes=ATTRS)
    assert array.shape == cells.shape


def _read_zarr(path: Path) -> tuple[np.ndarray, dict[str, Any]]:
    import zarr

    array = zarr.open_array(str(path), mode="r")
    return np.asarray(array[...]), dict(array.attrs)


def _read_tensorstore(path: Path) -> tuple[np.ndarray, dict[str, Any]]:
    import tensorstore as ts

    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{path}/"}}
    return np.asarray(ts.open(spec, open=True, read=True).result().read().result()), {}


def _write_h5py(path: Path, cells: np.ndarray) -> None:
    import h5py

    with h5py.File(path, "w") as file:
        file.create_dataset("a", data=cells, chunks=(100, 200)).attrs.update(ATTRS)


def _read_h5py(path: Path) -> tuple[np.ndarray, dict[str, Any]]:
    import h5py

    with h5py.File(path) as file:
        return file["a"][...], dict(file["a"].attrs)


LIBRARIES = {
    "hyperslab": Library(_write_hyperslab, _read_hyperslab),
    "zarr-python": Library(_write_zarr, _read_zarr),
    "TensorStore": Library(_write_zarr, _read_tensorstore),
    "h5py": Library(_write_h5py, _read_h5py),
}


if __name__ == "__main__":
    main(measure)
