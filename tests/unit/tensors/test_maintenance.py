"""Small files are put together and old ones deleted; no tensor changes."""

import os

import numpy as np
import pytest
from deltalake import DeltaTable

import hyperslab as hs
from hyperslab.errors import HyperslabError, InvalidInputError, NotFoundError
from hyperslab.tensors import Coo, tensor_table


@pytest.fixture
def table(tmp_path):
    with hs.Session() as session:
        yield tensor_table(tmp_path / "t", session=session)


def fill(table):
    rng = np.random.default_rng(5)
    tensors = {f"dense {n}": rng.integers(0, 9, (n + 2, 5)) for n in range(6)}
    for n in range(4):
        coords = np.array([rng.integers(0, 30, 20), rng.integers(0, 40, 20)])
        tensors[f"sparse {n}"] = Coo.of((30, 40), coords, np.arange(1.0, 21.0))
    for id, x in tensors.items():
        layout = {"layout": "bsgs"} if isinstance(x, Coo) else {"layout": "ftsf", "chunk_dims": 1, "rows": 1}
        table.put(x, id=id, metadata={"name": id}, **layout)
    return {id: x.to_dense() if isinstance(x, Coo) else x for id, x in tensors.items()}


def check(table, expected):
    assert list(table) == sorted(expected)
    for id, x in expected.items():
        assert (table.get(id, "numpy") == x).all()
        assert (table[id].read("numpy", np.s_[1, ::2]) == x[1, ::2]).all()
        assert table[id].metadata == {"name": id}


def test_optimize_changes_no_tensor(table, tmp_path):
    expected = fill(table)
    before, told = table.version, []
    assert len(table._version.files) == 20
    assert table.optimize(progress=lambda *done: told.append(done)) == 20
    assert table.version == before + 1
    assert len(table._version.files) == 3
    assert told[-1][0] == told[-1][1]
    check(table, expected)
    check(tensor_table(table.url, session=hs.Session()), expected)
    check(table.at(version=before), expected)
    commit = DeltaTable(table.url).history(1)[0]
    assert commit["hyperslab.operation"] == "optimize"
    assert table.optimize() == 0
    table.delete(["dense 2", "sparse 1"])
    check(table, {id: x for id, x in expected.items() if id not in ("dense 2", "sparse 1")})


def test_optimize_while_others_write(table, monkeypatch):
    """Files that were put together are deleted by another writer meanwhile: it is done again, on what is left."""
    from hyperslab.tensors import maintenance

    expected = fill(table)
    real, calls = maintenance._Optimizing._work, []

    def work(self, snapshot):
        change = real(self, snapshot)
        if not calls:
            tensor_table(table.url, session=hs.Session()).delete("dense 3")
        calls.append(change)
        return change

    monkeypatch.setattr(maintenance._Optimizing, "_work", work)
    assert table.optimize() == 18
    assert len(calls) == 2
    check(table, {id: x for id, x in expected.items() if id != "dense 3"})


def test_vacuum_deletes_what_no_version_needs(table, tmp_path):
    expected = fill(table)
    table.optimize()
    lost = tmp_path / "t" / "data" / "0123-99-00000000.parquet"
    lost.write_bytes(b"what a broken put left")
    assert table.vacuum() == []
    found = table.vacuum(0, dry_run=True)
    assert len(found) == 21
    assert lost.exists()
    assert sorted(table.vacuum(0)) == sorted(found)
    assert not lost.exists()
    assert len(os.listdir(tmp_path / "t" / "data")) == 2
    check(table.refresh(), expected)
    old = tensor_table(table.url, session=hs.Session()).at(version=3)
    with pytest.raises(HyperslabError, match="gone"):
        old.get("dense 1")


def test_wrong_arguments(table):
    with pytest.raises(NotFoundError):
        table.vacuum()
    assert table.optimize() == 0
    for wrong in (-1, "week", True):
        with pytest.raises(InvalidInputError):
            table.vacuum(wrong)
    table.put(np.arange(3))
    assert table.optimize() == 0
    reader = tensor_table(table.url, "r")
    for change in (reader.optimize, reader.vacuum, lambda: reader.delete("x")):
        with pytest.raises(InvalidInputError, match="mode"):
            change()
