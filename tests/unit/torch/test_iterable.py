"""Whole epochs: every sample once, every chunk once, whatever the boxes."""

import numpy as np
import pytest
from support.hostile import array_at, fast, put

import hyperslab as hs
from hyperslab.errors import InvalidInputError

torch = pytest.importorskip("torch")
from hyperslab.torch import SlabDataset, SlabIterable  # noqa: E402

DATA = np.arange(40 * 30, dtype="i4").reshape(40, 30)


@pytest.fixture
def remote(fake_s3):
    put(fake_s3, "a", DATA, (8, 7), "zstd")
    return fake_s3


def boxes(count, most=12):
    random = np.random.default_rng(3)
    lows = random.integers(0, [40, 30], (count, 2))
    highs = np.minimum(lows + random.integers(1, most, (count, 2)), [40, 30])
    return np.stack([lows, highs], axis=2)


def numbered(array, bounds, **options):
    return SlabDataset(array, bounds, targets=range(len(bounds)), **options)


def check(found, bounds):
    for cells, number in found:
        (top, bottom), (left, right) = bounds[number]
        assert np.array_equal(cells, DATA[top:bottom, left:right])


@pytest.mark.parametrize("memory_bytes", [1, 2000, 1 << 20])
def test_every_chunk_is_read_once(remote, memory_bytes):
    bounds = boxes(60)
    with fast() as session:
        samples = numbered(array_at(remote, "a", session), bounds)
        found = list(SlabIterable(samples, memory_bytes=memory_bytes))
        assert sorted(number for _, number in found) == list(range(60))
        check(found, bounds)
        keys = [request.key for request in remote.log]
        assert len(keys) == len(set(keys)) == 25


def test_only_chunks_that_samples_need_are_read(remote):
    with fast() as session:
        samples = numbered(array_at(remote, "a", session), np.array([[[1, 3], [2, 8]], [[30, 30], [0, 30]]]))
        found = list(SlabIterable(samples))
        assert [tuple(cells.shape) for cells, _ in found] == [(0, 30), (2, 6)]
        assert len(remote.log) == 2


def test_samples_come_in_the_order_of_chunks_unless_shuffled():
    array = hs.save("memory://torch-tests/epochs", DATA, chunks=(8, 30), overwrite=True)
    rows = SlabDataset(array, range(39, -1, -1), transform=lambda row: int(row[0]) // 30)
    order = list(SlabIterable(rows))
    assert [row // 8 for row in order] == sorted(row // 8 for row in range(40))
    shuffled = SlabIterable(rows, shuffle_buffer=10)
    epochs = [list(shuffled) for _ in range(2)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(40))
    assert epochs[0] != epochs[1] != order


def test_several_arrays_and_keys_that_drop_axes():
    array = hs.save("memory://torch-tests/one", DATA, chunks=(8, 7), overwrite=True)
    other = hs.save("memory://torch-tests/other", DATA[::-1], chunks=(13, 30), overwrite=True)
    keys = [np.s_[3], np.s_[10:20, 4], np.s_[5, 6], np.s_[::-1, 2:5], np.s_[None, 1:9, 3]]
    named = SlabDataset({"a": array, "b": other}, keys, targets=range(5))
    for cells, number in SlabIterable(named, memory_bytes=500):
        assert np.array_equal(cells["a"], DATA[keys[number]])
        assert np.array_equal(cells["b"], DATA[::-1][keys[number]])
    listed = SlabDataset([array, other], [(number % 2, key) for number, key in enumerate(keys)], targets=range(5))
    found = {number: cells for cells, number in SlabIterable(listed)}
    for number, key in enumerate(keys):
        assert np.array_equal(found[number], (DATA, DATA[::-1])[number % 2][key])


def test_ranks_get_equally_many(remote):
    bounds = boxes(31)
    with fast() as session:
        samples = numbered(array_at(remote, "a", session), bounds)
        found = [list(SlabIterable(samples, num_replicas=3, rank=rank)) for rank in range(3)]
        assert [len(each) for each in found] == [11, 11, 11] == [len(SlabIterable(samples, num_replicas=3, rank=0))] * 3
        assert {number for each in found for _, number in each} == set(range(31))
        for each in found:
            check(each, bounds)


def test_wrong_arguments():
    array = hs.save("memory://torch-tests/one", DATA, chunks=(8, 7), overwrite=True)
    with pytest.raises(InvalidInputError, match="of a SlabDataset"):
        SlabIterable(array)
    with pytest.raises(InvalidInputError, match="shuffle_buffer"):
        SlabIterable(SlabDataset(array, range(3)), shuffle_buffer=-1)
    with pytest.raises(InvalidInputError, match="neighbouring cells"):
        list(SlabIterable(SlabDataset(array, [np.s_[::2]])))
