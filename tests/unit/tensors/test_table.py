"""Tensor tables as a user sees them: put, get, slice, list, versions, other libraries' tensors."""

import datetime
import os
import pickle

import numpy as np
import pyarrow.compute as pc
import pytest
import scipy.sparse
import sparse

import hyperslab as hs
from hyperslab.errors import ConflictError, InvalidInputError, NotFoundError, SelectionError, UnsupportedError
from hyperslab.tensors import Coo, storing, tensor_table
from hyperslab.tensors.table import TensorTable

RNG = np.random.default_rng(11)
IMAGES = RNG.integers(0, 255, (30, 3, 16, 20)).astype("u1")
WHEN = datetime.datetime(2026, 7, 1, 12, tzinfo=datetime.UTC)
SPARSE = np.where(RNG.random((12, 9, 14)) < 0.04, RNG.integers(1, 9, (12, 9, 14)), 0).astype("f4")


@pytest.fixture
def table(tmp_path):
    with hs.Session() as session:
        yield tensor_table(tmp_path / "t", session=session)


def again(table):
    """Return a new handle in a new session, so that nothing is remembered."""
    return tensor_table(table.url, "r", session=hs.Session())


@pytest.mark.parametrize(
    "x",
    [
        np.array(3.5), np.array(7, "u1"), np.zeros((0, 3)), np.zeros(0, "i2"), np.zeros((3, 4)), np.ones((2, 3), bool),
        np.arange(6, dtype="f2").reshape(2, 3), np.array([2**64 - 1, 0], "u8"), np.array([[1 + 2j, 0]], "c8"),
        np.array([np.nan, -0.0, 0.0, np.inf]), np.array(["a", "bc"]), np.array([b"x", b""]), np.arange(4, dtype=">i4"),
        np.array(["2026-07-01", "NaT"], "M8[D]"), np.arange(24).reshape(2, 3, 4).transpose(2, 0, 1),
        np.arange(2**10).reshape((2,) * 10),
    ],
    ids=lambda x: f"{x.dtype}{x.shape}",
)  # fmt: skip
def test_what_is_put_comes_back(table, x):
    id = table.put(x)
    for each in (table, again(table)):
        found = each.get(id)
        assert type(found) is np.ndarray or found.shape == ()
        assert found.dtype == x.dtype
        assert found.shape == x.shape
        assert np.asarray(found).tobytes() == x.tobytes()
        assert each[id].shape == x.shape
        assert each[id].dtype == x.dtype


@pytest.mark.parametrize(
    "key",
    [
        3, -1, np.s_[2:9], np.s_[::-1], np.s_[25:3:-4], np.s_[..., 5], np.s_[:, 1], np.s_[4, 2, 3:9, ::3],
        np.s_[None, 5, ..., None], np.s_[7:7], np.s_[4, 1, 2, 3], (), np.s_[...], np.s_[::7, :, 10:2:-3],
    ],
    ids=str,
)  # fmt: skip
def test_slices_are_those_of_numpy(table, key):
    id = table.put(IMAGES, layout="ftsf", chunk_dims=2, rows=1)
    found, expected = table[id][key], IMAGES[key]
    assert type(found) is type(expected) or isinstance(found, np.ndarray)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert (found == expected).all()


@pytest.mark.parametrize(
    "key", [[1, 2], np.array([True] * 30), True, "x", 1.5, np.s_[31], np.s_[0, 0, 0, 0, 0]], ids=str
)
def test_other_keys_are_refused(table, key):
    id = table.put(IMAGES)
    with pytest.raises(SelectionError):
        table[id][key]


def test_only_what_a_slice_needs_is_read(tmp_path, monkeypatch):
    """One image: its row group, one footer, the log. Not the other files, nor the other images."""
    monkeypatch.setattr(storing, "SMALL_BYTES", 0)
    images = RNG.integers(0, 255, (64, 3, 64, 64)).astype("u1")
    tensor_table(tmp_path / "t").put(images, id="x", layout="ftsf", chunk_dims=3, rows=1)
    assert len(os.listdir(tmp_path / "t" / "data")) == 2
    with hs.Session() as session:
        table = tensor_table(tmp_path / "t", session=session)
        before = session.metrics.bytes
        assert (table["x"][40] == images[40]).all()
        footer = session.metrics.bytes - before - images[40].nbytes
        assert 0 < footer < 32_000
        before = session.metrics.bytes
        assert (table["x"][41] == images[41]).all()
        assert session.metrics.bytes - before <= 1.05 * images[41].nbytes


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_sparse_tensors_of_all_libraries(table):
    torch = pytest.importorskip("torch")
    flat = SPARSE[0]
    given = {
        "coo": Coo.of(SPARSE.shape, np.array(np.nonzero(SPARSE)), SPARSE[np.nonzero(SPARSE)]),
        "csr": scipy.sparse.csr_array(flat),
        "matrix": scipy.sparse.csc_matrix(flat),
        "pydata": sparse.COO.from_numpy(SPARSE),
        "gcxs": sparse.GCXS.from_numpy(SPARSE),
        "torch": torch.from_numpy(SPARSE).to_sparse_coo(),
        "torch_csr": torch.from_numpy(flat).to_sparse_csr(),
    }
    table.put_many(given)
    for name in given:
        expected = flat if name in ("csr", "matrix", "torch_csr") else SPARSE
        found = table.get(name)
        assert isinstance(found, Coo)
        assert (found.to_dense() == expected).all()
        assert (table.get(name, "numpy") == expected).all()
        assert (table.get(name, "scipy").toarray() == expected).all() or expected.ndim > 2
        assert (table.get(name, "sparse").todense() == expected).all()
        assert (table.get(name, "torch").numpy() == expected).all()
        assert (table.get(name, "torch_sparse").to_dense().numpy() == expected).all()
        assert (table[name][2, 3:8].to_dense() == expected[2, 3:8]).all()
        assert (table[name].read("numpy", np.s_[::-2, 4]) == expected[::-2, 4]).all()


