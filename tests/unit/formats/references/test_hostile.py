"""Reference files that lie: a typed error, or what the format means, within bounded memory."""

import json
import time
import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.references import reference_table

import hyperslab as hs
from hyperslab.errors import (
    AccessError,
    ChunkSizeError,
    FormatError,
    HyperslabError,
    IntegrityError,
    MetadataError,
    UnsupportedError,
)

ZARRAY = {"zarr_format": 2, "shape": [4], "chunks": [2], "dtype": "<i4", "order": "C", "fill_value": 7,
          "filters": None, "compressor": None}  # fmt: skip


def opened(folder, entries, **more):
    (folder / "x").write_bytes(np.arange(4, dtype="<i4").tobytes())
    (folder / "refs.json").write_text(json.dumps({"version": 1, "refs": {"a/.zarray": ZARRAY, **entries}, **more}))
    return hs.open(folder / "refs.json" / "a")


@pytest.mark.parametrize(
    ("entry", "error"),
    [
        (["x", -8, 8], MetadataError),
        (["x", 0, -8], MetadataError),
        (["x", 0, 0], MetadataError),
        (["x", 0.5, 8], MetadataError),
        (["x", True, 8], MetadataError),
        (["x", 0, 1 << 200], MetadataError),
        (["x", 1 << 62, 8], MetadataError),
        (["x", 12, 8], IntegrityError),
        (["x", 1 << 50, 8], IntegrityError),
        (["x", 0, 4], ChunkSizeError),
        (["x"], ChunkSizeError),
        (["y"], IntegrityError),
        (["x", 0], MetadataError),
        ([], MetadataError),
        ([3], MetadataError),
        (5, MetadataError),
        ({"a": 1}, MetadataError),
        ("base64:???", MetadataError),
        ("short", ChunkSizeError),
        ("", ChunkSizeError),
        (["../x", 0, 8], MetadataError),
        (["a/../../x", 0, 8], MetadataError),
        (["/etc/passwd", 0, 8], AccessError),
        (["file:///etc/passwd", 0, 8], AccessError),
        (["s3://other/x", 0, 8], AccessError),
        (["http://169.254.169.254/latest/meta-data", 0, 8], AccessError),
        (["simplecache::s3://b/x", 0, 8], MetadataError),
        (["{{u}}/x", 0, 8], MetadataError),
        (["{{u.__class__}}/x", 0, 8], UnsupportedError),
        (["x" * 5000, 0, 8], MetadataError),
        (["", 0, 8], MetadataError),
    ],
)
def test_a_reference_that_makes_no_sense_is_refused(tmp_path, entry, error):
    array = opened(tmp_path, {"a/0": entry, "a/1": ["x", 8, 8]})
    assert np.array_equal(array[2:], [2, 3])
    with pytest.raises(error):
        array[0]


def test_null_and_what_is_not_there_are_chunks_that_are_not_stored(tmp_path):
    array = opened(tmp_path, {"a/0": None, "a/7": ["x", -1, -1], "a/1.1": ["x"], "b/0": 3})
    assert np.array_equal(array[...], [7, 7, 7, 7])


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"gen": [{"key": "a/{{i}}", "url": "x", "dimensions": {"i": {"stop": 10**12}}}]}, UnsupportedError),
        ({"templates": {"u": 3}}, MetadataError),
        ({"templates": [1]}, MetadataError),
        ({"version": 2}, UnsupportedError),
        ({"version": "1"}, UnsupportedError),
        ({"refs": [1]}, UnsupportedError),
        ({"refs": {"a/.zarray": "{"}}, MetadataError),
        ({"refs": {"a/.zarray": "[1]"}}, MetadataError),
        ({"refs": {"../a/.zarray": ZARRAY}}, MetadataError),
        ({"refs": {"a/.zarray": ["x", 0, 4]}}, MetadataError),
        ({"refs": {"a/.zarray": {**ZARRAY, "shape": [1 << 62, 1 << 62], "chunks": [1, 1]}}}, FormatError),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(tmp_path, more, error):
    with pytest.raises(error):
        opened(tmp_path, {}, **more)[0]


def test_functions_as_templates_are_refused_by_name(tmp_path):
    array = opened(tmp_path, {"a/0": ["{{u}}", 0, 8]}, templates={"u": "{{c}}"})
    with pytest.raises(UnsupportedError, match="function"):
        array[0]


def test_templates_cannot_blow_up(tmp_path):
    array = opened(tmp_path, {"a/0": ["{{u}}" * 800, 0, 8]}, templates={"u": "x" * 4096})
    tracemalloc.start()
    with pytest.raises(MetadataError, match="characters"):
        array[0]
    assert tracemalloc.get_traced_memory()[1] < 16 << 20
    tracemalloc.stop()


def test_json_that_is_no_set_of_references_is_said_to_be_none(tmp_path):
    (tmp_path / "notes.json").write_text('{"a": 1}')
    with pytest.raises(UnsupportedError, match="no known format"):
        hs.open(tmp_path / "notes.json")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(HyperslabError):
        hs.open(tmp_path / "deep.json")
    (tmp_path / "deeper.json").write_text('{"version": 1, "refs": ' + "[" * 100_000)
    with pytest.raises(MetadataError):
        hs.open(tmp_path / "deeper.json")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=6,
    ),
    st.sampled_from(["a/0", "a/.zattrs", "a/.zarray", ".zgroup", ".zattrs", "templates", "version", "refs"]),
)
def test_whatever_stands_anywhere_is_read_or_refused(tmp_path_factory, value, where):
    folder = tmp_path_factory.getbasetemp()
    document = {"version": 1, "templates": {}, "refs": {".zgroup": {"zarr_format": 2}, "a/.zarray": ZARRAY}}
    (document if where in document else document["refs"])[where] = value
    (folder / "any.json").write_text(json.dumps(document))
    try:
        group = hs.open(folder / "any.json")
        assert np.asarray(group["a"][...]).shape == (4,)
    except HyperslabError:
        return


