"""Metadata that lies, contradicts itself or asks for what is not supported: a typed error, each time."""

import copy
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.whole_reads import DictReader

from hyperslab.errors import FormatError, HyperslabError, MetadataError, UnsupportedError
from hyperslab.formats import open_source
from hyperslab.formats.source import MAX_METADATA_BYTES

BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
GZIP = {"name": "gzip", "configuration": {"level": 1}}
V3 = {
    "zarr_format": 3,
    "node_type": "array",
    "shape": [10, 10],
    "data_type": "int32",
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4, 4]}},
    "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
    "fill_value": 0,
    "codecs": [BYTES, GZIP],
}
V2 = {
    "zarr_format": 2,
    "shape": [10, 10],
    "chunks": [4, 4],
    "dtype": "<i4",
    "order": "C",
    "fill_value": 0,
    "filters": None,
    "compressor": {"id": "zlib", "level": 1},
}


def sharding(**changes):
    config = {"chunk_shape": [2, 2], "codecs": [BYTES], "index_codecs": [BYTES, {"name": "crc32c"}]} | changes
    return {"codecs": [{"name": "sharding_indexed", "configuration": config}]}


def open_v3(**changes):
    return open_source(DictReader({"a/zarr.json": json.dumps(V3 | changes).encode()}), "memory:///a", "a")


def open_v2(**changes):
    return open_source(DictReader({"a/.zarray": json.dumps(V2 | changes).encode()}), "memory:///a", "a")


def chunk_grid(*shape):
    return {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(shape)}}}


def codec(name, **config):
    return {"name": name, "configuration": config}


def test_the_documents_to_spoil_are_good():
    assert open_v3().layout.chunks == (4, 4)
    assert open_v2().layout.chunks == (4, 4)
    assert open_v3(**sharding()).layout.index.count == 4
    assert open_v3(shape=[0, 10]).layout.grid == (0, 3)


