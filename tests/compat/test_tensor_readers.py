"""Other readers of Delta tables read the documented columns to the same numbers."""

import importlib
from importlib.util import find_spec

import numpy as np
import pytest
from deltalake import DeltaTable

from hyperslab.tensors import Coo, tensor_table

RNG = np.random.default_rng(7)
IMAGES = RNG.integers(0, 255, (6, 3, 8, 10)).astype("u1")
COORDS = np.array([RNG.integers(0, n, 60) for n in (20, 30, 9)])
SPARSE = Coo.of((20, 30, 9), COORDS, RNG.integers(1, 5, 60).astype("f8"))


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("tables") / "t")
    table = tensor_table(folder)
    table.put(IMAGES, id="images", layout="ftsf", chunk_dims=3, rows=1, metadata={"city": "Rome"})
    table.put(SPARSE, id="sparse", layout="coo", metadata={"city": "Oslo", "year": 2020})
    table.put(np.arange(5), id="gone")
    table.delete("gone")
    return folder


def check(heads, images, sparse):
    """Compare rows, as dicts: what describes tensors, the chunks of the dense one, the cells of the sparse one."""
    found = {row["id"]: row for row in heads}
    assert set(found) == {"images", "sparse"}
    assert list(found["images"]["shape"]) == [6, 3, 8, 10]
    assert (found["images"]["dtype"], found["images"]["city"]) == ("|u1", "Rome")
    assert (found["sparse"]["layout"], found["sparse"]["year"]) == ("coo", 2020)
    chunks = sorted(images, key=lambda row: row["i0"])
    joined = b"".join(bytes(row["payload"]) for row in chunks)
    assert (np.frombuffer(joined, "u1").reshape(IMAGES.shape) == IMAGES).all()
    cells = {(row["i0"], row["i1"], row["i2"]): row["value_real"] for row in sparse}
    expected = dict(zip(map(tuple, SPARSE.coords.T.tolist()), SPARSE.values.tolist(), strict=True))
    assert cells == expected


def test_polars(url):
    pl = pytest.importorskip("polars")
    rows = pl.scan_delta(url)
    heads = rows.filter(pl.col("layout").is_not_null()).collect().to_dicts()
    data = rows.filter(pl.col("layout").is_null())
    check(
        heads,
        data.filter(pl.col("id") == "images").collect().to_dicts(),
        data.filter(pl.col("id") == "sparse").collect().to_dicts(),
    )


def test_duckdb(url):
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as connection:
        try:
            if find_spec("duckdb_extensions") is not None:
                importlib.import_module("duckdb_extensions").import_extension("delta", con=connection)
            connection.execute("load delta")
        except duckdb.Error:
            pytest.skip("DuckDB's extension for Delta is not installed")
        query = f"select * from delta_scan('{url}') where "
        parts = ("layout is not null", "layout is null and id = 'images'", "layout is null and id = 'sparse'")
        check(*(connection.execute(query + part).to_arrow_table().to_pylist() for part in parts))


def test_pyarrow(url):
    """As Arrow's dataset over the files that delta-rs names."""
    dataset = DeltaTable(url).to_pyarrow_dataset()
    rows = dataset.to_table().to_pylist()
    check(
        [row for row in rows if row["layout"] is not None],
        [row for row in rows if row["layout"] is None and row["id"] == "images"],
        [row for row in rows if row["layout"] is None and row["id"] == "sparse"],
    )


def test_delta_skips_files_by_our_statistics(url):
    import pyarrow.dataset as ds

    dataset = DeltaTable(url).to_pyarrow_dataset()
    fragments = list(dataset.get_fragments(filter=(ds.field("id") == "images") & (ds.field("i0") == 2)))
    assert len(fragments) < len(list(dataset.get_fragments()))
