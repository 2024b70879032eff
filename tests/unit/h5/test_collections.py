"""A collection as a file: its arrays are the datasets, the slashes in their names make groups."""

import numpy as np
import pytest

import hyperslab as hs
import hyperslab.h5
from hyperslab.errors import UnsupportedError

ARRAYS = {
    "cats/1": np.arange(12.0).reshape(3, 4),
    "cats/2": np.eye(2, dtype="i4"),
    "cats/old/3": np.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8")]),
    "dogs": np.array(5, "u1"),
}


@pytest.fixture(params=["url", "handle"])
def file(request, tmp_path):
    made = hs.collection(str(tmp_path / "c"), "w-")
    made.put_many(ARRAYS, {"cats/1": {"label": "grey", "weight": 4.5}})
    with hyperslab.h5.File(str(tmp_path / "c") if request.param == "url" else made) as opened:
        yield opened


def test_names(file):
    assert (list(file), list(file["cats"]), len(file["cats"])) == (["cats", "dogs"], ["1", "2", "old"], 3)
    seen = []
    file.visititems(lambda name, found: seen.append((name, type(found).__name__)))
    assert seen == [
        ("cats", "Group"), ("cats/1", "Dataset"), ("cats/2", "Dataset"), ("cats/old", "Group"),
        ("cats/old/3", "Dataset"), ("dogs", "Dataset"),
    ]  # fmt: skip
    assert "cats/1" in file
    assert "cats/9" not in file
    with pytest.raises(KeyError):
        file["cats/9"]


def test_cells(file):
    for name, array in ARRAYS.items():
        found = file[name]
        assert (found.shape, found.dtype, found.maxshape) == (array.shape, array.dtype, array.shape)
        assert np.array_equal(found[()], array)
    cats = file["cats/1"]
    assert list(cats[1, ::2]) == [4, 6]
    assert np.array_equal(cats[:, [0, 3]], ARRAYS["cats/1"][:, [0, 3]])
    assert np.array_equal(cats[cats[...] > 8], [9, 10, 11])
    assert list(cats[0, [1, 2]]) == [1, 2]
    assert np.array_equal(file["cats/old/3"]["a", "b"], ARRAYS["cats/old/3"])
    assert list(file["cats/old/3"]["b"]) == [2.5]
    assert file["cats/old/3"]["a", 0] == 1
    out = np.zeros(4)
    cats.read_direct(out, np.s_[2])
    assert list(out) == [8, 9, 10, 11]


def test_attributes(file):
    assert dict(file["cats/1"].attrs) == {"label": "grey", "weight": 4.5}
    assert dict(file["cats/2"].attrs) == dict(file.attrs) == {}


def test_it_is_only_read(file):
    with pytest.raises(ValueError, match="read"):
        file["new"] = [1]
    with pytest.raises(ValueError, match="read"):
        file["cats/1"][0] = 1
    with pytest.raises(ValueError, match="open"):
        file["cats/1"].attrs["a"] = 1
    with pytest.raises(UnsupportedError):
        hyperslab.h5.File(file.filename, "r+")
    with pytest.raises(FileExistsError):
        hyperslab.h5.File(file.filename, "w")
