"""Filter pipelines: cells as h5py reads them, whatever filters a chunk went through or skipped."""

import io
import itertools
import pickle
import subprocess
import sys
import zlib
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import times

from hyperslab.errors import ChunkSizeError, HyperslabError, IntegrityError, MetadataError, UnsupportedError
from hyperslab.formats.hdf5.filters import Hdf5Decoder, filter_names, hdf5_decoder
from hyperslab.formats.hdf5.messages import FilterMessage
from hyperslab.formats.hdf5.plugin import PluginFilter

KEY = "file.h5/a/0.1"


class Chunk:
    """One chunk that h5py wrote: its stored bytes, its filters, and what h5py reads back."""

    def __init__(self, cells: np.ndarray, **options: Any) -> None:
        with h5py.File("in-memory", "w", driver="core", backing_store=False) as file:
            data = file.create_dataset("a", cells.shape, cells.dtype, chunks=cells.shape, **options)
            data[...] = cells
            file.flush()
            image = bytes(file.id.get_file_image())
        # Opened again: else h5py gives back what it was given.
        with h5py.File(io.BytesIO(image), "r") as file:
            data = file["a"]
            plist = data.id.get_create_plist()
            found = [plist.get_filter(number) for number in range(plist.get_nfilters())]
            self.filters = tuple(FilterMessage(i, name.decode(), bool(flags & 1), v) for i, flags, v, name in found)
            self.mask, self.stored = data.id.read_direct_chunk((0,) * cells.ndim)
            self.cells = data[...]

    def decoder(self) -> Hdf5Decoder:
        return hdf5_decoder(self.filters, self.cells.shape, self.cells.dtype)

    def decode(self, stored: bytes | None = None) -> np.ndarray:
        stored = self.stored if stored is None else stored
        return self.decoder().for_mask(self.mask).decode(memoryview(stored), KEY)

    def check(self) -> None:
        found = self.decode()
        assert (found.dtype, found.shape) == (self.cells.dtype, self.cells.shape)
        assert found.tobytes() == self.cells.tobytes()
        assert len(self.stored) <= self.decoder().encoded.nbytes