def test_dense_tensors_of_torch(table):
    torch = pytest.importorskip("torch")
    x = torch.arange(12, dtype=torch.float16).reshape(3, 4)
    id = table.put(x.T)
    assert torch.equal(table.get(id, "torch"), x.T)
    with pytest.raises(InvalidInputError, match="bfloat16"):
        table.put(torch.zeros(3, dtype=torch.bfloat16))


def test_fill_value_and_duplicates(table):
    given = Coo.of((4, 5), [[1, 1, 3], [2, 2, 4]], np.array([2.0, 3.0, 1.0]), fill=-1.0)
    id = table.put(given, layout="bsgs")
    expected = np.full((4, 5), -1.0)
    expected[1, 2], expected[3, 4] = 5.0, 1.0
    assert (table.get(id, "numpy") == expected).all()
    assert (table[id].read("numpy", np.s_[:, 2:]) == expected[:, 2:]).all()
    for form in ("scipy", "torch_sparse"):
        with pytest.raises(UnsupportedError, match="fill"):
            table.get(id, form)
    assert table.get(id, "sparse").fill_value == -1.0


def test_list_and_filters(table):
    table.put_many(
        [
            ("a", np.arange(3), {"city": "Rome", "year": 2020}),
            ("b", IMAGES, {"city": "Oslo", "year": 2021, "good": True}),
            ("c", SPARSE, {"when": WHEN.replace(tzinfo=None), "day": WHEN.date(), "ratio": 1}),
        ]
    )
    table.put(np.arange(3), id="d", metadata={"ratio": 2, "raw": b"\x00"})
    table.put(np.arange(3), id="e", metadata={"year": np.int16(2030), "ratio": None})

    def ids(filter):
        return table.list(filter).column("id").to_pylist()

    assert ids(None) == ["a", "b", "c", "d", "e"] == list(table)
    assert len(table) == 5
    assert ids({"city": "Rome"}) == ["a"]
    assert ids({"city": ["Rome", "Oslo"]}) == ["a", "b"]
    assert ids({"year": (2021, None)}) == ["b", "e"]
    assert ids({"year": (2020, 2030), "good": True}) == ["b"]
    assert ids({"city": None}) == ["c", "d", "e"]
    assert ids(pc.field("ratio") > 1) == ["d"]
    listed = table.list({"id": "b"}).to_pylist()[0]
    assert listed["shape"] == [30, 3, 16, 20]
    assert listed["dtype"] == "|u1"
    assert table["c"].metadata == {"when": WHEN, "day": WHEN.date(), "ratio": 1}
    assert table.list(columns=["id", "city"]).schema.names == ["id", "city"]
    for wrong in ({"nothing": 1}, "city", pc.field("nothing") == 1, {"year": "x"}):
        with pytest.raises(InvalidInputError):
            table.list(wrong)


@pytest.mark.parametrize(
    "metadata",
    [{"id": 1}, {"i3": 1}, {"payload": 1}, {"a b": 1}, {"": 1}, {"x": [1]}, {"x": 2**63}, {"x": 1j}, {1: 1}, "city"],
    ids=str,
)
def test_metadata_that_cannot_be_columns(table, metadata):
    with pytest.raises(InvalidInputError):
        table.put(np.arange(3), metadata=metadata)
    assert table.version is None


def test_metadata_of_another_type(table):
    table.put(np.arange(3), metadata={"n": 1, "x": 0.5})
    table.put(np.arange(3), metadata={"x": 3})
    with pytest.raises(InvalidInputError, match="'n'"):
        table.put(np.arange(3), metadata={"n": "one"})


def test_versions_are_kept(table):
    table.put(np.arange(3), id="a")
    first = table.version
    table.put(np.arange(4), id="b")
    table.put(np.arange(5), id="a", overwrite=True)
    table.delete("b")
    old = table.at(version=first)
    assert list(old) == ["a"]
    assert old.get("a").tolist() == [0, 1, 2]
    assert list(table.at(version=first + 1)) == ["a", "b"]
    assert table.get("a").tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(InvalidInputError, match="mode"):
        old.put(np.arange(3))
    for wrong in (-1, table.version + 1):
        with pytest.raises(NotFoundError):
            table.at(version=wrong)
    with pytest.raises(InvalidInputError):
        table.at()


