"""Arrays of every layout and type, the keys that select from them, and what NumPy gives for those keys."""

import os
import random
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import product
from pathlib import Path
from unittest import mock

import numpy as np
import zarr
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from numcodecs import Blosc, Delta, Shuffle, Zlib, Zstd
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, ShardingCodec, TransposeCodec, ZstdCodec

import hyperslab as hs
from hyperslab import opening
from hyperslab.execute import local, remote
from hyperslab.plan import optimise
from hyperslab.plan import plan as planner
from hyperslab.selection import axis
from hyperslab.store import locate, memory
from support.faulty import FaultyStore
from support.profiles import times

METHODS = (None, "get", "merge", "fetch", "paper")


def tries(usual: int, soak: int | None = None) -> settings:
    """Return settings for so many examples, more in a soak run (by default 100 times as many)."""
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(max_examples=times(usual, soak), deadline=None, suppress_health_check=slow)


# Types

NUMBERS = (
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32",
    "float64", "complex64", "complex128",
)  # fmt: skip
TIMES = ("M8[ns]", "M8[10s]", "m8[ms]")
STRINGS = ("U5", "S7")
BIG = (">i2", ">i4", ">f8", ">c8", ">M8[D]", ">U3")
STRUCTURED = {
    "pair": [("a", "<i4"), ("b", "<f8")],
    "mixed": [("x", "?"), ("label", "S3"), ("z", "<c16"), ("when", "<M8[s]")],
    "deep": [("a", "<i2"), ("in", [("p", "<f4"), ("q", "<U2")])],
    "big": [("a", ">i4"), ("b", "<u2")],
    "grid": [("a", "<i2"), ("g", "<f4", (2, 3))],
}
DTYPES = (*NUMBERS, *TIMES, *STRINGS, *BIG, "V6", *STRUCTURED)


def dtype_of(name: str) -> np.dtype:
    """Return a type by its name in `DTYPES`."""
    return np.dtype(STRUCTURED.get(name, name))


