"""Batches of samples that are of one shape, or not."""

from functools import partial
from typing import NamedTuple

import numpy as np
import pytest

from hyperslab.errors import InvalidInputError

torch = pytest.importorskip("torch")
from hyperslab.torch import Padded, as_list, pad, stack  # noqa: E402
from hyperslab.torch.tensors import pinned  # noqa: E402


class Pair(NamedTuple):
    one: object
    other: object


def test_uneven_samples_cannot_be_stacked_and_the_error_says_what_to_do():
    with pytest.raises(InvalidInputError, match=r"collate_fn=hyperslab\.torch\.pad"):
        stack([torch.zeros(2), torch.zeros(3)])


def test_padding_fills_the_end_of_each_axis():
    samples = [torch.ones((2, 1)), torch.ones((1, 3)), torch.ones((0, 2))]
    values, shapes = batch = pad(samples)
    assert isinstance(batch, Padded)
    assert values.shape == (3, 2, 3)
    assert shapes.tolist() == [[2, 1], [1, 3], [0, 2]]
    assert torch.equal(values, batch.mask.float())
    for number, sample in enumerate(samples):
        rows, columns = shapes[number]
        assert torch.equal(values[number, :rows, :columns], sample)


def test_padding_goes_through_structures():
    samples = [({"image": np.arange(n, dtype="i2"), "name": "ab"[n - 1]}, n) for n in (1, 2)]
    batch, targets = partial(pad, value=-1)(samples)
    assert batch["image"].values.tolist() == [[0, -1], [0, 1]]
    assert batch["image"].values.dtype == torch.int16
    assert batch["name"] == ["a", "b"]
    assert targets.tolist() == [1, 2]
    assert pad([Pair(torch.zeros(1), 2)]).other.tolist() == [2]


def test_samples_of_different_ranks_cannot_be_padded():
    with pytest.raises(InvalidInputError, match=r"\[1, 2\] axes"):
        pad([torch.zeros(2), torch.zeros((2, 2))])


def test_a_list_keeps_samples_apart():
    cells, targets = as_list([[torch.zeros(1), 3], [torch.zeros(2), 4]])
    assert [len(each) for each in cells] == [1, 2]
    assert targets.tolist() == [3, 4]


def test_pinning_goes_through_structures(monkeypatch):
    seen = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: seen.append(self) or self)
    batch = pinned({"a": torch.zeros(1), "b": [Padded(torch.ones(1, 1), torch.ones(1, 1)), "text"]})
    assert len(seen) == 3
    assert isinstance(batch["b"][0], Padded)
    assert batch["b"][1] == "text"
