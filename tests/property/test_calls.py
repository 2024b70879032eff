"""Cells that a function cut beside the data are those that NumPy, and a direct read, give: the whole way, real servers.

SeaweedFS, `hyperslab serve-function` in a process of its own, and sessions that call it: always, or where that is best.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import h5py
import numcodecs
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from support.arrays import (
    DTYPES,
    Case,
    assert_same,
    cells,
    dtype_of,
    fields_of,
    folder,
    keys,
    picked,
    pointwise,
    stored,
    tries,
    with_fields,
)
from support.arrays import LAYOUTS as ZARR_LAYOUTS
from support.function import FunctionServer
from support.hostile import bound_to
from support.missing import not_installed

import hyperslab as hs
from hyperslab.errors import UnsupportedError
from hyperslab.plan import FunctionProfile, plan

PREFIX = "calls-property"
INTEGERS = np.random.default_rng(3).integers(-90, 90, (11, 14)).astype("<i4")

# Every layout that `support.arrays` knows, every type with one of them, chunks at the edges, some not stored.
_SHAPES = (((9, 7), (4, 3)), ((17,), (5,)), ((7, 6, 5), (3, 2, 5)), ((5, 3), (8, 2)), ((12, 10), (3, 5)))
_ODD = (
    Case("v3", "int16", (), ()),
    Case("v2-zlib", "float64", (5, 0, 3), (2, 1, 2)),
    Case("v2-delta", "int32", (9, 7), (4, 3)),
    Case("v2-shuffle", "complex64", (17,), (5,)),
)
# zarr-python writes some types only in some layouts.
_ONLY = {"grid": ("npy", "npy-f"), "V6": ("v2", "v2-f"), "mixed": ("v2", "v3-zstd")}


def zarr_cases() -> tuple[Case, ...]:
    layouts, cases = [name for name in ZARR_LAYOUTS if name not in ("v2-delta", "v2-shuffle")], [*_ODD]
    for n in range(max(len(layouts), len(DTYPES))):
        layout, dtype = layouts[n % len(layouts)], DTYPES[n % len(DTYPES)]
        if dtype_of(dtype).kind == "V":
            layout = _ONLY.get(dtype, ("v2-zlib", "v3-zstd"))[n % 2]
        written = "all" if layout.startswith("npy") else ("all", "some", "all", "none")[n % 4]
        cases.append(Case(layout, dtype, *_SHAPES[n % len(_SHAPES)], written, ("zero", "odd")[n % 2], n))
    return tuple(cases)


# Codecs beyond those of `support.arrays`: filters and compressor of Zarr v2, and the cells.
CODECS = {
    "gzip": ([], numcodecs.GZip(1), INTEGERS),
    "bz2": ([], numcodecs.BZ2(1), INTEGERS),
    "lzma": ([], numcodecs.LZMA(), INTEGERS),
    "lz4": ([], numcodecs.LZ4(), INTEGERS),
    "blosc-bits": ([], numcodecs.Blosc("zstd", 1, numcodecs.Blosc.BITSHUFFLE), INTEGERS.astype(">f8")),
    "delta": ([numcodecs.Delta("<i4")], numcodecs.Zstd(1), INTEGERS),
    "scale": ([numcodecs.FixedScaleOffset(5, 10, "<f8", "<i2")], numcodecs.Zlib(1), INTEGERS / 10.0),
    "astype": ([numcodecs.AsType("<i2", "<i4")], None, INTEGERS),
    "packbits": ([numcodecs.PackBits()], numcodecs.Zlib(1), INTEGERS > 0),
    "crc32": ([numcodecs.CRC32()], None, INTEGERS),
    "adler32": ([numcodecs.Adler32()], numcodecs.Zstd(1), INTEGERS),
    "fletcher32": ([numcodecs.Fletcher32()], None, INTEGERS),
    "jenkins": ([numcodecs.JenkinsLookup3()], None, INTEGERS),
}

# HDF5: what h5py is told, and the cells. None of the scale-offset ones loses anything.
DATASETS = {
    "contiguous": ({}, INTEGERS),
    "chunked": ({"chunks": (4, 5)}, INTEGERS.astype(">i2")),
    "gzip": ({"chunks": (4, 5), "compression": "gzip", "shuffle": True}, INTEGERS.astype("<f4")),
    "fletcher": ({"chunks": (4, 5), "fletcher32": True}, INTEGERS.astype("<c8")),
    "all": ({"chunks": (3, 14), "compression": "gzip", "shuffle": True, "fletcher32": True}, INTEGERS),
    "scaleoffset": ({"chunks": (4, 5), "scaleoffset": 0}, INTEGERS),
    "fields": ({"chunks": (2, 3), "compression": "gzip"}, cells(dtype_of("grid"), (5, 6))),
}


def codec_array(name: str) -> tuple[Path, np.ndarray]:
    filters, compressor, data = CODECS[name]
    path = folder() / f"codec-{name}"
    array = zarr.create_array(
        str(path), shape=data.shape, chunks=(4, 5), dtype=data.dtype, zarr_format=2, filters=filters,
        compressors=compressor, order="F" if name == "lz4" else "C", overwrite=True,
    )  # fmt: skip
    array[...] = data
    return path, array[...]  # scaled numbers come back rounded


@cache
def datasets() -> Path:
    path = folder() / "calls.h5"
    with h5py.File(path, "w", libver="latest") as file:
        for name, (options, data) in DATASETS.items():
            file.create_dataset(name, data=data, **options)
        file.create_dataset("lzf", data=INTEGERS, chunks=(4, 5), compression="lzf")
        sparse = file.create_dataset("sparse", (20, 9), "i4", chunks=(4, 4), fillvalue=-7, compression="gzip")
        sparse[5:7, 2:6] = 3
    return path


def kept() -> list[tuple[str, Path, np.ndarray]]:
    """Return (address below the folder, file or folder to be stored, cells) of every array."""
    found = [(path.name, path, data) for path, data in map(stored, zarr_cases())]
    found += [(path.name, path, data) for path, data in map(codec_array, CODECS)]
    path = datasets()
    with h5py.File(path) as file:
        return found + [(f"{path.name}/{name}", path, file[name][...]) for name in (*DATASETS, "sparse", "lzf")]


# The names are known before anything is stored, so that Hypothesis can draw them.
NAMES = [
    *[case.name + (".npy" if case.layout.startswith("npy") else "") for case in zarr_cases()],
    *[f"codec-{name}" for name in CODECS],
    *[f"calls.h5/{name}" for name in (*DATASETS, "sparse")],
]
# h5py's own filter, which no function knows.
STAYS = "calls.h5/lzf"

# Profiles that lead to calls for all, some or none of the chunks: latency, bandwidth, the function's own pace.
_QUICK = FunctionProfile(start_s=1e-6, byte_s=1e-12, at_once=3, chunk_s=1e-7)
_MIDDLING = FunctionProfile(start_s=1e-4, byte_s=1e-6, at_once=2, chunk_s=1e-4)
PROFILES = {
    "calls": hs.Profile("calls", 1e-4, (1,), (1e4,), 1, function=_QUICK),
    "mixed": hs.Profile("mixed", 1e-4, (1, 2), (1e6, 2e6), 2, function=_MIDDLING),
    "few": hs.Profile("few", 1e-3, (1, 8), (1e6, 8e6), 8, function=_MIDDLING),
    "many": hs.Profile("many", 1e-4, (1, 2), (1e6, 2e6), 2, function=replace(_MIDDLING, at_once=40)),
}
PHIS = {"few": float("inf")}


@pytest.fixture(scope="module")
def function(s3):
    if not (find_spec("aiohttp") and find_spec("uvicorn")):
        not_installed("functions need aiohttp and uvicorn: pip install 'hyperslab[function]'")
    server = FunctionServer(s3.url(), s3.storage_options)
    yield server
    server.stop()


class Calling:
    """The cells of every array; sessions by the name of their profile; every array opened with each of them."""

    def __init__(self, function: hs.Function) -> None:
        self.function = function
        self.data: dict[str, np.ndarray] = {}
        self.sessions: dict[str, hs.Session] = {}
        self.arrays: dict[tuple[str, str], hs.Array] = {}


@pytest.fixture(scope="module")
def calling(s3, function) -> Iterator[Calling]:
    """Everything stored, and opened."""
    put, opened, done = s3.client().put, Calling(function.function), set()
    for name, path, data in kept():
        opened.data[name] = data
        for each in [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]:
            if each not in done:
                put(f"{PREFIX}/{each.relative_to(path.parent).as_posix()}", each.read_bytes())
                done.add(each)
    assert [*opened.data] == [*NAMES, STAYS]
    with ExitStack() as closing:
        for name, profile in [("direct", None), *PROFILES.items()]:
            opened.sessions[name] = closing.enter_context(
                hs.Session(
                    cache_bytes=0, profile=profile, prices="aws", phi=PHIS.get(name, 0.0), timeout_s=60,
                    function=None if name == "direct" else function.function, concurrency=4,
                )
            )  # fmt: skip
        for name in opened.data:
            url, direct = s3.url(f"{PREFIX}/{name}"), opened.sessions["direct"]
            array = hs.open(url, storage_options=s3.storage_options, session=direct)
            for profile, session in opened.sessions.items():
                opened.arrays[profile, name] = bound_to(session, array)
        yield opened


@contextmanager
def counted(session: hs.Session) -> Iterator[SimpleNamespace]:
    """Say afterwards what was sent meanwhile."""
    before, spent = session.metrics.snapshot(), SimpleNamespace()
    yield spent
    after = session.metrics.snapshot()
    for name in ("calls", "requests", "lookups", "bytes", "call_bytes"):
        setattr(spent, name, getattr(after, name) - getattr(before, name))


names, profiles = st.sampled_from(NAMES), st.sampled_from(sorted(PROFILES))


def test_every_type_and_codec_is_among_them():
    cases = zarr_cases()
    assert {case.layout for case in cases} >= set(ZARR_LAYOUTS)
    assert {case.dtype for case in cases} >= set(DTYPES)
    assert {case.written for case in cases} == {"all", "some", "none"}


@pytest.mark.parametrize("name", NAMES)
def test_every_array_can_be_called_for(calling, name):
    """All of it, and cells farther apart than chunks are long, by calls alone: nothing but indexes is fetched."""
    session, array, data = calling.sessions["calls"], calling.arrays["calls", name], calling.data[name]
    apart = tuple([slice(n // 2, None, chunk + 1) for n, chunk in zip(data.shape, array.chunks, strict=True)])
    for key in (..., apart):
        estimate = array.explain(key, method="call").plan.estimate
        with counted(session) as spent:
            assert_same(array.read(key, method="call"), data[key])
        assert_not_fetched(name, spent)
        # While an index is not known it cannot be told beforehand.
        if not estimate.lookups:
            assert spent.calls == estimate.calls
            assert spent.calls > 0 or not data[key].size or "sparse" in name


def assert_not_fetched(name: str, spent: SimpleNamespace) -> None:
    """Only chunks that are not stored are also asked for: it is the store that is believed there."""
    if "-some-" not in name and "-none-" not in name:
        assert spent.requests == 0
        assert spent.lookups or spent.bytes == spent.call_bytes


@tries(70)
@given(st.data(), names, profiles)
def test_calls_give_what_numpy_and_a_direct_read_give(calling, data, name, profile):
    whole = calling.data[name]
    key, fields = data.draw(keys(whole.shape)), data.draw(fields_of(whole.dtype))
    wanted = picked(whole, key, fields)
    array, key = calling.arrays[profile, name], with_fields(key, fields)
    assert_same(calling.arrays["direct", name].read(key), wanted)
    with counted(calling.sessions[profile]) as spent:
        assert_same(array.read(key, method="call"), wanted)
    assert_not_fetched(name, spent)
    assert_same(array.read(key), wanted)


@tries(40)
@given(st.data(), st.lists(names, min_size=1, max_size=2), st.sampled_from([None, "call"]))
def test_bands_of_chunks(calling, data, some, method):
    """Chunks in as many bands as there are cells, cut by several calls, or by requests beside them."""
    drawn = [(name, data.draw(keys(calling.data[name].shape))) for name in some]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "_LEAST_BAND_BYTES", 1)
        found = hs.read_many([(calling.arrays["many", name], key) for name, key in drawn], method=method)
    for (name, key), result in zip(drawn, found, strict=True):
        assert_same(result, picked(calling.data[name], key))


@tries(25)
@given(st.data(), names, profiles)
def test_points_and_masks(calling, data, name, profile):
    whole, array = calling.data[name], calling.arrays[profile, name]
    index = data.draw(pointwise(whole.shape))
    assert_same(array.points[index], whole[index])
    if whole.ndim:
        mask = np.random.default_rng(data.draw(st.integers(0, 9))).random(whole.shape) < 0.2
        assert_same(array.read(mask, method="call"), whole[mask])
        assert_same(array.read(mask), whole[mask])


@tries(20)
@given(st.data(), st.lists(names, min_size=2, max_size=5), profiles, st.sampled_from([None, "call"]))
def test_several_arrays_in_one_plan(calling, data, some, profile, method):
    drawn = [(name, data.draw(keys(calling.data[name].shape))) for name in some]
    found = hs.read_many([(calling.arrays[profile, name], key) for name, key in drawn], method=method)
    for (name, key), result in zip(drawn, found, strict=True):
        assert_same(result, picked(calling.data[name], key))


def test_what_does_not_travel_is_fetched(calling):
    array, data = calling.arrays["calls", STAYS], calling.data[STAYS]
    with counted(calling.sessions["calls"]) as spent, pytest.raises(UnsupportedError, match="method 'call'"):
        array.read(method="call")
    assert not spent.requests
    other = "v3-blosc-int64-7x6x5-by-3x2x5-none-odd-7"
    with counted(calling.sessions["calls"]) as spent:
        found = hs.read_many([(array, np.s_[::3]), (calling.arrays["calls", other], np.s_[..., 1])])
    assert_same(found[0], data[::3])
    assert_same(found[1], calling.data[other][..., 1])
    assert spent.calls > 0
    assert spent.requests > 0


def test_compressed_answers(calling, s3):
    name = "codec-gzip"
    function = hs.Function(calling.function.url, key=calling.function.key, compress=True)
    with hs.Session(cache_bytes=0, function=function, profile=PROFILES["calls"]) as session:
        array = hs.open(s3.url(f"{PREFIX}/{name}"), storage_options=s3.storage_options, session=session)
        assert_same(array.read(method="call"), calling.data[name])
        assert session.metrics.calls > 0