def cells(dtype: np.dtype, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Return cells of any type, hardly any two alike."""
    rng = np.random.default_rng(seed)
    if dtype.subdtype is not None:
        inner, more = dtype.subdtype
        return cells(inner, (*shape, *more), seed)
    if dtype.fields is not None:
        out = np.zeros(shape, dtype)
        for n, (name, (inner, *_)) in enumerate(dtype.fields.items()):
            out[name] = cells(inner, shape, seed + n + 1)
        return out
    if dtype.kind in "SU":
        return rng.integers(0, 10 ** min(7, dtype.itemsize), shape).astype(dtype)
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if dtype.kind in "mM":
        return rng.integers(-(10**6), 10**6, shape).astype(dtype)
    if dtype.kind in "fc":
        real = rng.normal(size=shape) * 100
        return (real + 1j * rng.normal(size=shape) if dtype.kind == "c" else real).astype(dtype)
    raw = rng.integers(0, 256, (*shape, dtype.itemsize), "u1")
    return raw.view(dtype).reshape(shape)


def fill_of(dtype: np.dtype, which: str) -> np.generic | tuple | bytes:
    """Return a fill value: zeros, or something else (NaN, NaT, text …)."""
    if which == "zero":
        return np.zeros((), dtype)[()]
    if dtype.kind in "mM":
        return np.array("NaT" if which == "odd" else 77, dtype)[()]
    odd = {"f": np.nan, "c": complex(1.5, np.nan), "b": True, "i": -3, "u": 200, "S": b"ab", "U": "é"}
    if dtype.kind in odd:
        return np.array(odd[dtype.kind], dtype)[()]
    return cells(dtype, (1,), seed=99)[0]


# Layouts: what zarr-python is told, or how `np.save` is called


def _sharded(inner: list, *, location: str = "end", index: list | None = None, order: bool = False):
    def options(ndim: int, chunks: tuple[int, ...]) -> dict:
        codecs = [TransposeCodec(order=tuple(range(ndim))[::-1])] if order and ndim > 1 else []
        sharding = ShardingCodec(
            chunk_shape=chunks,
            codecs=[*codecs, *inner],
            index_codecs=[BytesCodec(), Crc32cCodec()] if index is None else index,
            index_location=location,
        )
        return {"serializer": sharding, "filters": None, "compressors": None}

    return options


def _v3(**options):
    def with_axes(ndim: int, chunks: tuple[int, ...]) -> dict:
        out = {"compressors": None, **options}
        if out.pop("turned", False) and ndim > 1:
            out["filters"] = [TransposeCodec(order=(*range(1, ndim), 0))]
        return out

    return with_axes


def _v2(**options):
    return lambda ndim, chunks: {"zarr_format": 2, "compressors": None, **options}


def _keys(name: str, separator: str) -> dict:
    return {"chunk_key_encoding": {"name": name, "separator": separator}}


LAYOUTS = {
    "v3": _v3(),
    "v3-dots": _v3(**_keys("default", ".")),
    "v3-v2-keys": _v3(**_keys("v2", "/")),
    "v3-big": _v3(serializer=BytesCodec(endian="big")),
    "v3-turned": _v3(turned=True),
    "v3-gzip": _v3(compressors=[GzipCodec()]),
    "v3-zstd": _v3(compressors=[ZstdCodec()], turned=True),
    "v3-blosc": _v3(compressors=[BloscCodec(cname="lz4")]),
    "v3-crc": _v3(compressors=[Crc32cCodec()]),
    "shards": _sharded([BytesCodec()]),
    "shards-start": _sharded([BytesCodec()], location="start"),
    "shards-big": _sharded([BytesCodec(endian="big")], index=[BytesCodec()], order=True),
    "shards-zstd": _sharded([BytesCodec(), ZstdCodec()]),
    "shards-crc": _sharded([BytesCodec(), Crc32cCodec()], location="start", index=[BytesCodec()], order=True),
    "v2": _v2(),
    "v2-f": _v2(order="F"),
    "v2-slashes": _v2(order="F", **_keys("v2", "/")),
    "v2-zlib": _v2(compressors=Zlib()),
    "v2-blosc-f": _v2(order="F", compressors=Blosc()),
    "v2-shuffle": _v2(filters=[Shuffle(4)], compressors=Zstd()),
    "v2-delta": _v2(filters=[Delta("<i4")], compressors=None),
    "npy": "C",
    "npy-f": "F",
}
PLAIN = (
    "v3", "v3-dots", "v3-v2-keys", "v3-big", "v3-turned", "shards", "shards-start", "shards-big", "v2", "v2-f",
    "v2-slashes", "npy", "npy-f",
)  # fmt: skip


@dataclass(frozen=True, slots=True, repr=False)
class Case:
    """An array to be stored: all of it written, some regions, or nothing."""

    layout: str
    dtype: str
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    written: str = "all"
    fill: str = "zero"
    seed: int = 0

    @property
    def name(self) -> str:
        sizes = "x".join(map(str, self.shape)) or "scalar"
        chunks = "x".join(map(str, self.chunks)) or "scalar"
        dtype = self.dtype.replace(">", "be-").replace("[", "").replace("]", "")
        return f"{self.layout}-{dtype}-{sizes}-by-{chunks}-{self.written}-{self.fill}-{self.seed}"

    def __repr__(self) -> str:
        return self.name


def _fits(layout: str, dtype: str) -> bool:
    """Whether zarr-python can write that type in that layout."""
    if layout == "v2-delta":
        return dtype == "int32"
    if layout.startswith("npy"):
        return True
    if layout == "v2-shuffle" and dtype_of(dtype).itemsize % 4:
        return False
    if layout == "v2-blosc-f" and dtype == "mixed":
        return False
    return dtype != "grid" and (dtype_of(dtype).kind != "V" or not layout.startswith("shards"))


SHAPES = (
    ((), ()),
    ((0,), (3,)),
    ((5, 0, 3), (2, 1, 2)),
    ((17,), (5,)),
    ((40,), (1,)),
    ((9, 7), (4, 3)),
    ((9, 7), (9, 7)),
    ((12, 10), (3, 5)),
    ((6, 50), (5, 1)),
    ((1, 1), (1, 1)),
    ((7, 6, 5), (3, 2, 5)),
    ((4, 9, 8), (4, 4, 4)),
    ((4, 5, 3, 6), (2, 2, 2, 4)),
    ((5, 3), (8, 2)),
)


@cache
def catalogue(count: int) -> tuple[Case, ...]:
    """Return `count` cases, every layout, type and shape among them; the same ones in every run."""
    rng = random.Random(7)
    pairs = [pair for pair in product(LAYOUTS, DTYPES) if _fits(*pair)]
    rng.shuffle(pairs)
    seen: set[str] = set()
    # Those first that bring in something new.
    fresh = []
    for layout, dtype in pairs:
        if layout not in seen or dtype not in seen:
            fresh.append((layout, dtype))
            seen |= {layout, dtype}
    rest = [pair for pair in pairs if pair not in fresh]
    cases = []
    for n in range(count):
        layout, dtype = fresh[n] if n < len(fresh) else rest[(n - len(fresh)) % len(rest)]
        shape, chunks = SHAPES[n % len(SHAPES)] if n < len(SHAPES) else rng.choice(SHAPES[3:])
        npy = layout.startswith("npy")
        written = "all" if npy or rng.random() < 0.6 else rng.choice(["some", "some", "none"])
        cases.append(Case(layout, dtype, shape, chunks, written, rng.choice(["zero", "odd"]), n))
    return tuple(cases)


@lru_cache(maxsize=1)
def folder() -> Path:
    """Where the arrays of this process are stored; removed when it ends."""
    import atexit

    held = tempfile.TemporaryDirectory(prefix="hyperslab-arrays-")
    atexit.register(held.cleanup)
    return Path(held.name)


@cache
def stored(case: Case) -> tuple[Path, np.ndarray]:
    """Write the array of a case, once; return where it is, and all its cells."""
    dtype = dtype_of(case.dtype)
    if case.layout.startswith(("v3", "shards")):
        dtype = dtype.newbyteorder("=")  # the byte order is the codec's business there
    data = np.asarray(cells(dtype, case.shape, case.seed))
    path = folder() / case.name
    if case.layout.startswith("npy"):
        path = path.with_name(path.name + ".npy")
        np.save(path, np.asfortranarray(data) if LAYOUTS[case.layout] == "F" else data)
        return path, data
    options = LAYOUTS[case.layout](len(case.shape), case.chunks)
    chunks = case.chunks
    if case.layout.startswith("shards"):
        chunks = tuple(chunk * (2 if axis % 2 else 3) for axis, chunk in enumerate(chunks))
    fill = fill_of(dtype, case.fill)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        array = zarr.create_array(str(path), shape=case.shape, dtype=dtype, chunks=chunks, fill_value=fill, **options)
        return path, _write(array, data, np.array(fill, dtype), case)


def _write(array: zarr.Array, data: np.ndarray, fill: np.ndarray, case: Case) -> np.ndarray:
    """Write what the case says; return the cells that the array then has."""
    if case.written == "all" or not data.ndim:
        array[...] = data
        return data
    found = np.empty(data.shape, data.dtype)
    found[...] = fill
    rng = random.Random(case.seed)
    for _ in range(2 if case.written == "some" else 0):
        low = [rng.randrange(n + 1) for n in case.shape]
        box = tuple(slice(a, a + rng.randrange(1, 6)) for a in low)
        array[box] = data[box]
        found[box] = data[box]
    return found


MEMORY = f"arrays-{os.getpid()}"


@cache
def copied(case: Case) -> str:
    """Copy a stored array into memory; return its URL there."""
    path, _ = stored(case)
    copy_to_memory(path, MEMORY)
    return f"memory://{MEMORY}/{path.name}"


def copy_to_memory(path: Path, name: str) -> None:
    """Copy a file, or all files of a directory, into `memory://name`, under its own name."""
    store = memory(name)
    files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    for each in files:
        store.put(each.relative_to(path.parent).as_posix(), each.read_bytes())


# Sessions whose profiles lead to every way of grouping

MB = 1e6
PROFILES = {
    "usual": None,
    "s3": hs.Profile.named("s3"),
    "patient": hs.Profile("patient", 1e3, (1,), (1 * MB,), 1),
    "eager": hs.Profile("eager", 0.0, (1, 8), (1 * MB, 8 * MB), 8),
    "curved": hs.Profile("curved", 2e-6, (1, 2, 5, 9), (3 * MB, 20 * MB, 21 * MB, 5 * MB), 3, 1e-7),
    "middling": hs.Profile("middling", 3e-5, (1, 4), (1 * MB, 2 * MB), 4),
    "dear": hs.Profile("dear", 1e-4, (1, 64), (1 * MB, 64 * MB), 64, 1e-6),
}
PHIS = {"dear": float("inf"), "curved": 10.0}


class Sessions:
    """Sessions by the name of their profile, with a cache and without; made when first asked for."""

    def __init__(self) -> None:
        self.made: dict[tuple[str, int], hs.Session] = {}
        self.opened: dict[tuple[str, str, int], hs.Array] = {}

    def get(self, profile: str = "usual", cache_bytes: int = 0) -> hs.Session:
        if (profile, cache_bytes) not in self.made:
            prices = hs.Prices.named("aws") if profile in PHIS else None
            self.made[profile, cache_bytes] = hs.Session(
                profile=PROFILES[profile], prices=prices, phi=PHIS.get(profile, 0.0), cache_bytes=cache_bytes
            )
        return self.made[profile, cache_bytes]

    def open(self, url: str | Path, profile: str = "usual", cache_bytes: int = 0) -> hs.Array:
        key = (str(url), profile, cache_bytes)
        if key not in self.opened:
            self.opened[key] = hs.open(str(url), session=self.get(profile, cache_bytes))
        return self.opened[key]

    def close(self) -> None:
        for session in self.made.values():
            session.close()


@contextmanager
def sessions() -> Iterator[Sessions]:
    made = Sessions()
    try:
        yield made
    finally:
        made.close()


@contextmanager
def small_requests(min_cut_bytes: int, max_request_bytes: int) -> Iterator[None]:
    """Let the optimiser cut requests of a few bytes, also where a plan is remembered."""
    sizes = {"_MIN_CUT_BYTES": min_cut_bytes, "MAX_REQUEST_BYTES": max_request_bytes}
    with mock.patch.multiple(optimise, **sizes), mock.patch.object(planner, "_SMALL_CELLS", 0):
        yield


@contextmanager
def small_is_large(block_bytes: int) -> Iterator[None]:
    """Let a few bytes take the ways that are meant for megabytes: threads, blocks, scans instead of trials."""
    with (
        mock.patch.multiple(local, _LANES=3, _THREAD_BYTES=1, _RELEASE_BYTES=1),
        mock.patch.multiple(local, _RUN_BYTES=block_bytes, _BLOCK_BYTES=block_bytes),
        mock.patch.multiple(remote, _INLINE_BYTES=0),
        mock.patch.multiple(axis, _LOOP_LIMIT=0),
        mock.patch.multiple(optimise, _FEW_GAPS=0, _FEW_RANGES=0),
    ):
        yield


# Keys


def ints(length: int) -> st.SearchStrategy:
    return st.integers(-length, length - 1)


@cache
def slices(length: int, forward: bool = False) -> st.SearchStrategy[slice]:
    bound = st.none() | st.integers(-length - 3, length + 3)
    if forward:
        return st.builds(slice, bound, bound, st.sampled_from([None, 1, 2, 3, length + 1]))
    step = st.sampled_from([None, None, 1, 1, 2, 3, -1, -1, -2, -3, length + 1, -length - 1, 2**70, -(2**70)])
    return st.builds(slice, bound, bound, step)


@cache
def lists(length: int) -> st.SearchStrategy:
    """Lists of indices in any order and more than once, arrays of them, masks."""
    picked = st.lists(ints(length), max_size=8) if length else st.just([])
    ascending = st.lists(st.integers(0, length - 1), max_size=8, unique=True).map(sorted) if length else picked
    arrays = st.builds(np.array, picked, st.sampled_from(["i1", ">i2", "i4", "i8"]))
    unsigned = ascending.map(lambda cells: np.array(cells, "u8"))
    masks = st.integers(0, 2**length - 1).map(lambda bits: [bool(bits >> n & 1) for n in range(length)])
    return st.one_of(picked, ascending, arrays, unsigned, masks, masks.map(lambda mask: np.array(mask, bool)))


@cache
def basic_items(length: int, forward: bool = False) -> st.SearchStrategy:
    cut = slices(length, forward) | st.just(slice(None))
    return cut | ints(length) if length else cut


@st.composite
def keys(draw, shape: tuple[int, ...], *, lists_too: bool = True, new_too: bool = True, forward: bool = False):
    """Draw a key for an array of that shape: basic items, lists and masks, `...` and None among them."""
    items: list = []
    for length in shape:
        kind = draw(st.integers(0, 3)) if lists_too else 0
        items.append(draw(lists(length) if kind == 3 else basic_items(length, forward)))
    if shape and all(shape) and draw(st.integers(0, 9)) == 9:
        items = [draw(ints(length)) for length in shape]
    shortened = draw(st.integers(0, 4))
    if shortened == 3:
        low = draw(st.integers(0, len(items)))
        high = draw(st.integers(low, len(items)))
        items[low:high] = [Ellipsis]
    elif shortened == 4:
        del items[draw(st.integers(0, len(items))) :]
    while new_too and draw(st.integers(0, 5)) == 5:
        items.insert(draw(st.integers(0, len(items))), None)
    if len(items) == 1 and draw(st.booleans()) and not isinstance(items[0], list):
        return items[0]
    return tuple(items)


@st.composite
def pointwise(draw, shape: tuple[int, ...]):
    """Draw index arrays that broadcast, one per axis."""
    common = draw(st.lists(st.integers(0, 4), max_size=2)) if all(shape) else [0]
    out = []
    for length in shape:
        mine = [n if draw(st.integers(0, 3)) else 1 for n in common][draw(st.integers(0, len(common))) :]
        mine = mine if length else common
        size = int(np.prod(mine, dtype=int))
        numbers = draw(st.lists(ints(max(1, length)), min_size=size, max_size=size))
        array = np.array(numbers, "i8").reshape(mine)
        out.append(int(array) if array.ndim == 0 and draw(st.booleans()) else array)
    return tuple(out)


def fields_of(dtype: np.dtype) -> st.SearchStrategy:
    """Draw None, the name of a field, or a list of names."""
    if dtype.names is None:
        return st.none()
    names = st.sampled_from(dtype.names)
    return st.none() | names | st.lists(names, min_size=1, unique=True)


def with_fields(key: object, fields: object) -> object:
    """Return the key that also chooses fields."""
    if fields is None:
        return key
    return (fields, *key) if type(key) is tuple else (fields, key)


def added_axis(key: object) -> bool:
    """Whether the key adds an axis."""
    return any(item is None for item in (key if isinstance(key, tuple) else (key,)))


# What NumPy gives


def picked(data: np.ndarray, key: object, fields: object = None) -> object:
    """Return what NumPy gives for a key whose lists choose each along its own axis, then for the fields."""
    if fields is not None:
        return data[fields] if type(key) is tuple and not key else picked(data, key)[fields]
    items = list(key) if type(key) is tuple else [key]
    if not any(isinstance(item, list | np.ndarray) for item in items):
        return data[key]
    given = sum(item is not None and item is not Ellipsis for item in items)
    basic: list = []
    axis = 0
    for item in items:
        if isinstance(item, list | np.ndarray):
            wanted = np.asarray(item)
            data = data.take(np.flatnonzero(wanted) if wanted.dtype == bool else wanted.astype("i8"), axis)
            item = slice(None)
        basic.append(item)
        axis += data.ndim - given if item is Ellipsis else item is not None
    return data[tuple(basic)]


def assert_same(found: object, wanted: object) -> None:
    """Compare results bit for bit: kind of object, type, shape, cells."""
    assert type(found) is type(wanted), f"{type(found)} is not {type(wanted)}"
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.dtype == wanted.dtype, f"{found.dtype} is not {wanted.dtype}"
    assert found.shape == wanted.shape, f"{found.shape} is not {wanted.shape}"
    if wanted.dtype.fields is None:
        assert found.tobytes() == wanted.tobytes(), f"{found!r} is not {wanted!r}"
        return
    for name in wanted.dtype.fields:
        assert_same(np.asarray(found[name]), np.asarray(wanted[name]))


# What is sent


@contextmanager
def logging_store() -> Iterator[list[FaultyStore]]:
    """Let every array that is opened meanwhile read through a store that logs; yields those stores."""
    made: list[FaultyStore] = []

    def located(url: object, options: object = None) -> tuple[FaultyStore, str]:
        store, path = locate(url, options)
        made.append(FaultyStore(store))
        return made[-1], path

    with mock.patch.object(opening, "locate", located):
        yield made


def open_logged(url: str, session: hs.Session) -> tuple[hs.Array, FaultyStore]:
    """Open an array through a store that logs; what opening sent is in the log."""
    with logging_store() as made:
        return hs.open(url, session=session), made[0]


def sent(store: FaultyStore) -> list[tuple[str, object, bool]]:
    """Return (key, span, whether a version was pinned) of all that was asked since last time, in a fixed order."""
    found = [(asked.key, asked.span, asked.if_match is not None) for asked in store.log]
    store.log.clear()
    return sorted(found, key=repr)