@pytest.mark.parametrize(
    "changes",
    [
        {"shape": [-1, 10]}, {"shape": [10]}, {"shape": [10.0, 10]}, {"shape": [True, 10]}, {"shape": "10"},
        {"shape": [2**64, 1]}, {"shape": [2**62, 2**62]}, {"shape": [1] * 65} | chunk_grid(*[1] * 65),
        {"shape": None}, {"shape": [[10], 10]}, {"shape": {"0": 1}},
        chunk_grid(0, 4), chunk_grid(-4, 4), chunk_grid(4), chunk_grid(2**30, 2**30), chunk_grid(4.0, 4),
        {"chunk_grid": None}, {"chunk_grid": {"name": "regular"}}, {"chunk_grid": {"configuration": {}}},
        {"chunk_key_encoding": codec("default", separator="..")}, {"chunk_key_encoding": 7},
        {"fill_value": None}, {"fill_value": "x"}, {"fill_value": 2**31}, {"fill_value": [0]},
        {"fill_value": 0.5},
        {"fill_value": {}}, {"fill_value": True}, {"fill_value": "9" * 5000},
        {"codecs": []}, {"codecs": None}, {"codecs": [GZIP]}, {"codecs": [GZIP, BYTES]},
        {"codecs": [BYTES, BYTES]},
        {"codecs": [codec("bytes")]}, {"codecs": [codec("bytes", endian="middle")]}, {"codecs": [7]},
        {"codecs": [BYTES, codec("transpose", order=[1, 0])]},
        {"codecs": [codec("transpose", order=[1, 1]), BYTES]},
        {"codecs": [codec("transpose", order=[0]), BYTES]},
        {"codecs": [codec("transpose", order=[0, True]), BYTES]},
        {"codecs": [codec("transpose"), BYTES]}, {"codecs": [BYTES, *[GZIP] * 40]},
        {"codecs": [BYTES, codec("numcodecs.shuffle", elementsize=-1)]},
        {"codecs": [BYTES, codec("numcodecs.crc32", location="middle")]},
        {"codecs": [codec("numcodecs.packbits"), BYTES]},
        {"codecs": [codec("numcodecs.delta", dtype="<i2"), BYTES]},
        {"codecs": [codec("numcodecs.fixedscaleoffset", offset=0, scale=0, dtype="<i4"), BYTES]},
        {"codecs": [codec("numcodecs.fixedscaleoffset", offset="a", scale=1, dtype="<i4"), BYTES]},
        {"codecs": [codec("numcodecs.quantize", digits=None, dtype="<f4"), BYTES], "data_type": "float32"},
        {"attributes": []}, {"dimension_names": ["x"]}, {"dimension_names": [1, 2]},
        {"dimension_names": "xy"},
        {"node_type": "tree"}, {"data_type": 5}, {"data_type": {"name": 5}},
        {"data_type": codec("numpy.datetime64", unit="s", scale_factor=0)},
        {"data_type": codec("numpy.datetime64", unit="parsec", scale_factor=1)},
        {"data_type": codec("fixed_length_utf32", length_bytes=7)},
        {"data_type": codec("null_terminated_bytes", length_bytes="7")},
        {"data_type": codec("structured", fields=[])}, {"data_type": codec("structured", fields=[["a"]])},
        {"data_type": codec("structured", fields=[["a", "int8"], ["a", "int8"]])},
        {"data_type": codec("structured")},
        {"data_type": codec("struct", fields=[{"name": "", "data_type": "int8"}])},
        sharding(chunk_shape=[3, 2]), sharding(chunk_shape=[2]), sharding(chunk_shape=[0, 2]),
        sharding(codecs=[]),
        sharding(codecs=None), sharding(index_codecs=[]), sharding(index_location="middle"),
        sharding(chunk_shape=[8, 8]),
        {"shape": [2**30, 2**30]} | chunk_grid(2**30, 2**30) | sharding(chunk_shape=[1, 1]),
    ],
    ids=lambda changes: json.dumps(changes)[:60],
)  # fmt: skip
def test_v3_that_contradicts_itself(changes):
    with pytest.raises(MetadataError):
        open_v3(**changes)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"zarr_format": 4}, "4"), ({"zarr_format": None}, "None"),
        ({"data_type": "string"}, "string"),
        ({"data_type": "variable_length_bytes"}, "variable_length_bytes"),
        ({"data_type": "float8_e4m3"}, "float8_e4m3"), ({"data_type": "r7"}, "r7"),
        ({"data_type": "r0"}, "0 bytes"),
        ({"data_type": codec("raw_bytes", length_bytes=0)}, "0 bytes"),
        ({"data_type": codec("raw_bytes", length_bytes=2**40)}, str(2**40)),
        ({"data_type": codec("structured", fields=[["a", "string"]])}, "string"),
        ({"codecs": [BYTES, codec("snappy")]}, "snappy"), ({"codecs": [codec("vlen-utf8")]}, "vlen-utf8"),
        ({"codecs": [codec("numcodecs.pickle"), BYTES]}, "pickle"),
        ({"codecs": [codec("numcodecs.zfpy")]}, "zfpy"),
        ({"codecs": [BYTES, codec("lz4")]}, "lz4"),
        ({"codecs": [codec("numcodecs.delta", dtype=">i4"), BYTES]}, ">i4"),
        ({"codecs": [codec("numcodecs.astype", encode_dtype="|O"), BYTES]}, "O"),
        ({"codecs": [BYTES, codec("numcodecs.lzma", format=9)]}, "9"),
        ({"chunk_grid": codec("rectilinear")}, "rectilinear"),
        ({"chunk_key_encoding": codec("suffix")}, "suffix"),
        ({"storage_transformers": [codec("x")]}, "storage transformers"),
        ({"secret": {"must_understand": True}}, "secret"),
        ({"secret": 1}, "secret"), ({"secret": {}}, "secret"),
        (sharding(codecs=sharding()["codecs"]), "shards inside"),
        (sharding(index_codecs=[BYTES, GZIP]), "gzip"),
        (sharding(index_codecs=[codec("bytes", endian="big")]), "big"),
        ({"codecs": [*sharding()["codecs"], GZIP]}, "sharding_indexed"),
        ({"codecs": [codec("transpose", order=[1, 0]), *sharding()["codecs"]]}, "sharding_indexed"),
    ],
    ids=lambda value: json.dumps(value)[:60],
)  # fmt: skip
def test_v3_that_is_not_supported_is_named(changes, named):
    with pytest.raises(UnsupportedError) as raised:
        open_v3(**changes)
    assert named in str(raised.value)


@pytest.mark.parametrize("field", ["shape", "data_type", "chunk_grid", "chunk_key_encoding", "fill_value", "codecs"])
def test_v3_that_lacks_a_field(field):
    document = {name: value for name, value in V3.items() if name != field}
    with pytest.raises(MetadataError, match=field):
        open_source(DictReader({"zarr.json": json.dumps(document).encode()}), "memory:///", "")


def test_an_extension_that_may_be_ignored_is():
    assert open_v3(extra={"must_understand": False, "x": 1}).layout.shape == (10, 10)


