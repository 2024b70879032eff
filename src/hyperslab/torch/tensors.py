"""From cells to tensors: single samples, and batches of samples that may be of different shapes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import default_collate

from hyperslab.errors import InvalidInputError

__all__ = ["Padded", "as_list", "as_tensors", "pad", "pinned", "stack"]


def as_tensors(sample: Any) -> Any:
    """Turn the NumPy arrays of a sample into tensors, which share their memory; all else stays as it is.

    >>> as_tensors({"cells": np.arange(3), "name": "a"})
    {'cells': tensor([0, 1, 2]), 'name': 'a'}
    """
    return _mapped(sample, _as_tensor)


def stack(samples: Sequence[Any]) -> Any:
    """Stack the samples of a batch, as PyTorch does; they must be of one shape.

    >>> stack([torch.zeros(2), torch.ones(2)])
    tensor([[0., 0.],
            [1., 1.]])
    """
    try:
        return default_collate(list(samples))
    except RuntimeError as error:
        if not _uneven(samples):
            raise
        raise InvalidInputError(
            "the samples of a batch have different shapes and cannot be stacked; give the loader "
            "collate_fn=hyperslab.torch.pad or collate_fn=hyperslab.torch.as_list, or a transform that makes them equal"
        ) from error


class Padded(NamedTuple):
    """Tensors of different shapes in one: `values` filled up at the end of each axis, `shapes` what each one had."""

    values: torch.Tensor
    shapes: torch.Tensor

    @property
    def mask(self) -> torch.Tensor:
        """True where there is a cell, False where there is filling."""
        mask = torch.ones(self.values.shape, dtype=torch.bool, device=self.values.device)
        for axis in range(self.shapes.shape[1]):
            places = torch.arange(self.values.shape[axis + 1], device=self.values.device)
            inside = places < self.shapes[:, axis].to(places.device)[:, None]
            sizes = [len(inside)] + [1] * self.shapes.shape[1]
            sizes[axis + 1] = len(places)
            mask &= inside.reshape(sizes)
        return mask


def pad(samples: Sequence[Any], value: float = 0) -> Any:
    """Make one tensor of samples with as many axes, but of different sizes: a collate function.

    Every tensor with an axis becomes a `Padded`, also where the shapes happen to be equal. Give another filling by
    `functools.partial(pad, value=-1)`.

    >>> batch = pad([torch.tensor([1, 2, 3]), torch.tensor([4])])
    >>> batch.values
    tensor([[1, 2, 3],
            [4, 0, 0]])
    >>> batch.mask.sum(1)
    tensor([3, 1])
    """
    return _joined(samples, lambda tensors: _padded(tensors, value))


def as_list(samples: Sequence[Any]) -> Any:
    """Leave the tensors of a batch apart, in a list: a collate function.

    >>> as_list([(torch.zeros(2), 7), (torch.zeros(3), 8)])
    ([tensor([0., 0.]), tensor([0., 0., 0.])], tensor([7, 8]))
    """
    return _joined(samples, list)


def pinned(batch: Any) -> Any:
    """Copy the tensors of a batch to memory that an accelerator can fetch from while it computes."""
    return _mapped(batch, lambda leaf: leaf.pin_memory() if isinstance(leaf, torch.Tensor) else leaf)


def _mapped(sample: Any, change: Callable[[Any], Any]) -> Any:
    """Return a sample with each of its leaves changed."""
    if isinstance(sample, Mapping):
        return {name: _mapped(each, change) for name, each in sample.items()}
    if isinstance(sample, tuple) and hasattr(sample, "_fields"):
        return type(sample)(*[_mapped(each, change) for each in sample])
    if isinstance(sample, (tuple, list)):
        return type(sample)(_mapped(each, change) for each in sample)
    return change(sample)


def _as_tensor(leaf: Any) -> Any:
    if not isinstance(leaf, (np.ndarray, np.generic)):
        return leaf
    cells = np.asarray(leaf)
    if not cells.dtype.isnative:
        cells = cells.astype(cells.dtype.newbyteorder("="))
    if any(step < 0 for step in cells.strides) or not cells.flags.writeable:
        cells = cells.copy()
    try:
        return torch.from_numpy(cells)
    except TypeError as error:
        raise InvalidInputError(
            f"PyTorch has no tensors of {cells.dtype}; give the dataset a transform= that makes something else of them"
        ) from error


def _joined(samples: Sequence[Any], join: Callable[[list[torch.Tensor]], Any]) -> Any:
    """Go through samples of one structure; join the tensors that are at the same place in each."""
    first = samples[0]
    if isinstance(first, Mapping):
        return {name: _joined([sample[name] for sample in samples], join) for name in first}
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*[_joined(each, join) for each in zip(*samples, strict=True)])
    if isinstance(first, (tuple, list)):
        return type(first)(_joined(each, join) for each in zip(*samples, strict=True))
    if isinstance(first, (torch.Tensor, np.ndarray)) and first.ndim:
        return join([_as_tensor(sample) for sample in samples])
    return default_collate(list(samples))


def _uneven(samples: Sequence[Any]) -> bool:
    """Whether tensors that are at the same place in each sample have different shapes."""
    shapes: list[set[torch.Size]] = []
    _joined(samples, lambda tensors: shapes.append({tensor.shape for tensor in tensors}))
    return any([len(each) > 1 for each in shapes])


def _padded(tensors: list[torch.Tensor], value: float) -> Padded:
    if len({tensor.ndim for tensor in tensors}) > 1:
        raise InvalidInputError(
            f"samples with {sorted({tensor.ndim for tensor in tensors})} axes cannot be padded to one tensor; "
            "give collate_fn=hyperslab.torch.as_list, or a transform that makes their axes equal"
        )
    shapes = torch.tensor([tuple(tensor.shape) for tensor in tensors], dtype=torch.int64)
    values = torch.full((len(tensors), *shapes.amax(0).tolist()), value, dtype=tensors[0].dtype)
    for place, tensor in zip(values, tensors, strict=True):
        place[tuple(slice(size) for size in tensor.shape)] = tensor
    return Padded(values, shapes)
