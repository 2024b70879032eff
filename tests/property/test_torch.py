"""Whatever arrays, boxes, batch sizes, orders and workers: a loader's samples are NumPy's slices, each once."""

from itertools import count

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from support.arrays import folder, keys
from support.profiles import times

import hyperslab as hs

torch = pytest.importorskip("torch")
from hyperslab.torch import SlabDataset, SlabIterable, SlabLoader, as_list  # noqa: E402

LAYOUTS = [{}, {"layout": "plain"}, {"shards": True}]
DTYPES = ["u1", "i8", "f4", ">i2", "c8", "?"]
names = count()


@st.composite
def arrays(draw, on_disk=False):
    """Draw an array in memory (which no other process has) or on the disk, chunked somehow, and what it holds."""
    shape = tuple(draw(st.lists(st.integers(1, 12), min_size=1, max_size=3)))
    data = np.random.default_rng(draw(st.integers(0, 9))).integers(0, 200, shape).astype(draw(st.sampled_from(DTYPES)))
    chunks = tuple(draw(st.integers(1, size)) for size in shape)
    options = draw(st.sampled_from(LAYOUTS))
    if "shards" in options:
        options = {"shards": tuple(2 * size for size in chunks)}
    place = str(folder()) if on_disk else "memory://torch-property"
    return hs.save(f"{place}/torch-{next(names)}", data, chunks=chunks, **options), data


@st.composite
def bounds(draw, shape):
    """Draw boxes of neighbouring cells, as an array."""
    found = [
        [sorted(draw(st.tuples(st.integers(0, size), st.integers(0, size)))) for size in shape]
        for _ in range(draw(st.integers(1, 12)))
    ]
    return np.array(found, np.int64).reshape(-1, len(shape), 2)


def cut(data, box):
    return data[tuple(slice(start, stop) for start, stop in box)]


def check(batches, expected):
    """Compare what came, with its numbers, with what should; return the numbers in their order."""
    seen = []
    for cells, numbers in batches:
        for found, number in zip(cells, numbers.tolist(), strict=True):
            wanted = np.asarray(expected[number])
            assert found.shape == wanted.shape
            assert np.array_equal(np.asarray(found), wanted)
            seen.append(number)
    assert sorted(seen) == list(range(len(expected)))
    return seen


def loaded(dataset, data, workers=0):
    size = data.draw(st.integers(1, 7))
    shuffle = data.draw(st.sampled_from([False, True, "blocks"]))
    return SlabLoader(
        dataset, size, shuffle, seed=data.draw(st.integers(0, 99)), collate_fn=as_list, num_workers=workers,
        multiprocessing_context="fork" if workers else None,
    )  # fmt: skip


@settings(max_examples=times(60))
@given(arrays(), st.data())
def test_boxes(stored, data):
    array, cells = stored
    boxes = data.draw(bounds(cells.shape))
    dataset = SlabDataset(array, boxes, targets=range(len(boxes)))
    expected = [cut(cells, box) for box in boxes]
    loader = loaded(dataset, data)
    check(_uncounted(loader), expected)
    memory_bytes = data.draw(st.sampled_from([1, 300, 1 << 20]))
    check([([found], torch.tensor([at])) for found, at in SlabIterable(dataset, memory_bytes=memory_bytes)], expected)


def _uncounted(batches):
    """Give (cells, numbers), where 0-dimensional cells were stacked instead of listed."""
    return ((list(cells), numbers) for cells, numbers in batches)


@settings(max_examples=times(60))
@given(arrays(), st.data())
def test_any_keys(stored, data):
    array, cells = stored
    wanted = data.draw(st.lists(keys(cells.shape, lists_too=False), min_size=1, max_size=8))
    dataset = SlabDataset(array, wanted, targets=range(len(wanted)))
    ranks = {cells[key].ndim for key in wanted}
    if ranks == {0} or 0 not in ranks:
        check(_uncounted(loaded(dataset, data)), [cells[key] for key in wanted])
    found = dataset.__getitems__(range(len(wanted)))
    check([([sample], torch.tensor([number])) for sample, number in found], [cells[key] for key in wanted])


@settings(max_examples=times(40))
@given(arrays(), st.data())
def test_a_loader_that_stops_and_resumes_gives_what_one_gives_that_does_not(stored, data):
    array, cells = stored
    dataset = SlabDataset(array, np.arange(len(cells)), targets=range(len(cells)))
    loader = loaded(dataset, data)
    batches = [numbers.tolist() for _, numbers in loader]
    loader.set_epoch(0)
    stop = data.draw(st.integers(0, len(batches)))
    going = iter(loader)
    for _ in range(stop):
        next(going)
    state = loader.state_dict()
    going.close()
    resumed = SlabLoader(dataset, loader.batch_size, collate_fn=as_list, sampler=loader.sampler)
    resumed.load_state_dict(state)
    assert [numbers.tolist() for _, numbers in resumed] == batches[stop:]


@settings(max_examples=times(5), phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(arrays(on_disk=True), st.data())
def test_workers(stored, data):
    array, cells = stored
    boxes = data.draw(bounds(cells.shape))
    dataset = SlabDataset(array, boxes, targets=range(len(boxes)))
    check(_uncounted(loaded(dataset, data, data.draw(st.integers(1, 2)))), [cut(cells, box) for box in boxes])
