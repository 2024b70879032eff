"""The loader with worker processes, however they are started: NumPy's cells, one budget, errors as they were raised."""

import gc
import multiprocessing
import os
import warnings
from contextlib import suppress

import numpy as np
import pytest
from support.hostile import array_at, fast, put

import hyperslab as hs
from hyperslab.errors import BudgetError, ChunkSizeError, InvalidInputError

torch = pytest.importorskip("torch")
from torch.utils.data import DataLoader, DistributedSampler  # noqa: E402

from hyperslab.torch import SlabDataset, SlabIterable, SlabLoader, as_tensors, pad  # noqa: E402

DATA = np.arange(48 * 8, dtype="i4").reshape(48, 8)


@pytest.fixture
def remote(fake_s3):
    put(fake_s3, "a", DATA, (4, 8), "zstd")
    return fake_s3


def patient(**settings):
    """A session whose workers ask once, however slow they are to start."""
    return fast(timeout_s=60.0, **settings)


def with_process(cells):
    return as_tensors(cells), os.getpid()


def flat(batches):
    return [row for batch in batches for row in (batch[:, 0] // 8).tolist()]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_read_what_numpy_has(remote, method):
    """The parent has read before, so that obstore's threads are there when it forks."""
    with fast() as session:
        array = array_at(remote, "a", session)
        assert np.array_equal(array[...], DATA)
        rows = SlabDataset(array, range(48))
        workers = 2 if method == "fork" else 1
        found = list(SlabLoader(rows, 5, True, seed=3, num_workers=workers, multiprocessing_context=method))
        assert sorted(flat(found)) == list(range(48))
        assert all(np.array_equal(batch, DATA[batch[:, 0] // 8]) for batch in found)
        assert flat(found) == flat(SlabLoader(rows, 5, True, seed=3))
        assert session.metrics.requests > 12  # what the workers did is told


def test_workers_are_other_processes_and_may_last(remote):
    with fast() as session:
        rows = SlabDataset(array_at(remote, "a", session), range(48), transform=with_process)
        loader = SlabLoader(rows, 6, num_workers=2, persistent_workers=True)
        epochs = [{int(process) for _, processes in loader for process in processes} for _ in range(2)]
        assert epochs[0] == epochs[1]
        assert len(epochs[0]) == 2
        assert os.getpid() not in epochs[0]
        next(iter(loader))  # broken off: the next epoch is complete all the same
        assert flat(batch for batch, _ in loader) == list(range(48))


def test_ranks_with_workers_and_uneven_boxes(remote):
    with fast() as session:
        rows = SlabDataset(array_at(remote, "a", session), [np.s_[row, : 1 + row % 8] for row in range(48)])
        seen = []
        for rank in range(2):
            sampler = DistributedSampler(rows, 2, rank)
            for values, shapes in SlabLoader(rows, 5, sampler=sampler, num_workers=1, collate_fn=pad):
                for row, (width,) in zip(values, shapes, strict=True):
                    seen.append(int(row[0]) // 8)
                    assert row[:width].tolist() == DATA[seen[-1], : 1 + seen[-1] % 8].tolist()
        assert sorted(seen) == list(range(48))


def test_resuming_with_workers(remote):
    with fast() as session:
        rows = SlabDataset(array_at(remote, "a", session), range(48))
        loader = SlabLoader(rows, 5, "blocks", seed=3, num_workers=1)
        batches = iter(loader)
        for _ in range(3):
            next(batches)
        state = loader.state_dict()
        rest = flat(batches)
        resumed = SlabLoader(rows, 5, "blocks", num_workers=2)
        resumed.load_state_dict(state)
        assert flat(resumed) == rest


# One budget


def test_what_workers_did_is_in_the_sessions_metrics_and_budget(remote):
    with patient(budget=hs.Budget(requests=100, usd=1.0)) as session:
        rows = SlabDataset(array_at(remote, "a", session), range(48))
        loader = SlabLoader(rows, 4, num_workers=2)
        assert flat(loader) == list(range(48))
        assert session.metrics.requests == 12 == len(remote.log)
        assert session.metrics.usd > 0
        assert session.account.left().requests == 88
        assert session.account.left().usd == pytest.approx(1.0 - session.metrics.usd)
        assert session.account.left().bytes is None
        flat(loader)
        assert session.account.left().requests == 76


def test_all_workers_together_stay_within_the_budget(remote):
    with patient(budget=hs.Budget(requests=9)) as session:
        rows = SlabDataset(array_at(remote, "a", session), range(48))
        with pytest.raises(BudgetError, match="requests"):
            list(SlabLoader(rows, 4, num_workers=2))
        assert len(remote.log) <= 8  # shares of 4
        assert session.account.left().requests == 9 - len(remote.log)
        assert len(list(SlabLoader(SlabDataset(rows.arrays[0], [0]), num_workers=1))) == 1


def test_workers_that_last_get_shares_anew(remote):
    with patient(budget=hs.Budget(requests=30)) as session:
        rows = SlabDataset(array_at(remote, "a", session), range(48))
        loader = SlabLoader(rows, 4, num_workers=1, persistent_workers=True)
        for epoch in (1, 2):
            assert flat(loader) == list(range(48))
            assert session.account.left().requests == 30 - 12 * epoch
        with pytest.raises(BudgetError):
            flat(loader)
        assert len(remote.log) <= 30


def test_pytorchs_own_loader_gives_workers_shares(remote):
    with patient(budget=hs.Budget(requests=101)) as session:
        array = array_at(remote, "a", session)
        rows = SlabDataset(array, range(48), transform=lambda _: session.account.left().requests)
        left = torch.cat(list(DataLoader(rows, 4, num_workers=2, multiprocessing_context="fork")))
        # Each has read six batches, a chunk each.
        assert (left.max(), left.min()) == (50 - 1, 50 - 6)


# Errors


def test_an_error_in_a_worker_arrives_whole(remote):
    remote.fake.objects["bucket/b/zarr.json"] = remote.fake.objects["bucket/a/zarr.json"]
    put(remote, "b", DATA, (4, 8), "plain")
    remote.fake.objects["bucket/b/c/3/0"] = b"short"
    with fast(retries=0) as session:
        rows = SlabDataset(array_at(remote, "b", session), range(48))
        with pytest.raises((ChunkSizeError, hs.errors.StoreError, hs.errors.IntegrityError)) as failure:
            list(SlabLoader(rows, 4, num_workers=1))
        assert "c/3/0" in str(failure.value)


def test_workers_end_with_their_loader_after_an_error(remote):
    """At once: whoever waits for the garbage collector is not told by PyTorch, and is waited for in vain.

    As Dask does it, errors take their tracebacks along, which lead to whoever unpickled them.
    """
    pytest.importorskip("tblib.pickling_support").install()
    with fast(budget=hs.Budget(requests=4)) as session:
        rows = SlabDataset(array_at(remote, "a", session), range(48))
        loader = SlabLoader(rows, 4, num_workers=1, persistent_workers=True)
        before = set(multiprocessing.active_children())
        gc.disable()
        try:
            with suppress(BudgetError):
                list(loader)
                pytest.fail("the budget was not held")
            assert set(multiprocessing.active_children()) - before
            del loader
            assert not set(multiprocessing.active_children()) - before
        finally:
            gc.enable()


def test_uneven_boxes_in_a_worker(remote):
    with fast() as session:
        rows = SlabDataset(array_at(remote, "a", session), [np.s_[0, :3], np.s_[0, :2]])
        with pytest.raises(InvalidInputError, match="different shapes"):
            list(SlabLoader(rows, 2, num_workers=1))


# Whole epochs


def test_workers_share_an_epoch(remote):
    with fast() as session:
        rows = SlabDataset(array_at(remote, "a", session), range(48))
        found = flat(DataLoader(SlabIterable(rows), batch_size=5, num_workers=2, multiprocessing_context="fork"))
        assert sorted(found) == list(range(48))
        # Different ones: a worker that is slow to start may ask again.
        assert len({(asked.key, asked.range) for asked in remote.log}) == 12


def test_no_worker_is_left_behind(remote):
    with fast() as session, warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        rows = SlabDataset(array_at(remote, "a", session), range(48))
        before = set(multiprocessing.active_children())
        batches = iter(SlabLoader(rows, 4, num_workers=2))
        next(batches)
        assert len(set(multiprocessing.active_children()) - before) == 2
        batches.close()
        assert set(multiprocessing.active_children()) <= before
