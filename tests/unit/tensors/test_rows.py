"""Rows as they are read: payloads stay where they lie, and rows of several files are one."""

import pickle
from pathlib import Path

import numpy as np
import pytest

import hyperslab as hs
from hyperslab.errors import MetadataError
from hyperslab.tensors import Coo
from hyperslab.tensors.layouts import Rows


def rows(places: list[int], payloads: list[bytes], before: bytes = b"") -> Rows:
    ends = len(before) + np.cumsum([0, *map(len, payloads)])
    data = np.frombuffer(before + b"".join(payloads), np.uint8)
    return Rows({"i0": np.array(places, np.int64)}, data, ends[:-1], ends[1:])


def payloads(found: Rows) -> list[bytes]:
    return [found.data[low:high].tobytes() for low, high in zip(found.starts, found.stops, strict=True)]


def test_rows_within_bounds_keep_their_payloads():
    found = rows([1, 4, 6], [b"a", b"bcd", b""]).within({"i0": (4, 9)})
    assert found.column("i0").tolist() == [4, 6]
    assert payloads(found) == [b"bcd", b""]


def test_rows_of_several_files_are_joined():
    parts = [rows([1, 2], [b"ab", b"c"], before=b"head"), rows([], []), rows([3], [b"def"], before=b"x")]
    found = Rows.joined(parts)
    assert found.column("i0").tolist() == [1, 2, 3]
    assert payloads(found) == [b"ab", b"c", b"def"]


def test_a_column_that_is_not_there_is_named():
    with pytest.raises(MetadataError, match="count"):
        rows([1], [b"a"]).column("count")


def test_an_open_handle_reads_the_same_again_and_pickles(tmp_path: Path):
    x = Coo.of((6, 50, 40), np.array(np.unravel_index(np.arange(0, 12000, 7), (6, 50, 40))), np.arange(1, 1716.0))
    with hs.Session(cache_bytes=0) as session:
        t = hs.tensor_table(tmp_path / "t", session=session)
        t.put(x, id="x", layout="bsgs", block=(1, 16, 16))
        tensor = t["x"]
        for key in (np.s_[3], np.s_[3], np.s_[:, 17], np.s_[..., 5], np.s_[3]):
            assert (tensor[key].to_dense() == x.to_dense()[key]).all()
        again = pickle.loads(pickle.dumps(tensor))
        assert (again[2].to_dense() == x.to_dense()[2]).all()