def smooth(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    """Return cells that compress well but not at once."""
    dtype_ = np.dtype(dtype)
    steps = np.random.default_rng(seed).integers(0, 3, shape).cumsum()
    if dtype_.kind == "S":
        return steps.astype(dtype).reshape(shape)
    if dtype_.kind == "V":
        width = dtype_.itemsize
        return np.repeat(steps.astype("u1"), width).view(dtype).reshape(shape)
    return (steps % 100).astype(dtype).reshape(shape)


BUILT_IN = {
    "gzip": {"compression": "gzip"},
    "gzip-shuffle": {"compression": "gzip", "shuffle": True},
    "gzip-shuffle-fletcher": {"compression": 1, "shuffle": True, "fletcher32": True},
    "shuffle": {"shuffle": True},
    "fletcher": {"fletcher32": True},
    "lzf": {"compression": "lzf"},
    "lzf-shuffle-fletcher": {"compression": "lzf", "shuffle": True, "fletcher32": True},
    "szip": {"compression": "szip"},
    "scaleoffset": {"scaleoffset": 2},
    "scaleoffset-gzip-shuffle": {"scaleoffset": 2, "compression": "gzip", "shuffle": True},
    "scaleoffset-lzf": {"scaleoffset": 2, "compression": "lzf"},
}
NUMBERS = ["<i2", ">i4", "<u8", "u1", "<f4", ">f8"]


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("name", BUILT_IN)
def test_filters_of_h5py(name, dtype):
    for shape in ((64,), (9, 32)) if name == "szip" else ((1,), (7, 5), (3, 50, 11)):
        Chunk(smooth(shape, dtype), **BUILT_IN[name]).check()


@pytest.mark.parametrize(
    "dtype", ["S1", "S5", "V16", "V300", "V3", [("a", "<i4"), ("b", "S3")], "<c16", "bool"], ids=str
)
@pytest.mark.parametrize("name", [name for name in BUILT_IN if "scale" not in name and name != "szip"])
def test_filters_of_other_cells(name, dtype):
    if isinstance(dtype, list):
        cells = np.zeros((40, 3), dtype)
        cells["a"], cells["b"] = np.arange(120).reshape(40, 3), b"xyz"
    else:
        cells = smooth((40, 3), dtype)
    Chunk(cells, **BUILT_IN[name]).check()


@settings(max_examples=times(200), deadline=None)
@given(data=st.data())
def test_any_pipeline(data):
    dtype = np.dtype(data.draw(st.sampled_from([*NUMBERS, "i1", "<i8", "<u2", ">u4"])))
    shape = tuple(data.draw(st.lists(st.integers(1, 12), min_size=1, max_size=3)))
    options: dict[str, Any] = {
        "compression": data.draw(st.sampled_from([None, 1, 9, "lzf"])),
        "shuffle": data.draw(st.booleans()),
        "fletcher32": data.draw(st.booleans()),
    }
    seed = data.draw(st.integers(0, 1000))
    if dtype.kind == "f":
        cells = (np.random.default_rng(seed).normal(size=shape) * 10.0 ** data.draw(st.integers(-2, 5))).astype(dtype)
    else:
        info = np.iinfo(dtype)
        low = data.draw(st.integers(info.min, info.max))
        high = data.draw(st.integers(low, info.max) | st.integers(low, min(low + 9, info.max)))
        native = dtype.newbyteorder("=")
        cells = np.random.default_rng(seed).integers(low, high, shape, native, endpoint=True).astype(dtype)
    if data.draw(st.booleans()):
        most = 8 * dtype.itemsize if dtype.kind != "f" else 6
        options |= {"scaleoffset": data.draw(st.integers(0, most)), "fletcher32": False}
    if data.draw(st.booleans()):
        options["fillvalue"] = data.draw(st.sampled_from([cells.flat[0], dtype.type(0)]))
    if not any(options.get(name) for name in ("compression", "shuffle", "fletcher32")):
        options["shuffle"] = True
    Chunk(cells, **options).check()


def test_numbers_in_as_many_bits_as_they_have():
    for dtype in ("<i4", ">u2", "u1"):
        Chunk(smooth((30,), dtype), scaleoffset=8 * np.dtype(dtype).itemsize).check()


@pytest.mark.parametrize("name", ["gzip-shuffle-fletcher", "lzf-shuffle-fletcher", "scaleoffset-gzip-shuffle"])
def test_chunks_that_skipped_filters(name):
    chunk = Chunk(smooth((30, 10), "<i4"), **BUILT_IN[name])
    count = len(chunk.filters)
    decoder = chunk.decoder()
    for mask in range(1 << count):
        kept = [each for bit, each in enumerate(chunk.filters) if not mask >> bit & 1]
        # What those filters alone make of the same cells.
        other = Chunk(smooth((30, 10), "<i4"), **options_of(kept))
        found = decoder.for_mask(mask).decode(memoryview(other.stored), KEY)
        assert found.tobytes() == other.cells.tobytes()
        assert len(other.stored) <= decoder.encoded.nbytes
    assert decoder.for_mask(1) is decoder.for_mask(1 | 1 << 20)
    assert decoder.for_mask(0) is decoder.for_mask(1 << count) is decoder
    assert not decoder.encoded.exact


def options_of(filters: list[FilterMessage]) -> dict[str, Any]:
    known = {1: {"compression": "gzip"}, 2: {"shuffle": True}, 3: {"fletcher32": True}, 6: {"scaleoffset": 2}}
    found: dict[str, Any] = {}
    for each in filters:
        found |= known.get(each.id, {"compression": "lzf"})
    return found


def test_h5py_agrees_about_masks():
    cells = smooth((40,), "<i2")
    shuffled = cells.view("u1").reshape(40, 2).T.tobytes()
    stored = [zlib.compress(shuffled), zlib.compress(cells.tobytes()), shuffled, cells.tobytes()]
    with h5py.File("in-memory", "w", driver="core", backing_store=False) as file:
        data = file.create_dataset("a", (160,), "<i2", chunks=(40,), compression="gzip", shuffle=True)
        for mask, each in enumerate(stored):
            data.id.write_direct_chunk((40 * mask,), each, filter_mask=mask)
        np.testing.assert_array_equal(data[...], np.tile(cells, 4))
    filters = (FilterMessage(2, "shuffle", False, (2,)), FilterMessage(1, "deflate", False, (4,)))
    decoder = hdf5_decoder(filters, (40,), cells.dtype)
    for mask, each in enumerate(stored):
        np.testing.assert_array_equal(decoder.for_mask(mask).decode(memoryview(each), KEY), cells)


def plugins() -> Any:
    return pytest.importorskip("hdf5plugin")


def plugin_options() -> dict[str, Any]:
    """Return the plugins that give back what they were given, by name."""
    try:
        import hdf5plugin as plugin
    except ImportError:
        return {}
    found = {f"blosc-{name}": plugin.Blosc(cname=name) for name in ("blosclz", "lz4", "lz4hc", "zlib", "zstd")}
    found |= {f"blosc-shuffle{n}": plugin.Blosc(shuffle=n) for n in (0, 1, 2)}
    found |= {f"lz4-{nbytes}": plugin.LZ4(nbytes=nbytes) for nbytes in (0, 16, 1000)}
    pairs = itertools.product(("none", "lz4", "zstd"), (0, 8, 64))
    found |= {f"bitshuffle-{name}-{n}": plugin.Bitshuffle(nelems=n, cname=name) for name, n in pairs}
    found |= {
        "zstd": plugin.Zstd(),
        "bzip2": plugin.BZip2(),
        "blosc2": plugin.Blosc2(),
        "zfp": plugin.Zfp(reversible=True),
    }
    return found


PLUGINS = plugin_options()


@pytest.mark.skipif(not PLUGINS, reason="hdf5plugin is not installed")
@pytest.mark.parametrize("name", PLUGINS)
def test_plugins(name):
    numbers_only = name in ("zfp", "blosc2")
    for dtype in ("<f4", "<f8") if numbers_only else ("u1", ">i2", "<f4", "<f8", "S5", "V16", "V300"):
        for shape in ((4, 4), (50, 41)) if numbers_only else ((1,), (9,), (50, 41)):
            Chunk(smooth(shape, dtype), **PLUGINS[name]).check()


@pytest.mark.skipif(not PLUGINS, reason="hdf5plugin is not installed")
@pytest.mark.parametrize("name", ["Zfp", "SZ3", "Sperr", "SZ"])
def test_plugins_that_lose_digits(name):
    plugin = plugins()
    options = {"Zfp": {"accuracy": 0.1}, "SZ3": {"absolute": 0.1}, "Sperr": {"rate": 8}, "SZ": {"absolute": 0.1}}[name]
    cells = np.sin(np.arange(64 * 64) / 99).astype("<f4").reshape(64, 64)
    Chunk(cells, **getattr(plugin, name)(**options)).check()


def test_what_is_done_here_and_what_in_another_process():
    ours = (1, 2, 3, 307, 32001, 32004, 32015)
    for number in ours:
        (codec,) = hdf5_decoder((FilterMessage(number, "", False, (4,)),), (8,), np.dtype("<i4")).codecs
        assert not isinstance(codec, PluginFilter)
    for number in (4, 5, 32000, 32013, 32026, 60000):
        (codec,) = hdf5_decoder((FilterMessage(number, "", False, (4,)),), (8,), np.dtype("<i4")).codecs
        assert isinstance(codec, PluginFilter)


def test_decoders_pickle():
    chunk = Chunk(smooth((30, 10), "<i4"), **BUILT_IN["scaleoffset-gzip-shuffle"])
    decoder = pickle.loads(pickle.dumps(chunk.decoder()))
    assert decoder == chunk.decoder()
    np.testing.assert_array_equal(decoder.decode(memoryview(chunk.stored), KEY), chunk.cells)


def test_names():
    chunk = Chunk(smooth((30, 10), "<i4"), **BUILT_IN["lzf-shuffle-fletcher"])
    assert filter_names(chunk.filters) == ("shuffle", "lzf", "fletcher32")


@pytest.mark.parametrize(
    ("number", "values", "error"),
    [
        (2, (0,), MetadataError),
        (6, (), MetadataError),
        (6, (2, 0, 8, 0, 4, 1, 0), MetadataError),
        (6, (2, 0, 9, 0, 4, 1, 0, 0), MetadataError),
        (6, (2, 0, 8, 2, 4, 1, 0, 0), MetadataError),
        (6, (2, 0, 10, 0, 3, 1, 0, 0), MetadataError),
        (6, (2, 0, 8, 0, 4, 1, 2, 0), MetadataError),
        (6, (0, 0, 16, 1, 2, 1, 0, 0), MetadataError),
        (6, (2, 0, 8, 0, 4, 1, 0, 1), MetadataError),
        (6, (1, 2, 8, 1, 4, 1, 0, 0), UnsupportedError),
        (6, (0, 100000, 8, 1, 4, 1, 0, 0), MetadataError),
        (32008, (0, 4), MetadataError),
        (32008, (0, 4, 0), MetadataError),
        (32008, (0, 4, 4, 0, 9), UnsupportedError),
    ],
)
def test_values_that_are_wrong(number, values, error):
    with pytest.raises(error):
        hdf5_decoder((FilterMessage(number, "", False, values),), (8,), np.dtype("<i4"))


def test_scaleoffset_of_what_was_compressed_is_told():
    filters = (FilterMessage(1, "", False, (4,)), FilterMessage(6, "", False, (2, 0, 8, 0, 4, 1, 0, 0)))
    with pytest.raises(UnsupportedError):
        hdf5_decoder(filters, (8,), np.dtype("<i4"))


DAMAGED = {
    name: Chunk(smooth((40, 13), "<i4"), **options)
    for name, options in {
        **{name: BUILT_IN[name] for name in BUILT_IN if "lzf" not in name and name != "szip"},
        **{name: options for name, options in PLUGINS.items() if name not in ("blosc2", "zfp")},
    }.items()
}


@settings(max_examples=times(250, 50_000), deadline=None)
@given(name=st.sampled_from(sorted(DAMAGED)), data=st.data())
def test_damaged_chunks_have_the_right_size_or_a_typed_error(name, data):
    chunk = DAMAGED[name]
    stored = bytearray(chunk.stored)
    near = st.integers(0, min(40, len(stored) - 1)) | st.integers(0, len(stored) - 1)
    for at in data.draw(st.lists(near, min_size=1, max_size=6)):
        stored[at] = data.draw(st.sampled_from([0, 1, 2, 127, 128, 255]) | st.integers(0, 255))
    if data.draw(st.booleans()):
        at = data.draw(near)
        stored[at : at + 4] = data.draw(st.sampled_from([b"\xff" * 4, b"\0" * 4, b"\x7f\xff\xff\xff", b"\0\0\0\x80"]))
    stored = stored[: data.draw(st.just(len(stored)) | near)]
    try:
        found = chunk.decode(bytes(stored))
    except HyperslabError:
        return
    assert (found.dtype, found.shape) == (chunk.cells.dtype, chunk.cells.shape)
    if "fletcher" in name:
        np.testing.assert_array_equal(found, chunk.cells)


@pytest.mark.parametrize("name", sorted(DAMAGED))
def test_what_is_cut_off_is_told(name):
    chunk = DAMAGED[name]
    for keep in (0, 1, 3, 4, 11, 12, 15, 16, 20, 24, len(chunk.stored) // 2, len(chunk.stored) - 1):
        if name.startswith("scaleoffset") and len(chunk.filters) == 1 and keep == len(chunk.stored) - 1:
            continue  # HDF5 stores a byte more than it needs
        with pytest.raises((IntegrityError, ChunkSizeError), match=KEY):
            chunk.decode(chunk.stored[:keep])


BOMBS = """
import resource, sys, zlib, bz2, struct
import numcodecs, numpy as np
from hyperslab.errors import HyperslabError
from hyperslab.formats.hdf5.filters import hdf5_decoder
from hyperslab.formats.hdf5.messages import FilterMessage
name = sys.argv[1]
zeros = bytes(32 << 20)
deflated = zlib.compressobj(1)
block = numcodecs.LZ4().encode(zeros)[4:]
block = struct.pack(">I", len(block)) + block
frame = bytearray(numcodecs.Zstd().encode(zeros))
frame[5:9] = struct.pack("<I", 4096)
bits = (0, 4, 4, 0, 2)
match name:
    case "deflate":
        number, values, bomb = 1, (4,), b"".join(deflated.compress(zeros) for _ in range(8)) + deflated.flush()
    case "bzip2": number, values, bomb = 307, (9,), bz2.compress(zeros) * 64
    case "blosc": number, values, bomb = 32001, (), numcodecs.Blosc("zstd").encode(bytes(1 << 28))
    case "zstd": number, values, bomb = 32015, (), numcodecs.Zstd().encode(bytes(1 << 28))
    case "zstd-small": number, values, bomb = 32015, (), bytes(frame)
    case "lz4": number, values, bomb = 32004, (), struct.pack(">QI", 40 << 25, 1 << 25) + 40 * block
    case "lz4-small": number, values, bomb = 32004, (), struct.pack(">QI", 4096, 4096) + block
    case "bitshuffle": number, values, bomb = 32008, bits, struct.pack(">QI", 1 << 25, 1 << 25) + block
    case "bitshuffle-small": number, values, bomb = 32008, bits, struct.pack(">QI", 4096, 1 << 25) + block
    case "scaleoffset": number, values, bomb = 6, (2, 0, 1024, 0, 4, 1, 0, 0), bytes([0]) * 21
decoder = hdf5_decoder((FilterMessage(number, "", False, values),), (1024,), np.dtype("<i4"))
del zeros
pages = int(open("/proc/self/statm").read().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (pages + (64 << 20), -1))
try:
    decoder.decode(memoryview(bomb), "k")
    print("decoded")
except HyperslabError as error:
    print(type(error).__name__)
"""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("deflate", "ChunkSizeError"),
        ("bzip2", "ChunkSizeError"),
        ("blosc", "ChunkSizeError"),
        ("zstd", "ChunkSizeError"),
        ("zstd-small", "ChunkSizeError"),
        ("lz4", "ChunkSizeError"),
        ("lz4-small", "IntegrityError"),
        ("bitshuffle", "ChunkSizeError"),
        ("bitshuffle-small", "IntegrityError"),
        ("scaleoffset", "decoded"),
    ],
)
def test_bombs_are_refused_within_the_memory_of_a_chunk(name, expected):
    done = subprocess.run([sys.executable, "-c", BOMBS, name], capture_output=True, text=True, timeout=100, check=False)
    assert done.stdout.split() == [expected], done.stderr[-2000:]