@pytest.mark.parametrize(
    "changes",
    [
        {"shape": [-1, 10]}, {"shape": [10]}, {"chunks": [0, 4]}, {"chunks": None}, {"chunks": [2**40, 4]},
        {"order": "A"}, {"order": None}, {"dimension_separator": "-"}, {"filters": {}},
        {"compressor": "zlib"},
        {"compressor": {"level": 1}}, {"filters": [None]}, {"fill_value": "x"}, {"fill_value": [1, 2]},
        {"dtype": []}, {"dtype": [["a"]]}, {"dtype": [["a", "<i4"], ["a", "<i4"]]}, {"dtype": [[1, "<i4"]]},
        {"dtype": "<M8[0s]"}, {"dtype": [["a", "<i4", [0]]]}, {"dtype": [["a", "<i4", [2**40]]]},
        {"dtype": "|S3", "fill_value": "not base64!"}, {"dtype": "|V3", "fill_value": "AAAA" * 2},
        {"dtype": [["a", "<i4"]], "fill_value": "AA=="}, {"dtype": "<c8", "fill_value": [1]},
        {"dtype": "|b1", "fill_value": 2}, {"dtype": "<M8[s]", "fill_value": 2**63},
        {"dtype": "<f4", "fill_value": "0xzz"}, {"dtype": "<f4", "fill_value": 10**400},
        {"compressor": {"id": "lzma", "format": 3}},
        {"compressor": {"id": "lzma", "format": 3, "filters": [5]}},
        {"filters": [{"id": "jenkins_lookup3", "initval": -1}]},
    ],
    ids=lambda changes: json.dumps(changes)[:60],
)  # fmt: skip
def test_v2_that_contradicts_itself(changes):
    with pytest.raises(MetadataError):
        open_v2(**changes)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"dtype": "|O"}, "O"), ({"dtype": [["a", "|O"]]}, "O"), ({"dtype": "<f16"}, "f16"),
        ({"dtype": "|S0"}, "0"),
        ({"dtype": "i4"}, "i4"), ({"dtype": 3}, "3"), ({"dtype": "<U4294967295"}, "17179869180"),
        ({"compressor": {"id": "pickle"}}, "pickle"), ({"filters": [{"id": "vlen-utf8"}]}, "vlen-utf8"),
        ({"filters": [{"id": "json2"}]}, "json2"),
        ({"filters": [{"id": "categorize", "labels": []}]}, "categorize"),
        ({"zarr_format": 3}, "3"), ({"filters": [{"id": "delta", "dtype": "|S3"}]}, "delta"),
        ({"filters": [{"id": "delta", "dtype": "|O"}]}, "O"),
        ({"compressor": {"id": "msgpack2"}}, "msgpack2"),
        ({"compressor": {"id": "lzma", "format": 3, "filters": [{"id": 33, "dict_size": 2**32}]}},
        "dict_size"),
        ({"filters": [{"id": "zlib"}, {"id": "delta", "dtype": "<i4"}]}, "delta"),
    ],
    ids=lambda value: json.dumps(value)[:60],
)  # fmt: skip
def test_v2_that_is_not_supported_is_named(changes, named):
    with pytest.raises(UnsupportedError) as raised:
        open_v2(**changes)
    assert named in str(raised.value)


@pytest.mark.parametrize(
    "document",
    [
        b"", b"{", b"null", b"[]", b'"zarr"', b"\xff\xfe\x00", b"3", b"[" * 200_000, b'{"a":' * 200_000,
        b'{"zarr_format": ' + b"9" * 10_000 + b"}", b'{"a": ' + b"[" * 150 + b"]" * 150 + b"}",
        b" " * (MAX_METADATA_BYTES + 1),
    ],
    ids=lambda document: repr(document[:20]),
)  # fmt: skip
def test_documents_that_are_no_metadata(document):
    for name in ("zarr.json", ".zarray", ".zgroup"):
        with pytest.raises(MetadataError):
            open_source(DictReader({f"a/{name}": document}), "memory:///a", "a")


def test_errors_stay_short():
    with pytest.raises(FormatError) as raised:
        open_v3(data_type="x" * 10_000_000)
    assert len(str(raised.value)) < 500
    with pytest.raises(FormatError) as raised:
        open_v3(shape=list(range(1_000_000)))
    assert len(str(raised.value)) < 500


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    | st.sampled_from(["bytes", "gzip", "regular", "int32", "<i4", "|O", "NaN", "start", "numcodecs.delta"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)  # fmt: skip


def places(node, path=()):
    yield path
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for name, inner in items:
        yield from places(inner, (*path, name))


@settings(max_examples=300, deadline=None)
@given(data=st.data(), value=json_values, base=st.sampled_from(["v2", "v3", "shard"]))
def test_any_change_gives_a_layout_or_a_typed_error(data, value, base):
    document = {
        "v2": V2 | {"filters": [{"id": "delta", "dtype": "<i4"}]},
        "v3": V3,
        "shard": V3 | sharding(),
    }[base]
    document = copy.deepcopy(document)
    *path, last = data.draw(st.sampled_from([place for place in places(document) if place]))
    node = document
    for name in path:
        node = node[name]
    node[last] = value
    name = ".zarray" if base == "v2" else "zarr.json"
    try:
        source = open_source(DictReader({name: json.dumps(document).encode()}), "memory:///", "")
    except HyperslabError:
        return
    if hasattr(source, "layout"):
        assert np.prod(source.layout.chunks, dtype=object) > 0
        assert source.layout.fill.dtype == source.layout.dtype
