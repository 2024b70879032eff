"""HDF5 datasets of every storage, index, filter and type, written by h5py."""

import random
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import h5py
import numpy as np

from support.arrays import SHAPES, cells, copy_to_memory, dtype_of, fill_of, folder

MEMORY = "hdf5-cases"

DTYPES = (
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64",
    "complex64", "complex128", "S7", ">i2", ">i4", ">f8", "V6", "pair", "big", "grid", "nested",
)  # fmt: skip
NESTED = np.dtype([("a", "<i2"), ("in", [("p", "<f4"), ("name", "S3")])])

# What h5py is told; the index of the chunks follows from the version of the format and the axes that may grow.
FILTERS = {
    "plain": {},
    "gzip": {"compression": "gzip"},
    "shuffle-gzip": {"compression": "gzip", "compression_opts": 1, "shuffle": True},
    "lzf": {"compression": "lzf"},
    "lzf-shuffle": {"compression": "lzf", "shuffle": True},
    "fletcher": {"fletcher32": True},
    "all": {"compression": "gzip", "shuffle": True, "fletcher32": True},
}
INDEXES = ("earliest", "fixed", "one-grows", "all-grow", "early")


@dataclass(frozen=True, slots=True, repr=False)
class HdfCase:
    """A dataset to be stored: all of it written, some regions, or nothing."""

    storage: str
    index: str
    filters: str
    dtype: str
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    written: str
    fill: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.seed}-{self.storage}-{self.index}-{self.filters}"

    def __repr__(self) -> str:
        return f"{self.name}-{self.dtype}-{self.shape}-by-{self.chunks}-{self.written}-{self.fill}"


@cache
def hdf5_catalogue(count: int) -> tuple[HdfCase, ...]:
    """Return `count` cases, every storage, index, filter and type among them; the same ones in every run."""
    rng = random.Random(11)
    cases = []
    for n in range(count):
        shape, chunks = SHAPES[n % len(SHAPES)]
        storage = "chunked" if shape and 0 not in shape and n % 6 else rng.choice(["contiguous", "compact"])
        filters = list(FILTERS)[n % len(FILTERS)] if storage == "chunked" else "plain"
        index = INDEXES[n // len(FILTERS) % len(INDEXES)] if storage == "chunked" else rng.choice(["earliest", "fixed"])
        if index == "early" and filters != "plain":
            index = "fixed"  # only plain chunks can all have their place from the start
        written = "all" if rng.random() < 0.6 else rng.choice(["some", "some", "none"])
        fill = rng.choice(["zero", "odd"])
        cases.append(HdfCase(storage, index, filters, DTYPES[n % len(DTYPES)], shape, chunks, written, fill, n))
    return tuple(cases)


@cache
def hdf5_stored(case: HdfCase) -> tuple[Path, np.ndarray]:
    """Write the dataset "g/a" of a case into a file of its own, once; return the file, and all the cells."""
    dtype = NESTED if case.dtype == "nested" else dtype_of(case.dtype)
    data = np.asarray(cells(dtype, case.shape, case.seed))
    path = folder() / f"{case.name}.h5"
    old = case.index == "earliest"
    with h5py.File(
        path, "w", libver="earliest" if old else "latest", userblock_size=512 * (case.seed % 3 == 0)
    ) as file:
        dataset = _create(file.create_group("g"), case, dtype)
        found = np.empty(case.shape, dtype)
        found[...] = dataset.fillvalue
        _write(dataset, data, found, case)
    return path, found


def _create(group: h5py.Group, case: HdfCase, dtype: np.dtype) -> h5py.Dataset:
    options = dict(FILTERS[case.filters])
    if case.fill == "odd" and dtype.kind not in "VS":
        options["fillvalue"] = fill_of(dtype, "odd")
    if case.storage == "chunked":
        options["chunks"] = tuple(
            min(c, n) if case.index in ("fixed", "early") else c for c, n in zip(case.chunks, case.shape, strict=True)
        )
        options["maxshape"] = _limits(case)
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    if case.storage == "compact":
        properties.set_layout(h5py.h5d.COMPACT)
    if case.index == "early":
        properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    return group.create_dataset("a", case.shape, dtype, dcpl=properties, **options)


def _limits(case: HdfCase) -> tuple[int | None, ...] | None:
    match case.index:
        case "one-grows":
            return (None, *case.shape[1:]) if case.chunks[1:] <= case.shape[1:] else (None,) * len(case.shape)
        case "all-grow" | "earliest":
            return (None,) * len(case.shape)
    return None


def _write(dataset: h5py.Dataset, data: np.ndarray, found: np.ndarray, case: HdfCase) -> None:
    if case.written == "all" or not data.ndim:
        dataset[...] = data
        found[...] = data
        return
    rng = random.Random(case.seed)
    for _ in range(2 if case.written == "some" and data.size else 0):
        low = [rng.randrange(n) for n in case.shape]
        box = tuple(slice(a, min(n, a + rng.randrange(1, 6))) for a, n in zip(low, case.shape, strict=True))
        dataset[box] = data[box]
        found[box] = data[box]


@cache
def hdf5_copied(case: HdfCase) -> str:
    """Copy a stored file into memory; return its URL there."""
    path, _ = hdf5_stored(case)
    copy_to_memory(path, MEMORY)
    return f"memory://{MEMORY}/{path.name}"
