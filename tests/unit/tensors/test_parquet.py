"""Data files: what their footers tell, which row groups are chosen, and that pyarrow reads them as any other."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hyperslab as hs
from hyperslab.errors import IntegrityError, MetadataError
from hyperslab.tensors import Coo
from hyperslab.tensors.extents import open_files, read_rows
from hyperslab.tensors.layouts import encode
from hyperslab.tensors.log import DataFile
from hyperslab.tensors.parquet import FileWriter, Form, check_footer, footer_length, read_zones
from hyperslab.tensors.place import locate_table

IMAGES = np.random.default_rng(2).integers(0, 255, (9, 3, 8, 8)).astype("u1")


def encoded(x, layout="ftsf", **parameters):
    made = encode(x, layout, **parameters)
    return made, list(made.tables)


def a_file(*tensors):
    """Return a file of tensors of one form, and their tables."""
    writer, tables = None, []
    for name, x in tensors:
        made, rows = encoded(x, chunk_dims=x.ndim - 1, rows=1)
        writer = writer or FileWriter(Form.of(made))
        writer.begin(made.header(name))
        for table in rows:
            writer.add(table, made.row_group_rows)
        tables += rows
    return writer.close(), tables


def stored(made, folder, session):
    """Store a file and open it as a table's."""
    place = locate_table(folder, None, session)
    path = folder / made.name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(made.data)
    return place, DataFile(made.name, len(made.data), 0, json.dumps(made.stats))


@pytest.fixture
def session():
    with hs.Session() as made:
        yield made


def test_pyarrow_reads_the_rows(tmp_path):
    made, tables = a_file(("a", IMAGES), ("b", IMAGES[:4]))
    found = pq.read_table(pa.BufferReader(made.data))
    assert found.column("id").to_pylist() == ["a"] * 9 + ["b"] * 4
    assert found.drop_columns(["id"]).equals(pa.concat_tables(tables))
    assert pq.ParquetFile(pa.BufferReader(made.data)).num_row_groups == 13


def test_statistics_are_real():
    made, _ = a_file(("b", IMAGES), ("a", IMAGES[:4]))
    assert made.stats["numRecords"] == 13
    assert made.stats["minValues"] == {"id": "a", "i0": 0}
    assert made.stats["maxValues"] == {"id": "b", "i0": 8}
    assert made.stats["nullCount"] == {"id": 0, "i0": 0}
    assert "hyperslab" not in made.stats
    alone, _ = a_file(("a", IMAGES))
    assert alone.stats["hyperslab"]["shape"] == [9, 3, 8, 8]


def test_zones_choose_row_groups():
    made, _ = a_file(("a", IMAGES), ("b", IMAGES[:4]))
    zones = read_zones(pq.read_metadata(pa.BufferReader(made.data)), made.name)
    assert zones.order == ("a", "b")
    assert zones.of("a", None).tolist() == list(range(9))
    assert zones.of("b", None).tolist() == [9, 10, 11, 12]
    assert zones.of("a", [{"i0": (2, 4)}, {"i0": (7, 7)}]).tolist() == [2, 3, 4, 7]
    assert zones.of("b", [{"i0": (2, 40)}]).tolist() == [11, 12]
    assert zones.of("b", []).tolist() == []
    assert zones.of("c", None).tolist() == []
    assert zones.of("a", [{"unknown": (0, 0)}]).tolist() == list(range(9))


@pytest.mark.parametrize("kind", ["mapped", "planned"])
def test_rows_of_some_groups(tmp_path, session, kind):
    """Straight from the mapped file, or by a plan, as where somebody wants to know what is read."""
    made, tables = a_file(("a", IMAGES))
    told = []
    with hs.Session(sink=told.append if kind == "planned" else None) as reader:
        place, file = stored(made, tmp_path, reader)
        opened = open_files(place, [file])[0]
        rows = read_rows(place, [(opened, np.array([1, 2, 5]))], opened.zones.form.columns)
        assert rows.combine_chunks().equals(pa.concat_tables(tables).take([1, 2, 5]).combine_chunks().cast(rows.schema))
        assert bool(told) == (kind == "planned")
        assert reader.metrics.bytes < len(made.data)
        assert open_files(place, [file])[0].metadata is opened.metadata


def test_encoded_rows_of_some_groups(tmp_path, session):
    coords = np.array([np.arange(100), np.arange(100)[::-1]])
    made, tables = encoded(Coo.of((100, 100), coords, np.arange(1.0, 101.0)), "coo", row_group_rows=10)
    writer = FileWriter(Form.of(made))
    writer.begin(made.header("x"))
    writer.add(tables[0], 10)
    place, file = stored(writer.close(), tmp_path, session)
    opened = open_files(place, [file])[0]
    groups = opened.zones.of("x", [{"i0": (25, 33)}])
    assert groups.tolist() == [2, 3]
    rows = read_rows(place, [(opened, groups)], ["i0", "value_real"])
    assert rows.column("i0").to_pylist() == list(range(20, 40))
    assert rows.column("value_real").to_pylist() == [float(n + 1) for n in range(20, 40)]


def test_names_tell_of_footers(tmp_path, session):
    made, _ = a_file(("a", IMAGES))
    length = footer_length(made.name, len(made.data))
    assert bytes(made.data)[-4:] == b"PAR1"
    assert int.from_bytes(bytes(made.data)[-8:-4], "little") + 8 == length
    footer = memoryview(bytes(made.data))[-length:]
    check_footer(made.name, footer)
    with pytest.raises(IntegrityError, match="footer"):
        check_footer(made.name, memoryview(bytes(footer[:-9]) + b"\x01" + bytes(footer[-8:])))
    for name in ("data/part-00000.snappy.parquet", "data/x-99999999-00000000.parquet"):
        with pytest.raises(MetadataError, match="written here"):
            footer_length(name, len(made.data))


def test_files_of_other_writers(tmp_path, session):
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": ["a"]}), sink)
    with pytest.raises(MetadataError, match="written here"):
        read_zones(pq.read_metadata(pa.BufferReader(sink.getvalue())), "x")