def test_versions_by_time(table):
    table.put(np.arange(3), id="a")
    between = datetime.datetime.now(datetime.UTC)
    table.put(np.arange(4), id="b")
    assert list(table.at(timestamp=between)) == ["a"]
    assert list(table.at(timestamp=between.isoformat())) == ["a"]
    assert list(table.at(timestamp="2100-01-01")) == ["a", "b"]
    with pytest.raises(NotFoundError):
        table.at(timestamp="1999-01-01")
    with pytest.raises(InvalidInputError):
        table.at(timestamp="yesterday")


def test_handles_are_snapshots(table):
    table.put(np.arange(3), id="a")
    other = again(table)
    table.put(np.arange(4), id="b")
    assert "b" not in other
    assert "b" in other.refresh()
    with pytest.raises(NotFoundError, match="'b'"):
        other["b"]
    with pytest.raises(InvalidInputError, match="mode"):
        other.put(np.arange(3))


def test_handles_pickle(table):
    id = table.put(IMAGES)
    copy = pickle.loads(pickle.dumps(table))
    assert isinstance(copy, TensorTable)
    assert copy.version == table.version
    assert (copy[id][4] == IMAGES[4]).all()


def test_large_tensors_take_several_files(tmp_path, monkeypatch):
    monkeypatch.setattr(storing, "FILE_BYTES", 1 << 14)
    monkeypatch.setattr(storing, "SMALL_BYTES", 1 << 12)
    monkeypatch.setattr(storing, "MANY_GROUPS", 5)
    table = tensor_table(tmp_path / "t")
    table.put_many({"small": np.arange(9), "large": IMAGES, "other": np.arange(7)}, layout="ftsf")
    table.put(IMAGES, id="cut", layout="ftsf", chunk_dims=2, rows=1)
    assert len(table._snapshot.data_of("cut")) > 3
    fresh = again(table)
    for id, x in {"small": np.arange(9), "large": IMAGES, "other": np.arange(7), "cut": IMAGES}.items():
        assert (fresh.get(id) == x).all()
    assert (fresh["cut"][::-1, 2] == IMAGES[::-1, 2]).all()
    table.delete("small")
    assert (again(table).get("other") == np.arange(7)).all()


def test_iterators_and_progress(table):
    told = []
    ids = table.put_many(
        ((None, np.full(100, n)) for n in range(1, 5)), progress=lambda done, all: told.append((done, all))
    )
    assert [int(table.get(id)[0]) for id in ids] == [1, 2, 3, 4]
    assert ids == sorted(ids)
    assert told == sorted(told)
    assert told[-1] == (3200, 3200)
    assert len(table._snapshot.heads) == 1
    assert len(table._version.files) == 2
    assert table.put_many([]) == []


@pytest.mark.parametrize("id", ["", "x" * 600, "a\nb", 3, b"a"], ids=str)
def test_ids_that_are_none(table, id):
    with pytest.raises(InvalidInputError):
        table.put(np.arange(3), id=id)


def test_wrong_arguments(table, tmp_path):
    with pytest.raises(NotFoundError, match="no tensor table"):
        tensor_table(tmp_path / "none", "r")
    with pytest.raises(InvalidInputError, match="mode"):
        tensor_table(tmp_path / "t", "w")
    with pytest.raises(NotFoundError):
        table["a"]
    with pytest.raises(NotFoundError):
        table.delete("a")
    for wrong in (3, [3], [None]):
        with pytest.raises(InvalidInputError, match="ids"):
            table.delete(wrong)
    table.put(np.arange(3), id="a b/c%20ü")
    with pytest.raises(ConflictError, match="already"):
        table.put(np.arange(3), id="a b/c%20ü")
    with pytest.raises(InvalidInputError, match="twice"):
        table.put_many([("z", np.arange(3)), ("z", np.arange(3))])
    for wrong in ([np.arange(3)], 5, [("a",)]):
        with pytest.raises(InvalidInputError):
            table.put_many(wrong)
    with pytest.raises(InvalidInputError, match="layout"):
        table.put(np.arange(3), layout="best")
    with pytest.raises(InvalidInputError, match="rows"):
        table.put(np.arange(3), rows=4)
    with pytest.raises(InvalidInputError, match="form"):
        table.get("a b/c%20ü", "pandas")
    with pytest.raises(InvalidInputError):
        table[3]
    for wrong in (np.ma.masked_array([1, 2]), np.array([object()]), [[1], [2, 3]]):
        with pytest.raises(InvalidInputError):
            table.put(wrong)
    assert 3 not in table
    assert "a b/c%20ü" in table
    assert table
    assert list(table) == ["a b/c%20ü"]
    del table["a b/c%20ü"]
    assert len(table) == 0
    assert "version" in repr(table)
