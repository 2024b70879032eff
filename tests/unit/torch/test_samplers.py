"""Orders of samples: complete, repeatable, and near each other where chunks are shuffled."""

import numpy as np
import pytest

import hyperslab as hs
from hyperslab.errors import InvalidInputError

torch = pytest.importorskip("torch")
from hyperslab.torch import BlockSampler, SlabDataset, SlabLoader  # noqa: E402
from hyperslab.torch.samplers import Windows  # noqa: E402


@pytest.fixture
def dataset():
    return SlabDataset(hs.save("memory://torch-tests/order", np.arange(100), chunks=(10,), overwrite=True), range(100))


@pytest.mark.parametrize("blocks", [1, 3, 100])
def test_every_sample_comes_once_and_groups_are_of_few_chunks(dataset, blocks):
    sampler = BlockSampler(dataset, blocks=blocks, seed=1)
    order = list(sampler)
    assert sorted(order) == list(range(100))
    size = 10 * blocks
    for start in range(0, 100, size):
        assert len({sample // 10 for sample in order[start : start + size]}) <= blocks
    assert order != sorted(order)


def test_the_order_is_of_seed_and_epoch(dataset):
    sampler = BlockSampler(dataset, seed=1)
    first = list(sampler)
    assert list(sampler) == first
    sampler.set_epoch(1)
    assert list(sampler) != first
    sampler.set_epoch(0)
    assert list(sampler) == first
    assert list(BlockSampler(dataset, seed=2)) != first


def test_a_sample_is_as_likely_at_any_place(dataset):
    """Over many epochs the mean place of each sample is the middle: 49.5, give or take 5 times 29/√400."""
    sampler, places = BlockSampler(dataset, blocks=2, seed=5), np.zeros(100)
    for epoch in range(400):
        sampler.set_epoch(epoch)
        places[list(sampler)] += np.arange(100)
    assert np.abs(places / 400 - 49.5).max() < 7.5


def test_ranks_get_equal_runs_that_are_all_samples(dataset):
    runs = [list(BlockSampler(dataset, blocks=1, num_replicas=3, rank=rank)) for rank in range(3)]
    assert {len(run) for run in runs} == {34} == {len(BlockSampler(dataset, num_replicas=3, rank=0))}
    assert {sample for run in runs for sample in run} == set(range(100))
    # A rank reads few chunks that others read as well.
    assert sum(len({sample // 10 for sample in run}) for run in runs) <= 10 + 2 + 1


def test_wrong_arguments(dataset):
    with pytest.raises(InvalidInputError, match="1 block or more"):
        BlockSampler(dataset, blocks=0)
    with pytest.raises(InvalidInputError, match="rank is from 0 to 1"):
        BlockSampler(dataset, num_replicas=2, rank=2)
    with pytest.raises(InvalidInputError, match="together"):
        BlockSampler(dataset, rank=2)


def test_windows_hold_no_more_than_their_limit():
    nbytes = np.arange(40)
    batches = [list(range(at, at + 2)) for at in range(0, 40, 2)]
    windows = list(Windows(batches, nbytes, 120))
    assert [batch for window in windows for batch in window] == batches
    assert [len(window) for window in windows][:3] == [1, 2, 4]
    assert all(len(window) == 1 or nbytes[np.ravel(window)].sum() <= 120 for window in windows)


def test_an_empty_dataset_gives_no_batches():
    nothing = SlabDataset(hs.save("memory://torch-tests/none", np.arange(4), overwrite=True), [])
    assert list(BlockSampler(nothing)) == []
    assert list(SlabLoader(nothing, batch_size=2, shuffle="blocks")) == []
    assert len(SlabLoader(nothing, batch_size=2)) == 0