# Parquet


def parquet(folder, table, *, record_size=4, shape=4, name="refs.0.parq", **write):
    (folder / "x").write_bytes(np.arange(4, dtype="<i4").tobytes())
    home = folder / "refs.parq" / "a"
    home.mkdir(parents=True, exist_ok=True)
    metadata = {"a/.zarray": {**ZARRAY, "shape": [shape]}}
    (home.parent / ".zmetadata").write_text(json.dumps({"metadata": metadata, "record_size": record_size}))
    if isinstance(table, bytes):
        (home / name).write_bytes(table)
    elif table is not None:
        pq.write_table(table, home / name, **write)
    return hs.open(folder / "refs.parq" / "a")


GOOD = [("x", 0, 8), ("x", 8, 8)]


def test_good_ones_are_read(tmp_path):
    table = reference_table(GOOD)
    assert np.array_equal(parquet(tmp_path, table)[...], np.arange(4))
    coded = table.set_column(0, "path", table["path"].dictionary_encode())
    assert np.array_equal(parquet(tmp_path, coded)[...], np.arange(4))
    assert np.array_equal(parquet(tmp_path, table.drop_columns("raw"))[...], np.arange(4))
    raw = pa.table({"raw": [b"\1\0\0\0\2\0\0\0", None]})
    assert np.array_equal(parquet(tmp_path, raw)[...], [1, 2, 7, 7])


def test_a_file_that_is_not_there_holds_no_chunks(tmp_path):
    assert np.array_equal(parquet(tmp_path, None)[...], [7, 7, 7, 7])


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        ([("x", -8, 8)] * 2, MetadataError),
        ([("x", 8, -8)] * 2, MetadataError),
        ([("x", 8, 0)] * 2, MetadataError),
        ([("x", 12, 8)] * 2, IntegrityError),
        ([("x", 1 << 62, 8)] * 2, MetadataError),
        ([("/etc/passwd", 0, 8)] * 2, AccessError),
        ([("../x", 0, 8)] * 2, MetadataError),
        ([b"base64:???"] * 2, MetadataError),
        ([("x", 0, 8)], IntegrityError),
    ],
)
def test_rows_that_make_no_sense_are_refused(tmp_path, rows, error):
    with pytest.raises(error):
        parquet(tmp_path, reference_table(rows))[...]


@pytest.mark.parametrize(
    "table",
    [b"", b"PAR1", b"PAR1" + b"\0" * 100 + b"PAR1", pa.table({"other": [1]}), pa.table({"path": [1.5, 2]}),
     pa.table({"path": ["x", "x"], "offset": ["0", "8"], "size": ["8", "8"]}), pa.table({"path": [["x"], ["x"]]})],
)  # fmt: skip
def test_files_that_are_no_references_are_refused(tmp_path, table):
    with pytest.raises((IntegrityError, MetadataError)):
        parquet(tmp_path, table)[...]


@pytest.mark.parametrize("size", [0, -1, 1.5, "7", None, True, 1 << 60])
def test_record_sizes_that_make_no_sense_are_refused(tmp_path, size):
    with pytest.raises(MetadataError, match="record_size"):
        parquet(tmp_path, None, record_size=size)


def test_a_small_file_that_claims_to_be_a_large_table_is_refused_before_it_is_read(tmp_path):
    rows = 20_000_000
    claims = pa.table({"path": pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, "i1")), ["x" * 100])})
    array = parquet(tmp_path, claims, record_size=1_000_000)
    before = pa.total_allocated_bytes()
    del claims
    started = time.process_time()
    with pytest.raises(MetadataError, match="claims"):
        array[0]
    assert pa.total_allocated_bytes() <= before
    assert time.process_time() - started < 5


def test_a_long_text_in_many_rows_is_held_once(tmp_path):
    rows, text = 100_000, "x" * 100_000
    array = parquet(
        tmp_path, pa.table({"path": pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, "i4")), [text])}),
        record_size=rows,
    )  # fmt: skip
    peak = pa.default_memory_pool().max_memory() if pa.total_allocated_bytes() else 0
    with pytest.raises(MetadataError, match="characters"):
        array[0]
    assert pa.default_memory_pool().max_memory() - peak < 256 << 20


@given(st.integers(0, 2000), st.integers(0, 255))
def test_damaged_files_give_cells_or_a_typed_error(tmp_path_factory, at, value):
    folder = tmp_path_factory.getbasetemp() / "damaged"
    folder.mkdir(exist_ok=True)
    sink = pa.BufferOutputStream()
    pq.write_table(reference_table(GOOD), sink, compression="none")
    data = bytearray(sink.getvalue().to_pybytes())
    data[at % len(data)] = value
    try:
        assert parquet(folder, bytes(data))[...].shape == (4,)
    except HyperslabError:
        return
