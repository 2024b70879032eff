"""The loader without workers: order, reading ahead within its limit, resuming, errors."""

import threading
import time

import numpy as np
import pytest
from support.hostile import array_at, fast, put, wait_until

import hyperslab as hs
from hyperslab.errors import BudgetError, InvalidInputError

torch = pytest.importorskip("torch")
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler  # noqa: E402

from hyperslab.torch import SlabDataset, SlabLoader, pad  # noqa: E402

DATA = np.arange(60 * 8, dtype="i4").reshape(60, 8)


@pytest.fixture
def dataset():
    return SlabDataset(hs.save("memory://torch-tests/loader", DATA, chunks=(7, 8), overwrite=True), range(60))


def firsts(batches):
    return [(batch[:, 0] // 8).tolist() for batch in batches]


def flat(batches):
    return [row for batch in firsts(batches) for row in batch]


def test_batches_are_those_of_pytorch(dataset):
    ours, theirs = (list(kind(dataset, batch_size=7)) for kind in (SlabLoader, DataLoader))
    assert len(ours) == len(theirs) == len(SlabLoader(dataset, batch_size=7)) == 9
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))
    assert len(list(SlabLoader(dataset, batch_size=7, drop_last=True))) == 8


@pytest.mark.parametrize("shuffle", [True, "blocks"])
def test_shuffled_epochs_differ_and_repeat_with_the_seed(dataset, shuffle):
    loader = SlabLoader(dataset, 7, shuffle, seed=4)
    epochs = [flat(loader) for _ in range(3)]
    assert all(sorted(epoch) == list(range(60)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    again = SlabLoader(dataset, 7, shuffle, seed=4)
    again.set_epoch(1)
    assert [flat(again), flat(again)] == epochs[1:]


def test_the_seed_is_of_pytorchs_generator(dataset):
    seeds = [(torch.manual_seed(7), SlabLoader(dataset, shuffle=True).seed)[1] for _ in range(2)]
    assert seeds[0] == seeds[1] != SlabLoader(dataset, shuffle=True).seed


def test_uneven_boxes_are_padded(dataset):
    rows = SlabDataset(dataset.arrays[0], [np.s_[0, :3], np.s_[1, :5]])
    with pytest.raises(InvalidInputError, match="collate_fn"):
        list(SlabLoader(rows, 2))
    (batch,) = SlabLoader(rows, 2, collate_fn=pad)
    assert batch.shapes.tolist() == [[3], [5]]


def test_samplers_and_batch_samplers_of_pytorch(dataset):
    both = [flat(SlabLoader(dataset, 7, sampler=DistributedSampler(dataset, 2, rank, seed=3))) for rank in range(2)]
    assert sorted(both[0] + both[1]) == list(range(60))
    batches = BatchSampler([3, 1, 2], 2, False)
    assert firsts(SlabLoader(dataset, batch_sampler=batches)) == [[3, 1], [2]]
    assert firsts(SlabLoader(dataset, batch_sampler=[[5], [6, 7]])) == [[5], [6, 7]]


def test_the_loader_tells_a_distributed_sampler_its_epoch(dataset):
    sampler = DistributedSampler(dataset, 2, 0, seed=3)
    loader = SlabLoader(dataset, 7, sampler=sampler)
    epochs = [flat(loader) for _ in range(2)]
    assert epochs[0] != epochs[1]
    sampler.set_epoch(0)  # what was told before is not news
    sampler.set_epoch(5)
    fifth = flat(loader)
    other = DistributedSampler(dataset, 2, 0, seed=3)
    other.set_epoch(5)
    assert fifth == list(other)


# Reading ahead


def test_the_next_batches_are_read_while_one_is_in_use(fake_s3):
    put(fake_s3, "a", DATA, (4, 8), "zstd")
    before = set(threading.enumerate())
    with fast() as session:
        rows = SlabDataset(array_at(fake_s3, "a", session), range(60))
        batches = iter(SlabLoader(rows, batch_size=4))
        next(batches)
        assert wait_until(lambda: len(fake_s3.log) >= 1 + 2 + 4, 60)
        assert flat([next(batches)]) == [4, 5, 6, 7]
        batches.close()
    new = set(threading.enumerate()) - before
    assert not [thread for thread in new if thread.name.startswith("hyperslab-loader")]


def test_no_more_is_read_ahead_than_the_limit_allows(fake_s3):
    put(fake_s3, "a", DATA, (4, 8), "zstd")
    with fast() as session:
        rows = SlabDataset(array_at(fake_s3, "a", session), range(60))
        batches = iter(SlabLoader(rows, batch_size=4, prefetch_bytes=3 * 4 * 32))
        for given in range(1, 6):
            next(batches)
            time.sleep(0.1)
            assert len(fake_s3.log) <= given + 2
        batches.close()


def test_a_limit_that_holds_no_batch_is_refused(dataset):
    with pytest.raises(InvalidInputError, match=r"prefetch_bytes must be 672 or more, not 671"):
        SlabLoader(dataset, 7, prefetch_bytes=671)
    assert flat(SlabLoader(dataset, 7, prefetch_bytes=672)) == list(range(60))
    with pytest.raises(InvalidInputError, match=r"must be 1,120 or more"):
        SlabLoader(dataset, 7, prefetch_bytes=672, num_workers=2)


def test_transforms_run_in_the_thread_that_asks(dataset):
    threads = set()
    noted = SlabDataset(dataset.arrays[0], range(60), transform=lambda row: threads.add(threading.get_ident()) or row)
    assert len(list(SlabLoader(noted, 7))) == 9
    assert threads == {threading.get_ident()}


def test_samples_of_several_batches_share_chunks(fake_s3):
    put(fake_s3, "a", DATA, (60, 8), "zstd")
    with fast(cache_bytes=1 << 20) as session:
        rows = SlabDataset(array_at(fake_s3, "a", session), range(60))
        assert flat(SlabLoader(rows, 2, shuffle=True, seed=1)) != list(range(60))
        assert len(fake_s3.log) <= 2  # two windows may be on their way before one is in the cache


@pytest.mark.skipif(torch.accelerator.is_available(), reason="there is memory to pin")
def test_pinning_without_an_accelerator_changes_nothing(dataset):
    assert flat(SlabLoader(dataset, 7, pin_memory=True)) == list(range(60))


# Resuming


@pytest.mark.parametrize("shuffle", [False, True, "blocks"])
@pytest.mark.parametrize("seen", [0, 1, 4, 9])
def test_a_resumed_loader_goes_on_with_the_next_batch(dataset, shuffle, seen):
    loader = SlabLoader(dataset, 7, shuffle, seed=2)
    flat(loader)
    batches = iter(loader)
    before = firsts(next(batches) for _ in range(seen))
    state = loader.state_dict()
    rest, after = firsts(batches), firsts(loader)
    assert state["batches"] == seen
    resumed = SlabLoader(dataset, 7, shuffle)
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state
    # Before the first batch of the second epoch nothing of it has been handed out: it is all there.
    assert firsts(resumed) == (rest if seen else before + rest)
    assert firsts(resumed) == after


def test_a_sampler_with_a_generator_resumes(dataset):
    def made():
        return SlabLoader(dataset, 7, sampler=RandomSampler(dataset, generator=torch.Generator().manual_seed(9)))

    loader = made()
    flat(loader)
    batches = iter(loader)
    next(batches)
    state, rest = loader.state_dict(), firsts(batches)
    resumed = made()
    resumed.load_state_dict(state)
    assert firsts(resumed) == rest


def test_an_epoch_that_was_broken_off_is_over(dataset):
    loader, other = (SlabLoader(dataset, 7, True, seed=2) for _ in range(2))
    next(iter(loader))
    flat(other)
    assert flat(loader) == flat(other)


def test_the_state_of_another_dataset_is_refused(dataset):
    with pytest.raises(InvalidInputError, match="batch_size 7, this one has 8"):
        SlabLoader(dataset, 8).load_state_dict(SlabLoader(dataset, 7).state_dict())


# Errors


def test_wrong_arguments(dataset):
    with pytest.raises(InvalidInputError, match="of a SlabDataset"):
        SlabLoader(DATA)
    with pytest.raises(InvalidInputError, match="'blocks'"):
        SlabLoader(dataset, shuffle="chunks")
    with pytest.raises(InvalidInputError, match="one of shuffle"):
        SlabLoader(dataset, shuffle=True, sampler=[1])
    with pytest.raises(InvalidInputError, match="num_workers"):
        SlabLoader(dataset, num_workers=-1)


def test_a_failed_read_arrives_as_it_was_raised(fake_s3):
    put(fake_s3, "a", DATA, (4, 8), "crc")
    with fast(retries=0) as session:
        rows = SlabDataset(array_at(fake_s3, "a", session), range(60))
        damaged = bytearray(fake_s3.fake.objects["bucket/a/c/2/0"])
        damaged[0] ^= 1
        fake_s3.fake.objects["bucket/a/c/2/0"] = bytes(damaged)
        with pytest.raises(hs.errors.IntegrityError):
            list(SlabLoader(rows, 4))


def test_the_budget_of_the_session_holds(fake_s3):
    put(fake_s3, "a", DATA, (4, 8), "zstd")
    with fast(budget=hs.Budget(requests=6)) as session:
        rows = SlabDataset(array_at(fake_s3, "a", session), range(60))
        with pytest.raises(BudgetError, match="requests"):
            list(SlabLoader(rows, 4))
        assert len(fake_s3.log) <= 6
