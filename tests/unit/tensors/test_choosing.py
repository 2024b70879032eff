"""Which layout a tensor gets, and which blocks."""

import numpy as np
import pytest
from support.tensor_rows import speckled

from hyperslab.errors import InvalidInputError
from hyperslab.tensors import layouts
from hyperslab.tensors.choosing import choose, choose_block
from hyperslab.tensors.values import Coo, coo_of_dense


@pytest.mark.parametrize(("share", "dense"), [(0.11, True), (0.09, False)])
def test_ten_per_cent_rule(share, dense):
    x = speckled((100, 100), int(10_000 * share))
    assert (choose(x)[0] == "ftsf") is dense
    assert (choose(coo_of_dense(x))[0] == "ftsf") is dense


def test_sparse_tensor_whose_fill_is_not_zero_stays_sparse():
    x = Coo.of((10, 10), np.indices((10, 10)).reshape(2, -1), np.ones(100), fill=3.0)
    assert choose(x)[0] != "ftsf"


@pytest.mark.parametrize("x", [np.array(["a", ""]), np.zeros((0, 4)), np.array(5)])
def test_what_only_chunks_hold_gets_chunks(x):
    assert choose(x)[0] == "ftsf"


def test_tensor_without_stored_cells():
    layout, parameters = choose(np.zeros((50, 50)))
    encoded = layouts.encode(np.zeros((50, 50)), layout, **parameters)
    assert list(encoded.tables) == []


def test_clustered_cells_get_blocks():
    rng = np.random.default_rng(0)
    coords = np.concatenate([rng.integers(0, 40, (1, 20_000)), rng.normal(500, 30, (2, 20_000)).astype(int)])
    layout, parameters = choose(Coo.of((40, 1000, 1000), coords, np.ones(20_000, "f4")))
    assert layout == "bsgs"
    assert len(parameters["block"]) == 3


def test_workload_decides_along_which_axis_blocks_are_thin():
    rng = np.random.default_rng(0)
    x = Coo.of((256, 256, 256), rng.integers(0, 256, (3, 200_000)), np.ones(200_000))
    _, rows = choose(x, workload=[np.s_[k] for k in range(0, 256, 16)])
    _, columns = choose(x, workload=[np.s_[:, :, k] for k in range(0, 256, 16)])
    assert rows["block"][0] < rows["block"][2]
    assert columns["block"][2] < columns["block"][0]


def test_workload_decides_how_thick_chunks_are():
    x = np.ones((2000, 64, 64), "u1")
    assert choose(x, workload=[np.s_[5]])[1] == {"chunk_dims": 2, "rows": 1}
    assert choose(x)[1]["rows"] > 100


@pytest.mark.parametrize("workload", ["abc", 5, [np.s_[[1, 2], [3, 4]]], [np.s_[99]]])
def test_workload_that_cannot_be_is_refused(workload):
    with pytest.raises(InvalidInputError):
        choose(np.ones((4, 4)), workload)


def test_blocks_of_a_vast_tensor_stay_within_what_can_be_counted():
    x = Coo.of((2**31, 2**31), [[5, 2**30], [7, 2**30]], np.ones(2))
    block, inner = choose_block(x)
    assert np.prod(block, dtype=float) <= 2**47
    assert sorted(inner) == [0, 1]
