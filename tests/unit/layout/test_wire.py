"""Codecs and types as JSON: what goes out comes back, and nothing else comes in."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.arrays import DTYPES, dtype_of

from hyperslab.errors import HyperslabError, MetadataError, UnsupportedError
from hyperslab.formats.hdf5.plugin import PluginFilter
from hyperslab.layout import Layout, SingleKey
from hyperslab.layout.checksums import Checksum
from hyperslab.layout.codecs import chunk_decoder
from hyperslab.layout.compressors import Blosc, Bz2, Lz4, Lzma, Zlib, Zstd
from hyperslab.layout.filters import PackBits, Retype, Shuffle, Transpose
from hyperslab.layout.hdf5_blocks import BitShuffle, BlockLz4
from hyperslab.layout.hdf5_filters import Deflate, Fletcher32, ScaleOffset
from hyperslab.layout.wire import codecs_from_json, codecs_to_json, dtype_from_json, dtype_to_json, travels

I2, F4 = np.dtype("<i2"), np.dtype(">f4")
CODECS = [
    Zlib("zlib"),
    Zlib("gzip"),
    Bz2(),
    Lzma(),
    Lzma(3, ((("id", 3), ("dist", 2)), (("id", 33), ("preset", 1)))),
    Lz4(),
    Zstd(),
    Blosc(),
    Shuffle(8),
    PackBits(),
    Transpose((3, 4), (1, 0), 8),
    Retype("delta", I2, I2),
    Retype("astype", np.dtype("M8[s]"), np.dtype("<i8")),
    Retype("fixedscaleoffset", F4, I2, (("offset", 1.5), ("scale", 10))),
    Retype("quantize", F4, np.dtype("<f2"), (("digits", 3),)),
    *[Checksum(name) for name in ("adler32", "crc32", "crc32c", "fletcher32", "jenkins_lookup3")],
    Checksum("jenkins_lookup3", "start", 2**32 - 1),
    Deflate(),
    Fletcher32(),
    ScaleOffset(np.dtype(">u4"), None, b"\x01\x02\x03\x04"),
    ScaleOffset(np.dtype("<f8"), -3, None),
    BlockLz4(),
    BitShuffle(4, 0, "lz4"),
    BitShuffle(2, 64, "none"),
]


def through_json(spec):
    return json.loads(json.dumps(spec))


@pytest.mark.parametrize("codec", CODECS, ids=repr)
def test_codecs_come_back(codec):
    assert codecs_from_json(through_json(codecs_to_json([codec]))) == (codec,)


def test_a_chain_keeps_its_order():
    assert codecs_from_json(through_json(codecs_to_json(CODECS))) == tuple(CODECS)


def test_a_plugin_stays_at_home():
    with pytest.raises(UnsupportedError, match="'zfp' is not one that travels"):
        codecs_to_json([Zstd(), PluginFilter(32013, "zfp", ())])


@pytest.mark.parametrize(
    "dtype",
    [
        *[dtype_of(name) for name in DTYPES],
        np.dtype((">i4", (2, 3))),
        np.dtype({"names": ["b", "a"], "formats": ["<i2", "u1"], "offsets": [4, 1], "itemsize": 9}),
        np.dtype([("é", [("x", "<f4", (2,)), ("y", "V3")], (3,))]),
    ],
    ids=str,
)
def test_types_come_back(dtype):
    assert dtype_from_json(through_json(dtype_to_json(dtype))) == dtype


@pytest.mark.parametrize("dtype", [np.dtype(object), np.dtype([("a", object)]), np.dtype("g")])
def test_types_that_stay_at_home(dtype):
    with pytest.raises(UnsupportedError):
        dtype_to_json(dtype)


def nested(depth):
    spec = "<i2"
    for _ in range(depth):
        spec = {"base": spec, "shape": [1]}
    return spec


@pytest.mark.parametrize(
    "spec",
    [
        None, 7, True, [], {}, "O", "|O", "object", "<i3", "i4", "<f16", "<U99999999999", "|S0", "|V4294967296",
        "<U2147483647",
        "<M8[0s]", "<M8[99999999999s]", "<M8[x]", "<i4" * 30, ["<i4"], {"base": "<i4"}, nested(17),
        {"base": "<i4", "shape": []}, {"base": "<i4", "shape": [0]}, {"base": "<i4", "shape": [-1]},
        {"base": "<i4", "shape": [True]}, {"base": "<i4", "shape": [2**40]}, {"base": "<i4", "shape": [1] * 65},
        {"fields": [], "nbytes": 4}, {"fields": [["a", "<i4", 1]], "nbytes": 4},
        {"fields": [["a", "<i4", -1]], "nbytes": 8},
        {"fields": [["a", "<i4", 0]], "nbytes": 2**40}, {"fields": [["", "<i4", 0]], "nbytes": 4},
        {"fields": [["a", "<i4", 0], ["a", "<i4", 4]], "nbytes": 8}, {"fields": [[1, "<i4", 0]], "nbytes": 4},
        {"fields": [["a", "<i4"]], "nbytes": 4}, {"fields": [["a" * 2000, "<i4", 0]], "nbytes": 4},
        {"fields": [[str(n), "u1", 0] for n in range(5000)], "nbytes": 4}, {"fields": "abc", "nbytes": 4},
        {"fields": [["a", "|O", 0]], "nbytes": 8}, {"fields": [["a", "<i4", 0.0]], "nbytes": 4},
    ],
    ids=lambda spec: repr(spec)[:40],
)  # fmt: skip
def test_bad_types_are_refused(spec):
    with pytest.raises((MetadataError, UnsupportedError)):
        dtype_from_json(spec)


RETYPE = {"codec": "delta", "decoded": "<i2", "encoded": "<i2", "options": {}}


@pytest.mark.parametrize(
    "spec",
    [
        None, "zstd", {}, {"codec": None}, {"codec": "pickle"}, {"codec": ["zstd"]}, {"codec": "zstd", "level": 3},
        {"name": "zstd"}, {"codec": "shuffle"}, {"codec": "shuffle", "cell_nbytes": 0},
        {"codec": "shuffle", "cell_nbytes": 2.0}, {"codec": "shuffle", "cell_nbytes": True},
        {"codec": "shuffle", "cell_nbytes": 2**31}, {"codec": "lzma", "format": 4, "filters": []},
        {"codec": "lzma", "format": 3, "filters": [{}] * 5}, {"codec": "lzma", "format": 3, "filters": [{"id": "x"}]},
        {"codec": "lzma", "format": 3, "filters": [{"id": 33, "dict_size": 2**32}]},
        {"codec": "lzma", "format": 3, "filters": [{"id": 33, "danger": 1}]},
        {"codec": "lzma", "format": 3, "filters": 1},
        {**RETYPE, "decoded": "|S3"}, {**RETYPE, "decoded": [["a", "<i2"]]}, {**RETYPE, "options": {"digits": 1}},
        {**RETYPE, "options": None}, {**RETYPE, "codec": "quantize"}, {**RETYPE, "codec": "fixedscaleoffset"},
        {**RETYPE, "codec": "fixedscaleoffset", "options": {"scale": 0, "offset": 1}},
        {**RETYPE, "codec": "fixedscaleoffset", "options": {"scale": 1e308, "offset": 1}},
        {**RETYPE, "codec": "fixedscaleoffset", "options": {"scale": "1", "offset": 1}},
        {"codec": "crc32", "location": "middle", "initial": 0}, {"codec": "crc32", "location": "end", "initial": -1},
        {"codec": "transpose", "shape": [2, 0], "order": [0, 1], "cell_nbytes": 1},
        {"codec": "transpose", "shape": [2, 2], "order": [0, 0], "cell_nbytes": 1},
        {"codec": "transpose", "shape": [2, 2], "order": [0, True], "cell_nbytes": 1},
        {"codec": "bitshuffle", "cell_nbytes": 0, "block_cells": 0, "compressor": "none"},
        {"codec": "bitshuffle", "cell_nbytes": 1, "block_cells": 0, "compressor": "lzo"},
        {"codec": "hdf5-scaleoffset", "type": "<f8", "digits": None, "fill": None},
        {"codec": "hdf5-scaleoffset", "type": "<u8", "digits": None, "fill": "00"},
        {"codec": "hdf5-scaleoffset", "type": "<f2", "digits": 1, "fill": None},
        {"codec": "hdf5-scaleoffset", "type": "<f8", "digits": 401, "fill": None},
        {"codec": "hdf5-scaleoffset", "type": "<u8", "digits": None, "fill": "xx"},
    ],
    ids=lambda spec: repr(spec)[:60],
)  # fmt: skip
def test_bad_codecs_are_refused(spec):
    with pytest.raises((MetadataError, UnsupportedError)):
        codecs_from_json([spec])


@pytest.mark.parametrize("specs", [None, {}, "zstd", [{"codec": "zstd"}] * 65])
def test_bad_chains_are_refused(specs):
    with pytest.raises(MetadataError):
        codecs_from_json(specs)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(st.sampled_from(CODECS), st.data())
def test_a_codec_with_any_field_changed_is_read_or_refused(codec, data):
    (spec,) = codecs_to_json([codec])
    spec[data.draw(st.sampled_from(sorted(spec)))] = data.draw(anything)
    try:
        found = codecs_from_json([spec])
    except HyperslabError:
        return
    assert codecs_from_json(through_json(codecs_to_json(found))) == found


@given(anything)
def test_any_json_is_a_type_or_refused(spec):
    try:
        dtype = dtype_from_json(spec)
    except (MetadataError, UnsupportedError):
        return
    assert dtype_from_json(dtype_to_json(dtype)) == dtype


def layout(stored, *codecs, chunks=(4,)):
    order = tuple(range(len(chunks)))
    decoder = chunk_decoder(codecs, chunks=chunks, stored=stored, order=order) if codecs else None
    return Layout(chunks, stored, chunks, SingleKey("a"), np.zeros((), stored), stored, order, decoder)


def test_what_travels():
    assert travels(layout(I2)) is None
    assert travels(layout(I2, Shuffle(2), Zstd())) is None
    assert "zfp" in travels(layout(I2, PluginFilter(32013, "zfp", ())))
    assert "objects" in travels(layout(np.dtype(object)))
    assert "no bytes" in travels(layout(np.dtype("S0")))
