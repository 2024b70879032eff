"""Compressors that a user chooses: every reader reads them, every change keeps them, checksums stay."""

import json

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

import hyperslab as hs
from hyperslab.errors import IntegrityError, InvalidInputError
from hyperslab.formats.zarr.compression import compression_of, parse_compressor
from hyperslab.layout.compression import DEFAULT, Compression
from hyperslab.tune.sample import measure_shrink

CHOICES = [
    ("zstd", None), ("zstd:7", False), ("zstd", True), ("zstd:9", True), ("lz4", None), ("lz4:1", True), ("gzip", None),
    ("gzip:9", True), ("blosc", None), ("blosc:2", False), (None, None), (None, False),
]  # fmt: skip
# Those that all other readers have.
NUMBERS = ("u1", "i2", "i4", "u8", "f4", "f8", "bool")


def codecs_in(folder) -> list[dict]:
    codecs = json.loads((folder / "zarr.json").read_text())["codecs"]
    return codecs[0]["configuration"]["codecs"] if codecs[0]["name"] == "sharding_indexed" else codecs


def cells_of(dtype, shape, seed):
    return np.random.default_rng(seed).integers(0, 2 if dtype == "bool" else 100, shape).astype(dtype)


def read_by_zarrs(path):
    pytest.importorskip("zarrs")
    with zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"}):
        return zarr.open_array(path, mode="r")[...]


def read_by_tensorstore(path):
    tensorstore = pytest.importorskip("tensorstore")
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{path}/"}}
    return tensorstore.open(spec, read=True).result().read().result()


@given(
    st.sampled_from(CHOICES), st.sampled_from(NUMBERS), st.lists(st.integers(1, 30), min_size=1, max_size=3),
    st.booleans(), st.integers(0, 2**32),
)  # fmt: skip
def test_others_read_what_was_written_and_changed(tmp_path_factory, choice, dtype, shape, sharded, seed):
    folder = tmp_path_factory.mktemp("compressed")
    compressor, shuffle = choice
    cells = cells_of(dtype, shape, seed)
    sizes = {"chunks": [3] * len(shape), "shards": [6] * len(shape) if sharded else False}
    array = hs.save(folder, cells, compressor=compressor, shuffle=shuffle, **sizes)
    array[1:2] = cells[:1]
    cells[1:2] = cells[:1] if shape[0] > 1 else cells[1:2]
    array.append(cells[:1])
    cells = np.concatenate([cells, cells[:1]])
    assert codecs_in(folder)[-1]["name"] == "crc32c"
    assert np.array_equal(hs.open(folder)[...], cells)
    for found in (zarr.open_array(folder, mode="r")[...], read_by_zarrs(folder), read_by_tensorstore(folder)):
        assert np.array_equal(found, cells)


@given(st.sampled_from(CHOICES[:-2]), st.sampled_from((*NUMBERS, "U3", "S5", "c16", "M8[s]")), st.integers(0, 2**32))
def test_what_zarr_python_writes_with_these_codecs_we_read_and_change(tmp_path_factory, choice, dtype, seed):
    folder = tmp_path_factory.mktemp("theirs")
    cells = cells_of(dtype if dtype != "M8[s]" else "i8", (20, 7), seed).astype(dtype)
    made = hs.create(folder, (20, 7), dtype, chunks=(5, 4), compressor=choice[0], shuffle=choice[1])
    theirs = zarr.open_array(folder, mode="r+")
    theirs[...] = cells
    made.refresh()
    assert np.array_equal(made[...], cells)
    made[3:9] = cells[:6]
    cells[3:9] = cells[:6].copy()
    assert np.array_equal(zarr.open_array(folder, mode="r")[...], cells)


def blosc(inner, level, typesize):
    shuffle = "shuffle" if typesize > 1 else "noshuffle"
    return {"typesize": typesize, "cname": inner, "clevel": level, "shuffle": shuffle, "blocksize": 0}


@pytest.mark.parametrize(
    ("choice", "codec"),
    [
        (("zstd", None), ("zstd", {"level": 1, "checksum": False})),
        (("zstd:12", None), ("zstd", {"level": 12, "checksum": False})),
        (("gzip:3", None), ("gzip", {"level": 3})),
        (("zstd:3", True), ("blosc", blosc("zstd", 3, 4))),
        (("lz4", None), ("blosc", blosc("lz4", 5, 1))),
        (("blosc", None), ("blosc", blosc("zstd", 5, 4))),
    ],
)
def test_names_and_their_codecs(tmp_path, choice, codec):
    hs.save(tmp_path / "a", np.arange(9, dtype="i4"), compressor=choice[0], shuffle=choice[1])
    assert codecs_in(tmp_path / "a")[1:] == [{"name": codec[0], "configuration": codec[1]}, {"name": "crc32c"}]


def test_there_is_nothing_to_shuffle_in_single_bytes():
    for dtype in ("u1", "S9", "V300"):
        assert parse_compressor("zstd", True, np.dtype(dtype)) == DEFAULT
    assert parse_compressor("zstd", True, np.dtype("U3")).typesize == 4


