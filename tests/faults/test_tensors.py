"""Tensor tables while things go wrong: kills, many writers, damaged files. What was committed stays whole."""

import os
import random
from collections import Counter

import numpy as np
import pytest
from deltalake import DeltaTable
from support import tensor_work
from support.profiles import times

import hyperslab as hs
from hyperslab.errors import FormatError, HyperslabError, IntegrityError, NotFoundError
from hyperslab.tensors import storing, tensor_table
from hyperslab.tensors.values import Coo


def whole(url):
    """Return all tensors of the latest version, read anew; delta-rs must find the same files."""
    with hs.Session() as session:
        table = tensor_table(url, session=session)
        if table.version is None:
            return table, {}
        assert len(DeltaTable(str(url)).file_uris()) == len(table._version.files)
        return table, {id: table.get(id) for id in table}


@pytest.mark.parametrize(
    ("work", "args"),
    [
        (tensor_work.put_for_ever, ((40, 3000),)),
        (tensor_work.put_many_for_ever, (12,)),
        (tensor_work.optimize_for_ever, ()),
    ],
    ids=["put", "put_many", "optimize"],
)
def test_killed_at_any_time(tmp_path, work, args):
    """However often the writer is killed: the last version is whole, and the next writer goes on from it."""
    context, url, before = tensor_work.children(), str(tmp_path / "t"), 0
    random.seed(1)
    for _ in range(times(6)):
        assert tensor_work.kill_after(context, work, (url, *args), random.uniform(0.0, 0.6))
        table, found = whole(url)
        assert len(found) >= before
        before = len(found)
        for cells in found.values():
            assert (cells == cells.reshape(-1)[0]).all()
        if work is tensor_work.put_many_for_ever and found:
            together = Counter(table.list(columns=["put"]).column("put").to_pylist())
            assert set(together.values()) == {12}
    tensor_table(url).put(np.arange(3), id="last")
    assert len(whole(url)[1]) == before + 1


@pytest.mark.timeout(1200)
def test_many_processes_put_at_once(tmp_path):
    """16 processes, 20 puts each: none is lost, none is there twice."""
    context, url = tensor_work.children(), str(tmp_path / "t")
    writers, count = 16, 20
    processes = [context.Process(target=tensor_work.put_numbers, args=(url, n, count)) for n in range(writers)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * writers
    table = tensor_table(url)
    listed = table.list(columns=["id", "writer", "number"]).to_pylist()
    pairs = Counter((row["writer"], row["number"]) for row in listed)
    assert pairs == Counter((writer, number) for writer in range(writers) for number in range(count))
    for row in random.Random(2).sample(listed, 20):
        assert table.get(row["id"]).tolist() == [1 + row["writer"], row["number"]]


def a_table(url, layout):
    rng = np.random.default_rng(3)
    dense = rng.integers(0, 200, (12, 40, 30)).astype("u1")
    coords = np.array([rng.integers(0, n, 400) for n in (30, 20, 25)])
    sparse = Coo.of((30, 20, 25), coords, rng.integers(1, 6, 400).astype("f4"))
    table = tensor_table(url)
    if layout == "ftsf":
        table.put(dense, id="x", layout=layout, chunk_dims=2, rows=1)
        return dense
    table.put(sparse, id="x", layout=layout)
    return sparse.to_dense()


@pytest.mark.timeout(400)  # the first has all compiled that reads blocks
@pytest.mark.parametrize("layout", ["ftsf", "coo", "csr", "csc", "csf", "bsgs"])
def test_flipped_bits_are_told(tmp_path, layout):
    """Of every Parquet file bits are flipped: a typed error, or the same numbers; never others."""
    url = str(tmp_path / "t")
    expected = a_table(url, layout)
    rng = random.Random(5)
    told = 0
    for folder in ("data", "tensors"):
        for name in os.listdir(os.path.join(url, folder)):
            path = os.path.join(url, folder, name)
            with open(path, "rb") as file:
                good = file.read()
            places = rng.sample(range(len(good)), min(len(good), times(60)))
            for place in places:
                bad = bytearray(good)
                bad[place] ^= 1 << rng.randrange(8)
                with open(path, "wb") as file:
                    file.write(bad)
                told += not same_or_told(url, expected)
            with open(path, "wb") as file:
                file.write(good)
    assert told > 50
    assert same_or_told(url, expected)


def same_or_told(url, expected):
    with hs.Session() as session:
        try:
            table = tensor_table(url, session=session)
            assert list(table) == ["x"]
            assert (table.get("x", "numpy") == expected).all()
            assert (table["x"].read("numpy", np.s_[3:5, ::2]) == expected[3:5, ::2]).all()
        except (IntegrityError, FormatError):
            return False
    return True


def test_files_that_are_cut_off_or_gone(tmp_path):
    url = str(tmp_path / "t")
    a_table(url, "ftsf")
    name = os.listdir(os.path.join(url, "data"))[0]
    path = os.path.join(url, "data", name)
    with open(path, "rb") as file:
        good = file.read()
    for length in (0, 7, len(good) // 2, len(good) - 1):
        with open(path, "wb") as file:
            file.write(good[:length])
        with hs.Session() as session, pytest.raises(HyperslabError):
            tensor_table(url, session=session)["x"][3]
    os.remove(path)
    with hs.Session() as session, pytest.raises(HyperslabError, match="gone"):
        tensor_table(url, session=session)["x"][3]


def test_error_in_the_middle_of_put_many(tmp_path, monkeypatch):
    """Nothing of it is visible; what was stored is swept."""
    monkeypatch.setattr(storing, "SMALL_BYTES", 0)
    table = tensor_table(tmp_path / "t")
    table.put(np.arange(3), id="a")

    def items():
        yield "b", np.arange(10)
        raise RuntimeError("the source broke off")

    with pytest.raises(RuntimeError, match="broke off"):
        table.put_many(items())
    assert list(table.refresh()) == ["a"]
    with pytest.raises(NotFoundError):
        table["b"]


def test_delta_in_a_forked_child(tmp_path):
    """Where delta-rs cannot be used, there is a typed error, not a hang; reading goes on."""
    from support.forking import in_child

    url = str(tmp_path / "t")
    tensor_table(url).put(np.arange(3), id="a")

    def child():
        with hs.Session() as session:
            table = tensor_table(url, session=session)
            try:
                table.put(np.arange(4))
            except HyperslabError as error:
                return table.get("a").tolist(), type(error).__name__
        return None

    assert in_child(child, 30.0) == ([0, 1, 2], "ForkError")