@pytest.mark.parametrize(
    "settings",
    [
        {"compressor": "brotli"}, {"compressor": "zstd:0"}, {"compressor": "zstd:23"}, {"compressor": "gzip:x"},
        {"compressor": "zstd:"}, {"compressor": 3}, {"compressor": ["zstd"]},
        {"compressor": "zstd:10", "shuffle": True}, {"compressor": None, "shuffle": True}, {"shuffle": "bit"},
        {"compressor": "lz4", "layout": "plain"},
        {"shuffle": True, "layout": "plain"}, {"compressor": "same"}, {"compressor": "zstd:" + "9" * 5000},
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_before_anything_is_stored(tmp_path, settings):
    with pytest.raises(InvalidInputError):
        hs.save(tmp_path / "a", np.arange(9, dtype="i4"), **settings)
    assert not (tmp_path / "a").exists() or not list((tmp_path / "a").iterdir())


def test_blosc_takes_no_chunks_that_are_too_large(tmp_path):
    with pytest.raises(InvalidInputError, match="2 GiB"):
        hs.create(tmp_path / "a", (1 << 30,), "f4", chunks=(1 << 30,), shards=False, compressor="blosc")


def test_plain_arrays_take_no_compressor_without_a_complaint(tmp_path):
    array = hs.save(tmp_path / "a", np.arange(9), layout="plain", compressor=None)
    assert [each["name"] for each in codecs_in(tmp_path / "a")] == ["bytes"]
    assert np.array_equal(array[...], np.arange(9))


@pytest.mark.parametrize(("compressor", "shuffle"), [("lz4", True), ("gzip:7", None), (None, None), ("zstd:4", None)])
def test_changing_the_layout_keeps_the_compressor(tmp_path, compressor, shuffle):
    cells = np.arange(4000, dtype="i4").reshape(40, 100)
    array = hs.save(tmp_path / "a", cells, chunks=(10, 10), compressor=compressor, shuffle=shuffle)
    before = codecs_in(tmp_path / "a")
    changed = hs.rechunk(array, chunks=(40, 4))
    assert changed.chunks == (40, 4)
    beside = hs.rechunk(changed, tmp_path / "b", chunks=(5, 100))
    for found, folder in ((changed, tmp_path / "a"), (beside, tmp_path / "b")):
        assert codecs_in(folder) == before
        assert np.array_equal(found[...], cells)
    other = hs.rechunk(beside, tmp_path / "c", compressor="zstd", shuffle=True)
    assert codecs_in(tmp_path / "c")[1]["configuration"]["cname"] == "zstd"
    assert np.array_equal(other[...], cells)
    hs.copy(other, tmp_path / "d")
    assert codecs_in(tmp_path / "d")[1]["name"] == "zstd"
    with pytest.raises(InvalidInputError, match="name that as well"):
        hs.rechunk(other, tmp_path / "e", shuffle=True)


def test_shards_tell_how_long_their_chunks_are_whatever_compresses_them(tmp_path):
    cells = np.arange(40_000, dtype="i4").reshape(200, 200)
    for number, (compressor, shuffle) in enumerate(CHOICES):
        array = hs.save(
            tmp_path / str(number), cells, chunks=(20, 20), shards=(100, 100), compressor=compressor, shuffle=shuffle
        )
        assert array.source.layout.told is not None
        assert hs.open(tmp_path / str(number)).source.layout.complete


@pytest.mark.parametrize(("compressor", "shuffle"), CHOICES)
def test_damage_is_found_whatever_compresses(tmp_path, compressor, shuffle):
    cells = np.arange(400, dtype="i4")
    hs.save(tmp_path / "a", cells, shards=False, compressor=compressor, shuffle=shuffle)
    (stored,) = [each for each in (tmp_path / "a").rglob("*") if each.is_file() and each.name != "zarr.json"]
    data = bytearray(stored.read_bytes())
    data[len(data) // 2] ^= 4
    stored.write_bytes(bytes(data))
    with pytest.raises(IntegrityError):
        hs.open(tmp_path / "a")[...]


def test_advice_measures_with_the_compressor_that_the_array_has(tmp_path):
    cells = np.random.default_rng(1).integers(0, 300, (256, 256)).astype("i8")
    shares = {}
    for compressor, shuffle in (("zstd", None), ("zstd", True), (None, None)):
        array = hs.save(tmp_path / "a", cells, compressor=compressor, shuffle=shuffle, overwrite=True)
        shares[compressor, shuffle] = measure_shrink([cells], array.source.compression).of(1 << 16)
    assert shares["zstd", True] < 0.9 * shares["zstd", None]
    assert shares[None, None] == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize(
    "config",
    [
        {"cname": "zstd", "clevel": 5, "shuffle": "other", "typesize": 4}, {"cname": ["zstd"], "clevel": 5},
        {"cname": "zstd", "clevel": "5", "shuffle": "shuffle"}, {"cname": "zstd", "clevel": 10, "shuffle": "shuffle"},
        {"cname": "zstd", "clevel": 5, "shuffle": "shuffle", "typesize": 0},
        {"cname": "zstd", "clevel": 1, "shuffle": 1},
        {"cname": "zstd", "clevel": 5, "shuffle": "shuffle", "typesize": 4, "blocksize": 1 << 40},
    ],
)  # fmt: skip
def test_codecs_that_are_not_ours_are_left_to_zarr_python(config):
    assert compression_of([("blosc", config)]) is None
    assert compression_of([("zstd", {"level": 1}), ("gzip", {"level": 1})]) is None
    assert compression_of([("zstd", {"level": 3}), ("crc32c", {})]) == (Compression("zstd", 3), True)
